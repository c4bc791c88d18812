//! What each memory controller serves, beside an even share.

use numapilot_insight::Estimate;
use numapilot_text::units;
use numapilot_text::units::short_percent;

use crate::estimates;
use crate::estimates::found;
use crate::export::Export;
use crate::svg_writer::{SvgWriter, Type};

use super::axis::ticks;
use super::palette::{FAINT, GRID, INK, LOCAL, REMOTE};
use super::sheet::{MARGIN, TOP, WIDTH, begin, key, no_homes, nothing};

const HEIGHT: f64 = 290.0;
const AXIS: f64 = 46.0;

pub fn svg(export: &Export<'_>) -> String {
    let title = format!("Load of the memory controllers: {}", export.heading.program());
    let analysis = export.analysis;
    let totals = analysis.totals();
    let matrix = analysis.matrix();
    let all: f64 = totals.served.iter().map(|served| served.value).sum();
    if all <= 0.0 || !totals.knows_homes() {
        return nothing(export, &title, &no_homes(export));
    }
    let served: Vec<(usize, Estimate)> = (totals.served.iter().enumerate())
        .filter(|(index, _)| analysis.memory_nodes().contains(&analysis.nodes()[*index]))
        .map(|(index, served)| (index, served.scaled(1.0 / all)))
        .collect();
    let finding = format!(
        "Controller imbalance {} (standard deviation over mean), {}",
        estimates::whole(&totals.imbalance.population),
        found(totals.source)
    );
    let mut writer = begin(export, &title, &finding, HEIGHT + 64.0);
    let (left, bottom) = (MARGIN + AXIS, TOP + 22.0 + HEIGHT);
    let width = WIDTH - MARGIN - left;
    let most = served.iter().map(|(_, share)| share.high).fold(0.0, f64::max).max(1e-9);
    // Room for the words above the highest.
    let scale = (HEIGHT - 24.0) / most;
    // Ticks are round numbers, shown as they are.
    for tick in ticks(most * 100.0, 5) {
        let y = bottom - tick / 100.0 * scale;
        writer.line((left, y), (left + width, y), &format!(r#"stroke="{GRID}""#));
        writer.text((left - 8.0, y + 4.0), Type::new(11.0, FAINT).anchored("end"), &format!("{tick} %"));
    }
    let beside = key(
        &mut writer,
        left,
        TOP + 4.0,
        &[(REMOTE, "to remote threads".to_owned()), (LOCAL, "to local threads".to_owned())],
    );
    let dashes = format!(r#"stroke="{INK}" stroke-width="1.2" stroke-dasharray="6 4""#);
    writer.line((beside, TOP + 0.5), (beside + 26.0, TOP + 0.5), &dashes);
    writer.text((beside + 32.0, TOP + 4.5), Type::new(11.5, INK), "an even share");
    let step = width / served.len() as f64;
    for (place, (index, share)) in served.iter().enumerate() {
        let local = matrix.accesses[*index][*index].value / all;
        let middle = left + step * (place as f64 + 0.5);
        column(&mut writer, (middle, bottom), (step * 0.62).min(70.0), scale, (share, local));
        let every = (26.0 / step).ceil().max(1.0) as usize;
        if place % every == 0 {
            let word = if step >= 52.0 { "node " } else { "" };
            let words = format!("{word}{}", analysis.nodes()[*index]);
            writer.text((middle, bottom + 18.0), Type::new(12.0, INK).anchored("middle"), &words);
        }
        if step >= 40.0 {
            let y = bottom - share.high * scale - 7.0;
            writer.text((middle, y), Type::new(12.0, INK).anchored("middle"), &short_percent(share.value));
        }
    }
    let even = bottom - scale / served.len() as f64;
    writer.line((left, even), (left + width, even), &dashes);
    let words = format!("share of {} {}, by home node", units::count(all), export.counted().in_full());
    writer.text((left, bottom + 40.0), Type::new(11.0, FAINT), &words);
    writer.finish()
}

fn column(
    writer: &mut SvgWriter,
    (middle, bottom): (f64, f64),
    thick: f64,
    scale: f64,
    (share, local): (&Estimate, f64),
) {
    let (height, local) = (share.value * scale, local.min(share.value) * scale);
    let style = |colour: &str| format!(r#"fill="{colour}""#);
    writer.rect((middle - thick / 2.0, bottom - local), (thick, local), 0.0, &style(LOCAL));
    writer.rect((middle - thick / 2.0, bottom - height), (thick, height - local), 0.0, &style(REMOTE));
    if (share.high - share.low) * scale > 0.5 {
        let style = format!(r#"stroke="{INK}" stroke-width="1.1""#);
        let (low, high) = (bottom - share.low.max(0.0) * scale, bottom - share.high * scale);
        writer.line((middle, low), (middle, high), &style);
        for y in [low, high] {
            writer.line((middle - 3.5, y), (middle + 3.5, y), &style);
        }
    }
}
