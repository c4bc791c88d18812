//! The guest's architecture: all that differs between the lab's x86-64 and its 64-bit Arm, in one table.
//!
//! An architecture that is not the host's is always emulated, and its guest has a file tree of its own ([`crate::tree`]): the host's programs do not run there.

use std::fmt;
use std::str::FromStr;

use crate::error::LabError;

/// Architecture of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Arch {
    /// x86-64, on QEMU's `q35` machine; the guest sees the host's files.
    #[default]
    X86_64,
    /// 64-bit Arm, on QEMU's `virt` machine; the guest sees a small Debian of its own, with some of the host's folders in it.
    Aarch64,
}

/// QEMU for an architecture, and where Debian has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Emulator {
    /// Name of the program.
    pub(crate) program: &'static str,
    /// Debian's package of it.
    pub(crate) package: &'static str,
    /// Folder of the cache that it is unpacked into; a new recipe gets a new folder.
    pub(crate) folder: &'static str,
    /// The variable that names another one.
    pub(crate) variable: &'static str,
}

impl Arch {
    /// All architectures of the lab.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// Whether the host's programs run in the guest.
    pub(crate) fn is_hosts(self) -> bool {
        self.to_string() == std::env::consts::ARCH
    }

    /// Debian's name of it, at the end of its kernels' names, too.
    pub(crate) fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }

    /// Name of a file or folder of the cache: plain for the first architecture that the lab had.
    pub(crate) fn cached(self, name: &str) -> String {
        match self {
            Arch::X86_64 => name.to_owned(),
            Arch::Aarch64 => format!("{name}-{}", self.debian()),
        }
    }

    pub(crate) fn emulator(self) -> Emulator {
        match self {
            Arch::X86_64 => Emulator {
                program: "qemu-system-x86_64",
                package: "qemu-system-x86",
                folder: "qemu-1",
                variable: "NUMAPILOT_LAB_QEMU",
            },
            Arch::Aarch64 => Emulator {
                program: "qemu-system-aarch64",
                package: "qemu-system-arm",
                folder: "qemu-arm-1",
                variable: "NUMAPILOT_LAB_QEMU_AARCH64",
            },
        }
    }

    /// QEMU's machine.
    ///
    /// # Errors
    /// A table of latencies and bandwidths (HMAT) is ACPI's. The lab's Arm guest has no firmware, and reads its nodes from a device tree.
    pub(crate) fn machine(self, hmat: bool) -> Result<&'static str, LabError> {
        match (self, hmat) {
            (Arch::X86_64, false) => Ok("q35"),
            (Arch::X86_64, true) => Ok("q35,hmat=on"),
            (Arch::Aarch64, false) => Ok("virt,gic-version=3"),
            (Arch::Aarch64, true) => Err(LabError::Topology(
                "the aarch64 guest reads its nodes from a device tree, which has no latencies and bandwidths (HMAT); leave them out, or take x86_64".into(),
            )),
        }
    }

    /// QEMU's CPU. Arm's signatures of pointers are computed in QEMU's own way: the architected one takes as long as much of the guest's other work.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Arch::X86_64 => "max",
            Arch::Aarch64 => "max,pauth-impdef=on",
        }
    }

    /// The kernel's command line.
    pub(crate) fn kernel_line(self) -> &'static str {
        match self {
            Arch::X86_64 => "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check",
            Arch::Aarch64 => "console=ttyAMA0 quiet panic=-1 mitigations=off",
        }
    }

    /// Refuses to count accesses where the plugin cannot: its mark is x86's `cpuid`, and it knows only the layout of q35's memory.
    ///
    /// # Errors
    /// For all but x86-64.
    pub(crate) fn check_countable(self) -> Result<(), LabError> {
        match self {
            Arch::X86_64 => Ok(()),
            Arch::Aarch64 => Err(LabError::Command(
                "accesses are counted and sampled (--truth, --samples) in x86_64 guests only; leave these options out, or take --arch x86_64".into(),
            )),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        })
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Arch::ALL.map(|arch| arch.to_string()).join(", ");
        let found = Arch::ALL.into_iter().find(|arch| arch.to_string() == text);
        found.ok_or_else(|| format!("there is no guest of architecture {text:?}; known: {known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_cached_things_do_not_meet() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse(), Ok(arch));
        }
        assert!("arm".parse::<Arch>().is_err_and(|message| message.contains("x86_64, aarch64")));
        assert_eq!(Arch::ALL.map(|arch| arch.cached("busybox-1")), ["busybox-1", "busybox-1-arm64"]);
        let [x86, arm] = Arch::ALL.map(Arch::emulator);
        assert!(x86.folder != arm.folder && x86.variable != arm.variable);
    }

    #[test]
    fn what_an_architecture_cannot_do_is_refused() {
        assert_eq!(Arch::X86_64.machine(true).ok(), Some("q35,hmat=on"));
        assert!(Arch::Aarch64.machine(true).is_err_and(|error| error.to_string().contains("HMAT")));
        assert!(Arch::X86_64.check_countable().is_ok());
        assert!(Arch::Aarch64.check_countable().is_err_and(|error| error.to_string().contains("--truth")));
    }
}
