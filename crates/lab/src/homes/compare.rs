//! The recorded homes of pages beside the kernel's: pure, from a trace and the launcher's lines.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::HashMap;

use numapilot_flows::Object;
use numapilot_flows::ObjectKind;
use numapilot_flows::Trace;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::tables::PlacementColumns;

const PAGE: u64 = 4096;

/// One page of one process (its pid).
type Page = (u32, u64);

/// A heap of glibc's for another thread than the first begins at such an address.
const ARENA: u64 = 64 << 20;
/// So many pages at a stack's end hold what its creator wrote.
const STACK_END_PAGES: u64 = 2;

/// Pages of one object (or of all) by what both sides say of their last home.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ObjectHomes {
    /// On the same node.
    pub same: usize,
    /// On another node, for a reason that is known ([`Reason`]).
    pub explained: usize,
    /// On another node.
    pub other: usize,
    /// At home on the simulated machine; no memory of their own in the kernel (untouched, or only read: the page of
    /// zeros).
    pub simulated_only: usize,
    /// With memory in the kernel; on the simulated machine nobody was seen to touch them.
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

    /// Share of those that the kernel has on the same node, or elsewhere for a reason that is known.
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

/// Why a page may be elsewhere in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Of a file, unwritten: in the page cache, where whoever first read the file on that machine put it.
    PageCache,
    /// The first pages of a thread's stack, or the first of its heap, written before the thread could be put on its
    /// node: by its creator (glibc's thread descriptor), or by the recorder at its start.
    ThreadStart,
}

impl Reason {
    fn of(kind: ObjectKind, page: u64, stack_end: bool) -> Option<Self> {
        match kind {
            ObjectKind::File | ObjectKind::Section => Some(Self::PageCache),
            ObjectKind::Stack if stack_end => Some(Self::ThreadStart),
            ObjectKind::Heap | ObjectKind::Allocator if page.is_multiple_of(ARENA) => Some(Self::ThreadStart),
            _ => None,
        }
    }
}

/// All pages of all processes that the launcher saw.
#[derive(Debug, Default)]
pub struct Homes {
    /// By kind and name of the object that the page belonged to (the one with most bytes in it, data of the program
    /// before mappings).
    pub objects: BTreeMap<(&'static str, String), ObjectHomes>,
    /// Pages with the same home on both sides, by node.
    pub same_on: BTreeMap<u16, usize>,
    /// Pages on another node for no known reason: address, simulated node, kernel's node, object; the first hundred.
    pub examples: Vec<(u64, u16, u16, String)>,
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
        let kernel = kernel_homes(pages);
        let pids: BTreeSet<u32> = kernel.keys().map(|page| page.0).collect();
        let simulated = simulated_homes(trace, placements, &pids);
        let names = page_names(trace, &pids);
        let stack_ends = stack_ends(trace);
        let mut homes = Self::default();
        let all: BTreeSet<Page> = kernel.keys().chain(simulated.keys()).copied().collect();
        for page in all {
            let (ours, theirs) = (simulated.get(&page).copied(), kernel.get(&page).copied());
            let (kind, name) = names.get(&page).cloned().unwrap_or((ObjectKind::Unknown, String::new()));
            let reason = Reason::of(kind, page.1, stack_ends.contains(&page));
            match (ours, theirs) {
                (Some(a), Some(b)) if a == b => *homes.same_on.entry(a).or_default() += 1,
                (Some(a), Some(b)) if reason.is_none() && homes.examples.len() < 100 => {
                    homes.examples.push((page.1, a, b, format!("{} {name}", kind.word())));
                }
                _ => {}
            }
            homes.objects.entry((kind.word(), name)).or_default().count(ours, theirs, reason);
        }
        homes
    }
}

/// The last node that the kernel named for each page. Lines that are cut short (the launcher was killed) end the
/// reading of themselves only.
fn kernel_homes(text: &str) -> HashMap<Page, u16> {
    let mut homes = HashMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(pid), Some(address), Some(nodes)) = (words.next(), words.next(), words.next()) else { continue };
        let (Ok(pid), Ok(address)) = (pid.parse::<u32>(), u64::from_str_radix(address, 16)) else { continue };
        for (index, node) in nodes.chars().enumerate() {
            if let Some(node) = node.to_digit(16) {
                homes.insert((pid, address + index as u64 * PAGE), node as u16);
            }
        }
    }
    homes
}

/// The last home that each page of these processes got on the simulated machine.
fn simulated_homes(trace: &Trace, placements: &PlacementColumns, pids: &BTreeSet<u32>) -> HashMap<Page, u16> {
    let mut rows: Vec<_> = placements.rows().collect();
    rows.sort_by_key(|row| row.order);
    let mut homes = HashMap::new();
    for row in rows {
        let process = trace.thread(ThreadIndex(row.thread)).and_then(|thread| trace.process(thread.process));
        let Some(pid) = process.map(|process| process.pid).filter(|pid| pids.contains(pid)) else { continue };
        for page in 0..u64::from(row.pages) {
            homes.insert((pid, row.address / PAGE * PAGE + page * PAGE), row.node);
        }
    }
    homes
}

/// The more, the more a page is this object's rather than that one's.
fn rank(kind: ObjectKind) -> u8 {
    match kind {
        ObjectKind::Heap | ObjectKind::Stack | ObjectKind::Shared => 4,
        ObjectKind::Static | ObjectKind::Anonymous => 3,
        ObjectKind::Section | ObjectKind::Allocator => 2,
        ObjectKind::File => 1,
        ObjectKind::Unknown => 0,
    }
}

/// The highest pages of the stacks: the thread's descriptor and its thread-local storage.
fn stack_ends(trace: &Trace) -> BTreeSet<Page> {
    let stacks = trace.objects().iter().filter(|object| trace.kind_of(Some(object.id)) == ObjectKind::Stack);
    let ends = |object: &Object| {
        let end = object.address.0.saturating_add(object.bytes).div_ceil(PAGE) * PAGE;
        let pid = trace.process(object.process).map(|process| process.pid);
        pid.into_iter()
            .flat_map(move |pid| (1..=STACK_END_PAGES).map(move |back| (pid, end.saturating_sub(back * PAGE))))
    };
    stacks.flat_map(ends).collect()
}

/// What to call the object of each page: of the kinds that rank highest the one with most bytes in it.
fn page_names(trace: &Trace, pids: &BTreeSet<u32>) -> HashMap<Page, (ObjectKind, String)> {
    let mut best: HashMap<Page, ((u8, u64), u32)> = HashMap::new();
    for object in trace.objects() {
        let Some(pid) = trace.process(object.process).map(|process| process.pid).filter(|pid| pids.contains(pid))
        else {
            continue;
        };
        let kind = trace.site(object.site).map_or(ObjectKind::Unknown, |site| site.kind);
        let (start, end) = (object.address.0, object.address.0.saturating_add(object.bytes));
        let mut page = start / PAGE * PAGE;
        while page < end {
            let inside = end.min(page + PAGE) - start.max(page);
            let entry = best.entry((pid, page)).or_insert(((0, 0), object.site.0));
            if (rank(kind), inside) > entry.0 {
                *entry = ((rank(kind), inside), object.site.0);
            }
            page += PAGE;
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
    fn later_lines_of_the_launcher_hold_and_pages_without_memory_have_no_home() {
        let homes = kernel_homes("7 1000 01.\n7 2000 3\n8 1000 2\n9 zz 1\n7 40");
        assert_eq!(homes.get(&(7, 0x1000)), Some(&0));
        assert_eq!(homes.get(&(7, 0x2000)), Some(&3));
        assert_eq!(homes.get(&(7, 0x3000)), None);
        assert_eq!(homes.get(&(8, 0x1000)), Some(&2));
        assert_eq!(homes.len(), 3);
    }

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
    fn only_the_first_pages_of_threads_and_files_have_reasons_to_be_elsewhere() {
        assert_eq!(Reason::of(ObjectKind::Heap, 3 * ARENA, false), Some(Reason::ThreadStart));
        assert_eq!(Reason::of(ObjectKind::Heap, 3 * ARENA + PAGE, false), None);
        assert_eq!(Reason::of(ObjectKind::Stack, PAGE, false), None);
        assert_eq!(Reason::of(ObjectKind::Stack, PAGE, true), Some(Reason::ThreadStart));
        assert_eq!(Reason::of(ObjectKind::File, PAGE, false), Some(Reason::PageCache));
        assert_eq!(Reason::of(ObjectKind::Anonymous, 0, true), None);
    }
}
