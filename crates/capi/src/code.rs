//! Call stacks and code addresses: resolved addresses with their functions, the innermost inlined one first.

use std::ffi::{c_char, c_int};

use numapilot_flows::LocationId;
use numapilot_trace::ids::StackId;

use crate::ffi::*;
use crate::trace::{TraceHandle, opened};

/// One function at a code address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FrameRow {
    /// Set to sizeof(struct numapilot_frame).
    pub type_size: usize,
    /// Demangled name; for an address that could not be resolved, `module+0xoffset`.
    pub function: *const c_char,
    /// Source file, or empty.
    pub file: *const c_char,
    /// Path of the binary, or empty.
    pub module: *const c_char,
    /// Offset of the address in the binary.
    pub offset: u64,
    /// Line in `file`, or 0.
    pub line: u32,
    /// 1: it was inlined into the next frame of the same location.
    pub is_inlined: u32,
}

versioned!(FrameRow);

/// Gets a function at a code address: number `depth`, from 0 (the innermost inlined one) to the function that contains the code; NUMAPILOT_NOT_FOUND beyond.
///
/// # Safety
/// `frame` is null or points to a struct whose `type_size` is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_frame_at(
    trace: TraceHandle,
    location: u32,
    depth: usize,
    frame: *mut FrameRow,
) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        let none = || failure(NUMAPILOT_NOT_FOUND, format!("location {location} has no frame {depth}"));
        let (module, texts) = open.locations.get(location as usize).ok_or_else(none)?;
        let (function, file) = texts.get(depth).ok_or_else(none)?;
        let found = open.trace.location(LocationId(location));
        let row = FrameRow {
            type_size: 0,
            function: open.texts.pointer(*function),
            file: open.texts.pointer(*file),
            module: open.texts.pointer(*module),
            offset: found.offset,
            line: found.frames[depth].line,
            is_inlined: u32::from(found.frames[depth].inlined),
        };
        // SAFETY: by this function's contract.
        unsafe { fill(frame, row, "frame") }
    })
}

/// Gets a call stack: up to `capacity` locations, innermost first; `*count` is how many it has, which may be more. Stack 0 is unknown and empty.
///
/// # Safety
/// `locations` is null or good for `capacity` writes; `count` is null or good for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn numapilot_stack_at(
    trace: TraceHandle,
    stack: u32,
    locations: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    guarded(|| {
        let open = opened(trace)?;
        if stack as usize >= open.trace.stack_count() {
            return Err(failure(NUMAPILOT_NOT_FOUND, format!("there is no stack {stack}")));
        }
        let found = open.trace.stack(StackId(stack));
        if locations.is_null() && capacity > 0 {
            return Err(failure(NUMAPILOT_BAD_ARGUMENT, "locations is null"));
        }
        for (at, location) in found.iter().take(capacity).enumerate() {
            // SAFETY: not null, and `at` is below `capacity`.
            unsafe { locations.add(at).write_unaligned(location.0) };
        }
        // SAFETY: by this function's contract.
        unsafe { put(count, found.len(), "count") }
    })
}
