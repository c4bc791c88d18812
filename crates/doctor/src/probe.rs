//! Collects what engines need beside events: shared memory, compilers, an emulator.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use numapilot_emulator::Emulator;
use numapilot_perf_events::facts::Answer;
use numapilot_perf_events::probe::answer;

use super::facts::{EmulatorFact, Facts};

/// Collects the facts about this machine and this process. It opens and closes events, and changes nothing.
#[must_use]
pub fn probe() -> Facts {
    Facts {
        events: numapilot_perf_events::probe(),
        memfd: memfd(),
        compilers: numapilot_wrapper::installed(),
        emulator: emulator(),
    }
}

fn memfd() -> Answer {
    // SAFETY: the name is a NUL-terminated string; the call makes a file descriptor, or fails with -1.
    let file = unsafe { libc::memfd_create(c"numapilot".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return answer::<()>(Err(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
    Answer::Works
}

fn emulator() -> EmulatorFact {
    match Emulator::find() {
        Ok(found) => EmulatorFact { version: Some(found.qemu.version), ..EmulatorFact::default() },
        Err(missing) => EmulatorFact { version: None, reason: missing.reason, remedy: missing.remedy },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_shared_memory() {
        let facts = probe();
        assert!(facts.memfd.works(), "{facts:?}");
    }
}
