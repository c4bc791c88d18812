//! `explain` and `ctl` from the command line, with a journal and a control socket that the service's own code provides.

use std::process::Command;
use std::process::Output;
use std::sync::Arc;
use std::thread;

use numapilot_balancer::event;
use numapilot_balancer::event::Event;
use numapilot_balancer::event::Sink;
use numapilot_balancer::status;
use numapilot_balancer::status::Board;
use numapilot_host::Pid;
use numapilot_machine::NodeId;
use numapilot_service::control::Control;
use numapilot_service::control::ControlSettings;
use numapilot_service::control::line;
use numapilot_service::journal::Journal;
use numapilot_service::journal::JournalSettings;

fn numapilot(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numapilot")).args(arguments).output().expect("numapilot runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// A run with one decision: ordered, carried out in part, compared and undone.
fn write_journal(folder: &std::path::Path) -> String {
    let file = folder.join("journal.jsonl");
    let mut journal = Journal::start(JournalSettings::new(file.clone())).unwrap();
    let target = event::Target { pid: Pid(4711), start_ticks: 99, uid: 1000, name: "app\u{1b}[31m".to_owned() };
    journal.record(Event::Start(event::Start {
        run: "r1".to_owned(),
        policy: "pilot".to_owned(),
        kernel: "6.1.0".to_owned(),
        nodes: vec![event::NodeFacts::default(); 4],
        targets: vec![target],
        evidence: vec![event::EvidenceSource {
            name: "fault".to_owned(),
            used: true,
            detail: "hinting faults".to_owned(),
        }],
        ..event::Start::default()
    }));
    let seen = |node, to: &[f64]| event::NodeSeen { node, to: to.to_vec(), ..event::NodeSeen::default() };
    journal.record(Event::Observation(event::Observation {
        observation: 5,
        elapsed_ns: 1_000_000_000,
        samples: 1234,
        nodes: vec![seen(NodeId(0), &[10.0, 0.0]), seen(NodeId(1), &[990.0, 234.0])],
        ..event::Observation::default()
    }));
    journal.record(Event::Decision(event::Decision {
        decision: 1,
        observation: 5,
        because: "node 0 answers for node 1".to_owned(),
        pages: 512,
        bytes: 2 << 20,
        predicted_gain_ns_per_s: Some(1.5e6),
        ..event::Decision::default()
    }));
    let batch = event::Batch {
        pid: Pid(4711),
        first: 0x7f00_0000_0000,
        pages: 512,
        page_bytes: 4096,
        order: event::PageDecision::Move { from: Some(NodeId(0)), to: NodeId(1) },
        seen: vec![event::SeenFrom { node: NodeId(1), reads: 40.0, writes: 3.0 }],
        because: "one remote user".to_owned(),
        predicted_gain_ns_per_s: None,
    };
    journal.record(Event::Orders(event::Orders { decision: 1, batches: vec![batch], threads: Vec::new() }));
    let pages = event::PageOutcomes { moved: 510, busy: 2, ..event::PageOutcomes::default() };
    let action =
        event::Action { decision: 1, pages, moved_bytes: 510 << 12, took_ns: 2_000_000, ..event::Action::default() };
    journal.record(Event::Action(action.clone()));
    journal.record(Event::Comparison(event::Comparison {
        decisions: vec![1],
        measure: "instructions per ns".to_owned(),
        change_percent: -2.5,
        plus_minus_percent: Some(0.4),
        verdict: event::Verdict::Undone,
        ..event::Comparison::default()
    }));
    journal.record(Event::Action(event::Action { undo: true, ..action }));
    drop(journal);
    file.display().to_string()
}

#[test]
fn a_decision_is_told_back_to_its_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_journal(folder.path());
    let list = text(&numapilot(&["explain", "--journal", &file]));
    for part in [
        "Run r1 began",
        "policy pilot, 4 nodes, Linux 6.1.0; 1 decision; still running, or its end is not in the journal",
        "evidence from fault",
        "undone",
    ] {
        assert!(list.contains(part), "{part} not in\n{list}");
    }
    let story = text(&numapilot(&["explain", "--journal", &file, "--page", "7f00001ff123"]));
    let expected = [
        "Decision 1 of run r1",
        "Evidence of 1.00 s: 1234 samples (0 lost)",
        "from node 1: 990 to 0, 234 to 1",
        "Policy   node 0 answers for node 1",
        "Ordered  512 pages (2.00 MiB), 0 threads; predicted to save 1.50 ms of thread time per second",
        "0x7f0000000000-0x7f0000200000 (512 x 4.00 KiB) of 4711 (app",
        "node 0 to 1; seen from node 1: 40 reads 3 writes; one remote user",
        "Done     510 moved, 2 busy",
        "Undone   510 moved",
        "Verdict  undone: instructions per ns -2.5 ± 0.4 % with the changes",
    ];
    for part in expected {
        assert!(story.contains(part), "{part} not in\n{story}");
    }
    assert!(!story.contains('\u{1b}'), "names cannot talk to the terminal");
    assert!(text(&numapilot(&["explain", "--journal", &file, "--page", "0x1000"])).contains("no decision"));
    let json = text(&numapilot(&["explain", "--journal", &file, "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["decisions"][0]["batches"][0]["first"], "0x7f0000000000");
    assert_eq!(json["decisions"][0]["comparisons"][0]["verdict"], "undone");
}

#[test]
fn what_explain_cannot_do_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_journal(folder.path());
    for (arguments, part) in [
        (vec!["explain", "--journal", "/nowhere/j"], "/nowhere/j: there is no journal; a single `balance` writes one"),
        (vec!["explain", "--journal", &file, "--decision", "7"], "does not hold decision 7"),
        (vec!["explain", "--journal", &file, "--run", "zz"], "no run has a name that begins with zz"),
        (vec!["explain", "--journal", &file, "--page", "xyz"], "not a hexadecimal address"),
    ] {
        let output = numapilot(&arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn ctl_asks_and_steers() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let path = socket.display().to_string();
    let board = Board::new();
    let target = event::Target { pid: Pid(4711), start_ticks: 1, uid: 0, name: "app".to_owned() };
    board.put(status::Status {
        state: status::State::Running,
        policy: "pilot".to_owned(),
        targets: vec![status::TargetStatus {
            target,
            local_share: Some(0.5),
            chosen_bytes: 3 << 20,
            forbidden_nodes: [1, 2, 5].map(NodeId).into(),
            is_put_off: true,
            ..status::TargetStatus::default()
        }],
        nodes: vec![status::NodeStatus { memory_bytes: 1 << 30, ..status::NodeStatus::default() }],
        pressure: vec![status::ResourcePressure { resource: "memory".to_owned(), some: 0.125, full: None }],
        is_put_off: true,
        ..status::Status::default()
    });
    let (steering, commands) = line(Arc::new(|| ()));
    let settings = ControlSettings { path: socket, mode: 0o600 };
    let control = Control::start(&settings, board, steering, None).unwrap();
    thread::spawn(move || {
        for steering in commands {
            let _ = steering.answer.unwrap().send(Ok(format!("{} done", steering.command.name())));
        }
    });
    let shown = text(&numapilot(&["ctl", "status", "--socket", &path]));
    let stay = "process 4711: 3.00 MiB stay in place";
    let forbidden = "process 4711: nothing is moved to nodes 1-2,5";
    let pressure = "pressure  tasks waited in the last 10 s for memory 12.5 %; moves are put off";
    let put_off = "process 4711: its pages stay for now: memory pressure is high in its cgroup";
    for part in ["running", "policy pilot", "50.0 %", "1.00 GiB", "4711  app", stay, forbidden, pressure, put_off] {
        assert!(shown.contains(part), "{part} not in\n{shown}");
    }
    let json = text(&numapilot(&["ctl", "--socket", &path, "status", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["state"], &json["targets"][0]["pid"]), (&"running".into(), &4711.into()));
    assert_eq!(text(&numapilot(&["ctl", "--socket", &path, "pause"])), "pause done\n");
    let own = std::process::id().to_string();
    assert_eq!(text(&numapilot(&["ctl", "--socket", &path, "add", &own])), "add done\n");
    // These figures are of 1970.
    let old = numapilot(&["ctl", "--socket", &path, "status", "--max-age", "10m"]);
    assert!(
        !old.status.success() && String::from_utf8_lossy(&old.stderr).contains("the balancing loop hangs"),
        "{old:?}"
    );
    drop(control);
    let output = numapilot(&["ctl", "--socket", &path, "status"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no such socket"), "{output:?}");
}
