//! Directed links as arrows: one lane for each direction, as wide and as dark as what they carry.

use numapilot_machine::Endpoint;
use numapilot_text::units::short_percent;

use super::FAINT;
use super::scale;
use super::scene::CARD;
use super::scene::ROUTER;
use super::scene::Scene;
use crate::svg_writer::SvgWriter;
use crate::svg_writer::Type;
use crate::topo::layout::Point;

/// Half the distance between the lanes of the two directions.
const LANE: f64 = 13.0;
const THIN: f64 = 1.2;
const THICK: f64 = 18.0;
/// Arrows between pairs of nodes of whose links nothing is known: as many as eight nodes have. More hide each other and the nodes.
pub(super) const PAIRS_MAX: usize = 56;

/// Arrows that are not drawn.
#[derive(Default)]
pub(super) struct LeftOut {
    pub arrows: usize,
    /// Their share of all accesses.
    pub share: f64,
}

/// An arrow for one directed link.
struct Arrow {
    from: Endpoint,
    to: Endpoint,
    /// Share of all accesses.
    share: f64,
}

/// Draws all links; where the machine has none, the pairs of nodes that exchange most data. Returns what is left out.
pub(super) fn draw(writer: &mut SvgWriter, scene: &Scene<'_>) -> LeftOut {
    let arrows = arrows(scene);
    // Light ones first, so that heavy ones lie on top.
    let mut order: Vec<&Arrow> = arrows.iter().collect();
    order.sort_by(|a, b| a.share.total_cmp(&b.share));
    let mut left_out = LeftOut::default();
    if scene.traffic.machine.links().is_empty() {
        left_out.arrows = order.len().saturating_sub(PAIRS_MAX);
        left_out.share = order.drain(..left_out.arrows).map(|arrow| arrow.share).sum();
    }
    for arrow in &order {
        if let Some(lane) = Lane::of(scene, arrow) {
            lane.draw(writer, arrow.share);
        }
    }
    for arrow in &order {
        if let Some(lane) = Lane::of(scene, arrow) {
            lane.label(writer, arrow.share);
        }
    }
    left_out
}

fn arrows(scene: &Scene<'_>) -> Vec<Arrow> {
    let share = |value: f64| if scene.all > 0.0 { value / scene.all } else { 0.0 };
    if !scene.traffic.machine.links().is_empty() {
        let links = scene.traffic.links.iter();
        return links.map(|link| Arrow { from: link.from, to: link.to, share: share(link.accesses) }).collect();
    }
    let matrix = scene.traffic.matrix;
    let mut arrows = Vec::new();
    for (from, row) in matrix.nodes.iter().zip(&matrix.accesses) {
        for (home, accesses) in matrix.nodes.iter().zip(row).filter(|(home, a)| *home != from && a.value > 0.0) {
            arrows.push(Arrow { from: Endpoint::Node(*home), to: Endpoint::Node(*from), share: share(accesses.value) });
        }
    }
    arrows
}

/// Where an arrow runs: between the edges of two cards, to the right of the straight line between their centres.
struct Lane {
    start: Point,
    end: Point,
    /// Unit vector along the arrow.
    along: Point,
}

impl Lane {
    fn of(scene: &Scene<'_>, arrow: &Arrow) -> Option<Lane> {
        let (a, b) = (scene.at(arrow.from)?, scene.at(arrow.to)?);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length = dx.hypot(dy);
        if length < 1.0 {
            return None;
        }
        let along = (dx / length, dy / length);
        let aside = (-along.1 * LANE, along.0 * LANE);
        let (a, b) = ((a.0 + aside.0, a.1 + aside.1), (b.0 + aside.0, b.1 + aside.1));
        let leave = reach(half(arrow.from), along, aside) + 4.0;
        let arrive = reach(half(arrow.to), (-along.0, -along.1), aside) + 4.0;
        if leave + arrive + 12.0 > length {
            return None;
        }
        Some(Lane {
            start: (a.0 + along.0 * leave, a.1 + along.1 * leave),
            end: (b.0 - along.0 * arrive, b.1 - along.1 * arrive),
            along,
        })
    }

    fn draw(&self, writer: &mut SvgWriter, share: f64) {
        let width = THIN + (THICK - THIN) * share.clamp(0.0, 1.0).sqrt();
        let colour = if share > 0.0 { scale::colour(0.12 + 0.88 * share) } else { "#d6d9dc".to_owned() };
        let head = width.mul_add(0.9, 5.0);
        let neck = (self.end.0 - self.along.0 * head, self.end.1 - self.along.1 * head);
        writer.line(self.start, neck, &format!(r#"stroke="{colour}" stroke-width="{width:.1}""#));
        let side = (-self.along.1 * head * 0.75, self.along.0 * head * 0.75);
        let corners = [self.end, (neck.0 + side.0, neck.1 + side.1), (neck.0 - side.0, neck.1 - side.1)];
        writer.triangle(corners, &colour);
    }

    fn label(&self, writer: &mut SvgWriter, share: f64) {
        // A third of the way, where the labels of crossing links and of the other direction are elsewhere.
        let at = |start: f64, end: f64| start + (end - start) * 0.36;
        let aside = 16.0 + THICK * 0.25 * share.clamp(0.0, 1.0).sqrt();
        let x = at(self.start.0, self.end.0) - self.along.1 * aside;
        let y = at(self.start.1, self.end.1) + self.along.0 * aside;
        let anchor = if self.along.1.abs() < 0.4 {
            "middle"
        } else if self.along.1 > 0.0 {
            "end"
        } else {
            "start"
        };
        let colour = if share > 0.0 { "#20262e" } else { FAINT };
        writer.text((x, y + 4.0), Type::new(12.5, colour).anchored(anchor), &short_percent(share));
    }
}

fn half(end: Endpoint) -> Point {
    match end {
        Endpoint::Node(_) => (CARD.0 / 2.0, CARD.1 / 2.0),
        Endpoint::Router(_) => (ROUTER.0 / 2.0, ROUTER.1 / 2.0),
    }
}

/// How far from its (shifted) centre a ray leaves a box with these half sides.
fn reach(half: Point, along: Point, aside: Point) -> f64 {
    let one = |half: f64, along: f64, aside: f64| {
        if along.abs() < 1e-9 { f64::INFINITY } else { ((half * along.signum() - aside) / along).max(0.0) }
    };
    one(half.0, along.0, aside.0).min(one(half.1, along.1, aside.1))
}
