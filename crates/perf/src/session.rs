//! Finds the event that a record belongs to, which determines how to decode it.

use foldhash::{HashMap, HashMapExt};

use crate::abi::{event_type, kind, sample, software};
use crate::attr::EventAttr;
use crate::bytes::{Bytes, Endian};
use crate::error::{DecodeError, Fault};
use crate::sample::Sample;
use crate::side_band::{SampleId, SideBand};

/// A record's first eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Record type: [`crate::abi::kind`].
    pub kind: u32,
    /// Bits of `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// Bytes of the record, these included.
    pub size: u16,
}

impl Header {
    /// Size of a header in bytes.
    pub const BYTES: usize = 8;

    /// Reads a header.
    ///
    /// # Errors
    /// If it is cut, or claims a record smaller than itself.
    #[inline]
    pub fn decode(bytes: &mut Bytes<'_>) -> Result<Header, DecodeError> {
        let kind = bytes.u32("a record's header")?;
        let misc = bytes.u16("a record's header")?;
        let size = bytes.u16("a record's header")?;
        if usize::from(size) < Header::BYTES {
            return Err(bytes.bad("a record's size", u64::from(size)));
        }
        Ok(Header { kind, misc, size })
    }

    /// The kind of code that ran: [`crate::abi::misc::USER`], [`crate::abi::misc::KERNEL`], ...
    #[must_use]
    pub fn cpu_mode(&self) -> u16 {
        self.misc & crate::abi::misc::CPUMODE_MASK
    }

    /// A guest of this machine ran (`perf_arch_misc_flags`): the process is the one that runs the virtual machine, and addresses are the guest's.
    #[must_use]
    pub fn is_of_guest(&self) -> bool {
        matches!(self.cpu_mode(), crate::abi::misc::GUEST_KERNEL | crate::abi::misc::GUEST_USER)
    }
}

/// A decoded record.
// A sample is large, and most records are samples.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Record<'a> {
    /// A sample, with the number of its event in [`Session::events`].
    Sample(usize, Sample<'a>),
    /// Anything else, with its trailer.
    SideBand(SideBand<'a>, SampleId),
}

/// The events of a recording: what is needed to read its records.
#[derive(Clone, Debug, Default)]
pub struct Session {
    endian: Endian,
    events: Vec<EventAttr>,
    by_id: HashMap<u64, u32>,
    /// Offset of the id in a sample's body, where all events agree.
    id_in_sample: Option<usize>,
    /// Offset of the id from the end of another record, where all events agree.
    id_from_end: Option<usize>,
    /// All events ask for the same, so that the event does not matter for the layout.
    is_uniform: bool,
    /// Events whose samples may bear the id of another event, one of these or another program's ([`shares_data`]).
    sharing: Vec<u32>,
}

/// Whether the kernel may give an event's samples the id, time and call chain of another event: of all software events that it counts at one place (page
/// faults, context switches and their like) since Linux 6.3. Their samples are made of one `perf_sample_data`, whose fields the first event fills in for all
/// (`do_perf_sw_event` and `perf_prepare_sample` in `kernel/events/core.c`); that event may be another program's.
fn shares_data(attr: &EventAttr) -> bool {
    attr.kind == event_type::SOFTWARE && attr.config > software::TASK_CLOCK && attr.config < software::DUMMY
}

impl Session {
    /// A session without events yet.
    #[must_use]
    pub fn new(endian: Endian) -> Session {
        Session { endian, by_id: HashMap::new(), is_uniform: true, ..Session::default() }
    }

    /// Adds an event with its ids; its number.
    pub fn add(&mut self, attr: EventAttr, ids: impl IntoIterator<Item = u64>) -> usize {
        let index = self.events.len();
        for id in ids {
            self.by_id.insert(id, index as u32);
        }
        self.is_uniform &= self.events.first().is_none_or(|first| {
            first.sample_type == attr.sample_type
                && first.read_format == attr.read_format
                && first.branch_sample_type == attr.branch_sample_type
                && first.sample_regs_user == attr.sample_regs_user
                && first.sample_regs_intr == attr.sample_regs_intr
                && first.sample_id_all() == attr.sample_id_all()
        });
        let (in_sample, from_end) = (attr.id_offset_in_sample(), attr.id_offset_from_end());
        if index == 0 {
            (self.id_in_sample, self.id_from_end) = (in_sample, from_end);
        } else {
            self.id_in_sample = self.id_in_sample.filter(|_| self.id_in_sample == in_sample);
            self.id_from_end = self.id_from_end.filter(|_| self.id_from_end == from_end);
        }
        if shares_data(&attr) {
            self.sharing.push(index as u32);
        }
        self.events.push(attr);
        index
    }

    /// Adds an id of an event.
    pub fn add_id(&mut self, id: u64, event: usize) {
        if event < self.events.len() {
            self.by_id.insert(id, event as u32);
        }
    }

    /// Removes an id, of which no more records are to come.
    pub fn remove_id(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// Descriptions of the events, in the order in which they were added.
    #[must_use]
    pub fn events(&self) -> &[EventAttr] {
        &self.events
    }

    /// Index of the event with this id.
    #[must_use]
    pub fn event_of(&self, id: u64) -> Option<usize> {
        self.by_id.get(&id).map(|&index| index as usize)
    }

    /// Byte order of the records.
    #[must_use]
    pub fn endian(&self) -> Endian {
        self.endian
    }

    fn word(&self, body: &[u8], at: usize) -> Option<u64> {
        Bytes::new(body.get(at..)?, 0, self.endian).u64("").ok()
    }

    /// The event of a sample with this body, which begins at `offset` of the file.
    #[inline]
    fn event_of_sample(&self, body: &[u8], offset: u64) -> Result<usize, DecodeError> {
        let fail = |fault| DecodeError { offset, fault };
        match self.events.len() {
            0 => return Err(fail(Fault::NoEvent)),
            1 => return Ok(0),
            _ => {}
        }
        let Some(at) = self.id_in_sample else {
            return if self.is_uniform { Ok(0) } else { Err(fail(Fault::Ambiguous)) };
        };
        let id = self
            .word(body, at)
            .ok_or_else(|| fail(Fault::Cut { what: "the id", needed: at as u64 + 8, left: body.len() as u64 }))?;
        match self.event_of(id) {
            Some(event) => Ok(event),
            // The kernel writes 0 for events that nobody asked the id of.
            None if id == 0 => Ok(0),
            None => match self.sharing[..] {
                [only] => Ok(only as usize),
                _ if self.is_uniform => Ok(0),
                _ => Err(fail(Fault::UnknownId(id))),
            },
        }
    }

    /// Whether a sample bears the id of none of these events: the kernel has filled it in for another program's event on the same page fault
    /// (or its like), and its time is by that event's clock, whichever that is.
    #[must_use]
    pub fn is_filled_for_another(&self, header: Header, body: &[u8]) -> bool {
        let at = self.id_in_sample.filter(|_| header.kind == kind::SAMPLE && !self.sharing.is_empty());
        let id = at.and_then(|at| self.word(body, at));
        id.is_some_and(|id| id != 0 && self.event_of(id).is_none())
    }

    /// The event of another record. Records that the perf tool made up itself may carry no known id: their trailer is that of the first event.
    fn event_of_other(&self, body: &[u8]) -> Option<&EventAttr> {
        let id = self.id_from_end.and_then(|from_end| self.word(body, body.len().checked_sub(from_end)?));
        let event = id.and_then(|id| self.event_of(id)).unwrap_or(0);
        self.events.get(event)
    }

    /// Decodes a record: its header, and its body, which begins at `offset` of the file and may have more bytes than the record.
    ///
    /// # Errors
    /// If the record is cut or contradicts itself, or its event is unknown.
    pub fn decode<'a>(&self, header: Header, body: &'a [u8], offset: u64) -> Result<Record<'a>, DecodeError> {
        if header.kind == kind::SAMPLE {
            let mut sample = Sample::default();
            let event = self.decode_sample(header, body, offset, &mut sample)?;
            return Ok(Record::Sample(event, sample));
        }
        let (record, id) = self.decode_side_band(header, body, offset)?;
        Ok(Record::SideBand(record, id))
    }

    /// Decodes a record that is no sample, as [`Session::decode`] does, and what its trailer says of where it comes from.
    ///
    /// # Errors
    /// If the record is cut or contradicts itself.
    pub fn decode_side_band<'a>(
        &self,
        header: Header,
        body: &'a [u8],
        offset: u64,
    ) -> Result<(SideBand<'a>, SampleId), DecodeError> {
        let body = self.body(header, body, offset)?;
        // The perf tool's own records have no trailer.
        let attr = self.event_of_other(body).filter(|_| header.kind < kind::HEADER_ATTR);
        let trailer = attr.map_or(0, EventAttr::trailer_bytes).min(body.len());
        let split = body.len() - trailer;
        let (own, trailer) = body.split_at(split);
        let id = match attr {
            Some(attr) if !trailer.is_empty() => {
                SampleId::decode(attr, &mut Bytes::new(trailer, offset + split as u64, self.endian))?
            }
            _ => SampleId::default(),
        };
        let mut bytes = Bytes::new(own, offset, self.endian);
        Ok((SideBand::decode((header.kind, header.misc), attr, &mut bytes)?, id))
    }

    /// Decodes the record of a sample, as [`Session::decode`] does, into `sample`, which is [`Sample::default`] still: it is large, and to move it takes long.
    /// Returns the number of its event.
    ///
    /// # Errors
    /// If the record is cut or contradicts itself, or its event is unknown.
    pub fn decode_sample<'a>(
        &self,
        header: Header,
        body: &'a [u8],
        offset: u64,
        sample: &mut Sample<'a>,
    ) -> Result<usize, DecodeError> {
        let body = self.body(header, body, offset)?;
        let event = self.event_of_sample(body, offset)?;
        sample.fill(&self.events[event], &mut Bytes::new(body, offset, self.endian))?;
        sample.of_guest = header.is_of_guest();
        Ok(event)
    }

    /// The record's own bytes after its header.
    fn body<'a>(&self, header: Header, bytes: &'a [u8], offset: u64) -> Result<&'a [u8], DecodeError> {
        let length = u64::from(header.size).saturating_sub(Header::BYTES as u64);
        Bytes::new(bytes, offset, self.endian).take(length, "a record")
    }

    /// The time of a record without decoding the rest; `None` if it has none (the perf tool's records, events without times).
    #[must_use]
    pub fn peek_time(&self, header: Header, body: &[u8]) -> Option<u64> {
        let body = body.get(..usize::from(header.size).saturating_sub(Header::BYTES))?;
        if header.kind == kind::SAMPLE {
            let attr = self.events.get(self.event_of_sample(body, 0).ok()?)?;
            let before = sample::IDENTIFIER | sample::IP | sample::TID;
            let at = 8 * (attr.sample_type & before).count_ones() as usize;
            return attr.samples(sample::TIME).then(|| self.word(body, at))?;
        }
        if header.kind >= kind::HEADER_ATTR {
            return None;
        }
        let attr = self.event_of_other(body)?;
        let after = sample::TIME | sample::ID | sample::STREAM_ID | sample::CPU | sample::IDENTIFIER;
        let from_end = 8 * (attr.sample_type & after).count_ones() as usize;
        let has_time = attr.sample_id_all() && attr.samples(sample::TIME);
        // Records that the tool made up before the recording have a trailer of zeroes: they come first.
        has_time.then(|| self.word(body, body.len().checked_sub(from_end)?))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::misc;
    use crate::access::MemoryAccess;

    fn event(kind: u32, config: u64, sample_type: u64) -> EventAttr {
        EventAttr { kind, config, sample_type, ..EventAttr::default() }
    }

    /// As a recording of page faults has them: the side band with id 5, page faults with id 6.
    fn faults() -> Session {
        let mut session = Session::new(Endian::default());
        session.add(event(event_type::SOFTWARE, software::DUMMY, sample::IDENTIFIER), [5]);
        session.add(event(event_type::SOFTWARE, software::PAGE_FAULTS, sample::IDENTIFIER | sample::ADDR), [6]);
        session
    }

    fn words(words: &[u64]) -> (Header, Vec<u8>) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        (Header { kind: kind::SAMPLE, misc: 0, size: (Header::BYTES + body.len()) as u16 }, body)
    }

    /// Another program samples the page faults of the same process, and the kernel writes its event's id.
    #[test]
    fn a_page_fault_with_another_programs_id_is_a_page_fault() {
        let mut session = faults();
        let address = |session: &Session, id| {
            let (header, body) = words(&[id, 0x1000]);
            match session.decode(header, &body, 0) {
                Ok(Record::Sample(1, sample)) => sample.addr,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([6, 77].map(|id| address(&session, id)), [Some(0x1000); 2]);
        let is_anothers = |session: &Session, id| {
            let (header, body) = words(&[id, 0x1000]);
            session.is_filled_for_another(header, &body)
        };
        assert_eq!([5, 6, 77, 0].map(|id| is_anothers(&session, id)), [false, false, true, false]);
        // Samples of the processor are filled in each for itself.
        session.add(event(event_type::RAW, 0x1cd, sample::IDENTIFIER | sample::ADDR), [7]);
        assert_eq!(address(&session, 77), Some(0x1000));
        // Which of two it is of, nothing says.
        session.add(event(event_type::SOFTWARE, software::PAGE_FAULTS_MIN, sample::IDENTIFIER), [8]);
        let (header, body) = words(&[77, 0x1000]);
        let error = session.decode(header, &body, 0).unwrap_err();
        assert_eq!(error.fault, Fault::UnknownId(77));
    }

    #[test]
    fn a_sample_that_is_decoded_in_place_is_the_same() {
        let session = faults();
        // Whole, of the other event, and cut off twice.
        for words in [&[6, 0x1000][..], &[5, 0x1000], &[6], &[]] {
            for misc in [misc::USER, misc::GUEST_USER] {
                let (header, body) = self::words(words);
                let header = Header { misc, ..header };
                let mut sample = Sample::default();
                let event = session.decode_sample(header, &body, 0, &mut sample);
                assert_eq!(session.decode(header, &body, 0), event.map(|event| Record::Sample(event, sample)));
            }
        }
    }

    /// IBS goes on where a host runs its guest, and the sample has the guest's addresses.
    #[test]
    fn a_guests_addresses_are_no_accesses_of_the_process_that_runs_it() {
        let session = faults();
        let address = |misc| {
            let (header, body) = words(&[6, 0x1000]);
            match session.decode(Header { misc, ..header }, &body, 0) {
                Ok(Record::Sample(1, sample)) => {
                    MemoryAccess::of_sample(&session.events()[1], &sample).map(|access| access.address)
                }
                other => panic!("{other:?}"),
            }
        };
        let modes = [misc::KERNEL, misc::USER, misc::USER | misc::EXACT_IP, misc::HYPERVISOR];
        assert_eq!(modes.map(address), [Some(0x1000); 4]);
        let guests = [misc::GUEST_KERNEL, misc::GUEST_USER, misc::GUEST_USER | misc::EXACT_IP];
        assert_eq!(guests.map(address), [None; 3]);
    }
}
