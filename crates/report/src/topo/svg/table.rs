//! Idle latencies under the picture, shaded by how far they are from local. Distances stand in where latencies are unknown.

use numapilot_machine::{Machine, NodeId};
use numapilot_text::units::short_number;

use super::super::layout::Point;
use super::super::words;
use super::card::{FAINT, INK};
use crate::svg_writer::{SvgWriter, Type, text_width};

const CELL: Point = (46.0, 24.0);
const LEFT: f64 = 62.0;
const HEAD: f64 = 44.0;
/// Larger tables are left to the text and JSON.
const NODES_MAX: usize = 16;
/// What stands in for a larger one.
const LEFT_OUT: &str = "Not drawn for more than 16 nodes: `numapilot topo` has it, as text and as JSON.";
const NOTE_SIZE: f64 = 11.0;

/// Whether latencies or distances are shown.
enum Content {
    LatencyNs,
    Distance,
}

fn content(machine: &Machine) -> Option<Content> {
    if machine.nodes().len() < 2 {
        return None;
    }
    let any = |known: &dyn Fn(NodeId, NodeId) -> bool| {
        machine.nodes().iter().any(|a| machine.nodes().iter().any(|b| known(a.id, b.id)))
    };
    if any(&|a, b| a != b && machine.idle_latency_ns(a, b).is_some()) {
        return Some(Content::LatencyNs);
    }
    any(&|a, b| machine.distance(a, b).is_some()).then_some(Content::Distance)
}

/// Width and height of the table; nothing where there is none.
pub fn size(machine: &Machine) -> Point {
    match content(machine) {
        Some(_) if machine.nodes().len() > NODES_MAX => (text_width(LEFT_OUT, NOTE_SIZE), HEAD),
        Some(_) => {
            let count = machine.nodes().len() as f64;
            ((LEFT + count * CELL.0).max(230.0), HEAD + count * CELL.1)
        }
        None => (0.0, 0.0),
    }
}

/// Draws the table with its upper left corner at a point.
pub fn draw(writer: &mut SvgWriter, machine: &Machine, at: Point) {
    let Some(content) = content(machine) else { return };
    let value = |from: NodeId, to: NodeId| match content {
        Content::LatencyNs => machine.idle_latency_ns(from, to),
        Content::Distance => machine.distance(from, to).map(f64::from),
    };
    let title = match content {
        Content::LatencyNs => "Idle latency, ns",
        Content::Distance => "Distance (10 is local)",
    };
    writer.text((at.0, at.1 + 12.0), Type::new(13.0, INK).bold(), title);
    if machine.nodes().len() > NODES_MAX {
        writer.text((at.0, at.1 + 32.0), Type::new(NOTE_SIZE, FAINT), LEFT_OUT);
        return;
    }
    let small = Type::new(11.0, FAINT);
    for (j, to) in machine.nodes().iter().enumerate() {
        let x = at.0 + LEFT + (j as f64 + 0.5) * CELL.0;
        writer.text((x, at.1 + HEAD - 8.0), small.anchored("middle"), &format!("to {}", to.id));
    }
    for (i, from) in machine.nodes().iter().enumerate() {
        let y = at.1 + HEAD + i as f64 * CELL.1;
        writer.text((at.0, y + 16.0), small, &format!("from {}", from.id));
        let local = match content {
            Content::LatencyNs => words::local_ns(machine, from.id),
            Content::Distance => machine.nodes().iter().filter_map(|to| value(from.id, to.id)).min_by(f64::total_cmp),
        };
        for (j, to) in machine.nodes().iter().enumerate() {
            let corner = (at.0 + LEFT + j as f64 * CELL.0 + 1.0, y + 1.0);
            let cell = value(from.id, to.id);
            let fill = cell.zip(local).map_or("#f4f5f6", |(there, local)| shade(there / local));
            writer.rect(corner, (CELL.0 - 2.0, CELL.1 - 2.0), 3.0, &format!(r#"fill="{fill}""#));
            let words = cell.map_or("-".to_owned(), short_number);
            writer.text(
                (corner.0 + CELL.0 / 2.0 - 1.0, corner.1 + 15.0),
                Type::new(11.0, INK).anchored("middle"),
                &words,
            );
        }
    }
}

/// From green (local) to red (twice as far, or more).
fn shade(ratio: f64) -> &'static str {
    match ratio {
        r if r <= 1.001 => "#dcefdf",
        r if r <= 1.15 => "#eff2d3",
        r if r <= 1.4 => "#faecc6",
        r if r <= 1.7 => "#f9dcc0",
        _ => "#f5c9c0",
    }
}
