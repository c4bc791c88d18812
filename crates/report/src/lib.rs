//! Renders machines and insights as text, JSON and SVG. Computes nothing: what is shown was decided in `insight`.

pub mod heading;
pub mod json;
mod pen;
pub mod text;
pub mod topo;
pub mod traffic;
pub mod units;

pub use heading::Heading;
