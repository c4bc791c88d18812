//! Findings in sentences: what happens, what it costs, what to do, and what that would gain. Text, JSON and the page use the same words.

mod json;
mod text;
mod words;

#[cfg(test)]
mod tests;

pub use json::json;
pub use text::text;
pub(crate) use words::{doubt_words, evidence_words, explanation, means_words, nothing_words, subject_words};
pub use words::{effect_words, fix_words, gain_words, price_words};
pub(crate) use words::{gain_span, saved, unsettled_words, work_span};

/// Number of findings in a report without `--findings`.
pub const SHOWN: usize = 3;
