//! Newtypes for nodes, CPUs, sockets, links and routers. Nodes, CPUs and sockets go by the kernel's (or the model file's) own
//! numbers, which may be sparse; links and routers are numbered from 0 in the order in which a machine lists them.

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
    /// A NUMA node's number.
    NodeId,
    u16
);
id!(
    /// A logical CPU's number.
    CpuId,
    u32
);
id!(
    /// A physical package's number.
    SocketId,
    u32
);
id!(
    /// A core's number, unique in the machine (the kernel numbers cores per package; readers renumber them).
    CoreId,
    u32
);
id!(
    /// A directed link: an index into [`crate::Machine::links`].
    LinkId,
    u16
);
id!(
    /// A router: an index into [`crate::Machine::routers`].
    RouterId,
    u16
);
