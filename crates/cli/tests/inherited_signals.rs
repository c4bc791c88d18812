//! What the caller ignores (a service's SIGPIPE, the SIGHUP of `nohup`), the started program ignores too, as it would without numapilot, and it may open as
//! many files; and a reader that goes away ends no command that has more to do than to print.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// Gives the command this disposition of SIGPIPE and SIGHUP at its start.
fn started_with(command: &mut Command, disposition: libc::sighandler_t) -> &mut Command {
    // SAFETY: between fork and exec only signal(2) is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGPIPE, disposition);
            libc::signal(libc::SIGHUP, disposition);
            Ok(())
        })
    }
}

/// Whether the status file in `text` has both signals as ignored; `None`: one of them only.
fn ignores_both(text: &str) -> Option<bool> {
    let line = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("the mask of ignored signals");
    let mask = u64::from_str_radix(line.trim(), 16).expect("hexadecimal");
    let of = |signal: i32| mask & 1 << (signal - 1) != 0;
    (of(libc::SIGPIPE) == of(libc::SIGHUP)).then_some(of(libc::SIGPIPE))
}

#[test]
fn programs_ignore_what_the_caller_ignores() {
    let folder = scratch();
    let trace = folder.path().join("t.numatrace");
    let record = ["record", "--engine", "track", "--force", "-o", trace.to_str().expect("UTF-8")];
    let commands: [&[&str]; 4] = [&["stat"], &record, &["run"], &["balance", "--dry-run", "--for", "1s"]];
    for arguments in commands {
        for (disposition, is_ignored) in [(libc::SIG_IGN, true), (libc::SIG_DFL, false)] {
            let mut command = numapilot(arguments);
            let ran = finish(started_with(
                command.args(["--", "cat", "/proc/self/status"]).stdin(Stdio::null()),
                disposition,
            ));
            let name = arguments[0];
            if name == "balance" && ["perf_event", "CAP_PERFMON", "page fault"].iter().any(|w| ran.stderr.contains(w)) {
                numapilot_not_run::not_run!(PageFaultEvents, "{}", ran.stderr);
                continue;
            }
            assert_eq!(ignores_both(&ran.stdout), Some(is_ignored), "{name}: {}{}", ran.stdout, ran.stderr);
        }
    }
}

/// Events are open files, for which the limit on them is raised: programs got the highest there is, and some close as many at their start.
#[test]
fn programs_may_open_as_many_files_as_the_caller_lets_them() {
    let folder = scratch();
    let trace = folder.path().join("t.numatrace");
    let record = ["record", "--engine", "fault", "--force", "-o", trace.to_str().expect("UTF-8")];
    let commands: [&[&str]; 2] = [&["stat"], &record];
    for arguments in commands {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -S -n 200; exec \"$@\"", "sh", BINARY]).args(arguments);
        let ran = finish(shell.args(["--", "sh", "-c", "ulimit -S -n"]).stdin(Stdio::null()));
        if arguments[0] == "record" && ran.code != 0 {
            numapilot_not_run::not_run!(PageFaultEvents, "{}", ran.stderr);
            continue;
        }
        assert!(ran.stdout.lines().any(|line| line == "200"), "{}: {}{}", arguments[0], ran.stdout, ran.stderr);
    }
}

/// The shared memory of a recording is a file, and so are the libraries that are unpacked. SIGXFSZ ended the recorder, without a word.
#[test]
fn a_limit_on_file_sizes_is_told() {
    let folder = scratch();
    let trace = folder.path().join("t.numatrace");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -f 1; exec \"$@\"", "sh", BINARY, "record", "--engine", "track", "-o"]);
    let ran = finish(shell.arg(&trace).args(["--", "true"]).stdin(Stdio::null()));
    assert!(ran.code == 1 && ran.stderr.contains("File too large"), "{}: {}", ran.code, ran.stderr);
}

fn status_field(child: &Child, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let mask = status.lines().find_map(|line| line.strip_prefix(field)).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("hexadecimal")
}

#[test]
fn a_closed_terminal_does_not_end_a_program_under_nohup() {
    let mut command = numapilot(&["stat", "--", "sh", "-c", "read line; exit 7"]);
    let mut child = started_with(command.stdin(Stdio::piped()).stderr(Stdio::null()), libc::SIG_IGN)
        .spawn()
        .expect("the binary under test starts");
    let begun = Instant::now();
    while status_field(&child, "SigCgt:") & 1 << (libc::SIGTERM - 1) == 0 {
        assert!(begun.elapsed() < PATIENCE, "it does not handle SIGTERM");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGHUP) };
    // The program ends once its input does.
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("its end").code(), Some(7), "the program's own status");
}

#[test]
fn a_balancer_without_a_reader_ends_as_one_with() {
    let mut target = Command::new("sleep").arg("600").spawn().expect("sleep");
    let mut balancer = numapilot(&["balance", "--dry-run", "--json", "--pid", &target.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary under test starts");
    let mut first = String::new();
    // The reader is closed at the end of this statement.
    BufReader::new(balancer.stdout.take().expect("a pipe")).read_line(&mut first).expect("a line");
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(balancer.id().cast_signed(), libc::SIGTERM) };
    let mut error = String::new();
    balancer.stderr.take().expect("a pipe").read_to_string(&mut error).expect("UTF-8");
    let status = balancer.wait().expect("its end");
    let _ = target.kill();
    let _ = target.wait();
    if first.is_empty() && ["perf_event", "CAP_PERFMON", "page fault"].iter().any(|word| error.contains(word)) {
        return numapilot_not_run::not_run!(PageFaultEvents, "{error}");
    }
    assert_eq!(status.code(), Some(0), "{status}: {error}");
}
