//! Records that `perf record -z` compressed: one zstd stream over all records, split at arbitrary places.

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Expanded bytes that may wait at once: what a record of 64 KiB can honestly hold many times over.
const WAITING_MAX: usize = 256 << 20;
const STEP_BYTES: usize = 256 << 10;
/// First bytes of a frame: behind damage, nothing but a new frame can be expanded.
pub(super) const FRAME_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The stream, and what was expanded of it and not yet taken.
pub(super) struct Expander {
    decoder: Decoder<'static>,
    waiting: Vec<u8>,
    taken: usize,
}

impl Expander {
    pub(super) fn new() -> Result<Expander, String> {
        let decoder = Decoder::new().map_err(|error| error.to_string())?;
        Ok(Expander { decoder, waiting: Vec::new(), taken: 0 })
    }

    /// Decompresses a piece and appends the result to what is waiting.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), String> {
        self.waiting.drain(..self.taken);
        self.taken = 0;
        let mut input = InBuffer::around(piece);
        loop {
            let start = self.waiting.len();
            if start > WAITING_MAX {
                return Err(format!(
                    "a compressed record of {} bytes expands to more than {WAITING_MAX} bytes",
                    piece.len()
                ));
            }
            self.waiting.resize(start + STEP_BYTES, 0);
            let mut output = OutBuffer::around(&mut self.waiting[start..]);
            let result = self.decoder.run(&mut input, &mut output);
            let written = output.pos();
            self.waiting.truncate(start + written);
            result.map_err(|error| error.to_string())?;
            if input.pos() == piece.len() && written < STEP_BYTES {
                return Ok(());
            }
        }
    }

    /// Decompressed bytes that have not been taken yet.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.waiting[self.taken..]
    }

    /// The first `bytes` of it, which are then taken.
    pub(super) fn take(&mut self, bytes: usize) -> &[u8] {
        let start = self.taken;
        self.taken = (start + bytes).min(self.waiting.len());
        &self.waiting[start..self.taken]
    }
}
