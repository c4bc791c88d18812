//! Facts that decide which events the kernel lets this process open, as plain data: collected by `probe`, or captured on another machine and kept
//! as JSON.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kernel's version, as far as features go by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Kernel {
    number: (u32, u32),
    release: String,
}

impl Kernel {
    /// Whether it is this version or a newer one. A release that cannot be read counts as old.
    #[must_use]
    pub fn is_at_least(&self, major: u32, minor: u32) -> bool {
        self.number >= (major, minor)
    }
}

impl From<String> for Kernel {
    fn from(release: String) -> Kernel {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
        let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Kernel { number, release }
    }
}

impl From<Kernel> for String {
    fn from(kernel: Kernel) -> String {
        kernel.release
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.release)
    }
}

/// Error numbers that opening events gives, by name.
const ERRORS: [(i32, &str); 17] = [
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::EINTR, "EINTR"),
    (libc::EIO, "EIO"),
    (libc::E2BIG, "E2BIG"),
    (libc::EBADF, "EBADF"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EBUSY, "EBUSY"),
    (libc::ENODEV, "ENODEV"),
    (libc::EINVAL, "EINVAL"),
    (libc::EMFILE, "EMFILE"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENODATA, "ENODATA"),
    (libc::EOVERFLOW, "EOVERFLOW"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
];

/// What the system said when something was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Answer {
    /// Not tried, because something before it failed or is not there.
    #[default]
    Untried,
    /// The system call succeeded.
    Works,
    /// Refused with this error number.
    Refused(i32),
}

impl Answer {
    /// Whether the system call succeeded.
    #[must_use]
    pub fn works(self) -> bool {
        self == Answer::Works
    }

    /// The error number, if it was refused.
    #[must_use]
    pub fn error(self) -> Option<i32> {
        if let Answer::Refused(number) = self { Some(number) } else { None }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Untried => f.write_str("untried"),
            Answer::Works => f.write_str("works"),
            Answer::Refused(number) => match ERRORS.iter().find(|(known, _)| known == number) {
                Some((_, name)) => f.write_str(name),
                None => write!(f, "error {number}"),
            },
        }
    }
}

impl FromStr for Answer {
    type Err = String;

    fn from_str(text: &str) -> Result<Answer, String> {
        match text {
            "untried" => Ok(Answer::Untried),
            "works" => Ok(Answer::Works),
            _ => {
                let named = ERRORS.iter().find(|(_, name)| *name == text).map(|(number, _)| *number);
                let number = named.or_else(|| text.strip_prefix("error ")?.parse().ok());
                number.map(Answer::Refused).ok_or_else(|| {
                    format!("{text:?} is not a result of a system call (`works`, `untried` or an error's name)")
                })
            }
        }
    }
}

impl TryFrom<String> for Answer {
    type Error = String;

    fn try_from(text: String) -> Result<Answer, String> {
        text.parse()
    }
}

impl From<Answer> for String {
    fn from(answer: Answer) -> String {
        answer.to_string()
    }
}

/// Who made the processor, as far as ways of sampling differ by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// AMD or Hygon.
    Amd,
    /// Intel.
    Intel,
    /// Any 64-bit Arm.
    Arm,
    /// Any other vendor.
    #[default]
    Other,
}

/// A way to sample that the machine offers, and the results of trying it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerFact {
    /// Name of the sampler: `ibs_op`, `pebs-loads`, `pebs-stores` or `spe`.
    pub sampler: String,
    /// Name of its PMU.
    pub pmu: String,
    /// Whether user code of this process can be sampled.
    pub own: Answer,
    /// Whether that works with physical addresses.
    pub physical: Answer,
    /// Whether a whole CPU can be sampled.
    pub system: Answer,
    /// The kernel can leave its own accesses out.
    pub can_leave_kernel_out: bool,
}

/// The machine, the kernel and this process's rights, as far as events depend on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventFacts {
    /// Kernel release (`uname -r`).
    pub kernel: Kernel,
    /// Architecture (`uname -m`).
    pub arch: String,
    /// Model name of the processor.
    pub cpu: String,
    /// Vendor of the processor.
    pub vendor: Vendor,
    /// Number of online CPUs.
    pub cpus: u32,
    /// Number of nodes with memory.
    pub nodes: u32,
    /// Hypervisor, if this is a virtual machine.
    pub hypervisor: Option<String>,
    /// Maker and model of the (virtual) machine, as its firmware says.
    pub machine: String,
    /// Container, if this runs in one.
    pub container: Option<String>,
    /// In a user namespace: capabilities there do not count for events.
    pub in_user_namespace: bool,
    /// A seccomp filter is in force.
    pub has_seccomp_filter: bool,
    /// The word in brackets of the kernel's lockdown file.
    pub lockdown: Option<String>,
    /// `kernel.perf_event_paranoid`; `None`: no such file.
    pub paranoid: Option<i32>,
    /// CAP_PERFMON (5.8) or CAP_SYS_ADMIN is effective.
    pub is_privileged: bool,
    /// `kernel.numa_balancing`; `None`: the kernel was built without.
    pub numa_balancing: Option<u32>,
    /// Names of the PMUs in sysfs.
    pub pmus: Vec<String>,
    /// A software event of this process's user code, with addresses.
    pub fault: Answer,
    /// A software event of one whole CPU, of any process, with addresses.
    pub fault_system: Answer,
    /// Results for each way to sample memory accesses.
    pub samplers: Vec<SamplerFact>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        let kernel = |release: &str| Kernel::from(release.to_owned());
        assert!(kernel("6.14.0-rc1").is_at_least(6, 2));
        assert!(!kernel("5.15.0-89-generic").is_at_least(5, 16));
        assert!(kernel("6.1").is_at_least(6, 1));
        assert!(!kernel("nonsense").is_at_least(1, 0));
        assert_eq!(kernel("6.18.44-x").to_string(), "6.18.44-x");
    }

    #[test]
    fn answers_are_written_and_read_by_name() {
        for text in ["works", "untried", "EACCES", "ENOSYS", "error 99"] {
            assert_eq!(text.parse::<Answer>().unwrap().to_string(), text);
        }
        assert!("perhaps".parse::<Answer>().is_err());
    }
}
