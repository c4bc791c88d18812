//! A bounds-checked reader over untrusted bytes in either byte order. Every read names its field, so that errors can name it.

use crate::error::{DecodeError, Fault};

/// Byte order of the machine that recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Endian {
    /// x86, Arm as usual, POWER little-endian.
    #[default]
    Little,
    /// Big-endian: s390, big-endian POWER.
    Big,
}

impl Endian {
    /// A word of a C bit field's storage with the bits where a little-endian compiler puts them: big-endian ones allocate fields from the top. For
    /// words whose declaration in the kernel does not itself depend on the byte order.
    #[must_use]
    pub fn bit_field(self, word: u64, offset: u32, width: u32) -> u64 {
        let shift = match self {
            Endian::Little => offset,
            Endian::Big => 64 - offset - width,
        };
        let mask = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
        (word >> shift) & mask
    }
}

/// Bytes not yet read, with the offset of the first of them in the file.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    rest: &'a [u8],
    offset: u64,
    endian: Endian,
}

impl<'a> Bytes<'a> {
    /// Reads `bytes`, which begin at `offset` of the file.
    #[must_use]
    pub fn new(bytes: &'a [u8], offset: u64, endian: Endian) -> Bytes<'a> {
        Bytes { rest: bytes, offset, endian }
    }

    /// Number of bytes that have not been read.
    #[must_use]
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// Offset of the next byte in the file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Byte order of the numbers.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The bytes that have not been read; they stay unread.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[cold]
    fn cut(&self, what: &'static str, needed: u64) -> DecodeError {
        DecodeError { offset: self.offset, fault: Fault::Cut { what, needed, left: self.rest.len() as u64 } }
    }

    /// An error about the value that was just read.
    #[cold]
    #[must_use]
    pub fn bad(&self, what: &'static str, value: u64) -> DecodeError {
        DecodeError { offset: self.offset, fault: Fault::Value { what, value } }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    #[inline]
    pub fn take(&mut self, count: u64, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let Some((taken, rest)) = usize::try_from(count).ok().and_then(|count| self.rest.split_at_checked(count))
        else {
            return Err(self.cut(what, count));
        };
        self.rest = rest;
        self.offset += count;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let Some((taken, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(self.cut(what, N as u64));
        };
        self.rest = rest;
        self.offset += N as u64;
        Ok(*taken)
    }

    /// The next byte.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    /// The next 16-bit number.
    ///
    /// # Errors
    /// If fewer bytes are left than the number has.
    #[inline]
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        let bytes = self.array(what)?;
        Ok(if self.endian == Endian::Little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    }

    /// The next 32-bit number.
    ///
    /// # Errors
    /// If fewer bytes are left than the number has.
    #[inline]
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let bytes = self.array(what)?;
        Ok(if self.endian == Endian::Little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    }

    /// The next 64-bit number.
    ///
    /// # Errors
    /// If fewer bytes are left than the number has.
    #[inline]
    pub fn u64(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let bytes = self.array(what)?;
        Ok(if self.endian == Endian::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    /// The next `count` 64-bit numbers, unread.
    ///
    /// # Errors
    /// If there are fewer.
    #[inline]
    pub fn words(&mut self, count: u64, what: &'static str) -> Result<Words<'a>, DecodeError> {
        let Some(bytes) = count.checked_mul(8) else { return Err(self.cut(what, u64::MAX)) };
        Ok(Words { bytes: self.take(bytes, what)?, endian: self.endian })
    }

    /// A text up to its terminating zero, or to the end of the record where that is missing; the padding after it is taken too.
    pub fn text(&mut self) -> &'a [u8] {
        let text = self.rest.split(|&byte| byte == 0).next().unwrap_or_default();
        self.offset += self.rest.len() as u64;
        self.rest = &[];
        text
    }
}

/// 64-bit numbers in a record, read when looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Words<'a> {
    bytes: &'a [u8],
    endian: Endian,
}

impl<'a> Words<'a> {
    /// Number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// Whether there are no words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The number at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u64> {
        let start = index.checked_mul(8)?;
        let bytes: [u8; 8] = self.bytes.get(start..start.checked_add(8)?)?.try_into().ok()?;
        Some(if self.endian == Endian::Little { u64::from_le_bytes(bytes) } else { u64::from_be_bytes(bytes) })
    }

    /// All numbers in turn.
    pub fn iter(&self) -> impl Iterator<Item = u64> + Clone + use<'a> {
        let endian = self.endian;
        self.bytes.as_chunks::<8>().0.iter().map(move |bytes| match endian {
            Endian::Little => u64::from_le_bytes(*bytes),
            Endian::Big => u64::from_be_bytes(*bytes),
        })
    }
}

impl PartialEq for Words<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_and_the_end_are_seen() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        let mut little = Bytes::new(&bytes, 100, Endian::Little);
        let mut big = Bytes::new(&bytes, 100, Endian::Big);
        assert_eq!(little.u32("a").unwrap(), 0x0403_0201);
        assert_eq!(big.u32("a").unwrap(), 0x0102_0304);
        assert_eq!(big.u16("b").unwrap(), 0x0506);
        let error = big.u32("c").unwrap_err();
        assert_eq!(error, DecodeError { offset: 106, fault: Fault::Cut { what: "c", needed: 4, left: 3 } });
        assert_eq!(big.words(u64::MAX / 2, "d").unwrap_err().offset, 106);
        assert_eq!(little.text(), [5, 6, 7, 8, 9]);
    }

    #[test]
    fn bit_fields_begin_at_either_end() {
        assert_eq!(Endian::Little.bit_field(0b101, 0, 1), 1);
        assert_eq!(Endian::Big.bit_field(1 << 63, 0, 1), 1);
        // cycles:16 after four single bits, as in struct perf_branch_entry.
        assert_eq!(Endian::Little.bit_field(0xabcd << 4, 4, 16), 0xabcd);
        assert_eq!(Endian::Big.bit_field(0xabcd << 44, 4, 16), 0xabcd);
    }
}
