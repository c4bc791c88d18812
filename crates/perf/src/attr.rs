//! `perf_event_attr`: the description of an event, which determines the layout of its records.

use crate::abi::{attr_flag, read_format, sample};
use crate::bytes::{Bytes, Endian};
use crate::error::DecodeError;

/// The parts of a `perf_event_attr` that say what an event is and what its records hold. Fields that an older and shorter one lacks are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventAttr {
    /// Type: a constant, or a PMU's number in sysfs.
    pub kind: u32,
    /// Size in bytes that it was written with.
    pub size: u32,
    /// Event to count; its meaning depends on `kind`.
    pub config: u64,
    /// `sample_period`, or `sample_freq` if [`EventAttr::is_freq`].
    pub period_or_freq: u64,
    /// `PERF_SAMPLE_*` bits.
    pub sample_type: u64,
    /// `PERF_FORMAT_*` bits.
    pub read_format: u64,
    /// Single-bit flags, bit 0 first, as a little-endian machine numbers them. (The two bits of `precise_ip` are swapped in those of a
    /// big-endian one.)
    pub flags: u64,
    /// Extension of `config` (or a breakpoint's address).
    pub config1: u64,
    /// Extension of `config1` (or a breakpoint's length).
    pub config2: u64,
    /// `PERF_SAMPLE_BRANCH_*` bits.
    pub branch_sample_type: u64,
    /// Registers in [`sample::REGS_USER`].
    pub sample_regs_user: u64,
    /// Bytes of stack in [`sample::STACK_USER`].
    pub sample_stack_user: u32,
    /// Clock of the time stamps, if the flag says so.
    pub clock_id: i32,
    /// Registers in [`sample::REGS_INTR`].
    pub sample_regs_intr: u64,
    /// Extension of `config2`.
    pub config3: u64,
    /// Extension of `config3` (PERF_ATTR_SIZE_VER9, since 2025).
    pub config4: u64,
}

/// Bytes of the first published version; everything has these.
const SIZE_FIRST: u64 = 64;
/// A kernel's page: it takes no larger attributes.
const SIZE_MAX: u64 = 4096;

impl EventAttr {
    /// Reads an attribute by its own size field; what follows the fields known here is passed over.
    ///
    /// # Errors
    /// If the size is impossible, or fewer bytes are there.
    pub fn decode(bytes: &mut Bytes<'_>) -> Result<EventAttr, DecodeError> {
        let mut probe = *bytes;
        probe.u32("the event's type")?;
        // A size of 0 means the first version (the kernel's rule).
        let size = match probe.u32("the event's size")? {
            0 => SIZE_FIRST,
            size => u64::from(size),
        };
        if !(SIZE_FIRST..=SIZE_MAX).contains(&size) {
            return Err(probe.bad("the size of an event's description", size));
        }
        let (offset, endian) = (bytes.offset(), bytes.endian());
        let mut bytes = Bytes::new(bytes.take(size, "an event's description")?, offset, endian);
        EventAttr::fields(&mut bytes)
    }

    fn fields(bytes: &mut Bytes<'_>) -> Result<EventAttr, DecodeError> {
        let mut attr = EventAttr {
            kind: bytes.u32("type")?,
            size: bytes.u32("size")?,
            config: bytes.u64("config")?,
            period_or_freq: bytes.u64("sample_period")?,
            sample_type: bytes.u64("sample_type")?,
            read_format: bytes.u64("read_format")?,
            ..EventAttr::default()
        };
        let flags = bytes.u64("flags")?;
        attr.flags = if bytes.endian() == Endian::Little { flags } else { flags.reverse_bits() };
        bytes.u64("wakeup_events and bp_type")?;
        attr.config1 = bytes.u64("config1")?;
        // From here on fields were added one by one; what is not there is 0.
        let mut next = || bytes.u64("").unwrap_or(0);
        attr.config2 = next();
        attr.branch_sample_type = next();
        attr.sample_regs_user = next();
        attr.sample_stack_user = bytes.u32("").unwrap_or(0);
        attr.clock_id = bytes.u32("").unwrap_or(0).cast_signed();
        attr.sample_regs_intr = bytes.u64("").unwrap_or(0);
        // aux_watermark, sample_max_stack, reserved; aux_sample_size, aux_action; sig_data.
        for _ in 0..3 {
            let _ = bytes.u64("");
        }
        attr.config3 = bytes.u64("").unwrap_or(0);
        attr.config4 = bytes.u64("").unwrap_or(0);
        Ok(attr)
    }

    /// Whether a `PERF_SAMPLE_*` bit is set.
    #[inline]
    #[must_use]
    pub fn samples(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    /// Whether the flag with this bit number is set.
    #[must_use]
    pub fn flag(&self, bit: u32) -> bool {
        self.flags >> bit & 1 != 0
    }

    /// Whether a frequency was asked for rather than a period.
    #[must_use]
    pub fn is_freq(&self) -> bool {
        self.flag(attr_flag::FREQ)
    }

    /// The fixed period, if there is one.
    #[must_use]
    pub fn period(&self) -> Option<u64> {
        (!self.is_freq() && self.period_or_freq > 0).then_some(self.period_or_freq)
    }

    /// Whether records other than samples end in who, when and of which event.
    #[must_use]
    pub fn sample_id_all(&self) -> bool {
        self.flag(attr_flag::SAMPLE_ID_ALL)
    }

    /// Offset of the event's id in a sample's body, in bytes.
    pub(crate) fn id_offset_in_sample(&self) -> Option<usize> {
        if self.samples(sample::IDENTIFIER) {
            return Some(0);
        }
        let before = sample::IP | sample::TID | sample::TIME | sample::ADDR;
        self.samples(sample::ID).then(|| 8 * (self.sample_type & before).count_ones() as usize)
    }

    /// Offset of the event's id from the end of another record, in bytes.
    pub(crate) fn id_offset_from_end(&self) -> Option<usize> {
        if self.samples(sample::IDENTIFIER) {
            return Some(8);
        }
        let after = sample::STREAM_ID | sample::CPU;
        (self.sample_id_all() && self.samples(sample::ID))
            .then(|| 8 + 8 * (self.sample_type & after).count_ones() as usize)
    }

    /// Bytes of the trailer of records that are no samples.
    pub(crate) fn trailer_bytes(&self) -> usize {
        let fields = sample::TID | sample::TIME | sample::ID | sample::STREAM_ID | sample::CPU | sample::IDENTIFIER;
        if self.sample_id_all() { 8 * (self.sample_type & fields).count_ones() as usize } else { 0 }
    }

    /// Words of one value in a read of this event.
    pub(crate) fn read_value_words(&self) -> u64 {
        1 + u64::from((self.read_format & (read_format::ID | read_format::LOST)).count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PERF_ATTR_SIZE_VER5 and VER6 in `include/uapi/linux/perf_event.h`: they end in `aux_watermark` with `sample_max_stack`, and in `aux_sample_size`.
    #[test]
    fn what_older_descriptions_end_in_is_no_configuration() {
        let configs = |size: u32| {
            let mut bytes = vec![0_u8; 104];
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            bytes.resize(size as usize, 0xff);
            let attr = EventAttr::decode(&mut Bytes::new(&bytes, 0, Endian::Little)).unwrap();
            (attr.config3, attr.config4)
        };
        assert_eq!([112, 120, 128].map(configs), [(0, 0); 3]);
        assert_eq!([136, 144, 200].map(configs), [(u64::MAX, 0), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX)]);
    }
}
