//! The closed loop: sample, decide with any placement policy, act, measure, keep or undo.
//!
//! Policies are those of `numapilot-placement`, unchanged; whatever touches the kernel goes through `numapilot-kernel`. What decides is pure and stands
//! apart from what touches the system: [`evidence`], [`estimate`], [`harm`], [`allowance`] and
//! [`observe`] know no clock and no file; [`system`] knows no policy;
//! [`pilot`] brings them together, and a [`conductor`] steers it and hears what it does.

pub mod allowance;
pub mod conductor;
pub mod copies;
pub mod estimate;
pub mod event;
pub mod evidence;
pub mod harm;
pub mod observe;
pub mod packer;
pub mod packing;
pub mod pilot;
pub mod status;
pub mod system;
mod tell;
