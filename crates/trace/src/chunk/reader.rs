//! Reads chunk files: opening them indexes the valid headers; payloads are read on demand.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::format::{BadHeader, ChunkHeader, ChunkKind, HEADER_BYTES, MAGIC, VERSION, unpack};
use super::generated::GeneratedCode;
use super::session::{SessionEnd, SessionStart};
use super::{ChunkError, RAW_FOLDER};
use crate::record::Record;
use crate::wire::{RingState, WireError, decode};

/// Identifies one ring of a recording: a slot of the arena, during one use of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingId {
    /// Slot's number in the arena.
    pub slot: u32,
    /// Number of this use of the slot.
    pub generation: u64,
}

/// Damage that the reader skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The chunk file.
    pub path: PathBuf,
    /// Offset of the damage in the file, bytes.
    pub offset: u64,
    /// File bytes that could not be used.
    pub bytes: u64,
    /// The kind of damage.
    pub damage: Damage,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends within a chunk: the recorder was killed, or the disk was full.
    #[error("the last chunk is incomplete")]
    TornTail,
    /// There is no valid chunk header where one is expected.
    #[error("no valid chunk header")]
    Header,
    /// The chunk has a version that this build does not know.
    #[error("a chunk of unknown version {0}")]
    Version(u8),
    /// The payload's checksum does not match.
    #[error("a chunk's checksum does not match")]
    Checksum,
    /// The checksum matches, but a record cannot be decoded: the recorded program overwrote its ring, or the runtime has a bug.
    #[error("{0}")]
    Record(WireError),
    /// This many records have unknown stamps, because a chunk before them is missing.
    #[error("{0} records have no time because data before them is missing")]
    NoBases(u64),
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {} ({} bytes not used)", self.path.display(), self.offset, self.damage, self.bytes)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkRef {
    pub file: usize,
    /// Offset of the header in the file, bytes.
    pub offset: u64,
    pub header: ChunkHeader,
}

/// The chunk files of one recording, opened for reading.
#[derive(Debug)]
pub struct RawTrace {
    files: Vec<(PathBuf, File)>,
    rings: Vec<(RingId, Vec<ChunkRef>)>,
    start: SessionStart,
    end: Option<SessionEnd>,
    generated: Vec<GeneratedCode>,
    problems: Vec<Problem>,
    missing_chunks: u64,
}

impl RawTrace {
    /// Opens the raw form in `trace` (the `NAME.numatrace` folder). Damaged parts are left out and listed in
    /// [`RawTrace::problems`]. Memory: about 100 bytes per chunk, and what there is of generated code.
    ///
    /// # Errors
    /// If there are no chunk files, they cannot be read, or every copy of the session header is damaged.
    pub fn open(trace: &Path) -> Result<RawTrace, ChunkError> {
        let folder = trace.join(RAW_FOLDER);
        let mut files = Vec::new();
        for path in chunk_files(trace, &folder)? {
            let file = File::open(&path).map_err(ChunkError::io("open", &path))?;
            files.push((path, file));
        }
        let mut problems = Vec::new();
        let mut chunks = Vec::new();
        for (index, (path, file)) in files.iter().enumerate() {
            index_file(index, path, file, &mut chunks, &mut problems)?;
        }
        let mut buffers = Buffers::default();
        let mut start = None;
        let mut end = None;
        let mut generated = Vec::new();
        let mut rings: BTreeMap<RingId, Vec<ChunkRef>> = BTreeMap::new();
        let mut sequences = (0, 0);
        for chunk in chunks {
            sequences = (sequences.0 + 1, sequences.1.max(chunk.header.sequence.saturating_add(1)));
            let ring = RingId { slot: chunk.header.slot, generation: chunk.header.generation };
            match chunk.header.kind {
                ChunkKind::Ring => rings.entry(ring).or_default().push(chunk),
                ChunkKind::SessionStart if start.is_none() => {
                    start = json(&files, &chunk, &mut buffers, &mut problems)?;
                }
                ChunkKind::SessionEnd => end = json(&files, &chunk, &mut buffers, &mut problems)?,
                ChunkKind::SessionStart => {}
                ChunkKind::GeneratedCode => generated.extend(json(&files, &chunk, &mut buffers, &mut problems)?),
            }
        }
        let first = files.first().map_or(folder, |(path, _)| path.clone());
        let start = start.ok_or(ChunkError::NoSession(first))?;
        let missing_chunks = sequences.1.saturating_sub(sequences.0);
        let rings = rings.into_iter().collect();
        Ok(RawTrace { files, rings, start, end, generated, problems, missing_chunks })
    }

    /// What the recorder wrote before the program started.
    #[must_use]
    pub fn start(&self) -> &SessionStart {
        &self.start
    }

    /// What the recorder wrote at the end; `None` if it was killed.
    #[must_use]
    pub fn end(&self) -> Option<&SessionEnd> {
        self.end.as_ref()
    }

    /// What the recorder found of code that the processes generated, in the order in which it was written.
    #[must_use]
    pub fn generated(&self) -> &[GeneratedCode] {
        &self.generated
    }

    /// Damage found at opening. Reading payloads may find more: see [`RingReader::problems`] and [`super::Merge::problems`].
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Number of chunks that were written and are missing, from the gaps in the sequence numbers.
    #[must_use]
    pub fn missing_chunks(&self) -> u64 {
        self.missing_chunks
    }

    /// Every ring that has valid chunks, by slot and generation.
    pub fn rings(&self) -> impl Iterator<Item = RingId> {
        self.rings.iter().map(|(ring, _)| *ring)
    }

    /// Bytes of all records before compression, summed over the valid headers.
    #[must_use]
    pub fn raw_bytes(&self) -> u64 {
        self.rings.iter().flat_map(|(_, chunks)| chunks).map(|chunk| u64::from(chunk.header.raw_bytes)).sum()
    }

    /// The records of one ring in the order in which they were written; empty for an unknown ring.
    #[must_use]
    pub fn ring(&self, ring: RingId) -> RingReader<'_> {
        let chunks = self.rings.iter().find(|(id, _)| *id == ring).map_or(&[][..], |(_, chunks)| chunks);
        RingReader::new(self, chunks)
    }

    /// A reader of each ring.
    pub(super) fn ring_readers(&self) -> impl Iterator<Item = RingReader<'_>> {
        self.rings.iter().map(|(_, chunks)| RingReader::new(self, chunks))
    }
}

#[derive(Debug, Default)]
struct Buffers {
    stored: Vec<u8>,
    raw: Vec<u8>,
}

/// Reads and restores a chunk's payload into `buffers.raw`; false (and a problem) if it is damaged.
fn load(
    files: &[(PathBuf, File)],
    chunk: &ChunkRef,
    buffers: &mut Buffers,
    problems: &mut Vec<Problem>,
) -> Result<bool, ChunkError> {
    let (path, file) = &files[chunk.file];
    buffers.stored.resize(chunk.header.stored_bytes as usize, 0);
    match file.read_exact_at(&mut buffers.stored, chunk.offset + HEADER_BYTES as u64) {
        // The file was cut since it was opened.
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            problems.push(problem(path, chunk, Damage::TornTail));
            return Ok(false);
        }
        result => result.map_err(ChunkError::io("read", path))?,
    }
    let sound = unpack(&chunk.header, &buffers.stored, &mut buffers.raw).is_some();
    if !sound {
        problems.push(problem(path, chunk, Damage::Checksum));
    }
    Ok(sound)
}

fn problem(path: &Path, chunk: &ChunkRef, damage: Damage) -> Problem {
    let bytes = u64::from(chunk.header.stored_bytes) + HEADER_BYTES as u64;
    Problem { path: path.to_path_buf(), offset: chunk.offset, bytes, damage }
}

fn json<T: serde::de::DeserializeOwned>(
    files: &[(PathBuf, File)],
    chunk: &ChunkRef,
    buffers: &mut Buffers,
    problems: &mut Vec<Problem>,
) -> Result<Option<T>, ChunkError> {
    if !load(files, chunk, buffers, problems)? {
        return Ok(None);
    }
    let parsed = serde_json::from_slice(&buffers.raw).ok();
    if parsed.is_none() {
        problems.push(problem(&files[chunk.file].0, chunk, Damage::Checksum));
    }
    Ok(parsed)
}

fn chunk_files(trace: &Path, folder: &Path) -> Result<Vec<PathBuf>, ChunkError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(ChunkError::NoChunks(trace.to_path_buf()));
        }
        Err(error) => return Err(ChunkError::io("list", folder)(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(ChunkError::io("list", folder))?.path();
        if path.extension().is_some_and(|extension| extension == "chunks") {
            paths.push(path);
        }
    }
    paths.sort();
    if paths.is_empty() { Err(ChunkError::NoChunks(trace.to_path_buf())) } else { Ok(paths) }
}

fn index_file(
    index: usize,
    path: &Path,
    file: &File,
    chunks: &mut Vec<ChunkRef>,
    problems: &mut Vec<Problem>,
) -> Result<(), ChunkError> {
    let length = file.metadata().map_err(ChunkError::io("examine", path))?.len();
    let mut offset = 0;
    while offset < length {
        let left = length - offset;
        let report = |bytes, damage| Problem { path: path.to_path_buf(), offset, bytes, damage };
        if left < HEADER_BYTES as u64 {
            problems.push(report(left, Damage::TornTail));
            break;
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, offset).map_err(ChunkError::io("read", path))?;
        match ChunkHeader::from_bytes(&bytes) {
            Ok(header) => {
                let whole = HEADER_BYTES as u64 + u64::from(header.stored_bytes);
                if whole > left {
                    problems.push(report(left, Damage::TornTail));
                    break;
                }
                chunks.push(ChunkRef { file: index, offset, header });
                offset += whole;
            }
            Err(BadHeader::Version(version)) if offset == 0 => {
                return Err(ChunkError::Version { path: path.to_path_buf(), version, supported: VERSION });
            }
            Err(bad) => {
                let damage = match bad {
                    BadHeader::Version(version) => Damage::Version(version),
                    BadHeader::Damaged => Damage::Header,
                };
                let next = next_header(path, file, offset + 1, length)?;
                problems.push(report(next - offset, damage));
                offset = next;
            }
        }
    }
    Ok(())
}

/// Offset of the next valid header at or after `from`; `length` if there is none.
fn next_header(path: &Path, file: &File, from: u64, length: u64) -> Result<u64, ChunkError> {
    const WINDOW: usize = 1 << 20;
    let mut window = vec![0; WINDOW];
    let mut start = from;
    while start + HEADER_BYTES as u64 <= length {
        let bytes = usize::try_from(length - start).unwrap_or(WINDOW).min(WINDOW);
        file.read_exact_at(&mut window[..bytes], start).map_err(ChunkError::io("read", path))?;
        let found = window[..bytes].windows(HEADER_BYTES).position(|candidate| {
            candidate[..4] == MAGIC && candidate.try_into().is_ok_and(|header| ChunkHeader::from_bytes(header).is_ok())
        });
        if let Some(position) = found {
            return Ok(start + position as u64);
        }
        start += (bytes - HEADER_BYTES + 1) as u64;
    }
    Ok(length)
}

/// Reads one ring, a chunk at a time.
#[derive(Debug)]
pub struct RingReader<'a> {
    trace: &'a RawTrace,
    chunks: &'a [ChunkRef],
    state: RingState,
    buffers: Buffers,
    problems: Vec<Problem>,
}

impl<'a> RingReader<'a> {
    fn new(trace: &'a RawTrace, chunks: &'a [ChunkRef]) -> RingReader<'a> {
        RingReader {
            trace,
            chunks,
            state: RingState::new(trace.start.clock()),
            buffers: Buffers::default(),
            problems: Vec::new(),
        }
    }

    /// Lower bound on the order stamps of the next chunk (0 if unknown); `None` after the last chunk.
    #[must_use]
    pub fn next_order(&self) -> Option<u64> {
        let header = &self.chunks.first()?.header;
        Some(if header.bases_known { header.base_order.0 } else { 0 })
    }

    /// Appends the records of the next valid chunk to `out`; false at the end of the ring. Records are in order of their order
    /// stamps within the chunk.
    ///
    /// # Errors
    /// If the file cannot be read. Damage is not an error: it is added to [`RingReader::problems`].
    pub fn next_chunk(&mut self, out: &mut impl Extend<Record>) -> Result<bool, ChunkError> {
        while let Some((chunk, later)) = self.chunks.split_first() {
            self.chunks = later;
            if !load(&self.trace.files, chunk, &mut self.buffers, &mut self.problems)? {
                self.state.bases_known = false;
                self.state.offset += u64::from(chunk.header.raw_bytes);
                continue;
            }
            self.enter(&chunk.header);
            let mut fault = None;
            let skipped = self.state.skipped;
            out.extend(decode(&self.buffers.raw, &mut self.state).map_while(|result| match result {
                Ok(record) => Some(record),
                Err(error) => {
                    fault = Some(error);
                    None
                }
            }));
            let path = &self.trace.files[chunk.file].0;
            if let Some(error) = fault {
                self.problems.push(problem(path, chunk, Damage::Record(error)));
            }
            if self.state.skipped != skipped {
                let lost = self.state.skipped - skipped;
                self.problems.push(problem(path, chunk, Damage::NoBases(lost)));
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn enter(&mut self, header: &ChunkHeader) {
        if header.thread.is_some() {
            self.state.thread = header.thread;
        }
        self.state.bases_known = header.bases_known;
        self.state.order = header.base_order;
        self.state.clock_cycles = header.base_clock;
    }

    /// Damage found so far while reading this ring.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Lets go of the buffers: the ring is read to its end.
    pub(super) fn take_problems(&mut self) -> Vec<Problem> {
        self.buffers = Buffers::default();
        std::mem::take(&mut self.problems)
    }
}
