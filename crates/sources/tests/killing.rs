//! Programs and recorders killed at random (seeded) moments, and disks that fill up: what was written is whole, and the program
//! never pays.

use std::process::Command;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use crate::support::*;
use numapilot_random::Random;

const ROUNDS: u64 = 15;

#[test]
fn a_killed_program_leaves_a_whole_trace() {
    for round in 0..ROUNDS {
        let lab = Lab::new();
        let mut random = Random::new(1000 + round);
        let mut child = lab.command(&["ring=65536"], &[busy(), "for", "30000"]).spawn().unwrap();
        assert_eq!(first_line(&mut child), "ready");
        sleep(Duration::from_micros(random.remainder(150_000)));
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
        let program: i32 = children.trim().parse().expect("one child");
        // SAFETY: the program is a child of the recorder, which has not reaped it.
        unsafe { libc::kill(program, libc::SIGKILL) };
        assert_eq!(child.wait().unwrap().code(), Some(137), "seed {}", 1000 + round);
        let result = lab.result();
        let events = lab.events();
        assert_eq!(result["quarantined"], 0, "seed {}: {result}", 1000 + round);
        // What it did before it was ready, however little time it had since.
        assert!(events.len() >= 400 && lab.open().end().is_some(), "seed {}: {} events", 1000 + round, events.len());
    }
}

#[test]
fn a_killed_recorder_leaves_whole_chunks_and_an_unharmed_program() {
    let expected = alone(&["for", "1"]).0;
    let mut killed = 0;
    for round in 0..8 * ROUNDS {
        if killed == ROUNDS {
            break;
        }
        let lab = Lab::new();
        let mut random = Random::new(2000 + round);
        let mut child = lab.command(&["ring=65536"], &[busy(), "for", "400"]).spawn().unwrap();
        let first = first_line(&mut child);
        sleep(Duration::from_micros(random.remainder(250_000)));
        child.kill().unwrap();
        // It has ended by itself where a busy machine let this test run too late: another is killed in its place.
        if let Some(code) = child.wait().unwrap().code() {
            assert_eq!(code, 5, "seed {}: the program's own status", 2000 + round);
            continue;
        }
        killed += 1;
        let output = format!("{first}\n{}", rest(&mut child));
        assert_eq!(output, expected, "seed {}: the program's output changed", 2000 + round);
        let trace = lab.open();
        assert!(trace.end().is_none());
        assert!(
            trace.problems().len() <= 1,
            "seed {}: at most the chunk in hand is torn: {:?}",
            2000 + round,
            trace.problems()
        );
        let mut merge = trace.merge();
        let count = merge.by_ref().filter(|record| record.is_ok()).count();
        assert!(merge.problems().is_empty(), "seed {}: {count} records, then {:?}", 2000 + round, merge.problems());
    }
    assert_eq!(killed, ROUNDS, "recorders that had not ended before they were killed");
}

/// The recorder in a mount namespace of its own, with a tmpfs of `bytes` under the trace; `None` where the system allows no such thing.
fn on_small_disk(lab: &Lab, bytes: u32, program: &[&str]) -> Option<std::process::Output> {
    let disk = lab.path("disk");
    std::fs::create_dir(&disk).unwrap();
    // Where mounts are shared with the system's, the disk would stay: it goes in any case, but not before the recorder has let it go.
    let script = "mount -t tmpfs -o size=$1 tmpfs \"$2\" || exit 99; disk=$2; recorder=$3; output=$2/t.numatrace; result=$4; kept=$5; shift 5; \
                  \"$recorder\" \"output=$output\" \"result=$result\" -- \"$@\"; code=$?; cp -r \"$output\" \"$kept\"; umount \"$disk\"; exit $code";
    // In a changed root no user namespace can be made (user_namespaces(7)) and the root is no mount whose propagation could be changed; root needs neither.
    let ways: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount", "--propagation", "unchanged"]];
    ways.into_iter().find_map(|way| {
        let output = Command::new("unshare")
            .args(way)
            .args(["sh", "-c", script, "sh"])
            .arg(bytes.to_string())
            .arg(&disk)
            .arg(RECORDER)
            .arg(lab.path("result"))
            .arg(lab.trace())
            .args(program)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let refused = output.status.code() == Some(99) || String::from_utf8_lossy(&output.stderr).contains("unshare:");
        (!refused).then_some(output)
    })
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_program() {
    let lab = Lab::new();
    let Some(output) = on_small_disk(&lab, 256 << 10, &[busy(), "pairs", "1000000", "6"]) else {
        return numapilot_not_run::not_run!(MountNamespaces, "this system allows no mount namespaces");
    };
    assert_eq!((String::from_utf8(output.stdout).unwrap(), output.status.code()), alone(&["pairs", "1000000", "6"]));
    let result = lab.result();
    assert!(result["stopped"].as_str().is_some_and(|s| s.contains("No space left")), "{result}");
    assert!(result["notes"].to_string().contains("free disk space"), "{result}");
    let trace = lab.open();
    assert!(trace.end().is_none() && trace.problems().len() <= 1, "{:?}", trace.problems());
    assert!(trace.merge().filter(Result::is_ok).count() > 1000);
}
