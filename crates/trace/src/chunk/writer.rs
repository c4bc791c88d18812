//! Appends chunks. Each chunk is written by one `write_all` when it is complete, so a crash or a full disk leaves at most one incomplete chunk,
//! at the end of the last file.

use std::collections::{BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::format::{ChunkHeader, ChunkKind, Compression, MAX_RAW_BYTES};
use super::generated::GeneratedCode;
use super::reader::RingId;
use super::recorder::{Hold, RECORDER_FILE};
use super::session::{SessionEnd, SessionStart};
use super::{ChunkError, RAW_FOLDER};
use crate::ids::{Pid, ThreadIndex};
use crate::wire::{RingState, peek_time, scan, whole_records};

/// Settings of a [`ChunkWriter`].
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// Payload bytes from which a ring's chunk is written.
    pub chunk_bytes: usize,
    /// Compression of ring payloads.
    pub compression: Compression,
    /// File size, bytes, from which a new file is started.
    pub file_bytes: u64,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions { chunk_bytes: 128 << 10, compression: Compression::Zstd(1), file_bytes: 256 << 20 }
    }
}

struct Pending {
    bytes: Vec<u8>,
    /// State before `bytes`.
    base: RingState,
    /// State after `bytes`.
    state: RingState,
}

/// Writes a recording's raw form. Each ring has a buffer, which is written when a chunk is full. Call [`ChunkWriter::flush`] several times a
/// second, so that a killed recorder loses little. Dropping the writer without [`ChunkWriter::finish`] loses the buffered bytes.
pub struct ChunkWriter {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    file_number: u32,
    file_used: u64,
    sequence: u64,
    options: WriterOptions,
    session: SessionStart,
    rings: HashMap<RingId, Pending>,
    pids: BTreeSet<Pid>,
    spare: Vec<Vec<u8>>,
    compressor: Option<zstd::bulk::Compressor<'static>>,
    packed: Vec<u8>,
    written: u64,
    /// Shows readers that the recording is still running.
    _hold: Hold,
}

impl ChunkWriter {
    /// Creates `trace/raw/` and its first file, with the session header in it.
    ///
    /// # Errors
    /// If `trace` already holds chunks, or the folder cannot be written.
    pub fn create(trace: &Path, session: &SessionStart, options: WriterOptions) -> Result<ChunkWriter, ChunkError> {
        let folder = trace.join(RAW_FOLDER);
        std::fs::create_dir_all(&folder).map_err(ChunkError::io("create", &folder))?;
        let compressor = match options.compression {
            Compression::None => None,
            Compression::Zstd(level) => {
                Some(zstd::bulk::Compressor::new(level).map_err(ChunkError::io("set up compression for", &folder))?)
            }
        };
        let hold = Hold::take(&folder).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => ChunkError::Exists(trace.to_path_buf()),
            _ => ChunkError::io("create", folder.join(RECORDER_FILE))(error),
        })?;
        let (path, file) = create_file(&folder, 0)?;
        let mut writer = ChunkWriter {
            folder,
            path,
            file,
            file_number: 0,
            file_used: 0,
            sequence: 0,
            options,
            session: session.clone(),
            rings: HashMap::new(),
            pids: BTreeSet::new(),
            spare: Vec::new(),
            compressor,
            packed: Vec::new(),
            written: 0,
            _hold: hold,
        };
        writer.write_json(ChunkKind::SessionStart, &serde_json::to_vec(session).unwrap_or_default())?;
        Ok(writer)
    }

    /// Appends a piece of a ring: whole records that follow the pieces given before for the same ring. They are copied, so the caller may
    /// release the ring's space at once.
    ///
    /// # Errors
    /// If writing fails (a full disk). The file then ends in at most one incomplete chunk, and the writer must only be dropped.
    pub fn append(&mut self, ring: RingId, bytes: &[u8]) -> Result<(), ChunkError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let limit = self.options.chunk_bytes.clamp(4096, MAX_RAW_BYTES);
            let pending = self.rings.entry(ring).or_insert_with(|| {
                let state = RingState::new(self.session.clock());
                Pending { bytes: self.spare.pop().unwrap_or_default(), base: state, state }
            });
            let take = if rest.len() <= limit { rest.len() } else { piece(rest, limit) };
            if !pending.bytes.is_empty() && pending.bytes.len() + take > limit {
                self.flush_ring(ring)?;
                continue;
            }
            let (now, later) = rest.split_at(take);
            if pending.bytes.is_empty() && !pending.base.bases_known {
                // The header then has the first record's stamps, so that merging rings need not decode the chunk.
                peek_time(now, &mut pending.base);
            }
            if scan(now, &mut pending.state).is_err() {
                // The bytes are kept, so that the reader reports them. The stamps' bases after them are unknown.
                pending.state.bases_known = false;
            }
            self.pids.extend(pending.state.pid);
            pending.bytes.extend_from_slice(now);
            rest = later;
            if pending.bytes.len() >= limit {
                self.flush_ring(ring)?;
            }
        }
        Ok(())
    }

    /// Sets the thread of a ring that does not begin with its thread's start record.
    pub fn open_ring(&mut self, ring: RingId, thread: ThreadIndex) {
        let state = RingState { thread: Some(thread), ..RingState::new(self.session.clock()) };
        self.rings.entry(ring).or_insert_with(|| Pending { bytes: Vec::new(), base: state, state });
    }

    /// Writes the buffered bytes of `ring`.
    ///
    /// # Errors
    /// If writing fails, as in [`ChunkWriter::append`].
    pub fn flush_ring(&mut self, ring: RingId) -> Result<(), ChunkError> {
        let Some(pending) = self.rings.get_mut(&ring) else { return Ok(()) };
        if pending.bytes.is_empty() {
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut pending.bytes);
        let base = pending.base;
        pending.base = pending.state;
        let result = self.write_chunk(ChunkKind::Ring, ring, &base, &bytes);
        bytes.clear();
        if let Some(pending) = self.rings.get_mut(&ring) {
            pending.bytes = bytes;
        }
        result
    }

    /// Writes the buffered bytes of `ring` and drops its state. Call it when the ring's thread has ended and the ring is drained.
    ///
    /// # Errors
    /// If writing fails, as in [`ChunkWriter::append`].
    pub fn close_ring(&mut self, ring: RingId) -> Result<(), ChunkError> {
        self.flush_ring(ring)?;
        if let Some(pending) = self.rings.remove(&ring)
            && self.spare.len() < 64
        {
            self.spare.push(pending.bytes);
        }
        Ok(())
    }

    /// Writes the buffered bytes of every ring to the page cache, not to the disk: they survive the end of this process, not a crash of the machine.
    ///
    /// # Errors
    /// If writing fails, as in [`ChunkWriter::append`].
    pub fn flush(&mut self) -> Result<(), ChunkError> {
        let mut waiting: Vec<RingId> =
            self.rings.iter().filter(|(_, pending)| !pending.bytes.is_empty()).map(|(ring, _)| *ring).collect();
        waiting.sort_unstable();
        waiting.into_iter().try_for_each(|ring| self.flush_ring(ring))
    }

    /// Writes all buffered bytes, then the session's end; with `sync`, waits until they are on the disk.
    ///
    /// # Errors
    /// If writing fails, as in [`ChunkWriter::append`].
    pub fn finish(mut self, end: &SessionEnd, sync: bool) -> Result<(), ChunkError> {
        self.flush()?;
        self.write_json(ChunkKind::SessionEnd, &serde_json::to_vec(end).unwrap_or_default())?;
        if sync {
            self.file.sync_all().map_err(ChunkError::io("sync", &self.path))?;
        }
        Ok(())
    }

    /// Writes what was found of code that a process generated. It becomes several chunks where it is too large for one.
    ///
    /// # Errors
    /// If writing fails, as in [`ChunkWriter::append`].
    pub fn generated(&mut self, code: &GeneratedCode) -> Result<(), ChunkError> {
        let json = serde_json::to_vec(code).unwrap_or_default();
        if json.len() <= MAX_RAW_BYTES || code.functions.len() < 2 {
            return self.write_json(ChunkKind::GeneratedCode, &json);
        }
        let (first, second) = code.functions.split_at(code.functions.len() / 2);
        for half in [first, second] {
            self.generated(&GeneratedCode { functions: half.to_vec(), ..code.clone_without_functions() })?;
        }
        Ok(())
    }

    /// Processes whose threads have written records so far.
    #[must_use]
    pub fn pids(&self) -> &BTreeSet<Pid> {
        &self.pids
    }

    /// Bytes written to files so far.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    fn write_json(&mut self, kind: ChunkKind, json: &[u8]) -> Result<(), ChunkError> {
        let base = RingState::new(self.session.clock());
        self.write_chunk(kind, RingId { slot: u32::MAX, generation: 0 }, &base, json)
    }

    /// Each file begins with the session's start, so that damage to one copy loses nothing.
    fn next_file(&mut self) -> Result<(), ChunkError> {
        self.file_number += 1;
        (self.path, self.file) = create_file(&self.folder, self.file_number)?;
        self.file_used = 0;
        self.write_json(ChunkKind::SessionStart, &serde_json::to_vec(&self.session).unwrap_or_default())
    }

    fn write_chunk(&mut self, kind: ChunkKind, ring: RingId, base: &RingState, raw: &[u8]) -> Result<(), ChunkError> {
        if raw.len() > MAX_RAW_BYTES {
            return Err(ChunkError::TooLarge { bytes: raw.len(), limit: MAX_RAW_BYTES });
        }
        if self.file_used >= self.options.file_bytes {
            self.next_file()?;
        }
        self.packed.clear();
        self.packed.resize(super::HEADER_BYTES, 0);
        let compressed = self.pack(raw);
        if !compressed {
            self.packed.truncate(super::HEADER_BYTES);
            self.packed.extend_from_slice(raw);
        }
        let stored = &self.packed[super::HEADER_BYTES..];
        let header = ChunkHeader {
            kind,
            compressed,
            bases_known: base.bases_known,
            payload_crc: crc32fast::hash(stored),
            raw_bytes: raw.len() as u32,
            stored_bytes: stored.len() as u32,
            sequence: self.sequence,
            slot: ring.slot,
            thread: base.thread,
            generation: ring.generation,
            base_order: base.order,
            base_clock: base.clock_cycles,
        };
        self.packed[..super::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        self.file.write_all(&self.packed).map_err(ChunkError::io("write to", &self.path))?;
        self.sequence += 1;
        self.file_used += self.packed.len() as u64;
        self.written += self.packed.len() as u64;
        Ok(())
    }

    /// Appends the compressed form of `raw` to `packed`; false where that is not smaller.
    fn pack(&mut self, raw: &[u8]) -> bool {
        let Some(compressor) = &mut self.compressor else { return false };
        let start = self.packed.len();
        self.packed.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
        match compressor.compress_to_buffer(raw, &mut self.packed[start..]) {
            Ok(bytes) if bytes < raw.len() => {
                self.packed.truncate(start + bytes);
                true
            }
            _ => false,
        }
    }
}

/// Number of leading bytes that go into one chunk: whole records up to `limit`; bytes that are not records are cut at `limit`.
fn piece(bytes: &[u8], limit: usize) -> usize {
    match whole_records(bytes, limit) {
        0 => bytes.len().min(limit),
        whole => whole,
    }
}

fn create_file(folder: &Path, number: u32) -> Result<(PathBuf, File), ChunkError> {
    let path = folder.join(format!("{number:05}.chunks"));
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(file) => Ok((path, file)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(ChunkError::Exists(folder.parent().unwrap_or(folder).to_path_buf()))
        }
        Err(error) => Err(ChunkError::io("create", path)(error)),
    }
}
