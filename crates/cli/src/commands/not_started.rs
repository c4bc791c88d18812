//! Commands that could not be started: why, and the status that shells give.

use std::ffi::OsString;
use std::io;

/// Why a command could not be started: in the words of the launcher, with the status that shells give (126, 127), where it knows the reason.
pub fn not_started(command: &[OsString], error: io::Error) -> anyhow::Error {
    match numapilot_launch::resolve_target(command) {
        Err(why) => why.into(),
        Ok(_) => {
            let program = command.first().map(|program| program.to_string_lossy().into_owned());
            anyhow::Error::new(error).context(format!("{}: cannot be started", program.unwrap_or_default()))
        }
    }
}
