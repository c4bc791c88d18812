//! Samples: the access, its thread, its stack and its home.

use std::collections::HashMap;
use std::path::Path;

use numapilot_machine::{CpuId, NodeId};
use numapilot_perf::abi::{CONTEXT_MAX, CONTEXT_USER};
use numapilot_perf::data_src::{self, Operation};
use numapilot_perf::ibs::OpRecord;
use numapilot_perf::{EventAttr, MemoryAccess, Sample, SampleId, SideBand, Words};
use numapilot_trace::chunk::{ChunkWriter, SessionEnd, SessionStart, WriterOptions};
use numapilot_trace::ids::{ProcessIndex, StackId, ThreadIndex, VirtAddr};
use numapilot_trace::record::{Access, Event, Level};
use numapilot_trace::wire::layout;
use serde_json::json;

use super::Counts;
use super::facts::Facts;
use super::output::Output;
use super::tasks::Tasks;
use crate::error::SourceError;

/// Addresses from here up are the kernel's (the trace format has none of these).
const USER_END: u64 = 1 << 47;
const PAGE_SHIFT: u32 = 12;
/// No code is in the first page.
const LOWEST_CODE: u64 = 4096;

/// Turns samples and side band into records.
pub(super) struct Samples {
    out: Output,
    tasks: Tasks,
    stacks: HashMap<Box<[u64]>, StackId>,
    chain: Vec<u64>,
    /// Task that runs on each CPU, as context switches tell.
    running: HashMap<u32, (u32, u32)>,
    /// Homes given by first touches, by process and page.
    first_touch: HashMap<(ProcessIndex, u64), NodeId>,
    /// CPU on which each thread was seen last.
    last_cpu: HashMap<ThreadIndex, u32>,
    counts: Counts,
    facts: Facts,
}

impl Samples {
    /// Begins the trace.
    pub fn create(dir: &Path, input: &Path, facts: Facts, origin: u64) -> Result<Samples, SourceError> {
        let features = &facts.features;
        let period = facts.attrs.iter().find_map(EventAttr::period);
        let config = json!({
            "source": input.display().to_string(), "events": facts.event_list(), "perf_version": features.perf_version,
            "perf_command": features.command, "sample_period": period.unwrap_or(0),
        });
        let start = SessionStart {
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            engine: "import".to_owned(),
            command: facts.command(),
            start_unix_ns: features.wall_clock.map_or(0, |(wall, clock)| wall.wrapping_sub(clock).wrapping_add(origin)),
            start_order: origin,
            order_khz: 1_000_000,
            clock_khz: 1_000_000,
            clock_origin_cycles: origin,
            simulated: false,
            machine: serde_json::to_value(&facts.machine).unwrap_or_default(),
            config: config.as_object().cloned().unwrap_or_default(),
            host: facts.host(),
            ..SessionStart::default()
        };
        let writer = ChunkWriter::create(dir, &start, WriterOptions::default())?;
        Ok(Samples {
            out: Output::new(writer, origin),
            tasks: Tasks::new(&facts.features),
            stacks: HashMap::new(),
            chain: Vec::new(),
            running: HashMap::new(),
            first_touch: HashMap::new(),
            last_cpu: HashMap::new(),
            counts: Counts::default(),
            facts,
        })
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends the trace.
    pub fn finish(self, end: &SessionEnd) -> Result<(), SourceError> {
        self.out.finish(end)
    }

    /// A record that is no sample.
    pub fn side_band(&mut self, record: &SideBand<'_>, id: &SampleId, time: u64) -> Result<(), SourceError> {
        match record {
            SideBand::Mmap(mapping) => self.tasks.map(&mut self.out, mapping, time),
            SideBand::Comm { pid, tid, name, by_exec } => {
                self.tasks.comm(&mut self.out, *pid, *tid, name, *by_exec, time)
            }
            SideBand::Fork(change) => {
                self.tasks.fork(change);
                Ok(())
            }
            SideBand::Exit(change) => self.tasks.exit(&mut self.out, change),
            SideBand::Lost { count, .. } | SideBand::LostSamples { count } => {
                self.counts.lost = self.counts.lost.saturating_add(*count);
                Ok(())
            }
            SideBand::Throttle { begins: true, .. } => {
                self.counts.throttled += 1;
                Ok(())
            }
            SideBand::Aux { flags, .. } if *flags & !numapilot_perf::abi::aux_flag::OVERWRITE != 0 => {
                self.counts.aux_flagged += 1;
                Ok(())
            }
            SideBand::Switch { out: false, .. } => {
                if let (Some(cpu), Some(task)) = (id.cpu, id.pid_tid) {
                    self.running.insert(cpu, task);
                }
                Ok(())
            }
            SideBand::ItraceStart { pid, tid } => {
                if let Some(cpu) = id.cpu {
                    self.running.insert(cpu, (*pid, *tid));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A sample of an event.
    pub fn sample(
        &mut self,
        event: usize,
        attr: &EventAttr,
        sample: &Sample<'_>,
        time: u64,
    ) -> Result<(), SourceError> {
        let fact = self.facts.events.get(event).copied().unwrap_or_default();
        self.counts.samples += 1;
        self.counts.faults += u64::from(fact.is_fault);
        let registers = sample.raw.filter(|_| fact.is_ibs).and_then(|raw| OpRecord::decode(raw, 0).ok());
        let access = match registers {
            Some(op) => MemoryAccess::of_ibs(attr, sample, &op),
            None => MemoryAccess::of_sample(attr, sample),
        };
        let Some(access) = access else {
            self.counts.without_address += 1;
            return Ok(());
        };
        let by_id = || sample.identifier.or(sample.id).and_then(|id| self.facts.cpu_of_id(id));
        let inferred = if access.cpu.is_none() { by_id() } else { None };
        self.counts.cpu_by_id += u64::from(inferred.is_some());
        self.put(&MemoryAccess { cpu: access.cpu.or(inferred), ..access }, time, fact.is_fault)
    }

    /// An access of an AUX trace.
    pub fn access(&mut self, access: &MemoryAccess<'_>, time: u64) -> Result<(), SourceError> {
        self.counts.samples += 1;
        let running = access.cpu.and_then(|cpu| self.running.get(&cpu)).copied();
        let tid = access.tid.or(running.map(|(_, tid)| tid));
        let pid = running.filter(|(_, of)| Some(*of) == tid).map(|(pid, _)| pid);
        let pid = pid.or_else(|| self.tasks.pid_of(tid?)).or(tid);
        let period = access.period.or(self.facts.spe_period());
        self.put(&MemoryAccess { pid, tid, period, ..*access }, time, false)
    }

    fn put(&mut self, access: &MemoryAccess<'_>, time: u64, is_fault: bool) -> Result<(), SourceError> {
        if access.address >= USER_END {
            self.counts.kernel_addresses += 1;
            return Ok(());
        }
        let (Some(pid), Some(tid)) = (access.pid, access.tid) else {
            self.counts.without_thread += 1;
            return Ok(());
        };
        let thread = self.tasks.thread(&mut self.out, pid, tid, time)?;
        let process = self.tasks.process(pid).unwrap_or_default();
        let node = access.cpu.and_then(|cpu| self.facts.node_of_cpu(cpu));
        if let (Some(cpu), Some(node)) = (access.cpu, node)
            && self.last_cpu.insert(thread, cpu) != Some(cpu)
        {
            self.out.put(thread, time, Event::Cpu { cpu: CpuId(cpu), node })?;
        }
        let level = level(access.level);
        let stack = self.stack(thread, process, access.callchain, time)?;
        let home = self.home(access, node, (process, pid, thread), is_fault, time)?;
        let counts = &mut self.counts;
        counts.accesses += 1;
        counts.cached += u64::from(matches!(level, Level::L1 | Level::L2 | Level::L3 | Level::LineFill));
        counts.with_latency += u64::from(access.latency_cycles.is_some());
        counts.with_home += u64::from(home.is_some());
        counts.with_cpu += u64::from(access.cpu.is_some());
        let event = Access {
            address: VirtAddr(access.address),
            cpu: access.cpu.map(CpuId),
            node,
            home,
            is_write: matches!(access.operation, Operation::Store | Operation::LoadStore),
            is_atomic: access.is_atomic == Some(true),
            is_range: false,
            level,
            latency_cycles: access.latency_cycles,
            ip: VirtAddr(access.ip.unwrap_or(0)),
            stack,
            weight: access.period.map_or(1, |period| u32::try_from(period).unwrap_or(u32::MAX).max(1)),
        };
        self.out.put(thread, time, Event::Access(event))
    }

    /// Home node of the page: by its physical address; on a machine with one node, that one; by what the hardware calls local and remote, where that
    /// names a node; by the page's first touch. In this order, else unknown.
    fn home(
        &mut self,
        access: &MemoryAccess<'_>,
        node: Option<NodeId>,
        (process, pid, thread): (ProcessIndex, u32, ThreadIndex),
        is_fault: bool,
        time: u64,
    ) -> Result<Option<NodeId>, SourceError> {
        let by_address = access.physical_address.and_then(|address| self.facts.node_of_physical(address));
        let told = by_address
            .or_else(|| self.facts.only_node())
            .or_else(|| self.facts.node_by_distance(access.level, access.distance, node));
        if told.is_some() {
            return Ok(told);
        }
        let page = access.address >> PAGE_SHIFT;
        if let (true, Some(node)) = (is_fault && self.tasks.is_anonymous(pid, access.address), node)
            && !self.first_touch.contains_key(&(process, page))
        {
            self.first_touch.insert((process, page), node);
            let address = VirtAddr(page << PAGE_SHIFT);
            let cause = layout::PLACED_FIRST_TOUCH as u8;
            self.out.put(thread, time, Event::Place { address, pages: 1, node, cause })?;
        }
        let home = self.first_touch.get(&(process, page)).copied();
        self.counts.home_by_first_touch += u64::from(home.is_some());
        Ok(home)
    }

    /// The user part of a call chain, as return addresses. Its first entry is the instruction itself (or that of the system call): one byte is added, as
    /// readers take one off.
    fn stack(
        &mut self,
        thread: ThreadIndex,
        process: ProcessIndex,
        callchain: Option<Words<'_>>,
        time: u64,
    ) -> Result<StackId, SourceError> {
        let Some(callchain) = callchain else { return Ok(StackId(0)) };
        self.chain.clear();
        self.chain.push(u64::from(process.0));
        let mut is_user = false;
        for entry in callchain.iter() {
            if entry >= CONTEXT_MAX {
                is_user = entry == CONTEXT_USER;
            } else if is_user && entry < LOWEST_CODE {
                // A frame pointer led astray: what follows is no better.
                break;
            } else if is_user {
                let is_first = self.chain.len() == 1;
                self.chain.push(if is_first { entry.saturating_add(1) } else { entry });
            }
        }
        if self.chain.len() == 1 {
            return Ok(StackId(0));
        }
        if let Some(&stack) = self.stacks.get(self.chain.as_slice()) {
            return Ok(stack);
        }
        let stack = self.out.new_stack(thread, time, &self.chain[1..])?;
        self.stacks.insert(self.chain.as_slice().into(), stack);
        Ok(stack)
    }
}

/// The level in the trace's terms.
fn level(level: data_src::Level) -> Level {
    match level {
        data_src::Level::L1 => Level::L1,
        data_src::Level::LineFill => Level::LineFill,
        data_src::Level::L2 => Level::L2,
        data_src::Level::L3 => Level::L3,
        data_src::Level::PeerCache => Level::PeerCache,
        // A fourth level sits at the memory and caches it for everybody.
        data_src::Level::L4
        | data_src::Level::Ram
        | data_src::Level::PersistentRam
        | data_src::Level::Cxl
        | data_src::Level::Uncached => Level::Memory,
        data_src::Level::Unknown | data_src::Level::Io => Level::Unknown,
    }
}
