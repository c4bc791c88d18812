//! Aggregated accesses for the price: *rows* (a thread on a node in a window of time) and *cells* (accesses of a row that agree in everything that a fix could
//! change).
//!
//! Cells are built from samples. The number of accesses of a thread and its own work come from its counters where the engine counts ([`pace`]). Every cell
//! belongs to one of [`PARTS`] parts of the cache lines, so that a price can be computed without each part, which gives its interval (jackknife).

mod asleep;
pub(crate) mod pace;

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt, HashSet};
use numapilot_flows::cores::{Core, OwnWork, own_work};
use numapilot_flows::{AccessRef, Object, ObjectKind, Thread, Trace};
use numapilot_machine::{Machine, NodeId, NodeIndex, Packed};
use numapilot_trace::ids::ObjectId;

use crate::context::Analysis;
use crate::course::Course;
use crate::estimate::Tally;
use crate::windows::Windows;
use pace::Pace;

/// A node, or none, as cells, pages and samples hold it, of which a recording has millions. Only these do.
pub(crate) type PackedNode = Packed<NodeIndex, u16>;

/// Number of parts of the jackknife.
pub(crate) const PARTS: usize = 5;

/// Share of the run, 0 to 1, that the threads which decide its end sleep, from which sleeps are taken for what decides how long it is: then less work makes it
/// hardly shorter.
const PACED: f64 = 0.5;

/// [`Cell::flags`]: the accesses write.
pub(crate) const WRITE: u8 = 1;
/// [`Cell::flags`]: the accesses come after the object's initialisation, when it is shared.
pub(crate) const SHARED: u8 = 2;
/// [`Cell::flags`]: a thread of the object's own process makes the accesses, to memory that no other process sees.
pub(crate) const OWN_PROCESS: u8 = 4;
/// [`Cell::flags`]: the accesses are coherence misses on a falsely shared cache line.
pub(crate) const FALSE_SHARED: u8 = 8;
/// [`Cell::flags`]: the accesses are to a hot page.
pub(crate) const HOT: u8 = 16;

/// A thread on a node in a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Row {
    pub window: u16,
    pub thread: u32,
    pub from: NodeIndex,
}

/// Accesses of a row that agree in everything that a fix could change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cell {
    /// Row, as an index into [`Usage::rows`].
    pub row: u32,
    /// Site, or the number of sites for accesses without an object.
    pub group: u32,
    /// Home node of the page.
    pub home: PackedNode,
    /// Node that uses the page most, by the samples of other cache lines.
    pub users: PackedNode,
    /// Node of the allocating thread.
    pub allocator: PackedNode,
    /// Node that was using the object at that time.
    pub owner: PackedNode,
    pub flags: u8,
    pub part: u8,
}

/// Rows, cells, paces and the course of a recording.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub windows: Windows,
    pub threads: usize,
    pub nodes: usize,
    pub rows: Vec<Row>,
    /// Cells in order, with the number of accesses that each stands for.
    pub cells: Vec<(Cell, f64)>,
    /// `[window * threads + thread]`.
    pub paces: Vec<Pace>,
    pub course: Course,
    /// Whether program time is simulated (a clock is charged for accesses and own work) instead of measured.
    pub charged: bool,
    /// The simulated core by which the clock was charged.
    pub charged_core: Core,
    /// With a simulated clock and native runs: range of the program's own work, as a multiple of what was charged.
    pub own_work: Option<OwnWork>,
    /// Threads that ran on one CPU all the time, by CPU, where it had several.
    pub on_one_cpu: Vec<Vec<usize>>,
    /// By thread, where the time that it works was counted: the node on which it was seen most, or on which it started where no access of it was sampled.
    pub counted_on: Vec<Option<NodeIndex>>,
    /// Whether threads take the next piece of work when they are free.
    pub takes_work: bool,
    /// Share of the run, 0 to 1, in sleeps and time-outs of the threads that decide its end.
    asleep: f64,
    /// Accesses that one sample stands for, on average.
    pub sample_weight: f64,
    /// Remote accesses, and those of them to memory that only the thread's own process uses. Cells do not tell how many samples they are from, and so not how
    /// sure a share of them is.
    pub remote: Tally,
    pub own_remote: Tally,
    /// By group: its accesses, for the number of independent draws that they are from.
    pub drawn: BTreeMap<u32, Tally>,
    /// Instances that belong to another group than their site's.
    own_group: BTreeMap<ObjectId, u32>,
    row_of: HashMap<Row, u32>,
}

impl Usage {
    /// Aggregates all accesses of an analysis. Groups are sites; instances in `apart` belong to the group named there, whose number lies above the number of
    /// sites ([`Usage::group`]).
    pub fn of(analysis: &Analysis<'_>, machine: &Machine, apart: &BTreeMap<ObjectId, u32>) -> Usage {
        let trace = analysis.trace();
        let windows = Windows::of(trace.end().0);
        let mut usage = Usage {
            windows,
            threads: trace.threads().len(),
            nodes: machine.nodes().len(),
            rows: Vec::new(),
            cells: Vec::new(),
            paces: Vec::new(),
            course: Course::of(trace, windows),
            charged: trace.meta().simulated,
            charged_core: Core::charged(trace.meta()),
            own_work: None,
            on_one_cpu: pace::on_one_cpu(trace),
            counted_on: Vec::new(),
            takes_work: analysis.takes_work,
            asleep: 0.0,
            sample_weight: 1.0,
            remote: Tally::default(),
            own_remote: Tally::default(),
            drawn: BTreeMap::new(),
            own_group: apart.clone(),
            row_of: HashMap::new(),
        };
        let mut cells: HashMap<Cell, f64> = HashMap::new();
        let mut drawn: HashMap<u32, Tally> = HashMap::new();
        let mut sampled = vec![0.0; windows.count * usage.threads];
        let mut samples = 0_u64;
        for access in analysis.accesses() {
            let Some(from) = index_of(machine, access.node) else { continue };
            samples += 1;
            let row = usage.row(&access, from);
            let cell = usage.cell(analysis, machine, &access, row);
            *cells.entry(cell).or_default() += f64::from(access.weight);
            drawn.entry(cell.group).or_default().add(access);
            if cell.home.index().is_some_and(|home| home != from) {
                usage.remote.add(access);
                if cell.flags & OWN_PROCESS != 0 {
                    usage.own_remote.add(access);
                }
            }
            let window = usize::from(usage.rows[row as usize].window);
            sampled[window * usage.threads + access.thread.0 as usize] += f64::from(access.weight);
        }
        usage.sample_weight = sampled.iter().sum::<f64>() / samples.max(1) as f64;
        // In order, so that sums over groups are the same each time.
        usage.drawn = drawn.into_iter().collect();
        usage.cells = cells.into_iter().collect();
        usage.cells.sort_unstable_by_key(|cell| cell.0);
        usage.counted_on = usage.nodes_of_counted(trace, machine);
        let idle = pace::idle(trace, windows);
        usage.course.rest(&idle);
        let asleep = asleep::of(trace, pace::clock_khz(trace, machine));
        usage.asleep = asleep_share(&usage.course, &asleep, trace.end().0 as f64);
        let until_ns = &usage.course.ends.until_ns;
        usage.paces = pace::paces(trace, machine, windows, &sampled, &idle, &asleep, until_ns);
        if usage.charged {
            let own_ns: f64 = usage.paces.iter().map(|pace| pace.own_ns).sum();
            let waiting_ns: f64 = usage.paces.iter().map(|pace| pace.busy_ns - pace.own_ns).sum();
            let mhz = pace::clock_khz(trace, machine) / 1000.0;
            usage.own_work = own_work(trace.meta(), machine, own_ns, waiting_ns, mhz);
        }
        usage
    }

    /// By thread, where the time that it works was counted: the node on which it was seen most, else that on which it started.
    fn nodes_of_counted(&self, trace: &Trace, machine: &Machine) -> Vec<Option<NodeIndex>> {
        let mut from = vec![vec![0.0; self.nodes]; self.threads];
        for (cell, count) in &self.cells {
            let row = &self.rows[cell.row as usize];
            from[row.thread as usize][row.from] += *count;
        }
        let of_thread = |(thread, from): (&Thread, &Vec<f64>)| {
            let most = NodeIndex::all(self.nodes).max_by(|&a, &b| from[a].total_cmp(&from[b]).then(b.cmp(&a)));
            let seen = most.filter(|node| from[*node] > 0.0);
            seen.or_else(|| index_of(machine, thread.node)).filter(|_| thread.counters.is_some())
        };
        trace.threads().iter().zip(&from).map(of_thread).collect()
    }

    /// The share of the run that the threads which decide its end spend in sleeps and time-outs, where these decide how long the run is; else `None`.
    pub fn paced(&self) -> Option<f64> {
        (self.asleep >= PACED).then_some(self.asleep)
    }

    /// The group of an object.
    pub fn group(&self, object: &Object) -> u32 {
        self.own_group.get(&object.id).copied().unwrap_or(object.site.0)
    }

    /// Drops the cells of these groups, each of which gets finer ones ([`Usage::refine`]).
    pub fn coarsen(&mut self, groups: &HashSet<u32>) {
        self.cells.retain(|(cell, _)| !groups.contains(&cell.group));
    }

    /// Adds the finer cells of a group.
    pub fn refine(&mut self, cells: &HashMap<Cell, f64>) {
        self.cells.extend(cells.iter().map(|(cell, weight)| (*cell, *weight)));
    }

    /// Restores the order of cells after [`Usage::refine`], so that sums are the same each time.
    pub fn sort(&mut self) {
        self.cells.sort_unstable_by_key(|cell| cell.0);
    }

    /// The row of an access from node `from`.
    pub fn row(&mut self, access: &AccessRef, from: NodeIndex) -> u32 {
        let row = Row { window: self.windows.at(access.time.0 as f64) as u16, thread: access.thread.0, from };
        *self.row_of.entry(row).or_insert_with(|| {
            self.rows.push(row);
            (self.rows.len() - 1) as u32
        })
    }

    /// The cell of an access, before the use of its object is known.
    pub fn cell(&self, analysis: &Analysis<'_>, machine: &Machine, access: &AccessRef, row: u32) -> Cell {
        let trace = analysis.trace();
        let object = access.object.and_then(|id| trace.object(id));
        let process = trace.thread(access.thread).map(|thread| thread.process);
        let kind = trace.kind_of(access.object);
        let is_own = object.is_some_and(|object| Some(object.process) == process) && kind != ObjectKind::Shared;
        let home = PackedNode::from(index_of(machine, access.home));
        let mut flags = if access.is_write { WRITE } else { 0 };
        flags |= if is_own { OWN_PROCESS } else { 0 };
        Cell {
            row,
            group: object.map_or(trace.sites().len() as u32, |object| self.group(object)),
            home,
            users: home,
            allocator: object.and_then(|object| index_of(machine, object.node)).map_or(home, PackedNode::from),
            owner: home,
            flags,
            part: part_of(access),
        }
    }
}

/// The share of the run, 0 to 1, that sleeps and time-outs of the threads that decide its end take. A thread that sleeps beside others decides nothing.
fn asleep_share(course: &Course, asleep: &[asleep::Asleep], run_ns: f64) -> f64 {
    let deciding = course.deciding();
    // Which waits timed out is not known, only for how long the thread waited so.
    let timed_out_ns = |(thread, waits_ns): (&u32, &f64)| {
        let of_thread: f64 = asleep.get(*thread as usize).map_or(0.0, |asleep| asleep.timed_out_ns.iter().sum());
        of_thread.min(*waits_ns)
    };
    let fixed_ns = deciding.sleeps_ns + deciding.waits_ns.iter().map(timed_out_ns).sum::<f64>();
    (fixed_ns / run_ns.max(1.0)).min(1.0)
}

/// The position of a node in the machine's list; `None` if it is not there.
pub(crate) fn index_of(machine: &Machine, node: Option<NodeId>) -> Option<NodeIndex> {
    machine.node_index(node?)
}

/// The part of the jackknife to which an access's cache line belongs.
pub(crate) fn part_of(access: &AccessRef) -> u8 {
    // Mixed, so that neighbouring lines fall into unrelated parts.
    (numapilot_random::mixed(access.address.0 / 64) % PARTS as u64) as u8
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Filter, Tables};
    use numapilot_trace::ids::{ThreadIndex, TimeNs};
    use numapilot_trace::record::Counters;

    use super::*;

    /// One that its program moved would hold a CPU of the node on which it started wherever nothing of it was sampled.
    #[test]
    fn a_thread_is_on_the_node_on_which_it_was_seen_most() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let thread = |index: u32, counts: bool| Thread {
            index: ThreadIndex(index),
            node: Some(NodeId(0)),
            counters: counts.then(Counters::default),
            ..Thread::default()
        };
        let threads = vec![thread(0, true), thread(1, true), thread(2, false)];
        let mut tables = Tables { threads, end: TimeNs(48_000), ..Tables::default() };
        for (thread, node) in [(0, 0), (0, 2), (0, 2), (2, 2)] {
            let (thread, node) = (ThreadIndex(thread), Some(NodeId(node)));
            tables.accesses.push(&AccessRef { thread, node, ..AccessRef::at(0x1000) });
        }
        let trace = Trace::from_tables(tables);
        let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
        let usage = Usage::of(&analysis, &machine, &BTreeMap::new());
        assert_eq!(usage.counted_on, [Some(NodeIndex(2)), Some(NodeIndex(0)), None], "the third was not counted");
    }
}
