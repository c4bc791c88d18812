//! The records of a file, one after the other.

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::FileError;
use super::block::Block;
use super::expand::{Expander, FRAME_MAGIC};
use super::features::{Features, build_id, read_section};
use super::header::{FILE_HEADER_BYTES, FileHeader, PIPE_HEADER_BYTES, Section, endian, other_kind};
use super::resync::{self, Damage};
use crate::abi::kind;
use crate::attr::EventAttr;
use crate::bytes::{Bytes, Endian};
use crate::error::{DecodeError, Fault};
use crate::session::{Header, Session};

/// Sections other than the records are smaller than this.
const SECTION_MAX: u64 = 64 << 20;
/// A piece of an AUX buffer is smaller than this: buffers are.
const AUX_MAX: u64 = 1 << 30;
/// Bytes of it that are copied at once.
const AUX_STEP: usize = 1 << 20;
/// Bytes that are looked through at once for where records go on.
const WINDOW: usize = 2 * resync::CHAIN_BYTES;

/// A record as it stands in the file.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The record's header.
    pub header: Header,
    /// The record's body, for [`Session::decode`].
    pub body: &'a [u8],
    /// Where the body begins in the file (of compressed records: where the record that holds it does).
    pub offset: u64,
    /// The trace that follows an AUXTRACE record.
    pub aux: &'a [u8],
}

/// Reads a file or stream. [`Walker::next`] gives the records; events and facts are there from the start in files, and grow in streams.
pub struct Walker<R> {
    reader: Block<R>,
    path: PathBuf,
    /// Offset of the byte that is read next.
    offset: u64,
    /// Offset of the first byte after the records.
    end: u64,
    is_pipe: bool,
    torn_at: Option<u64>,
    unsized_data: bool,
    session: Session,
    /// Ids of each event, in the order of the file.
    ids: Vec<Vec<u64>>,
    features: Features,
    expander: Option<Expander>,
    /// A compressed piece was damaged: nothing of its frame that comes after it can be expanded.
    is_frame_lost: bool,
    damage: Damage,
    /// A record that was expanded.
    buffer: Vec<u8>,
    aux: Vec<u8>,
    /// Problems that cost a section, not the recording.
    problems: Vec<String>,
    /// The record given last, and whether its body is in `buffer` rather than the last thing read.
    current: Option<(Header, u64, bool)>,
    /// Files of further records, the next one last.
    parts: Vec<Part<R>>,
}

/// A file with nothing but records: of one thread of `perf record --threads`.
pub struct Part<R> {
    /// The file, open for reading.
    pub reader: R,
    /// The file's name, for messages.
    pub path: PathBuf,
    /// The file's length in bytes.
    pub length: u64,
}

impl<R: Read + Seek> Walker<R> {
    /// Opens a file; `path` is for messages.
    ///
    /// # Errors
    /// If it is no `perf.data`, or its head is damaged. A damaged section of facts is a [problem](Walker::problems) only.
    pub fn open(reader: R, path: &Path) -> Result<Walker<R>, FileError> {
        let mut walker = Walker::begin(reader, path)?;
        if !walker.is_pipe {
            walker.read_file_head()?;
        }
        Ok(walker)
    }

    fn read_file_head(&mut self) -> Result<(), FileError> {
        let rest = (FILE_HEADER_BYTES - PIPE_HEADER_BYTES) as usize;
        let head = self.read_vec(rest)?;
        let endian = self.session.endian();
        let header = FileHeader::decode(&mut Bytes::new(&head, PIPE_HEADER_BYTES, endian)).map_err(self.malformed())?;
        let length = self.seek(SeekFrom::End(0))?;
        let attrs = self.section(header.attrs, length)?;
        let events = header.events(&mut Bytes::new(&attrs, header.attrs.offset, endian)).map_err(self.malformed())?;
        for (attr, ids) in events {
            let bytes = match self.section(ids, length) {
                Err(FileError::Malformed { error, .. }) => {
                    self.problems.push(format!("an event's list of ids is damaged ({error})"));
                    Vec::new()
                }
                bytes => bytes?,
            };
            let count = bytes.len() as u64 / 8;
            let ids = Bytes::new(&bytes, ids.offset, endian).words(count, "ids").map_err(self.malformed())?;
            self.add_event(attr, ids.iter().collect());
        }
        // A recorder that was killed never filled the size in: then everything that follows is records.
        self.unsized_data = header.data.size == 0;
        self.end = if self.unsized_data { length } else { header.data.offset.saturating_add(header.data.size) };
        if !self.unsized_data {
            self.read_features(&header, length)?;
        }
        self.end = self.end.min(length);
        self.offset = self.seek(SeekFrom::Start(header.data.offset))?;
        Ok(())
    }

    fn read_features(&mut self, header: &FileHeader, length: u64) -> Result<(), FileError> {
        let endian = self.session.endian();
        let table = Section { offset: self.end, size: Section::BYTES * header.features.len() as u64 };
        if table.offset.saturating_add(table.size) > length {
            self.problems
                .push("the file is truncated: it ends before the sections that describe the machine".to_owned());
            return Ok(());
        }
        let table_bytes = self.section(table, length)?;
        let mut table = Bytes::new(&table_bytes, table.offset, endian);
        for &number in &header.features {
            let Ok(section) = Section::decode(&mut table) else { break };
            match self.section(section, length) {
                Ok(bytes) => {
                    if let Err(error) = read_section(&mut self.features, number, &bytes, section.offset, endian) {
                        self.problems.push(format!("section {number} of the file is damaged ({error})"));
                    }
                }
                Err(FileError::Malformed { error, .. }) => {
                    self.problems.push(format!("section {number} of the file is damaged ({error})"));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn seek(&mut self, to: SeekFrom) -> Result<u64, FileError> {
        let (path, offset) = (&self.path, self.offset);
        self.reader.seek(to).map_err(|source| FileError::Io { path: path.clone(), offset, source })
    }

    fn section(&mut self, section: Section, length: u64) -> Result<Vec<u8>, FileError> {
        let fault = match section.offset.checked_add(section.size) {
            Some(end) if end <= length && section.size <= SECTION_MAX => {
                self.offset = self.seek(SeekFrom::Start(section.offset))?;
                return self.read_vec(section.size as usize);
            }
            Some(end) if end <= length => Fault::Value { what: "the size of a section", value: section.size },
            _ => Fault::Cut { what: "a section", needed: section.size, left: length.saturating_sub(section.offset) },
        };
        Err(self.malformed()(DecodeError { offset: section.offset, fault }))
    }
}

impl<R: Read> Walker<R> {
    /// Opens a stream, such as standard input from `perf record -o -`; `path` is for messages.
    ///
    /// # Errors
    /// If it is no `perf.data`, or one in the form of a file, which cannot be read from a pipe.
    pub fn open_stream(reader: R, path: &Path) -> Result<Walker<R>, FileError> {
        let walker = Walker::begin(reader, path)?;
        if walker.is_pipe {
            return Ok(walker);
        }
        let source = std::io::Error::new(
            ErrorKind::Unsupported,
            "this is the format of a perf.data file, which cannot be read from a pipe: give the file's name",
        );
        Err(FileError::Io { path: walker.path, offset: 0, source })
    }

    fn begin(reader: R, path: &Path) -> Result<Walker<R>, FileError> {
        let mut reader = Block::new(reader);
        let path = path.to_path_buf();
        let head: [u8; PIPE_HEADER_BYTES as usize] = match reader.next(PIPE_HEADER_BYTES as usize) {
            Err(error) if error.kind() == ErrorKind::IsADirectory => return Err(FileError::Folder(path)),
            Err(source) => return Err(FileError::Io { path, offset: 0, source }),
            Ok(bytes) => bytes.try_into().map_err(|_| other_kind(bytes, &path))?,
        };
        let (magic, size) = head.split_at(8);
        let endian = endian(magic.try_into().unwrap_or(&[0; 8])).ok_or_else(|| other_kind(&head, &path))?;
        let mut bytes = Bytes::new(size, 8, endian);
        let size =
            bytes.u64("the header's size").map_err(|error| FileError::Malformed { path: path.clone(), error })?;
        let is_pipe = match size {
            PIPE_HEADER_BYTES => true,
            FILE_HEADER_BYTES => false,
            size => return Err(FileError::Malformed { path, error: bytes.bad("the header's size", size) }),
        };
        Ok(Walker {
            reader,
            path,
            offset: PIPE_HEADER_BYTES,
            end: u64::MAX,
            is_pipe,
            torn_at: None,
            unsized_data: false,
            session: Session::new(endian),
            ids: Vec::new(),
            features: Features::default(),
            expander: None,
            is_frame_lost: false,
            damage: Damage::default(),
            buffer: Vec::new(),
            aux: Vec::new(),
            problems: Vec::new(),
            current: None,
            parts: Vec::new(),
        })
    }

    /// Goes on with the records of these files after its own, in this order. Each thread's records are in order of time only among themselves.
    #[must_use]
    pub fn with_parts(mut self, mut parts: Vec<Part<R>>) -> Walker<R> {
        parts.reverse();
        self.parts = parts;
        self
    }

    /// Whether files with older records may still come.
    #[must_use]
    pub fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Goes on with the next part; false if there is none.
    fn begin_part(&mut self) -> bool {
        let Some(part) = self.parts.pop() else { return false };
        if let Some(at) = self.torn_at.take() {
            self.problems.push(format!("{} ends in the middle of a record at byte {at}", self.path.display()));
        }
        // Each thread compressed its own records.
        (self.expander, self.is_frame_lost) = (None, false);
        (self.reader, self.path, self.offset, self.end) = (Block::new(part.reader), part.path, 0, part.length);
        true
    }

    fn add_event(&mut self, attr: EventAttr, ids: Vec<u64>) {
        self.session.add(attr, ids.iter().copied());
        self.ids.push(ids);
    }

    /// The events that have been described so far.
    #[must_use]
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Ids of an event, in the order in which it was opened: CPU by CPU.
    #[must_use]
    pub fn ids(&self, event: usize) -> &[u64] {
        self.ids.get(event).map_or(&[], Vec::as_slice)
    }

    /// The feature sections that have been read so far.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Whether this is a stream's form.
    #[must_use]
    pub fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    /// Byte order of the machine that recorded.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.session.endian()
    }

    /// Where the file ends in the middle of a record, if it does.
    #[must_use]
    pub fn torn_at(&self) -> Option<u64> {
        self.torn_at
    }

    /// Whether the recorder was killed: it never wrote how long the records are.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.unsized_data
    }

    /// What could not be read and did not stop the walk, in words.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// What was damaged so far, and skipped.
    #[must_use]
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// The file's name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn malformed(&self) -> impl Fn(DecodeError) -> FileError + use<R> {
        let path = self.path.clone();
        move |error| FileError::Malformed { path: path.clone(), error }
    }

    fn read_vec(&mut self, bytes: usize) -> Result<Vec<u8>, FileError> {
        let (path, offset) = (&self.path, self.offset);
        let fail = |source| FileError::Io { path: path.clone(), offset, source };
        let read = self.reader.next(bytes).map_err(fail)?;
        if read.len() < bytes {
            return Err(fail(ErrorKind::UnexpectedEof.into()));
        }
        self.offset += bytes as u64;
        Ok(read.to_vec())
    }

    /// Reads `bytes` more, which [`Block::last`] then has; false where the file ends before that.
    #[inline]
    fn fill(&mut self, bytes: usize) -> Result<bool, FileError> {
        let count = match self.reader.next(bytes) {
            Ok(read) => read.len(),
            Err(source) => return Err(FileError::Io { path: self.path.clone(), offset: self.offset, source }),
        };
        if count < bytes {
            if count > 0 || bytes > Header::BYTES {
                self.torn_at = Some(self.offset + count as u64);
            }
            return Ok(false);
        }
        self.offset += bytes as u64;
        Ok(true)
    }

    /// The next record; `None` at the end. Compressed ones are given expanded, and those that describe events and machine are taken in. Damage is
    /// skipped, and counted in [`Walker::damage`].
    ///
    /// # Errors
    /// If the file cannot be read.
    #[allow(clippy::should_implement_trait)] // What it gives lives in the walker.
    pub fn next(&mut self) -> Result<Option<Item<'_>>, FileError> {
        loop {
            if let Some((header, length)) = self.expanded_header() {
                let offset = self.offset;
                let Some(expander) = &mut self.expander else { return Ok(None) };
                expander.take(Header::BYTES);
                self.buffer.clear();
                self.buffer.extend_from_slice(expander.take(length));
                self.current = Some((header, offset, true));
                self.aux.clear();
                return Ok(self.current());
            }
            let at = self.offset;
            if at.saturating_add(Header::BYTES as u64) > self.end || !self.fill(Header::BYTES)? {
                if self.begin_part() {
                    continue;
                }
                return Ok(None);
            }
            let header = Header::decode(&mut Bytes::new(self.reader.last(), at, self.endian())).ok();
            let header = match header {
                Some(header) if resync::is_sound(header) || self.is_newer(header)? => header,
                _ => {
                    self.skip_damage(header)?;
                    continue;
                }
            };
            let body = usize::from(header.size) - Header::BYTES;
            if self.offset.saturating_add(body as u64) > self.end {
                self.skip_cut(at)?;
                continue;
            }
            if !self.fill(body)? {
                self.reader.put_back();
                self.skip_cut(at)?;
                continue;
            }
            self.current = Some((header, at + Header::BYTES as u64, false));
            self.aux.clear();
            if is_about_the_file(header.kind) && self.take_in(header, at)? {
                continue;
            }
            return Ok(self.current());
        }
    }

    /// The record that [`Walker::next`] gave last.
    #[must_use]
    pub fn current(&self) -> Option<Item<'_>> {
        let (header, offset, is_expanded) = self.current?;
        let body = if is_expanded { &self.buffer } else { self.reader.last() };
        Some(Item { header, body, offset, aux: &self.aux })
    }

    /// Header of the next record that was expanded, and the length of its body.
    fn expanded_header(&mut self) -> Option<(Header, usize)> {
        let waiting = self.expander.as_ref()?.waiting();
        if waiting.len() < Header::BYTES {
            return None;
        }
        let header = Header::decode(&mut Bytes::new(waiting, self.offset, self.endian())).ok();
        let Some(header) = header.filter(|&header| resync::is_sound(header) || resync::may_be_newer(header)) else {
            // The file's own headers are whole, so the compressed bytes are not: what else they become is not to be trusted.
            self.lose_frame(self.offset, 0);
            return None;
        };
        // The rest of it is in the next compressed record.
        let is_whole = waiting.len() >= usize::from(header.size);
        is_whole.then(|| (header, usize::from(header.size) - Header::BYTES))
    }

    /// Handles records that are about the file itself; true if there is nothing in it for others. Its body was read last.
    fn take_in(&mut self, header: Header, at: u64) -> Result<bool, FileError> {
        let (offset, endian) = (at + Header::BYTES as u64, self.endian());
        let body = self.reader.last().to_vec();
        let mut bytes = Bytes::new(&body, offset, endian);
        match header.kind {
            kind::HEADER_ATTR => {
                if let Err(error) = self.take_attr(&mut bytes) {
                    self.problems.push(format!("an event's description is damaged ({error})"));
                }
                Ok(true)
            }
            kind::HEADER_FEATURE => {
                let taken = bytes
                    .u64("a feature's number")
                    .and_then(|number| self.features.read(u32::try_from(number).unwrap_or(u32::MAX), &mut bytes));
                if let Err(error) = taken {
                    self.problems.push(format!("a section of the stream is damaged ({error})"));
                }
                Ok(true)
            }
            kind::HEADER_BUILD_ID => {
                match build_id(header.misc, &mut bytes) {
                    Ok(found) => self.features.build_ids.extend(found),
                    Err(error) => self.problems.push(format!("a build id of the stream is damaged ({error})")),
                }
                Ok(true)
            }
            kind::HEADER_TRACING_DATA => self.skip_tracing_data(&mut bytes).map(|()| true),
            kind::COMPRESSED | kind::COMPRESSED2 => {
                self.expand(header.kind, &mut bytes, at);
                Ok(true)
            }
            kind::AUXTRACE => {
                let size = bytes.u64("the size of a trace").unwrap_or(u64::MAX);
                if size > AUX_MAX || self.end < u64::MAX && size > self.end.saturating_sub(self.offset) {
                    return self.skip_trace(at).map(|()| true);
                }
                self.read_aux(size, offset)?;
                // What was read last is not the record any more.
                self.buffer = body;
                self.current = Some((header, offset, true));
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn take_attr(&mut self, bytes: &mut Bytes<'_>) -> Result<(), DecodeError> {
        let attr = EventAttr::decode(bytes)?;
        let count = bytes.left() as u64 / 8;
        let ids = bytes.words(count, "ids")?;
        self.add_event(attr, ids.iter().collect());
        Ok(())
    }

    fn skip_tracing_data(&mut self, bytes: &mut Bytes<'_>) -> Result<(), FileError> {
        let Ok(size) = bytes.u32("the size of the tracing data") else { return Ok(()) };
        let mut left = u64::from(size).next_multiple_of(8);
        while left > 0 {
            let step = left.min(1 << 16);
            if !self.fill(step as usize)? {
                break;
            }
            left -= step;
        }
        Ok(())
    }

    fn expand(&mut self, kind: u32, bytes: &mut Bytes<'_>, at: u64) {
        let length = self.offset - at;
        let mut piece = bytes.rest();
        if kind == kind::COMPRESSED2 {
            let mut inner = Bytes::new(piece, bytes.offset(), self.endian());
            let taken =
                inner.u64("the size of compressed records").and_then(|size| inner.take(size, "compressed records"));
            let Ok(taken) = taken else { return self.lose_frame(at, length) };
            piece = taken;
        }
        if self.is_frame_lost {
            if !piece.starts_with(&FRAME_MAGIC) {
                return self.damage.more(length, 1);
            }
            self.is_frame_lost = false;
            self.expander = None;
        }
        let begins = piece.starts_with(&FRAME_MAGIC);
        let is_expanded = self.push(piece)
            || begins && {
                // perf never ends a frame; where another one begins, the one before is over.
                self.expander = None;
                self.push(piece)
            };
        if !is_expanded {
            self.lose_frame(at, length);
        }
    }

    /// Expands a piece; false if it is none of the frame that goes on.
    fn push(&mut self, piece: &[u8]) -> bool {
        let expander = match &mut self.expander {
            Some(expander) => Ok(expander),
            none => Expander::new().map(|expander| none.insert(expander)),
        };
        expander.and_then(|expander| expander.push(piece)).is_ok()
    }

    /// A compressed piece of `bytes` bytes at `at` is damaged: what follows up to the next frame is lost with it.
    fn lose_frame(&mut self, at: u64, bytes: u64) {
        self.expander = None;
        self.is_frame_lost = true;
        self.damage.add(at, bytes, u64::from(bytes > 0));
    }

    /// Whether a record of a type that is not known here is one of a newer kernel or perf: then others follow it.
    fn is_newer(&mut self, header: Header) -> Result<bool, FileError> {
        if !resync::may_be_newer(header) {
            return Ok(false);
        }
        self.records_follow(usize::from(header.size) - Header::BYTES)
    }

    /// Whether records begin so many bytes further on, or the file ends there. Others of types that are not known may come first: perf writes some by the
    /// dozen.
    fn records_follow(&mut self, further: usize) -> Result<bool, FileError> {
        let (window, is_all) = Walker::window(&mut self.reader, &self.path, self.offset, self.end)?;
        let Some(mut rest) = window.get(further..) else { return Ok(false) };
        while let Ok(header) = Header::decode(&mut Bytes::new(rest, 0, self.session.endian()))
            && resync::may_be_newer(header)
            && let Some(behind) = rest.get(usize::from(header.size)..)
        {
            rest = behind;
        }
        Ok(rest.is_empty() && is_all || resync::begins(&self.session, rest, is_all))
    }

    /// What comes next, without taking it, and whether that is all there is.
    fn window<'a>(reader: &'a mut Block<R>, path: &Path, offset: u64, end: u64) -> Result<(&'a [u8], bool), FileError> {
        let left = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(WINDOW);
        let window = reader.peek(left);
        let window = window.map_err(|source| FileError::Io { path: path.to_owned(), offset, source })?;
        let is_all = window.len() < left || offset.saturating_add(left as u64) >= end;
        Ok((window, is_all))
    }

    /// Goes on behind a damaged header, which was read last: behind its record, if others follow that, else where records begin again.
    #[cold]
    fn skip_damage(&mut self, header: Option<Header>) -> Result<(), FileError> {
        let at = self.offset - Header::BYTES as u64;
        let body = header.map_or(0, |header| usize::from(header.size) - Header::BYTES);
        if header.is_some() && self.records_follow(body)? {
            self.fill(body)?;
            self.damage.add(at, self.offset - at, 1);
            return Ok(());
        }
        self.reader.put_back();
        self.offset = at;
        self.damage.add(at, 0, 0);
        self.scan(1)?;
        self.damage.more(self.offset - at, 0);
        Ok(())
    }

    /// Goes on where records begin, `least` bytes further on or behind that; false, at the end, if they do not.
    fn scan(&mut self, least: usize) -> Result<bool, FileError> {
        let mut from = least;
        loop {
            let (window, is_all) = Walker::window(&mut self.reader, &self.path, self.offset, self.end)?;
            let until = if is_all { window.len() } else { window.len() - resync::CHAIN_BYTES };
            let found = resync::find(&self.session, window, from, until, is_all);
            let skipped = found.unwrap_or(until);
            self.fill(skipped)?;
            if found.is_some() || is_all {
                return Ok(found.is_some());
            }
            from = 0;
        }
    }

    /// The record at `at` is longer than the file: either the file is cut, or the record's size is damaged and others follow.
    #[cold]
    fn skip_cut(&mut self, at: u64) -> Result<(), FileError> {
        self.torn_at = None;
        if self.scan(0)? {
            self.damage.add(at, self.offset - at, 1);
            return Ok(());
        }
        self.torn_at = Some(self.offset);
        self.end = self.offset;
        Ok(())
    }

    /// The trace behind the AUXTRACE record at `at` cannot be as long as that says.
    #[cold]
    fn skip_trace(&mut self, at: u64) -> Result<(), FileError> {
        let is_cut = !self.scan(0)?;
        if is_cut {
            self.torn_at = Some(self.offset);
        }
        self.damage.add(at, self.offset - at, 1);
        Ok(())
    }

    fn read_aux(&mut self, size: u64, offset: u64) -> Result<(), FileError> {
        let mut left = size as usize;
        while left > 0 {
            let step = left.min(AUX_STEP);
            let read = self.reader.next(step);
            let read = read.map_err(|source| FileError::Io { path: self.path.clone(), offset, source })?;
            self.aux.extend_from_slice(read);
            self.offset += read.len() as u64;
            if read.len() < step {
                self.torn_at = Some(self.offset);
                break;
            }
            left -= step;
        }
        Ok(())
    }
}

/// Whether records of a kind are looked at by the walker itself.
fn is_about_the_file(kind: u32) -> bool {
    matches!(
        kind,
        kind::HEADER_ATTR
            | kind::HEADER_FEATURE
            | kind::HEADER_BUILD_ID
            | kind::HEADER_TRACING_DATA
            | kind::COMPRESSED
            | kind::COMPRESSED2
            | kind::AUXTRACE
    )
}
