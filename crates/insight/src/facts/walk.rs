//! The walk over the flows of one site, which collects its facts.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{AccessRef, Object, SiteId};
use numapilot_host::PageNumber;
use numapilot_machine::NodeIndex;
use numapilot_trace::ids::ObjectId;

use super::common::process_of;
use super::dominance::ByNode;
use super::lines::{CoherenceMisses, Lines, key};
use super::pages::{HotPage, ProcessPage};
use super::{SiteFacts, Survey};
use crate::estimate::{Estimate, Tally, Weight};
use crate::totals::UNKNOWN_MAX;
use crate::usage::{Cell, FALSE_SHARED, HOT, PARTS, PackedNode, SHARED, Usage, index_of, part_of};

/// Share of the other nodes' accesses at which the opening ends, so that one stray access does not end it.
const BEGUN: f64 = 0.02;
/// Numbers of pages in blocks. Where a page has no other samples, those of the smallest block that has some decide.
const BLOCKS_PAGES: [u64; 3] = [16, 256, 4096];
/// Number of neighbouring samples on each side, whose majority decides which node uses an object at a moment.
const NEIGHBOURS: usize = 2;

/// One sampled access as the walk needs it.
#[derive(Clone, Copy)]
struct Sample {
    access: AccessRef,
    /// The accessing node, and the node that its thread counts on.
    from: NodeIndex,
    seat: NodeIndex,
    home: PackedNode,
    /// The process and page by which the memory is known, as is the access's address ([`CommonMemory::place`](super::common::CommonMemory::place)).
    process: u32,
    page: PageNumber,
    /// The accessing process's page of 4 KiB.
    touched: ProcessPage,
    weight: Weight,
}

#[derive(Default)]
struct Sums {
    opening: Tally,
    after: Tally,
    remote: Tally,
    known: Tally,
    by_allocator: Tally,
    with_allocator: Tally,
    agree: Tally,
    judged: Tally,
    page_agree: Tally,
    writes: Tally,
    on_first: Tally,
    mixed_small: Tally,
    mixed_large: Tally,
    recycled: Tally,
    remote_heap: Tally,
    turns: f64,
    turns_expected: f64,
    turns_samples: u64,
    stretches: u64,
    stretches_ns: f64,
    main: Vec<f64>,
    first_locations: HashMap<u32, f64>,
}

/// Samples by node with each part of the cache lines apart, for a page, a block or an instance.
#[derive(Clone, Default)]
struct Votes(Vec<[f32; PARTS]>);

impl Votes {
    fn add(&mut self, node: NodeIndex, part: u8, count: f32) {
        if node.0 >= self.0.len() {
            self.0.resize(node.0 + 1, [0.0; PARTS]);
        }
        self.0[node][usize::from(part)] += count;
    }

    /// The node with most accesses, by the samples of the other parts.
    fn without(&self, part: u8) -> Option<NodeIndex> {
        let of = |votes: &[f32; PARTS]| votes.iter().sum::<f32>() - votes[usize::from(part)];
        let best = self.0.iter().map(of).enumerate().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))?;
        (best.1 > 0.0).then_some(NodeIndex(best.0))
    }
}

/// What the walk collects.
struct Gathered {
    facts: SiteFacts,
    sums: Sums,
    lines: Lines,
    /// Cells with their weights and lines.
    cells: Vec<(Cell, f64, (u32, u64))>,
}

/// Walks every instance of `site`; the mappings of one memory by several processes are walked together.
pub(super) fn walk(survey: &Survey<'_>, site: SiteId, usage: &mut Usage) -> SiteFacts {
    let trace = survey.analysis.trace();
    let nodes = survey.machine.nodes().len();
    let facts = SiteFacts { site, from: vec![0.0; nodes], on: vec![Tally::default(); nodes], ..SiteFacts::default() };
    let sums = Sums { main: vec![0.0; nodes], ..Sums::default() };
    let mut gathered = Gathered { facts, sums, lines: Lines::new(), cells: Vec::new() };
    let mut mapped: BTreeMap<ObjectId, (u64, Vec<Sample>)> = BTreeMap::new();
    let mut allocated_bytes = 0_u64;
    for &object in survey.objects_of(site) {
        allocated_bytes = allocated_bytes.saturating_add(object.bytes);
        let samples = samples(survey, object);
        if samples.is_empty() {
            continue;
        }
        gathered.facts.instances += 1;
        if let Some(first) = survey.pages.common.first_mapping(object.id) {
            let (bytes, of_all) = mapped.entry(first).or_default();
            *bytes = object.bytes.max(*bytes);
            of_all.extend(samples);
        } else {
            gathered.facts.bytes = gathered.facts.bytes.saturating_add(object.bytes);
            instance(survey, Some(object), &samples, usage, &mut gathered);
        }
    }
    for (bytes, mut samples) in mapped.into_values() {
        samples.sort_by_key(|sample| sample.access.time);
        gathered.facts.bytes = gathered.facts.bytes.saturating_add(bytes);
        instance(survey, None, &samples, usage, &mut gathered);
    }
    let Gathered { mut facts, sums, lines, cells } = gathered;
    let peak_bytes = trace.site(site).map_or(allocated_bytes, |_| trace.site_size(site).peak_live_bytes);
    facts.live_bytes = facts.bytes.min(peak_bytes);
    let (false_lines, share) = lines.judge(&facts.all);
    facts.on_false_shared = share;
    let mut misses = CoherenceMisses::new(false_lines, trace.line_sampling());
    let mut refined: HashMap<Cell, f64> = HashMap::new();
    for (cell, count, line) in cells {
        let node = usage.rows[cell.row as usize].from;
        let coherence = misses.among(line, node, cell.flags & SHARED != 0, count);
        if coherence > 0.0 {
            *refined.entry(Cell { flags: cell.flags | FALSE_SHARED, ..cell }).or_default() += coherence;
        }
        if coherence < count {
            *refined.entry(cell).or_default() += count - coherence;
        }
    }
    usage.refine(&refined);
    finish(survey, sums, &mut facts);
    hot_pages(survey, &mut facts);
    facts
}

/// What the samples of one instance say, in order of time. Without `object` they are of all mappings of one memory, so nobody allocated it.
fn instance(
    survey: &Survey<'_>,
    object: Option<&Object>,
    samples: &[Sample],
    usage: &mut Usage,
    gathered: &mut Gathered,
) {
    let Gathered { facts, sums, lines, cells } = gathered;
    facts.samples += samples.len() as u64;
    let opened = opening(samples);
    whole(survey, object, samples, opened, facts, sums);
    after(&samples[opened..], facts, sums);
    for (index, sample) in samples.iter().enumerate() {
        // A line that is only filled before it is shared stays in all caches.
        let is_write = sample.access.is_write && index >= opened;
        lines.add(sample.process, sample.access.address.0, sample.seat, is_write, sample.weight);
    }
    refine(survey, (samples, opened), usage, cells, sums);
}

fn samples(survey: &Survey<'_>, object: &Object) -> Vec<Sample> {
    let trace = survey.analysis.trace();
    let sample = |mut access: AccessRef| {
        let from = index_of(survey.machine, access.node)?;
        let touched = (process_of(trace, &access), access.address.page());
        let (process, address) = survey.pages.common.place(trace, &access);
        access.address = address;
        Some(Sample {
            access,
            from,
            seat: survey.seats[access.thread.0 as usize].unwrap_or(from),
            home: index_of(survey.machine, access.home).into(),
            process,
            page: survey.pages.sizes.base_of(address.page()),
            touched,
            weight: Weight::from(&access),
        })
    };
    trace.oef(object.id).filter(AccessRef::is_memory_access).filter_map(sample).collect()
}

/// Number of samples in the opening: those before nodes other than the first one begin to access; all of them where no other node does.
fn opening(samples: &[Sample]) -> usize {
    let first = samples[0].seat;
    let others = samples.iter().filter(|sample| sample.seat != first).count() as f64;
    let mut seen = 0.0;
    for (index, sample) in samples.iter().enumerate() {
        seen += f64::from(u8::from(sample.seat != first));
        if seen > BEGUN * others {
            return index;
        }
    }
    samples.len()
}

fn whole(
    survey: &Survey<'_>,
    object: Option<&Object>,
    samples: &[Sample],
    opened: usize,
    facts: &mut SiteFacts,
    sums: &mut Sums,
) {
    let allocator = object.and_then(|object| {
        let moved = survey.seats[object.thread?.0 as usize];
        moved.or_else(|| index_of(survey.machine, object.node))
    });
    let birth = object.map_or(0, |object| object.birth.0);
    let first = samples[0].seat;
    for (index, sample) in samples.iter().enumerate() {
        facts.all.add(sample.weight);
        let count = f64::from(sample.access.weight);
        if index < opened {
            sums.opening.add(sample.weight);
            if sample.access.is_write {
                *sums.first_locations.entry(sample.access.location.0).or_default() += count;
            }
        }
        if let Some(allocator) = allocator {
            sums.with_allocator.add(sample.weight);
            if allocator == sample.seat {
                sums.by_allocator.add(sample.weight);
            }
        }
        let Some(home) = sample.home.index() else { continue };
        facts.on[home].add(sample.weight);
        sums.known.add(sample.weight);
        if home == first {
            sums.on_first.add(sample.weight);
        }
        let page: ProcessPage = (sample.process, sample.page);
        match survey.pages.mixed(page) {
            (true, _) => sums.mixed_small.add(sample.weight),
            (_, true) => sums.mixed_large.add(sample.weight),
            _ => {}
        }
        if home != sample.seat {
            sums.remote.add(sample.weight);
            sums.remote_heap.add(sample.weight);
            if survey.pages.was_used_by(page, home, birth) {
                sums.recycled.add(sample.weight);
            }
        }
    }
}

/// Who uses it when several do: at once or in turn, reading or writing.
fn after(samples: &[Sample], facts: &mut SiteFacts, sums: &mut Sums) {
    let mut by_node = ByNode::default();
    for sample in samples {
        by_node.add(sample.seat, sample.weight);
        facts.from[sample.seat] += f64::from(sample.access.weight);
        sums.after.add(sample.weight);
        if sample.access.is_write {
            sums.writes.add(sample.weight);
            facts.write_samples += 1;
        }
    }
    facts.after_samples += samples.len() as u64;
    by_node.judge(&mut sums.agree, &mut sums.judged);
    let weight: f64 = by_node.weight.iter().map(|tally| tally.weight).sum();
    if let Some(main) = by_node.main() {
        sums.main[main] += weight;
    }
    if samples.len() < 2 {
        return;
    }
    let all = samples.len() as f64;
    let squares: f64 = by_node.samples.iter().map(|&count| (f64::from(count) / all).powi(2)).sum();
    sums.turns += samples.windows(2).filter(|pair| pair[0].seat != pair[1].seat).count() as f64;
    sums.turns_expected += (all - 1.0) * (1.0 - squares);
    sums.turns_samples += samples.len() as u64;
    let users: Vec<NodeIndex> = (0..samples.len()).map(|index| user_at(samples, index)).collect();
    sums.stretches += 1 + users.windows(2).filter(|pair| pair[0] != pair[1]).count() as u64;
    let ends = (samples[0].access.time.0, samples[samples.len() - 1].access.time.0);
    sums.stretches_ns += (ends.1 - ends.0) as f64;
}

/// The node that uses the object around a sample: the majority of its neighbours, itself included.
fn user_at(samples: &[Sample], index: usize) -> NodeIndex {
    let near = &samples[index.saturating_sub(NEIGHBOURS)..(index + NEIGHBOURS + 1).min(samples.len())];
    let count = |node: NodeIndex| near.iter().filter(|sample| sample.seat == node).count();
    near.iter().map(|sample| (count(sample.seat), sample.seat)).max().map_or(samples[index].seat, |(_, node)| node)
}

/// The cells of an instance, with what its pages' users and its own say.
fn refine(
    survey: &Survey<'_>,
    (samples, opened): (&[Sample], usize),
    usage: &mut Usage,
    cells: &mut Vec<(Cell, f64, (u32, u64))>,
    sums: &mut Sums,
) {
    let mut pages: HashMap<ProcessPage, Votes> = HashMap::new();
    let mut blocks: HashMap<(u32, u64, u64), Votes> = HashMap::new();
    let mut instance = Votes::default();
    let numbers = || samples.iter().map(|sample| sample.page.0);
    let span = numbers().max().unwrap_or(0) - numbers().min().unwrap_or(0);
    // A block as large as the instance says what the instance does.
    let sizes = BLOCKS_PAGES.iter().filter(|&&size| size == BLOCKS_PAGES[0] || size <= span).count();
    let sizes = &BLOCKS_PAGES[..sizes];
    let block_of = |sample: &Sample, size: u64| (sample.process, size, sample.page.0 / size);
    let from = if opened < samples.len() { opened } else { 0 };
    for sample in &samples[from..] {
        let (part, count) = (part_of(&sample.access), sample.access.weight as f32);
        pages.entry((sample.process, sample.page)).or_default().add(sample.seat, part, count);
        for &size in sizes {
            blocks.entry(block_of(sample, size)).or_default().add(sample.seat, part, count);
        }
        instance.add(sample.seat, part, count);
    }
    for (index, sample) in samples.iter().enumerate() {
        let part = part_of(&sample.access);
        let voted = |votes: Option<&Votes>| votes.and_then(|votes| votes.without(part));
        let user = voted(pages.get(&(sample.process, sample.page)))
            .or_else(|| sizes.iter().find_map(|&size| voted(blocks.get(&block_of(sample, size)))))
            .or_else(|| instance.without(part));
        if index >= opened && user == Some(sample.seat) {
            sums.page_agree.add(sample.weight);
        }
        let row = usage.row(&sample.access, sample.from);
        let mut cell = usage.cell(survey.analysis, survey.machine, &sample.access, row);
        let by_touch = survey.by_touch.groups.contains(&cell.group);
        // Another process may have touched common memory first.
        let known = (sample.process, sample.access.address.page());
        let touchers = &survey.by_touch.touchers;
        let toucher = || touchers.get(&sample.touched).or_else(|| touchers.get(&known)).copied();
        cell.users = if by_touch { toucher() } else { user }.map_or(sample.home, PackedNode::from);
        cell.owner = if index >= opened { user_at(&samples[opened..], index - opened).into() } else { sample.home };
        cell.flags |= if index >= opened { SHARED } else { 0 };
        cell.flags |= if survey.hot.contains(&(sample.process, sample.page)) { HOT } else { 0 };
        cells.push((cell, f64::from(sample.access.weight), key(sample.process, sample.access.address.0)));
    }
}

fn finish(survey: &Survey<'_>, sums: Sums, facts: &mut SiteFacts) {
    facts.remote = sums.remote.share_of(&sums.known);
    let known_allocators = sums.with_allocator.weight >= (1.0 - UNKNOWN_MAX) * facts.all.weight;
    let is_known = sums.with_allocator.samples > 0 && known_allocators;
    facts.by_allocator = is_known.then(|| sums.by_allocator.share_of(&sums.with_allocator));
    facts.opening = sums.opening.share_of(&facts.all);
    facts.by_one_node = sums.agree.share_of(&sums.judged);
    facts.by_page_user = sums.page_agree.share_of(&sums.after);
    facts.writes = sums.writes.share_of(&sums.after);
    facts.on_first_users = sums.on_first.share_of(&sums.known);
    facts.on_mixed_small = sums.mixed_small.share_of(&sums.known);
    facts.on_mixed_large = sums.mixed_large.share_of(&sums.known);
    facts.recycled = sums.recycled.share_of(&sums.remote_heap);
    facts.stretches = sums.stretches;
    facts.stretch_ns = sums.stretches_ns / sums.stretches.max(1) as f64;
    facts.turns = turns(&sums);
    let all: f64 = sums.main.iter().sum();
    let main = NodeIndex::all(sums.main.len()).max_by(|&a, &b| sums.main[a].total_cmp(&sums.main[b]).then(b.cmp(&a)));
    facts.main_node = main.filter(|_| all > 0.0);
    facts.main_node_share = main.filter(|_| all > 0.0).map_or(0.0, |node| sums.main[node] / all);
    let trace = survey.analysis.trace();
    let first = sums.first_locations.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
    let location = first.map(|(&location, _)| trace.location(numapilot_flows::LocationId(location)));
    facts.first_function = location.and_then(|l| l.frames.last()).map_or_else(String::new, |f| f.function.to_string());
}

/// Observed over expected changes of node, with the interval of a count.
fn turns(sums: &Sums) -> Estimate {
    if sums.turns_expected <= 0.0 {
        return Estimate { value: 0.0, low: 0.0, high: 1.0 };
    }
    let half = 1.96 * sums.turns.max(1.0).sqrt();
    let of = |count: f64| (count / sums.turns_expected).max(0.0);
    Estimate { value: of(sums.turns), low: of(sums.turns - half), high: of(sums.turns + half) }
}

/// The hot pages of which most accesses are the site's.
fn hot_pages(survey: &Survey<'_>, facts: &mut SiteFacts) {
    let mut own: HashMap<ProcessPage, f64> = survey.hot.iter().map(|page| (*page, 0.0)).collect();
    if own.is_empty() {
        return;
    }
    for &object in survey.objects_of(facts.site) {
        for sample in samples(survey, object) {
            if let Some(weight) = own.get_mut(&(sample.process, sample.page)) {
                *weight += f64::from(sample.access.weight);
            }
        }
    }
    for (page, own) in own {
        let used = &survey.pages.small[&page];
        // Most of the page's accesses must be this site's.
        if own > 0.5 * used.all.weight {
            facts.hot.push(HotPage { page, share: used.all.share_of(survey.all), nodes: used.users() });
        }
    }
    facts.hot.sort_by(|a, b| b.share.value.total_cmp(&a.share.value).then(a.page.cmp(&b.page)));
}
