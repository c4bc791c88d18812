//! What `numapilot balance` has seen of a process, through its control socket: by the daemon's rules, so of others' processes nothing.

use std::path::Path;

use numapilot_service::control::Client;
use numapilot_service::control::Request;

use crate::heat::Heat;

/// What the loop says of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Balanced {
    /// Where it was seen to use its memory.
    pub heat: Heat,
    /// Bytes moved for it since the loop began.
    pub moved_bytes: u64,
    /// Policy, and what the loop does now.
    pub policy: String,
    /// See above.
    pub state: &'static str,
}

/// Asks; `None` where nobody listens, nobody looks after the process, or this user may not know.
#[must_use]
pub fn ask(pid: u32, socket: &Path) -> Option<Balanced> {
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
