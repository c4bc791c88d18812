//! Runs the parts, one after the other.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use numapilot_doctor::Diagnosis;
use numapilot_machine::Machine;
use numapilot_measure::{MeasureError, Options as MeasureOptions, Pages, Permit, Plan, Results};

use crate::contention::run::Stage;
use crate::contention::scenes::scenes;
use crate::engines::record;
use crate::outcome::{Check, Part, PartResult};
use crate::placement::apply::pages_under;
use crate::placement::{judge, policies};
use crate::{contention, latency_order};

/// Rounds of each row of programs.
const ROUNDS: usize = 9;
const ROUNDS_QUICK: usize = 5;
/// No further programs are tried after this time.
const CONTENTION: Duration = Duration::from_secs(60);
const CONTENTION_QUICK: Duration = Duration::from_secs(20);
/// So many times the machine is measured again at most, where it has changed when the first programs run; in the first half of the time for programs alone,
/// which goes on meanwhile.
const MEASURED_AGAIN_MAX: usize = 2;
/// What the measurement stays within; without `quick`, what `numapilot measure` does.
const BUDGET_QUICK: Duration = Duration::from_secs(5);

/// Options of the self-test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Parts to run.
    pub parts: BTreeSet<Part>,
    /// Fewer programs and rounds, and a shorter measurement.
    pub is_quick: bool,
    /// Numapilot's own executable, which records.
    pub executable: PathBuf,
}

/// Progress of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The part that runs.
    pub part: Part,
    /// The present step, in words.
    pub now: String,
}

/// Runs the chosen parts on this machine; `progress` is called before each step. A check that cannot be made is not judged.
#[must_use]
pub fn run(
    machine: &Machine,
    diagnosis: &Diagnosis,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Vec<PartResult> {
    let mut runner =
        Runner { machine, diagnosis, options, permit: Permit::of_this_process(), measured: None, progress };
    let parts = Part::ALL.into_iter().filter(|part| options.parts.contains(part));
    parts.map(|part| runner.part(part)).collect()
}

struct Runner<'a> {
    machine: &'a Machine,
    diagnosis: &'a Diagnosis,
    options: &'a Options,
    permit: Permit,
    /// One measurement serves both parts that need one.
    measured: Option<Result<(Plan, Results), String>>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Runner<'_> {
    fn part(&mut self, part: Part) -> PartResult {
        let begun = Instant::now();
        let (checks, contention) = match part {
            Part::Placement => (self.placement(), None),
            Part::Engines => (self.engines(), None),
            Part::LatencyOrder => (self.latency_order(), None),
            Part::Contention => self.contention(),
        };
        PartResult { contention, ..PartResult::new(part, checks, begun.elapsed().as_secs_f64()) }
    }

    fn placement(&mut self) -> Vec<Check> {
        let mut checks = Vec::new();
        for (policy, obstacle) in policies(self.machine, &self.permit) {
            (self.progress)(Progress { part: Part::Placement, now: policy.name() });
            checks.push(match obstacle {
                Some(reason) => Check::not_judged(policy.name(), reason),
                None => match pages_under(&policy) {
                    Ok(found) => judge(&policy, &found),
                    Err(error) => Check::not_judged(policy.name(), error.to_string()),
                },
            });
        }
        checks
    }

    fn engines(&mut self) -> Vec<Check> {
        let progress = &mut self.progress;
        let mut told = |now: String| progress(Progress { part: Part::Engines, now });
        record::run(&self.options.executable, self.machine, self.diagnosis, &mut told).unwrap_or_else(|error| {
            let folder = std::env::temp_dir();
            let reason = format!(
                "cannot make a folder for recordings in {}: {error}; set TMPDIR to a writable folder",
                folder.display()
            );
            vec![Check::not_judged("engines", reason)]
        })
    }

    fn latency_order(&mut self) -> Vec<Check> {
        if latency_order::obstacle(self.machine).is_some() {
            return latency_order::checks(self.machine, &Results::default());
        }
        self.measure(Part::LatencyOrder);
        match self.measured.as_ref() {
            Some(Ok((_, results))) => latency_order::checks(self.machine, results),
            Some(Err(reason)) => vec![Check::not_judged("idle latencies rise with distance", reason)],
            None => Vec::new(),
        }
    }

    fn contention(&mut self) -> (Vec<Check>, Option<contention::Contention>) {
        let not_judged = |reason: &str| (vec![Check::not_judged(contention::judge::NAME, reason)], None);
        let scenes = match scenes(self.machine, &self.permit, self.options.is_quick) {
            Ok(scenes) => scenes,
            Err(reason) => return not_judged(&reason),
        };
        let (rounds, budget) =
            if self.options.is_quick { (ROUNDS_QUICK, CONTENTION_QUICK) } else { (ROUNDS, CONTENTION) };
        self.measure(Part::Contention);
        let begun = Instant::now();
        let mut again = 0;
        loop {
            let (plan, results) = match self.measured.as_ref() {
                Some(Ok(measured)) => (&measured.0, &measured.1),
                Some(Err(reason)) => return not_judged(reason),
                None => return not_judged("nothing was measured"),
            };
            let (elapsed, permit) = (begun.elapsed(), &self.permit);
            let left = budget.saturating_sub(elapsed);
            let stage = Stage { machine: self.machine, permit, plan, results, rounds, budget: left };
            let may_measure_again = again < MEASURED_AGAIN_MAX && elapsed < budget / 2;
            let progress = &mut self.progress;
            let mut told = |now: String| progress(Progress { part: Part::Contention, now });
            match stage.run(&scenes, may_measure_again, &mut told) {
                Ok(Some((mut contention, check))) => {
                    contention.tell_measured_again(again);
                    return (vec![check], Some(contention));
                }
                Ok(None) => told("the machine has changed since it was measured: measuring it again".to_owned()),
                Err(error) => return not_judged(&error.to_string()),
            }
            again += 1;
            self.measured = None;
            self.measure(Part::Contention);
        }
    }

    /// Measures the machine once, as `numapilot measure` does.
    fn measure(&mut self, part: Part) {
        if self.measured.is_some() {
            return;
        }
        let wants_all = self.options.parts.contains(&Part::Contention);
        use numapilot_measure::Part as Measured;
        let parts = if wants_all {
            [Measured::Latency, Measured::Bandwidth, Measured::Loaded].into()
        } else {
            [Measured::Latency].into()
        };
        let options = MeasureOptions {
            parts,
            budget: self.options.is_quick.then_some(BUDGET_QUICK),
            // Page walks are no part of memory (docs/measure.md).
            pages: if self.permit.large_pages { Pages::Large } else { Pages::Base },
            ..MeasureOptions::default()
        };
        let progress = &mut self.progress;
        let mut told = |step: numapilot_measure::Progress| {
            progress(Progress { part, now: format!("measuring {}", step.now) });
        };
        let measured = Plan::new(self.machine, &self.permit, &options).and_then(|plan| {
            let results = numapilot_measure::run(self.machine, &self.permit, &options, &plan, &mut told)?;
            Ok((plan, results))
        });
        self.measured =
            Some(measured.map_err(|error: MeasureError| format!("this machine could not be measured: {error}")));
    }
}
