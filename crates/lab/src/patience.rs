//! How long a guest is waited for. On a busy machine QEMU waits for a processor most of the time, and is not to be taken for a guest that hangs: time in
//! which QEMU was ready to run and others had the processors does not count, as the kernel keeps it by thread (`/proc/PID/task/TID/schedstat`:
//! nanoseconds that it ran, that it waited, and how often).

use std::collections::HashMap;
use std::fs;
use std::time::Duration;
use std::time::Instant;

/// From its making on, some time of a process.
#[derive(Debug)]
pub(crate) struct Patience {
    pid: u32,
    limit: Duration,
    began: Instant,
    /// How long each of its threads had waited by then.
    before: HashMap<String, Duration>,
}

impl Patience {
    /// `limit` of the process's time, from now on.
    pub(crate) fn new(pid: u32, limit: Duration) -> Self {
        Self { pid, limit, began: Instant::now(), before: waited(pid).collect() }
    }

    /// What is left of the limit; zero: it is over.
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
        let patience = Patience::new(sleeper.id(), LIMIT);
        assert!(patience.left() > Duration::ZERO);
        std::thread::sleep(LIMIT * 2);
        assert_eq!(patience.left(), Duration::ZERO, "nobody kept it from running");
        let _ = sleeper.kill();
        let _ = sleeper.wait();

        // Four that want one processor: each waits most of the time, however busy the machine is.
        let all: Vec<Busy> = (0..4).map(|_| Busy::start()).collect();
        let patience: Vec<Patience> = all.iter().map(|one| Patience::new(one.0.id(), LIMIT)).collect();
        std::thread::sleep(LIMIT * 2);
        let left = patience.iter().filter(|one| !one.left().is_zero()).count();
        assert!(left >= 2, "{left} of 4 have time left");
    }

    #[test]
    fn a_process_that_is_gone_has_its_limit_and_no_more() {
        let mut child = Command::new("true").spawn().expect("true");
        child.wait().expect("its end");
        let patience = Patience::new(child.id(), Duration::from_millis(1));
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(patience.left(), Duration::ZERO);
    }
}
