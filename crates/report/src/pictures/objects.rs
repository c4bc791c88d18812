//! The objects that draw most memory accesses: a bar each, remote part dark, with the interval of what was sampled.

use numapilot_insight::{DecisionRow, Pattern};
use numapilot_text::units::short_percent;

use crate::estimates;
use crate::export::Export;
use crate::svg_writer::{SvgWriter, Type};

use super::axis::ticks;
use super::palette::{FAINT, GRID, INK, LOCAL, OTHERS, REMOTE};
use super::sheet::{MARGIN, TOP, WIDTH, begin, fit, fit_all, key, no_access, nothing, whisker};

const ROWS: usize = 12;
const ROW: f64 = 34.0;
/// Room for names on the left, and for figures on the right.
const NAMES: f64 = 250.0;
const FIGURES: f64 = 150.0;

pub fn svg(export: &Export<'_>) -> String {
    let what = export.counted().in_full();
    let title = format!("Objects by their {what}: {}", export.heading.program());
    let rows = export.analysis.sites();
    let Some(first) = rows.first() else { return nothing(export, &title, no_access(export)) };
    let shown = &rows[..rows.len().min(ROWS)];
    let finding = format!(
        "{} receives {} of the {what}; {}",
        first.name,
        estimates::share(&first.share),
        match first.knows_homes() {
            true => format!("{} of them are remote", estimates::share(&first.remote)),
            false => "the home node of most of them is unknown".to_owned(),
        }
    );
    let height = 40.0 + ROW * shown.len() as f64 + 40.0;
    let mut writer = begin(export, &title, &finding, height);
    let left = MARGIN + NAMES;
    let width = WIDTH - MARGIN - FIGURES - left;
    let most = shown.iter().map(|row| row.share.high).fold(0.0, f64::max).clamp(1e-6, 1.0);
    let mut entries = vec![(REMOTE, "remote".to_owned()), (LOCAL, "local".to_owned())];
    if shown.iter().any(|row| !row.knows_homes()) {
        entries.push((OTHERS, "home mostly unknown".to_owned()));
    }
    key(&mut writer, left, TOP + 8.0, &entries);
    let bottom = TOP + 24.0 + ROW * shown.len() as f64;
    for tick in ticks(most * 100.0, 5) {
        let x = left + tick / 100.0 / most * width;
        writer.line((x, TOP + 22.0), (x, bottom), &format!(r#"stroke="{GRID}""#));
        writer.text((x, bottom + 16.0), Type::new(11.0, FAINT).anchored("middle"), &format!("{tick}"));
    }
    let names: Vec<&str> = shown.iter().map(|row| row.name.as_str()).collect();
    let names = fit_all(&names, NAMES - 14.0, 14.5);
    for (index, (row, name)) in shown.iter().zip(&names).enumerate() {
        bar(&mut writer, (row, name), TOP + 26.0 + ROW * index as f64, (left, width / most));
    }
    let rest: f64 = rows[shown.len()..].iter().map(|row| row.share.value).sum();
    let more = rows.len() - shown.len();
    let words = if more > 0 {
        format!("% of the {what}; {more} more receive {}", short_percent(rest))
    } else {
        format!("% of the {what}")
    };
    writer.text((left, bottom + 34.0), Type::new(11.0, FAINT), &words);
    if shown.iter().any(|row| row.knows_homes() && row.known_homes < 1.0) {
        let note =
            format!("remote and local: in the proportion of those {} whose home is known", export.counted().many());
        writer.text((left, bottom + 50.0), Type::new(11.0, FAINT), &note);
    }
    writer.finish()
}

fn bar(writer: &mut SvgWriter, (row, name): (&DecisionRow, &str), y: f64, (left, scale): (f64, f64)) {
    let length = row.share.value * scale;
    let remote = if row.knows_homes() { length * row.remote.value } else { 0.0 };
    let style = |colour: &str| format!(r#"fill="{colour}""#);
    writer.rect((left, y), (remote, 18.0), 0.0, &style(REMOTE));
    let rest = if row.knows_homes() { LOCAL } else { OTHERS };
    writer.rect((left + remote, y), ((length - remote).max(0.0), 18.0), 0.0, &style(rest));
    whisker(writer, y + 9.0, left + row.share.low.max(0.0) * scale, left + row.share.high * scale);
    let room = NAMES - 14.0;
    writer.text((left - 10.0, y + 9.0), Type::new(12.5, INK).bold().anchored("end"), name);
    let place = if row.place.is_empty() { row.kind.word().to_owned() } else { row.place.clone() };
    writer.text((left - 10.0, y + 22.0), Type::new(10.5, FAINT).anchored("end"), &fit(&place, room, 10.5));
    let x = left + (row.share.high * scale).max(length) + 8.0;
    let figures = match row.knows_homes() {
        false => short_percent(row.share.value),
        true => format!("{}, {} remote", short_percent(row.share.value), short_percent(row.remote.value)),
    };
    writer.text((x, y + 9.0), Type::new(11.5, INK), &figures);
    writer.text((x, y + 22.0), Type::new(10.5, FAINT), pattern(row.pattern));
}

fn pattern(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::TooFewSamples => "few samples",
        Pattern::HomesUnknown => "home node unknown",
        Pattern::Local => "local already",
        Pattern::PrivateRemote => "private, but remote",
        Pattern::UsedElsewhere => "used from one other node",
        Pattern::SharedRead => "shared, read",
        Pattern::SharedWritten => "shared, written",
    }
}
