//! Where a process was seen to use its memory lately, by stretches of 2 MiB, for whoever watches the loop. Bounded, and old uses fade. Pure.

use std::collections::BTreeMap;

use crate::status::HotStretch;

/// Pages of a stretch.
const PAGES: u64 = 512;
/// Stretches that are remembered.
const STRETCHES_MAX: usize = 512;
/// Stretches that are told of.
const TOLD_MAX: usize = 24;
/// Time in which uses lose half of their weight.
const HALF_LIFE_S: f64 = 10.0;
const COLD: f64 = 0.05;
/// The list is made anew so often.
const TELL_EVERY_S: f64 = 1.0;

#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    /// Lowest page that was used.
    first: u64,
    uses: f64,
    local: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Hot {
    stretches: BTreeMap<u64, Stretch>,
    told: Vec<HotStretch>,
    since_told_s: f64,
}

impl Hot {
    /// A page (address over 4,096) was used.
    pub fn saw(&mut self, page: u64, is_local: bool) {
        let is_known = self.stretches.contains_key(&(page / PAGES));
        if !is_known && self.stretches.len() >= STRETCHES_MAX {
            return;
        }
        let stretch = self.stretches.entry(page / PAGES).or_insert(Stretch { first: page, ..Stretch::default() });
        stretch.first = stretch.first.min(page);
        stretch.uses += 1.0;
        stretch.local += f64::from(u8::from(is_local));
    }

    /// Time goes on by `seconds`.
    pub fn fade(&mut self, seconds: f64) {
        self.since_told_s += seconds;
        if self.stretches.is_empty() && self.told.is_empty() {
            return;
        }
        let keep = 0.5_f64.powf(seconds / HALF_LIFE_S);
        self.stretches.retain(|_, stretch| {
            (stretch.uses, stretch.local) = (stretch.uses * keep, stretch.local * keep);
            stretch.uses >= COLD
        });
        if self.since_told_s >= TELL_EVERY_S {
            self.since_told_s = 0.0;
            self.told = self.hottest();
        }
    }

    fn hottest(&self) -> Vec<HotStretch> {
        let of = |stretch: &Stretch| HotStretch {
            address: stretch.first * 4096,
            uses: stretch.uses,
            local_share: stretch.local / stretch.uses,
        };
        let mut all: Vec<HotStretch> = self.stretches.values().map(of).collect();
        all.sort_by(|a, b| b.uses.total_cmp(&a.uses));
        all.truncate(TOLD_MAX);
        all
    }

    /// The hottest, at most a second or so old.
    #[must_use]
    pub fn told(&self) -> &[HotStretch] {
        &self.told
    }

    /// Another program is in its place.
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
        (0..30_u64).for_each(|stretch| (0..=stretch).for_each(|_| hot.saw(stretch * PAGES + 7, stretch % 2 == 0)));
        hot.saw(29 * PAGES + 3, true);
        assert!(hot.told().is_empty(), "not yet");
        hot.fade(TELL_EVERY_S);
        assert_eq!(hot.told().len(), TOLD_MAX);
        let first = &hot.told()[0];
        assert_eq!(first.address, (29 * PAGES + 3) * 4096);
        assert!(first.uses < 31.0 && first.uses > 28.0 && (first.local_share - 1.0 / 31.0).abs() < 1e-9, "{first:?}");
        hot.fade(1000.0);
        assert!(hot.told().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut hot = Hot::default();
        (0..10 * STRETCHES_MAX as u64).for_each(|stretch| hot.saw(stretch * PAGES, true));
        assert_eq!(hot.stretches.len(), STRETCHES_MAX);
        hot.clear();
        assert!(hot.stretches.is_empty());
    }
}
