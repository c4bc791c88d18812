//! Converts evidence into a policy's samples. Pure.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;
use numapilot_placement::PageKey;
use numapilot_placement::PageSize;
use numapilot_placement::Sample;

use crate::evidence::table::Known;

/// An observed use of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Process, by the number that policies use.
    pub process: u32,
    /// The page of 4 KiB.
    pub page: PageNumber,
    /// Whether the page is part of a large page.
    pub is_large: bool,
    /// Thread, by the number that policies use; 0 if it has ended since.
    pub thread: u32,
    /// Node on which the thread ran.
    pub from: NodeIndex,
    /// The page's home node at that time.
    pub home: NodeIndex,
    /// Whether the processor sampled it; otherwise it is a fault, or the kernel reported a use of a file page.
    pub is_sampled: bool,
    /// Whether it is a file page that the processes can only read.
    pub is_read_only: bool,
}

impl Use {
    /// The page in the size in which it is mapped.
    #[must_use]
    pub fn key(&self) -> PageKey {
        match self.is_large {
            true => PageKey { process: self.process, page: self.page.large_start(), size: PageSize::Large },
            false => PageKey { process: self.process, page: self.page, size: PageSize::Small },
        }
    }

    fn sample(&self) -> Sample {
        Sample {
            page: self.key(),
            small_page: self.page,
            thread: self.thread,
            from: self.from,
            home: self.home,
            // Faults do not distinguish loads from stores, so the page counts as written unless it cannot be.
            is_write: !self.is_read_only,
            latency_ns: None,
        }
    }
}

/// Returns the interval's uses as samples, in their order. For a policy without memory, each page's other users in `known` follow, because faults are so few
/// that two users of a page rarely fall into one interval.
pub fn samples(uses: &[Use], remembers: bool, known: impl Fn(&Use) -> Option<Known>) -> Vec<Sample> {
    let mut samples: Vec<Sample> = uses.iter().map(Use::sample).collect();
    if remembers {
        return samples;
    }
    let mut fresh: BTreeMap<PageKey, (BTreeSet<NodeIndex>, Use)> = BTreeMap::new();
    for used in uses {
        fresh.entry(used.key()).or_insert_with(|| (BTreeSet::new(), *used)).0.insert(used.from);
    }
    for (nodes, used) in fresh.values() {
        let others = known(used).unwrap_or_default().users.into_iter().filter(|(node, _)| !nodes.contains(node));
        samples.extend(others.map(|(from, _)| Use { from, ..*used }.sample()));
    }
    samples
}

#[cfg(test)]
mod tests {
    //! Pages of one process.

    use super::*;

    fn used(page: u64, from: usize) -> Use {
        let (page, from, home) = (PageNumber(page), NodeIndex(from), NodeIndex(0));
        Use { process: 1, page, is_large: false, thread: 1, from, home, is_sampled: false, is_read_only: false }
    }

    #[test]
    fn a_policy_without_memory_is_shown_the_other_users_of_what_is_used_now() {
        let known = |used: &Use| {
            let users = vec![(NodeIndex(2), 3), (NodeIndex(1), 1)];
            (used.page.0 == 7).then_some(Known { users, home: Some(NodeIndex(0)), bounces: 0 })
        };
        let uses = [used(7, 1), used(8, 3)];
        let seen = samples(&uses, false, known);
        let pairs: Vec<(u64, usize)> = seen.iter().map(|sample| (sample.page.page.0, sample.from.0)).collect();
        assert_eq!(pairs, [(7, 1), (8, 3), (7, 2)]);
        assert_eq!(samples(&uses, true, known).len(), 2);
        assert!(seen.iter().all(|sample| sample.is_write), "unknown is not read-only");
    }

    #[test]
    fn parts_of_a_large_page_are_one_page() {
        let used = Use { is_large: true, ..used(1025, 0) };
        assert_eq!(used.key(), PageKey { process: 1, page: PageNumber(1024), size: PageSize::Large });
        assert_eq!(samples(&[used], true, |_| None)[0].small_page, PageNumber(1025));
    }
}
