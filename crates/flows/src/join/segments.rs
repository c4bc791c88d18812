//! Memory that several processes share: a page of it is one page, whichever of them faults on it, so its first touch is one, too.

use std::sync::Arc;

use foldhash::HashMap;
use numapilot_machine::NodeId;
use numapilot_trace::mapping::is_shared_memory;
use numapilot_trace::wire::layout;

use super::homes::Homes;

/// A mapping's part of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Number of the shared memory.
    pub segment: u32,
    /// Address at which its first page would be; wraps where the mapping begins further on than that.
    pub base: u64,
}

impl Part {
    /// The address relative to the beginning of the shared memory.
    fn offset(self, address: u64) -> u64 {
        address.wrapping_sub(self.base)
    }
}

#[derive(Debug)]
struct Segment {
    homes: Homes,
    /// It was made while recording: no page of it was in memory before.
    is_new: bool,
    /// No other memory ever has its name, so that each of its pages is touched first once.
    is_unique: bool,
}

/// Names that the tracker gives to segments of System V: the kernel's numbers of them, which it does not use again.
const SYSTEM_V: &str = "/SYSV id ";

/// Shared memory by its name, or without one by the mapping that made it.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_path: HashMap<Arc<str>, u32>,
    all: Vec<Segment>,
    has_unique: bool,
}

impl Segments {
    /// The part of shared memory that a mapping shows; `None`: it shows none, or a file of a disk, whose pages are not placed by their first toucher.
    pub fn part(&mut self, flags: u32, path: &str, (address, file_offset): (u64, u64)) -> Option<Part> {
        let is_named = is_shared_memory(path.as_bytes());
        if flags & layout::MAP_SHARED == 0 || !is_named && !path.is_empty() {
            return None;
        }
        let is_new = flags & layout::MAP_INITIAL == 0;
        let segment = match self.by_path.get(path) {
            Some(&known) => known,
            None => {
                let number = u32::try_from(self.all.len()).ok()?;
                let is_unique = !is_named || path.starts_with(SYSTEM_V);
                self.has_unique |= is_unique;
                self.all.push(Segment { homes: Homes::default(), is_new, is_unique });
                if is_named {
                    self.by_path.insert(path.into(), number);
                }
                number
            }
        };
        Some(Part { segment, base: address.wrapping_sub(file_offset) })
    }

    /// Home of the page at an address, if it is known.
    pub fn home(&self, part: Part, address: u64) -> Option<NodeId> {
        self.all[part.segment as usize].homes.get(part.offset(address))
    }

    /// Pages of a part were placed. Returns the runs of them, as address and number, that are told of for the first time: pages that were found in several
    /// processes were found once, and one that a process touched first is found by the others, which know nothing of it: their own first touches place nothing.
    pub fn place(&mut self, part: Part, (address, pages): (u64, u32), node: NodeId, cause: u32) -> Vec<(u64, u32)> {
        let is_found = cause == layout::PLACED_FOUND;
        let is_touch = [layout::PLACED_FIRST_TOUCH, layout::PLACED_POLICY].contains(&cause);
        let is_once = is_touch && self.is_unique(part);
        let homes = &mut self.all[part.segment as usize].homes;
        let mut runs: Vec<(u64, u32)> = Vec::new();
        let mut done = 0;
        while done < pages {
            let at = address + (u64::from(done) << layout::PAGE_SHIFT);
            let (alike, is_known) = homes.alike(part.offset(at), pages - done);
            let is_new = !is_known || !(is_found || is_once);
            done += alike;
            if is_new || is_found {
                homes.set(part.offset(at), u64::from(alike), node);
            }
            if !is_new {
                continue;
            }
            match runs.last_mut() {
                Some((start, count)) if *start + (u64::from(*count) << layout::PAGE_SHIFT) == at => *count += alike,
                _ => runs.push((at, alike)),
            }
        }
        runs
    }

    /// Whether there is any of which [`Segments::is_unique`] holds.
    pub fn has_unique(&self) -> bool {
        self.has_unique
    }

    /// Whether no other memory ever has its name, so that whoever touches a page of it after the first finds the page. Files of one name may have been made one
    /// after the other, and memfds have any name.
    pub fn is_unique(&self, part: Part) -> bool {
        self.all[part.segment as usize].is_unique
    }

    /// Whether it was made while recording, so that the first fault on a page is its first touch.
    pub fn is_new(&self, part: Part) -> bool {
        self.all[part.segment as usize].is_new
    }
}

/// What to call shared memory with this name.
#[must_use]
pub(crate) fn title(path: &str) -> String {
    let (name, rest) = path.split_once(" (deleted)").unwrap_or((path, ""));
    let name = match (name.strip_prefix("/SYSV"), name.strip_prefix("/memfd:"), name.strip_prefix("[anon_shmem:")) {
        (Some(key), ..) => format!("System V segment {}", key.trim_start()),
        (_, Some(name), _) => format!("memfd {name}"),
        (_, _, Some(name)) => format!("shared memory {}", name.trim_end_matches(']')),
        _ if name.starts_with("/dev/zero") => "anonymous shared memory".to_owned(),
        _ => name.to_owned(),
    };
    format!("{name}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARED: u32 = layout::MAP_SHARED;

    #[test]
    fn a_page_is_the_same_in_each_mapping_of_a_name() {
        let mut segments = Segments::default();
        let first = segments.part(SHARED, "/dev/shm/a", (0x10_0000, 0)).unwrap();
        let other = segments.part(SHARED, "/dev/shm/a", (0x70_0000, 0x2000)).unwrap();
        let stranger = segments.part(SHARED, "/dev/shm/b", (0x10_0000, 0)).unwrap();
        segments.place(first, (0x10_3000, 1), NodeId(2), layout::PLACED_FIRST_TOUCH);
        assert_eq!(segments.home(other, 0x70_1000), Some(NodeId(2)));
        assert_eq!(segments.home(other, 0x70_0000), None);
        assert_eq!(segments.home(stranger, 0x10_3000), None);
        // A mapping that begins further on in the segment than its own address is high.
        let far = segments.part(SHARED, "/dev/shm/a", (0x1000, 0x3000)).unwrap();
        assert_eq!(segments.home(far, 0x1000), Some(NodeId(2)));
    }

    #[test]
    fn what_has_no_name_is_its_mappings_own_and_files_are_no_shared_memory() {
        let mut segments = Segments::default();
        let one = segments.part(SHARED, "", (0x10_0000, 0)).unwrap();
        let two = segments.part(SHARED, "", (0x10_0000, 0)).unwrap();
        assert!(one.segment != two.segment && segments.is_new(one));
        let before = segments.part(SHARED | layout::MAP_INITIAL, "/dev/zero (deleted)", (0x10_0000, 0)).unwrap();
        let again = segments.part(SHARED, "/dev/zero (deleted)", (0x10_0000, 0)).unwrap();
        assert!(before == again && !segments.is_new(again), "found before, then mapped once more");
        assert_eq!(segments.part(SHARED, "/var/lib/data", (0, 0)), None);
        assert_eq!(segments.part(0, "/dev/shm/a", (0, 0)), None, "a private mapping has pages of its own");
    }

    #[test]
    fn pages_that_others_touched_or_found_are_placed_once() {
        let mut segments = Segments::default();
        let part = segments.part(SHARED, "/SYSV id 1", (0x10_0000, 0)).unwrap();
        let (touch, found, moved) = (layout::PLACED_FIRST_TOUCH, layout::PLACED_FOUND, layout::PLACED_MOVED);
        assert_eq!(segments.place(part, (0x10_1000, 2), NodeId(1), touch), [(0x10_1000, 2)]);
        assert_eq!(segments.place(part, (0x10_0000, 5), NodeId(2), touch), [(0x10_0000, 1), (0x10_3000, 2)]);
        assert_eq!(
            [0x10_0000, 0x10_1000, 0x10_4000].map(|at| segments.home(part, at)),
            [2, 1, 2].map(|node| Some(NodeId(node)))
        );
        assert_eq!(segments.place(part, (0x10_0000, 6), NodeId(3), found), [(0x10_5000, 1)]);
        assert_eq!(segments.home(part, 0x10_1000), Some(NodeId(3)));
        assert_eq!(segments.place(part, (0x10_0000, 6), NodeId(0), moved), [(0x10_0000, 6)]);
    }

    /// Some bytes of a damaged trace can say so much. Page by page it took minutes, and a number for each page.
    #[test]
    fn a_terabyte_is_placed_in_pieces_that_are_alike() {
        let mut segments = Segments::default();
        let part = segments.part(SHARED, "", (0, 0)).unwrap();
        segments.place(part, (0x20_3000, 2), NodeId(1), layout::PLACED_FIRST_TOUCH);
        let runs = segments.place(part, (0, 1 << 28), NodeId(2), layout::PLACED_FIRST_TOUCH);
        assert_eq!(runs, [(0, 0x203), (0x20_5000, (1 << 28) - 0x205)]);
        assert_eq!(segments.all[part.segment as usize].homes.detailed(), 1);
    }

    #[test]
    fn names_that_are_used_again_are_of_no_one_memory() {
        let mut segments = Segments::default();
        let mut is_unique = |path| {
            let part = segments.part(SHARED, path, (0x10_0000, 0)).unwrap();
            segments.is_unique(part)
        };
        assert_eq!(["/dev/shm/a", "/memfd:a (deleted)", "/dev/zero (deleted)"].map(&mut is_unique), [false; 3]);
        assert_eq!(["", "/SYSV id 7"].map(&mut is_unique), [true; 2]);
        assert!(segments.has_unique() && !Segments::default().has_unique());
    }

    #[test]
    fn titles_say_what_it_is() {
        for (path, expected) in [
            ("/dev/zero (deleted)", "anonymous shared memory"),
            ("/dev/zero (deleted) 2", "anonymous shared memory 2"),
            ("/memfd:heap (deleted) 2 at 0x200000", "memfd heap 2 at 0x200000"),
            ("/SYSV0052e2c1 (deleted)", "System V segment 0052e2c1"),
            ("/SYSV id 3", "System V segment id 3"),
            ("/memfd:ring (deleted)", "memfd ring"),
            ("[anon_shmem:pool]", "shared memory pool"),
            ("/dev/shm/PostgreSQL.1", "/dev/shm/PostgreSQL.1"),
        ] {
            assert_eq!(title(path), expected);
        }
    }
}
