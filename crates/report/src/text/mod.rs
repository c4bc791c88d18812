//! Reports for terminals and files: plain text within a width, colour only where asked for.

mod code;
mod heap;
mod matrix;
mod object;
mod objects;
mod overview;
mod sampled;
mod threads;
mod timeline;
mod touches;

pub use code::functions;
pub use code::stacks;
pub use heap::heap;
pub use heap::heap_headline;
pub use matrix::end;
pub use matrix::links;
pub use matrix::matrix;
pub use object::object;
pub use objects::objects;
pub use overview::heading;
pub use overview::headline;
pub use overview::missing;
pub use sampled::sampled_heap;
pub use threads::thread;
pub use threads::threads;
pub use touches::touched_objects;
pub use touches::touches;
