//! Sampled accesses to a process's memory by page. Old samples decay, so that the presently hot pages stand out.

use std::collections::HashMap;

use numapilot_host::PageNumber;
use numapilot_host::VirtAddr;

/// Maximum number of pages; beyond it the least accessed are dropped.
const PAGES_MAX: usize = 1 << 17;
/// Half-life of samples in seconds.
const HALF_LIFE_S: f64 = 10.0;
/// Pages of less weight are dropped.
const COLD: f64 = 0.05;

/// Weighted accesses to a range of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AccessWeights {
    /// Weight of all accesses.
    pub all: f64,
    /// Weight of the accesses whose page's node is known.
    pub known: f64,
    /// Weight of the local accesses among these.
    pub local: f64,
}

impl AccessWeights {
    fn add(&mut self, more: AccessWeights) {
        self.all += more.all;
        self.known += more.known;
        self.local += more.local;
    }

    /// Local access ratio of the accesses whose page's node is known, 0 to 1; `None`: there are none.
    #[must_use]
    pub fn local_share(&self) -> Option<f64> {
        (self.known > 0.0).then(|| self.local / self.known)
    }
}

/// Weighted accesses by page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heat(HashMap<PageNumber, AccessWeights>);

impl Heat {
    /// Adds an access to an address; `is_local`: whether it came from the page's home node, if known.
    pub fn add(&mut self, address: VirtAddr, weight: f64, is_local: Option<bool>) {
        let share = |counts: bool| if counts { weight } else { 0.0 };
        let more =
            AccessWeights { all: weight, known: share(is_local.is_some()), local: share(is_local == Some(true)) };
        self.0.entry(address.page()).or_default().add(more);
    }

    /// Decays the weights by `seconds`.
    pub fn fade(&mut self, seconds: f64) {
        let keep = 0.5_f64.powf(seconds / HALF_LIFE_S);
        let mut cold = COLD;
        // If many pages were accessed once each, all of them would be dropped at the same moment; so the list stays bounded for any input.
        while self.0.len() > PAGES_MAX {
            self.0.retain(|_, warmth| warmth.all >= cold);
            cold *= 2.0;
        }
        self.0.retain(|_, warmth| {
            *warmth = AccessWeights { all: warmth.all * keep, known: warmth.known * keep, local: warmth.local * keep };
            warmth.all >= COLD
        });
    }

    /// Whether there are no recent accesses.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Weights in each of these ranges (first address, address after the last), which must be ascending and disjoint; and the weight outside all of them.
    #[must_use]
    pub fn by_stretch(&self, stretches: &[(VirtAddr, VirtAddr)]) -> (Vec<AccessWeights>, AccessWeights) {
        let (mut inside, mut outside) = (vec![AccessWeights::default(); stretches.len()], AccessWeights::default());
        for (page, warmth) in &self.0 {
            match numapilot_ranges::find(stretches, |stretch| *stretch, VirtAddr::of_page(*page)) {
                Some(at) => inside[at].add(*warmth),
                None => outside.add(*warmth),
            }
        }
        (inside, outside)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_is_told_by_stretch_and_fades() {
        let mut heat = Heat::default();
        for (address, is_local) in [(0x1000, Some(true)), (0x1fff, Some(false)), (0x2000, None), (0x9000, Some(true))] {
            heat.add(VirtAddr(address), 2.0, is_local);
        }
        let stretches = [(0x1000, 0x3000), (0x8000, 0x9000)].map(|(start, end)| (VirtAddr(start), VirtAddr(end)));
        let (inside, outside) = heat.by_stretch(&stretches);
        assert_eq!(inside[0], AccessWeights { all: 6.0, known: 4.0, local: 2.0 });
        assert_eq!((inside[1].all, inside[1].local_share(), outside.all), (0.0, None, 2.0));
        assert_eq!(inside[0].local_share(), Some(0.5));
        heat.fade(10.0);
        assert_eq!(heat.by_stretch(&stretches[..1]).0[0].all, 3.0);
        heat.fade(200.0);
        assert!(heat.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_hottest_stays() {
        let mut heat = Heat::default();
        PageNumber(0).run(2 * PAGES_MAX as u64).for_each(|page| heat.add(VirtAddr::of_page(page), 1.0, None));
        heat.add(VirtAddr::of_page(PageNumber(7)), 500.0, Some(true));
        heat.fade(0.0);
        assert!(heat.0.len() <= PAGES_MAX && heat.0.contains_key(&PageNumber(7)));
    }
}
