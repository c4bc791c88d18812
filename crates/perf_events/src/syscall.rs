//! One `perf_event_open(2)`, and doing without what the running kernel is too old for.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::read_format;
use numapilot_perf::abi::sample;

use crate::event::ATTR_BYTES;

/// PERF_FLAG_FD_CLOEXEC.
const CLOEXEC: libc::c_ulong = 8;
/// `_IO('$', 5)` of the perf header.
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// For [`open_event`]: every CPU on which the task runs.
pub const ANY_CPU: u32 = u32::MAX;

/// What came to the kernel later than the rest: whether an event asks for it, and how to do without. The newest first.
type Later = (fn(&EventAttr) -> bool, fn(&mut EventAttr));

const LATER: [Later; 4] = [
    // 6.0: with an event's count, how many of its records were lost.
    (|attr| attr.read_format & read_format::LOST != 0, |attr| attr.read_format &= !read_format::LOST),
    // 5.12: build ids in records of mappings. Files are then known by their paths alone.
    (|attr| attr.flag(attr_flag::BUILD_ID), |attr| attr.flags &= !(1 << attr_flag::BUILD_ID)),
    // 5.12: the weight in parts. The whole of it has the access latency where the parts have it.
    (
        |attr| attr.samples(sample::WEIGHT_STRUCT),
        |attr| attr.sample_type = attr.sample_type & !sample::WEIGHT_STRUCT | sample::WEIGHT,
    ),
    // 5.11: the size of the page at a sample's address. Whether a page was there before a fault on it is then not known.
    (|attr| attr.samples(sample::DATA_PAGE_SIZE), |attr| attr.sample_type &= !sample::DATA_PAGE_SIZE),
];

/// Opens an event by `open`, without what this kernel is too old for; `attr` is then what was opened.
pub fn open_or_less(
    attr: &mut EventAttr,
    mut open: impl FnMut(&EventAttr) -> io::Result<OwnedFd>,
) -> io::Result<OwnedFd> {
    let mut opened = open(attr);
    for (is_asked, leave_out) in LATER {
        let is_refused = opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
        if is_refused && is_asked(attr) {
            leave_out(attr);
            opened = open(attr);
        }
    }
    opened
}

/// `perf_event_open(2)`; `pid` 0: this thread, -1: everybody; `cpu`: one, or [`ANY_CPU`]; `leader` -1: none.
///
/// # Errors
/// The kernel's answer.
pub fn open_event(bytes: &[u8; ATTR_BYTES], pid: libc::pid_t, cpu: u32, leader: i32) -> io::Result<OwnedFd> {
    let cpu = match cpu {
        ANY_CPU => -1,
        cpu => libc::c_int::try_from(cpu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
    };
    // The kernel may write its own size into the description.
    let mut bytes = *bytes;
    // SAFETY: the description is ours, as long as its size field says; the call returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, bytes.as_mut_ptr(), pid, cpu, leader, CLOEXEC) };
    match i32::try_from(fd) {
        // SAFETY: `fd` is open and owned by nobody else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends an event's records to another one's ring.
pub(crate) fn redirect(fd: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    // SAFETY: a request without a pointer, on two descriptors of ours.
    match unsafe { libc::ioctl(fd.as_raw_fd(), IOC_SET_OUTPUT, to.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
