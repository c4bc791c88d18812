//! Exit statuses of commands beside success and failure.

/// Exit status of `compare` and `check` where a limit is exceeded, and of `move` where pages that could have moved stayed.
pub const BEYOND_LIMITS: u8 = 3;
