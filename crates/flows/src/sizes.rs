//! Memory that the objects of a site take: at the peak, and in total.
//!
//! Pure functions of births and deaths. Moments are order stamps where the tables have them, because program times of different threads do not order their
//! events. An object is live at a moment if it was born at or before it, and dies after it.

use serde::Serialize;

/// Sizes of all objects of a site, also of those that no sampled access reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SiteSize {
    /// Number of objects that were ever allocated.
    pub allocated_instances: u64,
    /// Sum of their sizes in bytes: grows with every allocation, whatever is freed.
    pub total_allocated_bytes: u64,
    /// Greatest sum of the sizes in bytes of objects that were live at one moment.
    pub peak_live_bytes: u64,
    /// Objects live at that moment (the first such).
    pub peak_live_instances: u64,
}

/// Lifetime and size of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Life {
    /// Number of its site.
    pub site: u32,
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

/// The sizes of sites 0 to `sites` - 1. A death that is not after its own birth (threads' program times differ) counts as right after it.
pub(crate) fn site_sizes(lives: &[Life], sites: usize) -> Vec<SiteSize> {
    let death = |life: &Life| life.death.map(|death| death.max(life.birth.saturating_add(1)));
    let mut births: Vec<u32> = (0..lives.len() as u32).collect();
    births.sort_by_key(|&at| lives[at as usize].birth);
    let mut deaths: Vec<u32> = (0..lives.len() as u32).filter(|&at| lives[at as usize].death.is_some()).collect();
    deaths.sort_by_key(|&at| death(&lives[at as usize]));
    let mut sizes = vec![SiteSize::default(); sites];
    let mut live = vec![Live::default(); sites];
    let mut next_death = deaths.into_iter().map(|at| &lives[at as usize]).peekable();
    for life in births.into_iter().map(|at| &lives[at as usize]) {
        while let Some(dead) = next_death.next_if(|dead| death(dead).is_some_and(|death| death <= life.birth)) {
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
        Life { site, bytes, birth, death }
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
        }
    }
}
