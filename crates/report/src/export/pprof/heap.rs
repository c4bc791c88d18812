//! Samples of the heap: one for all blocks with the same call stack, site and allocating thread. The values have the names that Go's heap profiles have, so
//! that programs which read those show these; "in use" is at the heap's peak and not at the end, when most programs have freed everything.

use std::collections::BTreeMap;

use numapilot_flows::SiteId;
use numapilot_trace::ids::{StackId, ThreadIndex};

use super::writer::Writer;
use crate::export::{ExportError, places};

/// The value that is shown unless another one is chosen.
pub(super) const DEFAULT: &str = "inuse_space";

/// Blocks and bytes.
#[derive(Clone, Copy, Default)]
struct Sum {
    blocks: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    allocated: Sum,
    at_peak: Sum,
    left: Sum,
}

pub(super) fn samples(writer: &mut Writer<'_>) -> Result<(), ExportError> {
    let export = writer.export;
    let trace = export.trace();
    let mut sums: BTreeMap<(StackId, SiteId, Option<ThreadIndex>), Sums> = BTreeMap::new();
    for block in export.analysis.heap_blocks() {
        let sum = sums.entry((block.stack, block.site, block.thread)).or_default();
        sum.allocated.add(block.bytes);
        if trace.heap_peak().holds(block.id) {
            sum.at_peak.add(block.bytes);
        }
        if block.death.is_none() {
            sum.left.add(block.bytes);
        }
    }
    writer.value_types(&[
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        (DEFAULT, "bytes"),
        ("left_objects", "count"),
        ("left_space", "bytes"),
    ])?;
    let keys = ["object", "thread"].map(|key| writer.strings.number(key));
    for ((stack, site, thread), sums) in sums {
        let site = writer.strings.number(&export.site_name(Some(site)));
        let thread = thread.map_or_else(|| "unknown".to_owned(), |thread| export.thread_name(thread));
        let thread = writer.strings.number(&thread);
        let values = [sums.allocated, sums.at_peak, sums.left].map(|sum| [sum.blocks, sum.bytes]);
        let own = numapilot_flows::LocationId(0);
        writer.sample(places(trace, stack, own), values.as_flattened(), &[(keys[0], site), (keys[1], thread)])?;
    }
    Ok(())
}
