//! What the page holds.

use numapilot_insight::Analysis;
use numapilot_insight::Findings;
use numapilot_machine::Machine;

use crate::heading::Heading;

/// Definitions of every figure, which the page shows on a click.
pub(super) const METRICS: &str = include_str!("../../../../docs/metrics.md");

/// The content of the page.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    /// Program, machine and losses of the recording.
    pub heading: &'a Heading,
    /// The machine, where the trace describes it.
    pub machine: Option<&'a Machine>,
    /// The analysis of the accesses.
    pub analysis: &'a Analysis<'a>,
    /// Its findings; empty where they were not computed.
    pub findings: &'a Findings,
    /// Version of the program that writes the page.
    pub version: &'a str,
}
