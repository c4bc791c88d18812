//! Which engines work here, and for each that does not the exact reason and the remedy (`numapilot doctor`).
//!
//! [`probe`] gathers [`Facts`] (and really opens events); [`diagnose`] turns facts into findings and is pure, so that composed facts of other machines are
//! tests. `--engine auto` uses the same findings (`crates/sources/src/engine`), so both always say the same. It needs Linux.

mod facts;
mod finding;
mod others;
mod packages;
pub mod pmu;
mod probe;
mod text;

pub use facts::{EmulatorFact, Facts};
pub use finding::{Diagnosis, Finding};
pub use numapilot_perf_events::facts::{Answer, EventFacts, Kernel, SamplerFact, Vendor};
pub use numapilot_perf_events::rights::Obstacle;
pub use packages::{Distribution, Provided, install_command, packages_text, provided};
pub use probe::probe;
pub use text::text;

/// Turns facts into findings.
#[must_use]
pub fn diagnose(facts: &Facts) -> Diagnosis {
    let engines = vec![
        pmu::finding(&facts.events),
        others::fault(facts),
        others::instrument(facts),
        others::emulate(facts),
        others::import(),
        others::track(facts),
    ];
    Diagnosis { host: host(&facts.events), engines }
}

fn host(facts: &EventFacts) -> Vec<(&'static str, String)> {
    let count = |number: u32, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let mut machine = format!(
        "{}, {}, {} with memory",
        if facts.cpu.is_empty() { &facts.arch } else { &facts.cpu },
        count(facts.cpus, "CPU"),
        count(facts.nodes, "node")
    );
    if let Some(hypervisor) = &facts.hypervisor {
        machine.push_str(&format!("; virtual machine ({hypervisor})"));
    }
    let mut kernel = format!("Linux {} {}", facts.kernel, facts.arch);
    if let Some(container) = &facts.container {
        kernel.push_str(&format!(", in a container ({container})"));
    }
    if let Some(mode) = facts.lockdown.as_ref().filter(|mode| *mode != "none") {
        kernel.push_str(&format!(", locked down ({mode})"));
    }
    let paranoid =
        facts.paranoid.map_or("no perf_event_paranoid".to_owned(), |level| format!("perf_event_paranoid {level}"));
    let rights = match (facts.is_privileged, facts.in_user_namespace) {
        (true, false) => "with CAP_PERFMON or CAP_SYS_ADMIN",
        (true, true) => "with capabilities of a user namespace only, which do not count for events",
        (false, _) => "unprivileged",
    };
    let filter = if facts.has_seccomp_filter { ", under a seccomp filter" } else { "" };
    let balancing = match facts.numa_balancing {
        None => "not in this kernel".to_owned(),
        Some(0) => "off".to_owned(),
        Some(mode) if mode & 1 == 0 => format!("between tiers of memory only ({mode})"),
        Some(mode) => format!("on ({mode})"),
    };
    vec![
        ("machine", machine),
        ("kernel", kernel),
        ("rights", format!("{paranoid}, {rights}{filter}")),
        ("NUMA balancing", balancing),
    ]
}

#[cfg(test)]
mod tests;
