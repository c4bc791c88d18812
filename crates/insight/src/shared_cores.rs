//! Threads that share cores as hardware threads. Prices count each hardware thread as a whole CPU, because how much longer own work takes on a shared core is
//! not known. Where cores are shared, a note says that this is left out.

use std::collections::BTreeMap;

use numapilot_flows::Trace;
use numapilot_machine::{Cpu, CpuId, Machine, NodeIndex};

use crate::processor_time::processor_ns;
use crate::usage::{Row, Usage};

/// That threads share cores as recorded.
pub(crate) const RECORDED: &str = "Threads of the recording share cores (hardware threads): a thread's own work takes longer while another one works on its \
                                   core. Gains and their intervals count each hardware thread as a whole CPU: what a change alters of that is not in them.";
/// That threads share cores where a change moves them.
pub(crate) const MOVED: &str = "Where threads are moved, more of them work at once on a node than it has cores, so that they share cores (hardware threads) \
                                and each one's own work takes longer. Gains and their intervals count each hardware thread as a whole CPU, so gains may be \
                                too large.";

/// The first CPU of a CPU's core that is online; `None` where no other one is, or it is not itself.
fn shared_core(machine: &Machine, cpu: &Cpu) -> Option<CpuId> {
    let mut online = cpu.siblings.iter().copied().filter(|id| machine.cpu(*id).is_some_and(|cpu| cpu.online));
    let first = online.next()?;
    (cpu.online && online.next().is_some()).then_some(first)
}

/// Whether threads share cores as they ran in the recording.
pub(crate) fn are_shared(trace: &Trace, machine: &Machine, usage: &Usage) -> bool {
    let is_bound = trace.meta().simulated;
    are_crowded(trace, machine, usage, &|row| row.from) || (is_bound && are_bound_together(trace, machine, usage))
}

/// Whether two threads that are bound to hardware threads of one core, as on a simulated machine, work in the same window of time.
fn are_bound_together(trace: &Trace, machine: &Machine, usage: &Usage) -> bool {
    let mut by_core: BTreeMap<CpuId, Vec<(usize, CpuId)>> = BTreeMap::new();
    for (thread, cpu) in trace.cpus().into_iter().enumerate() {
        let Some(cpu) = cpu.and_then(|id| machine.cpu(id)) else { continue };
        if let Some(core) = shared_core(machine, cpu) {
            by_core.entry(core).or_default().push((thread, cpu.id));
        }
    }
    let works = |window: usize, thread: usize| usage.paces[window * usage.threads + thread].busy_ns > 0.0;
    let at_once = |threads: &Vec<(usize, CpuId)>, window: usize| {
        let mut cpus = threads.iter().filter(|(thread, _)| works(window, *thread)).map(|(_, cpu)| cpu);
        cpus.next().is_some_and(|first| cpus.any(|cpu| cpu != first))
    };
    by_core.values().any(|threads| (0..usage.windows.count).any(|window| at_once(threads, window)))
}

/// Whether more threads work at once on a node than it has cores, on average over some window of time, where each thread runs on its `seat`; false on machines
/// whose cores have one hardware thread each.
pub(crate) fn are_crowded(trace: &Trace, machine: &Machine, usage: &Usage, seat: &dyn Fn(&Row) -> NodeIndex) -> bool {
    if machine.cpus().iter().all(|cpu| shared_core(machine, cpu).is_none()) {
        return false;
    }
    let at = |row: &Row| usize::from(row.window) * usage.threads + row.thread as usize;
    // A thread that is known on several nodes in a window works on each for a part of it.
    let mut rows = vec![0.0; usage.paces.len()];
    usage.rows.iter().for_each(|row| rows[at(row)] += 1.0);
    let mut busy_ns = vec![vec![0.0; usage.nodes]; usage.windows.count];
    for row in &usage.rows {
        busy_ns[usize::from(row.window)][seat(row)] += usage.paces[at(row)].busy_ns / rows[at(row)];
    }
    for (index, pace) in usage.paces.iter().enumerate().filter(|(index, _)| rows[*index] < 1.0) {
        let (window, thread) = (index / usage.threads, index % usage.threads);
        if let Some(from) = usage.counted_on[thread] {
            let row = Row { window: window as u16, thread: thread as u32, from };
            busy_ns[window][seat(&row)] += pace.busy_ns;
        }
    }
    // Of what is no more than rounding.
    let longest_ns = usage.windows.ns * (1.0 + 1e-6) / ran_share(trace, usage);
    // Where no core of a node is online, threads seem to run all the same.
    let cores: Vec<f64> =
        machine.nodes().iter().map(|node| machine.online_cores_of(&node.cpus).max(1) as f64).collect();
    busy_ns.iter().any(|of_node| of_node.iter().zip(&cores).any(|(busy_ns, cores)| *busy_ns > cores * longest_ns))
}

/// The share, 0 to 1, of the time for which threads count as busy in which they ran by the kernel's count. Where the recording shows no waits, they count as
/// busy as long as any access of them is sampled, also while they wait.
fn ran_share(trace: &Trace, usage: &Usage) -> f64 {
    if !trace.counters().is_empty() || !trace.waits().is_empty() {
        return 1.0;
    }
    let busy_ns: f64 = usage.paces.iter().map(|pace| pace.busy_ns).sum();
    processor_ns(trace.meta()).map_or(1.0, |ran_ns| (ran_ns / busy_ns.max(1.0)).min(1.0))
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{AccessRef, Filter, Tables, Thread};
    use numapilot_machine::NodeId;
    use numapilot_trace::ids::{ThreadIndex, TimeNs};
    use numapilot_trace::meta::Meta;

    use super::*;
    use crate::context::Analysis;

    const END_NS: u64 = 48_000_000;

    /// Two nodes of two cores each; with two hardware threads, CPUs 0 and 2 are one core.
    fn machine(threads_per_core: u32) -> Machine {
        let text = format!(
            r#"
format = 1
name = "made-up"
cpu = "made up"
clock_mhz = {{ value = 2000, source = "made up" }}
[sources]
"made up" = "made up"
[[nodes]]
ids = [0, 1]
cpus = ["0-3", "4-7"]
threads_per_core = {threads_per_core}
source = "made up"
memory_gib = {{ value = 4, source = "made up" }}
memory_bandwidth_gb_per_s = {{ value = 10, source = "made up" }}
[[links]]
pairs = [[0, 1]]
both_ways = true
kind = "link"
bandwidth_gb_per_s = {{ value = 10, source = "made up" }}
[[idle_latency]]
hops = 0
ns = {{ value = 100, source = "made up" }}
[[idle_latency]]
hops = 1
ns = {{ value = 150, source = "made up" }}
"#
        );
        Machine::from_model_text(&text, "a made-up model").expect("a sound model")
    }

    /// Threads that access memory all the time, each on a CPU of its own.
    fn on_cpus(cpus: &[u32]) -> Trace {
        let mut tables = Tables { end: TimeNs(END_NS), ..Tables::default() };
        for (index, cpu) in (0..).zip(cpus) {
            let (thread, node) = (ThreadIndex(index), Some(NodeId(u16::from(*cpu > 3))));
            let end = Some(TimeNs(END_NS));
            tables.threads.push(Thread { index: thread, node, cpu: Some(CpuId(*cpu)), end, ..Thread::default() });
        }
        for time in (0..END_NS).step_by(20_000) {
            for (index, cpu) in (0..).zip(cpus) {
                let node = Some(NodeId(u16::from(*cpu > 3)));
                tables.accesses.push(&AccessRef {
                    time: TimeNs(time),
                    thread: ThreadIndex(index),
                    cpu: Some(CpuId(*cpu)),
                    node,
                    home: node,
                    ..AccessRef::at(0x7000_0000_0000 + 64 * time)
                });
            }
        }
        Trace::from_tables(tables)
    }

    /// Whether threads share cores as recorded, and where all run on the first node.
    fn shared(trace: &Trace, threads_per_core: u32) -> (bool, bool) {
        let machine = machine(threads_per_core);
        let analysis = Analysis::on(trace, Some(&machine), Filter::default());
        let usage = Usage::of(&analysis, &machine, &BTreeMap::new());
        (are_shared(trace, &machine, &usage), are_crowded(trace, &machine, &usage, &|_| NodeIndex(0)))
    }

    #[test]
    fn more_threads_than_cores_share_them() {
        assert_eq!(shared(&on_cpus(&[0, 1, 4]), 2), (false, true));
        assert_eq!(shared(&on_cpus(&[0, 1, 2]), 2), (true, true));
        assert_eq!(shared(&on_cpus(&[0, 1, 2, 3]), 1), (false, false), "as many cores");
        assert_eq!(shared(&on_cpus(&[0, 1]), 2), (false, false));
    }

    /// One of three threads of a node of two cores has no samples.
    #[test]
    fn threads_without_samples_count_where_their_time_was_counted() {
        let (trace, machine) = (on_cpus(&[0, 1, 2]), machine(2));
        let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
        let mut usage = Usage::of(&analysis, &machine, &BTreeMap::new());
        usage.rows.retain(|row| row.thread != 2);
        assert!(!are_shared(&trace, &machine, &usage));
        usage.counted_on = vec![Some(NodeIndex(0)); usage.threads];
        assert!(are_shared(&trace, &machine, &usage));
    }

    /// A recording that shows no waits has all threads that are sampled busy all the time: a hundred that wait by turns seemed to share cores.
    #[test]
    fn threads_that_the_kernel_counted_for_less_share_no_cores() {
        let ran = |ns: u64| {
            let mut meta = Meta::default();
            let rows = serde_json::json!([{ "pid": 1, "user_ns": ns, "system_ns": 0 }]);
            meta.more.insert("processor_time".to_owned(), rows);
            shared(&on_cpus(&[0, 1, 2]).with_meta(meta), 2)
        };
        assert_eq!(ran(3 * END_NS), (true, true));
        assert_eq!(ran(2 * END_NS), (false, false), "as much as two threads that work all the time");
    }

    #[test]
    fn bound_threads_share_a_core_where_others_are_free() {
        let simulated = |cpus: &[u32]| on_cpus(cpus).with_meta(Meta { simulated: true, ..Meta::default() });
        assert_eq!(shared(&simulated(&[0, 2]), 2), (true, false));
        assert_eq!(shared(&simulated(&[0, 1]), 2), (false, false));
        // The scheduler of a real machine moves threads: those of samples may never have met.
        assert_eq!(shared(&on_cpus(&[0, 2]), 2), (false, false));
    }

    #[test]
    fn a_prediction_says_so() {
        let (trace, machine) = (on_cpus(&[0, 1, 2]), machine(2));
        let analysis = Analysis::on(&trace, Some(&machine), Filter::default());
        let notes = analysis.what_if(&machine, &[]).expect("a prediction").cannot_say;
        assert_eq!(notes.iter().filter(|note| *note == RECORDED).count(), 1, "{notes:?}");
        assert!(analysis.findings(Some(&machine)).cannot_say.iter().any(|note| note == RECORDED));
    }
}
