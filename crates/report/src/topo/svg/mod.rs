//! The machine as a picture that stands alone: no scripts, no fonts to fetch, the same bytes for the same machine.

mod card;
mod table;
mod wires;

use numapilot_machine::{Endpoint, Machine, RouterId};
use numapilot_text::style::{clean, shorten};

use self::card::{CORE, FAINT, INK};
use self::wires::{Kind, ROUTER, Scene};
use super::layout::{Point, Sizes, layout};
use super::words;
use crate::svg_writer::{BOLD, SvgWriter, Type, fit, greatest_width, text_width};

const MARGIN: f64 = 44.0;
const TITLE: f64 = 92.0;
const WIDTH_MIN: f64 = 760.0;
const LEGEND_LINE: f64 = 22.0;
const LEGEND_WIDTH: f64 = 360.0;
/// Free space between cards: room for a label on the link.
const GAP: f64 = 150.0;

/// Draws the machine: nodes as cards with their cores, caches and memory, links as pairs of arrows, idle latencies as a table.
pub fn svg(machine: &Machine) -> String {
    let card = (card::WIDTH, card::height(machine));
    let gap = if machine.links().is_empty() { 40.0 } else { GAP };
    let layout = layout(machine, Sizes { card_width: card.0, card_height: card.1, gap });
    let kinds = wires::kinds(machine);
    let table = table::size(machine);
    let legend = (LEGEND_WIDTH, (kinds.len() + 4) as f64 * LEGEND_LINE);
    let beside = table.0 + MARGIN + legend.0 <= (layout.width).max(WIDTH_MIN - 2.0 * MARGIN);
    let footer = if beside { table.1.max(legend.1) } else { table.1 + legend.1 + 24.0 };
    let width = [layout.width, table.0, WIDTH_MIN - 2.0 * MARGIN].into_iter().fold(0.0, f64::max) + 2.0 * MARGIN;
    let height = TITLE + layout.height + 36.0 + footer + MARGIN;
    let origin = ((width - layout.width) / 2.0, TITLE);

    let mut writer =
        SvgWriter::new(width, height, &format!("{}: nodes, caches, memory and links", clean(machine.name())));
    title(&mut writer, machine, width);
    let scene = Scene { machine, layout: &layout, origin, card };
    wires::draw(&mut writer, &scene);
    for node in machine.nodes() {
        card::draw(&mut writer, machine, node, scene.at(Endpoint::Node(node.id)), card.1);
    }
    routers(&mut writer, &scene);
    let top = TITLE + layout.height + 36.0;
    table::draw(&mut writer, machine, (MARGIN, top));
    let legend_at = if beside { (width - MARGIN - legend.0, top) } else { (MARGIN, top + table.1 + 24.0) };
    draw_legend(&mut writer, machine, &kinds, legend_at);
    writer.finish()
}

fn title(writer: &mut SvgWriter, machine: &Machine, width: f64) {
    let room = width - 2.0 * MARGIN;
    let (name, cpu) = (clean(machine.name()), machine.cpu_model().map(clean).unwrap_or_default());
    let for_cpu = greatest_width(&cpu, 14.0).min(room * 0.35) + 14.0;
    let brief = fit(&name, 22.0 * BOLD, room - for_cpu);
    writer.brief((MARGIN, 38.0), Type::new(22.0, INK).bold(), &brief, &name);
    let beside = (text_width(&brief, 25.0) + 14.0).max(greatest_width(&brief, 22.0 * BOLD));
    let brief = fit(&cpu, 14.0, room - beside);
    writer.brief((MARGIN + beside, 38.0), Type::new(14.0, FAINT), &brief, &cpu);
    for (line, y) in lines(&words::totals(machine), 13.0, room).iter().zip([61.0, 78.0]) {
        writer.text((MARGIN, y), Type::new(13.0, FAINT), line);
    }
}

/// Phrases in lines that have room.
fn lines(phrases: &[String], size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for phrase in phrases {
        match lines.last_mut() {
            Some(line) if greatest_width(&format!("{line} · {phrase}"), size) <= room => {
                line.push_str(" · ");
                line.push_str(phrase);
            }
            _ => lines.push(phrase.clone()),
        }
    }
    lines
}

fn routers(writer: &mut SvgWriter, scene: &Scene<'_>) {
    for (index, router) in scene.machine.routers().iter().enumerate() {
        let centre = scene.at(Endpoint::Router(RouterId(index as u16)));
        let corner: Point = (centre.0 - ROUTER.0 / 2.0, centre.1 - ROUTER.1 / 2.0);
        writer.rect(corner, ROUTER, ROUTER.1 / 2.0, r##"fill="#f5ead8" stroke="#d3bd97" stroke-width="1.2""##);
        let words = shorten(&clean(&router.name), 15);
        writer.text((centre.0, centre.1 + 4.0), Type::new(12.0, "#6b5020").anchored("middle"), &words);
    }
}

fn draw_legend(writer: &mut SvgWriter, machine: &Machine, kinds: &[Kind], at: Point) {
    let words = Type::new(12.0, INK);
    let mut y = at.1 + 12.0;
    for kind in kinds {
        writer.line((at.0, y - 4.0), (at.0 + 26.0, y - 4.0), &format!(r#"stroke="{}" stroke-width="3""#, kind.colour));
        writer.text((at.0 + 36.0, y), words, &shorten(&kind.words, 50));
        y += LEGEND_LINE;
    }
    writer.rect((at.0 + 6.0, y - 11.0), (14.0, 14.0), 2.0, &format!(r#"fill="{CORE}""#));
    let threads = machine.cpus().iter().map(|c| c.siblings.len()).max().unwrap_or(1);
    if threads > 1 {
        writer.line((at.0 + 13.0, y - 11.0), (at.0 + 13.0, y + 3.0), r##"stroke="#ffffff" stroke-width="1""##);
    }
    writer.text(
        (at.0 + 36.0, y),
        words,
        &if threads > 1 { format!("core with {threads} hardware threads") } else { "core".to_owned() },
    );
    y += LEGEND_LINE;
    if machine.cpus().iter().any(|c| !c.online) {
        writer.rect(
            (at.0 + 6.0, y - 11.0),
            (14.0, 14.0),
            2.0,
            r##"fill="#ffffff" stroke="#9aa4af" stroke-dasharray="2 1.5""##,
        );
        writer.text((at.0 + 36.0, y), words, "offline CPU");
        y += LEGEND_LINE;
    }
    writer.rect((at.0 + 4.0, y - 11.0), (18.0, 14.0), 3.0, r##"fill="#e4efe6" stroke="#a9c9b1""##);
    writer.text((at.0 + 36.0, y), words, "memory: size and peak bandwidth");
    y += LEGEND_LINE;
    let (estimates, all) = (machine.figures().iter().filter(|f| f.estimate).count(), machine.figures().len());
    let note = match (estimates, machine.links().is_empty() && machine.nodes().len() > 1) {
        (_, true) => "How the nodes are connected is not known.".to_owned(),
        (0, _) => return,
        _ => format!("{estimates} of {all} figures are estimates."),
    };
    writer.text((at.0, y), Type::new(11.0, FAINT), &note);
}
