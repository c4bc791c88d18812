//! Options that say which running processes are meant: shared by every command that watches, records or manages them.

use std::path::PathBuf;

use clap::Args;

/// Which running processes are meant, beside those named by their ids.
#[derive(Clone, Debug, Default, Args)]
pub struct GroupArgs {
    /// Only the named processes: without their child processes
    #[arg(long)]
    pub no_children: bool,
    /// All processes of this systemd unit: postgresql, nginx.service, user.slice; if it has no processes, those of its instances. Or of the container with
    /// this number, as `docker ps` and `podman ps` show it
    #[arg(long, value_name = "UNIT", value_delimiter = ',')]
    pub unit: Vec<String>,
    /// All processes of this cgroup and of those within: its folder in /sys/fs/cgroup, or its path below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
}

impl GroupArgs {
    /// Whether a unit or a cgroup is named.
    pub fn is_named(&self) -> bool {
        !self.unit.is_empty() || !self.cgroup.is_empty()
    }
}
