//! The types of a plan. They hold the file's content alone: no addresses, and nothing of a machine.

use numapilot_machine::CpuId;

use crate::policy::{NodeSet, Policy};

/// A whole plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The file that it was read from, as the user named it; empty where it was made by a program.
    pub file: String,
    /// Comment lines at the head of the file, before its first key: the plan's purpose and evidence.
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

/// A rule for memory: which objects it matches, and their placement policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRule {
    /// Name of the rule in summaries.
    pub name: String,
    /// Comment lines under the rule's head: the evidence for it.
    pub evidence: Vec<String>,
    /// The objects that the rule applies to.
    pub matches: ObjectMatch,
    /// Placement of their memory.
    pub policy: Policy,
    /// `Some(true)`: request huge pages (`MADV_HUGEPAGE`); `Some(false)`: forbid them (`MADV_NOHUGEPAGE`); `None`: the system's setting.
    pub huge_pages: Option<bool>,
    /// Line in the file, from 1; 0: not read from one.
    pub line: usize,
}

/// Conditions on the objects of a rule: every one that is given must hold.
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
    /// Largest size, in bytes.
    pub max_size: Option<u64>,
    /// Which of the matching objects, numbered from 0 in the order of their allocation in one process; empty: all. Ascending ranges, both ends inclusive.
    pub instances: Vec<(u64, u64)>,
    /// Only in processes whose program's file name matches.
    pub process: Option<String>,
}

impl ObjectMatch {
    /// Whether the rule matches memory that a call allocates or maps, rather than symbols, sections or files.
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
    /// Whether no condition is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Frame::default()
    }

    /// Whether a function, file or offset is given; a module alone names no code.
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
    Cpus(Vec<CpuId>),
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
    /// Its keyword in a plan file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layout::Together => "together",
            Layout::Spread => "spread",
        }
    }
}

/// A rule for threads: which threads it matches, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRule {
    /// Comment lines under the rule's head: the evidence for it.
    pub evidence: Vec<String>,
    /// Pattern of the thread's name (what `pthread_setname_np` set, else the program's).
    pub name: Option<String>,
    /// Pattern of its start function.
    pub start: Option<String>,
    /// Its number in the order of creation within the process, 0 the main thread; empty: any. Ascending ranges, both ends inclusive.
    pub order: Vec<(u64, u64)>,
    /// Only in processes whose program's file name matches.
    pub process: Option<String>,
    /// Where it runs.
    pub placing: Placing,
    /// How several of them share those nodes or CPUs.
    pub layout: Layout,
    /// Line in the file, from 1; 0: not read from one.
    pub line: usize,
}

/// A rule for processes: which processes it matches, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRule {
    /// Comment lines under the rule's head: the evidence for it.
    pub evidence: Vec<String>,
    /// Pattern of the program's file name.
    pub command: Option<String>,
    /// Its number among the matching ones, in the order of their start, from 0; empty: any. Ascending ranges, both ends inclusive.
    pub order: Vec<(u64, u64)>,
    /// Where it runs.
    pub placing: Placing,
    /// How several of them share those nodes or CPUs.
    pub layout: Layout,
    /// Line in the file, from 1; 0: not read from one.
    pub line: usize,
}

/// Which threads or processes a rule is about, in a few words: those that a pattern names, those with numbers, those of a program.
fn which(pattern: Option<&str>, order: &[(u64, u64)], program: Option<&str>) -> String {
    let part = |&(first, last): &(u64, u64)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let numbers = (!order.is_empty()).then(|| order.iter().map(part).collect::<Vec<_>>().join(","));
    let which = match (pattern, numbers) {
        (Some(pattern), Some(numbers)) => format!("{pattern} number {numbers}"),
        (Some(pattern), None) => pattern.to_owned(),
        (None, Some(numbers)) => numbers,
        (None, None) => "all".to_owned(),
    };
    match program {
        Some(program) => format!("{which} of {program}"),
        None => which,
    }
}

impl ThreadRule {
    /// The threads that it is about, for messages: `worker*`, `0-3`, `all of server`.
    #[must_use]
    pub fn which(&self) -> String {
        which(self.name.as_deref().or(self.start.as_deref()), &self.order, self.process.as_deref())
    }
}

impl ProcessRule {
    /// The processes that it is about, for messages: `server number 0-3`, `all`.
    #[must_use]
    pub fn which(&self) -> String {
        which(self.command.as_deref(), &self.order, None)
    }
}
