//! `stat` and `maps` on real kernels with four nodes (the lab), of a process whose memory lies still: to the page what numa_maps says, and what `numastat` and
//! `numastat -p` say (where this system has them).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};
use serde_json::Value;

const SOURCE: &str = include_str!("programs/still.c");
const NODES: usize = 4;
const NUMASTAT: &str = "/usr/bin/numastat";
const COUNTERS: [&str; 6] = ["numa_hit", "numa_miss", "numa_foreign", "interleave_hit", "local_node", "other_node"];

/// Bytes by (kind, node) of a text of numa_maps, read here independently: kinds as numastat's.
fn of_numa_maps(text: &str) -> BTreeMap<(&'static str, u64), u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let kind = match () {
            () if words.contains(&"huge") => "huge",
            () if words.contains(&"heap") => "heap",
            () if words.contains(&"stack") => "stack",
            () => "private",
        };
        let field = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
        let Some(kib) = field("kernelpagesize_kB=") else { continue };
        let kib: u64 = kib.parse().expect("a page's size");
        for word in words.iter().filter(|word| word.starts_with('N')) {
            let (node, pages) = word[1..].split_once('=').expect("N0=1");
            let bytes = pages.parse::<u64>().expect("pages") * kib * 1024;
            *sums.entry((kind, node.parse().expect("a node"))).or_default() += bytes;
        }
    }
    sums
}

fn of_stat(memory: &Value) -> BTreeMap<(&'static str, u64), u64> {
    let mut sums = BTreeMap::new();
    for kind in ["huge", "heap", "stack", "private"] {
        for (node, bytes) in memory["by_kind"][kind].as_object().expect("nodes") {
            sums.insert((kind, node.parse().expect("a node")), bytes.as_u64().expect("bytes"));
        }
    }
    sums.retain(|_, bytes| *bytes > 0);
    sums
}

/// Rows of a table of numastat's: a name, then a number for each node.
fn rows(text: &str) -> BTreeMap<String, Vec<f64>> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
        Some((name, numbers.ok().filter(|numbers| !numbers.is_empty())?))
    };
    text.lines().filter_map(row).collect()
}

struct Seen<'a> {
    stdout: &'a str,
    how: String,
}

impl Seen<'_> {
    /// The text between `== NAME` and the next such line.
    fn part(&self, name: &str) -> &str {
        let begin = format!("== {name}\n");
        let at = self.stdout.find(&begin).unwrap_or_else(|| panic!("no {name} in {} ({})", self.stdout, self.how));
        let rest = &self.stdout[at + begin.len()..];
        rest.split("== ").next().unwrap_or(rest)
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_str(self.part(name))
            .unwrap_or_else(|error| panic!("{name}: {error}: {} ({})", self.part(name), self.how))
    }
}

fn check(seen: &Seen<'_>) {
    let how = &seen.how;
    let truth = of_numa_maps(seen.part("numa_maps"));
    assert_eq!(truth, of_numa_maps(seen.part("numa_maps_again")), "the process's memory moved ({how})");
    // The kernel gave the program what it asked for, so the truth is not one node's.
    for node in 0..NODES as u64 {
        assert!(truth[&("private", node)] >= (100 + 7 * node + 16) * 4096, "{truth:?} ({how})");
    }
    assert!(
        truth.iter().filter(|((kind, _), _)| *kind == "heap").map(|(_, bytes)| bytes).sum::<u64>() >= 50 * 4096,
        "{how}"
    );
    assert_eq!(of_stat(&seen.json("stat_pid")["memory"][0]), truth, "{how}");
    let maps = seen.json("maps");
    let mut by_node = BTreeMap::<u64, u64>::new();
    truth.iter().for_each(|((_, node), bytes)| *by_node.entry(*node).or_default() += bytes);
    for (node, bytes) in &by_node {
        assert_eq!(maps["total"]["bytes_by_node"][node.to_string()].as_u64(), Some(*bytes), "{how}");
        let bound = format!("bind:{node}");
        let objects = maps["objects"].as_array().expect("objects");
        let object =
            objects.iter().find(|object| object["policy"] == bound).unwrap_or_else(|| panic!("{bound} ({how})"));
        assert_eq!(object["pages"][node.to_string()].as_u64(), Some(100 + 7 * node), "{how}");
    }
    // It runs (ran) on node 0: all else is far.
    let far: u64 = by_node.iter().filter(|(node, _)| **node != 0).map(|(_, bytes)| bytes).sum();
    assert_eq!(maps["far_bytes"].as_u64().or(maps["total"]["far_bytes"].as_u64()), Some(far), "{how}");
    if !Path::new(NUMASTAT).exists() {
        return numapilot_not_run::not_run!(Numastat, "not compared with numastat: package numactl is not installed");
    }
    let theirs = rows(seen.part("numastat_p"));
    for (kind, name) in [("huge", "Huge"), ("heap", "Heap"), ("stack", "Stack"), ("private", "Private")] {
        for node in 0..NODES {
            let mebibytes = truth.get(&(kind, node as u64)).copied().unwrap_or(0) as f64 / f64::from(1 << 20);
            assert!((theirs[name][node] - mebibytes).abs() <= 0.0051, "{name} on node {node}: {theirs:?} ({how})");
        }
    }
    // The machine's counters move with every command: ours lie between what numastat said before and after.
    let (before, after, ours) =
        (rows(seen.part("numastat_before")), rows(seen.part("numastat_after")), seen.json("stat"));
    for node in 0..NODES {
        for name in COUNTERS {
            let ours = ours["nodes"][node]["numastat"][name].as_u64().expect("a count") as f64;
            let (before, after) = (before[name][node], after[name][node]);
            assert!((before..=after).contains(&ours), "{name} on node {node}: {before} <= {ours} <= {after} ({how})");
        }
    }
}

#[test]
fn stat_and_maps_agree_with_the_kernel_and_numastat_to_the_page() {
    if !numapilot_lab::wanted("stat and maps on a machine with several nodes") {
        return;
    }
    let folder = scratch();
    let program = build_plain(folder.path(), "still", SOURCE, &["-static"]);
    let script = format!(
        "echo 0 > /proc/sys/kernel/numa_balancing; mkfifo /tmp/ready; taskset 1 {} {NODES} > /tmp/ready & read line < /tmp/ready; P=$!
        echo '== numa_maps'; cat /proc/$P/numa_maps
        echo '== stat_pid'; {BINARY} stat --pid $P --for 20ms --json
        echo '== maps'; {BINARY} maps $P --json --all
        echo '== numastat_p'; {NUMASTAT} -p $P 2>&1
        echo '== numa_maps_again'; cat /proc/$P/numa_maps
        echo '== numastat_before'; {NUMASTAT} 2>&1
        echo '== stat'; {BINARY} stat --system --for 10ms --json
        echo '== numastat_after'; {NUMASTAT} 2>&1
        kill $P",
        program.display()
    );
    let guests = [Kernel::V6_12, Kernel::V6_1].map(|kernel| {
        let script = script.clone();
        thread::spawn(move || {
            let lab = Lab::new(Topology::symmetric(NODES)).kernel(kernel);
            let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
            let how = format!("{}, {:.1} s; {}", outcome.how, outcome.run.as_secs_f64(), outcome.stderr);
            eprintln!("{how}");
            check(&Seen { stdout: &outcome.stdout, how });
        })
    });
    let ended = guests.map(thread::JoinHandle::join);
    for end in ended {
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

/// A container with two CPUs and one node: everything shows the machine as it is and says what is its own, and only that is measured.
#[test]
fn a_cpuset_sees_the_machine_and_measures_its_own_part() {
    if !numapilot_lab::wanted("topo, stat, top and measure in a cpuset") {
        return;
    }
    let script = format!(
        "set -e; mkdir -p /tmp/groups; mount -t cgroup2 none /tmp/groups; echo +cpuset > /tmp/groups/cgroup.subtree_control
        mkdir /tmp/groups/box; echo 2-3 > /tmp/groups/box/cpuset.cpus; echo 1 > /tmp/groups/box/cpuset.mems
        echo $$ > /tmp/groups/box/cgroup.procs
        echo '== topo'; {BINARY} topo --json
        echo '== stat'; {BINARY} stat --system --for 20ms --json
        echo '== measure'; {BINARY} measure --json --quiet --size 256KiB --for 1s --only latency
        {BINARY} top --interval 50ms --keys 2 --size 120x50 --snapshot /tmp/top.svg
        echo '== top'; cat /tmp/top.svg"
    );
    let lab = Lab::new(Topology::symmetric(NODES));
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    let seen = Seen { stdout: &outcome.stdout, how: format!("{}: {}", outcome.how, outcome.stderr) };
    let how = &seen.how;
    assert_eq!(seen.json("topo")["nodes"].as_array().map(Vec::len), Some(NODES), "{how}");
    let stat = seen.json("stat");
    let cpus: Vec<Option<u64>> =
        stat["nodes"].as_array().expect("nodes").iter().map(|node| node["cpus"].as_u64()).collect();
    assert_eq!(cpus, [Some(2); NODES], "{how}");
    let notes = stat["notes"].to_string();
    assert!(notes.contains("CPUs 2-3 and memory of node 1 only"), "{notes} ({how})");
    let measured = seen.json("measure");
    let latencies = measured["latency"].as_array().expect("cells");
    assert!(!latencies.is_empty(), "{how}");
    for cell in latencies {
        assert_eq!((&cell["from"], &cell["target"]["node"]), (&1.into(), &1.into()), "{cell} ({how})");
        assert!(cell["cpu"] == 2 || cell["cpu"] == 3, "{cell} ({how})");
    }
    let screen = seen.part("top");
    for node in 0..NODES {
        assert!(screen.contains(&format!("node\u{a0}{node}")), "no node {node} on the screen ({how}): {screen}");
    }
}
