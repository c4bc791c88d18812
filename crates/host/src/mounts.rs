//! What is mounted where, as this process sees it: `/proc/self/mountinfo` (`Documentation/filesystems/proc.rst`, section 3.5).

use crate::Root;

/// The mounts at one moment. A host of many containers has thousands of them, so whoever asks for several places reads them once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(String);

impl Mounts {
    /// Reads them; none where they cannot be read.
    #[must_use]
    pub fn read(root: &Root) -> Mounts {
        Mounts(root.text("proc/self/mountinfo").unwrap_or_default())
    }

    /// Kind and options of the file system that is seen at a place; `None`: nothing is mounted there.
    #[must_use]
    pub fn at(&self, place: &str) -> Option<(&str, &str)> {
        // The last mount at a place is the one that is seen.
        let seen = self.0.lines().rev().find(|line| line.split_ascii_whitespace().nth(4) == Some(place))?;
        let (_, file_system) = seen.split_once(" - ")?;
        let mut fields = file_system.split_ascii_whitespace();
        Some((fields.next()?, fields.nth(1)?))
    }

    /// Whether what is seen at a place was made up for a container (by lxcfs).
    #[must_use]
    pub fn is_made_up(&self, place: &str) -> bool {
        self.at(place).is_some_and(|(kind, _)| kind == "fuse.lxcfs")
    }

    /// Whether `/proc/stat` was: a container's has as many CPUs as the container may use, with numbers of their own.
    #[must_use]
    pub fn has_made_up_cpu_times(&self) -> bool {
        self.is_made_up("/proc/stat")
    }

    /// Whether the list of CPUs that are online was: a container's has as many as the container may use, the first of the machine where that is a quota.
    #[must_use]
    pub fn has_made_up_cpus(&self) -> bool {
        ["/sys/devices/system/cpu", "/sys/devices/system/cpu/online"].into_iter().any(|place| self.is_made_up(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_mounts_at_a_place_the_last_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert_eq!(Mounts::read(&root).at("/proc"), None, "there are none");
        std::fs::create_dir_all(folder.path().join("proc/self")).unwrap();
        let lines = "22 28 0:20 / / rw - ext4 /dev/sda1 rw\n25 22 0:23 / /proc rw shared:14 - proc proc rw,hidepid=2\n\
                     26 25 0:23 / /proc rw,nosuid - proc proc rw\n31 26 0:28 /proc/stat /proc/stat rw - fuse.lxcfs lxcfs rw,user_id=0\n";
        std::fs::write(folder.path().join("proc/self/mountinfo"), lines).unwrap();
        let mounts = Mounts::read(&root);
        let found = ["/", "/proc", "/proc/stat", "/proc/loadavg"].map(|place| mounts.at(place));
        let made_up = ["/proc", "/proc/stat", "/proc/loadavg"].map(|place| mounts.is_made_up(place));
        assert!(made_up == [false, true, false] && mounts.has_made_up_cpu_times() && !mounts.has_made_up_cpus());
        assert_eq!(found, [Some(("ext4", "rw")), Some(("proc", "rw")), Some(("fuse.lxcfs", "rw,user_id=0")), None]);
    }
}
