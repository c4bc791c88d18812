//! `first-touch`: Linux as it comes. A page goes to the node of the thread that first touches it, and stays.

use super::NOTHING;
use crate::action::Action;
use crate::observation::Observation;
use crate::policy::{Policy, Wishes};

/// See the module.
pub(crate) struct FirstTouch;

impl Policy for FirstTouch {
    fn name(&self) -> &str {
        "first-touch"
    }

    fn wishes(&self) -> Wishes {
        NOTHING
    }

    fn decide(&mut self, _: &Observation) -> Vec<Action> {
        Vec::new()
    }
}
