//! The server of the control socket.

use std::io;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use numapilot_balancer::event::Target;
use numapilot_balancer::status::Board;
use numapilot_balancer::status::Command;
use numapilot_balancer::status::Steering;
use numapilot_balancer::status::TARGETS_PER_USER;
use numapilot_balancer::status::has_room_for_target;
use numapilot_host::Pid;
use numapilot_host::Root;

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
use crate::server::ConnectionCounts;
use crate::server::Limits;
use crate::server::Server;

/// Maximum size of a request in bytes.
const REQUEST_BYTES: usize = 1 << 10;
/// Maximum number of requests per connection.
const REQUESTS: usize = 100;
/// Maximum wait for the next request after an answer.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// Time between two words to a client that its command waits for the loop, which may be at work on a step.
const WORD_EVERY: Duration = Duration::from_secs(2);
/// Pause between two requests of users other than root and the daemon's user, which limits the load that they can cause.
const PAUSE: Duration = Duration::from_millis(10);

/// Settings of the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlSettings {
    /// Path of the socket.
    pub path: PathBuf,
    /// Permissions of the socket: 0666, because every user may add processes of their own; 0600 excludes other users.
    pub mode: u32,
}

/// A control socket; dropping it closes it.
#[derive(Debug)]
pub struct Control {
    server: Arc<OnceLock<Server>>,
}

impl Control {
    /// Starts listening. The status comes from `board`, commands go to `steering`, and `journal` is shown in the status.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start(
        settings: &ControlSettings,
        board: Board,
        steering: Line,
        journal: Option<HealthOf>,
    ) -> Result<Control, ServiceError> {
        let slot: Arc<OnceLock<Server>> = Arc::default();
        // SAFETY: has no preconditions.
        let own_uid = unsafe { libc::geteuid() };
        let handler = RequestHandler { board, steering, journal, own_uid, server: Arc::downgrade(&slot) };
        let address = Address::Unix(settings.path.clone());
        let server = Server::start(&address, settings.mode, Limits::default(), move |client| handler.serve(client))?;
        let _ = slot.set(server);
        Ok(Control { server: slot })
    }

    /// Number of connections.
    #[must_use]
    pub fn connection_counts(&self) -> ConnectionCounts {
        self.server.get().map(Server::connection_counts).unwrap_or_default()
    }
}

/// Answers requests.
struct RequestHandler {
    board: Board,
    steering: Line,
    journal: Option<HealthOf>,
    own_uid: u32,
    server: std::sync::Weak<OnceLock<Server>>,
}

impl RequestHandler {
    fn serve(&self, client: &mut Connection) {
        // A client whose user the kernel does not report is not served.
        let Some(peer) = client.peer() else { return };
        let authority = Authority::of(peer, self.own_uid);
        let mut rest = Vec::new();
        for _ in 0..REQUESTS {
            let answer = match read_line(client, &mut rest, REQUEST_BYTES) {
                Ok(Some(line)) => match self.answer(client, authority, &line) {
                    Ok(answer) => answer,
                    Err(_) => return,
                },
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let _ = send(client, &no(format!("{error}; a request is one short line of JSON")));
                    return;
                }
                Err(_) => return,
            };
            client.allow(REQUEST_WAIT);
            if send(client, &answer).is_err() {
                return;
            }
            if !authority.is_master {
                thread::sleep(PAUSE);
            }
        }
    }

    /// The last answer to a request. An error: the client has gone.
    fn answer(&self, client: &mut Connection, authority: Authority, line: &[u8]) -> io::Result<Answer> {
        match self.command(authority, line) {
            Ok(command) => self.steer(client, authority, command),
            Err(answer) => Ok(*answer),
        }
    }

    /// The command to the loop that a request is, or its answer if it is none, or is refused.
    fn command(&self, authority: Authority, line: &[u8]) -> Result<Command, Box<Answer>> {
        let refused = |why: String| Box::new(no(why));
        let request = serde_json::from_slice::<Request>(line).map_err(|error| {
            refused(format!("this is not a request: {error}; {}", r#"such as {"command":"status"}"#))
        })?;
        authority.may(request).map_err(refused)?;
        Ok(match request {
            Request::Status => return Err(Box::new(self.status(authority))),
            Request::Pause => Command::Pause,
            Request::Resume => Command::Resume,
            Request::Reload => Command::Reload,
            Request::Stop => Command::Stop,
            Request::Add { pid } => Command::AddTarget(self.addable(authority, pid).map_err(refused)?),
            Request::Remove { pid } => {
                Command::RemoveTarget(authority.may_name(pid, identity::process(pid)).map_err(refused)?)
            }
        })
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
        self.server.upgrade().and_then(|slot| slot.get().map(|server| server.connection_counts().refused)).unwrap_or(0)
    }

    fn addable(&self, authority: Authority, pid: Pid) -> Result<Target, String> {
        let target = authority.may_name(pid, identity::process(pid))?;
        if let Some(why) = identity::without_memory(&Root::default(), pid) {
            return Err(format!("process {pid} {why}"));
        }
        if !authority.is_master {
            // The loop counts again: others may have been added since its last observation.
            let status = self.board.get();
            has_room_for_target(authority.uid, status.targets.iter().map(|other| other.target.uid), TARGETS_PER_USER)?;
        }
        Ok(target)
    }

    /// Has the loop carry out a command, however long it is at work before, and tells the client so meanwhile. An error: the client has gone.
    fn steer(&self, client: &mut Connection, authority: Authority, command: Command) -> io::Result<Answer> {
        let (answer, wait) = channel();
        let is_stop = command == Command::Stop;
        let steering = Steering { command, by_uid: Some(authority.uid), answer: Some(answer) };
        if let Err(refusal) = self.steering.send(steering) {
            return Ok(no(refusal.to_owned()));
        }
        loop {
            match wait.recv_timeout(WORD_EVERY) {
                Ok(Ok(says)) => return Ok(yes(says)),
                Ok(Err(refusal)) => return Ok(no(refusal)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if is_stop => {
                    return Ok(yes("the balancing loop has ended".to_owned()));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(no("the balancing loop has ended, and has not carried out the command".to_owned()));
                }
            }
            let says = "the balancing loop has received the command, and carries it out after its present step";
            client.allow(REQUEST_WAIT);
            send(client, &Answer { pending: true, ..no(says.to_owned()) })?;
        }
    }
}

fn yes(says: String) -> Answer {
    Answer { v: VERSION, ok: true, says, ..Answer::default() }
}

fn no(says: String) -> Answer {
    Answer { v: VERSION, ok: false, says, ..Answer::default() }
}

fn send(client: &mut Connection, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    client.write_all(&line)
}
