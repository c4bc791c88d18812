//! Rankings: sites, object instances, threads, functions and call stacks, each by the accesses they draw.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use numapilot_flows::{AccessRef, SiteId};
use numapilot_machine::{CpuId, NodeId};
use numapilot_trace::ids::{ObjectId, ProcessIndex, StackId, ThreadIndex, TimeNs};
use serde::Serialize;

use crate::context::{AllSums, Analysis};
use crate::decision::{Accumulator, DecisionRow, RowKey};
use crate::estimate::{Estimate, Tally};

/// A thread and what it reaches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadRow {
    /// Index of the thread in the trace.
    pub thread: ThreadIndex,
    /// Index of its process in the trace.
    pub process: ProcessIndex,
    /// Thread id of the kernel.
    pub tid: u32,
    /// Name of the thread; empty where unknown.
    pub name: String,
    /// Function it began in, or empty.
    pub start_function: String,
    /// CPU on which it started; `None` where unknown.
    pub cpu: Option<CpuId>,
    /// Node of that CPU; `None` where unknown.
    pub node: Option<NodeId>,
    /// Program time of its start.
    pub start: TimeNs,
    /// Program time of its end, if seen.
    pub end: Option<TimeNs>,
    /// Number of samples.
    pub samples: u64,
    /// Memory accesses; exact where they were counted and no filter is set.
    pub accesses: Estimate,
    /// Share of all memory accesses.
    pub share: Estimate,
    /// Of its accesses, the share that is remote.
    pub remote: Estimate,
    /// Of its accesses, the share served by each node.
    pub on_node: Vec<Estimate>,
    /// Of its accesses, the share that writes.
    pub writes: Estimate,
    /// Cycles of program time spent waiting for other threads, where counted.
    pub wait_cycles: Option<u64>,
    /// The site that it reaches most.
    pub top_site: Option<SiteId>,
}

/// A function, by its own accesses (inlined ones count for the inlined function).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionRow {
    /// Demangled name of the function.
    pub function: String,
    /// Path of the binary.
    pub module: String,
    /// Source file, or empty.
    pub file: String,
    /// Line with most accesses, or 0.
    pub line: u32,
    /// Number of samples.
    pub samples: u64,
    /// Number of memory accesses.
    pub accesses: Estimate,
    /// Share of all memory accesses.
    pub share: Estimate,
    /// Of its accesses, the share that is remote.
    pub remote: Estimate,
    /// Of its accesses, the share that writes.
    pub writes: Estimate,
    /// The site that it reaches most.
    pub top_site: Option<SiteId>,
}

/// A call stack, by the accesses made under it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StackRow {
    /// Stack; its frames are `trace.stack(id)`.
    pub stack: StackId,
    /// Number of samples.
    pub samples: u64,
    /// Number of memory accesses.
    pub accesses: Estimate,
    /// Share of all memory accesses.
    pub share: Estimate,
    /// Of its accesses, the share that is remote.
    pub remote: Estimate,
    /// The site that it reaches most.
    pub top_site: Option<SiteId>,
}

/// Function, binary, source file.
type FunctionKey = (Arc<str>, Arc<str>, Arc<str>);

#[derive(Clone, Debug, Default)]
struct Sums {
    accesses: AllSums,
    home: Vec<Tally>,
    sites: HashMap<Option<SiteId>, f64>,
    lines: HashMap<u32, f64>,
}

impl Sums {
    fn add(&mut self, analysis: &Analysis<'_>, access: &AccessRef, site: Option<SiteId>) {
        self.accesses.add(access);
        self.home.resize(analysis.nodes.len(), Tally::default());
        if let Some(home) = access.home.and_then(|node| analysis.node_position(node)) {
            self.home[home].add(access);
        }
        *self.sites.entry(site).or_default() += f64::from(access.weight);
    }

    fn top_site(&self) -> Option<SiteId> {
        most(&self.sites).flatten()
    }

    fn on_node(&self) -> Vec<Estimate> {
        let mut served = Tally::default();
        self.home.iter().for_each(|tally| served.merge(tally));
        self.home.iter().map(|tally| tally.share_of(&served)).collect()
    }
}

/// Key with the greatest sum; the smallest key among equals, so that results do not depend on hashing.
fn most<K: Ord + Copy>(sums: &HashMap<K, f64>) -> Option<K> {
    sums.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0))).map(|(&key, _)| key)
}

impl Analysis<'_> {
    /// Sites by object, dense: whole objects would come from memory for every access.
    fn sites_of_objects(&self) -> Vec<SiteId> {
        self.trace.objects().iter().map(|object| object.site).collect()
    }

    /// One row per site, most accesses first; instances of one site together. The last key may be [`RowKey::Unknown`].
    #[must_use]
    pub fn sites(&self) -> Vec<DecisionRow> {
        let mut sums = AllSums::default();
        let mut groups: HashMap<RowKey, Accumulator> = HashMap::new();
        let mut instances: Vec<Instance> = vec![Instance::Unseen; self.trace.objects().len()];
        for access in self.accesses() {
            sums.add(&access);
            let object = access.object.and_then(|id| self.trace.object(id));
            let key = object.map_or(RowKey::Unknown, |object| RowKey::Site(object.site));
            let group = groups.entry(key).or_insert_with(|| Accumulator::new(self.nodes.len()));
            let alone = match object {
                None => false,
                Some(object) => {
                    let state = &mut instances[object.id.0 as usize];
                    if *state == Instance::Unseen {
                        group.begin_instance(Some(object), &access);
                        *state = Instance::Private;
                    }
                    if object.thread != Some(access.thread) {
                        *state = Instance::Shared;
                    }
                    *state == Instance::Private
                }
            };
            group.add(self, object, &access, alone);
        }
        self.ranked(groups.into_iter().collect(), &sums)
    }

    /// One row per object instance, most accesses first, at most `limit`; `site` keeps to the instances of one site.
    #[must_use]
    pub fn objects(&self, site: Option<SiteId>, limit: usize) -> Vec<DecisionRow> {
        let mut sums = AllSums::default();
        let mut weights = vec![0u64; self.trace.objects().len()];
        for access in self.accesses() {
            sums.add(&access);
            if let Some(weight) = access.object.and_then(|object| weights.get_mut(object.0 as usize)) {
                *weight += u64::from(access.weight);
            }
        }
        let mut ids: Vec<usize> = (0..weights.len())
            .filter(|&id| weights[id] > 0 && site.is_none_or(|site| self.trace.objects()[id].site == site))
            .collect();
        ids.sort_by_key(|&id| (std::cmp::Reverse(weights[id]), id));
        ids.truncate(limit);
        let rows = ids.into_iter().map(|id| {
            let id = ObjectId(id as u32);
            (RowKey::Object(id), self.accumulate_instance(id))
        });
        self.ranked(rows.collect(), &sums)
    }

    /// The row of one instance; `None` for an unknown id. Shares of all are taken over what the filter lets pass.
    #[must_use]
    pub fn object(&self, id: ObjectId) -> Option<DecisionRow> {
        self.trace.object(id)?;
        let sums = self.sum();
        Some(self.accumulate_instance(id).row(self, RowKey::Object(id), &sums, self.counted_total()))
    }

    fn accumulate_instance(&self, id: ObjectId) -> Accumulator {
        let mut sums = Accumulator::new(self.nodes.len());
        let object = self.trace.object(id);
        let mut alone = true;
        let mut begun = false;
        for access in self.accesses_to(id) {
            if !begun {
                sums.begin_instance(object, &access);
                begun = true;
            }
            alone &= object.and_then(|object| object.thread) == Some(access.thread);
            sums.add(self, object, &access, alone);
        }
        sums
    }

    fn ranked(&self, mut groups: Vec<(RowKey, Accumulator)>, sums: &AllSums) -> Vec<DecisionRow> {
        groups.sort_by(|a, b| b.1.weight().total_cmp(&a.1.weight()).then(a.0.cmp(&b.0)));
        let total = self.counted_total();
        groups.iter().map(|(key, group)| group.row(self, *key, sums, total)).collect()
    }

    /// One row per thread, in order of creation; threads without samples included.
    #[must_use]
    pub fn threads(&self) -> Vec<ThreadRow> {
        let sites = self.sites_of_objects();
        let mut sums: Vec<Sums> = vec![Sums::default(); self.trace.threads().len()];
        let mut all = Tally::default();
        for access in self.accesses() {
            all.add(access);
            let site = access.object.and_then(|object| sites.get(object.0 as usize)).copied();
            if let Some(thread) = sums.get_mut(access.thread.0 as usize) {
                thread.add(self, &access, site);
            }
        }
        let counted_total = self.counted_total();
        let rows = self.trace.threads().iter().zip(&sums);
        rows.map(|(thread, sums)| self.thread_row(thread, sums, &all, counted_total)).collect()
    }

    fn thread_row(
        &self,
        thread: &numapilot_flows::Thread,
        sums: &Sums,
        all: &Tally,
        counted_total: Option<f64>,
    ) -> ThreadRow {
        let counters = thread.counters.as_ref().filter(|_| counted_total.is_some());
        let accesses = counters.map(|counters| counters.memory_accesses as f64);
        ThreadRow {
            thread: thread.index,
            process: thread.process,
            tid: thread.tid.0,
            name: thread.name.to_string(),
            start_function: thread.start_function.to_string(),
            cpu: thread.cpu,
            node: thread.node,
            start: thread.start,
            end: thread.end,
            samples: sums.accesses.all.samples,
            accesses: accesses.map_or_else(|| sums.accesses.all.total(), Estimate::exact),
            share: match (accesses, counted_total) {
                (Some(accesses), Some(total)) if total > 0.0 => Estimate::exact(accesses / total),
                _ => sums.accesses.all.share_of(all),
            },
            remote: sums.accesses.remote.share_of(&sums.accesses.known),
            on_node: sums.on_node(),
            writes: sums.accesses.writes.share_of(&sums.accesses.all),
            wait_cycles: counters.map(|counters| counters.wait_cycles),
            top_site: sums.top_site(),
        }
    }

    /// One row per function that accesses memory itself, most accesses first.
    #[must_use]
    pub fn functions(&self) -> Vec<FunctionRow> {
        let sites = self.sites_of_objects();
        let mut keys: HashMap<FunctionKey, usize> = HashMap::new();
        let mut groups: Vec<Sums> = Vec::new();
        let mut of_location: Vec<Option<usize>> = vec![None; self.trace.locations().len()];
        let mut all = Tally::default();
        for access in self.accesses() {
            all.add(access);
            let location = self.trace.location(access.location);
            let known = of_location.get(access.location.0 as usize).copied().flatten();
            let group = known.unwrap_or_else(|| {
                let frame = location.frames.first().cloned().unwrap_or_default();
                *keys.entry((frame.function, location.module.clone(), frame.file)).or_insert_with(|| {
                    groups.push(Sums::default());
                    groups.len() - 1
                })
            });
            if let Some(cached) = of_location.get_mut(access.location.0 as usize) {
                *cached = Some(group);
            }
            let site = access.object.and_then(|object| sites.get(object.0 as usize)).copied();
            groups[group].add(self, &access, site);
            let line = location.frames.first().map_or(0, |frame| frame.line);
            *groups[group].lines.entry(line).or_default() += f64::from(access.weight);
        }
        let total = self.counted_total();
        let mut rows: Vec<FunctionRow> = keys
            .into_iter()
            .map(|((function, module, file), group)| {
                let sums = &groups[group];
                let share = sums.accesses.all.share_of(&all);
                FunctionRow {
                    function: if function.is_empty() { "(unknown)".to_owned() } else { function.to_string() },
                    module: module.to_string(),
                    file: file.to_string(),
                    line: most(&sums.lines).unwrap_or(0),
                    samples: sums.accesses.all.samples,
                    accesses: total.map_or_else(|| sums.accesses.all.total(), |total| share.scaled(total)),
                    share,
                    remote: sums.accesses.remote.share_of(&sums.accesses.known),
                    writes: sums.accesses.writes.share_of(&sums.accesses.all),
                    top_site: sums.top_site(),
                }
            })
            .collect();
        rows.sort_by(|a, b| {
            b.share.value.total_cmp(&a.share.value).then_with(|| (&a.function, &a.file).cmp(&(&b.function, &b.file)))
        });
        rows
    }

    /// One row per call stack, most accesses first.
    #[must_use]
    pub fn stacks(&self) -> Vec<StackRow> {
        let sites = self.sites_of_objects();
        let mut groups: HashMap<StackId, Sums> = HashMap::new();
        let mut all = Tally::default();
        for access in self.accesses() {
            all.add(access);
            let site = access.object.and_then(|object| sites.get(object.0 as usize)).copied();
            groups.entry(access.stack).or_default().add(self, &access, site);
        }
        let total = self.counted_total();
        let mut rows: Vec<StackRow> = groups
            .into_iter()
            .map(|(stack, sums)| {
                let share = sums.accesses.all.share_of(&all);
                StackRow {
                    stack,
                    samples: sums.accesses.all.samples,
                    accesses: total.map_or_else(|| sums.accesses.all.total(), |total| share.scaled(total)),
                    share,
                    remote: sums.accesses.remote.share_of(&sums.accesses.known),
                    top_site: sums.top_site(),
                }
            })
            .collect();
        rows.sort_by(|a, b| b.share.value.total_cmp(&a.share.value).then(a.stack.cmp(&b.stack)));
        rows
    }
}

/// Whether accesses of none, one or several threads to an instance were seen so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instance {
    Unseen,
    Private,
    Shared,
}
