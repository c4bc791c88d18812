//! How long threads ran between two decisions, of which there are many readings.

use super::targets::Targets;

/// Begins another interval: what threads ran before is no part of it.
pub fn begin_interval(targets: &mut Targets) {
    let threads = targets.all.values_mut().flat_map(|managed| managed.threads.values_mut());
    threads.for_each(|thread| thread.ran_since_ns = 0);
}

/// Nanoseconds for which the threads on each of so many nodes ran since the interval began. A thread counts where it is now.
#[must_use]
pub fn by_node(targets: &Targets, nodes: usize) -> Vec<u64> {
    let mut ran_ns = vec![0; nodes];
    for thread in targets.all.values().flat_map(|managed| managed.threads.values()) {
        ran_ns[thread.node.0] += thread.ran_since_ns;
    }
    ran_ns
}

#[cfg(test)]
mod tests {
    use std::time::Duration;
    use std::time::Instant;

    use numapilot_host::Pid;
    use numapilot_machine::Machine;

    use super::*;

    /// What threads ran in the last tenth of a second was taken for all the time since the last decision, which may be seconds.
    #[test]
    fn an_interval_has_the_running_time_of_all_its_readings() {
        let machine = Machine::live().unwrap();
        let nodes = machine.nodes().len();
        let mut targets = Targets::default();
        targets.add(Pid::own()).unwrap();
        let mut look = || {
            targets.look(&machine);
            by_node(&targets, nodes).iter().sum::<u64>()
        };
        look();
        let mut ran = vec![look()];
        for _ in 0..2 {
            let (begun, before) = (Instant::now(), ran[ran.len() - 1]);
            // However little of the processor this test gets.
            while begun.elapsed() < Duration::from_millis(20) || look() == before {}
            ran.push(look());
        }
        // A reading at once after the last adds nearly nothing, and takes nothing away.
        ran.push(look());
        assert!(ran.is_sorted() && ran[0] < ran[1] && ran[1] < ran[2], "{ran:?}");
        begin_interval(&mut targets);
        assert_eq!(by_node(&targets, nodes).iter().sum::<u64>(), 0);
    }
}
