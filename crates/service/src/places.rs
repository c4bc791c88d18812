//! Default paths of a service's files: systemd's folders if it provides them, the system's for root, the user's own for other users.

use std::env;
use std::path::PathBuf;

/// Files and folders of one daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Control socket.
    pub control: PathBuf,
    /// Journal.
    pub journal: PathBuf,
    /// Folder for the record of settings to restore.
    pub state: PathBuf,
}

/// The control socket of the system's daemon.
pub const SYSTEM_CONTROL: &str = "/run/numapilot/control";
/// The configuration that `balance --service` reads.
pub const SYSTEM_CONFIG: &str = "/etc/numapilot.toml";

impl Places {
    /// The default paths for this process's user.
    #[must_use]
    pub fn usual() -> Places {
        // SAFETY: has no preconditions.
        let uid = unsafe { libc::geteuid() };
        Places::of(uid, |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute()))
    }

    /// Folder in which a user's daemons coordinate ([`crate::state::Claims`]): fixed, independent of the environment.
    #[must_use]
    pub fn machine(uid: u32) -> PathBuf {
        if uid == 0 {
            return PathBuf::from("/run/numapilot");
        }
        let session = PathBuf::from(format!("/run/user/{uid}"));
        if session.is_dir() { session.join("numapilot") } else { PathBuf::from(format!("/tmp/numapilot-{uid}")) }
    }

    /// All folders in which a user's daemons may coordinate, that of [`Places::machine`] among them: a daemon that was started before the user's first session
    /// (by cron, or as a unit with `User=`) is in another one than those that are started in a session.
    #[must_use]
    pub fn all_of_machine(uid: u32) -> Vec<PathBuf> {
        match uid {
            0 => vec![Places::machine(0)],
            _ => vec![
                PathBuf::from(format!("/run/user/{uid}/numapilot")),
                PathBuf::from(format!("/tmp/numapilot-{uid}")),
            ],
        }
    }

    fn of(uid: u32, variable: impl Fn(&str) -> Option<PathBuf>) -> Places {
        let own = |name: &str, below_home: &str| {
            let folder = variable(name).or_else(|| variable("HOME").map(|home| home.join(below_home)));
            folder.unwrap_or_else(|| PathBuf::from(format!("/tmp/numapilot-{uid}"))).join("numapilot")
        };
        let folder = |given: &str, of_system: &str, name: &str, below_home: &str| {
            variable(given).unwrap_or_else(|| if uid == 0 { PathBuf::from(of_system) } else { own(name, below_home) })
        };
        let run = folder("RUNTIME_DIRECTORY", "/run/numapilot", "XDG_RUNTIME_DIR", ".local/state");
        let logs = folder("LOGS_DIRECTORY", "/var/log/numapilot", "XDG_STATE_HOME", ".local/state");
        // Settings do not outlive a reboot, so /run suffices.
        let state = folder("STATE_DIRECTORY", "/run/numapilot/state", "XDG_STATE_HOME", ".local/state");
        Places { control: run.join("control"), journal: logs.join("journal.jsonl"), state }
    }
}

#[cfg(test)]
mod tests {
    //! Users with more or less around them.

    use super::*;

    #[test]
    fn the_place_of_a_user_is_among_all_of_them() {
        for uid in [0, 65_533] {
            assert!(Places::all_of_machine(uid).contains(&Places::machine(uid)), "user {uid}");
        }
    }

    #[test]
    fn each_user_has_places() {
        let root = Places::of(0, |_| None);
        assert_eq!(root.control, PathBuf::from(SYSTEM_CONTROL));
        assert_eq!(root.journal, PathBuf::from("/var/log/numapilot/journal.jsonl"));
        let given = Places::of(0, |name| (name == "STATE_DIRECTORY").then(|| PathBuf::from("/s")));
        assert_eq!((given.state, given.control), (PathBuf::from("/s"), PathBuf::from(SYSTEM_CONTROL)));
        let user = Places::of(7, |name| match name {
            "XDG_RUNTIME_DIR" => Some(PathBuf::from("/run/user/7")),
            "HOME" => Some(PathBuf::from("/home/u")),
            _ => None,
        });
        assert_eq!(user.control, PathBuf::from("/run/user/7/numapilot/control"));
        assert_eq!(user.journal, PathBuf::from("/home/u/.local/state/numapilot/journal.jsonl"));
    }
}
