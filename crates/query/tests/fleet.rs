//! Fleets: the same tables and views over traces of many hosts; the answer is the sum of the traces' own.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{answer, complaint, fleet, query, scratch, text};

#[test]
fn a_fleet_answers_as_its_traces_do_together() {
    let folder = scratch();
    fleet(6, folder.path());
    let mut expected = "host,run,n,w\n".to_owned();
    for host in 0..6 {
        for run in 1..=1 + host % 2 {
            let (host, run) = (format!("h{host:04}"), format!("2026-11-{run:02}"));
            let path = folder.path().join(format!("host={host}/run={run}"));
            let own = answer(&[text(&path), "select count(*), sum(weight) from oef", "--format", "csv"]);
            expected.push_str(&format!("{host},{run},{}\n", own.lines().nth(1).expect("a row")));
        }
    }
    let sql = "select host, run, count(*) as n, sum(weight) as w from oef group by host, run order by host, run";
    assert_eq!(answer(&[text(folder.path()), sql, "--format", "csv"]), expected);
    // Rows are numbered within their trace.
    let rows = "select count(*) as n, count(distinct access) as d from accesses";
    assert_eq!(answer(&[text(folder.path()), rows, "--format", "csv"]), "n,d\n2700,300\n");
    for view in ["tef", "oef", "pages", "stack_functions", "objects", "counters"] {
        let hosts =
            answer(&[text(folder.path()), &format!("select count(distinct host) as n from {view}"), "--format", "csv"]);
        let expected = if view == "counters" { 3 } else { 6 };
        assert_eq!(hosts, format!("n\n{expected}\n"), "{view}");
    }
}

/// Which files each hash join of a plan keeps in memory: its first input's, by the plan's indentation.
fn kept_in_memory(plan: &str) -> Vec<String> {
    let lines: Vec<&str> = plan.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let joins = (0..lines.len()).filter(|&at| lines[at].trim_start().starts_with("HashJoinExec"));
    let first_input = |at: usize| {
        let inner = indent(lines[at]) + 2;
        let end = (at + 2..lines.len()).find(|&next| indent(lines[next]) <= inner).unwrap_or(lines.len());
        lines[at + 1..end].join("\n")
    };
    joins.map(first_input).collect()
}

/// Make sure that memory does not grow with the accesses of a fleet, but with its objects and threads, of which there are far fewer.
#[test]
fn joins_keep_objects_and_threads_in_memory_and_not_accesses() {
    let folder = scratch();
    fleet(4, folder.path());
    for name in ["fleet-remote", "fleet-types"] {
        let plan = answer(&[text(folder.path()), "--run", name, "--explain"]);
        let kept = kept_in_memory(&plan);
        assert_eq!(kept.len(), 2, "{name}:\n{plan}");
        for side in &kept {
            assert!(
                side.contains(".parquet") && !side.contains("accesses.parquet"),
                "{name} keeps:\n{side}\nin\n{plan}"
            );
        }
    }
}

/// The most memory that the program had at once while it answered, KiB.
// The call that says how much memory a child had also waits for it.
#[allow(clippy::zombie_processes)]
fn most_memory_kib(arguments: &[&str]) -> i64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numapilot-query"));
    let child = command.args(arguments).stdout(Stdio::null()).spawn().expect("numapilot-query starts");
    let pid = libc::pid_t::try_from(child.id()).expect("a process id");
    let mut status = 0;
    // SAFETY: all fields of the struct are integers, which may be zero.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables that live through the call, and nobody else waits for this child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
    assert_eq!((waited, status), (pid, 0), "{arguments:?}");
    usage.ru_maxrss
}

/// A real recording's description has its machine, host and settings. Make sure that those of a thousand hosts are not all kept.
#[test]
fn a_host_of_a_fleet_takes_little_memory_before_it_is_asked() {
    let meta = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/traces/mg.numatrace/meta.json");
    let memory = |hosts: i64| {
        let folder = scratch();
        for host in 0..hosts {
            let run = folder.path().join(format!("host=h{host:04}/run=1"));
            fs::create_dir_all(&run).expect("the run's folder is made");
            fs::copy(meta, run.join("meta.json")).expect("copied");
        }
        most_memory_kib(&[text(folder.path()), "select 1"])
    };
    let (few, many) = (10, 310);
    let each = (memory(many) - memory(few)) / (many - few);
    assert!(each < 40, "{each} KiB for each host");
}

#[test]
fn conditions_on_hosts_and_runs_choose_files() {
    let folder = scratch();
    fleet(4, folder.path());
    // A damaged file is not even looked at where its host is not asked for.
    fs::write(folder.path().join("host=h0001/run=2026-11-02/accesses.parquet"), "x").expect("written");
    let all = "select count(*) as n from accesses";
    let said = complaint(&[text(folder.path()), all], 1);
    assert!(said.contains("host=h0001/run=2026-11-02/accesses.parquet"), "{said}");
    let sound = format!("{all} where host = 'h0001' and run = '2026-11-01'");
    assert_eq!(answer(&[text(folder.path()), &sound, "--format", "csv"]), "n\n300\n");
    let others = format!("{all} where host > 'h0001' or host like '%0'");
    assert_eq!(answer(&[text(folder.path()), &others, "--format", "csv"]), "n\n1200\n");
    let none = format!("{all} where host = 'nobody'");
    assert_eq!(answer(&[text(folder.path()), &none, "--format", "csv"]), "n\n0\n");
}

#[test]
fn unfinished_runs_are_left_out_and_counted() {
    let folder = scratch();
    fleet(2, folder.path());
    fs::create_dir_all(folder.path().join("host=h0000/run=now/raw")).expect("made");
    fs::create_dir_all(folder.path().join("notes")).expect("made");
    let done = query(&[text(folder.path()), "select count(distinct host) as n from tef", "--format", "csv"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "n\n2\n");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("unfinished traces (no meta.json): 1,") && said.contains("run=now"), "{said}");
    let empty = scratch();
    fs::create_dir_all(empty.path().join("host=a/run=b")).expect("made");
    assert!(complaint(&[text(empty.path()), "select 1"], 1).contains("no complete trace"));
}

/// Folders of a fleet come from other hosts.
#[test]
fn names_of_folders_are_only_text() {
    let folder = scratch();
    fleet(1, folder.path());
    fs::create_dir_all(folder.path().join("host=h0000/run=\u{1b}[2J")).expect("made");
    let done = query(&[text(folder.path()), "select 1 as n", "--format", "csv"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("run=\\u{1b}[2J") && !said.contains('\u{1b}'), "{said:?}");
}

/// Rows of such runs would be joined with each other's, or left out unseen.
#[test]
fn runs_that_could_not_be_told_apart_are_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let folder = scratch();
    fleet(1, folder.path());
    let same = folder.path().join("host=h%30000/run=2026-11-01");
    fs::create_dir_all(&same).expect("made");
    fs::copy(folder.path().join("host=h0000/run=2026-11-01/meta.json"), same.join("meta.json")).expect("copied");
    let said = complaint(&[text(folder.path()), "select 1"], 1);
    assert!(
        said.contains("host=h0000/run=2026-11-01 and ") || said.contains("host=h%30000/run=2026-11-01 and "),
        "{said}"
    );
    assert!(said.contains("the same host and run"), "{said}");
    fs::remove_dir_all(folder.path().join("host=h%30000")).expect("removed");
    fs::create_dir(folder.path().join(OsStr::from_bytes(b"host=\xff"))).expect("made");
    let said = complaint(&[text(folder.path()), "select 1"], 1);
    assert!(said.contains("is no UTF-8: rename it"), "{said}");
}

#[test]
fn ready_made_queries_know_what_they_are_for() {
    let folder = scratch();
    fleet(2, folder.path());
    assert!(complaint(&[text(folder.path()), "--run", "types"], 1).contains("fleet-types"));
    let hosts = answer(&[text(folder.path()), "--run", "fleet-remote", "--format", "csv"]);
    assert_eq!(hosts.lines().count(), 3, "{hosts}");
    let kinds = answer(&[text(folder.path()), "--run", "fleet-types", "--format", "csv"]);
    assert!(kinds.starts_with("kind,name,file,line,hosts,samples,accesses,remote_accesses,remote_ppm\n"), "{kinds}");
    let trace = folder.path().join("host=h0000/run=2026-11-01");
    assert!(complaint(&[text(&trace), "--run", "fleet-types"], 1).contains("is not for a trace"));
}
