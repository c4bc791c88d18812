//! Places a unit on nodes: by the CPUs of its cgroup's cpuset, or by its threads' affinities, followed by a move of its pages. The previous state is recorded
//! first, and restored when the unit is released. Where its pages were is remembered until the placement is judged.
//!
//! The nodes of a cpuset (`cpuset.mems`) stay as they are. They bind for good: when the nodes are full, the kernel reclaims and swaps there, and then ends the
//! program, however much is free elsewhere. Without them, new memory is local as long as there is room, and on other nodes after that.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_host::VirtAddr;
use numapilot_kernel::KernelError;
use numapilot_kernel::actuator::Mover;
use numapilot_kernel::affinity::CpuMask;
use numapilot_kernel::cgroup;
use numapilot_kernel::migrate;
use numapilot_kernel::migrate::Migration;
use numapilot_kernel::migrate::Route;
use numapilot_kernel::task;
use numapilot_kernel::thread_cpus;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeSet;
use numapilot_machine::format_cpu_list;

use super::units::Allowed;
use super::units::Unit;
use super::units::Watched;
use crate::event::Setting;
use crate::execution::binding;
use crate::execution::progress::Progress;
use crate::execution::settings::Settings;
use crate::system::bound::Bound;
use crate::system::undo_log::Binding;
use crate::system::undo_log::ThreadId;
use crate::system::undo_log::UndoLog;

/// Number of passes over the threads, because new ones may be created while others are bound.
const PASSES: usize = 4;

/// Least age of a reading of a program's memory policies that is read anew before its pages move.
const POLICIES_EVERY: Duration = Duration::from_secs(5);

/// A unit that was placed.
#[derive(Default)]
pub struct Held {
    /// The nodes on which it is placed.
    pub nodes: NodeSet,
    /// Those of its last placement that was kept; `None`: none was judged yet.
    pub kept: Option<NodeSet>,
    /// CPUs and nodes that it was allowed to use before.
    pub allowed: Option<Allowed>,
    /// What of these it may use now, as last read ([`Held::look_at_allowed`]).
    pub allowed_now: Option<Allowed>,
    threads: BTreeMap<ThreadId, Bound>,
    /// The affinity that its first thread inherited, if its parent was placed before it.
    born: Option<Bound>,
    cpuset: Settings,
    /// Whether its memory has not been moved to the end, because a stop or pause came.
    pub is_unfinished: bool,
    /// The decision that placed it there; 0: it has its parent's placement.
    pub decision: u64,
}

/// The outcome of placing a unit.
#[derive(Default)]
pub struct Placed {
    /// Number of threads that were bound.
    pub threads: u64,
    /// Outcomes of the page moves.
    pub moved: Vec<Migration>,
    /// Settings that were changed.
    pub settings: Vec<Setting>,
    /// What failed, a sentence each.
    pub troubles: Vec<String>,
    /// Whether the previous state could not be recorded; then the unit is not moved.
    pub is_refused: bool,
    /// Whether a stop or pause ended the work.
    pub is_ended: bool,
    /// Whether an earlier placement was undone; `threads` are then those that were released, or bound as before it.
    pub is_undo: bool,
}

impl Placed {
    /// Whether anything is other than before.
    #[must_use]
    pub fn is_change(&self) -> bool {
        let has_moved = self.moved.iter().any(|moved| moved.pages.moved > 0);
        !self.is_refused && (self.threads > 0 || !self.settings.is_empty() || has_moved)
    }

    /// Nanoseconds in system calls that move pages.
    #[must_use]
    pub fn moving_ns(&self) -> u64 {
        self.moved.iter().map(|moved| moved.moving.as_nanos() as u64).sum()
    }
}

/// The kernel's numbers of these nodes.
#[must_use]
pub fn ids(machine: &Machine, nodes: NodeSet) -> Vec<NodeId> {
    nodes.iter().filter_map(|at| machine.nodes().get(at.0).map(|node| node.id)).collect()
}

fn cpus(machine: &Machine, nodes: NodeSet) -> CpuMask {
    nodes.iter().filter_map(|at| machine.nodes().get(at.0)).flat_map(|node| node.cpus.iter().copied()).collect()
}

impl Held {
    /// The state that a child of a placed process inherits; `None`: no threads were bound.
    pub fn of_child(&self) -> Option<Held> {
        let born = self.threads.values().next()?.clone();
        Some(Held { nodes: self.nodes, allowed: self.allowed.clone(), born: Some(born), ..Held::default() })
    }

    /// Writes the nodes' CPUs into a cgroup's cpuset. False: that is not possible, and nothing was changed.
    pub fn by_cpuset(
        &mut self,
        folder: &Path,
        machine: &Machine,
        progress: &mut dyn Progress,
        placed: &mut Placed,
    ) -> bool {
        let Some(before) = self.allowed.clone().or_else(|| allowed_by(folder)) else { return false };
        let allowed = self.allowed_now.as_ref().unwrap_or(&before);
        let within = allowed.cpus.and(&cpus(machine, self.nodes));
        if within.is_empty() {
            return false;
        }
        let list = format_cpu_list(within.cpus().iter().map(|cpu| cpu.0));
        match self.cpuset.set_slowly(&folder.join("cpuset.cpus").display().to_string(), &list, progress) {
            Ok(setting) => placed.settings.extend(setting),
            Err(why) => {
                placed
                    .troubles
                    .push(format!("{why}; its processes are placed by the affinities of their threads instead"));
                placed.settings.extend(self.cpuset.put_all_back(progress.undo_log()));
                return false;
            }
        }
        self.allowed = Some(before);
        true
    }

    /// Reads again what the unit is allowed to use, apart from what this program has written: its administrator may have changed the cpuset, or one above it.
    pub fn look_at_allowed(&mut self, root: &Path, unit: &Unit, first: Option<Pid>) {
        let Some(before) = &mut self.allowed else { return };
        self.allowed_now = match unit {
            Unit::Process(_) => first.and_then(|pid| before.now(root, pid)),
            Unit::Cgroup(folder) => {
                let Some(now) = cgroup::cpuset(folder) else { return };
                if self.cpuset.is_anothers(&folder.join("cpuset.cpus").display().to_string()) {
                    before.cpus = now.effective_cpus;
                }
                // This program does not write them.
                before.mems = now.effective_mems;
                folder.parent().and_then(cgroup::nearest_cpuset).map(|above| before.within(&above))
            }
        };
    }

    /// Binds the threads of a process to the CPUs of the nodes that it may use. `online`: the CPUs that are, read once for many threads.
    pub fn by_affinity(
        &mut self,
        pid: Pid,
        machine: &Machine,
        online: Option<&CpuMask>,
        undo_log: &mut dyn UndoLog,
        placed: &mut Placed,
    ) {
        let wanted = cpus(machine, self.nodes);
        // The affinity that a new thread inherits from a bound thread.
        let born = self.threads.iter().find(|(id, _)| id.pid == pid).map(|(_, bound)| bound.clone());
        let born = born.or_else(|| self.born.clone());
        self.forget_ended(pid, undo_log);
        for _ in 0..PASSES {
            let ids = threads_of(pid);
            let is_born = |id: &&ThreadId| {
                let is_as_born = |born: &Bound| binding::is_ours_with(**id, born, online);
                !self.threads.contains_key(id) && born.as_ref().is_some_and(is_as_born)
            };
            let adopted: Vec<ThreadId> = ids.iter().filter(is_born).copied().collect();
            let inherited =
                |id: ThreadId| born.clone().map(|born| Binding { thread: id, was: born.before, now: born.ours });
            let mut bindings: Vec<Binding> = adopted.into_iter().filter_map(inherited).collect();
            let known = bindings
                .iter()
                .map(|one| (one.thread, Bound { before: one.was.clone(), ours: one.now.clone(), is_inherited: true }));
            self.threads.extend(known);
            for id in ids {
                let bound = self.threads.get(&id);
                let planned = binding::planned_change(id, bound, &wanted, online, &mut placed.troubles);
                bindings.extend(planned.ok().flatten());
            }
            if bindings.is_empty() {
                return;
            }
            if let Err(why) = undo_log.will_bind(&bindings) {
                placed.troubles.push(format!("process {pid} is not moved: {why}"));
                placed.is_refused = true;
                return;
            }
            for one in bindings {
                placed.threads += u64::from(self.carry_out(&one));
            }
        }
    }

    /// Forgets threads of a process that have ended: a program that starts and ends threads all the time would add to them for as long as it runs.
    fn forget_ended(&mut self, pid: Pid, undo_log: &mut dyn UndoLog) {
        // Where they cannot be listed now, none is taken for ended: those that run are to get back their affinities.
        let Ok(tids) = task::threads_of(pid) else { return };
        let has_ended = |id: &ThreadId| id.pid == pid && tids.binary_search(&id.tid).is_err();
        let ended: Vec<ThreadId> = self.threads.keys().copied().filter(has_ended).collect();
        if !ended.is_empty() {
            self.threads.retain(|id, _| !has_ended(id));
            undo_log.unbound(&ended);
        }
    }

    fn carry_out(&mut self, one: &Binding) -> bool {
        let is_bound = binding::bind(one).is_ok();
        if is_bound {
            let bound = Bound::after(one, self.threads.remove(&one.thread));
            self.threads.insert(one.thread, bound);
        }
        is_bound
    }

    /// Records and carries out one binding.
    #[cfg(test)]
    pub(super) fn bind(&mut self, one: Binding, undo_log: &mut dyn UndoLog) {
        undo_log.will_bind(std::slice::from_ref(&one)).unwrap();
        assert!(self.carry_out(&one));
    }

    /// Restores the affinities that a process's threads have inherited from this unit, if it is a child that is no unit itself.
    pub fn release_child(&self, pid: Pid) {
        binding::release_unseen(pid, |_| false, &self.bindings());
    }

    /// The different bindings of its threads.
    fn bindings(&self) -> Vec<Bound> {
        let mut all: Vec<Bound> = Vec::new();
        for bound in self.threads.values().chain(&self.born) {
            if !all.iter().any(|known| known.is_same_change(bound)) {
                all.push(bound.clone());
            }
        }
        all
    }

    /// Whether it has the placement of its parent.
    #[must_use]
    pub fn is_heir(&self) -> bool {
        self.born.is_some()
    }

    /// Number of threads that are bound.
    #[must_use]
    pub fn bound_threads(&self) -> u64 {
        self.threads.len() as u64
    }

    /// Restores where the unit may run. Its memory stays where it is.
    pub fn release(&mut self, undo_log: &mut dyn UndoLog) -> Vec<Setting> {
        let (mut free, bindings) = (Vec::new(), self.bindings());
        let threads = std::mem::take(&mut self.threads);
        let known: BTreeSet<Tid> = threads.keys().map(|id| id.tid).collect();
        let pids: BTreeSet<Pid> = threads.keys().map(|id| id.pid).collect();
        for (id, bound) in threads {
            if !binding::is_ours(id, &bound) || thread_cpus::restore(id.pid, id.tid, &bound.before).is_ok() {
                free.push(id);
            }
        }
        pids.into_iter().for_each(|pid| binding::release_unseen(pid, |tid| known.contains(&tid), &bindings));
        if !free.is_empty() {
            undo_log.unbound(&free);
        }
        self.cpuset.put_all_back(undo_log)
    }
}

fn threads_of(pid: Pid) -> Vec<ThreadId> {
    let tids = task::threads_of(pid).unwrap_or_default();
    let id = |tid: Tid| {
        let stat = task::stat_of_thread(pid, tid).ok()?;
        Some(ThreadId { pid, tid, start_ticks: stat.start_ticks })
    };
    tids.into_iter().filter_map(id).collect()
}

fn allowed_by(folder: &Path) -> Option<Allowed> {
    let cpuset = cgroup::cpuset(folder)?;
    Some(Allowed { cpus: cpuset.effective_cpus, mems: cpuset.effective_mems })
}

/// Moves a process's pages from all other nodes to its own, but for memory for which the program has set a policy (unless `moves_bound`). What has moved is in
/// `placed`, also where `progress` ends the work or the pages may not be moved; then the reason is among the error messages.
pub fn gather(
    one: &mut Watched,
    machine: &Machine,
    (nodes, moves_bound): (NodeSet, bool),
    mover: &mut Mover,
    progress: &mut dyn Progress,
    placed: &mut Placed,
) {
    let to = ids(machine, nodes);
    let all = machine.nodes().iter().filter(|node| node.has_memory());
    let from: Vec<NodeId> = all.map(|node| node.id).filter(|id| !to.contains(id)).collect();
    let Some(route) = Route::new(&from, &to) else { return };
    let Some(chosen) = chosen(one, moves_bound, placed) else { return };
    let (mut route, mut moved) = (route.without(chosen), Migration::default());
    let hands = (mover, &mut one.origins);
    let result = migrate::run_remembering(&mut moved, &one.process, &mut route, hands, &mut |_| progress.goes_on());
    account(one, moved, result, placed);
}

/// Moves a process's pages back to where they were before they were gathered, but for memory for which the program has set a policy meanwhile (unless
/// `moves_bound`). `placed` is as for [`gather`].
pub fn back(one: &mut Watched, moves_bound: bool, mover: &mut Mover, progress: &mut dyn Progress, placed: &mut Placed) {
    let mut origins = std::mem::take(&mut one.origins);
    if origins.is_empty() {
        return;
    }
    let Some(chosen) = chosen(one, moves_bound, placed) else { return };
    let mut moved = Migration::default();
    let result = migrate::back(&mut moved, &one.process, &mut origins, &chosen, mover, &mut |_| progress.goes_on());
    account(one, moved, result, placed);
}

/// The memory of a process that is not to be moved, ascending and disjoint: that for which the program has set a policy, unless `moves_bound`. `None`: it is
/// not known, so nothing is to be moved; the reason is among the error messages.
fn chosen(one: &mut Watched, moves_bound: bool, placed: &mut Placed) -> Option<Vec<(VirtAddr, VirtAddr)>> {
    if moves_bound {
        return Some(Vec::new());
    }
    let pid = one.target.pid;
    let chosen = one.numa.of(pid, POLICIES_EVERY).chosen.clone();
    if let Some(why) = one.numa.why_unread(pid) {
        placed.troubles.push(why);
        return None;
    }
    if !chosen.is_empty() {
        placed.troubles.extend(one.numa.news(pid, &one.target.name));
    }
    Some(chosen)
}

/// Adds a migration of a process's pages to what was done.
fn account(one: &mut Watched, moved: Migration, result: Result<(), KernelError>, placed: &mut Placed) {
    let pid = one.target.pid;
    if let Err(error) = result {
        placed.troubles.push(format!("process {pid}: {error}"));
    }
    placed.troubles.extend(moved.refused.iter().map(|(node, why)| why.error(pid, *node).to_string()));
    placed.is_ended |= moved.stopped;
    placed.moved.push(moved);
    one.numa.is_outdated();
}

#[cfg(test)]
mod tests {
    //! Made cgroups, and this process.

    use std::fs;

    use numapilot_kernel::actuator::MoveOptions;

    use super::*;
    use crate::execution::progress::tests::Until;
    use crate::system::undo_log::tests::Kept;

    #[test]
    fn a_cpuset_that_its_administrator_changes_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let set = |folder: &str, what: &str, own: &str, effective: &str| {
            put(&format!("{folder}/cpuset.{what}"), &format!("{own}\n"));
            put(&format!("{folder}/cpuset.{what}.effective"), &format!("{effective}\n"));
        };
        put("jobs/cgroup.procs", "");
        put("jobs/a/cgroup.procs", "");
        for folder in ["jobs", "jobs/a"] {
            set(folder, "cpus", "0-7", "0-7");
            set(folder, "mems", "0-3", "0-3");
        }
        let folder = root.path().join("jobs/a");
        let allowed = allowed_by(&folder).unwrap();
        let mut held = Held { allowed: Some(allowed), ..Held::default() };
        let mut progress = Until::ever();
        let cpus = folder.join("cpuset.cpus").display().to_string();
        held.cpuset.set_slowly(&cpus, "4-5", &mut progress).unwrap();
        put("jobs/a/cpuset.cpus.effective", "4-5\n");
        let unit = Unit::Cgroup(folder);
        let cpus = |held: &Held| held.allowed_now.as_ref().unwrap().cpus.cpus().len();
        let nodes = |held: &Held| held.allowed_now.as_ref().unwrap().mems.iter().map(|node| node.0).collect::<Vec<_>>();
        held.look_at_allowed(root.path(), &unit, None);
        assert_eq!((cpus(&held), nodes(&held)), (8, vec![0, 1, 2, 3]), "what we wrote is no limit");
        set("jobs", "mems", "0-2", "0-2");
        set("jobs", "cpus", "0-5", "0-5");
        put("jobs/a/cpuset.mems.effective", "0-2\n");
        held.look_at_allowed(root.path(), &unit, None);
        assert_eq!((cpus(&held), nodes(&held)), (6, vec![0, 1, 2]), "one above it was narrowed");
        set("jobs", "mems", "0-3", "0-3");
        set("jobs", "cpus", "0-7", "0-7");
        put("jobs/a/cpuset.mems.effective", "0-3\n");
        held.look_at_allowed(root.path(), &unit, None);
        assert_eq!((cpus(&held), nodes(&held)), (8, vec![0, 1, 2, 3]), "and widened again");
        set("jobs/a", "mems", "1", "1");
        set("jobs/a", "cpus", "0-1", "0-1");
        held.look_at_allowed(root.path(), &unit, None);
        assert_eq!((cpus(&held), nodes(&held)), (2, vec![1]));
    }

    /// Each thread that had ever been bound was remembered, with two masks of 1 KiB, until its process ended.
    #[test]
    fn threads_that_have_ended_are_forgotten() {
        let pid = Pid::own();
        let mask = numapilot_kernel::affinity::of_thread(Tid::first_of(pid)).unwrap();
        let id = |pid, tid| ThreadId { pid, tid, start_ticks: 7 };
        // No thread of this process has a number beyond any that the kernel gives.
        let (runs, ended, others) =
            (id(pid, Tid::first_of(pid)), id(pid, Tid(1 << 30)), id(Pid(1 << 30), Tid(1 << 30)));
        let bound = || Bound { before: mask.clone(), ours: mask.clone(), is_inherited: false };
        let mut held = Held { threads: [runs, ended, others].map(|id| (id, bound())).into(), ..Held::default() };
        let mut kept = Kept { threads: [runs, ended, others].map(|id| (id, mask.clone())).into(), ..Kept::default() };
        held.forget_ended(pid, &mut kept);
        assert_eq!(held.threads.keys().copied().collect::<Vec<_>>(), [runs, others]);
        assert_eq!(
            kept.threads.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            [runs, others],
            "nor are they on record"
        );
        held.forget_ended(Pid(1 << 30), &mut kept);
        assert_eq!(held.threads.len(), 2, "threads that cannot be listed may run");
    }

    /// The nodes were written into the cpuset, too: a program that outgrew them was ended by the kernel, or swapped, while other nodes had room.
    #[test]
    fn a_cgroup_may_have_memory_wherever_it_might_before() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("cpus", "0-15"), ("mems", "0-3"), ("cpus.effective", "0-15"), ("mems.effective", "0-3")] {
            fs::write(folder.path().join(format!("cpuset.{name}")), format!("{text}\n")).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap().trim().to_owned();
        // Four nodes of four processors.
        let machine = Machine::load("opteron-8385").unwrap();
        let mut held = Held { nodes: NodeSet(0b10), ..Held::default() };
        let (mut progress, mut placed) = (Until::ever(), Placed::default());
        assert!(held.by_cpuset(folder.path(), &machine, &mut progress, &mut placed));
        let of_node = format_cpu_list(machine.nodes()[1].cpus.iter().map(|cpu| cpu.0));
        assert_eq!((read("cpuset.cpus"), read("cpuset.mems").as_str()), (of_node, "0-3"));
        held.release(progress.undo_log());
        assert_eq!((read("cpuset.cpus").as_str(), read("cpuset.mems").as_str()), ("0-15", "0-3"));
    }

    #[test]
    fn a_gathering_that_is_ended_says_so_and_what_it_has_looked_at() {
        let machine = Machine::live().unwrap();
        let mut one = Watched::new(Pid::own()).unwrap();
        let (mut mover, mut placed) = (Mover::new(MoveOptions::default()), Placed::default());
        let mut progress = Until::default();
        // From every node to none that this machine has: where there is one node, the route would else be empty.
        let route = Route::new(&ids(&machine, NodeSet::all(64)), &[NodeId(999)]).unwrap();
        let mut moved = Migration::default();
        let result = migrate::run_into(&mut moved, &one.process, &mut route.clone(), Some(&mut mover), &mut |_| {
            progress.goes_on()
        });
        if let Err(error) = result {
            return numapilot_not_run::not_run!(MovePages, "{error}");
        }
        assert!(moved.stopped && moved.pages.moved == 0 && progress.asked == 1, "{moved:?}");
        gather(&mut one, &machine, (NodeSet::all(64), false), &mut mover, &mut progress, &mut placed);
        assert!(placed.moved.is_empty() && placed.troubles.is_empty(), "all of it is there already");
    }
}
