//! One `perf_event_open(2)`, and doing without what the running kernel is too old for.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use numapilot_machine::CpuId;
use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::abi::read_format;
use numapilot_perf::abi::sample;

use crate::event::ATTR_BYTES;

/// PERF_FLAG_FD_CLOEXEC.
const CLOEXEC: libc::c_ulong = 8;
// `_IO('$', 0)`, `_IO('$', 1)` and `_IOR('$', 7, u64)` of the perf header.
/// Turns an event on.
pub(crate) const IOC_ENABLE: libc::c_ulong = 0x2400;
/// Turns an event off.
pub(crate) const IOC_DISABLE: libc::c_ulong = 0x2401;
const IOC_ID: libc::c_ulong = 0x8008_2407;
/// `_IO('$', 5)` of the perf header.
const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// The CPU of [`open_event`] that stands for all on which the task runs.
pub const ANY_CPU: CpuId = CpuId(u32::MAX);

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
pub fn open_event(bytes: &[u8; ATTR_BYTES], pid: libc::pid_t, cpu: CpuId, leader: i32) -> io::Result<OwnedFd> {
    let cpu = match cpu {
        ANY_CPU => -1,
        CpuId(cpu) => libc::c_int::try_from(cpu).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
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

/// Orders something of an event.
pub(crate) fn order(fd: RawFd, request: libc::c_ulong) {
    // SAFETY: a request without a pointer, on a descriptor of ours. It fails only for events whose CPU is gone.
    unsafe { libc::ioctl(fd, request, 0) };
}

/// An event's figures of itself: `PERF_FORMAT_TOTAL_TIME_ENABLED | _RUNNING | _ID | _LOST`, as `perf_read_one` in kernel/events/core.c writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    /// The event's id.
    pub id: u64,
    /// Nanoseconds for which it counted, in all tasks that inherited it.
    pub running_ns: u64,
    /// Records that found no room; `None`: the kernel is older than Linux 6.0 and does not say.
    pub lost: Option<u64>,
}

impl Figures {
    /// Out of the words that the kernel wrote; `None`: they are not those that were asked for.
    fn of(words: &[u64]) -> Option<Figures> {
        // The count, and the nanoseconds for which it was enabled, come first.
        match *words {
            [_, _, running_ns, id] => Some(Figures { id, running_ns, lost: None }),
            [_, _, running_ns, id, lost] => Some(Figures { id, running_ns, lost: Some(lost) }),
            _ => None,
        }
    }
}

/// Reads an event's figures; `None`: it has none, because its CPU has gone offline, say.
pub(crate) fn figures(fd: &OwnedFd) -> Option<Figures> {
    let mut words = [0_u64; 5];
    let bytes = size_of_val(&words);
    // SAFETY: at most `bytes` are written to the array.
    let read = unsafe { libc::read(fd.as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
    Figures::of(words.get(..usize::try_from(read).ok()? / size_of::<u64>())?)
}

/// Records of an event that found no room, where the kernel says so.
pub(crate) fn lost_by(fd: &OwnedFd) -> Option<u64> {
    figures(fd)?.lost
}

/// An event's id, which its records bear.
pub(crate) fn event_id(fd: &OwnedFd) -> io::Result<u64> {
    let mut id = 0_u64;
    // SAFETY: the request writes one u64 to the address given.
    match unsafe { libc::ioctl(fd.as_raw_fd(), IOC_ID, &raw mut id) } {
        0 => Ok(id),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a thread has an event already, because it has inherited it: of a PMU with AUX areas it may have only one on each CPU, and the kernel refuses
/// another (`exclusive_event_installable` in `kernel/events/core.c`; SPE's driver has PERF_PMU_CAP_EXCLUSIVE). The same answer for a thread that can have
/// inherited none is about another profiler's.
pub(crate) fn is_there(error: &io::Error, aux_bytes: usize, may_inherit: bool) -> bool {
    may_inherit && aux_bytes > 0 && error.raw_os_error() == Some(libc::EBUSY)
}

/// Whether this user may not observe a process: it is another user's, or a set-user-ID program.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread of a program under SPE that was born while events were opened for the others.
    #[test]
    fn an_inherited_event_with_an_area_is_no_other_profilers() {
        let busy = io::Error::from_raw_os_error(libc::EBUSY);
        assert!(is_there(&busy, 1 << 20, true));
        assert!(!is_there(&busy, 1 << 20, false) && !is_there(&busy, 0, true));
        assert!(!is_there(&io::Error::from_raw_os_error(libc::EACCES), 1 << 20, true));
    }

    /// `perf_read_one` in kernel/events/core.c: count, time enabled, time running, id, and since Linux 6.0 lost records.
    #[test]
    fn figures_are_read_with_and_without_losses() {
        let figures = Figures { id: 7, running_ns: 30, lost: Some(2) };
        assert_eq!(Figures::of(&[1000, 40, 30, 7, 2]), Some(figures));
        assert_eq!(Figures::of(&[1000, 40, 30, 7]), Some(Figures { lost: None, ..figures }));
        assert_eq!([Figures::of(&[]), Figures::of(&[1000, 7, 2])], [None; 2]);
    }
}
