//! CPUs that came online after the start. Events that sample what programs do end with the CPU that they are on (`__perf_event_exit_context` in
//! `kernel/events/core.c`), and CPUs that come have none: evidence of the other CPUs alone would look like that of the whole machine. Those of a CPU that was
//! offline for a while are opened anew some seconds after it is back ([`EventSet::follow_cpus`]).
//!
//! [`EventSet::follow_cpus`]: numapilot_perf_events::open::EventSet::follow_cpus

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use numapilot_host::Mounts;
use numapilot_host::Root;
use numapilot_machine::CpuId;
use numapilot_machine::format_cpu_list;
use numapilot_machine::parse_cpu_list;

/// Looks in turn, about a second apart, at which a CPU that is back has no events yet: from so many on it is told that it has none.
const LOOKS_MAX: u32 = 5;

/// The CPUs that are online, from look to look.
#[derive(Debug, Default)]
pub struct OnlineCpus {
    /// Whether events are those of whole CPUs, and not of processes, whose events outlive an absence of their CPU.
    of_cpus: bool,
    /// CPUs that were online at the start; empty: the kernel does not say, or in a container the list is made up: it grows with the container's quota.
    first: BTreeSet<u32>,
    /// Those of them that have been offline since, and whose events were not opened anew: the number of looks at which they were online again.
    went: BTreeMap<u32, u32>,
    /// Those whose events were opened anew, until that is told.
    resumed: BTreeSet<u32>,
}

impl OnlineCpus {
    /// The CPUs that are online at the start. `of_cpus`: events are those of whole CPUs.
    #[must_use]
    pub fn read(root: &Root, of_cpus: bool) -> OnlineCpus {
        let is_made_up = Mounts::read(root).has_made_up_cpus();
        OnlineCpus { of_cpus, first: if is_made_up { BTreeSet::new() } else { online(root) }, ..OnlineCpus::default() }
    }

    /// Takes in CPUs that are back, also such as went between two looks, and whether their events were opened anew.
    pub fn returned(&mut self, cpus: &[(CpuId, bool)]) {
        for (cpu, is_sampled) in cpus {
            if *is_sampled {
                self.went.remove(&cpu.0);
                self.resumed.insert(cpu.0);
            } else {
                self.went.entry(cpu.0).or_default();
            }
        }
    }

    /// On which CPUs nothing is sampled, or was not for a while, and what that means, as clauses.
    pub fn told(&mut self, root: &Root) -> Vec<String> {
        let now = online(root);
        if self.first.is_empty() || now.is_empty() {
            return Vec::new();
        }
        for cpu in self.first.difference(&now) {
            self.went.insert(*cpu, 0);
        }
        for (_, looks) in self.went.iter_mut().filter(|(cpu, _)| now.contains(*cpu)) {
            *looks += 1;
        }
        let is_ended = |cpu: &u32| self.of_cpus && self.went.get(cpu).is_some_and(|looks| *looks >= LOOKS_MAX);
        let is_blind = |cpu: &&u32| !self.first.contains(*cpu) || is_ended(cpu);
        let cpus = format_cpu_list(now.iter().filter(is_blind).copied());
        let whose = if self.of_cpus { "programs" } else { "programs that were managed before" };
        let blind = (!cpus.is_empty()).then(|| {
            format!("CPUs {cpus} came online after the start: what {whose} do there is not sampled until numapilot is started again")
        });
        let resumed = format_cpu_list(std::mem::take(&mut self.resumed));
        let missed = (!resumed.is_empty()).then(|| {
            format!(
                "CPUs {resumed} were offline for a while: what programs did there in the seconds after was not sampled"
            )
        });
        blind.into_iter().chain(missed).collect()
    }
}

fn online(root: &Root) -> BTreeSet<u32> {
    let text = root.text("sys/devices/system/cpu/online").unwrap_or_default();
    parse_cpu_list(&text).unwrap_or_default().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a suspension, which takes all CPUs but one offline, the pages that this one used seemed to be used there alone.
    #[test]
    fn cpus_on_which_nothing_is_sampled_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        assert!(OnlineCpus::read(&root, true).told(&root).is_empty(), "not known");
        std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu")).unwrap();
        let put = |list: &str| std::fs::write(folder.path().join("sys/devices/system/cpu/online"), list).unwrap();
        put("0-3\n");
        let (mut system, mut processes) = (OnlineCpus::read(&root, true), OnlineCpus::read(&root, false));
        let mut told = |list: &str, looks: u32| {
            put(list);
            let mut last = [Vec::new(), Vec::new()];
            for _ in 0..looks {
                last = [system.told(&root), processes.told(&root)];
            }
            last
        };
        let nothing = [Vec::<String>::new(), Vec::new()];
        assert_eq!(told("0-3", 1), nothing);
        assert_eq!(told("0", 1), nothing, "nothing runs there");
        assert_eq!(told("0-3", LOOKS_MAX - 1), nothing, "their events may be opened anew yet");
        let [of_system, of_processes] = told("0-3,6", 1);
        assert!(of_system.len() == 1 && of_system[0].starts_with("CPUs 1-3,6 came online"), "{of_system:?}");
        let [of_processes] = &of_processes[..] else { panic!("{of_processes:?}") };
        assert!(of_processes.starts_with("CPUs 6 came online") && of_processes.contains("before"), "{of_processes}");
    }

    /// A CPU that was away between two looks was sampled no more, and no word said so.
    #[test]
    fn cpus_whose_events_were_opened_anew_are_sampled_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu")).unwrap();
        let put = |list: &str| std::fs::write(folder.path().join("sys/devices/system/cpu/online"), list).unwrap();
        put("0-3\n");
        let mut cpus = OnlineCpus::read(&root, true);
        put("0-2\n");
        assert!(cpus.told(&root).is_empty());
        put("0-3\n");
        cpus.returned(&[(CpuId(3), true), (CpuId(2), false)]);
        let told: Vec<Vec<String>> = (0..LOOKS_MAX).map(|_| cpus.told(&root)).collect();
        assert!(told[0].len() == 1 && told[0][0].starts_with("CPUs 3 were offline for a while"), "{told:?}");
        let last = told.last().unwrap();
        assert!(last.len() == 1 && last[0].starts_with("CPUs 2 came online"), "{told:?}");
        // It could be opened later.
        cpus.returned(&[(CpuId(2), true)]);
        assert!(cpus.told(&root)[0].starts_with("CPUs 2 were offline"));
        assert!(cpus.told(&root).is_empty());
    }

    /// A quota that grew seemed to bring CPUs online.
    #[test]
    fn cpus_of_a_list_that_was_made_up_for_a_container_are_not_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::new(folder.path());
        let put = |file: &str, text: &str| {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let online = "sys/devices/system/cpu/online";
        for (kind, is_told) in [("fuse.lxcfs", false), ("sysfs", true)] {
            put("proc/self/mountinfo", &format!("31 25 0:28 / /{online} rw - {kind} {kind} rw\n"));
            put(online, "0-1\n");
            let mut cpus = OnlineCpus::read(&root, true);
            put(online, "0-3\n");
            assert_eq!(!cpus.told(&root).is_empty(), is_told, "{kind}");
        }
    }
}
