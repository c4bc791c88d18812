//! What-if analysis: simulates a recorded program with other home nodes for some of its objects, beside the program as it was recorded, on any machine. The
//! result is *predicted*. (On the recording's own machine `numapilot_insight::whatif` prices it, as findings are.)

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use numapilot_flows::{NameError, Named, Trace};
use numapilot_host::PageNumber;
use numapilot_host::workers;
use numapilot_machine::{Machine, NodeId};
use numapilot_placement::policy_by_name;

use crate::arrange::{Arrangement, PageRange, arrange};
use crate::error::SimulatorError;
use crate::options::{Layout, Options};
use crate::program::{PAGE_BYTES, Program};
use crate::recorded::{Opened, RecordedOptions};
use crate::report::Report;
use crate::simulation::Simulation;

/// Parts of the jackknife: each leaves out one of this many equal parts of the samples.
const PARTS: u32 = 5;
const KNOWN: &str =
    "interleave, bind:N, near or tier:fast, replicate, users, local, first-touch; or write processes=pin";

/// An override of the placement of some pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageOverride {
    /// The override as the user wrote it, or in words.
    pub words: String,
    /// The pages that it applies to.
    pub ranges: Vec<PageRange>,
    /// The placement of these pages.
    pub how: Arrangement,
}

/// Errors of reading an override.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverrideError {
    /// The text does not have the form `OBJECT=WHERE`.
    #[error("write OBJECT=WHERE, with WHERE one of {KNOWN}")]
    Form,
    /// The placement after the `=` is unknown.
    #[error("{0:?} is not a known placement; write one of {KNOWN}")]
    Where(String),
    /// The trace has no such object.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl PageOverride {
    /// Reads `OBJECT=WHERE`.
    ///
    /// # Errors
    /// If the text has another form, or names an object that the trace does not have.
    pub fn read(trace: &Trace, text: &str) -> Result<PageOverride, OverrideError> {
        let (name, place) = text.rsplit_once('=').ok_or(OverrideError::Form)?;
        if (name, place) == ("processes", "pin") {
            let words = "processes: each pinned to one node".to_owned();
            return Ok(PageOverride { words, ranges: Vec::new(), how: Arrangement::PinProcesses });
        }
        let how = match place {
            "interleave" => Arrangement::Interleave,
            "near" => Arrangement::Near,
            "tier:fast" => Arrangement::FastTier,
            "replicate" => Arrangement::Replicate,
            "users" | "local" => Arrangement::Users,
            "first-touch" => Arrangement::FirstTouch,
            _ => match place.strip_prefix("bind:").map(str::parse) {
                Some(Ok(node)) => Arrangement::On(NodeId(node)),
                _ => return Err(OverrideError::Where(place.to_owned())),
            },
        };
        Ok(PageOverride { words: format!("{name}: {place}"), ranges: ranges(trace, name)?, how })
    }
}

/// The pages of all objects that a name stands for.
fn ranges(trace: &Trace, name: &str) -> Result<Vec<PageRange>, NameError> {
    let processes = 0..trace.processes().len() as u32;
    if name == "*" {
        return Ok(processes.map(|process| (process, PageNumber(0), u64::MAX / 2)).collect());
    }
    let mut ranges = Vec::new();
    for named in trace.objects_named(name)? {
        let is_wanted = |object: &&numapilot_flows::Object| match named {
            Named::Site(site) => object.site == site,
            Named::Object(id) => object.id == id,
        };
        for object in trace.objects().iter().filter(is_wanted) {
            let first = object.address.page();
            let end = PageNumber::at_or_after(object.address.0 + object.bytes);
            // An instance is shared with forked children: their accesses are of the same pages.
            ranges.extend(processes.clone().map(|process| (process, first, end - first)));
        }
    }
    Ok(ranges)
}

/// A what-if question: a recording with overrides of the placement.
#[derive(Clone, Debug)]
pub struct Question {
    /// Folder of the recorded trace.
    pub trace: PathBuf,
    /// Placements that replace those of the recording.
    pub overrides: Vec<PageOverride>,
    /// The machine; `None`: the one it was recorded on.
    pub machine: Option<Machine>,
    /// Seed of the random numbers.
    pub seed: u64,
}

/// The predicted effect of the overrides.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The program as it was recorded.
    pub now: Report,
    /// The program as it would be.
    pub then: Report,
    /// Pages of 4 KiB that each override applies to.
    pub pages: Vec<u64>,
    /// Additional bytes of memory that the overrides need.
    pub more_bytes: u64,
    /// The gain with one part of the samples left out, for each part: for the jackknife's interval.
    pub gains_without: Vec<f64>,
}

impl Answer {
    /// How much faster, as a share of the new run time: 1 is twice as fast.
    #[must_use]
    pub fn gain(&self) -> f64 {
        self.now.run_time_ns / self.then.run_time_ns - 1.0
    }

    /// Each override with the memory that it applies to: words, and bytes (`None`: it is about threads).
    pub fn set<'a>(&'a self, overrides: &'a [PageOverride]) -> impl Iterator<Item = (&'a str, Option<u64>)> {
        let of = |(change, pages): (&'a PageOverride, &u64)| {
            let bytes = (change.how != Arrangement::PinProcesses).then_some(pages * PAGE_BYTES);
            (change.words.as_str(), bytes)
        };
        overrides.iter().zip(&self.pages).map(of)
    }
}

impl Question {
    /// Simulates the program as it is and as it would be, with all samples and with parts of them left out. `on_step` is called with the share that is done,
    /// from any thread.
    ///
    /// # Errors
    /// If the recording cannot be simulated on that machine, or an override is not possible there.
    pub fn ask(&self, on_step: &(dyn Fn(f64) + Sync)) -> Result<Answer, SimulatorError> {
        let opened = Opened::open(&self.trace)?;
        let done = AtomicUsize::new(0);
        let step = || on_step((done.fetch_add(1, Ordering::Relaxed) + 1) as f64 / f64::from(PARTS + 1));
        let parts = || -> Result<Vec<f64>, SimulatorError> {
            let part = |part| self.ask_of(&opened, Some((part, PARTS))).map(|answer| answer.gain()).inspect(|_| step());
            (0..PARTS).map(part).collect()
        };
        let (whole, gains_without) = workers::both(|| self.ask_of(&opened, None).inspect(|_| step()), parts);
        let whole = whole?;
        Ok(Answer { gains_without: gains_without?, ..whole })
    }

    /// The answer without one part of the samples; `None`: with all samples.
    fn ask_of(&self, opened: &Opened, leave_out: Option<(u32, u32)>) -> Result<Answer, SimulatorError> {
        let recorded = opened.program(&RecordedOptions { leave_out, ..RecordedOptions::default() })?;
        let machine = self.machine.as_ref().unwrap_or(&recorded.machine);
        let now = as_recorded(&recorded.program, machine, self.seed)?;
        let mut program = recorded.program;
        let (mut pages, mut more_bytes) = (Vec::new(), 0);
        for change in &self.overrides {
            let done = arrange(&mut program, machine, Layout::Recorded, &change.ranges, &change.how)?;
            pages.push(done.pages);
            more_bytes += done.more_bytes;
        }
        let then = as_recorded(&program, machine, self.seed)?;
        Ok(Answer { now, then, pages, more_bytes, gains_without: Vec::new() })
    }
}

/// Runs the program on the machine with its pages on the given nodes, without a policy.
fn as_recorded(program: &Program, machine: &Machine, seed: u64) -> Result<Report, SimulatorError> {
    let mut policy = policy_by_name("first-touch", machine, seed)?;
    let options = Options { seed, ..Options::default() };
    Simulation::new(program, machine, options)?.run(policy.as_mut(), &mut |_| true)
}
