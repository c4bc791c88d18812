//! From a thread's readings, waits and marks to its steps; and the division into steps that run once and steps that repeat.

use std::collections::BTreeMap;

use numapilot_flows::{Life, Order};

use super::mixes::WindowMixes;
use super::rates::Reading;
use super::windows::Windows;
use crate::program::{Action, Builder, Step, Thread, Work};

/// Overlap is rounded to this, so that alike stretches share a behaviour.
const OUTSTANDING_STEP: f64 = 0.05;

/// Data that all threads of a recording share.
pub(super) struct Frame<'a> {
    /// Where windows end; steps are cut there.
    pub(super) cuts: &'a Windows,
    pub(super) windows: &'a [WindowMixes],
    pub(super) alone_ns: &'a dyn Fn(usize, f64, f64) -> f64,
}

/// The records of one thread.
pub(super) struct Source<'a> {
    pub(super) thread: usize,
    pub(super) life: Life,
    pub(super) order: &'a Order,
    pub(super) readings: &'a [Reading],
    /// Pages that are touched again after they lost their home node, with the times.
    pub(super) touches: &'a [(f64, Action)],
}

struct Writer<'a> {
    frame: &'a Frame<'a>,
    source: &'a Source<'a>,
    builder: &'a mut Builder,
    steps: Vec<Step>,
    next_touch: usize,
    /// Accesses without any sample of their thread: their time counts as computation.
    unplaced: f64,
}

/// The steps of a thread, in order, and how many of its accesses no sample could place.
pub(super) fn steps(frame: &Frame<'_>, source: &Source<'_>, builder: &mut Builder) -> (Vec<Step>, f64) {
    let mut writer = Writer { frame, source, builder, steps: Vec::new(), next_touch: 0, unplaced: 0.0 };
    writer.write();
    (writer.steps, writer.unplaced)
}

impl Writer<'_> {
    fn write(&mut self) {
        for piece in self.source.order.pieces(self.source.life) {
            match piece.deed {
                Some(deed) => {
                    self.steps.push(Step { action: deed.into(), from_ns: piece.from_ns, to_ns: piece.to_ns });
                }
                None => self.busy(piece.from_ns, piece.to_ns),
            }
        }
    }

    /// Work between two moments, cut where counters were read and windows end, so also where the repeated part begins and ends.
    fn busy(&mut self, from_ns: f64, to_ns: f64) {
        let mut at = from_ns;
        while at < to_ns {
            let window = self.frame.cuts.at(at);
            let mut end = self.frame.cuts.end_ns(window).min(to_ns);
            let readings = self.source.readings;
            let reading = readings.partition_point(|reading| reading.to_ns <= at).min(readings.len().saturating_sub(1));
            if let Some(reading) = readings.get(reading).filter(|reading| reading.to_ns > at) {
                end = end.min(reading.to_ns);
            }
            if end <= at {
                // Rounding: the next window begins here.
                end = to_ns.min(at + 1.0);
            }
            self.touch(end);
            self.work(at, end, window, readings.get(reading).copied().unwrap_or_default());
            at = end;
        }
    }

    /// Touches the pages whose new first touch is before `until_ns`.
    fn touch(&mut self, until_ns: f64) {
        while let Some(&(at, action)) = self.source.touches.get(self.next_touch).filter(|touch| touch.0 < until_ns) {
            let place = self.steps.last().map_or(at, |step| step.to_ns);
            self.steps.push(Step { action, from_ns: place, to_ns: place });
            self.next_touch += 1;
        }
    }

    fn work(&mut self, from_ns: f64, to_ns: f64, window: usize, reading: Reading) {
        let alone = (self.frame.alone_ns)(self.source.thread, from_ns, to_ns);
        let share = if reading.busy_ns > 0.0 { alone / reading.busy_ns } else { 0.0 };
        let mut accesses = share * reading.accesses;
        let mut own_ns = if reading.busy_ns > 0.0 { share * reading.own_ns } else { alone };
        let mix = if accesses > 0.0 { self.mix(window) } else { None };
        if mix.is_none() {
            // Nobody knows where they went: they take as long as they were charged for.
            self.unplaced += accesses;
            (accesses, own_ns) = (0.0, own_ns + share * reading.memory_ns);
        }
        let outstanding = ((reading.outstanding / OUTSTANDING_STEP).round() * OUTSTANDING_STEP).max(OUTSTANDING_STEP);
        let mix = mix.unwrap_or_else(|| self.builder.mix(&[]));
        let behaviour = self.builder.behaviour(mix, outstanding);
        let work = Work { behaviour, own_ns: own_ns.max(0.0), accesses, instructions: share * reading.progress };
        self.steps.push(Step { action: Action::Work(work), from_ns, to_ns });
    }

    /// The thread's mix in a window, or in the nearest window of the same part that has one.
    fn mix(&self, window: usize) -> Option<u32> {
        let thread = self.source.thread as u32;
        let of = |window: usize| self.frame.windows.get(window).and_then(|mixes| mixes.get(&thread)).copied();
        self.frame.cuts.near(window).find_map(of)
    }
}

/// Which part a step belongs to: 0 before, 1 in, 2 after the repeated part. Work goes by its beginning, waits by their end.
fn part(step: &Step, body: (f64, f64)) -> usize {
    let at = match step.action {
        Action::Await { .. } | Action::Follow | Action::Sleep { .. } => step.to_ns,
        _ => step.from_ns,
    };
    usize::from(at >= body.0) + usize::from(at >= body.1)
}

/// Cuts the steps of all threads at the borders of the repeated part. An event that threads arrive at on one side and wait for on the other is
/// dropped: threads synchronise at the boundaries instead, and such a wait follows the other threads.
pub(super) fn cut(threads: &mut [Thread], body: (f64, f64), builder: &mut Builder) {
    let mut parts_of: BTreeMap<u32, [bool; 3]> = BTreeMap::new();
    for step in threads.iter().flat_map(|thread| &thread.prologue) {
        if let Action::Arrive { event } | Action::Await { event } = step.action {
            parts_of.entry(event).or_default()[part(step, body)] = true;
        }
    }
    let straddles =
        |event: u32| parts_of.get(&event).is_some_and(|parts| parts.iter().filter(|&&used| used).count() > 1);
    for thread in threads.iter_mut() {
        for mut step in std::mem::take(&mut thread.prologue) {
            match step.action {
                Action::Arrive { event } if straddles(event) => continue,
                Action::Await { event } if straddles(event) => step.action = Action::Follow,
                _ => {}
            }
            let steps = [&mut thread.prologue, &mut thread.body, &mut thread.epilogue];
            steps.into_iter().nth(part(&step, body)).into_iter().for_each(|steps| steps.push(step));
        }
    }
    let meeting: Vec<usize> = (0..threads.len()).filter(|&thread| !threads[thread].body.is_empty()).collect();
    let seam = builder.event(meeting.len() as u32);
    for thread in meeting {
        let last = threads[thread].body.last().map_or(body.1, |step| step.to_ns);
        threads[thread].body.push(Step { action: Action::Arrive { event: seam }, from_ns: last, to_ns: last });
        threads[thread].body.push(Step {
            action: Action::Await { event: seam },
            from_ns: last,
            to_ns: body.1.max(last),
        });
    }
}

/// The stretch in which most threads work: from the first to the last moment at which at least half as many work as ever do in one millisecond. What a
/// single thread does before (filling data, say) is outside, to the nanosecond.
pub(super) fn busiest(lives: &[Life], orders: &[Order], end_ns: f64) -> Option<(f64, f64)> {
    const BIN_NS: f64 = 1e6;
    let bins = (end_ns / BIN_NS).ceil() as usize;
    let mut working = vec![0.0; bins];
    // Moments at which a thread begins (+1) or ends (-1) to work.
    let mut changes: Vec<(f64, i32)> = Vec::new();
    let mut add = |from_ns: f64, to_ns: f64| {
        if from_ns < to_ns {
            changes.extend([(from_ns, 1), (to_ns, -1)]);
        }
        let mut at = from_ns;
        while at < to_ns {
            let bin = ((at / BIN_NS) as usize).min(bins - 1);
            let end = ((bin as f64 + 1.0) * BIN_NS).min(to_ns).max(at + 1.0);
            working[bin] += (end.min(to_ns) - at) / BIN_NS;
            at = end;
        }
    };
    for (life, order) in lives.iter().zip(orders) {
        let mut at = life.start_ns;
        for wait in &order.waits {
            add(at, wait.began_ns);
            at = wait.ended_ns;
        }
        add(at, life.end_ns);
    }
    let most = working.iter().copied().fold(0.0, f64::max);
    let first = working.iter().position(|&count| count >= most / 2.0)? as f64 * BIN_NS;
    let last = (working.iter().rposition(|&count| count >= most / 2.0)? + 1) as f64 * BIN_NS;
    // Who ends at a moment ends before others begin.
    changes.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut count, mut since) = (0, None);
    let (mut begin, mut end) = (None, last.min(end_ns));
    for (at, change) in changes {
        count += change;
        let is_many = f64::from(count) >= most / 2.0;
        match since.filter(|_| !is_many) {
            Some(from) if at > from && at > first && from < last => {
                begin = begin.or(Some(from));
                end = at;
                since = None;
            }
            Some(_) => since = None,
            None if is_many => since = since.or(Some(at)),
            None => {}
        }
    }
    Some((begin.unwrap_or(first), end))
}
