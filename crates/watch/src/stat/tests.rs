//! Golden texts: a machine of testdata/sysfs, and a replayed trace.

use std::collections::BTreeSet;
use std::path::Path;

use numapilot_host::Pid;
use numapilot_text::style::Look;
use serde_json::Value;

use super::*;
use crate::figures::EventFigures;
use crate::figures::Interval;
use crate::figures::Metric;
use crate::figures::MetricValue;
use crate::figures::NumaStat;
use crate::fixture::Tree;
use crate::live::Live;
use crate::live::LiveOptions;
use crate::maps::Reader;
use crate::replay::ReplayOptions;
use crate::replay::replay;

/// A machine that was made up, and offers nothing but the kernel's counts.
pub fn made() -> Stat {
    let tree = Tree::symmetric(2, 4, 1 << 20);
    let put = |step: u64| {
        for node in 0..2_u64 {
            let counts = [1_000_000 + step * 512, 20, 30, 700, 999_000 + step * 500, 1020 + step * 12];
            let text: String =
                NumaStat::NAMES.iter().zip(counts).map(|(name, count)| format!("{name} {count}\n")).collect();
            tree.put(&format!("sys/devices/system/node/node{node}/numastat"), &text);
        }
        tree.put("proc/vmstat", &format!("numa_hint_faults {}\nnuma_hint_faults_local {}\n", step * 400, step * 100));
    };
    tree.put("proc/sys/kernel/numa_balancing", "1");
    tree.process(40, "app", &[(40, 0, 900)]);
    tree.put("proc/40/numa_maps", "5600bb000000 default heap anon=6 N0=500 N1=12 kernelpagesize_kB=4\n7f00 default anon=9 N1=99 kernelpagesize_kB=4");
    put(1);
    let options = LiveOptions { no_latency: "nothing counts latencies".to_owned(), ..LiveOptions::default() };
    let mut live = Live::open(tree.root(), tree.machine(), &options);
    put(2);
    let mut interval = live.interval();
    (interval.from_ns, interval.to_ns) = (0, 1_000_000_000);
    let map = Reader::default().read(live.root(), live.machine(), Pid(40)).unwrap();
    Stat { interval, memory: vec![map] }
}

/// The second interval of the trace that tests share.
pub fn simulated() -> Stat {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
    let options = ReplayOptions { policy: "first-touch".to_owned(), interval_ns: 50_000_000, length_ns: None, seed: 1 };
    let replay = replay(&trace, None, &options).unwrap();
    Stat { interval: replay.frames[1].interval.clone(), memory: Vec::new() }
}

#[test]
fn texts_are_as_they_were() {
    insta::assert_snapshot!("made_text", text(&made(), Look::default()));
    insta::assert_snapshot!("simulated_text", text(&simulated(), Look { width: 80, colour: false }));
    let intervals = simulated().interval;
    insta::assert_snapshot!("simulated_brief", brief_heading(&intervals, Look::default()) + &brief(&intervals));
    insta::assert_snapshot!("made_csv", csv_heading().to_owned() + &csv(&made()));
    insta::assert_snapshot!("made_json", serde_json::to_string_pretty(&json(&made())).unwrap());
}

/// Unknown is no zero; and whoever names a process does not talk to the terminal of who watches.
/// On a virtual machine without counters, some twenty lines told the same reason five times, before the tables.
#[test]
fn a_reason_that_several_metrics_share_is_told_once() {
    let mut interval = Interval::default();
    let base = "no counters";
    for metric in Metric::ALL {
        interval.metrics.set(metric, MetricValue::Missing(base.to_owned()));
    }
    let whole = format!("{base}; the kernel counts the whole machine (`--system`)");
    interval.metrics.set(Metric::LocalShare, MetricValue::Missing(whole));
    let unsampled = format!("latencies cannot be sampled: {base} (use the host itself)");
    interval.metrics.set(Metric::Latency, MetricValue::Missing(unsampled));
    interval.metrics.set(Metric::LinkUsage, MetricValue::Missing("there is no PMU of links".to_owned()));
    let told = brief_heading(&interval, Look { width: 500, colour: false });
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        &lines[..lines.len() - 1],
        [
            "controller imbalance, interconnect imbalance, L3 misses per 1,000 instr., instructions per cycle: not available here, because no counters",
            "local access ratio: not available here for the same reason; the kernel counts the whole machine (`--system`)",
            "memory latency: not available here, because latencies cannot be sampled, for the same reason (use the host itself)",
            "interconnect usage: not available here, because there is no PMU of links",
        ]
    );
}

#[test]
fn faults_that_are_not_counted_are_not_0_and_notes_are_only_text() {
    let event = |name, count: Option<f64>| EventFigures {
        name,
        count: MetricValue::of(count, "kernel", "refused"),
        running: 1.0,
    };
    let faults = |events: Vec<EventFigures>| {
        let line = brief(&Interval { events, ..Interval::default() });
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(faults(Vec::new()), "-");
    assert_eq!(faults(vec![event("task-clock", Some(5.0))]), "-");
    assert_eq!(faults(vec![event("minor-faults", Some(1200.0)), event("major-faults", Some(34.0))]), "1,234");
    assert_eq!(faults(vec![event("minor-faults", None), event("major-faults", None)]), "-");
    assert_eq!(faults(vec![event("minor-faults", Some(1.0)), event("major-faults", None)]), "-");

    let mut stat = made();
    stat.interval.notes.push("process 7 (\u{1b}]0;owned\u{7}) is another user's".to_owned());
    stat.memory[0].notes.push("of \u{1b}[2J".to_owned());
    let shown = text(&stat, Look::default());
    assert!(shown.contains("\\u{1b}]0;owned") && shown.contains("\\u{1b}[2J") && !shown.contains('\u{1b}'), "{shown}");
}

/// In a container with lxcfs, the time of its CPU 0 was shown as that of the machine's, whichever CPUs the container has.
#[test]
fn cpu_times_that_a_container_makes_up_are_of_no_node() {
    let tree = Tree::symmetric(2, 2, 1 << 20);
    let watched = |mounts: &str| {
        tree.put("proc/self/mountinfo", mounts);
        let put = |ticks: u64| tree.put("proc/stat", &format!("cpu0 {ticks} 0 0 {ticks}\ncpu1 {ticks} 0 0 {ticks}"));
        put(10);
        let mut live = Live::open(tree.root(), tree.machine(), &LiveOptions::default());
        put(20);
        live.interval()
    };
    let kernels = "25 28 0:23 / /proc rw - proc proc rw\n";
    let interval = watched(kernels);
    assert_eq!((interval.nodes[0].busy_cpus, interval.notes.len()), (Some(1.0), 0));
    let of_lxcfs = "31 25 0:28 /proc/stat /proc/stat rw,nosuid,nodev,relatime - fuse.lxcfs lxcfs rw,user_id=0,group_id=0,allow_other";
    let interval = watched(&format!("{kernels}{of_lxcfs}"));
    let cpus: Vec<(usize, Option<f64>)> = interval.nodes.iter().map(|node| (node.cpus, node.busy_cpus)).collect();
    assert_eq!(cpus, [(2, None), (2, None)]);
    assert!(interval.notes.len() == 1 && interval.notes[0].contains("lxcfs"), "{:?}", interval.notes);
    // Nor are the CPUs that it says are online: a node seemed to have few or none, and no word said why.
    for place in ["/sys/devices/system/cpu", "/sys/devices/system/cpu/online"] {
        let interval = watched(&format!("{kernels}31 25 0:28 {place} {place} rw - fuse.lxcfs lxcfs rw"));
        let is_told = interval.notes.len() == 1 && interval.notes[0].contains("How many CPUs of nodes are online");
        assert!(is_told && interval.nodes[0].busy_cpus == Some(1.0), "{place}: {:?}", interval.notes);
    }
}

#[test]
fn memory_is_summed_by_tier_where_there_are_several() {
    let mut stat = made();
    stat.interval.nodes[0].tier = Some(4);
    assert!(!text(&stat, Look::default()).contains("tier"), "one tier is no news");
    let far = crate::figures::NodeFigures {
        node: numapilot_machine::NodeId(2),
        memory_bytes: 4 << 30,
        free_bytes: Some(3 << 30),
        tier: Some(22),
        ..Default::default()
    };
    stat.interval.nodes[1].tier = Some(4);
    stat.interval.nodes.push(far);
    let shown = text(&stat, Look::default());
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("memory tier ")).collect();
    let told = ["memory tier 4: nodes 0-1: 2.00 GiB, 1.00 GiB free", "memory tier 22: node 2: 4.00 GiB, 3.00 GiB free"];
    assert_eq!(lines, told);
    assert!(csv(&stat).contains(",node,2,tier,22,kernel,0,") && json(&stat)["nodes"][2]["tier"] == 22);
}

/// An exporter went on without the memory of a CXL device that came online after its start.
#[test]
fn what_has_changed_of_the_machine_is_known_until_the_sources_are_opened_anew() {
    let tree = Tree::symmetric(2, 1, 1 << 20);
    let open = || Live::open(tree.root(), tree.machine(), &LiveOptions::default());
    let mut live = open();
    assert!(live.interval().notes.is_empty() && live.changes().is_empty());
    tree.put("sys/devices/system/node/online", "0-2");
    tree.put("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal: 4096 kB\nNode 2 MemFree: 2048 kB");
    for (node, distances) in ["10 20 24", "20 10 24", "24 24 10"].iter().enumerate() {
        tree.put(&format!("sys/devices/system/node/node{node}/distance"), distances);
    }
    let interval = live.interval();
    assert_eq!((interval.nodes.len(), &interval.notes), (2, &live.changes()));
    assert!(interval.notes.len() == 1 && interval.notes[0].ends_with(": 2."), "{:?}", interval.notes);
    let mut live = open();
    assert!(live.interval().nodes.len() == 3 && live.changes().is_empty());
}

/// An exporter counted nothing on CPUs that had been offline for a while.
#[test]
fn sources_are_to_be_opened_anew_when_a_cpu_goes_offline() {
    let tree = Tree::symmetric(2, 1, 1 << 20);
    tree.put("proc/stat", "cpu0 1 0 0 1\ncpu1 1 0 0 1");
    let mut live = Live::open(tree.root(), tree.machine(), &LiveOptions::default());
    assert!(live.changes().is_empty());
    tree.put("proc/stat", "cpu0 2 0 0 2");
    assert_eq!(live.interval().notes, Vec::<String>::new(), "its node has a CPU less, which the figures say");
    assert!(live.changes().len() == 1 && live.changes()[0].ends_with(": 1."), "{:?}", live.changes());
}

/// With `vm.numa_stat` at 0 the kernel's counters are all 0: no memory seemed to be allocated.
#[test]
fn allocations_that_the_kernel_does_not_count_are_not_0() {
    let mut stat = made();
    for node in &mut stat.interval.nodes {
        (node.numastat, node.numastat_delta) = (NumaStat::default(), NumaStat::default());
    }
    assert!(!csv(&stat).contains("numa_hit") && !text(&stat, Look::default()).contains("numa_hit"));
    let node = &json(&stat)["nodes"][0];
    assert!(node["numastat"].is_null() && node["numastat_interval"].is_null(), "{node}");
}

/// Objects whose keys are names or nodes.
const BY_NAME: [&str; 9] = [
    "events",
    "kernel",
    "numastat",
    "numastat_interval",
    "by_kind",
    "bytes_by_node",
    "memory_total",
    "figures",
    "missing",
];

fn fields(value: &Value, out: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| fields(value, out)),
        Value::Object(members) => {
            for (name, value) in members {
                let is_node = name.parse::<u32>().is_ok();
                out.extend(Some(name.clone()).filter(|_| !is_node));
                match value.as_object().filter(|_| BY_NAME.contains(&name.as_str())) {
                    Some(entries) => entries.values().for_each(|entry| fields(entry, out)),
                    None => fields(value, out),
                }
            }
        }
        _ => {}
    }
}

/// Scripts use the names: those of a version are in the document, and so are those of the next.
#[test]
fn every_field_is_in_the_document() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch.md");
    let document = std::fs::read_to_string(page).unwrap();
    let section = document.split("\n## ").find(|section| section.starts_with("JSON and CSV")).unwrap();
    let mut names = BTreeSet::new();
    let mut repeats = Repeats::default();
    repeats.add(&made());
    for value in [json(&made()), json(&simulated()), repeats.json()] {
        fields(&value, &mut names);
    }
    let stat = made();
    let map = &stat.memory[0];
    fields(&crate::maps::json(map, &map.objects(crate::maps::Key::Size, false)), &mut names);
    let headings = [csv_heading(), crate::maps::csv_heading()];
    names.extend(headings.iter().flat_map(|line| line.trim_end().split(',')).map(str::to_owned));
    assert!(names.len() > 60, "{names:?}");
    let missing: Vec<&String> = names.iter().filter(|name| !section.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/watch.md: {missing:?}");
}

#[test]
fn every_line_of_csv_has_every_column() {
    let columns = csv_heading().matches(',').count();
    for stat in [made(), simulated()] {
        for line in csv(&stat).lines() {
            let mut is_quoted = false;
            let commas = line.chars().filter(|c| {
                is_quoted ^= *c == '"';
                *c == ',' && !is_quoted
            });
            assert_eq!(commas.count(), columns, "{line}");
        }
    }
}

/// Trees of machines that break assumptions: offline CPUs, numbers with holes, nodes without memory or without CPUs, several nodes in a package.
const TREES: [&str; 9] =
    ["one-node", "two-sockets-smt", "four-nodes", "nps4", "snc2", "cxl", "memory-less", "offline-cpus", "sparse-nodes"];

/// Node, CPUs online and KiB of memory, straight from the tree's files.
fn of_files(root: &Path) -> Vec<(u64, u64, u64)> {
    let folder = root.join("sys/devices/system/node");
    let list = |path: &Path| numapilot_machine::parse_cpu_list(std::fs::read_to_string(path).unwrap().trim()).unwrap();
    let online = list(&root.join("sys/devices/system/cpu/online"));
    let one = |node: u32| {
        let of_node = folder.join(format!("node{node}"));
        let cpus = list(&of_node.join("cpulist")).iter().filter(|cpu| online.contains(cpu)).count() as u64;
        let text = std::fs::read_to_string(of_node.join("meminfo")).unwrap();
        let line = text.lines().find(|line| line.contains("MemTotal:")).unwrap();
        let kib = line.split_whitespace().rev().nth(1).unwrap().parse().unwrap();
        (u64::from(node), cpus, kib)
    };
    list(&folder.join("online")).into_iter().map(one).collect()
}

#[test]
fn every_machine_of_testdata_is_shown_as_its_files_are() {
    for name in TREES {
        let tree = Tree::of(name);
        let truth = of_files(tree.root().path());
        assert!(!truth.is_empty(), "{name}");
        // One CPU in four is busy, those that are offline have no line.
        let online =
            numapilot_machine::parse_cpu_list(&tree.root().text("sys/devices/system/cpu/online").unwrap()).unwrap();
        let put = |step: u64| {
            let line = |cpu: &u32| format!("cpu{cpu} {} 0 0 {}\n", 25 * step, 75 * step);
            tree.put("proc/stat", &online.iter().map(line).collect::<String>());
        };
        put(1);
        let mut live = Live::open(tree.root(), tree.machine(), &LiveOptions::default());
        put(5);
        let stat = Stat { interval: live.interval(), memory: Vec::new() };
        let value = json(&stat);
        let of = |node: &serde_json::Value| {
            let field = |key: &str| node[key].as_u64().unwrap();
            (field("node"), field("cpus"), field("memory_bytes") / 1024)
        };
        let told: Vec<(u64, u64, u64)> = value["nodes"].as_array().unwrap().iter().map(of).collect();
        assert_eq!(told, truth, "{name}");
        for node in value["nodes"].as_array().unwrap() {
            let busy = node["busy_cpus"].as_f64();
            let cpus = node["cpus"].as_u64().unwrap();
            assert_eq!(busy, (cpus > 0).then_some(cpus as f64 / 4.0), "{name}: {node}");
        }
        let text = text(&stat, Look::default());
        for (node, cpus, _) in &truth {
            let has = |line: &str| {
                let mut words = line.split_whitespace();
                words.next() == Some(&node.to_string()) && words.next() == Some(&cpus.to_string())
            };
            assert!(text.lines().any(has), "{name}: no row of node {node} with {cpus} CPUs in\n{text}");
        }
    }
}
