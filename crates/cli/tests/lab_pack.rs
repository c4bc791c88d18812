//! Whole processes onto nodes (`balance --pack`), in the lab: each gets the nodes that it fills, with its memory; cpusets are kept to; a machine that is asked
//! for more than it has is loaded evenly; what makes a process slower is undone; and everything is as it was at the end. `advise` names nodes in numad's form.

use std::process::Command;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Lab, Topology};
use serde_json::Value;

fn guest(nodes: usize, script: &str) -> String {
    let folder = scratch();
    let moves = build_plain(folder.path(), "moves", include_str!("programs/moves.c"), &[]);
    // The binary is read once before anything is timed: on a busy host that takes seconds.
    let prelude = "cd /tmp; $numapilot --version > /dev/null; ready() { until grep -q ready $1; do sleep 0.05; done; }
        begin() { echo \"BEGIN $1\"; }; end() { echo END; }
        cpus() { grep -h Cpus_allowed_list /proc/$1/task/*/status | cut -f2 | sort -u | tr '\\n' ' '; }
        # Pages by node.
        homes() { cat /proc/$1/numa_maps | tr ' ' '\\n' | sed -n 's/^N\\([0-9]*\\)=/\\1 /p' |
            awk '{n[$1]+=$2} END {for (i = 0; i < 4; i++) printf \"%d \", n[i]}'; }\n";
    let script = format!("moves={} numapilot={BINARY}; {prelude}{script}", moves.display());
    let lab = Lab::new(Topology::symmetric(nodes)).icount(true).time_limit(Duration::from_secs(1500));
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    eprintln!("{}, {:.1} s\n{}{}", outcome.how, outcome.run.as_secs_f64(), outcome.stdout, outcome.stderr);
    outcome.stdout
}

fn part<'a>(output: &'a str, mark: &str) -> &'a str {
    let part = output.split(&format!("BEGIN {mark}\n")).nth(1).and_then(|part| part.split("END").next());
    part.unwrap_or_else(|| panic!("no {mark} in {output}")).trim()
}

/// `CPUS | pages on node 0, 1, 2, 3`, of a process.
fn place(text: &str) -> (Vec<u32>, Vec<u64>) {
    let (cpus, pages) = text.split_once('|').expect("two parts");
    let lists: Vec<&str> = cpus.split_whitespace().collect();
    assert_eq!(lists.len(), 1, "every thread may run on the same CPUs: {text}");
    let cpus = numapilot_machine::parse_cpu_list(lists[0]).expect("a list");
    (cpus, pages.split_whitespace().map(|count| count.parse().expect("a count")).collect())
}

/// Nodes of two CPUs each.
fn nodes(cpus: &[u32]) -> Vec<usize> {
    let mut nodes: Vec<usize> = cpus.iter().map(|cpu| *cpu as usize / 2).collect();
    nodes.dedup();
    nodes
}

#[test]
fn processes_get_nodes_of_their_own_with_their_memory_and_go_free_at_the_end() {
    if !numapilot_lab::wanted("packing") {
        return;
    }
    let output = guest(
        4,
        r#"
for which in a b c d; do
    MOVES_FREE=1 MOVES_PAUSE_US=3000 "$moves" nothing 8 1000000 > $which.out 2> $which.err & eval "$which=\$!"; ready $which.err
done
# One of them has a cgroup with a cpuset to itself, another one's cgroup leaves it two nodes.
echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/own /sys/fs/cgroup/tight
echo 0-7 > /sys/fs/cgroup/own/cpuset.cpus; echo 0-3 > /sys/fs/cgroup/own/cpuset.mems
echo 4-7 > /sys/fs/cgroup/tight/cpuset.cpus; echo 2-3 > /sys/fs/cgroup/tight/cpuset.mems
echo $c > /sys/fs/cgroup/own/cgroup.procs
echo $d > /sys/fs/cgroup/tight/cgroup.procs
show() { for which in a b c d; do eval "pid=\$$which"; begin $1-$which; echo "$(cpus $pid)|$(homes $pid)"; end; done; }
show before
"$numapilot" balance --pid $a,$b,$c,$d --pack --json > log & daemon=$!
# Until those that could be anywhere are placed, and everything that was begun is done.
placed() {
    for unit in "process $a" "process $b" "cgroup /sys/fs/cgroup/own"; do grep -q "\"nodes of $unit\"" log || return 1; done
    [ "$(grep -c '"event":"action"' log)" -ge "$(grep -c '"nodes of ' log)" ]
}
until placed; do kill -0 $daemon || break; sleep 0.2; done
show packed
begin cpuset; cat /sys/fs/cgroup/own/cpuset.cpus /sys/fs/cgroup/own/cpuset.mems; end
begin advise; "$numapilot" advise -w 2 --json; end
begin list; "$numapilot" advise -w 4:16; end
kill -TERM $daemon; wait $daemon; begin status; echo $?; end
show after
begin cpuset-after; cat /sys/fs/cgroup/own/cpuset.cpus /sys/fs/cgroup/own/cpuset.mems /sys/fs/cgroup/tight/cpuset.cpus; end
kill -USR1 $a $b $c $d; wait $a $b $c $d
begin sums; grep -h '^checksum' *.out | sort -u | wc -l; end
begin log; cat log; end
"#,
    );
    let mut taken = [0; 4];
    for which in ["a", "b", "c", "d"] {
        let (cpus, pages) = place(part(&output, &format!("packed-{which}")));
        let homes = nodes(&cpus);
        homes.iter().for_each(|node| taken[*node] += 1);
        assert!(homes.len() < 4, "{which} has {homes:?}");
        let own: u64 = homes.iter().map(|node| pages[*node]).sum();
        // Pages of libraries are shared, and stay.
        let private: u64 = pages.iter().sum::<u64>().saturating_sub(600);
        assert!(own >= private, "{which} on {homes:?}: {pages:?}");
        let before = place(part(&output, &format!("before-{which}"))).0;
        assert_eq!(place(part(&output, &format!("after-{which}"))).0, before, "{which} may run where it might before");
    }
    assert!(taken.iter().max().unwrap() - taken.iter().min().unwrap() <= 1, "nodes are shared out evenly: {taken:?}");
    let tight = nodes(&place(part(&output, "packed-d")).0);
    assert!(tight.iter().all(|node| *node >= 2), "its cpuset leaves it nodes 2 and 3: {tight:?}");
    assert_ne!(part(&output, "cpuset"), "0-7\n0-3", "the one with a cgroup to itself is placed by its cpuset");
    assert_eq!(part(&output, "cpuset-after"), "0-7\n0-3\n4-7", "and both cpusets are as they were");
    assert_eq!((part(&output, "status"), part(&output, "sums")), ("0", "1"));
    let advice: Value = serde_json::from_str(part(&output, "advise")).expect("JSON");
    assert!(advice["by_node"][3]["cpus_busy"].as_f64() > Some(0.2) && advice["by_node"][3]["cpus"] == 2.0, "{advice}");
    let list = part(&output, "list").lines().last().expect("a list");
    assert!(!numapilot_machine::parse_cpu_list(list).expect("a list such as 0-1").is_empty());
}

#[test]
fn a_machine_asked_for_twice_what_it_has_is_loaded_evenly_and_settles() {
    if !numapilot_lab::wanted("packing an oversubscribed machine") {
        return;
    }
    let output = guest(
        2,
        r#"
pids=
for which in 0 1 2; do
    MOVES_FREE=1 "$moves" nothing 4 1000000 > $which.out 2> $which.err & pids=$pids,$!; ready $which.err
done
"$numapilot" balance --pid ${pids#,} --pack --json --for 13s > log
for pid in $(echo $pids | tr , ' '); do kill -USR1 $pid; done; wait
begin log; cat log; end
begin free; "$numapilot" advise -w 1; end
"#,
    );
    let events: Vec<Value> = part(&output, "log").lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    // Twelve threads that spin on four processors: numad stops at 85 %; here each node gets its share.
    let mut nodes = std::collections::BTreeMap::new();
    let is_placed = |event: &&Value| event["event"] == "setting" && event["done"] == "changed";
    let settings: Vec<&Value> = events.iter().filter(is_placed).collect();
    for setting in &settings {
        nodes.insert(setting["name"].to_string(), setting["now"].as_str().expect("a list").to_owned());
    }
    let mut load = [0.0_f64; 2];
    for list in nodes.values() {
        let list = numapilot_machine::parse_cpu_list(list).expect("a list");
        list.iter().for_each(|node| load[*node as usize] += 4.0 / list.len() as f64);
    }
    // Three that want the same on two nodes: one of them has both, or one node has two of them.
    assert!((2..=3).contains(&nodes.len()) && (load[0] - load[1]).abs() <= 4.0, "{nodes:?}: {load:?}");
    assert!(settings.len() <= 6, "it settles: {} placements of 3 processes", settings.len());
    assert_eq!(events.last().expect("an end")["event"], "stop");
}

/// Whatever a placement did to a process, it stayed: there, on processors that others came to, it would have waited for as long as the daemon ran.
#[test]
fn a_process_that_is_slower_where_it_was_placed_gets_back_what_it_had() {
    if !numapilot_lab::wanted("packing that does harm") {
        return;
    }
    let output = guest(
        4,
        r#"
echo 0 > /proc/sys/kernel/numa_balancing
MOVES_FREE=1 MOVES_PAUSE_US=3000 "$moves" nothing 8 1000000 > a.out 2> a.err & a=$!; ready a.err
show() { begin $1; echo "$(cpus $a)|$(homes $a)"; end; }
show before
"$numapilot" balance --pid $a --pack --json > log & daemon=$!
until grep -q '"event":"action"' log; do kill -0 $daemon || break; sleep 0.1; done
# At once, so that every window with the placement has them; so many that threads which sleep most of the time wait for them, too.
rivals=
for one in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
    taskset -c $(cpus $a) sh -c 'while :; do :; done' & rivals="$rivals $!"
done
show packed
tries=0
until grep -q '"undo":true' log || [ $tries = 120 ]; do kill -0 $daemon || break; tries=$((tries + 1)); sleep 0.5; done
show undone
kill $rivals; kill -TERM $daemon; wait $daemon; begin status; echo $?; end
kill -USR1 $a; wait $a
begin log; cat log; end
"#,
    );
    let [before, packed, undone] = ["before", "packed", "undone"].map(|mark| place(part(&output, mark)));
    let homes = nodes(&packed.0);
    assert!(homes.len() < 4 && undone.0 == before.0, "it was on {homes:?}, and may run where it might before");
    // Pages of libraries are shared, and stay; the stacks of some calls are new.
    let on_them = |(_, pages): &(Vec<u32>, Vec<u64>)| homes.iter().map(|node| pages[*node]).sum::<u64>();
    assert!(on_them(&packed) + 600 >= packed.1.iter().sum::<u64>(), "{homes:?}: {packed:?}");
    assert!(on_them(&undone) <= on_them(&before) + 600, "{homes:?}: {before:?}, {undone:?}");
    let events: Vec<Value> = part(&output, "log").lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let compared = events.iter().find(|event| event["event"] == "comparison").expect("a comparison");
    assert!(compared["verdict"] == "undone" && compared["change_percent"].as_f64() < Some(-1.0), "{compared}");
    assert!(compared["because"].as_str().is_some_and(|why| why.contains("300 observations")), "{compared}");
    let undo = events.iter().find(|event| event["undo"] == true).expect("an undo");
    assert!(compared["decisions"].as_array().expect("decisions").contains(&undo["decision"]), "{compared}, {undo}");
    assert_eq!(part(&output, "status"), "0");
}
