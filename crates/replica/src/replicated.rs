//! [`Replicated`]: a slice with a copy on every node, read in sections and replaced by whole versions.

use std::ffi::c_int;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem;
use std::ops::Deref;
use std::ptr;
use std::slice;

use numapilot_machine::NodeId;

use crate::ffi;

/// Why a replica could not be made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not even one copy could be made; the previous version remains current.
    #[error("no memory for one copy of the replica: free memory or raise the process's limits, and publish again")]
    OutOfMemory,
    /// The wait for readers would wait for the calling thread.
    #[error("this thread is inside a read section, or is already writing: end that section first")]
    WouldDeadlock,
    /// Nothing to replicate, or more than there is address space for.
    #[error("a replica must have at least one byte and fit into the address space")]
    BadSize,
    /// No node of that number takes part.
    #[error("this machine has no such node, or this process may not use it")]
    NoSuchNode,
    /// Another error of the system.
    #[error("a system call failed with errno {0}")]
    System(i32),
}

/// Settings of a [`Replicated`]; the default protects copies and replicates at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Keep one copy until [`Replicated::replicate`] is called.
    pub starts_collapsed: bool,
    /// Leave published copies writable memory (saves a system call per copy).
    pub is_unprotected: bool,
    /// Replaced versions that may wait for readers before writers do; 0: 4.
    pub pending_max: u32,
}

/// The state of a [`Replicated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Number of the current version.
    pub version: u64,
    /// Nodes that should have a copy.
    pub nodes: u32,
    /// Different copies that the current version has.
    pub copies: u32,
    /// Nodes whose copy could not be made at the last try; their threads share another node's.
    pub refused: u32,
    /// Whether only one copy is kept.
    pub is_collapsed: bool,
    /// Replaced versions not yet returned, as a reader may be inside.
    pub pending_versions: u64,
    /// Bytes of memory of these versions.
    pub pending_bytes: u64,
}

/// The copy that readers on one node get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOnNode {
    /// Where it lies; for tools: gone as soon as something is published.
    pub address: usize,
    /// For which node it was made: the node itself, or the one it shares a copy with.
    pub home_node: NodeId,
    /// Why the node has none of its own, where that was tried.
    pub refusal: Option<Error>,
}

/// A slice of plain values with a copy in the memory of every node that has CPUs.
///
/// Linearizable: publishing and updating take effect at one instant between call and return, and a section holds the version that was current at one
/// instant within [`Replicated::read`]. Readers never wait. See the crate's documentation.
///
/// ```
/// # fn main() -> Result<(), numapilot_replica::Error> {
/// let table = numapilot_replica::Replicated::new(&[1_u64, 2, 3])?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| assert_eq!(table.read().iter().sum::<u64>() % 6, 0));
///     }
///     table.update(|rows| rows.iter_mut().for_each(|row| *row *= 2))
/// })?;
/// assert_eq!(*table.read(), [2, 4, 6]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Replicated<T: Copy + Send + Sync + 'static> {
    replica: *mut ffi::Replica,
    length: usize,
    values: PhantomData<[T]>,
}

// SAFETY: the C library may be called from any thread; what is shared are values of T by reference (Sync) and copies of them (Send).
unsafe impl<T: Copy + Send + Sync + 'static> Send for Replicated<T> {}
// SAFETY: as above.
unsafe impl<T: Copy + Send + Sync + 'static> Sync for Replicated<T> {}

/// A read section: the content as this node's copy, whole and unchanged until it is dropped. Stays with its thread.
#[derive(Debug)]
pub struct Section<'a, T: Copy + Send + Sync + 'static> {
    owner: &'a Replicated<T>,
    content: *const T,
    version: u64,
}

impl<T: Copy + Send + Sync + 'static> Replicated<T> {
    /// Copies `content` to every node.
    ///
    /// # Errors
    ///
    /// [`Error::BadSize`] for an empty slice or values of no size, [`Error::OutOfMemory`].
    pub fn new(content: &[T]) -> Result<Replicated<T>, Error> {
        Replicated::with_options(content, Options::default())
    }

    /// The same with settings.
    ///
    /// # Errors
    ///
    /// The errors of [`Replicated::new`].
    pub fn with_options(content: &[T], options: Options) -> Result<Replicated<T>, Error> {
        // Copies begin at a page.
        assert!(mem::align_of::<T>() <= 4096, "values with an alignment above a page cannot be replicated");
        let mut flags = if options.is_unprotected { ffi::UNPROTECTED } else { 0 };
        if options.starts_collapsed {
            flags |= ffi::COLLAPSED;
        }
        let wanted = ffi::ReplicaOptions {
            type_size: mem::size_of::<ffi::ReplicaOptions>(),
            flags,
            pending_max: options.pending_max,
            reserved: [0; 4],
        };
        let mut replica = ptr::null_mut();
        // SAFETY: both pointers are to live values of the types that the header names.
        check(unsafe {
            ffi::numapilot_replica_create(mem::size_of_val(content), &raw const wanted, &raw mut replica)
        })?;
        let made = Replicated { replica, length: content.len(), values: PhantomData };
        made.publish(content)?;
        Ok(made)
    }

    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: there is no replica of nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Begins a read section on this node's copy. Never fails, never waits. A section that is forgotten (`mem::forget`) keeps its memory until its
    /// thread ends, and dropping the replica waits for that.
    #[must_use]
    pub fn read(&self) -> Section<'_, T> {
        let mut version = 0;
        // SAFETY: the replica lives as long as `self`, which the section borrows.
        let content = unsafe { ffi::numapilot_replica_enter(self.replica, &raw mut version) };
        Section { owner: self, content: content.cast(), version }
    }

    /// Replaces the content. Waits for its turn among writers, and for readers where too many versions wait for them.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]: the old version stays. [`Error::WouldDeadlock`]: this thread is inside a section that the wait would wait for.
    ///
    /// # Panics
    ///
    /// When `content` has another length.
    pub fn publish(&self, content: &[T]) -> Result<(), Error> {
        assert_eq!(content.len(), self.length, "a replica keeps its length");
        // SAFETY: as many bytes as the replica was made for lie at the pointer.
        check(unsafe { ffi::numapilot_replica_publish(self.replica, content.as_ptr().cast()) })
    }

    /// Changes a private draft of the current content and publishes it: collapse to the new version, then a copy to every node. If `change` panics,
    /// nothing has happened.
    ///
    /// # Errors
    ///
    /// As [`Replicated::publish`]; then nothing has happened either.
    pub fn update<R>(&self, change: impl FnOnce(&mut [T]) -> R) -> Result<R, Error> {
        let mut draft: *mut c_void = ptr::null_mut();
        // SAFETY: the replica lives.
        check(unsafe { ffi::numapilot_replica_write_begin(self.replica, &raw mut draft) })?;
        let turn = Turn(self.replica);
        // SAFETY: the draft is private to this thread until the turn ends, page-aligned, and holds `length` values, as it is a copy of published ones.
        let result = change(unsafe { slice::from_raw_parts_mut(draft.cast::<T>(), self.length) });
        // SAFETY: this thread is writing.
        check(unsafe { ffi::numapilot_replica_write_commit(self.replica) })?;
        mem::forget(turn);
        Ok(result)
    }

    /// Keeps one copy from now on: for times of many writes or little memory.
    ///
    /// # Errors
    ///
    /// The errors of [`Replicated::publish`].
    pub fn collapse(&self) -> Result<(), Error> {
        // SAFETY: the replica lives.
        check(unsafe { ffi::numapilot_replica_collapse(self.replica) })
    }

    /// Back to a copy on every node; tries again where one was refused.
    ///
    /// # Errors
    ///
    /// The errors of [`Replicated::publish`].
    pub fn replicate(&self) -> Result<(), Error> {
        // SAFETY: the replica lives.
        check(unsafe { ffi::numapilot_replica_replicate(self.replica) })
    }

    /// The present state.
    #[must_use]
    pub fn info(&self) -> Info {
        // SAFETY: plain numbers, for which zero is a value.
        let mut info: ffi::ReplicaInfo = unsafe { mem::zeroed() };
        info.type_size = mem::size_of::<ffi::ReplicaInfo>();
        // SAFETY: the size is told; it cannot fail then.
        unsafe { ffi::numapilot_replica_info(self.replica, &raw mut info) };
        Info {
            version: info.version,
            nodes: info.nodes,
            copies: info.copies,
            refused: info.refused,
            is_collapsed: info.is_collapsed != 0,
            pending_versions: info.pending_versions,
            pending_bytes: info.pending_bytes,
        }
    }

    /// The copy that readers on `node` get.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchNode`].
    pub fn copy_of(&self, node: NodeId) -> Result<CopyOnNode, Error> {
        // SAFETY: plain numbers and a pointer, for which zero is a value.
        let mut copy: ffi::ReplicaCopy = unsafe { mem::zeroed() };
        copy.type_size = mem::size_of::<ffi::ReplicaCopy>();
        // SAFETY: the size is told.
        check(unsafe { ffi::numapilot_replica_copy_of(self.replica, c_int::from(node.0), &raw mut copy) })?;
        // One that takes part: the kernel's number.
        let home_node = NodeId(copy.home_node as u16);
        Ok(CopyOnNode { address: copy.address as usize, home_node, refusal: check(copy.refusal).err() })
    }
}

impl<T: Copy + Send + Sync + 'static> Drop for Replicated<T> {
    fn drop(&mut self) {
        // SAFETY: nobody borrows `self`, so no section of it is open. Where this thread is inside another replica's section, which the wait for
        // readers cannot tell apart, the memory is left.
        unsafe { ffi::numapilot_replica_destroy(self.replica) };
    }
}

/// A writer's turn, given up when dropped.
struct Turn(*mut ffi::Replica);

impl Drop for Turn {
    fn drop(&mut self) {
        // SAFETY: the replica outlives the turn, and this thread is the one writing.
        unsafe { ffi::numapilot_replica_write_abort(self.0) };
    }
}

impl<T: Copy + Send + Sync + 'static> Section<'_, T> {
    /// Which version this is, counted from 1: the content given to [`Replicated::new`].
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl<T: Copy + Send + Sync + 'static> Deref for Section<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: published copies hold `length` values and stay, unchanged, until the section ends.
        unsafe { slice::from_raw_parts(self.content, self.owner.length) }
    }
}

impl<T: Copy + Send + Sync + 'static> Drop for Section<'_, T> {
    fn drop(&mut self) {
        // SAFETY: a section was entered by this thread (the pointer in it keeps it from being sent) and is left once.
        unsafe { ffi::numapilot_replica_leave(self.owner.replica) };
    }
}

fn check(result: c_int) -> Result<(), Error> {
    match -result {
        0 => Ok(()),
        libc::ENOMEM => Err(Error::OutOfMemory),
        libc::EDEADLK => Err(Error::WouldDeadlock),
        libc::EINVAL => Err(Error::BadSize),
        libc::ENODEV => Err(Error::NoSuchNode),
        other => Err(Error::System(other)),
    }
}
