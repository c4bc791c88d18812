//! The memory of the process shown in detail, according to each source: its recording, the balancer that manages it, samples of its accesses (or page faults),
//! and its mappings by node. Mappings are read so rarely that reading takes a small share of the time.

use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Pid;
use numapilot_host::VirtAddr;
use numapilot_kernel::task;
use numapilot_machine::NodeId;
use numapilot_perf_events::open::Scope;
use numapilot_text::units;

use crate::evidence::EvidenceProviders;
use crate::evidence::balancing::Balanced;
use crate::figures::AreaFigures;
use crate::figures::MemoryView;
use crate::heat::AccessWeights;
use crate::heat::Heat;
use crate::live::Live;
use crate::live::samples::Sampler;
use crate::live::samples::Sampling;
use crate::maps::Key;
use crate::maps::MemoryMap;
use crate::maps::Object;
use crate::maps::Reader;

/// Reading a process's mappings may take 1 part in this many of the time.
const MAPS_SHARE: u32 = 200;
/// Maximum number of mappings kept for the screen.
const AREAS_MAX: usize = 200;
/// Maximum number of events opened for one process: more take time and descriptors.
const EVENTS_MAX: usize = 4096;

/// State between frames.
pub struct Memory {
    reader: Reader,
    map: Option<(Pid, Result<MemoryMap, String>)>,
    /// Time at which the mappings may be read again.
    due: Instant,
    /// Sampler of that process alone, or the reason why there is none; unused if the whole machine's accesses are sampled.
    close: Option<(Pid, Result<Sampler, String>)>,
    providers: EvidenceProviders,
    looked_at: Instant,
}

impl Memory {
    /// Makes the state without a process. `socket`: control socket of the balancer that may manage processes.
    pub fn new(socket: PathBuf) -> Memory {
        let now = Instant::now();
        let providers = EvidenceProviders::new(socket);
        Memory { reader: Reader::default(), map: None, due: now, close: None, providers, looked_at: now }
    }

    /// Ends the detailed view of a process, and closes its events.
    pub fn leave(&mut self, live: &mut Live) {
        self.close = None;
        if let Some(sampler) = live.sampler() {
            sampler.select_process(None);
        }
    }

    /// Reads waiting samples.
    pub fn look(&mut self) {
        if let Some((_, Ok(sampler))) = &mut self.close {
            sampler.look();
        }
    }

    /// All views of a process's memory, the most informative first. `recorders`: returns the processes that may be recording it.
    pub fn views(&mut self, live: &mut Live, pid: Pid, recorders: impl FnOnce() -> Vec<Pid>) -> Vec<MemoryView> {
        let is_live = live.root().is_live();
        let evidence_of_process = if is_live { self.providers.of(pid, recorders) } else { Default::default() };
        let seconds = std::mem::replace(&mut self.looked_at, Instant::now()).elapsed().as_secs_f64();
        self.read_map(live, pid);
        let nodes: Vec<NodeId> = live.machine().nodes().iter().map(|node| node.id).collect();
        let mut views: Vec<MemoryView> = evidence_of_process.recorded.into_iter().collect();
        let map = match &self.map {
            Some((_, Ok(map))) => Some(map),
            _ => None,
        };
        views.extend(evidence_of_process.balanced.zip(map).map(|(balanced, map)| of_loop(&balanced, map, &nodes)));
        let mut notes = Vec::new();
        match (closest(&mut self.close, live, pid, is_live), map) {
            (Ok(sampler), Some(map)) => {
                let (title, mut told) = (format!("memory, by {}", sampler.source()), sampler.notes());
                match sampler.heat(seconds).filter(|heat| !heat.is_empty()) {
                    Some(heat) => views.push(MemoryView { title, areas: by_heat(map, heat, &nodes), notes: told }),
                    None => {
                        let what = if sampler.is_of_faults() { "page fault" } else { "memory access" };
                        told.push(format!("No {what} of this process was sampled recently."));
                        notes = told;
                    }
                }
            }
            (Err(why), _) => notes.push(why),
            _ => {}
        }
        views.push(by_node(self.map.as_ref().map(|(_, map)| map), &nodes, notes));
        views
    }

    fn read_map(&mut self, live: &Live, pid: Pid) {
        if Instant::now() < self.due && self.map.as_ref().is_some_and(|(of, _)| *of == pid) {
            return;
        }
        let began = Instant::now();
        let map = self.reader.read(live.root(), live.machine(), pid).map_err(|error| error.to_string());
        self.due = Instant::now() + (began.elapsed() * MAPS_SHARE).max(Duration::from_secs(1));
        self.map = Some((pid, map));
    }
}

/// The sampler for this process: the whole machine's, or one of its own, which is opened if necessary.
fn closest<'a>(
    close: &'a mut Option<(Pid, Result<Sampler, String>)>,
    live: &'a mut Live,
    pid: Pid,
    is_live: bool,
) -> Result<&'a mut Sampler, String> {
    if !is_live {
        return Err("A captured machine has no events.".to_owned());
    }
    if live.sampler().is_some() {
        let sampler = live.sampler().ok_or_else(String::new)?;
        sampler.select_process(Some(pid));
        return Ok(sampler);
    }
    if close.as_ref().is_none_or(|(of, _)| *of != pid) {
        // One event per thread and CPU. If these are too many, one event per CPU, whose samples of other processes are skipped.
        let threads = task::threads_of(pid).map_or(0, |threads| threads.len());
        let is_small = threads * live.machine().online_cpu_count() <= EVENTS_MAX;
        let scope = if is_small { Scope::Processes(vec![pid]) } else { Scope::System };
        let opened = Sampler::open(&scope, live.machine(), Sampling::AccessesOrFaults);
        let opened = opened.map_err(|error| format!("Its page faults cannot be sampled: {error}."));
        *close = Some((pid, opened.and_then(|sampler| sampler.ok_or_else(String::new))));
    }
    match close {
        Some((_, Ok(sampler))) => {
            sampler.select_process(Some(pid));
            sampler.look();
            Ok(sampler)
        }
        Some((_, Err(why))) => Err(why.clone()),
        None => Err(String::new()),
    }
}

fn of_loop(balanced: &Balanced, map: &MemoryMap, nodes: &[NodeId]) -> MemoryView {
    let moved = balanced.moved_bytes.map_or_else(String::new, |bytes| format!("; {} moved", units::bytes(bytes)));
    MemoryView {
        title: format!("memory, by the evidence of `balance` ({}, {}{moved})", balanced.policy, balanced.state),
        areas: by_heat(map, &balanced.heat, nodes),
        notes: vec!["Hinting faults in the hottest ranges, not all accesses.".to_owned()],
    }
}

/// Mappings by their sampled accesses, then by size.
fn by_heat(map: &MemoryMap, heat: &Heat, nodes: &[NodeId]) -> Vec<AreaFigures> {
    let mut map = map.clone();
    map.areas.sort_by_key(|area| area.start);
    // A mapping whose end is not known extends over its pages only.
    let stretches: Vec<(VirtAddr, VirtAddr)> = map
        .areas
        .iter()
        .map(|area| (area.start, area.end.unwrap_or_else(|| VirtAddr(area.start.0.saturating_add(area.bytes())))))
        .collect();
    let (inside, outside) = heat.by_stretch(&stretches);
    for (area, warmth) in map.areas.iter_mut().zip(&inside) {
        area.seen = [warmth.all, warmth.known, warmth.local].map(|weight| weight.round() as u64);
    }
    let all = inside.iter().map(|warmth| warmth.all).sum::<f64>() + outside.all;
    let objects = map.objects(Key::Seen, false);
    let of = |object: &Object| {
        let [seen, known, local] = object.seen.map(|weight| weight as f64);
        AreaFigures {
            share: Some(if all > 0.0 { seen / all } else { 0.0 }),
            local_share: AccessWeights { all: seen, known, local }.local_share(),
            ..figures(object, nodes)
        }
    };
    let mut areas: Vec<AreaFigures> = objects.iter().take(AREAS_MAX).map(of).collect();
    if outside.all > 0.0 && all > 0.0 {
        let name = "(no mapping: unmapped since, or too new)".to_owned();
        areas.push(AreaFigures {
            name,
            share: Some(outside.all / all),
            local_share: outside.local_share(),
            ..AreaFigures::default()
        });
    }
    areas
}

/// Mappings by size, with their nodes.
fn by_node(map: Option<&Result<MemoryMap, String>>, nodes: &[NodeId], mut notes: Vec<String>) -> MemoryView {
    let areas = match map {
        Some(Ok(map)) => {
            notes.splice(0..0, map.notes.clone());
            map.objects(Key::Size, false).iter().take(AREAS_MAX).map(|object| figures(object, nodes)).collect()
        }
        Some(Err(why)) => vec![AreaFigures { name: why.clone(), ..AreaFigures::default() }],
        None => Vec::new(),
    };
    MemoryView { title: "memory, by node".to_owned(), areas, notes }
}

fn figures(object: &Object, nodes: &[NodeId]) -> AreaFigures {
    let far = if object.far_bytes > 0 { "far: " } else { "" };
    AreaFigures {
        name: format!("{far}{} {}", object.kind.word(), object.title()),
        bytes_by_node: nodes.iter().map(|node| object.bytes_by_node.get(node).copied().unwrap_or(0)).collect(),
        ..AreaFigures::default()
    }
}
