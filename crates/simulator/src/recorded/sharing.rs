//! CPUs with several threads: the recording's clock makes the work of n running threads of one CPU last n times as long. What they would have needed
//! by themselves is busy time divided by n.

use std::collections::BTreeMap;

use numapilot_flows::{Life, Order};
use numapilot_machine::CpuId;

/// How many threads worked on each CPU, over time. CPUs with one thread are left out.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// By thread: its CPU, if several threads share it.
    cpu_of: Vec<Option<CpuId>>,
    /// By CPU: (time in ns, number of threads that work on it from then on), ascending.
    counts: BTreeMap<CpuId, Vec<(f64, i32)>>,
}

impl Sharing {
    /// Makes it from threads' CPUs, lifetimes and waits.
    pub(super) fn new(cpus: &[Option<CpuId>], lives: &[Life], orders: &[Order]) -> Sharing {
        let mut threads_on: BTreeMap<CpuId, Vec<usize>> = BTreeMap::new();
        for (thread, cpu) in cpus.iter().enumerate() {
            if let Some(cpu) = cpu {
                threads_on.entry(*cpu).or_default().push(thread);
            }
        }
        threads_on.retain(|_, threads| threads.len() > 1);
        let mut counts = BTreeMap::new();
        for (&cpu, threads) in &threads_on {
            let mut changes: Vec<(f64, i32)> = Vec::new();
            for &thread in threads {
                changes.extend([(lives[thread].start_ns, 1), (lives[thread].end_ns, -1)]);
                for wait in &orders[thread].waits {
                    changes.extend([(wait.began_ns, -1), (wait.ended_ns, 1)]);
                }
            }
            changes.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut working = 0;
            for change in &mut changes {
                working += change.1;
                change.1 = working;
            }
            counts.insert(cpu, changes);
        }
        let cpu_of = cpus.iter().map(|cpu| cpu.filter(|cpu| threads_on.contains_key(cpu))).collect();
        Sharing { cpu_of, counts }
    }

    /// Nanoseconds of a CPU of its own that a thread needed for a stretch in which it worked throughout.
    pub(super) fn alone_ns(&self, thread: usize, from_ns: f64, to_ns: f64) -> f64 {
        let Some(counts) = self.cpu_of[thread].and_then(|cpu| self.counts.get(&cpu)) else {
            return to_ns - from_ns;
        };
        let first = counts.partition_point(|change| change.0 <= from_ns);
        let mut working = first.checked_sub(1).map_or(1, |before| counts[before].1);
        let (mut at, mut sum) = (from_ns, 0.0);
        for &(change_ns, after) in counts[first..].iter().take_while(|change| change.0 < to_ns) {
            sum += (change_ns - at) / f64::from(working.max(1));
            (at, working) = (change_ns, after);
        }
        sum + (to_ns - at) / f64::from(working.max(1))
    }
}
