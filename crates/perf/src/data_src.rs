//! `perf_mem_data_src`: what answered an access, in the kernel's vendor-neutral word (`PERF_MEM_*` in `include/uapi/linux/perf_event.h`).
//!
//! The newer fields (`lvl_num`, `remote`, `hops`, `snoopx`) take precedence; where they are 0 or "not available", the older bit mask `lvl` is used. Where
//! `hops` counts, it says how far away (on AMD and POWER a hit in a neighbouring core's cache of the same node is `remote`, too, with `PERF_MEM_HOPS_0`). Where
//! it does not, `remote` is another node's: Intel's processors (`ds.c`) and SPE through perf have it for nothing else.
//!
//! A cache level alone does not say whose cache it is. One that is `remote`, hops away, or that had to fetch the line from where it was modified (`HITM`; of
//! AMD's L3 that says less, see `is_of_ibs`) or from a peer is [`Level::PeerCache`]: the line travelled from cache to cache (what `perf c2c` counts). One that
//! missed answered nothing.

/// An access's operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The `data_src` word does not contain it.
    #[default]
    Unknown,
    /// Load.
    Load,
    /// Store.
    Store,
    /// Both: an atomic read-modify-write.
    LoadStore,
    /// Prefetch.
    Prefetch,
    /// Instruction fetch.
    Execute,
}

/// The level that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The `data_src` word does not contain it.
    #[default]
    Unknown,
    /// The core's first data cache.
    L1,
    /// A line fill into the first or second cache that was under way already: whence is not known.
    LineFill,
    /// The core's second cache.
    L2,
    /// The shared last-level cache.
    L3,
    /// A fourth cache, or a memory-side cache.
    L4,
    /// Another core's cache, or an unknown cache.
    PeerCache,
    /// Main memory (DRAM).
    Ram,
    /// Persistent memory.
    PersistentRam,
    /// Memory attached by CXL.
    Cxl,
    /// Memory-mapped I/O of a device.
    Io,
    /// Uncached memory.
    Uncached,
}

/// How far away what answered is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Distance {
    /// The `data_src` word does not contain it.
    #[default]
    Unknown,
    /// The core's own, or its node's memory.
    Local,
    /// Another core of the node.
    SameNode,
    /// Another node of the socket.
    SameSocket,
    /// Another socket.
    OtherSocket,
    /// Another board.
    OtherBoard,
    /// Another node, which one is not said.
    Remote,
}

impl Distance {
    /// Whether it crossed nodes; `None` where that is not said.
    #[must_use]
    pub fn is_other_node(self) -> Option<bool> {
        match self {
            Distance::Unknown => None,
            Distance::Local | Distance::SameNode => Some(false),
            Distance::SameSocket | Distance::OtherSocket | Distance::OtherBoard | Distance::Remote => Some(true),
        }
    }
}

/// What another cache's copy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Snoop {
    /// The `data_src` word does not contain it.
    #[default]
    Unknown,
    /// No snoop was needed.
    None,
    /// The snooped caches did not have the line.
    Miss,
    /// A snooped cache had the line, unmodified.
    Hit,
    /// There, modified: the line came from it.
    HitModified,
    /// The line was forwarded from it.
    Forwarded,
    /// From a cache of the same node, kind not known.
    Peer,
}

/// How the address was translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tlb {
    /// The `data_src` word does not contain it.
    #[default]
    Unknown,
    /// Hit in the L1 TLB.
    L1Hit,
    /// Hit in the L2 TLB.
    L2Hit,
    /// Hit in a TLB of unknown level.
    Hit,
    /// No TLB had it; the hardware walked the page table.
    Walk,
    /// No TLB had it; the system's fault handler stepped in.
    Fault,
    /// Miss in every TLB: the page table was walked.
    Miss,
}

/// The word, taken apart. Reserved values are unknown; the word itself is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataSource {
    /// The `PERF_SAMPLE_DATA_SRC` word as recorded.
    pub word: u64,
    /// Operation of the access.
    pub operation: Operation,
    /// Level of the memory hierarchy that answered.
    pub level: Level,
    /// Whether the level missed (an old way to say "not from there").
    pub is_miss: bool,
    /// Distance of what answered.
    pub distance: Distance,
    /// Result of the snoop.
    pub snoop: Snoop,
    /// Locked: an atomic operation. `None`: not said.
    pub is_locked: Option<bool>,
    /// Result of the address translation.
    pub tlb: Tlb,
}

/// `PERF_MEM_HOPS_0`: another core of the node.
const HOPS_0: u64 = 1;

mod lvl {
    pub const HIT: u64 = 2;
    pub const MISS: u64 = 4;
    pub const L1: u64 = 8;
    pub const LFB: u64 = 0x10;
    pub const L2: u64 = 0x20;
    pub const L3: u64 = 0x40;
    pub const LOC_RAM: u64 = 0x80;
    pub const REM_RAM1: u64 = 0x100;
    pub const REM_RAM2: u64 = 0x200;
    pub const REM_CCE1: u64 = 0x400;
    pub const REM_CCE2: u64 = 0x800;
    pub const IO: u64 = 0x1000;
    pub const UNC: u64 = 0x2000;
}

/// `PERF_MEM_REGION_*` (Linux 7.0): what it was of Intel's newest processors, which call every cache beyond the second one `LEVEL(L3)`.
mod region {
    /// A cache that no cores share, behind the own caching agent: another core's.
    pub const L_NON_SHARE: u64 = 3;
    /// The cache that cores share behind another caching agent, and one that they do not.
    pub const O_SHARE: u64 = 5;
    pub const O_NON_SHARE: u64 = 6;
    /// What they tell as memory, `LEVEL(RAM)`, is a device's.
    pub const MMIO: u64 = 7;
}

impl DataSource {
    /// Decodes a `PERF_SAMPLE_DATA_SRC` word (`union perf_mem_data_src` in `linux/perf_event.h`).
    #[must_use]
    pub fn decode(word: u64) -> DataSource {
        let field = |offset: u32, width: u32| word >> offset & ((1 << width) - 1);
        let (mask, number) = (field(5, 14), field(33, 4));
        let (remote, hops) = (field(37, 1) != 0, field(43, 3));
        let is_miss = mask & lvl::MISS != 0 && mask & lvl::HIT == 0;
        let snoop = snoop(field(19, 5), field(38, 2));
        // AMD before Zen 4 does not tell the L3 from another cache of the core complex: `IBS_DATA_SRC_LOC_CACHE` has both bits in the table of `amd/ibs.c`.
        // (With `remote`, Intel has both for a cache of another node: `parse_omr_data_source`.)
        let is_complex = mask & lvl::L3 != 0 && mask & lvl::REM_CCE1 != 0 && !remote && hops <= HOPS_0;
        let (mask, number) = if is_complex { (mask & !lvl::REM_CCE1, 3) } else { (mask, number) };
        let by_mask = level_of_mask(mask);
        let is_amds_l3 = is_complex || mask & lvl::L3 != 0 && is_of_ibs(field(24, 2), field(26, 7));
        let held = if is_amds_l3 { Snoop::Unknown } else { snoop };
        let region = field(46, 5);
        let is_others = matches!(region, region::L_NON_SHARE | region::O_SHARE | region::O_NON_SHARE);
        let is_elsewhere = !is_complex && (remote || hops > 0 || is_others || by_mask.0 == Level::PeerCache);
        let level = match level_of_number(number) {
            Level::Unknown => answered(by_mask.0, held, is_elsewhere),
            _ if region == region::MMIO => Level::Io,
            // Remote memory whose line came from a cache, of Crestmont (`__intel_pmu_pebs_data_source_cmt`): whose memory it is, is not said.
            Level::Ram if remote && hops == 0 && is_from_cache(snoop) => Level::PeerCache,
            level if !level.is_cache() => level,
            // "L3 Miss Snoop HitM" of Intel's Lion Cove: the line came from a cache beyond.
            Level::L3 if is_miss && snoop == Snoop::HitModified => Level::PeerCache,
            // "L3, miss" says what did not answer.
            _ if is_miss => Level::Unknown,
            // The number names the cache that was asked, the mask what answered: "L3 missed, line shared, remote memory" of Intel.
            _ if by_mask.0 == Level::Ram => Level::Ram,
            level => answered(level, held, is_elsewhere),
        };
        DataSource {
            word,
            operation: operation(field(0, 5)),
            level,
            is_miss,
            distance: match region {
                // Another caching agent of the socket, which may be another node's.
                region::O_SHARE | region::O_NON_SHARE if !remote => Distance::Unknown,
                _ => distance(level, remote, hops, by_mask.1),
            },
            snoop,
            is_locked: match field(24, 2) {
                0 | 1 => None,
                bits => Some(bits & 2 != 0),
            },
            tlb: tlb(field(26, 7)),
        }
    }
}

impl Level {
    /// Whether it is a cache of a core, or one that cores share.
    fn is_cache(self) -> bool {
        matches!(self, Level::L1 | Level::L2 | Level::L3 | Level::L4 | Level::PeerCache)
    }
}

/// Whether AMD's IBS is the source: of what is not locked it says "not available", as of all that it does not know (`perf_ibs_get_mem_lock`). Intel's
/// processors say nothing (`pebs_set_tlb_lock`), and Nehalem, which knows neither, that of the TLB, too. IBS also says which TLB hit (`perf_ibs_get_tlb_lvl`),
/// of what is locked as well; of loads Intel's processors tell the second level's misses alone, and call the rest hits of both.
///
/// A "modified" line of its L3 is no transfer. The register has one bit for a cache's line, owned or not, and where it is 0 the kernel says `HITM`
/// (`perf_ibs_get_mem_snoop`): of nearly every hit of the L3 (664 of 674 in the example of the commit that brought `perf mem` to AMD), and the L3, which holds
/// what the cores' own caches let go of, holds modified lines of the core itself.
fn is_of_ibs(lock: u64, tlb: u64) -> bool {
    const NOT_AVAILABLE: u64 = 1;
    /// `HIT | L1` and `HIT | L2`.
    const HITS_OF_ONE: [u64; 2] = [0xa, 0x12];
    lock == NOT_AVAILABLE && tlb > NOT_AVAILABLE || HITS_OF_ONE.contains(&tlb)
}

/// Whose cache it was: one that is elsewhere, or that took the line from another core's, is a peer's.
fn answered(level: Level, snoop: Snoop, is_elsewhere: bool) -> Level {
    let is_transfer = match snoop {
        Snoop::HitModified => matches!(level, Level::L3 | Level::L4),
        Snoop::Peer => matches!(level, Level::L2 | Level::L3 | Level::L4),
        _ => false,
    };
    if level.is_cache() && (is_elsewhere || is_transfer) { Level::PeerCache } else { level }
}

/// Whether the snooped cache gave the line.
fn is_from_cache(snoop: Snoop) -> bool {
    matches!(snoop, Snoop::HitModified | Snoop::Forwarded)
}

fn operation(bits: u64) -> Operation {
    match bits & !1 {
        2 => Operation::Load,
        4 => Operation::Store,
        6 => Operation::LoadStore,
        8 | 0xa => Operation::Prefetch,
        0x10 => Operation::Execute,
        _ => Operation::Unknown,
    }
}

fn level_of_number(number: u64) -> Level {
    match number {
        // 7 is L0, in front of the L1.
        1 | 7 => Level::L1,
        2 => Level::L2,
        3 => Level::L3,
        4 | 6 => Level::L4,
        8 => Level::Uncached,
        9 => Level::Cxl,
        0xa => Level::Io,
        0xb => Level::PeerCache,
        // 5 is the second cache's miss handling buffer ("L2 Miss Handling Buffer Hit"), as 0xc is the first one's.
        5 | 0xc => Level::LineFill,
        0xd => Level::Ram,
        0xe => Level::PersistentRam,
        _ => Level::Unknown,
    }
}

/// Level and distance by the old mask: the farthest level that is named.
fn level_of_mask(mask: u64) -> (Level, Distance) {
    let has = |bits| mask & bits != 0;
    if !has(lvl::HIT | lvl::MISS) {
        return (Level::Unknown, Distance::Unknown);
    }
    // "L1, miss" says what did not answer, not what did.
    if has(lvl::MISS) && !has(lvl::HIT) {
        return (Level::Unknown, Distance::Unknown);
    }
    match () {
        () if has(lvl::REM_RAM2) => (Level::Ram, Distance::OtherSocket),
        () if has(lvl::REM_RAM1) => (Level::Ram, Distance::Remote),
        () if has(lvl::REM_CCE2) => (Level::PeerCache, Distance::OtherSocket),
        () if has(lvl::REM_CCE1) => (Level::PeerCache, Distance::Unknown),
        () if has(lvl::LOC_RAM) => (Level::Ram, Distance::Local),
        () if has(lvl::L3) => (Level::L3, Distance::Local),
        () if has(lvl::L2) => (Level::L2, Distance::Local),
        () if has(lvl::LFB) => (Level::LineFill, Distance::Unknown),
        () if has(lvl::L1) => (Level::L1, Distance::Local),
        () if has(lvl::IO) => (Level::Io, Distance::Unknown),
        () if has(lvl::UNC) => (Level::Uncached, Distance::Unknown),
        () => (Level::Unknown, Distance::Unknown),
    }
}

fn distance(level: Level, remote: bool, hops: u64, by_mask: Distance) -> Distance {
    match (hops, level) {
        (1, _) => Distance::SameNode,
        (2, _) => Distance::SameSocket,
        (3, _) => Distance::OtherSocket,
        (4, _) => Distance::OtherBoard,
        (_, Level::Unknown | Level::LineFill) => by_mask,
        // Memory that is remote is another node's.
        (_, Level::Ram | Level::PersistentRam | Level::Cxl) if remote => match by_mask {
            Distance::Unknown | Distance::Local => Distance::Remote,
            known => known,
        },
        (_, Level::Ram) if by_mask != Distance::Unknown => by_mask,
        // "L3 miss, remote cache": those who mean a neighbour on the same node say so by hops.
        (_, _) if remote => match by_mask {
            Distance::OtherSocket => by_mask,
            _ => Distance::Remote,
        },
        (_, Level::L1 | Level::L2 | Level::L3) => Distance::Local,
        (_, Level::Ram) => Distance::Local,
        _ => by_mask,
    }
}

fn snoop(bits: u64, extended: u64) -> Snoop {
    match (extended, bits) {
        (1, _) => Snoop::Forwarded,
        (2, _) => Snoop::Peer,
        (_, bits) if bits & 0x10 != 0 => Snoop::HitModified,
        (_, bits) if bits & 4 != 0 => Snoop::Hit,
        (_, bits) if bits & 8 != 0 => Snoop::Miss,
        (_, bits) if bits & 2 != 0 => Snoop::None,
        _ => Snoop::Unknown,
    }
}

fn tlb(bits: u64) -> Tlb {
    const HIT: u64 = 2;
    const MISS: u64 = 4;
    const L1: u64 = 8;
    const L2: u64 = 0x10;
    const WALKER: u64 = 0x20;
    const OS: u64 = 0x40;
    let has = |bit| bits & bit != 0;
    match () {
        () if has(OS) => Tlb::Fault,
        () if has(HIT) && has(L1) && has(L2) => Tlb::Hit,
        () if has(HIT) && has(L1) => Tlb::L1Hit,
        () if has(HIT) && has(L2) => Tlb::L2Hit,
        () if has(WALKER) => Tlb::Walk,
        () if has(HIT) => Tlb::Hit,
        () if has(MISS) => Tlb::Miss,
        () => Tlb::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_public_pebs_recording_are_read_as_perf_reads_them() {
        let read = |word| {
            let source = DataSource::decode(word);
            assert_eq!(source.operation, Operation::Load, "{word:#x}");
            assert_eq!(source.snoop, Snoop::None, "{word:#x}");
            assert_ne!(source.distance.is_other_node(), Some(true), "{word:#x}");
            (source.level, source.is_locked, source.tlb)
        };
        assert_eq!(read(0x118_6810_0242), (Level::LineFill, None, Tlb::Hit));
        assert_eq!(read(0x106_6810_0842), (Level::L3, None, Tlb::Hit));
        assert_eq!(read(0x106_5010_0842).0, Level::L3);
        assert_eq!(read(0x106_5010_0842).2, Tlb::Miss);
        assert_eq!(read(0x102_6a10_0142), (Level::L1, Some(true), Tlb::Hit));
        assert_eq!(read(0x102_6810_0142), (Level::L1, None, Tlb::Hit));
        assert_eq!(read(0x104_6810_0442), (Level::L2, None, Tlb::Hit));
    }

    fn word(mask: u64, number: u64, remote: u64, hops: u64) -> DataSource {
        DataSource::decode(2 | mask << 5 | number << 33 | remote << 37 | hops << 43)
    }

    #[test]
    fn remote_is_not_remote_node() {
        // A near core complex on AMD: some cache, remote, no hops, and its old form "one hop".
        let near = word(lvl::HIT | lvl::REM_CCE1, 0xb, 1, 1);
        assert_eq!((near.level, near.distance.is_other_node()), (Level::PeerCache, Some(false)));
        // "Any cache, remote" of Intel's servers since Skylake (`pebs_data_source[0x0c]` and `[0x0d]`): AMD and POWER always count hops beside it.
        let intel = word(lvl::HIT, 0xb, 1, 0);
        assert_eq!((intel.level, intel.distance), (Level::PeerCache, Distance::Remote));
        let memory = word(lvl::HIT | lvl::REM_RAM1, 0xd, 1, 2);
        assert_eq!((memory.level, memory.distance), (Level::Ram, Distance::SameSocket));
        assert_eq!(word(0, 0xd, 1, 0).distance.is_other_node(), Some(true));
        assert_eq!(word(0, 0xd, 0, 0).distance.is_other_node(), Some(false));
    }

    #[test]
    fn the_old_mask_alone_is_enough() {
        assert_eq!(word(lvl::HIT | lvl::LOC_RAM, 0, 0, 0).distance, Distance::Local);
        assert_eq!(word(lvl::HIT | lvl::REM_RAM1, 0, 0, 0).distance, Distance::Remote);
        assert_eq!(word(lvl::HIT | lvl::REM_CCE2, 0, 0, 0).level, Level::PeerCache);
        let missed = word(lvl::MISS | lvl::L1, 0, 0, 0);
        assert_eq!((missed.level, missed.is_miss), (Level::Unknown, true));
    }

    /// Words as `arch/x86/events/intel/ds.c` (`pebs_data_source`), `arch/powerpc/perf/isa207-common.c` and perf's own decoder of SPE make them.
    #[test]
    fn what_travelled_between_caches_is_no_hit_of_the_own_caches() {
        let with = |mask: u64, number: u64, remote: u64, hops: u64, snoop: u64, snoopx: u64| {
            let source = DataSource::decode(word(mask, number, remote, hops).word | snoop << 19 | snoopx << 38);
            (source.level, source.distance.is_other_node())
        };
        const HIT: u64 = 4;
        const HITM: u64 = 0x10;
        // Local HITM: the line was modified in another core's cache behind this L3.
        assert_eq!(with(lvl::HIT | lvl::L3, 3, 0, 0, HITM, 0), (Level::PeerCache, Some(false)));
        // The same without `lvl_num`, as before Linux 4.14.
        assert_eq!(with(lvl::HIT | lvl::L3, 0, 0, 0, HITM, 0), (Level::PeerCache, Some(false)));
        // Shared and unmodified: the L3 has it itself.
        assert_eq!(with(lvl::HIT | lvl::L3, 3, 0, 0, HIT, 0), (Level::L3, Some(false)));
        // Remote HITM and remote hit: "L3" is another one's.
        assert_eq!(with(lvl::HIT | lvl::REM_CCE1, 3, 1, 0, HITM, 0), (Level::PeerCache, Some(true)));
        assert_eq!(with(lvl::HIT | lvl::REM_CCE1, 3, 1, 0, HIT, 0), (Level::PeerCache, Some(true)));
        // Panther Cove, "other CA shared cache", remote: both bits of the mask.
        assert_eq!(with(lvl::HIT | lvl::L3 | lvl::REM_CCE1, 3, 1, 0, HIT, 0), (Level::PeerCache, Some(true)));
        assert_eq!(with(0, 3, 1, 3, HITM, 0), (Level::PeerCache, Some(true)));
        // "L3 miss, shared": remote memory answered, although the number says L3.
        assert_eq!(with(lvl::HIT | lvl::REM_RAM1, 3, 1, 0, HIT, 0), (Level::Ram, Some(true)));
        // POWER10: the second cache of another core of the chip.
        assert_eq!(with(lvl::HIT | lvl::REM_CCE1, 2, 1, 1, HITM, 0), (Level::PeerCache, Some(false)));
        // SPE through perf: a peer core, a peer cluster.
        assert_eq!(with(lvl::HIT | lvl::L2, 2, 0, 0, 0, 2).0, Level::PeerCache);
        assert_eq!(with(lvl::HIT | lvl::L3, 3, 0, 0, 0, 2).0, Level::PeerCache);
        // A line fill was under way: whence it came is not known.
        assert_eq!(with(lvl::HIT | lvl::LFB, 0xc, 0, 0, HITM, 0).0, Level::LineFill);
    }

    /// `g_data_src[IBS_DATA_SRC_LOC_CACHE]` in `arch/x86/events/amd/ibs.c`, "Local L3 or other L1/L2 in CCX": of Linux 6.1 (mask alone), 6.4 and today.
    #[test]
    fn the_l3_of_amds_core_complexes_is_no_transfer() {
        const HITM: u64 = 0x10;
        for (number, hops) in [(0, 0), (3, 0), (0xb, HOPS_0)] {
            let source = word(lvl::HIT | lvl::L3 | lvl::REM_CCE1, number, 0, hops);
            for read in [source, DataSource::decode(source.word | HITM << 19)] {
                assert_eq!((read.level, read.distance.is_other_node()), (Level::L3, Some(false)), "{number} {hops}");
            }
        }
        // A near core complex has a word of its own, and a far one: `g_zen4_data_src`.
        assert_eq!(word(lvl::HIT | lvl::REM_CCE1, 0xb, 1, HOPS_0).level, Level::PeerCache);
        assert_eq!(word(lvl::HIT | lvl::REM_CCE2, 0xb, 1, 2).distance.is_other_node(), Some(true));
    }

    /// `L(L3) | LN(L3)` of Zen 4 and later (before Linux 6.4 without the number), `HITM` by `perf_ibs_get_mem_snoop`, with the locks and TLBs that the kernel
    /// writes; and Intel's "L3 hit, snoop hitm".
    #[test]
    fn a_modified_line_of_the_l3_is_a_transfer_on_intel_alone() {
        const HITM: u64 = 0x10;
        let of_number = |number: u64, lock: u64, tlb: u64| {
            let hit = word(lvl::HIT | lvl::L3, number, 0, 0).word;
            let source = DataSource::decode(hit | HITM << 19 | lock << 24 | tlb << 26);
            assert_eq!(source.snoop, Snoop::HitModified);
            source.level
        };
        let level = |lock: u64, tlb: u64| of_number(3, lock, tlb);
        // L1 hit, L2 hit, L2 miss.
        assert_eq!([0xa, 0x12, 0x14].map(|tlb| level(1, tlb)), [Level::L3; 3]);
        // Locked: a miss of the second TLB looks as Intel's does.
        assert_eq!([0xa, 0x12].map(|tlb| level(2, tlb)), [Level::L3; 2]);
        assert_eq!(of_number(0, 1, 0xa), Level::L3);
        // L1 or L2 hit, L2 miss, each also locked; and Nehalem.
        let intel = [(0, 0x1a), (0, 0x14), (2, 0x1a), (2, 0x14), (1, 1)];
        assert_eq!(intel.map(|(lock, tlb)| level(lock, tlb)), [Level::PeerCache; 5]);
        // Words of an AMD processor: a line fill, the L3; and the L3's of a public PEBS recording, as if it had been modified.
        assert_eq!([0x5108_0242, 0x5108_8842].map(|word| DataSource::decode(word).level), [Level::LineFill, Level::L3]);
        assert_eq!(DataSource::decode(0x106_6810_0842 | HITM << 19).level, Level::PeerCache);
        // Another core complex's cache stays one: `L(REM_CCE1) | LN(ANY_CACHE) | REM | HOPS(0)`.
        let near = word(lvl::HIT | lvl::REM_CCE1, 0xb, 1, HOPS_0).word | HITM << 19 | 1 << 24 | 0xa << 26;
        assert_eq!(DataSource::decode(near).level, Level::PeerCache);
    }

    /// `lnc_pebs_data_source` and `omr_data_source` in `arch/x86/events/intel/ds.c`.
    #[test]
    fn lion_coves_buffers_and_misses_and_panther_coves_devices_are_told() {
        // "L2 Miss Handling Buffer Hit" has no bit in the mask.
        assert_eq!(word(lvl::HIT, 5, 0, 0).level, Level::LineFill);
        // "L3 Miss Snoop HitM".
        let missed = DataSource::decode(word(lvl::MISS | lvl::L3, 3, 0, 0).word | 0x10 << 19);
        assert_eq!(missed.level, Level::PeerCache);
        let region = |number: u64| DataSource::decode(word(lvl::HIT, 0xd, 0, 0).word | number << 46).level;
        assert_eq!([region(7), region(8)], [Level::Io, Level::Ram]);
    }

    /// `data_source[0x0b]` to `[0x0d]` of `__intel_pmu_pebs_data_source_cmt` in `arch/x86/events/intel/ds.c` (Sierra Forest): `OP_LH | LEVEL(RAM) | REM` with
    /// `P(SNOOP, NONE)`, `P(SNOOPX, FWD)` and `P(SNOOP, HITM)`. The page of a line in a remote cache may be of the own node.
    #[test]
    fn crestmonts_remote_lines_out_of_caches_are_no_memory() {
        let read = |snoop: u64, snoopx: u64| {
            let source = DataSource::decode(word(lvl::HIT, 0xd, 1, 0).word | snoop << 19 | snoopx << 38);
            (source.level, source.distance)
        };
        assert_eq!(read(2, 0), (Level::Ram, Distance::Remote));
        assert_eq!([read(0, 1), read(0x10, 0)], [(Level::PeerCache, Distance::Remote); 2]);
    }

    /// `omr_data_source[2]` to `[6]` and `parse_omr_data_source` in `arch/x86/events/intel/ds.c`: "local CA shared cache", "local CA non-shared cache",
    /// "other CA shared cache", "other CA non-shared cache".
    #[test]
    fn panther_coves_caches_of_others_are_told_by_their_regions() {
        const HIT: u64 = 4;
        let read = |region: u64, remote: u64| {
            let mask = lvl::HIT | lvl::L3 | if remote != 0 { lvl::REM_CCE1 } else { 0 };
            let source = DataSource::decode(word(mask, 3, remote, 0).word | HIT << 19 | region << 46);
            (source.level, source.distance.is_other_node())
        };
        assert_eq!([read(2, 0), read(3, 0)], [(Level::L3, Some(false)), (Level::PeerCache, Some(false))]);
        assert_eq!([read(5, 0), read(6, 0)], [(Level::PeerCache, None); 2]);
        assert_eq!([read(2, 1), read(5, 1), read(6, 1)], [(Level::PeerCache, Some(true)); 3]);
    }

    #[test]
    fn a_cache_that_missed_answered_nothing() {
        let missed = word(lvl::MISS, 3, 0, 0);
        assert_eq!((missed.level, missed.is_miss), (Level::Unknown, true));
        assert_eq!(word(lvl::MISS | lvl::L3, 3, 0, 0).level, Level::Unknown);
    }

    #[test]
    fn devices_and_uncached_memory_are_told_by_both_forms() {
        assert_eq!(word(lvl::HIT | lvl::IO, 0xf, 0, 0).level, Level::Io);
        assert_eq!(word(lvl::HIT | lvl::UNC, 0xf, 0, 0).level, Level::Uncached);
        assert_eq!((word(0, 0xa, 0, 0).level, word(0, 8, 0, 0).level), (Level::Io, Level::Uncached));
    }

    #[test]
    fn nothing_said_stays_unknown() {
        let zero = DataSource::decode(0);
        assert_eq!(zero, DataSource::default());
        // PERF_MEM_NA: every field says "not available".
        let not_available = DataSource::decode(1 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26 | 0xf << 33);
        assert_eq!(not_available, DataSource { word: not_available.word, ..DataSource::default() });
    }
}
