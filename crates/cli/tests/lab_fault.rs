//! Engine `fault` on real kernels with four nodes (the lab): a program that allocates on one node and reads from the others is reported with the right
//! nodes, threads, lines and page counts, against `move_pages` and numa_maps; the hinting faults of NUMA balancing name the nodes that use its pages.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};
use serde_json::Value;

const SOURCE: &str = include_str!("programs/nodes.c");
const NODES: u64 = 4;

/// The kernel takes mappings away once a second of the program's time is over, and soon again: no pass before the first touches are done.
const BALANCING: &str = "set -e; echo 1 > /proc/sys/kernel/numa_balancing; cd /sys/kernel/debug/sched/numa_balancing
    echo 1000 > scan_delay_ms; echo 100 > scan_period_min_ms; echo 400 > scan_period_max_ms; cd /tmp; ";

/// Line of the source with a mark.
fn line(mark: &str) -> u64 {
    let wanted = format!("LINE {mark} */");
    1 + SOURCE.lines().position(|line| line.contains(&wanted)).expect("the mark") as u64
}

/// A guest's recording, what the program said, and how it was run.
struct Recorded {
    report: Value,
    accesses: String,
    truth: Value,
    how: String,
}

fn record(program: &Path, kernel: Kernel) -> Recorded {
    let folder = scratch();
    let lab = Lab::new(Topology::symmetric(NODES as usize)).kernel(kernel).icount(true);
    let script = format!(
        "{BALANCING} {BINARY} record -q --engine fault -o t.numatrace -- {} {NODES} 2 3 && cp -r t.numatrace $NUMAPILOT_LAB_FILES/",
        program.display()
    );
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    let truth = outcome.stdout.lines().find(|line| line.starts_with('{')).expect("the program's word");
    let truth = serde_json::from_str(truth).expect("JSON");
    let trace = outcome.files().join("t.numatrace");
    let trace = trace.to_str().expect("a path");
    let report = run(&["report", "--json", "--threads", trace]).succeeded().stdout;
    let table = folder.path().join("accesses.csv");
    run(&["report", trace, "--table", "accesses", "--csv", table.to_str().expect("a path")]).succeeded();
    Recorded {
        report: serde_json::from_str(&report).expect("JSON"),
        accesses: std::fs::read_to_string(table).expect("the table"),
        truth,
        how: format!("{}, {:.1} s", outcome.how, outcome.run.as_secs_f64()),
    }
}

/// Pages touched first at a line, by thread (tid) and by the node that it ran on; and by the node where they lie.
fn touched_at(report: &Value, line: u64) -> (BTreeMap<(u64, u64), u64>, Vec<u64>) {
    let tid = |index: &Value| {
        let mut threads = report["threads"].as_array().expect("threads").iter();
        threads.find(|row| row["thread"] == *index).map_or(0, |row| row["tid"].as_u64().expect("tid"))
    };
    let (mut by_thread, mut by_node) = (BTreeMap::new(), vec![0; NODES as usize]);
    for site in report["page_faults"]["sites"].as_array().expect("sites") {
        let mut is_it = false;
        for row in site["lines"].as_array().expect("lines") {
            if row["line"] == line && row["file"].as_str().is_some_and(|file| file.ends_with("nodes.c")) {
                is_it = true;
                let node = row["node"].as_u64().expect("a node");
                *by_thread.entry((tid(&row["thread"]), node)).or_default() += row["pages"].as_u64().expect("pages");
            }
        }
        if is_it {
            let on_node = site["on_node"].as_array().expect("nodes").iter();
            on_node.zip(&mut by_node).for_each(|(pages, sum)| *sum += pages.as_u64().expect("pages"));
        }
    }
    (by_thread, by_node)
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|number| number.as_u64().expect("a number")).collect()
}

/// Every first touch: its thread, that thread's node, its line, and the node of the page.
fn check_first_touches(recorded: &Recorded) {
    let Recorded { report, truth, how, .. } = recorded;
    let tids = numbers(&truth["tids"]);
    let (slice, own) = (truth["slice"].as_u64().expect("pages"), truth["own"].as_u64().expect("pages"));
    let (by_thread, by_node) = touched_at(report, line("shared"));
    let main = truth["main"].as_u64().expect("a number");
    assert_eq!(by_thread, BTreeMap::from([((main, 0), slice * NODES)]), "{how}");
    // One call in `fresh` maps all blocks, which are the callers' all the same: `shared`, and each reader's own block on its own node.
    for source in ["shared_move_pages", "shared_numa_maps"] {
        assert_eq!(by_node, numbers(&truth[source]), "{how}");
    }
    let (by_thread, by_node) = touched_at(report, line("own"));
    assert_eq!(by_node, vec![own; NODES as usize], "{how}");
    assert_eq!(by_thread, (0..NODES).map(|node| ((tids[node as usize], node), own)).collect(), "{how}");
    for node in 0..NODES {
        let mut expected = vec![0; NODES as usize];
        expected[node as usize] = own;
        for source in ["move_pages", "numa_maps"] {
            assert_eq!(numbers(&truth[format!("own{node}_{source}")]), expected, "{how}");
        }
    }
    assert_eq!(report["recording"]["losses"]["ring_full"].as_u64(), Some(0), "{how}");
}

/// Nodes from which each page of `shared` was used after its first touch.
fn users(recorded: &Recorded) -> BTreeMap<u64, BTreeSet<u64>> {
    let mut lines = recorded.accesses.lines();
    let columns: Vec<&str> = lines.next().expect("a heading").split(',').collect();
    let column = |name: &str| columns.iter().position(|column| *column == name).expect("the column");
    let (address, node) = (column("address"), column("node"));
    let base = recorded.truth["base"].as_u64().expect("an address");
    let pages = NODES * recorded.truth["slice"].as_u64().expect("pages");
    let (mut seen, mut users) = (BTreeSet::new(), BTreeMap::<u64, BTreeSet<u64>>::new());
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let page = fields[address].parse::<u64>().expect("an address").wrapping_sub(base) / 4096;
        if page < pages && !seen.insert(page) {
            users.entry(page).or_default().insert(fields[node].parse().expect("the node of a fault"));
        }
    }
    users
}

/// Pages of each slice that its reader's node was seen on, and pages that others were seen on.
fn check_hinting_faults(recorded: &Recorded) {
    let users = users(recorded);
    let slice = recorded.truth["slice"].as_u64().expect("pages");
    let how = &recorded.how;
    for node in 0..NODES {
        let of_slice = || (node * slice..(node + 1) * slice).filter_map(|page| users.get(&page));
        let right = of_slice().filter(|nodes| nodes.contains(&node)).count() as u64;
        // The main thread looks at no page after its first touch.
        let wrong = of_slice().filter(|nodes| nodes.iter().any(|other| *other != node)).count();
        eprintln!("node {node}: {right} of {slice} pages seen in use from it, {wrong} from elsewhere ({how})");
        assert!(right * 100 >= slice * 95, "{right} of {slice} pages of node {node}'s slice ({how})");
        assert_eq!(wrong, 0, "node {node}'s slice ({how})");
    }
}

#[test]
fn first_touches_and_users_of_pages_are_what_the_kernel_says() {
    if !numapilot_lab::wanted("engine fault on a machine with several nodes") {
        return;
    }
    let folder = scratch();
    let program = build_plain(folder.path(), "nodes", SOURCE, &[]);
    let guests = [Kernel::V6_12, Kernel::V6_1].map(|kernel| {
        let program = program.clone();
        thread::spawn(move || {
            let recorded = record(&program, kernel);
            eprintln!("{}: {}", recorded.how, recorded.report["page_faults"]);
            check_first_touches(&recorded);
            check_hinting_faults(&recorded);
        })
    });
    let ended = guests.map(thread::JoinHandle::join);
    for end in ended {
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
