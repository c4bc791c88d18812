//! A client of the control socket, used by `numapilot ctl`.

use std::io;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use super::Answer;
use super::Request;
use super::VERSION;
use crate::connection::read_line;
use crate::error::ServiceError;

/// Maximum size of an answer in bytes: some hundred bytes per managed process.
const ANSWER_BYTES: usize = 64 << 20;
/// Maximum wait for a status, which the daemon has at hand.
const STATUS_WAIT: Duration = Duration::from_secs(10);
/// Maximum wait for a word about a command. The daemon says every two seconds that it waits for the loop; on a busy machine that may take longer.
const WORD_WAIT: Duration = Duration::from_secs(60);

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    rest: Vec<u8>,
}

impl Client {
    /// Connects to a daemon.
    ///
    /// # Errors
    /// No process listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Client, ServiceError> {
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_write_timeout(Some(STATUS_WAIT))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => Ok(Client { stream, path: path.to_owned(), rest: Vec::new() }),
            Err(error) => {
                let what = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "there is no such socket: no numapilot daemon uses it; name another with --socket".to_owned()
                    }
                    io::ErrorKind::ConnectionRefused => "no process listens on it: that numapilot has ended".to_owned(),
                    io::ErrorKind::PermissionDenied => {
                        "this user may not connect; the setting control.mode of the daemon sets the socket's permissions"
                            .to_owned()
                    }
                    _ => error.to_string(),
                };
                Err(ServiceError::Refused(format!("{}: {what}", path.display())))
            }
        }
    }

    /// Sends a request and waits for the answer, which may be a refusal: however long the loop is at work before.
    ///
    /// # Errors
    /// The connection ends, the server is not a daemon of numapilot, or it has another version.
    pub fn ask(&mut self, request: Request) -> Result<Answer, ServiceError> {
        self.ask_patiently(request, &mut |_| ())
    }

    /// [`Client::ask`] that passes on what the daemon says, every few seconds, while the command waits for the loop.
    fn ask_patiently(&mut self, request: Request, on_wait: &mut dyn FnMut(&str)) -> Result<Answer, ServiceError> {
        let mut answer = self.first_answer(request)?;
        while answer.pending {
            on_wait(&answer.says);
            let line = read_line(&mut self.stream, &mut self.rest, ANSWER_BYTES);
            let Ok(Some(line)) = line else { return Err(self.unknown("the daemon has received the command")) };
            answer = self.parsed(&line)?;
        }
        Ok(answer)
    }

    /// The error of a request that may have been carried out: `known` is what is known of it.
    fn unknown(&self, known: &str) -> ServiceError {
        ServiceError::Refused(format!(
            "{}: {known}, but has not said what came of it; `numapilot ctl status` and the journal show whether it was carried out",
            self.path.display()
        ))
    }

    fn parsed(&self, line: &[u8]) -> Result<Answer, ServiceError> {
        let fail = |what: String| ServiceError::Answer { address: self.path.display().to_string(), what };
        let answer: Answer = serde_json::from_slice(line).map_err(|error| fail(error.to_string()))?;
        if answer.v != VERSION {
            return Err(fail(format!("it uses protocol version {}, this program uses {VERSION}", answer.v)));
        }
        Ok(answer)
    }

    fn first_answer(&mut self, request: Request) -> Result<Answer, ServiceError> {
        let fail = |what: String| ServiceError::Answer { address: self.path.display().to_string(), what };
        let mut line = serde_json::to_vec(&request).map_err(|error| fail(error.to_string()))?;
        line.push(b'\n');
        let wait = if request == Request::Status { STATUS_WAIT } else { WORD_WAIT };
        self.stream.set_read_timeout(Some(wait)).map_err(|error| fail(error.to_string()))?;
        let sent = self.stream.write_all(&line);
        // A daemon with too many clients closes the connection at once, perhaps before the request was sent.
        let line = read_line(&mut self.stream, &mut self.rest, ANSWER_BYTES);
        let line = match (sent, line) {
            (_, Ok(Some(line))) => line,
            (Ok(()), Ok(None)) | (Err(_), _) => {
                return Err(ServiceError::Refused(format!(
                    "{}: the daemon closed the connection without an answer: it is stopping, or has too many clients; try again",
                    self.path.display()
                )));
            }
            (Ok(()), Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(self.unknown(&format!("the daemon was sent the request {} s ago", wait.as_secs())));
            }
            (Ok(()), Err(error)) => return Err(fail(error.to_string())),
        };
        self.parsed(&line)
    }

    /// Sends a request and returns a refusal as an error.
    ///
    /// # Errors
    /// As for [`Client::ask`], and the daemon's refusal.
    pub fn demand(&mut self, request: Request) -> Result<Answer, ServiceError> {
        self.demand_patiently(request, &mut |_| ())
    }

    /// [`Client::demand`] that passes on what the daemon says, every few seconds, while the command waits for the loop.
    ///
    /// # Errors
    /// As for [`Client::demand`].
    pub fn demand_patiently(
        &mut self,
        request: Request,
        on_wait: &mut dyn FnMut(&str),
    ) -> Result<Answer, ServiceError> {
        let answer = self.ask_patiently(request, on_wait)?;
        if answer.ok { Ok(answer) } else { Err(ServiceError::Refused(answer.says)) }
    }
}
