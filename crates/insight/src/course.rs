//! The course of a recorded run: the work and the waits of its threads, in an order in which every step comes after the steps that it depends on. The order
//! does not depend on durations, so the run time under a change is one walk over it.
//!
//! `docs/patterns.md`, "Prices", has the rules.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use numapilot_flows::{Deed, Ends, Piece, Trace};

use crate::windows::Windows;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum StepKind {
    /// A share, 0 to 1, of the thread's work in that window.
    Work {
        window: u32,
        share: f64,
    },
    /// The thread arrives at an event, by its index ([`Deed::Arrive`]).
    Arrive(u32),
    /// The thread waits until an event is complete ([`Deed::Await`]).
    Await(u32),
    /// The thread sleeps for this many nanoseconds ([`Deed::Sleep`]).
    Sleep(f64),
    /// The thread waits for an unknown cause, until the other threads of its process have reached this point ([`Deed::Follow`]).
    Follow,
    /// The thread stops counting towards the mean delay of its process, until it resumes.
    Rest,
    Resume,
}

/// One step of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    thread: u32,
    /// Program time at which the step ended in the recording, ns.
    to_ns: f64,
    kind: StepKind,
}

/// The steps of all threads, in order of their dependences.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    steps: Vec<Step>,
    events: usize,
    threads: usize,
    windows: Windows,
    /// By thread: its process, as an index.
    pub process_of: Vec<u32>,
    /// `[window * threads + thread]`: nanoseconds that the thread worked, by the recording's clock.
    pub worked_ns: Vec<f64>,
    /// Whether all threads wait for each other at the end of each window.
    meets: bool,
    /// By thread: when it ends, and whether the run lasts until then.
    pub ends: Ends,
    /// Of the threads for which the run lasts the one that ended last, where there is any.
    last: Option<u32>,
}

/// What the threads that decide the run's end did on the way there, in nanoseconds of the recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Deciding {
    /// They slept.
    pub sleeps_ns: f64,
    /// By thread: it waited for an unknown cause, or until a time-out.
    pub waits_ns: BTreeMap<u32, f64>,
}

/// The result of a walk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Walked {
    /// Program time at which the last thread ended, ns.
    pub end_ns: f64,
    /// By window: program time at which its last work ended, ns; never before that of an earlier window.
    pub done_ns: Vec<f64>,
}

impl Course {
    /// The course of a recording, cut into windows of time.
    pub fn of(trace: &Trace, windows: Windows) -> Course {
        let mut dependences = trace.dependences();
        let ends = std::mem::take(&mut dependences.ends);
        let threads = dependences.lives.len();
        let process_of = dependences.lives.iter().map(|life| life.process).collect();
        let end_ns = |thread: u32| dependences.lives[thread as usize].end_ns;
        // Of several that end at once the first one made: it waits for the others.
        let last = (0..threads as u32)
            .filter(|thread| ends.lasting[*thread as usize])
            .max_by(|a, b| end_ns(*a).total_cmp(&end_ns(*b)).then(b.cmp(a)));
        let mut course = Course {
            steps: Vec::new(),
            events: dependences.events.len(),
            threads,
            windows,
            process_of,
            worked_ns: vec![0.0; windows.count * threads],
            // Hardware samples show no waits. Threads that share data wait for each other somewhere, as in loops. Without any wait, a gain that is spread
            // over the threads would count for nothing.
            meets: trace.waits().is_empty(),
            ends,
            last,
        };
        let lives = dependences.lives.iter().zip(&dependences.orders);
        let pieces: Vec<Vec<Piece>> = lives.map(|(life, order)| cut(&order.pieces(*life), windows)).collect();
        for (thread, pieces) in pieces.iter().enumerate() {
            for piece in pieces.iter().filter(|piece| piece.deed.is_none()) {
                let window = windows.at(piece.from_ns);
                course.worked_ns[window * threads + thread] += piece.to_ns - piece.from_ns;
            }
        }
        course.order(&pieces, &dependences.events);
        course
    }

    /// Orders all pieces: of those whose dependences are met, the one that ended first in the recording comes next.
    fn order(&mut self, pieces: &[Vec<Piece>], needed: &[u32]) {
        let key = |thread: usize, next: usize| {
            pieces[thread].get(next).map(|piece| Reverse((piece.to_ns.max(0.0).to_bits(), thread)))
        };
        let mut next = vec![0; self.threads];
        let mut open: BinaryHeap<_> = (0..self.threads).filter_map(|thread| key(thread, 0)).collect();
        let mut arrived = vec![0; needed.len()];
        let mut waiting: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        loop {
            let Some(Reverse((_, thread))) = open.pop() else {
                // The remaining threads wait for events that never complete, because records were lost. The earliest one follows the others instead.
                let at = |thread: usize| (pieces[thread][next[thread]].to_ns.to_bits(), thread);
                let Some(first) = waiting.values().flatten().copied().min_by_key(|thread| at(*thread)) else { return };
                waiting.values_mut().for_each(|threads| threads.retain(|thread| *thread != first));
                waiting.retain(|_, threads| !threads.is_empty());
                let to_ns = pieces[first][next[first]].to_ns;
                self.push(first, to_ns, StepKind::Follow);
                self.push(first, to_ns, StepKind::Resume);
                next[first] += 1;
                open.extend(key(first, next[first]));
                continue;
            };
            let piece = pieces[thread][next[thread]];
            let to_ns = piece.to_ns;
            match piece.deed {
                None => {
                    let window = self.windows.at(piece.from_ns);
                    let worked = self.worked_ns[window * self.threads + thread];
                    let share = (to_ns - piece.from_ns) / worked;
                    self.push(thread, to_ns, StepKind::Work { window: window as u32, share });
                }
                Some(Deed::Arrive(event)) => {
                    self.push(thread, to_ns, StepKind::Arrive(event));
                    arrived[event as usize] += 1;
                    if arrived[event as usize] >= needed[event as usize] {
                        for waiter in waiting.remove(&event).unwrap_or_default() {
                            let to_ns = pieces[waiter][next[waiter]].to_ns;
                            self.push(waiter, to_ns, StepKind::Await(event));
                            self.push(waiter, to_ns, StepKind::Resume);
                            next[waiter] += 1;
                            open.extend(key(waiter, next[waiter]));
                        }
                    }
                }
                Some(Deed::Await(event)) if arrived[event as usize] < needed[event as usize] => {
                    self.push(thread, to_ns, StepKind::Rest);
                    waiting.entry(event).or_default().push(thread);
                    continue;
                }
                Some(Deed::Await(event)) => self.push(thread, to_ns, StepKind::Await(event)),
                Some(Deed::Sleep(ns)) => self.push(thread, to_ns, StepKind::Sleep(ns)),
                Some(Deed::Follow) => {
                    self.push(thread, to_ns, StepKind::Rest);
                    self.push(thread, to_ns, StepKind::Follow);
                    self.push(thread, to_ns, StepKind::Resume);
                }
            }
            next[thread] += 1;
            match key(thread, next[thread]) {
                Some(key) => open.push(key),
                None => self.push(thread, to_ns, StepKind::Rest),
            }
        }
    }

    fn push(&mut self, thread: usize, to_ns: f64, kind: StepKind) {
        self.steps.push(Step { thread: thread as u32, to_ns, kind });
    }

    /// Takes the time of threads in windows in which they wait (`[window * threads + thread]`) for no work.
    pub fn rest(&mut self, waits: &[bool]) {
        self.worked_ns.iter_mut().zip(waits).filter(|(_, waits)| **waits).for_each(|(ns, _)| *ns = 0.0);
    }

    /// What decided the recorded run's end: from the end of the thread that ended last backwards, and from where it waited for others on along the one of
    /// them that came last.
    pub fn deciding(&self) -> Deciding {
        let mut deciding = Deciding::default();
        let Some(mut thread) = self.last else { return deciding };
        // The thread's step behind the one that is looked for, and the event whose last arrival is looked for.
        let mut later: Option<&Step> = None;
        let mut awaited: Option<u32> = None;
        for step in self.steps.iter().rev() {
            match (awaited, step.kind) {
                (Some(event), StepKind::Arrive(arrived)) if arrived == event => {
                    (thread, later, awaited) = (step.thread, Some(step), None);
                }
                // Both are at the end of the wait that they are of.
                (Some(_), _) | (None, StepKind::Rest | StepKind::Resume) => {}
                (None, kind) if step.thread == thread => {
                    if let Some(later) = later {
                        deciding.add(later, step.to_ns);
                    }
                    match kind {
                        StepKind::Await(event) => awaited = Some(event),
                        _ => later = Some(step),
                    }
                }
                (None, _) => {}
            }
        }
        deciding
    }

    /// Number of steps.
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Computes the run time from the time of each thread's work in each window (`[window * threads + thread]`, ns).
    pub fn walk(&self, work_ns: &[f64]) -> Walked {
        let mut now = vec![0.0_f64; self.threads];
        let mut complete = vec![0.0_f64; self.events];
        let mut delay = MeanDelay::new(self);
        let mut walked = Walked { end_ns: 0.0, done_ns: vec![0.0; self.windows.count] };
        let mut present = 0;
        for step in &self.steps {
            let thread = step.thread as usize;
            match step.kind {
                // All work of a window comes before that of the next: it ends with the recording's time.
                StepKind::Work { window, .. } if self.meets && window > present => {
                    present = window;
                    let latest = now.iter().copied().fold(0.0, f64::max);
                    now.iter_mut().filter(|now| **now > 0.0).for_each(|now| *now = latest);
                }
                _ => {}
            }
            let now = &mut now[thread];
            match step.kind {
                StepKind::Work { window, share } => {
                    let window = window as usize;
                    *now += share * work_ns[window * self.threads + thread];
                    walked.done_ns[window] = walked.done_ns[window].max(*now);
                }
                StepKind::Arrive(event) => complete[event as usize] = complete[event as usize].max(*now),
                StepKind::Await(event) => *now = now.max(complete[event as usize]),
                StepKind::Sleep(ns) => *now += ns,
                StepKind::Follow => *now = now.max(step.to_ns + delay.mean_of_process(self.process_of[thread])),
                StepKind::Rest => {
                    delay.leave(thread, self.process_of[thread]);
                    continue;
                }
                StepKind::Resume => {}
            }
            delay.set(thread, self.process_of[thread], *now - step.to_ns);
        }
        let ends = now.iter().zip(&self.ends.lasting).filter(|(_, is_lasting)| **is_lasting);
        walked.end_ns = ends.map(|(now, _)| *now).fold(0.0, f64::max);
        let mut latest: f64 = 0.0;
        for done in &mut walked.done_ns {
            latest = latest.max(*done);
            *done = latest;
        }
        walked
    }
}

impl Deciding {
    /// Adds a step that began at `from_ns`.
    fn add(&mut self, step: &Step, from_ns: f64) {
        let lasted_ns = (step.to_ns - from_ns).max(0.0);
        match step.kind {
            StepKind::Sleep(_) => self.sleeps_ns += lasted_ns,
            StepKind::Follow => *self.waits_ns.entry(step.thread).or_default() += lasted_ns,
            _ => {}
        }
    }
}

/// Mean delay of the running threads behind the recording, for each process and for all, ns.
struct MeanDelay {
    of_thread: Vec<Option<f64>>,
    /// Sum and count by process; the last entry is that of all processes.
    sums: Vec<(f64, u32)>,
    /// The last mean over all threads, used while no thread runs.
    last: f64,
}

impl MeanDelay {
    fn new(course: &Course) -> MeanDelay {
        let processes = course.process_of.iter().map(|&process| process as usize + 1).max().unwrap_or(0);
        MeanDelay { of_thread: vec![None; course.threads], sums: vec![(0.0, 0); processes + 1], last: 0.0 }
    }

    fn add(&mut self, process: u32, delay: f64, count: i32) {
        let all = self.sums.len() - 1;
        for at in [process as usize, all] {
            let (sum, threads) = &mut self.sums[at];
            *threads = threads.saturating_add_signed(count);
            // Without the remaining rounding error.
            *sum = if *threads == 0 { 0.0 } else { *sum + delay };
        }
        let (sum, threads) = self.sums[all];
        if threads > 0 {
            self.last = sum / f64::from(threads);
        }
    }

    fn set(&mut self, thread: usize, process: u32, delay: f64) {
        match self.of_thread[thread].replace(delay) {
            Some(old) => self.add(process, delay - old, 0),
            None => self.add(process, delay, 1),
        }
    }

    fn leave(&mut self, thread: usize, process: u32) {
        if let Some(old) = self.of_thread[thread].take() {
            self.add(process, -old, -1);
        }
    }

    fn mean_of_process(&self, process: u32) -> f64 {
        match self.sums[process as usize] {
            (sum, threads) if threads > 0 => sum / f64::from(threads),
            _ => self.last,
        }
    }
}

/// The same pieces, with work cut at the ends of windows.
fn cut(pieces: &[Piece], windows: Windows) -> Vec<Piece> {
    let mut all = Vec::with_capacity(pieces.len());
    for piece in pieces {
        if piece.deed.is_some() {
            all.push(*piece);
            continue;
        }
        let mut from_ns = piece.from_ns;
        while from_ns < piece.to_ns {
            let window = windows.at(from_ns);
            let end_ns = (window as f64 + 1.0) * windows.ns;
            let is_last = window + 1 >= windows.count || end_ns <= from_ns;
            let to_ns = if is_last { piece.to_ns } else { end_ns.min(piece.to_ns) };
            all.push(Piece { from_ns, to_ns, deed: None });
            from_ns = to_ns;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use numapilot_flows::{Tables, Thread, Wait};
    use numapilot_trace::ids::{ThreadIndex, TimeNs};

    use super::*;

    /// Main makes two threads at 10 and joins the first, which sleeps from 20 to 80 and ends at 90. The second sleeps until main ends the program at 100.
    fn joined() -> Course {
        let thread = |index: u32, start: u64, end: Option<u64>| Thread {
            index: ThreadIndex(index),
            parent: (index > 0).then_some(ThreadIndex(0)),
            start: TimeNs(start),
            end: end.map(TimeNs),
            ..Thread::default()
        };
        let wait = |thread: u32, kind: &str, object: u64, began: u64, ended: u64| Wait {
            thread: ThreadIndex(thread),
            kind: kind.into(),
            object,
            began: TimeNs(began),
            ended: TimeNs(ended),
        };
        let trace = Trace::from_tables(Tables {
            threads: vec![thread(0, 0, Some(100)), thread(1, 10, Some(90)), thread(2, 10, None)],
            waits: vec![wait(0, "join", 1, 10, 90), wait(1, "sleep", 0, 20, 80), wait(2, "sleep", 0, 12, 100)],
            end: TimeNs(100),
            ..Tables::default()
        });
        Course::of(&trace, Windows::of(trace.end().0))
    }

    #[test]
    fn only_threads_on_the_way_to_the_end_decide_it() {
        let course = joined();
        assert_eq!(course.deciding(), Deciding { sleeps_ns: 60.0, waits_ns: BTreeMap::new() });
        // With half of all work: 5 of main, 10 of the thread that it joins, whose sleep lasts as long, and 5 of main. Another one's sleep is cut off.
        let halved: Vec<f64> = course.worked_ns.iter().map(|ns| ns / 2.0).collect();
        assert_eq!((course.walk(&course.worked_ns).end_ns, course.walk(&halved).end_ns), (100.0, 80.0));
    }

    fn courses() -> impl Iterator<Item = (&'static str, Trace, Course)> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces");
        ["facerec", "mg", "psearchy", "streamcluster", "webserver"].into_iter().map(move |name| {
            let trace = Trace::open(&folder.join(format!("{name}.numatrace"))).expect("a committed trace");
            let course = Course::of(&trace, Windows::of(trace.end().0));
            (name, trace, course)
        })
    }

    #[test]
    fn a_course_that_nothing_changes_takes_what_was_recorded() {
        for (name, trace, course) in courses() {
            let end_ns = course.walk(&course.worked_ns).end_ns;
            let recorded_ns = trace.end().0 as f64;
            eprintln!("{name}: {} steps, {end_ns:.0} ns, recorded {recorded_ns:.0}", course.steps.len());
            assert!((end_ns / recorded_ns - 1.0).abs() < 0.01, "{name}: {end_ns} ns, recorded {recorded_ns}");
        }
    }

    #[test]
    fn work_that_others_wait_for_counts_and_other_work_does_not() {
        for (name, _, course) in courses() {
            let end_ns = course.walk(&course.worked_ns).end_ns;
            let all: Vec<f64> = course.worked_ns.iter().map(|ns| ns / 2.0).collect();
            let halved_ns = course.walk(&all).end_ns;
            assert!(halved_ns < end_ns && halved_ns > 0.49 * end_ns, "{name}: {halved_ns} of {end_ns}");
            // Whoever works faster never makes the run longer, and what all threads gain one by one does not add up where they wait for each other.
            for thread in 0..course.threads {
                let of_one = |(at, ns): (usize, &f64)| if at % course.threads == thread { ns / 2.0 } else { *ns };
                let one: Vec<f64> = course.worked_ns.iter().enumerate().map(of_one).collect();
                let one_ns = course.walk(&one).end_ns;
                assert!(one_ns <= end_ns * 1.001, "{name}, thread {thread}: {one_ns} of {end_ns}");
            }
        }
    }
}
