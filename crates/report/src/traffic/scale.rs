//! One colour scale for the whole picture: lightness falls with load, so that it reads in grey and with every kind of colour vision.

/// Stops of the scale, from nothing to everything: share, red, green, blue.
const STOPS: [(f64, [f64; 3]); 5] = [
    (0.0, [250.0, 248.0, 240.0]),
    (0.15, [253.0, 222.0, 165.0]),
    (0.4, [245.0, 158.0, 84.0]),
    (0.7, [203.0, 62.0, 66.0]),
    (1.0, [92.0, 16.0, 62.0]),
];

/// The colour of a share between 0 and 1, as `#rrggbb`.
pub fn colour(share: f64) -> String {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let upper = STOPS.iter().position(|stop| stop.0 >= share).unwrap_or(STOPS.len() - 1).max(1);
    let (low, high) = (STOPS[upper - 1], STOPS[upper]);
    let part = (share - low.0) / (high.0 - low.0);
    let channel = |i: usize| (low.1[i] + (high.1[i] - low.1[i]) * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

/// Colour of text on that colour.
pub fn ink_on(share: f64) -> &'static str {
    if share > 0.62 { "#ffffff" } else { "#20262e" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_spans_from_light_to_dark() {
        assert_eq!(colour(0.0), "#faf8f0");
        assert_eq!(colour(1.0), "#5c103e");
        assert_eq!(colour(f64::NAN), "#faf8f0");
        assert_eq!(colour(7.0), colour(1.0));
        let lightness = |share: f64| -> u32 {
            let text = colour(share);
            (0..3).map(|i| u32::from_str_radix(&text[1 + 2 * i..3 + 2 * i], 16).expect("hex")).sum()
        };
        let steps: Vec<u32> = (0..=20).map(|i| lightness(f64::from(i) / 20.0)).collect();
        assert!(steps.windows(2).all(|pair| pair[1] < pair[0]), "{steps:?}");
    }
}
