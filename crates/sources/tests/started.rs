//! Programs that a recorded program starts: in namespaces of process numbers of their own, and linked to another C library than the tracker.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::support::*;
use numapilot_trace::record::Event;

fn compile(lab: &Lab, source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let program = lab.path(name);
    let output =
        Command::new("cc").args(["-O1", "-fno-builtin"]).args(flags).arg("-o").arg(&program).arg(&source).output();
    let output = output.expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Make sure that two processes of the same number, in two namespaces, keep their slots and their families, though nothing of theirs happens for a while.
#[test]
fn processes_in_namespaces_of_their_own_are_recorded_whole() {
    let lab = Lab::new();
    let program = compile(&lab, "namespaces.c", "namespaces", &[]);
    let output = lab.record(&["engine=track"], &[program.to_str().unwrap()]);
    if output.status.code() == Some(77) {
        return numapilot_not_run::not_run!(PidNamespaces, "this system makes no namespaces of process numbers here");
    }
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let result = lab.result();
    assert_eq!((result["lost"].as_u64(), result["stopped"].as_str()), (Some(0), None), "{result}");
    assert!(!result["notes"].to_string().contains("were killed"), "{result}");
    let events = lab.events();
    let blocks = events.iter().filter(|event| matches!(event, Event::Alloc { bytes: 777, .. })).count();
    assert_eq!(blocks, 2 * 200);
    let replaced: BTreeMap<u32, Option<u32>> = events
        .iter()
        .filter_map(|event| match event {
            Event::ProcessStart { index, parent, by_exec: true, .. } => Some((index.0, parent.map(|parent| parent.0))),
            _ => None,
        })
        .collect();
    let before: Vec<u32> = replaced.values().copied().flatten().collect();
    assert!(before.len() == 2 && before[0] != before[1], "each replaced its own image: {replaced:?}");
    let ends = events.iter().filter(|event| matches!(event, Event::ProcessEnd { by_exec: true, .. })).count();
    assert_eq!(ends, 2, "nobody ended another's");
}

/// musl's loader ends a program for a library that it cannot load; so does an older glibc's.
#[test]
fn a_program_of_another_c_library_runs_without_the_tracker_and_is_told() {
    let lab = Lab::new();
    let loader = compile(
        &lab,
        "loader.c",
        "ld-other.so.1",
        &["-static", "-nostdlib", "-fno-stack-protector", "-fno-pie", "-no-pie", "-Wl,-Ttext-segment=0x10000000"],
    );
    let linker = format!("-Wl,--dynamic-linker={}", loader.display());
    let other = compile(&lab, "busy.c", "other", &["-pthread", &linker]);
    let commands = format!("{0}; PATH={1} other; exec {0}; ", other.display(), lab.path("").display());
    let output = lab.record(&["engine=track"], &["sh", "-c", &commands]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), "loaded\nloaded\nloaded\n"), "as without the recorder");
    let notes = lab.result()["notes"].to_string();
    assert!(notes.contains("3 programs could not be recorded") && notes.contains("/other"), "{notes}");
    // What others preload is theirs.
    let output = lab.record(&["engine=track", "replace=1", "env=LD_PRELOAD=libm.so.6"], &["sh", "-c", &commands]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, "LD_PRELOAD=libm.so.6\nloaded\n".repeat(3));
}

/// A static program loads nothing; a set-user-ID one ignores what it is given. Both run as they would, and the recording says so.
#[test]
fn programs_that_cannot_load_the_tracker_are_told_with_the_reason() {
    let lab = Lab::new();
    let fixed = compile(&lab, "busy.c", "fixed", &["-pthread", "-static"]);
    let closed = compile(&lab, "busy.c", "closed", &["-pthread"]);
    // SAFETY: geteuid has no conditions and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut commands = format!("{0} pairs 10; {0} pairs 10; ", fixed.display());
    if is_root {
        // Of another user, or the loader would take the library.
        std::os::unix::fs::chown(&closed, Some(65534), None).expect("owned by another");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o4755);
        std::fs::set_permissions(&closed, mode).expect("set-user-ID");
        // A process without new rights has none from the file, and is recorded.
        commands += &format!("{0} pairs 10; setpriv --no-new-privs {0} pairs 10; ", closed.display());
    }
    let output = lab.record(&["engine=track"], &["sh", "-c", &commands]);
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 2 + 2 * usize::from(is_root)), "{said}{errors}");
    assert!(!errors.contains("cannot be preloaded"), "the loader complains to the program's user: {errors}");
    let notes = lab.result()["notes"].to_string();
    assert!(notes.contains("2 statically linked programs were not recorded") && notes.contains("/fixed"), "{notes}");
    assert_eq!(notes.contains("1 program could not be recorded"), is_root, "{notes}");
    assert_eq!(notes.contains("set-user-ID programs, or programs whose user"), is_root, "{notes}");
}

/// A report named the objects of the shell that had started a program of Go, as if they were the answer.
#[test]
fn a_program_that_did_most_of_the_work_without_the_tracker_is_told() {
    let lab = Lab::new();
    let fixed = compile(&lab, "busy.c", "fixed", &["-pthread", "-static"]);
    let found_of = |commands: &str| {
        let output = lab.record(&["engine=track", "replace=1"], &["sh", "-c", commands]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        lab.result()["unrecorded_program"].clone()
    };
    // Seconds of processor time, of which what is used after the last look is not seen. The main process may become the program, or end before it.
    for commands in ["WORK; true", "exec WORK", "WORK & true"] {
        let found = found_of(&commands.replace("WORK", &format!("{} pairs 60000000", fixed.display())));
        assert!(found["path"].as_str().is_some_and(|path| path.ends_with("/fixed")), "{commands}: {found}");
        assert!(found["share"].as_f64().is_some_and(|share| share > 0.5), "{commands}: {found}");
        let reason = found["reason"].as_str().unwrap_or_default();
        assert!(reason.contains("statically linked"), "{commands}: {found}");
    }
    assert!(found_of(&format!("{} pairs 10; {} for 1000; true", fixed.display(), busy())).is_null(), "it was recorded");
}
