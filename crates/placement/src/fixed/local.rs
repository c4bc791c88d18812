//! `local`: like `numactl --localalloc`. Pages are placed as by first touch, but the policy is set for each process, so that it replaces
//! the policy that the process set for itself or inherited.

use std::collections::BTreeSet;

use super::NOTHING;
use crate::action::{Action, Allocation};
use crate::observation::Observation;
use crate::policy::{Policy, PolicyRequirements};

/// Policy `local`: new pages are allocated on the node of the first toucher, in every process.
#[derive(Default)]
pub(crate) struct Local {
    /// Processes whose policy was set.
    told: BTreeSet<u32>,
}

impl Policy for Local {
    fn name(&self) -> &str {
        "local"
    }

    fn requirements(&self) -> PolicyRequirements {
        NOTHING
    }

    fn decide(&mut self, seen: &Observation) -> Vec<Action> {
        let alive: BTreeSet<u32> = seen.threads.iter().map(|t| t.process).collect();
        let new: Vec<u32> = alive.difference(&self.told).copied().collect();
        // Numbers of ended processes may come back for new ones.
        self.told = alive;
        new.into_iter().map(|process| Action::Allocate { process, allocation: Allocation::FirstTouch }).collect()
    }
}
