//! numactl's options for `numapilot run`: the same syntax of nodes and CPUs, the same meaning, and the same output of `--show`.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use numapilot_apply::{Current, MemoryPolicy, ProcessPolicy};
use numapilot_host::Root;
use numapilot_machine::{CpuId, Machine, NodeId, parse_cpu_list};

use super::{model, weights};
use crate::args::PolicyArgs;
use crate::output::tell;

/// Prefixes by which numactl names a node by a device; not supported here.
const BY_DEVICE: [&str; 6] = ["netdev:", "ip:", "file:", "block:", "pci:", "same"];

/// The nodes or CPUs of the machine, and those of them that this process may use, as numbers: numactl's lists are the same for both.
struct Set {
    what: &'static str,
    /// All that exist, ascending.
    known: Vec<u32>,
    /// Numbers that this process may use, ascending.
    allowed: Vec<u32>,
}

impl Set {
    /// Reads numactl's syntax: `all`, numbers and ranges, `!` before what is left out, `+` before what is counted within the allowed ones.
    fn parse(&self, option: &str, text: &str) -> Result<Vec<u32>> {
        let say = |problem: String, remedy: &str| anyhow::anyhow!("{option} {text}: {problem}; {remedy}");
        let (inverted, rest) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        let (relative, rest) = rest.strip_prefix('+').map_or((false, rest), |rest| (true, rest));
        if let Some(form) = BY_DEVICE.iter().find(|form| rest.starts_with(**form)) {
            return Err(say(format!("`{form}` is not supported"), "name the node by its number"));
        }
        let listed = if rest == "all" {
            self.allowed.clone()
        } else {
            let ids = parse_cpu_list(rest).map_err(|error| say(error.to_string(), "see `numapilot run --help`"))?;
            if ids.is_empty() {
                return Err(say(format!("no {} named", self.what), "write `all` or numbers"));
            }
            if relative { self.nth(&ids).map_err(|problem| say(problem, "count from 0"))? } else { ids }
        };
        let found: Vec<u32> =
            if inverted { self.allowed.iter().copied().filter(|id| !listed.contains(id)).collect() } else { listed };
        if let Some(id) = found.iter().find(|id| !self.known.contains(id)) {
            let known = numapilot_machine::format_cpu_list(self.known.iter().copied());
            return Err(say(format!("{id} is no {}", self.what), &format!("those are {known}")));
        }
        Ok(found)
    }

    fn nth(&self, indices: &[u32]) -> Result<Vec<u32>, String> {
        let get = |index: &u32| {
            self.allowed
                .get(*index as usize)
                .copied()
                .ok_or_else(|| format!("this process may use only {}", self.allowed.len()))
        };
        indices.iter().map(get).collect()
    }
}

/// The memory policy and CPUs that the options ask for.
///
/// # Errors
/// If an option names a node or CPU that does not exist or that this process may not use.
pub fn policy(arguments: &PolicyArgs) -> Result<ProcessPolicy> {
    let nothing = arguments.interleave.is_none()
        && arguments.weighted_interleave.is_none()
        && arguments.membind.is_none()
        && arguments.preferred.is_none()
        && arguments.preferred_many.is_none()
        && !arguments.localalloc
        && arguments.cpunodebind.is_none()
        && arguments.physcpubind.is_none();
    if nothing {
        return Ok(ProcessPolicy::default());
    }
    let machine = Machine::load("live").context("this machine's topology")?;
    let current = Current::read()?;
    Ok(ProcessPolicy { memory: memory(arguments, &machine, &current)?, cpus: cpus(arguments, &machine, &current)? })
}

fn memory(arguments: &PolicyArgs, machine: &Machine, current: &Current) -> Result<Option<MemoryPolicy>> {
    let known: Vec<u32> = machine.nodes().iter().filter(|n| n.has_memory()).map(|n| n.id.0.into()).collect();
    let allowed = current.allowed_nodes.iter().map(|node| u32::from(node.0)).filter(|id| known.contains(id)).collect();
    let set = Set { what: "node with memory", known, allowed };
    let nodes = |option: &'static str, text: &str| set.parse(option, text).map(node_ids);
    Ok(if let Some(text) = &arguments.interleave {
        // As numactl: interleaving over no node is no policy.
        Some(nodes("--interleave", text)?).filter(|nodes| !nodes.is_empty()).map(MemoryPolicy::Interleave)
    } else if arguments.weighted_interleave.as_deref() == Some("auto") {
        let nodes = some(node_ids(set.allowed.clone()), "--weighted-interleave")?;
        Some(weighted(arguments, machine, &nodes)?)
    } else if arguments.set_weights || arguments.machine.is_some() {
        bail!("--set-weights and --machine need --weighted-interleave=auto, which takes all nodes");
    } else if let Some(text) = &arguments.weighted_interleave {
        let nodes = some(nodes("--weighted-interleave", text)?, "--weighted-interleave")?;
        Some(MemoryPolicy::WeightedInterleave(nodes))
    } else if let Some(text) = &arguments.membind {
        let nodes = some(nodes("--membind", text)?, "--membind")?;
        Some(MemoryPolicy::Bind { nodes, balancing: arguments.balancing })
    } else if let Some(text) = &arguments.preferred {
        match nodes("--preferred", text)?[..] {
            [node] => Some(MemoryPolicy::Preferred(node)),
            _ => bail!("--preferred {text}: it takes one node; --preferred-many takes several"),
        }
    } else if let Some(text) = &arguments.preferred_many {
        Some(MemoryPolicy::PreferredMany(some(nodes("--preferred-many", text)?, "--preferred-many")?))
    } else {
        arguments.localalloc.then_some(MemoryPolicy::Local)
    })
}

/// Over these nodes by the bandwidth of their memory, as far as the kernel's weights do: where they do not, a note says so.
fn weighted(arguments: &PolicyArgs, machine: &Machine, nodes: &[NodeId]) -> Result<MemoryPolicy> {
    let model = arguments.machine.as_deref().map(|name| model::with_figures(machine, name)).transpose()?;
    let machine = model.as_ref().unwrap_or(machine);
    let (policy, notes) = weights::auto(&Root::default(), machine, nodes, arguments.set_weights)?;
    notes.iter().for_each(|note| tell!("numapilot: {note}"));
    Ok(policy)
}

fn node_ids(numbers: Vec<u32>) -> Vec<NodeId> {
    // Those of nodes that are known.
    numbers.into_iter().map(|number| NodeId(number as u16)).collect()
}

fn some<T>(ids: Vec<T>, option: &str) -> Result<Vec<T>> {
    if ids.is_empty() { bail!("{option}: the list is empty; name at least one") } else { Ok(ids) }
}

fn cpus(arguments: &PolicyArgs, machine: &Machine, current: &Current) -> Result<Option<Vec<CpuId>>> {
    let online: Vec<u32> = machine.cpus().iter().map(|cpu| cpu.id.0).collect();
    let allowed = if arguments.all { online.clone() } else { current.cpus.iter().map(|cpu| cpu.0).collect() };
    let mut chosen: Option<Vec<CpuId>> = None;
    if let Some(text) = &arguments.cpunodebind {
        let nodes = nodes_to_run_on(machine);
        let set = Set { what: "node with CPUs that are online", known: nodes.clone(), allowed: nodes };
        let nodes = node_ids(some(set.parse("--cpunodebind", text)?, "--cpunodebind")?);
        let is_on = |cpu: &&numapilot_machine::Cpu| cpu.node.is_some_and(|node| nodes.contains(&node));
        chosen = Some(machine.cpus().iter().filter(is_on).map(|cpu| cpu.id).collect());
    }
    if let Some(text) = &arguments.physcpubind {
        let known = if arguments.all { online } else { allowed.clone() };
        let set = Set { what: "CPU that this process may use", known, allowed };
        // As numactl, which sets one after the other: the later one holds.
        let numbers = some(set.parse("--physcpubind", text)?, "--physcpubind")?;
        chosen = Some(numbers.into_iter().map(CpuId).collect());
    }
    Ok(chosen)
}

/// Numbers of the nodes with CPUs that are online: to CPUs that are offline the kernel binds nothing.
fn nodes_to_run_on(machine: &Machine) -> Vec<u32> {
    machine.cpu_nodes().map(|node| node.id.0.into()).collect()
}

/// The policy and CPUs of this process, in the format of `numactl --show`.
///
/// # Errors
/// If the kernel has no NUMA support.
pub fn show() -> Result<String> {
    let machine = Machine::load("live").context("this machine's topology")?;
    Ok(describe(&Current::read()?, &machine))
}

fn describe(current: &Current, machine: &Machine) -> String {
    let mut text = format!("policy: {}\n", current.policy_name());
    let first = current.nodes.first();
    let preferred = match (current.next, first, current.mode) {
        (Some(next), _, _) => format!("{next} (interleave next)"),
        (None, Some(node), 5) => format!("{node} (preferred-many)"),
        (None, Some(node), _) => node.to_string(),
        (None, None, _) => "current".to_owned(),
    };
    let _ = writeln!(text, "preferred node: {preferred}");
    if let Some(next) = current.next {
        let _ = writeln!(text, "interleavemask: {}\ninterleavenode: {next}", list(&current.nodes));
    }
    let mut nodes: Vec<NodeId> =
        machine.cpus().iter().filter(|cpu| current.cpus.contains(&cpu.id)).filter_map(|cpu| cpu.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let is_bound = current.mode & 0xff == 2;
    let bound = if is_bound { &current.nodes } else { &current.allowed_nodes };
    let _ = writeln!(text, "physcpubind: {}", list(&current.cpus));
    let _ = writeln!(text, "cpubind: {}\nnodebind: {}", list(&nodes), list(&nodes));
    let _ = writeln!(text, "membind: {}\npreferred: {}", list(bound), list(&current.nodes));
    text
}

/// numactl's way to list numbers: a blank behind each.
fn list(ids: &[impl std::fmt::Display]) -> String {
    ids.iter().map(|id| format!("{id} ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numactls_syntax_means_what_it_means_there() {
        let set = Set { what: "node", known: (0..8).collect(), allowed: vec![1, 2, 4, 6] };
        for (text, expected) in [
            ("all", vec![1, 2, 4, 6]),
            ("0-2,5", vec![0, 1, 2, 5]),
            ("!2,4", vec![1, 6]),
            ("+0,2-3", vec![1, 4, 6]),
            ("!+0", vec![2, 4, 6]),
            ("!all", vec![]),
        ] {
            assert_eq!(set.parse("-i", text).unwrap(), expected, "{text}");
        }
        for (text, part) in [
            ("9", "9 is no node; those are 0-7"),
            ("+4", "only 4"),
            ("netdev:eth0", "not supported"),
            ("x", "not a number"),
            ("", "no node named"),
            ("3-1", "backwards"),
        ] {
            let message = set.parse("--membind", text).unwrap_err().to_string();
            assert!(message.contains(part) && message.starts_with("--membind"), "{text}: {message}");
        }
    }

    /// A node all of whose CPUs were offline was taken, and the kernel's "Invalid argument" was all that was said.
    #[test]
    fn nothing_runs_on_a_node_whose_cpus_are_offline() {
        let sysfs = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let file = sysfs.path().join("sys/devices/system").join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, format!("{text}\n")).unwrap();
        };
        for (path, text) in [("cpu/present", "0-3"), ("cpu/online", "0-1"), ("node/online", "0-1")] {
            put(path, text);
        }
        for (node, cpus) in ["0-1", "2-3"].iter().enumerate() {
            put(&format!("node/node{node}/cpulist"), cpus);
            put(&format!("node/node{node}/meminfo"), &format!("Node {node} MemTotal: 4096 kB"));
        }
        assert_eq!(nodes_to_run_on(&Machine::from_sysfs(sysfs.path()).unwrap()), [0]);
    }

    #[test]
    fn it_shows_a_policy_as_numactl_does() {
        let machine = Machine::load("opteron-8385").unwrap();
        let current = Current {
            mode: 3,
            nodes: [0, 2].map(NodeId).into(),
            next: Some(NodeId(2)),
            cpus: (0..5).map(CpuId).collect(),
            allowed_nodes: (0..4).map(NodeId).collect(),
        };
        let expected = "policy: interleave\npreferred node: 2 (interleave next)\ninterleavemask: 0 2 \ninterleavenode: 2\n\
                        physcpubind: 0 1 2 3 4 \ncpubind: 0 1 \nnodebind: 0 1 \nmembind: 0 1 2 3 \npreferred: 0 2 \n";
        assert_eq!(describe(&current, &machine), expected);
    }
}
