//! The compiled plan as bytes in a memfd that the program's processes map: writing it, and reading the counters back.

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use numapilot_launch::Held;
use numapilot_machine::NodeId;

use crate::error::ApplyError;
use crate::layout::{
    CPU_WORDS, IMAGE_EMULATED, IMAGE_TWINS, MAGIC, NAME_BYTES, NODES, NUMBERED, RANGES, SPREAD, TEXT_BYTES, VERSION,
};

const NAME: &CStr = c"numapilot-plan";
/// Sizes of `struct np_plan`, `np_plan_rule` and `np_plan_place`, and where their counters begin.
pub(super) const HEADER_BYTES: usize = 8344;
const HEADER_COUNTERS: usize = 8312;
pub(super) const RULE_BYTES: usize = 936;
const RULE_COUNTERS: usize = 888;
pub(super) const PLACE_BYTES: usize = 576;
const PLACE_COUNTERS: usize = 536;
/// `NP_PLAN_NUMBERED` times the size of `struct np_plan_numbered`.
const NUMBERED_BYTES: usize = NUMBERED * 32;

/// `struct np_plan_rule`.
#[derive(Clone, Debug, Default)]
pub(super) struct Rule {
    pub kind: u32,
    pub policy: u32,
    pub flags: u32,
    pub nodes: u64,
    pub min_size: u64,
    pub max_size: u64,
    pub patterns: u64,
    pub to_pattern: u32,
    pub instances: Vec<(u64, u64)>,
    pub weights: Vec<(NodeId, u32)>,
    pub process: String,
    pub text: String,
}

/// `struct np_plan_place`.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub name: String,
    pub process: String,
    pub start_pattern: u32,
    pub spread: bool,
    pub by_node: bool,
    pub order: Vec<(u64, u64)>,
    pub nodes: u64,
    pub cpus: [u64; CPU_WORDS],
}

/// All that goes into the image.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Blocks lie as those of the program's own allocator do.
    pub has_twins: bool,
    /// The program runs in an emulator.
    pub is_emulated: bool,
    pub memory_nodes: u64,
    pub node_cpus: Vec<(NodeId, [u64; CPU_WORDS])>,
    pub rules: Vec<Rule>,
    pub threads: Vec<Place>,
    pub processes: Vec<Place>,
    /// Device and inode of each module's file.
    pub modules: Vec<(u64, u64)>,
    /// Module, first, last, patterns.
    pub code: Vec<(u32, u64, u64, u64)>,
    /// Module, rule, first, last.
    pub statics: Vec<(u32, u32, u64, u64)>,
    pub min_size: u64,
    pub max_size: u64,
}

#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }
    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.u64(*word));
    }
    /// Zero-terminated; plans hold no longer texts than fit.
    fn text(&mut self, text: &str, bytes: usize) {
        let kept = text.len().min(bytes - 1);
        self.0.extend(&text.as_bytes()[..kept]);
        self.0.resize(self.0.len() + bytes - kept, 0);
    }
    fn ranges(&mut self, ranges: &[(u64, u64)]) {
        for index in 0..RANGES {
            let (first, last) = ranges.get(index).copied().unwrap_or_default();
            self.u64(first);
            self.u64(last);
        }
    }
    fn rule(&mut self, rule: &Rule) {
        for value in [rule.kind, rule.policy, rule.flags, rule.instances.len() as u32] {
            self.u32(value);
        }
        self.words(&[rule.nodes, rule.min_size, rule.max_size, rule.patterns]);
        self.u32(rule.to_pattern);
        self.u32(0);
        self.ranges(&rule.instances);
        let mut weights = [0_u8; NODES];
        for (node, weight) in &rule.weights {
            weights[usize::from(node.0) % NODES] = u8::try_from(*weight).unwrap_or(u8::MAX);
        }
        self.0.extend(weights);
        self.text(&rule.process, NAME_BYTES);
        self.text(&rule.text, TEXT_BYTES);
        self.words(&[0; 6]);
    }
    fn place(&mut self, place: &Place) {
        self.text(&place.name, NAME_BYTES);
        self.text(&place.process, NAME_BYTES);
        let layout = if place.spread { SPREAD } else { 0 };
        for value in [place.start_pattern, place.order.len() as u32, layout, u32::from(place.by_node)] {
            self.u32(value);
        }
        self.ranges(&place.order);
        self.u64(place.nodes);
        self.words(&place.cpus);
        self.words(&[0; 5]);
    }
}

impl Parts {
    fn bytes(&self) -> Vec<u8> {
        let mut body = Bytes::default();
        let mut offsets = Vec::new();
        let mut begin = |body: &Bytes| offsets.push((HEADER_BYTES + body.0.len()) as u64);
        begin(&body);
        self.rules.iter().for_each(|rule| body.rule(rule));
        begin(&body);
        self.threads.iter().for_each(|place| body.place(place));
        begin(&body);
        self.processes.iter().for_each(|place| body.place(place));
        begin(&body);
        self.modules.iter().for_each(|(device, inode)| body.words(&[*device, *inode]));
        begin(&body);
        for (module, first, last, patterns) in &self.code {
            body.words(&[u64::from(*module), *first, *last, *patterns]);
        }
        begin(&body);
        for (module, rule, first, last) in &self.statics {
            body.words(&[u64::from(*module) | u64::from(*rule) << 32, *first, *last]);
        }
        let mut head = Bytes::default();
        head.u64(MAGIC);
        head.u32(VERSION);
        let twins = if self.has_twins { IMAGE_TWINS } else { 0 };
        head.u32(twins | if self.is_emulated { IMAGE_EMULATED } else { 0 });
        head.u64((HEADER_BYTES + body.0.len()) as u64);
        head.u64(self.memory_nodes);
        let counts = [
            self.rules.len(),
            self.threads.len(),
            self.processes.len(),
            self.modules.len(),
            self.code.len(),
            self.statics.len(),
        ];
        counts.iter().for_each(|count| head.u32(*count as u32));
        head.words(&offsets);
        head.words(&[self.min_size, self.max_size]);
        for node in 0..NODES {
            let cpus = self.node_cpus.iter().find(|(id, _)| usize::from(id.0) == node);
            head.words(&cpus.map_or([0; CPU_WORDS], |(_, cpus)| *cpus));
        }
        head.words(&[0; 4]);
        head.0.extend(body.0);
        head.0
    }
}

/// The counters of a rule, in the order of `struct np_plan_rule`.
pub(super) type RuleCounters = [u64; 6];
/// The counters of a place, in the order of `struct np_plan_place`.
pub(super) type PlaceCounters = [u64; 5];

/// A compiled plan in shared memory. It lives as long as this value: later processes of the program find no plan then.
#[derive(Debug)]
pub struct PlanImage {
    file: File,
    held: Held,
    rules: usize,
    threads: usize,
    processes: usize,
    /// What the user should know: rules that found nothing, and why.
    pub notes: Vec<String>,
    pub(super) dead: Vec<bool>,
}

impl PlanImage {
    pub(super) fn create(parts: &Parts, notes: Vec<String>, dead: Vec<bool>) -> Result<PlanImage, ApplyError> {
        let fail = |source| ApplyError::System {
            what: "cannot make the shared memory of the plan",
            source,
            remedy: "check free memory and `ulimit -n`",
        };
        // SAFETY: a NUL-terminated name; returns a new descriptor or -1.
        let fd = unsafe { libc::memfd_create(NAME.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(fail(io::Error::last_os_error()));
        }
        // SAFETY: `fd` is open and owned by nobody else.
        let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let bytes = parts.bytes();
        file.write_all(&bytes).map_err(fail)?;
        // What the processes' numbers are noted in.
        file.set_len((bytes.len().next_multiple_of(8) + NUMBERED_BYTES) as u64).map_err(fail)?;
        let held = Held::new(file.as_fd()).map_err(fail)?;
        let (rules, threads, processes) = (parts.rules.len(), parts.threads.len(), parts.processes.len());
        Ok(PlanImage { file, held, rules, threads, processes, notes, dead })
    }

    /// By what the planner finds its plan: variables of the program's environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![("NUMAPILOT_PLAN".into(), self.held.path().into())]
    }

    fn words<const N: usize>(&self, at: usize) -> [u64; N] {
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            // A file of ours in memory: what cannot be read counts as nothing done.
            if self.file.read_exact_at(&mut bytes, (at + index * 8) as u64).is_ok() {
                *word = u64::from_le_bytes(bytes);
            }
        }
        words
    }

    /// The counters of the header, in the order of `struct np_plan`.
    pub(super) fn header(&self) -> [u64; 4] {
        self.words(HEADER_COUNTERS)
    }

    pub(super) fn rule(&self, index: usize) -> RuleCounters {
        debug_assert!(index < self.rules);
        self.words(HEADER_BYTES + index * RULE_BYTES + RULE_COUNTERS)
    }

    pub(super) fn thread(&self, index: usize) -> PlaceCounters {
        debug_assert!(index < self.threads);
        self.words(HEADER_BYTES + self.rules * RULE_BYTES + index * PLACE_BYTES + PLACE_COUNTERS)
    }

    pub(super) fn process(&self, index: usize) -> PlaceCounters {
        debug_assert!(index < self.processes);
        let before = self.rules * RULE_BYTES + self.threads * PLACE_BYTES;
        self.words(HEADER_BYTES + before + index * PLACE_BYTES + PLACE_COUNTERS)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use super::*;

    /// A C compiler says what the header means.
    #[test]
    fn sizes_and_offsets_are_those_of_the_header() {
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("sizes.c"), folder.path().join("sizes"));
        let program = "#include <stddef.h>\n#include <stdio.h>\n#include \"plan_wire.h\"\n\
            int main(void) { printf(\"%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu\", sizeof(struct np_plan), offsetof(struct np_plan, attached), \
            sizeof(struct np_plan_rule), offsetof(struct np_plan_rule, placed), sizeof(struct np_plan_place), offsetof(struct np_plan_place, seen), \
            sizeof(struct np_plan_module), sizeof(struct np_plan_code), sizeof(struct np_plan_static), offsetof(struct np_plan, node_cpus), \
            offsetof(struct np_plan_rule, weights), NP_PLAN_NUMBERED * sizeof(struct np_plan_numbered)); return 0; }\n";
        std::fs::write(&source, program).unwrap();
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/c");
        let status = Command::new("cc").arg("-I").arg(include).arg(&source).arg("-o").arg(&binary).status().unwrap();
        assert!(status.success());
        let said = String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap();
        let ours = [
            HEADER_BYTES,
            HEADER_COUNTERS,
            RULE_BYTES,
            RULE_COUNTERS,
            PLACE_BYTES,
            PLACE_COUNTERS,
            16,
            32,
            24,
            120,
            184,
            NUMBERED_BYTES,
        ];
        assert_eq!(said, ours.map(|n| n.to_string()).join(" "));
        let mut bytes = Bytes::default();
        bytes.rule(&Rule::default());
        assert_eq!(bytes.0.len(), RULE_BYTES);
        bytes.place(&Place::default());
        assert_eq!(bytes.0.len(), RULE_BYTES + PLACE_BYTES);
        assert_eq!(Parts::default().bytes().len(), HEADER_BYTES);
    }
}
