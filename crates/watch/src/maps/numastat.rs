//! A process's memory by numastat's four kinds, as `numastat -p` shows it.

use super::MemoryMap;
use super::area::Kind;

/// numastat's names, in its order; memory of none of the first three kinds counts as private.
pub const NUMASTAT_KINDS: [&str; 4] = ["Huge", "Heap", "Stack", "Private"];

impl MemoryMap {
    /// Bytes by kind (as [`NUMASTAT_KINDS`]) and node (as [`MemoryMap::nodes`]).
    #[must_use]
    pub fn by_numastat_kind(&self) -> [Vec<u64>; 4] {
        let mut rows = std::array::from_fn(|_| vec![0; self.nodes.len()]);
        for area in &self.areas {
            let row: &mut Vec<u64> = match area.kind {
                Kind::Hugetlb => &mut rows[0],
                Kind::Heap => &mut rows[1],
                Kind::Stack => &mut rows[2],
                _ => &mut rows[3],
            };
            row.iter_mut().zip(&self.nodes).for_each(|(bytes, node)| *bytes += area.bytes_on(*node));
        }
        rows
    }
}
