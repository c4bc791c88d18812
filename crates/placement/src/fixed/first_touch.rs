//! `first-touch`: the default of Linux. A page is allocated on the node of the thread that first touches it, and stays.

use super::NOTHING;
use crate::action::Action;
use crate::observation::Observation;
use crate::policy::{Policy, PolicyRequirements};

/// Policy `first-touch`: no action, Linux's default placement.
pub(crate) struct FirstTouch;

impl Policy for FirstTouch {
    fn name(&self) -> &str {
        "first-touch"
    }

    fn requirements(&self) -> PolicyRequirements {
        NOTHING
    }

    fn decide(&mut self, _: &Observation) -> Vec<Action> {
        Vec::new()
    }
}
