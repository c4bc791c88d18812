//! What the reader of a report must know, in whole sentences.

use std::collections::BTreeSet;

use numapilot_machine::{Cpu, CpuId, Machine};
use numapilot_text::units::{part_percent, part_percent_to};

use crate::engine::run_stats::RunStats;
use crate::report::Convergence;

/// Share of the simulated time above which unsettled epochs are worth a word.
const UNSETTLED_SHARE: f64 = 0.01;
/// Relative change in the last iteration of a load above which its answer is worth a word.
pub(crate) const UNSOLVED: f64 = 1e-6;

/// That threads share cores.
const SHARED_CORES: &str = "Threads share cores (hardware threads), and each hardware thread is simulated as a whole CPU: own work takes longer than simulated \
                            while another thread works on the same core.";

/// Notes on a run at whose end threads are on these `cpus`, by their positions in the machine's list.
pub(crate) fn notes(run_stats: &RunStats, machine: &Machine, cpus: impl Iterator<Item = usize>) -> Vec<String> {
    let mut notes = of_convergence(&run_stats.convergence, run_stats.total.to_ns);
    if run_stats.moves.samples_lost > 0 {
        notes.push(format!("The sampler lost {} of its samples.", run_stats.moves.samples_lost));
    }
    if share_cores(machine, cpus) {
        notes.push(SHARED_CORES.to_owned());
    }
    notes
}

/// Whether two of these CPUs are hardware threads of one core.
fn share_cores(machine: &Machine, cpus: impl Iterator<Item = usize>) -> bool {
    let used: BTreeSet<CpuId> = cpus.filter_map(|cpu| machine.cpus().get(cpu)).map(|cpu| cpu.id).collect();
    let of_one_core = |cpu: &Cpu| cpu.siblings.iter().filter(|id| used.contains(*id)).count();
    machine.cpus().iter().any(|cpu| of_one_core(cpu) > 1)
}

/// Notes on what was solved how well in a run of `run_ns`.
fn of_convergence(convergence: &Convergence, run_ns: f64) -> Vec<String> {
    let mut notes = Vec::new();
    let share = convergence.unsettled_ns / run_ns.max(1.0);
    if share > UNSETTLED_SHARE {
        let doubt = convergence.doubt_ns / run_ns.max(1.0);
        notes.push(format!(
            "In {} of the simulated time the solver did not converge: the run time is uncertain by at most {}.",
            part_percent(share),
            part_percent_to(doubt, 2)
        ));
    }
    if convergence.let_go > 0 {
        let count = convergence.let_go;
        let waits = if count == 1 { "wait" } else { "waits" };
        notes.push(format!("{count} {waits} for other threads ended early, because every thread was waiting."));
    }
    // An epoch may settle on an answer that is wrong.
    if convergence.worst_residual > UNSOLVED {
        notes.push(format!(
            "The traffic model did not converge for every load (its last step changed a figure by {}): all of these figures are approximate.",
            part_percent_to(convergence.worst_residual, 2)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_core_on_two_of_its_cpus() {
        let machine = Machine::load("xeon-2s-cxl").expect("a built-in model");
        let of = |id: CpuId| machine.cpus().iter().position(|cpu| cpu.id == id).expect("listed");
        let cpu = machine.cpus().iter().find(|cpu| cpu.siblings.len() == 2).expect("two hardware threads a core");
        let both = [of(cpu.siblings[0]), of(cpu.siblings[1])];
        assert!(share_cores(&machine, both.into_iter()));
        assert!(!share_cores(&machine, [both[0], both[0]].into_iter()), "one CPU, which they share in turn");
        let other = machine.cpus().iter().find(|other| !cpu.siblings.contains(&other.id)).expect("more cores");
        assert!(!share_cores(&machine, [both[0], of(other.id)].into_iter()));
    }

    /// Only epochs that did not settle were told: one that settles on an answer of a model that did not converge looks as good as any.
    #[test]
    fn a_load_that_was_not_solved_is_told_though_every_epoch_settled() {
        let solved = Convergence { epochs: 9, solves: 9, worst_residual: 1e-11, ..Convergence::default() };
        assert!(of_convergence(&solved, 1e9).is_empty());
        let slight = of_convergence(&Convergence { worst_residual: 2e-6, ..solved.clone() }, 1e9);
        assert!(slight.len() == 1 && slight[0].contains("changed a figure by <0.01 %"), "{slight:?}");
        for worst_residual in [0.05, f64::INFINITY] {
            let notes = of_convergence(&Convergence { worst_residual, ..solved.clone() }, 1e9);
            assert!(notes.len() == 1 && notes[0].contains("did not converge"), "{notes:?}");
        }
        let mut diverged = solved.clone();
        [f64::NAN, 1e-11].into_iter().for_each(|residual| diverged.solved(residual));
        let notes = of_convergence(&diverged, 1e9);
        assert!(diverged.solves == 11 && notes.len() == 1 && notes[0].contains("did not converge"), "{notes:?}");
        let nearly_all = of_convergence(&Convergence { unsettled_ns: 0.9997e9, ..solved.clone() }, 1e9);
        assert!(nearly_all[0].starts_with("In >99.9 %"), "{nearly_all:?}");
        let notes = of_convergence(&Convergence { unsettled_ns: 5e8, doubt_ns: 1e7, ..solved }, 1e9);
        assert!(notes.len() == 1 && notes[0].starts_with("In 50.0 %") && notes[0].contains("1.00 %"), "{notes:?}");
    }
}
