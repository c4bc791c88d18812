//! The staircase: chases through growing parts of one memory.

use std::time::Duration;

use numapilot_machine::CpuId;

use crate::error::MeasureError;
use crate::latency::Chase;
use crate::levels::{Level, levels};
use crate::region::Region;
use crate::results::{StairPoint, Walk};

/// Latency at each of `sizes` (ascending, within the region), and the levels that the figures show.
///
/// # Errors
/// If the CPU went offline, or left the affinity mask of this process.
pub fn climb(
    region: &mut Region,
    sizes: &[usize],
    walk: Walk,
    line_bytes: usize,
    seed: u64,
    (cpu, time): (CpuId, Duration),
) -> Result<(Vec<StairPoint>, Vec<Level>), MeasureError> {
    let each = time / sizes.len().max(1) as u32;
    let mut points = Vec::with_capacity(sizes.len());
    for &bytes in sizes {
        let bytes = bytes.min(region.bytes());
        // SAFETY: the region is borrowed for writing until the chase is over.
        let chase = unsafe { Chase::lay(region.base(), bytes, walk, line_bytes, seed, &[cpu]) }?;
        points.push(StairPoint { bytes: bytes as u64, ns: chase.time(cpu, each)?.0 });
    }
    let plain: Vec<(f64, f64)> = points.iter().map(|point| (point.bytes as f64, point.ns.best())).collect();
    Ok((points, levels(&plain)))
}
