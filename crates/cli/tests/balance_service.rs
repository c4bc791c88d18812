//! `balance` as a service, on this machine: a dry run needs neither several nodes nor rights to move pages. Tests control it by its socket and by signals, read
//! its metrics and journal, and check that the next start restores what a killed daemon left changed.

use std::io::Read;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use crate::common::PATIENCE;
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_numapilot");

/// A daemon and a process that it manages; both end when this is dropped.
struct Daemon {
    folder: tempfile::TempDir,
    daemon: Child,
    target: Child,
}

impl Daemon {
    /// `None` if this machine's kernel does not let us see page faults; the test then reports that it did not run.
    fn start() -> Option<Daemon> {
        Daemon::start_on(|target| format!("pid = [{target}]"))
    }

    /// The same on the processes that `who` says, in the words of the configuration.
    fn start_on(who: impl Fn(u32) -> String) -> Option<Daemon> {
        let folder = tempfile::tempdir().unwrap();
        let target = Command::new("sleep").arg("600").spawn().unwrap();
        write_config_for(folder.path(), &who(target.id()), "1%");
        let daemon = Command::new(BINARY)
            .args(["balance", "--config"])
            .arg(folder.path().join("n.toml"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut started = Daemon { folder, daemon, target };
        let begun = Instant::now();
        while !started.ctl(&["status"]).status.success() {
            if let Some(status) = started.daemon.try_wait().unwrap() {
                let mut error = String::new();
                started.daemon.stderr.take().unwrap().read_to_string(&mut error).unwrap();
                let is_refused =
                    ["perf_event", "CAP_PERFMON", "page-fault", "page fault"].iter().any(|word| error.contains(word));
                assert!(is_refused, "{status}: {error}");
                numapilot_not_run::not_run!(PageFaultEvents, "{error}");
                return None;
            }
            assert!(begun.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(started)
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let socket = self.folder.path().join("control");
        Command::new(BINARY).arg("ctl").args(arguments).arg("--socket").arg(socket).output().unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.says(&["status", "--json"])).unwrap()
    }

    fn signal(&self, signal: i32) {
        // SAFETY: sends a signal to our own child, which has not been waited for.
        unsafe { libc::kill(self.daemon.id().cast_signed(), signal) };
    }

    /// Waits until the status meets the condition.
    fn until(&self, what: &str, is: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !is(&self.status()) {
            assert!(begun.elapsed() < PATIENCE, "not {what}: {}", self.status());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for child in [&mut self.daemon, &mut self.target] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn write_config(folder: &Path, pid: u32, max_harm: &str) {
    write_config_for(folder, &format!("pid = [{pid}]"), max_harm);
}

fn write_config_for(folder: &Path, who: &str, max_harm: &str) {
    let at = folder.display();
    let text = format!(
        "{who}\ndry-run = true\nmax-harm = \"{max_harm}\"\n[journal]\nfile = \"{at}/journal\"\n[control]\nsocket = \"{at}/control\"\n\
         [metrics]\nlisten = \"unix:{at}/metrics\"\n[state]\nfolder = \"{at}/state\"\n"
    );
    std::fs::write(folder.join("n.toml"), text).unwrap();
}

/// On the whole system processes are looked for again and again: one that a user removed stays out until it is added again.
#[test]
fn what_is_removed_is_not_found_again() {
    let Some(daemon) = Daemon::start_on(|_| "system = true".to_owned()) else { return };
    let pid = daemon.target.id();
    let has = |status: &Value| {
        status["targets"].as_array().is_some_and(|targets| targets.iter().any(|target| target["pid"] == pid))
    };
    let observations = |status: &Value| status["counters"]["observations"].as_u64().unwrap_or(0);
    daemon.until("found", has);
    assert_eq!(daemon.says(&["remove", &pid.to_string()]), "removed\n");
    let then = observations(&daemon.status());
    daemon.until("looked again", |status| observations(status) > then + 25);
    assert!(!has(&daemon.status()), "it was found again");
    assert_eq!(daemon.says(&["add", &pid.to_string()]), "added\n");
    daemon.until("added", has);
}

#[test]
fn a_daemon_is_steered_and_read_from_its_start_to_its_end() {
    let Some(mut daemon) = Daemon::start() else { return };
    let pid = daemon.target.id();
    daemon.until("looking", |status| status["counters"]["observations"].as_u64() > Some(0));
    let status = daemon.status();
    assert_eq!((&status["targets"][0]["pid"], &status["dry_run"]), (&Value::from(pid), &Value::from(true)));

    assert_eq!(daemon.says(&["pause"]), "paused\n");
    daemon.until("paused", |status| status["state"] == "paused");
    assert_eq!(daemon.says(&["resume"]), "resumed\n");
    daemon.until("resumed", |status| status["state"] != "paused");
    let own = std::process::id().to_string();
    assert_eq!(daemon.says(&["add", &own]), "added\n");
    daemon.until("two targets", |status| status["targets"].as_array().map(Vec::len) == Some(2));
    assert_eq!(daemon.says(&["remove", &own]), "removed\n");

    let mut stream = UnixStream::connect(daemon.folder.path().join("metrics")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("\nnumapilot_targets ") && page.contains("\nnumapilot_dry_run 1\n"), "{page}");
    assert!(!page.contains("sleep"), "no names of programs: {page}");

    // A valid file is applied; an invalid one and one whose changes need a restart are not.
    write_config(daemon.folder.path(), pid, "2%");
    assert_eq!(daemon.says(&["reload"]), "reloaded\n");
    write_config(daemon.folder.path(), pid + 1, "2%");
    let refusal = String::from_utf8(daemon.ctl(&["reload"]).stderr).unwrap();
    assert!(refusal.contains("needs a restart"), "{refusal}");
    write_config(daemon.folder.path(), pid, "lots");
    let refusal = String::from_utf8(daemon.ctl(&["reload"]).stderr).unwrap();
    assert!(refusal.contains("n.toml, line 3"), "{refusal}");
    daemon.signal(libc::SIGHUP);

    daemon.signal(libc::SIGTERM);
    assert!(daemon.daemon.wait().unwrap().success());
    assert!(!daemon.folder.path().join("control").exists(), "its socket goes with it");
    let journal = daemon.folder.path().join("journal");
    let told = Command::new(BINARY).args(["explain", "--json", "--journal"]).arg(&journal).output().unwrap();
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let run = &told["runs"][0];
    assert_eq!((&run["start"]["dry_run"], &told["reading"]["unreadable"]), (&Value::from(true), &Value::from(0)));
    assert_eq!(run["stop"]["because"], "a signal", "{run}");
    let steered: Vec<&str> =
        run["notes"].as_array().unwrap().iter().filter_map(|note| note["command"].as_str()).collect();
    for command in ["pause", "resume", "add", "remove", "reload", "stop"] {
        assert!(steered.contains(&command), "{command} not in {steered:?}");
    }
}

#[test]
fn a_killed_daemon_leaves_a_journal_that_reads_and_a_socket_that_the_next_replaces() {
    let Some(mut daemon) = Daemon::start() else { return };
    daemon.until("looking", |status| status["counters"]["observations"].as_u64() > Some(0));
    daemon.signal(libc::SIGKILL);
    daemon.daemon.wait().unwrap();
    assert!(daemon.folder.path().join("control").exists());
    let error = String::from_utf8(daemon.ctl(&["status"]).stderr).unwrap();
    assert!(error.contains("has ended"), "{error}");
    daemon.daemon = Command::new(BINARY)
        .args(["balance", "--quiet", "--config"])
        .arg(daemon.folder.path().join("n.toml"))
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !daemon.ctl(&["status"]).status.success() {
        assert!(begun.elapsed() < PATIENCE && daemon.daemon.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(daemon.says(&["stop"]), "stopping\n");
    assert!(daemon.daemon.wait().unwrap().success());
    let told =
        Command::new(BINARY).args(["explain", "--journal"]).arg(daemon.folder.path().join("journal")).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("its end is not in the journal") && told.contains("ended: stopped by user"), "{told}");
}

#[test]
fn a_wrong_configuration_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("n.toml");
    std::fs::write(&file, "system = true\nmax-harm = \"lots\"\n").unwrap();
    let output = Command::new(BINARY).args(["balance", "--config"]).arg(&file).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("n.toml, line 2"), "{error}");
}
