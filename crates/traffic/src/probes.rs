//! The latency that waiting for probes adds on machines that broadcast them. The line and the probes' answers arrive over separate paths, and the
//! access ends with the last of them. On an idle machine the paths are assumed to be equally long, because only the idle latency is known. The queueing
//! delay of each is random; the mean of the greatest of several independent exponential waits is, within 6 % for two, the root of the sum of their
//! squared means, which is smooth and at least the greatest mean.

use crate::ways::{Visit, Way};

/// A wait below which nothing is waited for: the root has no slope at zero.
const NOTHING_NS: f64 = 1e-9;

fn wait_ns(visits: &[Visit], stretch: &[f64]) -> f64 {
    visits.iter().map(|v| v.service_ns * (stretch[v.station] - 1.0)).sum()
}

/// The waits of the line's way, and the root of all squares.
fn waits(way: &Way, stretch: &[f64]) -> (f64, f64) {
    let line = wait_ns(&way.answer, stretch);
    let squares: f64 = way.probes.iter().map(|probe| wait_ns(probe, stretch).powi(2)).sum();
    (line, (line * line + squares).sqrt())
}

/// Nanoseconds by which an access ends later than its line alone would; `stretch` is each station's sojourn over its service time.
pub fn excess_ns(way: &Way, stretch: &[f64]) -> f64 {
    let (line, all) = waits(way, stretch);
    if all > NOTHING_NS { all - line } else { 0.0 }
}

/// Adds `weight` times the derivative of [`excess_ns`] by each station's stretch to `slopes`.
pub fn add_slopes(way: &Way, stretch: &[f64], weight: f64, slopes: &mut [f64]) {
    let (line, all) = waits(way, stretch);
    if all <= NOTHING_NS {
        return;
    }
    for visit in &way.answer {
        slopes[visit.station] += weight * visit.service_ns * (line / all - 1.0);
    }
    for probe in &way.probes {
        let wait = wait_ns(probe, stretch);
        for visit in probe {
            slopes[visit.station] += weight * visit.service_ns * wait / all;
        }
    }
}
