//! One address space: what is live at each address at the current point of the join.
//!
//! The most specific object has precedence, in this order: a block of a pool of the program's own, a heap block, a thread's stack, a mapping that the
//! program made, a symbol or section of a loaded binary, a mapping that existed from the start. A later mapping replaces the part of a stack that it covers.

use std::sync::Arc;

use numapilot_ranges::RangeMap;

use super::blocks::Blocks;
use super::homes::Homes;
use super::pools::Pools;
use super::segments::Part;

/// `np_map_flags` of the wire format that the join uses.
pub(crate) mod map_flags {
    pub const EXEC: u32 = 4;
    pub const STACK: u32 = 16;
    pub const ALLOCATOR: u32 = 32;
    pub const INITIAL: u32 = 64;
    pub const BRK: u32 = 256;
    pub const SHM: u32 = 512;
    pub const RENEWED: u32 = 1024;
}

/// A mapping that is live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapping {
    /// Number of its object in the join's table.
    pub object: u32,
    /// Serial number of the mapping, in the order in which mappings and modules were created.
    pub serial: u32,
    /// `np_map_flags`.
    pub flags: u32,
    /// Its path as a name id; 0 for none.
    pub path: u32,
    /// What it shows of memory that processes share.
    pub part: Option<Part>,
}

/// A loaded binary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    /// Row in the join's module table.
    pub module: u32,
    /// Serial number, as in [`Mapping`].
    pub serial: u32,
}

/// The live set of one process. A clone is cheap until one side changes, because a forked child usually calls exec at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    pub pools: Arc<Pools>,
    pub blocks: Arc<Blocks>,
    pub stacks: Arc<RangeMap<u64, u32>>,
    pub mappings: Arc<RangeMap<u64, Mapping>>,
    pub modules: Arc<RangeMap<u64, Loaded>>,
    pub homes: Arc<Homes>,
    /// Changes whenever a binary or an executable mapping is added or removed; entries cached by code address are then invalid.
    pub code_version: u32,
}

/// What is live at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The object of this number.
    Object(u32),
    /// A loaded binary, whose symbols and sections give the object. The second field is the object of the mapping beneath, if any.
    Module(u32, Option<u32>),
    /// No mapping, block or binary is known at the address.
    Nothing,
}

impl Space {
    /// What is live at `address`. `module_path` gives a module's path as a name id.
    #[inline]
    pub fn find(&self, address: u64, module_path: impl Fn(u32) -> u32) -> Found {
        if let Some(object) = self.pools.get(address).or_else(|| self.blocks.get(address)) {
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

    /// The shared memory at an address, if that is what lies there.
    #[inline]
    pub fn shared_part(&self, address: u64) -> Option<Part> {
        self.mappings.get(address)?.value.part
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
