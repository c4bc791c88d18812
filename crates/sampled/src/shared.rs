//! Names of mappings that show no file of a disk: memory that processes share, which must have one name in all of them, and anonymous memory.

use foldhash::HashMap;
use numapilot_host::PageNumber;
use numapilot_perf::{FileIdentity, Mapping};
use numapilot_text::units::short_bytes;
use numapilot_trace::mapping::is_shared_memory;

/// How a recording knows of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sighting {
    /// From the kernel's record of its creation.
    Made,
    /// From /proc, when recording of its process began. With the inode of what it shows; 0 for none.
    Found { inode: u64 },
}

impl Sighting {
    /// Whether the mapping was made while recording. (A recording of perf lists those from before at time 0.)
    pub fn is_new(self, time: u64) -> bool {
        self == Sighting::Made && time > 0
    }

    /// Inode of what the mapping shows, where /proc said it.
    pub fn inode(self) -> u64 {
        if let Sighting::Found { inode } = self { inode } else { 0 }
    }

    /// The name of anonymous memory: what was found is told apart by its address, as nobody saw who made it.
    pub fn anonymous_name(self, mapping: &Mapping<'_>) -> String {
        match self {
            Sighting::Made => String::new(),
            Sighting::Found { .. } => format!("[anonymous {:x}, {}]", mapping.addr, short_bytes(mapping.len)),
        }
    }
}

/// The owner of a mapping's pages, which decides who places them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The page cache: the thread that read the file first placed them.
    File,
    /// The process, from its first touch (or first write) on.
    Process,
    /// All processes that share the memory.
    Shared(Segment),
}

/// A part of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Number of the shared memory in the recording.
    pub number: usize,
    /// Address at which its first page would be; wraps where the mapping begins further on than that.
    pub base: u64,
    /// It was made while recording, so that the first fault on a page is its first touch.
    pub is_new: bool,
}

/// A page, whichever process looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MappedPage {
    /// A page of one process image: the image's index, and the page in its addresses.
    Own(usize, PageNumber),
    /// Of this shared memory: how many pages of 4 KiB are before it there.
    Shared(usize, u64),
}

/// Shared memory, which the kernel tells apart by inode only: it calls all anonymous one alike.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// By the kernel's name: what has it, in the order in which it was seen.
    by_name: HashMap<String, Vec<Known>>,
    count: usize,
}

#[derive(Debug)]
struct Known {
    inode: u64,
    number: usize,
    is_new: bool,
}

impl SharedMemory {
    /// What a mapping of shared memory shows, with a name that is the same in each process: the kernel's, with a number from the second of that name on.
    /// `is_new`: it was made while recording, if it was not known before.
    pub fn segment(&mut self, path: &str, mapping: &Mapping<'_>, inode: u64, is_new: bool) -> (String, Segment) {
        let inode = if let FileIdentity::Inode { inode, .. } = mapping.identity { inode } else { inode };
        let known = self.by_name.entry(path.to_owned()).or_default();
        let at = known.iter().position(|other| other.inode == inode).unwrap_or_else(|| {
            known.push(Known { inode, number: self.count, is_new });
            self.count += 1;
            known.len() - 1
        });
        let base = mapping.addr.wrapping_sub(mapping.file_offset);
        let segment = Segment { number: known[at].number, base, is_new: known[at].is_new };
        (if at == 0 { path.to_owned() } else { format!("{path} {}", at + 1) }, segment)
    }
}

/// Whether the kernel's name of a mapping is that of a file on a disk.
pub(crate) fn is_disk_file(path: &[u8]) -> bool {
    path.starts_with(b"/") && !path.starts_with(b"//") && !is_shared_memory(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_has_one_name_in_all_processes_and_two_have_two() {
        let mut memory = SharedMemory::default();
        let mut seen = |path: &str, inode, addr, file_offset, is_new| {
            let mapping = Mapping { addr, file_offset, ..Mapping::default() };
            let (name, segment) = memory.segment(path, &mapping, inode, is_new);
            (name, segment.number, segment.base, segment.is_new)
        };
        let zero = "/dev/zero (deleted)";
        assert_eq!(seen(zero, 7, 0x5000, 0, false), (zero.to_owned(), 0, 0x5000, false));
        assert_eq!(seen(zero, 9, 0x9000, 0, true), (format!("{zero} 2"), 1, 0x9000, true));
        assert_eq!(seen(zero, 7, 0x9000, 0x2000, true), (zero.to_owned(), 0, 0x7000, false), "it was there before");
        assert_eq!(seen("/dev/shm/a", 9, 0, 0, true), ("/dev/shm/a".to_owned(), 2, 0, true));
        let identity = FileIdentity::Inode { device: (0, 1), inode: 9, generation: 0 };
        let made = Mapping { identity, ..Mapping::default() };
        assert_eq!(memory.segment(zero, &made, 0, true).0, format!("{zero} 2"));
    }

    #[test]
    fn anonymous_memory_that_was_found_is_told_apart_by_its_address() {
        let mapping = Mapping { addr: 0x7f12_3400_0000, len: 64 << 20, ..Mapping::default() };
        assert_eq!(Sighting::Made.anonymous_name(&mapping), "");
        assert_eq!(Sighting::Found { inode: 0 }.anonymous_name(&mapping), "[anonymous 7f1234000000, 64 MiB]");
    }

    #[test]
    fn what_lies_in_memory_is_no_file() {
        for path in [
            "//anon",
            "/SYSV0052e2c1 (deleted)",
            "/memfd:x (deleted)",
            "/dev/zero (deleted)",
            "/dev/shm/a",
            "[heap]",
            "",
        ] {
            assert!(!is_disk_file(path.as_bytes()), "{path}");
        }
        assert!(is_disk_file(b"/usr/lib/libc.so.6") && is_disk_file(b"/dev/dri/card0"));
    }
}
