//! Renders machines and insights as text, JSON, SVG and HTML, and exports them to other programs' formats. Computes nothing: what is shown was decided in
//! `insight`.

pub mod check;
pub mod compare;
mod counted;
pub mod estimates;
pub mod export;
pub mod findings;
#[cfg(test)]
mod fixture;
pub mod heading;
pub mod html;
pub mod json;
pub mod measure;
pub mod pictures;
mod plain_page;
pub mod simulation;
mod svg_writer;
pub mod text;
pub mod topo;
pub mod traffic;
mod unrecorded;

pub use counted::Counted;
pub use heading::Heading;
pub use unrecorded::unrecorded;
