//! CPUs that came online after the start. Events that sample what programs do end with the CPU that they are on (`__perf_event_exit_context` in
//! `kernel/events/core.c`), and CPUs that come have none: evidence of the other CPUs alone would look like that of the whole machine.

use std::collections::BTreeSet;

use numapilot_host::Mounts;
use numapilot_host::Root;
use numapilot_machine::format_cpu_list;
use numapilot_machine::parse_cpu_list;

/// The CPUs that are online, from look to look.
#[derive(Debug, Default)]
pub struct OnlineCpus {
    /// Whether events are those of whole CPUs, and not of processes, whose events outlive an absence of their CPU.
    of_cpus: bool,
    /// CPUs that were online at the start; empty: the kernel does not say, or in a container the list is made up: it grows with the container's quota.
    first: BTreeSet<u32>,
    /// Those of them that have been offline since.
    went: BTreeSet<u32>,
}

impl OnlineCpus {
    /// The CPUs that are online at the start. `of_cpus`: events are those of whole CPUs.
    #[must_use]
    pub fn read(root: &Root, of_cpus: bool) -> OnlineCpus {
        let is_made_up = Mounts::read(root).has_made_up_cpus();
        OnlineCpus { of_cpus, first: if is_made_up { BTreeSet::new() } else { online(root) }, went: BTreeSet::new() }
    }

    /// On which CPUs nothing is sampled, and what that means, as a clause; `None`: there are none.
    pub fn told(&mut self, root: &Root) -> Option<String> {
        let now = online(root);
        if self.first.is_empty() || now.is_empty() {
            return None;
        }
        self.went.extend(self.first.difference(&now));
        let is_blind = |cpu: &&u32| !self.first.contains(*cpu) || self.of_cpus && self.went.contains(*cpu);
        let cpus = format_cpu_list(now.iter().filter(is_blind).copied());
        let whose = if self.of_cpus { "programs" } else { "programs that were managed before" };
        (!cpus.is_empty()).then(|| {
            format!("CPUs {cpus} came online after the start: what {whose} do there is not sampled until numapilot is started again")
        })
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
        assert_eq!(OnlineCpus::read(&root, true).told(&root), None, "not known");
        std::fs::create_dir_all(folder.path().join("sys/devices/system/cpu")).unwrap();
        let put = |list: &str| std::fs::write(folder.path().join("sys/devices/system/cpu/online"), list).unwrap();
        put("0-3\n");
        let (mut system, mut processes) = (OnlineCpus::read(&root, true), OnlineCpus::read(&root, false));
        let mut told = |list: &str| {
            put(list);
            [system.told(&root), processes.told(&root)]
        };
        assert_eq!(told("0-3"), [None, None]);
        assert_eq!(told("0"), [None, None], "nothing runs there");
        let [of_system, of_processes] = told("0-3,6");
        assert!(of_system.is_some_and(|what| what.starts_with("CPUs 1-3,6 came online")));
        assert!(of_processes.is_some_and(|what| what.starts_with("CPUs 6 came online") && what.contains("before")));
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
            assert_eq!(cpus.told(&root).is_some(), is_told, "{kind}");
        }
    }
}
