//! What page faults tell: who touched each page first, where it lies, and who was seen using it later.
//!
//! Figures here count pages of 4 KiB and faults, never memory accesses. A larger page is as many pages of 4 KiB, which are placed, used and moved together.
//! A page is one for as long as the object in it lives: the same addresses under a later object are another page.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{AccessRef, LocationId, ObjectKind, PlacementCause, SiteId};
use numapilot_machine::NodeId;
use numapilot_ranges::RangeMap;
use numapilot_trace::ids::{ObjectId, ProcessIndex, StackId, ThreadIndex, TimeNs};
use serde::Serialize;

use crate::context::Analysis;

/// Lines of first touches that are kept of a site.
const LINES_MAX: usize = 64;

/// Pages by who was seen on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageUse {
    /// Touched once, and not seen again.
    pub once: u64,
    /// Seen again, by one thread alone.
    pub one_thread: u64,
    /// Used by several threads, all on one node.
    pub one_node: u64,
    /// Used from several nodes.
    pub several_nodes: u64,
    /// Used by several threads, of which the node of one at least is unknown.
    pub unknown_nodes: u64,
}

/// Pages that lie on one node and were seen in use from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Away {
    /// Node on which they lie.
    pub home: NodeId,
    /// The node that uses the pages.
    pub node: NodeId,
    /// Number of pages.
    pub pages: u64,
    /// Faults from there on them.
    pub faults: u64,
}

/// First touches from one line by one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TouchLine {
    /// Name of the function; empty where unknown.
    pub function: String,
    /// Source file; empty where unknown.
    pub file: String,
    /// Line in the source file; 0 where unknown.
    pub line: u32,
    /// Index of the thread in the trace.
    pub thread: ThreadIndex,
    /// Node on which it ran.
    pub node: Option<NodeId>,
    /// Number of pages.
    pub pages: u64,
}

/// First touches and later use of a site's pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TouchSite {
    /// Site; `None`: memory of no known object.
    pub site: Option<SiteId>,
    /// Name of the object.
    pub name: String,
    /// Its place in the source.
    pub place: String,
    /// Number of pages touched first.
    pub pages: u64,
    /// Of these, on each node, in the order of the analysis' nodes.
    pub on_node: Vec<u64>,
    /// Faults after the first on a page, from each node, in the same order.
    pub later_from: Vec<u64>,
    /// Lines that touched first, most pages first.
    pub lines: Vec<TouchLine>,
    /// How its pages are used.
    pub uses: PageUse,
}

/// Faults on the pages of a mapped file, or of a section of a binary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileFaults {
    /// Path of the file; of a section, the binary's.
    pub path: String,
    /// Faults on its pages.
    pub faults: u64,
}

/// Everything that page faults tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Touches {
    /// Page faults that were recorded.
    pub faults: u64,
    /// Number of pages touched first.
    pub first_touches: u64,
    /// Faults that touched them: fewer than pages where these are larger than 4 KiB.
    pub first_faults: u64,
    /// Of these, on each node, in the order of the analysis' nodes.
    pub on_node: Vec<u64>,
    /// Of these, pages that lie elsewhere than on the toucher's node (a policy, or a full node).
    pub placed_elsewhere: u64,
    /// Pages that were there before the recording.
    pub found: u64,
    /// Times that a page was seen on another node than before.
    pub moved: u64,
    /// Faults on pages that were there already.
    pub later: u64,
    /// Pages of shared memory that was made before the recording, at the first fault of any process: whether they were in memory is unknown.
    pub shared_before: u64,
    /// Faults on pages that were there before, although no fault is known to have placed them: huge pages whose size the kernel did not report, memory that was
    /// populated without faults. Who touched them first is unknown.
    pub present: u64,
    /// Faults on pages of files and of code, which belong to the page cache: who read the file first placed them.
    pub on_files: u64,
    /// These by file, most faults first.
    pub files: Vec<FileFaults>,
    /// How the pages are used after their first touch.
    pub uses: PageUse,
    /// Pages used from other nodes than their own, most pages first.
    pub away: Vec<Away>,
    /// Allocation sites, those with most pages first.
    pub sites: Vec<TouchSite>,
}

/// The owner of a page. Memory that processes share has the same in each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    /// Process, object.
    Own(ProcessIndex, Option<ObjectId>),
    /// Site, whose pages are numbered from the beginning of the mapping: parts that begin elsewhere in the memory are sites of their own.
    Shared(SiteId),
    /// Object that a forked child inherits.
    Inherited(ObjectId),
}

/// A page: its owner, and the number of its first 4 KiB.
type OwnedPage = (Owner, u64);

/// What faults have shown of a page so far.
#[derive(Clone, Copy, Debug)]
struct PageState {
    /// Number of pages of 4 KiB that it is.
    pages: u64,
    thread: ThreadIndex,
    many_threads: bool,
    nodes: u64,
    /// Whether the node of a fault is unknown.
    is_node_unknown: bool,
    faults: u32,
    site: Option<SiteId>,
}

/// A placement: the number of its first page of 4 KiB, how many there are, where they went, and why.
#[derive(Clone, Copy, Debug)]
struct Placed {
    first: u64,
    pages: u64,
    node: NodeId,
    cause: PlacementCause,
}

/// A code address, and which of the functions there.
type Place = (LocationId, usize);

#[derive(Default)]
struct SiteSums {
    pages: u64,
    on_node: Vec<u64>,
    later_from: Vec<u64>,
    lines: HashMap<(Place, ThreadIndex, Option<NodeId>), u64>,
    uses: PageUse,
}

impl PageUse {
    fn add(&mut self, page: &PageState) {
        let count = match (page.faults, page.many_threads, page.nodes.count_ones()) {
            (1, ..) => &mut self.once,
            (_, _, nodes) if nodes > 1 => &mut self.several_nodes,
            (_, false, _) => &mut self.one_thread,
            _ if page.is_node_unknown => &mut self.unknown_nodes,
            _ => &mut self.one_node,
        };
        *count += page.pages;
    }
}

fn bump(counts: &mut Vec<u64>, at: usize, by: u64) {
    if counts.len() <= at {
        counts.resize(at + 1, 0);
    }
    counts[at] += by;
}

/// Sums while faults are walked.
struct Walk<'a, 't> {
    analysis: &'a Analysis<'t>,
    /// Paths of the processes' executables.
    programs: foldhash::HashSet<&'t str>,
    /// The place in the program that causes faults at an instruction and call stack.
    places: HashMap<(LocationId, StackId), Place>,
    /// Placements by thread and moment.
    placed: HashMap<(ThreadIndex, TimeNs), Vec<Placed>>,
    pages: HashMap<OwnedPage, PageState>,
    /// Of each owner the pages of more than 4 KiB, by the numbers of their 4 KiB.
    large: HashMap<Owner, RangeMap<u64, ()>>,
    sites: HashMap<Option<SiteId>, SiteSums>,
    files: HashMap<SiteId, u64>,
    away: HashMap<(NodeId, NodeId), (u64, HashMap<OwnedPage, u64>)>,
    /// Pages of placements of the cause `Found` that faults show.
    found_by_faults: u64,
    out: Touches,
}

impl Walk<'_, '_> {
    fn fault(&mut self, access: &AccessRef) {
        let trace = self.analysis.trace;
        self.out.faults += 1;
        let page = access.address.page().0;
        let process = trace.thread(access.thread).map_or(ProcessIndex(0), |thread| thread.process);
        let object = access.object.and_then(|object| trace.object(object));
        let site = object.map(|object| object.site);
        // Pages of shared memory are numbered from the beginning of its mapping.
        let (owner, base) = match (trace.kind_of(access.object), object) {
            (ObjectKind::File | ObjectKind::Section, Some(object)) => {
                *self.files.entry(object.site).or_default() += 1;
                return;
            }
            (ObjectKind::Shared, Some(object)) if object.stack.0 != 0 => (Owner::Inherited(object.id), 0),
            (ObjectKind::Shared, Some(object)) => (Owner::Shared(object.site), object.address.page().0),
            _ => (Owner::Own(process, access.object), 0),
        };
        let bit = access.node.and_then(|node| self.analysis.node_position(node)).map_or(0, |at| 1_u64 << at.min(63));
        let at_once = self.placed.get(&(access.thread, access.time)).map_or(&[][..], Vec::as_slice);
        let placed = at_once.iter().copied().find(|placed| (placed.first..placed.first + placed.pages).contains(&page));
        let is_found = placed.is_some_and(|placed| placed.cause == PlacementCause::Found);
        let first = placed.filter(|placed| placed.cause.is_first());
        let range = placed.filter(|placed| placed.cause != PlacementCause::Moved);
        if let Some(placed) = range {
            self.lay(owner, placed.first.wrapping_sub(base), placed.pages);
        }
        let (at, pages) = self.page_at(owner, page.wrapping_sub(base));
        let key = (owner, at);
        let thread = access.thread;
        let new = PageState { pages, thread, many_threads: false, nodes: 0, is_node_unknown: false, faults: 0, site };
        // A block that is given back and touched anew within one object's life is another page as well.
        let state = match self.pages.entry(key) {
            std::collections::hash_map::Entry::Occupied(mut entry) if first.is_some() => {
                let old = entry.insert(new);
                self.out.uses.add(&old);
                self.sites.entry(old.site).or_default().uses.add(&old);
                entry.into_mut()
            }
            entry => entry.or_insert(new),
        };
        state.many_threads |= state.thread != access.thread;
        state.nodes |= bit;
        state.is_node_unknown |= bit == 0;
        state.faults = state.faults.saturating_add(1);
        match (first, is_found) {
            (Some(placed), _) => self.first(access, site, (placed.node, placed.pages, placed.cause)),
            (None, true) => {
                match owner {
                    Owner::Own(..) => self.out.present += 1,
                    Owner::Shared(_) | Owner::Inherited(_) => self.out.shared_before += 1,
                }
                self.found_by_faults += placed.map_or(0, |placed| placed.pages);
                self.used(access, site, (key, pages));
            }
            (None, false) => {
                self.out.later += 1;
                self.used(access, site, (key, pages));
            }
        }
    }

    /// A page of `pages` times 4 KiB is there from now on.
    fn lay(&mut self, owner: Owner, first: u64, pages: u64) {
        let end = first.saturating_add(pages);
        let Some(large) = self.large.get_mut(&owner) else {
            if pages > 1 {
                self.large.entry(owner).or_default().set(first, end, ());
            }
            return;
        };
        // A large page is there as a whole, or not at all.
        let replaced: Vec<u64> = large.overlapping(first, end).map(|page| page.start).collect();
        for at in replaced {
            large.take(at);
        }
        if pages > 1 {
            large.set(first, end, ());
        }
    }

    /// The page that holds this 4 KiB: the number of its first 4 KiB, and how many there are.
    fn page_at(&self, owner: Owner, page: u64) -> (u64, u64) {
        let large = self.large.get(&owner).and_then(|large| large.get(page));
        large.map_or((page, 1), |large| (large.start, large.end - large.start))
    }

    fn first(&mut self, access: &AccessRef, site: Option<SiteId>, (node, pages, cause): (NodeId, u64, PlacementCause)) {
        self.out.first_touches += pages;
        self.out.first_faults += 1;
        self.out.placed_elsewhere += if cause == PlacementCause::Policy { pages } else { 0 };
        let key = (access.location, access.stack);
        let known = self.places.get(&key).copied();
        let place = known.unwrap_or_else(|| self.place_of(access.location, access.stack));
        self.places.insert(key, place);
        let sums = self.sites.entry(site).or_default();
        sums.pages += pages;
        if let Some(at) = self.analysis.node_position(node) {
            bump(&mut self.out.on_node, at, pages);
            bump(&mut sums.on_node, at, pages);
        }
        *sums.lines.entry((place, access.thread, access.node)).or_default() += pages;
    }

    fn used(&mut self, access: &AccessRef, site: Option<SiteId>, (key, pages): (OwnedPage, u64)) {
        let sums = self.sites.entry(site).or_default();
        if let Some(at) = access.node.and_then(|node| self.analysis.node_position(node)) {
            bump(&mut sums.later_from, at, 1);
        }
        if let (Some(home), Some(node)) = (access.home, access.node)
            && home != node
        {
            let (faults, used) = self.away.entry((home, node)).or_default();
            *faults += 1;
            used.insert(key, pages);
        }
    }

    /// Whose doing a fault is. What the C library and containers do is their caller's doing, and so is what a library does whose source is not known,
    /// if the caller's is. What a library does that calls the program is not: code of the program, or code that it generated, counts without a line,
    /// too.
    fn place_of(&self, location: LocationId, stack: StackId) -> Place {
        let trace = self.analysis.trace;
        let (mut of_program, mut of_library) = (None, None);
        for id in std::iter::once(location).chain(trace.stack(stack).iter().copied()) {
            let code = trace.location(id);
            let Some(place) = code.own_frame().map(|frame| (id, frame)) else { continue };
            if code.is_generated() {
                return of_program.unwrap_or(place);
            }
            let is_program = self.programs.contains(&*code.module);
            if code.frames[place.1].line > 0 {
                return of_program.filter(|_| !is_program).unwrap_or(place);
            }
            let without_line = if is_program { &mut of_program } else { &mut of_library };
            *without_line = without_line.or(Some(place));
        }
        of_program.or(of_library).unwrap_or((location, 0))
    }

    fn finish(mut self) -> Touches {
        for page in self.pages.values() {
            self.out.uses.add(page);
            self.sites.entry(page.site).or_default().uses.add(page);
        }
        let nodes = self.analysis.nodes.len();
        self.out.on_node.resize(nodes, 0);
        self.out.found = self.out.found.saturating_sub(self.found_by_faults);
        self.out.away = self
            .away
            .iter()
            .map(|(&(home, node), (faults, pages))| Away { home, node, pages: pages.values().sum(), faults: *faults })
            .collect();
        self.out.away.sort_by_key(|away| (std::cmp::Reverse(away.pages), away.home, away.node));
        let sites = std::mem::take(&mut self.sites);
        self.out.sites = sites.into_iter().map(|(site, sums)| self.site(site, sums, nodes)).collect();
        let faults = |row: &TouchSite| row.pages + row.later_from.iter().sum::<u64>();
        self.out.sites.sort_by_key(|row| (std::cmp::Reverse(faults(row)), row.site));
        self.out.on_files = self.files.values().sum();
        let mut files: BTreeMap<String, u64> = BTreeMap::new();
        for (site, faults) in &self.files {
            let Some(site) = self.analysis.trace.site(*site) else { continue };
            let path = if site.module.is_empty() { &site.name } else { &site.module };
            *files.entry(path.to_string()).or_default() += faults;
        }
        self.out.files = files.into_iter().map(|(path, faults)| FileFaults { path, faults }).collect();
        self.out.files.sort_by(|a, b| b.faults.cmp(&a.faults).then_with(|| a.path.cmp(&b.path)));
        self.out
    }

    fn site(&self, site: Option<SiteId>, sums: SiteSums, nodes: usize) -> TouchSite {
        let trace = self.analysis.trace;
        // Several instructions of one line are one place.
        let mut by_line: BTreeMap<(&str, &str, u32, ThreadIndex, Option<NodeId>), u64> = BTreeMap::new();
        for (((location, frame), thread, node), pages) in sums.lines {
            let frame = trace.location(location).frames.get(frame);
            let (function, file, line) =
                frame.map_or(("", "", 0), |frame| (&*frame.function, &*frame.file, frame.line));
            *by_line.entry((function, file, line, thread, node)).or_default() += pages;
        }
        let line = |((function, file, line, thread, node), pages): ((&str, &str, _, _, _), _)| TouchLine {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
            thread,
            node,
            pages,
        };
        let mut lines: Vec<TouchLine> = by_line.into_iter().map(line).collect();
        lines.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| (a.thread, a.line).cmp(&(b.thread, b.line))));
        lines.truncate(LINES_MAX);
        let fill = |mut counts: Vec<u64>| {
            counts.resize(nodes, 0);
            counts
        };
        let known = site.and_then(|site| trace.site(site));
        TouchSite {
            site,
            name: known.map_or_else(|| "memory of no known object".to_owned(), |site| site.name.to_string()),
            place: known.map(numapilot_flows::Site::place).unwrap_or_default(),
            pages: sums.pages,
            on_node: fill(sums.on_node),
            later_from: fill(sums.later_from),
            lines,
            uses: sums.uses,
        }
    }
}

impl Analysis<'_> {
    /// What the trace's page faults tell; `None` where its accesses are something else.
    #[must_use]
    pub fn touches(&self) -> Option<Touches> {
        self.trace.holds_faults().then(|| self.touches_of_faults())
    }

    /// The same of a trace whose accesses are page faults.
    fn touches_of_faults(&self) -> Touches {
        let mut walk = Walk {
            analysis: self,
            programs: self.trace.processes().iter().map(|process| &*process.exe).collect(),
            places: HashMap::new(),
            placed: HashMap::new(),
            pages: HashMap::new(),
            large: HashMap::new(),
            sites: HashMap::new(),
            files: HashMap::new(),
            away: HashMap::new(),
            found_by_faults: 0,
            out: Touches::default(),
        };
        for placed in self.trace.placements() {
            // Placements that no fault made have no thread and no kind of access to filter by: under a filter they are not counted.
            match placed.cause {
                _ if !self.filter.is_empty() => {}
                PlacementCause::Found => walk.out.found += u64::from(placed.pages),
                PlacementCause::Moved => walk.out.moved += u64::from(placed.pages),
                PlacementCause::FirstTouch | PlacementCause::Policy | PlacementCause::UnknownToucher => {}
            }
            // A large page is placed as a whole by a touch anywhere in it.
            walk.placed.entry((placed.thread, placed.time)).or_default().push(Placed {
                first: placed.address.page().0,
                pages: u64::from(placed.pages),
                node: placed.node,
                cause: placed.cause,
            });
        }
        self.trace.filtered(&self.filter).for_each(|access| walk.fault(&access));
        walk.finish()
    }
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Filter, Object, Placement, Site, Tables, Thread, Trace};
    use numapilot_host::VirtAddr;

    use super::*;

    /// A huge page that one thread touches first and another one uses, and one of which no first touch is known.
    #[test]
    fn a_huge_page_is_touched_and_used_as_a_whole() {
        const AT: u64 = 0x4000_0000;
        let object = Object { bytes: 4 << 20, address: VirtAddr(AT), ..Object::default() };
        let site = Site { kind: ObjectKind::Heap, ..Site::default() };
        let mut tables = Tables { objects: vec![object], sites: vec![site], ..Tables::default() };
        tables.threads = (0..2).map(|index| Thread { index: ThreadIndex(index), ..Thread::default() }).collect();
        for (time, thread, offset) in [(10, 0, 0x5000), (20, 1, 0x10_0000), (30, 1, 0x18_0000), (40, 1, 0x20_1000)] {
            tables.accesses.push(&AccessRef {
                time: TimeNs(time),
                thread: ThreadIndex(thread),
                object: Some(ObjectId(0)),
                node: Some(NodeId(thread as u16)),
                home: Some(NodeId(0)),
                weight: 1,
                ..AccessRef::at(AT + offset)
            });
        }
        let placed = |time, thread, offset, cause| Placement {
            time: TimeNs(time),
            thread: ThreadIndex(thread),
            address: VirtAddr(AT + offset),
            pages: 512,
            node: NodeId(0),
            cause,
            object: Some(ObjectId(0)),
        };
        tables.placements =
            vec![placed(10, 0, 0, PlacementCause::FirstTouch), placed(40, 1, 0x20_0000, PlacementCause::Found)];
        let trace = Trace::from_tables(tables);
        let nodes = [NodeId(0), NodeId(1)];
        let found = Analysis::new(&trace, &nodes, &nodes, Filter::default()).touches_of_faults();
        assert_eq!((found.faults, found.first_touches, found.first_faults), (4, 512, 1));
        assert_eq!((found.later, found.present, found.shared_before, found.found), (2, 1, 0, 0), "{found:?}");
        assert_eq!(found.uses, PageUse { once: 512, several_nodes: 512, ..PageUse::default() });
        assert_eq!(found.away, [Away { home: NodeId(0), node: NodeId(1), pages: 1024, faults: 3 }]);
        assert_eq!(found.on_node, [512, 0]);
    }

    /// Recordings of perf need not say on which CPU a thread was.
    #[test]
    fn threads_of_unknown_nodes_are_not_on_one_node() {
        let uses = |nodes: [Option<u16>; 2]| {
            let threads = (0..2).map(|index| Thread { index: ThreadIndex(index), ..Thread::default() }).collect();
            let mut tables = Tables { threads, ..Tables::default() };
            for (thread, node) in (0..2).zip(nodes) {
                tables.accesses.push(&AccessRef {
                    time: TimeNs(u64::from(thread)),
                    thread: ThreadIndex(thread),
                    node: node.map(NodeId),
                    weight: 1,
                    ..AccessRef::at(0x1000)
                });
            }
            let trace = Trace::from_tables(tables);
            let nodes = [NodeId(0), NodeId(1)];
            Analysis::new(&trace, &nodes, &nodes, Filter::default()).touches_of_faults().uses
        };
        assert_eq!(uses([Some(0), Some(0)]), PageUse { one_node: 1, ..PageUse::default() });
        assert_eq!(uses([None, None]), PageUse { unknown_nodes: 1, ..PageUse::default() });
        assert_eq!(uses([Some(0), None]), PageUse { unknown_nodes: 1, ..PageUse::default() });
        assert_eq!(uses([Some(0), Some(1)]), PageUse { several_nodes: 1, ..PageUse::default() });
    }
}
