//! One address space: what lives at each address right now.
//!
//! Most specific wins: a heap block over a thread's stack over a mapping that the program made over a symbol or section of a
//! loaded binary over the mappings that were there from the start. A mapping that is made later takes from a stack what it covers.

use std::sync::Arc;

use super::blocks::Blocks;
use super::homes::Homes;
use super::ranges::Ranges;

/// `np_map_flags` of the wire format that the join looks at.
pub(crate) mod map_flags {
    pub const EXEC: u32 = 4;
    pub const STACK: u32 = 16;
    pub const ALLOCATOR: u32 = 32;
    pub const INITIAL: u32 = 64;
    pub const BRK: u32 = 256;
    pub const SHM: u32 = 512;
}

/// A mapping that is live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// Its object.
    pub object: u32,
    /// Serial number of its making among mappings and modules of the recording.
    pub serial: u32,
    /// `np_map_flags`.
    pub flags: u32,
    /// Its path as a name id; 0 for none.
    pub path: u32,
}

/// A loaded binary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    /// Row in the join's module table.
    pub module: u32,
    /// Serial number, as in [`Mapping`].
    pub serial: u32,
}

/// The live set of one process. Cloning is cheap until one side changes: a forked child mostly execs at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub blocks: Arc<Blocks>,
    pub stacks: Arc<Ranges<u32>>,
    pub mappings: Arc<Ranges<Mapping>>,
    pub modules: Arc<Ranges<Loaded>>,
    pub homes: Arc<Homes>,
    /// Changes whenever binaries or executable mappings come or go: what was cached by code address is void then.
    pub code_version: u32,
}

/// What lives at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An object.
    Object(u32),
    /// A loaded binary: its symbols and sections say more. The object is the mapping beneath, if any.
    Module(u32, Option<u32>),
    /// Nothing known.
    Nothing,
}

impl Space {
    /// What lives at `address`. `module_path` tells a module's path as a name id.
    #[inline]
    pub fn find(&self, address: u64, module_path: impl Fn(u32) -> u32) -> Found {
        if let Some(object) = self.blocks.get(address) {
            return Found::Object(object);
        }
        if let Some(piece) = self.stacks.get(address) {
            return Found::Object(piece.value);
        }
        let mapping = self.mappings.get(address).map(|piece| piece.value);
        match (self.modules.get(address).map(|piece| piece.value), mapping) {
            (Some(module), Some(mapping)) if mapping.covers(module, module_path(module.module)) => {
                Found::Object(mapping.object)
            }
            (Some(module), mapping) => Found::Module(module.module, mapping.map(|mapping| mapping.object)),
            (None, Some(mapping)) => Found::Object(mapping.object),
            (None, None) => Found::Nothing,
        }
    }

    /// The binary at a code address and the start of its range.
    #[inline]
    pub fn module_at(&self, address: u64) -> Option<u32> {
        self.modules.get(address).map(|piece| piece.value.module)
    }
}

impl Mapping {
    /// Whether this mapping lies over the binary rather than being part of it: made later, and not of the binary's file.
    fn covers(self, module: Loaded, module_path: u32) -> bool {
        self.flags & map_flags::INITIAL == 0 && self.serial > module.serial && self.path != module_path
    }
}
