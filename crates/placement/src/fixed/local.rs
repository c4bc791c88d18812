//! `local`: like `numactl --localalloc`. The same place as first touch, but ordered for each process, so that it stands over
//! whatever policy the process set for itself or inherited.

use std::collections::BTreeSet;

use super::NOTHING;
use crate::action::{Action, Allocation};
use crate::observation::Observation;
use crate::policy::{Policy, PolicyRequirements};

/// See the module.
#[derive(Default)]
pub(crate) struct Local {
    /// Processes that were told.
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
