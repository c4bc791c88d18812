//! A discrete-event simulation of the same network: single messages on single stations, write-backs that nobody waits for, probes that race the line.
//! It shares nothing with the model but the machine's description.
//!
//! Own work is exponential. Each station serves messages for exactly their time, either all at once with equal shares of the station (then the
//! network has a product form, whatever the distribution of services), or one after another.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use numapilot_machine::{LinkId, Machine, NodeId};
use numapilot_random::Random;
use numapilot_traffic::Load;

use crate::common::{LINE, Sizes, TURNAROUND, back, ports, station_count};

/// How stations share their time.
#[derive(Clone, Copy, PartialEq)]
pub enum Discipline {
    Sharing,
    InOrder,
}

/// Time-ordered queue of (picoseconds, sequence, what).
type Agenda = BinaryHeap<Reverse<(u64, u64, Event)>>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A customer has done its own work.
    Access(usize),
    /// A message's fixed delay is over.
    Arrive(usize),
    /// A station is done with a message, unless something came in between.
    Served(usize, u64),
}

#[derive(Clone, Copy)]
enum Step {
    Delay(f64),
    Serve(usize, f64),
    /// So many nanoseconds if the station is busy with somebody else's message when this one comes, else none.
    Beside(usize, f64),
}

/// A chain of steps; `customer` waits for its end, if any does.
struct Chain {
    steps: Vec<Step>,
    at: usize,
    customer: Option<usize>,
    /// Started when this one ends.
    then: Vec<usize>,
}

#[derive(Default)]
struct Station {
    /// Chain and nanoseconds of service left.
    jobs: VecDeque<(usize, f64)>,
    since_ns: f64,
    version: u64,
    busy_ns: f64,
}

pub struct Simulation<'a> {
    machine: &'a Machine,
    load: &'a Load,
    discipline: Discipline,
    random: Random,
    agenda: Agenda,
    sequence: u64,
    now_ns: f64,
    chains: Vec<Chain>,
    free: Vec<usize>,
    stations: Vec<Station>,
    /// Class of each customer, and the chains that it still waits for.
    customers: Vec<(usize, usize)>,
    done: Vec<u64>,
}

/// Accesses per nanosecond of each class with the half width of its 95 % confidence interval (batch means), and utilisations.
pub struct Measured {
    pub per_ns: Vec<(f64, f64)>,
    pub utilisation: Vec<f64>,
}

const BATCHES: usize = 20;
/// Student's t for 19 degrees of freedom, 97.5 %.
const T: f64 = 2.093;

/// Nanoseconds of service among these steps.
fn service(steps: &[Step]) -> f64 {
    steps.iter().map(|s| if let Step::Serve(_, ns) = s { *ns } else { 0.0 }).sum::<f64>()
}

impl<'a> Simulation<'a> {
    pub fn new(machine: &'a Machine, load: &'a Load, discipline: Discipline, seed: u64) -> Self {
        let mut simulation = Self {
            machine,
            load,
            discipline,
            random: Random::new(seed),
            agenda: BinaryHeap::new(),
            sequence: 0,
            now_ns: 0.0,
            chains: Vec::new(),
            free: Vec::new(),
            stations: Vec::new(),
            customers: Vec::new(),
            done: vec![0; load.classes.len()],
        };
        simulation.stations.resize_with(station_count(machine), Station::default);
        for (index, class) in load.classes.iter().enumerate() {
            for _ in 0..(class.threads * class.outstanding).round() as usize {
                simulation.customers.push((index, 0));
                let customer = simulation.customers.len() - 1;
                simulation.think(customer);
            }
        }
        simulation
    }

    pub fn run(mut self, batch_ns: f64) -> Measured {
        self.until(batch_ns * 2.0);
        let mut batches = vec![Vec::new(); self.done.len()];
        self.stations.iter_mut().for_each(|s| s.busy_ns = 0.0);
        for batch in 0..BATCHES {
            self.done.iter_mut().for_each(|d| *d = 0);
            self.until(batch_ns * (3 + batch) as f64);
            batches.iter_mut().zip(&self.done).for_each(|(b, d)| b.push(*d as f64 / batch_ns));
        }
        let interval = |values: &Vec<f64>| {
            let mean = values.iter().sum::<f64>() / BATCHES as f64;
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (BATCHES - 1) as f64;
            (mean, T * (variance / BATCHES as f64).sqrt())
        };
        let span_ns = batch_ns * BATCHES as f64;
        Measured {
            per_ns: batches.iter().map(interval).collect(),
            utilisation: self.stations.iter().map(|s| s.busy_ns / span_ns).collect(),
        }
    }

    fn until(&mut self, end_ns: f64) {
        while let Some(&Reverse((time, _, event))) = self.agenda.peek() {
            let time_ns = time as f64 / 1000.0;
            if time_ns > end_ns {
                break;
            }
            self.agenda.pop();
            self.now_ns = time_ns;
            match event {
                Event::Access(customer) => self.access(customer),
                Event::Arrive(chain) => self.next(chain),
                Event::Served(station, version) => self.served(station, version),
            }
        }
    }

    fn at(&mut self, delay_ns: f64, event: Event) {
        self.sequence += 1;
        self.agenda.push(Reverse((((self.now_ns + delay_ns) * 1000.0) as u64, self.sequence, event)));
    }

    fn think(&mut self, customer: usize) {
        let class = &self.load.classes[self.customers[customer].0];
        let own_ns = -(class.think_ns * class.outstanding) * (1.0 - self.random.unit()).ln();
        self.at(own_ns, Event::Access(customer));
    }

    /// One of the equal paths between two nodes, at random; none within a node.
    fn path(&mut self, from: NodeId, to: NodeId) -> &'a [LinkId] {
        let paths = self.machine.routes(from, to);
        let chosen = (self.random.unit() * paths.len() as f64) as usize;
        paths.get(chosen).map_or(&[], Vec::as_slice)
    }

    /// A message of so many bytes over a link. The link back gives back its buffers, for which nobody waits: `released`.
    fn crossing(&self, link: LinkId, bytes: f64, released: &mut Vec<Step>) -> Step {
        let (sizes, controllers) = (Sizes::of(self.machine), self.machine.nodes().len());
        if let Some((back, ns)) = back(self.machine, link, sizes.release, sizes).filter(|(_, ns)| *ns > 0.0) {
            released.push(Step::Serve(controllers + back, ns));
        }
        let ns = bytes / (self.machine.link(link).unwrap().bandwidth_bytes_per_s * sizes.reached) * 1e9;
        Step::Serve(controllers + usize::from(link.0), ns)
    }

    /// One message from node to node.
    fn message(&mut self, from: NodeId, to: NodeId, bytes: f64, steps: &mut Vec<Step>, released: &mut Vec<Step>) {
        for link in self.path(from, to) {
            steps.push(self.crossing(*link, bytes, released));
        }
    }

    /// The probes of an access whose request has arrived: one broadcast, which crosses no link twice, and an answer of each node to the asking one, which
    /// waits for all. Returns the chains that begin with it, and how many answers there are.
    fn probes(
        &mut self,
        home: NodeId,
        from: NodeId,
        left_ns: f64,
        customer: usize,
        released: &mut Vec<Step>,
    ) -> (Vec<usize>, usize) {
        let sizes = Sizes::of(self.machine);
        let mut crossed: Vec<(LinkId, usize)> = Vec::new();
        let (mut begin, mut answers) = (Vec::new(), 0);
        for other in self.machine.nodes().iter().map(|n| n.id).filter(|&id| id != home) {
            let (mut last, mut on_links_ns) = (None, 0.0);
            for &link in self.path(home, other) {
                let known = crossed.iter().find(|(of, _)| *of == link).map(|(_, chain)| *chain);
                let mut back = Vec::new();
                let step = self.crossing(link, sizes.request, &mut back);
                on_links_ns += service(&[step]);
                let chain = known.unwrap_or_else(|| self.chain(vec![step], None, Vec::new()));
                if known.is_none() {
                    crossed.push((link, chain));
                    released.append(&mut back);
                    last.map_or(&mut begin, |last: usize| &mut self.chains[last].then).push(chain);
                }
                last = Some(chain);
            }
            // The asking node is probed, too, and nobody waits for that.
            if other == from {
                continue;
            }
            let mut answer = Vec::new();
            self.message(other, from, sizes.answer, &mut answer, released);
            answer.insert(0, Step::Delay(left_ns - on_links_ns - service(&answer)));
            let answer = self.chain(answer, Some(customer), Vec::new());
            last.map_or(&mut begin, |last| &mut self.chains[last].then).push(answer);
            answers += 1;
        }
        (begin, answers)
    }

    fn access(&mut self, customer: usize) {
        let class = &self.load.classes[self.customers[customer].0];
        let nodes = self.machine.nodes();
        let mut draw = self.random.unit();
        let shares = class.reads.iter().map(|r| (*r, false)).chain(class.writes.iter().map(|w| (*w, true)));
        let mut chosen = (0, false);
        for (index, (share, is_write)) in shares.enumerate() {
            if share > 0.0 {
                chosen = (index % nodes.len(), is_write);
                draw -= share;
                if draw < 0.0 {
                    break;
                }
            }
        }
        let (to, is_write) = chosen;
        let (from, home) = (nodes[class.from].id, nodes[to].id);
        let efficiency = self.machine.traffic().controller_efficiency.unwrap_or(0.8);
        let read_ns = LINE / (nodes[to].memory_bandwidth_bytes_per_s.unwrap() * efficiency) * 1e9;
        let idle_ns = self.machine.idle_latency_ns(from, home).unwrap();
        let (mut request, mut released, sizes) = (Vec::new(), Vec::new(), Sizes::of(self.machine));
        let [read_port, write_port] = ports(self.machine, class.from);
        let at = |port: Option<(usize, f64)>, bytes: f64| {
            port.map(|(station, per_s)| Step::Serve(station, bytes / per_s * 1e9))
        };
        request.extend(at(write_port, sizes.request));
        self.message(from, home, sizes.request, &mut request, &mut released);
        let left_ns = idle_ns - service(&request);
        let crowding = self.machine.traffic().crowding.unwrap_or(0.0);
        let mut line = vec![Step::Serve(to, read_ns)];
        self.message(home, from, LINE + sizes.answer, &mut line, &mut released);
        line.extend(at(read_port, LINE));
        line.insert(0, Step::Delay(left_ns - service(&line)));
        if crowding > 0.0 {
            line.insert(1, Step::Beside(to, crowding * read_ns));
        }
        let mut after = Vec::new();
        if is_write {
            let mut back: Vec<Step> = at(write_port, LINE).into_iter().collect();
            self.message(from, home, LINE + sizes.answer, &mut back, &mut released);
            back.push(Step::Serve(to, read_ns * (1.0 + TURNAROUND)));
            self.message(home, from, sizes.answer, &mut back, &mut released);
            after.push(self.chain(back, None, Vec::new()));
        }
        if sizes.completion > 0.0 {
            let mut end = Vec::new();
            self.message(from, home, sizes.completion, &mut end, &mut released);
            after.push(self.chain(end, None, Vec::new()));
        }
        let (mut then, mut answers) = (Vec::new(), 0);
        if self.machine.broadcasts_probes() == Some(true) {
            (then, answers) = self.probes(home, from, left_ns, customer, &mut released);
        }
        self.customers[customer].1 = 1 + answers;
        then.push(self.chain(line, Some(customer), after));
        for release in released {
            then.push(self.chain(vec![release], None, Vec::new()));
        }
        let first = self.chain(request, None, then);
        self.next(first);
    }

    fn chain(&mut self, steps: Vec<Step>, customer: Option<usize>, then: Vec<usize>) -> usize {
        let chain = Chain { steps, at: 0, customer, then };
        match self.free.pop() {
            Some(slot) => {
                self.chains[slot] = chain;
                slot
            }
            None => {
                self.chains.push(chain);
                self.chains.len() - 1
            }
        }
    }

    /// Takes a chain's next step, or ends it.
    fn next(&mut self, index: usize) {
        let chain = &mut self.chains[index];
        let Some(&step) = chain.steps.get(chain.at) else { return self.end(index) };
        chain.at += 1;
        match step {
            Step::Delay(ns) => self.at(ns, Event::Arrive(index)),
            Step::Beside(station, ns) => {
                let is_busy = !self.stations[station].jobs.is_empty();
                self.at(if is_busy { ns } else { 0.0 }, Event::Arrive(index));
            }
            Step::Serve(station, ns) => {
                self.progress(station);
                self.stations[station].jobs.push_back((index, ns));
                self.schedule(station);
            }
        }
    }

    fn end(&mut self, index: usize) {
        let then = std::mem::take(&mut self.chains[index].then);
        let customer = self.chains[index].customer;
        self.free.push(index);
        for chain in then {
            self.next(chain);
        }
        if let Some(customer) = customer {
            self.customers[customer].1 -= 1;
            if self.customers[customer].1 == 0 {
                self.done[self.customers[customer].0] += 1;
                self.think(customer);
            }
        }
    }

    /// Lets a station work up to now.
    fn progress(&mut self, station: usize) {
        let station = &mut self.stations[station];
        let elapsed = self.now_ns - station.since_ns;
        station.since_ns = self.now_ns;
        if station.jobs.is_empty() {
            return;
        }
        station.busy_ns += elapsed;
        match self.discipline {
            Discipline::Sharing => {
                let each = elapsed / station.jobs.len() as f64;
                station.jobs.iter_mut().for_each(|job| job.1 -= each);
            }
            Discipline::InOrder => station.jobs[0].1 -= elapsed,
        }
    }

    fn schedule(&mut self, index: usize) {
        let station = &mut self.stations[index];
        station.version += 1;
        let version = station.version;
        let left = match self.discipline {
            Discipline::Sharing => {
                station.jobs.iter().map(|j| j.1).min_by(f64::total_cmp).map(|ns| ns * station.jobs.len() as f64)
            }
            Discipline::InOrder => station.jobs.front().map(|j| j.1),
        };
        if let Some(left) = left {
            self.at(left.max(0.0), Event::Served(index, version));
        }
    }

    fn served(&mut self, index: usize, version: u64) {
        if self.stations[index].version != version {
            return;
        }
        self.progress(index);
        let jobs = &mut self.stations[index].jobs;
        let least = match self.discipline {
            Discipline::Sharing => (0..jobs.len()).min_by(|&a, &b| jobs[a].1.total_cmp(&jobs[b].1)),
            Discipline::InOrder => (!jobs.is_empty()).then_some(0),
        };
        let chain = least.and_then(|at| jobs.remove(at)).map(|job| job.0);
        self.schedule(index);
        if let Some(chain) = chain {
            self.next(chain);
        }
    }
}
