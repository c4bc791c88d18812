//! Heat maps: a square per pair, darker where it is slower (latency, hand-off) or narrower (bandwidth), with its number.

use numapilot_measure::{Figure, Results, Walk};

use super::picture::Picture;
use super::words::{SHOWN_KERNEL, between, columns, gb_per_s, ns, origin, rows, spread_words, walk_words};
use crate::pictures::palette::{FAINT, INK};
use crate::svg_writer::{SvgWriter, Type};
use crate::traffic::scale;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 130.0;
const TOP: f64 = 120.0;
const SIDE: f64 = 560.0;
const CELL_MAX: f64 = 84.0;
/// From this width on a cell has room for its number.
const NUMBERED: f64 = 34.0;

/// One map: names of rows and columns, and each cell's value, depth of colour (0 to 1) and story.
struct Map {
    title: &'static str,
    finding: String,
    corner: (&'static str, &'static str),
    rows: Vec<String>,
    columns: Vec<String>,
    cells: Vec<Vec<Option<(String, f64, String)>>>,
}

fn draw(map: &Map, foot: &str) -> String {
    let cell = (SIDE / map.columns.len().max(map.rows.len()).max(1) as f64).min(CELL_MAX);
    let height = TOP + cell * map.rows.len() as f64 + 50.0;
    let mut writer = SvgWriter::new(WIDTH, height, map.title);
    writer.text((40.0, 36.0), Type::new(20.0, INK).bold(), map.title);
    writer.text((40.0, 60.0), Type::new(14.0, INK), &numapilot_text::style::shorten(&map.finding, 112));
    writer.text((LEFT, TOP - 30.0), Type::new(11.5, FAINT), map.corner.1);
    writer.text((40.0, TOP - 8.0), Type::new(11.5, FAINT), map.corner.0);
    let every = |room: f64| (room / cell).ceil().max(1.0) as usize;
    for (index, name) in map.columns.iter().enumerate().step_by(every(26.0)) {
        let at = (LEFT + (index as f64 + 0.5) * cell, TOP - 8.0);
        writer.text(
            at,
            Type::new(12.0, INK).anchored("middle"),
            &numapilot_text::style::shorten(name, (cell * every(26.0) as f64 / 6.6) as usize),
        );
    }
    for (index, name) in map.rows.iter().enumerate().step_by(every(13.0)) {
        let at = (LEFT - 8.0, TOP + (index as f64 + 0.5) * cell + 4.0);
        writer.text(at, Type::new(12.0, INK).anchored("end"), name);
    }
    for (row, cells) in map.cells.iter().enumerate() {
        for (column, value) in cells.iter().enumerate() {
            let at = (LEFT + column as f64 * cell, TOP + row as f64 * cell);
            let Some((words, depth, story)) = value else {
                writer.rect(at, (cell, cell), 0.0, r##"fill="#ffffff" stroke="#dfe2e5" stroke-width="1""##);
                continue;
            };
            let style = format!(r##"fill="{}" stroke="#ffffff" stroke-width="1""##, scale::colour(*depth));
            writer.titled_rect(at, (cell, cell), &style, story);
            if cell >= NUMBERED {
                let kind = Type::new((cell * 0.24).min(15.0), scale::ink_on(*depth)).anchored("middle");
                writer.text((at.0 + cell / 2.0, at.1 + cell / 2.0 + 5.0), kind, words);
            }
        }
    }
    writer.text((40.0, height - 14.0), Type::new(10.5, FAINT), &numapilot_text::style::shorten(foot, 138));
    writer.finish()
}

/// From lowest (0.12) to highest (0.95) of some values, so that neither end is blank.
fn depth(value: f64, (low, high): (f64, f64)) -> f64 {
    if high > low { 0.12 + 0.83 * (value - low) / (high - low) } else { 0.3 }
}

fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
}

pub fn latency_svg(results: &Results) -> Option<String> {
    let walk = results.latency.iter().map(|cell| cell.walk).find(|walk| !matches!(walk, Walk::Strided(_)))?;
    let cells: Vec<_> = results.latency.iter().filter(|cell| cell.walk == walk).collect();
    let ends = range(cells.iter().map(|cell| cell.ns.best()));
    let (rows, targets) = (rows(cells.iter().map(|cell| cell.from)), columns(cells.iter().map(|cell| &cell.target)));
    let value = |figure: &Figure, from: &str, to: &str| {
        let best = figure.best();
        (ns(best), depth(best, ends), format!("{from} to {to}: {} ns {}", ns(best), spread_words(figure)))
    };
    let at = |from, target: &_| {
        let cell = cells.iter().find(|cell| cell.from == from && cell.target == *target)?;
        Some(value(&cell.ns, &format!("node {from}"), &target.to_string()))
    };
    let map = Map {
        title: Picture::Latency.title(),
        finding: format!("{} ns per load, {}", between(ends, ns), walk_words(walk)),
        corner: ("CPUs of", "memory on; ns per load"),
        cells: rows.iter().map(|from| targets.iter().map(|target| at(*from, target)).collect()).collect(),
        rows: rows.iter().map(|from| format!("node {from}")).collect(),
        columns: targets.iter().map(ToString::to_string).collect(),
    };
    Some(draw(&map, &origin(results)))
}

pub fn bandwidth_svg(results: &Results) -> Option<String> {
    let cells: Vec<_> = results.bandwidth.iter().filter(|cell| cell.kernel == SHOWN_KERNEL).collect();
    let (rows, targets) = (rows(cells.iter().map(|cell| cell.from)), columns(cells.iter().map(|cell| &cell.target)));
    let widest = |from, target: &_| {
        let same = cells.iter().filter(|cell| cell.from == from && cell.target == *target);
        same.max_by_key(|cell| cell.cpus)
    };
    let all = rows.iter().flat_map(|from| targets.iter().filter_map(|target| widest(*from, target)));
    let rates: Vec<f64> = all.map(|cell| cell.bytes_per_s.best()).collect();
    if rates.is_empty() {
        return None;
    }
    let ends = range(rates.iter().copied());
    let at = |from, target: &_| {
        let cell = widest(from, target)?;
        let best = cell.bytes_per_s.best();
        let story = format!(
            "node {from} to {target}, {} CPUs: {} GB/s {}",
            cell.cpus,
            gb_per_s(best),
            spread_words(&cell.bytes_per_s)
        );
        Some((gb_per_s(best), depth(ends.0 + ends.1 - best, ends), story))
    };
    let map = Map {
        title: Picture::Bandwidth.title(),
        finding: format!("{} GB/s, reading with all CPUs of a node; darker is narrower", between(ends, gb_per_s)),
        corner: ("CPUs of", "memory on; GB/s"),
        cells: rows.iter().map(|from| targets.iter().map(|target| at(*from, target)).collect()).collect(),
        rows: rows.iter().map(|from| format!("node {from}")).collect(),
        columns: targets.iter().map(ToString::to_string).collect(),
    };
    Some(draw(&map, &origin(results)))
}

pub fn handoff_svg(results: &Results) -> Option<String> {
    let mut cpus: Vec<_> = results.handoff.iter().flat_map(|cell| [cell.a, cell.b]).collect();
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.is_empty() {
        return None;
    }
    let ends = range(results.handoff.iter().map(|cell| cell.ns.best()));
    let at = |a, b| {
        let cell = results.handoff.iter().find(|cell| (cell.a, cell.b) == (a, b) || (cell.a, cell.b) == (b, a))?;
        let best = cell.ns.best();
        let story = format!("CPUs {a} and {b} ({}): {} ns {}", cell.relation.words(), ns(best), spread_words(&cell.ns));
        Some((format!("{best:.0}"), depth(best, ends), story))
    };
    let names: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let map = Map {
        title: Picture::Handoff.title(),
        finding: format!("{} ns one way", between(ends, ns)),
        corner: ("CPU", "CPU; ns one way"),
        cells: cpus.iter().map(|a| cpus.iter().map(|b| at(*a, *b)).collect()).collect(),
        rows: names.clone(),
        columns: names,
    };
    Some(draw(&map, &origin(results)))
}
