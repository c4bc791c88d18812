//! An event of no kind (`PERF_COUNT_SW_DUMMY`) on each CPU, which shows whether the events of whole CPUs still run ([`crate::pulse`]).

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;
use std::time::Instant;

use numapilot_machine::CpuId;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::event_type;
use numapilot_perf::abi::software;

use crate::counter::open_counter;
use crate::counter::read;
use crate::pulse::EnabledTimes;
use crate::pulse::Pulse;
use crate::pulse::stopped_between;

/// Times between readings, within which the time of an event that runs grows: the second is for CPUs whose clock seems to stand still between two of its ticks,
/// as that of a virtual CPU that does not run may.
const BEATS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// Least time between two looks for [`Pulses::stopped`], each of which asks for every event.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Such events.
#[derive(Debug, Default)]
pub(super) struct Pulses {
    events: BTreeMap<CpuId, OwnedFd>,
    pulse: Pulse,
    looked_at: Option<Instant>,
}

impl Pulses {
    /// Opens one on each of these CPUs; none where one is refused: if descriptors are short, others need them more.
    pub(super) fn open(cpus: &[CpuId]) -> Pulses {
        let mut events = BTreeMap::new();
        for &cpu in cpus {
            match Pulses::open_one(cpu) {
                Ok(fd) => drop(events.insert(cpu, fd)),
                // Taken offline since the list was read.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(_) => return Pulses::default(),
            }
        }
        Pulses { events, ..Pulses::default() }
    }

    /// Opens the event of one CPU.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(super) fn open_one(cpu: CpuId) -> io::Result<OwnedFd> {
        let attr = EventAttr { kind: event_type::SOFTWARE, config: software::DUMMY, ..EventAttr::default() };
        open_counter(attr, -1, cpu)
    }

    /// CPUs that are online, and whose events have ended. Takes a few milliseconds, or a tenth of a second where there are some.
    pub(super) fn ended(&self, online: &[CpuId]) -> Vec<CpuId> {
        if self.events.is_empty() {
            return Vec::new();
        }
        let before = self.read();
        let mut ended = online.to_vec();
        for beat in BEATS {
            if !ended.is_empty() {
                std::thread::sleep(beat);
                let stopped = stopped_between(&before, &self.read());
                ended.retain(|cpu| stopped.contains(cpu));
            }
        }
        ended
    }

    /// CPUs whose events have ended since the look before, online or not; none where that was less than a second ago.
    pub(super) fn stopped(&mut self, now: Instant) -> BTreeSet<CpuId> {
        let is_early = self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < LOOK_EVERY);
        if self.events.is_empty() || is_early {
            return BTreeSet::new();
        }
        self.looked_at = Some(now);
        let enabled = self.read();
        self.pulse.stopped(now, enabled)
    }

    /// Takes a CPU's event that was opened anew, in the place of the one that has ended.
    pub(super) fn renew(&mut self, cpu: CpuId, event: OwnedFd) {
        self.events.insert(cpu, event);
    }

    fn read(&self) -> EnabledTimes {
        self.events.iter().map(|(cpu, fd)| (*cpu, read(fd).map(|count| count.enabled_ns))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::online_cpus;

    #[test]
    fn events_of_cpus_that_stay_online_run_also_anew() {
        let cpus = online_cpus().unwrap();
        let mut pulses = Pulses::open(&cpus);
        if pulses.events.is_empty() {
            return numapilot_not_run::not_run!(PageFaultEvents, "events of whole CPUs are refused");
        }
        assert!(pulses.ended(&cpus).is_empty());
        let begun = Instant::now();
        assert!(pulses.stopped(begun).is_empty() && pulses.stopped(begun).is_empty(), "nothing to compare with");
        std::thread::sleep(BEATS[1]);
        assert!(pulses.stopped(begun + LOOK_EVERY).is_empty(), "they run");
        pulses.renew(cpus[0], Pulses::open_one(cpus[0]).unwrap());
        assert_eq!(pulses.events.len(), cpus.len());
        assert!(pulses.ended(&cpus).is_empty());
    }
}
