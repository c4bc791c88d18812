//! Facts of the recording machine that a reader of the trace may need. No environment dump: only variables that change how
//! threads and memory are used.

use std::fs;
use std::path::Path;

use numapilot_host::Root;
use numapilot_host::cpuinfo;
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

/// Drivers of cpufreq whose `cpuinfo_max_freq` holds boost. That of `acpi-cpufreq` may be the fastest of the firmware's P-states alone, which is less
/// (Documentation/admin-guide/pm/amd-pstate.rst and intel_pstate.rst; `acpi_cpufreq_cpu_init`).
const TELL_BOOST: [&str; 4] = ["amd-pstate", "amd-pstate-epp", "intel_pstate", "intel_cpufreq"];

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
    /// The fastest clock that its cores can have, boost included, kHz; `None` where cpufreq does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_khz_max: Option<u64>,
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
        let root = Root::default();
        let first_line = |path: &str| {
            root.text(path).map(|text| text.lines().next().unwrap_or_default().to_owned()).unwrap_or_default()
        };
        let cpu_model = cpuinfo::field(&cpuinfo::read(&root), &["model name"]).unwrap_or_default().to_owned();
        // SAFETY: sysconf takes an integer and returns one.
        let (online, page) = unsafe { (libc::sysconf(libc::_SC_NPROCESSORS_ONLN), libc::sysconf(libc::_SC_PAGESIZE)) };
        let thp = first_line("sys/kernel/mm/transparent_hugepage/enabled");
        Host {
            kernel: format!("Linux {}", first_line("proc/sys/kernel/osrelease")),
            arch: std::env::consts::ARCH.to_owned(),
            cpu_model,
            cpu_count: u32::try_from(online).unwrap_or(0),
            core_khz_max: core_khz_max(root.path()),
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

/// The fastest clock of any core, by cpufreq below `root`.
fn core_khz_max(root: &Path) -> Option<u64> {
    let folder = root.join("sys/devices/system/cpu/cpufreq");
    let word = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let is_boost_off = word(&folder.join("boost")).is_some_and(|state| state == "0");
    let mut fastest = None;
    for entry in fs::read_dir(&folder).ok()?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with("policy") {
            continue;
        }
        let driver = word(&entry.path().join("scaling_driver"))?;
        if !is_boost_off && !TELL_BOOST.contains(&driver.as_str()) {
            return None;
        }
        let khz: u64 = word(&entry.path().join("cpuinfo_max_freq"))?.parse().ok()?;
        fastest = fastest.max(Some(khz).filter(|khz| *khz > 0));
    }
    fastest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_clock_is_known_where_boost_is_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |file: &str, text: &str| {
            let path = folder.path().join("sys/devices/system/cpu/cpufreq").join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
            fs::write(path, text).expect("written");
        };
        assert_eq!(core_khz_max(folder.path()), None, "virtual machines have no cpufreq");
        for (policy, khz) in [("policy0", "3700000\n"), ("policy1", "3900000\n")] {
            put(&format!("{policy}/scaling_driver"), "amd-pstate-epp\n");
            put(&format!("{policy}/cpuinfo_max_freq"), khz);
        }
        assert_eq!(core_khz_max(folder.path()), Some(3_900_000));
        put("policy1/scaling_driver", "acpi-cpufreq\n");
        assert_eq!(core_khz_max(folder.path()), None, "boost may be on top");
        put("boost", "1\n");
        assert_eq!(core_khz_max(folder.path()), None);
        put("boost", "0\n");
        assert_eq!(core_khz_max(folder.path()), Some(3_900_000));
        put("policy0/cpuinfo_max_freq", "<unknown>\n");
        assert_eq!(core_khz_max(folder.path()), None);
    }
}
