//! Links as pairs of arrows between cards, with labels that keep clear of cards and of each other.

use numapilot_machine::{Endpoint, Link, Machine};

use super::super::layout::{Layout, Point};
use super::super::words::{self, Connection};
use crate::svg_writer::{SvgWriter, Type, text_width};

/// Size of a router's pill.
pub const ROUTER: Point = (104.0, 30.0);
const OFFSET: f64 = 4.5;
const HEAD: f64 = 9.0;
const LABEL_SIZE: f64 = 11.5;
/// With more connections than this the labels would cover the picture: the legend tells the bandwidths.
const LABELS_MAX: usize = 30;
const COLOURS: [&str; 6] = ["#2f6fb2", "#c2571a", "#3d8b5f", "#8a4fa3", "#8a7420", "#b03a5b"];

/// A box: left, top, right, bottom.
type Area = (f64, f64, f64, f64);

/// A kind of link, as the legend lists it.
pub struct Kind {
    pub colour: &'static str,
    pub words: String,
}

/// Where things are, in the picture's coordinates.
pub struct Scene<'a> {
    pub machine: &'a Machine,
    pub layout: &'a Layout,
    pub origin: Point,
    pub card: Point,
}

struct Wire<'a> {
    connection: Connection<'a>,
    colour: &'static str,
    from: Point,
    to: Point,
}

impl Scene<'_> {
    pub fn at(&self, end: Endpoint) -> Point {
        let (x, y) = self.layout.of(self.machine, end).unwrap_or_default();
        (x + self.origin.0, y + self.origin.1)
    }

    fn size(&self, end: Endpoint) -> Point {
        if matches!(end, Endpoint::Node(_)) { self.card } else { ROUTER }
    }

    /// Where the line from the centre of `end` towards `other` leaves its box.
    fn border(&self, end: Endpoint, other: Endpoint) -> Point {
        let (a, b) = (self.at(end), self.at(other));
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let (w, h) = self.size(end);
        let reach = (w / 2.0 / dx.abs().max(1e-9)).min(h / 2.0 / dy.abs().max(1e-9)).min(1.0);
        (a.0 + dx * reach, a.1 + dy * reach)
    }

    /// The boxes that labels keep clear of.
    fn boxes(&self) -> Vec<Area> {
        let ends = self.machine.nodes().iter().map(|n| Endpoint::Node(n.id));
        let routers =
            (0..self.machine.routers().len()).map(|r| Endpoint::Router(numapilot_machine::RouterId(r as u16)));
        ends.chain(routers).map(|end| around(self.at(end), self.size(end))).collect()
    }
}

fn around(centre: Point, size: Point) -> Area {
    (centre.0 - size.0 / 2.0, centre.1 - size.1 / 2.0, centre.0 + size.0 / 2.0, centre.1 + size.1 / 2.0)
}

/// Kinds of link in order of appearance.
pub fn kinds(machine: &Machine) -> Vec<Kind> {
    let mut seen: Vec<(String, f64)> = Vec::new();
    for link in machine.links() {
        if !seen.iter().any(|(kind, rate)| *kind == link.kind && *rate == link.bandwidth_bytes_per_s) {
            seen.push((link.kind.clone(), link.bandwidth_bytes_per_s));
        }
    }
    let kind = |(index, (words, rate)): (usize, (String, f64))| Kind {
        colour: COLOURS[index % COLOURS.len()],
        words: format!("{}, {} each way", numapilot_text::style::clean(&words), words::rate(rate)),
    };
    seen.into_iter().enumerate().map(kind).collect()
}

fn colour(machine: &Machine, link: &Link) -> &'static str {
    let mut seen: Vec<(&str, f64)> = Vec::new();
    for other in machine.links() {
        let key = (other.kind.as_str(), other.bandwidth_bytes_per_s);
        if !seen.contains(&key) {
            seen.push(key);
        }
        if key == (link.kind.as_str(), link.bandwidth_bytes_per_s) {
            break;
        }
    }
    COLOURS[(seen.len().max(1) - 1) % COLOURS.len()]
}

/// Draws all arrows. Labels are returned as a second step so that they lie above every line.
pub fn draw(writer: &mut SvgWriter, scene: &Scene<'_>) {
    let machine = scene.machine;
    let widest = machine.links().iter().map(|l| l.bandwidth_bytes_per_s).fold(1.0, f64::max);
    let mut wires = Vec::new();
    for connection in words::connections(machine) {
        let link = connection.forth;
        let (from, to) = (scene.border(link.from, link.to), scene.border(link.to, link.from));
        wires.push(Wire { colour: colour(machine, link), from, to, connection });
    }
    for wire in &wires {
        let link = wire.connection.forth;
        arrow(writer, wire.from, wire.to, wire.colour, thickness(link, widest));
        if let Some(back) = wire.connection.back {
            arrow(writer, wire.to, wire.from, colour(machine, back), thickness(back, widest));
        }
    }
    if wires.len() <= LABELS_MAX {
        labels(writer, scene, &wires);
    }
}

fn thickness(link: &Link, widest: f64) -> f64 {
    1.4 + 2.2 * link.bandwidth_bytes_per_s / widest
}

/// One direction, shifted to its right so that both directions show.
fn arrow(writer: &mut SvgWriter, from: Point, to: Point, colour: &str, width: f64) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1e-9);
    let (ux, uy) = (dx / length, dy / length);
    let shift = |p: Point| (p.0 - uy * OFFSET, p.1 + ux * OFFSET);
    let (from, to) = (shift(from), shift(to));
    let tip = (to.0 - ux * 2.0, to.1 - uy * 2.0);
    let neck = (tip.0 - ux * HEAD, tip.1 - uy * HEAD);
    writer.line(from, neck, &format!(r#"stroke="{colour}" stroke-width="{width:.1}""#));
    let half = HEAD * 0.42;
    let corners = [tip, (neck.0 - uy * half, neck.1 + ux * half), (neck.0 + uy * half, neck.1 - ux * half)];
    writer.triangle(corners, colour);
}

/// A label per connection, or one per direction where they differ.
fn labels(writer: &mut SvgWriter, scene: &Scene<'_>, wires: &[Wire<'_>]) {
    let boxes = scene.boxes();
    let mut taken: Vec<Area> = Vec::new();
    for (index, wire) in wires.iter().enumerate() {
        let forth = words::rate(wire.connection.forth.bandwidth_bytes_per_s);
        let back = wire.connection.back.map(|l| words::rate(l.bandwidth_bytes_per_s));
        let label = match back {
            Some(back) if back == forth => forth,
            Some(back) => format!("{}: {forth}, {}: {back}", heading(wire.from, wire.to), heading(wire.to, wire.from)),
            None => format!("{forth}, one way"),
        };
        let size = (text_width(&label, LABEL_SIZE) + 6.0, LABEL_SIZE + 5.0);
        let cost = |t: f64| {
            let centre = (wire.from.0 + (wire.to.0 - wire.from.0) * t, wire.from.1 + (wire.to.1 - wire.from.1) * t);
            let area = around(centre, size);
            let hits = |areas: &[Area]| areas.iter().map(|other| overlap(area, *other)).sum::<f64>();
            let crossed = wires.iter().enumerate().filter(|(i, other)| *i != index && crosses(other, area)).count();
            (hits(&boxes) * 3.0 + hits(&taken) * 3.0 + crossed as f64 * 40.0 + (t - 0.5).abs() * 8.0, area)
        };
        let tries = [0.5, 0.42, 0.58, 0.35, 0.65, 0.28, 0.72, 0.22, 0.78, 0.16, 0.84, 0.1, 0.9];
        let Some((_, area)) = tries.into_iter().map(cost).min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        taken.push(area);
        writer.rect((area.0, area.1), size, 3.0, r##"fill="#fbfbf9" fill-opacity="0.93""##);
        let kind = Type::new(LABEL_SIZE, wire.colour).bold().anchored("middle");
        writer.text(((area.0 + area.2) / 2.0, area.3 - 4.5), kind, &label);
    }
}

/// An arrow character for the direction in which something points, for labels that tell two apart.
fn heading(from: Point, to: Point) -> &'static str {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    match (dx.abs() >= dy.abs(), dx > 0.0, dy > 0.0) {
        (true, true, _) => "→",
        (true, false, _) => "←",
        (false, _, true) => "↓",
        (false, _, false) => "↑",
    }
}

/// Common area of two boxes.
fn overlap(a: Area, b: Area) -> f64 {
    let width = a.2.min(b.2) - a.0.max(b.0);
    let height = a.3.min(b.3) - a.1.max(b.1);
    if width > 0.0 && height > 0.0 { width * height } else { 0.0 }
}

/// Whether a wire runs through a box, by points along it.
fn crosses(wire: &Wire<'_>, area: Area) -> bool {
    (0..=60).any(|i| {
        let t = f64::from(i) / 60.0;
        let (x, y) = (wire.from.0 + (wire.to.0 - wire.from.0) * t, wire.from.1 + (wire.to.1 - wire.from.1) * t);
        x > area.0 && x < area.2 && y > area.1 && y < area.3
    })
}
