//! `c/numapilot_replica.h` in Rust. `tests/header.rs` holds the two together.

use std::ffi::c_int;
use std::ffi::c_void;

/// An opaque `numapilot_replica`.
#[repr(C)]
pub struct Replica {
    _private: [u8; 0],
}

/// The C library's `struct numapilot_replica_options`.
#[repr(C)]
pub struct ReplicaOptions {
    pub type_size: usize,
    pub flags: u32,
    pub pending_max: u32,
    pub reserved: [u64; 4],
}

/// The C library's `struct numapilot_replica_info`.
#[repr(C)]
pub struct ReplicaInfo {
    pub type_size: usize,
    pub version: u64,
    pub bytes: u64,
    pub nodes: u32,
    pub copies: u32,
    pub refused: u32,
    pub is_collapsed: u32,
    pub pending_versions: u64,
    pub pending_bytes: u64,
    pub reserved: [u64; 4],
}

/// The C library's `struct numapilot_replica_copy`.
#[repr(C)]
pub struct ReplicaCopy {
    pub type_size: usize,
    pub address: *const c_void,
    pub home_node: i32,
    pub refusal: i32,
    pub reserved: [u64; 4],
}

pub const UNPROTECTED: u32 = 1;
pub const COLLAPSED: u32 = 2;

unsafe extern "C" {
    pub fn numapilot_replica_create(bytes: usize, options: *const ReplicaOptions, replica: *mut *mut Replica) -> c_int;
    pub fn numapilot_replica_destroy(replica: *mut Replica) -> c_int;
    pub fn numapilot_replica_enter(replica: *const Replica, version: *mut u64) -> *const c_void;
    pub fn numapilot_replica_leave(replica: *const Replica);
    pub fn numapilot_replica_publish(replica: *mut Replica, content: *const c_void) -> c_int;
    pub fn numapilot_replica_write_begin(replica: *mut Replica, draft: *mut *mut c_void) -> c_int;
    pub fn numapilot_replica_write_commit(replica: *mut Replica) -> c_int;
    pub fn numapilot_replica_write_abort(replica: *mut Replica) -> c_int;
    pub fn numapilot_replica_collapse(replica: *mut Replica) -> c_int;
    pub fn numapilot_replica_replicate(replica: *mut Replica) -> c_int;
    pub fn numapilot_replica_info(replica: *mut Replica, info: *mut ReplicaInfo) -> c_int;
    pub fn numapilot_replica_copy_of(replica: *mut Replica, node: c_int, copy: *mut ReplicaCopy) -> c_int;
}
