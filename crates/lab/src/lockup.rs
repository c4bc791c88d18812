//! Detects a guest with a locked-up kernel: one of its CPUs no longer runs, and another waits for it for ever.
//!
//! Under emulation with a thread for each CPU, QEMU causes this and not the command: a sleeping CPU misses its wake-up, that of its timer
//! included (seen once in some thousands of guests with QEMU 10.0.2). The guest's watchdog reports it repeatedly (`kernel/watchdog.c`):
//! `watchdog: BUG: soft lockup - CPU#4 stuck for 22s!`. On a busy host the watchdog also reports CPUs that merely waited. Those continue within seconds, and
//! the duration in the kernel's message starts again.

/// Seconds of the guest's time after which a CPU is given up. The kernel warns from 20 s on; on a host with a load of 12 a CPU of the guest has run again
/// after less than a second.
const GIVEN_UP_S: u64 = 60;
const BEFORE_CPU: &str = "BUG: soft lockup - CPU#";
const BEFORE_SECONDS: &str = " stuck for ";

/// A CPU of the guest that has made no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lockup {
    pub(crate) cpu: u32,
    /// Duration in seconds of the guest's clock.
    pub(crate) seconds: u64,
}

/// The last such message on a guest's console with a duration of a minute or more.
pub(crate) fn last(console: &str) -> Option<Lockup> {
    console.lines().rev().find_map(of_line).filter(|lockup| lockup.seconds >= GIVEN_UP_S)
}

fn of_line(line: &str) -> Option<Lockup> {
    let (_, rest) = line.split_once(BEFORE_CPU)?;
    let (cpu, rest) = rest.split_once(BEFORE_SECONDS)?;
    let (seconds, _) = rest.split_once("s!")?;
    Some(Lockup { cpu: cpu.parse().ok()?, seconds: seconds.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_stands_still_for_a_minute_is_told() {
        let console = "[  410.0] rcu: Stack dump where RCU GP kthread last ran:\n\
                       [  438.037554] watchdog: BUG: soft lockup - CPU#4 stuck for 398s! [numapilot:196]\n\
                       [  473.0] rcu: INFO: rcu_preempt self-detected stall on CPU\n";
        assert_eq!(last(console), Some(Lockup { cpu: 4, seconds: 398 }));
    }

    #[test]
    fn one_that_waited_for_a_busy_host_is_not_given_up() {
        assert_eq!(last("[ 50.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [sh:120]\n"), None);
        // It continued, and waits again: the seconds start from 0.
        let console = "watchdog: BUG: soft lockup - CPU#1 stuck for 61s! [sh:120]\nwatchdog: BUG: soft lockup - CPU#1 stuck for 22s! [sh:120]\n";
        assert_eq!(last(console), None);
    }

    #[test]
    fn other_words_and_cut_ones_say_nothing() {
        for console in [
            "",
            "numapilot-lab: running\n",
            "watchdog: BUG: soft lockup - CPU#4 stuck for 39",
            "BUG: soft lockup - CPU#x stuck for 99s!",
        ] {
            assert_eq!(last(console), None, "{console:?}");
        }
    }
}
