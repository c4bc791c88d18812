//! Threads that share CPUs in the recording: how much longer each one's work lasts because others run meanwhile.
//!
//! The recording's factor ([`Pace::stretch`]) is kept only as far as as many threads want the CPU as did then. Where a few threads become slower and the others
//! wait for them, these leave their CPUs free: with the recorded factor the slow ones would share a CPU with threads that are not there, and a run in which
//! CPUs are mostly idle would last several times too long.

use numapilot_machine::NodeIndex;

use super::sums::Line;
use crate::usage::pace::Pace;
use crate::usage::{Row, Usage};

/// Which threads share CPUs.
pub(super) struct Crowding {
    /// By thread: the CPU that it shares with others, as an index.
    cpu_of: Vec<Option<usize>>,
    /// By shared CPU: threads at work on it in the recording, on average over the run.
    recorded: Vec<f64>,
}

/// What a thread holds of the CPUs of a node while it works in a window of time.
pub(super) struct Held {
    pub thread: usize,
    pub from: NodeIndex,
    /// The part of the thread's work there, 0 to 1.
    pub part: f64,
}

/// By window: who holds CPUs of which node where threads run on their `seat`: as their lines say, and where no access of a thread was sampled in a window, but
/// the time that it works was counted, on the node of its other accesses or of its start. Nobody holds a CPU for longer than it works.
pub(super) fn holders(usage: &Usage, lines: &[Vec<Line>], seat: &dyn Fn(&Row) -> NodeIndex) -> Vec<Vec<Held>> {
    let of_window = |(window, lines): (usize, &Vec<Line>)| -> Vec<Held> {
        let mut has_line = vec![false; usage.threads];
        lines.iter().for_each(|line| has_line[line.thread] = true);
        let of_line = |line: &Line| Held { thread: line.thread, from: line.from, part: line.part };
        let unsampled = |(thread, node): (usize, &Option<NodeIndex>)| {
            let works = usage.paces[window * usage.threads + thread].busy_ns > 0.0;
            let from = node.filter(|_| works && !has_line[thread])?;
            let from = seat(&Row { window: window as u16, thread: thread as u32, from });
            Some(Held { thread, from, part: 1.0 })
        };
        lines.iter().map(of_line).chain(usage.counted_on.iter().enumerate().filter_map(unsampled)).collect()
    };
    lines.iter().enumerate().map(of_window).collect()
}

/// Times of one walk of the course.
pub(super) struct Times<'t> {
    /// `[window * threads + thread]`, ns, without waits for CPUs.
    pub busy: &'t [f64],
    /// End of the run, ns.
    pub end_ns: f64,
}

impl Crowding {
    /// `None` where no thread waits for a CPU.
    pub fn of(usage: &Usage) -> Option<Crowding> {
        if usage.paces.iter().all(|pace| pace.stretch <= 1.0) {
            return None;
        }
        let mut cpu_of = vec![None; usage.threads];
        for (cpu, threads) in usage.on_one_cpu.iter().enumerate() {
            threads.iter().for_each(|thread| cpu_of[*thread] = Some(cpu));
        }
        let mut crowding = Crowding { cpu_of, recorded: vec![1.0; usage.on_one_cpu.len()] };
        let busy: Vec<f64> = usage.paces.iter().map(|pace| pace.busy_ns).collect();
        let times = Times { busy: &busy, end_ns: usage.course.walk(&usage.course.worked_ns).end_ns };
        crowding.recorded = crowding.at_work(usage, &recorded(&usage.paces), &times);
        Some(crowding)
    }

    /// Threads at work on each shared CPU, those included that wait for it, on average over the run.
    fn at_work(&self, usage: &Usage, stretches: &[f64], times: &Times<'_>) -> Vec<f64> {
        let mut at_work = vec![0.0; self.recorded.len()];
        for (at, (stretch, busy)) in stretches.iter().zip(times.busy).enumerate() {
            if let Some(cpu) = self.cpu_of[at % usage.threads.max(1)] {
                at_work[cpu] += stretch * busy / times.end_ns.max(1.0);
            }
        }
        at_work
    }

    /// By window and thread, the factor by which work lasts longer where as many threads want each CPU as in a walk with these factors and times.
    pub fn of_cpus(&self, usage: &Usage, stretches: &[f64], times: &Times<'_>) -> Vec<f64> {
        let now = self.at_work(usage, stretches, times);
        let of = |(at, pace): (usize, &Pace)| match self.cpu_of[at % usage.threads.max(1)] {
            // In windows in which it had the CPU for itself nobody else came.
            Some(cpu) if pace.stretch > 1.0 => (pace.stretch * now[cpu] / self.recorded[cpu]).max(1.0),
            _ => 1.0,
        };
        usage.paces.iter().enumerate().map(of).collect()
    }

    /// The same where threads are moved: those of a node share its `cpus` evenly.
    pub fn of_nodes(
        &self,
        usage: &Usage,
        held: &[Vec<Held>],
        cpus: &[f64],
        stretches: &[f64],
        times: &Times<'_>,
    ) -> Vec<f64> {
        let mut now = vec![0.0; cpus.len()];
        let each = || held.iter().enumerate().flat_map(|(window, held)| held.iter().map(move |held| (window, held)));
        for (window, held) in each() {
            let at = window * usage.threads + held.thread;
            now[held.from.0] += held.part * stretches[at] * times.busy[at] / times.end_ns.max(1.0);
        }
        // Relative to what the recording had, in which not all of a run's windows were as crowded.
        let mut of_part = vec![0.0; stretches.len()];
        for (window, held) in each() {
            let at = window * usage.threads + held.thread;
            let was = self.cpu_of[held.thread].map_or(1.0, |cpu| self.recorded[cpu]).max(1.0);
            of_part[at] += held.part * usage.paces[at].stretch * now[held.from.0] / cpus[held.from.0] / was;
        }
        of_part.into_iter().map(|stretch| stretch.max(1.0)).collect()
    }
}

/// The factors of the recording.
pub(super) fn recorded(paces: &[Pace]) -> Vec<f64> {
    paces.iter().map(|pace| pace.stretch).collect()
}
