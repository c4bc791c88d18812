//! The processes of a group (a tree, a unit, a cgroup) between two readings: a row for each, and their total. Few processes are read, so each is, every time.

use std::collections::BTreeMap;
use std::time::Instant;

use numapilot_host::Root;
use numapilot_host::TaskStat;
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
    cpu: u32,
}

/// The processes at one moment.
#[derive(Clone, Debug)]
pub struct TreeReading {
    at: Instant,
    seen: BTreeMap<u32, Seen>,
}

impl TreeReading {
    /// Reads the processes; those that have ended are left out.
    #[must_use]
    pub fn read(root: &Root, pids: &[u32]) -> TreeReading {
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
                    cpu: stat.cpu,
                },
            );
        }
        TreeReading { at: Instant::now(), seen }
    }

    /// A row for each process of this reading, with its title: the busiest first. What a process did before it joined counts from `before` on.
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
                    node: machine.node_of_cpu(CpuId(now.cpu)),
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
fn resident_of_others(root: &Root, pid: u32) -> u64 {
    let tid = task::stand_in(root.path(), pid);
    let text = tid.and_then(|tid| root.text(&format!("proc/{pid}/task/{tid}/stat"))).unwrap_or_default();
    TaskStat::parse(text.as_bytes()).map_or(0, |stat| stat.resident_pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn rows_have_titles_and_count_from_the_reading_before() {
        let tree = Tree::symmetric(2, 2, 1 << 20);
        tree.process(40, "postgres", &[(40, 0, 100)]);
        tree.process(41, "postgres", &[(41, 2, 50), (42, 2, 0)]);
        tree.put("proc/41/cmdline", "postgres: checkpointer \0\0");
        let (root, machine) = (tree.root(), tree.machine());
        let before = TreeReading::read(&root, &[40, 41, 99]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        tree.process(41, "postgres", &[(41, 2, 90), (42, 2, 0)]);
        let rows = TreeReading::read(&root, &[40, 41]).since(&before, &root, &machine);
        let told: Vec<(u32, &str, u32)> = rows.iter().map(|row| (row.pid, &*row.name, row.threads)).collect();
        assert_eq!(told, [(41, "postgres: checkpointer", 2), (40, "postgres", 1)], "the busiest first");
        assert!(rows[0].cpus > 0.0 && rows[1].cpus == 0.0);
        assert_eq!(rows[0].node.map(|node| node.0), Some(1));
    }
}
