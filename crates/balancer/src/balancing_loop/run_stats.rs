//! Statistics of a run: counters, the loop's own resource use, losses and errors, and the status that shows them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use numapilot_host::Group;
use numapilot_host::Pid;
use numapilot_host::Root;
use numapilot_kernel::balancing::BalancingMoves;
use numapilot_machine::Machine;
use numapilot_placement::Observation as Observed;
use serde_json::json;

use super::Options;
use super::options::Who;
use crate::event;
use crate::event::EvidenceSource;
use crate::event::Loss;
use crate::event::NodeSeen;
use crate::event::Start;
use crate::event::Stop;
use crate::evidence::observe::Use;
use crate::evidence::table::PageTable;
use crate::execution::migration_executor::Done;
use crate::status::Counters;
use crate::status::OwnUse;
use crate::status::Rates;
use crate::system::clock::unix_ns;
use crate::system::fault_sampler::Seen;
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
    pub(super) run: String,
    pub(super) uid: u32,
    pub(super) policy: String,
    pub(super) dry_run: bool,
    pub(super) started_unix_ns: u64,
    pub(super) counters: Counters,
    pub(super) rates: Rates,
    pub(super) policy_says: String,
    pub(super) losses: BTreeMap<&'static str, u64>,
    pub(super) losses_recorded: BTreeMap<&'static str, u64>,
    pub(super) troubles: BTreeMap<String, u64>,
    pub(super) recorded_at: Option<Instant>,
    pub(super) kernel_moves: BalancingMoves,
    pub(super) own: OwnUse,
    pub(super) own_at: Instant,
    pub(super) moved_before: u64,
}

impl RunStats {
    pub fn new(options: &Options) -> RunStats {
        let now = unix_ns();
        RunStats {
            run: format!("{:x}-{}", now / 1000, Pid::own()),
            uid: numapilot_kernel::task::user_of(Pid::own()).unwrap_or(u32::MAX),
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
            node: node.id,
            cpus: node.cpus.iter().filter(online).count() as u32,
            memory_bytes: node.memory_bytes,
        };
        let tunables = &options.tunables;
        Start {
            run: self.run.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: Root::default().text("proc/sys/kernel/osrelease").unwrap_or_default(),
            pid: Pid::own(),
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
                    Who::Group(Group::Units(units)) => json!({ "unit": units }),
                    Who::System => json!("system"),
                    Who::Child => json!("child"),
                },
                "max_harm": tunables.max_harm, "interval_ms": tunables.interval.as_millis() as u64,
                "bytes_per_s": tunables.bytes_per_s, "keep_bytes": tunables.keep_bytes,
                "max_pressure": tunables.max_pressure,
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
        *self.losses.entry("samples that were dropped before a decision used them").or_default() += samples;
        self.counters.samples_lost += samples;
    }

    /// Counts processes that managed ones have started and that could not be managed: a limit was reached, or the kernel refused.
    pub fn left_out(&mut self, processes: u64) {
        *self.losses.entry("started processes that could not be managed").or_default() += processes;
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
        *self.losses.entry("faults and samples dropped because a ring buffer was full").or_default() += seen.lost;
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

    /// Counts a decision of which some orders are put off because of memory pressure.
    pub fn put_off(&mut self) {
        self.counters.put_offs += 1;
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
            *self.losses.entry("warnings that were not reported").or_default() += 1;
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
            node: node.id,
            to: table.observed_flow()[at * count..(at + 1) * count].to_vec(),
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

    pub(super) fn lost(&self) -> Vec<Loss> {
        let lost = self.losses.iter().filter(|(_, count)| **count > 0);
        lost.map(|(what, count)| Loss { what: (*what).to_owned(), count: *count }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_could_not_be_managed_are_among_the_losses() {
        let mut run_stats = RunStats::new(&Options::default());
        run_stats.left_out(0);
        assert!(run_stats.lost().is_empty());
        run_stats.left_out(2);
        run_stats.left_out(1);
        let what = "started processes that could not be managed".to_owned();
        assert_eq!(run_stats.lost(), [Loss { what, count: 3 }]);
    }
}
