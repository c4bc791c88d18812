//! The traffic between nodes as a picture: nodes coloured by the accesses that they serve, directed links sized and coloured by what they
//! carry. It stands alone: no scripts, no fonts to fetch, the same bytes for the same trace.

mod links;
pub(crate) mod scale;
mod scene;
#[cfg(test)]
mod tests;

use numapilot_insight::Headline;
use numapilot_insight::LinkTraffic;
use numapilot_insight::Matrix;
use numapilot_machine::Endpoint;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_machine::RouterId;
use numapilot_text::style::clean;
use numapilot_text::style::shorten;
use numapilot_text::units;
use numapilot_text::units::short_percent;

use crate::counted::Counted;
use crate::estimates;
use crate::heading::Heading;
use crate::svg_writer::FAINT;
use crate::svg_writer::INK;
use crate::svg_writer::SvgWriter;
use crate::svg_writer::Type;
use crate::svg_writer::columns;
use crate::svg_writer::two_lines;
use crate::topo::layout::Sizes;
use crate::topo::layout::layout;
use links::LeftOut;
pub use scene::Picture;
use scene::{CARD, ROUTER, Scene};

const GAP: f64 = 170.0;
const MARGIN: f64 = 44.0;
/// Height of the head above the drawing with two findings of a line each.
const TITLE: f64 = 128.0;
/// Distance from one line of the findings to the next.
const LINE: f64 = 21.0;
const FOOTER: f64 = 96.0;
const WIDTH_MIN: f64 = 820.0;

/// The recording that the picture shows.
#[derive(Clone, Copy)]
pub struct Traffic<'a> {
    /// Program, machine and losses of the recording.
    pub heading: &'a Heading,
    /// The machine model.
    pub machine: &'a Machine,
    /// The three findings of the title.
    pub headline: &'a Headline,
    /// The node-to-node matrix.
    pub matrix: &'a Matrix,
    /// The traffic of the links.
    pub links: &'a [LinkTraffic],
    /// What the figures are confined to, in words; empty where they are of everything.
    pub scope: &'a str,
    /// What is counted.
    pub counted: Counted,
}

/// Draws a recording's traffic.
#[must_use]
pub fn svg(traffic: &Traffic<'_>) -> String {
    let (heading, headline) = (traffic.heading, traffic.headline);
    let kind = heading.origin.words();
    let totals = &headline.totals;
    let imbalance = match totals.knows_homes() {
        true => format!("{} (population)", units::whole_percent(totals.imbalance.population.value)),
        false => "unknown".to_owned(),
    };
    let findings = format!(
        "{} of {} remote · controller imbalance {imbalance}",
        estimates::remote_share(totals),
        estimates::remote_base(totals, traffic.counted.many()),
    );
    let top = headline.top.as_ref().map_or_else(String::new, |row| {
        let place = if row.place.is_empty() { String::new() } else { format!(" ({})", row.place) };
        format!("{}{place} receives {} of all {}", row.name, estimates::share(&row.share), traffic.counted.many())
    });
    let top = if traffic.scope.is_empty() { top } else { format!("{top} · only {}", traffic.scope) };
    let how = estimates::found(traffic.matrix.source);
    picture(&Picture {
        machine: traffic.machine,
        matrix: traffic.matrix,
        links: traffic.links,
        title: &format!("{} on {}", heading.program(), heading.machine),
        findings: &[findings, top],
        counted: traffic.counted,
        origin: &format!("{kind} · engine {} · {how} · {}", heading.engine, units::time_ns(heading.program_time_ns)),
    })
}

/// Draws the traffic.
#[must_use]
pub fn picture(traffic: &Picture<'_>) -> String {
    let layout = layout(traffic.machine, Sizes { card_width: CARD.0, card_height: CARD.1, gap: GAP });
    let width = (layout.width + 2.0 * MARGIN).max(WIDTH_MIN);
    let findings: Vec<String> = traffic.findings.iter().flat_map(|finding| lines(finding, width, 15.0)).collect();
    // The drawing goes down by what the findings take beyond two lines.
    let top = TITLE + LINE * findings.len().saturating_sub(2) as f64;
    let height = top + layout.height + FOOTER;
    let origin = ((width - layout.width) / 2.0, top);
    let all = traffic.matrix.accesses.iter().flatten().map(|accesses| accesses.value).sum();
    let scene = Scene { traffic, layout, origin, all };
    let what = traffic.counted.or_faults("Memory traffic", "Page faults");
    let mut writer =
        SvgWriter::new(width, height, &format!("{what} between the nodes of {}", clean(traffic.machine.name())));
    title(&mut writer, traffic, &findings, (width, top));
    let left_out = links::draw(&mut writer, &scene);
    for index in 0..traffic.machine.nodes().len() {
        card(&mut writer, &scene, index);
    }
    routers(&mut writer, &scene);
    legend(&mut writer, &scene, &left_out, (height - FOOTER + 40.0, width));
    writer.finish()
}

fn lines(text: &str, width: f64, size: f64) -> Vec<String> {
    two_lines(&clean(text), columns(width - 2.0 * MARGIN, size))
}

fn title(writer: &mut SvgWriter, traffic: &Picture<'_>, findings: &[String], (width, top): (f64, f64)) {
    let title = lines(traffic.title, width, 22.0);
    // A second line takes the room above the first.
    let y = if title.len() > 1 { 22.0 } else { 40.0 };
    writer.lines((MARGIN, y), 24.0, Type::new(22.0, INK).bold(), &title);
    writer.lines((MARGIN, 66.0), LINE, Type::new(15.0, INK), findings);
    // On a line of its own: beside a long title it would be written over.
    let origin = shorten(&clean(traffic.origin), columns(width - 2.0 * MARGIN, 12.0));
    writer.text((MARGIN, top - 20.0), Type::new(12.0, FAINT), &origin);
}

fn card(writer: &mut SvgWriter, scene: &Scene<'_>, index: usize) {
    let node = &scene.traffic.machine.nodes()[index];
    let Some(centre) = scene.at(Endpoint::Node(node.id)) else { return };
    let (served, made, local) = node_shares(scene.traffic.matrix, node.id, scene.all);
    let corner = (centre.0 - CARD.0 / 2.0, centre.1 - CARD.1 / 2.0);
    // The whole picture shares one scale: an even share of all accesses sits low on it, everything on one node at its top.
    let fill = scale::colour(served);
    let ink = scale::ink_on(served);
    writer.rect((corner.0 + 1.5, corner.1 + 2.5), CARD, 10.0, r##"fill="#000000" fill-opacity="0.07""##);
    writer.rect(corner, CARD, 10.0, &format!(r##"fill="{fill}" stroke="#8d97a2" stroke-width="1.2""##));
    writer.text((corner.0 + 14.0, corner.1 + 24.0), Type::new(14.0, ink).bold(), &format!("Node {}", node.id));
    writer.text((corner.0 + 14.0, corner.1 + 57.0), Type::new(25.0, ink).bold(), &short_percent(served));
    let right = (corner.0 + CARD.0 - 14.0, corner.1 + 57.0);
    writer.text(right, Type::new(12.0, ink).anchored("end"), "served here");
    let asks = format!("its threads make {}", short_percent(made));
    writer.text((corner.0 + 14.0, corner.1 + 80.0), Type::new(12.0, ink), &asks);
    let own = if made > 0.0 {
        format!("{} of these local", short_percent(local / made))
    } else {
        format!("no {} from here", scene.traffic.counted.many())
    };
    writer.text((corner.0 + 14.0, corner.1 + 98.0), Type::new(12.0, ink), &own);
}

/// Shares of all accesses: served by the node, made from it, and both.
fn node_shares(matrix: &Matrix, node: NodeId, all: f64) -> (f64, f64, f64) {
    let Some(index) = matrix.nodes.iter().position(|&n| n == node).filter(|_| all > 0.0) else {
        return (0.0, 0.0, 0.0);
    };
    let served: f64 = matrix.accesses.iter().map(|row| row[index].value).sum();
    let made: f64 = matrix.accesses[index].iter().map(|accesses| accesses.value).sum();
    (served / all, made / all, matrix.accesses[index][index].value / all)
}

fn routers(writer: &mut SvgWriter, scene: &Scene<'_>) {
    for (index, router) in scene.traffic.machine.routers().iter().enumerate() {
        let Some(centre) = scene.at(Endpoint::Router(RouterId(index as u16))) else { continue };
        let corner = (centre.0 - ROUTER.0 / 2.0, centre.1 - ROUTER.1 / 2.0);
        writer.rect(corner, ROUTER, ROUTER.1 / 2.0, r##"fill="#f1f1ee" stroke="#b9b9b0" stroke-width="1.2""##);
        let words = shorten(&clean(&router.name), 15);
        writer.text((centre.0, centre.1 + 4.0), Type::new(12.0, FAINT).anchored("middle"), &words);
    }
}

fn legend(writer: &mut SvgWriter, scene: &Scene<'_>, left_out: &LeftOut, (y, width): (f64, f64)) {
    const STEPS: usize = 40;
    let bar = 200.0;
    for step in 0..STEPS {
        let share = step as f64 / (STEPS - 1) as f64;
        let x = MARGIN + bar * step as f64 / STEPS as f64;
        writer.rect((x, y), (bar / STEPS as f64 + 0.5, 12.0), 0.0, &format!(r#"fill="{}""#, scale::colour(share)));
    }
    writer.text((MARGIN, y + 27.0), Type::new(11.0, FAINT), "0");
    writer.text(
        (MARGIN + bar, y + 27.0),
        Type::new(11.0, FAINT).anchored("end"),
        &format!("100 % of {}", scene.traffic.counted.many()),
    );
    let pairs = scene.traffic.machine.links().is_empty();
    let counted = scene.traffic.counted;
    let words = if pairs {
        "Arrows: from home to thread; how the nodes are connected is not known."
    } else {
        counted.or_faults(
            "Arrows: % of accesses whose data cross the link, from home to thread.",
            "Arrows: % of page faults whose route from home to thread has the link.",
        )
    };
    let room = ((width - MARGIN * 2.0 - bar - 24.0) / 6.3) as usize;
    writer.text((MARGIN + bar + 24.0, y + 10.0), Type::new(11.5, FAINT), &shorten(words, room));
    let note = counted.or_faults(
        "64 bytes each; without probes, write-backs and prefetches.",
        "How much data crosses a link is not known from page faults.",
    );
    writer.text((MARGIN + bar + 24.0, y + 27.0), Type::new(11.5, FAINT), &shorten(note, room));
    let mut not_drawn = Vec::new();
    if left_out.arrows > 0 {
        let arrows = units::counted(left_out.arrows as u64, "lighter arrow", "lighter arrows");
        not_drawn.push(format!("{arrows}, {} of {}", short_percent(left_out.share), counted.many()));
    }
    if scene.traffic.matrix.unknown > 0.0 {
        not_drawn.push(format!("{} with unknown home", counted.many()));
    }
    if !not_drawn.is_empty() {
        let note = format!("Not drawn: {}.", not_drawn.join("; "));
        writer.text((MARGIN + bar + 24.0, y + 44.0), Type::new(11.5, FAINT), &shorten(&note, room));
    }
}
