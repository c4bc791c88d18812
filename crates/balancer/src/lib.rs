//! The balancing loop: sample, decide with a placement policy, act, measure, keep or undo.
//!
//! The policies are those of `numapilot-placement`, unchanged; all access to the kernel goes through `numapilot-kernel`. The deciding modules are pure:
//! [`evidence`], [`estimate`], [`regression_guard`], [`allowance`] and [`observe`] use no clock and no file. The modules in [`system`] know no policy.
//! [`balancing_loop`] connects the two; a [`control_port`] controls the loop and receives its events.

pub mod allowance;
pub mod balancing_loop;
pub mod control_port;
pub mod copies;
pub mod estimate;
pub mod event;
pub mod evidence;
pub mod observe;
mod order_events;
pub mod packer;
pub mod packing;
mod page_groups;
pub mod regression_guard;
pub mod status;
pub mod step_progress;
pub mod system;
pub mod totals;
mod unfit;
