//! Why the kernel refuses an event: the error number means different things by level, right, container and version (`perf_event_open` and `perf_allow_*` in
//! `kernel/events/core.c`; Debian's and Ubuntu's patch for levels above 2).

use std::io;

use numapilot_host::Pid;
use serde::Serialize;

use crate::error::EventsError;
use crate::event_limit::TooMany;
use crate::facts::{Answer, EventFacts, Vendor};
use crate::locked_memory::NoRoom;
use crate::probe;

/// Something in the way, and what to do about it. Whole clauses, without a full stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// What is wrong, as a clause of the message.
    pub reason: String,
    /// What the user can do about it, as a clause of the message.
    pub remedy: String,
}

impl Obstacle {
    /// Both as clauses.
    pub fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
        Obstacle { reason: reason.into(), remedy: remedy.into() }
    }
}

/// What an event observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// User code of processes that the recorder starts: needs the fewest rights.
    Own,
    /// User code of processes that are already running, of any user.
    Running,
    /// User code and the kernel.
    Kernel,
    /// Physical addresses.
    Physical,
    /// Everything that runs on a CPU, of all users (`record --system`).
    System,
}

impl Scope {
    /// The highest level of `perf_event_paranoid` that allows this to unprivileged users.
    fn level(self) -> i32 {
        match self {
            Scope::Own | Scope::Running => 2,
            Scope::Kernel | Scope::Physical => 1,
            Scope::System => 0,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Scope::Own | Scope::Running => "events of your own processes",
            Scope::Kernel => "events that see the kernel's own accesses",
            Scope::Physical => "physical addresses",
            Scope::System => "events of other users' processes",
        }
    }
}

/// The error for an event that was refused when it was needed.
pub fn explain(event: &str, scope: Scope, source: io::Error) -> EventsError {
    if let Some(no_room) = NoRoom::in_error(&source) {
        let (reason, remedy) = (no_room.reason(), no_room.remedy());
        return EventsError::Event { event: event.to_owned(), source, reason, remedy };
    }
    if let Some(too_many) = TooMany::in_error(&source) {
        let (reason, remedy) = (too_many.reason(), too_many.remedy().to_owned());
        return EventsError::Event { event: event.to_owned(), source, reason, remedy };
    }
    let facts = probe();
    let answer = Answer::Refused(source.raw_os_error().unwrap_or(0));
    let Obstacle { reason, remedy } = closed(&facts).unwrap_or_else(|| refused(&facts, event, answer, scope));
    EventsError::Event { event: event.to_owned(), source, reason, remedy }
}

/// The capability that allows events here. Above level 2, Debian's and Ubuntu's kernels ask for the older one whatever their version
/// (`perf_paranoid_any() && !capable(CAP_SYS_ADMIN)` in their `perf_event_open`).
fn capability(facts: &EventFacts) -> &'static str {
    const BAN_FROM: i32 = 3;
    let is_banned = facts.paranoid.is_some_and(|level| level >= BAN_FROM);
    if facts.kernel.is_at_least(5, 8) && !is_banned { "PERFMON" } else { "SYS_ADMIN" }
}

/// How to get the right to open events of this scope.
pub fn rights(facts: &EventFacts, scope: Scope) -> String {
    let by_level = format!("`sudo sysctl kernel.perf_event_paranoid={}`", scope.level());
    match &facts.container {
        Some(_) if facts.in_user_namespace => {
            format!("on the host: {by_level} (capabilities of a rootless container do not count)")
        }
        Some(_) => format!("{}, or on the host: {by_level}", by_capability(facts)),
        None => format!("{}, or allow everybody until the next boot with {by_level}", by_capability(facts)),
    }
}

/// How to get the capability, where no level of `perf_event_paranoid` stands for it.
pub fn by_capability(facts: &EventFacts) -> String {
    let capability = capability(facts);
    match &facts.container {
        Some(_) if facts.in_user_namespace => {
            "run it as root on the host (capabilities of a rootless container do not count)".to_owned()
        }
        Some(_) => format!("start the container with `--cap-add {capability}`"),
        None => format!(
            "run it as root, or give it the right once with `sudo setcap cap_{}+ep $(command -v numapilot)`",
            capability.to_lowercase()
        ),
    }
}

/// Processes that are named in a note.
const NAMED_MAX: usize = 5;

/// A note on processes that this user may not observe (`EventSet::refused`): how many, which, and the next step; `None`: there are none.
#[must_use]
pub fn refused_note(pids: &[Pid]) -> Option<String> {
    let root = numapilot_host::Root::default();
    let named = |pid: &Pid| format!("{pid} ({})", numapilot_host::title(&root, *pid, &mut Vec::new()));
    let names: Vec<String> = pids.iter().take(NAMED_MAX).map(named).collect();
    let more = if pids.len() > NAMED_MAX { format!(" and {} more", pids.len() - NAMED_MAX) } else { String::new() };
    let (noun, because, it) = match pids.len() {
        1 => ("process", "it is another user's or has", "it"),
        _ => ("processes", "they are other users' or have", "them"),
    };
    (!pids.is_empty()).then(|| {
        format!(
            "{} {noun} may not be observed, because {because} more rights than you, and nothing of {it} is recorded: {}{more}; run as root, or \
             with CAP_PERFMON and CAP_SYS_PTRACE",
            pids.len(),
            names.join(", ")
        )
    })
}

/// Why `perf_event_open` as such is refused, whatever the event; `None` if it works.
pub fn closed(facts: &EventFacts) -> Option<Obstacle> {
    match facts.fault {
        Answer::Works | Answer::Untried => None,
        Answer::Refused(libc::ENOSYS) if facts.paranoid.is_some() => Some(Obstacle::new(
            "a filter hides the system call perf_event_open (ENOSYS), although the kernel has it",
            unfiltered(facts),
        )),
        Answer::Refused(libc::ENOSYS) => Some(Obstacle::new(
            "this kernel has no perf_event_open (built without CONFIG_PERF_EVENTS, or a sandbox such as gVisor that lacks it)",
            "use a distribution's kernel, or run outside of the sandbox",
        )),
        Answer::Refused(libc::EPERM) if facts.has_seccomp_filter => Some(Obstacle::new(
            "a seccomp filter refuses perf_event_open (EPERM); Docker's and Podman's own filters do, unless the container has the capability",
            unfiltered(facts),
        )),
        Answer::Refused(libc::EPERM) => Some(Obstacle::new(
            "a security module refuses perf_event_open (EPERM)",
            "allow it in the module's policy (`journalctl -k | grep -i denied` names it), or run it as root",
        )),
        Answer::Refused(libc::EACCES) => Some(paranoid(facts, Scope::Own)),
        Answer::Refused(libc::EMFILE) => Some(files()),
        other => Some(Obstacle::new(
            format!("opening even a software event fails ({other})"),
            "check `dmesg`; `perf stat true` should fail in the same way",
        )),
    }
}

fn unfiltered(facts: &EventFacts) -> String {
    let capability = capability(facts);
    match &facts.container {
        Some(_) => format!(
            "start the container with `--cap-add {capability}` (older Docker: also `--security-opt seccomp=unconfined`)"
        ),
        None => {
            "start it outside of the sandbox (a service: `SystemCallFilter=perf_event_open` in its unit)".to_owned()
        }
    }
}

fn paranoid(facts: &EventFacts, scope: Scope) -> Obstacle {
    let level = facts.paranoid.unwrap_or(scope.level() + 1);
    if level <= scope.level() && scope == Scope::Running {
        return Obstacle::new(
            format!(
                "access to these processes is denied (EACCES; perf_event_paranoid is {level}, which would allow it)"
            ),
            "run as the processes' user or as root; processes with more rights than yours need CAP_SYS_PTRACE or CAP_PERFMON",
        );
    }
    if level <= scope.level() {
        return Obstacle::new(
            format!(
                "a security module refuses {} (EACCES; perf_event_paranoid {level} would allow them)",
                scope.words()
            ),
            "allow it in the module's policy (`journalctl -k | grep -i denied` names it)",
        );
    }
    let note = if scope.level() == 2 { "; this distribution's kernel treats levels above 2 as a ban" } else { "" };
    Obstacle::new(
        format!("perf_event_paranoid is {level}, and {} need at most {}{note}", scope.words(), scope.level()),
        rights(facts, scope),
    )
}

fn files() -> Obstacle {
    Obstacle::new(
        "too many files are open (EMFILE): each thread needs one for each event and CPU",
        "raise the limit (`ulimit -Hn` shows how far; a service: `LimitNOFILE=`), or observe the whole machine (`--system`)",
    )
}

/// Why a sampling event was refused, `perf_event_open` itself being open to us.
pub fn refused(facts: &EventFacts, pmu: &str, answer: Answer, scope: Scope) -> Obstacle {
    let error = answer.error().unwrap_or(0);
    let is_ibs = pmu.starts_with("ibs");
    let name = |what: &str| format!("{pmu}: {what} ({answer})");
    match error {
        libc::EACCES => paranoid(facts, scope),
        libc::EPERM => Obstacle::new(name("a seccomp filter or a security module refuses it"), unfiltered(facts)),
        libc::EINVAL if is_ibs && scope.level() == 2 && !facts.kernel.is_at_least(6, 2) => Obstacle::new(
            format!(
                "{pmu}: this kernel ({}) samples whole CPUs only; events of single processes came with Linux 6.2",
                facts.kernel
            ),
            match facts.is_privileged && !facts.in_user_namespace {
                true => "record whole CPUs with `--system`, or use Linux 6.2 or later".to_owned(),
                false => format!(
                    "use Linux 6.2 or later, or record whole CPUs with `--system`: {}",
                    rights(facts, Scope::System)
                ),
            },
        ),
        libc::EINVAL => Obstacle::new(
            name("this kernel does not know the event, or not with these settings"),
            "use Linux 4.14 or later; `numapilot doctor` lists the engines that work here",
        ),
        libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP if facts.hypervisor.is_some() => Obstacle::new(
            name("the hypervisor exposes the counters, but does not allow them to sample memory accesses"),
            passing_through(facts),
        ),
        libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP => Obstacle::new(
            name("the hardware or its driver cannot sample memory accesses"),
            "check `dmesg | grep -i -e pmu -e ibs -e spe`; a firmware setting may disable it",
        ),
        libc::EBUSY => {
            Obstacle::new(name("another profiler is using it"), "stop the other profiler (perf, VTune, uProf, ...)")
        }
        libc::ENODATA => Obstacle::new(
            name("the processor requires an auxiliary event to be opened first"),
            "please report this: numapilot should have opened it",
        ),
        libc::EMFILE => files(),
        libc::ENOMEM => {
            Obstacle::new(name("the kernel has no memory left for the event"), "free some memory, or record fewer CPUs")
        }
        _ => Obstacle::new(
            name("the kernel refuses the event"),
            "check `dmesg`, and report this with `numapilot doctor --json`",
        ),
    }
}

/// How the owner of a virtual machine gives it the processor's counters.
pub fn passing_through(facts: &EventFacts) -> String {
    let machine = facts.machine.to_lowercase();
    let hypervisor = facts.hypervisor.as_deref().unwrap_or("").to_lowercase();
    let is_amd = facts.vendor == Vendor::Amd;
    let more = if is_amd { ", and a host whose KVM gives IBS to guests" } else { "" };
    if machine.contains("amazon") {
        return "use a bare-metal instance type (NAME.metal), which has all of the processor's counters".to_owned();
    }
    if machine.contains("google") {
        return "use a bare-metal machine type (NAME-metal), or a C4 with `--performance-monitoring-unit=enhanced`"
            .to_owned();
    }
    if hypervisor.contains("hyper-v") || machine.contains("microsoft") {
        return "on Hyper-V: `Set-VMProcessor NAME -Perfmon @(\"pmu\",\"pebs\")`; Azure gives no guest these counters"
            .to_owned();
    }
    if hypervisor.contains("vmware") {
        return "let the virtual machine's settings virtualise CPU performance counters (`vpmc.enable = \"TRUE\"`)"
            .to_owned();
    }
    if hypervisor.contains("xen") {
        return "boot the hypervisor with `vpmu=on`".to_owned();
    }
    let is_kvm = hypervisor.contains("kvm") || hypervisor.contains("qemu");
    if is_kvm && facts.vendor == Vendor::Arm {
        // arch/arm64/kvm/sys_regs.c: "Hide SPE from guests", PMSVer of ID_AA64DFR0_EL1 is masked whatever the guest asks for.
        return "use the host itself, or a bare-metal machine: KVM gives SPE to no guest".to_owned();
    }
    if is_kvm {
        return format!(
            "start the guest with `-cpu host,pmu=on` (libvirt: `<pmu state='on'/>`){more}; or use the host itself"
        );
    }
    "ask the hypervisor's administrator to give the guest the processor's counters, or use a bare-metal machine"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Kernel;

    #[test]
    fn a_ban_is_lifted_by_the_older_capability_only() {
        let advice = |release: &str, level: i32, container: Option<&str>| {
            let kernel = Kernel::from(release.to_owned());
            let container = container.map(str::to_owned);
            let facts = EventFacts { kernel, paranoid: Some(level), container, ..EventFacts::default() };
            rights(&facts, Scope::Own)
        };
        assert!(advice("6.8.0-45-generic", 2, None).contains("setcap cap_perfmon+ep"));
        assert!(advice("6.8.0-45-generic", 4, None).contains("setcap cap_sys_admin+ep"));
        assert!(advice("6.1.0-28-amd64", 3, Some("Docker")).contains("--cap-add SYS_ADMIN"));
        assert!(advice("5.4.0-150-generic", 2, None).contains("setcap cap_sys_admin+ep"));
    }

    /// Of KVM's guests, those on x86-64 can be given what samples accesses, those on arm64 cannot.
    #[test]
    fn no_setting_of_a_guest_on_arm64_is_named() {
        let advice = |vendor: Vendor| {
            passing_through(&EventFacts { vendor, hypervisor: Some("KVM".to_owned()), ..EventFacts::default() })
        };
        assert!(advice(Vendor::Intel).contains("pmu=on"));
        let arm = advice(Vendor::Arm);
        assert!(arm.contains("the host itself") && !arm.contains("pmu"), "{arm}");
    }
}
