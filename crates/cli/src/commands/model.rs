//! `--machine` of the commands that act on this machine: its latencies, bandwidths and links as a model has them.

use anyhow::Result;
use anyhow::bail;
use numapilot_machine::Machine;
use numapilot_machine::format_cpu_list;

/// This machine with the figures of a model (name or file) that has the same nodes.
///
/// # Errors
/// There is no such model, or its nodes are others.
pub fn with_figures(live: &Machine, name: &str) -> Result<Machine> {
    let model = Machine::load(name)?;
    let nodes = |machine: &Machine| format_cpu_list(machine.nodes().iter().map(|node| u32::from(node.id.0)));
    let (theirs, ours) = (nodes(&model), nodes(live));
    if theirs != ours {
        bail!(
            "--machine {name}: the model has nodes {theirs}, this machine has nodes {ours}; give a model with the same nodes"
        );
    }
    Ok(live.with_figures_of(&model)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_a_model_with_the_same_nodes_alone() {
        let machine = Machine::load("xeon-2s").unwrap();
        let figures = with_figures(&machine, "xeon-2s").unwrap();
        let bandwidths = |machine: &Machine| -> Vec<Option<f64>> {
            machine.nodes().iter().map(|node| node.memory_bandwidth_bytes_per_s).collect()
        };
        assert!(bandwidths(&figures) == bandwidths(&machine) && figures.nodes().len() == 2);
        let error = with_figures(&machine, "xeon-2s-cxl").unwrap_err().to_string();
        assert!(error.contains("the model has nodes 0-2, this machine has nodes 0-1;"), "{error}");
    }
}
