//! Findings about the engines that need no hardware counters.

use numapilot_perf_events::rights::{Scope, closed, rights};
use numapilot_trace::engine::Engine;

use super::{Answer, EventFacts, Facts, Finding, Obstacle};

pub(super) fn fault(facts: &Facts) -> Finding {
    let mut limits = Vec::new();
    if facts.events.fault.works() {
        if !facts.events.fault_system.works() {
            limits.push(Obstacle::new(
                "recording the whole machine (`record --system`) is not permitted",
                rights(&facts.events, Scope::System),
            ));
        }
        limits.extend(hinting(&facts.events));
    }
    Finding {
        engine: Engine::Fault,
        works: facts.events.fault.works() && facts.memfd.works(),
        records_accesses: false,
        gives: "first touches of pages, and NUMA hinting faults where the kernel's NUMA balancing is on: thread, node and page; no access rates, no \
                latencies".to_owned(),
        obstacles: closed(&facts.events).into_iter().chain(shared_memory(facts)).collect(),
        limits,
    }
}

/// Why only first touches are seen.
fn hinting(facts: &EventFacts) -> Option<Obstacle> {
    if facts.nodes < 2 {
        return Some(Obstacle::new(
            "this machine has one node, so there are no NUMA hinting faults: only first touches are recorded",
            "to see later accesses, record on the machine that you want to study",
        ));
    }
    match facts.numa_balancing {
        None => Some(Obstacle::new(
            "the kernel was built without NUMA balancing, so only first touches are recorded",
            "use a kernel with CONFIG_NUMA_BALANCING to see later accesses",
        )),
        Some(0) => Some(Obstacle::new(
            "NUMA balancing is off, so only first touches are recorded",
            "`sudo sysctl kernel.numa_balancing=1` while recording (the kernel will then move pages as well)",
        )),
        Some(mode) if mode & 1 == 0 => Some(Obstacle::new(
            format!(
                "NUMA balancing only promotes pages between tiers of memory (kernel.numa_balancing is {mode}): of fast memory only first touches are recorded"
            ),
            format!(
                "`sudo sysctl kernel.numa_balancing={}` while recording (the kernel will then move pages as well)",
                mode | 1
            ),
        )),
        Some(_) => None,
    }
}

fn shared_memory(facts: &Facts) -> Option<Obstacle> {
    match facts.memfd {
        Answer::Works | Answer::Untried => None,
        answer => Some(Obstacle::new(
            format!("memory cannot be shared with the program: memfd_create fails ({answer})"),
            "use Linux 3.17 or later, outside of a sandbox that forbids it",
        )),
    }
}

pub(super) fn instrument(facts: &Facts) -> Finding {
    let mut obstacles: Vec<Obstacle> = shared_memory(facts).into_iter().collect();
    if facts.compilers.is_empty() {
        obstacles.push(Obstacle::new(
            "no compiler is installed, so programs cannot be instrumented here (programs instrumented elsewhere can be recorded)",
            "install gcc and g++ (Fedora and Red Hat: package gcc-c++), or clang",
        ));
    }
    Finding {
        engine: Engine::Instrument,
        works: obstacles.is_empty(),
        records_accesses: true,
        gives: "every access of programs built with `numapilot cc`, `c++` or `fc`, on a simulated machine; no real latencies".to_owned(),
        obstacles,
        limits: Vec::new(),
    }
}

pub(super) fn emulate(facts: &Facts) -> Finding {
    let emulator = &facts.emulator;
    let gives = "every access of programs that are dynamically linked to glibc, on a simulated machine; several times slower, no real \
                 latencies";
    Finding {
        engine: Engine::Emulate,
        works: emulator.version.is_some(),
        records_accesses: true,
        gives: emulator.version.as_ref().map_or(gives.to_owned(), |version| format!("{gives} ({version})")),
        obstacles: match emulator.version {
            Some(_) => Vec::new(),
            None => vec![Obstacle::new(emulator.reason.clone(), emulator.remedy.clone())],
        },
        limits: Vec::new(),
    }
}

pub(super) fn import() -> Finding {
    Finding {
        works: true,
        gives: "recordings that perf made on any machine: `numapilot import perf.data`".to_owned(),
        ..Finding::of(Engine::Import)
    }
}

pub(super) fn track(facts: &Facts) -> Finding {
    let obstacles: Vec<Obstacle> = shared_memory(facts).into_iter().collect();
    Finding {
        works: obstacles.is_empty(),
        gives: "objects, threads and processes of programs that are dynamically linked to glibc; no accesses"
            .to_owned(),
        obstacles,
        ..Finding::of(Engine::Track)
    }
}
