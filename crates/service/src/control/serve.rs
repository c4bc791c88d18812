//! The daemon's end of the control socket.

use std::io;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use numapilot_balancer::event::Target;
use numapilot_balancer::status::Board;
use numapilot_balancer::status::Command;
use numapilot_balancer::status::Steering;

use super::Answer;
use super::Line;
use super::Report;
use super::Request;
use super::VERSION;
use super::authority::Authority;
use crate::address::Address;
use crate::connection::Connection;
use crate::connection::read_line;
use crate::error::ServiceError;
use crate::identity;
use crate::journal::HealthOf;
use crate::server::Limits;
use crate::server::Server;
use crate::server::Visits;

/// A request has at most this many bytes.
const REQUEST_BYTES: usize = 1 << 10;
/// Requests that one connection may bring.
const REQUESTS: usize = 100;
/// For the next request, once one is answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the loop to answer.
const LOOP_ANSWERS: Duration = Duration::from_secs(4);
/// Between two requests of others than root and the daemon's user, who might want to keep it busy.
const PAUSE: Duration = Duration::from_millis(10);
/// Processes that one such user may add.
const TARGETS_PER_USER: usize = 64;

/// Where and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSettings {
    /// The socket.
    pub path: PathBuf,
    /// Its permissions: 0666, since everybody may look after their own processes; 0600 shuts others out.
    pub mode: u32,
}

/// A control socket; dropping it closes it.
#[derive(Debug)]
pub struct Control {
    server: Arc<OnceLock<Server>>,
    path: PathBuf,
}

impl Control {
    /// Listens. Status comes from `board`, commands go into `steering`; `journal` is told of in the status.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn start(
        settings: &ControlSettings,
        board: Board,
        steering: Line,
        journal: Option<HealthOf>,
    ) -> Result<Control, ServiceError> {
        let slot: Arc<OnceLock<Server>> = Arc::default();
        // SAFETY: has no preconditions.
        let own_uid = unsafe { libc::geteuid() };
        let desk = Desk { board, steering, journal, own_uid, server: Arc::downgrade(&slot) };
        let address = Address::Unix(settings.path.clone());
        let server = Server::start(&address, settings.mode, Limits::default(), move |client| desk.serve(client))?;
        let _ = slot.set(server);
        Ok(Control { server: slot, path: settings.path.clone() })
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// How many came.
    #[must_use]
    pub fn visits(&self) -> Visits {
        self.server.get().map(Server::visits).unwrap_or_default()
    }
}

/// What answers.
struct Desk {
    board: Board,
    steering: Line,
    journal: Option<HealthOf>,
    own_uid: u32,
    server: std::sync::Weak<OnceLock<Server>>,
}

impl Desk {
    fn serve(&self, client: &mut Connection) {
        // Without the kernel's word on who it is, nobody is served.
        let Some(peer) = client.peer() else { return };
        let authority = Authority::of(peer, self.own_uid);
        let mut rest = Vec::new();
        for _ in 0..REQUESTS {
            let answer = match read_line(client, &mut rest, REQUEST_BYTES) {
                Ok(Some(line)) => self.answer(authority, &line),
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let _ = send(client, &no(format!("{error}; a request is one short line of JSON")));
                    return;
                }
                Err(_) => return,
            };
            client.allow(PATIENCE);
            if send(client, &answer).is_err() {
                return;
            }
            if !authority.is_master {
                thread::sleep(PAUSE);
            }
        }
    }

    fn answer(&self, authority: Authority, line: &[u8]) -> Answer {
        let request = match serde_json::from_slice::<Request>(line) {
            Ok(request) => request,
            Err(error) => return no(format!("no request: {error}; {}", r#"such as {"command":"status"}"#)),
        };
        if let Err(refusal) = authority.may(request) {
            return no(refusal);
        }
        let command = match request {
            Request::Status => return self.status(authority),
            Request::Pause => Command::Pause,
            Request::Resume => Command::Resume,
            Request::Reload => Command::Reload,
            Request::Stop => Command::Stop,
            Request::Add { pid } => match self.addable(authority, pid) {
                Ok(target) => Command::AddTarget(target),
                Err(refusal) => return no(refusal),
            },
            Request::Remove { pid } => match authority.may_name(pid, identity::process(pid)) {
                Ok(target) => Command::RemoveTarget(target),
                Err(refusal) => return no(refusal),
            },
        };
        self.steer(authority, command)
    }

    fn status(&self, authority: Authority) -> Answer {
        let is_own = |pid| identity::process(pid).is_some_and(|process| process.is_wholly_of(authority.uid));
        let report = Report {
            pilot: authority.view(&self.board.get(), is_own),
            journal: self.journal.as_ref().filter(|_| authority.is_master).map(HealthOf::get),
            clients_refused: self.refused(),
            only_own: !authority.is_master,
        };
        Answer { v: VERSION, ok: true, status: Some(Box::new(report)), ..Answer::default() }
    }

    fn refused(&self) -> u64 {
        self.server.upgrade().and_then(|slot| slot.get().map(|server| server.visits().refused)).unwrap_or(0)
    }

    fn addable(&self, authority: Authority, pid: u32) -> Result<Target, String> {
        let target = authority.may_name(pid, identity::process(pid))?;
        let status = self.board.get();
        let own = status.targets.iter().filter(|other| other.target.uid == authority.uid).count();
        if !authority.is_master && own >= TARGETS_PER_USER {
            return Err(format!("you have {own} processes looked after already; remove one first"));
        }
        Ok(target)
    }

    fn steer(&self, authority: Authority, command: Command) -> Answer {
        let (answer, wait) = channel();
        let steering = Steering { command, by_uid: Some(authority.uid), answer: Some(answer) };
        if let Err(refusal) = self.steering.send(steering) {
            return no(refusal.to_owned());
        }
        match wait.recv_timeout(LOOP_ANSWERS) {
            Ok(Ok(says)) => Answer { v: VERSION, ok: true, says, status: None },
            Ok(Err(refusal)) => no(refusal),
            Err(_) => {
                let seconds = LOOP_ANSWERS.as_secs();
                no(format!(
                    "the loop has the command and has not answered within {seconds} s; see `numapilot ctl status`"
                ))
            }
        }
    }
}

fn no(says: String) -> Answer {
    Answer { v: VERSION, ok: false, says, status: None }
}

fn send(client: &mut Connection, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    client.write_all(&line)
}
