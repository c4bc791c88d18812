//! Control of a running balancer over a unix socket: one JSON object per line, a [`Request`] in, an [`Answer`] out.
//!
//! Permissions depend on the peer's user as the kernel reports it (SO_PEERCRED): root and the daemon's own user may do everything; other users see and name
//! only processes of their own ([`authority`]). docs/service.md describes the protocol and the security model.

pub mod authority;
mod client;
mod line;
mod serve;

use numapilot_balancer::status::Status;
use numapilot_host::Pid;
use serde::Deserialize;
use serde::Serialize;

use crate::journal::JournalHealth;

pub use client::Client;
pub use line::Line;
pub use line::line;
pub use serve::Control;
pub use serve::ControlSettings;

/// Version of the protocol.
pub const VERSION: u32 = 1;

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub enum Request {
    /// The present status of the loop; users other than root and the daemon's user see only their own processes.
    Status,
    /// Do nothing until resumed.
    Pause,
    /// Take actions again, after `Pause`.
    Resume,
    /// Read the configuration again.
    Reload,
    /// Restore all settings, and end.
    Stop,
    /// Manage another process.
    Add {
        /// Process id.
        pid: Pid,
    },
    /// Stop managing a process.
    Remove {
        /// Process id.
        pid: Pid,
    },
}

/// A request as it is sent. An unknown or superfluous field is an error, so that `pause` with a process id does not pause everything.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<Pid>,
}

impl TryFrom<Wire> for Request {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Request, String> {
        match (wire.command.as_str(), wire.pid) {
            ("status", None) => Ok(Request::Status),
            ("pause", None) => Ok(Request::Pause),
            ("resume", None) => Ok(Request::Resume),
            ("reload", None) => Ok(Request::Reload),
            ("stop", None) => Ok(Request::Stop),
            ("add", Some(pid)) => Ok(Request::Add { pid }),
            ("remove", Some(pid)) => Ok(Request::Remove { pid }),
            ("add" | "remove", None) => Err(format!("command {} needs a pid", wire.command)),
            ("status" | "pause" | "resume" | "reload" | "stop", Some(_)) => {
                Err(format!("command {} takes no pid", wire.command))
            }
            _ => Err("the commands are status, pause, resume, reload, stop, add and remove".to_owned()),
        }
    }
}

impl From<Request> for Wire {
    fn from(request: Request) -> Wire {
        let (command, pid) = match request {
            Request::Status => ("status", None),
            Request::Pause => ("pause", None),
            Request::Resume => ("resume", None),
            Request::Reload => ("reload", None),
            Request::Stop => ("stop", None),
            Request::Add { pid } => ("add", Some(pid)),
            Request::Remove { pid } => ("remove", Some(pid)),
        };
        Wire { command: command.to_owned(), pid }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Protocol version of the daemon ([`VERSION`]).
    pub v: u32,
    /// Whether the request was carried out.
    pub ok: bool,
    /// Whether the loop has received the command and is yet to carry it out: another answer follows, until one that is not pending.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pending: bool,
    /// What was done, or the reason for the refusal and the remedy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// The answer to [`Request::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<Report>>,
}

/// The loop's status, and the service's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The loop's status.
    #[serde(flatten)]
    pub pilot: Status,
    /// State of the journal; `None`: there is no journal, or this client may not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalHealth>,
    /// Number of clients refused because there were too many.
    #[serde(default)]
    pub clients_refused: u64,
    /// Whether only this client's own processes are shown.
    #[serde(default)]
    pub only_own: bool,
}
