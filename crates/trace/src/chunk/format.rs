//! The 64-byte chunk header, and compression of payloads.

use crate::ids::{Order, ThreadIndex};

/// Size of a chunk header, bytes.
pub const HEADER_BYTES: usize = 64;
/// Largest payload of a chunk before compression, bytes. It bounds what a reader allocates for a damaged length.
pub const MAX_RAW_BYTES: usize = 8 << 20;
/// First bytes of every header.
pub(super) const MAGIC: [u8; 4] = *b"NPCK";
/// Version that this build writes, and the newest that it reads.
pub(super) const VERSION: u8 = 1;

const FLAG_BASES_KNOWN: u8 = 1;
const NO_THREAD: u32 = u32::MAX;

/// The kind of a chunk's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ChunkKind {
    /// JSON: [`SessionStart`](super::SessionStart). The first chunk of the first file.
    SessionStart = 1,
    /// Records of one ring.
    Ring = 2,
    /// JSON: [`SessionEnd`](super::SessionEnd). The last chunk of a recording that ended in an orderly way.
    SessionEnd = 3,
    /// JSON: [`GeneratedCode`](super::GeneratedCode). Before the session's end; none in most recordings.
    GeneratedCode = 4,
}

/// Compression of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not compressed.
    None,
    /// zstd at this level; negative levels are faster.
    Zstd(i32),
}

/// A chunk's header. All integers are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Kind of the payload.
    pub kind: ChunkKind,
    /// Whether the payload is compressed.
    pub compressed: bool,
    /// Whether `base_order` and `base_clock` are known.
    pub bases_known: bool,
    /// CRC-32 of the payload as stored.
    pub payload_crc: u32,
    /// Payload bytes after decompression.
    pub raw_bytes: u32,
    /// Payload bytes in the file.
    pub stored_bytes: u32,
    /// Sequence number of the chunk in the whole recording, from 0.
    pub sequence: u64,
    /// Ring's slot in the arena.
    pub slot: u32,
    /// Thread of the ring, if it is known at the payload's start.
    pub thread: Option<ThreadIndex>,
    /// Number of this use of the slot.
    pub generation: u64,
    /// Base of the first order delta, ticks.
    pub base_order: Order,
    /// Base of the first clock delta, cycles.
    pub base_clock: u64,
}

/// Why 64 bytes are not a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Not the magic, a wrong checksum, or an impossible field.
    Damaged,
    /// A valid header of a newer version.
    Version(u8),
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

impl ChunkHeader {
    /// The bytes: magic (4), version, kind, compression, flags, header CRC-32 (4, over the other 60 bytes), payload CRC-32, raw bytes, stored bytes,
    /// sequence (8), slot (4), thread (4), generation (8), base order (8), base clock (8).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.kind as u8;
        out[6] = u8::from(self.compressed);
        out[7] = if self.bases_known { FLAG_BASES_KNOWN } else { 0 };
        out[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        out[16..20].copy_from_slice(&self.raw_bytes.to_le_bytes());
        out[20..24].copy_from_slice(&self.stored_bytes.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..36].copy_from_slice(&self.slot.to_le_bytes());
        out[36..40].copy_from_slice(&self.thread.map_or(NO_THREAD, |thread| thread.0).to_le_bytes());
        out[40..48].copy_from_slice(&self.generation.to_le_bytes());
        out[48..56].copy_from_slice(&self.base_order.0.to_le_bytes());
        out[56..64].copy_from_slice(&self.base_clock.to_le_bytes());
        let crc = header_crc(&out);
        out[8..12].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(super) fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<ChunkHeader, BadHeader> {
        if bytes[..4] != MAGIC || u32_at(bytes, 8) != header_crc(bytes) {
            return Err(BadHeader::Damaged);
        }
        if bytes[4] != VERSION {
            return Err(BadHeader::Version(bytes[4]));
        }
        let kind = match bytes[5] {
            1 => ChunkKind::SessionStart,
            2 => ChunkKind::Ring,
            3 => ChunkKind::SessionEnd,
            4 => ChunkKind::GeneratedCode,
            _ => return Err(BadHeader::Damaged),
        };
        let thread = u32_at(bytes, 36);
        let header = ChunkHeader {
            kind,
            compressed: bytes[6] == 1,
            bases_known: bytes[7] & FLAG_BASES_KNOWN != 0,
            payload_crc: u32_at(bytes, 12),
            raw_bytes: u32_at(bytes, 16),
            stored_bytes: u32_at(bytes, 20),
            sequence: u64_at(bytes, 24),
            slot: u32_at(bytes, 32),
            thread: (thread != NO_THREAD).then_some(ThreadIndex(thread)),
            generation: u64_at(bytes, 40),
            base_order: Order(u64_at(bytes, 48)),
            base_clock: u64_at(bytes, 56),
        };
        let too_large = header.raw_bytes as usize > MAX_RAW_BYTES || header.stored_bytes > header.raw_bytes;
        if bytes[6] > 1 || too_large { Err(BadHeader::Damaged) } else { Ok(header) }
    }
}

fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..8]);
    hasher.update(&bytes[12..]);
    hasher.finalize()
}

/// Restores a payload. `None`: its checksum or its compressed form is damaged.
pub(super) fn unpack(header: &ChunkHeader, stored: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    if crc32fast::hash(stored) != header.payload_crc || stored.len() != header.stored_bytes as usize {
        return None;
    }
    if !header.compressed {
        out.extend_from_slice(stored);
    } else {
        out.resize(header.raw_bytes as usize, 0);
        let written = zstd::bulk::decompress_to_buffer(stored, out.as_mut_slice()).ok()?;
        out.truncate(written);
    }
    (out.len() == header.raw_bytes as usize).then_some(())
}
