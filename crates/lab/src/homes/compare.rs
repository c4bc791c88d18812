//! Compares the recorded home nodes of pages with the kernel's: pure, from a trace and the launcher's lines.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;
use std::sync::Arc;

use numapilot_flows::ObjectKind;
use numapilot_flows::Trace;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::tables::PlacementColumns;

use super::kernel::CPUS_PER_NODE;
use super::kernel::Fault;
use super::kernel::GUEST_PAGE;
use super::kernel::Kernel;
use super::kernel::Page;
use super::kernel::Seen;

/// Pages of one object (or of all) by what both sides say of their last home.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHomes {
    /// On the same node.
    pub same: usize,
    /// Pages that are on different nodes for a known reason ([`Reason`]).
    pub explained: usize,
    /// Pages that are on different nodes, without a known reason.
    pub other: usize,
    /// At home on the simulated machine; no memory of their own in the kernel (untouched, or only read: the page of
    /// zeros).
    pub simulated_only: usize,
    /// With memory in the kernel; the simulated machine has no access to them.
    pub kernel_only: usize,
}

impl ObjectHomes {
    /// Pages that have a home on the simulated machine.
    #[must_use]
    pub fn simulated(&self) -> usize {
        self.same + self.explained + self.other + self.simulated_only
    }

    /// Share of those that the kernel has on the same node; 1 where there are none.
    #[must_use]
    pub fn share_same(&self) -> f64 {
        if self.simulated() == 0 { 1.0 } else { self.same as f64 / self.simulated() as f64 }
    }

    /// Share of those that the kernel has on the same node, or on another node for a known reason.
    #[must_use]
    pub fn share_explained(&self) -> f64 {
        let known = self.same + self.explained;
        if self.simulated() == 0 { 1.0 } else { known as f64 / self.simulated() as f64 }
    }

    fn count(&mut self, simulated: Option<u16>, kernel: Option<u16>, reason: Option<Reason>) {
        match (simulated, kernel) {
            (Some(a), Some(b)) if a == b => self.same += 1,
            (Some(_), Some(_)) if reason.is_some() => self.explained += 1,
            (Some(_), Some(_)) => self.other += 1,
            (Some(_), None) => self.simulated_only += 1,
            (None, Some(_)) => self.kernel_only += 1,
            (None, None) => {}
        }
    }

    fn add(&mut self, other: &Self) {
        self.same += other.same;
        self.explained += other.explained;
        self.other += other.other;
        self.simulated_only += other.simulated_only;
        self.kernel_only += other.kernel_only;
    }
}

/// Why a page is on another node in the kernel, as far as the kernel's events for that page show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The page is in the page cache (`/proc/PID/pagemap`), on the node where the file was first read.
    PageCache,
    /// Both have the same thread as the first toucher, by its page fault, and it was not on its node yet: the mirror
    /// puts it there when the recorder has begun it.
    ThreadStart,
    /// Two threads' first accesses to it fell together: the kernel's event of the fault by which the other one got it,
    /// written when the page is there, came after the tracker's call for it by the thread whose it is in the simulation,
    /// or in the turn of another CPU before that call.
    SameTime,
    /// The recording marks the first toucher as unknown: the page has no home node in it.
    Unknown,
}

impl Reason {
    /// Name of the reason, for tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::PageCache => "page cache",
            Self::ThreadStart => "thread start",
            Self::SameTime => "same time",
            Self::Unknown => "recorded as unknown",
        }
    }

    fn of(placed: &Placed, seen: &Seen) -> Option<Self> {
        let told = (&*placed.cause == UNKNOWN).then_some(Self::Unknown);
        Self::by_the_kernel(placed, seen).or(told)
    }

    fn by_the_kernel(placed: &Placed, seen: &Seen) -> Option<Self> {
        if seen.is_file {
            return Some(Self::PageCache);
        }
        let made = made_by(seen)?;
        if made.tid == placed.tid {
            return (!made.placed).then_some(Self::ThreadStart);
        }
        let asked = seen.faults.iter().find(|fault| fault.in_call && fault.tid == placed.tid)?;
        (!made.in_call && asked.time < made.time + TURN_NS).then_some(Self::SameTime)
    }
}

/// Guest time for which an emulated machine's other CPUs may have had their turns between the tracker's look at a page, which finds that nobody has it,
/// and its call for it: they do not run at once when their instructions are counted. 10 µs were seen; the thread's own instructions in between are some dozens.
const TURN_NS: u64 = 50_000;

/// `placements.cause` of pages whose first toucher is unknown.
const UNKNOWN: &str = "unknown_toucher";

/// The fault that put the page where it is: the last one on that node.
fn made_by(seen: &Seen) -> Option<&Fault> {
    seen.faults.iter().rfind(|fault| fault.cpu / CPUS_PER_NODE == u32::from(seen.node))
}

/// The last home of a page on the simulated machine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    node: u16,
    /// The kernel's number of the thread that placed it.
    tid: u32,
    /// Column `cause` of the trace's table `placements`.
    cause: Arc<str>,
}

/// A page on another node for no known reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Address of the page's first byte.
    pub address: u64,
    /// The simulated machine's node.
    pub simulated: u16,
    /// Node in the real kernel.
    pub kernel: u16,
    /// The object in it.
    pub object: String,
    /// The thread that the simulated machine knows as its toucher, and the kernel's page faults on it.
    pub evidence: String,
}

/// All pages of all processes that the launcher saw.
#[derive(Debug, Default)]
pub struct Homes {
    /// By kind and name of the object that the page belonged to (the one with most bytes in it, data of the program
    /// before mappings).
    pub objects: BTreeMap<(&'static str, String), ObjectHomes>,
    /// Pages with the same home on both sides, by node.
    pub same_on: BTreeMap<u16, usize>,
    /// Pages on another node, by the known reason.
    pub reasons: BTreeMap<Reason, usize>,
    /// Pages on another node for no known reason; the first hundred.
    pub examples: Vec<Example>,
    /// Page faults that the launcher lost.
    pub lost_faults: u64,
}

impl Homes {
    /// Sum over all objects.
    #[must_use]
    pub fn total(&self) -> ObjectHomes {
        self.sum(|_| true)
    }

    /// Sum over the objects whose kind passes.
    #[must_use]
    pub fn sum(&self, passes: impl Fn(&str) -> bool) -> ObjectHomes {
        let mut total = ObjectHomes::default();
        self.objects.iter().filter(|((kind, _), _)| passes(kind)).for_each(|(_, homes)| total.add(homes));
        total
    }

    /// Compares the last home of each page in the trace (`placements` is its table of them) with the kernel's in
    /// `pages` (lines `PID ADDRESS NODES`, as `homes/launcher.c` writes them).
    #[must_use]
    pub fn compare(trace: &Trace, placements: &PlacementColumns, pages: &str) -> Self {
        let kernel = Kernel::read(pages);
        let pids: BTreeSet<u32> = kernel.pages.keys().map(|page| page.0).collect();
        let simulated = simulated_homes(trace, placements, &pids);
        let names = page_names(trace, &pids);
        let mut homes = Self { lost_faults: kernel.lost, ..Self::default() };
        let all: BTreeSet<Page> = kernel.pages.keys().chain(simulated.keys()).copied().collect();
        for page in all {
            let (ours, theirs) = (simulated.get(&page), kernel.pages.get(&page));
            let (kind, name) = names.get(&page).cloned().unwrap_or((ObjectKind::Unknown, String::new()));
            let mut reason = None;
            if let (Some(placed), Some(seen)) = (ours, theirs) {
                reason = Reason::of(placed, seen);
                if placed.node == seen.node {
                    *homes.same_on.entry(seen.node).or_default() += 1;
                } else if let Some(reason) = reason {
                    *homes.reasons.entry(reason).or_default() += 1;
                } else if homes.examples.len() < 100 {
                    homes.examples.push(Example {
                        address: page.1,
                        simulated: placed.node,
                        kernel: seen.node,
                        object: format!("{} {name}", kind.word()),
                        evidence: evidence(placed, seen),
                    });
                }
            }
            let (ours, theirs) = (ours.map(|placed| placed.node), theirs.map(|seen| seen.node));
            homes.objects.entry((kind.word(), name)).or_default().count(ours, theirs, reason);
        }
        homes
    }
}

fn evidence(placed: &Placed, seen: &Seen) -> String {
    let faults: Vec<_> = (seen.faults.iter())
        .map(|fault| {
            let when = if fault.placed { "" } else { " before it was on its node" };
            let how = if fault.in_call { " in a call" } else { "" };
            format!("{} on node {} at {} ns{how}{when}", fault.tid, fault.cpu / CPUS_PER_NODE, fault.time)
        })
        .collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
    format!("placed by thread {} ({}); page faults: {faults}", placed.tid, placed.cause)
}

/// The last home that each page of these processes got on the simulated machine.
fn simulated_homes(trace: &Trace, placements: &PlacementColumns, pids: &BTreeSet<u32>) -> HashMap<Page, Placed> {
    let mut rows: Vec<_> = placements.rows().collect();
    rows.sort_by_key(|row| row.order);
    let mut homes = HashMap::new();
    for row in rows {
        let Some(thread) = trace.thread(ThreadIndex(row.thread)) else { continue };
        let pid = trace.process(thread.process).map(|process| process.pid.0).filter(|pid| pids.contains(pid));
        let Some(pid) = pid else { continue };
        let placed = Placed { node: row.node, tid: thread.tid.0, cause: row.cause.clone() };
        for page in 0..u64::from(row.pages) {
            homes.insert((pid, row.address / GUEST_PAGE * GUEST_PAGE + page * GUEST_PAGE), placed.clone());
        }
    }
    homes
}

/// The more, the more a page is this object's rather than that one's.
fn rank(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Heap | ObjectKind::Stack | ObjectKind::Shared | ObjectKind::Pool => 4,
        ObjectKind::Static | ObjectKind::Anonymous => 3,
        ObjectKind::Section | ObjectKind::Allocator => 2,
        ObjectKind::File => 1,
        ObjectKind::Unknown => 0,
    }
}

/// What to call the object of each page: of the kinds that rank highest the one with most bytes in it.
fn page_names(trace: &Trace, pids: &BTreeSet<u32>) -> HashMap<Page, (ObjectKind, String)> {
    let mut best: HashMap<Page, ((u8, u64), u32)> = HashMap::new();
    for object in trace.objects() {
        let Some(pid) = trace.process(object.process).map(|process| process.pid.0).filter(|pid| pids.contains(pid))
        else {
            continue;
        };
        let kind = trace.site(object.site).map_or(ObjectKind::Unknown, |site| site.kind);
        let (start, end) = (object.address.0, object.address.0.saturating_add(object.bytes));
        let mut page = start / GUEST_PAGE * GUEST_PAGE;
        while page < end {
            let inside = end.min(page + GUEST_PAGE) - start.max(page);
            let entry = best.entry((pid, page)).or_insert(((0, 0), object.site.0));
            if (rank(kind), inside) > entry.0 {
                *entry = ((rank(kind), inside), object.site.0);
            }
            page += GUEST_PAGE;
        }
    }
    let name = |site: u32| {
        let site = trace.sites().get(site as usize);
        site.map_or((ObjectKind::Unknown, String::new()), |site| (site.kind, site.name.to_string()))
    };
    best.into_iter().map(|(page, (_, site))| (page, name(site))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_pages_that_have_a_simulated_home() {
        let mut homes = ObjectHomes::default();
        let all = [
            (Some(0), Some(0), None),
            (Some(0), Some(1), None),
            (Some(0), Some(1), Some(Reason::PageCache)),
            (Some(2), None, None),
            (None, Some(1), None),
            (None, None, None),
        ];
        all.into_iter().for_each(|(simulated, kernel, reason)| homes.count(simulated, kernel, reason));
        assert_eq!(homes, ObjectHomes { same: 1, explained: 1, other: 1, simulated_only: 1, kernel_only: 1 });
        assert_eq!((homes.share_same(), homes.share_explained()), (0.25, 0.5));
        assert_eq!(ObjectHomes::default().share_same(), 1.0);
    }

    #[test]
    fn a_page_is_elsewhere_for_a_reason_only_where_the_kernel_says_so() {
        let fault = |tid, cpu, placed| Fault { time: 5, tid, cpu, placed, in_call: false };
        let placed = Placed { node: 3, tid: 7, cause: "first_touch".into() };
        let of = |is_file, faults: &[Fault]| Reason::of(&placed, &Seen { node: 1, is_file, faults: faults.to_vec() });
        assert_eq!(of(true, &[]), Some(Reason::PageCache));
        assert_eq!(of(false, &[]), None);
        assert_eq!(of(false, &[fault(7, 2, false)]), Some(Reason::ThreadStart));
        // It was on its node by then; it was another thread; the page is on another node than that fault's.
        assert_eq!(of(false, &[fault(7, 2, true)]), None);
        assert_eq!(of(false, &[fault(8, 2, false)]), None);
        assert_eq!(of(false, &[fault(7, 4, false)]), None);
        // The last fault on the page's node made it.
        assert_eq!(of(false, &[fault(8, 2, false), fault(7, 3, false), fault(8, 0, true)]), Some(Reason::ThreadStart));
        assert_eq!(of(false, &[fault(7, 3, false), fault(8, 2, false)]), None);
        // Another thread got it while this one asked; in its turn just before this one asked; long before; in its own call.
        let asked = |tid, time| Fault { time, in_call: true, ..fault(tid, 6, true) };
        assert_eq!(of(false, &[asked(7, 4), fault(8, 2, true)]), Some(Reason::SameTime));
        assert_eq!(of(false, &[fault(8, 2, true), asked(7, 6)]), Some(Reason::SameTime));
        assert_eq!(of(false, &[fault(8, 2, true), asked(7, 5 + TURN_NS)]), None);
        assert_eq!(of(false, &[asked(9, 4), fault(8, 2, true)]), None);
        assert_eq!(of(false, &[asked(7, 4), Fault { cpu: 2, ..asked(8, 5) }]), None);
        // The recording itself says that it does not know.
        let untold = Placed { cause: UNKNOWN.into(), ..placed.clone() };
        let seen = |is_file| Seen { node: 1, is_file, faults: vec![fault(8, 2, true), asked(7, 5 + TURN_NS)] };
        assert_eq!(Reason::of(&untold, &seen(false)), Some(Reason::Unknown));
        assert_eq!(Reason::of(&untold, &seen(true)), Some(Reason::PageCache));
    }
}
