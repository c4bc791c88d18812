//! Memory of processes that end while they are watched: a process that has ended has no memory, so it is read while it runs.
//!
//! For `numa_maps` the kernel walks a process's page tables and holds its memory map meanwhile. So a long reading is followed by a longer pause
//! ([`PAUSE_PER_LOOK`]).

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_machine::Machine;

use super::MemoryMap;
use super::Reader;
use numapilot_host::Root;

/// Pause between two readings, in multiples of the time of a reading: watching costs at most 1 % of the time.
const PAUSE_PER_LOOK: u32 = 100;
/// Minimum pause between two readings.
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// The last reading of each process that had memory.
#[derive(Debug)]
pub struct LastSeen {
    reader: Reader,
    began: Instant,
    seen: BTreeMap<u32, (Duration, MemoryMap)>,
    due: Duration,
}

impl Default for LastSeen {
    fn default() -> LastSeen {
        LastSeen { reader: Reader::default(), began: Instant::now(), seen: BTreeMap::new(), due: Duration::ZERO }
    }
}

impl LastSeen {
    /// Reads the processes, if the last reading is long enough ago.
    pub fn look_if_due(&mut self, root: &Root, machine: &Machine, pids: &[u32]) {
        if self.began.elapsed() >= self.due {
            self.look(root, machine, pids);
        }
    }

    /// Present memory of the processes; for one that has ended, the last reading with a note of its time.
    pub fn now(&mut self, root: &Root, machine: &Machine, pids: &[u32]) -> Vec<MemoryMap> {
        let looked_at = self.look(root, machine, pids);
        let told = |(at, map): &(Duration, MemoryMap)| {
            let mut map = map.clone();
            if *at < looked_at {
                map.notes.push(format!(
                    "The process has ended: its memory as last read, {:.3} s after the start.",
                    at.as_secs_f64()
                ));
            }
            map
        };
        pids.iter().filter_map(|pid| self.seen.get(pid)).map(told).collect()
    }

    fn look(&mut self, root: &Root, machine: &Machine, pids: &[u32]) -> Duration {
        let at = self.began.elapsed();
        for &pid in pids {
            // A process that is ending has no memory any more, which is not an error yet.
            if let Ok(map) = self.reader.read(root, machine, pid)
                && (!map.areas.is_empty() || !self.seen.contains_key(&pid))
            {
                self.seen.insert(pid, (at, map));
            }
        }
        let now = self.began.elapsed();
        self.due = now + ((now - at) * PAUSE_PER_LOOK).max(PAUSE_MIN);
        at
    }
}

#[cfg(test)]
mod tests {
    //! A process that ends under our eyes.

    use std::process::Command;
    use std::thread;

    use super::*;

    #[test]
    fn a_process_that_has_ended_is_told_as_it_was_last_seen() {
        let (root, machine) = (Root::default(), Machine::live().unwrap());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pids = [child.id()];
        let mut seen = LastSeen::default();
        // Until the kernel has put the program in place of this one's copy.
        while seen.now(&root, &machine, &pids).first().is_none_or(|map| map.name != "sleep") {
            thread::sleep(Duration::from_millis(5));
        }
        let running = seen.now(&root, &machine, &pids);
        assert!(running[0].notes.is_empty(), "{:?}", running[0].notes);
        let bytes: u64 = running[0].bytes_by_node().iter().sum();
        assert!(bytes > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = seen.now(&root, &machine, &pids);
        assert_eq!(ended[0].bytes_by_node().iter().sum::<u64>(), bytes);
        assert!(ended[0].notes.iter().any(|note| note.contains("as last read")), "{:?}", ended[0].notes);
        seen.due = Duration::ZERO;
        seen.look_if_due(&root, &machine, &pids);
        assert!(seen.due >= PAUSE_MIN);
    }
}
