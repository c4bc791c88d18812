//! The host's clocks: the time-stamp counter that orders events, and its conversion to nanoseconds.

use std::time::Duration;

/// One reading of both clocks at (nearly) the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostInstant {
    /// Time-stamp counter, as `np_order()` reads it.
    pub order: u64,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub monotonic_ns: u64,
}

/// The counter by which the runtime stamps the order of events, read after all earlier loads (`order.h` has the manuals' words).
pub fn order_now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: neither instruction has preconditions or touches memory; every x86-64 CPU has them.
        unsafe {
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc()
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: reads the virtual counter, which Linux lets user space read.
        unsafe { core::arch::asm!("dsb ishld", "isb", "mrs {}, cntvct_el0", out(reg) value, options(nostack)) };
        value
    }
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

impl HostInstant {
    /// Reads both clocks. Of a few tries, keeps the one in which the system call was quickest: being scheduled
    /// away between the two readings would spoil the pair.
    pub fn now() -> HostInstant {
        let mut best = (u64::MAX, HostInstant { order: 0, monotonic_ns: 0 });
        for _ in 0..8 {
            let before = order_now();
            let monotonic_ns = monotonic_ns();
            let width = order_now().wrapping_sub(before);
            if width < best.0 {
                best = (width, HostInstant { order: before + width / 2, monotonic_ns });
            }
        }
        best.1
    }

    /// Time from an earlier reading to this one.
    pub fn since(&self, earlier: &HostInstant) -> Duration {
        Duration::from_nanos(self.monotonic_ns.saturating_sub(earlier.monotonic_ns))
    }

    /// Rate of the counter in kHz between an earlier reading and this one; `None` if they are too close to tell.
    pub fn khz_since(&self, earlier: &HostInstant) -> Option<u32> {
        let elapsed_ns = self.monotonic_ns.checked_sub(earlier.monotonic_ns).filter(|ns| *ns >= 1_000_000)?;
        let ticks = self.order.checked_sub(earlier.order)?;
        u32::try_from(u128::from(ticks) * 1_000_000 / u128::from(elapsed_ns)).ok().filter(|khz| *khz > 0)
    }

    /// Waits until at least `length` has passed since this reading, then gives the counter's rate in kHz.
    ///
    /// 10 ms with readings good to 100 ns make it right to 20 parts in a million; the rate over the whole
    /// recording, taken at its end, is better and replaces it in the trace.
    pub fn calibrate(&self, length: Duration) -> u32 {
        loop {
            let now = HostInstant::now();
            let passed = Duration::from_nanos(now.monotonic_ns.saturating_sub(self.monotonic_ns));
            if passed >= length
                && let Some(khz) = now.khz_since(self)
            {
                return khz;
            }
            std::thread::sleep(length.saturating_sub(passed).max(Duration::from_millis(1)));
        }
    }
}

/// A straight line through two readings of both clocks, by which the times in files of others are order stamps.
#[derive(Clone, Copy, Debug)]
pub struct ClockLine {
    /// The first reading.
    pub from: HostInstant,
    /// The second one, not before any of the times.
    pub to: HostInstant,
}

impl ClockLine {
    /// The order stamp of a time: ticks of the counter, or nanoseconds of CLOCK_MONOTONIC; 0 for one before the counter began. `None`: the time is after the
    /// second reading, so it is another clock's; or there is no line.
    pub fn order_of(&self, time: u64, counts_ticks: bool) -> Option<u64> {
        if counts_ticks {
            return Some(time).filter(|time| *time <= self.to.order);
        }
        let (from, to) = (self.from, self.to);
        let since = |ns: u64| i128::from(ns) - i128::from(from.monotonic_ns);
        let (ns, ticks) = (since(to.monotonic_ns), i128::from(to.order) - i128::from(from.order));
        if time > to.monotonic_ns || ns <= 0 || ticks <= 0 {
            return None;
        }
        let order = i128::from(from.order) + since(time) * ticks / ns;
        Some(u64::try_from(order.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    //! The counter's rate, and times of others by it.

    use super::*;

    #[test]
    fn times_of_others_lie_on_the_line_through_two_readings() {
        let at = |order, monotonic_ns| HostInstant { order, monotonic_ns };
        let line = ClockLine { from: at(5_000, 1_000), to: at(9_000, 3_000) };
        let orders = [0, 500, 1_000, 2_001, 3_000, 3_001].map(|ns| line.order_of(ns, false));
        assert_eq!(orders, [Some(3_000), Some(4_000), Some(5_000), Some(7_002), Some(9_000), None]);
        assert_eq!([9_000, 9_001].map(|ticks| line.order_of(ticks, true)), [Some(9_000), None]);
        let late = ClockLine { from: at(5, 1_000), to: at(4_005, 3_000) };
        assert_eq!(late.order_of(500, false), Some(0), "before the counter began");
        assert_eq!(ClockLine { from: line.to, to: line.to }.order_of(1, false), None, "no line");
    }

    #[test]
    fn two_calibrations_agree() {
        let start = HostInstant::now();
        let short = start.calibrate(Duration::from_millis(10));
        let long = start.calibrate(Duration::from_millis(60));
        let error = (f64::from(short) - f64::from(long)).abs() / f64::from(long);
        assert!(error < 0.002, "10 ms: {short} kHz, 60 ms: {long} kHz");
        assert!((1_000..20_000_000).contains(&long), "{long} kHz is no counter's rate");
    }

    #[test]
    fn readings_at_one_moment_give_no_rate() {
        let start = HostInstant::now();
        assert_eq!(start.khz_since(&start), None);
    }
}
