//! What latencies that a processor measured of a program's loads say of the machine: which members of the ensemble they leave.
//!
//! Of all samplers only AMD's IBS says something that cannot be wrong in one direction: its latency begins with the miss and has no address translation in it,
//! and a load that joins a miss under way counts only the rest. So loads take at least as long, and members in which they take less are left out.
//! `docs/traffic-model.md`, "Calibration by measured latencies", says what the others' latencies are, and why they leave everything as it is.

use std::collections::BTreeMap;

use numapilot_machine::NodeIndex;
use numapilot_random::quantile::student;
use numapilot_trace::engine::Engine;
use numapilot_trace::meta::Meta;
use numapilot_traffic::TrafficError;
use serde_json::Value;

use crate::measured::{MeasuredLoad, Sums, loads};
use crate::price::members::LEAST;
use crate::price::{Priced, Pricer, Watched};
use crate::scene::Scene;
use crate::uncertainty::{Calibration, LatencyBound, student_4};
use crate::usage::{PARTS, Usage};

/// Quantile of the sampling error that all bounds together stay below: only one end of an interval is used.
const SURE: f64 = 0.975;
/// Share of the loads that may take less than the bound: waits in short bursts, which the model averages away, and interrupts raise a mean, but not what most
/// loads exceed.
const SHORTEST: f64 = 0.25;
/// Most accesses that a thread keeps outstanding on average: half of the miss registers of the processor with IBS that has fewest (K10: 8). Where more overlap,
/// loads wait for a free register, and it is not documented whether the latency holds that wait.
const OUTSTANDING_MAX: f64 = 4.0;
/// How many times as many members are drawn where some will not be left.
const DRAWS: usize = 4;
/// `PERF_TYPE_SOFTWARE`, and the bits of `config1` of `ibs_op` that choose loads by their latency (`ldlat`, Zen 5).
const SOFTWARE: u64 = 1;
const LDLAT: u64 = 0xfff;

const SIMULATED: &str = "The latencies of this recording are simulated, so they say nothing about a real machine.";
const OTHER_SAMPLER: &str = "Only latencies of AMD's IBS are a lower bound of the memory's: those of Intel's PEBS and Arm's SPE count waits within the core, \
                             too, and less than the memory's latency where a prefetch was under way.";
const CHOSEN: &str = "The samples may have been chosen by their latency (`ldlat`): the mean of slow loads is no lower bound. Record without it, or import the \
                      recording again.";
const UNSURE_HOMES: &str = "It is not known of all samples which memory answered them: homes are those of the pages' first touches, or of a later moment. \
                            Record with physical addresses (as root; `perf mem record --phys-data`).";
const OTHER_HOST: &str =
    "The recording host's processor is another one than the machine's, so its latencies are not the machine's.";
const NO_CLOCK: &str = "It is not known how fast the cores' clock can be, so cycles cannot be converted to a lower bound in ns. Import with \
                        `--core-mhz-max`: `lscpu` shows it on the recording machine (CPU max MHz, if that holds boost).";
const TOO_FEW: &str = "No pair of nodes has enough loads with a measured latency.";

/// What a recording's latencies say: accesses with the least that their latency can be on average.
type Bounds = Vec<(Watched, LatencyBound)>;

/// The bounds; or why there are none, in a whole sentence.
fn bounds(scene: &Scene<'_>) -> Result<Bounds, String> {
    let meta = scene.analysis.trace().meta();
    if let Some(why) = unusable(meta) {
        return Err(why.to_owned());
    }
    let Some(khz) = core_khz_max(meta) else { return Err(NO_CLOCK.to_owned()) };
    let outstanding = outstanding(&scene.usage);
    if outstanding > OUTSTANDING_MAX {
        return Err(format!(
            "Threads keep {outstanding:.0} accesses outstanding on average: loads then wait for miss registers, and their latencies may include that wait."
        ));
    }
    let mut pairs: BTreeMap<(NodeIndex, NodeIndex), Loads> = BTreeMap::new();
    for load in loads(scene) {
        pairs.entry((load.from, load.home)).or_default().add(&load, khz);
    }
    pairs.retain(|_, loads| loads.sums.mean_ns().is_some());
    let id = |index: NodeIndex| scene.machine.nodes()[index].id;
    let count = pairs.len();
    let bound = |((from, home), mut loads): ((NodeIndex, NodeIndex), Loads)| {
        let at_least_ns = loads.at_least_ns(count)?;
        let Loads { sums, windows, .. } = loads;
        let watched = Watched { from, home, windows: windows.into_iter().collect() };
        let (from, home) = (id(from), id(home));
        Some((watched, LatencyBound { from, home, samples: sums.samples, at_least_ns, contradicted: 0 }))
    };
    let bounds: Bounds = pairs.into_iter().filter_map(bound).collect();
    if bounds.is_empty() { Err(TOO_FEW.to_owned()) } else { Ok(bounds) }
}

/// The measured loads from one node to the memory of another.
#[derive(Clone, Debug, Default)]
struct Loads {
    sums: Sums,
    /// Their latencies, ns.
    ns: Vec<f64>,
    /// By window: accesses that they stand for.
    windows: BTreeMap<usize, f64>,
}

impl Loads {
    fn add(&mut self, load: &MeasuredLoad, khz: f64) {
        self.sums.add(load, khz);
        self.ns.push(load.cycles * 1e6 / khz);
        *self.windows.entry(load.window).or_default() += load.weight;
    }

    /// The least that their mean latency can be by the sampling, if those of `pairs` pairs of nodes are to hold together: the lower end of the mean or of the
    /// quartile, whichever is less.
    fn at_least_ns(&mut self, pairs: usize) -> Option<f64> {
        let mean = self.sums.mean_ns()?;
        let errors = student_4(1.0 - (1.0 - SURE) / pairs.max(1) as f64);
        let by_mean_ns = mean.value - errors * mean.margin() / student(PARTS - 1);
        self.ns.sort_by(f64::total_cmp);
        let count = self.ns.len() as f64;
        // The number of loads below the quartile scatters as a binomial one.
        let below = count * SHORTEST - errors * (count * SHORTEST * (1.0 - SHORTEST)).sqrt();
        let by_quartile_ns = self.ns.get(below.max(0.0) as usize).copied()?;
        Some(by_mean_ns.min(by_quartile_ns).max(0.0))
    }
}

/// The greatest clock that the recording machine's cores can have, kHz.
fn core_khz_max(meta: &Meta) -> Option<f64> {
    meta.host.get("core_khz_max").and_then(Value::as_f64).filter(|khz| *khz > 0.0)
}

/// Accesses that a thread keeps outstanding while it waits for memory, on average over all accesses.
fn outstanding(usage: &Usage) -> f64 {
    let accesses: f64 = usage.paces.iter().map(|pace| pace.accesses).sum();
    let outstanding: f64 = usage.paces.iter().map(|pace| pace.accesses * pace.outstanding).sum();
    if accesses > 0.0 { outstanding / accesses } else { 1.0 }
}

/// Why latencies of such a recording are no bound; `None`: they are one.
fn unusable(meta: &Meta) -> Option<&'static str> {
    if meta.simulated {
        return Some(SIMULATED);
    }
    let why = match meta.engine.known() {
        Some(Engine::Import) => imported(meta),
        // The processor has one way of sampling loads, of which none are left out for their latency.
        Some(Engine::Pmu) => {
            let processor = meta.host.get("cpu_model").and_then(Value::as_str);
            (!processor.is_some_and(|name| name.starts_with("AMD"))).then_some(OTHER_SAMPLER)
        }
        _ => Some(OTHER_SAMPLER),
    };
    if why.is_some() {
        return why;
    }
    // Pages may have moved between their first touch or a look-up and the access: those of nearer memory would seem slow.
    let unsure: &[&str] = match meta.engine.known() {
        Some(Engine::Import) => &["home_by_first_touch"],
        _ => &["home_by_first_touch", "home_by_query"],
    };
    let counts = meta.more.get("import").or_else(|| meta.more.get("events"));
    if unsure.iter().any(|name| counts.and_then(|counts| number(counts, name)) != Some(0)) {
        return Some(UNSURE_HOMES);
    }
    meta.other_processor().map(|_| OTHER_HOST)
}

fn number(of: &Value, name: &str) -> Option<u64> {
    of.get(name).and_then(Value::as_u64)
}

/// Why latencies of an imported recording are no bound.
fn imported(meta: &Meta) -> Option<&'static str> {
    let events = meta.config.get("events").and_then(Value::as_array).into_iter().flatten();
    let sampled: Vec<&Value> = events.filter(|event| number(event, "type") != Some(SOFTWARE)).collect();
    let is_ibs = |event: &&Value| event.get("pmu").is_some_and(|name| name == "ibs_op");
    if sampled.is_empty() || !sampled.iter().all(is_ibs) {
        return Some(OTHER_SAMPLER);
    }
    let is_chosen = sampled.iter().any(|event| number(event, "config1").is_none_or(|config| config & LDLAT != 0));
    is_chosen.then_some(CHOSEN)
}

/// The pricer of a scene and the price of the program as it was recorded; where that was asked for, with an ensemble of members that meet the bounds, and what
/// the calibration did.
pub(crate) fn priced<'a>(scene: &'a Scene<'a>) -> Result<(Pricer<'a>, Priced, Option<Calibration>), TrafficError> {
    let with_ensemble = |times, watched| -> Result<(Pricer<'a>, Priced), TrafficError> {
        let pricer = Pricer::new(scene.machine, &scene.usage)?.with_ensemble(times)?.watching(watched);
        let now = pricer.now()?;
        Ok((pricer, now))
    };
    let bounds = match scene.analysis.calibrates.then(|| bounds(scene)) {
        Some(Ok(bounds)) => bounds,
        none => {
            let (pricer, now) = with_ensemble(1, Vec::new())?;
            let why = none.and_then(Result::err);
            return Ok((pricer, now, why.map(|why| Calibration { not_used: Some(why), ..Calibration::default() })));
        }
    };
    let watched = bounds.iter().map(|(watched, _)| watched.clone()).collect();
    let (mut pricer, mut now) = with_ensemble(DRAWS, watched)?;
    let (mut calibration, mut is_left) = meet(bounds.into_iter().map(|(_, bound)| bound).collect(), &now.watched_ns);
    // As many as the smallest ensemble has: quantiles of fewer would make the interval narrower than what is known.
    if calibration.left < LEAST {
        calibration.not_used = Some(contradiction(&calibration, &now.watched_ns));
    }
    // Where nothing is left out, the interval is that of any price.
    if calibration.not_used.is_some() || calibration.left == calibration.members {
        let (pricer, now) = with_ensemble(1, Vec::new())?;
        return Ok((pricer, now, Some(calibration)));
    }
    // No more than any price has. They are in no order, so the first stand for all.
    let most = is_left.len() / DRAWS;
    let mut left = 0;
    for is_left in is_left.iter_mut().filter(|is_left| **is_left) {
        left += 1;
        *is_left = left <= most;
    }
    now.keep(&is_left);
    pricer.members.keep(&is_left);
    Ok((pricer.watching(Vec::new()), now, Some(calibration)))
}

/// What bounds leave of an ensemble, and which of its members. `watched_ns`: of each member, its mean latencies of what the bounds are about.
fn meet(mut bounds: Vec<LatencyBound>, watched_ns: &[Vec<f64>]) -> (Calibration, Vec<bool>) {
    let mut is_left = vec![true; watched_ns.len()];
    for (at, bound) in bounds.iter_mut().enumerate() {
        for (of_member, is_left) in watched_ns.iter().zip(&mut is_left) {
            let is_met = of_member[at] >= bound.at_least_ns;
            bound.contradicted += usize::from(!is_met);
            *is_left &= is_met;
        }
    }
    let left = is_left.iter().filter(|is_left| **is_left).count();
    (Calibration { members: watched_ns.len(), left, bounds, not_used: None }, is_left)
}

/// That hardly any member is as slow as was measured, in a whole sentence: by the pair of nodes that most members contradict.
fn contradiction(told: &Calibration, watched_ns: &[Vec<f64>]) -> String {
    let bounds = told.bounds.iter().enumerate();
    let Some((at, worst)) = bounds.max_by_key(|(_, bound)| bound.contradicted) else { return TOO_FEW.to_owned() };
    let slowest_ns = watched_ns.iter().map(|of_member| of_member[at]).fold(0.0, f64::max);
    format!(
        "Only {} of {} variants of the machine and the program have latencies as long as was measured: loads from node {} to memory of node {} take {:.0} ns \
         or more, in the variants at most {slowest_ns:.0} ns. The machine's description and the recording do not agree, so the interval is that without \
         calibration: measure the machine again (`numapilot measure`).",
        told.left, told.members, worst.from, worst.home, worst.at_least_ns,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::members::kept;

    fn bound(at_least_ns: f64) -> LatencyBound {
        let (from, home) = (numapilot_machine::NodeId(0), numapilot_machine::NodeId(1));
        LatencyBound { from, home, samples: 100, at_least_ns, contradicted: 0 }
    }

    #[test]
    fn members_that_answer_faster_than_was_measured_are_not_left() {
        let watched_ns: Vec<Vec<f64>> = (0..10).map(|of| vec![100.0 + f64::from(of), 200.0 - f64::from(of)]).collect();
        let (told, is_left) = meet(vec![bound(103.0), bound(193.0)], &watched_ns);
        assert_eq!((told.members, told.left), (10, 5));
        assert_eq!(told.bounds.iter().map(|bound| bound.contradicted).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(kept(&(0..10).map(f64::from).collect::<Vec<_>>(), &is_left), [3.0, 4.0, 5.0, 6.0, 7.0]);
        // Without a latency it cannot be said that it meets a bound.
        assert_eq!(meet(vec![bound(1.0)], &[vec![f64::NAN], vec![2.0]]).0.left, 1);
        let why = contradiction(&meet(vec![bound(300.0), bound(999.0)], &watched_ns).0, &watched_ns);
        assert!(
            why.starts_with("Only 0 of 10 variants")
                && why.contains("take 999 ns or more")
                && why.contains("at most 200 ns"),
            "{why}"
        );
    }

    fn loads(cycles: impl Fn(u32) -> f64) -> Loads {
        let mut loads = Loads::default();
        for number in 0..400_u32 {
            let (part, cycles) = (number as usize % PARTS, cycles(number));
            let (from, home) = (NodeIndex(0), NodeIndex(1));
            let load = MeasuredLoad { from, home, window: 0, weight: 1.0, part, cycles, predicted_ns: 150.0 };
            loads.add(&load, 2e6);
        }
        loads
    }

    /// Make sure that many pairs of nodes are together as sure as one.
    #[test]
    fn a_bound_is_lower_where_more_pairs_must_hold() {
        // 150 to 200 ns: a quarter of them below 162.5.
        let mut scattered = loads(|number| 300.0 + f64::from(number * 7919 % 100));
        let (one, sixteen) = (scattered.at_least_ns(1).expect("a bound"), scattered.at_least_ns(16).expect("a bound"));
        assert!(sixteen < one && one < 162.5 && sixteen > 150.0, "{one}, {sixteen}");
        let mut equal = loads(|_| 300.0);
        assert_eq!((equal.at_least_ns(1), equal.at_least_ns(16)), (Some(150.0), Some(150.0)));
        assert_eq!(Loads::default().at_least_ns(1), None);
    }

    /// The model has steady loads: what some loads wait in bursts says nothing of the machine.
    #[test]
    fn bursts_of_some_loads_do_not_raise_a_bound() {
        let steady = |number: u32| 300.0 + f64::from(number * 7919 % 100);
        let mut calm = loads(steady);
        let mut bursts = loads(|number| steady(number) * if number % 4 == 1 { 20.0 } else { 1.0 });
        let (calm, bursts) = (calm.at_least_ns(1).expect("a bound"), bursts.at_least_ns(1).expect("a bound"));
        assert!(bursts > calm && bursts < 175.0, "{bursts} ns, {calm} ns without: the mean without is 175 ns");
    }
}
