//! Code addresses: each is interned once per binary, so that symbols are looked up once however often it runs.

use std::sync::Arc;

use numapilot_host::VirtAddr;
use numapilot_symbols::CodeSpan;
use numapilot_trace::ids::{Pid, ProcessIndex, StackId, ThreadIndex};
use numapilot_trace::record::Record;
use numapilot_trace::wire::layout::{CODE_FRAME, JAVA_FRAME};

use super::{ADDRESS_END, Binary, CodeAddress, Joiner, Layouts, RawStack};
use crate::model::{Location, LocationId};

/// Forks, one after the other, over which generated code is looked for.
const FORKS_MAX: usize = 16;

/// Highest stack id that is accepted. Ids are consecutive, so a higher one means damage.
const STACK_IDS_MAX: u32 = 1 << 26;
/// How many more stack ids are accepted with each stack that is seen.
const STACKS_PER_STACK: u32 = 16;

impl<L: Layouts> Joiner<L> {
    /// The location of a code address of a process at one moment (an order stamp), through the thread's cache.
    #[inline]
    pub(super) fn code_at(&mut self, thread: ThreadIndex, process: ProcessIndex, ip: u64, order: u64) -> LocationId {
        if ip == 0 {
            return LocationId(0);
        }
        let version = self.spaces[process.0 as usize].code_version;
        if let Some(location) = self.running[thread.0 as usize].code.get(version, ip) {
            return location;
        }
        let location = self.code_within(process, ip, CodeSpan::at(order));
        if self.is_lasting(location) {
            self.running[thread.0 as usize].code.put(ip, location);
        }
        location
    }

    /// The location of a code address of a process, whenever it was there.
    pub(super) fn code_location(&mut self, process: ProcessIndex, ip: u64) -> LocationId {
        self.code_within(process, ip, CodeSpan::ALL)
    }

    /// Whether a code address has this location at all times. Of generated code only where no other code was at the address.
    fn is_lasting(&self, location: LocationId) -> bool {
        let address = self.out.locations[location.0 as usize];
        self.out.binaries[address.binary as usize].span == CodeSpan::ALL
    }

    /// The location of a code address of a process, as it was in a span of the recording.
    fn code_within(&mut self, process: ProcessIndex, ip: u64, span: CodeSpan) -> LocationId {
        if ip == 0 {
            return LocationId(0);
        }
        if is_interpreted(ip) {
            let module = if ip >> 48 == JAVA_FRAME >> 48 { Location::JAVA } else { Location::PYTHON };
            let binary = self.binary(module, &[]);
            return self.location(CodeAddress { binary, offset: ip });
        }
        if ip >= ADDRESS_END {
            // All kernel code is one location, because a trace from another machine has no symbols of it.
            let binary = self.binary("[kernel]", &[]);
            return self.location(CodeAddress { binary, offset: 0 });
        }
        let space = &self.spaces[process.0 as usize];
        if let Some(row) = space.module_at(ip) {
            let module = &self.modules[row as usize];
            let address = CodeAddress { binary: module.binary, offset: ip.wrapping_sub(module.bias) };
            return self.location(address);
        }
        if let Some((pid, span)) = self.generator(process, ip, span) {
            let binary = self.generated_binary(pid, span);
            return self.location(CodeAddress { binary, offset: ip });
        }
        let mapping = space.mappings.get(ip);
        let named = mapping.filter(|piece| piece.value.path != 0);
        // Of a process of which nothing is known it cannot be said.
        let is_memory = mapping.is_some() || (space.mappings.is_empty() && space.modules.is_empty());
        let (name, offset) = match named {
            Some(piece) => (self.name_list[piece.value.path as usize - 1].clone(), ip - piece.start),
            None => (Arc::from(if is_memory { "[anon]" } else { Location::UNMAPPED }), ip),
        };
        let binary = self.binary(&name, &[]);
        self.location(CodeAddress { binary, offset })
    }

    pub(super) fn location(&mut self, address: CodeAddress) -> LocationId {
        let next = LocationId(self.out.locations.len() as u32);
        let id = *self.location_ids.entry(address).or_insert(next);
        if id == next {
            self.out.locations.push(address);
        }
        id
    }

    pub(super) fn binary(&mut self, path: &str, build_id: &[u8]) -> u32 {
        let (path, build_id, span) = (Arc::from(path), build_id.to_vec(), CodeSpan::ALL);
        self.binary_id(Binary { path, build_id, generated_by: None, span })
    }

    /// The code that a process generated, as it was in a span.
    fn generated_binary(&mut self, pid: Pid, span: CodeSpan) -> u32 {
        let (path, build_id) = (Arc::from(Location::GENERATED), Vec::new());
        self.binary_id(Binary { path, build_id, generated_by: Some(pid), span })
    }

    fn binary_id(&mut self, binary: Binary) -> u32 {
        if let Some(&id) = self.binary_ids.get(&binary) {
            return id;
        }
        let id = self.out.binaries.len() as u32;
        self.is_own_binary.push(is_own_library(&binary.path));
        self.out.binaries.push(binary.clone());
        self.binary_ids.insert(binary, id);
        id
    }

    /// The process that generated the code at `ip`, and the span in which it was what it is: this process, or that from which it was forked with the code in
    /// its memory. A process that generates code of its own still runs what it was forked with.
    fn generator(&self, process: ProcessIndex, ip: u64, mut span: CodeSpan) -> Option<(Pid, CodeSpan)> {
        if self.out.generated.is_empty() {
            return None;
        }
        let mut at = Some(process);
        for _ in 0..FORKS_MAX {
            let index = at?.0 as usize;
            let process = self.out.processes.get(index)?;
            if let Some(code) = self.out.generated.get(&process.pid).filter(|code| code.covers(VirtAddr(ip))) {
                return Some((process.pid, code.narrowed(VirtAddr(ip), span)));
            }
            // What the parent generates later is not in the child.
            if let Some(forked) = self.out.process_extras.get(index).and_then(|extra| extra.start_order) {
                span = span.until(forked);
            }
            at = process.parent.filter(|parent| !process.by_exec && *parent != process.index);
        }
        None
    }

    /// Whether a location is in one of numapilot's own libraries, which stacks and functions of the program leave out.
    fn is_own(&self, location: LocationId) -> bool {
        let address = self.out.locations.get(location.0 as usize);
        address.and_then(|address| self.is_own_binary.get(address.binary as usize)).copied().unwrap_or(false)
    }

    /// `location`, or, if it is in a library of numapilot, the innermost frame of the program that called it; unknown if there is none.
    pub(super) fn programs_own(&self, location: LocationId, stack: StackId) -> LocationId {
        if !self.is_own(location) {
            return location;
        }
        let stack = self.out.stacks.get(stack.0 as usize);
        let caller = stack.and_then(|stack| stack.frames.first());
        caller.map_or(LocationId(0), |(_, location)| *location)
    }

    /// Adds a call stack. Frames are return addresses, so the call is at the byte before. Frames of numapilot's own libraries (hooks, and its start functions
    /// of threads) are not the program's, and are left out.
    pub(super) fn stack(&mut self, record: &Record, id: StackId, frames: &[VirtAddr], truncated: bool, failed: bool) {
        self.stack_max = STACK_IDS_MAX.min(self.stack_max + STACKS_PER_STACK);
        if id.0 == 0 || id.0 > self.stack_max {
            self.out.losses.inconsistent_records += 1;
            return;
        }
        self.out.losses.truncated_stacks += u64::from(truncated);
        self.out.losses.failed_unwinds += u64::from(failed);
        let process = self.known_thread(record).process;
        let call = |frame: u64| if is_interpreted(frame) { frame } else { frame.saturating_sub(1) };
        // One record is every call under these addresses from now on, whatever code lies there by then.
        let span = CodeSpan { from: record.stamp.order.0, ..CodeSpan::ALL };
        let mut frames: Vec<(u64, LocationId)> =
            frames.iter().map(|frame| (frame.0, self.code_within(process, call(frame.0), span))).collect();
        frames.retain(|(_, location)| !self.is_own(*location));
        if self.out.stacks.len() <= id.0 as usize {
            self.out.stacks.resize(id.0 as usize + 1, RawStack::default());
        }
        self.out.stacks[id.0 as usize] = RawStack { frames, is_cut: truncated || failed };
    }
}

/// Whether a frame is a place in an interpreter's function, and no address.
fn is_interpreted(frame: u64) -> bool {
    frame >> 48 == CODE_FRAME >> 48 || frame >> 48 == JAVA_FRAME >> 48
}

/// Libraries that numapilot loads into programs: tracker, planner, remapper.
fn is_own_library(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|base| base.starts_with("libnumapilot-") && base.contains(".so"))
}
