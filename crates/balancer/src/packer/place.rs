//! Places a unit on nodes: by its cgroup's cpuset, with which the kernel also moves its memory, or by its threads' affinities, followed by a move of its pages.
//! The previous state is recorded first, and restored when the unit is released.

use std::collections::BTreeMap;
use std::path::Path;

use numapilot_kernel::actuator::Mover;
use numapilot_kernel::affinity::CpuMask;
use numapilot_kernel::cgroup;
use numapilot_kernel::migrate;
use numapilot_kernel::migrate::Migration;
use numapilot_kernel::migrate::Route;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeSet;
use numapilot_machine::format_cpu_list;

use super::units::Allowed;
use super::units::Watched;
use crate::event::Setting;
use crate::system::binding;
use crate::system::bound::Bound;
use crate::system::settings::Settings;
use crate::system::undo_log::Binding;
use crate::system::undo_log::ThreadId;
use crate::system::undo_log::UndoLog;

/// Number of passes over the threads, because new ones may be created while others are bound.
const PASSES: usize = 4;

/// A unit that was placed.
#[derive(Default)]
pub struct Held {
    /// The nodes on which it is placed.
    pub nodes: NodeSet,
    /// CPUs and nodes that it was allowed to use before.
    pub allowed: Option<Allowed>,
    threads: BTreeMap<ThreadId, Bound>,
    /// The affinity that its first thread inherited, if its parent was placed before it.
    born: Option<Bound>,
    cpuset: Settings,
}

/// The outcome of placing a unit.
#[derive(Default)]
pub struct Placed {
    /// Number of threads that were bound.
    pub threads: u64,
    /// Outcomes of the page moves; empty if the kernel moves pages with the cpuset.
    pub moved: Vec<Migration>,
    /// Settings that were changed.
    pub settings: Vec<Setting>,
    /// Error messages.
    pub troubles: Vec<String>,
    /// Whether the previous state could not be recorded; then the unit is not moved.
    pub is_refused: bool,
}

/// The kernel's numbers of these nodes.
#[must_use]
pub fn ids(machine: &Machine, nodes: NodeSet) -> Vec<NodeId> {
    nodes.iter().filter_map(|at| machine.nodes().get(at).map(|node| node.id)).collect()
}

fn cpus(machine: &Machine, nodes: NodeSet) -> CpuMask {
    nodes.iter().filter_map(|at| machine.nodes().get(at)).flat_map(|node| node.cpus.iter().copied()).collect()
}

impl Held {
    /// The state that a child of a placed process inherits; `None`: no threads were bound.
    pub fn of_child(&self) -> Option<Held> {
        let born = self.threads.values().next()?.clone();
        Some(Held { nodes: self.nodes, allowed: self.allowed.clone(), born: Some(born), ..Held::default() })
    }

    /// Writes the nodes into a cgroup's cpuset. False: that is not possible, and nothing was changed.
    pub fn by_cpuset(
        &mut self,
        folder: &Path,
        machine: &Machine,
        undo_log: &mut dyn UndoLog,
        placed: &mut Placed,
    ) -> bool {
        let Some(allowed) = self.allowed.clone().or_else(|| allowed_by(folder)) else { return false };
        let within = allowed.cpus.and(&cpus(machine, self.nodes));
        let mems = ids(machine, self.nodes).into_iter().filter(|node| allowed.mems.contains(node));
        let mems = format_cpu_list(mems.map(|node| u32::from(node.0)));
        let list = format_cpu_list(within.cpus().iter().map(|cpu| cpu.0));
        if mems.is_empty() || list.is_empty() {
            return false;
        }
        for (name, value) in [("cpuset.cpus", list), ("cpuset.mems", mems)] {
            match self.cpuset.set(&folder.join(name).display().to_string(), &value, undo_log) {
                Ok(setting) => placed.settings.extend(setting),
                Err(why) => {
                    placed.troubles.push(why);
                    placed.settings.extend(self.cpuset.put_all_back(undo_log));
                    return false;
                }
            }
        }
        self.allowed = Some(allowed);
        true
    }

    /// Binds the threads of a process to the CPUs of the nodes that it may use.
    pub fn by_affinity(&mut self, pid: u32, machine: &Machine, undo_log: &mut dyn UndoLog, placed: &mut Placed) {
        let wanted = cpus(machine, self.nodes);
        // The affinity that a new thread inherits from a bound thread.
        let born = self.threads.iter().find(|(id, _)| id.pid == pid).map(|(_, bound)| bound.clone());
        let born = born.or_else(|| self.born.clone());
        for _ in 0..PASSES {
            let ids = threads_of(pid);
            let is_born = |id: &&ThreadId| {
                !self.threads.contains_key(id) && born.as_ref().is_some_and(|born| binding::is_ours(**id, born))
            };
            let adopted: Vec<ThreadId> = ids.iter().filter(is_born).copied().collect();
            let inherited =
                |id: ThreadId| born.clone().map(|born| Binding { thread: id, was: born.before, now: born.ours });
            let mut bindings: Vec<Binding> = adopted.into_iter().filter_map(inherited).collect();
            let known =
                bindings.iter().map(|one| (one.thread, Bound { before: one.was.clone(), ours: one.now.clone() }));
            self.threads.extend(known);
            for id in ids {
                match binding::planned(id, self.threads.get(&id), &wanted, &mut placed.troubles) {
                    Ok(binding) if binding.was != binding.now => bindings.push(binding),
                    _ => {}
                }
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
                if binding::bind(&one).is_ok() {
                    let bound = Bound::after(&one, self.threads.remove(&one.thread));
                    self.threads.insert(one.thread, bound);
                    placed.threads += 1;
                }
            }
        }
    }

    /// Restores where the unit may run. Its memory stays where it is.
    pub fn release(&mut self, undo_log: &mut dyn UndoLog) -> Vec<Setting> {
        let mut free = Vec::new();
        for (id, bound) in std::mem::take(&mut self.threads) {
            if !binding::is_ours(id, &bound) || numapilot_kernel::affinity::set_thread(id.tid, &bound.before).is_ok() {
                free.push(id);
            }
        }
        if !free.is_empty() {
            undo_log.unbound(&free);
        }
        self.cpuset.put_all_back(undo_log)
    }
}

fn threads_of(pid: u32) -> Vec<ThreadId> {
    let tids = task::threads_of(pid).unwrap_or_default();
    let id = |tid: u32| {
        let stat = task::stat_of_thread(pid, tid).ok()?;
        Some(ThreadId { pid, tid, start_ticks: stat.start_ticks })
    };
    tids.into_iter().filter_map(id).collect()
}

fn allowed_by(folder: &Path) -> Option<Allowed> {
    let cpuset = cgroup::cpuset(folder)?;
    Some(Allowed { cpus: cpuset.effective_cpus, mems: cpuset.effective_mems })
}

/// Moves a process's pages from all other nodes to its own.
///
/// # Errors
/// The pages may not be moved; the message gives the reason.
pub fn gather(one: &Watched, nodes: NodeSet, machine: &Machine, mover: &mut Mover) -> Result<Migration, String> {
    let to = ids(machine, nodes);
    let all = machine.nodes().iter().filter(|node| node.has_memory());
    let from: Vec<NodeId> = all.map(|node| node.id).filter(|id| !to.contains(id)).collect();
    let Some(mut route) = Route::new(&from, &to) else { return Ok(Migration::default()) };
    migrate::run(&one.process, &mut route, Some(mover), &mut |_| true)
        .map_err(|error| format!("process {}: {error}", one.target.pid))
}
