//! Runs the programs of a scene: each alone and all together, in turn, round after round; and predicts the slow-downs.

use std::time::{Duration, Instant};

use numapilot_machine::Machine;
use numapilot_measure::{
    Activity, MeasureError, PROBE, Pace, Pages, Permit, Plan, Program, Results, Seat, Slice, calibrate, model_text,
    rate, run_together,
};
use numapilot_text::units::short_bytes;
use numapilot_traffic::{MemorySystem, TrafficError};
use thiserror::Error;

use super::judge::{judge, median, medians};
use super::predict::{Alone, slowdowns};
use super::rounds::Rounds;
use super::scenes::{Place, READ, Scene};
use super::steady::{Probe, probes, reading};
use super::{Contention, Member, Row};
use crate::outcome::Check;

/// A slice is shorter than a scheduler's turn, so that some are whole on a busy machine too, and far above the clock's grain. A run has as many as it needs.
const PACE: Pace = Pace { slice: Duration::from_millis(2), quiet: 6, most: 30 };
/// No more of a node's free memory is taken than this share, all programs together.
const FREE_SHARE: u64 = 2;
/// No program has less, whatever there is.
const BYTES_MIN: u64 = 1 << 20;
/// A program with less than this many times the last-level caches of a node runs in them for a good part, and the model describes memory.
const CACHES_OVER: u64 = 2;

/// Why contention could not be tried.
#[derive(Debug, Error)]
pub enum ContentionError {
    /// Memory, CPUs or the measurement's model.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The model cannot be solved.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The machine model is invalid.
    #[error(transparent)]
    Machine(#[from] numapilot_machine::MachineError),
    /// A node of the machine is not in its model.
    #[error("the model of this machine has no node {0}; measure all nodes (`numapilot measure`)")]
    NoNode(numapilot_machine::NodeId),
}

/// The machine and settings that the scenes need.
pub struct Stage<'a> {
    /// The machine on which the programs run.
    pub machine: &'a Machine,
    /// The CPUs and memory that this process may use.
    pub permit: &'a Permit,
    /// The plan of the measurement: sizes and lines are taken over from it.
    pub plan: &'a Plan,
    /// Results of the measurement, from which the model is made.
    pub results: &'a Results,
    /// Rounds of each row.
    pub rounds: usize,
    /// After this time no further row begins but the first, and no further round makes up for one that does not count: on a busy machine each takes longer.
    pub budget: Duration,
}

impl Stage<'_> {
    /// Runs all casts of all scenes; `progress` is called before each. `None` if the first of them finds another machine than was measured, and
    /// `may_measure_again`.
    ///
    /// # Errors
    /// No model could be made of the measurement, memory could not be allocated, or a CPU went offline.
    pub fn run(
        &self,
        scenes: &[Scene],
        may_measure_again: bool,
        progress: &mut dyn FnMut(String),
    ) -> Result<Option<(Contention, Check)>, ContentionError> {
        let calibration = calibrate(self.machine, self.results)?;
        let text = model_text(self.machine, self.results, &calibration, "this-machine");
        let model = Machine::from_model_text(&text, "the measured model")?;
        let system = MemorySystem::new(&model)?;
        let mut contention = Contention { model: text, rounds: self.rounds, ..Contention::default() };
        contention.notes.extend(self.results.notes.iter().chain(&self.results.left_out).cloned());
        let end = Instant::now() + self.budget;
        let mut left_out = 0;
        for scene in scenes {
            if Instant::now() > end && !contention.rows.is_empty() {
                left_out += scene.casts.len();
                continue;
            }
            if let Some(why) = self.too_small(scene) {
                contention.notes.push(why);
                continue;
            }
            let probes = probes(scene, self.results);
            contention.notes.extend(probes.is_none().then(|| no_criterion(scene)));
            let probes = probes.unwrap_or_default();
            let mut programs = Vec::new();
            for place in &scene.places {
                programs.push(Program::new(&self.seat(place, scene.places.len()))?);
            }
            for cast in &scene.casts {
                if Instant::now() > end && !contention.rows.is_empty() {
                    left_out += 1;
                    continue;
                }
                let words: Vec<&str> = cast.iter().map(|activity| activity.word()).collect();
                progress(format!("{}: {}", scene.name, words.join(" + ")));
                let times = self.rounds_of(&mut programs, cast, &probes, end)?;
                if may_measure_again && contention.rows.is_empty() && !times.rounds.is_judged() {
                    return Ok(None);
                }
                contention.rows.push(row(scene, cast, &times, (&model, &system))?);
            }
        }
        if left_out > 0 {
            contention.notes.push(format!(
                "Rows left out, because this machine is busy or changes, and the rows before used all of the time: {left_out}."
            ));
        }
        contention.medians = medians(&contention.rows);
        contention.reading = reading(&contention.rows, self.results);
        contention.rounds_left_out = contention.rows.iter().map(|row| row.rounds_left_out).sum();
        let check = judge(&contention.rows, contention.reading);
        Ok(Some((contention, check)))
    }

    /// That a scene's programs may take too little memory, in a sentence.
    fn too_small(&self, scene: &Scene) -> Option<String> {
        let seats = scene.places.iter().map(|place| self.seat(place, scene.places.len()).bytes as u64);
        let bytes = seats.min().filter(|bytes| *bytes < CACHES_OVER * self.plan.cache_bytes)?;
        Some(format!(
            "{}: left out, because a program may take {}, and would run in the caches of {}.",
            scene.name,
            short_bytes(bytes),
            short_bytes(self.plan.cache_bytes)
        ))
    }

    /// A place with as much memory as the measurement's chases went through, where all programs together leave half of the node's free memory.
    fn seat(&self, place: &Place, programs: usize) -> Seat {
        let groups = self.plan.groups.iter();
        let planned =
            groups.filter(|group| group.target.as_ref().and_then(|target| target.node()) == Some(place.memory_node));
        let wanted = planned.map(|group| group.chase_bytes as u64).max().unwrap_or(4 * self.plan.cache_bytes);
        let free = self.machine.node(place.memory_node).and_then(|node| node.free_bytes);
        // Arrays and chases.
        let shares = FREE_SHARE * 2 * programs as u64;
        let room = free.into_iter().chain(self.permit.memory_bytes).min().map_or(u64::MAX, |bytes| bytes / shares);
        Seat {
            memory: place.memory_node,
            cpus: place.cpus.clone(),
            bytes: usize::try_from(wanted.min(room).max(BYTES_MIN)).unwrap_or(usize::MAX),
            pages: self.results.pages,
            large_page_bytes: if self.results.pages == Pages::Base {
                4096
            } else {
                self.permit.large_page_bytes as usize
            },
            single_node: self.plan.single_node,
            line_bytes: self.plan.line_bytes,
        }
    }

    /// Each round: every program alone, then all together. Before and after each, a probe sees whether the machine is still the one that was measured; the
    /// one after a round is that before the next. Rounds that make up for others run until `end`.
    fn rounds_of(
        &self,
        programs: &mut [Program],
        cast: &[Activity],
        probes: &[Probe],
        end: Instant,
    ) -> Result<Times, MeasureError> {
        let rounds = Rounds::new(self.rounds);
        let mut times = Times { alone: vec![Vec::new(); cast.len()], rounds, ..Times::default() };
        times.together.clone_from(&times.alone);
        let mut before = differs_by(programs, probes)?;
        while times.rounds.goes_on(Instant::now() < end) {
            let round = times.rounds.ran();
            for step in 0..=cast.len() {
                // All together comes at another place of each round, so that no order favours one side.
                let index = (step + round) % (cast.len() + 1);
                if index < cast.len() {
                    let ran = run_together(&mut [(&mut programs[index], cast[index])], PACE)?;
                    times.alone[index].push(times.stolen.rate(&ran[0]));
                    continue;
                }
                let mut all: Vec<(&mut Program, Activity)> = programs.iter_mut().zip(cast.iter().copied()).collect();
                let ran = run_together(&mut all, PACE)?;
                for (rates, slices) in times.together.iter_mut().zip(&ran) {
                    rates.push(times.stolen.rate(slices));
                }
            }
            let after = differs_by(programs, probes)?;
            times.rounds.add(before, after);
            before = after;
        }
        times.keep();
        Ok(times)
    }
}

/// That nothing tells whether the machine changes during a scene, in a sentence.
fn no_criterion(scene: &Scene) -> String {
    format!(
        "{}: all rounds count, because the measurement has no reading of as many CPUs, which would tell whether the machine changes meanwhile.",
        scene.name
    )
}

/// By which factor the machine now differs from the one that was measured: the greatest of all probes; `None` without any.
fn differs_by(programs: &mut [Program], probes: &[Probe]) -> Result<Option<f64>, MeasureError> {
    let mut worst: Option<f64> = None;
    for probe in probes {
        let of_probe = programs.iter_mut().enumerate().filter(|(index, _)| probe.places.contains(index));
        let mut readers: Vec<(&mut Program, Activity)> = of_probe.map(|(_, program)| (program, READ)).collect();
        let ran = run_together(&mut readers, PROBE)?;
        let factor = probe.factor(ran.iter().map(|slices| rate(slices).0).sum());
        worst = Some(worst.map_or(factor, |worst| worst.max(factor)));
    }
    Ok(worst)
}

/// Accesses per second by program and round, and how much was disturbed.
#[derive(Clone, Debug, Default)]
struct Times {
    alone: Vec<Vec<f64>>,
    together: Vec<Vec<f64>>,
    rounds: Rounds,
    stolen: Stolen,
}

impl Times {
    /// Keeps the rounds that figures are of.
    fn keep(&mut self) {
        let kept = self.rounds.kept();
        for rates in self.alone.iter_mut().chain(&mut self.together) {
            *rates = kept.iter().map(|&round| rates[round]).collect();
        }
    }
}

/// Runs in which programs lost their CPUs in nearly every slice.
#[derive(Clone, Copy, Debug, Default)]
struct Stolen {
    disturbed: usize,
    all: usize,
}

impl Stolen {
    /// The rate of a run, which is counted.
    fn rate(&mut self, slices: &[Slice]) -> f64 {
        let (rate, is_disturbed) = rate(slices);
        self.disturbed += usize::from(is_disturbed);
        self.all += 1;
        rate
    }
}

/// One row: what was measured, and what the model says to what the programs did alone.
fn row(
    scene: &Scene,
    cast: &[Activity],
    times: &Times,
    (model, system): (&Machine, &MemorySystem),
) -> Result<Row, ContentionError> {
    let index = |node| model.node_index(node).map(|index| index.0).ok_or(ContentionError::NoNode(node));
    let mut alone = Vec::new();
    for ((place, activity), rates) in scene.places.iter().zip(cast).zip(&times.alone) {
        alone.push(Alone {
            from: index(place.cpu_node)?,
            to: index(place.memory_node)?,
            threads: place.cpus.len(),
            write_share: activity.write_share(),
            per_s: median(rates.clone()).unwrap_or(0.0),
        });
    }
    let predicted = slowdowns(system, &alone)?;
    let member = |at: usize| {
        let (place, rounds) = (&scene.places[at], times.alone[at].iter().zip(&times.together[at]));
        let (measured, spread) = middle_and_spread(rounds.map(|(alone, together)| alone / together).collect());
        Member {
            program: cast[at].word().to_owned(),
            threads: place.cpus.len(),
            cpu_node: place.cpu_node,
            memory_node: place.memory_node,
            alone_per_s: alone[at].per_s,
            together_per_s: median(times.together[at].clone()).unwrap_or(0.0),
            measured,
            spread,
            predicted: predicted[at],
        }
    };
    let Stolen { disturbed, all } = times.stolen;
    let disturbed_share = disturbed as f64 / all.max(1) as f64;
    Ok(Row {
        scene: scene.name.clone(),
        members: (0..cast.len()).map(member).collect(),
        disturbed_share,
        rounds: times.rounds.counted(),
        rounds_left_out: times.rounds.left_out(),
        is_judged: times.rounds.is_judged(),
    })
}

/// Median, and 1.4826 times the median absolute deviation as a share of it.
fn middle_and_spread(values: Vec<f64>) -> (f64, f64) {
    let spread = numapilot_measure::Spread::of(&values, numapilot_measure::Better::Low);
    spread.map_or((f64::NAN, f64::INFINITY), |spread| (spread.median, spread.relative()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(per_s: f64, is_disturbed: bool) -> Slice {
        Slice { per_s, is_disturbed }
    }

    #[test]
    fn disturbed_slices_count_only_where_there_are_no_others() {
        let mut stolen = Stolen::default();
        let mut slices = vec![slice(10.0, false), slice(1.0, true), slice(12.0, false), slice(2.0, true)];
        assert_eq!(stolen.rate(&slices), 11.0);
        slices[2].is_disturbed = true;
        assert_eq!(stolen.rate(&slices), 6.0);
        assert_eq!((stolen.disturbed, stolen.all), (1, 2));
    }

    #[test]
    fn programs_that_would_run_in_the_caches_are_left_out() {
        let machine = Machine::load("opteron-8385").expect("a model");
        let left_out = |memory_bytes: Option<u64>| {
            let permit = Permit {
                cpus: (0..16).map(numapilot_machine::CpuId).collect(),
                memory_nodes: (0..4).map(numapilot_machine::NodeId).collect(),
                cpus_at_once: None,
                memory_bytes,
                large_pages: false,
                large_page_bytes: 2 << 20,
                huge_free_bytes: std::collections::BTreeMap::new(),
            };
            let plan = Plan::new(&machine, &permit, &numapilot_measure::Options::default()).expect("a plan");
            let results = Results::default();
            let (rounds, budget) = (1, Duration::from_secs(1));
            let stage = Stage { machine: &machine, permit: &permit, plan: &plan, results: &results, rounds, budget };
            let scenes = crate::contention::scenes::scenes(&machine, &permit, true).expect("scenes");
            scenes.iter().filter_map(|scene| stage.too_small(scene)).collect::<Vec<_>>()
        };
        assert!(left_out(None).is_empty(), "{:?}", left_out(None));
        // A group with 64 MiB: an eighth for each of two programs, beside caches of 6 MiB.
        let small = left_out(Some(64 << 20));
        assert!(small.iter().any(|why| why.contains("may take 8 MiB")), "{small:?}");
    }

    #[test]
    fn a_slow_down_is_the_median_of_the_rounds_with_its_spread() {
        let (median, spread) = middle_and_spread(vec![2.0, 2.2, 2.1]);
        assert!((median - 2.1).abs() < 1e-12 && (spread - 1.4826 * 0.1 / 2.1).abs() < 1e-9);
        assert!(middle_and_spread(Vec::new()).0.is_nan());
    }

    #[test]
    fn rows_predict_from_the_rates_alone() {
        let model = Machine::load("opteron-8385").expect("a model");
        let system = MemorySystem::new(&model).expect("whole");
        let place = |cpu| Place {
            cpu_node: numapilot_machine::NodeId(0),
            cpus: vec![numapilot_machine::CpuId(cpu)],
            memory_node: numapilot_machine::NodeId(0),
        };
        let scene = Scene { name: "x".to_owned(), places: vec![place(0), place(1)], casts: Vec::new() };
        let cast = [Activity::Chase, Activity::Chase];
        let mut rounds = Rounds::new(3);
        for factor in [1.0, 3.0, 1.0, 1.0] {
            rounds.add(Some(1.0), Some(factor));
        }
        let mut times = Times {
            alone: vec![vec![8e6; 4], vec![8e6; 4]],
            together: vec![vec![7.5e6, 1e6, 7.5e6, 7.5e6], vec![4e6, 1e6, 4e6, 4e6]],
            rounds,
            stolen: Stolen { disturbed: 1, all: 4 },
        };
        times.keep();
        let row = row(&scene, &cast, &times, (&model, &system)).expect("possible");
        assert_eq!((row.members[1].measured, row.members[1].spread, row.disturbed_share), (2.0, 0.0, 0.25));
        assert_eq!((row.rounds, row.rounds_left_out, row.is_judged), (3, 1, true));
        assert!((1.0..1.1).contains(&row.members[0].predicted), "two chases hardly meet: {row:?}");
    }
}
