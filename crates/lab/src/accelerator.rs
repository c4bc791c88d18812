//! How the guest's instructions are executed.

/// How the guest's instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accelerator {
    /// KVM where it truly works, else emulation.
    #[default]
    Auto,
    /// KVM, without a test whether it works.
    Kvm,
    /// QEMU's emulation, one host thread per CPU of the guest.
    Emulated,
    /// Emulation in one host thread, where time passes by instructions: runs are alike whatever else the host does.
    Icount,
}

impl Accelerator {
    /// QEMU's arguments that select the accelerator.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Accelerator::Kvm => &["-accel", "kvm"],
            Accelerator::Auto | Accelerator::Emulated => &["-accel", "tcg,thread=multi,tb-size=256"],
            Accelerator::Icount => &["-accel", "tcg,thread=single,tb-size=256", "-icount", "shift=1,sleep=off"],
        }
    }

    /// The accelerator in words, for reports of how a test ran.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "KVM",
            Accelerator::Auto | Accelerator::Emulated => "emulated",
            Accelerator::Icount => "emulated, icount",
        }
    }
}
