//! Plans for trees (testdata/sysfs) of machines that break assumptions, and for ones made up.

use std::collections::BTreeMap;

use super::*;

fn tree(name: &str) -> Machine {
    Machine::from_sysfs(numapilot_host::testing::tree(name).path()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A process that may use everything.
fn all() -> Permit {
    Permit {
        cpus: (0..4096).map(CpuId).collect(),
        memory_nodes: (0..1024).map(NodeId).collect(),
        cpus_at_once: None,
        memory_bytes: None,
        large_pages: true,
        large_page_bytes: 2 << 20,
        huge_free_bytes: BTreeMap::new(),
    }
}

fn full() -> Options {
    Options { full: true, ..Options::default() }
}

fn plan(machine: &Machine, permit: &Permit, options: &Options) -> Plan {
    Plan::new(machine, permit, options).unwrap_or_else(|e| panic!("{e}"))
}

/// (CPU node, memory node) pairs of the random chases, in order.
fn pairs(plan: &Plan) -> Vec<(u16, u16)> {
    let pair = |(group, step): (&Group, &Step)| match (&step.task, &group.target) {
        (Task::Latency { from, walk: Walk::Random, .. }, Some(Target::Node(to))) => Some((from.0, to.0)),
        _ => None,
    };
    let mut pairs: Vec<(u16, u16)> = plan.steps().filter_map(pair).collect();
    pairs.sort_unstable();
    pairs
}

fn cross(from: &[u16], to: &[u16]) -> Vec<(u16, u16)> {
    from.iter().flat_map(|from| to.iter().map(move |to| (*from, *to))).collect()
}

/// Every CPU that a plan uses.
fn cpus(plan: &Plan) -> BTreeSet<u32> {
    let of = |step: &Step| -> Vec<CpuId> {
        match &step.task {
            Task::Latency { cpu, .. } | Task::Stairs { cpu, .. } => vec![*cpu],
            Task::Bandwidth { cpus, .. } => cpus.clone(),
            Task::Loaded { cpu, neighbours, .. } => neighbours.iter().copied().chain([*cpu]).collect(),
            Task::Handoff { a, b, .. } => vec![*a, *b],
        }
    };
    let fillers = plan.groups.iter().flat_map(|group| group.fillers.clone());
    plan.steps().flat_map(|(_, step)| of(step)).chain(fillers).map(|cpu| cpu.0).collect()
}

#[test]
fn every_pair_of_a_plain_machine_is_measured() {
    for (name, nodes) in [("four-nodes", 4), ("nps4", 8), ("two-sockets-smt", 2), ("one-node", 1), ("snc2", 4)] {
        let machine = tree(name);
        let plan = plan(&machine, &all(), &full());
        let ids: Vec<u16> = (0..nodes).collect();
        assert_eq!(pairs(&plan), cross(&ids, &ids), "{name}");
        assert!(plan.left_out.is_empty(), "{name}: {:?}", plan.left_out);
        assert_eq!(plan.single_node, nodes == 1, "{name}");
        let spread = plan.groups.iter().filter(|group| matches!(group.target, Some(Target::Weighted(_)))).count();
        assert_eq!(spread, usize::from(nodes > 1), "{name}");
    }
}

#[test]
fn a_memorys_own_node_chases_through_it_before_others_do() {
    for name in ["four-nodes", "nps4", "cxl"] {
        let plan = plan(&tree(name), &all(), &full());
        let mut walks: BTreeMap<(NodeId, Walk), Vec<NodeId>> = BTreeMap::new();
        for (group, step) in plan.steps() {
            if let (Task::Latency { from, walk, .. }, Some(Target::Node(to))) = (&step.task, &group.target) {
                walks.entry((*to, *walk)).or_default().push(*from);
            }
        }
        for ((to, _), from) in walks {
            assert!(from[0] == to || !from.contains(&to), "{name}: memory of node {to}, from {from:?}");
        }
    }
}

#[test]
fn memory_without_cpus_has_no_row_and_cpus_without_memory_no_column() {
    let cxl = plan(&tree("cxl"), &all(), &full());
    assert_eq!(pairs(&cxl), cross(&[0, 1], &[0, 1, 2]));
    let homes = cxl.steps().filter(|(_, step)| matches!(step.task, Task::Stairs { .. }));
    let homes: Vec<&Option<Target>> = homes.map(|(group, _)| &group.target).collect();
    assert_eq!(homes, [&Some(Target::Node(NodeId(0))), &Some(Target::Node(NodeId(0))), &Some(Target::Node(NodeId(1)))]);
    let sparse = plan(&tree("sparse-nodes"), &all(), &full());
    assert_eq!(pairs(&sparse), cross(&[0, 8], &[0, 8, 255]));
    assert_eq!(sparse.line_bytes, 128, "POWER's lines");
    let memoryless = plan(&tree("memory-less"), &all(), &full());
    assert_eq!(pairs(&memoryless), cross(&[0, 1, 2], &[0, 2]));
}

#[test]
fn offline_cpus_are_not_used() {
    let plan = plan(&tree("offline-cpus"), &all(), &full());
    assert_eq!(pairs(&plan), cross(&[0, 1], &[0, 1]));
    assert_eq!(cpus(&plan), BTreeSet::from([0, 1, 2, 4, 6, 7]));
}

#[test]
fn a_container_measures_what_is_its_own_and_says_what_is_not() {
    let machine = tree("four-nodes");
    let permit = Permit {
        cpus: [4, 5, 6, 8].map(CpuId).into(),
        memory_nodes: [NodeId(1)].into(),
        memory_bytes: Some(64 << 20),
        ..all()
    };
    let plan = plan(&machine, &permit, &full());
    assert_eq!(pairs(&plan), cross(&[1, 2], &[1]));
    assert_eq!(cpus(&plan), BTreeSet::from([4, 5, 6, 8]));
    assert_eq!(
        plan.left_out,
        [
            "memory of nodes 0, 2, 3: not in this process's cpuset",
            "CPUs of nodes 0, 3: not in this process's cpuset",
            "latency under load from node 2: it has only one usable core",
        ]
    );
    let bytes: usize = plan.groups.iter().map(|group| group.chase_bytes + 3 * group.array_bytes).max().unwrap();
    assert!(bytes <= 33 << 20, "half of the group's memory at most: {bytes}");
    assert!(!plan.single_node, "the machine has others: binding must be shown");
}

/// Where more CPUs work than the control group has time for, the kernel stops them all for a part of each period: rates are then those of a part of the time,
/// beside latencies of the other part.
#[test]
fn no_more_cpus_work_at_a_time_than_the_control_group_has_time_for() {
    let machine = tree("two-sockets-smt");
    let most_at_once = |plan: &Plan| {
        let of = |step: &Step| match &step.task {
            Task::Bandwidth { cpus, .. } => cpus.len(),
            Task::Loaded { neighbours, .. } => 1 + neighbours.len(),
            _ => 1,
        };
        plan.steps().map(|(_, step)| of(step)).max().unwrap()
    };
    let free = plan(&machine, &all(), &full());
    let two = plan(&machine, &Permit { cpus_at_once: Some(2), ..all() }, &full());
    assert!(most_at_once(&free) > 2 && most_at_once(&two) == 2, "{}", most_at_once(&free));
    assert!(two.notes.iter().any(|note| note.contains("enough for 2 of its CPUs")), "{:?}", two.notes);
    assert!(!free.notes.iter().any(|note| note.contains("control group")), "{:?}", free.notes);
    // Of two CPUs, each is a core.
    let is_core = |cpus: &[CpuId]| cpus.len() < 2 || !machine.cpu(cpus[0]).unwrap().siblings.contains(&cpus[1]);
    assert!(two.steps().all(|(_, step)| !matches!(&step.task, Task::Bandwidth { cpus, .. } if !is_core(cpus))));
    let one = plan(&machine, &Permit { cpus_at_once: Some(1), ..all() }, &full());
    assert_eq!(most_at_once(&one), 1);
    assert!(one.left_out.iter().any(|what| what.contains("has time for one CPU only")), "{:?}", one.left_out);
    assert_eq!(pairs(&one), pairs(&free));
}

/// 1,024 CPUs in 16 nodes, an L3 for each 16 of them.
fn many_cpus() -> Machine {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |file: String, text: String| {
        let path = folder.path().join("sys/devices/system").join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    };
    put("node/online".into(), "0-15".into());
    put("cpu/present".into(), "0-1023".into());
    put("cpu/online".into(), "0-1023".into());
    for node in 0..16 {
        let distances: Vec<String> = (0..16).map(|to| if to == node { "10" } else { "20" }.to_owned()).collect();
        put(format!("node/node{node}/cpulist"), format!("{}-{}", node * 64, node * 64 + 63));
        put(format!("node/node{node}/distance"), distances.join(" "));
        put(
            format!("node/node{node}/meminfo"),
            format!("Node {node} MemTotal: 33554432 kB\nNode {node} MemFree: 33000000 kB\n"),
        );
    }
    for cpu in 0..1024 {
        let cache = format!("cpu/cpu{cpu}/cache/index3");
        for (file, text) in [("level", "3"), ("type", "Unified"), ("size", "32768K"), ("coherency_line_size", "64")] {
            put(format!("{cache}/{file}"), text.to_owned());
        }
        put(format!("{cache}/shared_cpu_list"), format!("{}-{}", cpu / 16 * 16, cpu / 16 * 16 + 15));
    }
    Machine::from_sysfs(folder.path()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_thousand_cpus_are_planned_for_at_once() {
    let machine = many_cpus();
    let started = crate::disturbance::processor_time();
    assert_eq!(machine.cpus().len(), 1024);
    let plan = plan(&machine, &all(), &full());
    assert_eq!(pairs(&plan), cross(&(0..16).collect::<Vec<_>>(), &(0..16).collect::<Vec<_>>()));
    let widest = plan.steps().filter_map(|(_, step)| match &step.task {
        Task::Bandwidth { cpus, .. } => Some(cpus.len()),
        _ => None,
    });
    assert_eq!(widest.max(), Some(64));
    let handoffs = plan.steps().filter(|(_, step)| matches!(step.task, Task::Handoff { .. })).count();
    assert!((16 * 15 / 2..2000).contains(&handoffs), "{handoffs}");
    // Of this thread, which a busy machine does not change.
    let took = crate::disturbance::processor_time() - started;
    assert!(took.as_secs() < 5, "{took:?}");
}

#[test]
fn a_load_leaves_the_chases_own_core_alone() {
    let plan = plan(&tree("two-sockets-smt"), &all(), &full());
    for (_, step) in plan.steps() {
        if let Task::Loaded { cpu, neighbours, .. } = &step.task {
            assert_eq!(neighbours.len(), 3, "one thread of each other core");
            assert!(neighbours.iter().all(|other| other.0 % 8 != cpu.0 % 8));
        }
    }
}

#[test]
fn arrays_are_four_times_the_caches_and_never_half_of_free_memory() {
    let plan = plan(&tree("two-sockets-smt"), &all(), &Options::default());
    assert_eq!(plan.cache_bytes, 19_712 << 10);
    assert_eq!(plan.groups[0].chase_bytes, 4 * (19_712 << 10));
    assert!(3 * plan.groups[0].array_bytes as u64 >= 4 * plan.cache_bytes);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let small = Permit { memory_bytes: Some(1 << 30), ..all() };
    let squeezed = super::Plan::new(&tree("one-node"), &small, &Options::default()).expect("a plan");
    assert!(squeezed.groups[0].chase_bytes + 3 * squeezed.groups[0].array_bytes <= 513 << 20);
    assert!(squeezed.notes[0].contains("less than 4 times a node's last-level caches"), "{:?}", squeezed.notes);
}

/// A virtual machine of two CPUs whose L3 firmware does not show: a chase through 16 MiB, four times both L2s, measured that L3.
#[test]
fn an_l3_that_is_not_shown_is_taken_to_be_there() {
    let folder = numapilot_host::testing::tree("one-node");
    let without = |index: usize| {
        for cpu in 0..2 {
            let cache = folder.path().join(format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}"));
            std::fs::remove_dir_all(cache).expect("a cache");
        }
        let machine = Machine::from_sysfs(folder.path()).expect("a machine");
        plan(&machine, &all(), &Options::default())
    };
    let (no_l3, _, _, none) = (without(3), without(2), without(1), without(0));
    assert_eq!((no_l3.cache_bytes, no_l3.groups[0].chase_bytes, none.cache_bytes), (64 << 20, 256 << 20, 64 << 20));
    assert!(
        no_l3.notes[0].contains("no L3 cache, and there may be one; working sets above 256 MiB"),
        "{:?}",
        no_l3.notes
    );
    assert!(none.notes[0].contains("no caches; working sets"), "{:?}", none.notes);
}

#[test]
fn reserved_huge_pages_are_not_exceeded_and_their_lack_is_told_before_anything_is_mapped() {
    let machine = tree("two-sockets-smt");
    let nodes = || machine.nodes().iter().map(|node| node.id);
    let of = |bytes: u64| Permit { huge_free_bytes: nodes().map(|node| (node, bytes)).collect(), ..all() };
    let huge = Options { pages: crate::Pages::Huge, ..Options::default() };
    let fits = plan(&machine, &of(40 << 20), &huge);
    for group in fits.groups.iter().filter(|group| group.target.is_some()) {
        let pages = group.chase_bytes.div_ceil(2 << 20) + (3 * group.array_bytes).div_ceil(2 << 20);
        assert!(pages <= 20, "{pages} pages of 20: {group:?}");
    }
    let error = Plan::new(&machine, &of(0), &huge).expect_err("no huge pages").to_string();
    assert!(error.contains("node 0 has 0 free reserved huge pages") && error.contains("--pages large"), "{error}");
    // Enough of them for the usual sizes.
    assert_eq!(plan(&machine, &of(8 << 30), &huge).groups[0].chase_bytes, 4 * (19_712 << 10));
}

#[test]
fn quick_keeps_to_its_time_and_says_what_it_leaves_out() {
    for name in ["one-node", "four-nodes", "two-sockets-smt", "cxl", "sparse-nodes", "offline-cpus", "nps4"] {
        let machine = tree(name);
        let plan = plan(&machine, &all(), &Options::default());
        let estimate = plan.estimate().as_secs_f64();
        let admits = plan.notes.iter().any(|note| note.contains("more than the requested 10 s"));
        assert!(estimate <= 12.5 || admits, "{name}: {estimate:.1} s, {:?}", plan.notes);
        assert!(!pairs(&plan).is_empty(), "{name}");
        let an_hour = Options { budget: Some(Duration::from_secs(3600)), ..Options::default() };
        let everything = super::Plan::new(&machine, &all(), &an_hour).expect("a plan").steps().count();
        assert!(plan.steps().count() == everything || !plan.left_out.is_empty(), "{name}");
    }
}

/// On a busy machine, or with little time, a weighted interleave that was asked for was left out as the even one is, which nobody asked for.
#[test]
fn weights_that_were_asked_for_are_measured_however_little_time_there_is() {
    let weights = vec![(NodeId(0), 3), (NodeId(1), 1)];
    let options = Options { weights: weights.clone(), budget: Some(Duration::from_millis(1)), ..Options::default() };
    let plan = plan(&tree("four-nodes"), &all(), &options);
    let spread: Vec<(&Group, &Step)> =
        plan.steps().filter(|(group, _)| matches!(group.target, Some(Target::Weighted(_)))).collect();
    assert!(
        spread.iter().all(|(group, step)| group.target == Some(Target::Weighted(weights.clone())) && step.rank == 0)
    );
    let chases = spread.iter().filter(|(_, step)| matches!(step.task, Task::Latency { .. })).count();
    assert_eq!((chases, spread.len()), (4, 16), "and three kernels, from each node");
    assert!(
        plan.left_out.iter().any(|what| what.contains("chases through interleaved memory (4)")),
        "{:?}",
        plan.left_out
    );
}

#[test]
fn every_time_is_positive_and_what_was_asked_for() {
    let options = Options { budget: Some(Duration::from_secs(60)), ..full() };
    let plan = plan(&tree("four-nodes"), &all(), &options);
    assert!(plan.steps().all(|(_, step)| step.time >= Duration::from_millis(50)), "{plan:?}");
    let estimate = plan.estimate().as_secs_f64();
    assert!((20.0..=75.0).contains(&estimate), "{estimate}");
}

#[test]
fn parts_nodes_and_cpus_can_be_chosen() {
    let machine = tree("four-nodes");
    let options = Options {
        parts: [Part::Latency].into(),
        cpu_nodes: [NodeId(2)].into(),
        memory_nodes: [NodeId(0), NodeId(3)].into(),
        cpus: [CpuId(10)].into(),
        size_bytes: Some(1 << 20),
        ..full()
    };
    let plan = plan(&machine, &all(), &options);
    assert_eq!(pairs(&plan), [(2, 0), (2, 3)]);
    assert!(plan.steps().all(|(_, step)| matches!(step.task, Task::Latency { cpu: CpuId(10), .. })));
    assert!(plan.groups.iter().all(|group| group.chase_bytes == 1 << 20 && group.array_bytes == 0));
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let machine = tree("four-nodes");
    let refused = |options: Options| Plan::new(&machine, &all(), &options).expect_err("refused").to_string();
    assert!(refused(Options { cpu_nodes: [NodeId(9)].into(), ..full() }).contains("there is no node 9"));
    assert!(refused(Options { cpus: [CpuId(99)].into(), ..full() }).contains("CPU 99"));
    assert!(refused(Options { weights: vec![(NodeId(0), 0)], ..full() }).contains("0:3,1:1"));
    let nowhere = Permit { memory_nodes: BTreeSet::new(), ..all() };
    let error = Plan::new(&machine, &nowhere, &full()).expect_err("no memory").to_string();
    assert!(error.contains("cpuset.mems"), "{error}");
}

#[test]
fn handoffs_cover_each_relation() {
    let machine = tree("two-sockets-smt");
    let plan = plan(&machine, &all(), &full());
    let mut counts = BTreeMap::new();
    for (_, step) in plan.steps() {
        if let Task::Handoff { a, b, relation } = step.task {
            assert!(a < b);
            *counts.entry(relation).or_insert(0) += 1;
        }
    }
    // 16 CPUs: 8 cores of two threads, packages of four cores.
    assert_eq!(counts, BTreeMap::from([(Relation::SameCore, 8), (Relation::SameCache, 48), (Relation::Apart, 64)]));
    let nps4 = super::Plan::new(&tree("nps4"), &all(), &full()).expect("a plan");
    let packages =
        nps4.steps().filter(|(_, step)| matches!(step.task, Task::Handoff { relation: Relation::SamePackage, .. }));
    assert_eq!(packages.count(), 2 * 6 * 4, "each pair of the four nodes of each package, two CPUs each");
}

#[test]
fn stairs_grow_to_the_end_without_repeats() {
    let sizes = stairs(1_000_000, 4);
    assert!(sizes.is_sorted_by(|a, b| a < b) && sizes[0] == 4096 && *sizes.last().unwrap() == 1_000_000, "{sizes:?}");
    assert_eq!(stairs(1024, 2), [1024]);
}
