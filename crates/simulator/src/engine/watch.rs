//! What an observer on a real machine would get from an epoch: samples with their losses and costs, NUMA hinting faults, and copies that a write ended.

use numapilot_machine::NodeIndex;
use numapilot_placement::{HintFault, PageKey, Sample};

use crate::engine::demand::Demand;
use crate::engine::runner::{Epoch, Runners};
use crate::engine::ways::Ways;
use crate::pages::{PageTable, Unit};
use crate::program::Program;
use crate::random::Random;

/// The sampler: one memory access in `period`, at random.
#[derive(Debug)]
pub(crate) struct Sampler {
    random: Random,
    /// Memory accesses per sample until the next decision; 0: off.
    pub(crate) period: f64,
    /// Samples since the last decision, with their times.
    samples: Vec<(f64, Sample)>,
    pub(crate) lost: u64,
    /// For each mix, sums of shares up to each part; made when first needed.
    cumulative: Vec<Vec<f64>>,
}

/// An epoch with what surrounds it.
pub(crate) struct Scene<'a> {
    pub(crate) program: &'a Program,
    pub(crate) pages: &'a mut PageTable,
    pub(crate) ways: &'a mut Ways,
    pub(crate) runners: &'a mut Runners,
    pub(crate) epoch: &'a Epoch,
    pub(crate) begin_ns: f64,
}

impl Sampler {
    pub(crate) fn new(seed: u64, program: &Program) -> Sampler {
        let cumulative = vec![Vec::new(); program.mixes.len()];
        Sampler { random: Random::new(seed), period: 0.0, samples: Vec::new(), lost: 0, cumulative }
    }

    /// Takes this epoch's samples. `most` is how many one CPU can take in it. Each sample costs its thread `cost_ns`; returns how many were
    /// taken and how many lost.
    pub(crate) fn sample(&mut self, scene: &mut Scene<'_>, most: f64, cost_ns: f64) -> (u64, u64) {
        if self.period <= 0.0 {
            return (0, 0);
        }
        let (mut taken, mut lost) = (0, 0);
        let mut on_cpu = vec![0.0; 1 + scene.runners.all.iter().map(|runner| runner.cpu).max().unwrap_or(0)];
        for spent in &scene.epoch.spent {
            let wanted = self.random.poisson(spent.accesses / self.period);
            let runner = &mut scene.runners.all[spent.thread as usize];
            let kept = wanted.min((most - on_cpu[runner.cpu]).max(0.0) as u64);
            on_cpu[runner.cpu] += kept as f64;
            runner.debt_ns += kept as f64 * cost_ns;
            let node = runner.node;
            (0..kept).for_each(|_| self.draw(scene, spent.thread, spent.behaviour, node));
            taken += kept;
            lost += wanted - kept;
        }
        self.lost += lost;
        (taken, lost)
    }

    fn draw(&mut self, scene: &Scene<'_>, thread: u32, behaviour: u32, from: NodeIndex) {
        let mix = scene.program.behaviours[behaviour as usize].mix as usize;
        let parts = &scene.program.mixes[mix].parts;
        let cumulative = &mut self.cumulative[mix];
        if cumulative.is_empty() {
            cumulative.extend(parts.iter().scan(0.0, |sum, part| {
                *sum += part.reads + part.writes;
                Some(*sum)
            }));
        }
        let at = self.random.unit() * cumulative.last().copied().unwrap_or(0.0);
        let part = &parts[cumulative.partition_point(|&sum| sum <= at).min(parts.len() - 1)];
        let slice = scene.program.slices[part.slice as usize];
        let page = slice.first + self.random.below(slice.pages);
        let is_write = self.random.unit() * (part.reads + part.writes) >= part.reads;
        let region = slice.region as usize;
        let Some(home) = scene.pages.home(region, page) else {
            return;
        };
        let unit = scene.pages.unit(region, page);
        let home = match scene.pages.copies(unit) {
            0 => home,
            mask if is_write => scene.pages.nearest_copy(mask & 1 << home.0, from, home),
            mask => scene.pages.nearest_copy(mask, from, home),
        };
        let key = scene.pages.key(unit);
        let time = scene.begin_ns + self.random.unit() * (scene.epoch.end_ns - scene.begin_ns);
        let sample = Sample {
            page: key,
            small_page: key.page + (page - unit.first),
            thread,
            from,
            home,
            is_write,
            latency_ns: Some(scene.ways.path_ns()[from][home] as f32),
        };
        self.samples.push((time, sample));
    }

    /// The samples since the last call, in order of time.
    pub(crate) fn take(&mut self) -> Vec<Sample> {
        self.samples.sort_by(|a, b| a.0.total_cmp(&b.0));
        std::mem::take(&mut self.samples).into_iter().map(|(_, sample)| sample).collect()
    }
}

/// The unmapped pages that threads access in an epoch, with thread and time: with accesses as Poisson processes, the first is made after an exponential time,
/// by each thread in proportion to its rate. Each costs its thread `cost_ns`.
pub(crate) fn hint_faults(scene: &mut Scene<'_>, demand: &Demand, random: &mut Random, cost_ns: f64) -> Vec<HintFault> {
    let elapsed = scene.epoch.end_ns - scene.begin_ns;
    let unmapped: Vec<(Unit, u64)> = scene.pages.unmapped().collect();
    let mut faults = Vec::new();
    for (unit, since_ns) in unmapped {
        let threads = demand.of_unit(unit, scene.pages);
        let mean: f64 = threads.iter().map(|per| per.reads + per.writes).sum();
        let first = random.exponential();
        if mean <= 0.0 || first > mean {
            continue;
        }
        let time_ns = (scene.begin_ns + elapsed * first / mean) as u64;
        let mut draw = random.unit() * mean;
        let chosen = threads.iter().find(|per| {
            draw -= per.reads + per.writes;
            draw < 0.0
        });
        let Some(by) = chosen.or(threads.last()) else {
            continue;
        };
        scene.pages.remap(unit);
        let runner = &mut scene.runners.all[by.thread as usize];
        runner.debt_ns += cost_ns;
        let is_write = random.unit() * (by.reads + by.writes) >= by.reads;
        faults.push(HintFault {
            time_ns,
            page: scene.pages.key(unit),
            thread: by.thread,
            from: runner.node,
            home: scene.pages.home(unit.region, unit.first).unwrap_or(runner.node),
            is_write,
            age_ns: time_ns.saturating_sub(since_ns),
        });
    }
    faults.sort_by_key(|fault| (fault.time_ns, fault.page));
    faults
}

/// Pages whose accessed bit was cleared and that are accessed in an epoch: with accesses as Poisson processes, each with the probability that there is one.
pub(crate) fn accessed(scene: &mut Scene<'_>, demand: &Demand, random: &mut Random) -> Vec<PageKey> {
    let cleared: Vec<Unit> = scene.pages.cleared().collect();
    let mut accessed = Vec::new();
    for unit in cleared {
        let mean = demand.sum_of_unit(unit, scene.pages);
        if mean > 0.0 && random.exponential() <= mean {
            scene.pages.set_accessed(unit);
            accessed.push(scene.pages.key(unit));
        }
    }
    accessed
}

/// Replicated pages that were written to in an epoch: they have one copy again. Each costs its writer `cost_ns`.
pub(crate) fn collapses(
    scene: &mut Scene<'_>,
    demand: &Demand,
    random: &mut Random,
    cost_ns: f64,
) -> Vec<(PageKey, NodeIndex)> {
    let mut ended = Vec::new();
    for (slice, threads) in demand.slices() {
        if scene.pages.counts(slice).copied.is_empty() {
            continue;
        }
        let per_page: f64 = threads.iter().map(|per| per.writes).sum();
        if per_page <= 0.0 {
            continue;
        }
        let slice = scene.program.slices[slice as usize];
        let region = slice.region as usize;
        let copied: Vec<Unit> = scene.pages.copied_in(region, slice.first, slice.first + slice.pages).collect();
        for unit in copied {
            let inside = (unit.first + unit.pages).min(slice.first + slice.pages) - unit.first.max(slice.first);
            if random.exponential() > per_page * inside as f64 {
                continue;
            }
            let mut draw = random.unit() * per_page;
            let writer = threads.iter().find(|per| {
                draw -= per.writes;
                draw < 0.0
            });
            let writer = writer.or(threads.iter().rfind(|per| per.writes > 0.0));
            scene.pages.collapse(unit);
            if let Some(per) = writer {
                scene.runners.all[per.thread as usize].debt_ns += cost_ns;
            }
            ended.push((scene.pages.key(unit), scene.pages.home(region, unit.first).unwrap_or_default()));
        }
    }
    ended
}
