//! Machines as people want to see them: drawn in a terminal, as JSON, as a picture. What is not known is said to be unknown.

mod diagram;
mod json;
pub mod layout;
mod paper;
mod svg;
mod text;
mod words;

pub use json::json;
pub use svg::svg;
pub use text::text;

#[cfg(test)]
mod tests;
