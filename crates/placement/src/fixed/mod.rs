//! Policies that only say where new pages go, and then leave everything where it is.

mod first_touch;
mod interleave;
mod local;
mod weighted_interleave;

pub(crate) use first_touch::FirstTouch;
pub(crate) use interleave::Interleave;
pub(crate) use local::Local;
pub(crate) use weighted_interleave::WeightedInterleave;

use numapilot_machine::NodeIndex;

use crate::error::PlacementError;
use crate::nodes::NodeFacts;
use crate::options::Options;
use crate::policy::PolicyRequirements;

/// Nanoseconds between the decisions of policies that have nothing to decide; one second is what the daemons that they are compared with take.
const IDLE_NS: u64 = 1_000_000_000;

/// Requirements of a policy without statistics.
const NOTHING: PolicyRequirements =
    PolicyRequirements { next_ns: IDLE_NS, samples_per_s_and_cpu: 0.0, mapped: false, homes: false };

/// Nodes that an option `nodes` names (`0-1,3` with `/` for the comma, by the kernel's numbers) or all with memory (`all`).
fn chosen_nodes(options: &Options, facts: &NodeFacts) -> Result<Vec<NodeIndex>, PlacementError> {
    let text = options.text("nodes");
    if text == "all" {
        return Ok(facts.with_memory.clone());
    }
    let remedy = || {
        let ids: Vec<String> = facts.with_memory.iter().map(|&n| facts.ids[n].to_string()).collect();
        format!("name nodes with memory, such as `nodes=0-1/3`; this machine has: {}", ids.join(", "))
    };
    let numbers = numapilot_machine::parse_cpu_list(&text.replace('/', ","))
        .map_err(|error| options.bad("nodes", error.to_string(), remedy()))?;
    let mut nodes = Vec::new();
    for number in numbers {
        match facts.with_memory.iter().find(|&&n| u32::from(facts.ids[n].0) == number) {
            Some(&node) => nodes.push(node),
            None => {
                return Err(options.bad("nodes", format!("node {number} does not exist or has no memory"), remedy()));
            }
        }
    }
    if nodes.is_empty() {
        return Err(options.bad("nodes", "it is empty", remedy()));
    }
    Ok(nodes)
}
