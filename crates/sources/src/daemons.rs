//! What a program leaves running when it has ended: daemons, which have made sessions of their own, and background jobs. The recorder is their reaper
//! (`numapilot-launch`), so it sees them and their ends; this announces each of them once.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::title;
use numapilot_launch::Standing;

/// Processes that end sooner after their launcher are not worth a message.
const PATIENCE: Duration = Duration::from_millis(300);

/// A process that went on after the program had ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Process id.
    pub pid: Pid,
    /// Its title, or its name.
    pub title: String,
    /// Whether it has a session of its own.
    pub is_daemon: bool,
}

impl Survivor {
    /// In words: `redis-server *:6379 (process 4711)`.
    #[must_use]
    pub fn words(&self) -> String {
        format!("{} (process {})", self.title, self.pid)
    }
}

/// The processes that were left running.
#[derive(Debug, Default)]
pub struct Survivors {
    since: Option<Instant>,
    told: BTreeMap<Pid, Survivor>,
}

impl Survivors {
    /// Looks at what is left of the program. Returns those that are to be announced now.
    pub fn look(&mut self, standing: &Standing) -> Vec<Survivor> {
        let (left, is_daemon) = match standing {
            Standing::Outlived(left) => (left, false),
            Standing::Daemons(left) => (left, true),
            Standing::Running | Standing::Ended => return Vec::new(),
        };
        if self.since.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
            return Vec::new();
        }
        let mut fresh = Vec::new();
        for pid in left.iter().copied().filter(|pid| !self.told.contains_key(pid)) {
            let survivor = Survivor { pid, title: title(&Root::default(), pid, &mut Vec::new()), is_daemon };
            fresh.push(survivor.clone());
        }
        self.told.extend(fresh.iter().map(|survivor| (survivor.pid, survivor.clone())));
        fresh
    }

    /// Those that were announced and of which `left` are still there, in words.
    #[must_use]
    pub fn words(&self) -> Option<String> {
        let words: Vec<String> = self.told.values().map(Survivor::words).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_announced_once_and_not_at_once() {
        let own = Pid::own();
        let mut survivors = Survivors::default();
        assert!(survivors.look(&Standing::Running).is_empty());
        assert!(survivors.look(&Standing::Daemons(vec![own])).is_empty(), "too soon");
        std::thread::sleep(PATIENCE);
        let told = survivors.look(&Standing::Daemons(vec![own]));
        assert_eq!((told.len(), told[0].pid, told[0].is_daemon), (1, own, true));
        assert!(told[0].words().contains(&format!("(process {own})")) && !told[0].title.is_empty());
        assert!(survivors.look(&Standing::Daemons(vec![own])).is_empty(), "again");
        assert_eq!(survivors.words().unwrap(), told[0].words());
    }
}
