//! From a description to a program.

use std::collections::BTreeMap;

use numapilot_host::PageNumber;
use numapilot_placement::PageSize;
use numapilot_random::unit_of;
use toml::Spanned;

use super::Source;
use super::file::{FORMAT, File, RawOn, RawPages, RawPattern, RawPhase, RawRegion, RawTouch, RawWork};
use super::patterns;
use crate::error::SimulatorError;
use crate::program::{
    Action, Builder, MixPart, Origin, PAGE_BYTES, Program, Region, SMALL_PER_LARGE, Slice, Step, Thread, Work,
};
use crate::random::scramble;

/// Address of a process's first region, in pages: 4 GiB.
const FIRST_PAGE: PageNumber = PageNumber(1 << 20);
/// Most threads, regions or processes in a description: what is above is a slip of the pen.
const COUNT_MAX: u32 = 65_536;
/// Most bytes of a region: 64 TiB.
const MIB_MAX: f64 = (1u64 << 26) as f64;
/// Most repetitions of a phase in a row: they are written out.
const TIMES_MAX: u32 = 100_000;

/// One instance of a group: its process and its threads.
struct Group {
    process: u32,
    threads: Vec<usize>,
}

/// A region in one process.
#[derive(Clone, Copy)]
struct Place {
    region: u32,
    pages: u64,
    label: u32,
}

/// State while a program is built from its description.
struct Maker<'a> {
    source: &'a Source<'a>,
    raw: &'a File,
    builder: Builder,
    threads: Vec<Thread>,
    /// Instances of each group, by name.
    groups: BTreeMap<String, Vec<Group>>,
    /// Regions by (process index, name).
    places: BTreeMap<(u32, String), Place>,
    processes: BTreeMap<String, Vec<u32>>,
    /// Nanoseconds of each thread's timeline at no latency: the place of the next step.
    clock_ns: Vec<f64>,
    instructions: Option<bool>,
}

/// The program of a description.
pub(super) fn program(source: &Source<'_>, raw: &File) -> Result<Program, SimulatorError> {
    if *raw.format.get_ref() != FORMAT {
        let why = format!(
            "format {}, and this program reads format {FORMAT}: write `format = {FORMAT}`",
            raw.format.get_ref()
        );
        return Err(source.error(raw.format.span(), why));
    }
    let origin = Origin::Synthetic { file: source.file.to_owned() };
    let mut maker = Maker {
        source,
        raw,
        builder: Builder::new(raw.name.get_ref(), origin),
        threads: Vec::new(),
        groups: BTreeMap::new(),
        places: BTreeMap::new(),
        processes: BTreeMap::new(),
        clock_ns: Vec::new(),
        instructions: None,
    };
    maker.processes()?;
    maker.groups()?;
    maker.regions()?;
    maker.touches()?;
    for phase in &raw.phase {
        maker.phase(phase)?;
    }
    maker.finish()
}

impl Maker<'_> {
    fn processes(&mut self) -> Result<(), SimulatorError> {
        if self.raw.process.is_empty() {
            let index = self.builder.process("main");
            self.processes.insert("main".into(), vec![index]);
        }
        for process in &self.raw.process {
            let data = process.get_ref();
            if data.count == 0 || data.count > COUNT_MAX || self.processes.contains_key(&data.name) {
                let why =
                    format!("process `{}` has a count of {}, or another process has this name", data.name, data.count);
                return Err(self
                    .source
                    .error(process.span(), format!("{why}: give 1 to {COUNT_MAX}, and another name")));
            }
            let name = |k| if data.count == 1 { data.name.clone() } else { format!("{}.{k}", data.name) };
            let instances = (0..data.count).map(|k| self.builder.process(&name(k))).collect();
            self.processes.insert(data.name.clone(), instances);
        }
        Ok(())
    }

    /// The instances of a process; without a name, of the first one.
    fn instances(&self, name: Option<&String>, span: std::ops::Range<usize>) -> Result<Vec<u32>, SimulatorError> {
        let first = self.raw.process.first().map_or("main", |process| process.get_ref().name.as_str());
        let name = name.map_or(first, String::as_str);
        let missing =
            || self.source.error(span, format!("there is no process `{name}`: add a [[process]] of that name"));
        self.processes.get(name).cloned().ok_or_else(missing)
    }

    fn groups(&mut self) -> Result<(), SimulatorError> {
        for group in &self.raw.group {
            let data = group.get_ref();
            if data.threads == 0 || data.threads > COUNT_MAX || self.groups.contains_key(&data.name) {
                let why = format!("group `{}` has {} threads, or another group has this name", data.name, data.threads);
                return Err(self.source.error(group.span(), format!("{why}: give 1 to {COUNT_MAX}, and another name")));
            }
            let mut instances = Vec::new();
            for process in self.instances(data.process.as_ref(), group.span())? {
                let first = self.threads.len();
                for k in 0..data.threads {
                    let name = format!("{}.{k}", data.name);
                    self.threads.push(Thread { name, process, ..Thread::default() });
                }
                instances.push(Group { process, threads: (first..self.threads.len()).collect() });
            }
            self.groups.insert(data.name.clone(), instances);
        }
        if self.threads.is_empty() {
            return Err(self.source.error(0..0, "it has no [[group]], and therefore no threads: add one"));
        }
        self.clock_ns = vec![0.0; self.threads.len()];
        Ok(())
    }

    fn regions(&mut self) -> Result<(), SimulatorError> {
        let mut next: BTreeMap<u32, PageNumber> = BTreeMap::new();
        for region in &self.raw.region {
            let data = region.get_ref();
            if !(data.mib > 0.0 && data.mib <= MIB_MAX) {
                let why = format!("region `{}` has {} MiB: give a number above 0, up to 2^26", data.name, data.mib);
                return Err(self.source.error(region.span(), why));
            }
            let label = self.builder.label(&data.name);
            let (unit, page_size) = match data.pages {
                RawPages::Small => (1, PageSize::Small),
                RawPages::Large => (SMALL_PER_LARGE, PageSize::Large),
            };
            let pages = ((data.mib * 1_048_576.0 / PAGE_BYTES as f64).ceil() as u64).max(1).div_ceil(unit) * unit;
            for process in self.instances(data.process.as_ref(), region.span())? {
                let at = next.entry(process).or_insert(FIRST_PAGE);
                let name = data.name.clone();
                let region_index =
                    self.builder.region(Region { name: name.clone(), process, first_page: *at, pages, page_size });
                // The next region begins on a new large page, with a gap.
                *at += pages.div_ceil(SMALL_PER_LARGE) * SMALL_PER_LARGE + SMALL_PER_LARGE;
                let place = Place { region: region_index, pages, label };
                if self.places.insert((process, name), place).is_some() {
                    let why = format!("there are two regions `{}` in one process: rename one", data.name);
                    return Err(self.source.error(region.span(), why));
                }
            }
        }
        Ok(())
    }

    /// First touches at the start of the timelines; every thread waits until all are done.
    fn touches(&mut self) -> Result<(), SimulatorError> {
        let mut any = false;
        for region in self.raw.region.iter().filter(|region| region.get_ref().first_touch != RawTouch::Use) {
            self.touch(region)?;
            any = true;
        }
        if any {
            let all: Vec<usize> = (0..self.threads.len()).collect();
            self.barrier(&all, true);
        }
        Ok(())
    }

    fn touch(&mut self, region: &Spanned<RawRegion>) -> Result<(), SimulatorError> {
        let data = region.get_ref();
        let fail = |why: String| self.source.error(region.span(), why);
        let Some(group) = &data.group else {
            return Err(fail(format!(
                "region `{}` does not name the group whose threads touch it first: add `group = \"...\"`",
                data.name
            )));
        };
        let instances =
            self.groups.get(group).ok_or_else(|| fail(format!("there is no group `{group}`: add a [[group]]")))?;
        let mut steps = Vec::new();
        for instance in instances {
            let Some(&place) = self.places.get(&(instance.process, data.name.clone())) else {
                return Err(fail(format!(
                    "group `{group}` is in another process than region `{}`: name a group of the region's process",
                    data.name
                )));
            };
            let count = if data.first_touch == RawTouch::First { 1 } else { instance.threads.len() };
            for (index, &thread) in instance.threads.iter().take(count).enumerate() {
                let (first, pages) = patterns::part(place.pages, index as u64, count as u64);
                steps.push((thread, Slice { region: place.region, first, pages, label: place.label }));
            }
        }
        for (thread, slice) in steps {
            let slice = self.builder.slice(slice);
            self.push(thread, true, Action::Touch { slice, bound: None, anew: false }, 0.0);
        }
        Ok(())
    }

    fn push(&mut self, thread: usize, once: bool, action: Action, lasts_ns: f64) {
        let from_ns = self.clock_ns[thread];
        self.clock_ns[thread] += lasts_ns;
        let step = Step { action, from_ns, to_ns: from_ns + lasts_ns };
        let steps = if once { &mut self.threads[thread].prologue } else { &mut self.threads[thread].body };
        steps.push(step);
    }

    fn barrier(&mut self, threads: &[usize], once: bool) {
        let event = self.builder.event(threads.len() as u32);
        let latest = threads.iter().map(|&thread| self.clock_ns[thread]).fold(0.0, f64::max);
        for &thread in threads {
            self.push(thread, once, Action::Arrive { event }, 0.0);
            self.push(thread, once, Action::Await { event }, latest - self.clock_ns[thread]);
        }
    }

    fn phase(&mut self, phase: &Spanned<RawPhase>) -> Result<(), SimulatorError> {
        let data = phase.get_ref();
        if data.times == 0 || data.times > TIMES_MAX {
            let why =
                format!("phase `{}` runs {} times: give 1 to {TIMES_MAX}, or use `repeat`", data.name, data.times);
            return Err(self.source.error(phase.span(), why));
        }
        let mut plan: Vec<(usize, Work)> = Vec::new();
        for work in &data.work {
            plan.extend(self.work(work)?);
        }
        let mut threads: Vec<usize> = plan.iter().map(|(thread, _)| *thread).collect();
        threads.sort_unstable();
        threads.dedup();
        for _ in 0..data.times {
            for (thread, work) in &plan {
                self.push(*thread, data.once, Action::Work(*work), work.own_ns);
            }
            if data.barrier && threads.len() > 1 {
                self.barrier(&threads, data.once);
            }
        }
        Ok(())
    }

    /// The work of each thread of a group.
    fn work(&mut self, work: &Spanned<RawWork>) -> Result<Vec<(usize, Work)>, SimulatorError> {
        let data = work.get_ref();
        let (own_ns, accesses) = self.amounts(work)?;
        let fail = |why: String| self.source.error(work.span(), why);
        let Some(instances) = self.groups.get(&data.group) else {
            return Err(fail(format!("there is no group `{}`: add a [[group]]", data.group)));
        };
        let mut seats = Vec::new();
        for instance in instances {
            let count = data.threads.map_or(instance.threads.len(), |count| count as usize);
            if count == 0 || count > instance.threads.len() {
                return Err(fail(format!("`threads` must be 1 to {}", instance.threads.len())));
            }
            seats.extend(
                instance.threads[..count].iter().enumerate().map(|(k, &thread)| (instance.process, k, count, thread)),
            );
        }
        let counts = data.instructions_per_ns.is_some();
        if self.instructions.is_some_and(|others| others != counts) {
            return Err(fail(
                "some work gives `instructions_per_ns` and some does not: give it in all work, or in none".into(),
            ));
        }
        self.instructions = Some(counts);
        let mut plan = Vec::with_capacity(seats.len());
        for (process, index, count, thread) in seats {
            let mut parts = Vec::new();
            for on in &data.on {
                parts.extend(self.on(on, process, index as u64, count as u64)?);
            }
            let mix = self.builder.mix(&parts);
            let behaviour = self.builder.behaviour(mix, data.outstanding);
            let draw = unit_of(scramble(thread as u64));
            let factor = 1.0 + data.jitter * (2.0 * draw - 1.0);
            let own_ns = own_ns * factor;
            // Without a figure, a nanosecond of own work stands for a unit of progress.
            let instructions = own_ns * data.instructions_per_ns.unwrap_or(1.0);
            plan.push((thread, Work { behaviour, own_ns, accesses: accesses * factor, instructions }));
        }
        Ok(plan)
    }

    /// Own nanoseconds and accesses of one thread.
    fn amounts(&self, work: &Spanned<RawWork>) -> Result<(f64, f64), SimulatorError> {
        let data = work.get_ref();
        let fail = |why: &str| Err(self.source.error(work.span(), why));
        let positive = |x: Option<f64>| x.is_none_or(|x| x.is_finite() && x > 0.0);
        let numbers = [data.accesses, data.ms, data.accesses_per_us, data.instructions_per_ns, Some(data.outstanding)];
        if !numbers.into_iter().all(positive) || !(0.0..1.0).contains(&data.jitter) {
            return fail("its numbers must be above 0, and `jitter` from 0 to below 1");
        }
        if data.on.is_empty() {
            return match (data.ms, data.accesses, data.accesses_per_us, data.think_ns) {
                (Some(ms), None, None, None) => Ok((ms * 1e6, 0.0)),
                _ => fail(
                    "work without [[phase.work.on]] accesses no memory: give `ms` and no accesses, or add what it accesses",
                ),
            };
        }
        let think_ns = match (data.accesses_per_us, data.think_ns) {
            (Some(rate), None) => 1000.0 / rate,
            (None, Some(ns)) if ns.is_finite() && ns >= 0.0 => ns,
            _ => return fail("give either `accesses_per_us` (at no latency) or `think_ns` (from 0)"),
        };
        match (data.accesses, data.ms) {
            (Some(accesses), None) => Ok((accesses * think_ns, accesses)),
            (None, Some(ms)) if think_ns > 0.0 => Ok((ms * 1e6, ms * 1e6 / think_ns)),
            _ => fail("give either `accesses` or `ms` (with a think time above 0)"),
        }
    }

    fn on(
        &mut self,
        on: &Spanned<RawOn>,
        process: u32,
        index: u64,
        count: u64,
    ) -> Result<Vec<MixPart>, SimulatorError> {
        let data = on.get_ref();
        let fail = |why: String| self.source.error(on.span(), why);
        let Some(&place) = self.places.get(&(process, data.region.clone())) else {
            return Err(fail(format!("there is no region `{}` in the group's process: add a [[region]]", data.region)));
        };
        let (from, to) = (data.from.unwrap_or(0.0), data.to.unwrap_or(1.0));
        let unit = |x: f64| (0.0..=1.0).contains(&x);
        if !(unit(from) && unit(to) && from < to && unit(data.writes) && data.share > 0.0 && data.share.is_finite()) {
            return Err(fail("give 0 <= from < to <= 1, writes of 0 to 1, and a share above 0".into()));
        }
        if (data.pattern == RawPattern::Zipf) != data.exponent.is_some()
            || data.exponent.is_some_and(|e| !(0.0..=8.0).contains(&e))
        {
            return Err(fail("`exponent` (0 to 8) goes with pattern \"zipf\", and only with it".into()));
        }
        if data.shift > 0 && data.pattern != RawPattern::Parts {
            return Err(fail("`shift` goes with pattern \"parts\" only".into()));
        }
        let first = ((place.pages as f64 * from) as u64).min(place.pages - 1);
        let pages = ((place.pages as f64 * to) as u64).saturating_sub(first).max(1);
        let whole = Slice { region: place.region, first, pages, label: place.label };
        if let Some(exponent) = data.exponent {
            return Ok(patterns::zipf(&mut self.builder, whole, data.share, data.writes, exponent));
        }
        let slice = if data.pattern == RawPattern::Parts {
            let (skip, pages) = patterns::part(pages, (index + u64::from(data.shift)) % count, count);
            Slice { first: first + skip, pages, ..whole }
        } else {
            whole
        };
        let slice = self.builder.slice(slice);
        Ok(vec![MixPart { slice, reads: data.share * (1.0 - data.writes), writes: data.share * data.writes }])
    }

    fn finish(mut self) -> Result<Program, SimulatorError> {
        if self.threads.iter().all(|thread| thread.prologue.is_empty() && thread.body.is_empty()) {
            return Err(self.source.error(0..0, "it has no [[phase]] with work: add one"));
        }
        let body_ns = |thread: &Thread| -> f64 { thread.body.iter().map(|step| step.to_ns - step.from_ns).sum() };
        let longest = self.threads.iter().map(body_ns).fold(0.0, f64::max);
        for thread in std::mem::take(&mut self.threads) {
            self.builder.thread(thread);
        }
        let program = self.builder.program_mut();
        program.repeat = self.raw.repeat.as_ref().map_or(1, |repeat| *repeat.get_ref());
        program.body_ns = longest;
        program.counts_instructions = self.instructions == Some(true);
        if program.repeat == 0 {
            let span = self.raw.repeat.as_ref().map_or(0..0, Spanned::span);
            return Err(self.source.error(span, "`repeat` must be at least 1"));
        }
        self.builder.finish()
    }
}
