//! Namespaces: the numbers that those of processes give to one process or thread, and whether this process is in one of users.

use std::fs;
use std::path::Path;

use crate::Root;
use crate::TaskStatus;

/// The number by which a process or thread knows itself, in its innermost namespace, by its folder in `/proc`. `None`: it has ended, or the kernel does not
/// tell.
pub fn innermost_number(folder: &Path) -> Option<u32> {
    let text = fs::read(folder.join("status")).ok()?;
    TaskStatus::of(&text).numbers_by_namespace().last()
}

/// Whether this process is in a namespace of users other than the first, which maps all ids to themselves; false where the kernel has none.
#[must_use]
pub fn in_user_namespace(root: &Root) -> bool {
    let map = root.text("proc/self/uid_map");
    map.is_some_and(|map| map.split_ascii_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"])
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
    fn the_first_namespace_of_users_maps_all_ids() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(!in_user_namespace(&root), "a kernel without them");
        fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        for (map, is_other) in
            [("         0          0 4294967295\n", false), ("         0       1000          1\n", true)]
        {
            fs::write(folder.path().join("proc/self/uid_map"), map).unwrap();
            assert_eq!(in_user_namespace(&root), is_other, "{map}");
        }
    }

    #[test]
    fn the_last_number_is_its_own() {
        let numbers = |text: &str| TaskStatus::of(text.as_bytes()).numbers_by_namespace().collect::<Vec<_>>();
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\t12\nNSsid:\t1\n"), [4711, 12]);
        assert_eq!(numbers("Name:\tx\nNSpid:\t4711\n"), [4711]);
        assert!(numbers("Name:\tNSpid:\t1\nPid:\t4711\n").is_empty());
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert_eq!(numbers(&own).last(), Some(&std::process::id()));
    }
}
