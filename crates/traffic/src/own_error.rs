//! The model's own error: how far queueing delays (loaded latency less the idle one) that were measured are from the model's. `docs/traffic-model.md`, "Its own
//! error", has the figures.

/// Queueing delay over the model's, by the loaded latencies that were published of one machine.
pub const QUEUEING_DELAY: (f64, f64) = (0.76, 1.32);

/// Degrees of freedom of that range: three delays, times those that twelve figures leave of which five were set.
const PUBLISHED: f64 = 3.0 * 7.0 / 12.0;

/// Least and most that delays are over the model's, from `errors`: of each measured curve, the root mean square of the logarithms of measured delay over the
/// model's. The published delays count as 1.75 curves, so that few curves do not make the model surer than they can; without any, the result is the
/// published range. A logarithm that is evenly distributed between the ends has the pooled deviation.
#[must_use]
pub fn queueing_delay_range(errors: &[f64]) -> (f64, f64) {
    // Half of an even distribution is the root of three times its deviation, so squares of halves are pooled as squares of deviations are.
    let published = (QUEUEING_DELAY.1 / QUEUEING_DELAY.0).ln() / 2.0;
    let measured: Vec<f64> = errors.iter().copied().filter(|error| error.is_finite()).collect();
    let squares: f64 = measured.iter().map(|error| 3.0 * error * error).sum();
    let half = ((PUBLISHED * published * published + squares) / (PUBLISHED + measured.len() as f64)).sqrt();
    ((-half).exp(), half.exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_as_far_from_the_model_as_published_latencies_are() {
        // Measured and modelled, under load less idle: local, remote, interleaved. Twelve figures of x1.32xlarge, from which five of the machine were set.
        let delays = [(40.0 - 14.0, 38.3 - 13.8), (107.0 - 65.0 / 3.0, 119.3 - 21.9), (43.0 - 20.0, 39.5 - 19.8)];
        let squares: f64 = delays.iter().map(|(measured, model): &(f64, f64)| (measured / model).ln().powi(2)).sum();
        let deviation = (squares / PUBLISHED).sqrt();
        // Evenly drawn within its range, a logarithm has the range's half over the root of three as its deviation.
        let half = deviation * 3.0_f64.sqrt();
        let near = |a: f64, b: f64| (a - b).abs() < 0.005;
        assert!(near(QUEUEING_DELAY.0, (-half).exp()) && near(QUEUEING_DELAY.1, half.exp()), "{half}");
        let (low, high) = queueing_delay_range(&[]);
        assert!(near(low, QUEUEING_DELAY.0) && near(high, QUEUEING_DELAY.1), "{low} to {high}");
    }

    #[test]
    fn curves_that_fit_narrow_the_range_and_others_widen_it() {
        let width = |errors: &[f64]| {
            let (low, high) = queueing_delay_range(errors);
            assert!((low * high - 1.0).abs() < 1e-9 && low <= 1.0, "around the model's delays: {low} to {high}");
            high
        };
        let general = width(&[]);
        assert!(width(&[0.02]) < general && width(&[0.02; 4]) < width(&[0.02]));
        assert!(width(&[0.5]) > general && width(&[0.5; 4]) > width(&[0.5]));
        // Of many curves, what they say, and little else.
        assert!((width(&[0.1; 1000]).ln() / (0.1 * 3.0_f64.sqrt()) - 1.0).abs() < 0.01);
        assert!(width(&[0.0]) > 1.05, "one curve that fits perfectly is no proof");
        assert_eq!(width(&[f64::NAN, f64::INFINITY]), general);
    }
}
