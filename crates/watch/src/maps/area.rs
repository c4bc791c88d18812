//! One mapping, joined from its line in `numa_maps` and its entry in `smaps`.

use std::collections::BTreeMap;

use numapilot_host::VirtAddr;
use numapilot_kernel::maps;
use numapilot_kernel::maps::MapLine;
use numapilot_kernel::maps::MapUse;
use numapilot_kernel::maps::NumaLine;
use numapilot_machine::NodeId;
use numapilot_trace::mapping::is_shared_memory;

/// Kind of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The heap of `brk`.
    Heap,
    /// Private memory without a file: the allocator's larger blocks, threads' stacks, arenas.
    #[default]
    Anonymous,
    /// The main thread's stack.
    Stack,
    /// Pages of the hugetlb pool.
    Hugetlb,
    /// Memory shared by processes: System V, POSIX, memfd, or anonymous.
    Shared,
    /// A mapped file, with pages that the process wrote to and so has for itself.
    File,
    /// The kernel's own mappings, such as the vdso.
    Kernel,
}

impl Kind {
    /// Name of the kind, as shown.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Anonymous => "anonymous",
            Kind::Stack => "stack",
            Kind::Hugetlb => "hugetlb",
            Kind::Shared => "shared",
            Kind::File => "file",
            Kind::Kernel => "kernel",
        }
    }
}

/// A place in a file of huge pages: device, inode, offset in bytes.
pub type HugeFile = ((u32, u32), u64, u64);

/// A mapping and where its pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: VirtAddr,
    /// Address after the last; `None`: smaps could not be read, or the mapping is newer.
    pub end: Option<VirtAddr>,
    /// Kind of the mapping.
    pub kind: Kind,
    /// Path or name; empty for anonymous memory.
    pub name: String,
    /// Permissions as in `maps`: `rw-p`; empty if smaps could not be read.
    pub permissions: String,
    /// Memory policy, as the kernel writes it.
    pub policy: String,
    /// Pages by node, ascending, from numa_maps: of [`Area::page_bytes`] each.
    pub pages: Vec<(NodeId, u64)>,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// KiB in memory; 0 where unknown.
    pub resident_kib: u64,
    /// KiB in memory, each page divided by the number of processes that map it; 0 where unknown.
    pub proportional_kib: u64,
    /// Of a shared hugetlb mapping the file's device and inode, and the offset in it: the kernel counts its pages neither as resident nor proportionally.
    pub huge_file: Option<HugeFile>,
    /// KiB in transparent huge pages.
    pub huge_kib: u64,
    /// KiB swapped out.
    pub swapped_kib: u64,
    /// Sampled accesses: all, those whose page's node is known, and the local ones of these.
    pub seen: [u64; 3],
}

impl Area {
    /// Bytes mapped; 0 where unknown.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.end.map_or(0, |end| end.0.saturating_sub(self.start.0))
    }

    /// Bytes in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.iter().map(|(_, pages)| pages.saturating_mul(self.page_bytes)).sum()
    }

    /// Bytes on a node.
    #[must_use]
    pub fn bytes_on(&self, node: NodeId) -> u64 {
        self.pages_on(node).saturating_mul(self.page_bytes)
    }

    /// The process's share of the pages, 0 to 1: pages that several processes map are shared among them. 1 where it is not known.
    #[must_use]
    pub fn own_share(&self) -> f64 {
        match (self.proportional_kib, self.resident_kib) {
            (0, _) | (_, 0) => 1.0,
            (own, all) => (own as f64 / all as f64).min(1.0),
        }
    }

    /// Pages on a node.
    #[must_use]
    pub fn pages_on(&self, node: NodeId) -> u64 {
        self.pages.iter().filter(|(on, _)| *on == node).map(|(_, pages)| pages).sum()
    }

    /// Bytes on any of these nodes.
    #[must_use]
    pub fn far_bytes(&self, nodes: &[NodeId]) -> u64 {
        nodes.iter().map(|node| self.bytes_on(*node)).sum()
    }
}

/// Joins the mappings of two texts, by address. Mappings that are only in `smaps` have no pages: `numa_maps` omits some of the kernel's.
pub fn join(numa_maps: &[u8], smaps: &[u8]) -> Vec<Area> {
    let mut sizes: BTreeMap<VirtAddr, (MapLine<'_>, MapUse)> = BTreeMap::new();
    sizes.extend(maps::uses(smaps).map(|(line, used)| (line.start, (line, used))));
    let mut areas: Vec<Area> = Vec::new();
    maps::numa_maps(numa_maps, |line, pages| areas.push(area(&line, pages, sizes.remove(&line.start))));
    // The kernel gives no page size in `numa_maps` for a mapping without pages.
    let is_told = |area: &&Area| area.page_bytes > 0 && area.kind != Kind::Hugetlb;
    let default_page = areas.iter().filter(is_told).map(|area| area.page_bytes).min().unwrap_or(4096);
    areas.iter_mut().filter(|area| area.page_bytes == 0).for_each(|area| area.page_bytes = default_page);
    for (line, used) in sizes.into_values() {
        let alone =
            NumaLine { start: line.start, page_kib: used.page_kib.max(default_page / 1024), ..NumaLine::default() };
        areas.push(area(&alone, &[], Some((line, used))));
    }
    areas.sort_by_key(|area| area.start);
    areas
}

fn area(line: &NumaLine<'_>, pages: &[(NodeId, u64)], sizes: Option<(MapLine<'_>, MapUse)>) -> Area {
    let (kind, name) = identify(line, sizes.as_ref().map(|(map, _)| map));
    let (map, used) = sizes.map_or((None, MapUse::default()), |(map, used)| (Some(map), used));
    let huge_file = map.as_ref().filter(|map| line.is_huge && map.is_shared());
    Area {
        start: line.start,
        end: map.as_ref().map(|map| map.end),
        kind,
        name,
        permissions: map.map_or_else(String::new, |map| String::from_utf8_lossy(&map.permissions).into_owned()),
        policy: String::from_utf8_lossy(line.policy).into_owned(),
        pages: pages.to_vec(),
        page_bytes: if line.page_kib > 0 { line.page_kib } else { used.page_kib } * 1024,
        resident_kib: used.resident_kib,
        proportional_kib: used.proportional_kib,
        huge_file: huge_file.map(|map| (map.device, map.inode, map.offset)),
        huge_kib: used.huge_kib,
        swapped_kib: used.swapped_kib,
        seen: [0; 3],
    }
}

/// Kind and name of a mapping, from both lines. The kernel's own names take precedence; otherwise the path decides.
fn identify(line: &NumaLine<'_>, map: Option<&MapLine<'_>>) -> (Kind, String) {
    let path = match map {
        Some(map) => String::from_utf8_lossy(map.path).into_owned(),
        None => unescape(line.file),
    };
    let kind = match path.as_str() {
        _ if line.is_huge => Kind::Hugetlb,
        _ if line.is_heap => Kind::Heap,
        _ if line.is_stack => Kind::Stack,
        "[heap]" => Kind::Heap,
        "[stack]" => Kind::Stack,
        _ if path.starts_with("[anon:") => Kind::Anonymous,
        _ if path.starts_with('[') && !path.starts_with("[anon_shmem:") => Kind::Kernel,
        _ if is_shared_memory(path.as_bytes()) => Kind::Shared,
        "" if map.is_some_and(MapLine::is_shared) => Kind::Shared,
        "" => Kind::Anonymous,
        _ => Kind::File,
    };
    // Names that repeat the kind are dropped.
    let name = if matches!(path.as_str(), "[heap]" | "[stack]") { String::new() } else { path };
    (kind, name)
}

/// Decodes a path from numa_maps, in which blanks and similar characters are octal escapes.
fn unescape(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match digits {
            Some(digits) => {
                out.push(digits.iter().fold(0_u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')));
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel of arm64 with pages of 64 KiB. A mapping without pages was said to have such of 4 KiB, on every kernel and of every kind.
    #[test]
    fn a_mapping_without_pages_has_the_kernels_pages() {
        let numa_maps = b"aaaa0000 default heap anon=3 dirty=3 N0=3 kernelpagesize_kB=64\nffff0000 default\n\
            ffff80000000 default file=/anon_hugepage\\040(deleted) huge\n";
        let smaps = b"ffff0000-ffff8000 rw-p 00000000 00:00 0 \nKernelPageSize: 64 kB\n\
            ffff80000000-ffffa0000000 rw-p 00000000 00:0f 9 /anon_hugepage (deleted)\nKernelPageSize: 524288 kB\n";
        let sizes = |smaps: &[u8]| join(numa_maps, smaps).iter().map(|area| area.page_bytes).collect::<Vec<_>>();
        assert_eq!(sizes(smaps), [65_536, 65_536, 512 << 20]);
        assert_eq!(sizes(b"")[..2], [65_536, 65_536], "without smaps, as the other mappings");
    }
}
