//! Pictures for papers and READMEs: one view each, as SVG that stands alone: no scripts, no fonts to fetch, the same bytes for the same trace.
//!
//! Every picture has a title that says what is seen, a line with the finding, and a last line that says where the figures come from. Colours
//! keep their order of lightness in grey, and can be told apart with every kind of colour vision.

pub(crate) mod axis;
mod flame;
mod heap;
mod imbalance;
mod matrix;
mod objects;
mod pages;
pub(crate) mod palette;
mod sheet;
#[cfg(test)]
mod tests;
mod timeline;

use numapilot_insight::link_traffic;

use crate::export::{Export, ExportError};
use crate::traffic;

/// The view that a picture shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The machine, with what nodes serve and links carry.
    Traffic,
    /// The node-to-node matrix.
    Matrix,
    /// The objects that draw most accesses.
    Objects,
    /// Accesses by home node and their remote share over program time.
    Timeline,
    /// One object's pages: where they are and who reaches them.
    Pages,
    /// Call stacks, as wide as their accesses.
    Flame,
    /// Accesses served by each memory controller.
    Imbalance,
    /// Call stacks that allocate, as wide as what of theirs was live at the heap's peak.
    Heap,
}

impl View {
    /// All views.
    pub const ALL: [View; 8] = [
        View::Traffic,
        View::Matrix,
        View::Objects,
        View::Timeline,
        View::Pages,
        View::Flame,
        View::Imbalance,
        View::Heap,
    ];

    /// The name of the view on the command line.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            View::Traffic => "traffic",
            View::Matrix => "matrix",
            View::Objects => "objects",
            View::Timeline => "timeline",
            View::Pages => "pages",
            View::Flame => "flame",
            View::Imbalance => "imbalance",
            View::Heap => "heap",
        }
    }

    /// The view with this name; `None` if there is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<View> {
        View::ALL.into_iter().find(|view| view.word() == word)
    }
}

/// Draws a view.
///
/// # Errors
/// If the view needs something that the trace does not hold.
pub fn svg(view: View, export: &Export<'_>) -> Result<String, ExportError> {
    match view {
        View::Traffic => traffic_svg(export),
        View::Matrix => Ok(matrix::svg(export)),
        View::Objects => Ok(objects::svg(export)),
        View::Timeline => Ok(timeline::svg(export)),
        View::Pages => pages::svg(export),
        View::Flame => Ok(flame::svg(export)),
        View::Imbalance => Ok(imbalance::svg(export)),
        View::Heap => heap::svg(export),
    }
}

fn traffic_svg(export: &Export<'_>) -> Result<String, ExportError> {
    let machine = export.machine.ok_or(ExportError::NoMachine)?;
    let headline = export.analysis.headline();
    let matrix = export.analysis.matrix();
    let (links, _) = link_traffic(&matrix, machine, headline.totals.duration.0);
    let heading = export.heading;
    let counted = export.counted();
    let (headline, matrix, links, scope) = (&headline, &matrix, &links, export.scope);
    Ok(traffic::svg(&traffic::Traffic { heading, machine, headline, matrix, links, scope, counted }))
}
