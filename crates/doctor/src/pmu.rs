//! Findings about engine `pmu`.

use numapilot_perf_events::rights::{Scope, by_capability, closed, passing_through, refused, rights};
use numapilot_trace::engine::Engine;

use super::{Answer, EventFacts, Finding, Obstacle, SamplerFact, Vendor};

/// Whether engine `pmu` works on a machine with these facts: what it gives there, or why it does not.
#[must_use]
pub fn finding(facts: &EventFacts) -> Finding {
    let working: Vec<&SamplerFact> =
        facts.samplers.iter().filter(|sampler| sampler.own.works() || sampler.system.works()).collect();
    let base = Finding { records_accesses: true, ..Finding::of(Engine::Pmu) };
    if working.is_empty() {
        return Finding { obstacles: obstacles(facts), gives: gives_in_general(), ..base };
    }
    if !working.iter().any(|sampler| sampler.own.works()) {
        // Whole CPUs only: the engine cannot start a program of its own.
        let mut obstacles: Vec<Obstacle> =
            working.iter().map(|sampler| refused(facts, &sampler.pmu, sampler.own, Scope::Own)).collect();
        obstacles.dedup();
        let gives = "whole CPUs with `record --system`, all programs that run there".to_owned();
        return Finding { obstacles, gives, ..base };
    }
    Finding { works: true, gives: gives(&working), limits: limits(facts, &working), ..base }
}

fn gives_in_general() -> String {
    "sampled loads and stores with latency, level and address, at full speed".to_owned()
}

fn way(sampler: &str) -> &str {
    match sampler {
        "ibs_op" => "AMD IBS",
        "pebs-loads" => "Intel PEBS loads",
        "pebs-stores" => "Intel PEBS stores",
        "spe" => "Arm SPE",
        other => other,
    }
}

fn gives(working: &[&SamplerFact]) -> String {
    let mut ways: Vec<String> =
        working.iter().map(|sampler| format!("{} ({})", way(&sampler.sampler), sampler.pmu)).collect();
    ways.dedup();
    format!("{}: {}", gives_in_general(), ways.join(", "))
}

fn limits(facts: &EventFacts, working: &[&SamplerFact]) -> Vec<Obstacle> {
    let mut out = Vec::new();
    for sampler in facts.samplers.iter().filter(|sampler| sampler.own.error().is_some()) {
        out.push(refused(facts, &sampler.pmu, sampler.own, Scope::Own));
    }
    let lacking_physical = working.iter().find(|sampler| sampler.own.works() && !sampler.physical.works());
    if let Some(sampler) = lacking_physical {
        // SPE's driver asked for the capability, whatever the level was (`arm_spe_pmu_event_init` in `drivers/perf/arm_spe_pmu.c`).
        let no_level_helps = sampler.sampler == "spe" && !facts.kernel.is_at_least(6, 12);
        out.push(Obstacle::new(
            "physical addresses are not permitted, so the recorder asks the kernel for the home nodes of pages (move_pages) during the run",
            if no_level_helps { by_capability(facts) } else { rights(facts, Scope::Physical) },
        ));
    }
    if working.iter().any(|sampler| !sampler.system.works()) {
        out.push(Obstacle::new(
            "recording the whole machine (`record --system`) is not permitted",
            rights(facts, Scope::System),
        ));
    }
    if working.iter().any(|sampler| sampler.sampler == "ibs_op" && !sampler.can_leave_kernel_out) {
        out.push(Obstacle::new(
            "the kernel's own accesses are sampled as well (and left out afterwards): this kernel's IBS cannot filter",
            "use Linux 6.14 or later, which also lets unprivileged users sample",
        ));
    }
    if facts.nodes == 1 {
        out.push(Obstacle::new(
            "this machine has one node: every access to memory is local",
            "for remote accesses, record on the machine that you want to study; latencies and cache hits can be studied here as well",
        ));
    }
    out.dedup();
    out
}

/// Why nothing can be sampled.
fn obstacles(facts: &EventFacts) -> Vec<Obstacle> {
    if let Some(closed) = closed(facts) {
        let mut out = vec![closed];
        if facts.samplers.is_empty() {
            out.push(nothing_there(facts));
        }
        return out;
    }
    if facts.samplers.is_empty() {
        return vec![nothing_there(facts)];
    }
    // Where the kernel's accesses cannot be left out, one must be allowed to see them.
    let scope = |sampler: &SamplerFact| {
        if sampler.sampler == "ibs_op" && !sampler.can_leave_kernel_out { Scope::Kernel } else { Scope::Own }
    };
    let explain = |sampler: &SamplerFact| {
        let scope = if sampler.own.error() == Some(libc::EACCES) { scope(sampler) } else { Scope::Own };
        match scope {
            // The kernel looks at the rights first: whoever has them is refused events of single processes all the same.
            Scope::Kernel if has_whole_cpus_only(facts) => {
                refused(facts, &sampler.pmu, Answer::Refused(libc::EINVAL), Scope::Own)
            }
            scope => refused(facts, &sampler.pmu, sampler.own, scope),
        }
    };
    let mut out: Vec<Obstacle> = facts.samplers.iter().map(explain).collect();
    let needs_filter = |sampler: &SamplerFact| {
        scope(sampler) == Scope::Kernel && sampler.own.error() == Some(libc::EACCES) && !facts.kernel.is_at_least(6, 14)
    };
    if facts.samplers.iter().any(needs_filter) {
        out.push(Obstacle::new(
            format!(
                "this kernel ({}) cannot leave its own accesses out of IBS samples, so unprivileged users get none",
                facts.kernel
            ),
            "use Linux 6.14 or later, which lets unprivileged users sample",
        ));
    }
    out.dedup();
    out
}

/// Whether IBS of this kernel samples whole CPUs only, as far as its version tells: Red Hat's kernels keep their number while they take over the events of
/// newer ones, so that of those only a try tells.
fn has_whole_cpus_only(facts: &EventFacts) -> bool {
    !facts.kernel.is_at_least(6, 2) && !facts.kernel.to_string().contains(".el")
}

/// Why no PMU here samples memory accesses.
fn nothing_there(facts: &EventFacts) -> Obstacle {
    let has = |name: &str| facts.pmus.iter().any(|pmu| pmu == name);
    // drivers/perf/arm_pmuv3.c: `armv8_pmuv3_0`, `armv9_neoverse_n2`.
    let has_core = has("cpu") || has("cpu_core") || facts.pmus.iter().any(|pmu| pmu.starts_with("armv"));
    if let Some(hypervisor) = &facts.hypervisor {
        let what = if has_core { "counters, but none that sample memory accesses" } else { "no hardware counters" };
        return Obstacle::new(
            format!("this is a virtual machine, and {hypervisor} gives it {what}"),
            passing_through(facts),
        );
    }
    match facts.vendor {
        Vendor::Amd => Obstacle::new(
            "there is no PMU `ibs_op`: AMD processors have IBS from family 10h on, and the firmware can disable it",
            "look for IBS in the firmware's set-up (`dmesg | grep -i ibs` says what the kernel found)",
        ),
        Vendor::Intel if has_core => Obstacle::new(
            "the PMU `cpu` has no event mem-loads: the processor is older than Sandy Bridge, or of a kind that does not sample loads",
            "record on another processor",
        ),
        Vendor::Intel => Obstacle::new(
            "the kernel shows no PMU of the processor",
            "check `dmesg | grep -i pmu`: it may have been switched off on the kernel's command line",
        ),
        Vendor::Arm => Obstacle::new(
            "there is no PMU `arm_spe_0`: the processor has no SPE, its driver is not loaded, or the kernel's page-table isolation blocks it",
            "`sudo modprobe arm_spe_pmu`; if `dmesg` says `profiling buffer inaccessible`, boot with `kpti=off`; if it says nothing, the firmware hides SPE",
        ),
        Vendor::Other => Obstacle::new(
            format!("numapilot cannot sample memory accesses on {}", facts.arch),
            "record on x86-64 or 64-bit Arm",
        ),
    }
}
