//! Objects by the names that people give them on the command line.

use anyhow::{Result, anyhow};
use numapilot_flows::{Named, Trace};

/// Everything accessed that `name` stands for; `option` is the option that it was given to.
pub fn choose_objects(trace: &Trace, option: &str, name: &str) -> Result<Vec<Named>> {
    trace.objects_named(name).map_err(|error| anyhow!("{option} {name}: {error}"))
}
