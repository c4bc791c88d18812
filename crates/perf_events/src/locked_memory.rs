//! Memory for rings: what the kernel lets a user lock for them, shared evenly among all rings that are opened (`perf_mmap` in `kernel/events/core.c`).
//!
//! A user has kernel.perf_event_mlock_kb for each CPU online, for all rings of all of the user's processes together; what is more counts against the process's
//! RLIMIT_MEMLOCK. AUX areas count as rings do. Neither limit holds with CAP_IPC_LOCK, or where kernel.perf_event_paranoid is below 0.

use std::fmt;
use std::io;

use numapilot_host::Root;
use numapilot_host::in_user_namespace;
use numapilot_kernel::actuator::page_bytes;
use numapilot_kernel::sysctl;

use crate::probe::has_capability;

/// Bit of the capability that frees from the limits (`include/uapi/linux/capability.h`).
const CAP_IPC_LOCK: u32 = 14;
/// Pages of the smallest AUX area: SPE's driver wants two (`arm_spe_pmu_setup_aux`), and the reader is woken at a quarter.
const AUX_PAGES_LEAST: u64 = 4;

/// The limits, as they are here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of a page.
    pub page: u64,
    /// CPUs online.
    pub cpus: u64,
    /// kernel.perf_event_mlock_kb, for each CPU; `None`: not readable.
    pub mlock_kib: Option<u64>,
    /// RLIMIT_MEMLOCK in bytes; `None`: there is none.
    pub memlock_bytes: Option<u64>,
    /// They do not hold for this process.
    pub is_exempt: bool,
}

impl Limits {
    /// The limits of this process, on a machine with `cpus` CPUs online.
    pub fn here(cpus: usize) -> Limits {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call writes one rlimit of our own.
        unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
        // The kernel asks for the capability of its first user namespace.
        let is_namespaced = in_user_namespace(&Root::default());
        let mlock_kib = sysctl::number("kernel.perf_event_mlock_kb").and_then(|kib| u64::try_from(kib).ok());
        Limits {
            page: page_bytes(),
            cpus: cpus as u64,
            mlock_kib,
            memlock_bytes: (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur),
            is_exempt: sysctl::perf_event_paranoid().is_some_and(|level| level < 0)
                || !is_namespaced && has_capability(CAP_IPC_LOCK),
        }
    }

    /// Pages for all rings together; `None`: as many as are wanted, or not known. Less where the user's other processes have rings.
    fn budget_pages(&self) -> Option<u64> {
        let memlock_bytes = self.memlock_bytes.filter(|_| !self.is_exempt)?;
        let of_user = (self.mlock_kib? * 1024 / self.page).saturating_mul(self.cpus);
        Some(of_user.saturating_add(memlock_bytes / self.page))
    }
}

/// Bytes of each ring's data and AUX area (0: none), powers of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub data: usize,
    pub aux: usize,
}

impl Sizes {
    /// The largest sizes up to these that the limits leave room for, where `rings` are opened, and `areas` of them have an AUX area. The smallest there are
    /// where even those find none.
    pub fn within(self, limits: &Limits, rings: usize, areas: usize) -> Sizes {
        let page = limits.page;
        let pages = |sizes: Sizes| {
            rings as u64 * (1 + sizes.data as u64 / page) + areas as u64 * (sizes.aux as u64).div_ceil(page)
        };
        let mut sizes = self;
        while limits.budget_pages().is_some_and(|budget| pages(sizes) > budget) {
            let Some(less) = sizes.less(page) else { break };
            sizes = less;
        }
        sizes
    }

    /// The next smaller sizes; `None`: there are none.
    pub fn less(self, page: u64) -> Option<Sizes> {
        let (data_least, aux_least) = (page as usize, (AUX_PAGES_LEAST * page) as usize);
        let halves_aux = self.aux > aux_least && (self.aux > self.data || self.data <= data_least);
        match halves_aux {
            true => Some(Sizes { aux: self.aux / 2, ..self }),
            false => (self.data > data_least).then_some(Sizes { data: self.data / 2, ..self }),
        }
    }
}

/// The limits leave no room for rings, however small.
#[derive(Debug)]
pub(crate) struct NoRoom {
    /// The system call's error.
    source: io::Error,
    limits: Limits,
    rings: usize,
    asked: Sizes,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for NoRoom {}

impl NoRoom {
    /// The error of a ring's mapping, as what it says: EPERM is a matter of these limits there, and no other right.
    pub fn of(source: io::Error, limits: Limits, rings: usize, asked: Sizes) -> io::Error {
        match source.raw_os_error() {
            Some(libc::EPERM) => io::Error::other(NoRoom { source, limits, rings, asked }),
            _ => source,
        }
    }

    /// That of an error, if it is one.
    pub fn in_error(error: &io::Error) -> Option<&NoRoom> {
        error.get_ref()?.downcast_ref()
    }

    /// What is in the way, as a clause.
    pub fn reason(&self) -> String {
        let kib = |kib: Option<u64>, or: &str| kib.map_or_else(|| or.to_owned(), |kib| format!("{kib} KiB"));
        format!(
            "the limit on locked memory leaves no room for the rings of {} CPUs: kernel.perf_event_mlock_kb gives all profilers of this user {} per CPU, and \
             `ulimit -l` another {}",
            self.rings,
            kib(self.limits.mlock_kib, "an unknown number of KiB"),
            kib(self.limits.memlock_bytes.map(|bytes| bytes / 1024), "unlimited number of KiB")
        )
    }

    /// The next step, as a clause.
    pub fn remedy(&self) -> String {
        let enough = (self.asked.data + self.asked.aux) as u64 / 1024 + self.limits.page / 1024;
        format!(
            "stop other profilers of this user, allow more with `sudo sysctl kernel.perf_event_mlock_kb={enough}` or `ulimit -l`, or run it with CAP_IPC_LOCK"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    /// The kernel's and systemd's defaults.
    const LIMITS: Limits =
        Limits { page: 4096, cpus: 64, mlock_kib: Some(516), memlock_bytes: Some(8 << 20), is_exempt: false };

    fn sizes(cpus: usize, data: usize, aux: usize) -> Sizes {
        let limits = Limits { cpus: cpus as u64, ..LIMITS };
        Sizes { data, aux }.within(&limits, cpus, if aux > 0 { cpus } else { 0 })
    }

    /// With rings of 1 MiB from the first on, the 18th of 64 found the limit used up.
    #[test]
    fn all_rings_get_the_same_share_of_the_limit() {
        for (cpus, data) in [(4, MIB), (16, MIB), (18, MIB / 2), (64, MIB / 2), (1024, MIB / 2)] {
            assert_eq!(sizes(cpus, MIB, 0), Sizes { data, aux: 0 }, "{cpus} CPUs");
        }
        assert_eq!(sizes(64, MIB, MIB), Sizes { data: MIB / 4, aux: MIB / 4 });
        let scarce = Limits { mlock_kib: Some(40), memlock_bytes: Some(64 << 10), ..LIMITS };
        assert_eq!(Sizes { data: MIB, aux: 0 }.within(&scarce, 64, 0), Sizes { data: 32 << 10, aux: 0 });
    }

    #[test]
    fn without_limits_nothing_is_smaller_than_asked_for() {
        let asked = Sizes { data: 64 * MIB, aux: MIB };
        for limits in [
            Limits { is_exempt: true, ..LIMITS },
            Limits { memlock_bytes: None, ..LIMITS },
            Limits { mlock_kib: None, ..LIMITS },
        ] {
            assert_eq!(asked.within(&limits, 64, 64), asked);
        }
    }

    #[test]
    fn sizes_shrink_to_a_page_and_no_further() {
        let nothing = Limits { mlock_kib: Some(0), memlock_bytes: Some(0), ..LIMITS };
        assert_eq!(Sizes { data: MIB, aux: MIB }.within(&nothing, 64, 64), Sizes { data: 4096, aux: 4 * 4096 });
        assert_eq!(Sizes { data: MIB, aux: 0 }.within(&nothing, 64, 0), Sizes { data: 4096, aux: 0 });
        assert_eq!(Sizes { data: 4096, aux: 0 }.less(4096), None);
    }

    #[test]
    fn only_a_refusal_is_a_matter_of_the_limits() {
        let error = |number| NoRoom::of(io::Error::from_raw_os_error(number), LIMITS, 64, Sizes { data: MIB, aux: 0 });
        assert!(NoRoom::in_error(&error(libc::ENOMEM)).is_none());
        let error = error(libc::EPERM);
        // Nobody is to take it for a right to observe processes.
        assert_eq!(error.raw_os_error(), None);
        let found = NoRoom::in_error(&error).unwrap();
        assert!(found.reason().contains("rings of 64 CPUs") && found.reason().contains("516 KiB per CPU"));
        assert!(found.remedy().contains("kernel.perf_event_mlock_kb=1028"), "{}", found.remedy());
    }
}
