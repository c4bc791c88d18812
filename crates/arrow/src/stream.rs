//! A stream of the C stream interface over any source of batches. Each batch is made on demand, by one thread at a time, as the interface
//! prescribes.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use crate::abi::{ArrowArray, ArrowArrayStream, ArrowSchema, NULLABLE};
use crate::column::{Column, Field, batch, format, no_batch};

/// Most rows of a batch.
pub const BATCH_ROWS: usize = 1 << 16;

/// A source of batches.
pub trait Batches: Send {
    /// The columns, which are the same for every batch.
    fn fields(&self) -> Vec<Field>;
    /// The next rows, at most [`BATCH_ROWS`], by column; `None` at the end.
    ///
    /// # Errors
    /// A message, one sentence.
    fn next(&mut self) -> Result<Option<(usize, Vec<Column>)>, String>;
}

struct State {
    batches: Box<dyn Batches>,
    error: CString,
}

/// Makes an Arrow stream of these batches.
#[must_use]
pub fn stream(batches: Box<dyn Batches>) -> ArrowArrayStream {
    let state = Box::new(State { batches, error: CString::default() });
    ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(state).cast(),
    }
}

/// Makes an Arrow schema of these columns.
#[must_use]
pub fn schema(fields: &[Field]) -> ArrowSchema {
    let child = |field: &Field| {
        let flags = if field.is_nullable { NULLABLE } else { 0 };
        Box::into_raw(Box::new(schema_of(format(field.kind).as_ptr(), field.name, flags, Vec::new())))
    };
    schema_of(c"+s".as_ptr(), "", 0, fields.iter().map(child).collect())
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the interface calls this once, with a stream that we made.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<State>()));
        (*stream).release = None;
        (*stream).private_data = ptr::null_mut();
    }
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: a stream that we made and that is not released.
    unsafe { (*(*stream).private_data.cast::<State>()).error.as_ptr() }
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: as above; `out` is good for a write by the interface.
    unsafe {
        let state = &mut *(*stream).private_data.cast::<State>();
        state.answer(out, |state| Ok(schema(&state.batches.fields())))
    }
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as above.
    unsafe {
        let state = &mut *(*stream).private_data.cast::<State>();
        state.answer(out, |state| {
            let next = state.batches.next()?;
            Ok(next.map_or_else(no_batch, |(length, columns)| batch(length, columns)))
        })
    }
}

impl State {
    /// Runs a callback and writes its result to `out`; an error or a panic becomes an error number and a message.
    ///
    /// # Safety
    /// `out` is good for a write.
    unsafe fn answer<T>(&mut self, out: *mut T, work: impl FnOnce(&mut State) -> Result<T, String>) -> c_int {
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(self)));
        match made.unwrap_or_else(|_| Err("internal error in numapilot, please report it".to_owned())) {
            Ok(made) => {
                // SAFETY: by this function's contract. Nothing that was there is dropped: it is not ours.
                unsafe { ptr::write_unaligned(out, made) };
                0
            }
            Err(why) => {
                self.error = CString::new(why.replace('\0', " ")).unwrap_or_default();
                libc::EIO
            }
        }
    }
}

/// What a schema owns; freed by its `release`.
struct Owned {
    _name: CString,
    children: Vec<*mut ArrowSchema>,
}

fn schema_of(format: *const c_char, name: &str, flags: i64, children: Vec<*mut ArrowSchema>) -> ArrowSchema {
    let name = CString::new(name).unwrap_or_default();
    let text = name.as_ptr();
    let mut owned = Box::new(Owned { _name: name, children });
    ArrowSchema {
        format,
        name: text,
        metadata: ptr::null(),
        flags,
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: as for streams; children that were moved out have no `release` any more, the others release themselves when dropped.
    unsafe {
        (*schema).release = None;
        let owned = Box::from_raw((*schema).private_data.cast::<Owned>());
        for &child in &owned.children {
            drop(Box::from_raw(child));
        }
    }
}
