//! What can go wrong in naming a policy or describing a demand: each message says where, what, and what to do.

use thiserror::Error;

/// Why a policy could not be had, or an optimum not be found.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlacementError {
    /// No policy has this name.
    #[error("no policy is called {name:?}; known: {}; options follow a colon, as in `carrefour:local-ratio=70,period-ms=500`", known.join(", "))]
    UnknownPolicy {
        /// What was asked for.
        name: String,
        /// All that are known.
        known: Vec<&'static str>,
    },
    /// The policy has no such option.
    #[error("policy {policy} has no option {key:?}; {}", listed(known))]
    UnknownOption {
        /// The policy.
        policy: &'static str,
        /// What was asked for.
        key: String,
        /// The options that it has.
        known: Vec<&'static str>,
    },
    /// An option is given without a value, twice, or with one that it cannot take.
    #[error("option {key:?} of policy {policy}: {what}; {remedy}")]
    BadOption {
        /// The policy.
        policy: &'static str,
        /// The option.
        key: String,
        /// What is wrong.
        what: String,
        /// What it takes.
        remedy: String,
    },
    /// The machine cannot hold a single page.
    #[error(
        "machine {machine}: no node has memory, so there is nowhere to place a page; check the `memory_gib` of its nodes"
    )]
    NoMemory {
        /// The machine's name.
        machine: String,
    },
    /// A demand or a placement that cannot be.
    #[error("{place}: {what}; {remedy}")]
    Demand {
        /// Where in it.
        place: String,
        /// What is wrong.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The traffic model cannot answer.
    #[error(transparent)]
    Traffic(#[from] numapilot_traffic::TrafficError),
}

fn listed(known: &[&'static str]) -> String {
    if known.is_empty() { "it takes none".to_owned() } else { format!("it takes: {}", known.join(", ")) }
}
