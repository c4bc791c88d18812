//! Unmodified programs on a simulated machine: QEMU's user mode emulates them, and numapilot's plugin records every access.
//!
//! `c/` holds the plugin's sources (`user.h` says how it works), `build.rs` builds it together with the runtime's simulated memory system. This crate carries
//! the plugin, finds a QEMU that can load it, and writes the command line. The engine itself (arena, draining, trace) is in `numapilot-sources`.

mod command;
mod found;
mod qemu;

pub use command::NotEmulated;
pub use found::Emulator;
pub use qemu::NO_EMULATOR;
pub use qemu::Qemu;
pub use qemu::Unavailable;

/// The user-mode plugin: a shared object for `qemu-x86_64 -plugin`. Empty on other hosts than x86-64.
pub const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-emulate.so"));

/// File name of the plugin.
pub const PLUGIN_NAME: &str = "libnumapilot-emulate.so";

/// Names the plugin by its content: 16 hexadecimal digits.
pub const CONTENT_HASH: &str = env!("NUMAPILOT_PLUGIN_HASH");
