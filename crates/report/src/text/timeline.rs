//! Program time as a row of blocks: how much happened when.

/// One character per value, scaled to `most`. Nothing at all is a dot, so that gaps show.
#[must_use]
pub fn blocks(values: &[f64], most: f64) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    values
        .iter()
        .map(|&value| {
            if value <= 0.0 || most <= 0.0 {
                return '·';
            }
            let level = (value / most * LEVELS.len() as f64).ceil() as usize;
            LEVELS[level.clamp(1, LEVELS.len()) - 1]
        })
        .collect()
}

/// The greatest of some values; 0 for none.
#[must_use]
pub fn greatest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_little_and_most_look_different() {
        assert_eq!(blocks(&[0.0, 0.1, 4.0, 8.0], 8.0), "·▁▄█");
        assert_eq!(blocks(&[0.0, 0.0], 0.0), "··");
        assert_eq!(greatest([1.0, 3.0, 2.0]), 3.0);
        assert_eq!(greatest([]), 0.0);
    }
}
