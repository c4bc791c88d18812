//! What a trace holds besides accesses: processes, threads, objects, sites, code locations and call stacks.
//!
//! Plain rows without behaviour. Names are shared (`Arc<str>`), because a million instances of one site have one name.

use std::sync::Arc;

use numapilot_host::VirtAddr;
use numapilot_machine::{CpuId, NodeId};
use numapilot_trace::ids::{ObjectId, Pid, ProcessIndex, StackId, ThreadIndex, Tid, TimeNs};
use numapilot_trace::record::{AllocKind, BlockSample, Counters};
use serde::Serialize;

use crate::thread_names::kernel_names;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum ObjectKind {
    /// A data symbol of a mapped binary (also thread-local storage templates).
    Static = 0,
    /// A heap block; each allocation is an instance.
    Heap = 1,
    /// An anonymous mapping made by the program.
    Anonymous = 2,
    /// Memory of an allocator (`[heap]`, arenas) that no block of the program covers.
    Allocator = 3,
    /// A mapped file.
    File = 4,
    /// A section of a binary: code, PLT, GOT, read-only data.
    Section = 5,
    /// A thread's stack.
    Stack = 6,
    /// Shared memory (System V or POSIX).
    Shared = 7,
    /// No object is known at that address.
    #[default]
    Unknown = 8,
    /// A block of a pool that the program carries itself, in memory that is an object of another kind.
    Pool = 9,
}

impl ObjectKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [ObjectKind; 10] = [
        ObjectKind::Static,
        ObjectKind::Heap,
        ObjectKind::Anonymous,
        ObjectKind::Allocator,
        ObjectKind::File,
        ObjectKind::Section,
        ObjectKind::Stack,
        ObjectKind::Shared,
        ObjectKind::Unknown,
        ObjectKind::Pool,
    ];

    /// Its word in reports, tables and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            ObjectKind::Static => "static",
            ObjectKind::Heap => "heap",
            ObjectKind::Anonymous => "anonymous",
            ObjectKind::Allocator => "allocator",
            ObjectKind::File => "file",
            ObjectKind::Section => "section",
            ObjectKind::Stack => "stack",
            ObjectKind::Shared => "shared",
            ObjectKind::Unknown => "unknown",
            ObjectKind::Pool => "pool",
        }
    }

    /// The kind with this word; `None` for another word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<ObjectKind> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A site: what all instances from one place in the source share. Index into [`crate::Trace::sites`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct SiteId(pub u32);

/// The origin and name of objects: an allocation site, a symbol, a file, a section, or "stacks of `worker`".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Site {
    /// Kind of its objects.
    pub kind: ObjectKind,
    /// Name of its objects: the variable to which the block is assigned, the symbol, or the file.
    pub name: Arc<str>,
    /// Function that allocates, or empty.
    pub function: Arc<str>,
    /// Source file that allocates or declares; empty where unknown.
    pub file: Arc<str>,
    /// Line in `file`; 0 where unknown.
    pub line: u32,
    /// Binary that holds the allocating code, the symbol or the section; empty where unknown.
    pub module: Arc<str>,
}

impl Site {
    /// Name of the mappings in which a Python interpreter keeps its objects of up to 512 bytes.
    pub const PYTHON_ARENAS: &str = "Python's small objects";

    /// `streamcluster.cpp:412` (the file's last component), or the module's name, or an empty string.
    #[must_use]
    pub fn place(&self) -> String {
        let base = |path: &str| path.rsplit('/').next().unwrap_or("").to_owned();
        match (self.file.is_empty(), self.line) {
            (false, 0) => base(&self.file),
            (false, line) => format!("{}:{line}", base(&self.file)),
            (true, _) => base(&self.module),
        }
    }
}

/// One object instance. It is live in the half-open interval from `birth` to `death`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Object {
    /// Id of the object: its row.
    pub id: ObjectId,
    /// Its site, which has its kind and name.
    pub site: SiteId,
    /// Process in which it was born. Children of a fork see the same instance until one of them frees it.
    pub process: ProcessIndex,
    /// First address.
    pub address: VirtAddr,
    /// Size in bytes.
    pub bytes: u64,
    /// Program time of birth; 0 for what existed when the recording began.
    pub birth: TimeNs,
    /// Program time of death in the process that made it; `None` if it lived until the end.
    pub death: Option<TimeNs>,
    /// Thread that freed or unmapped it; `None` if it lived to the end, or if its end was not recorded as such (also: traces before format 1.3).
    pub death_thread: Option<ThreadIndex>,
    /// Thread that allocated it (for a stack: the thread whose stack it is).
    pub thread: Option<ThreadIndex>,
    /// CPU on which that thread ran then.
    pub cpu: Option<CpuId>,
    /// Node of that CPU.
    pub node: Option<NodeId>,
    /// Call stack of the allocation; 0 where there is none.
    pub stack: StackId,
    /// The call that allocated it, for heap blocks.
    #[serde(skip)]
    pub alloc_kind: Option<AllocKind>,
    /// How it was chosen, for a block of a heap of which only samples are recorded.
    #[serde(skip)]
    pub sample: Option<BlockSample>,
}

/// A process image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Index of the process image, from 0.
    pub index: ProcessIndex,
    /// Kernel's process id.
    pub pid: Pid,
    /// Process that forked or exec'ed it, if recorded.
    pub parent: Option<ProcessIndex>,
    /// Whether it replaced its parent by exec.
    pub by_exec: bool,
    /// Path of the executable.
    pub exe: Arc<str>,
    /// Command line.
    pub arguments: Vec<String>,
    /// Program time of its start.
    pub start: TimeNs,
    /// Program time of its end, if seen.
    pub end: Option<TimeNs>,
}

impl Process {
    /// Name of its command: that of the executable without its folder, as a plan's rules have it; empty where it is unknown.
    #[must_use]
    pub fn command(&self) -> &str {
        self.exe.rsplit('/').next().unwrap_or_default()
    }
}

/// A thread and its exact totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its number, in creation order.
    pub index: ThreadIndex,
    /// Its process.
    pub process: ProcessIndex,
    /// Kernel's thread id.
    pub tid: Tid,
    /// Its name, or empty.
    pub name: Arc<str>,
    /// Its start function, or empty.
    pub start_function: Arc<str>,
    /// Thread that created it.
    pub parent: Option<ThreadIndex>,
    /// CPU it started on.
    pub cpu: Option<CpuId>,
    /// Node of that CPU.
    pub node: Option<NodeId>,
    /// Program time of its start.
    pub start: TimeNs,
    /// Program time of its end, if seen.
    pub end: Option<TimeNs>,
    /// Its stack, as an object.
    pub stack_object: Option<ObjectId>,
    /// Its last exact totals, if the engine counts.
    pub counters: Option<Counters>,
}

impl Thread {
    /// What the kernel, and so a planner, may have of its name: the name itself, or, of one longer than the kernel keeps, which a runtime told, what runtimes
    /// leave of it.
    #[must_use]
    pub fn kernel_names(&self) -> Vec<String> {
        kernel_names(&self.name)
    }
}

/// Exact totals of one thread at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountersAt {
    /// Program time of the reading.
    pub time: TimeNs,
    /// Thread whose totals these are.
    pub thread: ThreadIndex,
    /// Node the thread ran on up to this moment.
    pub node: Option<NodeId>,
    /// Totals since the thread's start.
    pub totals: Counters,
}

/// Why pages got the home that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementCause {
    /// They were placed on the node of the thread that touched them first.
    #[default]
    FirstTouch,
    /// A memory policy or a full node placed them elsewhere than on the first-touch node.
    Policy,
    /// They were moved.
    Moved,
    /// They were placed before the recording.
    Found,
    /// The first toucher was not recorded: their home is unknown, and `node` is that of the first thread that was seen to access them.
    UnknownToucher,
}

impl PlacementCause {
    /// The cause with this word in the tables; [`PlacementCause::FirstTouch`] for an unknown word.
    #[must_use]
    pub fn from_word(word: &str) -> PlacementCause {
        match word {
            "policy" => PlacementCause::Policy,
            "moved" => PlacementCause::Moved,
            "found" => PlacementCause::Found,
            "unknown_toucher" => PlacementCause::UnknownToucher,
            _ => PlacementCause::FirstTouch,
        }
    }

    /// Whether a first touch placed the page, on whichever node.
    #[must_use]
    pub fn is_first(self) -> bool {
        matches!(self, PlacementCause::FirstTouch | PlacementCause::Policy)
    }
}

/// A run of pages that got a home, or changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Program time of the placement.
    pub time: TimeNs,
    /// Thread that touched the pages first, set their policy, or moved them.
    pub thread: ThreadIndex,
    /// First address of the first page.
    pub address: VirtAddr,
    /// Number of pages of 4096 bytes.
    pub pages: u32,
    /// Home node of the pages from now on.
    pub node: NodeId,
    /// Why the pages got this home.
    pub cause: PlacementCause,
    /// Object that was live there then.
    pub object: Option<ObjectId>,
}

/// A wait for another thread, a lock, or time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// Thread that waited.
    pub thread: ThreadIndex,
    /// Kind of the wait, in the trace format's words: `join`, `mutex`, `barrier`, `sleep`, ...
    pub kind: Arc<str>,
    /// Address of the lock or barrier; for joins the other thread's index or process's number.
    pub object: u64,
    /// Program time at which it began.
    pub began: TimeNs,
    /// Program time at which it ended.
    pub ended: TimeNs,
}

/// A code address that was resolved once: index into [`crate::Trace::locations`]. 0 is "unknown".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LocationId(pub u32);

/// One code address with the functions at it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Location {
    /// Path of the binary, or `[vdso]`, `[anon]`, `[unmapped]` (no memory was known there), `[data of NAME]` (no code of this binary), `[jit]` (generated
    /// at run time, with names), `[python]` or `[java]` (run by an interpreter); empty where unknown.
    pub module: Arc<str>,
    /// Offset in the binary (address minus load bias); the address itself where there is no binary.
    pub offset: u64,
    /// Functions at that address, innermost inlined one first; the last one is the function that has the code. Never empty:
    /// an unresolved address has one frame named `module+0xoffset`.
    pub frames: Vec<Frame>,
}

impl Location {
    /// The module of code that was generated at run time, and whose names the runtime wrote down.
    pub(crate) const GENERATED: &str = "[jit]";
    /// The module of addresses at which the process was not known to have any memory.
    pub(crate) const UNMAPPED: &str = "[unmapped]";
    /// The module of functions that a Python interpreter runs.
    pub(crate) const PYTHON: &str = numapilot_symbols::PYTHON;

    /// Whether the program generated this code while it ran, and its name is known.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        &*self.module == Location::GENERATED
    }

    /// The module of methods that a Java virtual machine runs.
    pub(crate) const JAVA: &str = numapilot_symbols::JAVA;

    /// Whether this is a place in a function of a Python interpreter or a Java virtual machine, and no address.
    #[must_use]
    pub fn is_interpreted(&self) -> bool {
        [Location::PYTHON, Location::JAVA].contains(&&*self.module)
    }

    /// The innermost function that is not of the libraries that programs are built on: its place in `frames`. Memory that holds no code of a known name
    /// has none: an address there in a call stack is most often not code at all.
    #[must_use]
    pub fn own_frame(&self) -> Option<usize> {
        if self.is_generated() || self.is_interpreted() {
            return Some(0);
        }
        let is_own = |frame: &Frame| !numapilot_symbols::is_machinery(&self.module, &frame.file, &frame.function);
        if self.module.starts_with('[') { None } else { self.frames.iter().position(is_own) }
    }
}

/// One function at a code address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    /// Demangled name.
    pub function: Arc<str>,
    /// Source file, or empty.
    pub file: Arc<str>,
    /// Line in `file`, or 0.
    pub line: u32,
    /// Column in bytes, from 1; 0 where the compiler wrote none.
    pub column: u32,
    /// Whether it was inlined into the next frame.
    pub inlined: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_the_executable_without_its_folder() {
        let command = |exe: &str| Process { exe: exe.into(), ..Process::default() }.command().to_owned();
        assert_eq!(["/usr/bin/cat", "cat", "", "/tmp/"].map(command), ["cat", "cat", "", ""]);
    }

    #[test]
    fn the_causes_of_the_tables_are_known() {
        use numapilot_trace::wire::layout;

        let codes = [
            (layout::PLACED_FIRST_TOUCH, PlacementCause::FirstTouch),
            (layout::PLACED_POLICY, PlacementCause::Policy),
            (layout::PLACED_MOVED, PlacementCause::Moved),
            (layout::PLACED_FOUND, PlacementCause::Found),
            (layout::PLACED_UNKNOWN, PlacementCause::UnknownToucher),
        ];
        for (code, cause) in codes {
            assert_eq!(PlacementCause::from_word(layout::place_cause_name(code as u8)), cause);
        }
    }
}
