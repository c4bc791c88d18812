//! Cache lines that several nodes use for different words: they share nothing, and yet the line travels between them.

use foldhash::{HashMap, HashMapExt};

use super::dominance::ByNode;
use crate::estimate::{Estimate, Tally, Weight};

const LINE_BYTES: u64 = 64;
const WORD_BYTES: u64 = 8;
const WORDS: usize = (LINE_BYTES / WORD_BYTES) as usize;
/// Samples below which a line tells nothing: two for each of two words.
const ENOUGH: u32 = 4;
/// Words are one node's each from this share on, and lines are shared below it.
const APART: f64 = 0.9;

#[derive(Default)]
struct Line {
    words: [ByNode; WORDS],
    all: ByNode,
    samples: u32,
    written_by: u64,
}

/// Lines of one site.
#[derive(Default)]
pub(super) struct Lines(HashMap<(u32, u64), Line>);

impl Lines {
    pub fn new() -> Lines {
        Lines(HashMap::new())
    }

    pub fn add(&mut self, process: u32, address: u64, node: u16, is_write: bool, weight: Weight) {
        let line = self.0.entry((process, address / LINE_BYTES)).or_default();
        line.words[(address % LINE_BYTES / WORD_BYTES) as usize].add(node, weight);
        line.all.add(node, weight);
        line.samples += 1;
        line.written_by |= if is_write { 1 << (node % 64) } else { 0 };
    }

    /// Which lines are falsely shared, and their share of `all`. Lines are judged together: of those that several nodes use and write, the words must be
    /// one node's each, by far more than the lines are.
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
