//! The facts of a site, and what they are collected from.

use foldhash::{HashMap, HashSet};
use numapilot_flows::{Object, SiteId};
use numapilot_machine::{Machine, NodeIndex};

use super::pages::{HotPage, PageUse, ProcessPage};
use crate::context::Analysis;
use crate::estimate::{Estimate, Tally};

/// The facts of one site.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteFacts {
    pub site: SiteId,
    pub instances: u64,
    /// Sum of the sizes of the instances that were accessed, in bytes.
    pub bytes: u64,
    /// Largest number of these bytes that were live at one moment.
    pub live_bytes: u64,
    pub samples: u64,
    /// Sums over all its accesses.
    pub all: Tally,
    /// Share of remote accesses, where a moved thread counts on the node of its memory.
    pub remote: Estimate,
    /// Share from the node of the allocating thread; `None` where none is known for more than half of the accesses.
    pub by_allocator: Option<Estimate>,
    /// The opening: share of accesses before other nodes than the first one used it.
    pub opening: Estimate,
    /// Number of samples after the opening.
    pub after_samples: u64,
    /// After the opening: share from the node that uses each instance most, by the instance's other samples.
    pub by_one_node: Estimate,
    /// After the opening: share from the node that uses the page most, by samples of other cache lines.
    pub by_page_user: Estimate,
    /// After the opening: accesses by accessing node.
    pub from: Vec<f64>,
    /// After the opening: changes of node from sample to sample, over those that accesses in random order would have. 1: they use it at the same time;
    /// near 0: one after the other.
    pub turns: Estimate,
    /// Stretches of use by one node, over all instances, and their mean length.
    pub stretches: u64,
    pub stretch_ns: f64,
    /// After the opening: share of accesses that write.
    pub writes: Estimate,
    pub write_samples: u64,
    /// Sums over its accesses with known home, by home node.
    pub on: Vec<Tally>,
    /// Share of accesses to pages on the node of the instance's first user.
    pub on_first_users: Estimate,
    /// Share to small pages that objects of several nodes share; the same for large pages whose small pages are used by one node each.
    pub on_mixed_small: Estimate,
    pub on_mixed_large: Estimate,
    /// Share of the remote accesses that are to pages where a thread of the home node had an object before.
    pub recycled: Estimate,
    /// Hot pages, those with most accesses first.
    pub hot: Vec<HotPage>,
    /// Share to cache lines that several nodes use for different words.
    pub on_false_shared: Estimate,
    /// The best single node for all instances: the node that uses most of them, by their other samples.
    pub main_node: Option<NodeIndex>,
    /// Share of the instances' accesses (after the opening) whose main node that is.
    pub main_node_share: f64,
    /// Function in which the first node's accesses were made, if it wrote there.
    pub first_function: String,
}

/// The input from which the facts of all sites are collected.
pub(crate) struct Survey<'a> {
    pub analysis: &'a Analysis<'a>,
    pub machine: &'a Machine,
    /// By thread: the node of its memory, if the scheduler moved it; `None`: it counts on the node on which it runs.
    pub seats: &'a [Option<NodeIndex>],
    pub pages: &'a PageUse,
    /// Of these the hot ones ([`PageUse::hot`]).
    pub hot: &'a HashSet<ProcessPage>,
    /// Objects of the wanted groups, by group and in the trace's order.
    pub objects: &'a HashMap<u32, Vec<&'a Object>>,
    /// Sums over all memory accesses.
    pub all: &'a Tally,
    /// Groups whose pages are to be placed by first touch, and the first-touch nodes.
    pub by_touch: &'a ByTouch,
}

impl Survey<'_> {
    /// The objects of a group (a site).
    pub fn objects_of(&self, group: SiteId) -> &[&Object] {
        self.objects.get(&group.0).map_or(&[][..], Vec::as_slice)
    }
}

/// Groups whose pages go to the node of their first toucher, whatever memory policy the program set.
#[derive(Clone, Debug, Default)]
pub(crate) struct ByTouch {
    pub groups: HashSet<u32>,
    /// Node of the thread that touched a page first.
    pub touchers: HashMap<ProcessPage, NodeIndex>,
}
