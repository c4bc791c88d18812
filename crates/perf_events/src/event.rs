//! Requests to the kernel: an event's description with what only the opening side needs (wake-ups, AUX area, groups), and the bytes that
//! `perf_event_open` takes (`struct perf_event_attr` in `include/uapi/linux/perf_event.h`).

use numapilot_machine::CpuId;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::event_type;
use numapilot_perf::abi::sample;
use numapilot_perf::abi::software;

/// Bytes of the largest description known here (PERF_ATTR_SIZE_VER8).
pub const ATTR_BYTES: usize = 136;

/// What the samples of an event are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventKind {
    /// There are none: the event has only side-band records (processes, threads, mappings).
    #[default]
    SideBand,
    /// Page faults are sampled.
    Fault,
    /// Memory accesses, described by `data_src` where the event has it.
    Access,
    /// AMD's `ibs_op`: raw samples hold its registers.
    Ibs,
    /// Only there to make another event possible (Intel's `mem-loads-aux`): its samples, if any, are passed over.
    Helper,
}

/// One event to open on every CPU (or on [`EventRequest::cpus`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventRequest {
    /// Name for people, as perf would write it.
    pub name: String,
    /// What the event's samples are.
    pub kind: EventKind,
    /// The event. Opening adds what every event of a recording has: see [`EventRequest::completed`].
    pub attr: EventAttr,
    /// Bytes in the ring at which the reader is woken; 0: half of the ring.
    pub wakeup_bytes: u32,
    /// Frames of call chains; 0: the system's limit (kernel.perf_event_max_stack).
    pub max_stack: u16,
    /// Its samples are stores, and nothing else.
    pub samples_stores: bool,
    /// CPUs on which it counts; `None`: all.
    pub cpus: Option<Vec<CpuId>>,
    /// It is a member of the group that the request before it leads or is in.
    pub joins_group: bool,
    /// Bytes of its AUX area per CPU, a power of two of pages; 0: none.
    pub aux_bytes: usize,
    /// Bytes in the AUX area at which the reader is woken; 0: the kernel's choice.
    pub aux_watermark: u32,
}

/// Fields that identify every record's event, thread, time and CPU.
const WHO_AND_WHEN: u64 = sample::IDENTIFIER | sample::TID | sample::TIME | sample::CPU;

fn flags(bits: &[u32]) -> u64 {
    bits.iter().fold(0, |all, bit| all | 1 << bit)
}

impl EventRequest {
    /// The side band: who begins and ends, what is mapped where. Counts nothing.
    #[must_use]
    pub fn side_band() -> EventRequest {
        let wanted = [
            attr_flag::MMAP,
            attr_flag::MMAP2,
            attr_flag::MMAP_DATA,
            attr_flag::COMM,
            attr_flag::COMM_EXEC,
            attr_flag::TASK,
            attr_flag::BUILD_ID,
            attr_flag::EXCLUDE_KERNEL,
            attr_flag::EXCLUDE_HV,
            // As events of PEBS: while a guest runs that has the PMU to itself (since Linux 7.0), those that exclude guests are off, and their times
            // stand still (`__perf_event_time_ctx` in kernel/events/core.c). The side band's times are what theirs are compared with.
            attr_flag::EXCLUDE_GUEST,
        ];
        EventRequest {
            name: "dummy".to_owned(),
            attr: EventAttr {
                kind: event_type::SOFTWARE,
                config: software::DUMMY,
                period_or_freq: 1,
                flags: flags(&wanted),
                ..EventAttr::default()
            },
            ..EventRequest::default()
        }
    }

    /// Every page fault, with address and call chain. `user_only`: not those that the kernel has on the program's behalf (a read(2) into fresh
    /// memory), for which it wants more rights.
    #[must_use]
    pub fn page_faults(user_only: bool, max_stack: u16) -> EventRequest {
        let excluded = if user_only { flags(&[attr_flag::EXCLUDE_KERNEL, attr_flag::EXCLUDE_HV]) } else { 0 };
        EventRequest {
            name: "page-faults".to_owned(),
            kind: EventKind::Fault,
            attr: EventAttr {
                kind: event_type::SOFTWARE,
                config: software::PAGE_FAULTS,
                period_or_freq: 1,
                sample_type: WHO_AND_WHEN | sample::IP | sample::ADDR | sample::CALLCHAIN,
                flags: flags(&[attr_flag::EXCLUDE_CALLCHAIN_KERNEL]) | excluded,
                ..EventAttr::default()
            },
            max_stack,
            ..EventRequest::default()
        }
    }

    /// The same for a recording: also whether a page was there before, and how large it was.
    #[must_use]
    pub fn recorded_page_faults(user_only: bool, max_stack: u16) -> EventRequest {
        let mut request = EventRequest::page_faults(user_only, max_stack);
        request.attr.sample_type |= sample::DATA_PAGE_SIZE;
        request
    }

    /// Every page fault, with its address and no more.
    #[must_use]
    pub fn every_page_fault(user_only: bool) -> EventRequest {
        let mut request = EventRequest::page_faults(user_only, 1);
        request.attr.sample_type &= !(sample::CALLCHAIN | sample::IP);
        request
    }

    /// Page faults for who watches rather than records: without call chains, and of many only so many per second and CPU. Each sample says how many
    /// faults it stands for.
    #[must_use]
    pub fn some_page_faults(user_only: bool, rate_hz: u32) -> EventRequest {
        let mut request = EventRequest::page_faults(user_only, 1);
        request.attr.sample_type = request.attr.sample_type & !sample::CALLCHAIN | sample::PERIOD;
        request.attr.flags |= flags(&[attr_flag::FREQ]);
        request.attr.period_or_freq = u64::from(rate_hz.max(1));
        request
    }

    /// The event with what all events of a recording share: every record says whose it is, on the clock that can be laid over the tracker's stamps
    /// (`numapilot-sources`, `live/time.rs`).
    #[must_use]
    pub fn completed(&self) -> EventAttr {
        EventAttr {
            sample_type: self.attr.sample_type | WHO_AND_WHEN,
            flags: self.attr.flags | flags(&[attr_flag::SAMPLE_ID_ALL, attr_flag::USE_CLOCKID, attr_flag::WATERMARK]),
            clock_id: libc::CLOCK_MONOTONIC_RAW,
            ..self.attr.clone()
        }
    }

    /// `attr` (of this event) as the kernel reads it; `ring_bytes`: size of the ring that its records go to.
    #[must_use]
    pub fn bytes(&self, attr: &EventAttr, ring_bytes: usize) -> [u8; ATTR_BYTES] {
        let half = u32::try_from(ring_bytes / 2).unwrap_or(u32::MAX);
        let wakeup = if self.wakeup_bytes == 0 { half } else { self.wakeup_bytes };
        let half_words = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
        let words: [[u8; 8]; ATTR_BYTES / 8] = [
            half_words(attr.kind, ATTR_BYTES as u32),
            attr.config.to_le_bytes(),
            attr.period_or_freq.to_le_bytes(),
            attr.sample_type.to_le_bytes(),
            attr.read_format.to_le_bytes(),
            attr.flags.to_le_bytes(),
            half_words(wakeup, 0),
            attr.config1.to_le_bytes(),
            attr.config2.to_le_bytes(),
            attr.branch_sample_type.to_le_bytes(),
            attr.sample_regs_user.to_le_bytes(),
            half_words(attr.sample_stack_user, attr.clock_id.cast_unsigned()),
            attr.sample_regs_intr.to_le_bytes(),
            half_words(self.aux_watermark, u32::from(self.max_stack)),
            // aux_sample_size and aux_action; sig_data.
            [0; 8],
            [0; 8],
            attr.config3.to_le_bytes(),
        ];
        let mut out = [0; ATTR_BYTES];
        out.as_chunks_mut::<8>().0.copy_from_slice(&words);
        out
    }
}

#[cfg(test)]
mod tests {
    //! The bytes against the decoder of recordings, which reads the same structure.

    use numapilot_perf::Bytes;
    use numapilot_perf::Endian;

    use super::*;

    #[test]
    fn the_decoder_reads_back_what_the_kernel_is_given() {
        for request in [EventRequest::side_band(), EventRequest::recorded_page_faults(true, 64)] {
            let attr = EventAttr { config3: 7, sample_stack_user: 5, ..request.completed() };
            let bytes = request.bytes(&attr, 1 << 16);
            let read = EventAttr::decode(&mut Bytes::new(&bytes, 0, Endian::Little)).unwrap();
            assert_eq!(read, EventAttr { size: ATTR_BYTES as u32, ..attr });
            assert_eq!(bytes[48..52], (1_u32 << 15).to_le_bytes(), "wake-up at half the ring");
        }
    }

    /// PEBS beside a guest that has the PMU to itself was said to share the counters, as the side band's time went on.
    #[test]
    fn the_side_bands_time_stands_still_with_that_of_events_of_the_host() {
        assert!(EventRequest::side_band().completed().flag(attr_flag::EXCLUDE_GUEST));
    }
}
