//! Records in order of time. perf writes each CPU's buffer as it comes, and marks rounds: records after a round's mark are newer than all records
//! before the previous mark. Records without a time keep their place in the file.

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::spe::{Records, SourceTable};
use numapilot_perf::{Header, MemoryAccess, Words};

/// Type of Arm SPE's AUX traces (`PERF_AUXTRACE_ARM_SPE`).
const AUXTRACE_SPE: u32 = 4;
/// Where per-CPU parameters begin in the newer form of SPE's information, whose first word is not a PMU's number but this version.
const SPE_INFO_VERSION: u64 = 2;
/// Index of the least interval among a CPU's parameters (`ARM_SPE_CAP_MIN_IVAL`, which is counted from `ARM_SPE_CPU_MIDR` here).
const LEAST_INTERVAL: u64 = 2;
/// Words of its older form (`ARM_SPE_AUXTRACE_V1_PRIV_MAX` in `tools/perf/util/arm-spe.h`).
const SPE_INFO_OLD_WORDS: usize = 2;
const NO_CPU: CpuId = CpuId(u32::MAX);
/// Bytes up to which a buffer stays however little it held last, and how many times as large as that it may be beyond.
const SMALL_BUFFER: usize = 64 << 10;
const SPARE_TIMES: usize = 4;

/// One waiting record, or an access of an AUX trace, which has no header.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Nanoseconds on the recording's clock.
    pub time: u64,
    sequence: u64,
    /// The record's header; `None` for an access of an AUX trace.
    pub header: Option<Header>,
    /// Offset in the file.
    pub offset: u64,
    start: usize,
    length: usize,
}

/// An access of an AUX trace.
#[derive(Clone, Copy, Debug)]
pub struct AuxAccess {
    /// The access; its time is unknown where the trace has none.
    pub access: MemoryAccess<'static>,
    /// Process and thread that ran at the end of the piece that it is in.
    pub last_task: Option<(Pid, Tid)>,
}

/// Records that wait to be processed in the order of their times.
#[derive(Debug, Default)]
pub struct Queue {
    bytes: Vec<u8>,
    /// Empty; takes what is left of `bytes`, and then its place.
    spare: Vec<u8>,
    last: (usize, usize),
    entries: Vec<Entry>,
    accesses: Vec<AuxAccess>,
    sequence: u64,
    /// Time of the newest record, and what it was at the last mark.
    newest: u64,
    newest_at_mark: u64,
    /// Time for records without one.
    previous: u64,
    aux_kind: Option<u32>,
    /// Meaning of SPE's data sources by CPU.
    tables: Vec<(u64, SourceTable)>,
    /// Operations between two records of SPE that its driver allows at least, where the recording says so.
    spe_least_interval: u64,
    conversion: Option<(u64, u64, u64)>,
    aux_bytes_unread: u64,
    aux_untimed: u64,
}

impl Queue {
    /// Stores a record's body.
    pub fn bytes(&mut self, body: &[u8]) {
        self.last = (self.bytes.len(), body.len());
        self.bytes.extend_from_slice(body);
    }

    /// The body that was stored last.
    pub fn last_bytes(&self) -> &[u8] {
        &self.bytes[self.last.0..self.last.0 + self.last.1]
    }

    /// Lends the buffer of bodies, to append more; return it by [`Queue::give_back`].
    pub fn lend(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Returns the buffer of bodies for reuse.
    pub fn give_back(&mut self, bytes: Vec<u8>) {
        self.bytes = bytes;
    }

    /// Queues a record whose body stands at `start` among those kept.
    pub fn record_at(&mut self, header: Header, start: usize, length: usize, time: Option<u64>) {
        self.last = (start, length);
        self.record(header, 0, time);
    }

    /// Queues the record whose body was kept last.
    pub fn record(&mut self, header: Header, offset: u64, time: Option<u64>) {
        let time = time.unwrap_or(self.previous);
        self.previous = time;
        self.push(time, Some(header), offset, self.last.0, self.last.1);
    }

    fn push(&mut self, time: u64, header: Option<Header>, offset: u64, start: usize, length: usize) {
        self.newest = self.newest.max(time);
        self.entries.push(Entry { time, sequence: self.sequence, header, offset, start, length });
        self.sequence += 1;
    }

    /// Puts what can go into `out` (empty), in order: everything at the end; at a mark what is not newer than the newest record at the mark before.
    pub fn ready(&mut self, is_end: bool, out: &mut Vec<Entry>) {
        self.entries.sort_by_key(|entry| (entry.time, entry.sequence));
        let limit = if is_end { u64::MAX } else { self.newest_at_mark };
        self.newest_at_mark = self.newest;
        // What perf lists of before the recording has time 0 and waits with the rest for the first real time.
        if limit > 0 {
            let count = self.entries.partition_point(|entry| entry.time <= limit);
            out.extend(self.entries.drain(..count));
        }
    }

    /// Body of the entry's record.
    pub fn body(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.start..entry.start + entry.length]
    }

    /// The access that an entry without header stands for.
    pub fn access(&self, entry: &Entry) -> Option<AuxAccess> {
        self.accesses.get(entry.start).copied()
    }

    /// Lets go of the bodies of what was taken out.
    pub fn forget(&mut self, taken: &mut Vec<Entry>) {
        taken.clear();
        // The buffers change places. New ones would be memory that the kernel has to map again for each round.
        let mut kept = std::mem::take(&mut self.spare);
        for entry in self.entries.iter_mut().filter(|entry| entry.header.is_some()) {
            let start = kept.len();
            kept.extend_from_slice(&self.bytes[entry.start..entry.start + entry.length]);
            entry.start = start;
        }
        self.spare = emptied(std::mem::replace(&mut self.bytes, kept));
        let mut accesses = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| entry.header.is_none()) {
            accesses.extend(self.accesses.get(entry.start));
            entry.start = accesses.len().saturating_sub(1);
        }
        self.accesses = accesses;
        self.last = (0, 0);
    }

    /// Bytes that records take while they wait.
    pub fn waiting_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Whether no entries are waiting.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there are AUX traces, which hold samples of much earlier times: then nothing can be processed before the end.
    pub fn has_aux(&self) -> bool {
        self.aux_kind.is_some()
    }

    /// What kind of AUX traces there are, and what is known of them. `midr`: type register of the machine's cores, for where that is not said.
    pub fn aux_info(&mut self, kind: u32, words: &Words<'_>, midr: Option<u64>) {
        self.aux_kind = Some(kind);
        let at = |index: usize| words.get(index).unwrap_or(0);
        if kind != AUXTRACE_SPE {
            return;
        }
        // perf before 6.13: a PMU's number and how its buffers were mapped.
        if words.len() <= SPE_INFO_OLD_WORDS || at(0) < SPE_INFO_VERSION {
            self.tables.extend(midr.map(|midr| (u64::from(NO_CPU.0), SourceTable::of_midr(midr))));
            return;
        }
        // version, header's words, PMU, CPUs; then per CPU: magic, CPU, number of parameters, MIDR, PMU, least interval, ...
        let mut next = usize::try_from(at(1)).unwrap_or(usize::MAX);
        while let (Some(cpu), Some(count), Some(midr)) =
            (words.get(next.saturating_add(1)), words.get(next.saturating_add(2)), words.get(next.saturating_add(3)))
        {
            self.tables.push((cpu, SourceTable::of_midr(midr)));
            let least = if count > LEAST_INTERVAL { words.get(next.saturating_add(5)) } else { None };
            self.spe_least_interval = self.spe_least_interval.max(least.unwrap_or(0));
            next = next.saturating_add(3).saturating_add(usize::try_from(count).unwrap_or(usize::MAX).max(1));
        }
    }

    /// Operations for which a record of SPE stands at least, whatever period was asked for: the driver samples no more often
    /// (`arm_spe_event_sanitise_period` in `drivers/perf/arm_spe_pmu.c`). 0: the recording does not say.
    pub fn spe_least_interval(&self) -> u64 {
        self.spe_least_interval
    }

    /// AUX traces of SPE are to come, with time stamps on the same scale as the records' times.
    pub fn expect_spe(&mut self, tables: Vec<(u64, SourceTable)>) {
        self.aux_kind = Some(AUXTRACE_SPE);
        self.tables = tables;
        self.conversion = Some((0, 1, 0));
    }

    /// How ticks of the timer become time.
    pub fn time_conversion(&mut self, shift: u64, multiplier: u64, zero: u64) {
        self.conversion = Some((shift, multiplier, zero)).filter(|_| shift < 64);
    }

    /// `None`: the recording does not say how (its events have a clock of their own, or perf or the kernel are old).
    fn time_of(&self, tick: u64) -> Option<u64> {
        let (shift, multiplier, zero) = self.conversion?;
        let scaled = (u128::from(tick) * u128::from(multiplier)) >> shift;
        Some(zero.wrapping_add(scaled as u64))
    }

    /// Takes the accesses out of a piece of an SPE trace. `tid`: the thread whose they all are; `last_task`: process and thread that ran at its end.
    pub fn spe(&mut self, trace: &[u8], tid: Option<Tid>, last_task: Option<(Pid, Tid)>, cpu: CpuId) {
        if self.aux_kind != Some(AUXTRACE_SPE) {
            self.aux_bytes_unread += trace.len() as u64;
            return;
        }
        let table = SourceTable::of_cpu(&self.tables, cpu);
        let mut records = Records::new(trace);
        for record in records.by_ref() {
            self.aux_bytes_unread += u64::from(record.unknown_packets);
            let Some(access) = record.access(table) else { continue };
            let time = record.timestamp.and_then(|tick| self.time_of(tick));
            self.aux_untimed += u64::from(time.is_none());
            let access = MemoryAccess { time, tid: access.tid.or(tid), cpu: (cpu != NO_CPU).then_some(cpu), ..access };
            let time = time.unwrap_or(self.previous);
            let start = self.accesses.len();
            self.accesses.push(AuxAccess { access, last_task });
            self.push(time, None, 0, start, 0);
        }
        // Zeroes after the last record are padding.
        let rest = &trace[records.consumed()..];
        self.aux_bytes_unread += rest.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
    }

    /// Accesses of AUX traces whose times are not known.
    pub fn aux_untimed(&self) -> u64 {
        self.aux_untimed
    }

    /// Bytes of AUX traces that were of no use.
    pub fn aux_bytes_unread(&self) -> u64 {
        self.aux_bytes_unread
    }
}

/// A buffer for as many bytes again as this one holds. After a burst of records it shrinks.
fn emptied(mut buffer: Vec<u8>) -> Vec<u8> {
    let held = buffer.len();
    buffer.clear();
    if buffer.capacity() / SPARE_TIMES > held.max(SMALL_BUFFER) {
        buffer.shrink_to(held);
    }
    buffer
}

#[cfg(test)]
mod tests {
    use numapilot_perf::data_src::Level;
    use numapilot_perf::{Bytes, Endian};

    use super::*;

    fn header() -> Header {
        Header { kind: 9, misc: 2, size: 9 }
    }

    #[test]
    fn rounds_hand_on_what_nothing_later_can_precede() {
        let mut queue = Queue::default();
        let put = |queue: &mut Queue, time: u64| {
            queue.bytes(&[time as u8]);
            queue.record(header(), 0, Some(time));
        };
        let times = |queue: &mut Queue, is_end| {
            let mut entries = Vec::new();
            queue.ready(is_end, &mut entries);
            let out: Vec<(u64, u8)> = entries.iter().map(|entry| (entry.time, queue.body(entry)[0])).collect();
            queue.forget(&mut entries);
            out
        };
        put(&mut queue, 30);
        put(&mut queue, 10);
        assert_eq!(times(&mut queue, false), []);
        // Another CPU's buffer, from before the last mark.
        put(&mut queue, 20);
        put(&mut queue, 50);
        assert_eq!(times(&mut queue, false), [(10, 10), (20, 20), (30, 30)]);
        put(&mut queue, 40);
        assert_eq!(times(&mut queue, true), [(40, 40), (50, 50)]);
    }

    #[test]
    fn buffers_stay_for_the_next_round_and_shrink_after_a_burst() {
        let (mut queue, mut time) = (Queue::default(), 0);
        let mut round = |bytes: usize| {
            time += 1;
            queue.bytes(&vec![time as u8; bytes]);
            queue.record(header(), 0, Some(time));
            let mut entries = Vec::new();
            queue.ready(false, &mut entries);
            assert!(entries.iter().all(|entry| queue.body(entry)[0] == entry.time as u8));
            queue.forget(&mut entries);
            assert!(queue.entries.iter().all(|entry| queue.body(entry)[0] == entry.time as u8));
            let mut buffers = [&queue.bytes, &queue.spare].map(|buffer| (buffer.as_ptr() as usize, buffer.capacity()));
            buffers.sort_unstable();
            buffers
        };
        let large = 1 << 20;
        let rounds: Vec<_> = (0..6).map(|_| round(large)).collect();
        assert_eq!(rounds[4], rounds[5], "no buffer is new");
        let small: Vec<_> = (0..5).map(|_| round(16)).collect();
        assert!(small[4].iter().all(|(_, capacity)| *capacity < large), "{small:?}");
    }

    /// What a Neoverse N1 writes of a load that memory answered, at tick 1000.
    const LOAD: [u8; 22] = [0x49, 0, 0xb2, 0, 0x10, 0, 0, 0, 0, 0, 0, 0x43, 0x0e, 0x71, 0xe8, 3, 0, 0, 0, 0, 0, 0];
    const N1: u64 = 0x413f_d0c1;

    /// Time, level and CPU of the access in that, after what `prepare` told the queue.
    fn spe_access(prepare: impl FnOnce(&mut Queue)) -> (Option<u64>, Level, u64) {
        let mut queue = Queue::default();
        prepare(&mut queue);
        queue.bytes(&[0]);
        queue.record(header(), 0, Some(77));
        queue.spe(&LOAD, Some(Tid(7)), None, CpuId(3));
        let access = queue.accesses[0].access;
        assert_eq!((queue.aux_bytes_unread(), access.tid, access.cpu), (0, Some(Tid(7)), Some(CpuId(3))));
        let entry = queue.entries.iter().find(|entry| entry.header.is_none()).unwrap();
        (access.time, access.level, entry.time)
    }

    fn told(queue: &mut Queue, words: &[u64], midr: Option<u64>) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let words = Bytes::new(&bytes, 0, Endian::Little).words(words.len() as u64, "").unwrap();
        queue.aux_info(AUXTRACE_SPE, &words, midr);
    }

    /// `tsc_to_perf_time` in `tools/perf/util/tsc.c`; where the events have a clock of their own, perf writes no TIME_CONV
    /// (`perf_event__synth_time_conv`), and ticks are no nanoseconds.
    #[test]
    fn ticks_are_times_only_where_the_recording_says_which() {
        let new = [2, 4, 12, 1, 0x1010_1010_1010_1010, 3, 3, N1, 12, 1024];
        let converted = spe_access(|queue| {
            told(queue, &new, None);
            queue.time_conversion(1, 80, 5);
        });
        assert_eq!(converted, (Some(40_005), Level::Ram, 40_005));
        assert_eq!(spe_access(|queue| told(queue, &new, None)), (None, Level::Ram, 77));
        let live = spe_access(|queue| queue.expect_spe(vec![(3, SourceTable::of_midr(N1))]));
        assert_eq!(live, (Some(1000), Level::Ram, 1000));
    }

    /// `arm_spe_save_cpu_header` in `tools/perf/arch/arm64/util/arm-spe.c`: behind a CPU's type come its PMU, `caps/min_interval`, and later the event filter.
    #[test]
    fn the_drivers_least_interval_is_read_of_each_cpu() {
        const MAGIC: u64 = 0x1010_1010_1010_1010;
        let least = |words: &[u64]| {
            let mut queue = Queue::default();
            told(&mut queue, words, None);
            queue.spe_least_interval()
        };
        let (first, second) = ([MAGIC, 0, 4, N1, 12, 1024, 0xff], [MAGIC, 1, 4, N1, 12, 256, 0xff]);
        assert_eq!(least(&[&[2, 4, 12, 2][..], &first[..], &second[..]].concat()), 1024);
        assert_eq!(least(&[2, 4, 12, 1, MAGIC, 0, 2, N1, 12, 1024]), 0, "that is another's");
        assert_eq!(least(&[12, 1]), 0, "perf before 6.13");
    }

    /// perf before 6.13 did not write each core's type: it takes that of the processor's id, too (`arm_spe__get_midr`).
    #[test]
    fn cores_are_of_the_processors_type_where_nothing_names_each() {
        for pmu in [1, 12] {
            assert_eq!(spe_access(|queue| told(queue, &[pmu, 1], Some(N1))).1, Level::Ram);
            assert_eq!(spe_access(|queue| told(queue, &[pmu, 1], None)).1, Level::Unknown);
        }
    }

    #[test]
    fn records_without_time_keep_their_place() {
        let mut queue = Queue::default();
        for (byte, time) in [(1, Some(10)), (2, None), (3, Some(20)), (4, None)] {
            queue.bytes(&[byte]);
            queue.record(header(), 0, time);
        }
        let mut entries = Vec::new();
        queue.ready(true, &mut entries);
        let bytes: Vec<u8> = entries.iter().map(|entry| queue.body(entry)[0]).collect();
        assert_eq!(bytes, [1, 2, 3, 4]);
    }
}
