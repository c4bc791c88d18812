//! Processes that /proc does not show to this user: its mount options `hidepid` and `gid` (`Documentation/filesystems/proc.rst`, chapter 4).

use crate::Mounts;
use crate::Root;
use crate::TaskStatus;

/// CAP_SYS_PTRACE, whose owners see every process.
const CAP_SYS_PTRACE: u32 = 19;

/// That this user sees some processes only, with the next step, as a note; `None`: all are shown.
#[must_use]
pub fn hidden_processes(root: &Root) -> Option<String> {
    hidden_by(&Mounts::read(root), root)
}

/// The same, where the mounts have been read already.
#[must_use]
pub fn hidden_by(mounts: &Mounts, root: &Root) -> Option<String> {
    let (kind, options) = mounts.at("/proc")?;
    let option = |name: &str| options.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    // Numbers before Linux 5.8, words since.
    let mode = option("hidepid").filter(|mode| kind == "proc" && !matches!(*mode, "0" | "off"))?;
    let mut text = Vec::new();
    let status = TaskStatus::read_own(root, &mut text).unwrap_or_default();
    let capabilities = status.mask("CapEff").unwrap_or(0);
    // Members of the group are exempt, by default those of root's, except where all that may not be traced is hidden.
    let group = option("gid").unwrap_or("0");
    let words = |name: &str| status.field(name).unwrap_or_default().split_ascii_whitespace();
    let ids = words("Groups").chain(words("Gid").nth(3));
    let is_member = !matches!(mode, "4" | "ptraceable") && ids.into_iter().any(|id| id == group);
    let sees_all = capabilities & 1 << CAP_SYS_PTRACE != 0 || is_member;
    (!sees_all).then(|| {
        format!(
            "processes of other users are hidden: /proc is mounted with hidepid={mode}; run as root, with CAP_SYS_PTRACE, or as a member of the group that its \
             option gid= names"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(mounts: &str, status: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        std::fs::write(folder.path().join("proc/self/mountinfo"), mounts).unwrap();
        std::fs::write(folder.path().join("proc/self/status"), status).unwrap();
        hidden_processes(&Root::new(folder.path()))
    }

    #[test]
    fn users_without_rights_are_told_what_they_do_not_see() {
        const USER: &str = "Gid:\t1000\t1000\t1000\t1000\nGroups:\t27 1000 \nCapEff:\t0000000000000000\n";
        const TRACER: &str = "Gid:\t1000\t1000\t1000\t1000\nGroups:\t1000 \nCapEff:\t0000000000080000\n";
        let mount = |options: &str| {
            format!(
                "22 28 0:20 / / rw - ext4 /dev/sda1 rw\n25 28 0:23 / /proc rw,nosuid shared:14 - proc proc {options}\n"
            )
        };
        for mode in ["1", "2", "noaccess", "invisible", "ptraceable"] {
            let note = told(&mount(&format!("rw,hidepid={mode}")), USER).unwrap();
            assert!(note.contains(&format!("hidepid={mode};")), "{note}");
        }
        assert_eq!(told(&mount("rw"), USER), None);
        assert_eq!(told(&mount("rw,hidepid=off"), USER), None);
        assert_eq!(told(&mount("rw,hidepid=2"), TRACER), None);
        assert_eq!(told(&mount("rw,hidepid=invisible,gid=27"), USER), None, "a member of the exempt group");
        assert!(told(&mount("rw,gid=27,hidepid=ptraceable"), USER).is_some());
        assert!(told(&mount("rw,gid=28,hidepid=2"), USER).is_some());
        assert_eq!(told("", USER), None);
    }

    #[test]
    fn the_mount_on_top_decides() {
        let below = "25 28 0:23 / /proc rw - proc proc rw,hidepid=2\n";
        assert_eq!(told(&format!("{below}26 25 0:24 / /proc rw - proc proc rw\n"), ""), None);
        assert!(told(below, "").is_some());
    }
}
