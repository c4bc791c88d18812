//! The evidence of `numapilot balance` about a process, through its control socket. The daemon's permissions apply, so other users' processes are not visible.

use std::path::Path;

use numapilot_host::Pid;
use numapilot_service::control::Client;
use numapilot_service::control::Request;

use crate::heat::Heat;

/// The balancing loop's status of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balanced {
    /// Its recently used ranges of memory.
    pub heat: Heat,
    /// Bytes moved for it since the loop began; `None`: the loop does not count them by process.
    pub moved_bytes: Option<u64>,
    /// Policy of the loop.
    pub policy: String,
    /// Present state of the loop, as in its status.
    pub state: &'static str,
}

/// Asks the daemon; `None`: no daemon listens, it does not manage the process, or this user may not see it.
#[must_use]
pub fn ask(pid: Pid, socket: &Path) -> Option<Balanced> {
    let answer = Client::connect(socket).ok()?.demand(Request::Status).ok()?;
    let status = answer.status?.pilot;
    let target = status.targets.iter().find(|target| target.target.pid == pid)?;
    let mut heat = Heat::default();
    for stretch in &target.hot {
        let local = stretch.uses * stretch.local_share.clamp(0.0, 1.0);
        heat.add(stretch.address, local, Some(true));
        heat.add(stretch.address, stretch.uses - local, Some(false));
    }
    Some(Balanced { heat, moved_bytes: target.moved_bytes, policy: status.policy.clone(), state: status.state.name() })
}
