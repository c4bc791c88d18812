//! A process's memory by node and by its own memory policies, read as seldom as its cost allows: the kernel walks the process's whole page table for it.

use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_kernel::KernelError;
use numapilot_kernel::numa_memory::NumaMemory;

/// A reading is kept for this many times the time that it took: at most 1 % of the time is spent on reading.
const COST_SHARE: u32 = 100;
/// Longest time for which a reading is kept.
const LATEST: Duration = Duration::from_secs(300);

/// The last reading of a process's memory.
#[derive(Clone, Debug, Default)]
pub struct NumaLook {
    memory: NumaMemory,
    read_at: Option<Instant>,
    took: Duration,
    /// The bytes of chosen memory that users were told of.
    told_bytes: u64,
    /// Why the last reading failed; `None`: it did not.
    unread: Option<String>,
}

impl From<NumaMemory> for NumaLook {
    /// A look at memory that was read just now.
    fn from(memory: NumaMemory) -> NumaLook {
        NumaLook { memory, read_at: Some(Instant::now()), ..NumaLook::default() }
    }
}

impl NumaLook {
    /// The memory of a process, read anew if the last reading is `least` old and older than its cost asks for. Where it cannot be read, the memory is that of
    /// the reading before, if any ([`NumaLook::why_unread`]).
    pub fn of(&mut self, pid: Pid, least: Duration) -> &NumaMemory {
        let keep = least.max((self.took * COST_SHARE).min(LATEST));
        if self.read_at.is_none_or(|then| then.elapsed() >= keep) {
            let begun = Instant::now();
            self.take(NumaMemory::of_process(pid));
            (self.took, self.read_at) = (begun.elapsed(), Some(Instant::now()));
        }
        &self.memory
    }

    fn take(&mut self, reading: Result<NumaMemory, KernelError>) {
        match reading {
            Ok(memory) => (self.memory, self.unread) = (memory, None),
            // It has no memory any more.
            Err(KernelError::Gone { .. }) => (self.memory, self.unread) = (NumaMemory::default(), None),
            Err(error) => self.unread = Some(error.to_string()),
        }
    }

    /// Whether it is not known which memory the program has placed itself: none of its memory is to be moved then.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// What to tell of a process whose memory policies are not known, with the reason; `None`: they are known.
    #[must_use]
    pub fn why_unread(&self, pid: Pid) -> Option<String> {
        let why = self.unread.as_ref()?;
        Some(format!("the memory of process {pid} stays in place, because its memory policies cannot be read: {why}"))
    }

    /// The last reading; empty before the first.
    #[must_use]
    pub fn last(&self) -> &NumaMemory {
        &self.memory
    }

    /// The next question is answered by a new reading: this program has moved the memory.
    pub fn is_outdated(&mut self) {
        self.read_at = None;
    }

    /// Bytes that are left where they are because the program has chosen their nodes.
    #[must_use]
    pub fn chosen_bytes(&self) -> u64 {
        self.memory.chosen_bytes.values().sum()
    }

    /// What to tell of a process's chosen memory, if there is more than twice of what was told; `None`: nothing new.
    pub fn news(&mut self, pid: Pid, name: &str) -> Option<String> {
        let bytes = self.chosen_bytes();
        if bytes == 0 || bytes < self.told_bytes.saturating_mul(2) {
            return None;
        }
        self.told_bytes = bytes;
        let parts: Vec<String> = self
            .memory
            .chosen_bytes
            .iter()
            .map(|(policy, bytes)| format!("{} by {policy}", mebibytes(*bytes)))
            .collect();
        Some(format!(
            "process {pid} ({name}): {} of its memory stay in place, because the program has set memory policies for them ({}; mbind, \
             set_mempolicy, numactl); --bound-memory (bound-memory = true) moves them too",
            mebibytes(bytes),
            parts.join(", ")
        ))
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    //! This process, and a reading made up.

    use numapilot_host::VirtAddr;

    use super::*;

    #[test]
    fn a_reading_is_kept_for_a_time_that_grows_with_its_cost() {
        let pid = Pid::own();
        let mut look = NumaLook::default();
        look.of(pid, Duration::ZERO);
        let first = look.read_at.unwrap();
        look.of(pid, Duration::from_secs(3600));
        assert_eq!(look.read_at, Some(first), "not old enough");
        look.took = Duration::from_secs(60);
        look.of(pid, Duration::ZERO);
        assert_eq!(look.read_at, Some(first), "too dear");
        look.is_outdated();
        look.of(pid, Duration::from_secs(3600));
        assert_ne!(look.read_at, Some(first));
        assert!(look.of(Pid(u32::MAX), Duration::from_secs(3600)).chosen.is_empty());
    }

    /// A file that could not be read was taken for a program without policies, whose memory may be moved.
    #[test]
    fn policies_that_cannot_be_read_are_not_taken_for_none() {
        let mut look = NumaLook::default();
        let mut memory = NumaMemory::default();
        memory.chosen.push((VirtAddr(0x1000), VirtAddr(0x2000)));
        look.take(Ok(memory.clone()));
        assert_eq!(look.why_unread(Pid(7)), None);
        let path = std::path::PathBuf::from("/proc/7/numa_maps");
        look.take(Err(KernelError::File { path, source: std::io::Error::from_raw_os_error(libc::ENOMEM) }));
        let why = look.why_unread(Pid(7)).unwrap();
        assert!(
            why.contains("process 7") && why.contains("numa_maps") && look.last().is_chosen(VirtAddr(0x1800)),
            "{why}"
        );
        look.take(Ok(memory));
        assert_eq!(look.why_unread(Pid(7)), None);
        look.take(Err(KernelError::Gone { pid: Pid(7) }));
        assert!(look.why_unread(Pid(7)).is_none() && look.last().chosen.is_empty());
    }

    #[test]
    fn chosen_memory_is_told_with_its_bytes_and_policy_and_again_once_it_has_doubled() {
        let mut look = NumaLook::default();
        assert_eq!(look.news(Pid(7), "db"), None);
        look.memory.chosen_bytes.insert("bind", 3 << 20);
        let told = look.news(Pid(7), "db").unwrap();
        assert!(told.contains("process 7 (db): 3.0 MiB") && told.contains("3.0 MiB by bind"), "{told}");
        look.memory.chosen_bytes.insert("interleave", 2 << 20);
        assert_eq!(look.news(Pid(7), "db"), None);
        look.memory.chosen_bytes.insert("interleave", 3 << 20);
        assert!(look.news(Pid(7), "db").unwrap().contains("3.0 MiB by bind, 3.0 MiB by interleave"));
    }
}
