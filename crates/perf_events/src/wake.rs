//! Waits until one of many rings has new records: epoll over their events, and a descriptor by which another thread wakes the waiting one.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::error::EventsError;

/// Waits for events' descriptors, or for another thread to wake it.
#[derive(Debug)]
pub struct Wake {
    epoll: OwnedFd,
    bell: OwnedFd,
}

fn owned(fd: libc::c_int) -> Result<OwnedFd, EventsError> {
    if fd < 0 {
        let source = io::Error::last_os_error();
        return Err(EventsError::System {
            what: "cannot make an event descriptor",
            source,
            remedy: "raise `ulimit -n`",
        });
    }
    // SAFETY: `fd` is open and owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Wake {
    /// Waits for these descriptors to become readable.
    ///
    /// # Errors
    /// The system is out of descriptors.
    pub fn new(watched: impl IntoIterator<Item = RawFd>) -> Result<Wake, EventsError> {
        // SAFETY: both calls take integers and return a new descriptor or -1.
        let (epoll, bell) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        let wake = Wake { epoll, bell };
        for fd in watched.into_iter().chain([wake.bell.as_raw_fd()]) {
            wake.watch(fd)?;
        }
        Ok(wake)
    }

    /// Waits for one more descriptor from now on, until it is closed.
    ///
    /// # Errors
    /// The system has no room for it.
    pub fn watch(&self, fd: RawFd) -> Result<(), EventsError> {
        // Edges: an event whose task is gone would be ready for ever.
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
        // SAFETY: two descriptors of ours and an event that the call copies.
        let result = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event) };
        if result != 0 {
            let source = io::Error::last_os_error();
            let remedy = "raise fs.epoll.max_user_watches";
            return Err(EventsError::System { what: "cannot watch an event", source, remedy });
        }
        Ok(())
    }

    /// Sleeps until a ring has new records, another thread calls [`Wake::ring`], or the time is over.
    pub fn sleep(&self, timeout: Duration) {
        // Rounded up, as in `signals`.
        let milliseconds = i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 16];
        // SAFETY: the array has as many elements as the call is told. An interruption is as good as news.
        unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), events.len() as i32, milliseconds) };
    }

    /// Wakes the waiting thread.
    pub fn ring(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of our own to a descriptor of ours.
        unsafe { libc::write(self.bell.as_raw_fd(), std::ptr::from_ref(&one).cast(), 8) };
    }
}
