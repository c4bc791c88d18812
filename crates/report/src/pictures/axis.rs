//! Where the ticks of an axis go.

/// Round values from 0 to `most`, about `count` of them: 1, 2 or 5 times a power of ten apart.
pub fn ticks(most: f64, count: usize) -> Vec<f64> {
    if most > 0.0 { ticks_within(0.0, most, count) } else { vec![0.0] }
}

/// The same from `least`, which is not negative.
pub fn ticks_within(least: f64, most: f64, count: usize) -> Vec<f64> {
    let span = most - least;
    if !span.is_finite() || span <= 0.0 {
        return vec![least];
    }
    let rough = span / count.max(1) as f64;
    let mut power = 1.0_f64;
    while power > rough {
        power /= 10.0;
    }
    while power * 10.0 <= rough {
        power *= 10.0;
    }
    let factor = [1.0_f64, 2.0, 5.0].into_iter().find(|&factor| factor * power >= rough * 0.999).unwrap_or(10.0);
    let step = factor * power;
    // Divided by whole numbers: three times 0.2 is 0.6000000000000001, which would stand beside the axis.
    let value = |index: u64| {
        let multiple = index as f64 * factor;
        if power < 1.0 { multiple / (1.0 / power).round() } else { multiple * power }
    };
    let (first, last) = ((least / step - 1e-6).ceil().max(0.0), most / step + 1e-6);
    (first as u64..=last as u64).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_end() {
        assert_eq!(ticks(100.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.9, 3), [0.0, 0.5]);
        assert_eq!(ticks(7.3, 4), [0.0, 2.0, 4.0, 6.0]);
        assert_eq!(ticks(0.0, 4), [0.0]);
        assert_eq!(ticks(f64::NAN, 4), [0.0]);
        assert!(ticks(3.7e12, 6).len() <= 8);
        assert_eq!(ticks(1.0, 5), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(ticks(0.07, 5).last().map(f64::to_string), Some("0.06".to_owned()));
    }

    #[test]
    fn a_short_stretch_far_from_zero_has_its_ticks() {
        assert_eq!(ticks_within(100.5, 103.0, 5), [100.5, 101.0, 101.5, 102.0, 102.5, 103.0]);
        assert_eq!(ticks_within(7.0, 7.0, 5), [7.0]);
        let within = ticks_within(86_400_000.0, 86_400_003.0, 8);
        assert!((6..=10).contains(&within.len()), "{within:?}");
    }
}
