//! Errors of naming a policy and of describing a demand: each message names the place, the problem and the remedy.

use thiserror::Error;

/// Errors of selecting a policy, and of searching an optimum.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlacementError {
    /// No policy has this name.
    #[error("there is no policy {name:?}; known: {}; options follow a colon, as in `carrefour:local-ratio=70,period-ms=500`", known.join(", "))]
    UnknownPolicy {
        /// The name that was given.
        name: String,
        /// Names of all policies.
        known: Vec<&'static str>,
    },
    /// The policy has no such option.
    #[error("policy {policy} has no option {key:?}; {}", listed(known))]
    UnknownOption {
        /// Name of the policy.
        policy: &'static str,
        /// The option that was given.
        key: String,
        /// The options that it has.
        known: Vec<&'static str>,
    },
    /// An option is given without a value, twice, or with one that it cannot take.
    #[error("option {key:?} of policy {policy}: {what}; {remedy}")]
    BadOption {
        /// Name of the policy.
        policy: &'static str,
        /// Name of the option.
        key: String,
        /// What is wrong, as a clause of the message.
        what: String,
        /// The values that the option takes.
        remedy: String,
    },
    /// The machine cannot hold a single page.
    #[error("machine {machine}: no node has memory, so no page can be placed; check the `memory_gib` of its nodes")]
    NoMemory {
        /// The machine's name.
        machine: String,
    },
    /// A demand or a placement that is inconsistent.
    #[error("{place}: {what}; {remedy}")]
    Demand {
        /// The field of the demand or placement.
        place: String,
        /// What is wrong, as a clause of the message.
        what: String,
        /// What the user can do about it, as a clause of the message.
        remedy: String,
    },
    /// The traffic model cannot be solved for this machine and load.
    #[error(transparent)]
    Traffic(#[from] numapilot_traffic::TrafficError),
}

fn listed(known: &[&'static str]) -> String {
    if known.is_empty() { "it takes no options".to_owned() } else { format!("it takes: {}", known.join(", ")) }
}
