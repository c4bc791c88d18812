//! Groups mappings into objects: a library is five mappings, and a process may have hundreds of arenas.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use numapilot_host::VirtAddr;
use numapilot_machine::NodeId;

use super::area::Area;
use super::area::Kind;

/// Sort key of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Key {
    /// Bytes in memory.
    #[default]
    Size,
    /// Bytes far from the process's threads.
    Far,
    /// Bytes mapped.
    Mapped,
    /// Name.
    Name,
    /// Address.
    Address,
    /// Accesses seen by samples, then bytes in memory.
    Seen,
}

/// A group of mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Kind of its mappings.
    pub kind: Kind,
    /// Path or name; empty for anonymous memory.
    pub name: String,
    /// Memory policy, as the kernel writes it.
    pub policy: String,
    /// First address.
    pub start: VirtAddr,
    /// Number of mappings.
    pub areas: usize,
    /// Sizes of some of its mappings are not known, because smaps could not be read or they are newer: [`Object::mapped_bytes`], [`Object::huge_bytes`] and
    /// [`Object::swapped_bytes`] lack them.
    pub lacks_sizes: bool,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Bytes in memory by node.
    pub bytes_by_node: BTreeMap<NodeId, u64>,
    /// Pages in memory by node, of the mapping's page size.
    pub pages_by_node: BTreeMap<NodeId, u64>,
    /// Page size in bytes; 0: the object's mappings differ.
    pub page_bytes: u64,
    /// Bytes in transparent huge pages.
    pub huge_bytes: u64,
    /// Bytes swapped out.
    pub swapped_bytes: u64,
    /// Bytes far from the process's threads.
    pub far_bytes: u64,
    /// Sampled accesses: all, those whose page's node is known, and the local ones of these.
    pub seen: [u64; 3],
}

impl Object {
    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes_by_node.values().sum()
    }

    /// Title: its name, or its address.
    #[must_use]
    pub fn title(&self) -> String {
        match (self.name.is_empty(), self.kind) {
            (false, _) => self.name.clone(),
            (true, Kind::Heap | Kind::Stack) => format!("[{}]", self.kind.word()),
            (true, _) if self.areas > 1 => format!("{} mappings", self.areas),
            (true, _) => format!("{:#x}", self.start.0),
        }
    }

    fn add(&mut self, area: &Area, far: &[NodeId]) {
        if self.areas == 0 {
            (self.kind, self.name, self.policy) = (area.kind, area.name.clone(), area.policy.clone());
            (self.start, self.page_bytes) = (area.start, area.page_bytes);
        }
        self.areas += 1;
        self.lacks_sizes |= area.end.is_none();
        self.mapped_bytes += area.mapped_bytes();
        for (node, pages) in &area.pages {
            *self.bytes_by_node.entry(*node).or_default() += pages.saturating_mul(area.page_bytes);
            *self.pages_by_node.entry(*node).or_default() += pages;
        }
        if self.page_bytes != area.page_bytes {
            self.page_bytes = 0;
        }
        self.huge_bytes += area.huge_kib * 1024;
        self.swapped_bytes += area.swapped_kib * 1024;
        self.far_bytes += area.far_bytes(far);
        self.seen.iter_mut().zip(area.seen).for_each(|(sum, more)| *sum += more);
    }
}

/// Anonymous mappings of at least this size in bytes are objects of their own; smaller ones of one policy are grouped.
const ALONE_BYTES: u64 = 1 << 20;

pub fn objects(areas: &[Area], far: &[NodeId], key: Key, apart: bool) -> Vec<Object> {
    let mut found: BTreeMap<(Kind, &str, &str, VirtAddr), Object> = BTreeMap::new();
    for area in areas {
        let is_alone = apart || (area.name.is_empty() && area.mapped_bytes().max(area.bytes()) >= ALONE_BYTES);
        let apart_by = if is_alone { area.start } else { VirtAddr::default() };
        found.entry((area.kind, &area.name, &area.policy, apart_by)).or_default().add(area, far);
    }
    let mut objects: Vec<Object> = found.into_values().collect();
    match key {
        Key::Size => objects.sort_by_key(|object| (Reverse(object.bytes()), object.start)),
        Key::Far => objects.sort_by_key(|object| (Reverse(object.far_bytes), Reverse(object.bytes()), object.start)),
        Key::Mapped => objects.sort_by_key(|object| (Reverse(object.mapped_bytes), object.start)),
        Key::Name => objects.sort_by(|a, b| a.title().cmp(&b.title()).then(a.start.cmp(&b.start))),
        Key::Seen => objects.sort_by_key(|object| (Reverse(object.seen[0]), Reverse(object.bytes()), object.start)),
        Key::Address => objects.sort_by_key(|object| object.start),
    }
    objects
}
