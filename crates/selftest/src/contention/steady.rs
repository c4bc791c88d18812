//! Whether the machine is the same while programs run as it was when its model was measured: pure, from both.
//!
//! Other guests of a host, and a host that moves a guest's CPUs, change how much memory its CPUs can read together from one minute to the next, and nothing
//! in the guest shows it. A prediction from a model of another minute is then neither right nor wrong.

use numapilot_measure::{BandwidthCell, Kernel, Results, Target};
use numapilot_traffic::LINE_BYTES;

use super::scenes::READ;
use super::{Reading, Row};

/// The reading that differs most; `None` where no row of programs that all read has as many CPUs as a measurement of the same node and memory.
#[must_use]
pub fn reading(rows: &[Row], results: &Results) -> Option<Reading> {
    let of_rows = rows.iter().filter_map(|row| of_row(row, &results.bandwidth));
    of_rows.max_by(|a, b| a.factor().total_cmp(&b.factor()))
}

fn of_row(row: &Row, cells: &[BandwidthCell]) -> Option<Reading> {
    let first = row.members.first()?;
    let is_like = |member: &super::Member| {
        member.program == READ.word() && (member.cpu_node, member.memory_node) == (first.cpu_node, first.memory_node)
    };
    if !row.members.iter().all(is_like) {
        return None;
    }
    let threads: usize = row.members.iter().map(|member| member.threads).sum();
    let cell = cells.iter().find(|cell| {
        cell.kernel == Kernel::Read
            && cell.cpus == threads
            && cell.from == first.cpu_node
            && cell.target == Target::Node(first.memory_node)
    })?;
    let lines_per_s: f64 = row.members.iter().map(|member| member.together_per_s).sum();
    Some(Reading { measured_bytes_per_s: cell.bytes_per_s.best(), found_bytes_per_s: lines_per_s * LINE_BYTES })
}

#[cfg(test)]
mod tests {
    use numapilot_machine::NodeId;
    use numapilot_measure::{Disturbance, Figure, Spread};

    use super::super::Member;
    use super::*;

    fn row(program: &str, together_per_s: f64) -> Row {
        let member = Member {
            program: program.to_owned(),
            threads: 1,
            cpu_node: NodeId(0),
            memory_node: NodeId(0),
            alone_per_s: 2.0 * together_per_s,
            together_per_s,
            measured: 2.0,
            spread: 0.0,
            predicted: 1.0,
        };
        Row { scene: "node 0".to_owned(), members: vec![member.clone(), member], disturbed_share: 0.0 }
    }

    fn results(cpus: usize, bytes_per_s: f64) -> Results {
        let spread = Spread::of(&[bytes_per_s; 3], numapilot_measure::Better::High).expect("three values");
        let cell = BandwidthCell {
            from: NodeId(0),
            cpus,
            target: Target::Node(NodeId(0)),
            kernel: Kernel::Read,
            bytes: 1 << 28,
            bytes_per_s: Figure { spread, disturbance: Disturbance::default() },
            traffic_bytes_per_s: bytes_per_s,
        };
        Results { bandwidth: vec![cell], ..Results::default() }
    }

    /// Two CPUs of a virtual machine read 64 GB/s in one minute and 33 in the next: the model of the first was said to have failed.
    #[test]
    fn a_machine_that_changed_meanwhile_is_told_from_a_model_that_is_wrong() {
        let rows = [row("write", 1e9), row("read", 33e9 / 2.0 / LINE_BYTES)];
        let changed = reading(&rows, &results(2, 64e9)).expect("two that read");
        assert!((changed.found_bytes_per_s - 33e9).abs() < 1.0 && !changed.is_steady(), "{changed:?}");
        assert!(reading(&rows, &results(2, 36e9)).is_some_and(|reading| reading.is_steady()));
        assert!(reading(&rows, &results(2, 20e9)).is_some_and(|reading| !reading.is_steady()), "more than before, too");
    }

    #[test]
    fn only_like_is_compared_with_like() {
        assert_eq!(reading(&[row("write", 1e9)], &results(2, 64e9)), None);
        assert_eq!(reading(&[row("read", 1e9)], &results(1, 64e9)), None);
        assert!(reading(&[row("read", 0.0)], &results(2, 64e9)).is_some_and(|reading| !reading.is_steady()));
    }
}
