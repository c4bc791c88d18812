//! Whether the machine is the same while programs run as it was when its model was measured: pure, from both.
//!
//! Other guests of a host, and a host that moves a guest's CPUs, change how much memory its CPUs can read together from one minute to the next, and nothing
//! in the guest shows it. A prediction from a model of another minute is then neither right nor wrong.

use numapilot_machine::NodeId;
use numapilot_measure::{BandwidthCell, Kernel, Results, Target};
use numapilot_traffic::LINE_BYTES;

use super::scenes::{READ, Scene};
use super::{Reading, Row};

/// Programs of a scene with CPUs on one node and memory on one, and what as many CPUs read from this memory in the state of the measurement: by the same
/// probes, which it had beside each of its figures, else by its figure of reading.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The programs, as indexes into the scene's places.
    pub places: Vec<usize>,
    /// Bytes per second in the measurement.
    pub measured_bytes_per_s: f64,
}

impl Probe {
    /// By which factor, up or down, the machine differs from that of the measurement, if these programs together read so many lines per second.
    #[must_use]
    pub fn factor(&self, lines_per_s: f64) -> f64 {
        let found_bytes_per_s = lines_per_s * LINE_BYTES;
        Reading { measured_bytes_per_s: self.measured_bytes_per_s, found_bytes_per_s }.factor()
    }
}

/// What to read, of each pair of nodes in the scene, to see whether the machine is still the one that was measured. `None` where the measurement has not as
/// many CPUs of one of them.
#[must_use]
pub fn probes(scene: &Scene, results: &Results) -> Option<Vec<Probe>> {
    let mut by_nodes: Vec<((NodeId, NodeId), Vec<usize>)> = Vec::new();
    for (index, place) in scene.places.iter().enumerate() {
        let nodes = (place.cpu_node, place.memory_node);
        match by_nodes.iter_mut().find(|(known, _)| *known == nodes) {
            Some((_, places)) => places.push(index),
            None => by_nodes.push((nodes, vec![index])),
        }
    }
    let probe = |(nodes, places): ((NodeId, NodeId), Vec<usize>)| {
        let cpus = places.iter().map(|&place| scene.places[place].cpus.len()).sum();
        let state = results.state_of(nodes.0, nodes.1).filter(|state| state.cpus == cpus);
        let of_state = state.and_then(|state| state.state).map(|state| state.bytes_per_s);
        let of_cell = || Some(cell_of(&results.bandwidth, nodes, cpus)?.bytes_per_s.spread.median);
        Some(Probe { places, measured_bytes_per_s: of_state.or_else(of_cell)? })
    };
    by_nodes.into_iter().map(probe).collect()
}

/// What so many CPUs of one node read from memory of another, or of the same.
fn cell_of(cells: &[BandwidthCell], (from, to): (NodeId, NodeId), cpus: usize) -> Option<&BandwidthCell> {
    cells.iter().find(|cell| {
        cell.kernel == Kernel::Read && cell.cpus == cpus && cell.from == from && cell.target == Target::Node(to)
    })
}

/// The reading that differs most, of rows that are judged; `None` where no row of programs that all read has as many CPUs as a measurement of the same node
/// and memory.
#[must_use]
pub fn reading(rows: &[Row], results: &Results) -> Option<Reading> {
    let of_rows = rows.iter().filter(|row| row.is_judged).filter_map(|row| of_row(row, &results.bandwidth));
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
    let cell = cell_of(cells, (first.cpu_node, first.memory_node), threads)?;
    let lines_per_s: f64 = row.members.iter().map(|member| member.together_per_s).sum();
    Some(Reading { measured_bytes_per_s: cell.bytes_per_s.spread.median, found_bytes_per_s: lines_per_s * LINE_BYTES })
}

#[cfg(test)]
mod tests {
    use numapilot_machine::CpuId;
    use numapilot_measure::{Disturbance, Figure, Spread};

    use super::super::Member;
    use super::super::scenes::Place;
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
        Row {
            scene: "node 0".to_owned(),
            members: vec![member.clone(), member],
            disturbed_share: 0.0,
            rounds: 9,
            rounds_left_out: 0,
            is_judged: true,
        }
    }

    /// Programs on nodes 0 and 1 with two CPUs each, by the node of their CPUs and that of their memory.
    fn scene(nodes: &[(u16, u16)]) -> Scene {
        let place = |(index, (cpu, memory)): (usize, &(u16, u16))| Place {
            cpu_node: NodeId(*cpu),
            cpus: vec![CpuId(2 * index as u32), CpuId(2 * index as u32 + 1)],
            memory_node: NodeId(*memory),
        };
        let places = nodes.iter().enumerate().map(place).collect();
        Scene { name: "x".to_owned(), places, casts: Vec::new() }
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
    fn a_row_that_is_not_judged_tells_nothing() {
        let mut row = row("read", 16e9 / LINE_BYTES);
        row.is_judged = false;
        assert_eq!(reading(&[row], &results(2, 64e9)), None);
    }

    #[test]
    fn programs_of_one_node_and_memory_read_together() {
        let found = probes(&scene(&[(0, 0), (0, 0)]), &results(4, 32e9)).expect("as many CPUs were measured");
        assert_eq!(found, [Probe { places: vec![0, 1], measured_bytes_per_s: 32e9 }]);
        assert!((found[0].factor(16e9 / LINE_BYTES) - 2.0).abs() < 1e-9);
        assert!((found[0].factor(64e9 / LINE_BYTES) - 2.0).abs() < 1e-9, "faster is another machine, too");
        assert_eq!(found[0].factor(0.0), f64::INFINITY);
        assert_eq!(probes(&scene(&[(0, 0), (0, 0)]), &results(2, 32e9)), None, "other CPUs were measured");
        // Of nodes apart, each with its own measurement.
        let mut both = results(2, 32e9);
        assert_eq!(probes(&scene(&[(0, 0), (1, 0)]), &both), None);
        let mut far = both.bandwidth[0].clone();
        far.from = NodeId(1);
        both.bandwidth.push(far);
        let found = probes(&scene(&[(0, 0), (1, 0)]), &both).expect("both were measured");
        assert_eq!(found.iter().map(|probe| probe.places.clone()).collect::<Vec<_>>(), [vec![0], vec![1]]);
    }

    #[test]
    fn the_state_of_the_measurement_goes_before_its_best_reading() {
        let mut results = results(4, 40e9);
        results.states.push(numapilot_measure::PairState {
            from: NodeId(0),
            target: Target::Node(NodeId(0)),
            cpus: 4,
            state: Some(numapilot_measure::State { bytes_per_s: 36e9 }),
            range: (30e9, 53e9),
            cells: 9,
            left_out: 3,
            of_other_states: Vec::new(),
        });
        let of = |results: &Results| probes(&scene(&[(0, 0), (0, 0)]), results).expect("one")[0].measured_bytes_per_s;
        assert_eq!(of(&results), 36e9);
        results.states[0].cpus = 8;
        assert_eq!(of(&results), 40e9, "of other CPUs");
        results.states[0] = numapilot_measure::PairState { cpus: 4, state: None, ..results.states[0].clone() };
        assert_eq!(of(&results), 40e9, "no state lasted");
    }

    #[test]
    fn only_like_is_compared_with_like() {
        assert_eq!(reading(&[row("write", 1e9)], &results(2, 64e9)), None);
        assert_eq!(reading(&[row("read", 1e9)], &results(1, 64e9)), None);
        assert!(reading(&[row("read", 0.0)], &results(2, 64e9)).is_some_and(|reading| !reading.is_steady()));
    }
}
