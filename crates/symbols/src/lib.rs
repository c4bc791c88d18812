//! Resolves instruction and data addresses to functions, inlined frames, lines, static objects and type-like names.
//!
//! It works offline, from the binaries and sources on this machine. A binary whose build ID is not the recorded one is not used,
//! because a wrong name is worse than none. All input (binaries, sources, names in them) is untrusted.

mod allocators;
mod blocks;
mod calls;
mod code;
mod coverage;
mod cpp;
mod cpp_libraries;
mod debug_data;
mod declared;
mod demangle;
mod enclosing;
mod fortran;
mod generated;
mod go_module;
mod go_source;
mod go_table;
mod hotspot;
mod layout;
mod mariadb;
mod naming;
mod python;
mod resolver;
mod separate;
mod source;
mod statement;
mod unresolved;
mod wrappers;

pub use allocators::{has_symbols, own_allocator};
pub use calls::{CallOrder, CallOrders};
pub use code::{CodeQuery, CodeRange, find_code, is_module_named, path_ends_with, spellings};
pub use coverage::Coverage;
pub use declared::{Declaration, Declarations};
pub use demangle::{demangle, short_function, tidy};
pub use generated::{
    CodeSpan, GeneratedCode, GeneratedFile, GeneratedFunction, GeneratedLine, PythonCode, java_method, python_function,
    read_jitdump, read_perf_map,
};
pub use go_table::{GoFunction, GoTable};
pub use layout::{LayoutItem, ModuleLayout};
pub use naming::{JAVA, PYTHON, SiteFrame, SiteName, SiteNamer, is_machinery, is_python_arena, wrapper};
pub use resolver::{ElfSymbolizer, Resolved, ResolvedFrame, Symbolizer};
pub use separate::{DebugFolders, Refusal, Separate, Shared, advice};
pub use source::{Assigned, CallPlace, SourceCache};
pub use unresolved::Unresolved;
