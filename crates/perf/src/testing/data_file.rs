//! Whole recordings as bytes, in both forms of `perf.data`.

use super::{Out, attr_bytes, record};
use crate::abi::kind;
use crate::attr::EventAttr;
use crate::bytes::Endian;

/// A synthetic perf.data recording.
#[derive(Clone, Debug, Default)]
pub struct DataFile {
    /// Byte order.
    pub endian: Endian,
    /// Events with their ids.
    pub events: Vec<(EventAttr, Vec<u64>)>,
    /// Whole records, in the order of the file (after an AUXTRACE record, its trace).
    pub records: Vec<Vec<u8>>,
    /// Numbers and contents of the feature sections, ascending.
    pub features: Vec<(u32, Vec<u8>)>,
}

const HEADER_BYTES: u64 = 104;

impl DataFile {
    fn out(&self) -> Out {
        Out::new(self.endian)
    }

    fn magic(&self, out: &mut Out) {
        out.u64(u64::from_le_bytes(*b"PERFILE2"));
    }

    /// Encodes it as a file with sections.
    #[must_use]
    pub fn file(&self) -> Vec<u8> {
        let mut ids = self.out();
        let mut attrs = self.out();
        let id_bytes: u64 = self.events.iter().map(|(_, ids)| 8 * ids.len() as u64).sum();
        let mut entry_bytes = 16;
        for (attr, own) in &self.events {
            let bytes = attr_bytes(attr, self.endian);
            entry_bytes = bytes.len() as u64 + 16;
            attrs.raw(&bytes).u64(HEADER_BYTES + ids.bytes.len() as u64).u64(8 * own.len() as u64);
            ids.words(own);
        }
        let data = self.records.concat();
        let attrs_at = HEADER_BYTES + id_bytes;
        let data_at = attrs_at + attrs.bytes.len() as u64;
        let mut out = self.out();
        self.magic(&mut out);
        out.u64(HEADER_BYTES).u64(entry_bytes).u64(attrs_at).u64(attrs.bytes.len() as u64);
        out.u64(data_at).u64(data.len() as u64).u64(0).u64(0);
        let mut bits = [0u64; 4];
        for (number, _) in &self.features {
            bits[*number as usize / 64] |= 1 << (number % 64);
        }
        out.words(&bits).raw(&ids.bytes).raw(&attrs.bytes).raw(&data);
        let mut at = out.bytes.len() as u64 + 16 * self.features.len() as u64;
        for (_, section) in &self.features {
            out.u64(at).u64(section.len() as u64);
            at += section.len() as u64;
        }
        for (_, section) in &self.features {
            out.raw(section);
        }
        out.bytes
    }

    /// Encodes it as a stream for pipes.
    #[must_use]
    pub fn stream(&self) -> Vec<u8> {
        let mut out = self.out();
        self.magic(&mut out);
        out.u64(16);
        for (number, section) in &self.features {
            let mut body = self.out();
            body.u64(u64::from(*number)).raw(section);
            out.raw(&record(kind::HEADER_FEATURE, 0, &body.bytes, self.endian));
        }
        for (attr, ids) in &self.events {
            let mut body = self.out();
            body.raw(&attr_bytes(attr, self.endian)).words(ids);
            out.raw(&record(kind::HEADER_ATTR, 0, &body.bytes, self.endian));
        }
        out.raw(&self.records.concat());
        out.bytes
    }
}

/// A text with its length before it, padded as perf does.
pub fn put_text(out: &mut Out, text: &str) {
    let padded = (text.len() + 1).next_multiple_of(64);
    out.u32(padded as u32).raw(text.as_bytes()).raw(&vec![0; padded - text.len()]);
}
