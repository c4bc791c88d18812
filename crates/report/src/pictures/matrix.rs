//! Who reaches whose memory: a square for each pair of nodes, darker where more accesses go, with the sums beside it.

use numapilot_text::units::short_percent;

use crate::estimates;
use crate::estimates::found;
use crate::export::Export;
use crate::svg_writer::{SvgWriter, Type};
use crate::traffic::scale;

use super::palette::{FAINT, INK};
use super::sheet::{MARGIN, TOP, begin, no_homes, nothing};

/// Side of the whole square at most, and of one cell.
const SIDE: f64 = 460.0;
const CELL: f64 = 78.0;
/// Left of the square: names of nodes.
const NAMES: f64 = 86.0;
/// From this side on a cell has room for its number.
const NUMBERED: f64 = 34.0;
/// Length of the longest bar of the sums, in pixels.
const BAR: f64 = 120.0;

pub fn svg(export: &Export<'_>) -> String {
    let what = export.counted().or_faults("Memory accesses", "Page faults");
    let title = format!("{what} from node to node: {}", export.heading.program());
    let matrix = export.analysis.matrix();
    let all: f64 = matrix.accesses.iter().flatten().map(|accesses| accesses.value).sum();
    let totals = export.analysis.totals();
    if all <= 0.0 || !totals.knows_homes() {
        return nothing(export, &title, &no_homes(export));
    }
    let count = matrix.nodes.len();
    let cell = (SIDE / count as f64).min(CELL);
    let side = cell * count as f64;
    let finding = format!(
        "{} of {} remote, {}",
        estimates::remote_share(&totals),
        estimates::remote_base(&totals, export.counted().in_full()),
        found(matrix.source)
    );
    let mut writer = begin(export, &title, &finding, 34.0 + side + BAR + 4.0);
    let origin = (MARGIN + NAMES, TOP + 34.0);
    let share = |row: usize, column: usize| matrix.accesses[row][column].value / all;
    let most = (0..count * count).map(|index| share(index / count, index % count)).fold(0.0, f64::max);
    for row in 0..count {
        for column in 0..count {
            let at = (origin.0 + column as f64 * cell, origin.1 + row as f64 * cell);
            // The full scale goes to the busiest pair, so that large machines are not pale all over.
            let depth = share(row, column) / most;
            writer.rect(
                at,
                (cell, cell),
                0.0,
                &format!(r##"fill="{}" stroke="#ffffff" stroke-width="1""##, scale::colour(depth)),
            );
            if cell >= NUMBERED {
                let words = bare(share(row, column));
                let kind = Type::new((cell * 0.28).min(15.0), scale::ink_on(depth)).anchored("middle");
                writer.text((at.0 + cell / 2.0, at.1 + cell / 2.0 + 5.0), kind, &words);
            }
        }
    }
    diagonal(&mut writer, origin, cell, count);
    names(&mut writer, &matrix.nodes, origin, cell);
    let sum_row = |row: usize| (0..count).map(|column| share(row, column)).sum::<f64>();
    let sum_column = |column: usize| (0..count).map(|row| share(row, column)).sum::<f64>();
    let (rows, columns): (Vec<f64>, Vec<f64>) =
        ((0..count).map(sum_row).collect(), (0..count).map(sum_column).collect());
    sums(&mut writer, (&rows, &columns), origin, cell);
    legend(&mut writer, (most, export.counted().many()), origin.0 + side + 30.0 + BAR, origin.1);
    writer.finish()
}

fn bare(share: f64) -> String {
    if share == 0.0 { "·".to_owned() } else { short_percent(share).trim_end_matches(" %").to_owned() }
}

/// Local accesses stand in the frames.
fn diagonal(writer: &mut SvgWriter, origin: (f64, f64), cell: f64, count: usize) {
    for index in 0..count {
        let at = origin.0 + index as f64 * cell + 1.0;
        let down = origin.1 + index as f64 * cell + 1.0;
        let style = format!(r#"fill="none" stroke="{INK}" stroke-width="1.4""#);
        writer.rect((at, down), (cell - 2.0, cell - 2.0), 0.0, &style);
    }
}

fn names(writer: &mut SvgWriter, nodes: &[numapilot_machine::NodeId], origin: (f64, f64), cell: f64) {
    // Where cells are small, every so many have their number: lines of text need less room below one another than beside.
    let shown = |index: usize, room: f64| index.is_multiple_of((room / cell).ceil().max(1.0) as usize);
    let word = if cell >= 48.0 { "node " } else { "" };
    for (index, node) in nodes.iter().enumerate() {
        let middle = index as f64 * cell + cell / 2.0;
        let name = format!("{word}{node}");
        if shown(index, 13.0) {
            writer.text((origin.0 - 8.0, origin.1 + middle + 4.0), Type::new(12.0, INK).anchored("end"), &name);
        }
        if shown(index, 22.0) {
            writer.text((origin.0 + middle, origin.1 - 8.0), Type::new(12.0, INK).anchored("middle"), &name);
        }
    }
    let side = cell * nodes.len() as f64;
    writer.text((origin.0 + side / 2.0, origin.1 - 26.0), Type::new(11.5, FAINT).anchored("middle"), "memory on");
    writer.text((MARGIN, origin.1 - 8.0), Type::new(11.5, FAINT), "threads on");
}

/// Bars to the right (made by the threads of each node) and below (served by each node).
fn sums(writer: &mut SvgWriter, (rows, columns): (&[f64], &[f64]), origin: (f64, f64), cell: f64) {
    let side = cell * rows.len() as f64;
    let most = rows.iter().chain(columns).copied().fold(0.0, f64::max).max(1e-12);
    let thick = (cell * 0.6).min(26.0);
    let style = format!(r#"fill="{FAINT}" fill-opacity="0.55""#);
    for (index, (&made, &served)) in rows.iter().zip(columns).enumerate() {
        let middle = index as f64 * cell + cell / 2.0;
        let (right, below) = (made / most * (BAR - 46.0), served / most * (BAR - 40.0));
        writer.rect((origin.0 + side + 10.0, origin.1 + middle - thick / 2.0), (right, thick), 0.0, &style);
        writer.rect((origin.0 + middle - thick / 2.0, origin.1 + side + 10.0), (thick, below), 0.0, &style);
        if cell >= 14.0 {
            let at = (origin.0 + side + 15.0 + right, origin.1 + middle + 4.0);
            writer.text(at, Type::new(11.5, INK), &short_percent(made));
        }
        if cell >= NUMBERED {
            let at = (origin.0 + middle, origin.1 + side + 24.0 + below);
            writer.text(at, Type::new(11.5, INK).anchored("middle"), &short_percent(served));
        }
    }
    writer.text((origin.0 + side + 10.0, origin.1 - 8.0), Type::new(11.5, FAINT), "made here");
    writer.text((origin.0 - 8.0, origin.1 + side + 20.0), Type::new(11.5, FAINT).anchored("end"), "served here");
}

fn legend(writer: &mut SvgWriter, (most, many): (f64, &str), x: f64, y: f64) {
    const STEPS: usize = 40;
    let height = 160.0;
    for step in 0..STEPS {
        let depth = 1.0 - step as f64 / (STEPS - 1) as f64;
        let at = (x, y + height * step as f64 / STEPS as f64);
        writer.rect(at, (12.0, height / STEPS as f64 + 0.4), 0.0, &format!(r#"fill="{}""#, scale::colour(depth)));
    }
    writer.text((x + 18.0, y + 9.0), Type::new(11.0, FAINT), &short_percent(most));
    writer.text((x + 18.0, y + height), Type::new(11.0, FAINT), "0");
    writer.text((x, y + height + 22.0), Type::new(11.0, FAINT), &format!("of {many}"));
    writer.text((x, y + height + 38.0), Type::new(11.0, FAINT), "framed: local");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_numbered_by_the_rule_of_every_share() {
        let words = [0.0, 0.0003, 0.041, 0.37, 0.996, 1.0].map(bare);
        assert_eq!(words, ["·", "<0.1", "4.1", "37", ">99", "100"]);
    }
}
