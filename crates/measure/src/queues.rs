//! How far the fitted traffic model is from measured queueing delays: latency under load, less the idle one. What is left after the fit is its misfit on
//! this machine, for which predictions otherwise take what is known of another one.

use numapilot_traffic::queueing_delay_range;

use crate::calibration::{PairFit, QueueingDelay};
use crate::results::{Curve, CurvePoint};

/// Delay, as a share of the idle latency, from which a point tells about queues.
const TELLING: f64 = 0.1;
/// Least error of a difference of latencies, as a share of the idle one: that of two repetitions that confirm one another.
const NOISE: f64 = 0.02;

/// The range of measured delays over those of the model. `None` if no latency under load was measured.
#[must_use]
pub fn queueing_delay(curves: &[Curve], fits: &[PairFit]) -> Option<QueueingDelay> {
    if fits.is_empty() {
        return None;
    }
    let error = |fit: &PairFit| {
        let curve = curves.iter().find(|curve| curve.from == fit.from && curve.target.node() == Some(fit.to))?;
        error_of(curve, fit)
    };
    let errors: Vec<f64> = fits.iter().filter_map(error).collect();
    let (low, high) = queueing_delay_range(&errors);
    Some(QueueingDelay { low, high, curves: errors.len() })
}

/// Root mean square of the logarithms of measured delay over the model's. A point counts if either of them stands out from the noise, so that neither is
/// preferred; less than the noise counts as that. `None` where fewer than two points do: one bandwidth was fitted to the curve, which meets any single point.
fn error_of(curve: &Curve, fit: &PairFit) -> Option<f64> {
    let idle = curve.points.first().filter(|point| point.asked_share == 0.0)?;
    let &(_, idle_ns, idle_model_ns) = fit.points.first()?;
    let margin = |point: &CurvePoint| (point.ns.spread.high - point.ns.spread.low) / 2.0;
    let square = |(point, &(_, ns, model_ns)): (&CurvePoint, &(f64, f64, f64))| {
        let noise_ns = (margin(idle) + margin(point)).max(NOISE * idle_ns);
        let (measured_ns, model_ns) = (ns - idle_ns, model_ns - idle_model_ns);
        let tells = measured_ns.max(model_ns) >= (2.0 * noise_ns).max(TELLING * idle_ns);
        tells.then(|| (measured_ns.max(noise_ns) / model_ns.max(noise_ns)).ln().powi(2))
    };
    let squares: Vec<f64> = curve.points.iter().zip(&fit.points).skip(1).filter_map(square).collect();
    let freedom = squares.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
    Some((squares.iter().sum::<f64>() / freedom as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use numapilot_machine::{CpuId, NodeId};
    use numapilot_traffic::QUEUEING_DELAY;
    use proptest::prelude::*;

    use super::*;
    use crate::disturbance::Disturbance;
    use crate::kernels::Kernel;
    use crate::results::{Figure, Target};
    use crate::stats::Spread;

    /// A curve from `idle_ns` on, each latency with this margin, and what a model says of it; `delays`: measured and modelled, ns.
    fn pair(idle_ns: f64, delays: &[(f64, f64)], margin_ns: f64) -> (Curve, PairFit) {
        let point = |(index, delay_ns): (usize, f64)| {
            let ns = idle_ns + delay_ns;
            let (low, high) = (ns - margin_ns, ns + margin_ns);
            let spread = Spread { best: ns, confirmed: true, median: ns, mad: 0.0, low, high, repetitions: 9 };
            let ns = Figure { spread, disturbance: Disturbance::default() };
            CurvePoint { asked_share: index as f64 / delays.len() as f64, bytes_per_s: 1e9 * index as f64, ns }
        };
        let all = || std::iter::once((0.0, 0.0)).chain(delays.iter().copied());
        let points = all().enumerate().map(|(index, (measured_ns, _))| point((index, measured_ns))).collect();
        let (from, to) = (NodeId(0), NodeId(1));
        let target = Target::Node(to);
        let curve = Curve { from, cpu: CpuId(0), neighbours: 7, kernel: Kernel::Read, target, points };
        let points = all().map(|(measured_ns, model_ns)| (1e9, idle_ns + measured_ns, idle_ns + model_ns)).collect();
        (curve, PairFit { from, to, error: 0.0, worst: 0.0, points })
    }

    fn range(idle_ns: f64, delays: &[(f64, f64)], margin_ns: f64) -> QueueingDelay {
        let (curve, fit) = pair(idle_ns, delays, margin_ns);
        queueing_delay(&[curve], &[fit]).expect("a curve")
    }

    #[test]
    fn a_machine_that_queues_as_the_model_says_has_a_narrower_range_and_another_a_wider_one() {
        let as_modelled = range(100.0, &[(12.0, 12.0), (30.0, 30.0), (90.0, 90.0)], 0.5);
        assert_eq!(as_modelled.curves, 1);
        assert!(
            as_modelled.low > QUEUEING_DELAY.0 + 0.02 && as_modelled.high < QUEUEING_DELAY.1 - 0.02,
            "{as_modelled:?}"
        );
        let otherwise = range(100.0, &[(12.0, 24.0), (30.0, 60.0), (90.0, 45.0)], 0.5);
        assert!(otherwise.low < QUEUEING_DELAY.0 && otherwise.high > QUEUEING_DELAY.1, "{otherwise:?}");
        // Three logarithms of 2, of which the fitted bandwidth takes one.
        let error = 2.0_f64.ln() * 1.5_f64.sqrt();
        let (low, high) = queueing_delay_range(&[error]);
        assert!(
            (otherwise.low / low - 1.0).abs() < 1e-9 && (otherwise.high / high - 1.0).abs() < 1e-9,
            "{otherwise:?}"
        );
    }

    #[test]
    fn what_does_not_rise_or_drowns_in_noise_tells_nothing() {
        let general = queueing_delay_range(&[]);
        let nothing = |found: QueueingDelay| assert_eq!(((found.low, found.high), found.curves), (general, 0));
        nothing(range(100.0, &[(1.0, 5.0), (2.0, 6.0), (3.0, 7.0)], 0.5));
        nothing(range(100.0, &[(12.0, 30.0), (15.0, 36.0), (18.0, 39.0)], 10.0));
        // A bandwidth can be fitted to any single point.
        nothing(range(100.0, &[(1.0, 1.0), (2.0, 2.0), (90.0, 50.0)], 0.5));
        assert_eq!(queueing_delay(&[], &[]), None, "nobody measured a curve");
    }

    proptest! {
        /// Whatever is measured, the range holds the model's own delays and depends on no unit; where the model is right, it is never wider than without
        /// a measurement.
        #[test]
        fn ranges_hold_the_model(
            idle_ns in 1.0..1e4_f64,
            shares in prop::collection::vec((0.0..50.0_f64, 0.0..50.0_f64), 1..9),
            scale in 0.01..100.0_f64,
        ) {
            let at = |idle_ns: f64| -> Vec<(f64, f64)> { shares.iter().map(|(a, b)| (a * idle_ns, b * idle_ns)).collect() };
            let found = range(idle_ns, &at(idle_ns), 0.001 * idle_ns);
            prop_assert!(0.0 < found.low && found.low < 1.0 && 1.0 < found.high && found.high.is_finite(), "{found:?}");
            let scaled = range(idle_ns * scale, &at(idle_ns * scale), 0.001 * idle_ns * scale);
            // Shares at the very edge of what counts may fall to either side by rounding.
            let is_sure = |share: &f64| (share - TELLING).abs() > 1e-6;
            if shares.iter().all(|(a, b)| is_sure(a) && is_sure(b)) {
                prop_assert!((scaled.high / found.high - 1.0).abs() < 1e-6, "{found:?} {scaled:?}");
            }
            let right: Vec<(f64, f64)> = at(idle_ns).into_iter().map(|(measured, _)| (measured, measured)).collect();
            let right = range(idle_ns, &right, 0.001 * idle_ns);
            let general = queueing_delay_range(&[]);
            prop_assert!(right.low >= general.0 - 1e-9 && right.high <= general.1 + 1e-9, "{right:?}");
        }
    }
}
