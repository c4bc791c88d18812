//! Facts of the recording machine that a reader of the trace may need. No environment dump: only variables that change how
//! threads and memory are used.

use std::fs;

use serde::Serialize;

/// Variables worth keeping: they steer threads, allocators and waiting, and hold no secrets.
const VARIABLES: [&str; 10] = [
    "GLIBC_TUNABLES",
    "GOMP_CPU_AFFINITY",
    "GOMP_SPINCOUNT",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MALLOC_ARENA_MAX",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "OMP_WAIT_POLICY",
];

/// The recording machine, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Kernel name and release.
    pub kernel: String,
    /// Architecture (`uname -m`).
    pub arch: String,
    /// Processor, as /proc/cpuinfo names it; empty where it does not.
    pub cpu_model: String,
    /// Number of online CPUs.
    pub cpu_count: u32,
    /// Size of a base page in bytes.
    pub page_bytes: u64,
    /// /sys/kernel/mm/transparent_hugepage/enabled: the word in brackets.
    pub transparent_hugepages: Option<String>,
    /// The variables above that are set.
    pub variables: Vec<(String, String)>,
}

impl Host {
    /// Reads them; what cannot be read is empty or 0.
    pub fn read() -> Host {
        let first_line = |path: &str| {
            fs::read_to_string(path).map(|t| t.lines().next().unwrap_or("").to_owned()).unwrap_or_default()
        };
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu_model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
            .map(|(_, name)| name.trim().to_owned())
            .unwrap_or_default();
        // SAFETY: sysconf takes an integer and returns one.
        let (online, page) = unsafe { (libc::sysconf(libc::_SC_NPROCESSORS_ONLN), libc::sysconf(libc::_SC_PAGESIZE)) };
        let thp = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
        Host {
            kernel: format!("Linux {}", first_line("/proc/sys/kernel/osrelease")),
            arch: std::env::consts::ARCH.to_owned(),
            cpu_model,
            cpu_count: u32::try_from(online).unwrap_or(0),
            page_bytes: u64::try_from(page).unwrap_or(0),
            transparent_hugepages: thp
                .split_once('[')
                .and_then(|(_, r)| r.split_once(']'))
                .map(|(word, _)| word.to_owned()),
            variables: VARIABLES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
                .collect(),
        }
    }
}
