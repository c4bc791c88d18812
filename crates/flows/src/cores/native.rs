//! Bounds the program's own work by native runs, which have no instrumentation.
//!
//! The processor time of a native run in user mode is own work and waiting for memory. The waiting is at most what was charged, if the host's memory answers
//! every access that the simulated caches missed. It may be zero, if the host's caches hold the data. So own work lies between the processor time less the
//! charged waiting and the whole processor time. It is counted in cycles, because the clocks differ; cores of another kind need more or fewer cycles for it.
//!
//! Processor time in the kernel (sockets, files, page faults) is own work, too: no placement of the program's memory changes it much, and a recording's clock
//! charges nothing for it.

use numapilot_machine::Machine;
use numapilot_trace::meta::Meta;
use numapilot_trace::native::NativeRun;

/// Cycles for the same work on a core of another kind, as a multiple of those on the host's. An estimate: of instructions a cycle, K10 and Skylake differ
/// by up to twice in published results of processor benchmarks, and the host may be either.
const OTHER_CORES: (f64, f64) = (0.6, 2.0);
/// What others that run meanwhile cost a program in processor time, at most, for each share of the CPUs' time that they take: the second hardware thread of a
/// core takes up to half of it, which a virtual machine does not show. Caches and memory that they share are left out, because waiting is taken off below.
const COST_OF_OTHERS: f64 = 1.0;
/// Smallest own work of any program, as a multiple of what is charged: 0.2 cycles for each access.
const LEAST: f64 = 0.1;

/// Ranges of the program's own work, as multiples of what was charged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnWork {
    /// Least and most in user mode.
    pub user: (f64, f64),
    /// Least and most in the kernel.
    pub kernel: (f64, f64),
}

/// The program's own work. `None` without native runs, or where nothing was charged. `own_ns` and `waiting_ns`: own
/// work and waiting for memory that the recording's clock charged, ns, summed over threads; `clock_mhz`: that clock's rate.
#[must_use]
pub fn own_work(meta: &Meta, machine: &Machine, own_ns: f64, waiting_ns: f64, clock_mhz: f64) -> Option<OwnWork> {
    let native = Native::of(meta, machine)?;
    native.factor(own_ns * clock_mhz / 1000.0, waiting_ns * native.mhz / 1000.0)
}

/// Native runs of the program that was recorded.
#[derive(Clone, Debug, PartialEq)]
struct Native {
    /// Cycles of processor time in user mode: smallest, less what others cost, and largest of the runs.
    cycles: (f64, f64),
    /// Cycles of processor time in the kernel, likewise.
    kernel: (f64, f64),
    /// Mean clock of the host's cores, MHz.
    mhz: f64,
    is_same_kind: bool,
}

impl Native {
    /// `None` without native runs, or if they took no time.
    fn of(meta: &Meta, machine: &Machine) -> Option<Native> {
        let native = meta.native.as_ref()?;
        let range = |ns: fn(&NativeRun) -> u64| {
            let ranges = native.runs.iter().map(|run| {
                let cycles = ns(run) as f64 * run.clock_mhz / 1000.0;
                // Others only make a run longer.
                (cycles / (1.0 + COST_OF_OTHERS * run.others_share.unwrap_or(0.0).clamp(0.0, 1.0)), cycles)
            });
            ranges.fold((f64::INFINITY, 0.0_f64), |(least, most), (low, high)| (least.min(low), most.max(high)))
        };
        let (cycles, kernel) = (range(|run| run.user_ns), range(|run| run.system_ns));
        let mhz = native.runs.iter().map(|run| run.clock_mhz).sum::<f64>() / native.runs.len() as f64;
        let is_usable =
            cycles.0.is_finite() && cycles.0 > 0.0 && cycles.1.is_finite() && kernel.1.is_finite() && mhz > 0.0;
        let is_same_kind = !native.cpu_model.is_empty() && machine.cpu_model() == Some(native.cpu_model.as_str());
        is_usable.then_some(Native { cycles, kernel, mhz, is_same_kind })
    }

    /// Of cycles charged for own work, and the host's cycles in the waiting that was charged.
    fn factor(&self, charged: f64, waiting: f64) -> Option<OwnWork> {
        let (slowest, fastest) = if self.is_same_kind { (1.0, 1.0) } else { OTHER_CORES };
        (charged > 0.0).then(|| {
            let low = (self.cycles.0 - waiting).max(0.0) * slowest / charged;
            let high = self.cycles.1 * fastest / charged;
            let kernel = (self.kernel.0 * slowest / charged, self.kernel.1 * fastest / charged);
            OwnWork { user: (low.max(LEAST), high.max(LEAST)), kernel }
        })
    }
}

#[cfg(test)]
mod tests {
    //! Made-up runs.

    use numapilot_trace::native::Native as Measured;
    use proptest::prelude::*;

    use super::*;

    fn meta(runs: &[(u64, f64)], cpu_model: &str) -> Meta {
        let run = |(user_ns, clock_mhz): &(u64, f64)| NativeRun {
            user_ns: *user_ns,
            clock_mhz: *clock_mhz,
            ..NativeRun::default()
        };
        let runs = runs.iter().map(run).collect();
        Meta {
            native: Some(Measured { program: "p".to_owned(), cpu_model: cpu_model.to_owned(), runs }),
            ..Meta::default()
        }
    }

    fn machine() -> Machine {
        Machine::load("opteron-8385").expect("builtin")
    }

    #[test]
    fn own_work_is_between_all_the_time_and_what_waiting_leaves() {
        let model = machine().cpu_model().expect("named").to_owned();
        let native = Native::of(&meta(&[(1_000_000, 2000.0), (1_200_000, 2000.0)], &model), &machine()).expect("runs");
        // 2.0 to 2.4 M cycles; 4 M were charged, and waiting of 1 M.
        let user = |waiting: f64| native.factor(4e6, waiting).map(|work| work.user);
        assert_eq!(user(1e6), Some((0.25, 0.6)));
        // Waiting for as long as it ran: nothing is known below.
        assert_eq!(user(3e6), Some((LEAST, 0.6)));
        assert_eq!(native.factor(0.0, 3e6), None);
    }

    #[test]
    fn other_cores_leave_more_open() {
        let native = Native::of(&meta(&[(1_000_000, 2000.0)], "another"), &machine()).expect("runs");
        assert_eq!(native.factor(2e6, 0.0).expect("charged").user, OTHER_CORES);
    }

    #[test]
    fn work_in_the_kernel_is_counted_apart() {
        let model = machine().cpu_model().expect("named").to_owned();
        let mut meta = meta(&[(1_000_000, 2000.0), (1_000_000, 2000.0)], &model);
        for (run, ns) in meta.native.iter_mut().flat_map(|native| &mut native.runs).zip([500_000, 700_000]) {
            run.system_ns = ns;
        }
        let native = Native::of(&meta, &machine()).expect("runs");
        // 1 to 1.4 M cycles, of 2 M that were charged.
        assert_eq!(native.factor(2e6, 0.0), Some(OwnWork { user: (1.0, 1.0), kernel: (0.5, 0.7) }));
    }

    #[test]
    fn a_busy_host_leaves_open_what_others_cost() {
        let model = machine().cpu_model().expect("named").to_owned();
        let mut meta = meta(&[(1_000_000, 2000.0), (1_100_000, 2000.0)], &model);
        for (run, share) in meta.native.iter_mut().flat_map(|native| &mut native.runs).zip([0.6, 0.0]) {
            run.others_share = Some(share);
        }
        let native = Native::of(&meta, &machine()).expect("runs");
        // 1.25 M of 2 M cycles, if others cost the first run all that they may; 2.2 M, if they cost nothing.
        assert_eq!(native.factor(2e6, 0.0).map(|work| work.user), Some((0.625, 1.1)));
    }

    #[test]
    fn runs_that_took_no_time_say_nothing() {
        for runs in [&[][..], &[(0, 2000.0)], &[(5, 0.0)], &[(5, f64::NAN)], &[(5, f64::INFINITY)], &[(5, -1.0)]] {
            assert_eq!(Native::of(&meta(runs, ""), &machine()), None, "{runs:?}");
        }
        assert_eq!(Native::of(&Meta::default(), &machine()), None);
    }

    proptest! {
        #[test]
        fn ranges_are_ranges(user in 1_u64..1 << 50, mhz in 1.0_f64..1e4, charged in 1.0_f64..1e15, waiting in 0.0_f64..1e15) {
            let native = Native::of(&meta(&[(user, mhz)], ""), &machine()).expect("a run");
            let (low, high) = native.factor(charged, waiting).expect("charged").user;
            prop_assert!(low.is_finite() && high.is_finite() && LEAST <= low && low <= high);
        }
    }
}
