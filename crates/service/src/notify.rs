//! Notifies systemd of the service's state (sd_notify(3)): one datagram to the socket that the environment names. Without one, nothing happens.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::SocketAddr;
use std::os::unix::net::UnixDatagram;

/// The connection to the service manager.
#[derive(Debug)]
pub struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    /// Connects to the socket in `NOTIFY_SOCKET`, if that is set.
    #[must_use]
    pub fn from_environment() -> Notify {
        Notify(std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name).ok()))
    }

    /// Reports that the service is ready, with a status text.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// Reports a status text.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// Reports that the configuration is being read again; [`Notify::ready`] ends this.
    pub fn reloading(&self) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure outlives the call; this clock exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// Reports that the service is stopping.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports that the service is alive (watchdog).
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.0 {
            // A failure is ignored: the service works without its manager.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
pub(crate) mod tests {
    //! A manager of our own.

    use tempfile::TempDir;

    use super::*;

    /// A service manager.
    pub(crate) struct Manager {
        socket: UnixDatagram,
        folder: TempDir,
    }

    impl Manager {
        pub(crate) fn new() -> Manager {
            let folder = tempfile::tempdir().unwrap();
            let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
            socket.set_nonblocking(true).unwrap();
            Manager { socket, folder }
        }

        /// A connection to it.
        pub(crate) fn connection(&self) -> Notify {
            Notify(Some(connect(self.folder.path().join("notify").as_os_str()).unwrap()))
        }

        /// The next message that it receives; `None`: no more came.
        pub(crate) fn hear(&self) -> Option<String> {
            let mut buffer = [0; 200];
            self.socket.recv(&mut buffer).map(|bytes| String::from_utf8_lossy(&buffer[..bytes]).into_owned()).ok()
        }
    }

    #[test]
    fn the_manager_hears_every_word() {
        let manager = Manager::new();
        let notify = manager.connection();
        let hear = || manager.hear().unwrap();
        notify.ready("running\nnow");
        assert_eq!(hear(), "READY=1\nSTATUS=running now");
        notify.reloading();
        assert!(hear().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notify.stopping();
        assert_eq!(hear(), "STOPPING=1");
        drop(manager);
        notify.alive();
        Notify(None).status("nobody hears");
    }
}
