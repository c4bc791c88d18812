//! Memory that several processes share: a page of it is one page, whichever of them faults on it, so its first touch is one, too.

use std::sync::Arc;

use foldhash::HashMap;
use numapilot_machine::NodeId;
use numapilot_trace::mapping::is_shared_memory;
use numapilot_trace::record::FileIdentity;
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

/// Most bytes of a file that are given memory at once (1 TiB); more means damage.
const ALLOCATED_MAX: u64 = 1 << 40;
/// Names that the tracker gives to segments of System V: the kernel's numbers of them, which it does not use again.
const SYSTEM_V: &str = "/SYSV id ";

/// Shared memory by its file or its name, or without either by the mapping that made it.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    by_path: HashMap<Arc<str>, u32>,
    by_file: HashMap<FileIdentity, u32>,
    all: Vec<Segment>,
    has_unique: bool,
    /// Processes tell of a first touch where the kernel had no page: of a page whose home is known, another life begins (the file was cut, or got a hole).
    touches_are_certain: bool,
}

impl Segments {
    pub fn new(touches_are_certain: bool) -> Segments {
        Segments { touches_are_certain, ..Segments::default() }
    }

    /// The part of a file that a shared mapping shows, memory or on a disk.
    pub fn file_part(&mut self, file: FileIdentity, (address, file_offset): (u64, u64)) -> Option<Part> {
        let segment = self.of_file(file)?;
        Some(Part { segment, base: address.wrapping_sub(file_offset) })
    }

    fn of_file(&mut self, file: FileIdentity) -> Option<u32> {
        if let Some(&known) = self.by_file.get(&file) {
            return Some(known);
        }
        let number = u32::try_from(self.all.len()).ok()?;
        self.all.push(Segment { homes: Homes::default(), is_new: false, is_unique: true });
        self.has_unique = true;
        self.by_file.insert(file, number);
        Some(number)
    }

    /// A thread gave memory to a range of a file, on this node: to the pages that had none.
    pub fn allocated(&mut self, file: FileIdentity, (offset, bytes): (u64, u64), node: NodeId) {
        let first = offset >> layout::PAGE_SHIFT;
        let end = offset.saturating_add(bytes).div_ceil(1 << layout::PAGE_SHIFT);
        let Ok(pages) = u32::try_from(end - first) else { return };
        let Some(segment) = self.of_file(file).filter(|_| bytes <= ALLOCATED_MAX) else { return };
        let part = Part { segment, base: 0 };
        for (at, count) in self.unknown(part, (first << layout::PAGE_SHIFT, pages)) {
            self.all[segment as usize].homes.set(at, u64::from(count), node);
        }
    }

    /// Runs of these pages, as address and number, whose homes no process has told.
    pub fn unknown(&self, part: Part, (address, pages): (u64, u32)) -> Vec<(u64, u32)> {
        let homes = &self.all[part.segment as usize].homes;
        let mut runs = Vec::new();
        let mut done = 0;
        while done < pages {
            let at = address + (u64::from(done) << layout::PAGE_SHIFT);
            let (alike, is_known) = homes.alike(part.offset(at), pages - done);
            done += alike;
            if !is_known {
                push_run(&mut runs, (at, alike));
            }
        }
        runs
    }

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
        let is_once = is_touch && self.is_unique(part) && !self.touches_are_certain;
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
            if is_new {
                push_run(&mut runs, (at, alike));
            }
        }
        runs
    }

    /// Whether there is any of which [`Segments::is_unique`] holds.
    pub fn has_unique(&self) -> bool {
        self.has_unique
    }

    /// Whether no other memory ever has its name, so that whoever touches a page of it after the first finds the page. Files of one name may have been made one
    /// after the other, and memfds have any name: of those, the identity is needed.
    pub fn is_unique(&self, part: Part) -> bool {
        self.all[part.segment as usize].is_unique
    }

    /// Whether it was made while recording, so that the first fault on a page is its first touch.
    pub fn is_new(&self, part: Part) -> bool {
        self.all[part.segment as usize].is_new
    }
}

/// Adds pages to runs of pages, to the last one where they follow it.
fn push_run(runs: &mut Vec<(u64, u32)>, (at, pages): (u64, u32)) {
    match runs.last_mut() {
        Some((start, count)) if *start + (u64::from(*count) << layout::PAGE_SHIFT) == at => *count += pages,
        _ => runs.push((at, pages)),
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

    #[test]
    fn a_file_is_the_same_in_each_mapping_and_another_of_its_name_is_not() {
        let mut segments = Segments::default();
        let file = FileIdentity { device: 1, inode: 7, born: 3 };
        let first = segments.file_part(file, (0x10_0000, 0)).unwrap();
        let other = segments.file_part(file, (0x70_0000, 0x2000)).unwrap();
        let later = segments.file_part(FileIdentity { born: 4, ..file }, (0x10_0000, 0)).unwrap();
        assert!(segments.is_unique(first) && segments.has_unique());
        segments.place(first, (0x10_3000, 1), NodeId(2), layout::PLACED_FIRST_TOUCH);
        assert_eq!([segments.home(other, 0x70_1000), segments.home(later, 0x10_3000)], [Some(NodeId(2)), None]);
        assert_eq!(segments.unknown(other, (0x70_0000, 3)), [(0x70_0000, 1), (0x70_2000, 1)]);
    }

    #[test]
    fn memory_that_a_file_is_given_lies_where_the_giver_runs() {
        let mut segments = Segments::default();
        let file = FileIdentity { device: 1, inode: 7, born: 0 };
        let part = segments.file_part(file, (0x10_0000, 0)).unwrap();
        segments.place(part, (0x10_1000, 1), NodeId(2), layout::PLACED_FIRST_TOUCH);
        segments.allocated(file, (100, 0x2000), NodeId(1));
        let homes = [0, 0x1000, 0x2000, 0x3000].map(|at| segments.home(part, 0x10_0000 + at).map(|node| node.0));
        assert_eq!(homes, [Some(1), Some(2), Some(1), None]);
        segments.allocated(file, (0, u64::MAX), NodeId(1));
        assert_eq!(segments.home(part, 0x10_3000), None, "damage");
    }

    #[test]
    fn a_touch_of_which_the_kernel_was_asked_begins_another_life_of_the_page() {
        for (is_certain, home) in [(false, 1), (true, 2)] {
            let mut segments = Segments::new(is_certain);
            let part = segments.part(SHARED, "/SYSV id 1", (0x10_0000, 0)).unwrap();
            for node in [1, 2] {
                segments.place(part, (0x10_0000, 1), NodeId(node), layout::PLACED_FIRST_TOUCH);
            }
            assert_eq!(segments.home(part, 0x10_0000), Some(NodeId(home)));
        }
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
