//! Made-up programs whose truth is known: threads, objects, and samples drawn from what each thread does.

use numapilot_flows::{AccessRef, Object, ObjectKind, Process, Site, SiteId, Tables, Thread, Trace};
use numapilot_host::VirtAddr;
use numapilot_insight::PatternKind;
use numapilot_machine::{Machine, NodeId};
use numapilot_random::Random;
use numapilot_trace::ids::{ObjectId, ProcessIndex, ThreadIndex, TimeNs};

/// Nanoseconds of every made-up run.
pub const RUN_NS: u64 = 1_000_000_000;
pub const PAGE: u64 = 4096;

/// How large and how clean a program's recording is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Samples.
    pub samples: u64,
    /// Share of accesses that have nothing to do with the pattern's rule: by a random thread, at a random place of the same objects.
    pub noise: f64,
    /// Accesses per microsecond and thread.
    pub rate: f64,
    pub seed: u64,
}

/// A program being made.
pub struct Made {
    pub machine: Machine,
    pub tables: Tables,
    pub random: Random,
    pub size: Size,
    /// Node of each thread, as an index of the nodes with CPUs.
    pub node_of: Vec<u16>,
    /// Samples that are drawn together, as those of a cache line where not all lines were simulated.
    pub per_cluster: u32,
    weight: u32,
    next_address: u64,
}

/// What a thread does at a moment.
pub struct Touch {
    pub object: ObjectId,
    pub offset: u64,
    pub is_write: bool,
    /// Where the page is.
    pub home: u16,
    /// Node from which the thread works, if not its own.
    pub from: Option<u16>,
}

impl Made {
    /// Threads spread over the nodes with CPUs, `per_node` on each.
    pub fn new(machine: Machine, per_node: u32, size: Size) -> Made {
        let with_cpus: Vec<u16> = machine.nodes().iter().filter(|n| n.has_cpus()).map(|n| n.id.0).collect();
        let mut tables = Tables { end: TimeNs(RUN_NS), ..Tables::default() };
        tables.processes.push(Process::default());
        let mut node_of = Vec::new();
        for thread in 0..per_node * with_cpus.len() as u32 {
            let node = with_cpus[thread as usize % with_cpus.len()];
            node_of.push(node);
            tables.threads.push(Thread { index: ThreadIndex(thread), node: Some(NodeId(node)), ..Thread::default() });
        }
        let accesses = size.rate * 1e-3 * RUN_NS as f64 * node_of.len() as f64;
        let weight = (accesses / size.samples as f64).max(1.0) as u32;
        let (random, next_address) = (Random::new(size.seed), 0x7000_0000_0000);
        Made { machine, tables, random, size, node_of, per_cluster: 1, weight, next_address }
    }

    pub fn threads(&self) -> u64 {
        self.node_of.len() as u64
    }

    pub fn site(&mut self, name: &str) -> SiteId {
        self.tables.sites.push(Site { kind: ObjectKind::Heap, name: name.into(), ..Site::default() });
        SiteId(self.tables.sites.len() as u32 - 1)
    }

    /// An object, aligned to `align` bytes, by a thread of a process.
    pub fn object(&mut self, site: SiteId, bytes: u64, align: u64, thread: u32) -> ObjectId {
        let address = self.next_address.next_multiple_of(align);
        self.next_address = address + bytes;
        self.object_at(site, address, bytes, thread, 0)
    }

    pub fn object_at(&mut self, site: SiteId, address: u64, bytes: u64, thread: u32, birth: u64) -> ObjectId {
        let id = ObjectId(self.tables.objects.len() as u32);
        self.tables.objects.push(Object {
            id,
            site,
            address: VirtAddr(address),
            bytes,
            process: self.tables.threads[thread as usize].process,
            birth: TimeNs(birth),
            thread: Some(ThreadIndex(thread)),
            node: Some(NodeId(self.node_of[thread as usize])),
            ..Object::default()
        });
        id
    }

    /// Private, local memory of each thread: what it does beside the pattern. Gives the objects by thread.
    pub fn private(&mut self) -> Vec<ObjectId> {
        let site = self.site("private");
        (0..self.threads() as u32).map(|thread| self.object(site, 64 * PAGE, PAGE, thread)).collect()
    }

    pub fn put_into_processes(&mut self, processes: u32) {
        self.tables.processes =
            (0..processes).map(|index| Process { index: ProcessIndex(index), ..Process::default() }).collect();
        let per_process = (self.threads() as u32).div_ceil(processes);
        for thread in &mut self.tables.threads {
            thread.process = ProcessIndex(thread.index.0 / per_process);
        }
    }

    pub fn node(&self, thread: u32) -> u16 {
        self.node_of[thread as usize]
    }

    /// Samples from the whole run, by all threads in turn: `what` says what a thread does at a moment; with the share `elsewhere` it uses its private memory.
    pub fn run(&mut self, elsewhere: f64, private: &[ObjectId], what: &mut dyn FnMut(&mut Random, u32, f64) -> Touch) {
        for sample in 0..self.size.samples {
            let time = sample * RUN_NS / self.size.samples;
            let thread = self.random.remainder(self.threads()) as u32;
            let is_elsewhere = !private.is_empty() && self.random.unit() < elsewhere;
            let is_noise = !is_elsewhere && self.random.unit() < self.size.noise;
            let touch = if is_elsewhere {
                let offset = self.random.remainder(64 * PAGE);
                let (object, home) = (private[thread as usize], self.node(thread));
                Touch { object, offset, is_write: self.random.unit() < 0.3, home, from: None }
            } else {
                what(&mut self.random, thread, time as f64 / RUN_NS as f64)
            };
            // Noise: somebody else comes by where this thread would have been.
            let by = if is_noise { self.random.remainder(self.threads()) as u32 } else { thread };
            let from = if is_noise { self.node(by) } else { touch.from.unwrap_or(self.node(by)) };
            self.push(time, by, from, &touch);
        }
    }

    pub fn push(&mut self, time: u64, thread: u32, from: u16, touch: &Touch) {
        let address = self.tables.objects[touch.object.0 as usize].address.0 + touch.offset;
        self.tables.accesses.push(&AccessRef {
            time: TimeNs(time),
            thread: ThreadIndex(thread),
            object: Some(touch.object),
            node: Some(NodeId(from)),
            home: Some(NodeId(touch.home)),
            is_write: touch.is_write,
            weight: self.weight,
            cluster: f64::from(self.weight) * f64::from(self.per_cluster),
            ..AccessRef::at(address)
        });
    }

    pub fn finish(self, truth: &[PatternKind]) -> Program {
        let mut program = Program {
            truth: truth.to_vec(),
            unscored: Vec::new(),
            trace: Trace::from_tables(self.tables),
            machine: self.machine,
        };
        program.add_saturation();
        program
    }
}

/// A made-up program and what is wrong with it.
pub struct Program {
    pub machine: Machine,
    pub trace: Trace,
    pub truth: Vec<PatternKind>,
    /// Neither surely wrong nor surely right.
    pub unscored: Vec<PatternKind>,
}

/// Share of its bandwidth asked of a station from which on it surely is saturated, and below which it surely is not. Probes and headers come on top.
const SURELY: f64 = 0.7;
const SURELY_NOT: f64 = 0.25;
/// The same of links. Beside the data read they carry requests, headers, lines written, probes and their answers, buffers given back: on an Opteron 1.75 times
/// as many bytes (pages interleaved, three tenths of the accesses write; a tenth more or less changes that by 0.13). A link that carries half of what it
/// can delays each message by as long as it takes itself, so it is surely not saturated only below that.
const SURELY_NOT_LINK: f64 = 0.5 / 2.75;

impl Program {
    /// Truth by arithmetic: bytes asked of each controller and link over what it can carry, in the busiest tenth of the run.
    fn add_saturation(&mut self) {
        const TENTHS: usize = 10;
        let nodes = self.machine.nodes();
        let mut served = vec![vec![0.0; nodes.len()]; TENTHS];
        let mut carried = vec![vec![0.0; self.machine.links().len()]; TENTHS];
        for access in self.trace.accesses() {
            let tenth = (access.time.0 * TENTHS as u64 / RUN_NS) as usize;
            let (from, home) = (access.node.expect("made with a node"), access.home.expect("made with a home"));
            let bytes = f64::from(access.weight) * 64.0 * TENTHS as f64;
            served[tenth][self.machine.node_index(home).expect("a node")] += bytes;
            let routes = self.machine.routes(home, from);
            routes.iter().flatten().for_each(|l| carried[tenth][usize::from(l.0)] += bytes / routes.len() as f64);
        }
        let peaks: Vec<f64> =
            nodes.iter().map(|node| 0.8 * node.memory_bandwidth_bytes_per_s.unwrap_or(f64::INFINITY)).collect();
        let reached = self.machine.traffic().link_efficiency.unwrap_or(1.0);
        let link_peaks: Vec<f64> =
            self.machine.links().iter().map(|link| reached * link.bandwidth_bytes_per_s).collect();
        let highest = |loads: &[Vec<f64>], peaks: &[f64]| {
            let shares = loads.iter().flat_map(|of_tenth| of_tenth.iter().zip(peaks)).map(|(bytes, peak)| bytes / peak);
            shares.fold(0.0, f64::max)
        };
        let (controller, link) = (highest(&served, &peaks), highest(&carried, &link_peaks));
        for (kind, load, surely_not) in [
            (PatternKind::SaturatedController, controller, SURELY_NOT),
            (PatternKind::SaturatedLink, link, SURELY_NOT_LINK),
        ] {
            match load {
                load if load >= SURELY => self.truth.push(kind),
                load if load > surely_not => self.unscored.push(kind),
                _ => {}
            }
        }
    }
}
