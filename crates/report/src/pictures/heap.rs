//! Call stacks that allocate: as wide as the bytes of theirs that were live at the heap's peak, the darker the more of these were never freed.

use std::collections::BTreeMap;

use numapilot_flows::LocationId;
use numapilot_text::units;

use super::flame::{Flame, Meaning, picture};
use super::sheet::nothing;
use crate::export::{Export, ExportError, places};

pub fn svg(export: &Export<'_>) -> Result<String, ExportError> {
    let profile = export.analysis.heap().ok_or(ExportError::NoHeap)?;
    let title = format!("Code whose memory is live at the heap's peak: {}", export.heading.program());
    let trace = export.trace();
    // By stack: bytes freed later, and bytes never freed.
    let mut sums: BTreeMap<_, [f64; 2]> = BTreeMap::new();
    for block in export.analysis.heap_blocks().filter(|block| trace.heap_peak().holds(block.id)) {
        sums.entry(block.stack).or_default()[usize::from(block.death.is_none())] += block.bytes as f64;
    }
    let mut flame = Flame::default();
    for (stack, [freed, left]) in sums {
        flame.add(trace, places(trace, stack, LocationId(0)), &[(freed, Some(false)), (left, Some(true))]);
    }
    if flame.is_empty() {
        return Ok(nothing(export, &title, "no block is live at the peak"));
    }
    let left: f64 = flame.dark();
    let finding = format!(
        "{} in {}, of which {} were never freed",
        units::bytes(profile.peak_bytes),
        units::counted(profile.peak_blocks, "block", "blocks"),
        units::bytes(left as u64)
    );
    let (what, width) = ("the peak's bytes", "bytes live at the peak, allocated by a function and what it calls");
    Ok(picture(export, &flame, &Meaning { title, finding, what, width, light: "freed later", dark: "never freed" }))
}
