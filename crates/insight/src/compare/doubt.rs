//! What one recording of each side cannot tell: why, and the recordings and the command that would.

use numapilot_text::shell::quoted;
use numapilot_text::units::{significant_percent, whole_percent};
use serde::Serialize;

use super::racing::raced_for;
use super::run::{RunSummary, TimeSource};

/// Further recordings of each side. Three of each have an interval of 2.5 standard deviations for the mean, by Student's t, two one of 9.
const MORE: usize = 2;
/// Share of a run in which no thread works, from which a note names it: what equal runs of programs that compute differ by anyway.
const IDLE_LEAST: f64 = 0.05;

/// The recordings that would tell more than one of each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Recordings to add to each side.
    pub each: usize,
    /// What to record, in one sentence.
    pub how: String,
    /// The command that then compares all: its words.
    pub command: Vec<String>,
}

impl Remedy {
    /// The remedy for one recording of each side.
    pub(super) fn of(before: &RunSummary, after: &RunSummary) -> Remedy {
        let (first, second) = (bare(&before.trace, "before"), bare(&after.trace, "after"));
        let (old, new) = (more_names(first), more_names(second));
        let is_simulated = before.is_simulated && after.is_simulated;
        let how = format!(
            "Record each side {MORE} more times, as it was, with {} before the change and {} after it; then compare all:",
            options(&old, is_simulated),
            options(&new, is_simulated)
        );
        let mut command: Vec<String> = ["numapilot", "compare", first, second, "--before"].map(str::to_owned).into();
        command.extend(old);
        command.push("--after".to_owned());
        command.extend(new);
        Remedy { each: MORE, how, command }
    }

    /// The command's words as a shell reads them.
    #[must_use]
    pub fn typed(&self) -> Vec<String> {
        self.command.iter().map(|word| quoted(word)).collect()
    }
}

/// What folders of traces end in.
const SUFFIX: &str = ".numatrace";

/// The name of a recording as `record -o` takes it: without the ending, which every command finds by itself. `side`: for a path that names nothing.
fn bare<'a>(trace: &'a str, side: &'a str) -> &'a str {
    let stem = trace.trim_end_matches('/').trim_end_matches(SUFFIX);
    if stem.is_empty() { side } else { stem }
}

/// Names of further recordings beside this one: `before-2` and so on.
fn more_names(name: &str) -> Vec<String> {
    (2..2 + MORE).map(|number| format!("{name}-{number}")).collect()
}

/// Options of `numapilot record` that name the recordings. On a simulated machine the seed draws the samples: with the same one, two recordings may
/// share their errors.
fn options(names: &[String], is_simulated: bool) -> String {
    let of = |(name, seed): (&String, usize)| {
        let seed = if is_simulated { format!("--seed {seed} ") } else { String::new() };
        format!("`{seed}-o {}`", quoted(name))
    };
    names.iter().zip(2..).map(of).collect::<Vec<_>>().join(" and ")
}

/// Why figures of one recording each may differ by chance, where more than what was measured of equal runs may.
pub(super) fn why_in_doubt(before: &RunSummary, after: &RunSummary) -> Vec<String> {
    if !before.is_simulated || !after.is_simulated {
        return vec![
            "In doubt: on a real machine other programs, the scheduler and the clock rate change every run, and one recording of each does not show by \
             how much."
                .to_owned(),
        ];
    }
    let raced = raced_for(before, after).map(|moved| {
        format!(
            "In doubt: other threads made {} of the accesses than in the recording before, so threads race for their work, or the change divides it \
             otherwise. Equal runs of programs that race were found to differ by up to 22 %; only a difference of 50 % (of shares: 30 points) and more counts.",
            significant_percent(moved)
        )
    });
    // Beside a race, only what is more than equal runs differ by anyway is worth a word.
    let idle = idle(&[before, after], if raced.is_some() { IDLE_LEAST } else { 0.0 }).map(|idle| {
        format!(
            "In doubt: {idle}. That time is as long as sleeps, time-outs and what the program waits for outside itself, so equal runs may differ by as much. \
             Processor time does not contain it."
        )
    });
    raced.into_iter().chain(idle).collect()
}

/// That a part of the run times is no work, where that is so.
pub(super) fn idle_note(before: &[RunSummary], after: &[RunSummary]) -> Option<String> {
    let runs: Vec<&RunSummary> = before.iter().chain(after).collect();
    idle(&runs, IDLE_LEAST).map(|idle| {
        format!("Run times contain waiting that placement does not change: {idle}. Processor time does not contain it.")
    })
}

/// `no thread worked in 97 to 99 % of the run times`; `None` where it is less than the share `least` in each of them.
fn idle(runs: &[&RunSummary], least: f64) -> Option<String> {
    let share = |run: &&RunSummary| {
        let time = run.time.filter(|time| time.source == TimeSource::Modelled && time.ns > 0.0)?;
        Some((time.idle_ns? / time.ns).clamp(0.0, 1.0))
    };
    let mut shares: Vec<f64> = runs.iter().filter_map(share).collect();
    shares.sort_by(f64::total_cmp);
    let (low, high) = shares.first().zip(shares.last())?;
    if *high < least {
        return None;
    }
    let [low, high] = [*low, *high].map(whole_percent);
    let range = if low == high { high } else { format!("{} to {high}", low.trim_end_matches(" %")) };
    Some(format!("no thread worked in {range} of the run times"))
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{Filter, Tables, Thread, Trace};
    use numapilot_trace::ids::TimeNs;

    use super::super::run::RunTime;
    use super::*;
    use crate::context::Analysis;

    fn run(name: &str) -> RunSummary {
        let tables = Tables { end: TimeNs(1_000), threads: vec![Thread::default()], ..Tables::default() };
        let trace = Trace::from_tables(tables);
        let summary = RunSummary::new(&Analysis::new(&trace, &[], &[], Filter::default()), name, None);
        RunSummary { is_simulated: true, ..summary }
    }

    fn lasting(name: &str, ns: f64, idle_ns: f64) -> RunSummary {
        let time =
            RunTime { ns, source: TimeSource::Modelled, idle_ns: Some(idle_ns), processor_ns: Some(ns - idle_ns) };
        RunSummary { time: Some(time), ..run(name) }
    }

    #[test]
    fn the_remedy_names_recordings_and_command() {
        let remedy = Remedy::of(&lasting("a b/old.numatrace/", 1.0, 0.0), &lasting("new", 1.0, 0.0));
        assert_eq!(
            remedy.typed().join(" "),
            "numapilot compare 'a b/old' new --before 'a b/old-2' 'a b/old-3' --after new-2 new-3"
        );
        assert!(
            remedy.how.contains("with `--seed 2 -o 'a b/old-2'` and `--seed 3 -o 'a b/old-3'` before the change"),
            "{}",
            remedy.how
        );
        let real = RunSummary { is_simulated: false, ..run("old.numatrace") };
        let remedy = Remedy::of(&real, &real);
        assert!(remedy.how.contains("with `-o old-2` and `-o old-3` before"), "{}", remedy.how);
    }

    #[test]
    fn idle_time_is_named_where_it_is_a_part_of_the_run() {
        let (idle, busy) = (lasting("a", 1.41e9, 1.39e9), lasting("b", 1e9, 0.0));
        let note = idle_note(&[idle], &[lasting("c", 1.03e9, 1.0e9)]).expect("a note");
        assert!(note.contains("no thread worked in 97 to 99 % of the run times"), "{note}");
        assert_eq!(idle_note(std::slice::from_ref(&busy), &[lasting("d", 1e9, 4e7)]), None);
        let why = |before: &RunSummary, after: &RunSummary| why_in_doubt(before, after).join(" / ");
        let said = why(&busy, &lasting("d", 1e9, 4e7));
        assert!(said.starts_with("In doubt: no thread worked in 0 to 4 %"), "{said}");
        let real = RunSummary { is_simulated: false, ..busy.clone() };
        assert!(why(&real, &busy).contains("a real machine"));
        let with = |run: RunSummary, accesses: [u64; 2]| RunSummary { accesses_by_thread: accesses.to_vec(), ..run };
        let raced = why(&with(busy.clone(), [10, 10]), &with(lasting("d", 1e9, 4e7), [11, 9]));
        assert!(raced.starts_with("In doubt: other threads made 5.0 % of") && !raced.contains(" / "), "{raced}");
        let both = why(&with(busy.clone(), [10, 10]), &with(lasting("d", 1e9, 4e8), [11, 9]));
        assert!(both.contains("counts. / In doubt: no thread worked in 0 to 40 %"), "{both}");
    }
}
