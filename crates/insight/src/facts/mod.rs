//! What the flows say of one site's objects, as far as patterns need it: who used them one after the other or at once, who wrote when, whose pages they
//! lie on. One walk over the flow of every instance; definitions in `docs/patterns.md`, "Evidence".

mod dominance;
mod lines;
mod pages;
mod walk;

use foldhash::{HashMap, HashSet};
use numapilot_flows::SiteId;
use numapilot_machine::Machine;

use crate::context::Analysis;
use crate::estimate::{Estimate, Tally};
use crate::usage::Usage;

pub(crate) use pages::{HotPage, PAGE_BYTES, Page, PageUse};

/// Of one site.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteFacts {
    pub site: SiteId,
    pub instances: u64,
    /// Sizes of the instances that were accessed, in all.
    pub bytes: u64,
    /// As many bytes of them at most as were live at one moment.
    pub live_bytes: u64,
    pub samples: u64,
    /// All its accesses.
    pub all: Tally,
    /// Share that was remote, with threads counted on their own seat.
    pub remote: Estimate,
    /// Share from the node of the allocating thread; `None` without one.
    pub by_allocator: Option<Estimate>,
    /// Share before others than the first node used it.
    pub opening: Estimate,
    /// Samples after that.
    pub after_samples: u64,
    /// After it: share from the node that each instance is used by most, as told by its other samples.
    pub by_one_node: Estimate,
    /// After it: share from the node that uses the page most, as told by samples of other cache lines.
    pub by_page_user: Estimate,
    /// After it: by accessing node.
    pub from: Vec<f64>,
    /// After it: how often the node changed from sample to sample, over how often it would if nodes took turns at random. 1: they use it at the same time;
    /// near 0: one after the other.
    pub turns: Estimate,
    /// Stretches of use by one node, over all instances, and their mean length.
    pub stretches: u64,
    pub stretch_ns: f64,
    /// After it: share that writes.
    pub writes: Estimate,
    pub write_samples: u64,
    /// Where the pages are: share by node.
    pub on: Vec<f64>,
    /// Share on pages that lie where the instance's first user ran.
    pub on_first_users: Estimate,
    /// Share to small pages that objects of several nodes share; the same for large pages whose small pages are used by one node each.
    pub on_mixed_small: Estimate,
    pub on_mixed_large: Estimate,
    /// Of the remote ones, share on pages where a thread of the home node had an object before.
    pub recycled: Estimate,
    /// Pages that draw more than their part, heaviest first.
    pub hot: Vec<HotPage>,
    /// Share to cache lines that several nodes use for different words.
    pub on_false_shared: Estimate,
    /// Where it should be if all of it must be on one node: the node that most instances' other samples name.
    pub main_node: Option<u16>,
    /// Share of the instances' accesses (after the opening) whose main node that is.
    pub main_node_share: f64,
    /// Function in which the first node's accesses were made, if it wrote there.
    pub first_function: String,
}

/// What the facts of all sites are taken from.
pub(crate) struct Survey<'a> {
    pub analysis: &'a Analysis<'a>,
    pub machine: &'a Machine,
    /// Node of each thread that stands for it: where most of what it accesses is, if it was moved; `None`: wherever it is.
    pub seats: &'a [Option<u16>],
    pub pages: &'a PageUse,
    /// All memory accesses.
    pub all: &'a Tally,
    /// Groups of which it is asked where their pages would be by first touch, and who touched pages first, as nodes.
    pub by_touch: &'a ByTouch,
}

/// Groups whose pages go to whoever touched them first, whatever the program asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByTouch {
    pub groups: HashSet<u32>,
    /// Node of the thread that touched a page first.
    pub touchers: HashMap<Page, u16>,
}

impl Survey<'_> {
    /// The facts of a group (a site); puts finer cells in the place of the group's.
    pub fn site(&self, group: SiteId, usage: &mut Usage) -> SiteFacts {
        walk::walk(self, group, usage)
    }
}
