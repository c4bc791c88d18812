//! Samples as bytes.

use super::{Out, record};
use crate::abi::{branch_sample, kind, read_format, sample};
use crate::attr::EventAttr;
use crate::bytes::Endian;

/// A branch: source, target, and its flags as (offset, width, value) bit fields in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchSpec {
    /// Address of the branch.
    pub from: u64,
    /// Address of its target.
    pub to: u64,
    /// mispred, predicted, in_tx, abort (1 bit each), cycles (16), type (4), spec (2), new_type (4), priv (3).
    pub fields: [u64; 9],
}

/// Everything that a sample can hold; what the event did not ask for is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As in `Sample`.
pub struct SampleSpec {
    pub misc: u16,
    pub id: u64,
    pub ip: u64,
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub addr: u64,
    pub stream_id: u64,
    pub cpu: u32,
    pub period: u64,
    pub time_enabled: u64,
    pub time_running: u64,
    /// Counter values: count, id and number of lost samples.
    pub counts: Vec<(u64, u64, u64)>,
    pub callchain: Vec<u64>,
    pub raw: Vec<u8>,
    pub branch_index: u64,
    pub branches: Vec<BranchSpec>,
    pub branch_counters: Vec<u64>,
    pub user_abi: u64,
    pub user_regs: Vec<u64>,
    pub user_stack: Vec<u8>,
    pub user_stack_valid: u64,
    pub weight: u64,
    pub data_src: u64,
    pub transaction: u64,
    pub intr_abi: u64,
    pub intr_regs: Vec<u64>,
    pub phys_addr: u64,
    pub cgroup: u64,
    pub data_page_size: u64,
    pub code_page_size: u64,
    pub aux: Vec<u8>,
}

const BRANCH_WIDTHS: [u32; 9] = [1, 1, 1, 1, 16, 4, 2, 4, 3];

/// A branch's flags in the storage order of the machine.
fn branch_flags(fields: &[u64; 9], endian: Endian) -> u64 {
    let (mut word, mut offset) = (0, 0);
    for (value, width) in fields.iter().zip(BRANCH_WIDTHS) {
        let shift = if endian == Endian::Little { offset } else { 64 - offset - width };
        word |= (value & ((1 << width) - 1)) << shift;
        offset += width;
    }
    word
}

impl SampleSpec {
    /// Encodes the whole record.
    #[must_use]
    pub fn encode(&self, attr: &EventAttr, endian: Endian) -> Vec<u8> {
        let mut out = Out::new(endian);
        self.fixed(attr, &mut out);
        if attr.samples(sample::READ) {
            self.read(attr, &mut out);
        }
        if attr.samples(sample::CALLCHAIN) {
            out.u64(self.callchain.len() as u64).words(&self.callchain);
        }
        if attr.samples(sample::RAW) {
            // The kernel pads so that size and data end on a multiple of eight.
            let padding = (8 - (self.raw.len() + 4) % 8) % 8;
            out.u32((self.raw.len() + padding) as u32).raw(&self.raw).raw(&[0; 8][..padding]);
        }
        if attr.samples(sample::BRANCH_STACK) {
            self.branch_stack(attr, endian, &mut out);
        }
        if attr.samples(sample::REGS_USER) {
            regs(self.user_abi, attr.sample_regs_user, &self.user_regs, &mut out);
        }
        if attr.samples(sample::STACK_USER) {
            out.u64(self.user_stack.len() as u64).raw(&self.user_stack);
            if !self.user_stack.is_empty() {
                out.u64(self.user_stack_valid);
            }
        }
        self.last(attr, &mut out);
        record(kind::SAMPLE, self.misc, &out.bytes, endian)
    }

    fn fixed(&self, attr: &EventAttr, out: &mut Out) {
        for (bit, value) in [(sample::IDENTIFIER, self.id), (sample::IP, self.ip)] {
            word(attr, bit, value, out);
        }
        if attr.samples(sample::TID) {
            out.u32(self.pid).u32(self.tid);
        }
        for (bit, value) in [
            (sample::TIME, self.time),
            (sample::ADDR, self.addr),
            (sample::ID, self.id),
            (sample::STREAM_ID, self.stream_id),
        ] {
            word(attr, bit, value, out);
        }
        if attr.samples(sample::CPU) {
            out.u32(self.cpu).u32(0);
        }
        word(attr, sample::PERIOD, self.period, out);
    }

    fn read(&self, attr: &EventAttr, out: &mut Out) {
        let has = |bit| attr.read_format & bit != 0;
        let is_group = has(read_format::GROUP);
        let counts = if is_group { &self.counts[..] } else { &self.counts[..1] };
        let ids = |&(_, id, lost): &(u64, u64, u64), out: &mut Out| {
            for (bit, value) in [(read_format::ID, id), (read_format::LOST, lost)] {
                if has(bit) {
                    out.u64(value);
                }
            }
        };
        out.u64(if is_group { counts.len() as u64 } else { counts[0].0 });
        let times = [
            (read_format::TOTAL_TIME_ENABLED, self.time_enabled),
            (read_format::TOTAL_TIME_RUNNING, self.time_running),
        ];
        for (bit, value) in times {
            if has(bit) {
                out.u64(value);
            }
        }
        for count in counts {
            if is_group {
                out.u64(count.0);
            }
            ids(count, out);
        }
    }

    fn branch_stack(&self, attr: &EventAttr, endian: Endian, out: &mut Out) {
        out.u64(self.branches.len() as u64);
        if attr.branch_sample_type & branch_sample::HW_INDEX != 0 {
            out.u64(self.branch_index);
        }
        for branch in &self.branches {
            out.u64(branch.from).u64(branch.to).u64(branch_flags(&branch.fields, endian));
        }
        if attr.branch_sample_type & branch_sample::COUNTERS != 0 {
            out.words(&self.branch_counters);
        }
    }

    fn last(&self, attr: &EventAttr, out: &mut Out) {
        if attr.samples(sample::WEIGHT) || attr.samples(sample::WEIGHT_STRUCT) {
            out.u64(self.weight);
        }
        word(attr, sample::DATA_SRC, self.data_src, out);
        word(attr, sample::TRANSACTION, self.transaction, out);
        if attr.samples(sample::REGS_INTR) {
            regs(self.intr_abi, attr.sample_regs_intr, &self.intr_regs, out);
        }
        for (bit, value) in [
            (sample::PHYS_ADDR, self.phys_addr),
            (sample::CGROUP, self.cgroup),
            (sample::DATA_PAGE_SIZE, self.data_page_size),
            (sample::CODE_PAGE_SIZE, self.code_page_size),
        ] {
            word(attr, bit, value, out);
        }
        if attr.samples(sample::AUX) {
            out.u64(self.aux.len() as u64).raw(&self.aux);
        }
    }
}

fn word(attr: &EventAttr, bit: u64, value: u64, out: &mut Out) {
    if attr.samples(bit) {
        out.u64(value);
    }
}

fn regs(abi: u64, mask: u64, values: &[u64], out: &mut Out) {
    out.u64(abi);
    if abi != 0 {
        out.words(&values[..mask.count_ones() as usize]);
    }
}
