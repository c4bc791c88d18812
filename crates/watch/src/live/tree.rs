//! The processes of a group (a tree, a unit, a cgroup) between two readings: a row for each, and their total. Few processes are read, so each is, every time.

use std::collections::BTreeMap;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_host::TaskStat;
use numapilot_host::now_ticks;
use numapilot_host::title;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::cpu_time::ticks_per_s;
use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;

use crate::figures::ProcessFigures;

/// A process at one moment.
#[derive(Clone, Copy, Debug)]
struct Seen {
    start_ticks: u64,
    cpu_ticks: u64,
    faults: u64,
    threads: u32,
    resident_pages: u64,
    cpu: CpuId,
}

/// The processes at one moment.
#[derive(Clone, Debug)]
pub struct TreeReading {
    at: Instant,
    /// Clock ticks since boot.
    boot_ticks: u64,
    seen: BTreeMap<Pid, Seen>,
}

impl TreeReading {
    /// Reads the processes; those that have ended are left out.
    #[must_use]
    pub fn read(root: &Root, pids: &[Pid]) -> TreeReading {
        let (mut seen, mut buffer) = (BTreeMap::new(), Vec::new());
        for &pid in pids {
            let Ok(text) = root.read(&format!("proc/{pid}/stat"), &mut buffer) else { continue };
            let Some(stat) = TaskStat::parse(text).filter(|stat| !stat.is_zombie()) else { continue };
            let resident_pages = if stat.has_ended() { resident_of_others(root, pid) } else { stat.resident_pages };
            seen.insert(
                pid,
                Seen {
                    start_ticks: stat.start_ticks,
                    cpu_ticks: stat.cpu_ticks(),
                    faults: stat.faults.0.saturating_add(stat.faults.1),
                    threads: stat.threads,
                    resident_pages,
                    cpu: CpuId(stat.cpu),
                },
            );
        }
        TreeReading { at: Instant::now(), boot_ticks: now_ticks(), seen }
    }

    /// Adds processes that join the group later but ran at this reading already, as they are now: what they did before was not the group's.
    pub fn join(&mut self, root: &Root, pids: &[Pid]) {
        for (pid, now) in TreeReading::read(root, pids).seen {
            let is_new = self.seen.get(&pid).is_none_or(|known| known.start_ticks != now.start_ticks);
            if is_new && now.start_ticks < self.boot_ticks {
                self.seen.insert(pid, now);
            }
        }
    }

    /// A row for each process of this reading, with its title: the busiest first. Of a process that began after `before` all counts that it did.
    #[must_use]
    pub fn since(&self, before: &TreeReading, root: &Root, machine: &Machine) -> Vec<ProcessFigures> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mut buffer = Vec::new();
        let mut rows: Vec<ProcessFigures> = self
            .seen
            .iter()
            .map(|(&pid, now)| {
                let then = before.seen.get(&pid).filter(|then| then.start_ticks == now.start_ticks);
                let of = |count: fn(&Seen) -> u64| count(now).saturating_sub(then.map_or(0, count));
                ProcessFigures {
                    pid,
                    name: title(root, pid, &mut buffer).into(),
                    threads: now.threads,
                    cpus: per_s(of(|seen| seen.cpu_ticks)) / ticks_per_s(),
                    resident_bytes: now.resident_pages * page_bytes(),
                    node: machine.node_of_cpu(now.cpu),
                    faults_per_s: per_s(of(|seen| seen.faults)),
                    ..ProcessFigures::default()
                }
            })
            .collect();
        rows.sort_by(|a, b| b.cpus.total_cmp(&a.cpus).then(a.pid.cmp(&b.pid)));
        rows
    }
}

/// Resident pages of a process whose first thread has ended, whose line says 0.
fn resident_of_others(root: &Root, pid: Pid) -> u64 {
    let tid = task::stand_in(root.path(), pid);
    let text = tid.and_then(|tid| root.text(&format!("proc/{pid}/task/{tid}/stat"))).unwrap_or_default();
    TaskStat::parse(text.as_bytes()).map_or(0, |stat| stat.resident_pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn a_process_that_joins_counts_from_then_on_and_one_that_began_since_counts_whole() {
        let tree = Tree::symmetric(2, 2, 1 << 20);
        // The tree's processes begin at tick 50 + id: one before this reading, one after it.
        tree.process(40, "old", &[(40, 0, 100_000)]);
        tree.process(80, "new", &[(80, 0, 2)]);
        let (root, machine) = (tree.root(), tree.machine());
        let mut before = TreeReading { boot_ticks: 100, ..TreeReading::read(&root, &[]) };
        before.join(&root, &[40, 80].map(Pid));
        std::thread::sleep(std::time::Duration::from_millis(20));
        tree.process(40, "old", &[(40, 0, 100_001)]);
        let rows = TreeReading::read(&root, &[40, 80].map(Pid)).since(&before, &root, &machine);
        assert_eq!((rows[0].pid, rows[1].pid), (Pid(80), Pid(40)));
        assert!((rows[0].cpus / rows[1].cpus - 2.0).abs() < 1e-9, "{rows:?}");
    }

    /// lxcfs writes `/proc/uptime` for a container from its own start on, while processes' start times count from the machine's.
    #[test]
    fn a_container_that_is_younger_than_its_processes_start_times_changes_nothing() {
        let tree = Tree::symmetric(1, 1, 1 << 20);
        tree.put("proc/uptime", "0.10 0.00");
        tree.process(40, "old", &[(40, 0, 100_000)]);
        let (root, machine) = (tree.root(), tree.machine());
        let mut before = TreeReading::read(&root, &[]);
        before.join(&root, &[Pid(40)]);
        let rows = TreeReading::read(&root, &[Pid(40)]).since(&before, &root, &machine);
        assert_eq!((rows.len(), rows[0].cpus), (1, 0.0), "it ran before it joined");
    }

    #[test]
    fn rows_have_titles_and_count_from_the_reading_before() {
        let tree = Tree::symmetric(2, 2, 1 << 20);
        tree.process(40, "postgres", &[(40, 0, 100)]);
        tree.process(41, "postgres", &[(41, 2, 50), (42, 2, 0)]);
        tree.put("proc/41/cmdline", "postgres: checkpointer \0\0");
        let (root, machine) = (tree.root(), tree.machine());
        let before = TreeReading::read(&root, &[40, 41, 99].map(Pid));
        std::thread::sleep(std::time::Duration::from_millis(20));
        tree.process(41, "postgres", &[(41, 2, 90), (42, 2, 0)]);
        let rows = TreeReading::read(&root, &[40, 41].map(Pid)).since(&before, &root, &machine);
        let told: Vec<(u32, &str, u32)> = rows.iter().map(|row| (row.pid.0, &*row.name, row.threads)).collect();
        assert_eq!(told, [(41, "postgres: checkpointer", 2), (40, "postgres", 1)], "the busiest first");
        assert!(rows[0].cpus > 0.0 && rows[1].cpus == 0.0);
        assert_eq!(rows[0].node.map(|node| node.0), Some(1));
    }
}
