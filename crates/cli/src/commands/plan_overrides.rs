//! Turns the rules of a plan into placement overrides for `whatif`: the objects, threads and processes of a recording that each rule matches, and where it
//! places them.
//!
//! The first rule that matches an object places it, as when a plan is applied (`crates/runtime/c/plan_match.c`). A rule whose gain cannot be predicted is an
//! error, because the gain of the other rules alone would be mistaken for the plan's.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Result, bail};
use numapilot_flows::{Object, ObjectKind, Site, SiteId, Trace};
use numapilot_insight::whatif::PlacementOverride;
use numapilot_insight::{FixKind, is_placeable};
use numapilot_machine::{Machine, MemoryTier, NodeId};
use numapilot_plan::{Layout, ObjectMatch, ObjectRule, Placing, Plan, Policy, ProcessRule, ThreadRule};
use numapilot_plan::{NodeSet, glob_matches};
use numapilot_symbols::spellings;
use numapilot_trace::ids::{ObjectId, ProcessIndex, StackId, ThreadIndex};

use super::plan_sites::{Allocations, NamedModules, is_allocated, shared_paths};
use super::plan_threads::creation_numbers;

/// The placement overrides of a plan for one recording.
pub struct PlanOverrides {
    /// One override for each rule that matches something.
    pub overrides: Vec<PlacementOverride>,
    /// Names of the rules that match nothing in this recording.
    pub without_effect: Vec<String>,
}

/// The overrides of `plan`, which must fit `machine` ([`Plan::fit`]).
///
/// # Errors
/// If the gain of a rule cannot be predicted.
pub fn overrides(plan: &Plan, trace: &Trace, machine: &Machine) -> Result<PlanOverrides> {
    let mut found = PlanOverrides { overrides: Vec::new(), without_effect: Vec::new() };
    let taken = taken_by(&plan.objects, trace);
    let objects_of = counted(trace.objects());
    for (rule, objects) in plan.objects.iter().zip(&taken) {
        let (kind, by_touch) = kind_of(rule, machine)?;
        let of_object = |id: &ObjectId| trace.object(*id).and_then(|object| trace.site(object.site));
        if let Some(site) = objects.iter().filter_map(of_object).find(|site| !is_placeable(site.kind, &site.name)) {
            let at = if rule.line > 0 { format!("line {}: ", rule.line) } else { String::new() };
            bail!(
                "{at}object {}: the kernel places the pages of {} where they are read in, not by their mapping, so no rule can move them; `run --interleave` \
                 places the pages that the program itself reads in",
                rule.name,
                site.name
            );
        }
        let (sites, rest) = whole_sites(objects, trace, &objects_of);
        let words = format!("{}: {}", rule.name, rule.policy.describe());
        match PlacementOverride::taken(words, sites, rest, kind, by_touch) {
            Some(placement) => found.overrides.push(placement),
            None => found.without_effect.push(format!("object {}", rule.name)),
        }
    }
    // As in a program that runs by the plan, the first rule that matches a thread or a process decides.
    let mut threads = HashSet::new();
    for rule in &plan.threads {
        let which = rule.which();
        let assigned = assigned_threads(rule, trace, machine, &mut threads)?;
        let words = format!("thread {which}: {} on their nodes", assigned.len());
        found.add(!assigned.is_empty(), format!("thread {which}"), || PlacementOverride::threads(words, assigned));
    }
    let mut processes = HashSet::new();
    for rule in &plan.processes {
        let which = rule.which();
        let assigned = assigned_processes(rule, trace, machine, &mut processes)?;
        let words = format!("process {which}: {} on their nodes", assigned.len());
        found.add(!assigned.is_empty(), format!("process {which}"), || PlacementOverride::processes(words, assigned));
    }
    Ok(found)
}

impl PlanOverrides {
    fn add(&mut self, has_effect: bool, name: String, make: impl FnOnce() -> PlacementOverride) {
        if has_effect {
            self.overrides.push(make());
        } else {
            self.without_effect.push(name);
        }
    }
}

fn in_ranges(ranges: &[(u64, u64)], number: u64) -> bool {
    ranges.is_empty() || ranges.iter().any(|&(first, last)| (first..=last).contains(&number))
}

/// The objects that each rule matches first, by rule.
fn taken_by(rules: &[ObjectRule], trace: &Trace) -> Vec<Vec<ObjectId>> {
    let allocations = Allocations::of(trace);
    let mut order: Vec<&Object> = trace.objects().iter().collect();
    order.sort_by_key(|object| (object.birth, object.id));
    let mut by_stack: BTreeMap<StackId, Vec<bool>> = BTreeMap::new();
    // Instances are numbered per process, among the objects that meet all other conditions.
    let mut seen: BTreeMap<(usize, ProcessIndex), u64> = BTreeMap::new();
    let mut taken = vec![Vec::new(); rules.len()];
    for object in order {
        let Some(site) = trace.site(object.site) else { continue };
        let stacks = by_stack
            .entry(object.stack)
            .or_insert_with(|| rules.iter().map(|rule| allocations.takes(&rule.matches, object.stack)).collect());
        let program = trace.process(object.process).map_or("", |process| process.command());
        let takes = |(at, rule): &(usize, &ObjectRule)| {
            let matches = &rule.matches;
            let is_it = if matches.is_dynamic() {
                is_allocated(site.kind) && stacks[*at]
            } else {
                is_static_match(matches, site, allocations.modules())
            };
            let is_sized = object.bytes >= matches.min_size.unwrap_or(0)
                && object.bytes <= matches.max_size.unwrap_or(u64::MAX)
                && matches.process.as_ref().is_none_or(|pattern| glob_matches(pattern, program));
            if !is_it || !is_sized {
                return false;
            }
            let number = seen.entry((*at, object.process)).or_default();
            *number += 1;
            in_ranges(&matches.instances, *number - 1)
        };
        if let Some((at, _)) = rules.iter().enumerate().find(takes) {
            taken[at].push(object.id);
        }
    }
    taken
}

/// Whether a rule about a symbol, section or mapped file matches a site.
fn is_static_match(matches: &ObjectMatch, site: &Site, modules: &NamedModules) -> bool {
    let is_in = || matches.frame.module.as_ref().is_none_or(|end| modules.is_named(&site.module, end));
    match (&matches.symbol, &matches.section, &matches.mapped_file) {
        (Some(pattern), _, _) => {
            site.kind == ObjectKind::Static
                && is_in()
                && spellings(&site.name).iter().any(|name| glob_matches(pattern, name))
        }
        (_, Some(section), _) => site.kind == ObjectKind::Section && is_in() && *section == *site.name,
        (_, _, Some(pattern)) => match site.kind {
            ObjectKind::File => glob_matches(pattern, &site.name),
            ObjectKind::Shared => shared_paths(&site.name).iter().any(|path| glob_matches(pattern, path)),
            _ => false,
        },
        _ => false,
    }
}

/// Number of objects of each site.
fn counted<'o>(objects: impl IntoIterator<Item = &'o Object>) -> BTreeMap<SiteId, usize> {
    let mut counts = BTreeMap::new();
    objects.into_iter().for_each(|object| *counts.entry(object.site).or_default() += 1);
    counts
}

/// The sites whose objects (their numbers in `all`) are all among `objects`, and the objects of other sites.
fn whole_sites(objects: &[ObjectId], trace: &Trace, all: &BTreeMap<SiteId, usize>) -> (Vec<SiteId>, Vec<ObjectId>) {
    let counts = counted(objects.iter().filter_map(|id| trace.object(*id)));
    let whole: BTreeSet<SiteId> =
        counts.into_iter().filter(|(site, count)| all.get(site) == Some(count)).map(|(site, _)| site).collect();
    let is_of_others = |id: &&ObjectId| trace.object(**id).is_some_and(|object| !whole.contains(&object.site));
    let rest = objects.iter().filter(is_of_others).copied().collect();
    (whole.into_iter().collect(), rest)
}

/// The fix that corresponds to a rule's policy, and whether the pages' home is their first-touch node.
fn kind_of(rule: &ObjectRule, machine: &Machine) -> Result<(FixKind, bool)> {
    let with_memory: Vec<NodeId> =
        machine.nodes().iter().filter(|node| node.has_memory()).map(|node| node.id).collect();
    let even = |nodes: &[NodeId]| FixKind::WeightedInterleave(nodes.iter().map(|&node| (node, 1)).collect());
    let refuse = |why: &str| -> Result<(FixKind, bool)> {
        let at = if rule.line > 0 { format!("line {}: ", rule.line) } else { String::new() };
        bail!("{at}object {}: {why}", rule.name)
    };
    Ok(match &rule.policy {
        Policy::Node { node, .. } => (FixKind::AllocateOnNode(*node), false),
        // As of the finding that proposes it.
        Policy::Interleave(NodeSet::Listed(nodes)) if *nodes == machine.nodes_of_tier(MemoryTier::Fast) => {
            (FixKind::NearTier, false)
        }
        Policy::Interleave(NodeSet::Listed(nodes)) if *nodes != with_memory => (even(nodes), false),
        Policy::Interleave(_) => (FixKind::Interleave, false),
        Policy::WeightedInterleave(weights) if weights.is_empty() => {
            return refuse("the kernel chooses the weights, so the gain cannot be predicted; write `weights`");
        }
        Policy::WeightedInterleave(weights) => (FixKind::WeightedInterleave(weights.clone()), false),
        Policy::Local => (FixKind::LocalArenas, false),
        Policy::FirstUse => (FixKind::FirstTouchByUsers, true),
        Policy::Split(_) => {
            return refuse(
                "the gain of `split` cannot be predicted; record with the plan (`numapilot record --plan`) and compare",
            );
        }
        Policy::Replicate => {
            return refuse(
                "a plan cannot copy memory for the threads of one process; `--set OBJECT=replicate` predicts what copies would gain",
            );
        }
        Policy::HandOver(_) => {
            return refuse(
                "the gain of a hand-over rule cannot be predicted; `--set OBJECT=hand-over` predicts the gain at best",
            );
        }
    })
}

/// Nodes that a placing allows, in its order.
fn nodes_of(placing: &Placing, machine: &Machine) -> Vec<NodeId> {
    match placing {
        Placing::Nodes(NodeSet::Listed(nodes)) => nodes.clone(),
        // Fitted plans list their nodes.
        Placing::Nodes(NodeSet::All | NodeSet::Tier(_)) => machine.cpu_nodes().map(|node| node.id).collect(),
        Placing::Cpus(cpus) => cpus.iter().filter_map(|&cpu| machine.node_of_cpu(cpu)).collect(),
    }
}

/// The node of the match with this number (from 0); `None` if it may run on several nodes, so that its node is unknown.
fn assigned_node(nodes: &[NodeId], layout: Layout, number: usize) -> Option<NodeId> {
    let first = *nodes.first()?;
    match layout {
        Layout::Spread => Some(nodes[number % nodes.len()]),
        Layout::Together => nodes.iter().all(|node| *node == first).then_some(first),
    }
}

/// The threads that a rule places, without those that earlier rules have `taken`.
fn assigned_threads(
    rule: &ThreadRule,
    trace: &Trace,
    machine: &Machine,
    taken: &mut HashSet<ThreadIndex>,
) -> Result<Vec<(ThreadIndex, NodeId)>> {
    let nodes = nodes_of(&rule.placing, machine);
    let mut assigned = Vec::new();
    for (thread, order) in trace.threads().iter().zip(creation_numbers(trace)) {
        let program = trace.process(thread.process).map_or("", |process| process.command());
        let is_named = |pattern: &Option<String>, name: &str| {
            pattern.as_ref().is_none_or(|pattern| spellings(name).iter().any(|name| glob_matches(pattern, name)))
        };
        let has_name = |pattern: &String| thread.kernel_names().iter().any(|name| glob_matches(pattern, name));
        let is_it = rule.name.as_ref().is_none_or(has_name)
            && is_named(&rule.start, &thread.start_function)
            && in_ranges(&rule.order, order)
            && rule.process.as_ref().is_none_or(|pattern| glob_matches(pattern, program));
        if is_it && taken.insert(thread.index) {
            let Some(node) = assigned_node(&nodes, rule.layout, assigned.len()) else {
                bail!(
                    "line {}: the gain of threads that may run on several nodes cannot be predicted; name one node, or `layout = \"spread\"`",
                    rule.line
                );
            };
            assigned.push((thread.index, node));
        }
    }
    Ok(assigned)
}

/// The processes that a rule places, without those that earlier rules have `taken`; it does not count these either.
fn assigned_processes(
    rule: &ProcessRule,
    trace: &Trace,
    machine: &Machine,
    taken: &mut HashSet<ProcessIndex>,
) -> Result<Vec<(ProcessIndex, NodeId)>> {
    let nodes = nodes_of(&rule.placing, machine);
    let (mut matching, mut assigned) = (0, Vec::new());
    for (index, process) in trace.processes().iter().enumerate() {
        let index = ProcessIndex(index as u32);
        if taken.contains(&index)
            || rule.command.as_ref().is_some_and(|pattern| !glob_matches(pattern, process.command()))
        {
            continue;
        }
        matching += 1;
        if in_ranges(&rule.order, matching - 1) {
            let Some(node) = assigned_node(&nodes, rule.layout, assigned.len()) else {
                bail!(
                    "line {}: the gain of processes that may run on several nodes cannot be predicted; name one node, or `layout = \"spread\"`",
                    rule.line
                );
            };
            taken.insert(index);
            assigned.push((index, node));
        }
    }
    Ok(assigned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numapilot_flows::{Frame as CodeFrame, Location, LocationId, Process, Tables, Thread};

    fn site(kind: ObjectKind, name: &str) -> Site {
        let of = |text: &str| std::sync::Arc::from(text);
        Site { kind, name: of(name), function: of("main"), file: of("/src/a.c"), line: 7, module: of("/bin/app") }
    }

    /// Blocks of line 7 in two processes (sizes 100 and 10 in turn, born one after the other), and a symbol `table`.
    fn trace() -> Trace {
        let frame = CodeFrame { function: "main".into(), file: "/src/a.c".into(), line: 7, column: 0, inlined: false };
        let line = Location { module: "/bin/app".into(), offset: 0x100, frames: vec![frame] };
        let mut objects: Vec<Object> = (0..8_u32)
            .map(|number| Object {
                id: ObjectId(number),
                site: SiteId(0),
                process: ProcessIndex(number / 4),
                bytes: if number % 2 == 0 { 100 } else { 10 },
                birth: numapilot_trace::ids::TimeNs(u64::from(number)),
                stack: StackId(1),
                ..Object::default()
            })
            .collect();
        objects.push(Object { id: ObjectId(8), site: SiteId(1), bytes: 64, ..Object::default() });
        let process = |exe: &str| Process { exe: exe.into(), ..Process::default() };
        let thread = |number: u32, process: u32, name: &str| Thread {
            index: ThreadIndex(number),
            process: ProcessIndex(process),
            name: name.into(),
            ..Thread::default()
        };
        Trace::from_tables(Tables {
            sites: vec![site(ObjectKind::Heap, "block"), site(ObjectKind::Static, "table")],
            objects,
            locations: vec![Location::default(), line],
            stacks: vec![vec![], vec![LocationId(1)]],
            processes: vec![process("/bin/app"), process("/bin/other")],
            threads: vec![thread(0, 0, "app"), thread(1, 0, "work"), thread(2, 1, "other"), thread(3, 1, "work")],
            ..Tables::default()
        })
    }

    fn plan(text: &str) -> Plan {
        let head = "version = 1\n";
        Plan::parse(&format!("{head}{text}"), "made.toml").expect("a plan")
    }

    fn machine() -> Machine {
        Machine::load("opteron-8385").expect("a model")
    }

    fn numbers(objects: &[ObjectId]) -> Vec<u32> {
        objects.iter().map(|id| id.0).collect()
    }

    #[test]
    fn the_first_rule_takes_an_object_by_size_program_and_number() {
        let rules = "
            [[object]]
            name = \"large of other\"
            file = \"a.c\"
            line = 7
            min_size = 50
            process = \"other\"
            policy = \"local\"
            [[object]]
            name = \"second of each\"
            file = \"a.c\"
            line = 7
            instances = \"1\"
            policy = \"interleave\"
            [[object]]
            name = \"rest\"
            file = \"a.c\"
            line = 7
            policy = \"node\"
            node = 2
            [[object]]
            name = \"table\"
            symbol = \"tab*\"
            policy = \"interleave\"
            [[object]]
            name = \"none\"
            symbol = \"absent\"
            policy = \"interleave\"
        ";
        let (plan, trace) = (plan(rules), trace());
        let taken: Vec<Vec<u32>> = taken_by(&plan.objects, &trace).iter().map(|list| numbers(list)).collect();
        // Of `other`, 4 and 6 are large; instances are counted among what is left: 5 and 7.
        assert_eq!(taken, [vec![4, 6], vec![1, 7], vec![0, 2, 3, 5], vec![8], vec![]]);
        let (whole, rest) = whole_sites(&[ObjectId(8), ObjectId(0)], &trace, &counted(trace.objects()));
        assert_eq!((whole, numbers(&rest)), (vec![SiteId(1)], vec![0]), "a site of which all is taken is one");
        let fitted = plan.fit(&machine(), numapilot_plan::Fit::Exact).expect("it fits");
        let found = overrides(&fitted.plan, &trace, &machine()).expect("it can be asked");
        assert_eq!((found.overrides.len(), found.without_effect), (4, vec!["object none".to_owned()]));
    }

    #[test]
    fn memory_of_the_fast_tier_is_priced_as_the_finding_does_that_proposes_it() {
        let plan = plan(
            "[[object]]\nfile = \"a.c\"\npolicy = \"interleave\"\nnodes = \"tier:fast\"\n\
             [[object]]\nsymbol = \"table\"\npolicy = \"interleave\"\nnodes = \"tier:slow\"\n",
        );
        let machine = Machine::load("xeon-2s-cxl").expect("a model");
        let fitted = plan.fit(&machine, numapilot_plan::Fit::Exact).expect("it fits").plan;
        let kinds = fitted.objects.iter().map(|rule| kind_of(rule, &machine).expect("it has a price").0);
        let slow = FixKind::WeightedInterleave(vec![(NodeId(2), 1)]);
        assert_eq!(kinds.collect::<Vec<_>>(), [FixKind::NearTier, slow]);
    }

    #[test]
    fn shared_memory_is_a_mapped_file_and_a_segment_is_none() {
        let plan = plan("[[object]]\nmapped_file = \"/dev/shm/po*\"\npolicy = \"local\"\n");
        let modules = NamedModules::default();
        let matches = |name: &str| is_static_match(&plan.objects[0].matches, &site(ObjectKind::Shared, name), &modules);
        assert!(matches("/dev/shm/pool") && !matches("/dev/shm/other") && !matches("System V segment id 3"));
    }

    /// As in a program that runs by the plan: the rule matched nothing in recordings of the kernel's events.
    #[test]
    fn a_librarys_static_is_matched_by_both_names_of_the_library() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("libx.so.1.2.3"), "").expect("a library");
        std::os::unix::fs::symlink("libx.so.1.2.3", folder.path().join("libx.so.1")).expect("a link");
        let plan = plan("[[object]]\nsymbol = \"table\"\nmodule = \"libx.so.1\"\npolicy = \"local\"\n");
        for (name, expected) in [("libx.so.1", true), ("libx.so.1.2.3", true), ("liby.so.1", false)] {
            let module = folder.path().join(name).to_string_lossy().into_owned();
            let of_library = Site { module: module.into(), ..site(ObjectKind::Static, "table") };
            let is_match = is_static_match(&plan.objects[0].matches, &of_library, &NamedModules::default());
            assert_eq!(is_match, expected, "{name}");
        }
    }

    #[test]
    fn what_has_no_price_is_refused_by_line_and_with_what_to_do() {
        let cases = [
            ("policy = \"split\"", "record with the plan"),
            ("policy = \"replicate\"", "--set OBJECT=replicate"),
            ("policy = \"hand-over\"\nto = \"work\"", "--set OBJECT=hand-over"),
        ];
        for (policy, needed) in cases {
            let plan = plan(&format!("[[object]]\nname = \"block\"\nfile = \"a.c\"\n{policy}\n"));
            let fitted = plan.fit(&machine(), numapilot_plan::Fit::Exact).expect("it fits");
            let why = overrides(&fitted.plan, &trace(), &machine()).err().expect("no price").to_string();
            assert!(why.contains("line 2: object block") && why.contains(needed), "{why}");
        }
        let both = plan("[[thread]]\nname = \"work\"\nnodes = \"0-1\"\n");
        let why = overrides(&both, &trace(), &machine()).err().expect("no price").to_string();
        assert!(why.contains("line 2") && why.contains("layout = \"spread\""), "{why}");
    }

    #[test]
    fn threads_and_processes_are_seated_as_the_rules_say() {
        let plan = plan(
            "[[thread]]\nname = \"work\"\nnodes = \"1-2\"\nlayout = \"spread\"\n[[thread]]\nprocess = \"app\"\norder = \"0\"\nnodes = \"3\"\n\
             [[process]]\nnodes = \"all\"\nlayout = \"spread\"\n",
        );
        let (trace, machine) = (trace(), machine());
        let mut taken = HashSet::new();
        let mut assigned =
            |rule: usize| assigned_threads(&plan.threads[rule], &trace, &machine, &mut taken).expect("assigned nodes");
        assert_eq!(assigned(0), [(ThreadIndex(1), NodeId(1)), (ThreadIndex(3), NodeId(2))]);
        assert_eq!(assigned(1), [(ThreadIndex(0), NodeId(3))], "numbers are counted within a process");
        let mut taken = HashSet::new();
        let processes = assigned_processes(&plan.processes[0], &trace, &machine, &mut taken).expect("assigned nodes");
        assert_eq!(processes, [(ProcessIndex(0), NodeId(0)), (ProcessIndex(1), NodeId(1))]);
    }

    /// The trace has the whole name of a thread that a runtime told; the planner goes by what the kernel was given.
    #[test]
    fn a_rule_names_a_thread_as_the_kernel_does() {
        let (process, machine) = (Process { exe: "/bin/java".into(), ..Process::default() }, machine());
        let thread = Thread { name: "DispatcherWorkerThread21".into(), ..Thread::default() };
        let trace = Trace::from_tables(Tables { processes: vec![process], threads: vec![thread], ..Tables::default() });
        let assigned = |name: &str| {
            let plan = plan(&format!("[[thread]]\nname = \"{name}\"\nnodes = \"1\"\n"));
            assigned_threads(&plan.threads[0], &trace, &machine, &mut HashSet::new()).expect("nodes")
        };
        for name in ["DispatcherWorke", "Dispatc..read21", "Dispatcher*"] {
            assert_eq!(assigned(name), [(ThreadIndex(0), NodeId(1))], "{name}");
        }
        assert!(assigned("DispatcherWorkerThread21").is_empty());
    }

    #[test]
    fn the_first_rule_takes_a_thread_or_a_process_and_the_next_counts_what_is_left() {
        let plan = plan(
            "[[thread]]\nname = \"work\"\norder = \"1\"\nprocess = \"app\"\nnodes = \"2\"\n[[thread]]\nnodes = \"3\"\n\
             [[process]]\ncommand = \"app\"\nnodes = \"2\"\n[[process]]\norder = \"0\"\nnodes = \"3\"\n",
        );
        let (trace, machine) = (trace(), machine());
        let mut taken = HashSet::new();
        let mut threads =
            |rule: usize| assigned_threads(&plan.threads[rule], &trace, &machine, &mut taken).expect("nodes");
        assert_eq!(threads(0), [(ThreadIndex(1), NodeId(2))]);
        assert_eq!(threads(1), [0, 2, 3].map(|number| (ThreadIndex(number), NodeId(3))));
        let mut taken = HashSet::new();
        let mut processes =
            |rule: usize| assigned_processes(&plan.processes[rule], &trace, &machine, &mut taken).expect("nodes");
        assert_eq!(processes(0), [(ProcessIndex(0), NodeId(2))]);
        assert_eq!(processes(1), [(ProcessIndex(1), NodeId(3))], "what the first rule took is not counted");
    }
}
