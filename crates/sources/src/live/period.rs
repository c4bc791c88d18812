//! How often to sample: a period that keeps a recording near its target rate and below its ceiling on overhead, whatever the program does.
//!
//! Pure: observations in, a new period out; [`super::pmu`] tells the kernel. The rate of events (micro-operations, loads) follows from what came at the
//! present period; the rate of samples that is allowed follows from the target and from what a sample was measured to cost. Every sample carries the
//! period at which it was taken as its weight, so sums stay right while the period moves.

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Samples per second of the whole recording.
    pub samples_per_s: f64,
    /// Share of a busy CPU's time that sampling may take, 0 to 1.
    pub overhead: f64,
    /// Periods that the hardware takes.
    pub range: PeriodRange,
}

/// Periods that an event takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodRange {
    /// The least.
    pub least: u64,
    /// The greatest.
    pub greatest: u64,
    /// They are multiples of this.
    pub step: u64,
}

impl PeriodRange {
    /// The nearest period at or below `period` that the event takes.
    #[must_use]
    pub fn fit(&self, period: f64) -> u64 {
        let step = self.step.max(1);
        let bounded = (period as u64).clamp(self.least, self.greatest) / step * step;
        if bounded < self.least { self.least.next_multiple_of(step) } else { bounded }
    }
}

/// What happened since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Length, seconds.
    pub seconds: f64,
    /// Samples that came, with those that were lost.
    pub samples: u64,
    /// Sum of their periods: events for which they stand.
    pub events: u64,
    /// Times that the kernel slowed sampling down.
    pub throttles: u64,
    /// What a sample costs, nanoseconds of some CPU: the kernel's part and ours; 0: not measured yet.
    pub cost_ns: f64,
    /// CPUs that were busy with the program on average, at least 0.
    pub busy_cpus: f64,
}

/// A change that is too small to be worth a system call on every CPU.
const DEAD_BAND: f64 = 0.2;
/// Largest change at once: a burst must not silence the minutes after it.
const STEP_MAX: f64 = 8.0;
/// Without a sample nothing is known but that the period may be too long; it shortens slowly, as idle programs give no samples either.
const EMPTY_STEP: f64 = 2.0;
/// After the kernel has throttled: so far below the rate at which it did.
const BELOW_LIMIT: f64 = 0.7;
/// Growth of that bound per look: it is tried again after a minute or so.
const FORGET: f64 = 1.002;

/// The period now, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    goal: Goal,
    period: u64,
    /// Samples per second below which the kernel left us alone.
    kernel_limit: f64,
    /// Times that the period was changed.
    pub changes: u64,
    /// Times that the kernel slowed sampling down.
    pub throttles: u64,
    /// The ceiling on overhead and not the target set the last period.
    pub is_bound_by_overhead: bool,
}

impl Controller {
    /// Begins with a period.
    #[must_use]
    pub fn new(goal: Goal, period: u64) -> Controller {
        let period = goal.range.fit(period as f64);
        Controller { goal, period, kernel_limit: f64::INFINITY, changes: 0, throttles: 0, is_bound_by_overhead: false }
    }

    /// The period.
    #[must_use]
    pub fn period(&self) -> u64 {
        self.period
    }

    /// Samples per second that are allowed, at this cost and with so many busy CPUs.
    fn allowed(&mut self, seen: &Observed) -> f64 {
        let ceiling = if seen.cost_ns > 0.0 {
            self.goal.overhead * seen.busy_cpus.max(1.0) * 1e9 / seen.cost_ns
        } else {
            f64::INFINITY
        };
        self.is_bound_by_overhead = ceiling < self.goal.samples_per_s;
        self.goal.samples_per_s.min(ceiling).min(self.kernel_limit)
    }

    /// Looks at what happened. The new period, if it changes.
    pub fn look(&mut self, seen: &Observed) -> Option<u64> {
        self.throttles += seen.throttles;
        if seen.seconds <= 0.0 {
            return None;
        }
        if seen.throttles > 0 {
            self.kernel_limit = (seen.samples as f64 / seen.seconds).max(1.0) * BELOW_LIMIT;
        } else {
            // The limit may have been of a moment (kernel.perf_cpu_time_max_percent follows what interrupts take).
            self.kernel_limit *= FORGET;
        }
        let allowed = self.allowed(seen);
        let factor = if seen.throttles > 0 {
            // Samples are missing, so their number says nothing; the kernel's own limit is lower than ours.
            STEP_MAX.sqrt()
        } else if seen.samples == 0 || seen.events == 0 {
            1.0 / EMPTY_STEP
        } else {
            let wanted = seen.events as f64 / seen.seconds / allowed;
            (wanted / self.period as f64).clamp(1.0 / STEP_MAX, STEP_MAX)
        };
        if (1.0 - DEAD_BAND..=1.0 + DEAD_BAND).contains(&factor) {
            return None;
        }
        let period = self.goal.range.fit(self.period as f64 * factor);
        if period == self.period {
            return None;
        }
        self.period = period;
        self.changes += 1;
        Some(period)
    }
}

#[cfg(test)]
mod tests {
    //! Synthetic programs: so many events per second, sampled at the controller's period.

    use proptest::prelude::*;

    use super::*;

    const RANGE: PeriodRange = PeriodRange { least: 0x90, greatest: 0x7f_ffff0, step: 16 };
    const GOAL: Goal = Goal { samples_per_s: 10_000.0, overhead: 0.05, range: RANGE };

    /// One second of a program, in looks of 100 ms. The kernel throttles above `limit` samples per second.
    fn second(controller: &mut Controller, events_per_s: f64, cost_ns: f64, limit: f64) -> f64 {
        let mut total = 0;
        for _ in 0..10 {
            let want = events_per_s / 10.0 / controller.period() as f64;
            let samples = want.min(limit / 10.0) as u64;
            total += samples;
            controller.look(&Observed {
                seconds: 0.1,
                samples,
                events: samples * controller.period(),
                throttles: u64::from(want > limit / 10.0),
                cost_ns,
                busy_cpus: 4.0,
            });
        }
        total as f64
    }

    proptest! {
        /// From any start, any constant rate of events is sampled at the target within a second or two and stays there, within the dead band.
        #[test]
        fn constant_rates_converge_and_stay(start in 0x90_u64..0x7f_ffff0, events in 5e7_f64..1e11) {
            let mut controller = Controller::new(GOAL, start);
            for _ in 0..2 {
                second(&mut controller, events, 0.0, f64::INFINITY);
            }
            let changes = controller.changes;
            let rate = second(&mut controller, events, 0.0, f64::INFINITY);
            prop_assert!((7_500.0..=12_700.0).contains(&rate), "{rate} samples/s at {events} events/s");
            prop_assert!(controller.changes <= changes + 1, "it oscillates");
        }

        /// Whatever a sample costs, sampling takes no more than the ceiling (and the dead band) of the busy CPUs' time.
        #[test]
        fn the_ceiling_holds(start in 0x90_u64..0x7f_ffff0, events in 1e8_f64..1e11, cost_ns in 100_f64..1e6) {
            let mut controller = Controller::new(GOAL, start);
            for _ in 0..2 {
                second(&mut controller, events, cost_ns, f64::INFINITY);
            }
            let rate = second(&mut controller, events, cost_ns, f64::INFINITY);
            // Unless the longest period is still too short.
            let least = events / RANGE.greatest as f64;
            let share = rate * cost_ns / 1e9 / 4.0;
            prop_assert!(share <= GOAL.overhead * 1.26 || rate <= least * 1.01, "{share} of the time at {rate} samples/s");
            prop_assert_eq!(controller.is_bound_by_overhead, GOAL.overhead * 4.0 * 1e9 / cost_ns < GOAL.samples_per_s);
        }

        /// Where the kernel throttles at a lower rate than the target, the period settles above that, and throttling ends or stays rare.
        #[test]
        fn throttling_ends(start in 0x90_u64..10_000, events in 1e9_f64..1e10, limit in 500_f64..5_000.0) {
            let mut controller = Controller::new(GOAL, start);
            for _ in 0..3 {
                second(&mut controller, events, 0.0, limit);
            }
            let before = controller.throttles;
            second(&mut controller, events, 0.0, limit);
            prop_assert!(controller.throttles - before <= 2, "{} of 10 looks were throttled", controller.throttles - before);
        }

        /// Periods are what the hardware takes, whatever is seen.
        #[test]
        fn periods_fit(seen in prop::collection::vec((0.0_f64..10.0, any::<u32>(), any::<u64>(), 0_u64..3, 0.0_f64..1e9), 1..50)) {
            let mut controller = Controller::new(GOAL, 1);
            for (seconds, samples, events, throttles, cost_ns) in seen {
                controller.look(&Observed { seconds, samples: u64::from(samples), events, throttles, cost_ns, busy_cpus: 1.0 });
                prop_assert!(controller.period() >= RANGE.least && controller.period() <= RANGE.greatest);
                prop_assert_eq!(controller.period() % 16, 0);
            }
        }
    }

    /// A program that idles and then works again is sampled at the target soon after.
    #[test]
    fn phases_are_followed() {
        let mut controller = Controller::new(GOAL, 100_000);
        second(&mut controller, 1e10, 0.0, f64::INFINITY);
        for _ in 0..60 {
            second(&mut controller, 0.0, 0.0, f64::INFINITY);
        }
        assert_eq!(controller.period(), RANGE.least);
        second(&mut controller, 1e10, 0.0, f64::INFINITY);
        let rate = second(&mut controller, 1e10, 0.0, f64::INFINITY);
        assert!((7_500.0..=12_700.0).contains(&rate), "{rate}");
    }
}
