//! Statistics of a run: counters, the loop's own resource use, losses and errors, and the status that shows them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use numapilot_host::Group;
use numapilot_kernel::balancing::BalancingMoves;
use numapilot_machine::Machine;
use numapilot_placement::Observation as Observed;
use serde_json::json;

use super::Balancer;
use super::Options;
use super::options::Who;
use crate::control_port::ControlPort;
use crate::estimate;
use crate::event;
use crate::event::Event;
use crate::event::EvidenceSource;
use crate::event::Loss;
use crate::event::Losses;
use crate::event::NodeSeen;
use crate::event::Start;
use crate::event::Stop;
use crate::evidence::table::PageTable;
use crate::observe::Use;
use crate::status;
use crate::status::Counters;
use crate::status::NodeStatus;
use crate::status::OwnUse;
use crate::status::Rates;
use crate::status::Status;
use crate::status::TargetStatus;
use crate::system::fault_sampler::Seen;
use crate::system::migration_executor::Done;
use crate::system::probes::Probes;
use crate::system::targets::Targets;

/// Interval between recorded observations when nothing is ordered.
const RECORD_EVERY: Duration = Duration::from_secs(1);
/// The same error is recorded again after this many occurrences.
const REPEAT_AFTER: u64 = 1000;
/// Maximum number of distinct errors that are counted.
const TROUBLES_MAX: usize = 64;

/// Statistics of a run.
pub(super) struct RunStats {
    run: String,
    uid: u32,
    policy: String,
    dry_run: bool,
    started_unix_ns: u64,
    counters: Counters,
    rates: Rates,
    policy_says: String,
    losses: BTreeMap<&'static str, u64>,
    losses_recorded: BTreeMap<&'static str, u64>,
    troubles: BTreeMap<String, u64>,
    recorded_at: Option<Instant>,
    kernel_moves: BalancingMoves,
    own: OwnUse,
    own_at: Instant,
    moved_before: u64,
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl RunStats {
    pub fn new(options: &Options) -> RunStats {
        let now = unix_ns();
        RunStats {
            run: format!("{:x}-{}", now / 1000, std::process::id()),
            uid: numapilot_kernel::task::user_of(std::process::id()).unwrap_or(u32::MAX),
            policy: options.policy.clone(),
            dry_run: options.dry_run,
            started_unix_ns: now,
            counters: Counters::default(),
            rates: Rates::default(),
            policy_says: String::new(),
            losses: BTreeMap::new(),
            losses_recorded: BTreeMap::new(),
            troubles: BTreeMap::new(),
            recorded_at: None,
            kernel_moves: BalancingMoves::from_now(Path::new("/")),
            own: OwnUse::now(None),
            own_at: Instant::now(),
            moved_before: 0,
        }
    }

    pub fn start(&self, machine: &Machine, options: &Options, targets: &Targets, evidence: &[EvidenceSource]) -> Start {
        let online = |cpu: &&numapilot_machine::CpuId| machine.cpu(**cpu).is_some_and(|cpu| cpu.online);
        let node = |node: &numapilot_machine::Node| event::NodeFacts {
            node: node.id.0,
            cpus: node.cpus.iter().filter(online).count() as u32,
            memory_bytes: node.memory_bytes,
        };
        let tunables = &options.tunables;
        Start {
            run: self.run.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            pid: std::process::id(),
            uid: self.uid,
            machine: machine.name().to_owned(),
            nodes: machine.nodes().iter().map(node).collect(),
            policy: self.policy.clone(),
            dry_run: self.dry_run,
            targets: targets.all.values().map(|managed| managed.target.clone()).collect(),
            evidence: evidence.to_vec(),
            settings: json!({
                "who": match &options.who {
                    Who::Group(Group::Processes(pids)) => json!({ "processes": pids, "children": false }),
                    Who::Group(Group::Trees(pids)) => json!({ "processes": pids }),
                    Who::Group(Group::Cgroups(folders)) => json!({ "cgroup": folders }),
                    Who::System => json!("system"),
                    Who::Child => json!("child"),
                },
                "max_harm": tunables.max_harm, "interval_ms": tunables.interval.as_millis() as u64,
                "bytes_per_s": tunables.bytes_per_s, "keep_bytes": tunables.keep_bytes,
                "probes": options.probes, "steers_scanning": options.steers_scanning, "table_pages": options.table_pages,
            }),
        }
    }

    pub fn stop(&mut self, because: String) -> Stop {
        self.own = OwnUse::now(None);
        self.counters.kernel_moved_bytes = self.kernel_moves.bytes();
        Stop { because, counters: self.counters, own: self.own }
    }

    pub fn looks(&self) -> u64 {
        self.counters.observations
    }

    /// Counts samples that were dropped because too many wait for a decision.
    pub fn dropped_samples(&mut self, samples: u64) {
        *self.losses.entry("samples that no decision saw").or_default() += samples;
        self.counters.samples_lost += samples;
    }

    pub fn deciding(&mut self, took: Duration) {
        self.counters.deciding_ns += took.as_nanos() as u64;
    }

    /// Sets the processor time of the start, once all events are open.
    pub fn begun(&mut self) {
        self.counters.starting_ns = OwnUse::now(None).cpu_ns;
    }

    /// Counts orders that were obsolete before they were carried out: pages already at their destination, and pages that are gone.
    pub fn out_of_date(&mut self, there: u64, gone: u64) {
        self.counters.pages.already_there += there;
        self.counters.pages.gone += gone;
    }

    pub fn next_decision(&mut self) -> u64 {
        self.counters.decisions += 1;
        self.counters.decisions
    }

    pub fn policy_said(&mut self, words: String) {
        self.policy_says = words;
    }

    pub fn is_record_due(&mut self) -> bool {
        let is_time = self.recorded_at.is_none_or(|then| then.elapsed() >= RECORD_EVERY);
        if is_time {
            self.recorded_at = Some(Instant::now());
        }
        is_time
    }

    /// Counts observed uses of files.
    pub fn saw_files(&mut self, uses: u64) {
        self.counters.file_uses += uses;
    }

    pub fn managed(&mut self, elapsed: Duration, seen: &Seen, uses: &[Use], passed_over: u64) {
        let samples = uses.iter().filter(|used| used.is_sampled).count() as u64;
        let faults = uses.len() as u64 - samples + passed_over;
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let counters = &mut self.counters;
        counters.observations += 1;
        counters.samples += samples;
        counters.hint_faults += faults;
        counters.samples_lost += seen.lost;
        *self.losses.entry("faults and samples that found a ring full").or_default() += seen.lost;
        *self.losses.entry("records that could not be read").or_default() += seen.bad;
        self.rates.samples_per_s = samples as f64 / seconds;
        self.rates.hint_faults_per_s = faults as f64 / seconds;
        self.rates.moved_bytes_per_s = (counters.moved_bytes - self.moved_before) as f64 / seconds;
        self.moved_before = counters.moved_bytes;
        let local = uses.iter().filter(|used| used.from == used.home).count();
        self.rates.local_share = (!uses.is_empty()).then(|| local as f64 / uses.len() as f64);
        let now = Instant::now();
        let since = now.duration_since(self.own_at);
        if since >= RECORD_EVERY {
            self.own = OwnUse::now(Some((self.own, since.as_nanos() as u64)));
            self.own_at = now;
            self.counters.kernel_moved_bytes = self.kernel_moves.bytes();
        }
    }

    pub fn done(&mut self, done: &Done, is_undo: bool) {
        let counters = &mut self.counters;
        counters.moved_bytes += done.moved_bytes;
        counters.moving_ns += done.took_ns;
        counters.threads_moved += done.threads.len() as u64;
        if is_undo {
            counters.pages_undone += done.pages.moved;
        } else {
            counters.pages.add(&done.pages);
        }
    }

    pub fn judged(&mut self, undone: bool) {
        if undone {
            self.counters.undone += 1;
        } else {
            self.counters.kept += 1;
        }
    }

    pub fn ping_pong(&mut self) {
        self.counters.ping_pongs += 1;
    }

    pub fn backed_off(&mut self, slower: bool) {
        self.counters.back_offs += u64::from(slower);
    }

    /// Counts an error. Returns the number of occurrences since it was last recorded; `None`: it is not due to be recorded.
    pub fn trouble(&mut self, what: &str) -> Option<u64> {
        if self.troubles.len() >= TROUBLES_MAX && !self.troubles.contains_key(what) {
            *self.losses.entry("troubles that were not told").or_default() += 1;
            return None;
        }
        let count = self.troubles.entry(what.to_owned()).or_default();
        *count += 1;
        match *count {
            1 => Some(1),
            REPEAT_AFTER => {
                *count = 1;
                Some(REPEAT_AFTER)
            }
            _ => None,
        }
    }

    pub fn observation(
        &self,
        seen: &Observed,
        (sampled, file_uses): (u64, u64),
        machine: &Machine,
        table: &PageTable,
        probes: Option<&Probes>,
    ) -> event::Observation {
        let count = machine.nodes().len();
        let node = |(at, node): (usize, &numapilot_machine::Node)| NodeSeen {
            node: node.id.0,
            to: table.flow()[at * count..(at + 1) * count].to_vec(),
            available_bytes: seen.nodes[at].free_bytes,
            probe_ns: probes.map(|probes| probes.latency_ns[at].clone()),
            utilisation: None,
        };
        event::Observation {
            observation: self.counters.observations,
            elapsed_ns: seen.elapsed_ns,
            samples: sampled,
            samples_lost: seen.samples_lost,
            hint_faults: (seen.samples.len() as u64).saturating_sub(sampled + file_uses),
            file_uses,
            accesses_per_sample: if sampled > 0 { seen.sample_period } else { 0.0 },
            pages_known: table.len() as u64,
            threads: seen.threads.len() as u64,
            nodes: machine.nodes().iter().enumerate().map(node).collect(),
        }
    }

    fn lost(&self) -> Vec<Loss> {
        let lost = self.losses.iter().filter(|(_, count)| **count > 0);
        lost.map(|(what, count)| Loss { what: (*what).to_owned(), count: *count }).collect()
    }
}

impl Balancer {
    /// Records the losses since they were last recorded.
    pub(super) fn record_losses(&mut self, control_port: &mut dyn ControlPort) {
        let refused: u64 = self.targets.all.values().map(|managed| managed.homes.refused).sum();
        let run_stats = &mut self.run_stats;
        run_stats.losses.insert("pages that found no room in the table", self.table.dropped);
        let known = run_stats.losses.entry("pages whose homes found no room").or_default();
        *known = (*known).max(refused);
        let new = |(what, count): (&&'static str, &u64)| {
            let count = count - run_stats.losses_recorded.get(what).copied().unwrap_or(0);
            (count > 0).then(|| Loss { what: (*what).to_owned(), count })
        };
        let lost: Vec<Loss> = run_stats.losses.iter().filter_map(new).collect();
        if !lost.is_empty() {
            run_stats.losses_recorded = run_stats.losses.clone();
            control_port.record(Event::Losses(Losses { lost }));
        }
    }

    /// Publishes the loop's status.
    pub(super) fn publish(&self, control_port: &mut dyn ControlPort) {
        let run_stats = &self.run_stats;
        let count = self.machine.nodes().len();
        let flow = self.table.flow();
        let node = |(at, node): (usize, &numapilot_machine::Node)| {
            let memory = self.memory[at];
            let row = &flow[at * count..(at + 1) * count];
            let sum: f64 = row.iter().sum();
            NodeStatus {
                node: node.id.0,
                memory_bytes: node.memory_bytes,
                free_bytes: memory.free_bytes,
                available_bytes: memory.available_bytes(),
                served_bytes_per_s: None,
                utilisation: None,
                local_share: (sum > 0.0).then(|| row[at] / sum),
                probe_ns: self.probes.as_ref().map(|probes| probes.latency_ns[at].clone()).unwrap_or_default(),
            }
        };
        let target = |managed: &crate::system::targets::ManagedProcess| TargetStatus {
            target: managed.target.clone(),
            threads: managed.threads.len() as u64,
            pages_known: 0,
            samples: managed.samples.0,
            local_share: (managed.samples.0 > 0).then(|| managed.samples.1 as f64 / managed.samples.0 as f64),
            moved_bytes: managed.moved_bytes,
            hot: managed.hot.published().to_vec(),
        };
        let imbalance_percent = estimate::shares(flow, count).map(|(_, imbalance)| imbalance);
        control_port.status(Status {
            v: status::VERSION,
            run: run_stats.run.clone(),
            pid: std::process::id(),
            uid: run_stats.uid,
            started_unix_ns: run_stats.started_unix_ns,
            unix_ns: unix_ns(),
            state: self.state,
            because: self.because.clone(),
            policy: run_stats.policy.clone(),
            policy_says: run_stats.policy_says.clone(),
            dry_run: run_stats.dry_run,
            interval_ns: self.interval.as_nanos() as u64,
            targets: self.targets.all.values().map(target).collect(),
            nodes: self.machine.nodes().iter().enumerate().map(node).collect(),
            evidence: self.evidence.clone(),
            counters: run_stats.counters,
            rates: Rates { imbalance_percent, ..run_stats.rates },
            own: run_stats.own,
            losses: run_stats.lost(),
        });
    }
}
