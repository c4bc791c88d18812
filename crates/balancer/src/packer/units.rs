//! The units of packing: processes that use processor time, each by itself, or together if they have a cgroup with a cpuset of its own. Their demand and
//! restrictions are read from /proc and the cgroup.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::Tid;
use numapilot_host::cgroups;
use numapilot_kernel::KernelError;
use numapilot_kernel::affinity;
use numapilot_kernel::affinity::CpuMask;
use numapilot_kernel::cgroup;
use numapilot_kernel::cgroup::Cpuset;
use numapilot_kernel::cpu_time::ticks_per_s;
use numapilot_kernel::origins::Origins;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::NodeIndex;
use numapilot_machine::NodeSet;

use crate::decision::packing::Demand;
use crate::event::Target;
use crate::system::numa_look::NumaLook;
use crate::system::speed_meter::SpeedMeter;

/// Minimum processor use of a process that is packed, in processors; processes below it count as other load of their nodes.
const LEAST_CPUS: f64 = 0.1;
/// Weight of the last interval in the mean processor use.
const NEWEST: f64 = 0.5;

/// Minimum time between two readings: ticks of 10 ms are too coarse for less.
const LEAST_LOOK: Duration = Duration::from_millis(250);

/// A process that is placed as a whole, with what it used lately.
#[derive(Debug)]
pub struct Watched {
    /// Process id, start time, user and name.
    pub target: Target,
    /// Descriptor of the process, which keeps its id from being reused unnoticed.
    pub process: task::Process,
    /// Processors that it uses, on average over the last intervals.
    pub cpus: f64,
    /// Its memory by node and by the program's own memory policies.
    pub numa: NumaLook,
    /// What its threads do.
    pub speed: SpeedMeter,
    /// Where its pages were before it was placed, until that is judged.
    pub origins: Origins,
    /// Whether it has become another program since that was last asked: how fast the one before was says nothing of it.
    pub is_another: bool,
    /// Its user ids when it was added.
    users: [u32; 4],
    /// Start addresses of its code and of its stack, which `exec` changes.
    image: (u64, u64),
    ticks: u64,
    looked_at: Instant,
    is_known: bool,
}

impl Watched {
    /// Starts reading a process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn new(pid: Pid) -> Result<Watched, KernelError> {
        let process = task::Process::open(pid)?;
        let stat = task::stat(pid)?;
        let users = task::users_of(pid).ok_or(KernelError::Gone { pid })?;
        let target = Target { pid, start_ticks: stat.start_ticks, uid: users[0], name: stat.name };
        Ok(Watched {
            target,
            process,
            users,
            cpus: 0.0,
            numa: NumaLook::default(),
            speed: SpeedMeter::default(),
            origins: Origins::default(),
            is_another: false,
            image: stat.image,
            ticks: stat.cpu_ticks,
            looked_at: Instant::now(),
            is_known: false,
        })
    }

    /// Updates its processor use; false: it has ended, or changed to another user.
    pub fn look(&mut self) -> bool {
        let pid = self.target.pid;
        let Ok(stat) = task::stat(pid) else { return false };
        let is_the_users = |now: [u32; 4]| now[0] == self.target.uid && !task::has_gained_rights(self.users, now);
        if !self.process.is_running() || !task::users_of(pid).is_some_and(is_the_users) {
            return false;
        }
        if stat.image != self.image {
            // Another program, with memory and memory policies of its own.
            self.image = stat.image;
            self.numa.is_outdated();
            self.origins = Origins::default();
            self.is_another = true;
        }
        let elapsed = self.looked_at.elapsed();
        if elapsed < LEAST_LOOK {
            return true;
        }
        self.looked_at = Instant::now();
        let ran_s = stat.cpu_ticks.saturating_sub(self.ticks) as f64 / ticks_per_s();
        let now = ran_s / elapsed.as_secs_f64();
        self.cpus = if self.is_known { NEWEST * now + (1.0 - NEWEST) * self.cpus } else { now };
        (self.ticks, self.is_known, self.target.name) = (stat.cpu_ticks, true, stat.name);
        true
    }
}

/// Processes that are placed together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// All processes of a cgroup, by its cpuset.
    Cgroup(PathBuf),
    /// One process, by the affinities of its threads.
    Process(Pid),
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unit::Cgroup(folder) => write!(f, "cgroup {}", folder.display()),
            Unit::Process(pid) => write!(f, "process {pid}"),
        }
    }
}

/// Groups the processes that use processors, and those in `held`, which are placed already, into units. `root` is the root of the file system.
pub fn units(root: &Path, watched: &BTreeMap<Pid, Watched>, held: &BTreeSet<Unit>) -> BTreeMap<Unit, Vec<Pid>> {
    let root = Root::new(root);
    let mut units: BTreeMap<Unit, Vec<Pid>> = BTreeMap::new();
    let mut groups: BTreeMap<PathBuf, bool> = BTreeMap::new();
    let is_busy = |pid: &Pid| watched.get(pid).is_some_and(|one| one.cpus >= LEAST_CPUS);
    for pid in watched.keys() {
        let folder = cgroups::of_process(&root, *pid).filter(|folder| {
            *groups
                .entry(folder.clone())
                .or_insert_with(|| held.contains(&Unit::Cgroup(folder.clone())) || is_to_itself(folder, watched))
        });
        let unit = match folder {
            Some(folder) if !held.contains(&Unit::Process(*pid)) => Unit::Cgroup(folder),
            _ => Unit::Process(*pid),
        };
        units.entry(unit).or_default().push(*pid);
    }
    units.retain(|unit, pids| {
        held.contains(unit)
            || pids.iter().any(|pid| is_busy(pid) && (matches!(unit, Unit::Cgroup(_)) || is_uniform(*pid)))
    });
    units
}

/// Whether a cgroup can be placed as a unit: a leaf with a cpuset of its own, all of whose processes are managed here, and whose threads are not bound more
/// narrowly, because older kernels forget such masks when the cpuset changes. An inherited cpuset is not touched, because the kernel does not allow emptying it
/// again (ENOSPC); nor is a partition, whose CPUs its administrator has set apart.
fn is_to_itself(folder: &Path, watched: &BTreeMap<Pid, Watched>) -> bool {
    let Some(cpuset) = cgroup::cpuset(folder).filter(|_| !cgroups::has_children(folder)) else { return false };
    if cpuset.cpus.is_empty() || cpuset.mems.is_empty() || cpuset.is_partition {
        return false;
    }
    let members = cgroups::members(folder);
    let cpus_of = |pid: Pid| affinity::of_thread(Tid::first_of(pid));
    let is_free = |pid: &Pid| is_uniform(*pid) && cpus_of(*pid).is_ok_and(|mask| mask == cpuset.effective_cpus);
    !members.is_empty() && members.iter().all(|pid| watched.contains_key(pid) && is_free(pid))
}

/// Whether all threads have the same affinity, and none has a real-time policy. A program with differing affinities places its threads itself, and one with
/// deadlines may miss them on fewer CPUs, or while its memory moves: neither is moved.
fn is_uniform(pid: Pid) -> bool {
    let tids = task::threads_of(pid).unwrap_or_default();
    if tids.iter().any(|tid| affinity::is_real_time(*tid)) {
        return false;
    }
    // A thread that has ended is ignored.
    let mut masks = tids.into_iter().filter_map(|tid| affinity::of_thread(tid).ok());
    let Some(first) = masks.next() else { return false };
    masks.all(|mask| mask == first)
}

/// Demand of a unit, with its memory as last read, and what it is allowed to use; `None`: it has ended. `before`: what it was allowed to use before it was
/// placed, as far as it is now ([`Allowed::now`]).
pub fn demand(
    machine: &Machine,
    pids: &[Pid],
    watched: &BTreeMap<Pid, Watched>,
    before: Option<&Allowed>,
    bound: NodeSet,
) -> Option<(Demand, Allowed)> {
    let mut memory_bytes = vec![0; machine.nodes().len()];
    let (mut cpus, mut allowed) = (0.0, None);
    for pid in pids {
        let Some(one) = watched.get(pid) else { continue };
        cpus += one.cpus;
        // Shared memory once and not for each process that maps it: a database's demand would be a multiple of the machine.
        for (node, bytes) in &one.numa.last().parts {
            if let Some(at) = machine.node_index(*node) {
                memory_bytes[at] += bytes;
            }
        }
        if allowed.is_none() {
            allowed = before.cloned().or_else(|| Allowed::of_process(*pid));
        }
    }
    let allowed = allowed?;
    let nodes = allowed.nodes(machine);
    // A cpuset that was narrowed since has taken it off some of the nodes on which it was placed.
    let bound = NodeSet(bound.0 & nodes.0);
    Some((Demand { cpus, memory_bytes, bound, allowed: nodes }, allowed))
}

/// CPUs and memory nodes that a process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// CPUs on which its affinity and cpuset let it run.
    pub cpus: CpuMask,
    /// Nodes that its cpuset lets its memory come from.
    pub mems: Vec<NodeId>,
}

impl Allowed {
    fn of_process(pid: Pid) -> Option<Allowed> {
        let cpus = affinity::of_thread(Tid::first_of(pid)).ok()?;
        Some(Allowed { cpus, mems: cgroup::allowed_nodes(Path::new("/"), pid)? })
    }

    /// What is left now of what a process was allowed before its threads were bound: its cpuset may have been changed meanwhile. This program changes no
    /// cpuset of a process that it places by affinities.
    #[must_use]
    pub fn now(&self, root: &Path, pid: Pid) -> Option<Allowed> {
        let mems = cgroup::allowed_nodes(root, pid)?;
        let cpuset = cgroups::of_process(&Root::new(root), pid).and_then(|folder| cgroup::nearest_cpuset(&folder));
        let cpus = cpuset.map_or_else(|| self.cpus.clone(), |cpuset| self.cpus.and(&cpuset.effective_cpus));
        // Moved to other CPUs altogether: the kernel has given it all of these.
        if cpus.is_empty() { Allowed::of_process(pid) } else { Some(Allowed { cpus, mems }) }
    }

    /// What a cpuset above leaves of it; a part of which it would leave nothing stays as it is, as the kernel has it.
    #[must_use]
    pub fn within(&self, above: &Cpuset) -> Allowed {
        let cpus = self.cpus.and(&above.effective_cpus);
        let mems: Vec<NodeId> = self.mems.iter().copied().filter(|node| above.effective_mems.contains(node)).collect();
        Allowed {
            cpus: if cpus.is_empty() { self.cpus.clone() } else { cpus },
            mems: if mems.is_empty() { self.mems.clone() } else { mems },
        }
    }

    /// Nodes whose CPUs and memory may both be used.
    #[must_use]
    pub fn nodes(&self, machine: &Machine) -> NodeSet {
        let may = |node: &numapilot_machine::Node| {
            let cpus: CpuMask = node.cpus.iter().copied().collect();
            !self.cpus.and(&cpus).is_empty() && self.mems.contains(&node.id)
        };
        NodeIndex::all(machine.nodes().len()).filter(|at| may(&machine.nodes()[*at])).collect()
    }
}

/// Nodes that this process may use.
#[must_use]
pub fn allowed_here(machine: &Machine) -> NodeSet {
    let allowed = Allowed::of_process(Pid::own());
    allowed.map_or(NodeSet::all(machine.nodes().len()), |allowed| allowed.nodes(machine))
}

#[cfg(test)]
mod tests {
    //! This process and a busy child.

    use std::process::Command;

    use numapilot_host::VirtAddr;

    use super::*;

    /// The policies of the program before were taken for those of the present one, for minutes if they took long to read.
    #[test]
    fn policies_are_read_anew_after_an_exec() {
        // The kernel goes on with an exec after the parent may run again: only a program that has said something has an image that stays.
        let mut command = Command::new("sh");
        command.args(["-c", "echo; read x"]).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = Running(command.spawn().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.0.stdout.take().unwrap()), &mut line).unwrap();
        let pid = Pid::of_child(&child.0);
        let mut one = Watched::new(pid).unwrap();
        let text = b"7f0000010000 bind:0 anon=3 N0=3 kernelpagesize_kB=4\n";
        let maps = b"7f0000010000-7f0000020000 rw-p 00000000 00:00 0\n";
        let made = || NumaLook::from(numapilot_kernel::numa_memory::NumaMemory::of_texts(text, maps));
        let mut is_chosen = |image| {
            (one.numa, one.image) = (made(), image);
            assert!(one.look());
            assert_eq!(std::mem::take(&mut one.is_another), image == (1, 1));
            one.numa.of(pid, Duration::from_secs(3600)).is_chosen(VirtAddr(0x7f00_0001_2000))
        };
        assert!(is_chosen(task::stat(pid).unwrap().image), "the same program");
        assert!(!is_chosen((1, 1)), "another one");
    }

    /// A process that ends with the test.
    struct Running(std::process::Child);

    impl Running {
        fn watched(&self) -> BTreeMap<Pid, Watched> {
            BTreeMap::from([(Pid::of_child(&self.0), Watched::new(Pid::of_child(&self.0)).unwrap())])
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// A cgroup made up, with a cpuset of this process alone; a file of it can be written.
    fn cgroup_of(pid: Pid) -> (tempfile::TempDir, impl Fn(&str, &str)) {
        let cpus = affinity::of_thread(Tid::first_of(pid)).unwrap();
        let cpus = numapilot_machine::format_cpu_list(cpus.cpus().iter().map(|cpu| cpu.0));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let put = move |name: &str, text: &str| std::fs::write(path.join(name), format!("{text}\n")).unwrap();
        put("cgroup.procs", &pid.to_string());
        for (name, text) in [("cpus", &*cpus), ("mems", "0"), ("cpus.effective", &*cpus), ("mems.effective", "0")] {
            put(&format!("cpuset.{name}"), text);
        }
        (folder, put)
    }

    /// The CPUs of partitions were changed like those of any other cgroup.
    #[test]
    fn a_cgroup_with_cpus_set_apart_is_left_to_its_administrator() {
        let child = Running(Command::new("sleep").arg("100").spawn().unwrap());
        let (folder, put) = cgroup_of(Pid::of_child(&child.0));
        assert!(is_to_itself(folder.path(), &child.watched()), "old kernels have no partitions");
        for (kind, is_unit) in [("member", true), ("isolated", false), ("root", false)] {
            put("cpuset.cpus.partition", kind);
            assert_eq!(is_to_itself(folder.path(), &child.watched()), is_unit, "{kind}");
        }
    }

    /// The first thread of each process was looked at alone; threads with deadlines lost CPUs, and their memory was moved.
    #[test]
    fn programs_that_bind_a_thread_or_have_deadlines_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("p.c"), folder.path().join("p"));
        let text = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <sched.h>\n#include <stdio.h>\n#include <unistd.h>\n\
                    static void *run(void *a) { cpu_set_t s; CPU_ZERO(&s); CPU_SET(sched_getcpu(), &s);\n\
                    sched_setaffinity(0, sizeof s, &s); puts(\"bound\"); fflush(stdout); pause(); return a; }\n\
                    int main(void) { pthread_t t; return pthread_create(&t, 0, run, 0) || pause(); }\n";
        std::fs::write(&source, text).unwrap();
        assert!(Command::new("cc").arg("-pthread").arg(&source).arg("-o").arg(&program).status().unwrap().success());
        let mut bound = Running(Command::new(&program).stdout(std::process::Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(bound.0.stdout.take().unwrap()), &mut line).unwrap();
        let pid = Pid::of_child(&bound.0);
        if affinity::of_thread(Tid::first_of(pid)).unwrap().cpus().len() < 2 {
            return numapilot_not_run::not_run!(TwoCpus, "one CPU leaves nothing to bind");
        }
        let (folder, _) = cgroup_of(pid);
        assert!(!is_uniform(pid) && !is_to_itself(folder.path(), &bound.watched()), "{line}");
        let child = Running(Command::new("sleep").arg("100").spawn().unwrap());
        assert!(is_uniform(Pid::of_child(&child.0)));
        let fifo = libc::sched_param { sched_priority: 1 };
        // SAFETY: changes the policy of a child of this test, which sleeps; the parameter is only read.
        if unsafe { libc::sched_setscheduler(child.0.id().cast_signed(), libc::SCHED_FIFO, &raw const fifo) } != 0 {
            return numapilot_not_run::not_run!(Root, "no real-time policy may be set");
        }
        let (folder, _) = cgroup_of(Pid::of_child(&child.0));
        assert!(!is_uniform(Pid::of_child(&child.0)) && !is_to_itself(folder.path(), &child.watched()));
    }

    #[test]
    fn a_busy_process_is_a_unit_with_its_demand_and_an_idle_one_is_none() {
        let machine = Machine::live().unwrap();
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut idle = Command::new("sleep").arg("100").spawn().unwrap();
        let mut watched: BTreeMap<Pid, Watched> = [Pid::of_child(&busy), Pid::of_child(&idle)]
            .into_iter()
            .map(|pid| (pid, Watched::new(pid).unwrap()))
            .collect();
        let begun = Instant::now();
        // However busy this machine is, some of its time is the child's.
        while watched[&Pid::of_child(&busy)].cpus < LEAST_CPUS && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(300));
            assert!(watched.values_mut().all(|one| one.look()));
        }
        let none = tempfile::tempdir().unwrap();
        let found = units(none.path(), &watched, &BTreeSet::new());
        assert_eq!(found, BTreeMap::from([(Unit::Process(Pid::of_child(&busy)), vec![Pid::of_child(&busy)])]));
        let (demand, allowed) = demand(&machine, &[Pid::of_child(&busy)], &watched, None, NodeSet::default()).unwrap();
        assert!(demand.cpus > 0.0 && !demand.allowed.is_empty() && demand.allowed == allowed.nodes(&machine));
        // A cpuset that was changed since is read again.
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        let status = root.path().join("proc/7/status");
        std::fs::write(&status, "Mems_allowed_list:\t0-3\n").unwrap();
        let before = Allowed { cpus: allowed.cpus.clone(), mems: (0..8).map(NodeId).collect() };
        assert_eq!(before.now(root.path(), Pid(7)).unwrap().mems, (0..4).map(NodeId).collect::<Vec<_>>());
        std::fs::write(&status, "Mems_allowed_list:\t1\n").unwrap();
        assert_eq!(before.now(root.path(), Pid(7)), Some(Allowed { mems: vec![NodeId(1)], ..before.clone() }));
        for child in [&mut busy, &mut idle] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(!watched.get_mut(&Pid::of_child(&busy)).unwrap().look());
    }
}
