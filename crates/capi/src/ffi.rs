//! The C boundary: errors as a code and a message for the calling thread, structs that begin with their size, and pointers that may be null.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use crate::text::c_string;

/// No error.
pub const NUMAPILOT_OK: c_int = 0;
/// An argument is null, out of range, or of a wrong size.
pub const NUMAPILOT_BAD_ARGUMENT: c_int = 1;
/// The handle is closed, or is not a handle of this kind.
pub const NUMAPILOT_BAD_HANDLE: c_int = 2;
/// The file does not exist, or cannot be read.
pub const NUMAPILOT_IO: c_int = 3;
/// The file is not a trace, is damaged, or has a newer format.
pub const NUMAPILOT_BAD_TRACE: c_int = 4;
/// There is no row with that number.
pub const NUMAPILOT_NOT_FOUND: c_int = 5;
/// Another thread is using this flow (one thread at a time may use a flow; any number may read a trace), or the trace is still being
/// recorded.
pub const NUMAPILOT_BUSY: c_int = 6;
/// Too many traces or flows are open.
pub const NUMAPILOT_TOO_MANY: c_int = 7;
/// An internal error of the library: please report it with its message.
pub const NUMAPILOT_INTERNAL: c_int = 8;

/// An error: its code and its message.
pub(crate) struct Failure {
    pub code: c_int,
    pub message: String,
}

pub(crate) fn failure(code: c_int, message: impl Into<String>) -> Failure {
    Failure { code, message: message.into() }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps the message for [`numapilot_message`] on this thread, and returns the code.
fn record(failure: Failure) -> c_int {
    let text = c_string(&failure.message);
    // The thread-local is gone while its thread is exiting: then only the code reports the error.
    let _ = MESSAGE.try_with(|message| message.try_borrow_mut().map(|mut message| *message = text));
    failure.code
}

/// Runs the body of an API function, and converts errors and panics to codes.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => NUMAPILOT_OK,
        Ok(Err(failure)) => record(failure),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            record(failure(NUMAPILOT_INTERNAL, format!("internal error in libnumapilot, please report it: {said}")))
        }
    }
}

/// The message of the last failure on this thread: one line of English. Never null. Valid until the next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn numapilot_message() -> *const c_char {
    MESSAGE.try_with(|message| message.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr())).unwrap_or(c"".as_ptr())
}

/// Name of a code, such as `NUMAPILOT_BAD_HANDLE`; "unknown code" for another number. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn numapilot_code_name(code: c_int) -> *const c_char {
    let name: &CStr = match code {
        NUMAPILOT_OK => c"NUMAPILOT_OK",
        NUMAPILOT_BAD_ARGUMENT => c"NUMAPILOT_BAD_ARGUMENT",
        NUMAPILOT_BAD_HANDLE => c"NUMAPILOT_BAD_HANDLE",
        NUMAPILOT_IO => c"NUMAPILOT_IO",
        NUMAPILOT_BAD_TRACE => c"NUMAPILOT_BAD_TRACE",
        NUMAPILOT_NOT_FOUND => c"NUMAPILOT_NOT_FOUND",
        NUMAPILOT_BUSY => c"NUMAPILOT_BUSY",
        NUMAPILOT_TOO_MANY => c"NUMAPILOT_TOO_MANY",
        NUMAPILOT_INTERNAL => c"NUMAPILOT_INTERNAL",
        _ => c"unknown code",
    };
    name.as_ptr()
}

/// Version of the library, as `0xMMmmpp`; the header's is `NUMAPILOT_API_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn numapilot_version() -> u32 {
    NUMAPILOT_API_VERSION
}

/// Version of this header: 0.1.0.
pub const NUMAPILOT_API_VERSION: u32 = 0x0000_0100;

/// Writes `value` through the caller's pointer; `name` is the argument's name in messages.
///
/// # Safety
/// `to` is null or good for a `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T, name: &str) -> Result<(), Failure> {
    if to.is_null() {
        return Err(failure(NUMAPILOT_BAD_ARGUMENT, format!("{name} is null")));
    }
    // SAFETY: not null, so good for a `T` by this function's contract.
    unsafe { ptr::write_unaligned(to, value) };
    Ok(())
}

/// A struct that begins with its own size, as the caller knows it.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize`, and any bytes are a value of it.
pub(crate) unsafe trait Versioned: Copy {
    /// Smallest size in any version of the library. The caller's struct may be that small, or larger than ours.
    const LEAST: usize;
    fn set_size(&mut self, bytes: usize);
}

/// Structs that are `repr(C)`, have a `type_size: usize` in front, and take any bytes in their other fields. `grown by FIELD`: a struct that had no such field,
/// and none behind it, in an earlier version, so that programs that were built with that one keep working.
macro_rules! versioned {
    ($row:ident, grown by $field:ident) => {
        $crate::ffi::versioned!(@ $row, std::mem::offset_of!($row, $field));
    };
    (@ $row:ident, $least:expr) => {
        // SAFETY: each struct that is listed with this macro meets the conditions above.
        unsafe impl $crate::ffi::Versioned for $row {
            const LEAST: usize = $least;
            fn set_size(&mut self, bytes: usize) {
                self.type_size = bytes;
            }
        }
    };
    ($($row:ident),*) => {$(
        $crate::ffi::versioned!(@ $row, size_of::<$row>());
    )*};
}
pub(crate) use versioned;

/// Fills the caller's struct. Fields that the caller does not know are left out; those that we do not know become 0: nobody is to read what was there before.
///
/// # Safety
/// `to` is null or points to a struct whose first word is its size.
pub(crate) unsafe fn fill<T: Versioned>(to: *mut T, mut value: T, name: &str) -> Result<(), Failure> {
    // SAFETY: by this function's contract.
    let theirs = unsafe { their_size(to.cast_const(), name)? };
    value.set_size(theirs);
    // SAFETY: both are good for the smaller of the two sizes, and do not overlap.
    unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), to.cast::<u8>(), theirs.min(size_of::<T>())) };
    if theirs > size_of::<T>() {
        // SAFETY: the caller's `type_size` states that this many bytes exist.
        unsafe { to.cast::<u8>().add(size_of::<T>()).write_bytes(0, theirs - size_of::<T>()) };
    }
    Ok(())
}

/// Reads the caller's struct: fields that the caller does not know stay as in `defaults`; those that we do not know must be zero.
///
/// # Safety
/// `from` is null or points to a struct whose first word is its size.
pub(crate) unsafe fn take<T: Versioned>(from: *const T, defaults: T, name: &str) -> Result<T, Failure> {
    // SAFETY: by this function's contract.
    let theirs = unsafe { their_size(from, name)? };
    let mut value = defaults;
    // SAFETY: as in `fill`.
    unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut value).cast::<u8>(), theirs.min(size_of::<T>())) };
    // SAFETY: the caller's `type_size` states that this many bytes exist.
    let more = (size_of::<T>()..theirs).any(|at| unsafe { from.cast::<u8>().add(at).read() } != 0);
    if more {
        return Err(failure(
            NUMAPILOT_BAD_ARGUMENT,
            format!("{name} sets a field that this version of libnumapilot does not know"),
        ));
    }
    Ok(value)
}

/// # Safety
/// `at` is null or points to a struct whose first word is its size.
unsafe fn their_size<T: Versioned>(at: *const T, name: &str) -> Result<usize, Failure> {
    const MOST: usize = 4096;
    if at.is_null() {
        return Err(failure(NUMAPILOT_BAD_ARGUMENT, format!("{name} is null")));
    }
    // SAFETY: not null, and the first word is there by the contract.
    let bytes = unsafe { at.cast::<usize>().read_unaligned() };
    if !(T::LEAST..=MOST).contains(&bytes) {
        return Err(failure(
            NUMAPILOT_BAD_ARGUMENT,
            format!("{name}: type_size is {bytes}; set it to sizeof of the struct before the call"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Known {
        type_size: usize,
        value: u64,
    }

    crate::ffi::versioned!(Known);

    #[repr(C)]
    struct Newer {
        known: Known,
        later: u64,
    }

    /// They kept what was on the stack of a program that had a newer header than the library.
    #[test]
    fn fields_that_only_the_caller_knows_are_zero() {
        let mut newer = Newer { known: Known { type_size: size_of::<Newer>(), value: 1 }, later: u64::MAX };
        // SAFETY: it begins with its own size.
        let done = unsafe { fill((&raw mut newer).cast::<Known>(), Known { type_size: 0, value: 7 }, "row") };
        assert!(done.is_ok());
        assert_eq!((newer.known.type_size, newer.known.value, newer.later), (size_of::<Newer>(), 7, 0));
    }
}
