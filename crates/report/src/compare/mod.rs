//! Comparisons of two states of a program as text, picture and page: a verdict, the figures with their intervals, and the objects that changed.

mod page;
mod picture;
mod text;
mod words;

pub use page::html;
pub use picture::svg;
pub use text::render;
