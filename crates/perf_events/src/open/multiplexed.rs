//! Events that counted for a part of the time only, because others had the processor's counters for the rest: the kernel lets them take turns
//! (`perf_rotate_context` in kernel/events/core.c). Of AMD's `ibs_op` a CPU has one, and whoever samples beside us has it in turn.
//!
//! How long an event was enabled says little of that: an event of a task and a CPU is enabled wherever its task runs. The side band is opened for the
//! same tasks and CPUs, and a software event always counts.

use std::collections::HashMap;

use numapilot_machine::CpuId;

use crate::event::EventKind;
use crate::event::EventRequest;

/// Index of the side band among the requests.
pub(super) const SIDE_BAND: usize = 0;

/// Nanoseconds for which the events of a request counted on a CPU, over all tasks.
pub(super) type Running = HashMap<(usize, CpuId), u64>;

/// Shares from here up are whole ones: events are turned on and off one after the other.
const WHOLE: f64 = 0.98;
/// Of a shorter time the share says nothing.
const LEAST_NS: u64 = 10_000_000;

/// An event that counted for a part of the time.
#[derive(Clone, Debug, PartialEq)]
pub struct Multiplexed {
    /// Name of the event, as perf writes it.
    pub event: String,
    /// Part of the time, 0 to 1, in which the recorded programs ran on the event's CPUs.
    pub share: f64,
}

/// Events that counted for a part of the time. `before`: times when all events had been turned on, the side band earlier than others.
///
/// Those with AUX areas are left out: nobody shares them (`PERF_PMU_CAP_EXCLUSIVE`), and that they stop when an area is full is told elsewhere.
pub(super) fn multiplexed(requests: &[EventRequest], before: &Running, now: &Running) -> Vec<Multiplexed> {
    let of = |times: &Running, request: usize, cpu: CpuId| times.get(&(request, cpu)).copied().unwrap_or(0);
    let share = |request: usize| {
        let (mut counted, mut ran) = (0_u64, 0_u64);
        for &(_, cpu) in now.keys().filter(|(of, _)| *of == request) {
            counted = counted.saturating_add(of(now, request, cpu));
            ran = ran.saturating_add(of(now, SIDE_BAND, cpu).saturating_sub(of(before, SIDE_BAND, cpu)));
        }
        (ran >= LEAST_NS).then(|| counted as f64 / ran as f64).filter(|share| *share < WHOLE)
    };
    let is_shared = |request: &EventRequest| {
        !matches!(request.kind, EventKind::SideBand | EventKind::Helper) && request.aux_bytes == 0
    };
    let shared = requests.iter().enumerate().filter(|(_, request)| is_shared(request));
    shared.filter_map(|(at, request)| Some(Multiplexed { event: request.name.clone(), share: share(at)? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn request(name: &str, kind: EventKind) -> EventRequest {
        EventRequest { name: name.to_owned(), kind, ..EventRequest::default() }
    }

    fn times(list: &[(usize, u32, u64)]) -> Running {
        list.iter().map(|&(request, cpu, ms)| ((request, CpuId(cpu)), ms * MS)).collect()
    }

    /// A hybrid processor: the program ran on CPU 0 for 300 ms and on CPU 1, which is of another kind, for 100 ms. Each event has its own kind's CPUs.
    #[test]
    fn an_event_that_took_turns_is_told_with_its_share() {
        let requests = [
            request("dummy", EventKind::SideBand),
            request("cpu_core/mem-loads-aux/", EventKind::Helper),
            request("cpu_core/mem-loads/", EventKind::Access),
            request("cpu_atom/mem-loads/", EventKind::Access),
        ];
        // The side band was on while processes were listed.
        let before = times(&[(0, 0, 50), (0, 1, 0)]);
        let now = times(&[(0, 0, 350), (0, 1, 100), (1, 0, 75), (2, 0, 75), (3, 1, 99)]);
        let want = [Multiplexed { event: "cpu_core/mem-loads/".to_owned(), share: 0.25 }];
        assert_eq!(multiplexed(&requests, &before, &now), want);
    }

    #[test]
    fn what_hardly_ran_or_has_an_area_of_its_own_says_nothing() {
        let requests = [request("dummy", EventKind::SideBand), request("ibs_op//", EventKind::Ibs)];
        let told = |requests: &[EventRequest], now: &[(usize, u32, u64)]| {
            multiplexed(requests, &Running::default(), &times(now)).len()
        };
        assert_eq!(told(&requests, &[(0, 0, 9), (1, 0, 0)]), 0, "too short");
        assert_eq!(told(&requests, &[(0, 0, 900), (1, 0, 0)]), 1, "it never had its turn");
        assert_eq!(told(&requests, &[(0, 0, 900), (1, 0, 901)]), 0);
        let spe = EventRequest { aux_bytes: 1 << 20, ..request("arm_spe_0//", EventKind::Access) };
        assert_eq!(told(&[requests[0].clone(), spe], &[(0, 0, 900), (1, 0, 100)]), 0);
    }
}
