//! The balancer's metrics: its [`Status`] as families. Sums over processes by default; on request also metrics per process by process id and user, never a name
//! or a command line.

use std::collections::BTreeMap;

use numapilot_balancer::event::EvidenceSource;
use numapilot_balancer::event::by_group;
use numapilot_balancer::status::Counters;
use numapilot_balancer::status::NodeStatus;
use numapilot_balancer::status::ResourcePressure;
use numapilot_balancer::status::State;
use numapilot_balancer::status::Status;

use super::MetricFamily;

/// All families of one status; of a loop without an observation its state, and since when the first is due. `per_process`: also those of single processes.
#[must_use]
pub fn families(status: &Status, per_process: bool) -> Vec<MetricFamily> {
    let state = State::ALL.iter().fold(
        MetricFamily::gauge("numapilot_state", "1 for the current state of the balancing loop, else 0"),
        |family, state| family.with(&[("state", &state.name())], f64::from(u8::from(status.state == *state))),
    );
    let updated = MetricFamily::gauge(
        "numapilot_last_update_timestamp_seconds",
        "Time of these figures (before the first, of the start), in seconds since 1970",
    )
    .value(status.unix_ns as f64 / 1e9);
    let interval = MetricFamily::gauge("numapilot_interval_seconds", "Time between two observations")
        .value(status.interval_ns as f64 / 1e9);
    // The first figures come with the first observation, which may be an hour after the start: until then none of them is known, and none is 0.
    if status.state == State::Starting {
        let is_begun = status.unix_ns > 0;
        return if is_begun { vec![state, updated, interval] } else { vec![state] };
    }
    let mut out = vec![
        MetricFamily::gauge("numapilot_info", "Always 1; the labels describe the running daemon")
            .with(&[("version", &env!("CARGO_PKG_VERSION")), ("policy", &status.policy), ("run", &status.run)], 1.0),
        state,
        MetricFamily::gauge("numapilot_dry_run", "1 if decisions are only reported and nothing is moved")
            .value(f64::from(u8::from(status.dry_run))),
        updated,
        interval,
        MetricFamily::gauge("numapilot_targets", "Managed processes").value(status.targets.len() as f64),
        maybe(
            MetricFamily::gauge("numapilot_known_pages", "Pages with statistics"),
            status.pages_known.map(|pages| pages as f64),
        ),
        used(&status.evidence),
    ];
    out.extend(counters(&status.counters));
    out.extend(rates(status));
    out.extend(nodes(&status.nodes));
    out.push(pressure(&status.pressure));
    out.push(
        MetricFamily::gauge("numapilot_put_off", "1 while moves are put off because of the system's memory pressure")
            .value(f64::from(u8::from(status.is_put_off))),
    );
    out.extend(own(status));
    let mut lost =
        MetricFamily::counter("numapilot_lost_total", "Samples, records and other data that were lost, by kind");
    for loss in &status.losses {
        lost.push(&[("what", &loss.what)], loss.count as f64);
    }
    out.push(lost);
    if per_process {
        out.extend(targets(status));
    }
    out
}

fn used(evidence: &[EvidenceSource]) -> MetricFamily {
    let family = MetricFamily::gauge(
        "numapilot_evidence_used",
        "1 for sources of evidence that are used, 0 for those that are not available",
    );
    // A source may have several entries, which become one series.
    let mut by_name: BTreeMap<&str, bool> = BTreeMap::new();
    evidence.iter().for_each(|source| *by_name.entry(&source.name).or_default() |= source.used);
    by_name
        .into_iter()
        .fold(family, |family, (name, used)| family.with(&[("source", &name)], f64::from(u8::from(used))))
}

fn counters(counters: &Counters) -> Vec<MetricFamily> {
    let one = |name, help, value: u64| MetricFamily::counter(name, help).value(value as f64);
    let mut pages = MetricFamily::counter("numapilot_pages_total", "Pages ordered to be moved, by outcome");
    for (outcome, count) in by_group(&counters.pages) {
        pages.push(&[("outcome", &outcome)], count as f64);
    }
    vec![
        one("numapilot_observations_total", "Observation intervals", counters.observations),
        one("numapilot_decisions_total", "Decisions that ordered something", counters.decisions),
        one("numapilot_samples_total", "Sampled memory accesses", counters.samples),
        one(
            "numapilot_samples_lost_total",
            "Records of samples and faults that were lost; numapilot_lost_total has them by kind",
            counters.samples_lost,
        ),
        one("numapilot_hint_faults_total", "Hinting faults observed", counters.hint_faults),
        one("numapilot_file_uses_total", "Observed uses of file pages that are only read", counters.file_uses),
        pages,
        one("numapilot_pages_undone_total", "Pages moved back", counters.pages_undone),
        one("numapilot_moved_bytes_total", "Bytes copied from node to node", counters.moved_bytes),
        MetricFamily::counter("numapilot_moving_seconds_total", "Time spent in moving pages")
            .value(counters.moving_ns as f64 / 1e9),
        one("numapilot_threads_moved_total", "Threads moved", counters.threads_moved),
        MetricFamily::counter("numapilot_verdicts_total", "Comparisons with and without changes, by verdict")
            .with(&[("verdict", &"kept")], counters.kept as f64)
            .with(&[("verdict", &"undone")], counters.undone as f64),
        one(
            "numapilot_ping_pongs_total",
            "Page ranges no longer moved because they moved back and forth",
            counters.ping_pongs,
        ),
        one(
            "numapilot_put_offs_total",
            "Decisions of which all or some orders were put off because of memory pressure",
            counters.put_offs,
        ),
        one("numapilot_back_offs_total", "Times that the balancing loop lengthened its interval", counters.back_offs),
    ]
}

/// A family with this value; without one, if that is unknown.
fn maybe(family: MetricFamily, value: Option<f64>) -> MetricFamily {
    match value {
        Some(value) => family.value(value),
        None => family,
    }
}

fn rates(status: &Status) -> Vec<MetricFamily> {
    let local =
        MetricFamily::gauge("numapilot_local_ratio", "Share of the evidence of the last interval that was local");
    let imbalance = MetricFamily::gauge(
        "numapilot_imbalance_ratio",
        "Sample standard deviation over mean of the evidence by home node, last interval",
    );
    vec![
        maybe(local, status.rates.local_share),
        maybe(imbalance, status.rates.imbalance_percent.map(|percent| percent / 100.0)),
    ]
}

fn nodes(nodes: &[NodeStatus]) -> Vec<MetricFamily> {
    type Figure = fn(&NodeStatus) -> Option<f64>;
    let table: [(&'static str, &'static str, Figure); 4] = [
        ("numapilot_node_memory_bytes", "Memory of a node", |n| Some(n.memory_bytes as f64)),
        ("numapilot_node_free_bytes", "Free memory of a node", |n| n.free_bytes.map(|bytes| bytes as f64)),
        ("numapilot_node_available_bytes", "Memory of a node that can be given out without swapping, estimated", |n| {
            n.available_bytes.map(|bytes| bytes as f64)
        }),
        ("numapilot_node_local_ratio", "Share of the evidence from a node's CPUs that was local, last interval", |n| {
            n.local_share
        }),
    ];
    let mut out = Vec::new();
    for (name, help, figure) in table {
        let mut family = MetricFamily::gauge(name, help);
        for node in nodes {
            if let Some(value) = figure(node) {
                family.push(&[("node", &node.node)], value);
            }
        }
        out.push(family);
    }
    let mut probes =
        MetricFamily::gauge("numapilot_probe_latency_seconds", "Time of a probing memory access, from node to node");
    for from in nodes {
        for (to, latency) in nodes.iter().zip(&from.probe_ns) {
            if let Some(latency_ns) = latency {
                probes.push(&[("from", &from.node), ("to", &to.node)], latency_ns / 1e9);
            }
        }
    }
    out.push(probes);
    out
}

fn pressure(resources: &[ResourcePressure]) -> MetricFamily {
    let mut family = MetricFamily::gauge(
        "numapilot_pressure_ratio",
        "Share of the last 10 s in which some tasks of the system, or all that had work, waited for a resource",
    );
    for one in resources {
        family.push(&[("resource", &one.resource), ("tasks", &"some")], one.some);
        if let Some(full) = one.full {
            family.push(&[("resource", &one.resource), ("tasks", &"full")], full);
        }
    }
    family
}

/// Resource use, by the names that Prometheus's own client libraries use.
fn own(status: &Status) -> Vec<MetricFamily> {
    vec![
        MetricFamily::counter("process_cpu_seconds_total", "Processor time of numapilot itself")
            .value(status.own.cpu_ns as f64 / 1e9),
        MetricFamily::gauge("process_resident_memory_bytes", "Resident memory of numapilot itself")
            .value(status.own.resident_bytes as f64),
        MetricFamily::gauge("process_open_fds", "Open file descriptors of numapilot itself")
            .value(status.own.open_files as f64),
        MetricFamily::gauge("process_start_time_seconds", "When numapilot started, in seconds since 1970")
            .value(status.started_unix_ns as f64 / 1e9),
    ]
}

fn targets(status: &Status) -> Vec<MetricFamily> {
    let mut moved = MetricFamily::counter("numapilot_target_moved_bytes_total", "Bytes moved for one process");
    let mut local = MetricFamily::gauge(
        "numapilot_target_local_ratio",
        "Share of one process's evidence that was local, last interval",
    );
    for target in &status.targets {
        let labels: [(&'static str, &dyn ToString); 2] = [("pid", &target.target.pid), ("uid", &target.target.uid)];
        if let Some(bytes) = target.moved_bytes {
            moved.push(&labels, bytes as f64);
        }
        if let Some(share) = target.local_share {
            local.push(&labels, share);
        }
    }
    vec![moved, local]
}

#[cfg(test)]
mod tests {
    //! Every family of a full status.

    use numapilot_balancer::event::Loss;
    use numapilot_balancer::event::Target;
    use numapilot_balancer::status::Rates;
    use numapilot_balancer::status::TargetStatus;

    use numapilot_host::Pid;
    use numapilot_machine::NodeId;

    use super::*;
    use crate::metrics::encode;
    use crate::metrics::problems;

    fn status() -> Status {
        let node = |node| NodeStatus {
            node,
            memory_bytes: 1 << 30,
            free_bytes: Some(1 << 29),
            available_bytes: Some(1 << 28),
            probe_ns: vec![Some(90.0), None],
            local_share: Some(0.5),
        };
        let target = Target { pid: Pid(4711), start_ticks: 1, uid: 1000, name: "secret-name".to_owned() };
        Status {
            state: State::Paused,
            policy: "pilot:max-harm=1".to_owned(),
            nodes: vec![node(NodeId(0)), node(NodeId(2))],
            targets: vec![TargetStatus {
                target,
                local_share: Some(0.25),
                moved_bytes: Some(0),
                ..TargetStatus::default()
            }],
            pages_known: Some(3_000_000),
            rates: Rates { local_share: Some(0.5), imbalance_percent: Some(200.0), ..Rates::default() },
            losses: vec![Loss { what: "samples".to_owned(), count: 3 }],
            pressure: vec![ResourcePressure { resource: "memory".to_owned(), some: 0.25, full: Some(0.125) }],
            is_put_off: true,
            evidence: vec![EvidenceSource { name: "fault".to_owned(), used: true, detail: String::new() }],
            ..Status::default()
        }
    }

    #[test]
    fn names_keep_the_rules_and_every_family_has_values() {
        let families = families(&status(), true);
        assert_eq!(problems(&families), Vec::<String>::new());
        for family in &families {
            assert!(!family.samples.is_empty(), "{}", family.name);
        }
        let text = encode(&families);
        for line in [
            "numapilot_state{state=\"paused\"} 1",
            "numapilot_state{state=\"running\"} 0",
            "numapilot_imbalance_ratio 2",
            "numapilot_known_pages 3000000",
            "numapilot_probe_latency_seconds{from=\"2\",to=\"0\"} 0.00000009",
            "numapilot_lost_total{what=\"samples\"} 3",
            "numapilot_pages_total{outcome=\"no-room\"} 0",
            "numapilot_put_off 1",
            "numapilot_pressure_ratio{resource=\"memory\",tasks=\"some\"} 0.25",
            "numapilot_pressure_ratio{resource=\"memory\",tasks=\"full\"} 0.125",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn what_is_not_counted_is_left_out() {
        let (targets, nodes) = (vec![TargetStatus::default()], vec![NodeStatus::default()]);
        let text = encode(&families(&Status { state: State::Running, targets, nodes, ..Status::default() }, true));
        let of_nodes = ["numapilot_node_free_bytes", "numapilot_node_available_bytes"];
        for name in ["numapilot_known_pages", "numapilot_target_moved_bytes_total"].into_iter().chain(of_nodes) {
            assert!(!text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
        }
    }

    /// It had started in 1970, and its figures were as old: the alert of a loop that hangs went off.
    #[test]
    fn before_the_first_observation_there_are_no_figures() {
        let text = encode(&families(&Status { pid: Pid(7), ..Status::default() }, true));
        assert!(text.contains("numapilot_state{state=\"starting\"} 1\n"), "{text}");
        assert_eq!(text.matches("# TYPE ").count(), 1, "{text}");
    }

    /// The alert of a loop that hangs did not see one that hung in its first observation: there was nothing that grew old.
    #[test]
    fn a_loop_that_has_begun_says_since_when_its_first_figures_are_due() {
        let begun = Status { unix_ns: 5_000_000_000, interval_ns: 3_000_000_000, ..Status::default() };
        let text = encode(&families(&begun, true));
        for line in ["numapilot_last_update_timestamp_seconds 5", "numapilot_interval_seconds 3"] {
            assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE ").count(), 3, "{text}");
    }

    #[test]
    fn nobody_reads_of_others_programs() {
        let shared = encode(&families(&status(), false));
        assert!(!shared.contains("4711") && !shared.contains("secret-name"), "{shared}");
        let with_leave = encode(&families(&status(), true));
        assert!(with_leave.contains("pid=\"4711\"") && !with_leave.contains("secret-name"), "{with_leave}");
    }
}
