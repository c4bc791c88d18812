//! Evidence from the processor: memory accesses of targets, sampled by AMD's IBS or Intel's PEBS ([`LiveSampler`]). They show how often a page is accessed,
//! while page faults show only by which nodes; and they need no unmapping of pages.

use numapilot_host::PageNumber;
use numapilot_host::Pid;
use numapilot_kernel::task;
use numapilot_machine::Machine;
use numapilot_machine::NodeId;
use numapilot_perf_events::EventsError;
use numapilot_perf_events::live_sampler::Kind;
use numapilot_perf_events::live_sampler::LiveSampler;
use numapilot_perf_events::open::Scope;

use super::clock;
use super::family::Family;
use super::fault_sampler::Access;
use super::fault_sampler::Fault;
use super::fault_sampler::Seen;
use super::watched::WatchedSets;

/// Samples memory accesses by events of the processor.
pub struct Samples {
    /// Events with their processes.
    pub(crate) sets: WatchedSets<LiveSampler>,
    /// Whether one set covers all processes, so that no more are opened.
    is_shared: bool,
    /// Whether the events are those of whole CPUs, which end when their CPU goes offline.
    pub of_cpus: bool,
    /// What takes the samples, for messages.
    pub source: &'static str,
}

impl Samples {
    /// Finds the best sampler of this machine. Events are opened here only if they cover the whole system.
    ///
    /// # Errors
    /// The machine has none, or this user may not use it; the message gives the reason.
    pub fn best(is_system: bool, machine: &Machine) -> Result<Samples, String> {
        let own = Scope::Processes(vec![Pid::own()]);
        let of_all = || LiveSampler::of_accesses(&Scope::System, machine).map_err(|error| error.to_string());
        let of_own = (!is_system).then(|| LiveSampler::of_accesses(&own, machine));
        let (live_sampler, is_shared) = match of_own {
            Some(Ok(live_sampler)) => {
                // The rings of an emulated PMU cover all processes, and are opened once.
                let is_shared = live_sampler.as_ref().is_some_and(|live_sampler| live_sampler.kind == Kind::Emulated);
                (live_sampler, is_shared)
            }
            // Some PMUs, such as AMD's before Linux 6.2, sample CPUs but not processes.
            None | Some(Err(_)) => (of_all()?, true),
        };
        let Some(mut live_sampler) = live_sampler else {
            return Err("this processor (or virtual machine) cannot sample memory accesses".to_owned());
        };
        if !live_sampler.names_processes() {
            return Err("this processor's samples do not contain the process (Arm SPE)".to_owned());
        }
        let of_cpus = is_of_cpus(is_shared, live_sampler.kind);
        let source = if live_sampler.kind == Kind::Emulated { "an EMULATED PMU" } else { "the processor" };
        let mut sets = WatchedSets::new(|live_sampler: &LiveSampler| live_sampler.lost);
        if is_shared {
            live_sampler.watch_cpus();
            sets.add(live_sampler, Family::everybody());
        }
        Ok(Samples { sets, is_shared, of_cpus, source })
    }

    /// Opens events for these processes too.
    ///
    /// # Errors
    /// The kernel refuses; the error contains the reason and the remedy.
    pub fn open(&mut self, scope: &Scope, machine: &Machine) -> Result<(), EventsError> {
        if self.is_shared {
            return Ok(());
        }
        if let Some(live_sampler) = LiveSampler::of_accesses(scope, machine)? {
            self.sets.add(live_sampler, Family::of(scope, task::start_ticks_of));
        }
        Ok(())
    }

    /// Adds the samples since the previous observation. Accesses that a cache answered are ignored, because they do not show the page's node.
    pub fn look(&mut self, machine: &Machine, seen: &mut Seen) {
        let mut found = Vec::new();
        for live_sampler in self.sets.events_mut() {
            live_sampler.look(&mut found);
            seen.returned.extend(live_sampler.follow_cpus());
        }
        let time_ns = clock::raw_ns();
        let index = |node: Option<NodeId>| node.and_then(|node| machine.node_index(node));
        let accesses = found.iter().filter(|one| one.is_memory != Some(false)).filter_map(|one| {
            let (pid, tid) = one.task?;
            let access = Access { home: index(one.home), weight: one.weight };
            Some(Fault {
                time_ns,
                pid,
                tid,
                node: index(one.node)?,
                page: PageNumber::of(one.address),
                access: Some(access),
            })
        });
        seen.faults.extend(accesses);
        seen.lost += self.sets.take_lost();
    }
}

/// Whether events that cover all processes, or not, are those of whole CPUs: an emulated PMU's are of none.
fn is_of_cpus(is_shared: bool, kind: Kind) -> bool {
    is_shared && kind != Kind::Emulated
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the processor samples CPUs and not processes, nothing was said of those that were offline for a while.
    #[test]
    fn events_that_cover_all_processes_are_those_of_cpus_but_for_an_emulated_pmus() {
        let of = |is_shared: bool| [Kind::Accesses, Kind::Emulated].map(|kind| is_of_cpus(is_shared, kind));
        assert_eq!((of(true), of(false)), ([true, false], [false, false]));
    }
}
