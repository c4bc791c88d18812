//! Events that only count: without samples and rings.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use numapilot_host::Tid;
use numapilot_machine::CpuId;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::event_type;
use numapilot_perf::abi::read_format;

use crate::event::EventRequest;
use crate::syscall::ANY_CPU;
use crate::syscall::open_event;

/// `PERF_COUNT_HW_INSTRUCTIONS` (`include/uapi/linux/perf_event.h`).
const INSTRUCTIONS: u64 = 1;

/// A count as the kernel gives it (`PERF_FORMAT_TOTAL_TIME_ENABLED | _RUNNING`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of events.
    pub value: u64,
    /// Nanoseconds for which the event was enabled; of a thread's, for which the thread ran.
    pub enabled_ns: u64,
    /// Nanoseconds for which it counted: fewer where events share a counter.
    pub running_ns: u64,
}

/// Opens a counting event with these attributes, for a task and a CPU as [`open_event`] takes them.
///
/// # Errors
/// The kernel's answer.
pub fn open_counter(attr: EventAttr, task: libc::pid_t, cpu: CpuId) -> io::Result<OwnedFd> {
    let read_format = read_format::TOTAL_TIME_ENABLED | read_format::TOTAL_TIME_RUNNING;
    let request = EventRequest { attr: EventAttr { read_format, ..attr }, ..EventRequest::default() };
    open_event(&request.bytes(&request.attr, 0), task, cpu, -1)
}

/// Counts the instructions of a thread's own code, without those of the kernel, on whatever CPU it runs. What it starts is not counted.
///
/// # Errors
/// The kernel's answer: the processor (or virtual machine) counts nothing, this user may not observe the thread, or it has ended.
pub fn of_instructions(tid: Tid) -> io::Result<OwnedFd> {
    let task = libc::pid_t::try_from(tid.0).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let flags = 1 << attr_flag::EXCLUDE_KERNEL | 1 << attr_flag::EXCLUDE_HV;
    let attr = EventAttr { kind: event_type::HARDWARE, config: INSTRUCTIONS, flags, ..EventAttr::default() };
    open_counter(attr, task, ANY_CPU)
}

/// Reads a counter that [`open_counter`] has opened; `None`: it has no count, because its CPU has gone offline, say.
#[must_use]
pub fn read(fd: &OwnedFd) -> Option<Count> {
    let mut figures = [0_u64; 3];
    let bytes = size_of_val(&figures);
    // SAFETY: at most `bytes` are written to the array.
    let read = unsafe { libc::read(fd.as_raw_fd(), figures.as_mut_ptr().cast(), bytes) };
    let [value, enabled_ns, running_ns] = figures;
    (usize::try_from(read) == Ok(bytes)).then_some(Count { value, enabled_ns, running_ns })
}

#[cfg(test)]
mod tests {
    use numapilot_host::Pid;
    use numapilot_perf::abi::software;

    use super::*;

    #[test]
    fn a_counter_counts_what_its_thread_does() {
        let attr = EventAttr { kind: event_type::SOFTWARE, config: software::TASK_CLOCK, ..EventAttr::default() };
        let user = 1 << attr_flag::EXCLUDE_KERNEL | 1 << attr_flag::EXCLUDE_HV;
        let clock = match open_counter(EventAttr { flags: user, ..attr }, 0, ANY_CPU) {
            Ok(clock) => clock,
            Err(error) => return numapilot_not_run::not_run!(PageFaultEvents, "{error}"),
        };
        let (before, begun) = (read(&clock).unwrap(), std::time::Instant::now());
        while begun.elapsed().as_millis() < 20 {}
        let now = read(&clock).unwrap();
        assert!(now.enabled_ns > before.enabled_ns && now.running_ns <= now.enabled_ns, "{before:?}, {now:?}");
        // A virtual machine may count no instructions.
        let of_own = of_instructions(Tid::first_of(Pid::own()));
        assert!(of_own.is_err() || of_own.is_ok_and(|fd| read(&fd).is_some()));
        assert!(of_instructions(Tid(u32::MAX)).is_err(), "no thread has this number");
    }
}
