//! `PERF_RECORD_SAMPLE`: one sample with every field that its event asked for, in the kernel's order (`perf_output_sample` in
//! `kernel/events/core.c`).

use numapilot_host::Pid;
use numapilot_host::Tid;
use numapilot_machine::CpuId;

use crate::abi::sample;
use crate::attr::EventAttr;
use crate::bytes::{Bytes, Words};
use crate::error::DecodeError;
use crate::parts::{BranchStack, ReadValues, Registers, UserStack, Weight};
use crate::side_band::task;

/// One sample. `None`: the event did not ask for that field. Nothing is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample<'a> {
    /// Taken where the machine ran a guest: addresses are the guest's. (The record's header says so.)
    pub of_guest: bool,
    /// Id of the event, at a fixed place.
    pub identifier: Option<u64>,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Process id and thread id.
    pub pid_tid: Option<(Pid, Tid)>,
    /// Nanoseconds on the recording's clock.
    pub time: Option<u64>,
    /// Address accessed; 0 where the hardware did not say.
    pub addr: Option<u64>,
    /// Id of the event.
    pub id: Option<u64>,
    /// Id of the event itself, not of what it was inherited from.
    pub stream_id: Option<u64>,
    /// CPU on which the sample was taken.
    pub cpu: Option<CpuId>,
    /// Events since the last sample.
    pub period: Option<u64>,
    /// Counter values.
    pub read: Option<ReadValues<'a>>,
    /// Addresses, innermost first, among entries from [`crate::abi::CONTEXT_MAX`] up that say whose the next ones are.
    pub callchain: Option<Words<'a>>,
    /// What the PMU or the tracepoint says.
    pub raw: Option<&'a [u8]>,
    /// Taken branches before the sample.
    pub branch_stack: Option<BranchStack<'a>>,
    /// Registers of the user-mode code.
    pub user_regs: Option<Registers<'a>>,
    /// Copy of the user stack's top.
    pub user_stack: Option<UserStack<'a>>,
    /// Weight: the hardware's cost of the sampled operation.
    pub weight: Option<Weight>,
    /// What the access reached, as [`perf_mem_data_src`](crate::abi).
    pub data_src: Option<u64>,
    /// `PERF_TXN_*` bits.
    pub transaction: Option<u64>,
    /// Registers of the interrupted code.
    pub intr_regs: Option<Registers<'a>>,
    /// Physical address of `addr`; 0 unknown.
    pub phys_addr: Option<u64>,
    /// Id of the cgroup.
    pub cgroup: Option<u64>,
    /// Size of the page at `addr`; 0 unknown.
    pub data_page_size: Option<u64>,
    /// Size of the page at `ip`; 0 unknown.
    pub code_page_size: Option<u64>,
    /// A piece of the AUX buffer.
    pub aux: Option<&'a [u8]>,
    /// The event asked for fields that are not known here, and these are their bytes (with those of `aux`, which comes after them).
    pub unknown_fields: Option<&'a [u8]>,
}

impl<'a> Sample<'a> {
    /// Reads the body of a sample (after the record's header) into this one, which is [`Sample::default`] still.
    ///
    /// # Errors
    /// If a field is cut. Bytes after the last field are passed over.
    pub(crate) fn fill(&mut self, attr: &EventAttr, bytes: &mut Bytes<'a>) -> Result<(), DecodeError> {
        self.fixed(attr, bytes)?;
        if attr.samples(sample::READ) {
            self.read = Some(ReadValues::decode(attr, bytes)?);
        }
        if attr.samples(sample::CALLCHAIN) {
            let count = bytes.u64("the length of a call chain")?;
            self.callchain = Some(bytes.words(count, "a call chain")?);
        }
        const LATER: u64 = !(sample::READ | sample::CALLCHAIN | FIXED);
        if attr.sample_type & LATER != 0 {
            self.variable(attr, bytes)?;
            self.last(attr, bytes)?;
        }
        Ok(())
    }

    /// Decodes the fixed-size fields before the counter values.
    #[inline]
    fn fixed(&mut self, attr: &EventAttr, bytes: &mut Bytes<'a>) -> Result<(), DecodeError> {
        let asked = attr.sample_type;
        let mut word = |bit: u64, what| if asked & bit != 0 { bytes.u64(what).map(Some) } else { Ok(None) };
        self.identifier = word(sample::IDENTIFIER, "the identifier")?;
        self.ip = word(sample::IP, "the instruction pointer")?;
        if asked & sample::TID != 0 {
            self.pid_tid = Some(task(bytes)?);
        }
        let mut word = |bit: u64, what| if asked & bit != 0 { bytes.u64(what).map(Some) } else { Ok(None) };
        self.time = word(sample::TIME, "the time")?;
        self.addr = word(sample::ADDR, "the address")?;
        self.id = word(sample::ID, "the id")?;
        self.stream_id = word(sample::STREAM_ID, "the stream id")?;
        if asked & sample::CPU != 0 {
            self.cpu = Some(CpuId(bytes.u32("the CPU")?));
            bytes.u32("the CPU")?;
        }
        if asked & sample::PERIOD != 0 {
            self.period = Some(bytes.u64("the period")?);
        }
        Ok(())
    }

    /// What has a length of its own.
    fn variable(&mut self, attr: &EventAttr, bytes: &mut Bytes<'a>) -> Result<(), DecodeError> {
        if attr.samples(sample::RAW) {
            let size = bytes.u32("the size of the raw data")?;
            self.raw = Some(bytes.take(u64::from(size), "the raw data")?);
        }
        if attr.samples(sample::BRANCH_STACK) {
            self.branch_stack = Some(BranchStack::decode(attr, bytes)?);
        }
        if attr.samples(sample::REGS_USER) {
            self.user_regs = Some(Registers::decode(attr.sample_regs_user, bytes)?);
        }
        if attr.samples(sample::STACK_USER) {
            self.user_stack = Some(UserStack::decode(bytes)?);
        }
        Ok(())
    }

    /// Decodes the fields after the user stack.
    fn last(&mut self, attr: &EventAttr, bytes: &mut Bytes<'a>) -> Result<(), DecodeError> {
        if attr.samples(sample::WEIGHT) {
            self.weight = Some(Weight::Full(bytes.u64("the weight")?));
        } else if attr.samples(sample::WEIGHT_STRUCT) {
            self.weight = Some(Weight::parts(bytes.u64("the weight")?));
        }
        let asked = attr.sample_type;
        let mut word = |bit: u64, what| if asked & bit != 0 { bytes.u64(what).map(Some) } else { Ok(None) };
        self.data_src = word(sample::DATA_SRC, "the data source")?;
        self.transaction = word(sample::TRANSACTION, "the transaction")?;
        if asked & sample::REGS_INTR != 0 {
            self.intr_regs = Some(Registers::decode(attr.sample_regs_intr, bytes)?);
        }
        let mut word = |bit: u64, what| if asked & bit != 0 { bytes.u64(what).map(Some) } else { Ok(None) };
        self.phys_addr = word(sample::PHYS_ADDR, "the physical address")?;
        self.cgroup = word(sample::CGROUP, "the cgroup")?;
        self.data_page_size = word(sample::DATA_PAGE_SIZE, "the data page's size")?;
        self.code_page_size = word(sample::CODE_PAGE_SIZE, "the code page's size")?;
        if asked & !sample::KNOWN != 0 {
            self.unknown_fields = Some(bytes.rest());
        } else if asked & sample::AUX != 0 {
            let size = bytes.u64("the size of the AUX data")?;
            self.aux = Some(bytes.take(size, "the AUX data")?);
        }
        Ok(())
    }
}

/// Fields before the counts.
const FIXED: u64 = sample::IDENTIFIER
    | sample::IP
    | sample::TID
    | sample::TIME
    | sample::ADDR
    | sample::ID
    | sample::STREAM_ID
    | sample::CPU
    | sample::PERIOD;
