//! Rows: one per sample, or samples with equal key summed up.

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::AccessRef;
use numapilot_machine::NodeId;
use numapilot_trace::ids::TimeNs;

use super::keep::{Level, Ranks};
use super::rows::{Alone, CodeKey, Folded, NONE, ObjectKey, Rows};
use crate::context::Analysis;
use crate::detail::PAGE_BYTES;
use crate::estimate::Tally;

/// What a row is about; rows with equal keys are summed up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    object: u32,
    code: u32,
    thread: u32,
    bin: u32,
    from: Position,
    home: Position,
    flags: u8,
}

/// A node's position in [`Analysis::nodes`], or none, in two bytes: keys are hashed and sorted by the million.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Position(u16);

impl Position {
    fn of(analysis: &Analysis<'_>, node: Option<NodeId>) -> Position {
        let position = node.and_then(|node| analysis.node_position(node));
        Position(position.map_or(u16::MAX, |position| position as u16))
    }

    /// The value in columns: the position, or [`NONE`].
    fn column(self) -> u32 {
        if self.0 == u16::MAX { NONE } else { u32::from(self.0) }
    }
}

/// Maps accesses to keys at one level, numbering objects and code as they come.
pub(super) struct Fold<'a> {
    analysis: &'a Analysis<'a>,
    level: Level,
    ranks: &'a Ranks,
    bin_ns: u64,
    start_ns: u64,
    alone: Alone,
    objects: Numbers<ObjectKey>,
    codes: Numbers<CodeKey>,
    /// Number of an instance, or of what it is folded into, once asked for.
    of_instance: Vec<u32>,
    all: f64,
    folded: Folded,
}

/// Numbers values in the order in which they come.
struct Numbers<T> {
    of: HashMap<T, u32>,
    values: Vec<T>,
}

impl<T: Copy + Eq + std::hash::Hash> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers { of: HashMap::new(), values: Vec::new() }
    }

    fn number(&mut self, value: T) -> u32 {
        *self.of.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.values.len() as u32 - 1
        })
    }
}

impl<'a> Fold<'a> {
    pub fn new(analysis: &'a Analysis<'a>, level: Level, ranks: &'a Ranks, bin_ns: u64) -> Fold<'a> {
        Fold {
            analysis,
            level,
            ranks,
            bin_ns,
            start_ns: analysis.start_ns(),
            alone: Alone::new(analysis),
            objects: Numbers::new(),
            codes: Numbers::new(),
            of_instance: vec![NONE; analysis.trace.objects().len()],
            all: 0.0,
            folded: Folded::default(),
        }
    }

    fn key(&mut self, access: &AccessRef) -> Key {
        let weight = f64::from(access.weight.max(1));
        self.all += weight;
        let (from, home) = (Position::of(self.analysis, access.node), Position::of(self.analysis, access.home));
        let bin = (access.time.0.saturating_sub(self.start_ns) / self.bin_ns).min(u64::from(self.level.time_bins) - 1);
        Key {
            object: self.object(access, weight),
            code: self.code(access, weight),
            thread: self.thread(access, weight),
            bin: bin as u32,
            from,
            home,
            flags: self.alone.flags(access),
        }
    }

    fn object(&mut self, access: &AccessRef, weight: f64) -> u32 {
        let Some(id) = access.object.filter(|id| (id.0 as usize) < self.of_instance.len()) else {
            return self.objects.number(ObjectKey::Unknown);
        };
        let is_kept = self.ranks.instances[id.0 as usize] < self.level.instances;
        if !is_kept {
            self.folded.objects += weight;
        }
        let known = self.of_instance[id.0 as usize];
        if known != NONE {
            return known;
        }
        let site = self.analysis.trace.object(id).map(|object| object.site).unwrap_or_default();
        let site_rank = self.ranks.sites.get(site.0 as usize).copied().unwrap_or(u32::MAX);
        let number = self.objects.number(if is_kept {
            ObjectKey::Instance(id)
        } else if site_rank < self.level.sites {
            ObjectKey::RestOfSite(site)
        } else {
            ObjectKey::Others
        });
        self.of_instance[id.0 as usize] = number;
        number
    }

    fn code(&mut self, access: &AccessRef, weight: f64) -> u32 {
        let key = (access.location, access.stack);
        if self.ranks.stacks.get(&key).is_some_and(|&rank| rank < self.level.stacks) {
            return self.codes.number(CodeKey::Stack(access.location, access.stack));
        }
        self.folded.stacks += weight;
        let rank = self.ranks.locations.get(access.location.0 as usize).copied().unwrap_or(u32::MAX);
        let is_kept = rank < self.level.stacks;
        self.codes.number(if is_kept { CodeKey::RestOfLocation(access.location) } else { CodeKey::Others })
    }

    fn thread(&mut self, access: &AccessRef, weight: f64) -> u32 {
        let rank = self.ranks.threads.get(access.thread.0 as usize).copied().unwrap_or(u32::MAX);
        if rank < self.level.threads {
            return access.thread.0;
        }
        self.folded.threads += weight;
        NONE
    }

    /// Meanings of the numbers given out.
    pub fn keys(self) -> (Vec<ObjectKey>, Vec<CodeKey>) {
        (self.objects.values, self.codes.values)
    }
}

/// The cube's rows where these are samples: one for each sampled access.
pub(super) fn samples(analysis: &Analysis<'_>, fold: &mut Fold<'_>) -> Rows {
    let mut rows = Rows::default();
    for access in analysis.accesses() {
        let key = fold.key(&access);
        let mut tally = Tally::default();
        tally.add(access);
        let object = access.object.and_then(|id| analysis.trace.object(id));
        let offset = object.map(|object| access.address.0.saturating_sub(object.address.0) / PAGE_BYTES);
        rows.push(&key, access.time, &tally);
        rows.page.push(offset.and_then(|page| u32::try_from(page).ok()).unwrap_or(NONE));
        rows.latency_cycles.push(access.latency_cycles.unwrap_or(NONE));
    }
    if rows.latency_cycles.iter().all(|&latency| latency == NONE) {
        rows.latency_cycles.clear();
    }
    rows
}

impl Rows {
    fn push(&mut self, key: &Key, time: TimeNs, tally: &Tally) {
        self.time.push(time);
        self.thread.push(key.thread);
        self.object.push(key.object);
        self.code.push(key.code);
        self.from.push(key.from.column());
        self.home.push(key.home.column());
        self.flags.push(key.flags);
        self.samples.push(u32::try_from(tally.samples).unwrap_or(u32::MAX));
        self.weight.push(tally.weight);
        self.variance.push(tally.variance);
    }
}

/// Cells with the meaning of their keys.
pub(super) struct Cells {
    pub rows: Rows,
    pub objects: Vec<ObjectKey>,
    pub codes: Vec<CodeKey>,
    pub folded: Folded,
}

/// The finest level of the ladder whose cells fit the budget (or its last one), with the cells.
pub(super) fn fitting(analysis: &Analysis<'_>, ranks: &Ranks, budget: usize) -> (Level, Cells) {
    let (last, finer) = Level::LADDER.split_last().expect("the ladder has levels");
    for level in finer {
        if let Some(cells) = at_level(analysis, ranks, *level, budget) {
            return (*level, cells);
        }
    }
    let cells = at_level(analysis, ranks, *last, usize::MAX).expect("no budget is exceeded");
    (*last, cells)
}

/// Cells at one level; `None` as soon as they are, or look like becoming, too many. Rows come in order of time, so that cells grow with them: a level
/// that has twice its part of the budget at a 32nd (a 16th, and so on) of the rows is not worth finishing.
fn at_level(analysis: &Analysis<'_>, ranks: &Ranks, level: Level, budget: usize) -> Option<Cells> {
    let bin_ns = level.bin_ns(analysis);
    let mut fold = Fold::new(analysis, level, ranks, bin_ns);
    let mut sums: HashMap<Key, Tally> = HashMap::new();
    let all = ranks.samples.max(1);
    let mut next_look = all / 32;
    for (row, access) in (0u64..).zip(analysis.accesses()) {
        let key = fold.key(&access);
        sums.entry(key).or_default().add(access);
        if row == next_look {
            let expected = sums.len() as f64 * all as f64 / row.max(1) as f64;
            if row > 0 && expected > 2.0 * budget as f64 {
                return None;
            }
            next_look *= 2;
        }
        if sums.len() > budget {
            return None;
        }
    }
    let mut cells: Vec<(Key, Tally)> = sums.into_iter().collect();
    // Neighbours that share most of their key pack well, and results do not depend on hashing.
    cells.sort_unstable_by_key(|cell| cell.0);
    let mut rows = Rows::default();
    for (key, tally) in &cells {
        rows.push(key, TimeNs(fold.start_ns + u64::from(key.bin) * bin_ns), tally);
    }
    let share = |weight: f64| if fold.all > 0.0 { weight / fold.all } else { 0.0 };
    let folded = Folded {
        objects: share(fold.folded.objects),
        stacks: share(fold.folded.stacks),
        threads: share(fold.folded.threads),
    };
    let (objects, codes) = fold.keys();
    Some(Cells { rows, objects, codes, folded })
}
