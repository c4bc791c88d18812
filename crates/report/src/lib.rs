//! Renders machines and insights as text, JSON and SVG. Computes nothing: what is shown was decided in `insight`.

pub mod heading;
pub mod json;
pub mod text;
pub mod traffic;
pub mod topo;
pub mod units;

pub use heading::Heading;

mod pen {
    pub use crate::topo::svg::pen::{Pen, Type};
}
