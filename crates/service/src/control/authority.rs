//! Permissions of clients of the control socket. Pure.
//!
//! * Root and the daemon's own user may do everything.
//! * Other users may see the loop's state and their own processes, and add or remove these. A process is their own if all four of its user ids (real,
//!   effective, saved, file system) are theirs and the kernel lets them inspect it (it is dumpable: they own `/proc/PID`). A request about another user's
//!   process gets the same answer as one about no process, so that it reveals nothing.

use numapilot_balancer::event::Target;
use numapilot_balancer::status::Status;
use numapilot_host::Pid;

use super::Request;
use crate::connection::Peer;

/// Facts about a process that a client names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The process.
    pub target: Target,
    /// Real, effective, saved and file-system user id.
    pub uids: [u32; 4],
    /// Owner of `/proc/PID`: root if the process is not dumpable.
    pub owner: u32,
}

impl ProcessFacts {
    /// Whether the process belongs to a user entirely.
    #[must_use]
    pub fn is_wholly_of(&self, uid: u32) -> bool {
        self.owner == uid && self.uids.iter().all(|&own| own == uid)
    }
}

/// A client and its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// User id of the client.
    pub uid: u32,
    /// Whether the client is root or the daemon's own user.
    pub is_master: bool,
}

impl Authority {
    /// Permissions of a peer, for a daemon that runs as `own_uid`.
    #[must_use]
    pub fn of(peer: Peer, own_uid: u32) -> Authority {
        Authority { uid: peer.uid, is_master: peer.uid == 0 || peer.uid == own_uid }
    }

    /// Whether the client may make a request that names no process.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn may(&self, request: Request) -> Result<(), String> {
        let is_open = matches!(request, Request::Status | Request::Add { .. } | Request::Remove { .. });
        if is_open || self.is_master {
            return Ok(());
        }
        Err("only root and the daemon's own user may do this; you may see, add and remove processes of your own"
            .to_owned())
    }

    /// Whether the client may name a process; `process` is `None` if there is no process with that id.
    ///
    /// # Errors
    /// The same message for other users' processes as for no process.
    pub fn may_name(&self, pid: Pid, process: Option<ProcessFacts>) -> Result<Target, String> {
        match process {
            Some(process) if self.is_master || process.is_wholly_of(self.uid) => Ok(process.target),
            _ if self.is_master => Err(format!("there is no process {pid}")),
            _ => Err(format!("you have no process {pid}")),
        }
    }

    /// The part of a status that this client may see. `is_own`: whether a process belongs to the client entirely.
    #[must_use]
    pub fn view(&self, status: &Status, is_own: impl Fn(Pid) -> bool) -> Status {
        let mut status = status.clone();
        if !self.is_master {
            status.targets.retain(|target| target.target.uid == self.uid);
            // Addresses in a process that runs with another user's rights help to attack it, and the kernel would not reveal them either.
            let closed = status.targets.iter_mut().filter(|target| !is_own(target.target.pid));
            closed.for_each(|target| target.hot.clear());
            // Free text may contain names of processes.
            status.policy_says.clear();
            status.because.clear();
        }
        status
    }
}

#[cfg(test)]
mod tests {
    //! Every combination of user, process and request.

    use numapilot_balancer::status::HotStretch;
    use numapilot_balancer::status::TargetStatus;
    use numapilot_host::VirtAddr;

    use super::*;

    fn peer(uid: u32) -> Peer {
        Peer { uid, gid: uid, pid: Pid(1) }
    }

    fn process(uids: [u32; 4], owner: u32) -> Option<ProcessFacts> {
        let target = Target { pid: Pid(7), start_ticks: 5, uid: uids[0], name: "n".to_owned() };
        Some(ProcessFacts { target, uids, owner })
    }

    const ALL: [Request; 7] = [
        Request::Status,
        Request::Pause,
        Request::Resume,
        Request::Reload,
        Request::Stop,
        Request::Add { pid: Pid(7) },
        Request::Remove { pid: Pid(7) },
    ];

    #[test]
    fn masters_may_everything_and_others_little() {
        for (uid, own, expected) in [(0, 0, 7), (0, 500, 7), (500, 500, 7), (1000, 500, 3), (500, 0, 3)] {
            let authority = Authority::of(peer(uid), own);
            assert_eq!(
                ALL.iter().filter(|r| authority.may(**r).is_ok()).count(),
                expected,
                "{uid} of a daemon of {own}"
            );
        }
    }

    #[test]
    fn only_processes_wholly_ones_own_can_be_named() {
        let user = Authority::of(peer(1000), 500);
        assert!(user.may_name(Pid(7), process([1000; 4], 1000)).is_ok());
        let none = user.may_name(Pid(7), None).unwrap_err();
        for (uids, owner) in [
            ([1001; 4], 1001),
            ([0; 4], 0),
            // A set-user-id program that this user started, and one that gave up its rights but could take them back.
            ([1000, 0, 0, 0], 0),
            ([1000, 1000, 0, 1000], 0),
            ([1000, 1000, 0, 1000], 1000),
            // Not dumpable: it holds secrets.
            ([1000; 4], 0),
        ] {
            assert_eq!(
                user.may_name(Pid(7), process(uids, owner)).unwrap_err(),
                none,
                "{uids:?} {owner}: as if there were none"
            );
        }
        let root = Authority::of(peer(0), 0);
        assert!(root.may_name(Pid(7), process([1001; 4], 0)).is_ok());
        assert!(root.may_name(Pid(7), None).is_err());
    }

    #[test]
    fn addresses_are_told_of_processes_that_are_wholly_ones_own() {
        let of = |pid| TargetStatus {
            target: Target { uid: 1000, pid, ..Target::default() },
            hot: vec![HotStretch { address: VirtAddr(0x7f00_0000_0000), uses: 1.0, local_share: 1.0 }],
            ..TargetStatus::default()
        };
        let status = Status { targets: vec![of(Pid(7)), of(Pid(8))], ..Status::default() };
        let seen = Authority::of(peer(1000), 0).view(&status, |pid| pid == Pid(8));
        assert_eq!(seen.targets.iter().map(|target| target.hot.len()).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn a_view_holds_only_ones_own_processes() {
        let of = |uid| TargetStatus {
            target: Target { uid, name: format!("of-{uid}"), ..Target::default() },
            ..TargetStatus::default()
        };
        let status = Status {
            targets: vec![of(1000), of(1001), of(0)],
            policy_says: "moved pages of 4711".to_owned(),
            because: "4711 ended".to_owned(),
            ..Status::default()
        };
        let seen = Authority::of(peer(1000), 0).view(&status, |_| true);
        assert_eq!(seen.targets, [of(1000)]);
        let text = serde_json::to_string(&seen).unwrap();
        assert!(!text.contains("of-1001") && !text.contains("of-0") && !text.contains("4711"), "{text}");
        assert_eq!(Authority::of(peer(0), 0).view(&status, |_| false), status);
    }
}
