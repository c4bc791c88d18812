//! Which programs run side by side, on which CPUs, with memory on which node: pure, from a description of the machine and what this process may use.

use std::collections::BTreeMap;

use numapilot_machine::{CpuId, Machine, NodeId};
use numapilot_measure::{Activity, Kernel, Permit};

/// More threads than this fill any memory, and take long to start together.
const THREADS_MAX: usize = 32;
/// Programs side by side, at most.
const PROGRAMS_MAX: usize = 3;

const CHASE: Activity = Activity::Chase;
/// Reading alone, of which a measurement has the bandwidth, too.
pub const READ: Activity = Activity::Stream(Kernel::Read);
const WRITE: Activity = Activity::Stream(Kernel::Write);
const TRIAD: Activity = Activity::Stream(Kernel::Triad);
const UPDATE: Activity = Activity::Stream(Kernel::Mix1To1);
const MIXED: Activity = Activity::Mixed;

/// Pairs where there is little time, or several places to try them at.
const PAIRS: [[Activity; 2]; 6] =
    [[CHASE, READ], [CHASE, WRITE], [READ, READ], [READ, WRITE], [WRITE, WRITE], [MIXED, TRIAD]];
/// Further pairs, in the first place.
const MORE_PAIRS: [[Activity; 2]; 8] = [
    [CHASE, CHASE],
    [CHASE, TRIAD],
    [CHASE, UPDATE],
    [READ, TRIAD],
    [READ, UPDATE],
    [TRIAD, TRIAD],
    [MIXED, WRITE],
    [UPDATE, UPDATE],
];
const TRIPLES: [[Activity; 3]; 4] =
    [[CHASE, READ, WRITE], [READ, READ, READ], [CHASE, TRIAD, TRIAD], [MIXED, READ, UPDATE]];

/// CPUs and memory node of one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Node of its CPUs.
    pub cpu_node: NodeId,
    /// CPUs of the program, one thread on each.
    pub cpus: Vec<CpuId>,
    /// Node of its memory.
    pub memory_node: NodeId,
}

/// Places that programs take at the same time, and which programs take them, cast after cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Name of the scene, in words.
    pub name: String,
    /// Places of the programs.
    pub places: Vec<Place>,
    /// Programs for the places, in their order.
    pub casts: Vec<Vec<Activity>>,
}

/// The scenes of a machine, or the reason why there are none.
///
/// # Errors
/// Fewer than two cores, or no memory beside them: the reason, a clause.
pub fn scenes(machine: &Machine, permit: &Permit, is_quick: bool) -> Result<Vec<Scene>, String> {
    let cores = cores_by_node(machine, permit);
    let count: usize = cores.values().map(Vec::len).sum();
    let cpus = cores.keys().flat_map(|node| machine.node(*node)).flat_map(|node| &node.cpus);
    if count < 2 {
        return Err(match cpus.filter(|cpu| permit.cpus.contains(cpu)).count() {
            0 | 1 => "this process has one CPU, so no two programs can run at the same time".to_owned(),
            _ => "this process has hardware threads of one core only, which share more than memory".to_owned(),
        });
    }
    let memory = |node: &NodeId| {
        permit.memory_nodes.contains(node) && machine.node(*node).is_some_and(numapilot_machine::Node::has_memory)
    };
    let mut out = Vec::new();
    let fullest = cores
        .iter()
        .filter(|(node, _)| memory(node))
        .max_by_key(|(node, cores)| (cores.len(), std::cmp::Reverse(**node)));
    let Some((&home, own)) = fullest else {
        return Err("no node has both CPUs and memory that this process may use".to_owned());
    };
    for programs in (2..=PROGRAMS_MAX).filter(|programs| own.len() >= *programs) {
        let each = (own.len() / programs).min(THREADS_MAX);
        let place = |cpus: &[CpuId]| Place { cpu_node: home, cpus: cpus.to_vec(), memory_node: home };
        let casts = if programs == 2 { pairs(!is_quick) } else { triples() };
        let places = own.chunks_exact(each).take(programs).map(place).collect();
        out.push(Scene { name: format!("all on node {home}"), places, casts });
    }
    let other = cores
        .iter()
        .filter(|(node, _)| **node != home)
        .max_by_key(|(node, cores)| (cores.len(), std::cmp::Reverse(**node)));
    if let Some((&other, theirs)) = other {
        let near = Place { cpu_node: home, cpus: half(own), memory_node: home };
        let far = |cpus: Vec<CpuId>| Place { cpu_node: other, cpus, memory_node: home };
        let name = format!("nodes {home} and {other} use memory of node {home}");
        out.push(Scene { name, places: vec![near, far(half(theirs))], casts: pairs(false) });
        if theirs.len() >= 2 {
            let mut halves = theirs.chunks_exact((theirs.len() / 2).min(THREADS_MAX));
            let places: Vec<Place> = halves.by_ref().take(2).map(|cpus| far(cpus.to_vec())).collect();
            let name = format!("node {other} uses memory of node {home}");
            out.push(Scene { name, places, casts: pairs(false) });
        }
    }
    Ok(out)
}

/// Half of these CPUs, at least one.
fn half(cpus: &[CpuId]) -> Vec<CpuId> {
    cpus[..(cpus.len() / 2).clamp(1, THREADS_MAX)].to_vec()
}

fn pairs(all: bool) -> Vec<Vec<Activity>> {
    let more = MORE_PAIRS.iter().filter(|_| all);
    PAIRS.iter().chain(more).map(|pair| pair.to_vec()).collect()
}

fn triples() -> Vec<Vec<Activity>> {
    TRIPLES.iter().map(|triple| triple.to_vec()).collect()
}

/// One CPU of each core that this process may use, by node: hardware threads of a core share more than memory.
fn cores_by_node(machine: &Machine, permit: &Permit) -> BTreeMap<NodeId, Vec<CpuId>> {
    let usable = |cpu: &CpuId| permit.cpus.contains(cpu) && machine.cpu(*cpu).is_some_and(|cpu| cpu.online);
    let is_first = |cpu: &CpuId| {
        let siblings = machine.cpu(*cpu).map_or(&[][..], |cpu| &cpu.siblings);
        siblings.iter().find(|sibling| usable(sibling)).is_none_or(|first| first == cpu)
    };
    let of_node = |node: &numapilot_machine::Node| {
        let cores: Vec<CpuId> = node.cpus.iter().copied().filter(|cpu| usable(cpu) && is_first(cpu)).collect();
        (node.id, cores)
    };
    machine.nodes().iter().map(of_node).filter(|(_, cores)| !cores.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    //! Scenes of published machines, and of parts of them.

    use std::collections::BTreeSet;

    use super::*;

    fn permit(cpus: &[u32]) -> Permit {
        Permit {
            cpus: cpus.iter().map(|cpu| CpuId(*cpu)).collect(),
            memory_nodes: (0..64).map(NodeId).collect(),
            cpus_at_once: None,
            memory_bytes: None,
            large_pages: false,
            large_page_bytes: 2 << 20,
            huge_free_bytes: std::collections::BTreeMap::new(),
        }
    }

    fn opteron(cpus: &[u32]) -> Result<Vec<Scene>, String> {
        scenes(&Machine::load("opteron-8385").expect("a model"), &permit(cpus), true)
    }

    #[test]
    fn a_machine_with_nodes_has_pairs_triples_and_remote_ones() {
        let all: Vec<u32> = (0..16).collect();
        let scenes = opteron(&all).expect("scenes");
        let shapes: Vec<(&str, usize)> = scenes.iter().map(|scene| (scene.name.as_str(), scene.places.len())).collect();
        let expected = [
            ("all on node 0", 2),
            ("all on node 0", 3),
            ("nodes 0 and 1 use memory of node 0", 2),
            ("node 1 uses memory of node 0", 2),
        ];
        assert_eq!(shapes, expected);
        for scene in &scenes {
            let cpus: Vec<CpuId> = scene.places.iter().flat_map(|place| place.cpus.clone()).collect();
            let distinct: BTreeSet<CpuId> = cpus.iter().copied().collect();
            assert_eq!(distinct.len(), cpus.len(), "no CPU twice: {scene:?}");
            assert!(scene.places.iter().all(|place| !place.cpus.is_empty() && place.memory_node == NodeId(0)));
            assert!(scene.casts.iter().all(|cast| cast.len() == scene.places.len()) && !scene.casts.is_empty());
        }
        assert_eq!(scenes[0].places[0].cpus.len(), 2, "both programs share the node's four cores");
    }

    #[test]
    fn two_cores_make_pairs_and_one_makes_none() {
        assert_eq!(opteron(&[2, 3]).expect("scenes").len(), 1);
        assert_eq!(opteron(&[2, 6]).expect("scenes")[0].name, "nodes 0 and 1 use memory of node 0");
        assert!(opteron(&[5]).expect_err("one CPU").contains("one CPU"));
        let full = scenes(&Machine::load("opteron-8385").expect("a model"), &permit(&[0, 1]), false).expect("scenes");
        assert_eq!(full[0].casts.len(), PAIRS.len() + MORE_PAIRS.len());
    }
}
