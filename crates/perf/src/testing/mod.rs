//! Encoders: records, events and whole `perf.data` files as bytes, in either byte order. For tests and for the generator of test data; written
//! from the kernel's description, not from the decoder, so that one checks the other.

mod data_file;
mod records;
mod sample;
pub mod streams;

pub use data_file::{DataFile, put_text};
pub use records::{SideBandSpec, attr_bytes, record};
pub use sample::{BranchSpec, SampleSpec};

use crate::bytes::Endian;

/// A buffer of bytes in a byte order.
#[derive(Clone, Debug)]
pub struct Out {
    /// The bytes written so far.
    pub bytes: Vec<u8>,
    endian: Endian,
}

impl Out {
    /// An empty buffer.
    #[must_use]
    pub fn new(endian: Endian) -> Out {
        Out { bytes: Vec::new(), endian }
    }

    /// Appends a 16-bit number.
    pub fn u16(&mut self, value: u16) -> &mut Out {
        self.put(value.to_le_bytes())
    }

    /// Appends a 32-bit number.
    pub fn u32(&mut self, value: u32) -> &mut Out {
        self.put(value.to_le_bytes())
    }

    /// Appends a 64-bit number.
    pub fn u64(&mut self, value: u64) -> &mut Out {
        self.put(value.to_le_bytes())
    }

    /// Appends 64-bit numbers.
    pub fn words(&mut self, values: &[u64]) -> &mut Out {
        for &value in values {
            self.u64(value);
        }
        self
    }

    /// Appends bytes.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Out {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a text with its terminating zero, padded to a multiple of eight.
    pub fn text(&mut self, text: &str) -> &mut Out {
        self.raw(text.as_bytes()).raw(&[0]);
        while !self.bytes.len().is_multiple_of(8) {
            self.bytes.push(0);
        }
        self
    }

    fn put<const N: usize>(&mut self, mut little: [u8; N]) -> &mut Out {
        if self.endian == Endian::Big {
            little.reverse();
        }
        self.raw(&little)
    }
}
