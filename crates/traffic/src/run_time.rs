//! Predicted run time of a load with a given amount of work.

use crate::error::TrafficError;
use crate::load::Load;
use crate::solver::Solver;
use crate::system::MemorySystem;

/// When each class will have made its `accesses` (all its threads together), in seconds from now. Classes that are done leave, and the
/// others go on with what that frees, until all are done. A class without threads never finishes work that it has: its time is infinite.
pub fn finish_times_s(
    system: &MemorySystem,
    solver: &mut Solver,
    load: &Load,
    accesses: &[f64],
) -> Result<Vec<f64>, TrafficError> {
    if accesses.len() != load.classes.len() || accesses.iter().any(|a| !(a.is_finite() && *a >= 0.0)) {
        let what = format!(
            "{} amounts for {} classes, or an amount that is negative or not a number",
            accesses.len(),
            load.classes.len()
        );
        let remedy = "give each class its number of accesses, from 0".to_owned();
        return Err(TrafficError::Work { what, remedy });
    }
    let mut load = load.clone();
    let mut left = accesses.to_vec();
    let mut times_s: Vec<f64> = left.iter().map(|left| if *left > 0.0 { f64::INFINITY } else { 0.0 }).collect();
    let mut now_s = 0.0;
    for (class, _) in load.classes.iter_mut().zip(&left).filter(|(_, left)| **left <= 0.0) {
        class.threads = 0.0;
    }
    loop {
        let per_s = &solver.solve(system, &load)?.throughput_per_s;
        let wait_s = |class: usize| left[class] / per_s[class];
        let active = || (0..left.len()).filter(|&class| left[class] > 0.0 && per_s[class] > 0.0);
        let Some(first) = active().min_by(|&a, &b| wait_s(a).total_cmp(&wait_s(b))) else { return Ok(times_s) };
        let step_s = wait_s(first);
        now_s += step_s;
        for class in active().collect::<Vec<_>>() {
            let rest = left[class] - per_s[class] * step_s;
            // Classes that end together end now, and not a rounding error later.
            left[class] = if class == first || rest <= 1e-9 * accesses[class] { 0.0 } else { rest };
            if left[class] == 0.0 {
                times_s[class] = now_s;
                load.classes[class].threads = 0.0;
            }
        }
    }
}
