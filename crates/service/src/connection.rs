//! One client's connection over TCP or a unix socket, which cannot block the server: every read and write ends by the connection's deadline, and reads also end
//! when the server stops (answers may still be written then). A client that disconnects causes an error and no signal.

use std::io;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;

/// Interval at which a wait checks whether the server is stopping.
const SLICE: Duration = Duration::from_millis(100);

/// The peer of a unix socket according to the kernel (SO_PEERCRED): the process that connected, as it was then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Process id.
    pub pid: Pid,
}

/// A connection's socket, which the server may shut down while the connection is served.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
    begun: Instant,
    /// Whether the client has sent a request.
    has_request: AtomicBool,
}

impl Socket {
    /// Whether the client has sent a request.
    pub(crate) fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    /// Time since the connection was accepted.
    pub(crate) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Ends the connection: whoever serves it reads its end, and can write no more.
    pub(crate) fn shut_down(&self) {
        // SAFETY: the descriptor is open as long as this lives.
        unsafe { libc::shutdown(self.fd.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// A connection with a deadline.
#[derive(Debug)]
pub struct Connection {
    socket: Arc<Socket>,
    peer: Option<Peer>,
    deadline: Instant,
    stopping: Arc<AtomicBool>,
}

impl Connection {
    /// Takes over a connected stream socket. All operations on it must end within `time`, unless [`Connection::allow`] extends it.
    pub(crate) fn new(fd: OwnedFd, time: Duration, stopping: Arc<AtomicBool>) -> Connection {
        let (peer, begun) = (peer_of(&fd), Instant::now());
        let socket = Arc::new(Socket { fd, begun, has_request: AtomicBool::new(false) });
        Connection { socket, peer, deadline: begun + time, stopping }
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket)
    }

    /// Notes that the client has sent a request: it is no longer the first to make room for others.
    pub fn has_asked(&self) {
        self.socket.has_request.store(true, Ordering::Relaxed);
    }

    /// The peer; `None` over TCP.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        self.peer
    }

    /// Sets the deadline to this much time from now.
    pub fn allow(&mut self, time: Duration) {
        self.deadline = Instant::now() + time;
    }

    /// Waits until the socket is ready for `events`.
    fn wait(&self, events: libc::c_short) -> io::Result<()> {
        loop {
            if events == libc::POLLIN && self.stopping.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping"));
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the client took too long"));
            }
            let mut poll = libc::pollfd { fd: self.socket.fd.as_raw_fd(), events, revents: 0 };
            let slice = i32::try_from(left.min(SLICE).as_millis()).unwrap_or(100).max(1);
            // SAFETY: one valid pollfd.
            match unsafe { libc::poll(&mut poll, 1, slice) } {
                0 => {}
                -1 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Repeats a call while the socket is not ready.
    fn transfer(&self, events: libc::c_short, call: impl Fn() -> libc::ssize_t) -> io::Result<usize> {
        loop {
            self.wait(events)?;
            if let Ok(bytes) = usize::try_from(call()) {
                return Ok(bytes);
            }
            let error = io::Error::last_os_error();
            if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) {
                return Err(error);
            }
        }
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (fd, to, bytes) = (self.socket.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the buffer is writable for as many bytes as are asked for, and outlives the call.
        self.transfer(libc::POLLIN, || unsafe { libc::recv(fd, to, bytes, libc::MSG_DONTWAIT) })
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let (fd, from, bytes) = (self.socket.fd.as_raw_fd(), buffer.as_ptr().cast(), buffer.len());
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the buffer is readable for as many bytes as are sent, and outlives the call.
        self.transfer(libc::POLLOUT, || unsafe { libc::send(fd, from, bytes, flags) })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn peer_of(fd: &OwnedFd) -> Option<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).ok()?;
    // SAFETY: the structure has the length that is passed, and the kernel fills no more.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    // TCP sockets return ids that are no user's.
    (result == 0 && credentials.uid != u32::MAX).then(|| Peer {
        uid: credentials.uid,
        gid: credentials.gid,
        pid: u32::try_from(credentials.pid).map(Pid).unwrap_or_default(),
    })
}

/// Reads up to a line feed, which is not returned. `Ok(None)`: the client has closed the connection, possibly within a line. Bytes after the line stay in
/// `rest` for the next call.
///
/// # Errors
/// A line of more than `limit` bytes (`InvalidData`), the deadline, or an error of the connection.
pub fn read_line(from: &mut impl Read, rest: &mut Vec<u8>, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut looked = 0;
    loop {
        if let Some(at) = rest[looked..].iter().position(|&byte| byte == b'\n') {
            let tail = rest.split_off(looked + at + 1);
            let mut line = std::mem::replace(rest, tail);
            line.pop();
            return if line.len() > limit { Err(too_long(limit)) } else { Ok(Some(line)) };
        }
        if rest.len() > limit {
            return Err(too_long(limit));
        }
        looked = rest.len();
        let mut piece = [0; 4096];
        match from.read(&mut piece)? {
            0 => return Ok(None),
            bytes => rest.extend_from_slice(&piece[..bytes]),
        }
    }
}

fn too_long(limit: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the line has more than {limit} bytes"))
}

#[cfg(test)]
mod tests {
    //! Lines from streams that come in pieces.

    use super::*;

    /// Gives a few bytes at a time.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    #[test]
    fn lines_come_whole_whatever_the_pieces() {
        for piece in [1, 2, 3, 100] {
            let mut from = Dribble(b"one\n\nthree\nfo", piece);
            let mut rest = Vec::new();
            let mut next = || read_line(&mut from, &mut rest, 5).unwrap();
            assert_eq!(next(), Some(b"one".to_vec()));
            assert_eq!(next(), Some(Vec::new()));
            assert_eq!(next(), Some(b"three".to_vec()));
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn a_long_line_is_refused_before_it_is_all_there() {
        let long = vec![b'x'; 1 << 20];
        let mut from = Dribble(&long, 4096);
        let error = read_line(&mut from, &mut Vec::new(), 1000).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(long.len() - from.0.len() <= 8192, "{} bytes were read", long.len() - from.0.len());
    }
}
