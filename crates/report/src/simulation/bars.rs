//! Gains by policy as bars, in the form in which the papers show them.

use numapilot_text::style::{clean, shorten};
use numapilot_text::units::signed_percent;

use super::{Comparison, OF_ONE_RUN, colour};
use crate::svg_writer::{FAINT, INK, SvgWriter, Type};

const LEFT: f64 = 190.0;
const BAR: f64 = 420.0;
const ROW: f64 = 30.0;
const TOP: f64 = 92.0;

/// Draws the gains as bars.
#[must_use]
pub fn svg(comparison: &Comparison<'_>) -> String {
    let base = &comparison.runs[comparison.base];
    let gains: Vec<Option<f64>> = (0..comparison.runs.len()).map(|run| comparison.gain(run)).collect();
    let known = || gains.iter().flatten().copied();
    let (low, high) = (known().fold(0.0, f64::min), known().fold(0.05, f64::max));
    let x = |gain: f64| LEFT + (gain - low) / (high - low) * BAR;
    let (width, height) = (LEFT + BAR + 110.0, TOP + ROW * gains.len() as f64 + 60.0);
    let mut writer = SvgWriter::new(width, height, &format!("Gain of each policy over {}", clean(&base.policy)));
    let title = format!("{} on {}", clean(&base.program), clean(&base.machine));
    writer.text((24.0, 36.0), Type::new(20.0, INK).bold(), &shorten(&title, 60));
    writer.text(
        (24.0, 60.0),
        Type::new(13.0, FAINT),
        &format!("run time gained over {}, simulated", clean(&base.policy)),
    );
    writer.line((x(0.0), TOP - 6.0), (x(0.0), height - 54.0), r##"stroke="#8d97a2" stroke-width="1.2""##);
    for (index, gain) in gains.iter().enumerate() {
        let y = TOP + ROW * index as f64;
        let name = shorten(&clean(&comparison.runs[index].policy), 26);
        writer.text((LEFT - 12.0, y + 15.0), Type::new(13.0, INK).anchored("end"), &name);
        let Some(gain) = gain else {
            writer.text((x(0.0) + 6.0, y + 15.0), Type::new(12.0, FAINT), "did not finish");
            continue;
        };
        let (from, to) = (x(gain.min(0.0)), x(gain.max(0.0)));
        writer.rect((from, y), (to - from, 20.0), 2.0, &format!(r#"fill="{}""#, colour(index)));
        let words = if index == comparison.base { "baseline".to_owned() } else { signed_percent(*gain) };
        writer.text((to + 6.0, y + 15.0), Type::new(12.5, INK), &words);
    }
    let legend = ["Gain: the baseline's run time over the policy's, less one;".to_owned(), format!("{OF_ONE_RUN}.")];
    writer.lines((24.0, height - 32.0), 16.0, Type::new(11.5, FAINT), &legend);
    writer.finish()
}
