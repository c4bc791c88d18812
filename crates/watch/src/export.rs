//! Metrics for Prometheus: an interval as metric families. A value that is not known is left out, and `numapilot_figure_missing` holds the reason: it never
//! becomes a zero.

use std::collections::BTreeSet;

use numapilot_service::metrics::MetricFamily;

use crate::figures::Interval;
use crate::figures::Metric;
use crate::figures::MetricValue;
use crate::figures::NodeFigures;
use crate::figures::NumaStat;
use crate::maps::NUMASTAT_KINDS;
use crate::stat::Stat;

/// A metric's name and help in Prometheus's terms.
fn named(metric: Metric) -> (&'static str, &'static str) {
    match metric {
        Metric::LocalShare => {
            ("numapilot_local_access_ratio", "Share of memory accesses answered by the accessing CPU's own node.")
        }
        Metric::Latency => ("numapilot_memory_latency_cycles", "Mean latency of a memory access, in core cycles."),
        Metric::ControllerImbalance => (
            "numapilot_controller_imbalance_ratio",
            "Standard deviation of requests over the memory controllers, over their mean (population definition).",
        ),
        Metric::LinkUsage => ("numapilot_interconnect_usage_ratio", "Mean bandwidth utilisation of the links."),
        Metric::LinkImbalance => (
            "numapilot_interconnect_imbalance_ratio",
            "Standard deviation of the links' utilisation over its mean (population definition).",
        ),
        Metric::L3Mpki => {
            ("numapilot_l3_misses_per_kiloinstruction", "Last-level cache misses per 1,000 instructions.")
        }
        Metric::Ipc => ("numapilot_instructions_per_cycle", "Instructions per cycle."),
    }
}

/// All metrics of an interval and of the watched processes.
#[must_use]
pub fn families(stat: &Stat) -> Vec<MetricFamily> {
    let interval = &stat.interval;
    let mut out = vec![
        MetricFamily::gauge(
            "numapilot_simulated",
            "1 where a trace is replayed on a simulated machine: then nothing here is measured.",
        )
        .value(f64::from(u8::from(interval.simulated.is_some()))),
        MetricFamily::gauge("numapilot_interval_seconds", "Length of the interval that the gauges describe.")
            .value(interval.seconds()),
    ];
    let mut missing = MetricFamily::gauge(
        "numapilot_figure_missing",
        "1 for each figure that is not available on this machine, with the reason.",
    );
    for metric in Metric::ALL {
        let (name, help) = named(metric);
        match interval.metrics.get(metric) {
            MetricValue::Value { value, source, is_estimate } => {
                let kind = if *is_estimate { "estimate" } else { "counted" };
                out.push(MetricFamily::gauge(name, help).with(&[("source", source), ("kind", &kind)], *value));
            }
            MetricValue::Missing(why) => missing.push(&[("figure", &metric.name()), ("because", why)], 1.0),
        }
    }
    let nodes = nodes(interval, &mut missing);
    out.push(missing);
    out.extend(nodes);
    let mut links = MetricFamily::gauge("numapilot_link_load_ratio", "Utilisation of a directed link.");
    interval.links.iter().for_each(|link| links.push(&[("link", &link.name)], link.load));
    let mut kernel = MetricFamily::counter(
        "numapilot_kernel_numa_total",
        "The kernel's counters of NUMA events and migrated pages (/proc/vmstat).",
    );
    interval.kernel.iter().for_each(|(name, total, _)| kernel.push(&[("counter", name)], *total as f64));
    out.extend([links, kernel, processes(interval), memory(stat)]);
    out
}

/// Figures of the nodes; the reasons why no node has one are added to `missing`.
fn nodes(interval: &Interval, missing: &mut MetricFamily) -> Vec<MetricFamily> {
    let gauge = MetricFamily::gauge;
    let mut memory = gauge("numapilot_node_memory_bytes", "Memory of a node.");
    let mut free = gauge("numapilot_node_free_bytes", "Free memory of a node.");
    let mut tier = gauge(
        "numapilot_node_memory_tier",
        "The kernel's tier of a node's memory (memory_tierN): the lower, the faster.",
    );
    let mut cpus = gauge("numapilot_node_cpus", "CPUs of a node that are online.");
    let mut busy = gauge("numapilot_node_busy_cpus", "CPUs of a node that were busy, on average over the interval.");
    let mut local = gauge("numapilot_node_local_access_ratio", "Local access ratio of a node's CPUs.");
    let mut served = gauge(
        "numapilot_node_controller_bytes_per_second",
        "Bytes per second that a node's memory controllers served.",
    );
    let mut load = gauge("numapilot_node_controller_load_ratio", "Utilisation of a node's memory controller.");
    let mut pages =
        MetricFamily::counter("numapilot_node_numastat_pages_total", "Pages allocated, by the counters of numastat.");
    let has_numastat = interval.has_numastat();
    for node in &interval.nodes {
        let label: &[(&'static str, &dyn ToString)] = &[("node", &node.node)];
        memory.push(label, node.memory_bytes as f64);
        node.free_bytes.into_iter().for_each(|bytes| free.push(label, bytes as f64));
        node.tier.into_iter().for_each(|number| tier.push(label, f64::from(number)));
        if interval.no_cpus.is_none() {
            cpus.push(label, node.cpus as f64);
        }
        node.busy_cpus.into_iter().for_each(|value| busy.push(label, value));
        node.local_share.value().into_iter().for_each(|value| local.push(label, value));
        node.controller_bytes_per_s.value().into_iter().for_each(|value| served.push(label, value));
        node.controller_load.into_iter().for_each(|value| load.push(label, value));
        if has_numastat {
            for (name, count) in NumaStat::NAMES.iter().zip(node.numastat.0) {
                pages.push(&[("node", &node.node), ("counter", name)], count as f64);
            }
        }
    }
    let mut tell = |figure: &str, why: &str| missing.push(&[("figure", &figure), ("because", &why)], 1.0);
    interval.no_cpus.iter().for_each(|why| tell("node_cpus", why));
    interval.no_busy_cpus.iter().for_each(|why| tell("node_busy_cpus", why));
    let nodes = &interval.nodes;
    why_none(nodes, |node| &node.local_share).iter().for_each(|why| tell("node_local_access_ratio", why));
    let unserved = why_none(nodes, |node| &node.controller_bytes_per_s);
    unserved.iter().for_each(|why| tell("node_controller_bytes_per_second", why));
    vec![memory, free, tier, cpus, busy, local, served, load, pages]
}

/// Why no node has a figure, each reason once; nothing where a node has it.
fn why_none(nodes: &[NodeFigures], figure: fn(&NodeFigures) -> &MetricValue) -> BTreeSet<String> {
    let mut reasons = BTreeSet::new();
    for node in nodes {
        let MetricValue::Missing(why) = figure(node) else { return BTreeSet::new() };
        reasons.insert(why.clone());
    }
    reasons.remove("");
    reasons
}

fn processes(interval: &Interval) -> MetricFamily {
    let mut cpus =
        MetricFamily::gauge("numapilot_process_cpus", "CPUs that a process kept busy, on average over the interval.");
    for process in &interval.processes {
        cpus.push(&[("pid", &process.pid), ("name", &process.name)], process.cpus);
    }
    cpus
}

fn memory(stat: &Stat) -> MetricFamily {
    let mut bytes = MetricFamily::gauge(
        "numapilot_process_memory_bytes",
        "Memory of a watched process by node, as numastat -p divides it.",
    );
    for map in &stat.memory {
        for (kind, row) in NUMASTAT_KINDS.iter().zip(map.by_numastat_kind()) {
            for (node, value) in map.nodes.iter().zip(row) {
                let labels: &[(&'static str, &dyn ToString)] =
                    &[("pid", &map.pid), ("name", &map.name), ("node", node), ("kind", &kind.to_lowercase())];
                bytes.push(labels, value as f64);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    //! The text of a machine of testdata/sysfs and of a replay.

    use numapilot_service::metrics::encode;
    use numapilot_service::metrics::problems;

    use super::*;
    use crate::stat::tests::made;
    use crate::stat::tests::simulated;

    #[test]
    fn texts_follow_prometheus_and_say_what_is_missing() {
        for stat in [made(), simulated()] {
            let families = families(&stat);
            assert_eq!(problems(&families), Vec::<String>::new());
        }
        insta::assert_snapshot!("made", encode(&families(&made())));
        let text = encode(&families(&simulated()));
        assert!(
            text.contains("numapilot_simulated 1\n") && text.contains("numapilot_link_load_ratio{link=\"0→1\"}"),
            "{text}"
        );
        assert!(!text.contains("numastat"), "a simulated machine has no numastat");
        let mut tiered = made();
        tiered.interval.nodes[1].tier = Some(22);
        let tiered = encode(&families(&tiered));
        assert!(tiered.contains("numapilot_node_memory_tier{node=\"1\"} 22\n"), "{tiered}");
        let mut uncounted = made();
        uncounted.interval.nodes.iter_mut().for_each(|node| node.numastat = NumaStat::default());
        assert!(!encode(&families(&uncounted)).contains("numastat_pages"), "nor has a kernel that does not count");
    }

    /// In a container with lxcfs nothing said why no node had busy CPUs, and their numbers of CPUs were those that lxcfs made up.
    #[test]
    fn what_no_node_has_is_missing_for_a_reason() {
        let mut contained = made();
        (contained.interval.no_busy_cpus, contained.interval.no_cpus) =
            (Some("made-up times".to_owned()), Some("a made-up list".to_owned()));
        let text = encode(&families(&contained));
        assert!(!text.contains("numapilot_node_cpus{") && !text.contains("numapilot_node_busy_cpus{"), "{text}");
        for (figure, why) in [("node_cpus", "a made-up list"), ("node_busy_cpus", "made-up times")] {
            let line = format!("numapilot_figure_missing{{figure=\"{figure}\",because=\"{why}\"}} 1\n");
            assert!(text.contains(&line), "{line} not in\n{text}");
        }
        assert!(
            text.contains("{figure=\"node_controller_bytes_per_second\",because=\"the kernel offers no PMU"),
            "{text}"
        );
        contained.interval.nodes[0].controller_bytes_per_s = MetricValue::of(Some(1.0), "uncore", "");
        let text = encode(&families(&contained));
        assert!(!text.contains("figure=\"node_controller"), "one node has it: {text}");
    }
}
