//! The ring that the kernel writes an event's records to: a page of control words and a power of two of data, mapped into this process
//! (`struct perf_event_mmap_page`).
//!
//! The kernel owns `data_head`, we own `data_tail`; both count bytes and never wrap. Records may wrap around the end of the data. The
//! memory is not trusted: an impossible head or record size discards the rest of the data, which is counted, and nothing outside
//! the mapping is read. There must be only one reader per ring.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use numapilot_perf::Header;

/// Offset of `lock` in the control page (`struct perf_event_mmap_page`); those of other fields follow.
const LOCK: usize = 8;
const CAPABILITIES: usize = 40;
const TIME_FACTORS: usize = 48;
const TIME_ZERO: usize = 64;
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;
const DATA_OFFSET: usize = 1040;
const AUX_HEAD: usize = 1056;
const AUX_TAIL: usize = 1064;
const AUX_OFFSET: usize = 1072;
const AUX_SIZE: usize = 1080;
/// More than a record of a piece of the AUX area takes, with every id, and that of the losses before it.
const AUX_RECORD_MAX: u64 = 256;
/// Bit `cap_user_time_zero` of the capabilities.
const CAP_USER_TIME_ZERO: u64 = 1 << 4;

/// Conversion of the time-stamp counter that user code reads to the kernel's event clock: `zero + (ticks * multiplier >> shift)`. Needed for timestamps
/// that the hardware takes from the counter (SPE); records use the clock that their event requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeConversion {
    /// Nanoseconds at tick 0.
    pub zero: u64,
    /// Factor from ticks to nanoseconds, before the shift.
    pub multiplier: u32,
    /// Number of bits by which the product is shifted right.
    pub shift: u16,
}

/// A mapped stretch of memory, unmapped on drop.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: plain memory, reached through atomics and copies only; the mapping lives as long as the value.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: BorrowedFd<'_>, bytes: usize, offset: u64, writable: bool) -> io::Result<Mapping> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a fresh shared mapping at an address of the kernel's choice; no other memory is touched.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset) };
        match NonNull::new(at.cast::<u8>()) {
            Some(base) if at != libc::MAP_FAILED => Ok(Mapping { base, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes, "no word at {offset}");
        // SAFETY: within the mapping and aligned, by the line above; the kernel writes it as one word too.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Appends `count` bytes from `offset`, which the caller keeps within the mapping.
    fn append(&self, offset: usize, count: usize, out: &mut Vec<u8>) {
        assert!(offset <= self.bytes && count <= self.bytes - offset, "{count} bytes at {offset}");
        out.reserve(count);
        // SAFETY: the source lies within the mapping, by the first line; the target is room that was just reserved behind what `out` holds, and is
        // filled before it counts as content.
        unsafe {
            std::ptr::copy_nonoverlapping(self.base.as_ptr().add(offset), out.as_mut_ptr().add(out.len()), count);
            out.set_len(out.len() + count);
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping of this length, to which no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// The ring buffer of an event, mapped: the kernel writes its records there.
#[derive(Debug)]
pub struct Ring {
    control: Mapping,
    data_offset: usize,
    data_bytes: usize,
    tail: u64,
    aux: Option<Mapping>,
    /// The data were so full that the record of a piece of the AUX area may have found no room.
    may_lack_aux: bool,
}

fn page_bytes() -> usize {
    numapilot_kernel::actuator::page_bytes() as usize
}

impl Ring {
    /// Maps the ring of an event, of `bytes` (a power of two of pages; at least one page).
    ///
    /// # Errors
    /// EPERM: the limit on locked memory (kernel.perf_event_mlock_kb, RLIMIT_MEMLOCK) leaves no room for that.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Ring> {
        let page = page_bytes();
        let data_bytes = bytes.max(page).next_power_of_two();
        Ok(Ring::over(Mapping::new(fd, page + data_bytes, 0, true)?, page, data_bytes))
    }

    fn over(control: Mapping, data_offset: usize, data_bytes: usize) -> Ring {
        // Kernels before 4.1 say nothing here, and put the data after the control page.
        let told = usize::try_from(control.word(DATA_OFFSET).load(Ordering::Relaxed)).unwrap_or(0);
        let is_sound = told != 0 && told.checked_add(data_bytes).is_some_and(|end| end <= control.bytes);
        let tail = control.word(DATA_TAIL).load(Ordering::Relaxed);
        let data_offset = if is_sound { told } else { data_offset };
        Ring { control, data_offset, data_bytes, tail, aux: None, may_lack_aux: false }
    }

    /// Bytes of data that it holds.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Bytes that wait to be read.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let head = self.control.word(DATA_HEAD).load(Ordering::Acquire);
        usize::try_from(head.wrapping_sub(self.tail)).unwrap_or(usize::MAX).min(self.data_bytes)
    }

    /// Appends everything that is there to `out` in one copy, and gives the space back to the kernel: what [`Records`] then reads is ours, and does not
    /// change any more. Returns bytes lost because the kernel's head made no sense.
    pub fn take(&mut self, out: &mut Vec<u8>) -> u64 {
        // Acquire: the records were written before the head moved past them.
        let head = self.control.word(DATA_HEAD).load(Ordering::Acquire);
        let available = head.wrapping_sub(self.tail);
        if available <= self.data_bytes as u64 {
            self.append_wrapped(self.tail, available as usize, out);
        }
        self.may_lack_aux |= available.saturating_add(AUX_RECORD_MAX) > self.data_bytes as u64;
        self.tail = head;
        // Release: our reads of the records come before the kernel's next writes there.
        self.control.word(DATA_TAIL).store(head, Ordering::Release);
        if available <= self.data_bytes as u64 { 0 } else { available }
    }

    /// Appends `count` bytes from stream position `at` on, around the end of the data.
    fn append_wrapped(&self, at: u64, count: usize, out: &mut Vec<u8>) {
        // The size is a power of two, so the mask is the remainder.
        let start = (at & (self.data_bytes as u64 - 1)) as usize;
        let first = count.min(self.data_bytes - start);
        self.control.append(self.data_offset + start, first, out);
        self.control.append(self.data_offset, count - first, out);
    }

    /// Maps an AUX area of `bytes` (a power of two of pages) behind the data. The event's PMU must have one.
    ///
    /// # Errors
    /// The PMU has none, or the system has not the memory.
    pub fn map_aux(&mut self, fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
        let offset = (self.data_offset + self.data_bytes) as u64;
        self.control.word(AUX_OFFSET).store(offset, Ordering::Relaxed);
        self.control.word(AUX_SIZE).store(bytes as u64, Ordering::Release);
        self.aux = Some(Mapping::new(fd, bytes, offset, true)?);
        Ok(())
    }

    /// Appends `bytes` of the AUX area from stream position `offset` (both as an AUX record says) to `out`, then gives the space up to there back. What
    /// is more than the area holds, or no longer there, is left out.
    pub fn read_aux(&self, offset: u64, bytes: u64, out: &mut Vec<u8>) {
        let Some(aux) = &self.aux else { return };
        let end = offset.saturating_add(bytes);
        // The record comes first, and the head that includes its piece a moment later (`perf_aux_output_end` in kernel/events/ring_buffer.c): the piece was
        // written before both.
        let head = self.control.word(AUX_HEAD).load(Ordering::Acquire).max(end);
        let size = aux.bytes as u64;
        let start = offset.max(head.saturating_sub(size));
        if start < end {
            let (from, length) = ((start % size) as usize, (end - start) as usize);
            let first = length.min(aux.bytes - from);
            aux.append(from, first, out);
            aux.append(0, length - first, out);
        }
        self.control.word(AUX_TAIL).store(end, Ordering::Release);
    }

    /// Gives back the space of pieces of the AUX area whose records found no room in the full ring, which nothing else does: the kernel finds the area full,
    /// turns the event off, and need not say so again (`perf_aux_output_begin`). To be called once all records that were taken have been dealt with. Returns
    /// the pieces' bytes, which are not read: nobody knows whose they are. `None`: no such record can have been lost.
    pub fn give_back_untold(&mut self) -> Option<u64> {
        let size = self.aux.as_ref()?.bytes as u64;
        // A record comes before the head that includes its piece: if the ring is empty once the head was read, the record was taken, or never came.
        let head = self.control.word(AUX_HEAD).load(Ordering::Acquire);
        if !self.may_lack_aux || self.waiting_bytes() > 0 {
            return None;
        }
        self.may_lack_aux = false;
        let untold = head.wrapping_sub(self.control.word(AUX_TAIL).load(Ordering::Relaxed));
        self.control.word(AUX_TAIL).store(head, Ordering::Release);
        Some(untold.min(size))
    }

    /// How the counter becomes the kernel's event clock, where the kernel says so (`cap_user_time_zero`).
    #[must_use]
    pub fn time_conversion(&self) -> Option<TimeConversion> {
        for _ in 0..1000 {
            let lock = || self.control.word(LOCK).load(Ordering::Acquire) as u32;
            let before = lock();
            let capabilities = self.control.word(CAPABILITIES).load(Ordering::Acquire);
            let factors = self.control.word(TIME_FACTORS).load(Ordering::Acquire);
            let zero = self.control.word(TIME_ZERO).load(Ordering::Acquire);
            if before == lock() && before.is_multiple_of(2) {
                let conversion =
                    TimeConversion { zero, multiplier: (factors >> 32) as u32, shift: (factors >> 16) as u16 };
                return (capabilities & CAP_USER_TIME_ZERO != 0).then_some(conversion);
            }
        }
        None
    }
}

/// The records in bytes that were taken from a ring: header, and body without it. What is no record ends the walk: see [`Records::rest`].
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// The records of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Records<'a> {
        Records { rest: bytes }
    }

    /// Bytes from the first that is no record on; after the last record 0 for a sound ring.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (Header, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<(Header, &'a [u8])> {
        let (head, _) = self.rest.split_first_chunk::<{ Header::BYTES }>()?;
        let header = Header {
            kind: u32::from_ne_bytes([head[0], head[1], head[2], head[3]]),
            misc: u16::from_ne_bytes([head[4], head[5]]),
            size: u16::from_ne_bytes([head[6], head[7]]),
        };
        let size = usize::from(header.size);
        if size < Header::BYTES || !size.is_multiple_of(8) {
            return None;
        }
        let (record, rest) = self.rest.split_at_checked(size)?;
        self.rest = rest;
        Some((header, &record[Header::BYTES..]))
    }
}

#[cfg(test)]
mod tests {
    //! Memory that plays the kernel's part: an ordinary file, mapped, into which records are written as the kernel does.

    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;

    /// A ring of `data_bytes` over a file, and its writer.
    struct Kernel {
        ring: Ring,
        head: u64,
    }

    impl Kernel {
        fn new(data_bytes: usize, start: u64) -> Kernel {
            let page = page_bytes();
            let file: File = tempfile::tempfile().unwrap();
            file.set_len((page + data_bytes) as u64).unwrap();
            let control = Mapping::new(file.as_fd(), page + data_bytes, 0, true).unwrap();
            control.word(DATA_HEAD).store(start, Ordering::Release);
            control.word(DATA_TAIL).store(start, Ordering::Release);
            Kernel { ring: Ring::over(control, page, data_bytes), head: start }
        }

        fn data(&self, at: u64) -> *mut u8 {
            let offset = self.ring.data_offset + (at % self.ring.data_bytes as u64) as usize;
            // SAFETY: within the mapping: the remainder is below the data's size.
            unsafe { self.ring.control.base.as_ptr().add(offset) }
        }

        /// Writes bytes without publishing them.
        fn put(&mut self, bytes: &[u8]) {
            for &byte in bytes {
                // SAFETY: as above; nobody else writes.
                unsafe { self.data(self.head).write(byte) };
                self.head += 1;
            }
        }

        /// Writes a record if there is room, as the kernel does.
        fn record(&mut self, kind: u32, body: &[u8]) -> bool {
            let size = (Header::BYTES + body.len()) as u16;
            let tail = self.ring.control.word(DATA_TAIL).load(Ordering::Acquire);
            if self.head + u64::from(size) - tail > self.ring.data_bytes as u64 {
                return false;
            }
            self.put(&kind.to_ne_bytes());
            self.put(&[0, 0]);
            self.put(&size.to_ne_bytes());
            self.put(body);
            self.publish();
            true
        }

        fn publish(&self) {
            self.ring.control.word(DATA_HEAD).store(self.head, Ordering::Release);
        }

        fn read(&mut self) -> (Vec<(u32, Vec<u8>)>, u64) {
            let mut bytes = Vec::new();
            let lost = self.ring.take(&mut bytes);
            let mut records = Records::new(&bytes);
            let out = records.by_ref().map(|(header, body)| (header.kind, body.to_vec())).collect();
            (out, lost + records.rest() as u64)
        }
    }

    proptest! {
        #[test]
        fn records_come_out_as_they_went_in_around_the_end(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..200),
            looks in prop::collection::vec(any::<bool>(), 200),
            start in any::<u32>(),
        ) {
            let mut kernel = Kernel::new(page_bytes(), u64::from(start) * 8);
            let (mut want, mut got) = (Vec::new(), Vec::new());
            for ((kind, body), look) in (0..).zip(&bodies).zip(looks) {
                let mut body = body.clone();
                body.resize(body.len() * 8, 7);
                if kernel.record(kind, &body) {
                    want.push((kind, body));
                }
                if look {
                    let (records, bad) = kernel.read();
                    prop_assert_eq!(bad, 0);
                    got.extend(records);
                }
            }
            got.extend(kernel.read().0);
            prop_assert_eq!(got, want);
        }

        #[test]
        fn any_bytes_are_walked_within_their_bounds(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
            let mut records = Records::new(&bytes);
            let taken: usize = records.by_ref().map(|(_, body)| body.len() + Header::BYTES).sum();
            prop_assert_eq!(taken + records.rest(), bytes.len());
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_it_is_read() {
        let mut kernel = Kernel::new(page_bytes(), 0);
        let body = [1_u8; 248];
        let count = (0..100).filter(|_| kernel.record(9, &body)).count();
        assert_eq!(count, page_bytes() / 256);
        assert_eq!(kernel.read().0.len(), count);
        assert!(kernel.record(9, &body), "the space was given back");
    }

    #[test]
    fn a_size_that_is_none_costs_what_is_there_and_no_more() {
        for size in [0_u16, 4, 12, 4088] {
            let mut kernel = Kernel::new(page_bytes(), 0);
            assert!(kernel.record(1, &[0; 8]));
            kernel.put(&9_u32.to_ne_bytes());
            kernel.put(&[0, 0]);
            kernel.put(&size.to_ne_bytes());
            kernel.put(&[0; 24]);
            kernel.publish();
            let (records, bad) = kernel.read();
            assert_eq!((records.len(), bad), (1, 32), "size {size}");
            assert!(kernel.record(2, &[0; 8]));
            assert_eq!(kernel.read(), (vec![(2, vec![0; 8])], 0), "it goes on after that");
        }
    }

    #[test]
    fn a_head_out_of_reach_is_not_believed() {
        let mut kernel = Kernel::new(page_bytes(), 0);
        kernel.head = 1 << 40;
        kernel.publish();
        assert_eq!(kernel.read(), (Vec::new(), 1 << 40));
        assert!(kernel.record(3, &[0; 8]));
        assert_eq!(kernel.read().0.len(), 1);
    }

    #[test]
    fn a_piece_of_the_aux_area_is_read_though_the_head_is_behind() {
        let page = page_bytes();
        let file: File = tempfile::tempfile().unwrap();
        file.set_len(3 * page as u64).unwrap();
        let mut ring = Ring::map(file.as_fd(), page).unwrap();
        ring.map_aux(file.as_fd(), page).unwrap();
        let piece = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        file.write_all_at(&piece, 2 * page as u64).unwrap();
        let read = |offset, bytes| {
            let mut out = Vec::new();
            ring.read_aux(offset, bytes, &mut out);
            out
        };
        // The record is there, and the head not yet.
        assert_eq!(read(0, 8), piece);
        assert_eq!(read(0, u64::MAX).len(), page, "no more than the area holds");
        // Half of it overwritten since.
        ring.control.word(AUX_HEAD).store(page as u64 + 4, Ordering::Release);
        assert_eq!(read(0, 8), piece[4..]);
    }

    #[test]
    fn space_is_given_back_though_the_record_of_it_was_lost() {
        let page = page_bytes();
        let file: File = tempfile::tempfile().unwrap();
        file.set_len(3 * page as u64).unwrap();
        let mut ring = Ring::map(file.as_fd(), page).unwrap();
        let put = |ring: &Ring, at: usize, value: u64| ring.control.word(at).store(value, Ordering::Release);
        let mut bytes = Vec::new();
        let full = page as u64 - 64;
        put(&ring, DATA_HEAD, full);
        ring.take(&mut bytes);
        assert_eq!(ring.give_back_untold(), None, "no event has an area");

        ring.map_aux(file.as_fd(), page).unwrap();
        put(&ring, AUX_TAIL, 1000);
        put(&ring, AUX_HEAD, 4000);
        put(&ring, DATA_HEAD, full + 40);
        assert_eq!(ring.give_back_untold(), None, "the record that came since may tell of it");
        ring.take(&mut bytes);
        assert_eq!(ring.give_back_untold(), Some(3000));
        assert_eq!(ring.control.word(AUX_TAIL).load(Ordering::Acquire), 4000);
        put(&ring, AUX_HEAD, 4096);
        put(&ring, DATA_HEAD, full + 80);
        ring.take(&mut bytes);
        assert_eq!(ring.give_back_untold(), None, "there was room for its record");
    }

    #[test]
    fn what_is_no_event_cannot_be_mapped() {
        let file = tempfile::tempfile().unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(Ring::map(reader.as_fd(), 1 << 16).is_err());
        // An ordinary file can, though: it just says nothing.
        file.set_len(1 << 17).unwrap();
        let mut ring = Ring::map(file.as_fd(), 1 << 16).unwrap();
        let mut bytes = Vec::new();
        assert_eq!((ring.take(&mut bytes), bytes.len(), ring.time_conversion()), (0, 0, None));
    }
}
