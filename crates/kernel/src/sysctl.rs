//! Settings of the running kernel that decide what can be sampled, and whether the kernel moves pages by itself.

use std::fs;
use std::path::Path;

/// A number under `/proc/sys` (`name` with slashes or dots, as `sysctl` takes both); `None` where this kernel has no such setting, or it is not
/// readable.
#[must_use]
pub fn number(name: &str) -> Option<i64> {
    number_under(Path::new("/"), name)
}

/// [`number`] under another root.
#[must_use]
pub fn number_under(root: &Path, name: &str) -> Option<i64> {
    let path = root.join("proc/sys").join(name.replace('.', "/"));
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

/// `kernel.perf_event_paranoid`: what users without CAP_PERFMON may measure. 2: their own processes' user code; 1: the kernel's part too; 0: all
/// processes on a CPU; -1: everything; 3 and above (Debian, Android): nothing.
#[must_use]
pub fn perf_event_paranoid() -> Option<i64> {
    number("kernel.perf_event_paranoid")
}

/// `kernel.numa_balancing`: 0 off; bit 0: pages move to the nodes that use them; bit 1: by memory tiers. `None`: the kernel has no NUMA balancing.
#[must_use]
pub fn numa_balancing() -> Option<i64> {
    number("kernel.numa_balancing")
}

#[cfg(test)]
mod tests {
    //! Settings of a made-up tree.

    use super::*;

    #[test]
    fn numbers_are_read_by_either_spelling() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/sys/kernel");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("perf_event_paranoid"), "-1\n").unwrap();
        fs::write(folder.join("ostype"), "Linux\n").unwrap();
        assert_eq!(number_under(root.path(), "kernel.perf_event_paranoid"), Some(-1));
        assert_eq!(number_under(root.path(), "kernel/perf_event_paranoid"), Some(-1));
        assert_eq!(number_under(root.path(), "kernel.ostype"), None);
        assert_eq!(number_under(root.path(), "kernel.numa_balancing"), None);
    }
}
