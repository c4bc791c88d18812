//! Files of which blocks stay at hand. A symbol table names thousands of strings, and the library that reads it asks for each by itself: from the file that
//! would be two system calls for every name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::read::{ReadCache, ReadCacheOps};

/// Bytes of a block. What is at least as large is read past the blocks.
const BLOCK: usize = 16 << 10;
/// Most blocks that are kept: 32 MiB, more than the names of most programs.
const BLOCKS_MAX: usize = 2048;

/// A file that is read as an object file, in blocks.
pub(crate) type BlockCache = ReadCache<Blocks>;

/// Opens the file at `path`.
///
/// # Errors
/// The system refuses.
pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<BlockCache> {
    Ok(ReadCache::new(Blocks { file: File::open(path)?, position: 0, kept: HashMap::new() }))
}

/// A file, a position in it, and the blocks that were read, by number; only the file's last block may be shorter than others.
#[derive(Debug)]
pub(crate) struct Blocks {
    file: File,
    position: u64,
    kept: HashMap<u64, Vec<u8>>,
}

impl Blocks {
    fn read_some(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = if out.len() < BLOCK { self.read_kept(out)? } else { read_at(&self.file, out, self.position)? };
        self.position = self.position.saturating_add(bytes as u64);
        Ok(bytes)
    }

    /// Reads what the block at the position has of it.
    fn read_kept(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let number = self.position / BLOCK as u64;
        if self.kept.len() >= BLOCKS_MAX && !self.kept.contains_key(&number) {
            self.kept.clear();
        }
        let block = match self.kept.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => vacant.insert(block_at(&self.file, number * BLOCK as u64)?),
        };
        let rest = block.get((self.position % BLOCK as u64) as usize..).unwrap_or_default();
        let bytes = rest.len().min(out.len());
        out[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(bytes)
    }
}

/// The block that begins at `offset`.
fn block_at(file: &File, offset: u64) -> io::Result<Vec<u8>> {
    let mut block = vec![0; BLOCK];
    let mut filled = 0;
    while filled < BLOCK {
        match read_at(file, &mut block[filled..], offset + filled as u64)? {
            0 => break,
            bytes => filled += bytes,
        }
    }
    block.truncate(filled);
    Ok(block)
}

/// Reads once, and again where a signal came first (files on networks).
fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(out, offset) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

impl ReadCacheOps for Blocks {
    fn len(&mut self) -> Result<u64, ()> {
        Seek::seek(&mut self.file, SeekFrom::End(0)).map_err(|_| ())
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    fn read(&mut self, out: &mut [u8]) -> Result<usize, ()> {
        self.read_some(out).map_err(|_| ())
    }

    fn read_exact(&mut self, out: &mut [u8]) -> Result<(), ()> {
        let mut filled = 0;
        while filled < out.len() {
            match self.read_some(&mut out[filled..]) {
                Ok(0) | Err(_) => return Err(()),
                Ok(bytes) => filled += bytes,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use object::ReadRef;

    use super::*;

    /// Names of different lengths, one after the other, so that some lie across the blocks' borders.
    fn names() -> Vec<u8> {
        (0..3 * BLOCK / 8).flat_map(|number| format!("name{}{number}\0", "_".repeat(number % 7)).into_bytes()).collect()
    }

    #[test]
    fn blocks_give_what_the_file_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        let bytes = names();
        std::fs::write(&path, &bytes).unwrap();
        let (cache, plain) = (open(&path).unwrap(), ReadCache::new(File::open(&path).unwrap()));
        let (cache, plain, length) = (&cache, &plain, bytes.len() as u64);
        assert_eq!(cache.len(), Ok(length));
        for start in (0..length + 2).step_by(5).chain([length - 1]) {
            assert_eq!(cache.read_bytes_at_until(start..length, 0), plain.read_bytes_at_until(start..length, 0));
        }
        for start in (0..length + 2).step_by(997).chain([length - 1, u64::MAX - 1]) {
            for size in [1, 64, BLOCK as u64 - 1, BLOCK as u64, 2 * BLOCK as u64 + 1] {
                assert_eq!(cache.read_bytes_at(start, size), plain.read_bytes_at(start, size), "{start} {size}");
            }
        }
    }

    /// Each name was two system calls, and a debug file of the C library has ten thousand.
    #[test]
    fn names_of_one_block_are_read_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        std::fs::write(&path, b"first\0second\0").unwrap();
        let cache = &open(&path).unwrap();
        assert_eq!(cache.read_bytes_at_until(0..13, 0), Ok(&b"first"[..]));
        File::options().write(true).open(&path).unwrap().write_all_at(b"#############", 0).unwrap();
        assert_eq!(cache.read_bytes_at_until(6..13, 0), Ok(&b"second"[..]));
    }

    #[test]
    fn of_a_huge_file_few_blocks_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let bytes = (BLOCKS_MAX as u64 + 2) * BLOCK as u64;
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let mut blocks = Blocks { file: File::open(&path).unwrap(), position: 0, kept: HashMap::new() };
        for block in 0..=BLOCKS_MAX as u64 {
            blocks.position = block * BLOCK as u64;
            assert_eq!(blocks.read_some(&mut [1]).unwrap(), 1);
            assert!(blocks.kept.len() <= BLOCKS_MAX);
        }
        assert_eq!(blocks.kept.len(), 1);
    }
}
