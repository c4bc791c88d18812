//! Steering a running pilot over a unix socket: one JSON object per line, a [`Request`] in, an [`Answer`] out.
//!
//! Who may do what is decided by the kernel's word on who is at the other end (SO_PEERCRED): root and the daemon's own user may do everything; anybody
//! else sees and names only processes that are wholly their own ([`authority`]). docs/service.md has the protocol and the security model.

pub mod authority;
mod client;
mod line;
mod serve;

use numapilot_balancer::status::Status;
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

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub enum Request {
    /// What the loop does now; to others than root and the daemon's user, only of their own processes.
    Status,
    /// Do nothing until resumed.
    Pause,
    /// Go on.
    Resume,
    /// Read the configuration again.
    Reload,
    /// Put back what was changed, and end.
    Stop,
    /// Look after a process too.
    Add {
        /// Which.
        pid: u32,
    },
    /// Look after it no longer.
    Remove {
        /// Which.
        pid: u32,
    },
}

/// A request as it is sent: a field too many is an error, lest `pause` with a process's number pause everything.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
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

/// What a client is told.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// [`VERSION`] of the daemon.
    pub v: u32,
    /// Whether it was done.
    pub ok: bool,
    /// What was done, or why not and what to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub says: String,
    /// To [`Request::Status`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Box<Report>>,
}

/// The loop's status, and the service's own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The loop's.
    #[serde(flatten)]
    pub pilot: Status,
    /// The journal's; `None`: there is none, or it is not for this client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalHealth>,
    /// Clients let go because there were too many.
    #[serde(default)]
    pub clients_refused: u64,
    /// Only this client's own processes are shown.
    #[serde(default)]
    pub only_own: bool,
}
