//! Looks up objects by the names that users give on the command line.

use anyhow::{Result, anyhow};
use numapilot_flows::{Named, Trace};

/// The accessed sites and objects that `name` denotes; `option` is the option that had it, for the error message.
pub fn choose_objects(trace: &Trace, option: &str, name: &str) -> Result<Vec<Named>> {
    trace.objects_named(name).map_err(|error| anyhow!("{option} {name}: {error}"))
}

/// The sites and objects among the heap blocks, whether accessed or not, that `name` denotes; `option` is the option that had it.
pub fn choose_blocks(trace: &Trace, option: &str, name: &str) -> Result<Vec<Named>> {
    trace.blocks_named(name).map_err(|error| anyhow!("{option} {name}: {error}"))
}
