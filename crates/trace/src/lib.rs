//! The stream of records that engines produce, and its two forms on disk: crash-safe chunks while recording, and Parquet
//! tables afterwards. `docs/trace-format.md` documents both.

pub mod chunk;
pub mod engine;
pub mod ids;
pub mod mapping;
pub mod meta;
pub mod name;
pub mod native;
pub mod output;
pub mod record;
pub mod stream;
pub mod tables;
pub mod unrecorded;
pub mod wire;
