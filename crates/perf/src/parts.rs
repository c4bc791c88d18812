//! The parts of a sample that are more than a number: counts read with it, branches, registers, stack, weight.

use crate::abi::{branch_sample, read_format};
use crate::attr::EventAttr;
use crate::bytes::{Bytes, Endian, Words};
use crate::error::DecodeError;

/// Counts of an event or of its whole group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadValues<'a> {
    /// Nanoseconds that the event was enabled, if asked for.
    pub time_enabled: Option<u64>,
    /// Nanoseconds that it was counting, if asked for.
    pub time_running: Option<u64>,
    format: u64,
    /// The count, where there is one and not a group's; its id and losses are in `words`.
    single: Option<u64>,
    words: Words<'a>,
}

/// One counter's value in a sample or READ record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadValue {
    /// The counter's value.
    pub value: u64,
    /// Id of the event, if asked for.
    pub id: Option<u64>,
    /// Samples lost, if asked for.
    pub lost: Option<u64>,
}

impl<'a> ReadValues<'a> {
    pub(crate) fn decode(attr: &EventAttr, bytes: &mut Bytes<'a>) -> Result<ReadValues<'a>, DecodeError> {
        let format = attr.read_format;
        let is_group = format & read_format::GROUP != 0;
        // A single count comes before the times, a group's come after them.
        let first = bytes.u64(if is_group { "the number of counts" } else { "a count" })?;
        let mut time = |bit| {
            let is_there = format & bit != 0;
            if is_there { bytes.u64("the time of a count").map(Some) } else { Ok(None) }
        };
        let time_enabled = time(read_format::TOTAL_TIME_ENABLED)?;
        let time_running = time(read_format::TOTAL_TIME_RUNNING)?;
        let extras = attr.read_value_words() - 1;
        let words = if is_group { first.saturating_mul(1 + extras) } else { extras };
        let words = bytes.words(words, "counts")?;
        Ok(ReadValues { time_enabled, time_running, format, single: (!is_group).then_some(first), words })
    }

    /// The counters' values, the group leader's first.
    pub fn values(&self) -> impl Iterator<Item = ReadValue> + use<'a> {
        let (has_id, has_lost) = (self.format & read_format::ID != 0, self.format & read_format::LOST != 0);
        let extras = usize::from(has_id) + usize::from(has_lost);
        let (words, single) = (self.words, self.single);
        let count = if single.is_some() { 1 } else { words.len() / (1 + extras) };
        (0..count).filter_map(move |index| {
            let (value, at) = match single {
                Some(value) => (value, 0),
                None => (words.get(index * (1 + extras))?, index * (1 + extras) + 1),
            };
            Some(ReadValue {
                value,
                id: if has_id { words.get(at) } else { None },
                lost: if has_lost { words.get(at + usize::from(has_id)) } else { None },
            })
        })
    }
}

/// Taken branches, newest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BranchStack<'a> {
    /// Where the newest is in the hardware's ring, if asked for (-1: unknown).
    pub hardware_index: Option<u64>,
    /// Event counts of each branch, if asked for.
    pub counters: Words<'a>,
    words: Words<'a>,
    endian: Endian,
}

/// A taken branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BranchEntry {
    /// Address of the branch.
    pub from: u64,
    /// Address of the branch's target.
    pub to: u64,
    /// The target was mispredicted.
    pub mispredicted: bool,
    /// The target was predicted. If neither flag is set, it is unknown.
    pub predicted: bool,
    /// The branch was in a transaction.
    pub in_transaction: bool,
    /// The branch is the abort of a transaction.
    pub abort: bool,
    /// Cycles since the branch before; 0 unknown.
    pub cycles: u16,
    /// Type of the branch (`PERF_BR_*`).
    pub kind: u8,
    /// Outcome of speculation (`PERF_BR_SPEC_*`).
    pub speculation: u8,
    /// `PERF_BR_NEW_*`, if `kind` says that it counts.
    pub new_kind: u8,
    /// Privilege level (`PERF_BR_PRIV_*`).
    pub privilege: u8,
}

impl<'a> BranchStack<'a> {
    pub(crate) fn decode(attr: &EventAttr, bytes: &mut Bytes<'a>) -> Result<BranchStack<'a>, DecodeError> {
        let count = bytes.u64("the number of branches")?;
        let has_index = attr.branch_sample_type & branch_sample::HW_INDEX != 0;
        let hardware_index = if has_index { Some(bytes.u64("the index of the newest branch")?) } else { None };
        let words = bytes.words(count.saturating_mul(3), "branches")?;
        let has_counters = attr.branch_sample_type & branch_sample::COUNTERS != 0;
        let counters = if has_counters { bytes.words(count, "counts of branches")? } else { Words::default() };
        Ok(BranchStack { hardware_index, counters, words, endian: bytes.endian() })
    }

    /// Number of branches.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() / 3
    }

    /// Whether there are no branches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The branches, newest first.
    pub fn entries(&self) -> impl Iterator<Item = BranchEntry> + use<'a> {
        let (words, endian) = (self.words, self.endian);
        (0..words.len() / 3).filter_map(move |index| {
            let flags = words.get(3 * index + 2)?;
            let field = |offset, width| endian.bit_field(flags, offset, width);
            Some(BranchEntry {
                from: words.get(3 * index)?,
                to: words.get(3 * index + 1)?,
                mispredicted: field(0, 1) != 0,
                predicted: field(1, 1) != 0,
                in_transaction: field(2, 1) != 0,
                abort: field(3, 1) != 0,
                cycles: field(4, 16) as u16,
                kind: field(20, 4) as u8,
                speculation: field(24, 2) as u8,
                new_kind: field(26, 4) as u8,
                privilege: field(30, 3) as u8,
            })
        })
    }
}

/// Registers at the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registers<'a> {
    /// 0 none, 1 of a 32-bit program, 2 of a 64-bit one.
    pub abi: u64,
    /// Which: bit n is the architecture's register n.
    pub mask: u64,
    /// Their values, by ascending number.
    pub values: Words<'a>,
}

impl<'a> Registers<'a> {
    pub(crate) fn decode(mask: u64, bytes: &mut Bytes<'a>) -> Result<Registers<'a>, DecodeError> {
        let abi = bytes.u64("the kind of registers")?;
        let count = if abi == 0 { 0 } else { u64::from(mask.count_ones()) };
        Ok(Registers { abi, mask, values: bytes.words(count, "registers")? })
    }

    /// The value of a register by its `PERF_REG_*` number; `None` if it was not sampled.
    #[must_use]
    pub fn get(&self, register: u32) -> Option<u64> {
        let bit = 1u64.checked_shl(register)?;
        if self.mask & bit == 0 {
            return None;
        }
        self.values.get((self.mask & (bit - 1)).count_ones() as usize)
    }
}

/// A copy of the top of the user stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserStack<'a> {
    /// The copy, as large as was asked for.
    pub bytes: &'a [u8],
    /// How many of them are real.
    pub valid_bytes: u64,
}

impl<'a> UserStack<'a> {
    pub(crate) fn decode(bytes: &mut Bytes<'a>) -> Result<UserStack<'a>, DecodeError> {
        let size = bytes.u64("the size of the user stack")?;
        let copy = bytes.take(size, "the user stack")?;
        let valid_bytes = if size == 0 { 0 } else { bytes.u64("the valid size of the user stack")? };
        Ok(UserStack { bytes: copy, valid_bytes })
    }
}

/// `PERF_SAMPLE_WEIGHT` or `PERF_SAMPLE_WEIGHT_STRUCT`: the hardware's measure of a sample's cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// One number; the access latency for memory events.
    Full(u64),
    /// Three numbers, of which the first is the access latency for memory events.
    Parts {
        /// Latency in cycles.
        var1: u32,
        /// On Intel the instruction's latency, on AMD the time from tagging to retirement, in cycles.
        var2: u16,
        /// Its meaning depends on the PMU.
        var3: u16,
    },
}

impl Weight {
    pub(crate) fn parts(word: u64) -> Weight {
        Weight::Parts { var1: word as u32, var2: (word >> 32) as u16, var3: (word >> 48) as u16 }
    }

    /// The number that is the access latency for memory events.
    #[must_use]
    pub fn latency(self) -> u64 {
        match self {
            Weight::Full(word) => word,
            Weight::Parts { var1, .. } => u64::from(var1),
        }
    }
}
