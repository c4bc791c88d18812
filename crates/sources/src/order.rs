//! Where order stamps come from: the processor's counter, where the counters of all CPUs agree, else one word in the arena.
//!
//! The kernel knows whether they agree: it compares the time-stamp counters of all CPUs at boot and watches them later, and takes `tsc` out of
//! `available_clocksource` for good once they differ (`mark_tsc_unstable`, arch/x86/kernel/tsc.c; Documentation/virt/kvm/x86/timekeeping.rst).
//! On Arm they agree by architecture: all CPUs read one system counter (Arm ARM, "The Generic Timer"). `crates/runtime/c/order.h` has the rest.

use std::fs;
use std::path::Path;

use numapilot_trace::wire::layout as wire;

use crate::error::SourceError;

/// Environment variable that overrides the choice: `counter` or `sequence`.
pub const VARIABLE: &str = "NUMAPILOT_ORDER";

const CLOCKSOURCES: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Where order stamps come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderSource {
    /// The counter, behind LFENCE (or DSB and ISB).
    Counter,
    /// The counter, read by RDTSCP.
    CounterP,
    /// A word in the arena that every stamp adds one to.
    Sequence,
}

impl OrderSource {
    /// The value in the arena (`np_order_source`).
    pub fn wire(self) -> u32 {
        match self {
            OrderSource::Counter => wire::ORDER_COUNTER,
            OrderSource::CounterP => wire::ORDER_COUNTER_P,
            OrderSource::Sequence => wire::ORDER_SEQUENCE,
        }
    }

    /// The name that traces use.
    pub fn name(self) -> &'static str {
        match self {
            OrderSource::Counter | OrderSource::CounterP => "counter",
            OrderSource::Sequence => "sequence",
        }
    }
}

/// A source, and why it is not the quickest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The chosen source.
    pub source: OrderSource,
    /// Note for the user; `None` where it is the quickest source.
    pub why: Option<String>,
}

/// The instruction by which a processor waits for all earlier instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "only tests of the choice make the others there"))]
pub enum Fence {
    /// LFENCE waits until all earlier instructions are done.
    Lfence,
    /// RDTSCP waits until all earlier instructions are done.
    Rdtscp,
    /// Neither instruction is known to wait.
    Unknown,
}

/// What the choice of a source depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// `available_clocksource`; `None` where it cannot be read.
    pub clocksources: Option<String>,
    /// Number of online CPUs; 0 where unknown.
    pub cpus: u32,
    /// The fence that this processor has.
    pub fence: Fence,
    /// All CPUs read one counter by architecture.
    pub is_one_counter: bool,
    /// Value of the environment variable [`VARIABLE`].
    pub wanted: Option<String>,
}

impl Facts {
    /// Reads the facts of this machine, with the kernel's files under `root`.
    pub fn read(root: &Path) -> Facts {
        // SAFETY: sysconf takes an integer and returns one.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        Facts {
            clocksources: fs::read_to_string(root.join(CLOCKSOURCES)).ok(),
            cpus: u32::try_from(online).unwrap_or(0),
            fence: fence(),
            is_one_counter: cfg!(target_arch = "aarch64"),
            wanted: std::env::var(VARIABLE).ok(),
        }
    }

    /// The quickest source that is sound.
    ///
    /// # Errors
    /// [`VARIABLE`] names no source.
    pub fn choose(&self) -> Result<Choice, SourceError> {
        let quickest = match self.fence {
            Fence::Lfence => OrderSource::Counter,
            Fence::Rdtscp => OrderSource::CounterP,
            Fence::Unknown => OrderSource::Sequence,
        };
        let sequence = |why: &str| Choice {
            source: OrderSource::Sequence,
            why: Some(format!(
                "{why}, so a shared counter in memory orders the events: the order is as exact, but recording slows down with the number of threads that \
                 allocate"
            )),
        };
        let choice = match (self.wanted.as_deref(), &self.clocksources) {
            (Some("counter"), _) => Choice { source: quickest, why: None },
            (Some("sequence"), _) => sequence(&format!("{VARIABLE} is `sequence`")),
            (Some(other), _) => {
                return Err(SourceError::Option {
                    option: VARIABLE,
                    reason: format!("`{other}` is not a source of order stamps"),
                    remedy: "use `counter` or `sequence`, or leave it unset".to_owned(),
                });
            }
            _ if quickest == OrderSource::Sequence => {
                sequence("it is unknown whether this processor reads its time-stamp counter in program order")
            }
            _ if self.cpus == 1 || self.is_one_counter => Choice { source: quickest, why: None },
            (None, Some(text)) if text.split_whitespace().any(|name| name == "tsc") => {
                Choice { source: quickest, why: None }
            }
            (None, Some(text)) => sequence(&format!(
                "the time-stamp counters of this machine's CPUs do not agree (the kernel offers {} as clocks, not tsc)",
                text.split_whitespace().collect::<Vec<_>>().join(", ")
            )),
            (None, None) => sequence(&format!(
                "it is unknown whether the time-stamp counters of this machine's CPUs agree (/{CLOCKSOURCES} cannot be read)"
            )),
        };
        Ok(choice)
    }
}

/// What this processor promises (`order.h`): Intel's LFENCE waits always, AMD's where CPUID says so, or in the two families that have no such switch.
#[cfg(target_arch = "x86_64")]
fn fence() -> Fence {
    use core::arch::x86_64::__cpuid;
    let (leaf0, extended) = (__cpuid(0), __cpuid(0x8000_0000).eax);
    let vendor: Vec<u8> = [leaf0.ebx, leaf0.edx, leaf0.ecx].into_iter().flat_map(u32::to_le_bytes).collect();
    if !matches!(vendor.as_slice(), b"AuthenticAMD" | b"HygonGenuine") {
        return Fence::Lfence;
    }
    let signature = __cpuid(1).eax;
    let family = ((signature >> 8) & 0xf) + ((signature >> 20) & 0xff);
    let is_always = extended >= 0x8000_0021 && __cpuid(0x8000_0021).eax & 1 << 2 != 0;
    if is_always || matches!(family, 0x0f | 0x11) {
        return Fence::Lfence;
    }
    if extended >= 0x8000_0001 && __cpuid(0x8000_0001).edx & 1 << 27 != 0 { Fence::Rdtscp } else { Fence::Unknown }
}

/// DSB and ISB are there always; the name is x86's.
#[cfg(target_arch = "aarch64")]
fn fence() -> Fence {
    Fence::Lfence
}

#[cfg(test)]
mod tests {
    //! The choice on machines that are told of, and this machine's.

    use super::*;

    fn facts() -> Facts {
        Facts {
            clocksources: Some("kvm-clock tsc acpi_pm \n".to_owned()),
            cpus: 8,
            fence: Fence::Lfence,
            is_one_counter: false,
            wanted: None,
        }
    }

    fn source(facts: &Facts) -> OrderSource {
        facts.choose().expect("a source").source
    }

    /// Make sure that a counter which the kernel has given up as a clock orders nothing, and that the user learns of it.
    #[test]
    fn counters_that_do_not_agree_are_not_used() {
        assert_eq!(facts().choose().unwrap(), Choice { source: OrderSource::Counter, why: None });
        let apart = Facts { clocksources: Some("hpet acpi_pm\n".to_owned()), ..facts() };
        let choice = apart.choose().unwrap();
        assert_eq!(choice.source, OrderSource::Sequence);
        let why = choice.why.unwrap();
        assert!(why.contains("do not agree") && why.contains("hpet, acpi_pm"), "{why}");
        let unknown = Facts { clocksources: None, ..facts() };
        assert_eq!(source(&unknown), OrderSource::Sequence);
        assert!(unknown.choose().unwrap().why.unwrap().contains("unknown"));
        assert_eq!(source(&Facts { cpus: 1, ..apart.clone() }), OrderSource::Counter);
        assert_eq!(source(&Facts { is_one_counter: true, clocksources: None, ..facts() }), OrderSource::Counter);
    }

    /// Make sure that an instruction which the processor does not promise to order is not relied on.
    #[test]
    fn unordered_instructions_are_not_used() {
        assert_eq!(source(&Facts { fence: Fence::Rdtscp, ..facts() }), OrderSource::CounterP);
        assert_eq!(source(&Facts { fence: Fence::Unknown, ..facts() }), OrderSource::Sequence);
        assert_eq!(source(&Facts { fence: Fence::Unknown, cpus: 1, ..facts() }), OrderSource::Sequence);
    }

    #[test]
    fn the_user_has_the_last_word() {
        let wants = |word: &str| Facts { wanted: Some(word.to_owned()), ..facts() };
        assert_eq!(source(&wants("sequence")), OrderSource::Sequence);
        assert_eq!(source(&Facts { clocksources: None, ..wants("counter") }), OrderSource::Counter);
        let error = wants("magic").choose().unwrap_err().to_string();
        assert!(error.contains("NUMAPILOT_ORDER") && error.contains("sequence"), "{error}");
    }

    #[test]
    fn files_are_read_under_the_root() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Facts::read(root.path()).clocksources, None);
        let file = root.path().join(CLOCKSOURCES);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "hpet\n").unwrap();
        assert_eq!(Facts::read(root.path()).clocksources.as_deref(), Some("hpet\n"));
    }
}
