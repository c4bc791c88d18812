//! What is shipped beside the program agrees with it: configuration files are taken, and every figure that the dashboard asks for is served.

use std::collections::BTreeSet;
use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;

use numapilot_balancer::event::EvidenceSource;
use numapilot_balancer::event::Loss;
use numapilot_balancer::status::NodeStatus;
use numapilot_balancer::status::Rates;
use numapilot_balancer::status::State;
use numapilot_balancer::status::Status;
use numapilot_scratch::root;
use numapilot_service::Address;
use numapilot_service::Places;
use numapilot_service::config::Config;
use numapilot_service::config::MetricsSettings;
use numapilot_service::config::Who;
use numapilot_service::daemon::Daemon;
use numapilot_service::daemon::DaemonSettings;
use numapilot_service::journal::JournalSettings;

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn load(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("n.toml");
    std::fs::write(&path, text).unwrap();
    Config::load(&path).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn the_shipped_configuration_is_taken_and_names_every_default() {
    let shipped = text("packaging/numapilot.toml");
    let config = load(&shipped);
    assert_eq!(config.who, Who::System);
    let defaults = load("system = true\n[metrics]\nlisten = \"127.0.0.1:9105\"\n");
    // With every `#key = value` taken at its word, nothing changes but what has no default to show.
    let all: String = shipped
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if key.contains(" = ") && !key.starts_with(' ') => key,
            _ => line,
        })
        .filter(|line| {
            !["cgroup", "unit", "pid", "rate", "machine"].iter().any(|key| line.starts_with(&format!("{key} =")))
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let mut spelt_out = load(&all);
    assert_eq!(spelt_out.tunables, defaults.tunables);
    // These three depend on who runs it.
    spelt_out.journal.as_mut().unwrap().file = defaults.journal.as_ref().unwrap().file.clone();
    spelt_out.control.as_mut().unwrap().path = defaults.control.as_ref().unwrap().path.clone();
    spelt_out.state = defaults.state.clone();
    assert_eq!(spelt_out.needs_restart(&defaults), Vec::<&str>::new());
    assert_eq!(config.tunables, defaults.tunables);
}

#[test]
fn the_cluster_configuration_is_taken() {
    let manifest = text("packaging/kubernetes/daemonset.yaml");
    let inner = manifest
        .split("numapilot.toml: |\n")
        .nth(1)
        .expect("the configuration")
        .split("---\n")
        .next()
        .expect("its end");
    let config = load(&inner.lines().map(|line| format!("{}\n", line.trim_start())).collect::<String>());
    assert!(config.keep_settings, "a container's /proc/sys cannot be written");
    let unit = text("packaging/systemd/numapilot.service");
    for right in ["SYS_NICE", "SYS_PTRACE", "DAC_READ_SEARCH", "PERFMON"] {
        assert!(manifest.contains(&format!("\"{right}\"")) && unit.contains(&format!("CAP_{right}")), "{right}");
    }
}

/// Each probe starts a program, which a busy node may need more than the default of a second for: the kubelet then ended a daemon that was sound.
#[test]
fn the_cluster_gives_probes_time_to_start_a_program() {
    let manifest = text("packaging/kubernetes/daemonset.yaml");
    let probes = manifest.split("Probe:\n").skip(1);
    let timeouts: Vec<u32> = probes
        .filter_map(|probe| probe.lines().find_map(|line| line.trim().strip_prefix("timeoutSeconds: ")?.parse().ok()))
        .collect();
    assert_eq!(timeouts.len(), manifest.matches("Probe:\n").count());
    assert!(timeouts.len() == 2 && timeouts.iter().all(|seconds| *seconds > 1), "{timeouts:?}");
}

/// It was an `emptyDir`, which Kubernetes lets all users write to: no daemon started.
#[test]
fn the_cluster_gives_the_daemon_a_folder_for_its_locks_that_only_root_writes_to() {
    let manifest = text("packaging/kubernetes/daemonset.yaml");
    let locks = Places::machine(0).display().to_string();
    assert!(manifest.contains(&format!("mountPath: {locks}\n")), "{locks}");
    let volume = format!("hostPath:\n            path: {locks}\n            type: DirectoryOrCreate\n");
    assert!(manifest.contains(&volume), "{locks} is another kind of volume");
}

#[test]
fn the_unit_keeps_cgroups_read_only_and_its_drop_in_lets_the_packer_write_them() {
    let settings = |path: &str| {
        let lines: Vec<String> = text(path).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        lines
    };
    let (unit, drop_in) = (settings("packaging/systemd/numapilot.service"), settings("packaging/systemd/pack.conf"));
    assert!(unit.contains(&"ProtectControlGroups=yes".to_owned()));
    let first = drop_in.iter().find(|line| !line.is_empty()).map(String::as_str);
    assert_eq!(first, Some("[Service]"), "a drop-in without a section is ignored");
    assert!(drop_in.contains(&"ProtectControlGroups=no".to_owned()));
    // Everything else stays as the unit has it.
    assert_eq!(drop_in.iter().filter(|line| line.contains('=')).count(), 1);
    assert!(text("docs/service.md").contains("packaging/systemd/pack.conf"));
    // Whoever runs the guide's block of first steps installs no drop-in that only `pack = true` needs.
    let guide = text("docs/guides/balance-a-machine.md");
    let mut blocks = guide.split("```").filter(|block| block.contains("install -D -m 644 packaging/systemd/pack.conf"));
    let block = blocks.next().expect("the guide tells how to install the drop-in");
    assert!(!block.contains("enable --now"), "{block}");
}

#[test]
fn the_unit_starts_where_the_second_node_is_not_number_1() {
    let folders = "/sys/devices/system/node/node";
    let unit = text("packaging/systemd/numapilot.service");
    let conditions: Vec<&str> = unit.lines().filter(|line| line.contains(folders)).collect();
    assert_eq!(conditions, [format!("ConditionPathExistsGlob={folders}[1-9]*")]);
    for tree in ["sparse-nodes", "two-sockets-smt", "one-node"] {
        let tree_text = text(&format!("testdata/sysfs/{tree}.tree"));
        let second = tree_text
            .lines()
            .filter_map(|line| line.strip_prefix(&folders[1..]))
            .any(|node| node.starts_with(|digit: char| ('1'..='9').contains(&digit)));
        assert_eq!(second, tree != "one-node", "{tree}");
    }
}

#[test]
fn whoever_opens_the_metrics_to_other_machines_is_told_of_the_units_filter() {
    let rule = "IPAddressAllow=192.0.2.0/24";
    assert!(text("packaging/systemd/numapilot.service").contains("IPAddressDeny=any"));
    for path in ["packaging/systemd/numapilot.service", "packaging/numapilot.toml", "docs/operating/metrics.md"] {
        let told = text(path);
        assert!(told.contains(rule) && told.contains("allow-remote"), "{path}");
    }
}

/// `numapilot_samples_lost_total` is a part of `numapilot_lost_total`.
#[test]
fn no_panel_and_no_alert_counts_a_loss_twice() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("packaging/grafana/numapilot.json")).unwrap();
    let metrics = text("docs/operating/metrics.md");
    let panels = dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["targets"].to_string());
    for asks in panels.chain(metrics.lines().filter(|line| line.contains("rate(")).map(str::to_owned)) {
        assert!(!(asks.contains("numapilot_lost_total") && asks.contains("numapilot_samples_lost_total")), "{asks}");
    }
}

/// With `interval = "5m"`, which the configuration takes, an alert after a minute never ended.
#[test]
fn the_alert_on_old_figures_allows_for_the_interval() {
    let metrics = text("docs/operating/metrics.md");
    let is_alert = |line: &&str| line.contains("time() - numapilot_last_update_timestamp_seconds");
    let alerts: Vec<&str> = metrics.lines().filter(is_alert).collect();
    assert!(
        !alerts.is_empty() && alerts.iter().all(|line| line.contains("* numapilot_interval_seconds")),
        "{alerts:?}"
    );
}

#[test]
fn the_unit_sees_where_users_tell_which_processes_they_manage() {
    let unit = text("packaging/systemd/numapilot.service");
    for line in unit.lines() {
        let (key, value) = line.split_once('=').unwrap_or_default();
        assert!(key != "ProtectHome" || value == "read-only", "/run/user/UID/numapilot/claims: {line}");
        assert!(key != "PrivateTmp" || value == "no", "/tmp/numapilot-UID/claims: {line}");
    }
}

/// Names of the figures that a full status makes, by way of the real page.
fn served() -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("metrics");
    let settings = DaemonSettings {
        journal: Some(JournalSettings::new(folder.path().join("journal"))),
        metrics: Some(MetricsSettings {
            listen: Address::Unix(socket.clone()),
            allow_remote: false,
            per_process: false,
        }),
        ..DaemonSettings::default()
    };
    let mut daemon = Daemon::start(&settings, || ()).unwrap();
    let node = NodeStatus {
        probe_ns: vec![Some(90.0)],
        local_share: Some(0.5),
        free_bytes: Some(0),
        available_bytes: Some(0),
        ..NodeStatus::default()
    };
    daemon.status(Status {
        state: State::Running,
        nodes: vec![node],
        rates: Rates { local_share: Some(0.5), imbalance_percent: Some(1.0), ..Rates::default() },
        losses: vec![Loss { what: "samples".to_owned(), count: 1 }],
        evidence: vec![EvidenceSource::default()],
        ..Status::default()
    });
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn every_figure_of_the_dashboard_is_served() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("packaging/grafana/numapilot.json")).unwrap();
    let served = served();
    assert!(served.len() > 30, "{served:?}");
    let mut asked = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let names: Vec<&str> =
                words.filter(|word| word.starts_with("numapilot_") || word.starts_with("process_")).collect();
            assert!(!names.is_empty(), "{expression}");
            asked.extend(names.into_iter().map(str::to_owned));
        }
    }
    let missing: Vec<&String> = asked.difference(&served).collect();
    assert!(missing.is_empty(), "the dashboard asks for {missing:?}; served are {served:?}");
    assert!(served.contains("numapilot_info"), "the dashboard's list of instances comes from it");
}

/// With all instances chosen, the dashboard added up what every program uses that Prometheus scrapes: these names are those of Prometheus's clients.
#[test]
fn names_that_others_have_too_are_asked_of_numapilot_alone() {
    let dashboard: serde_json::Value = serde_json::from_str(&text("packaging/grafana/numapilot.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let mut expressions: Vec<String> = targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let rules = text("packaging/prometheus/numapilot.rules.yml");
    expressions.extend(rules.lines().filter(|line| line.contains("expr: ")).map(str::to_owned));
    expressions.retain(|expression| expression.contains("process_"));
    assert!(expressions.len() >= 3, "{expressions:?}");
    for expression in expressions {
        assert!(expression.contains("* on (instance, job) group_left numapilot_info"), "{expression}");
    }
}

#[test]
fn every_figure_of_the_alerts_is_served() {
    let served = served();
    let rules = text("packaging/prometheus/numapilot.rules.yml");
    let expressions: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).collect();
    assert_eq!(expressions.len(), rules.matches("- alert: ").count() + rules.matches("- record: ").count());
    for expression in expressions {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<&str> =
            words.filter(|word| word.starts_with("numapilot_") || word.starts_with("process_")).collect();
        assert!(!names.is_empty(), "{expression}");
        let missing: Vec<&&str> = names.iter().filter(|name| !served.contains(**name)).collect();
        assert!(missing.is_empty(), "{expression}: {missing:?} are not served");
    }
}
