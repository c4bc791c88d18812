//! A client of the control socket: what `numapilot ctl` speaks through.

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

/// An answer has at most this many bytes: some hundred for each process looked after.
const ANSWER_BYTES: usize = 64 << 20;
/// The daemon answers within five seconds, or says so.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to a daemon.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    rest: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there, or this user may not connect.
    pub fn connect(path: &Path) -> Result<Client, ServiceError> {
        let connected = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        match connected {
            Ok(stream) => Ok(Client { stream, path: path.to_owned(), rest: Vec::new() }),
            Err(error) => {
                let what = match error.kind() {
                    io::ErrorKind::NotFound => {
                        "there is no such socket: no numapilot balances with it; see --socket".to_owned()
                    }
                    io::ErrorKind::ConnectionRefused => "nobody listens: that numapilot has ended".to_owned(),
                    io::ErrorKind::PermissionDenied => {
                        "this user may not; its permissions are the daemon's setting control.mode".to_owned()
                    }
                    _ => error.to_string(),
                };
                Err(ServiceError::Refused(format!("{}: {what}", path.display())))
            }
        }
    }

    /// Asks, and waits for the answer. A refusal is an answer too.
    ///
    /// # Errors
    /// The daemon goes away, is not one, or has another version.
    pub fn ask(&mut self, request: Request) -> Result<Answer, ServiceError> {
        let fail = |what: String| ServiceError::Answer { address: self.path.display().to_string(), what };
        let mut line = serde_json::to_vec(&request).map_err(|error| fail(error.to_string()))?;
        line.push(b'\n');
        let sent = self.stream.write_all(&line);
        // Who has too many clients closes at once, and may have done so before the request was there.
        let line = read_line(&mut self.stream, &mut self.rest, ANSWER_BYTES);
        let line = match (sent, line) {
            (_, Ok(Some(line))) => line,
            (Ok(()), Ok(None)) | (Err(_), _) => {
                return Err(ServiceError::Refused(format!(
                    "{}: closed without an answer: the daemon ends, or has too many clients; try again",
                    self.path.display()
                )));
            }
            (Ok(()), Err(error)) => return Err(fail(error.to_string())),
        };
        let answer: Answer = serde_json::from_slice(&line).map_err(|error| fail(error.to_string()))?;
        if answer.v != VERSION {
            return Err(fail(format!("it speaks version {}, this program {VERSION}", answer.v)));
        }
        Ok(answer)
    }

    /// Asks, and takes a refusal for an error.
    ///
    /// # Errors
    /// As above, and the daemon's refusal.
    pub fn demand(&mut self, request: Request) -> Result<Answer, ServiceError> {
        let answer = self.ask(request)?;
        if answer.ok { Ok(answer) } else { Err(ServiceError::Refused(answer.says)) }
    }
}
