//! Before and after for people: a verdict, the figures with their intervals, the objects that changed; as text, picture and page.

mod page;
mod picture;
mod text;
mod words;

pub use page::html;
pub use picture::svg;
pub use text::render;
