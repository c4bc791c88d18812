//! A server: a thread that accepts connections, and one thread per client, with limits on their number and time. So memory, threads and descriptors stay
//! bounded whatever clients do; connections beyond the limits are closed at once and counted. Over TCP, where the kernel names no user, one that has sent no
//! request makes room for the next in place of that.
//!
//! A unix socket appears under its name only once it listens and has its permissions, and is removed with the server. A socket without a listener is replaced;
//! one with a listener, or a file of another kind, is not.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::address::Address;
use crate::connection::Connection;
use crate::connection::Socket;
use crate::error::ServiceError;

/// Limits on clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of simultaneous connections. A quarter of them is reserved for root and the server's own user.
    pub connections: usize,
    /// Maximum number for one user of a unix socket (except root and the server's own user).
    pub connections_per_user: usize,
    /// Maximum duration of a connection, unless its handler extends it.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 32, connections_per_user: 8, time: Duration::from_secs(5) }
    }
}

/// Number of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections closed because there were too many: at once, or to make room for another.
    pub refused: u64,
}

/// Maximum wait for pending answers when the server stops, above all the answer to the client that stopped it.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// Time after which a connection over TCP makes room for another though its client has sent a request: it does not read the answer.
const SLOW: Duration = Duration::from_secs(1);

/// Number of connections by user (`None`: over TCP).
type Present = BTreeMap<Option<u32>, usize>;

#[derive(Debug)]
struct Shared {
    stopping: Arc<AtomicBool>,
    present: Mutex<Present>,
    /// Sockets of the connections without a known user (over TCP), the oldest first.
    anonymous: Mutex<Vec<Arc<Socket>>>,
    /// Signalled when a connection ends.
    left: Condvar,
    accepted: AtomicU64,
    refused: AtomicU64,
    limits: Limits,
    own_uid: u32,
}

/// A running server. Dropping it stops it: new connections and requests are refused, and pending answers have [`LAST_ANSWERS`] to be sent.
#[derive(Debug)]
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
    wake: OwnedFd,
    thread: Option<JoinHandle<()>>,
    /// The socket's file with device and inode, so that only this server's file is removed at the end.
    file: Option<(PathBuf, u64, u64)>,
}

impl Server {
    /// Listens, and calls `serve` for each connection in its own thread. `mode`: permissions of a unix socket.
    ///
    /// # Errors
    /// The address is in use, or may not be used.
    pub fn start(
        address: &Address,
        mode: u32,
        limits: Limits,
        serve: impl Fn(&mut Connection) + Send + Sync + 'static,
    ) -> Result<Server, ServiceError> {
        let (listener, address, file) = listen(address, mode)?;
        let fail = |what: String| ServiceError::Listen { address: address.to_string(), what };
        // SAFETY: takes two integers and returns a new descriptor or -1.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(fail(io::Error::last_os_error().to_string()));
        }
        // SAFETY: `wake` is open and has no other owner.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let waker = wake.try_clone().map_err(|error| fail(error.to_string()))?;
        let shared = Arc::new(Shared {
            stopping: Arc::default(),
            present: Mutex::default(),
            anonymous: Mutex::default(),
            left: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            limits,
            // SAFETY: has no preconditions.
            own_uid: unsafe { libc::geteuid() },
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("numapilot-listen".to_owned())
            .spawn(move || accept_all(&listener, &waker, &theirs, &Arc::new(serve)))
            .map_err(|error| fail(error.to_string()))?;
        Ok(Server { address, shared, wake, thread: Some(thread), file })
    }

    /// The address on which it listens, with the actual port for port 0.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Number of connections.
    #[must_use]
    pub fn connection_counts(&self) -> ConnectionCounts {
        let shared = &self.shared;
        ConnectionCounts {
            accepted: shared.accepted.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let one = 1_u64.to_ne_bytes();
        // SAFETY: eight bytes, as an eventfd takes them.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if let Some((path, device, inode)) = self.file.take()
            && fs::symlink_metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (device, inode))
        {
            let _ = fs::remove_file(path);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.shared.wait_until_alone(LAST_ANSWERS);
    }
}

type Listening = (OwnedFd, Address, Option<(PathBuf, u64, u64)>);

fn listen(address: &Address, mode: u32) -> Result<Listening, ServiceError> {
    let fail = |what: String| ServiceError::Listen { address: address.to_string(), what };
    match address {
        Address::Tcp(at) => {
            let listener = TcpListener::bind(at)
                .map_err(|error| fail(format!("{error}; choose another port, or stop the process that uses it")))?;
            listener.set_nonblocking(true).map_err(|error| fail(error.to_string()))?;
            let bound = listener.local_addr().map_err(|error| fail(error.to_string()))?;
            Ok((listener.into(), Address::Tcp(bound), None))
        }
        Address::Unix(path) => {
            check_place(path).map_err(fail)?;
            let mut temporary = path.clone().into_os_string();
            temporary.push(format!(".{}", std::process::id()));
            let temporary = if temporary.len() < 108 {
                PathBuf::from(temporary)
            } else {
                // The length of a socket's path is limited: without room for another name it is bound in its place, from which a dead server's has to go.
                remove_if_there(path).map_err(|error| fail(error.to_string()))?;
                path.clone()
            };
            let made = bind_and_rename(&temporary, path, mode).map_err(|error| {
                let _ = fs::remove_file(&temporary);
                fail(format!("{error}; the folder must exist and be writable for this user"))
            })?;
            let file = (path.clone(), made.1, made.2);
            Ok((made.0.into(), address.clone(), Some(file)))
        }
    }
}

/// Binds under a temporary name, and renames the socket once it is ready.
fn bind_and_rename(temporary: &Path, path: &Path, mode: u32) -> io::Result<(UnixListener, u64, u64)> {
    let listener = UnixListener::bind(temporary)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(temporary, fs::Permissions::from_mode(mode))?;
    let made = fs::symlink_metadata(temporary)?;
    fs::rename(temporary, path)?;
    Ok((listener, made.dev(), made.ino()))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Checks that a socket may be created at this path: nothing is there, or a socket that a dead server left, which may be replaced.
fn check_place(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(found) if !found.file_type().is_socket() => {
            Err("the path names a file that is not a socket; remove it, or name another path".to_owned())
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err("another process listens there; stop it, or name another path".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(format!("a socket is there already ({error}); remove it, or name another path")),
        },
    }
}

fn accept_all<F: Fn(&mut Connection) + Send + Sync + 'static>(
    listener: &OwnedFd,
    wake: &OwnedFd,
    shared: &Arc<Shared>,
    serve: &Arc<F>,
) {
    while !shared.stopping.load(Ordering::Relaxed) {
        let poll = |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polls = [poll(listener), poll(wake)];
        // SAFETY: two valid pollfds.
        unsafe { libc::poll(polls.as_mut_ptr(), 2, -1) };
        // SAFETY: accepts from an open listening socket; the peer's address is not asked for.
        let fd = unsafe {
            libc::accept4(
                listener.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            )
        };
        if fd < 0 {
            if !matches!(
                io::Error::last_os_error().raw_os_error(),
                Some(libc::EAGAIN | libc::EINTR | libc::ECONNABORTED)
            ) {
                // Out of descriptors or memory, which may be temporary.
                thread::sleep(Duration::from_millis(100));
            }
            continue;
        }
        // SAFETY: `fd` is open and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        admit(Connection::new(fd, shared.limits.time, Arc::clone(&shared.stopping)), shared, serve);
    }
}

/// Serves a client in its own thread, or closes the connection.
fn admit<F: Fn(&mut Connection) + Send + Sync + 'static>(
    mut connection: Connection,
    shared: &Arc<Shared>,
    serve: &Arc<F>,
) {
    let user = connection.peer().map(|peer| peer.uid);
    let is_admitted = shared.enter(user) || user.is_none() && shared.end_one() && shared.enter(None);
    if !is_admitted {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let socket = connection.socket();
    if user.is_none() {
        shared.anonymous().push(Arc::clone(&socket));
    }
    let (serve, theirs, own) = (Arc::clone(serve), Arc::clone(shared), Arc::clone(&socket));
    let started = thread::Builder::new().name("numapilot-client".to_owned()).spawn(move || {
        let _leave = CountGuard(&theirs, user, &own);
        serve(&mut connection);
    });
    match started {
        Ok(_) => shared.accepted.fetch_add(1, Ordering::Relaxed),
        Err(_) => {
            shared.ended(user, &socket);
            shared.refused.fetch_add(1, Ordering::Relaxed)
        }
    };
}

/// Removes the connection from the count on drop, even if the handler panics.
struct CountGuard<'a>(&'a Shared, Option<u32>, &'a Arc<Socket>);

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.ended(self.1, self.2);
    }
}

impl Shared {
    fn enter(&self, user: Option<u32>) -> bool {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = present.values().sum();
        let own = present.get(&user).copied().unwrap_or(0);
        let limits = &self.limits;
        let admitted = match user {
            Some(uid) if uid == 0 || uid == self.own_uid => all < limits.connections,
            Some(_) => all < limits.connections - limits.connections / 4 && own < limits.connections_per_user,
            None => all < limits.connections,
        };
        if admitted {
            *present.entry(user).or_default() += 1;
        }
        admitted
    }

    fn anonymous(&self) -> MutexGuard<'_, Vec<Arc<Socket>>> {
        self.anonymous.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a connection without a known user, to make room: the oldest without a request, else the oldest whose client does not read its answer. False:
    /// there is none.
    fn end_one(&self) -> bool {
        let mut anonymous = self.anonymous();
        let silent = anonymous.iter().position(|socket| !socket.has_request());
        let Some(at) = silent.or_else(|| anonymous.iter().position(|socket| socket.age() >= SLOW)) else {
            return false;
        };
        let socket = anonymous.remove(at);
        drop(anonymous);
        socket.shut_down();
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.leave(None);
        true
    }

    /// Takes a connection that has ended out of the count, unless [`Shared::end_one`] did.
    fn ended(&self, user: Option<u32>, socket: &Arc<Socket>) {
        if user.is_none() {
            let mut anonymous = self.anonymous();
            let Some(at) = anonymous.iter().position(|other| Arc::ptr_eq(other, socket)) else { return };
            anonymous.remove(at);
        }
        self.leave(user);
    }

    fn leave(&self, user: Option<u32>) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = present.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                present.remove(&user);
            }
        }
        self.left.notify_all();
    }

    fn wait_until_alone(&self, time: Duration) {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.left.wait_timeout_while(present, time, |present| !present.is_empty());
    }
}

#[cfg(test)]
mod tests {
    //! Sockets that appear and go, and clients of whom there are too many.

    use std::io::Read;
    use std::io::Write;
    use std::time::Instant;

    use super::*;

    fn echo(connection: &mut Connection) {
        let mut byte = [0];
        while let Ok(1) = connection.read(&mut byte) {
            if connection.write_all(&byte).is_err() {
                return;
            }
        }
    }

    fn limits(connections: usize, ms: u64) -> Limits {
        Limits { connections, connections_per_user: connections, time: Duration::from_millis(ms) }
    }

    #[test]
    fn a_socket_has_its_permissions_and_goes_with_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let address = Address::Unix(path.clone());
        let server = Server::start(&address, 0o640, Limits::default(), echo).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"x").unwrap();
        let mut answer = [0];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"x");
        let error = Server::start(&address, 0o640, Limits::default(), echo).unwrap_err().to_string();
        assert!(error.contains("another process listens"), "{error}");
        drop(server);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_answer_that_is_due_when_the_server_stops_arrives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (asked, was_asked) = std::sync::mpsc::channel();
        let answered = Arc::new(AtomicBool::new(false));
        let is_answered = Arc::clone(&answered);
        let slow = move |connection: &mut Connection| {
            connection.read_exact(&mut [0]).unwrap();
            asked.send(()).unwrap();
            thread::sleep(Duration::from_millis(200));
            connection.write_all(b"stopped").unwrap();
            is_answered.store(true, Ordering::Release);
            assert!(connection.read(&mut [0]).is_err(), "no further request");
        };
        let server = Server::start(&Address::Unix(path.clone()), 0o600, Limits::default(), slow).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"x").unwrap();
        was_asked.recv().unwrap();
        let begun = Instant::now();
        drop(server);
        assert!(answered.load(Ordering::Acquire) || begun.elapsed() >= LAST_ANSWERS, "it waited for its client");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"stopped");
    }

    #[test]
    fn what_a_dead_server_left_is_replaced_and_a_file_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Server::start(&Address::Unix(path.clone()), 0o600, Limits::default(), echo).unwrap());
        fs::write(&path, "precious").unwrap();
        let error =
            Server::start(&Address::Unix(path.clone()), 0o600, Limits::default(), echo).unwrap_err().to_string();
        assert!(error.contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }

    /// A name beside it would be too long, and the first start after a kill failed.
    #[test]
    fn what_a_dead_server_left_under_the_longest_of_names_is_replaced() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        let path = folder.path().join("s".repeat(106 - folder.path().as_os_str().len()));
        assert_eq!(path.as_os_str().len(), 107);
        drop(UnixListener::bind(&path).unwrap());
        let server = Server::start(&Address::Unix(path.clone()), 0o600, Limits::default(), echo).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn a_port_that_is_taken_is_said() {
        let first = Server::start(&"127.0.0.1:0".parse().unwrap(), 0, Limits::default(), echo).unwrap();
        let error = Server::start(first.address(), 0, Limits::default(), echo).unwrap_err().to_string();
        assert!(error.contains(&first.address().to_string()) && error.contains("another port"), "{error}");
    }

    #[test]
    fn too_many_are_let_go_and_the_silent_do_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let server = Server::start(&Address::Unix(path.clone()), 0o600, limits(2, 3000), echo).unwrap();
        let silent: Vec<UnixStream> = (0..2).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let start = Instant::now();
        while server.connection_counts().accepted < 2 {
            thread::sleep(Duration::from_millis(1));
            assert!(start.elapsed() < Duration::from_secs(60));
        }
        // Within the time of the silent, however busy the machine is.
        let mut third = UnixStream::connect(&path).unwrap();
        assert_eq!(third.read(&mut [0]).unwrap(), 0, "closed at once");
        assert_eq!(server.connection_counts(), ConnectionCounts { accepted: 2, refused: 1 });
        for mut stream in silent {
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "closed at the deadline");
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        let mut later = UnixStream::connect(&path).unwrap();
        later.write_all(b"y").unwrap();
        let mut answer = [0];
        later.read_exact(&mut answer).unwrap();
    }

    #[test]
    fn one_user_cannot_take_every_place() {
        let shared = Shared {
            stopping: Arc::default(),
            present: Mutex::default(),
            anonymous: Mutex::default(),
            left: Condvar::new(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            limits: Limits { connections: 8, connections_per_user: 4, time: Duration::from_secs(1) },
            own_uid: 500,
        };
        let enter = |user: u32, times: usize| (0..times).filter(|_| shared.enter(Some(user))).count();
        assert_eq!(enter(1000, 10), 4);
        assert_eq!(enter(1001, 10), 2, "a quarter stays free");
        assert_eq!(enter(500, 10), 2, "for the server's user");
        shared.leave(Some(1000));
        assert_eq!(enter(1000, 10), 0);
        assert_eq!(enter(0, 10), 1);
    }
}
