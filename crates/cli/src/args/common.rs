//! What the options of several commands share.

use clap::Args;
use clap::ValueEnum;
use clap::builder::TypedValueParser;
use numapilot_host::Pid;
pub use numapilot_text::quantity::{part, percentage, time};

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
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always use colour
    Always,
    /// Never use colour
    Never,
}

/// A process's id, with the bounds and messages of a plain number.
pub fn process() -> impl TypedValueParser<Value = Pid> {
    clap::value_parser!(u32).map(Pid)
}
