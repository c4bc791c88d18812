//! Falsely shared cache lines: several nodes use different words of a line, so the line moves between nodes although no data is shared.

use foldhash::{HashMap, HashMapExt};
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
