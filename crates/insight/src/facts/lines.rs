//! Falsely shared cache lines: several nodes use different words of a line, so the line moves between nodes although no data is shared.

use foldhash::{HashMap, HashMapExt, HashSet};
use numapilot_machine::NodeIndex;

use super::dominance::ByNode;
use crate::estimate::{Estimate, Tally, Weight};

const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;
const WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;
/// Least number of samples of a line for a judgement: two for each of two words.
const ENOUGH: u32 = 4;
/// Share of samples from one node, from which a word belongs to that node and below which a line is shared.
const APART: f64 = 0.9;

#[derive(Default)]
struct Line {
    words: [ByNode; WORDS],
    all: ByNode,
    samples: u32,
    written_by: u64,
}

/// The cache lines of one site, by process and line number.
#[derive(Default)]
pub(super) struct Lines(HashMap<(u32, u64), Line>);

impl Lines {
    pub fn new() -> Lines {
        Lines(HashMap::new())
    }

    /// Adds a sample. `is_write`: it writes once the object is shared.
    pub fn add(&mut self, process: u32, address: u64, node: NodeIndex, is_write: bool, weight: Weight) {
        let line = self.0.entry((process, address / LINE_BYTES)).or_default();
        line.words[(address % LINE_BYTES / WORD_BYTES) as usize].add(node, weight);
        line.all.add(node, weight);
        line.samples += 1;
        line.written_by |= if is_write { 1 << (node.0 % 64) } else { 0 };
    }

    /// The falsely shared lines, and their share of `all`. All lines are judged together: in those that several nodes use and write, each word must belong
    /// to one node, to a far higher share than the lines do.
    pub fn judge(&self, all: &Tally) -> (Vec<(u32, u64)>, Estimate) {
        let shared: Vec<(&(u32, u64), &Line)> = (self.0.iter())
            .filter(|(_, line)| {
                line.samples >= ENOUGH
                    && line.written_by.count_ones() > 0
                    && line.all.samples.iter().filter(|&&n| n > 0).count() > 1
            })
            .collect();
        let (mut agree, mut judged) = (Tally::default(), Tally::default());
        let (mut line_agree, mut line_judged, mut found) = (Tally::default(), Tally::default(), Tally::default());
        for (_, line) in &shared {
            line.words.iter().for_each(|word| word.judge(&mut agree, &mut judged));
            line.all.judge(&mut line_agree, &mut line_judged);
            line.all.weight.iter().for_each(|tally| found.merge(tally));
        }
        let words = agree.share_of(&judged);
        let lines = line_agree.share_of(&line_judged);
        let is_false = judged.weight > 0.0 && words.value >= APART && lines.high < words.low;
        if !is_false {
            return (Vec::new(), Estimate::exact(0.0));
        }
        let mut keys: Vec<(u32, u64)> = shared.iter().map(|(key, _)| **key).collect();
        keys.sort_unstable();
        (keys, found.share_of(all))
    }
}

/// The key of an access's line, as [`Lines::judge`] gives it.
pub(super) fn key(process: u32, address: u64) -> (u32, u64) {
    (process, address / LINE_BYTES)
}

/// The coherence misses among the accesses to falsely shared lines: those that a layout saves in which each node has lines of its own. A node's first access
/// to a line misses in any layout, and before other nodes use the object, nobody takes a line away.
pub(super) struct CoherenceMisses {
    /// The falsely shared lines.
    lines: HashSet<(u32, u64)>,
    /// Number of lines that each of them stands for, where not all lines were simulated.
    stands_for: f64,
    /// Lines with the nodes of which an access is known.
    used: HashSet<((u32, u64), NodeIndex)>,
}

impl CoherenceMisses {
    /// `lines`: as [`Lines::judge`] gives them. `line_sampling`: one line in so many was simulated.
    pub fn new(lines: Vec<(u32, u64)>, line_sampling: u64) -> CoherenceMisses {
        CoherenceMisses {
            lines: lines.into_iter().collect(),
            stands_for: line_sampling as f64,
            used: HashSet::default(),
        }
    }

    /// How many of the `count` accesses from `node` that a sample stands for are coherence misses. `is_shared`: the sample comes after the object's opening. Of
    /// each node and line, the first sample that is given stands for the first access.
    pub fn among(&mut self, line: (u32, u64), node: NodeIndex, is_shared: bool, count: f64) -> f64 {
        if !self.lines.contains(&line) {
            return 0.0;
        }
        let first = if self.used.insert((line, node)) { self.stands_for.min(count) } else { 0.0 };
        if is_shared { count - first } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each node's first access to a line, and all accesses before the object was shared, were taken for misses that another layout saves.
    #[test]
    fn first_accesses_are_no_coherence_misses() {
        let (line, other) = ((0, 7), (0, 8));
        let mut misses = CoherenceMisses::new(vec![line], 1);
        assert_eq!(misses.among(other, NodeIndex(0), true, 100.0), 0.0, "not falsely shared");
        assert_eq!(misses.among(line, NodeIndex(0), false, 100.0), 0.0, "nobody else uses it yet");
        assert_eq!(misses.among(line, NodeIndex(0), true, 100.0), 100.0, "its first access was before");
        assert_eq!(misses.among(line, NodeIndex(1), true, 100.0), 99.0);
        assert_eq!(misses.among(line, NodeIndex(1), true, 100.0), 100.0);
        // All accesses recorded: each sample is one.
        assert_eq!(misses.among(line, NodeIndex(2), true, 1.0), 0.0);
        assert_eq!(misses.among(line, NodeIndex(2), true, 1.0), 1.0);
        // One line in eight simulated: the other seven have first accesses, too.
        let mut misses = CoherenceMisses::new(vec![line], 8);
        assert_eq!([8.0, 8.0].map(|count| misses.among(line, NodeIndex(0), true, count)), [0.0, 8.0]);
        assert_eq!(misses.among(line, NodeIndex(1), true, 800.0), 792.0);
    }
}
