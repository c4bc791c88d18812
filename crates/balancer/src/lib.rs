//! The closed loop: sample, decide with any placement policy, act, measure, keep or undo.
//!
//! Policies are those of `numapilot-placement`, unchanged; whatever touches the kernel goes through `numapilot-kernel`. What decides is pure and stands
//! apart from what touches the system: [`evidence`], [`estimate`], [`regression_guard`], [`allowance`] and
//! [`observe`] know no clock and no file; [`system`] knows no policy;
//! [`pilot`] brings them together, and a [`control_port`] steers it and hears what it does.

pub mod allowance;
pub mod balancing_loop;
pub mod control_port;
pub mod copies;
pub mod estimate;
pub mod event;
pub mod evidence;
pub mod observe;
pub mod packer;
pub mod packing;
pub mod regression_guard;
pub mod status;
pub mod system;
mod tell;
