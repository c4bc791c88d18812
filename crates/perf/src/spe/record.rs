//! Records: all packets up to an end or a time stamp, as one sampled operation.

use numapilot_host::Tid;
use numapilot_machine::CpuId;

use super::packet::{AddressKind, CounterKind, Packet, Packets};
use crate::access::MemoryAccess;
use crate::data_src::{Distance, Level, Operation, Snoop, Tlb};

/// One sampled operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpeRecord {
    /// Address of the instruction.
    pub pc: Option<u64>,
    /// Virtual data address.
    pub address: Option<u64>,
    /// Physical data address.
    pub physical_address: Option<u64>,
    /// Operation's class and bits.
    pub operation: Option<(u8, u8)>,
    /// Bits of the events packet.
    pub events: u64,
    /// Data source, as the core numbers them.
    pub source: Option<u64>,
    /// Total latency in cycles.
    pub total_latency: Option<u16>,
    /// Cycles from dispatch to issue.
    pub issue_latency: Option<u16>,
    /// Cycles of the address translation.
    pub translation_latency: Option<u16>,
    /// Context id: the thread, where the kernel is built to write it there.
    pub context: Option<u32>,
    /// Tick of the generic timer.
    pub timestamp: Option<u64>,
    /// Packets of unknown kind in it.
    pub unknown_packets: u32,
}

/// What the numbers of a data source mean on a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceTable {
    /// Not known: levels come from the event bits only.
    #[default]
    Unknown,
    /// Arm's own cores (Neoverse N1 to V3, Cortex-A720, A725, X3 to X925).
    Common,
    /// Ampere's AmpereOne cores.
    AmpereOne,
    /// HiSilicon's HIP12 cores.
    HisiHip,
}

impl SourceTable {
    /// The table for a core, by its register MIDR_EL1.
    #[must_use]
    pub fn of_midr(midr: u64) -> SourceTable {
        const ARM: u64 = 0x41;
        const AMPERE: u64 = 0xc0;
        const HISILICON: u64 = 0x48;
        match (midr >> 24 & 0xff, midr >> 4 & 0xfff) {
            // N1, V1, N2, V2, V3, V3AE, N3; A720, A720AE, A725; X1C, X3, X4, X925.
            (ARM, 0xd0c | 0xd40 | 0xd49 | 0xd4f | 0xd84 | 0xd83 | 0xd8e) => SourceTable::Common,
            (ARM, 0xd81 | 0xd89 | 0xd87 | 0xd4c | 0xd4e | 0xd82 | 0xd85) => SourceTable::Common,
            (AMPERE, 0xac4) => SourceTable::AmpereOne,
            (HISILICON, 0xd06) => SourceTable::HisiHip,
            _ => SourceTable::Unknown,
        }
    }

    /// The table for a CPU, out of those of CPUs by number. Of a CPU that is not among them (traces of threads name none) it is the one that all have:
    /// where they differ, perf looks at no data source either (`arm_spe__synth_ds` in `tools/perf/util/arm-spe.c`).
    #[must_use]
    pub fn of_cpu(tables: &[(u64, SourceTable)], cpu: CpuId) -> SourceTable {
        let own = tables.iter().find(|(known, _)| *known == u64::from(cpu.0));
        let are_alike = || tables.iter().all(|(_, table)| tables[0].1 == *table);
        own.or_else(|| tables.first().filter(|_| are_alike())).map_or(SourceTable::Unknown, |(_, table)| *table)
    }
}

/// Bits of the events packet.
mod event {
    pub const RETIRED: u64 = 1 << 1;
    pub const L1D_ACCESS: u64 = 1 << 2;
    pub const L1D_REFILL: u64 = 1 << 3;
    pub const TLB_ACCESS: u64 = 1 << 4;
    pub const TLB_WALK: u64 = 1 << 5;
    pub const LLC_ACCESS: u64 = 1 << 8;
    pub const LLC_MISS: u64 = 1 << 9;
    pub const REMOTE_ACCESS: u64 = 1 << 10;
    // These since SPE 1.4.
    pub const L2D_ACCESS: u64 = 1 << 19;
    pub const L2D_MISS: u64 = 1 << 20;
    pub const CACHE_DATA_MODIFIED: u64 = 1 << 21;
    pub const RECENTLY_FETCHED: u64 = 1 << 22;
    pub const DATA_SNOOPED: u64 = 1 << 23;
}

const CLASS_LOAD_STORE: u8 = 1;

impl SpeRecord {
    fn take(&mut self, packet: Packet) {
        match packet {
            Packet::Events(bits) => self.events = bits,
            Packet::DataSource(source) => self.source = Some(source),
            Packet::Context { id, .. } => self.context = Some(id),
            Packet::Operation { class, bits } => self.operation = Some((class, bits)),
            Packet::Address { kind: AddressKind::Instruction, value } => self.pc = Some(instruction_address(value)),
            Packet::Address { kind: AddressKind::DataVirtual, value } => self.address = Some(data_address(value)),
            Packet::Address { kind: AddressKind::DataPhysical, value } => {
                self.physical_address = Some(value & ADDRESS_MASK);
            }
            Packet::Counter { kind: CounterKind::TotalLatency, cycles } => self.total_latency = Some(cycles),
            Packet::Counter { kind: CounterKind::IssueLatency, cycles } => self.issue_latency = Some(cycles),
            Packet::Counter { kind: CounterKind::TranslationLatency, cycles } => {
                self.translation_latency = Some(cycles);
            }
            Packet::Timestamp(tick) => self.timestamp = Some(tick),
            Packet::Unknown(_) => self.unknown_packets += 1,
            Packet::Address { .. } | Packet::Counter { .. } | Packet::Padding | Packet::End => {}
        }
    }

    fn is_load_store(&self) -> bool {
        self.operation.is_some_and(|(class, _)| class == CLASS_LOAD_STORE)
    }

    /// Load, store, or an atomic of both.
    #[must_use]
    pub fn kind(&self) -> Operation {
        match self.operation {
            Some((CLASS_LOAD_STORE, bits)) if is_extended(bits) && bits & AT != 0 => Operation::LoadStore,
            Some((CLASS_LOAD_STORE, bits)) if bits & ST != 0 => Operation::Store,
            Some((CLASS_LOAD_STORE, _)) => Operation::Load,
            _ => Operation::Unknown,
        }
    }

    fn is_atomic(&self) -> Option<bool> {
        let (class, bits) = self.operation?;
        (class == CLASS_LOAD_STORE).then_some(is_extended(bits) && bits & (AT | EXCL) != 0)
    }

    fn has(&self, bit: u64) -> bool {
        self.events & bit != 0
    }

    /// Level, distance and snoop.
    fn answered_by(&self, table: SourceTable) -> (Level, Distance, Snoop) {
        // The cores give no source for stores.
        let source = self.source.filter(|_| self.kind() == Operation::Load);
        let told = match (table, source) {
            (SourceTable::Common, Some(source)) => common_source(source),
            (SourceTable::AmpereOne, Some(source)) => ampere_one_source(source),
            (SourceTable::HisiHip, Some(source)) => hisi_hip_source(source),
            _ => None,
        };
        match told {
            // A core's number of memory stands for that of any socket. HIP12 has a number for each.
            Some((Level::Ram, _, snoop)) if table != SourceTable::HisiHip && self.has(event::REMOTE_ACCESS) => {
                (Level::Ram, Distance::Remote, snoop)
            }
            Some(told) => told,
            None => self.answered_by_events(),
        }
    }

    fn answered_by_events(&self) -> (Level, Distance, Snoop) {
        let remote = self.has(event::REMOTE_ACCESS);
        let is_snooped = self.has(event::DATA_SNOOPED);
        let level = match () {
            // The line came from another core's cache, whatever missed before.
            () if is_snooped => Level::PeerCache,
            () if self.has(event::LLC_MISS) => Level::Ram,
            // A remote access that nothing says missed came from memory or a cache over there.
            () if remote => Level::Unknown,
            () if self.has(event::LLC_ACCESS) => Level::L3,
            () if self.has(event::L1D_ACCESS) && !self.has(event::L1D_REFILL) => Level::L1,
            () if self.has(event::RECENTLY_FETCHED) => Level::LineFill,
            () if self.has(event::L2D_ACCESS) && !self.has(event::L2D_MISS) => Level::L2,
            () => Level::Unknown,
        };
        let distance = match (remote, level) {
            (true, _) => Distance::Remote,
            (false, Level::L1 | Level::L2 | Level::L3) => Distance::Local,
            // The bit is optional: its absence says nothing.
            _ => Distance::Unknown,
        };
        let snoop = match (is_snooped, self.has(event::CACHE_DATA_MODIFIED)) {
            (false, _) => Snoop::Unknown,
            (true, false) => Snoop::Hit,
            (true, true) => Snoop::HitModified,
        };
        (level, distance, snoop)
    }

    fn tlb(&self) -> Tlb {
        match (self.has(event::TLB_ACCESS), self.has(event::TLB_WALK)) {
            (_, true) => Tlb::Walk,
            (true, false) => Tlb::Hit,
            (false, false) => Tlb::Unknown,
        }
    }

    /// The access, if it is one whose address is known. Time, process and CPU are the buffer's owner's to fill in. A record with unknown packets is none:
    /// it began before the bytes at hand (a trace that was overwritten), or bytes are missing, and what stands in it may be of two operations.
    /// (perf drops what it has of such a record, too: `arm_spe_get_next_packet` in `tools/perf/util/arm-spe-decoder/arm-spe-decoder.c`.)
    #[must_use]
    pub fn access(&self, table: SourceTable) -> Option<MemoryAccess<'static>> {
        let address = self.address.filter(|_| self.is_load_store() && self.unknown_packets == 0)?;
        let (level, distance, snoop) = self.answered_by(table);
        Some(MemoryAccess {
            // 0 is no program's: the kernel did not write the thread there.
            tid: self.context.filter(|&id| id != 0).map(Tid),
            address,
            physical_address: self.physical_address.filter(|&address| address != 0),
            ip: self.pc,
            operation: self.kind(),
            is_atomic: self.is_atomic(),
            level,
            distance,
            snoop,
            tlb: self.tlb(),
            latency_cycles: self.total_latency.filter(|&cycles| cycles != 0).map(u32::from),
            // Without a packet of events nothing says it.
            has_retired: (self.events != 0).then(|| self.has(event::RETIRED)),
            ..MemoryAccess::default()
        })
    }
}

const ST: u8 = 1;
const AT: u8 = 1 << 2;
const EXCL: u8 = 1 << 3;

/// The subclass of atomics, exclusives, acquires and releases, in which those bits mean something.
fn is_extended(bits: u8) -> bool {
    bits & 0xe2 == 0x02
}

const ADDRESS_MASK: u64 = (1 << 56) - 1;

/// Bits 56 to 63 of an instruction's address hold its exception level and security state; kernel addresses have bit 55 set.
fn instruction_address(value: u64) -> u64 {
    sign_extended(value & ADDRESS_MASK)
}

/// The top byte of a data address may be a tag.
fn data_address(value: u64) -> u64 {
    sign_extended(value & ADDRESS_MASK)
}

fn sign_extended(value: u64) -> u64 {
    if value >> 55 & 1 != 0 { value | !ADDRESS_MASK } else { value }
}

fn common_source(source: u64) -> Option<(Level, Distance, Snoop)> {
    Some(match source {
        0x0 => (Level::L1, Distance::Local, Snoop::None),
        0x8 => (Level::L2, Distance::Local, Snoop::None),
        // Another core, of this cluster or another one of the node.
        0x9 | 0xa | 0xc => (Level::PeerCache, Distance::SameNode, Snoop::Peer),
        0xb => (Level::L3, Distance::Local, Snoop::Hit),
        0xd => (Level::Unknown, Distance::OtherSocket, Snoop::Unknown),
        0xe => (Level::Ram, Distance::Local, Snoop::None),
        _ => return None,
    })
}

fn ampere_one_source(source: u64) -> Option<(Level, Distance, Snoop)> {
    let common = match source {
        0x0 => 0x9,
        0x3 => 0xb,
        0x5 => 0xd,
        0x7 => 0xe,
        0x8 => 0x0,
        0x9 => 0x8,
        _ => return None,
    };
    common_source(common)
}

/// `arm_spe__synth_data_source_hisi_hip` in `tools/perf/util/arm-spe.c`.
fn hisi_hip_source(source: u64) -> Option<(Level, Distance, Snoop)> {
    Some(match source {
        0 => (Level::PeerCache, Distance::SameNode, Snoop::Peer),
        // Modified in the cache of another core: also "L3, HITM".
        1 | 3 => (Level::PeerCache, Distance::SameNode, Snoop::HitModified),
        2 => (Level::L3, Distance::Local, Snoop::Hit),
        // Another cluster of the socket, which may be of another node.
        4 => (Level::PeerCache, Distance::Unknown, Snoop::Peer),
        5 => (Level::PeerCache, Distance::Unknown, Snoop::HitModified),
        6 => (Level::PeerCache, Distance::OtherSocket, Snoop::Peer),
        7 => (Level::PeerCache, Distance::OtherSocket, Snoop::HitModified),
        8 => (Level::Ram, Distance::Local, Snoop::None),
        9 => (Level::Ram, Distance::Remote, Snoop::Unknown),
        13 => (Level::Io, Distance::Unknown, Snoop::None),
        16 => (Level::L2, Distance::Local, Snoop::None),
        17 => (Level::L2, Distance::Local, Snoop::HitModified),
        18 => (Level::L1, Distance::Local, Snoop::None),
        _ => return None,
    })
}

/// Operations for which a record stands, by the period that its event asked for. The interval counter counts down from PMSIRR_EL1.INTERVAL, which has
/// bits 8 to 31: the kernel's driver drops what is below them (`arm_spe_event_sanitise_period`).
#[must_use]
pub fn interval(period: u64) -> u64 {
    const INTERVAL: u64 = 0xffff_ff00;
    const LEAST: u64 = 1 << 8;
    if period > INTERVAL { INTERVAL } else { (period & INTERVAL).max(LEAST) }
}

/// Collects packets to records. What stands after the last end or time stamp is no whole record and is left.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    packets: Packets<'a>,
    whole: usize,
}

impl<'a> Records<'a> {
    /// Reads `bytes`, which begin where a record begins.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { packets: Packets::new(bytes), whole: 0 }
    }

    /// Bytes up to the end of the last whole record.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.whole
    }
}

impl Iterator for Records<'_> {
    type Item = SpeRecord;

    fn next(&mut self) -> Option<SpeRecord> {
        let mut record = SpeRecord::default();
        let mut is_empty = true;
        while let Some(packet) = self.packets.next() {
            record.take(packet);
            let ends = matches!(packet, Packet::End | Packet::Timestamp(_));
            is_empty &= matches!(packet, Packet::Padding | Packet::End | Packet::Unknown(_));
            if ends {
                self.whole = self.packets.position();
                if !is_empty {
                    return Some(record);
                }
                record = SpeRecord::default();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load from memory, written by hand after the manual: PC, load, three counters, events, data addresses, source, context, time.
    fn load() -> Vec<u8> {
        let mut bytes = vec![0x00, 0x00];
        bytes.extend([0xb0, 0x34, 0x12, 0x40, 0, 0, 0, 0, 0x80]);
        bytes.extend([0x49, 0x00]);
        bytes.extend([0x99, 0x04, 0x00]);
        bytes.extend([0x98, 0x2c, 0x01]);
        bytes.extend([0x62, 0x1e, 0x03, 0x00, 0x00]);
        bytes.extend([0xb2, 0x78, 0x56, 0x34, 0x12, 0xff, 0x7f, 0, 0xab]);
        bytes.extend([0x9a, 0x05, 0x00]);
        bytes.extend([0xb3, 0x78, 0x56, 0x00, 0x40, 0, 0, 0, 0x80]);
        bytes.extend([0x43, 0x0e]);
        bytes.extend([0x65, 0xd2, 0x04, 0, 0]);
        bytes.extend([0x71, 1, 2, 3, 4, 5, 6, 7, 8]);
        bytes
    }

    #[test]
    fn a_record_is_read_whole() {
        let bytes = load();
        let mut records = Records::new(&bytes);
        let record = records.next().unwrap();
        assert_eq!(records.next(), None);
        assert_eq!(records.consumed(), bytes.len());
        assert_eq!(record.pc, Some(0x401234));
        assert_eq!(record.address, Some(0x7fff_1234_5678));
        assert_eq!(record.physical_address, Some(0x4000_5678));
        assert_eq!(
            (record.total_latency, record.issue_latency, record.translation_latency),
            (Some(300), Some(4), Some(5))
        );
        assert_eq!((record.context, record.timestamp), (Some(1234), Some(0x0807_0605_0403_0201)));
        let access = record.access(SourceTable::Common).unwrap();
        assert_eq!((access.operation, access.level, access.distance), (Operation::Load, Level::Ram, Distance::Local));
        assert_eq!((access.latency_cycles, access.is_atomic, access.tlb), (Some(300), Some(false), Tlb::Hit));
        // Without the core's table the event bits tell: a miss of the last cache.
        let access = record.access(SourceTable::Unknown).unwrap();
        assert_eq!((access.level, access.distance), (Level::Ram, Distance::Unknown));
    }

    #[test]
    fn a_cut_stream_keeps_its_whole_records_and_says_where_they_end() {
        let whole = load();
        for cut in 0..whole.len() {
            let bytes = [&whole[..], &whole[..cut]].concat();
            let mut records = Records::new(&bytes);
            assert_eq!(records.by_ref().count(), 1, "cut at {cut}");
            assert_eq!(records.consumed(), whole.len(), "cut at {cut}");
        }
    }

    #[test]
    fn atomics_stores_and_other_operations_are_told_apart() {
        let kind = |class: u8, bits: u8| {
            let bytes = [0x48 | class, bits, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x01];
            let record = Records::new(&bytes).next().unwrap();
            record.access(SourceTable::Unknown).map(|access| (access.operation, access.is_atomic))
        };
        assert_eq!(kind(1, 0x00), Some((Operation::Load, Some(false))));
        assert_eq!(kind(1, 0x01), Some((Operation::Store, Some(false))));
        assert_eq!(kind(1, 0x06), Some((Operation::LoadStore, Some(true))));
        assert_eq!(kind(1, 0x0b), Some((Operation::Store, Some(true))));
        assert_eq!(kind(1, 0x12), Some((Operation::Load, Some(false))));
        assert_eq!(kind(2, 0x00), None);
    }

    #[test]
    fn cores_number_their_data_sources_differently() {
        let level = |midr: u64, source: u8| {
            let bytes = [0x49, 0x00, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x43, source, 0x01];
            let access = Records::new(&bytes).next().unwrap().access(SourceTable::of_midr(midr)).unwrap();
            (access.level, access.distance.is_other_node())
        };
        let (n1, one, hip12) = (0x413f_d0c1, 0xc00f_ac40, 0x481f_d060);
        assert_eq!(SourceTable::of_midr(hip12), SourceTable::HisiHip);
        assert_eq!([level(n1, 8), level(n1, 0xe)], [(Level::L2, Some(false)), (Level::Ram, Some(false))]);
        assert_eq!([level(one, 8), level(one, 7)], [(Level::L1, Some(false)), (Level::Ram, Some(false))]);
        assert_eq!([level(hip12, 8), level(hip12, 9)], [(Level::Ram, Some(false)), (Level::Ram, Some(true))]);
        assert_eq!([level(hip12, 2), level(hip12, 3)], [(Level::L3, Some(false)), (Level::PeerCache, Some(false))]);
        assert_eq!([level(hip12, 7), level(hip12, 4)], [(Level::PeerCache, Some(true)), (Level::PeerCache, None)]);
        assert_eq!(level(hip12, 11), (Level::Unknown, None));
    }

    /// "Remote access: the operation accessed another socket": it was the node's own memory where the core numbers its source, too.
    #[test]
    fn memory_of_another_socket_is_remote_beside_a_source() {
        let answered = |midr: u64, source: u8, events: u32| {
            let [a, b, c, d] = events.to_le_bytes();
            let bytes = [0x49, 0x00, 0x62, a, b, c, d, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x43, source, 0x01];
            let access = Records::new(&bytes).next().unwrap().access(SourceTable::of_midr(midr)).unwrap();
            (access.level, access.distance)
        };
        const MISSED: u32 = 1 << 2 | 1 << 3 | 1 << 9;
        const REMOTE: u32 = 1 << 10;
        for (midr, memory) in [(0x413f_d0c1, 0xe), (0xc00f_ac40, 7)] {
            assert_eq!(answered(midr, memory, MISSED), (Level::Ram, Distance::Local));
            assert_eq!(answered(midr, memory, MISSED | REMOTE), (Level::Ram, Distance::Remote));
        }
        // What is not memory is where its number says.
        assert_eq!(answered(0x413f_d0c1, 8, REMOTE), (Level::L2, Distance::Local));
        assert_eq!(answered(0x413f_d0c1, 0xd, REMOTE), (Level::Unknown, Distance::OtherSocket));
        // HIP12's own number tells the node's memory from that of another socket.
        assert_eq!(answered(0x481f_d060, 8, REMOTE), (Level::Ram, Distance::Local));
    }

    /// `perf record --per-thread -e arm_spe//`, whose traces name no CPU, where cores of two kinds are.
    #[test]
    fn a_trace_without_a_cpu_has_the_table_that_all_cores_have() {
        let (common, unknown) = (SourceTable::Common, SourceTable::Unknown);
        let of = |tables: &[(u64, SourceTable)]| [0, 4, u32::MAX].map(|cpu| SourceTable::of_cpu(tables, CpuId(cpu)));
        assert_eq!(of(&[(0, common), (4, unknown)]), [common, unknown, unknown]);
        assert_eq!(of(&[(0, common), (4, common)]), [common; 3]);
        assert_eq!(of(&[]), [unknown; 3]);
    }

    #[test]
    fn a_context_of_zero_names_no_thread() {
        let tid = |id: u8| {
            let bytes = [0x49, 0x00, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x65, id, 0, 0, 0, 0x01];
            Records::new(&bytes).next().unwrap().access(SourceTable::Unknown).unwrap().tid
        };
        assert_eq!([tid(0), tid(7)], [None, Some(Tid(7))]);
    }

    /// Events of SPE 1.4, on a core whose data sources are not known.
    #[test]
    fn events_tell_of_the_second_cache_and_of_fills_under_way() {
        const REFILLED: u32 = 1 << 2 | 1 << 3;
        let level = |events: u32| {
            let [a, b, c, d] = (REFILLED | events).to_le_bytes();
            let bytes = [0x49, 0x00, 0x62, a, b, c, d, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x01];
            Records::new(&bytes).next().unwrap().access(SourceTable::Unknown).unwrap().level
        };
        assert_eq!([level(1 << 19), level(1 << 19 | 1 << 20)], [Level::L2, Level::Unknown]);
        assert_eq!([level(1 << 22), level(1 << 19 | 1 << 20 | 1 << 9)], [Level::LineFill, Level::Ram]);
    }

    /// "Data snooped" and "Cache data modified", bits 23 and 21 of the events packet since SPE 1.4 (`EV_DATA_SNOOPED`, `EV_CACHE_DATA_MODIFIED` in
    /// `tools/perf/util/arm-spe-decoder/arm-spe-pkt-decoder.h`; `arm_spe__synth_memory_level` in `tools/perf/util/arm-spe.c`), on a core whose data sources are
    /// not known. Such loads missed the last cache, and memory answered none of them.
    #[test]
    fn a_line_that_was_snooped_came_from_another_cores_cache() {
        const MISSED: u32 = 1 << 2 | 1 << 3 | 1 << 8 | 1 << 9;
        const SNOOPED: u32 = 1 << 23;
        let read = |midr: u64, events: u32| {
            let [a, b, c, d] = (MISSED | events).to_le_bytes();
            let bytes = [0x49, 0x00, 0x62, a, b, c, d, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x43, 0x0e, 0x01];
            let access = Records::new(&bytes).next().unwrap().access(SourceTable::of_midr(midr)).unwrap();
            (access.level, access.distance, access.snoop)
        };
        assert_eq!(read(0, 0), (Level::Ram, Distance::Unknown, Snoop::Unknown));
        assert_eq!(read(0, SNOOPED), (Level::PeerCache, Distance::Unknown, Snoop::Hit));
        assert_eq!(read(0, SNOOPED | 1 << 21 | 1 << 10), (Level::PeerCache, Distance::Remote, Snoop::HitModified));
        assert_eq!(read(0, 1 << 21), (Level::Ram, Distance::Unknown, Snoop::Unknown), "modified in the own caches");
        // Where the core names its sources, they count: memory, of a Neoverse N1.
        assert_eq!(read(0x413f_d0c1, SNOOPED).0, Level::Ram);
    }

    /// E[1], "architecturally retired", of the events packet ("omit speculative instructions" in `tools/perf/Documentation/perf-arm-spe.txt`).
    #[test]
    fn operations_of_a_wrong_path_are_told() {
        let retired = |events: u8| {
            let bytes = [0x49, 0x00, 0x42, events, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x01];
            Records::new(&bytes).next().unwrap().access(SourceTable::Unknown).unwrap().has_retired
        };
        assert_eq!([0x06, 0x04, 0x00].map(retired), [Some(true), Some(false), None]);
    }

    /// A trace that was overwritten begins with the end of a record: its bytes may look like packets of an operation that never was.
    #[test]
    fn what_is_left_of_an_overwritten_record_is_no_access() {
        let whole = load();
        // Within the virtual address: `0xff` is no header, `0x7f` is none either.
        let at = whole.iter().position(|&byte| byte == 0xff).unwrap();
        let bytes = [&whole[at..], &whole[..]].concat();
        let records: Vec<SpeRecord> = Records::new(&bytes).collect();
        let accesses: Vec<_> = records.iter().map(|record| record.access(SourceTable::Common).is_some()).collect();
        assert_eq!((records[0].unknown_packets > 0, accesses), (true, vec![false, true]));
        // The end of one operation, and the beginning of another: the bytes between them are lost.
        let torn = [&whole[..at - 5], &[0xff, 0x7f][..], &whole[at - 5..]].concat();
        let record = Records::new(&torn).next().unwrap();
        assert!(record.address.is_some() && record.access(SourceTable::Common).is_none());
    }

    /// `arm_spe_event_sanitise_period` and PMSIRR_EL1 (Arm ARM, D24.7).
    #[test]
    fn intervals_are_multiples_of_256_as_the_driver_writes_them() {
        let asked = [0, 255, 256, 1000, 50_000, 0xffff_ffff, u64::MAX];
        assert_eq!(asked.map(interval), [256, 256, 256, 768, 49_920, 0xffff_ff00, 0xffff_ff00]);
    }

    #[test]
    fn unknown_bytes_and_alignment_are_passed_over() {
        // 0xff is no header; alignment to 16 bytes; then an extended address packet of index 8.
        let mut bytes = vec![0xff, 0x23, 0x00];
        bytes.resize(16, 0xee);
        bytes.extend([0x21, 0xb0, 1, 0, 0, 0, 0, 0, 0, 0, 0x01]);
        let packets: Vec<Packet> = Packets::new(&bytes).collect();
        let address = Packet::Address { kind: AddressKind::Other(8), value: 1 };
        assert_eq!(packets, [Packet::Unknown(0xff), Packet::Padding, address, Packet::End]);
    }
}
