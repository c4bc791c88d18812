//! Programs that leave their launcher: the recording follows them until they end or the user stops it, and says so.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;

const DAEMON: &str = include_str!("programs/daemon.c");
/// Milliseconds for which the daemon goes on: longer than a recorder that waits out of courtesy.
const LONG_MS: &str = "4000";

/// What the daemon wrote there: its process id, or how many blocks it has touched.
fn written_in(file: &Path) -> String {
    fs::read_to_string(file).expect("the daemon's file").trim().to_owned()
}

/// Records a daemon to its end: it is announced, and its last second is in the trace.
#[track_caller]
fn is_followed(engine: &str, program: &Path) {
    let folder = scratch();
    let (trace, id) = (folder.path().join("d.numatrace"), folder.path().join("pid"));
    let mut command = numapilot(&["record", "--force", "--engine", engine, "--machine", "opteron-8385", "-o"]);
    let begun = Instant::now();
    let ran = finish(command.arg(&trace).arg("--").arg(program).arg(&id).arg(LONG_MS));
    if engine == "emulate" && has_no_emulator(&ran) {
        return;
    }
    if engine == "fault" && ran.code != 3 && ran.stderr.contains("perf_event") {
        return numapilot_not_run::not_run!(PageFaultEvents, "{}", ran.stderr);
    }
    assert_eq!(ran.code, 3, "{engine}: the launcher's own status: {}", ran.stderr);
    assert!(begun.elapsed() > Duration::from_millis(3900), "{engine}: {:?}: {}", begun.elapsed(), ran.stderr);
    let named = format!("(process {}) continues as a daemon", written_in(&id));
    assert!(ran.stderr.contains(&named) && ran.stderr.contains("Ctrl-C (or `--for`)"), "{engine}: {}", ran.stderr);
    // 20 ms apart or more, each block is an object of its own.
    let made: usize = written_in(&folder.path().join("pid.blocks")).parse().expect("the number of blocks");
    let objects =
        run(&["report", trace.to_str().expect("UTF-8"), "--csv", "-", "--table", "objects"]).succeeded().stdout;
    let blocks = objects.lines().filter(|line| line.contains(",65536,")).count();
    assert!(2 * blocks > made, "{engine}: {blocks} blocks of {made}");
}

#[test]
fn a_daemon_is_recorded_until_it_ends_with_every_engine() {
    let folder = scratch();
    let plain = build_plain(folder.path(), "daemon", DAEMON, &[]);
    is_followed("track", &plain);
    is_followed("fault", &plain);
    is_followed("emulate", &plain);
    let instrumented = build(folder.path(), "instrumented", "cc", DAEMON, &[]);
    is_followed("instrument", &instrumented);
}

#[test]
fn a_time_or_a_signal_stops_the_recording_and_not_the_daemon() {
    let folder = scratch();
    let program = build_plain(folder.path(), "daemon", DAEMON, &[]);
    for how in ["--for", "signal", "--main-only"] {
        let (trace, id) = (folder.path().join("d.numatrace"), folder.path().join(format!("pid{how}")));
        let mut command = numapilot(&["record", "--force", "--engine", "track"]);
        match how {
            // The daemon is announced once its launcher has been gone for 0.3 s, to which a busy machine comes late.
            "--for" => command.args(["--for", "8s"]),
            "--main-only" => command.arg("--main-only"),
            _ => &mut command,
        };
        command.arg("-o").arg(&trace).arg("--").arg(&program).arg(&id).arg("600000");
        let begun = Instant::now();
        let mut recorder = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut messages = BufReader::new(recorder.stderr.take().expect("a pipe"));
        let mut said = String::new();
        if how == "signal" {
            // Before, the signal would go to the program.
            while !said.contains("continues as a daemon") {
                assert!(messages.read_line(&mut said).expect("its words") > 0, "it ends by itself: {said}");
            }
            // Not SIGINT: what a shell starts in the background ignores it, and the recorder leaves that as it was.
            Command::new("kill").args(["-TERM", &recorder.id().to_string()]).status().expect("kill");
        }
        messages.read_to_string(&mut said).expect("its words");
        let ended = recorder.wait().expect("it ends");
        let pid = written_in(&id);
        let is_alive = Path::new("/proc").join(&pid).join("stat").exists();
        Command::new("kill").arg(&pid).status().expect("kill");
        assert!(is_alive, "{how}: the daemon runs on: {said}");
        assert_eq!(ended.code(), Some(3), "{how}: {said}");
        assert!(begun.elapsed() < 2 * PATIENCE, "{how}: {:?}: {said}", begun.elapsed());
        assert!(
            how == "--main-only" || said.contains(&format!("(process {pid}) continues as a daemon")),
            "{how}: {said}"
        );
        run(&["report", trace.to_str().expect("UTF-8")]).succeeded();
    }
}
