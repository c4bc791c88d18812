//! Programs from recorded traces: samples become rates by page, recorded waits become dependences, counters say how much of the time was the threads' own work.
//!
//! `docs/simulator.md`, "Recorded programs", has the rules. The recording must have accesses (engine `instrument`).

#[cfg(test)]
mod held_out;
mod mixes;
mod rates;
mod sharing;
mod shrink;
mod space;
mod timeline;
mod windows;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use numapilot_flows::cores::{Core, CoreRanges, own_work};
use numapilot_flows::{AccessRef, CountersAt, Deed, Dependences, Evidence, Life, Order, PlacementCause, Trace};
use numapilot_host::PageNumber;
use numapilot_machine::{Machine, NodeId};
use numapilot_text::units::part_percent_to;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::tables::{PlacementColumns, PlacementRow, TraceReader};

use crate::error::SimulatorError;
use crate::program::{Action, Builder, FirstTouch, Origin, Program, Slice, Thread};
use rates::{IdleTimes, Reading};
use sharing::Sharing;
use space::Space;
use timeline::{Frame, Source};
use windows::Windows;

/// How often the part of a recording in which most threads work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Repeat {
    /// Run the recorded program once.
    #[default]
    Once,
    /// Run the recorded program this many times.
    Times(u32),
    /// Repeat the recorded program until it lasts at least this many nanoseconds at the recorded pace.
    UntilNs(f64),
}

/// Options of reading a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedOptions {
    /// How often the main part runs: recordings last about a second, and policies act every second.
    pub repeat: Repeat,
    /// Where the main part begins and ends, in nanoseconds of the recording; `None`: found by itself.
    pub body_ns: Option<(f64, f64)>,
    /// Length in nanoseconds of the windows whose samples are combined to estimate which pages are accessed.
    pub window_ns: f64,
    /// Sampled 1 in n, by a fixed draw; 1: all samples are used. Shows how much the number of samples matters.
    pub thin: u32,
    /// (k, n): the samples of the k-th of n equal parts of all cache lines are left out, by a fixed draw. Shows how certain a result is.
    pub leave_out: Option<(u32, u32)>,
}

impl Default for RecordedOptions {
    fn default() -> RecordedOptions {
        RecordedOptions { repeat: Repeat::Once, body_ns: None, window_ns: 50e6, thin: 1, leave_out: None }
    }
}

/// The program of a recording, and the machine on which it was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The recorded program.
    pub program: Program,
    /// The machine of the recording.
    pub machine: Machine,
}

/// Reads a trace (`NAME.numatrace`).
///
/// # Errors
/// If it cannot be opened, or holds no accesses, counters or machine to go by.
pub fn load(folder: &Path, options: &RecordedOptions) -> Result<Recorded, SimulatorError> {
    check(folder, options)?;
    Opened::open(folder)?.program(options)
}

/// A trace that is read once for several programs: another may have its name at any time.
pub(crate) struct Opened {
    folder: PathBuf,
    trace: Trace,
    machine: Machine,
    placements: Vec<PlacementRow>,
}

impl Opened {
    /// Reads a trace, as [`load`] does.
    pub(crate) fn open(folder: &Path) -> Result<Opened, SimulatorError> {
        let trace = Trace::open(folder)?;
        let machine = machine_of(folder, &trace)?;
        let reader = TraceReader::open(folder)?;
        if reader.meta().tables != trace.meta().tables {
            let why = "it was replaced while it was read; try again".to_owned();
            return Err(SimulatorError::Trace { trace: folder.to_owned(), why });
        }
        let placements = reader.read::<PlacementColumns>()?.rows().collect();
        Ok(Opened { folder: folder.to_owned(), trace, machine, placements })
    }

    /// Makes a program of it.
    pub(crate) fn program(&self, options: &RecordedOptions) -> Result<Recorded, SimulatorError> {
        check(&self.folder, options)?;
        let Opened { folder, trace, machine, placements } = self;
        let program = Recording { trace, machine, placements, options }.program(folder)?;
        Ok(Recorded { program, machine: machine.clone() })
    }
}

fn check(folder: &Path, options: &RecordedOptions) -> Result<(), SimulatorError> {
    if !(options.window_ns.is_finite() && options.window_ns > 0.0) || options.thin == 0 {
        let why = "window_ns and thin must be above 0".to_owned();
        return Err(SimulatorError::Trace { trace: folder.to_owned(), why });
    }
    Ok(())
}

/// The machine of a recording that can be simulated.
fn machine_of(folder: &Path, trace: &Trace) -> Result<Machine, SimulatorError> {
    let fail = |why: String| SimulatorError::Trace { trace: folder.to_owned(), why };
    if trace.accesses().len() == 0 {
        let why = "it holds no memory accesses, so nothing can be simulated; record with `--engine instrument`";
        return Err(fail(why.into()));
    }
    if trace.evidence() != Evidence::Accesses || trace.counters().is_empty() {
        let why = "it does not say how many accesses its threads made over time, without which all their time would count as their own work and every \
                   placement as equally fast; record with `--engine instrument` or `--engine emulate`";
        return Err(fail(why.into()));
    }
    serde_json::from_value(trace.meta().machine.clone()).map_err(|error| {
        fail(format!("the description of its machine cannot be read ({error}); open the trace with the version of numapilot that wrote it"))
    })
}

struct Recording<'a> {
    trace: &'a Trace,
    machine: &'a Machine,
    placements: &'a [PlacementRow],
    options: &'a RecordedOptions,
}

impl Recording<'_> {
    fn program(&self, folder: &Path) -> Result<Program, SimulatorError> {
        let name = folder.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        // The origin is completed below, when everything is known.
        let mut builder = Builder::new(&name, Origin::Synthetic { file: String::new() });
        for process in self.trace.processes() {
            builder.process(process.command());
        }
        let space = Space::new(self.trace, self.placements, &mut builder);
        let Dependences { lives, orders, events, ends } = self.trace.dependences();
        events.iter().for_each(|&needed| {
            builder.event(needed);
        });
        let ran_on = self.trace.cpus();
        let sharing = Sharing::new(&ran_on, &lives, &orders);
        let end_ns = lives.iter().map(|life| life.end_ns).fold(0.0, f64::max);
        let body = self.options.body_ns.or_else(|| timeline::busiest(&lives, &orders, end_ns));
        let body = body.filter(|body| self.options.repeat != Repeat::Once && body.0 < body.1);
        let cuts = Windows::new(self.options.window_ns, end_ns, body);
        let windows = self.mixes(&space, &mut builder, &cuts);
        let (readings, memory_recorded) = self.readings(&lives, &orders, &sharing);
        let touches = self.touches(&space, &mut builder);
        let mut unplaced = 0.0;
        let mut threads = Vec::new();
        for (index, recorded) in self.trace.threads().iter().enumerate() {
            let alone = |thread: usize, from: f64, to: f64| sharing.alone_ns(thread, from, to);
            let frame = Frame { cuts: &cuts, windows: &windows, alone_ns: &alone };
            let touches = touches.get(&(index as u32)).map_or(&[][..], Vec::as_slice);
            let (life, order, readings) = (lives[index], &orders[index], &readings[index]);
            let source = Source { thread: index, life, order, readings, touches };
            let (steps, without) = timeline::steps(&frame, &source, &mut builder);
            unplaced += without;
            let name = if recorded.name.is_empty() { format!("thread {index}") } else { recorded.name.to_string() };
            threads.push(Thread {
                name,
                process: life.process,
                cpu: ran_on[index],
                is_cut_off: !ends.lasting[index],
                prologue: steps,
                ..Thread::default()
            });
        }
        if let Some(body) = body {
            timeline::cut(&mut threads, body, &mut builder);
        }
        let first_touches = self.first_touches(&space);
        let program = builder.program_mut();
        program.first_touches = first_touches;
        program.threads = threads;
        if let Some((from, to)) = body {
            program.body_ns = to - from;
            program.repeat = self.repeats(end_ns, to - from);
        }
        program.origin = Origin::Recorded {
            trace: folder.display().to_string(),
            machine: self.machine.name().to_owned(),
            recorded_ns: end_ns as u64,
            repeated_from_ns: body.map(|body| body.0 as u64),
            assumptions: self.assumptions(memory_recorded, unplaced),
        };
        builder.finish()
    }

    fn repeats(&self, end_ns: f64, body_ns: f64) -> u32 {
        match self.options.repeat {
            Repeat::Once => 0,
            Repeat::Times(times) => times.max(1),
            Repeat::UntilNs(until) => (((until - (end_ns - body_ns)) / body_ns).ceil()).clamp(1.0, 1e6) as u32,
        }
    }

    fn assumptions(&self, memory_recorded: bool, unplaced: f64) -> Vec<String> {
        let mut said = Vec::new();
        if !memory_recorded {
            let what = "The trace does not record how much program time its memory accesses took (it is older than format 1.1)";
            said.push(format!("{what}. One outstanding access per thread was assumed, or as many as its accesses need to fit into its busy time."));
        }
        let all = self.trace.threads().iter().filter_map(|thread| thread.counters.as_ref());
        let all: u64 = all.map(|counters| counters.memory_accesses).sum();
        if unplaced > 0.0 {
            let share = part_percent_to(unplaced / (all as f64).max(1.0), 2);
            said.push(format!(
                "{share} of the memory accesses are of threads without any sample: their time counts as computation."
            ));
        }
        if self.options.thin > 1 {
            said.push(format!("One sample in {} was used.", self.options.thin));
        }
        if self.trace.losses().records_lost() {
            said.push("The recording lost records, so accesses or waits are missing.".into());
        }
        said
    }

    fn mixes(&self, space: &Space, builder: &mut Builder, cuts: &Windows) -> Vec<mixes::WindowMixes> {
        let label = |site: &numapilot_flows::Site| match (site.place(), site.name.is_empty()) {
            (place, true) => format!("{} ({place})", site.kind.word()),
            (place, false) if place.is_empty() => site.name.to_string(),
            (place, false) => format!("{} ({place})", site.name),
        };
        let labels: Vec<u32> = self.trace.sites().iter().map(|site| builder.label(&label(site))).collect();
        let unknown = builder.label("(no known object)");
        let keep = |access: &AccessRef| {
            let part = |bits: u64, of: u32| crate::random::scramble(bits) % u64::from(of.max(1));
            let is_left =
                self.options.leave_out.is_none_or(|(out, of)| part(access.address.0 / 64, of) != u64::from(out));
            part(u64::from(access.row), self.options.thin) == 0 && is_left
        };
        mixes::mixes(self.trace, space, &labels, unknown, builder, cuts, &keep)
    }

    fn readings(&self, lives: &[Life], orders: &[Order], sharing: &Sharing) -> (Vec<Vec<Reading>>, bool) {
        let mut of_thread: BTreeMap<ThreadIndex, Vec<&CountersAt>> = BTreeMap::new();
        for counters in self.trace.counters() {
            of_thread.entry(counters.thread).or_default().push(counters);
        }
        let khz = f64::from(self.trace.meta().clock.khz.max(1));
        let idle = IdleTimes { machine: self.machine, khz };
        let mut all_recorded = true;
        let readings = lives.iter().zip(orders).enumerate().map(|(index, (life, order))| {
            let counters = of_thread.get(&ThreadIndex(index as u32)).map_or(&[][..], Vec::as_slice);
            let alone = |from: f64, to: f64| sharing.alone_ns(index, from, to);
            let (readings, recorded) = rates::readings(*life, &order.waits, counters, &idle, &alone);
            all_recorded &= recorded;
            readings
        });
        let mut readings: Vec<Vec<Reading>> = readings.collect();
        if self.trace.meta().simulated {
            self.on_real_cores(&mut readings, khz / 1000.0);
        }
        (readings, all_recorded)
    }

    /// A simulated clock charges for a core of its own choice: replaces that by the machine's, with the same own work and overlap as the price of `whatif`.
    fn on_real_cores(&self, readings: &mut [Vec<Reading>], clock_mhz: f64) {
        let sum = |of: fn(&Reading) -> f64| readings.iter().flatten().map(of).sum::<f64>();
        let (own_ns, waiting_ns) = (sum(|reading| reading.own_ns), sum(|reading| reading.memory_ns));
        let (meta, charged) = (self.trace.meta(), Core::charged(self.trace.meta()));
        let native = own_work(meta, self.machine, own_ns, waiting_ns, clock_mhz);
        let core = CoreRanges::of(self.machine, &charged, native).nominal();
        readings.iter_mut().flatten().for_each(|reading| reading.run_on(&core, &charged));
    }

    fn process_of(&self, thread: u32) -> u32 {
        self.trace.thread(ThreadIndex(thread)).map_or(0, |thread| thread.process.0)
    }

    /// The first toucher of each page, or the node to which the program bound it.
    fn first_touches(&self, space: &Space) -> Vec<FirstTouch> {
        let mut touches = Vec::new();
        for row in self.placements.iter() {
            let cause = PlacementCause::from_word(&row.cause);
            if matches!(cause, PlacementCause::Moved | PlacementCause::UnknownToucher) {
                continue;
            }
            let bound = (cause == PlacementCause::Policy).then_some(NodeId(row.node));
            for slice in self.slices(space, row) {
                let Slice { region, first, pages, .. } = slice;
                touches.push(FirstTouch { region, first, pages, thread: row.thread, bound });
            }
        }
        touches
    }

    fn slices(&self, space: &Space, row: &PlacementRow) -> Vec<Slice> {
        let first = PageNumber::of(row.address);
        space.slices(self.process_of(row.thread), first, first + u64::from(row.pages), 0)
    }

    /// Pages that got a home once more: freed and touched again, or moved by the program.
    fn touches(&self, space: &Space, builder: &mut Builder) -> BTreeMap<u32, Vec<(f64, Action)>> {
        let mut seen: BTreeMap<(u32, PageNumber), ()> = BTreeMap::new();
        let mut touches: BTreeMap<u32, Vec<(f64, Action)>> = BTreeMap::new();
        for row in self.placements.iter() {
            let cause = PlacementCause::from_word(&row.cause);
            if cause == PlacementCause::UnknownToucher {
                continue;
            }
            let process = self.process_of(row.thread);
            let first = PageNumber::of(row.address);
            let mut again = cause == PlacementCause::Moved;
            for page in first.run(u64::from(row.pages)) {
                again |= seen.insert((process, page), ()).is_some();
            }
            if !again {
                continue;
            }
            let bound = (cause != PlacementCause::FirstTouch).then_some(NodeId(row.node));
            for slice in self.slices(space, row) {
                let slice = builder.slice(slice);
                let action = Action::Touch { slice, bound, anew: true };
                touches.entry(row.thread).or_default().push((row.time_ns as f64, action));
            }
        }
        touches
    }
}

impl From<Deed> for Action {
    fn from(deed: Deed) -> Action {
        match deed {
            Deed::Arrive(event) => Action::Arrive { event },
            Deed::Await(event) => Action::Await { event },
            Deed::Follow => Action::Follow,
            Deed::Sleep(ns) => Action::Sleep { ns },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_made_of_the_trace_that_was_opened() {
        let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("mg.numatrace");
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(committed).unwrap().map(|file| file.unwrap()) {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
        let opened = Opened::open(&copy).unwrap();
        std::fs::remove_dir_all(&copy).unwrap();
        let options = RecordedOptions { leave_out: Some((1, 5)), ..RecordedOptions::default() };
        assert!(opened.program(&options).is_ok());
        assert!(matches!(load(&copy, &options), Err(SimulatorError::Flows(_))), "it is gone");
    }
}
