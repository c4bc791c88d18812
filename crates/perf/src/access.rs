//! One sampled memory access, independent of the hardware that sampled it: the form that all other crates use.

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;

use crate::abi::sample;
use crate::attr::EventAttr;
use crate::bytes::Words;
use crate::data_src::{DataSource, Distance, Level, Operation, Snoop, Tlb};
use crate::ibs::{OpRecord, Source, caps};
use crate::sample::Sample;

/// One sampled access. What the hardware did not say is `None` or `Unknown`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryAccess<'a> {
    /// Nanoseconds on the recording's clock.
    pub time: Option<u64>,
    /// Process id.
    pub pid: Option<Pid>,
    /// Thread id.
    pub tid: Option<Tid>,
    /// CPU on which the access was made.
    pub cpu: Option<CpuId>,
    /// Virtual address accessed.
    pub address: u64,
    /// Its physical address.
    pub physical_address: Option<u64>,
    /// Bytes of the page that was there when the kernel took the sample (of a page fault: before it); 0: none was. `None`: the event did not ask.
    pub page_bytes: Option<u64>,
    /// Address of the instruction.
    pub ip: Option<u64>,
    /// Operation of the access.
    pub operation: Operation,
    /// Atomic (locked, exclusive, read-modify-write); `None`: not said.
    pub is_atomic: Option<bool>,
    /// Level that answered.
    pub level: Level,
    /// Distance of what answered.
    pub distance: Distance,
    /// What another cache's copy did.
    pub snoop: Snoop,
    /// How the address was translated.
    pub tlb: Tlb,
    /// Latency of the access in core cycles.
    pub latency_cycles: Option<u32>,
    /// Whether the operation retired: what a mispredicted branch led to does not. `None`: not said (IBS and PEBS show only what retires).
    pub has_retired: Option<bool>,
    /// Events that the sample stands for.
    pub period: Option<u64>,
    /// Call chain as the kernel wrote it; its first entry need not be `ip`.
    pub callchain: Option<Words<'a>>,
}

impl<'a> MemoryAccess<'a> {
    /// The access in a sample of an event with `perf_mem_data_src` (Intel PEBS, AMD IBS through the kernel, POWER), or of any event that records data
    /// addresses. `None` if there is no address, or a guest's, or the sampled instruction accesses no memory.
    #[must_use]
    pub fn of_sample(attr: &EventAttr, sample: &Sample<'a>) -> Option<MemoryAccess<'a>> {
        let address = sample.addr.filter(|&address| address != 0 && !sample.of_guest)?;
        let source = DataSource::decode(sample.data_src.unwrap_or(0));
        if source.operation == Operation::Execute {
            return None;
        }
        Some(MemoryAccess {
            address,
            operation: source.operation,
            is_atomic: source.is_locked,
            level: source.level,
            distance: source.distance,
            snoop: source.snoop,
            tlb: source.tlb,
            latency_cycles: latency(attr, sample),
            ..MemoryAccess::common(attr, sample)
        })
    }

    /// The access in a sample of `ibs_op` that has the registers. `None` if the micro-operation accesses no memory, or its address is not known or a
    /// guest's.
    #[must_use]
    pub fn of_ibs(attr: &EventAttr, sample: &Sample<'a>, op: &OpRecord) -> Option<MemoryAccess<'a>> {
        let address = op.linear_address().filter(|_| !sample.of_guest)?;
        let source = source_of_ibs(sample, op);
        let common = MemoryAccess::common(attr, sample);
        Some(MemoryAccess {
            address,
            physical_address: op.physical_address().or(common.physical_address),
            // The sampled instruction itself; the sample's own may be where the interrupt struck.
            ip: op.rip().or(common.ip),
            operation: op.operation(),
            is_atomic: Some(op.is_locked()),
            level: source.level,
            distance: source.distance,
            snoop: source.snoop,
            tlb: op.tlb(),
            latency_cycles: op.latency_cycles(),
            ..common
        })
    }

    /// The access without its call chain: it then borrows nothing.
    #[must_use]
    pub fn without_callchain(&self) -> MemoryAccess<'static> {
        MemoryAccess {
            time: self.time,
            pid: self.pid,
            tid: self.tid,
            cpu: self.cpu,
            address: self.address,
            physical_address: self.physical_address,
            page_bytes: self.page_bytes,
            ip: self.ip,
            operation: self.operation,
            is_atomic: self.is_atomic,
            level: self.level,
            distance: self.distance,
            snoop: self.snoop,
            tlb: self.tlb,
            latency_cycles: self.latency_cycles,
            has_retired: self.has_retired,
            period: self.period,
            callchain: None,
        }
    }

    /// The fields that every sample has, whatever the PMU.
    fn common(attr: &EventAttr, sample: &Sample<'a>) -> MemoryAccess<'a> {
        MemoryAccess {
            time: sample.time,
            pid: sample.pid_tid.map(|(pid, _)| pid),
            tid: sample.pid_tid.map(|(_, tid)| tid),
            cpu: sample.cpu,
            physical_address: sample.phys_addr.filter(|&address| address != 0),
            page_bytes: sample.data_page_size,
            ip: sample.ip.filter(|&ip| ip != 0),
            period: sample.period.or(attr.period()),
            callchain: sample.callchain,
            ..MemoryAccess::default()
        }
    }
}

/// Where the data of a micro-operation came from. The kernel knows the processor's errata, the registers do not: on Zen 3, DataSrc of prefetches and of loads
/// whose miss joined another one is invalid (erratum 1293, `perf_ibs_get_op_data2`). It says that a fill was under way for no load whose DataSrc it believes,
/// and nothing of prefetches there.
fn source_of_ibs(sample: &Sample<'_>, op: &OpRecord) -> Source {
    let told = sample.data_src.map(DataSource::decode);
    let told = told.filter(|told| told.operation != Operation::Unknown && op.caps & caps::ZEN4 == 0);
    match told.map(|told| told.level) {
        Some(Level::LineFill) => Source { level: Level::LineFill, ..Source::default() },
        Some(Level::Unknown) if op.operation() == Operation::Prefetch => Source::default(),
        _ => op.data_source(),
    }
}

/// The access latency, where the event asked for it and the hardware gave one: PMUs write 0 for what they do not measure.
fn latency(attr: &EventAttr, sample: &Sample<'_>) -> Option<u32> {
    // Without a data source the weight of a sample is something else (a transaction's cycles, a block's).
    if !attr.samples(sample::DATA_SRC) {
        return None;
    }
    let cycles = sample.weight?.latency();
    (cycles != 0).then(|| u32::try_from(cycles).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A load that missed and joined a miss that was under way (DcMissNoMabAlloc), with a data source of memory.
    #[test]
    fn the_kernel_is_believed_where_it_does_not_believe_ibs() {
        const LOAD_JOINED: u64 = 1 | 1 << 7 | 1 << 16 | 1 << 17 | 1 << 20;
        let op = OpRecord { data2: 3, data3: LOAD_JOINED, linear: 0x1000, ..OpRecord::default() };
        let level = |data_src: Option<u64>| {
            let sample = Sample { data_src, ..Sample::default() };
            MemoryAccess::of_ibs(&EventAttr::default(), &sample, &op).map(|access| access.level)
        };
        // `L(LFB) | LN(LFB)` and `L(LOC_RAM) | LN(RAM)` of a load.
        let line_fill = 2 | (2 | 0x10) << 5 | 0xc << 33;
        let memory = 2 | (2 | 0x80) << 5 | 0xd << 33;
        assert_eq!([level(Some(line_fill)), level(Some(memory))], [Some(Level::LineFill), Some(Level::Ram)]);
        // Before Linux 6.2 it said nothing.
        assert_eq!([level(None), level(Some(0))], [Some(Level::Ram); 2]);
    }

    /// A software prefetch that missed, with a data source of memory: Zen 3's is invalid, and the kernel then says that of the level.
    #[test]
    fn the_source_of_a_prefetch_is_unknown_where_the_kernel_says_so() {
        const PREFETCH_MISSED: u64 = 1 | 1 << 7 | 1 << 17 | 1 << 20 | 1 << 21;
        let op = OpRecord { data2: 3, data3: PREFETCH_MISSED, linear: 0x1000, ..OpRecord::default() };
        let level = |caps: u32, data_src: u64| {
            let sample = Sample { data_src: Some(data_src), ..Sample::default() };
            MemoryAccess::of_ibs(&EventAttr::default(), &sample, &OpRecord { caps, ..op }).map(|access| access.level)
        };
        // `PERF_MEM_S(LVL, NA) | LN(NA)` of a load.
        let unknown = 2 | 1 << 5 | 0xf << 33;
        let memory = 2 | (2 | 0x80) << 5 | 0xd << 33;
        assert_eq!(
            [level(0, unknown), level(0, memory), level(0, 0)].map(Option::unwrap),
            [Level::Unknown, Level::Ram, Level::Ram]
        );
        assert_eq!(level(caps::ZEN4, unknown), Some(Level::Ram));
    }
}
