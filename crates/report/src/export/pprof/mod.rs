//! A profile for pprof: `profile.proto`, gzipped. Field numbers are those of its public definition
//! (<https://github.com/google/pprof/blob/main/proto/profile.proto>).

mod accesses;
mod heap;
mod writer;

use std::io::Write;

use super::{Export, ExportError};
use writer::write_profile;

/// Writes the profile of the accesses.
pub fn write(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    let meta = export.trace().meta();
    let period = meta.sampling.as_ref().map(|sampling| sampling.period).filter(|&period| period > 0);
    write_profile(export, out, (accesses::default_type(export), period), accesses::samples)
}

/// Writes the profile of the heap.
pub fn write_heap(export: &Export<'_>, out: &mut dyn Write) -> Result<(), ExportError> {
    if export.trace().heap_peak().object.is_none() {
        return Err(ExportError::NoHeap);
    }
    write_profile(export, out, (heap::DEFAULT, None), heap::samples)
}
