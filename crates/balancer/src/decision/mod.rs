//! Decisions of the balancer itself: which nodes whole processes get ([`packing`]), and which changes are undone because they did not pay
//! ([`regression_guard`], by [`harm_windows`]). Where pages and threads go is decided by the policies of `numapilot-placement`. Pure: no clock, no system
//! calls.

pub mod harm_windows;
pub mod packing;
pub mod regression_guard;
