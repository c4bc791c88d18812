//! The balancing loop: sample, decide with a placement policy, act, measure, keep or undo.
//!
//! The policies are those of `numapilot-placement`, unchanged; all access to the kernel goes through `numapilot-kernel`.
//!
//! * [`system`] reads the kernel: the managed processes, and the samples of their accesses. It knows no policy.
//! * [`evidence`] says what the samples mean, and when they suffice for a decision. Pure: no clock, no file.
//! * [`decision`] assigns whole processes to nodes, and judges changes by what they gained. Pure, as are the policies.
//! * [`execution`] carries orders out: moves of pages, bindings of threads, copies of files, system settings.
//! * [`balancing_loop`] connects these for pages and threads, [`packer`] for whole processes. A [`control_port`] controls either, and receives its events
//!   ([`event`]) and its [`status`].

pub mod allowance;
pub mod balancing_loop;
mod comparison;
pub mod control_port;
pub mod decision;
pub mod event;
pub mod evidence;
pub mod execution;
pub mod packer;
mod page_groups;
pub mod status;
pub mod step_progress;
pub mod system;
pub mod totals;
mod unfit;
