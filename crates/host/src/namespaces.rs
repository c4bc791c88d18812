//! The numbers that namespaces of processes give to one process or thread.

use std::fs;
use std::path::Path;

/// Its numbers, from the text of its `/proc/PID/status` (`NSpid`): first in the namespace of that `/proc`, last in its own, by which it knows itself. None
/// where the kernel does not tell.
pub fn numbers_by_namespace(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.into_iter().flat_map(str::split_ascii_whitespace).map_while(|number| number.parse().ok())
}

/// The number by which a process or thread knows itself, in its innermost namespace, by its folder in `/proc`. `None`: it has ended, or the kernel does not
/// tell.
pub fn innermost_number(folder: &Path) -> Option<u32> {
    // The name in the status need not be UTF-8.
    let status = fs::read(folder.join("status")).ok()?;
    numbers_by_namespace(&String::from_utf8_lossy(&status)).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs choose their names, bytes that are no text among them.
    #[test]
    fn the_innermost_number_is_read_whatever_the_name_is() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(innermost_number(folder.path()), None, "it has ended");
        fs::write(folder.path().join("status"), b"Name:\t\xff\nNSpid:\t4711\t12\n").unwrap();
        assert_eq!(innermost_number(folder.path()), Some(12));
    }

    #[test]
    fn the_last_number_is_its_own() {
        let numbers = |status: &str| numbers_by_namespace(status).collect::<Vec<_>>();
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\t12\nNSsid:\t1\n"), [4711, 12]);
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\n"), [4711]);
        assert!(numbers("Name:\tNSpid:\t1\nPid:\t4711\n").is_empty());
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(numbers(&own).last(), Some(&std::process::id()));
    }
}
