//! Memory that the objects of a site take: at the peak, and in total.
//!
//! Pure functions of births and deaths. Moments are order stamps where the tables have them, because program times of different threads do not order their
//! events. An object is live at a moment if it was born at or before it, and dies after it.

use numapilot_trace::ids::{ObjectId, ProcessIndex};
use serde::Serialize;

use crate::model::{ObjectKind, Site, SiteId};
use crate::shared_memory::{Mapping, mapped_once_at_a_time};

/// Sizes of all objects of a site, also of those that no sampled access reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteSize {
    /// Number of objects that were ever allocated.
    pub allocated_instances: u64,
    /// Sum of their sizes in bytes: grows with every allocation, whatever is freed.
    pub total_allocated_bytes: u64,
    /// Greatest sum of the sizes in bytes of objects that were live at one moment; shared memory that has a name is counted once, however many map it.
    pub peak_live_bytes: u64,
    /// Objects live at that moment (the first such).
    pub peak_live_instances: u64,
}

/// The moment at which the heap blocks of all recorded processes together took most memory (the first such), and what each site had then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapPeak {
    /// The block whose birth made it; `None` where no block was recorded.
    pub object: Option<ObjectId>,
    /// Heap blocks that were live then.
    pub blocks: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Bytes of each site's live blocks, by site id.
    pub by_site: Vec<u64>,
    /// A bit for each object, by id: whether it is a block that was live then.
    live: Vec<u64>,
}

impl HeapPeak {
    /// Whether this object is a block that was live at the peak.
    #[must_use]
    pub fn holds(&self, object: ObjectId) -> bool {
        self.live.get(object.0 as usize / 64).is_some_and(|bits| bits >> (object.0 % 64) & 1 == 1)
    }
}

/// Lifetime and size of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// Number of its site.
    pub site: u32,
    /// Whether it is a heap block.
    pub is_block: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// Moment of its birth.
    pub birth: u64,
    /// Moment of its death; `None` if it lived to the end.
    pub death: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Live {
    bytes: u64,
    instances: u64,
}

impl Life {
    /// Its death; one that is not after its own birth (threads' program times differ) counts as right after it.
    fn end(&self) -> Option<u64> {
        self.death.map(|death| death.max(self.birth.saturating_add(1)))
    }
}

/// The peak of all heap blocks. `lives[n]` is object n's; those of no site below `sites` do not count.
fn heap_peak(lives: &[Life], sites: usize) -> HeapPeak {
    let counts = |life: &Life| life.is_block && (life.site as usize) < sites;
    let blocks = || (0..lives.len() as u32).filter(|&at| counts(&lives[at as usize]));
    let mut births: Vec<u32> = blocks().collect();
    births.sort_by_key(|&at| lives[at as usize].birth);
    let mut deaths: Vec<(u64, u64)> =
        blocks().filter_map(|at| Some((lives[at as usize].end()?, lives[at as usize].bytes))).collect();
    deaths.sort_unstable();
    let mut peak = HeapPeak { by_site: vec![0; sites], ..HeapPeak::default() };
    let mut live = Live::default();
    let mut next_death = deaths.into_iter().peekable();
    for at in births {
        let life = &lives[at as usize];
        while let Some((_, bytes)) = next_death.next_if(|&(death, _)| death <= life.birth) {
            live.bytes = live.bytes.saturating_sub(bytes);
            live.instances = live.instances.saturating_sub(1);
        }
        live.bytes = live.bytes.saturating_add(life.bytes);
        live.instances += 1;
        if live.bytes > peak.bytes || peak.object.is_none() {
            (peak.object, peak.blocks, peak.bytes) = (Some(ObjectId(at)), live.instances, live.bytes);
        }
    }
    // A second walk in place of a copy of every site's sum at each new peak. Of blocks born at the same moment, those after the one that made it are not in it.
    let Some(last) = peak.object.map(|object| (lives[object.0 as usize].birth, object.0)) else { return peak };
    peak.live = vec![0; lives.len().div_ceil(64)];
    for at in blocks().filter(|&at| (lives[at as usize].birth, at) <= last) {
        let life = &lives[at as usize];
        if life.end().is_none_or(|end| end > last.0) {
            let bytes = &mut peak.by_site[life.site as usize];
            *bytes = bytes.saturating_add(life.bytes);
            peak.live[at as usize / 64] |= 1 << (at % 64);
        }
    }
    peak
}

/// The sizes of sites 0 to `sites` - 1; objects of other sites do not count.
fn site_sizes(lives: &[Life], sites: usize) -> Vec<SiteSize> {
    let mut births: Vec<u32> =
        (0..lives.len() as u32).filter(|&at| (lives[at as usize].site as usize) < sites).collect();
    births.sort_by_key(|&at| lives[at as usize].birth);
    let mut deaths: Vec<u32> = births.iter().copied().filter(|&at| lives[at as usize].death.is_some()).collect();
    deaths.sort_by_key(|&at| lives[at as usize].end());
    let mut sizes = vec![SiteSize::default(); sites];
    let mut live = vec![Live::default(); sites];
    let mut next_death = deaths.into_iter().map(|at| &lives[at as usize]).peekable();
    for life in births.into_iter().map(|at| &lives[at as usize]) {
        while let Some(dead) = next_death.next_if(|dead| dead.end().is_some_and(|end| end <= life.birth)) {
            let live = &mut live[dead.site as usize];
            live.bytes = live.bytes.saturating_sub(dead.bytes);
            live.instances = live.instances.saturating_sub(1);
        }
        let (size, live) = (&mut sizes[life.site as usize], &mut live[life.site as usize]);
        size.allocated_instances += 1;
        size.total_allocated_bytes = size.total_allocated_bytes.saturating_add(life.bytes);
        live.bytes = live.bytes.saturating_add(life.bytes);
        live.instances += 1;
        if live.bytes > size.peak_live_bytes || size.allocated_instances == 1 {
            size.peak_live_bytes = live.bytes;
            size.peak_live_instances = live.instances;
        }
    }
    sizes
}

/// The sizes of all sites, and the heap's peak. `process_of`: the process of each of the lives.
pub(crate) fn sizes(lives: &[Life], process_of: &[u32], sites: &[Site]) -> (Vec<SiteSize>, HeapPeak) {
    let mut of_sites = site_sizes(lives, sites.len());
    count_shared_once(&mut of_sites, lives, process_of, sites);
    (of_sites, heap_peak(lives, sites.len()))
}

/// Whether the name of a site is that of shared memory, so that its mappings in several processes show the same bytes. Anonymous shared memory has no name, and
/// memfds of one name may be several.
fn is_named_memory(site: &Site) -> bool {
    site.kind == ObjectKind::Shared
        && ["/dev/shm/", "System V segment "].iter().any(|start| site.name.starts_with(start))
}

/// Counts shared memory once where several processes map it, each of them once at a time: at its peak it has the bytes of its longest mapping. Where a process
/// has two at once, they may be two segments that had the name one after the other, and the sum stands.
fn count_shared_once(sizes: &mut [SiteSize], lives: &[Life], process_of: &[u32], sites: &[Site]) {
    let is_named = |life: &Life| sites.get(life.site as usize).is_some_and(is_named_memory);
    let mut mappings: Vec<(&Life, u32)> =
        lives.iter().zip(process_of.iter().copied()).filter(|(life, _)| is_named(life)).collect();
    mappings.sort_by_key(|(life, _)| (life.site, life.birth));
    let once = mapped_once_at_a_time(mappings.iter().map(|&(life, process)| Mapping {
        site: SiteId(life.site),
        process: ProcessIndex(process),
        birth: life.birth,
        end: life.end(),
    }));
    for of_site in mappings.chunk_by(|(life, _), (next, _)| life.site == next.site) {
        let of_site = || of_site.iter().map(|(life, _)| *life);
        let Some(largest) = of_site().min_by_key(|life| (u64::MAX - life.bytes, life.birth)) else { continue };
        let (Some(size), true) = (sizes.get_mut(largest.site as usize), once.contains(&SiteId(largest.site))) else {
            continue;
        };
        let is_live = |life: &&Life| life.birth <= largest.birth && life.end().is_none_or(|end| end > largest.birth);
        size.peak_live_bytes = largest.bytes;
        size.peak_live_instances = of_site().filter(is_live).count() as u64;
    }
}

/// The recorded span of a process, in order stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// Start of its first thread; 0 where none was seen.
    pub first: u64,
    /// The last birth or death of an object or a thread.
    pub last: u64,
    /// Whether its end was recorded.
    pub ended: bool,
}

/// Limits lifetimes to those of their processes: symbols of a binary have no birth of their own, and a process's memory is gone when it has ended.
pub(crate) fn keep_within_processes(lives: &mut [Life], process_of: &[u32], spans: &[Span]) {
    for (life, &process) in lives.iter_mut().zip(process_of) {
        let Some(span) = spans.get(process as usize) else { continue };
        if life.birth == 0 {
            life.birth = span.first;
        }
        if life.death.is_none() && span.ended {
            life.death = Some(span.last.saturating_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn life(site: u32, bytes: u64, birth: u64, death: Option<u64>) -> Life {
        Life { site, is_block: site != 2, bytes, birth, death }
    }

    #[test]
    fn a_list_of_many_elements_is_their_sum_and_churn_is_not() {
        let list: Vec<Life> = (0..60_000).map(|at| life(0, 24, at, None)).collect();
        assert_eq!(site_sizes(&list, 1)[0].peak_live_bytes, 60_000 * 24);
        assert_eq!(site_sizes(&list, 1)[0].peak_live_instances, 60_000);
        // Each freed before the next is made: one is live at a time.
        let churn: Vec<Life> = (0..1000).map(|at| life(0, 1 << 20, at, Some(at + 1))).collect();
        let size = site_sizes(&churn, 1)[0];
        assert_eq!((size.peak_live_bytes, size.peak_live_instances), (1 << 20, 1));
        assert_eq!((size.total_allocated_bytes, size.allocated_instances), (1000 << 20, 1000));
    }

    #[test]
    fn the_peak_of_the_heap_is_of_one_moment_and_says_whose_it_was() {
        // Site 0 has 100 bytes until 10, site 1 then 80 and soon 80 more: the peaks of the sites are of different moments. Site 2 is no block.
        let lives = [
            life(0, 100, 1, Some(10)),
            life(2, 999, 2, None),
            life(1, 80, 10, None),
            life(1, 80, 20, None),
            life(0, 5, 30, Some(31)),
        ];
        let peak = heap_peak(&lives, 3);
        assert_eq!((peak.bytes, peak.blocks, peak.object), (165, 3, Some(ObjectId(4))));
        assert_eq!(peak.by_site, [5, 160, 0]);
        assert_eq!((0..5).filter(|&at| peak.holds(ObjectId(at))).collect::<Vec<_>>(), [2, 3, 4]);
        assert!(!peak.holds(ObjectId(64)));
        assert_eq!(heap_peak(&[], 1), HeapPeak { by_site: vec![0], ..HeapPeak::default() });
    }

    #[test]
    fn processes_one_after_the_other_share_no_moment() {
        // A symbol (born at 0) and a block that is never freed, in each of two processes; the second one lives on.
        let mut lives = vec![life(0, 100, 0, None), life(1, 7, 5, None), life(0, 100, 0, None), life(1, 7, 50, None)];
        let spans = [Span { first: 1, last: 40, ended: true }, Span { first: 45, last: 60, ended: false }];
        keep_within_processes(&mut lives, &[0, 0, 1, 1], &spans);
        let sizes = site_sizes(&lives, 2);
        assert_eq!((sizes[0].peak_live_bytes, sizes[0].total_allocated_bytes), (100, 200));
        assert_eq!((sizes[1].peak_live_bytes, sizes[1].total_allocated_bytes), (7, 14));
        assert_eq!(lives[3].death, None);
    }

    #[test]
    fn shared_memory_that_several_processes_map_is_counted_once() {
        let site = |name: &str| Site { kind: ObjectKind::Shared, name: name.into(), ..Site::default() };
        let names = ["/dev/shm/index", "memfd index", "/dev/shm/again"];
        let sites = names.map(site);
        // Three processes map the first two; one has the third twice at once.
        let mut lives: Vec<Life> = (0..3).map(|at| life(0, 16, at, Some(10 + at))).collect();
        lives.extend((0..3).map(|at| life(1, 16, at, None)));
        lives.extend([life(2, 16, 1, None), life(2, 8, 2, None)]);
        let mut sizes = site_sizes(&lives, 3);
        count_shared_once(&mut sizes, &lives, &[0, 1, 2, 0, 1, 2, 0, 0], &sites);
        assert_eq!(sizes.iter().map(|size| size.peak_live_bytes).collect::<Vec<_>>(), [16, 48, 24]);
        assert_eq!((sizes[0].peak_live_instances, sizes[0].allocated_instances), (1, 3));
        assert_eq!(sizes[0].total_allocated_bytes, 48);
        // A longer mapping is the peak, with those that are live when it is made; one after the other is not at once.
        let lives = [life(0, 8, 1, Some(5)), life(0, 32, 5, None), life(0, 8, 3, None)];
        let mut sizes = site_sizes(&lives, 1);
        count_shared_once(&mut sizes, &lives, &[0, 0, 1], &sites);
        assert_eq!((sizes[0].peak_live_bytes, sizes[0].peak_live_instances), (32, 2));
    }

    /// Every moment at which something is born, every object: is it live then?
    fn brute_force(lives: &[Life], site: u32) -> SiteSize {
        let own = || lives.iter().filter(|life| life.site == site);
        let mut moments: Vec<u64> = own().map(|life| life.birth).collect();
        moments.sort_unstable();
        let at = |moment: u64| {
            let live = own().filter(|life| {
                life.birth <= moment && life.death.is_none_or(|death| death.max(life.birth + 1) > moment)
            });
            live.fold((0, 0), |(bytes, count), life| (bytes + life.bytes, count + 1))
        };
        SiteSize {
            allocated_instances: own().count() as u64,
            total_allocated_bytes: own().map(|life| life.bytes).sum(),
            peak_live_bytes: moments.iter().map(|&moment| at(moment).0).max().unwrap_or(0),
            peak_live_instances: 0,
        }
    }

    proptest! {
        #[test]
        fn peaks_are_those_of_looking_at_every_moment(
            lives in prop::collection::vec((0..3u32, 0..50u64, 0..40u64, prop::option::of(0..60u64)), 0..60)
        ) {
            let lives: Vec<Life> = lives.into_iter().map(|(site, bytes, birth, death)| life(site, bytes, birth, death)).collect();
            let sizes = site_sizes(&lives, 3);
            for site in 0..3 {
                let found = sizes[site as usize];
                let expected = brute_force(&lives, site);
                prop_assert_eq!(SiteSize { peak_live_instances: 0, ..found }, expected);
                prop_assert!(found.peak_live_instances <= found.allocated_instances);
            }
            // The heap's peak is of sites 0 and 1, the blocks here, together.
            let together: Vec<Life> = lives.iter().filter(|life| life.is_block).map(|&life| Life { site: 0, ..life }).collect();
            let peak = heap_peak(&lives, 3);
            prop_assert_eq!(peak.bytes, brute_force(&together, 0).peak_live_bytes);
            prop_assert_eq!(peak.by_site.iter().sum::<u64>(), peak.bytes);
            prop_assert_eq!(peak.by_site[2], 0);
            prop_assert_eq!(peak.object.is_some(), !together.is_empty());
        }
    }
}
