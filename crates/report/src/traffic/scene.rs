//! What a picture of traffic shows, and where its parts are.

use numapilot_insight::LinkTraffic;
use numapilot_insight::Matrix;
use numapilot_machine::Endpoint;
use numapilot_machine::Machine;

use crate::counted::Counted;
use crate::topo::layout::Layout;
use crate::topo::layout::Point;

pub(super) const CARD: Point = (208.0, 112.0);
pub(super) const ROUTER: Point = (104.0, 30.0);

/// The picture in general: which nodes access whose memory, under any words.
#[derive(Clone, Copy)]
pub struct Picture<'a> {
    /// The machine model.
    pub machine: &'a Machine,
    /// The node-to-node matrix.
    pub matrix: &'a Matrix,
    /// The traffic of the links.
    pub links: &'a [LinkTraffic],
    /// Title of the picture.
    pub title: &'a str,
    /// What it says: at most two findings, of one or two lines each.
    pub findings: &'a [String],
    /// Where it comes from: measured or simulated, and how.
    pub origin: &'a str,
    /// What is counted.
    pub counted: Counted,
}

/// The positions and loads of a traffic picture.
pub(crate) struct Scene<'a> {
    pub(super) traffic: &'a Picture<'a>,
    pub(super) layout: Layout,
    pub(super) origin: Point,
    /// Number of all accesses.
    pub(super) all: f64,
}

impl Scene<'_> {
    pub(super) fn at(&self, end: Endpoint) -> Option<Point> {
        let (x, y) = self.layout.of(self.traffic.machine, end)?;
        Some((x + self.origin.0, y + self.origin.1))
    }
}
