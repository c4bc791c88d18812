//! A process whose `main` has ended by `pthread_exit` runs on: commands that name it watch its other threads.

use std::process::Child;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use crate::common::*;
use serde_json::Value;

const PROGRAM: &str = "#include <pthread.h>\n#include <time.h>\n\
    static void *run(void *a) { struct timespec t = {0, 1000000}; for (;;) { for (volatile long i = 0; i < 1000000; i++); nanosleep(&t, 0); } return a; }\n\
    int main(void) { pthread_t t; if (pthread_create(&t, 0, run, 0)) return 1; pthread_exit(0); }\n";

/// Ends it when the test ends, however that is.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_watched_by_its_other_threads() {
    let folder = scratch();
    let program = Running(Command::new(build_plain(folder.path(), "p", PROGRAM, &[])).spawn().expect("it starts"));
    let pid = program.0.id().to_string();
    let began = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs").contains(") Z ") {
        assert!(began.elapsed() < Duration::from_secs(60), "its first thread does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let began = Instant::now();
    let ran = run(&["stat", "--json", "--no-samples", "--for", "1s", "--pid", &pid]).succeeded();
    assert!(began.elapsed() >= Duration::from_secs(1), "it was taken to have ended: {}", ran.stdout);
    let told: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let clock = &told["events"]["task-clock"];
    // Missing where this user may not count.
    assert!(clock.is_object() && clock["value"].as_f64() != Some(0.0), "{told}");
    let process = &told["processes"][0];
    assert_eq!(process["pid"].as_u64(), Some(u64::from(program.0.id())), "{told}");
    assert_ne!(process["resident_bytes"].as_u64(), Some(0), "{process}");
}
