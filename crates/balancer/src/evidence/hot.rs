//! The recently used memory of a process, by ranges of 2 MiB, for the status. Bounded; old uses decay. Pure.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_host::VirtAddr;

use crate::status::HotStretch;

/// Maximum number of ranges.
const STRETCHES_MAX: usize = 512;
/// Maximum number of ranges in the status.
const PUBLISHED_MAX: usize = 24;
/// Half-life of uses in seconds.
const HALF_LIFE_S: f64 = 10.0;
const COLD: f64 = 0.05;
/// Interval at which the list for the status is updated, in seconds.
const PUBLISH_EVERY_S: f64 = 1.0;

#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// Lowest page with an observed use.
    first: PageNumber,
    uses: f64,
    local: f64,
}

/// Recently used ranges of a process.
#[derive(Clone, Debug, Default)]
pub struct Hot {
    /// By the number of the large page that each range would be.
    stretches: BTreeMap<u64, Stretch>,
    published: Vec<HotStretch>,
    since_published_s: f64,
}

impl Hot {
    /// Counts a use of a page.
    pub fn saw(&mut self, page: PageNumber, is_local: bool) {
        let is_known = self.stretches.contains_key(&page.large());
        if !is_known && self.stretches.len() >= STRETCHES_MAX {
            return;
        }
        let stretch = self.stretches.entry(page.large()).or_insert(Stretch { first: page, ..Stretch::default() });
        stretch.first = stretch.first.min(page);
        stretch.uses += 1.0;
        stretch.local += f64::from(u8::from(is_local));
    }

    /// Decays the counts by `seconds`.
    pub fn fade(&mut self, seconds: f64) {
        self.since_published_s += seconds;
        if self.stretches.is_empty() && self.published.is_empty() {
            return;
        }
        let keep = 0.5_f64.powf(seconds / HALF_LIFE_S);
        self.stretches.retain(|_, stretch| {
            (stretch.uses, stretch.local) = (stretch.uses * keep, stretch.local * keep);
            stretch.uses >= COLD
        });
        if self.since_published_s >= PUBLISH_EVERY_S {
            self.since_published_s = 0.0;
            self.published = self.hottest();
        }
    }

    fn hottest(&self) -> Vec<HotStretch> {
        let of = |stretch: &Stretch| HotStretch {
            address: VirtAddr::of_page(stretch.first),
            uses: stretch.uses,
            local_share: stretch.local / stretch.uses,
        };
        let mut all: Vec<HotStretch> = self.stretches.values().map(of).collect();
        all.sort_by(|a, b| b.uses.total_cmp(&a.uses));
        all.truncate(PUBLISHED_MAX);
        all
    }

    /// The hottest ranges, about one second old at most.
    #[must_use]
    pub fn published(&self) -> &[HotStretch] {
        &self.published
    }

    /// Forgets everything, after an exec.
    pub fn clear(&mut self) {
        *self = Hot::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hottest_stretches_are_told_and_fade() {
        let mut hot = Hot::default();
        let page = |stretch: u64, offset: u64| PageNumber::first_of_large(stretch) + offset;
        (0..30_u64).for_each(|stretch| (0..=stretch).for_each(|_| hot.saw(page(stretch, 7), stretch % 2 == 0)));
        hot.saw(page(29, 3), true);
        assert!(hot.published().is_empty(), "not yet");
        hot.fade(PUBLISH_EVERY_S);
        assert_eq!(hot.published().len(), PUBLISHED_MAX);
        let first = &hot.published()[0];
        assert_eq!(first.address, VirtAddr(29 * (2 << 20) + 3 * 4096));
        assert!(first.uses < 31.0 && first.uses > 28.0 && (first.local_share - 1.0 / 31.0).abs() < 1e-9, "{first:?}");
        hot.fade(1000.0);
        assert!(hot.published().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut hot = Hot::default();
        (0..10 * STRETCHES_MAX as u64).for_each(|stretch| hot.saw(PageNumber::first_of_large(stretch), true));
        assert_eq!(hot.stretches.len(), STRETCHES_MAX);
        hot.clear();
        assert!(hot.stretches.is_empty());
    }
}
