//! Copies of files on several nodes while programs run, for programs of several processes that were started with the preload library of `numapilot-replica`
//! ([`Mappings`]). The processes of one node share its copy.
//!
//! The evidence needs no samples: the kernel reports which part of a file's mapping a process has used since the last reading ([`files`]), and such a mapping
//! is only read. To policies a page of a file is one page, whichever process uses it ([`registry`]). Policies order copies of pages; files are copied, and
//! copies released, as wholes. The libraries' answers are recorded as events.

pub mod files;
pub mod registry;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_kernel::actuator::free_memory::NodeMemory;
use numapilot_kernel::actuator::pace::Pace;
use numapilot_kernel::maps;
use numapilot_kernel::memory::PageQuery;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_placement::Action as Order;
use numapilot_placement::Outcome;
use numapilot_placement::PageKey;
use numapilot_placement::PageSize;
use numapilot_placement::ReadOnlyRange;
use numapilot_placement::Refusal;
use numapilot_replica::mappings::Action;
use numapilot_replica::mappings::Event as Answer;
use numapilot_replica::mappings::Mappings;
use numapilot_replica::orders;
use numapilot_replica::reason::Reason;

use crate::allowance::Allowance;
use crate::event;
use crate::evidence::observe::Use;
use crate::system::clock;
use crate::system::targets::ManagedProcess;
use crate::system::targets::Targets;
use registry::CopyDecision;
use registry::CopyRegistry;
use registry::SAMPLED;

/// Interval between two readings of file uses: clearing and reading the referenced bits costs both the process and the loop.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Share of a processor that readings may take once they have used up the advance.
const LOOK_SHARE: f64 = 0.002;
const LOOK_ADVANCE: Duration = Duration::from_secs(2);
/// Maximum wait for answers; later ones are read at the next observation.
const ANSWERS_WITHIN: Duration = Duration::from_millis(250);
const ANSWERS_EVERY: Duration = Duration::from_millis(2);
/// Share of a process's running time on one node, from which the process counts as running on that node.
const ON_ONE_NODE: f64 = 0.9;

/// The node on which a process runs. It changes only after two equal readings, because threads may be on another node for a moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Residence {
    /// The one node on which it runs.
    node: Option<NodeIndex>,
    /// The node at the last reading.
    seen: Option<NodeIndex>,
    /// Its running time by node at that reading.
    busy: Vec<f64>,
}

impl Residence {
    /// Takes a reading of the shares of time for which it ran on each node. Threads are not read every time, so an identical reading is ignored. If no thread
    /// ran, the node stays as it was.
    fn saw(&mut self, busy: Vec<f64>) {
        let total: f64 = busy.iter().sum();
        if total <= 0.0 || busy == self.busy {
            return;
        }
        let node = busy.iter().position(|share| *share >= ON_ONE_NODE * total).map(NodeIndex);
        if self.seen == node {
            self.node = node;
        }
        (self.seen, self.busy) = (node, busy);
    }
}

/// A process id, the node whose copy it is to show, and the file.
type Wanted = (Pid, NodeIndex, u64);

/// The outcome of a batch of orders.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// One outcome per order, in the same order.
    pub outcomes: Vec<Outcome>,
    /// What to restore if the batch is undone: files, and the nodes that had copies before.
    pub before: Vec<(u64, BTreeSet<NodeIndex>)>,
    /// The processes' answers, as events of the journal.
    pub events: Vec<event::Copies>,
    /// Nanoseconds until the processes had answered.
    pub took_ns: u64,
    /// What failed, a sentence each.
    pub troubles: Vec<String>,
}

/// The copies of files and the processes that use them.
#[derive(Debug)]
pub struct Copies {
    mappings: Mappings,
    ids: Vec<NodeId>,
    keep_bytes: u64,
    /// The rate of new copies.
    pace: Pace,
    started: Instant,
    registry: CopyRegistry,
    /// The nodes on which processes run, by process id.
    nodes: BTreeMap<Pid, Residence>,
    /// Processes that were read before, so that their uses since then are known.
    asked: BTreeSet<Pid>,
    /// The state that was last sent to the libraries.
    sent: BTreeSet<Wanted>,
    log_offset: u64,
    looks: u64,
    looked_at: Option<Instant>,
    allowance: Allowance,
    text: Vec<u8>,
    /// Copies that could not be made or are gone, to be reported to policies: pages with the node that keeps them.
    lost: Vec<(PageKey, NodeIndex)>,
}

impl Copies {
    /// Makes the copies of programs to which [`Mappings::apply`] was applied, with [`numapilot_replica::mappings::Rules::by_order`].
    #[must_use]
    pub fn new(mappings: Mappings, machine: &Machine, keep_bytes: u64) -> Copies {
        Copies {
            mappings,
            ids: machine.nodes().iter().map(|node| node.id).collect(),
            keep_bytes,
            pace: Pace::new(None),
            started: Instant::now(),
            registry: CopyRegistry::default(),
            nodes: BTreeMap::new(),
            asked: BTreeSet::new(),
            sent: BTreeSet::new(),
            log_offset: 0,
            looks: 0,
            looked_at: None,
            allowance: Allowance::new(LOOK_ADVANCE, LOOK_SHARE),
            text: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Sets another number of bytes that stay available on every node.
    pub fn set_keep_bytes(&mut self, keep_bytes: u64) {
        self.keep_bytes = keep_bytes;
    }

    /// Limits the bytes per second of new copies; `None`: any number. A file is copied whole, and the next one once that is made up for.
    pub fn set_rate(&mut self, bytes_per_s: Option<u64>) {
        self.pace.set_rate(self.now_ns(), bytes_per_s);
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Maps a page to the file page that policies know: process id and page; `None`: it is not a page of such a file.
    #[must_use]
    pub fn page(&self, pid: Pid, page: PageNumber) -> Option<(Pid, PageNumber)> {
        self.registry.page(pid, page)
    }

    /// Ranges that are mapped read-only and the nodes that have copies of them, ascending; processes by the numbers that policies use.
    #[must_use]
    pub fn ranges(&self, targets: &Targets) -> Vec<ReadOnlyRange> {
        let number_of = |pid: Pid| targets.all.get(&pid).map(ManagedProcess::number);
        let mut ranges: Vec<ReadOnlyRange> = self.registry.ranges(number_of).collect();
        ranges.sort_unstable_by_key(|range| (range.process, range.first));
        ranges
    }

    /// Copies that are gone since the last call.
    pub fn lost(&mut self) -> Vec<(PageKey, NodeIndex)> {
        std::mem::take(&mut self.lost)
    }

    /// Reads the uses of files, if a reading is due. `can_act`: processes that moved to a node with a copy get that copy.
    pub fn look(
        &mut self,
        targets: &mut Targets,
        query: &mut PageQuery,
        can_act: bool,
    ) -> (Vec<Use>, Vec<event::Copies>, Vec<String>) {
        let since = self.looked_at.map(|then| then.elapsed());
        if since.is_some_and(|since| since < LOOK_EVERY) {
            return (Vec::new(), Vec::new(), Vec::new());
        }
        self.looked_at = Some(Instant::now());
        self.allowance.passed(since.unwrap_or_default());
        if !self.allowance.is_left() {
            return (Vec::new(), Vec::new(), Vec::new());
        }
        let begun = clock::own_cpu();
        let (mut uses, mut troubles) = (Vec::new(), Vec::new());
        self.registry.keep(|pid| targets.all.contains_key(&pid));
        self.nodes.retain(|pid, _| targets.all.contains_key(pid));
        let asked = std::mem::take(&mut self.asked);
        for (pid, managed) in &targets.all {
            if let Err(error) = self.look_at(*pid, managed) {
                troubles.push(error);
            }
        }
        // The first reading covers the time since the process's start, including pages that were only mapped.
        for (pid, managed) in targets.all.iter().filter(|(pid, _)| asked.contains(pid)) {
            self.uses_of(*pid, managed, targets, query, &mut uses);
        }
        self.looks += 1;
        let mut events = self.read_answers(0, targets);
        if can_act && let Err(error) = self.send_wanted() {
            troubles.push(error);
        }
        events.retain(|event| !event.processes.is_empty());
        self.allowance.spent(clock::own_cpu().saturating_sub(begun));
        (uses, events, troubles)
    }

    fn look_at(&mut self, pid: Pid, managed: &ManagedProcess) -> Result<(), String> {
        // A process that has ended is noticed at the next observation.
        let Ok(Some(found)) = files::read(pid, self.mappings.folder(), &mut self.text) else { return Ok(()) };
        self.registry.saw(pid, found);
        self.asked.insert(pid);
        let mut busy = vec![0.0; self.ids.len()];
        managed.threads.values().for_each(|thread| busy[thread.node] += thread.busy);
        self.nodes.entry(pid).or_default().saw(busy);
        match maps::clear_referenced(pid) {
            Err(error) if !matches!(error, numapilot_kernel::KernelError::Gone { .. }) => {
                Err(format!("which mapped files a process uses cannot be read: {error}"))
            }
            _ => Ok(()),
        }
    }

    /// Converts a process's uses of files to uses of pages: of each mapping, the share of sampled pages that was used.
    fn uses_of(
        &self,
        pid: Pid,
        managed: &ManagedProcess,
        targets: &Targets,
        query: &mut PageQuery,
        uses: &mut Vec<Use>,
    ) {
        let mut threads: Vec<_> = managed.threads.values().filter(|thread| thread.busy > 0.0).collect();
        threads.sort_by(|a, b| b.busy.total_cmp(&a.busy));
        if threads.is_empty() {
            return;
        }
        for one in self.registry.mappings_of(pid) {
            let sampled = registry::sampled_pages(&one.part);
            let used = (SAMPLED * one.referenced_bytes).div_ceil(one.part.bytes).min(sampled);
            let step = one.part.bytes / PageNumber::BYTES / sampled;
            // If only a part was used, it is not known which: pages take turns.
            let first = one.start.page();
            let pages = (0..used).map(|at| first + (at + self.looks * used) % sampled * step);
            let addresses: Vec<u64> = pages.map(PageNumber::address).collect();
            let mut states = Vec::new();
            if query.states(pid, &addresses, &mut states).is_err() {
                return;
            }
            for (at, (address, state)) in addresses.iter().zip(&states).enumerate() {
                let home = state.node().and_then(|node| self.ids.iter().position(|id| *id == node)).map(NodeIndex);
                let (Some(home), Some((owner, page))) = (home, self.registry.page(pid, PageNumber::of(*address)))
                else {
                    continue;
                };
                let Some(owner) = targets.all.get(&owner) else { continue };
                let thread = threads[at % threads.len()];
                uses.push(Use {
                    process: owner.number(),
                    page,
                    is_large: false,
                    thread: thread.number,
                    from: thread.node,
                    home,
                    is_sampled: false,
                    is_read_only: true,
                });
            }
        }
    }

    /// Why an order needs no action now: the file has these copies, or too few of its pages are ordered so far (this one is noted).
    pub fn need_not(&mut self, order: &Order, targets: &Targets) -> Option<Refusal> {
        let Order::Replicate { page, nodes } = order else { return None };
        let pid = targets.by_number(page.process)?.target.pid;
        let copies = self.registry.copies(self.registry.file_of(pid, page.page)?);
        let is_done = !copies.is_empty() && nodes.iter().all(|node| copies.contains(node));
        let decision = self.registry.want(pid, page.page);
        match decision {
            _ if is_done => Some(Refusal::AlreadyThere),
            CopyDecision::TooFew => Some(Refusal::Busy),
            CopyDecision::Enough | CopyDecision::Unknown => None,
        }
    }

    /// Whether an order is about a page of a file that can be copied.
    #[must_use]
    pub fn is_about_copies(&self, order: &Order, targets: &Targets) -> bool {
        match order {
            Order::Replicate { .. } => true,
            // An order to move a copied page means that the copies are to be released.
            Order::Migrate { page, .. } => {
                self.file_of(page, targets).is_some_and(|file| !self.registry.copies(file).is_empty())
            }
            _ => false,
        }
    }

    fn file_of(&self, page: &PageKey, targets: &Targets) -> Option<u64> {
        self.registry.file_of(targets.by_number(page.process)?.target.pid, page.page)
    }

    /// Carries out orders for which [`Copies::is_about_copies`] is true. `memory`: of each node; what copies take is subtracted.
    pub fn carry_out(
        &mut self,
        decision: u64,
        orders: Vec<Order>,
        targets: &Targets,
        memory: &mut [NodeMemory],
    ) -> Copied {
        let mut done = Copied::default();
        let mut before: BTreeMap<u64, BTreeSet<NodeIndex>> = BTreeMap::new();
        let mut results: Vec<Result<Option<u64>, Refusal>> = Vec::new();
        // What each node can give to all of these files together.
        let mut left: Vec<u64> =
            memory.iter().map(|memory| memory.available_bytes().saturating_sub(self.keep_bytes)).collect();
        let had = left.clone();
        for order in &orders {
            let (Order::Replicate { page, .. } | Order::Migrate { page, .. }) = order else {
                results.push(Err(Refusal::Unsupported));
                continue;
            };
            let Some(file) = self.file_of(page, targets) else {
                results.push(Err(Refusal::Unsupported));
                continue;
            };
            before.entry(file).or_insert_with(|| self.registry.copies(file));
            results.push(self.order(file, order, targets, &mut left));
        }
        for (memory, (had, left)) in memory.iter_mut().zip(had.iter().zip(&left)) {
            memory.free_bytes = memory.free_bytes.saturating_sub(had - left);
        }
        self.send_and_wait(decision, targets, &mut done);
        before.retain(|file, copies| *copies != self.registry.copies(*file));
        done.before = before.into_iter().collect();
        let carried = results.iter().filter(|result| matches!(result, Ok(Some(_)))).count().max(1);
        let each_ns = done.took_ns as f64 / carried as f64;
        let outcome = |(action, result): (Order, Result<Option<u64>, Refusal>)| {
            let result = match result {
                // All processes may have refused.
                Ok(Some(file)) if self.registry.copies(file).is_empty() => Err(Refusal::NoRoom),
                Ok(Some(_)) => Ok(each_ns),
                Ok(None) => Ok(0.0),
                Err(refusal) => Err(refusal),
            };
            Outcome { action, result }
        };
        done.outcomes = orders.into_iter().zip(results).map(outcome).collect();
        done
    }

    /// Registers one order. `left`: bytes that each node can still give. `Ok(Some(file))`: the file's copies change; `Ok(None)`: they are as ordered already.
    fn order(&mut self, file: u64, order: &Order, targets: &Targets, left: &mut [u64]) -> Result<Option<u64>, Refusal> {
        let Order::Replicate { page, nodes } = order else {
            self.registry.set_copies(file, BTreeSet::new());
            return Ok(None);
        };
        let (had, bytes) = (self.registry.copies(file), self.registry.bytes(file));
        let has_room = |node: &NodeIndex| had.contains(node) || left.get(node.0).is_some_and(|left| *left >= bytes);
        let nodes: Vec<NodeIndex> = nodes.iter().copied().filter(has_room).collect();
        if nodes.len() < 2 {
            return Err(Refusal::NoRoom);
        }
        let pid = targets.by_number(page.process).map(|managed| managed.target.pid).ok_or(Refusal::Gone)?;
        match self.registry.want(pid, page.page) {
            CopyDecision::Enough => {
                let new: Vec<NodeIndex> = nodes.iter().copied().filter(|node| !had.contains(node)).collect();
                if !new.is_empty() && self.pace.wait_ns(self.now_ns()) > 0 {
                    return Err(Refusal::Busy);
                }
                self.pace.spend(self.now_ns(), bytes.saturating_mul(new.len() as u64));
                for node in new {
                    left[node] -= bytes;
                }
                self.registry.set_copies(file, had.iter().copied().chain(nodes).collect());
                Ok((self.registry.copies(file) != had).then_some(file))
            }
            CopyDecision::TooFew => Err(Refusal::Busy),
            CopyDecision::Unknown => Err(Refusal::Gone),
        }
    }

    /// Undoes a batch: each file in `before` has copies again where it had them. `decision` is the batch's number in the journal.
    pub fn take_back(&mut self, decision: u64, before: &[(u64, BTreeSet<NodeIndex>)], targets: &Targets) -> Copied {
        let mut done = Copied::default();
        for (file, copies) in before {
            self.report_lost(*file, targets);
            self.registry.set_copies(*file, copies.clone());
        }
        self.send_and_wait(decision, targets, &mut done);
        done
    }

    fn send_and_wait(&mut self, decision: u64, targets: &Targets, done: &mut Copied) {
        let begun = Instant::now();
        match self.send_wanted() {
            Ok(changed) => done.events = self.wait(decision, changed, targets),
            Err(error) => done.troubles.push(error),
        }
        done.took_ns = begun.elapsed().as_nanos() as u64;
    }

    /// Sends the wanted state to the libraries, if it has changed. Returns the changes.
    fn send_wanted(&mut self) -> Result<Vec<Wanted>, String> {
        let wanted = self.registry.wanted(|pid| self.nodes.get(&pid)?.node);
        if wanted == self.sent {
            return Ok(Vec::new());
        }
        let order = |(pid, node, file): &Wanted| {
            let path = self.registry.path(*file)?.clone();
            Some(orders::Order { pid: *pid, node: self.ids[*node], inode: *file, path })
        };
        let all: Vec<orders::Order> = wanted.iter().filter_map(order).collect();
        self.mappings.order(&all).map_err(|error| error.to_string())?;
        let changed = wanted.symmetric_difference(&self.sent).copied().collect();
        self.sent = wanted;
        Ok(changed)
    }

    /// Waits until every process has answered, at most [`ANSWERS_WITHIN`].
    fn wait(&mut self, decision: u64, changed: Vec<Wanted>, targets: &Targets) -> Vec<event::Copies> {
        let until = Instant::now() + ANSWERS_WITHIN;
        let mut expected: BTreeSet<(Pid, u64)> = changed.into_iter().map(|(pid, _, file)| (pid, file)).collect();
        let mut events: Vec<event::Copies> = Vec::new();
        while !expected.is_empty() && Instant::now() < until {
            for event in self.read_answers(decision, targets) {
                if let Some(file) = self.registry.by_path(std::path::Path::new(&event.file)) {
                    expected.retain(|(pid, of)| *of != file || event.processes.iter().all(|one| one.pid != *pid));
                }
                match events.iter_mut().find(|known| known.file == event.file) {
                    Some(known) => known.processes.extend(event.processes),
                    None => events.push(event),
                }
            }
            std::thread::sleep(ANSWERS_EVERY);
        }
        events
    }

    /// Reads the answers since the last observation or order, at the end of the run.
    pub fn last_answers(&mut self, targets: &Targets) -> Vec<event::Copies> {
        self.read_answers(0, targets)
    }

    /// Reads the processes' new answers, by file.
    fn read_answers(&mut self, decision: u64, targets: &Targets) -> Vec<event::Copies> {
        // A log that cannot be read now is read at the next call.
        let Ok(answers) = self.mappings.news(&mut self.log_offset) else { return Vec::new() };
        let mut by_file: BTreeMap<String, event::Copies> = BTreeMap::new();
        for answer in answers {
            let path = answer.path.display().to_string();
            let event = by_file.entry(path.clone()).or_insert_with(|| event::Copies {
                decision,
                file: path,
                processes: Vec::new(),
            });
            event.processes.push(answer_event(&answer));
            self.handle_refusal(&answer, targets);
        }
        by_file.into_values().collect()
    }

    /// Gives up a file that a process cannot copy; if a node lacks memory, only that node's copy.
    fn handle_refusal(&mut self, answer: &Answer, targets: &Targets) {
        let Some(file) = self.registry.by_path(&answer.path) else { return };
        if answer.action != Action::Left || answer.reason == Some(Reason::AlreadyThere) {
            return;
        }
        self.report_lost(file, targets);
        let full = answer.node.and_then(|node| self.ids.iter().position(|id| *id == node)).map(NodeIndex);
        match full.filter(|_| answer.reason.is_some_and(Reason::is_lack_of_memory)) {
            Some(node) => {
                let mut copies = self.registry.copies(file);
                copies.remove(&node);
                self.registry.set_copies(file, if copies.len() < 2 { BTreeSet::new() } else { copies });
            }
            None => self.registry.refuse(file),
        }
    }

    fn report_lost(&mut self, file: u64, targets: &Targets) {
        let home = self.registry.copies(file).first().copied().unwrap_or_default();
        for (pid, page) in self.registry.wanted_pages(file) {
            if let Some(managed) = targets.all.get(&pid) {
                self.lost.push((PageKey { process: managed.number(), page, size: PageSize::Small }, home));
            }
        }
    }
}

fn answer_event(answer: &Answer) -> event::CopyTold {
    let done = match answer.action {
        Action::Replaced => event::CopyDone::Copied,
        Action::Left => event::CopyDone::Left,
        Action::Collapsed => event::CopyDone::Collapsed,
        Action::GivenBack => event::CopyDone::GivenBack,
    };
    event::CopyTold {
        pid: answer.pid,
        node: answer.node,
        bytes: answer.bytes,
        done,
        because: answer.reason.map(|reason| reason.text().to_owned()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use numapilot_host::VirtAddr;
    use numapilot_replica::mappings::Rules;

    use super::*;

    fn found(inode: u64) -> files::Found {
        files::Found {
            start: VirtAddr(inode << 24),
            part: files::Part { inode, offset: 0, bytes: 64 << 12 },
            path: Some(format!("/file-{inode}").into()),
            copy_of: None,
            referenced_bytes: 0,
        }
    }

    /// Copies that know of files 1 and 2 of this process, all of whose pages were ordered; and what orders a page of a file on two nodes.
    fn with_two_files() -> (Copies, Targets, impl Fn(u64, u64) -> Order) {
        let mappings = Mappings::prepare(Rules { by_order: true, ..Rules::default() }).unwrap();
        let mut copies = Copies::new(mappings, &Machine::live().unwrap(), 0);
        let (pid, mut targets) = (Pid::own(), Targets::default());
        targets.add(pid).unwrap();
        let process = targets.all[&pid].number();
        copies.registry.saw(pid, vec![found(1), found(2)]);
        let order = move |inode: u64, page: u64| {
            let page = PageKey { process, page: PageNumber((inode << 12) + page), size: PageSize::Small };
            Order::Replicate { page, nodes: [0, 1].map(NodeIndex).to_vec() }
        };
        for page in 0..16 {
            let _ = copies.need_not(&order(1, page), &targets);
            let _ = copies.need_not(&order(2, page), &targets);
        }
        (copies, targets, order)
    }

    #[test]
    fn an_answer_of_a_process_that_has_ended_is_told_once() {
        let mappings = Mappings::prepare(Rules { by_order: true, ..Rules::default() }).unwrap();
        let log = mappings.folder().join("log");
        let mut copies = Copies::new(mappings, &Machine::live().unwrap(), 0);
        let targets = Targets::default();
        assert!(copies.last_answers(&targets).is_empty());
        std::fs::write(log, "7\t1\treplaced\t4096\t7f0000000000\t-\t/tmp/data\n").unwrap();
        let told = copies.last_answers(&targets);
        let [event::Copies { file, processes, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (file.as_str(), processes[0].pid, processes[0].done),
            ("/tmp/data", Pid(7), event::CopyDone::Copied)
        );
        assert!(copies.last_answers(&targets).is_empty());
    }

    /// The reasons were told apart by their texts: one that names locked memory was taken for a node that has none left.
    #[test]
    fn only_lack_of_memory_spares_the_copies_of_other_nodes() {
        for (word, left, is_refused) in
            [("special", vec![], true), ("node-full", vec![1, 2], false), ("already-there", vec![0, 1, 2], false)]
        {
            let mappings = Mappings::prepare(Rules { by_order: true, ..Rules::default() }).unwrap();
            let log = mappings.folder().join("log");
            let mut copies = Copies::new(mappings, &Machine::live().unwrap(), 0);
            copies.registry.saw(Pid(7), vec![found(1)]);
            copies.registry.set_copies(1, [0, 1, 2].map(NodeIndex).into());
            std::fs::write(log, format!("7\t{}\tleft\t4096\t7f0000000000\t{word}\t/file-1\n", copies.ids[0])).unwrap();
            assert_eq!(copies.last_answers(&Targets::default()).len(), 1, "{word}");
            let nodes: Vec<usize> = copies.registry.copies(1).iter().map(|node| node.0).collect();
            assert_eq!((nodes, copies.registry.mappings_of(Pid(7)).count() == 0), (left, is_refused), "{word}");
        }
    }

    /// Each file was compared with the same free memory: files that fitted one by one were copied together, into the memory that is to stay free.
    #[test]
    fn files_of_one_batch_share_what_a_node_has_left() {
        let (mut copies, targets, order) = with_two_files();
        // For one copy of 256 KiB on each.
        let room = [NodeMemory { free_bytes: 300 << 10, ..NodeMemory::default() }; 2];
        let mut memory = room;
        let done = copies.carry_out(1, vec![order(1, 15), order(2, 15)], &targets, &mut memory);
        assert!(done.outcomes[0].result.is_ok(), "{done:?}");
        assert_eq!(done.outcomes[1].result, Err(Refusal::NoRoom));
        // Nor does the next batch get what this one has taken, before memory is read again.
        let done = copies.carry_out(2, vec![order(2, 15)], &targets, &mut memory);
        assert_eq!((done.outcomes[0].result, memory[0].free_bytes), (Err(Refusal::NoRoom), 44 << 10));
        // A reload of the configuration left copies the memory that they might use before.
        copies.set_keep_bytes(100 << 10);
        memory = room;
        let done = copies.carry_out(3, vec![order(2, 15)], &targets, &mut memory);
        assert_eq!(done.outcomes[0].result, Err(Refusal::NoRoom));
        copies.set_keep_bytes(0);
        let done = copies.carry_out(4, vec![order(2, 15)], &targets, &mut memory);
        assert!(done.outcomes[0].result.is_ok(), "{done:?}");
    }

    /// The rate limited moves alone: a batch of files was copied at once, whatever they took of the memory's bandwidth.
    #[test]
    fn copies_keep_to_the_rate() {
        let (mut copies, targets, order) = with_two_files();
        let mut memory = [NodeMemory { free_bytes: 1 << 30, ..NodeMemory::default() }; 2];
        // A byte per second: the first file is paid for in days.
        copies.set_rate(Some(1));
        let done = copies.carry_out(1, vec![order(1, 15), order(2, 15)], &targets, &mut memory);
        assert!(done.outcomes[0].result.is_ok(), "{done:?}");
        assert_eq!(done.outcomes[1].result, Err(Refusal::Busy), "it may be ordered again");
        assert_eq!(memory[0].free_bytes, (1 << 30) - (256 << 10), "nothing was taken for the second");
        copies.set_rate(None);
        let done = copies.carry_out(2, vec![order(2, 15)], &targets, &mut memory);
        assert!(done.outcomes[0].result.is_ok(), "{done:?}");
    }

    #[test]
    fn a_process_lives_where_it_was_seen_twice() {
        let (mut residence, mut looks) = (Residence::default(), 0.0);
        let mut saw = |shares: [f64; 3]| {
            looks += 1e-6;
            residence.saw(shares.iter().map(|share| share + if *share > 0.0 { looks } else { 0.0 }).collect());
            residence.node.map(|node| node.0)
        };
        let (on_1, on_2, on_both, idle) = ([0.0, 0.9, 0.05], [0.0, 0.0, 0.5], [0.0, 0.5, 0.5], [0.0; 3]);
        assert_eq!([saw(on_1), saw(on_1)], [None, Some(1)]);
        assert_eq!([saw(on_both), saw(on_1), saw(on_2)], [Some(1); 3], "for a moment only");
        assert_eq!([saw(on_2), saw(idle), saw(idle)], [Some(2); 3]);
        assert_eq!([saw(on_both), saw(on_both)], [Some(2), None], "on several");
        let mut residence = Residence::default();
        residence.saw(vec![0.5, 0.0]);
        residence.saw(vec![0.5, 0.0]);
        assert_eq!(residence.node, None, "the same look twice");
    }
}
