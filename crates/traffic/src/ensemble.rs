//! An ensemble of possible machines: values that are not known exactly are drawn from their ranges, so that the model can propagate the uncertainty.
//!
//! Each unknown is drawn evenly from its range and by itself; ratios to the local latency are drawn as such, so that no drawn machine has a remote
//! latency below what their range allows. Draws are stratified (Latin hypercube: McKay, Beckman and Conover, Technometrics 21(2), 1979): of `n`,
//! each unknown has one in each `n`-th part of its range.

use numapilot_machine::{Machine, Subject, Unknown};
use numapilot_random::Random;

use crate::service::{DEFAULT_CONTROLLER_EFFICIENCY, DEFAULT_MESSAGE_BYTES, DEFAULT_WRITE_TURNAROUND};

/// Least and most of the defaults. Efficiency: STREAM over the peak on servers from 2008 to 2023, write-allocation counted, is 0.6 (buffered DDR4; DDR2)
/// to 0.9. Turnaround: none, where writes are drained in long batches, to twice the default. Messages: one flit of 8 bytes (QPI), or 16 with header and
/// check bits (xGMI, UPI).
const EFFICIENCY: (f64, f64) = (0.6, 0.9);
const TURNAROUND: (f64, f64) = (0.0, 0.4);
const MESSAGE: (f64, f64) = (8.0, 16.0);
const DEFAULT: &str = "the traffic model's default and its range (docs/traffic-model.md)";

/// What is not known exactly of a machine: what its description leaves open, and the defaults that the model takes where it says nothing.
#[must_use]
pub fn unknowns(machine: &Machine) -> Vec<Unknown> {
    let figures = machine.traffic();
    let mut all = machine.unknowns().to_vec();
    let mut add = |name: &str, known: Option<f64>, subject: Subject, value: f64, (low, high): (f64, f64)| {
        if known.is_none() {
            all.push(Unknown {
                place: format!("traffic.{name}"),
                subject,
                value,
                low,
                high,
                source: DEFAULT.to_owned(),
            });
        }
    };
    add(
        "controller_efficiency",
        figures.controller_efficiency,
        Subject::ControllerEfficiency,
        DEFAULT_CONTROLLER_EFFICIENCY,
        EFFICIENCY,
    );
    add("write_turnaround", figures.write_turnaround, Subject::WriteTurnaround, DEFAULT_WRITE_TURNAROUND, TURNAROUND);
    add("message_bytes", figures.message_bytes, Subject::MessageBytes, DEFAULT_MESSAGE_BYTES, MESSAGE);
    all
}

/// `count` points, each with a value from each range (least and most, in the range's unit); of each range, one in each `count`-th part of it. The same for
/// the same seed.
#[must_use]
pub fn latin_hypercube(ranges: &[(f64, f64)], count: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut random = Random::new(seed);
    let mut points = vec![Vec::with_capacity(ranges.len()); count];
    for (low, high) in ranges {
        let mut strata: Vec<usize> = (0..count).collect();
        // Fisher and Yates.
        for last in (1..count).rev() {
            strata.swap(last, (random.unit() * (last + 1) as f64) as usize);
        }
        for (point, stratum) in points.iter_mut().zip(strata) {
            let quantile = (stratum as f64 + random.unit()) / count as f64;
            point.push(low + quantile * (high - low));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` machines that `machine` could be, each with its values in the order of [`unknowns`].
    fn draws(machine: &Machine, count: usize, seed: u64) -> Vec<(Vec<f64>, Machine)> {
        let unknowns = unknowns(machine);
        let ranges: Vec<(f64, f64)> = unknowns.iter().map(|unknown| (unknown.low, unknown.high)).collect();
        let drawn = |values: Vec<f64>| {
            let set: Vec<(&Unknown, f64)> = unknowns.iter().zip(values.iter().copied()).collect();
            let machine = machine.with_values(&set).unwrap();
            (values, machine)
        };
        latin_hypercube(&ranges, count, seed).into_iter().map(drawn).collect()
    }

    #[test]
    fn draws_fill_each_range_evenly_and_depend_on_the_seed_alone() {
        for name in numapilot_machine::builtin_names() {
            let machine = Machine::load(name).unwrap();
            let unknowns = unknowns(&machine);
            assert!(unknowns.len() >= 5, "{name}: {unknowns:?}");
            let drawn = draws(&machine, 50, 7);
            for (index, unknown) in unknowns.iter().enumerate() {
                let mut strata: Vec<usize> = (drawn.iter())
                    .map(|(values, _)| ((values[index] - unknown.low) / (unknown.high - unknown.low) * 50.0) as usize)
                    .collect();
                strata.sort_unstable();
                assert!(strata.into_iter().eq(0..50), "{name}: {}", unknown.place);
            }
            assert!(drawn == draws(&machine, 50, 7));
            assert!(drawn[0].1 != draws(&machine, 50, 8)[0].1);
        }
    }

    #[test]
    fn no_machine_that_is_drawn_is_nearer_from_afar() {
        for name in numapilot_machine::builtin_names() {
            let machine = Machine::load(name).unwrap();
            for (_, drawn) in draws(&machine, 100, 1) {
                for from in machine.nodes().iter().filter(|node| node.has_cpus()) {
                    let local = drawn.idle_latency_ns(from.id, from.id).unwrap();
                    let all = machine.nodes().iter().filter_map(|to| drawn.idle_latency_ns(from.id, to.id));
                    assert!(all.into_iter().all(|ns| ns >= local), "{name}");
                }
                crate::MemorySystem::new(&drawn).unwrap();
            }
        }
    }
}
