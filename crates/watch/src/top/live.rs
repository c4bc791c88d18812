//! The running machine as the screen's source. Its own cost is bounded: sleepers are read rarely ([`Processes`]), threads and mappings only of the process that
//! is looked at, and its mappings only so often that reading them takes a small share of the time.

use std::collections::BTreeMap;
use std::time::Duration;
use std::time::Instant;

use numapilot_kernel::task;
use numapilot_machine::CpuId;
use numapilot_machine::Machine;

use super::Source;
use crate::figures::AreaFigures;
use crate::figures::ThreadFigures;
use crate::live::Live;
use crate::live::Processes;
use crate::maps::Key;
use crate::maps::Reader;
use crate::replay::Frame;
use crate::root::Root;
use crate::task_stat::TaskStat;

/// Reading a process's mappings may take one part in so many of the time.
const MAPS_SHARE: u32 = 200;
/// Mappings kept for the screen.
const AREAS_MAX: usize = 200;

/// The running machine.
pub struct LiveSource {
    live: Live,
    processes: Processes,
    began: Instant,
    reader: Reader,
    areas: Option<(u32, Vec<AreaFigures>)>,
    /// When the mappings may be read again.
    maps_due: Instant,
    /// Of the process that is looked at: thread, clock ticks, when.
    ticks: BTreeMap<u32, u64>,
    ticks_at: Option<(u32, Instant)>,
    buffer: Vec<u8>,
}

impl LiveSource {
    /// Of an opened machine.
    #[must_use]
    pub fn new(live: Live) -> LiveSource {
        let now = Instant::now();
        LiveSource {
            live,
            processes: Processes::default(),
            began: now,
            reader: Reader::default(),
            areas: None,
            maps_due: now,
            ticks: BTreeMap::new(),
            ticks_at: None,
            buffer: Vec::new(),
        }
    }

    fn threads(&mut self, pid: u32) -> Vec<ThreadFigures> {
        let root = self.live.root().clone();
        let now = Instant::now();
        let elapsed = self.ticks_at.filter(|(of, _)| *of == pid).map(|(_, at)| now.duration_since(at).as_secs_f64());
        let mut seen = BTreeMap::new();
        let mut out = Vec::new();
        for tid in task::threads_under(root.path(), pid).unwrap_or_default() {
            let Ok(text) = root.read(&format!("proc/{pid}/task/{tid}/stat"), &mut self.buffer) else { continue };
            let Some(stat) = TaskStat::parse(text) else { continue };
            seen.insert(tid, stat.cpu_ticks);
            let used = self.ticks.get(&tid).map(|before| stat.cpu_ticks.saturating_sub(*before));
            let cpus = elapsed.zip(used).filter(|(elapsed, _)| *elapsed > 0.0);
            out.push(ThreadFigures {
                tid,
                name: String::from_utf8_lossy(stat.name).into_owned(),
                node: self.live.machine().node_of_cpu(CpuId(stat.cpu)),
                cpu: Some(stat.cpu),
                cpus: cpus.map_or(0.0, |(elapsed, used)| used as f64 / crate::live::ticks_per_s() / elapsed),
            });
        }
        (self.ticks, self.ticks_at) = (seen, Some((pid, now)));
        out
    }

    fn areas(&mut self, pid: u32) -> Vec<AreaFigures> {
        let is_due = Instant::now() >= self.maps_due || self.areas.as_ref().is_none_or(|(of, _)| *of != pid);
        if is_due {
            let began = Instant::now();
            let map = self.reader.read(self.live.root(), self.live.machine(), pid);
            let areas = match map {
                Ok(map) => {
                    let nodes: Vec<_> = self.live.machine().nodes().iter().map(|node| node.id).collect();
                    let of = |object: crate::maps::Object| AreaFigures {
                        name: match object.far_bytes {
                            0 => format!("{} {}", object.kind.word(), object.title()),
                            _ => format!("far: {} {}", object.kind.word(), object.title()),
                        },
                        bytes_by_node: nodes
                            .iter()
                            .map(|node| object.bytes_by_node.get(node).copied().unwrap_or(0))
                            .collect(),
                        ..AreaFigures::default()
                    };
                    map.objects(Key::Size, false).into_iter().take(AREAS_MAX).map(of).collect()
                }
                Err(error) => vec![AreaFigures { name: error.to_string(), ..AreaFigures::default() }],
            };
            self.maps_due = Instant::now() + (began.elapsed() * MAPS_SHARE).max(Duration::from_secs(1));
            self.areas = Some((pid, areas));
        }
        self.areas.as_ref().map(|(_, areas)| areas.clone()).unwrap_or_default()
    }
}

impl Source for LiveSource {
    fn machine(&self) -> &Machine {
        self.live.machine()
    }

    fn label(&self) -> String {
        let machine = self.live.machine();
        let host = Root::default().text("proc/sys/kernel/hostname").unwrap_or_default();
        let of = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        format!("{host}: {}, {}", of(machine.nodes().len(), "node"), of(machine.online_cpu_count(), "CPU"))
    }

    fn next(&mut self, detail: Option<u32>) -> Option<Frame> {
        let mut frame = Frame { interval: self.live.interval(), ..Frame::default() };
        let root = self.live.root().clone();
        if let Err(error) = self.processes.refresh(&root, self.began.elapsed().as_secs_f64()) {
            frame.interval.notes.push(format!("Processes cannot be listed: {error}."));
        }
        frame.interval.processes = self.processes.figures(self.live.machine());
        if let Some(pid) = detail {
            frame.threads.insert(pid, self.threads(pid));
            frame.areas.insert(pid, self.areas(pid));
        }
        Some(frame)
    }
}
