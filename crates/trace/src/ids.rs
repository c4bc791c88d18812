//! Newtypes for the integers that identify things in a trace. An id is an index into the table of the same name,
//! but for the kernel's own ([`Pid`], [`Tid`]), which name others again once a process or thread has ended.

pub use numapilot_host::{Pid, Tid};
use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A thread of the recording, in creation order from 0 (not the kernel's tid, which is re-used).
    ThreadIndex,
    u32
);
id!(
    /// A process image of the recording, from 0; `exec` begins a new one.
    ProcessIndex,
    u32
);
id!(
    /// An object instance: a row of `objects`.
    ObjectId,
    u32
);
id!(
    /// A call stack; 0 is "unknown".
    StackId,
    u32
);
id!(
    /// A loaded binary: unique in the recording, from 1.
    ModuleId,
    u32
);
id!(
    /// Host order stamp (TSC ticks): puts events of all threads in the order in which they really happened on the recording machine.
    Order,
    u64
);
id!(
    /// Program time in nanoseconds since the start of the recording: virtual time on simulated machines, real time elsewhere.
    TimeNs,
    u64
);
