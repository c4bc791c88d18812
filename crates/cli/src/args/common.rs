//! What the options of several commands share.

use std::time::Duration;

use clap::Args;
use clap::ValueEnum;
use clap::builder::TypedValueParser;
use numapilot_host::Pid;
use numapilot_machine::NodeId;
use numapilot_text::quantity::time_in_ms;
pub use numapilot_text::quantity::{part, percentage, time, time_in_us};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// Alternate between the nodes
    Spread,
    /// Fill one node after the other
    Pack,
    /// Not pinned: the idlest CPU at each start and wake-up
    None,
}

#[derive(Debug, Args)]
pub struct LookArgs {
    /// When to use colour
    #[arg(long, value_enum, default_value_t = Colour::Auto)]
    pub color: Colour,
    /// Width of the output, in columns
    #[arg(long, value_name = "COLUMNS", default_value_t = 100, value_parser = clap::value_parser!(u16).range(80..=400))]
    pub width: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set or TERM is dumb
    Auto,
    /// Always use colour
    Always,
    /// Never use colour
    Never,
}

/// A time above 0.
pub fn time_above_0(text: &str) -> Result<Duration, String> {
    above_0(time(text)?)
}

/// A time above 0; a number without a unit is in milliseconds.
pub fn time_in_ms_above_0(text: &str) -> Result<Duration, String> {
    above_0(time_in_ms(text)?)
}

fn above_0(time: Duration) -> Result<Duration, String> {
    if time.is_zero() { Err("the time must be above 0".to_owned()) } else { Ok(time) }
}

/// A process's id, with the bounds and messages of a plain number.
pub fn process() -> impl TypedValueParser<Value = Pid> {
    clap::value_parser!(u32).map(Pid)
}

/// A node's number, with the bounds and messages of a plain number.
pub fn node() -> impl TypedValueParser<Value = NodeId> {
    clap::value_parser!(u16).map(NodeId)
}
