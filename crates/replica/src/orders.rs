//! Copies that are ordered while programs run: which process is to show which node's copy of which file. The preload library has a thread that waits for
//! these orders (`c/remap_orders.c`), and every order is whole: what it does not name goes back to its file.

use std::fmt::Write as _;
use std::fs;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

use numapilot_host::Pid;
use numapilot_machine::NodeId;

use crate::mappings::Event;
use crate::mappings::Mappings;
use crate::mappings::MappingsError;
use crate::mappings::Summary;

/// Orders of one process that the library takes at most (`ORDERS_MAX` in `c/remap_orders.c`).
pub const ORDERS_MAX: usize = 64;

/// Name of the counter that the libraries' threads sleep on.
const BELL: &str = "bell";
const ORDERS: &str = "orders";

/// A process is to show a node's copy of its private, read-only mappings of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// Process number in the process's own pid namespace.
    pub pid: Pid,
    /// Node of the copy.
    pub node: NodeId,
    /// Inode number of the file.
    pub inode: u64,
    /// Path of the file, as `/proc/PID/maps` has it.
    pub path: PathBuf,
}

impl Mappings {
    /// Makes the counter that the libraries' threads sleep on.
    pub(crate) fn write_bell(&self) -> Result<(), MappingsError> {
        let path = self.folder().join(BELL);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let made = made.and_then(|mut file| file.write_all(&[0; 4096]));
        made.map_err(|source| MappingsError::Io { what: "writing", path, source })
    }

    /// Replaces all orders by these: every process is notified, and reports in the log ([`Mappings::news`]). Paths with a line's end in them cannot be told and
    /// are left out.
    ///
    /// # Errors
    ///
    /// [`MappingsError::Io`]: then the orders before these hold on.
    pub fn order(&self, orders: &[Order]) -> Result<(), MappingsError> {
        let mut text = Vec::new();
        for order in orders.iter().filter(|order| !order.path.as_os_str().as_bytes().contains(&b'\n')) {
            let mut head = String::new();
            // Writing to a string cannot fail.
            let _ = write!(head, "{} {} {} ", order.pid, order.node, order.inode);
            text.extend_from_slice(head.as_bytes());
            text.extend_from_slice(order.path.as_os_str().as_bytes());
            text.push(b'\n');
        }
        let (path, fresh) = (self.folder().join(ORDERS), self.folder().join(".orders"));
        let failed =
            |what: &'static str, path: &Path, source| MappingsError::Io { what, path: path.to_owned(), source };
        fs::write(&fresh, text).map_err(|source| failed("writing", &fresh, source))?;
        fs::rename(&fresh, &path).map_err(|source| failed("renaming", &fresh, source))?;
        let bell = self.folder().join(BELL);
        ring(&bell).map_err(|source| failed("ringing", &bell, source))
    }

    /// What processes have said in the log since `from` (bytes), which is moved on; whole lines only.
    ///
    /// # Errors
    ///
    /// [`MappingsError::Io`]; no log yet is no news.
    pub fn news(&self, from: &mut u64) -> Result<Vec<Event>, MappingsError> {
        let path = self.folder().join("log");
        let mut bytes = Vec::new();
        let read = fs::File::open(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(*from))?;
            file.read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(MappingsError::Io { what: "reading", path, source }),
        }
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        *from += whole as u64;
        Ok(Summary::parse(&bytes[..whole]).events)
    }
}

/// Raises the counter and wakes all who sleep on it.
fn ring(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = size_of::<AtomicU32>();
    // SAFETY: a fresh mapping of a file of ours that has these bytes, at an address of the kernel's choice.
    let at = unsafe {
        let both = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), bytes, both, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: mapped above, aligned to a page, and unmapped only below; others only read it, atomically.
    let counter = unsafe { &*at.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::Release);
    // SAFETY: a futex operation on a mapped word; then the mapping, which nobody else has, is given back.
    unsafe {
        libc::syscall(libc::SYS_futex, at, libc::FUTEX_WAKE, i32::MAX);
        libc::munmap(at, bytes);
    }
    Ok(())
}
