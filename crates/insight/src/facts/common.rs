//! Memory that several processes use: a mapping that children inherited, or mappings of one file, one in each process. A page of it is one page, whichever
//! process accesses it, so its accesses are counted together.
//!
//! Traces do not say which mappings are shared. What a process writes into private memory after a fork becomes a copy of its own, and so do two files of one
//! name have pages of their own: then the processes' accesses have different homes. So memory is common if its pages have the same home in all processes.

use foldhash::{HashMap, HashMapExt, HashSet};
use numapilot_flows::{AccessRef, Object, Trace};
use numapilot_host::VirtAddr;
use numapilot_machine::Machine;
use numapilot_trace::ids::ObjectId;

use crate::context::Analysis;
use crate::usage::{PackedNode, index_of};

/// Least share of the accesses by further processes that must find the page where the first process had it.
const AGREE: f64 = 0.9;

/// Where the pages of an object are known that several processes use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// The mapping that was made first.
    first: ObjectId,
    /// Its process and address.
    process: u32,
    address: VirtAddr,
    /// Whether there are further mappings of the same memory.
    is_mapped_again: bool,
}

/// Accesses by other processes than the page's first one, to pages with the home that this one saw, and with another.
#[derive(Clone, Copy, Debug, Default)]
struct Votes {
    same: f64,
    other: f64,
}

/// The objects whose memory several processes have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommonMemory(HashMap<ObjectId, Known>);

impl CommonMemory {
    /// Walks all accesses once if there are several processes.
    pub fn of(analysis: &Analysis<'_>, machine: &Machine) -> CommonMemory {
        let trace = analysis.trace();
        if trace.processes().len() < 2 {
            return CommonMemory::default();
        }
        let firsts = trace.first_mappings();
        let first_of = |object: &Object| firsts.get(&object.id).copied().unwrap_or(object.id);
        let mut pages: HashMap<(ObjectId, u64), (u32, PackedNode)> = HashMap::new();
        let mut votes: HashMap<ObjectId, Votes> = HashMap::new();
        for access in analysis.accesses() {
            let object = access.object.and_then(|id| trace.object(id));
            let (Some(object), Some(home)) = (object, index_of(machine, access.home)) else { continue };
            let first = first_of(object);
            let at = trace.object(first).map_or(0, |first| first.address.0);
            let page = VirtAddr(at.wrapping_add(access.address.0.wrapping_sub(object.address.0))).page();
            let (process, home) = (process_of(trace, &access), PackedNode::from(home));
            let (seen_by, seen_on) = *pages.entry((first, page.0)).or_insert((process, home));
            if seen_by != process {
                let votes = votes.entry(first).or_default();
                let side = if seen_on == home { &mut votes.same } else { &mut votes.other };
                *side += f64::from(access.weight);
            }
        }
        votes.retain(|_, votes| votes.same > 0.0 && votes.same >= AGREE * (votes.same + votes.other));
        let again: HashSet<ObjectId> =
            firsts.iter().filter(|(id, first)| id != first).map(|(_, first)| *first).collect();
        let known = |object: &Object| {
            let first = first_of(object);
            let first = votes.contains_key(&first).then(|| trace.object(first))??;
            let (process, address) = (first.process.0, first.address);
            Some((object.id, Known { first: first.id, process, address, is_mapped_again: again.contains(&first.id) }))
        };
        CommonMemory(trace.objects().iter().filter_map(known).collect())
    }

    /// The process and address under which the memory of an access is known: its own, or those of the mapping that was made first.
    pub fn place(&self, trace: &Trace, access: &AccessRef) -> (u32, VirtAddr) {
        let object = access.object.filter(|_| !self.0.is_empty()).and_then(|id| trace.object(id));
        match object.and_then(|object| Some((object, self.0.get(&object.id)?))) {
            Some((object, known)) => {
                let offset = access.address.0.wrapping_sub(object.address.0);
                (known.process, VirtAddr(known.address.0.wrapping_add(offset)))
            }
            None => (process_of(trace, access), access.address),
        }
    }

    /// The first mapping of an object's memory, if it is mapped several times: then whoever mapped it says nothing of who uses it.
    pub fn first_mapping(&self, object: ObjectId) -> Option<ObjectId> {
        self.0.get(&object).filter(|known| known.is_mapped_again).map(|known| known.first)
    }
}

/// The process of the thread that makes an access.
pub(super) fn process_of(trace: &Trace, access: &AccessRef) -> u32 {
    trace.thread(access.thread).map_or(0, |thread| thread.process.0)
}
