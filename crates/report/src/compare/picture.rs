//! The objects' remote accesses before and after, as pairs of bars.

use numapilot_insight::Estimate;
use numapilot_insight::compare::Comparison;
use numapilot_text::elide::elide_all;
use numapilot_text::style::{clean, shorten};
use numapilot_text::units;

use super::words;
use crate::svg_writer::{FAINT, INK, SvgWriter, Type};

/// Colours that are distinct for people with any kind of colour vision (Okabe and Ito, 2008), and by lightness in print.
const BEFORE: &str = "#e69f00";
const AFTER: &str = "#0072b2";
/// Share below which, on both sides, an object's bars would be too short to see.
const LEAST: f64 = 0.001;
const LEFT: f64 = 250.0;
const BAR: f64 = 420.0;
const ROW: f64 = 44.0;
const TOP: f64 = 104.0;

/// Draws the first `top` objects as pairs of bars, before and after.
#[must_use]
pub fn svg(comparison: &Comparison, top: usize) -> String {
    let shown: Vec<_> = comparison
        .objects
        .iter()
        .filter_map(|change| Some((change, change.remote.as_ref()?)))
        .filter(|(_, remote)| remote.before.value.max(remote.after.value) >= LEAST)
        .take(top)
        .collect();
    let most = shown.iter().map(|(_, remote)| remote.before.high.max(remote.after.high)).fold(0.01, f64::max);
    let x = |share: f64| LEFT + share / most * BAR;
    let (width, height) = (LEFT + BAR + 90.0, TOP + ROW * shown.len().max(1) as f64 + 40.0);
    let mut writer = SvgWriter::new(width, height, "Remote accesses by object, before and after");
    let program = comparison.after.first().map_or("", |run| run.program.as_str());
    let machine = comparison.after.first().map_or("", |run| run.machine.as_str());
    writer.text((24.0, 36.0), Type::new(20.0, INK).bold(), &shorten(&clean(&format!("{program} on {machine}")), 60));
    writer.text((24.0, 60.0), Type::new(13.0, INK), &shorten(&words::headline(comparison), 104));
    for (at, colour, word) in [(24.0, BEFORE, "before"), (100.0, AFTER, "after")] {
        writer.rect((at, 74.0), (12.0, 12.0), 2.0, &format!(r#"fill="{colour}""#));
        writer.text((at + 17.0, 84.5), Type::new(12.0, FAINT), word);
    }
    if shown.is_empty() {
        writer.text(
            (24.0, TOP + 24.0),
            Type::new(13.0, FAINT),
            if comparison.objects.iter().any(|change| change.remote.is_some()) {
                "no object has a visible share of remote accesses on either side"
            } else {
                "no object's remote accesses are known on both sides"
            },
        );
    }
    let words: Vec<(String, String)> = shown.iter().map(|(change, _)| words::object(change)).collect();
    let names: Vec<String> = words.iter().map(|(name, _)| clean(name)).collect();
    let names = elide_all(&names.iter().map(String::as_str).collect::<Vec<_>>(), 32);
    for (index, ((_, remote), (name, (_, place)))) in shown.iter().zip(names.iter().zip(&words)).enumerate() {
        let y = TOP + ROW * index as f64;
        writer.text((LEFT - 12.0, y + 14.0), Type::new(13.0, INK).anchored("end"), name);
        writer.text((LEFT - 12.0, y + 30.0), Type::new(11.0, FAINT).anchored("end"), &shorten(&clean(place), 38));
        bar(&mut writer, y, remote.before, BEFORE, &x);
        bar(&mut writer, y + 17.0, remote.after, AFTER, &x);
    }
    let foot = "Remote accesses to the object as a share of all memory accesses of the program; line: 95 % interval.";
    writer.text((24.0, height - 14.0), Type::new(11.5, FAINT), foot);
    writer.finish()
}

fn bar(writer: &mut SvgWriter, y: f64, share: Estimate, colour: &str, x: &dyn Fn(f64) -> f64) {
    writer.rect((x(0.0), y), (x(share.value) - x(0.0), 15.0), 2.0, &format!(r#"fill="{colour}""#));
    let (low, high) = (x(share.low), x(share.high));
    if high - low > 1.0 {
        writer.line((low, y + 7.5), (high, y + 7.5), &format!(r#"stroke="{INK}" stroke-width="1.1""#));
    }
    writer.text((high.max(x(share.value)) + 6.0, y + 12.0), Type::new(11.5, INK), &units::part_percent(share.value));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_the_figure_that_the_table_has() {
        let figure = |share: f64| {
            let mut writer = SvgWriter::new(100.0, 100.0, "a bar");
            bar(&mut writer, 0.0, Estimate::exact(share), BEFORE, &|share: f64| share * 100.0);
            writer.finish()
        };
        assert!(figure(0.0003).contains(">&lt;0.1 %<"), "{}", figure(0.0003));
        assert!(figure(0.9998).contains(">&gt;99.9 %<"), "{}", figure(0.9998));
        assert!(figure(0.0).contains(">0.0 %<") && figure(0.25).contains(">25.0 %<"));
    }
}
