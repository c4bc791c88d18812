//! Finds the bounds of records, and updates the bases of the stamps: what decoding and scanning share.

use super::layout::*;
use super::{RingState, WireError, WireFault};
use crate::ids::{Order, Pid, ThreadIndex};

/// Type, value and length of one record, from its first word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub kind: u8,
    pub value: u64,
    /// Length of the whole record, bytes; at most the bytes given.
    pub bytes: usize,
}

/// The 8-byte word at byte `at`; 0 past the end (callers have checked the length).
#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    match bytes.get(at..at + 8) {
        Some(slice) => u64::from_le_bytes(slice.try_into().unwrap_or([0; 8])),
        None => 0,
    }
}

#[inline]
pub(super) fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
pub(super) fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

fn padded_words(bytes: u64) -> u64 {
    bytes.div_ceil(8)
}

/// Fixed words of a record type, before its part of variable length; 0 for an unknown type.
#[inline]
pub(super) fn fixed_words(kind: u8) -> u64 {
    const WORDS: [u8; 29] = [0, 1, 4, 3, 4, 2, 6, 3, 3, 9, 2, 2, 5, 3, 6, 2, 5, 3, 3, 4, 10, 3, 4, 2, 5, 3, 4, 3, 8];
    WORDS.get(kind as usize).copied().map_or(0, u64::from)
}

/// Words beyond the fixed ones, from the record's own counts. The fixed words must be present.
fn variable_words(kind: u8, value: u64, record: &[u8]) -> u64 {
    match u32::from(kind) {
        REC_STACK => u64::from(low(word(record, 16))),
        REC_POOL => padded_words(u64::from(low(word(record, 16)))),
        REC_THREAD_NAME | REC_MARK => padded_words(value),
        REC_MAP => padded_words(u64::from(low(word(record, 40)))),
        REC_PROCESS_START => {
            let counts = word(record, 24);
            padded_words(u64::from(low(counts))) + padded_words(u64::from(high(counts)))
        }
        REC_MODULE => {
            let counts = word(record, 40);
            padded_words(u64::from(low(counts))) + padded_words(u64::from(high(counts)))
        }
        REC_COUNTERS => word(record, 72),
        REC_CODE => {
            let counts = word(record, 16);
            let texts = padded_words(u64::from(low(counts))) + padded_words(u64::from(high(counts)));
            texts + padded_words(u64::from(low(word(record, 24))))
        }
        _ => 0,
    }
}

/// Type, value and length of a record, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Type: a `REC_` constant of [`super::layout`].
    pub kind: u32,
    /// What the first word holds beside type and length.
    pub value: u64,
    /// Length of the whole record in bytes; at most the bytes given.
    pub bytes: usize,
}

/// The head of the record at the start of `bytes`; `None`: no whole record of a known type begins there. The length is the record's own: whether it holds what
/// its counts say, decoding finds out. For those who only count or pass records on; a few nanoseconds each.
#[inline]
#[must_use]
pub fn record_head(bytes: &[u8]) -> Option<RecordHead> {
    let first = u64::from_le_bytes(*bytes.first_chunk()?);
    let (kind, value) = (first as u8, first >> 16);
    let length = match (u32::from(kind), (first >> 8) & 0xff) {
        (REC_PAD, _) => value,
        (REC_TIME..=REC_LAST, 0) => long_record_bytes(kind, value, bytes)?,
        (REC_TIME..=REC_LAST, words) => words * 8,
        _ => return None,
    };
    let is_whole = length >= 8 && length.is_multiple_of(8) && length <= bytes.len() as u64;
    is_whole.then_some(RecordHead { kind: u32::from(kind), value, bytes: length as usize })
}

/// Records longer than 255 words say so by a length of 0: their own counts tell.
#[cold]
fn long_record_bytes(kind: u8, value: u64, bytes: &[u8]) -> Option<u64> {
    let fixed = fixed_words(kind);
    let has_counts = has_variable_part(kind) && fixed * 8 <= bytes.len() as u64;
    has_counts.then(|| fixed.saturating_add(variable_words(kind, value, bytes)).saturating_mul(8))
}

/// Finds the bounds of the record at the start of `bytes`, which must not be empty.
#[inline]
pub(super) fn frame(bytes: &[u8]) -> Result<Frame, WireFault> {
    if bytes.len() < 8 {
        return Err(WireFault::Cut { needed: 8, left: bytes.len() as u64 });
    }
    let first = word(bytes, 0);
    let kind = first as u8;
    let claimed = (first >> 8) & 0xff;
    let value = first >> 16;
    let fixed = fixed_words(kind);
    let left = bytes.len() as u64;
    if fixed == 0 {
        return Err(WireFault::UnknownType(kind));
    }
    if u32::from(kind) == REC_PAD {
        return pad(kind, value, left);
    }
    if fixed * 8 > left {
        return Err(WireFault::Cut { needed: fixed * 8, left });
    }
    let needed = if has_variable_part(kind) {
        let counted = variable_words(kind, value, bytes);
        fixed.saturating_add(counted)
    } else {
        fixed
    };
    let words = if claimed == 0 { needed } else { claimed };
    if words < needed {
        return Err(WireFault::Length { kind, words });
    }
    if words.saturating_mul(8) > left {
        return Err(WireFault::Cut { needed: words.saturating_mul(8), left });
    }
    Ok(Frame { kind, value, bytes: (words * 8) as usize })
}

#[inline]
fn has_variable_part(kind: u8) -> bool {
    const MASK: u32 = 1 << REC_STACK
        | 1 << REC_THREAD_NAME
        | 1 << REC_MARK
        | 1 << REC_MAP
        | 1 << REC_PROCESS_START
        | 1 << REC_MODULE
        | 1 << REC_COUNTERS
        | 1 << REC_CODE
        | 1 << REC_POOL;
    MASK >> kind & 1 != 0
}

#[cold]
fn pad(kind: u8, bytes: u64, left: u64) -> Result<Frame, WireFault> {
    if bytes < 8 || !bytes.is_multiple_of(8) {
        return Err(WireFault::Field { kind, field: "bytes to skip", value: bytes });
    }
    if bytes > left {
        return Err(WireFault::Cut { needed: bytes, left });
    }
    Ok(Frame { kind, value: bytes, bytes: bytes as usize })
}

/// Updates the bases by the record at the start of `record`.
#[inline]
pub(super) fn step(state: &mut RingState, frame: Frame, record: &[u8]) {
    match u32::from(frame.kind) {
        REC_PAD => {}
        REC_TIME => {
            state.order = Order(word(record, 16));
            state.clock_cycles = word(record, 24);
            state.bases_known = true;
        }
        kind => {
            let deltas = word(record, 8);
            state.order.0 = state.order.0.wrapping_add(u64::from(low(deltas)));
            state.clock_cycles = state.clock_cycles.wrapping_add(u64::from(high(deltas)));
            if kind == REC_THREAD_START {
                state.thread = u32::try_from(frame.value).ok().map(ThreadIndex);
                state.pid = Some(Pid(low(word(record, 16))));
            }
        }
    }
    state.offset += frame.bytes as u64;
}

/// Updates `state` as decoding the piece would, without decoding it. This takes a few nanoseconds per record; the chunk
/// writer uses it so that each chunk can be decoded by itself.
///
/// # Errors
/// The first bad record. `state.offset` is then at that record, and the bases do not hold for what follows.
pub fn scan(bytes: &[u8], state: &mut RingState) -> Result<(), WireError> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let found = frame(rest).map_err(|fault| WireError { offset: state.offset, fault })?;
        step(state, found, rest);
        at += found.bytes;
    }
    Ok(())
}

/// Bytes of the leading records that fit into `limit`, and at least one record; 0 if the first one is bad.
pub(crate) fn whole_records(bytes: &[u8], limit: usize) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        match frame(&bytes[at..]) {
            Ok(found) if at == 0 || at + found.bytes <= limit => at += found.bytes,
            _ => break,
        }
    }
    at
}

/// Takes the bases from the time record at the start of `bytes`, if there is one.
pub(crate) fn peek_time(bytes: &[u8], state: &mut RingState) {
    if bytes.len() >= 32 && u32::from(bytes[0]) == REC_TIME {
        state.order = Order(word(bytes, 16));
        state.clock_cycles = word(bytes, 24);
        state.bases_known = true;
    }
}
