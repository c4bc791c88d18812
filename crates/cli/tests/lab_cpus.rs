//! CPUs that go offline and come back while `record --system`, `stat` and `balance` run, on real kernels with four nodes (the lab): none of them ends, what
//! they do not see is said, and what is done on the CPU once it is back is recorded and counted.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::common::*;
use numapilot_lab::{Kernel, Lab, Topology};
use serde_json::Value;

const SOURCE: &str = include_str!("programs/pinned.c");
const NODES: usize = 4;
/// The CPU that is taken offline: one of the two of the last node. (The first CPU of an x86 machine cannot be.)
const CPU: usize = 2 * NODES - 1;
/// Pages that the program touches there, before and after: more than all others touch in an interval of `stat`.
const PAGES: u64 = 20_000;

/// What the guest's commands wrote.
struct Seen {
    stdout: String,
    /// The trace's `meta.json`.
    meta: String,
    report: Value,
    accesses: String,
    how: String,
}

impl Seen {
    /// The lines between `== NAME` and the next such line.
    fn part(&self, name: &str) -> &str {
        let begin = format!("== {name}\n");
        let rest = self.stdout.split(&begin).nth(1).unwrap_or_else(|| panic!("no {name} in {}", self.stdout));
        rest.split("== ").next().unwrap_or(rest)
    }

    /// Page faults of a function of the program.
    fn faults_in(&self, function: &str) -> u64 {
        let mut lines = self.accesses.lines();
        let columns: Vec<&str> = lines.next().expect("a heading").split(',').collect();
        let column = |name: &str| columns.iter().position(|column| *column == name).expect("the column");
        let (cpu, name) = (column("cpu"), column("function"));
        let is_it = |line: &&str| {
            let fields: Vec<&str> = line.split(',').collect();
            fields.get(name) == Some(&function) && fields.get(cpu) == Some(&CPU.to_string().as_str())
        };
        lines.filter(is_it).count() as u64
    }
}

fn seen(program: &Path, kernel: Kernel) -> Seen {
    let folder = scratch();
    let program = program.display();
    // Time enough, by the guest's clock, for each of them to look at the CPUs with the CPU offline, and twice after it is back.
    let script = format!(
        "cd /tmp; cat {BINARY} > /dev/null; {BINARY} --version > /dev/null; online=/sys/devices/system/cpu/cpu{CPU}/online
        {BINARY} record --system --engine fault -o t.numatrace > record 2>&1 & record=$!
        {BINARY} stat --system -I 1 --json > stat 2> stat-errors & stat=$!
        {BINARY} balance --system --policy pilot --json > balance 2> balance-errors & balance=$!
        until [ -e t.numatrace ] && [ -s stat ] && [ -s balance ]; do sleep 0.1; done; sleep 3
        {program} before {CPU} {PAGES} || echo the program failed
        sleep 3; echo 0 > $online; sleep 4; echo 1 > $online; sleep 6
        {program} after {CPU} {PAGES} || echo the program failed
        sleep 3; for turn in $(seq 120); do grep -q 'were offline for a while' balance && break; sleep 0.5; done
        for pid in $record $stat $balance; do kill -0 $pid || echo $pid ended early; kill -TERM $pid; wait $pid; done
        for name in record stat stat-errors balance balance-errors; do echo \"== $name\"; cat $name; done
        cp -r t.numatrace $NUMAPILOT_LAB_FILES/"
    );
    let lab = Lab::new(Topology::symmetric(NODES)).kernel(kernel).icount(true).time_limit(Duration::from_secs(1800));
    let outcome = lab.run(Command::new("sh").args(["-c", &script])).expect("the lab").expect_success();
    let how = format!("{}, {:.1} s; {}", outcome.how, outcome.run.as_secs_f64(), outcome.stderr);
    eprintln!("{how}\n{}", outcome.stdout);
    let trace = outcome.files().join("t.numatrace");
    let meta = std::fs::read_to_string(trace.join("meta.json")).expect("meta.json");
    let trace = trace.to_str().expect("a path");
    let report = serde_json::from_str(&run(&["report", "--json", trace]).succeeded().stdout).expect("JSON");
    let table = folder.path().join("accesses.csv");
    run(&["report", trace, "--table", "accesses", "--csv", table.to_str().expect("a path")]).succeeded();
    let accesses = std::fs::read_to_string(table).expect("the table");
    Seen { stdout: outcome.stdout, meta, report, accesses, how }
}

/// All of the faults are recorded, or counted as lost; and that the CPU was away is said.
fn check_recording(seen: &Seen) {
    let how = &seen.how;
    let lost = seen.report["recording"]["losses"]["ring_full"].as_u64().expect("a count");
    for function in ["touched_before", "touched_after"] {
        let faults = seen.faults_in(function);
        assert!(faults > PAGES / 2 && faults + lost >= PAGES, "{function}: {faults} faults, {lost} lost ({how})");
    }
    assert!(seen.meta.contains(&format!("after they came back: {CPU};")), "{} ({how})", seen.meta);
}

/// The node has one CPU while the other is offline; and faults on that one are counted once it is back.
fn check_stat(seen: &Seen) {
    let how = &seen.how;
    let lines = seen.part("stat").lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut lines: Vec<Value> = lines.collect();
    // The last is about the whole time.
    lines.pop();
    let cpus = |line: &Value| line["nodes"][NODES - 1]["cpus"].as_u64().expect("a count");
    let away = lines.iter().rposition(|line| cpus(line) == 1).unwrap_or_else(|| panic!("it was never away ({how})"));
    let (before, after) = lines.split_at(away);
    assert!([before.first(), after.last()].iter().all(|line| line.is_some_and(|line| cpus(line) == 2)), "{how}");
    let faults: f64 = after.iter().filter_map(|line| line["events"]["minor-faults"]["value"].as_f64()).sum();
    assert!(faults >= PAGES as f64, "{faults} faults ({how})");
    let is_named = |line: &Value| line["notes"].to_string().contains(&format!("sampled on CPUs {CPU}, which were"));
    assert!(after.iter().any(is_named), "for a while nothing was sampled there, and that is not said ({how})");
}

#[test]
fn cpus_may_go_and_come_back_under_record_stat_and_balance() {
    if !numapilot_lab::wanted("CPUs that go offline and come back") {
        return;
    }
    let folder = scratch();
    let program = build_plain(folder.path(), "pinned", SOURCE, &[]);
    let guests = [Kernel::V6_12, Kernel::V6_1].map(|kernel| {
        let program = program.clone();
        thread::spawn(move || {
            let seen = seen(&program, kernel);
            for words in ["ended early", "the program failed", "panicked"] {
                assert!(!seen.stdout.contains(words), "{words}: {}", seen.how);
            }
            check_recording(&seen);
            check_stat(&seen);
            let told = format!("CPUs {CPU} were offline for a while");
            assert!(seen.part("balance").contains(&told), "{}", seen.how);
        })
    });
    let ended = guests.map(thread::JoinHandle::join);
    for end in ended {
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
