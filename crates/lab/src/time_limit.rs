//! The time limit of a guest. On a busy machine QEMU waits for a processor most of the time, which must not be mistaken for a hung guest. Time in which
//! QEMU was ready to run but had no processor does not count. The kernel keeps it by thread (`/proc/PID/task/TID/schedstat`:
//! nanoseconds of running, nanoseconds of waiting, number of time slices).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;
use std::time::Instant;

/// A time limit of a process, which begins when it is made.
#[derive(Debug)]
pub(crate) struct TimeLimit {
    pid: u32,
    limit: Duration,
    began: Instant,
    /// Waiting time of each of its threads at that moment.
    before: HashMap<String, Duration>,
}

impl TimeLimit {
    /// `limit` of the process's time, from now on.
    pub(crate) fn new(pid: u32, limit: Duration) -> Self {
        Self { pid, limit, began: Instant::now(), before: waited(pid).collect() }
    }

    /// The rest of the time limit; zero: it is over.
    pub(crate) fn left(&self) -> Duration {
        let elapsed = self.began.elapsed();
        if elapsed < self.limit {
            return self.limit - elapsed;
        }
        // The thread that waited for longest: which of them the guest needs most is not known.
        let since = |(thread, now): (String, Duration)| {
            now.saturating_sub(self.before.get(&thread).copied().unwrap_or_default())
        };
        let lost = waited(self.pid).map(since).max().unwrap_or_default();
        (self.limit + lost).saturating_sub(elapsed)
    }
}

/// The threads of a process and how long each has waited for a processor; none where the kernel does not say.
fn waited(pid: u32) -> impl Iterator<Item = (String, Duration)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let waited_ns = text.split_whitespace().nth(1)?.parse().ok()?;
        Some((thread.file_name().to_string_lossy().into_owned(), Duration::from_nanos(waited_ns)))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(300);

    /// Keeps to one processor and never rests; killed when dropped.
    struct Busy(std::process::Child);

    impl Busy {
        fn start() -> Self {
            let mut command = Command::new("taskset");
            Self(command.args(["-c", "0", "sh", "-c", "while :; do :; done"]).spawn().expect("taskset"))
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn time_is_over_for_one_that_sleeps_and_not_for_one_that_others_kept_from_running() {
        let mut sleeper = Command::new("sleep").arg("100").spawn().expect("sleep");
        let time_limit = TimeLimit::new(sleeper.id(), LIMIT);
        assert!(time_limit.left() > Duration::ZERO);
        std::thread::sleep(LIMIT * 2);
        // Once it sleeps nobody keeps it from running; until then a busy machine may.
        let begun = std::time::Instant::now();
        while !time_limit.left().is_zero() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(LIMIT / 10);
        }
        assert_eq!(time_limit.left(), Duration::ZERO, "nobody kept it from running");
        let _ = sleeper.kill();
        let _ = sleeper.wait();

        // Four that want one processor: each waits most of the time, however busy the machine is.
        let all: Vec<Busy> = (0..4).map(|_| Busy::start()).collect();
        let time_limit: Vec<TimeLimit> = all.iter().map(|one| TimeLimit::new(one.0.id(), LIMIT)).collect();
        std::thread::sleep(LIMIT * 2);
        let left = time_limit.iter().filter(|one| !one.left().is_zero()).count();
        assert!(left >= 2, "{left} of 4 have time left");
    }

    #[test]
    fn a_process_that_is_gone_has_its_limit_and_no_more() {
        let mut child = Command::new("true").spawn().expect("true");
        child.wait().expect("its end");
        let time_limit = TimeLimit::new(child.id(), Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(time_limit.left(), Duration::ZERO);
    }
}
