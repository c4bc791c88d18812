//! The closed loop: sample, decide with any placement policy, act, measure, keep or undo.
//!
//! Policies are those of `numapilot-placement`, unchanged; whatever touches the kernel goes through `numapilot-kernel`.

pub mod event;
pub mod status;
