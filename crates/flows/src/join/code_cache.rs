//! A thread's latest code addresses.

use crate::model::LocationId;

/// Entries of the cache; a power of two.
const ENTRIES: usize = 256;

/// A thread's latest code addresses, by their low bits.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeCache {
    version: u32,
    entries: Vec<(u64, LocationId)>,
}

impl CodeCache {
    /// The location at a code address other than 0. `version`: that of the process's code; with another one, the cache is emptied.
    #[inline]
    pub fn get(&mut self, version: u32, ip: u64) -> Option<LocationId> {
        if self.version != version || self.entries.is_empty() {
            self.version = version;
            self.entries = vec![(0, LocationId(0)); ENTRIES];
        }
        let (address, location) = self.entries[slot(ip)];
        (address == ip).then_some(location)
    }

    /// Adds what was just asked for.
    #[inline]
    pub fn put(&mut self, ip: u64, location: LocationId) {
        self.entries[slot(ip)] = (ip, location);
    }
}

fn slot(ip: u64) -> usize {
    (ip ^ (ip >> 8)) as usize % ENTRIES
}
