//! AMD instruction-based sampling of micro-operations: the registers in a raw sample, as `arch/x86/events/amd/ibs.c` copies them and
//! AMD's Processor Programming References (family 10h: the BIOS and Kernel Developer's Guide, 31116) describe them.
//!
//! DataSrc is valid for loads only, latency only for loads that missed the first data cache.

use crate::bytes::{Bytes, Endian};
use crate::data_src::{Distance, Level, Operation, Snoop, Tlb};
use crate::error::DecodeError;

/// Capabilities (CPUID 8000_001B EAX), the first word of a raw sample.
pub mod caps {
    /// IbsBrTarget is there.
    pub const BRANCH_TARGET: u32 = 1 << 5;
    /// IbsFetchCtlExtd is there: on Zen, and on the last models of family 15h.
    pub const FETCH_CTL_EXTD: u32 = 1 << 9;
    /// IbsOpData4 is there.
    pub const OP_DATA4: u32 = 1 << 10;
    /// The longer DataSrc of Zen 4 and later.
    pub const ZEN4: u32 = 1 << 11;
}

/// Bit of the configuration of `ibs_op` (`cnt_ctl`): the period counts micro-operations rather than cycles. The oldest processors, which lack it
/// (IBS_CAPS_OPCNT), count cycles alone.
pub const COUNTS_OPERATIONS: u64 = 1 << 19;

/// One sampled micro-operation: the registers as they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpRecord {
    /// IBS capabilities: bits of [`caps`].
    pub caps: u32,
    /// Register IbsOpCtl.
    pub ctl: u64,
    /// Register IbsOpRip: the instruction's address.
    pub rip: u64,
    /// Register IbsOpData.
    pub data: u64,
    /// Register IbsOpData2: the data source.
    pub data2: u64,
    /// Register IbsOpData3: the data cache's results.
    pub data3: u64,
    /// Register IbsDcLinAd: the linear data address.
    pub linear: u64,
    /// Register IbsDcPhysAd: the physical data address.
    pub physical: u64,
}

mod data {
    pub const RIP_INVALID: u64 = 1 << 38;
}

mod data2 {
    pub const REMOTE_NODE: u64 = 1 << 4;
    /// Family 10h and Zen to 3: the line was in the owned state; modified otherwise.
    pub const CACHE_HIT_STATE: u64 = 1 << 5;
}

/// DataSrc of registers of devices, in both its forms (`IBS_DATA_SRC_IO`).
const IO: u64 = 7;

mod data3 {
    pub const LOAD: u64 = 1;
    pub const STORE: u64 = 1 << 1;
    pub const L1TLB_MISS: u64 = 1 << 2;
    pub const L2TLB_MISS: u64 = 1 << 3;
    pub const MISS: u64 = 1 << 7;
    pub const UNCACHED: u64 = 1 << 14;
    pub const LOCKED: u64 = 1 << 15;
    pub const NO_MAB: u64 = 1 << 16;
    pub const LINEAR_VALID: u64 = 1 << 17;
    pub const PHYSICAL_VALID: u64 = 1 << 18;
    pub const L2_MISS: u64 = 1 << 20;
    pub const PREFETCH: u64 = 1 << 21;
}

/// Where the data came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Level of the memory hierarchy that answered.
    pub level: Level,
    /// Distance of what answered.
    pub distance: Distance,
    /// What the other cache's copy did.
    pub snoop: Snoop,
}

impl OpRecord {
    /// Reads the raw data of an `ibs_op` sample.
    ///
    /// # Errors
    /// If they are too short to hold the registers.
    pub fn decode(raw: &[u8], offset: u64) -> Result<OpRecord, DecodeError> {
        let mut bytes = Bytes::new(raw, offset, Endian::Little);
        let caps = bytes.u32("the capabilities of IBS")?;
        let mut register = || bytes.u64("a register of IBS");
        Ok(OpRecord {
            caps,
            ctl: register()?,
            rip: register()?,
            data: register()?,
            data2: register()?,
            data3: register()?,
            linear: register()?,
            physical: register()?,
        })
    }

    fn has(&self, bit: u64) -> bool {
        self.data3 & bit != 0
    }

    /// Address of the instruction, if the hardware vouches for it.
    #[must_use]
    pub fn rip(&self) -> Option<u64> {
        (self.data & data::RIP_INVALID == 0 && self.rip != 0).then_some(self.rip)
    }

    /// Linear data address; `None` if the hardware marks it invalid, or the micro-operation accesses no memory: the kernel gives those no address, whatever
    /// the other bits are (`perf_ibs_parse_ld_st_data`).
    #[must_use]
    pub fn linear_address(&self) -> Option<u64> {
        let is_access = self.has(data3::LOAD | data3::STORE | data3::PREFETCH);
        (is_access && self.has(data3::LINEAR_VALID)).then_some(self.linear)
    }

    /// Physical data address (52 bits). For users who may not see it the kernel writes 0, and since 7.1 leaves the bit that calls it valid
    /// (`perf_ibs_phyaddr_clear`); no program has memory there.
    #[must_use]
    pub fn physical_address(&self) -> Option<u64> {
        let address = self.physical & ((1 << 52) - 1);
        (self.has(data3::PHYSICAL_VALID) && address != 0).then_some(address)
    }

    /// What the micro-operation did.
    #[must_use]
    pub fn operation(&self) -> Operation {
        match (self.has(data3::LOAD), self.has(data3::STORE)) {
            _ if self.has(data3::PREFETCH) => Operation::Prefetch,
            (true, true) => Operation::LoadStore,
            (true, false) => Operation::Load,
            (false, true) => Operation::Store,
            (false, false) => Operation::Unknown,
        }
    }

    /// Whether the operation is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.has(data3::LOCKED)
    }

    /// Result of the address translation.
    #[must_use]
    pub fn tlb(&self) -> Tlb {
        match (self.has(data3::LINEAR_VALID), self.has(data3::L1TLB_MISS), self.has(data3::L2TLB_MISS)) {
            (false, _, _) => Tlb::Unknown,
            (true, false, _) => Tlb::L1Hit,
            (true, true, false) => Tlb::L2Hit,
            (true, true, true) => Tlb::Miss,
        }
    }

    /// Cycles from the miss of the first data cache to the data: loads that missed only. The figure "is not valid for data cache writes or prefetch
    /// instructions", which are loads to the register, too.
    #[must_use]
    pub fn latency_cycles(&self) -> Option<u32> {
        let cycles = (self.data3 >> 32) as u32 & 0xffff;
        let is_valid = self.has(data3::LOAD) && self.has(data3::MISS) && !self.has(data3::UNCACHED | data3::PREFETCH);
        (is_valid && cycles != 0).then_some(cycles)
    }

    /// Where the data came from. Stores that missed: unknown.
    #[must_use]
    pub fn data_source(&self) -> Source {
        let at = |level, distance| Source { level, distance, snoop: Snoop::Unknown };
        if !self.has(data3::LOAD | data3::STORE) {
            return Source::default();
        }
        let source = self.data2 & 7 | (self.data2 >> 6 & 3) << 3;
        let source = if self.caps & caps::ZEN4 != 0 { source } else { source & 7 };
        if self.has(data3::UNCACHED) {
            // "DcMiss, L2Miss, DataSrc, DcMissLat etc. are all invalid for Uncached memory accesses", but a device's (`perf_ibs_get_mem_lvl`).
            return at(if source == IO { Level::Io } else { Level::Uncached }, Distance::Unknown);
        }
        if !self.has(data3::MISS) {
            return at(Level::L1, Distance::Local);
        }
        if self.is_l2_hit() {
            return at(Level::L2, Distance::Local);
        }
        // L2Miss is 0 on processors that lack the bit, too; there DataSrc must say.
        let is_load = self.has(data3::LOAD);
        let beyond = if self.caps & caps::ZEN4 != 0 { self.extended_source(source) } else { self.short_source(source) };
        match beyond {
            Some(source) if is_load => source,
            // Early steppings of Zen 3 set L2Miss wrongly for prefetches and merged misses (erratum 1293), so those do not count.
            _ if !self.has(data3::L2_MISS | data3::PREFETCH | data3::NO_MAB) => at(Level::L2, Distance::Local),
            _ if self.has(data3::NO_MAB) => at(Level::LineFill, Distance::Unknown),
            _ => Source::default(),
        }
    }

    /// Whether the second cache had the line of an access that missed the first one, where L2Miss can be believed: IbsOpData2 is valid only for loads that
    /// missed both, so `perf_ibs_get_mem_lvl` does not look at DataSrc then. The bit is older than IbsFetchCtlExtd (family 15h, model 30h). Zen 3, which sets
    /// it wrongly for prefetches and merged misses, cannot be told from Zen 2.
    fn is_l2_hit(&self) -> bool {
        let has_bit = self.caps & (caps::FETCH_CTL_EXTD | caps::ZEN4) != 0;
        let is_sure = self.caps & caps::ZEN4 != 0 || !self.has(data3::PREFETCH | data3::NO_MAB);
        has_bit && is_sure && !self.has(data3::L2_MISS)
    }

    fn is_remote_node(&self) -> bool {
        self.data2 & data2::REMOTE_NODE != 0
    }

    fn memory(&self, level: Level) -> Source {
        let distance = if self.is_remote_node() { Distance::Remote } else { Distance::Local };
        Source { level, distance, snoop: Snoop::Unknown }
    }

    /// DataSrc from Zen 4 on.
    fn extended_source(&self, source: u64) -> Option<Source> {
        let cache = |level, distance| Source { level, distance, snoop: Snoop::Hit };
        Some(match source {
            1 => cache(Level::L3, Distance::Local),
            2 => cache(Level::PeerCache, Distance::SameNode),
            // "Another CCX cache in a different NUMA node". RmtNode is about memory only (`ZEN4_RMT_NODE_BITS`).
            5 => cache(Level::PeerCache, Distance::Remote),
            3 => self.memory(Level::Ram),
            6 => self.memory(Level::PersistentRam),
            IO => Source { level: Level::Io, ..Source::default() },
            8 => self.memory(Level::Cxl),
            // Memory of another agent (an accelerator).
            12 => Source { level: Level::Ram, distance: Distance::Remote, snoop: Snoop::Unknown },
            _ => return None,
        })
    }

    /// DataSrc of family 10h up to Zen 3.
    fn short_source(&self, source: u64) -> Option<Source> {
        let state = if self.data2 & data2::CACHE_HIT_STATE != 0 { Snoop::Hit } else { Snoop::HitModified };
        Some(match source {
            // Family 10h: the L3, or a first or second cache behind it.
            1 => Source { level: Level::L3, distance: Distance::Local, snoop: Snoop::Unknown },
            // Family 10h: another core's cache, of whichever node; Zen: the local L3, or a cache of the same core complex.
            2 if self.is_remote_node() => Source { level: Level::PeerCache, distance: Distance::Remote, snoop: state },
            2 if self.caps & caps::FETCH_CTL_EXTD == 0 => {
                Source { level: Level::PeerCache, distance: Distance::SameNode, snoop: state }
            }
            2 => Source { level: Level::L3, distance: Distance::Local, snoop: Snoop::Unknown },
            3 => self.memory(Level::Ram),
            // "Remote node cache". RmtNode is about memory only (`RMT_NODE_BITS`).
            4 => Source { level: Level::PeerCache, distance: Distance::Remote, snoop: state },
            IO => Source { level: Level::Io, ..Source::default() },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD_MISS: u64 = data3::LOAD | data3::MISS | data3::L2_MISS | data3::LINEAR_VALID;

    fn source(caps: u32, data2: u64, data3: u64) -> (Level, Distance) {
        let source = OpRecord { caps, data2, data3, ..OpRecord::default() }.data_source();
        (source.level, source.distance)
    }

    #[test]
    fn every_data_source_of_zen_4_is_told_apart() {
        let zen4 = |data2| source(caps::ZEN4, data2, LOAD_MISS);
        assert_eq!(zen4(1), (Level::L3, Distance::Local));
        assert_eq!(zen4(2), (Level::PeerCache, Distance::SameNode));
        assert_eq!(zen4(3), (Level::Ram, Distance::Local));
        assert_eq!(zen4(3 | data2::REMOTE_NODE), (Level::Ram, Distance::Remote));
        // A far core complex is of another node, whatever RmtNode holds, and a near one of this node.
        for remote in [0, data2::REMOTE_NODE] {
            assert_eq!(zen4(5 | remote), (Level::PeerCache, Distance::Remote));
            assert_eq!(zen4(2 | remote), (Level::PeerCache, Distance::SameNode));
        }
        assert_eq!(zen4(6), (Level::PersistentRam, Distance::Local));
        assert_eq!(zen4(7).0, Level::Io);
        // The high bits of DataSrc are at 6 and 7.
        assert_eq!(zen4(1 << 6), (Level::Cxl, Distance::Local));
        assert_eq!(zen4(4 | 1 << 6), (Level::Ram, Distance::Remote));
        assert_eq!(zen4(0).0, Level::Unknown);
    }

    #[test]
    fn older_processors_have_a_shorter_source() {
        let old = |data2| source(0, data2, LOAD_MISS);
        assert_eq!(source(caps::FETCH_CTL_EXTD, 2, LOAD_MISS), (Level::L3, Distance::Local), "Zen");
        assert_eq!(old(2), (Level::PeerCache, Distance::SameNode), "family 10h: NbIbsReqSrc 2, NbIbsReqDstProc 0");
        assert_eq!(old(2 | data2::REMOTE_NODE), (Level::PeerCache, Distance::Remote));
        assert_eq!(old(3), (Level::Ram, Distance::Local));
        assert_eq!(old(3 | data2::REMOTE_NODE), (Level::Ram, Distance::Remote));
        for remote in [0, data2::REMOTE_NODE] {
            assert_eq!(old(4 | remote), (Level::PeerCache, Distance::Remote));
        }
        // Bits 6 and 7 do not belong to the source there.
        assert_eq!(old(3 | 0xc0), (Level::Ram, Distance::Local));
    }

    #[test]
    fn hits_and_merged_misses_need_no_source() {
        assert_eq!(source(0, 3, data3::LOAD).0, Level::L1);
        assert_eq!(source(0, 0, data3::LOAD | data3::MISS).0, Level::L2);
        assert_eq!(source(0, 0, data3::LOAD | data3::MISS | data3::L2_MISS | data3::NO_MAB).0, Level::LineFill);
        // A store's source is not valid, whatever it holds.
        assert_eq!(source(caps::ZEN4, 3, data3::STORE | data3::MISS | data3::L2_MISS).0, Level::Unknown);
        assert_eq!(source(caps::ZEN4, 3, 0).0, Level::Unknown);
    }

    /// `perf_ibs_get_mem_lvl` looks at L2Miss before it looks at DataSrc, which may be that of an older load.
    #[test]
    fn a_hit_of_the_second_cache_leaves_no_valid_source() {
        const HIT: u64 = data3::LOAD | data3::MISS | data3::LINEAR_VALID;
        let of_memory = |caps, data3| source(caps, 3 | data2::REMOTE_NODE, data3);
        for zen in [caps::FETCH_CTL_EXTD, caps::FETCH_CTL_EXTD | caps::ZEN4] {
            assert_eq!(of_memory(zen, HIT), (Level::L2, Distance::Local));
            assert_eq!(of_memory(zen, LOAD_MISS), (Level::Ram, Distance::Remote));
        }
        // Zen 3's L2Miss is wrong for merged misses, and family 10h has none.
        assert_eq!(of_memory(caps::FETCH_CTL_EXTD, HIT | data3::NO_MAB).0, Level::Ram);
        assert_eq!(of_memory(caps::ZEN4, HIT | data3::NO_MAB).0, Level::L2);
        assert_eq!(of_memory(0, HIT).0, Level::Ram);
    }

    /// `perf_ibs_get_mem_lvl` in `arch/x86/events/amd/ibs.c`.
    #[test]
    fn uncached_accesses_have_no_other_figures_and_may_be_a_devices() {
        for (caps, memory, device) in [(caps::ZEN4, 3, 7), (0, 3, 7 | 0xc0)] {
            let uncached = |data2| source(caps, data2, LOAD_MISS | data3::UNCACHED);
            assert_eq!(uncached(memory), (Level::Uncached, Distance::Unknown));
            assert_eq!(uncached(device), (Level::Io, Distance::Unknown));
        }
    }

    #[test]
    fn what_neither_loads_nor_stores_has_no_address() {
        let address = |data3| OpRecord { data3, linear: 0x1000, ..OpRecord::default() }.linear_address();
        for operation in [data3::LOAD, data3::STORE, data3::LOAD | data3::STORE, data3::PREFETCH] {
            assert_eq!(address(operation | data3::LINEAR_VALID), Some(0x1000));
            assert_eq!(address(operation), None);
        }
        assert_eq!(address(data3::LINEAR_VALID), None);
    }

    /// "Continue to zero the physical address, but keep the PhyAddrVal bit intact": address 0 would be node 0's.
    #[test]
    fn a_physical_address_that_the_kernel_hides_is_unknown() {
        let physical = |data3, physical| OpRecord { data3, physical, ..OpRecord::default() }.physical_address();
        assert_eq!(physical(data3::PHYSICAL_VALID, 0), None);
        assert_eq!(physical(data3::PHYSICAL_VALID, 0xfff0_0000_1234_5678), Some(0x1234_5678));
        assert_eq!(physical(0, 0x1234_5678), None);
    }

    #[test]
    fn latency_is_known_for_loads_that_missed_only() {
        let latency = |data3| OpRecord { data3: data3 | 300 << 32, ..OpRecord::default() }.latency_cycles();
        assert_eq!(latency(LOAD_MISS), Some(300));
        assert_eq!(latency(LOAD_MISS | data3::UNCACHED), None);
        assert_eq!(latency(LOAD_MISS | data3::PREFETCH), None);
        assert_eq!(latency(data3::LOAD), None);
        assert_eq!(latency(data3::STORE | data3::MISS), None);
    }
}
