//! Records that are no samples, and descriptions of events, as bytes.

use super::Out;
use crate::abi::{kind, misc, sample};
use crate::attr::EventAttr;
use crate::bytes::Endian;
use crate::side_band::SampleId;

/// A record: its header and its body.
#[must_use]
pub fn record(kind: u32, misc: u16, body: &[u8], endian: Endian) -> Vec<u8> {
    let mut out = Out::new(endian);
    out.u32(kind).u16(misc).u16((body.len() + 8) as u16).raw(body);
    out.bytes
}

/// A `perf_event_attr` of the size in `attr.size` (136 where that is 0).
#[must_use]
pub fn attr_bytes(attr: &EventAttr, endian: Endian) -> Vec<u8> {
    let mut out = Out::new(endian);
    let size = if attr.size == 0 { 136 } else { attr.size };
    let flags = if endian == Endian::Little { attr.flags } else { attr.flags.reverse_bits() };
    out.u32(attr.kind).u32(size).words(&[
        attr.config,
        attr.period_or_freq,
        attr.sample_type,
        attr.read_format,
        flags,
        0,
        attr.config1,
        attr.config2,
        attr.branch_sample_type,
        attr.sample_regs_user,
    ]);
    out.u32(attr.sample_stack_user).u32(attr.clock_id.cast_unsigned()).u64(attr.sample_regs_intr);
    out.words(&[0, 0, 0, attr.config3, attr.config4]);
    out.bytes.resize(size as usize, 0);
    out.bytes
}

/// A record that is no sample, with everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // As in `SideBand`.
pub enum SideBandSpec {
    Mmap {
        pid: u32,
        tid: u32,
        addr: u64,
        len: u64,
        file_offset: u64,
        is_data: bool,
        path: String,
    },
    Mmap2 {
        pid: u32,
        tid: u32,
        addr: u64,
        len: u64,
        file_offset: u64,
        build_id: Option<Vec<u8>>,
        protection: u32,
        path: String,
    },
    Comm {
        pid: u32,
        tid: u32,
        name: String,
        by_exec: bool,
    },
    Task {
        is_fork: bool,
        pid: u32,
        parent_pid: u32,
        tid: u32,
        parent_tid: u32,
        time: u64,
    },
    Lost {
        id: u64,
        count: u64,
    },
    LostSamples {
        count: u64,
    },
    Throttle {
        begins: bool,
        time: u64,
        id: u64,
        stream_id: u64,
    },
    Aux {
        offset: u64,
        size: u64,
        flags: u64,
    },
    ItraceStart {
        pid: u32,
        tid: u32,
    },
    Switch {
        out: bool,
        preempted: bool,
        other: Option<(u32, u32)>,
    },
    Namespaces {
        pid: u32,
        tid: u32,
        links: Vec<u64>,
    },
    Cgroup {
        id: u64,
        path: String,
    },
    Unknown {
        kind: u32,
        body: Vec<u8>,
    },
}

impl SideBandSpec {
    /// The whole record, with the trailer that the event asks for.
    #[must_use]
    pub fn encode(&self, attr: &EventAttr, id: &SampleId, endian: Endian) -> Vec<u8> {
        let mut out = Out::new(endian);
        let (kind, misc) = self.body(&mut out);
        if attr.sample_id_all() && kind < kind::HEADER_ATTR {
            trailer(attr, id, &mut out);
        }
        record(kind, misc, &out.bytes, endian)
    }

    fn body(&self, out: &mut Out) -> (u32, u16) {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        match self {
            SideBandSpec::Mmap { pid, tid, addr, len, file_offset, is_data, path } => {
                out.u32(*pid).u32(*tid).words(&[*addr, *len, *file_offset]).text(path);
                (kind::MMAP, misc::USER | flag(*is_data, misc::MMAP_DATA))
            }
            SideBandSpec::Mmap2 { pid, tid, addr, len, file_offset, build_id, protection, path } => {
                out.u32(*pid).u32(*tid).words(&[*addr, *len, *file_offset]);
                match build_id {
                    Some(id) => {
                        let mut bytes = [0; 24];
                        bytes[0] = id.len() as u8;
                        bytes[4..4 + id.len()].copy_from_slice(id);
                        out.raw(&bytes);
                    }
                    None => {
                        out.u32(8).u32(1).words(&[4711, 1]);
                    }
                }
                out.u32(*protection).u32(2).text(path);
                (kind::MMAP2, misc::USER | flag(build_id.is_some(), misc::MMAP_BUILD_ID))
            }
            SideBandSpec::Comm { pid, tid, name, by_exec } => {
                out.u32(*pid).u32(*tid).text(name);
                (kind::COMM, flag(*by_exec, misc::COMM_EXEC))
            }
            SideBandSpec::Task { is_fork, pid, parent_pid, tid, parent_tid, time } => {
                out.u32(*pid).u32(*parent_pid).u32(*tid).u32(*parent_tid).u64(*time);
                (if *is_fork { kind::FORK } else { kind::EXIT }, 0)
            }
            SideBandSpec::Namespaces { pid, tid, links } => {
                out.u32(*pid).u32(*tid).u64(links.len() as u64 / 2).words(links);
                (kind::NAMESPACES, 0)
            }
            SideBandSpec::Cgroup { id, path } => {
                out.u64(*id).text(path);
                (kind::CGROUP, 0)
            }
            SideBandSpec::Unknown { kind, body } => {
                out.raw(body);
                (*kind, 0)
            }
            _ => self.numbers(out),
        }
    }

    fn numbers(&self, out: &mut Out) -> (u32, u16) {
        let flag = |set: bool, bit: u16| if set { bit } else { 0 };
        match self {
            SideBandSpec::Lost { id, count } => {
                out.u64(*id).u64(*count);
                (kind::LOST, 0)
            }
            SideBandSpec::LostSamples { count } => {
                out.u64(*count);
                (kind::LOST_SAMPLES, 0)
            }
            SideBandSpec::Throttle { begins, time, id, stream_id } => {
                out.words(&[*time, *id, *stream_id]);
                (if *begins { kind::THROTTLE } else { kind::UNTHROTTLE }, 0)
            }
            SideBandSpec::Aux { offset, size, flags } => {
                out.words(&[*offset, *size, *flags]);
                (kind::AUX, 0)
            }
            SideBandSpec::ItraceStart { pid, tid } => {
                out.u32(*pid).u32(*tid);
                (kind::ITRACE_START, 0)
            }
            SideBandSpec::Switch { out: is_out, preempted, other } => {
                if let Some((pid, tid)) = other {
                    out.u32(*pid).u32(*tid);
                }
                let kind = if other.is_some() { kind::SWITCH_CPU_WIDE } else { kind::SWITCH };
                (kind, flag(*is_out, misc::SWITCH_OUT) | flag(*preempted, misc::SWITCH_OUT_PREEMPT))
            }
            _ => unreachable!("the others are written by `body`"),
        }
    }
}

fn trailer(attr: &EventAttr, id: &SampleId, out: &mut Out) {
    if attr.samples(sample::TID) {
        let (pid, tid) = id.pid_tid.unwrap_or_default();
        out.u32(pid.0).u32(tid.0);
    }
    for (bit, value) in [(sample::TIME, id.time), (sample::ID, id.id), (sample::STREAM_ID, id.stream_id)] {
        if attr.samples(bit) {
            out.u64(value.unwrap_or(0));
        }
    }
    if attr.samples(sample::CPU) {
        out.u32(id.cpu.map_or(0, |cpu| cpu.0)).u32(0);
    }
    if attr.samples(sample::IDENTIFIER) {
        out.u64(id.identifier.unwrap_or(0));
    }
}
