//! Where the ticks of an axis go.

/// Round values from 0 to `most`, about `count` of them: 1, 2 or 5 times a power of ten apart.
pub fn ticks(most: f64, count: usize) -> Vec<f64> {
    if !most.is_finite() || most <= 0.0 {
        return vec![0.0];
    }
    let rough = most / count.max(1) as f64;
    let mut power = 1.0;
    while power > rough {
        power /= 10.0;
    }
    while power * 10.0 <= rough {
        power *= 10.0;
    }
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= rough * 0.999)
        .unwrap_or(rough);
    (0..=(most / step * 1.000_001) as usize).map(|index| index as f64 * step).collect()
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
    }
}
