//! Records other than samples: starts and ends of tasks, mappings, losses; and the trailer that names the task of each record.

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;

use crate::abi::{kind, misc, sample};
use crate::attr::EventAttr;
use crate::bytes::{Bytes, Words};
use crate::error::DecodeError;
use crate::parts::ReadValues;

/// Who, when, where, and of which event: at the end of records other than samples, if the event has `sample_id_all`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleId {
    /// Process id and thread id.
    pub pid_tid: Option<(Pid, Tid)>,
    /// Nanoseconds on the recording's clock.
    pub time: Option<u64>,
    /// Id of the event.
    pub id: Option<u64>,
    /// Id of the event itself.
    pub stream_id: Option<u64>,
    /// CPU on which the record was written.
    pub cpu: Option<CpuId>,
    /// Id of the event, at a fixed place.
    pub identifier: Option<u64>,
}

impl SampleId {
    /// Reads the trailer, which is all of `bytes`.
    pub(crate) fn decode(attr: &EventAttr, bytes: &mut Bytes<'_>) -> Result<SampleId, DecodeError> {
        let asked = attr.sample_type;
        let mut out = SampleId::default();
        if asked & sample::TID != 0 {
            out.pid_tid = Some(task(bytes)?);
        }
        let mut word = |bit: u64, what| if asked & bit != 0 { bytes.u64(what).map(Some) } else { Ok(None) };
        out.time = word(sample::TIME, "the time")?;
        out.id = word(sample::ID, "the id")?;
        out.stream_id = word(sample::STREAM_ID, "the stream id")?;
        if asked & sample::CPU != 0 {
            out.cpu = Some(CpuId(bytes.u32("the CPU")?));
            bytes.u32("the CPU")?;
        }
        if asked & sample::IDENTIFIER != 0 {
            out.identifier = Some(bytes.u64("the identifier")?);
        }
        Ok(out)
    }
}

/// Identity of a mapped file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileIdentity<'a> {
    /// The record does not say (MMAP).
    #[default]
    Unknown,
    /// Where the file system has it.
    Inode {
        /// Device number, major and minor.
        device: (u32, u32),
        /// Inode number.
        inode: u64,
        /// Generation of the inode.
        generation: u64,
    },
    /// The file's GNU build id.
    BuildId(&'a [u8]),
}

/// A mapping (MMAP and MMAP2 records).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Process; `u32::MAX` for the kernel itself.
    pub pid: Pid,
    /// Thread that mapped.
    pub tid: Tid,
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Identity of the mapped file.
    pub identity: FileIdentity<'a>,
    /// `PROT_*`; `None` where the record does not say.
    pub protection: Option<u32>,
    /// `MAP_*`; `None` where the record does not say.
    pub flags: Option<u32>,
    /// Whether the mapping is executable.
    pub is_executable: bool,
    /// Path, or `//anon`, `[heap]`, `[stack]`, `[vdso]`, ...
    pub path: &'a [u8],
}

/// A task's start or end (FORK and EXIT records).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskChange {
    /// Process id.
    pub pid: Pid,
    /// Process id of the parent.
    pub parent_pid: Pid,
    /// Thread id.
    pub tid: Tid,
    /// Thread id of the creating thread.
    pub parent_tid: Tid,
    /// Nanoseconds on the recording's clock.
    pub time: u64,
}

/// A record that is no sample.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum SideBand<'a> {
    Mmap(Mapping<'a>),
    Comm {
        pid: Pid,
        tid: Tid,
        name: &'a [u8],
        /// The name comes of an exec: a new image began.
        by_exec: bool,
    },
    Fork(TaskChange),
    Exit(TaskChange),
    /// Records lost because the buffer was full.
    Lost {
        id: u64,
        count: u64,
    },
    /// Samples that the hardware lost; or, with time 0, what perf found in an event's count of lost records at its end.
    LostSamples {
        count: u64,
    },
    /// Samples of an event that the user's own filter dropped (`perf record --filter`): no losses.
    Filtered {
        count: u64,
    },
    /// Sampling was slowed down (`begins`) or let go on.
    Throttle {
        begins: bool,
        time: u64,
        id: u64,
        stream_id: u64,
    },
    Read {
        pid: Pid,
        tid: Tid,
        values: ReadValues<'a>,
    },
    /// More of the AUX buffer is there. `flags` as [`crate::abi::aux_flag`].
    Aux {
        offset: u64,
        size: u64,
        flags: u64,
    },
    ItraceStart {
        pid: Pid,
        tid: Tid,
    },
    /// A context switch; the record's trailer says of whom. `other`: the task before or after, where the event is CPU-wide.
    Switch {
        out: bool,
        preempted: bool,
        other: Option<(Pid, Tid)>,
    },
    /// Device and inode of each namespace, in turn.
    Namespaces {
        pid: Pid,
        tid: Tid,
        links: Words<'a>,
    },
    Cgroup {
        id: u64,
        path: &'a [u8],
    },
    FinishedRound,
    FinishedInit,
    IdIndex {
        /// Four words for each event: id, index, CPU, thread.
        entries: Words<'a>,
    },
    ThreadMap,
    /// The trace data follow the record.
    Auxtrace {
        size: u64,
        offset: u64,
        reference: u64,
        index: u32,
        tid: Tid,
        cpu: CpuId,
    },
    AuxtraceInfo {
        kind: u32,
        words: Words<'a>,
    },
    /// How the recording's clock follows from the time-stamp counter.
    TimeConv {
        shift: u64,
        multiplier: u64,
        zero: u64,
    },
    /// A type that is known and not looked into here, or one that is not known.
    Other {
        kind: u32,
    },
}

impl<'a> SideBand<'a> {
    /// Reads the body of a record (without header and trailer).
    pub(crate) fn decode(
        kind_and_misc: (u32, u16),
        attr: Option<&EventAttr>,
        bytes: &mut Bytes<'a>,
    ) -> Result<SideBand<'a>, DecodeError> {
        let (kind, misc) = kind_and_misc;
        Ok(match kind {
            kind::MMAP | kind::MMAP2 => SideBand::Mmap(mapping(kind, misc, bytes)?),
            kind::COMM => {
                let (pid, tid) = task(bytes)?;
                SideBand::Comm { pid, tid, name: bytes.text(), by_exec: misc & misc::COMM_EXEC != 0 }
            }
            kind::FORK => SideBand::Fork(task_change(bytes)?),
            kind::EXIT => SideBand::Exit(task_change(bytes)?),
            kind::LOST => SideBand::Lost { id: bytes.u64("the id")?, count: bytes.u64("the number lost")? },
            kind::LOST_SAMPLES if misc & misc::LOST_SAMPLES_BPF != 0 => {
                SideBand::Filtered { count: bytes.u64("the number dropped")? }
            }
            kind::LOST_SAMPLES => SideBand::LostSamples { count: bytes.u64("the number lost")? },
            kind::THROTTLE | kind::UNTHROTTLE => SideBand::Throttle {
                begins: kind == kind::THROTTLE,
                time: bytes.u64("the time")?,
                id: bytes.u64("the id")?,
                stream_id: bytes.u64("the stream id")?,
            },
            kind::READ => {
                let (pid, tid) = task(bytes)?;
                match attr {
                    Some(attr) => SideBand::Read { pid, tid, values: ReadValues::decode(attr, bytes)? },
                    None => SideBand::Other { kind },
                }
            }
            kind::AUX => SideBand::Aux {
                offset: bytes.u64("the offset")?,
                size: bytes.u64("the size")?,
                flags: bytes.u64("the flags")?,
            },
            kind::ITRACE_START => {
                let (pid, tid) = task(bytes)?;
                SideBand::ItraceStart { pid, tid }
            }
            kind::SWITCH | kind::SWITCH_CPU_WIDE => SideBand::Switch {
                out: misc & misc::SWITCH_OUT != 0,
                preempted: misc & misc::SWITCH_OUT_PREEMPT != 0,
                other: if kind == kind::SWITCH { None } else { Some(task(bytes)?) },
            },
            kind::NAMESPACES => {
                let (pid, tid) = task(bytes)?;
                let count = bytes.u64("the number of namespaces")?;
                SideBand::Namespaces { pid, tid, links: bytes.words(count.saturating_mul(2), "namespaces")? }
            }
            kind::CGROUP => SideBand::Cgroup { id: bytes.u64("the id")?, path: bytes.text() },
            _ => tool_record(kind, bytes)?,
        })
    }
}

/// Decodes the records that the perf tool adds to those of the kernel.
fn tool_record<'a>(kind: u32, bytes: &mut Bytes<'a>) -> Result<SideBand<'a>, DecodeError> {
    Ok(match kind {
        kind::FINISHED_ROUND => SideBand::FinishedRound,
        kind::FINISHED_INIT => SideBand::FinishedInit,
        kind::THREAD_MAP => SideBand::ThreadMap,
        kind::ID_INDEX => {
            let count = bytes.u64("the number of ids")?;
            SideBand::IdIndex { entries: bytes.words(count.saturating_mul(4), "ids")? }
        }
        kind::AUXTRACE => SideBand::Auxtrace {
            size: bytes.u64("the size")?,
            offset: bytes.u64("the offset")?,
            reference: bytes.u64("the reference")?,
            index: bytes.u32("the index")?,
            tid: Tid(bytes.u32("the thread id")?),
            cpu: CpuId(bytes.u32("the CPU")?),
        },
        kind::AUXTRACE_INFO => {
            let auxtrace = bytes.u32("the kind of trace")?;
            bytes.u32("the kind of trace")?;
            let count = bytes.left() as u64 / 8;
            SideBand::AuxtraceInfo { kind: auxtrace, words: bytes.words(count, "what is known of the trace")? }
        }
        kind::TIME_CONV => SideBand::TimeConv {
            shift: bytes.u64("the shift")?,
            multiplier: bytes.u64("the multiplier")?,
            zero: bytes.u64("the zero")?,
        },
        kind => SideBand::Other { kind },
    })
}

/// A process id and a thread id, as most records have them.
#[inline]
pub(crate) fn task(bytes: &mut Bytes<'_>) -> Result<(Pid, Tid), DecodeError> {
    Ok((Pid(bytes.u32("the process id")?), Tid(bytes.u32("the thread id")?)))
}

fn task_change(bytes: &mut Bytes<'_>) -> Result<TaskChange, DecodeError> {
    Ok(TaskChange {
        pid: Pid(bytes.u32("the process id")?),
        parent_pid: Pid(bytes.u32("the parent's process id")?),
        tid: Tid(bytes.u32("the thread id")?),
        parent_tid: Tid(bytes.u32("the parent's thread id")?),
        time: bytes.u64("the time")?,
    })
}

fn mapping<'a>(kind: u32, misc: u16, bytes: &mut Bytes<'a>) -> Result<Mapping<'a>, DecodeError> {
    const PROT_EXEC: u32 = 4;
    /// Room for the longest build id.
    const BUILD_ID_BYTES: u64 = 20;
    let (pid, tid) = task(bytes)?;
    let addr = bytes.u64("the address")?;
    let len = bytes.u64("the length")?;
    let file_offset = bytes.u64("the file offset")?;
    let mut out = Mapping { pid, tid, addr, len, file_offset, ..Mapping::default() };
    if kind == kind::MMAP2 {
        out.identity = if misc & misc::MMAP_BUILD_ID != 0 {
            let size = bytes.u8("the build id's size")?;
            bytes.take(3, "the build id's size")?;
            let id = bytes.take(BUILD_ID_BYTES, "the build id")?;
            FileIdentity::BuildId(&id[..usize::from(size).min(id.len())])
        } else {
            FileIdentity::Inode {
                device: (bytes.u32("the device")?, bytes.u32("the device")?),
                inode: bytes.u64("the inode")?,
                generation: bytes.u64("the inode's generation")?,
            }
        };
        out.protection = Some(bytes.u32("the protection")?);
        out.flags = Some(bytes.u32("the flags")?);
    }
    out.is_executable = out.protection.map_or(misc & misc::MMAP_DATA == 0, |bits| bits & PROT_EXEC != 0);
    out.path = bytes.text();
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Endian;

    /// `__record__save_lost_samples` in `tools/perf/builtin-record.c` (PERF_RECORD_MISC_LOST_SAMPLES_BPF).
    #[test]
    fn samples_that_a_filter_dropped_are_not_lost() {
        let lost = |misc: u16| {
            let mut bytes = Bytes::new(&[5, 0, 0, 0, 0, 0, 0, 0], 0, Endian::Little);
            SideBand::decode((kind::LOST_SAMPLES, misc), None, &mut bytes).unwrap()
        };
        assert_eq!(lost(0), SideBand::LostSamples { count: 5 });
        assert_eq!(lost(misc::LOST_SAMPLES_BPF), SideBand::Filtered { count: 5 });
    }
}
