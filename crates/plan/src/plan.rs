//! The types of a plan. They say what the file says, and nothing else: no addresses, no machine.

use crate::policy::{NodeSet, Policy};

/// A whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The file that it was read from, as the user named it; empty where it was made by a program.
    pub file: String,
    /// Comment lines at the head of the file: what it is for, and on which evidence. Written, and read back from the comments before the first key.
    pub about: Vec<String>,
    /// The program for which it was made. Informative.
    pub program: Option<String>,
    /// The machine for which it was made: a model's or a host's name. Informative.
    pub machine: Option<String>,
    /// Rules for memory. The first that matches an object decides.
    pub objects: Vec<ObjectRule>,
    /// Rules for threads. The first that matches a thread decides.
    pub threads: Vec<ThreadRule>,
    /// Rules for processes. The first that matches a process decides.
    pub processes: Vec<ProcessRule>,
}

/// Which objects, and where they go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRule {
    /// Shown in summaries.
    pub name: String,
    /// Comment lines under the rule's head: why it is there.
    pub evidence: Vec<String>,
    /// Which objects.
    pub matches: ObjectMatch,
    /// Where they go.
    pub policy: Policy,
    /// `Some(true)`: ask for large pages; `Some(false)`: forbid them; `None`: as the system is set.
    pub huge_pages: Option<bool>,
    /// Line in the file, from 1; 0: not read from one.
    pub line: usize,
}

/// Which objects a rule is about: every condition that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMatch {
    /// A frame of the call stack that allocated it.
    pub frame: Frame,
    /// Further frames, each somewhere in the same stack; at most seven.
    pub called_from: Vec<Frame>,
    /// A static object: the pattern of its name in the binary.
    pub symbol: Option<String>,
    /// A mapped file: the pattern of its path.
    pub mapped_file: Option<String>,
    /// A section of the binary (`.data`, `.bss`, `.rodata`, `.text`).
    pub section: Option<String>,
    /// Smallest size, in bytes.
    pub min_size: Option<u64>,
    /// Greatest size, in bytes.
    pub max_size: Option<u64>,
    /// Which of the matching objects, counted from 0 in the order of their allocation in one process; empty: all. Ascending ranges, both ends in.
    pub instances: Vec<(u64, u64)>,
    /// Only in processes whose program's file name matches.
    pub process: Option<String>,
}

impl ObjectMatch {
    /// Whether the rule is about what a call allocates or maps (not about symbols, sections or files).
    #[must_use]
    pub fn is_dynamic(&self) -> bool {
        self.symbol.is_none() && self.section.is_none() && self.mapped_file.is_none()
    }
}

/// One frame of a call stack. Every condition that is given must hold for the same frame.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Pattern of the function's name, as written in the source or as linked; with or without namespaces, without parameters.
    pub function: Option<String>,
    /// The end of the source file's path: `cluster.cpp` or `src/cluster.cpp`.
    pub file: Option<String>,
    /// Line of the call in that file, first and last.
    pub lines: Option<(u32, u32)>,
    /// The binary or library: the end of its path. For rules about symbols and sections, too.
    pub module: Option<String>,
    /// The return address, as an offset in that module (as `nm` and `objdump` count). Breaks when the program is rebuilt.
    pub offset: Option<u64>,
}

impl Frame {
    /// No condition at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Frame::default()
    }

    /// Whether anything but the module is asked for.
    #[must_use]
    pub fn names_code(&self) -> bool {
        self.function.is_some() || self.file.is_some() || self.offset.is_some()
    }
}

/// Where threads or processes run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placing {
    /// On the CPUs of nodes.
    Nodes(NodeSet),
    /// On these CPUs, ascending.
    Cpus(Vec<u32>),
}

/// How several threads or processes of one rule share its nodes or CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Each may run on all of them.
    #[default]
    Together,
    /// The k-th on the k-th node (or CPU), modulo their number.
    Spread,
}

impl Layout {
    /// As in the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Together => "together",
            Layout::Spread => "spread",
        }
    }
}

/// Which threads, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRule {
    /// Comment lines under the rule's head.
    pub evidence: Vec<String>,
    /// Pattern of the thread's name (what `pthread_setname_np` set, else the program's).
    pub name: Option<String>,
    /// Pattern of its start function.
    pub start: Option<String>,
    /// Its number in the order of creation within the process, 0 the main thread; empty: any. Ascending ranges, both ends in.
    pub order: Vec<(u64, u64)>,
    /// Only in processes whose program's file name matches.
    pub process: Option<String>,
    /// Where it runs.
    pub placing: Placing,
    /// How several share that.
    pub layout: Layout,
    /// Line in the file, from 1; 0: not read from one.
    pub line: usize,
}

/// Which processes, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRule {
    /// Comment lines under the rule's head.
    pub evidence: Vec<String>,
    /// Pattern of the program's file name.
    pub command: Option<String>,
    /// Its number among the matching ones, in the order of their start, from 0; empty: any. Ascending ranges, both ends in.
    pub order: Vec<(u64, u64)>,
    /// Where it runs.
    pub placing: Placing,
    /// How several share that.
    pub layout: Layout,
    /// Line in the file, from 1; 0: not read from one.
    pub line: usize,
}
