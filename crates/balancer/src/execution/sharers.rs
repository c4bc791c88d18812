//! Who maps a page that several processes map. The kernel moves such a page only on request (`MPOL_MF_MOVE_ALL`), and for all of them: here is found out
//! whether all of them are managed. Where that cannot be found out, they are taken not to be.
//!
//! A page counts as mapped by a managed process only where that process maps it at the same address, as processes do that were forked from one. Whoever maps it
//! elsewhere, or twice, is counted by the kernel and not here, so that the page stays.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::frames::Frames;
use numapilot_kernel::pagemap::PageMap;

/// Page table entries read for one decision, at most: pages times processes. The pages that are left stay where they are.
const LOOKUPS_MAX: usize = 1 << 16;

/// Who maps a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// These managed processes, and nobody else.
    Managed(Vec<Pid>),
    /// Others, too.
    Foreign,
    /// That cannot be told: the kernel does not let this user see it, it is no small page, or there were too many to look at.
    Unknown,
}

/// Where pages are, and how often they are mapped; tests replace it.
pub trait MappedMemory {
    /// The frame that a process maps at a page; `None`: none, or it may not be seen.
    fn frame(&mut self, pid: Pid, page: PageNumber) -> Option<u64>;
    /// How often a frame is mapped; `None`: it is no small page of its own, or it may not be seen.
    fn mapped(&mut self, frame: u64) -> Option<u64>;
}

/// The running kernel.
#[derive(Debug)]
pub struct KernelMemory {
    frames: Option<Frames>,
    maps: BTreeMap<Pid, Option<PageMap>>,
}

impl KernelMemory {
    /// Opens what is there to be opened. Where base pages are larger than 4 KiB, nothing is.
    #[must_use]
    pub fn open() -> KernelMemory {
        let is_known = page_bytes() == PageNumber::BYTES;
        let frames = if is_known { Frames::open(&Root::default()).ok() } else { None };
        KernelMemory { frames, maps: BTreeMap::new() }
    }
}

impl MappedMemory for KernelMemory {
    fn frame(&mut self, pid: Pid, page: PageNumber) -> Option<u64> {
        self.frames.as_ref()?;
        let map = self.maps.entry(pid).or_insert_with(|| PageMap::open(pid).ok()).as_mut()?;
        let mut entries = Vec::new();
        map.read(page.0, 1, &mut entries).ok()?;
        entries.first().and_then(|entry| entry.frame())
    }

    fn mapped(&mut self, frame: u64) -> Option<u64> {
        self.frames.as_ref()?.mapped(frame)
    }
}

/// Looks for those who map pages, as far as it is worth it.
pub struct Sharers<'m> {
    memory: &'m mut dyn MappedMemory,
    managed: Vec<Pid>,
    lookups_left: usize,
}

impl Sharers<'_> {
    /// `managed`: all managed processes.
    pub fn new(memory: &mut dyn MappedMemory, managed: Vec<Pid>) -> Sharers<'_> {
        Sharers { memory, managed, lookups_left: LOOKUPS_MAX }
    }

    /// Who maps a page of a managed process. Another process may begin to at any moment: it would have its memory moved once, which changes nothing but speed.
    pub fn of(&mut self, pid: Pid, page: PageNumber) -> Sharing {
        let lookups = self.managed.len() + 2;
        if self.lookups_left < lookups {
            return Sharing::Unknown;
        }
        self.lookups_left -= lookups;
        let Some(frame) = self.memory.frame(pid, page) else { return Sharing::Unknown };
        let memory = &mut *self.memory;
        let mappers: Vec<Pid> =
            self.managed.iter().copied().filter(|other| memory.frame(*other, page) == Some(frame)).collect();
        let Some(mapped) = memory.mapped(frame) else { return Sharing::Unknown };
        // If it was freed and used for something else meanwhile, the count was of that.
        if memory.frame(pid, page) != Some(frame) {
            return Sharing::Unknown;
        }
        if mappers.len() as u64 == mapped { Sharing::Managed(mappers) } else { Sharing::Foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames by process and page, and how often each is mapped.
    #[derive(Default)]
    struct Told {
        frames: BTreeMap<(u32, u64), u64>,
        counts: BTreeMap<u64, u64>,
        /// A frame that is another one when it is read again.
        fleeting: Option<u64>,
        reads: usize,
    }

    impl MappedMemory for Told {
        fn frame(&mut self, pid: Pid, page: PageNumber) -> Option<u64> {
            self.reads += 1;
            let frame = self.frames.get(&(pid.0, page.0)).copied()?;
            Some(if self.fleeting == Some(frame) { frame + self.reads as u64 } else { frame })
        }

        fn mapped(&mut self, frame: u64) -> Option<u64> {
            self.counts.get(&frame).copied()
        }
    }

    /// Processes 1 to 3 map frame 70 at page 7; process 1 has frame 80 at page 8 of its own, and process 2 frame 81.
    fn forked() -> Told {
        let frames = [((1, 7), 70), ((2, 7), 70), ((3, 7), 70), ((1, 8), 80), ((2, 8), 81)].into();
        Told { frames, counts: [(70, 3), (80, 1), (81, 1)].into(), ..Told::default() }
    }

    fn of(mut told: Told, managed: &[u32], page: u64) -> Sharing {
        Sharers::new(&mut told, managed.iter().copied().map(Pid).collect()).of(Pid(1), PageNumber(page))
    }

    #[test]
    fn a_page_is_managed_where_all_who_map_it_are() {
        assert_eq!(of(forked(), &[1, 2, 3, 4], 7), Sharing::Managed(vec![Pid(1), Pid(2), Pid(3)]));
        assert_eq!(of(forked(), &[1, 2], 7), Sharing::Foreign, "process 3 maps it, too");
        assert_eq!(of(forked(), &[1, 2, 3], 8), Sharing::Managed(vec![Pid(1)]), "a copy of its own");
        let elsewhere = Told { counts: [(70, 4)].into(), ..forked() };
        assert_eq!(of(elsewhere, &[1, 2, 3], 7), Sharing::Foreign, "somebody maps it at another address");
    }

    #[test]
    fn what_cannot_be_seen_is_not_known() {
        assert_eq!(of(forked(), &[1, 2, 3], 9), Sharing::Unknown, "nothing is mapped there");
        let huge = Told { counts: BTreeMap::new(), ..forked() };
        assert_eq!(of(huge, &[1, 2, 3], 7), Sharing::Unknown);
        let fleeting = Told { fleeting: Some(80), counts: (80..90).map(|frame| (frame, 0)).collect(), ..forked() };
        assert_eq!(of(fleeting, &[1], 8), Sharing::Unknown, "it was freed meanwhile");
    }

    #[test]
    fn the_time_that_it_takes_is_bounded() {
        let mut told = forked();
        let mut sharers = Sharers::new(&mut told, (1..=1000).map(Pid).collect());
        let known = (0..100).filter(|_| sharers.of(Pid(1), PageNumber(7)) != Sharing::Unknown).count();
        assert_eq!(known, LOOKUPS_MAX / 1002);
        assert!(told.reads <= LOOKUPS_MAX);
    }
}
