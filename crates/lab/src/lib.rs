//! The lab: a real Linux kernel with any number of memory nodes, on a machine that has one, for tests of everything that talks to the kernel.
//!
//! Owns: downloading QEMU and stock Debian kernels (once per user, nothing is installed), booting them with a described [`Topology`], restoring
//! from a snapshot in about a second, running one command with the host's files visible under the same paths, and bringing back its exit code,
//! output and files.
//! Assumes an x86-64 Linux host with apt and dpkg for the first set-up. KVM is optional: without it, the guest is emulated, as a guest of another
//! architecture ([`Arch`]) always is.
//!
//! **Never judge placement by the guest's run time:** all memory of the guest has the same latency. Judge by page counts, or by modelled time.
//!
//! ```no_run
//! use numapilot_lab::{Lab, Topology};
//! use std::process::Command;
//!
//! let outcome = Lab::new(Topology::symmetric(4)).run(Command::new("numactl").arg("--hardware"))?;
//! assert!(outcome.stdout.contains("available: 4 nodes"), "{outcome:?}");
//! # Ok::<(), numapilot_lab::LabError>(())
//! ```

mod accelerator;
mod arch;
mod boot_image;
mod cache;
mod error;
mod guest;
pub mod homes;
mod initramfs;
mod job;
mod kernel;
mod kvm;
mod lab;
mod lockup;
mod machine;
mod packages;
mod pattern;
mod qemu;
mod qmp;
mod samples;
mod say;
mod snapshot;
mod stale;
mod time_limit;
mod topology;
mod tree;
mod truth;
mod turn;
mod watch;

pub use accelerator::Accelerator;
pub use arch::Arch;
pub use error::LabError;
pub use job::FILES_IN_GUEST;
pub use kernel::Kernel;
pub use lab::Lab;
pub use lab::Outcome;
pub use pattern::compile_pattern;
pub use samples::Sampling;
pub use topology::Topology;
pub use truth::Count;
pub use truth::CpuCount;
pub use truth::PageCount;
pub use truth::PrivateCache;
pub use truth::Region;
pub use truth::Truth;
pub use truth::TruthOptions;

use numapilot_not_run::not_run;

use say::{say, skipped};

/// For tests: whether to run what needs the lab. No only where `NUMAPILOT_LAB=skip` is set; the test is then counted as one that did not run.
#[track_caller]
pub fn wanted(test: &str) -> bool {
    let wanted = !skipped();
    if !wanted {
        not_run!(Lab, "{test} needs a kernel with several nodes, and NUMAPILOT_LAB=skip is set");
    }
    wanted
}
