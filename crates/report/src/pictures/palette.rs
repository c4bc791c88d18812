//! Colours: one for each of a few nodes, and a pair for local and remote.

/// Okabe and Ito's colours for every kind of colour vision, in an order in which neighbours differ in lightness too.
const NODES: [&str; 8] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#4d4d4d"];
/// What is not shown by itself.
pub const OTHERS: &str = "#c9ccd0";
/// Local accesses: light.
pub const LOCAL: &str = "#a9c3dd";
/// Remote accesses: dark.
pub const REMOTE: &str = "#b5342f";
/// Text and axes.
pub const INK: &str = "#20262e";
/// Secondary text.
pub const FAINT: &str = "#5b6570";
/// Grid lines.
pub const GRID: &str = "#dfe2e5";

/// As many nodes as have a colour of their own.
pub const NODE_COLOURS: usize = NODES.len();

/// Colour of the n-th node that is shown.
pub fn node(index: usize) -> &'static str {
    NODES.get(index).copied().unwrap_or(OTHERS)
}
