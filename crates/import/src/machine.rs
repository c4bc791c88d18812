//! Whether a machine model can be of the machine that a recording was made on.

use std::collections::BTreeSet;

use numapilot_machine::{Machine, NodeId};

/// How a model differs from the recorded machine in what a trace takes from it: the nodes, and the CPUs on them. `None`: it may be that machine. A model may
/// have CPUs that the recording does not list (they were offline).
pub fn difference(recorded: &Machine, model: &Machine) -> Option<String> {
    let ids = |machine: &Machine| -> BTreeSet<NodeId> {
        // The kernel lists nodes without anything; models leave them out.
        machine.nodes().iter().filter(|node| node.has_cpus() || node.has_memory()).map(|node| node.id).collect()
    };
    let (of_recorded, of_model) = (ids(recorded), ids(model));
    if of_recorded != of_model {
        return Some(format!(
            "the recording is of nodes {}, the model of nodes {}",
            list(&of_recorded),
            list(&of_model)
        ));
    }
    for node in recorded.nodes() {
        for &cpu in &node.cpus {
            let there = model.node_of_cpu(cpu);
            if there != Some(node.id) {
                let place = there.map_or_else(|| "nowhere".to_owned(), |there| format!("on node {there}"));
                return Some(format!("CPU {cpu} was on node {}, and is {place} in the model", node.id));
            }
        }
    }
    None
}

fn list(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_has_the_nodes_and_cpus_of_the_recording() {
        let model = |name: &str| Machine::load(name).expect("a built-in model");
        let opteron = model("opteron-8385");
        assert_eq!(difference(&opteron, &opteron), None);
        let other = difference(&opteron, &model("epyc-2s-nps4")).expect("another machine");
        assert!(other.starts_with("the recording is of nodes 0, 1, 2, 3, the model of nodes 0, 1, 2, 3, 4"), "{other}");
        let text = numapilot_machine::builtin_text("opteron-8385").expect("a built-in model");
        let swapped = text.replacen("\"0-3\", \"4-7\"", "\"4-7\", \"0-3\"", 1);
        assert_ne!(swapped, text, "the model's CPUs are written otherwise");
        let swapped = Machine::from_model_text(&swapped, "m.toml").expect("a sound model");
        let told = difference(&opteron, &swapped).expect("another machine");
        assert_eq!(told, "CPU 0 was on node 0, and is on node 1 in the model");
    }
}
