//! A table's open file. Several readers can read it at the same time, because each read says where and none moves a position, and what is put under the
//! file's name meanwhile does not matter to them.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

/// Bytes at a Parquet file's end: the length of its footer, and the format's mark.
const TAIL_BYTES: usize = 8;

/// The file and its size.
pub(super) struct Held {
    file: Arc<File>,
    bytes: u64,
}

impl Held {
    pub(super) fn new(file: File) -> io::Result<Held> {
        let bytes = file.metadata()?.len();
        Ok(Held { file: Arc::new(file), bytes })
    }

    /// Length of the footer as the file's end says it; 0 where the file cannot hold one.
    pub(super) fn footer_bytes(&self) -> io::Result<u64> {
        let mut tail = [0; TAIL_BYTES];
        let Some(at) = self.bytes.checked_sub(TAIL_BYTES as u64) else { return Ok(0) };
        self.file.read_exact_at(&mut tail, at)?;
        let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        Ok(if length <= at { length } else { 0 })
    }
}

impl Length for Held {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Held {
    type T = BufReader<Onwards>;

    fn get_read(&self, start: u64) -> Result<BufReader<Onwards>> {
        Ok(BufReader::new(Onwards { file: Arc::clone(&self.file), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // A damaged file can claim any length: memory is taken only for what is there.
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} of {}", self.bytes)));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

/// Reads the file from a position of its own on.
pub(super) struct Onwards {
    file: Arc<File>,
    at: u64,
}

impl Read for Onwards {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.file.read_at(buffer, self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
