//! Whether the events of whole CPUs still run. Those of a CPU that goes offline end with it, and stay so when it comes back (`__perf_event_exit_context` in
//! kernel/events/core.c). Nothing tells their reader, which a suspension of the machine stops before it takes the CPUs offline. An event of no kind
//! (`PERF_COUNT_SW_DUMMY`) on each CPU shows it: the time for which it was enabled grows as long as it runs.

use std::os::fd::OwnedFd;
use std::time::Duration;

use numapilot_machine::CpuId;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::event_type;
use numapilot_perf::abi::software;

use crate::counter::open_counter;
use crate::counter::read;

/// Times between readings, within which the time of an event that runs grows: the second is for CPUs whose clock seems to stand still between two of its ticks,
/// as that of a virtual CPU that does not run may.
const BEATS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// A CPU, and for how many nanoseconds its event was enabled; `None`: it does not tell.
type Enabled = (CpuId, Option<u64>);

/// Such events.
#[derive(Debug, Default)]
pub(super) struct Pulses(Vec<(CpuId, OwnedFd)>);

impl Pulses {
    /// Opens one on each of these CPUs; none where one is refused: if descriptors are short, others need them more.
    pub(super) fn open(cpus: &[CpuId]) -> Pulses {
        let mut pulses = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            let attr = EventAttr { kind: event_type::SOFTWARE, config: software::DUMMY, ..EventAttr::default() };
            match open_counter(attr, -1, cpu) {
                Ok(fd) => pulses.push((cpu, fd)),
                // Taken offline since the list was read.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(_) => return Pulses::default(),
            }
        }
        Pulses(pulses)
    }

    /// CPUs that are online, and whose events have ended. Takes a few milliseconds, or a tenth of a second where there are some.
    pub(super) fn ended(&self, online: &[CpuId]) -> Vec<CpuId> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let before = self.read();
        let mut ended = online.to_vec();
        for beat in BEATS {
            if !ended.is_empty() {
                std::thread::sleep(beat);
                ended = ended_between(&before, &self.read(), &ended);
            }
        }
        ended
    }

    fn read(&self) -> Vec<Enabled> {
        self.0.iter().map(|(cpu, fd)| (*cpu, read(fd).map(|count| count.enabled_ns))).collect()
    }
}

/// CPUs that are online, and whose event was enabled no longer at the second reading than at the first, or tells nothing then.
fn ended_between(before: &[Enabled], now: &[Enabled], online: &[CpuId]) -> Vec<CpuId> {
    let pairs = before.iter().zip(now);
    let ended = pairs.filter(|(before, now)| before == now || now.1.is_none()).map(|(_, (cpu, _))| *cpu);
    ended.filter(|cpu| online.contains(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus::online_cpus;

    #[test]
    fn an_event_whose_time_stands_still_has_ended() {
        let of = |times: [Option<u64>; 4]| -> Vec<Enabled> { (0..).map(CpuId).zip(times).collect() };
        let before = of([Some(10), Some(20), Some(30), Some(40)]);
        let now = of([Some(11), Some(20), None, Some(40)]);
        assert_eq!(ended_between(&before, &now, &[0, 1, 2].map(CpuId)), [1, 2].map(CpuId), "3 is offline");
        assert!(ended_between(&before, &of([11, 21, 31, 41].map(Some)), &[0, 1, 2, 3].map(CpuId)).is_empty());
    }

    #[test]
    fn events_of_cpus_that_stay_online_run() {
        let cpus = online_cpus().unwrap();
        let pulses = Pulses::open(&cpus);
        if pulses.0.is_empty() {
            return numapilot_not_run::not_run!(PageFaultEvents, "events of whole CPUs are refused");
        }
        assert!(pulses.ended(&cpus).is_empty());
    }
}
