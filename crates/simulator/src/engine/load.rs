//! The load of the memory system: the average over an epoch, from the time and accesses that threads spent in it.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;
use numapilot_traffic::{Background, Class, Load};

use crate::engine::runner::{Epoch, Runner, Spent};
use crate::engine::ways::Ways;
use crate::pages::{PageTable, Shares};
use crate::program::Program;

/// Loads whose figures differ by less than this share have the same answer.
const SAME: f64 = 0.001;

/// Classes of one epoch: threads that run on one node with one behaviour.
pub(crate) fn load_of(
    epoch: &Epoch,
    elapsed_ns: f64,
    runners: &[Runner],
    program: &Program,
    pages: &PageTable,
    ways: &mut Ways,
) -> Load {
    let mut sums: BTreeMap<(NodeIndex, u32), Spent> = BTreeMap::new();
    for spent in epoch.spent.iter().filter(|spent| spent.accesses > 0.0) {
        let sum = sums.entry((runners[spent.thread as usize].node, spent.behaviour)).or_default();
        sum.busy_ns += spent.busy_ns;
        sum.own_ns += spent.own_ns;
        sum.accesses += spent.accesses;
    }
    let class = |((from, behaviour), sum): ((NodeIndex, u32), Spent)| {
        let behaviour = program.behaviours[behaviour as usize];
        let shares = normalised(ways.shares(program, pages, behaviour.mix, from))?;
        Some(Class {
            from: from.0,
            threads: sum.busy_ns / elapsed_ns,
            outstanding: behaviour.outstanding,
            think_ns: sum.own_ns / sum.accesses,
            reads: shares.reads,
            writes: shares.writes,
        })
    };
    Load { classes: sums.into_iter().filter_map(class).collect(), background: Vec::new() }
}

/// Shares that sum to 1; `None` where no page has a home.
fn normalised(shares: &Shares) -> Option<Shares> {
    let sum: f64 = shares.reads.iter().chain(&shares.writes).sum();
    let scale = |list: &[f64]| list.iter().map(|share| share / sum).collect();
    (sum > 0.0).then(|| Shares { reads: scale(&shares.reads), writes: scale(&shares.writes) })
}

/// Whether two loads have the same answer for all purposes here.
pub(crate) fn alike(a: &Load, b: &Load) -> bool {
    let near = |x: f64, y: f64| (x - y).abs() <= SAME * x.abs().max(y.abs());
    // Shares are near 1 in sum: what matters is their difference in absolute terms.
    let shares = |x: &[f64], y: &[f64]| x.iter().zip(y).all(|(x, y)| (x - y).abs() <= SAME);
    let class = |(x, y): (&Class, &Class)| {
        x.from == y.from
            && x.outstanding == y.outstanding
            && near(x.threads, y.threads)
            && near(x.think_ns, y.think_ns)
            && shares(&x.reads, &y.reads)
            && shares(&x.writes, &y.writes)
    };
    let moved = |(x, y): (&Background, &Background)| {
        (x.source, x.target) == (y.source, y.target) && near(x.bytes_per_s, y.bytes_per_s)
    };
    a.classes.len() == b.classes.len()
        && a.background.len() == b.background.len()
        && a.classes.iter().zip(&b.classes).all(class)
        && a.background.iter().zip(&b.background).all(moved)
}
