//! Rings of an emulated PMU: where a machine has no PMU that samples accesses, a program may emulate one, for tests. It lays out files as the
//! kernel lays out an event's memory (`struct perf_event_mmap_page`, then records) and names their folder in [`VARIABLE`]. The recorder
//! reads them instead of its own events, by the same code. All results are marked as emulated.
//!
//! The folder holds `event` (the event's description as `perf_event_open` takes it, and the id that its samples carry, eight bytes) and `ring.N` for
//! CPU N: a page of control words and a power of two of pages of data. Stamps are of CLOCK_MONOTONIC_RAW.

use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::PageNumber;
use numapilot_perf::Bytes;
use numapilot_perf::Endian;
use numapilot_perf::EventAttr;

use crate::error::EventsError;
use crate::event::ATTR_BYTES;
use crate::event::EventKind;
use crate::event::EventRequest;
use crate::open::CpuRing;
use crate::open::EventSet;
use crate::ring::Ring;

/// Environment variable that names the folder of an emulated PMU.
pub const VARIABLE: &str = "NUMAPILOT_EMULATED_PMU";
/// Name of the event, for people.
const NAME: &str = "emulated_memory";
/// Pages of the emulated machine.
const EMULATED_PAGE_BYTES: u64 = PageNumber::BYTES;

/// The folder, where an emulated PMU is to be read.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The note in a recording of an emulated PMU.
pub fn note() -> String {
    format!(
        "emulated: the samples are those of an emulated PMU (`{NAME}`), which {VARIABLE} names, not of hardware; latencies are modelled, and samples are \
         timestamped when they are handed over"
    )
}

/// Adds the emulated event to opened ones; the request that stands for it.
///
/// # Errors
/// The folder does not hold what it should.
pub fn add(set: &mut EventSet, folder: &Path) -> Result<EventRequest, EventsError> {
    let fail = |path: &Path, source| EventsError::File {
        path: path.to_owned(),
        source,
        remedy: "NUMAPILOT_EMULATED_PMU names the folder of an emulated PMU: unset it to use the machine's own",
    };
    let path = folder.join("event");
    let bytes = fs::read(&path).map_err(|source| fail(&path, source))?;
    let (attr, id) = event(&bytes).map_err(|why| fail(&path, io::Error::other(why)))?;
    let index = set.session.add(attr.clone(), [id]);
    debug_assert_eq!(EventSet::request_of(index), Some(0), "the side band is the only other event");
    for cpu in 0.. {
        let path = folder.join(format!("ring.{cpu}"));
        let file = match File::options().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && cpu > 0 => break,
            other => other.map_err(|source| fail(&path, source))?,
        };
        let (ring, fd) = ring(&file).map_err(|source| fail(&path, source))?;
        set.rings.push(CpuRing { cpu, ring, fd });
    }
    Ok(EventRequest { name: NAME.to_owned(), kind: EventKind::Access, attr, ..EventRequest::default() })
}

/// Decodes the event's description and its id.
fn event(bytes: &[u8]) -> Result<(EventAttr, u64), String> {
    let (attr, id) = bytes.split_at_checked(ATTR_BYTES).ok_or("it is too short")?;
    let id = id.try_into().map_err(|_| format!("{} bytes, not {}", bytes.len(), ATTR_BYTES + 8))?;
    let attr = EventAttr::decode(&mut Bytes::new(attr, 0, Endian::default())).map_err(|error| error.to_string())?;
    Ok((attr, u64::from_ne_bytes(id)))
}

/// The ring, and a descriptor that never becomes readable: the ring is polled.
fn ring(file: &File) -> io::Result<(Ring, OwnedFd)> {
    let data = file.metadata()?.len().saturating_sub(EMULATED_PAGE_BYTES);
    if data < EMULATED_PAGE_BYTES || !data.is_power_of_two() {
        return Err(io::Error::other("it is not one page of control words followed by a power of two of data pages"));
    }
    let ring = Ring::map(file.as_fd(), usize::try_from(data).map_err(io::Error::other)?)?;
    // SAFETY: eventfd takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is open and owned by nobody else.
    Ok((ring, unsafe { OwnedFd::from_raw_fd(fd) }))
}
