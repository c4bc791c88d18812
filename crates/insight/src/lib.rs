//! insight
