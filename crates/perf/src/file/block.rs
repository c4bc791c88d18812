//! Reads a file in large blocks and hands out pieces that borrow from the block: only pieces across a block's end are copied.

use std::io::{ErrorKind, Read, Result, Seek, SeekFrom};

/// Bytes asked of the file at once.
const BLOCK_BYTES: usize = 1 << 20;

/// A buffered reader that hands out whole pieces and knows their place in the file.
pub(super) struct Block<R> {
    reader: R,
    bytes: Vec<u8>,
    /// Start of the last piece that was handed out; the next one begins at its end.
    last: usize,
    next: usize,
    /// Bytes of the block that were read.
    filled: usize,
    /// The reader has returned end of file.
    is_at_end: bool,
}

impl<R: Read> Block<R> {
    pub fn new(reader: R) -> Block<R> {
        Block { reader, bytes: Vec::new(), last: 0, next: 0, filled: 0, is_at_end: false }
    }

    /// The next `count` bytes; fewer only where the file ends.
    #[inline]
    pub fn next(&mut self, count: usize) -> Result<&[u8]> {
        if self.filled - self.next < count && !self.is_at_end {
            self.read_on(count)?;
        }
        self.last = self.next;
        self.next = self.filled.min(self.next + count);
        Ok(&self.bytes[self.last..self.next])
    }

    /// The bytes that the last [`Block::next`] returned.
    #[inline]
    pub fn last(&self) -> &[u8] {
        &self.bytes[self.last..self.next]
    }

    /// The next `count` bytes without taking them; fewer only where the file ends.
    pub fn peek(&mut self, count: usize) -> Result<&[u8]> {
        if self.filled - self.next < count && !self.is_at_end {
            self.read_on(count)?;
        }
        Ok(&self.bytes[self.next..self.filled.min(self.next + count)])
    }

    /// Puts what [`Block::next`] gave last back, so that it comes again.
    pub fn put_back(&mut self) {
        self.next = self.last;
    }

    /// Reads until `count` bytes are there, or the file ends.
    #[cold]
    fn read_on(&mut self, count: usize) -> Result<()> {
        self.bytes.copy_within(self.next..self.filled, 0);
        (self.last, self.next, self.filled) = (0, 0, self.filled - self.next);
        if self.bytes.len() < count.max(BLOCK_BYTES) {
            self.bytes.resize(count.max(BLOCK_BYTES), 0);
        }
        while self.filled < count {
            match self.reader.read(&mut self.bytes[self.filled..]) {
                Ok(0) => {
                    self.is_at_end = true;
                    break;
                }
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<R: Read + Seek> Block<R> {
    /// Moves to another place in the file and drops what is buffered.
    pub fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        (self.last, self.next, self.filled, self.is_at_end) = (0, 0, 0, false);
        self.reader.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn pieces_come_whole_across_the_ends_of_blocks() {
        let all: Vec<u8> = (0..3 * BLOCK_BYTES + 77).map(|at| (at % 251) as u8).collect();
        let mut block = Block::new(Cursor::new(all.clone()));
        let (mut at, mut size) = (0, 1);
        while at < all.len() {
            let piece = block.next(size).unwrap().to_vec();
            assert_eq!(piece, all[at..(at + size).min(all.len())]);
            assert_eq!(block.last(), piece);
            at += piece.len();
            size = (size * 7 + 13) % (BLOCK_BYTES + BLOCK_BYTES / 2) + 1;
        }
        assert!(block.next(5).unwrap().is_empty());
        block.seek(SeekFrom::Start(10)).unwrap();
        assert_eq!(block.next(3).unwrap(), &all[10..13]);
        assert_eq!(block.peek(BLOCK_BYTES + 5).unwrap(), &all[13..BLOCK_BYTES + 18]);
        assert_eq!(block.next(3).unwrap(), &all[13..16]);
        block.put_back();
        assert_eq!(block.next(5).unwrap(), &all[13..18]);
    }
}
