//! Codes of traces that cannot be opened. A trace whose recorder is at work is busy, and nothing is written to it.

use std::ffi::{CStr, CString};
use std::fs::{self, File};

use numapilot_capi::{
    NUMAPILOT_BAD_TRACE, NUMAPILOT_BUSY, NUMAPILOT_IO, TraceHandle, numapilot_message, numapilot_trace_open,
};

#[test]
fn a_trace_that_is_still_being_recorded_is_busy() {
    let folder = tempfile::tempdir().expect("a folder");
    let raw = folder.path().join("run.numatrace/raw");
    fs::create_dir_all(&raw).expect("made");
    let held = File::create(raw.join("recorder.json")).expect("made");
    held.lock().expect("the lock that a recorder holds");
    // Names go without their ending, too.
    let name = folder.path().join("run");
    let path = CString::new(name.to_str().expect("a text")).expect("no zero byte");
    let mut trace = TraceHandle::default();
    // SAFETY: a text with a zero byte at its end, and a place to write to.
    let mut open = || unsafe { numapilot_trace_open(path.as_ptr(), &raw mut trace) };
    assert_eq!(open(), NUMAPILOT_BUSY);
    // SAFETY: a text of this thread's, good until its next call.
    let said = unsafe { CStr::from_ptr(numapilot_message()) }.to_string_lossy().into_owned();
    assert!(said.contains("still being recorded"), "{said}");
    drop(held);
    assert_eq!(open(), NUMAPILOT_BAD_TRACE);
    assert!(!folder.path().join("run.numatrace/meta.json").exists());
}

/// It was a damaged one to C programs, and one that cannot be read to those in Python.
#[test]
fn a_trace_that_the_system_does_not_read_is_not_called_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("run.numatrace");
    let path = CString::new(name.to_str().expect("a text")).expect("no zero byte");
    let mut trace = TraceHandle::default();
    // SAFETY: a text with a zero byte at its end, and a place to write to.
    let mut open = || unsafe { numapilot_trace_open(path.as_ptr(), &raw mut trace) };
    // To read a folder as a file is an error for every user, root too.
    fs::create_dir_all(name.join("meta.json")).expect("made");
    assert_eq!(open(), NUMAPILOT_IO);
    fs::remove_dir(name.join("meta.json")).expect("removed");
    fs::write(name.join("meta.json"), "no JSON").expect("written");
    assert_eq!(open(), NUMAPILOT_BAD_TRACE);
}
