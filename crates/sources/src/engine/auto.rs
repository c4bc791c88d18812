//! `--engine auto`: the first engine that works, in an order that depends on the options.
//!
//! 1. A program that was built with `numapilot cc` is recorded as what it was built for: `instrument`. So it is where a machine model is named
//!    (`--machine opteron-8385`), because only engines that simulate can model another machine.
//! 2. Else the hardware: `pmu` has real accesses with real latencies, at full speed.
//! 3. Else the kernel: `fault` records which thread touches which page first, on almost any machine.
//! 4. Else `track`, which has no accesses.
//!
//! Into some programs no tracker can be loaded (static ones, those of another C library): of these 2 and 3 are left, which then know no heap blocks.
//!
//! `emulate` is never chosen automatically: it makes the program several times slower.

use numapilot_doctor::Diagnosis;

use super::{Engine, Refusal};

/// Engines for a program that is not instrumented, on the machine that this is, the best first; `track` comes after them.
const WITHOUT_TRACKER: [Engine; 2] = [Engine::Pmu, Engine::Fault];

/// The best engine for an uninstrumented program, and why the better ones refused. `track` is there whatever the diagnosis says: what is in its way
/// is found when the program is started.
pub(super) fn choose(is_live_machine: bool, diagnose: impl FnOnce() -> Diagnosis) -> (Engine, Vec<Refusal>) {
    let (engine, refusals) = choose_without_tracker(is_live_machine, diagnose);
    (engine.unwrap_or(Engine::Track), refusals)
}

/// The same for a program into which no tracker can be loaded; `None` where no engine is left.
pub(super) fn choose_without_tracker(
    is_live_machine: bool,
    diagnose: impl FnOnce() -> Diagnosis,
) -> (Option<Engine>, Vec<Refusal>) {
    let mut refusals = Vec::new();
    if !is_live_machine {
        return (None, refusals);
    }
    let diagnosis = diagnose();
    for engine in WITHOUT_TRACKER {
        let finding = diagnosis.engine(engine);
        if finding.is_some_and(|finding| finding.works) {
            return (Some(engine), refusals);
        }
        let obstacles = finding.map(|finding| finding.obstacles.as_slice()).unwrap_or_default();
        refusals.extend(obstacles.iter().map(|obstacle| Refusal {
            engine,
            reason: obstacle.reason.clone(),
            remedy: obstacle.remedy.clone(),
        }));
    }
    (None, refusals)
}

#[cfg(test)]
mod tests {
    //! Facts of many kinds of machine, composed by testdata/doctor/make-facts, and what is taken on each.

    use std::path::Path;

    use numapilot_doctor::{Facts, diagnose};

    use super::*;

    fn taken(name: &str, is_live_machine: bool) -> (Engine, Vec<Refusal>) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/doctor").join(format!("{name}.json"));
        let facts: Facts = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        choose(is_live_machine, || diagnose(&facts))
    }

    #[test]
    fn the_first_that_works_is_taken_and_the_others_say_why_not() {
        for (machine, engine, refused) in [
            ("amd-zen4-root", Engine::Pmu, vec![]),
            ("arm-altra", Engine::Pmu, vec![]),
            ("intel-spr-unprivileged", Engine::Pmu, vec![]),
            ("firecracker", Engine::Fault, vec![Engine::Pmu]),
            ("amd-zen2-old-kernel", Engine::Fault, vec![Engine::Pmu]),
            ("docker", Engine::Track, vec![Engine::Pmu, Engine::Fault]),
            ("intel-spr-ubuntu-paranoid-4", Engine::Track, vec![Engine::Pmu, Engine::Fault]),
        ] {
            let (chosen, refusals) = taken(machine, true);
            let mut engines: Vec<Engine> = refusals.iter().map(|refusal| refusal.engine).collect();
            engines.dedup();
            assert_eq!((chosen, engines), (engine, refused), "{machine}");
            assert!(refusals.iter().all(|refusal| !refusal.reason.is_empty() && !refusal.remedy.is_empty()));
        }
    }

    #[test]
    fn where_no_tracker_can_be_loaded_the_kernel_is_left() {
        let taken = |name: &str, is_live: bool| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/doctor").join(format!("{name}.json"));
            let facts: Facts = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
            choose_without_tracker(is_live, || diagnose(&facts)).0
        };
        assert_eq!(taken("amd-zen4-root", true), Some(Engine::Pmu));
        assert_eq!(taken("firecracker", true), Some(Engine::Fault));
        assert_eq!(taken("docker", true), None);
        assert_eq!(taken("amd-zen4-root", false), None);
    }

    #[test]
    fn a_named_machine_model_leaves_no_choice_but_simulating() {
        assert_eq!(taken("amd-zen4-root", false), (Engine::Track, vec![]));
    }
}
