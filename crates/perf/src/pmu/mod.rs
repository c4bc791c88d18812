//! What a machine offers for sampling memory accesses: its PMUs as sysfs lists them (`/sys/bus/event_source/devices`, described in
//! `Documentation/ABI/testing/sysfs-bus-event_source-devices-*`), and the events to open, as data. Read under a root prefix; nothing is opened.
//! These files decide what is available, never the processor's model.

mod format;
mod offer;
mod sysfs;

pub use format::{Field, Word};
pub use offer::{Offer, SampleRequest, Sampler, offers};
pub use sysfs::{Pmu, read};

use std::path::PathBuf;

use thiserror::Error;

/// Why a PMU cannot be described.
#[derive(Debug, Error)]
pub enum PmuError {
    /// A file holds what the kernel never writes.
    #[error("{}: {what}; the kernel never writes this: check what is mounted there", path.display())]
    Nonsense {
        /// Path of the file.
        path: PathBuf,
        /// What the file holds, as part of a sentence.
        what: String,
    },
    /// An event asks for what the PMU does not have.
    #[error("{pmu}: event `{event}`: {what}")]
    Event {
        /// Name of the PMU.
        pmu: String,
        /// The event's terms.
        event: String,
        /// What is wrong, as a clause of the message.
        what: String,
    },
}
