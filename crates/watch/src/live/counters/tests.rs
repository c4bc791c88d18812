//! Arithmetic of counts, and events of this machine.

use numapilot_host::Pid;

use super::*;
use crate::fixture::Tree;

#[test]
fn counts_are_scaled_by_their_share_of_the_time() {
    let before = Raw { value: 100, enabled: 1000, running: 1000 };
    assert_eq!(scaled_since(before, Raw { value: 150, enabled: 3000, running: 2000 }), Some(100.0));
    assert_eq!(scaled_since(before, Raw { value: 150, enabled: 3000, running: 3000 }), Some(50.0));
    assert_eq!(scaled_since(before, Raw { value: 100, enabled: 3000, running: 1000 }), None);
    assert_eq!(scaled_since(before, before), Some(0.0));
    let is_scaled = |running: u64| is_scaled_since(before, Raw { value: 150, enabled: 3000, running });
    assert_eq!((is_scaled(3000), is_scaled(2000), is_scaled_since(before, before)), (false, true, false));
}

fn sums(counts: &[(&str, f64)]) -> Sums {
    let mut sums = Sums { running: [1.0; COUNT], ..Sums::default() };
    counts.iter().for_each(|(name, count)| sums.counts[position(name)] = Some(*count));
    sums
}

#[test]
fn metrics_are_ratios_of_counts_and_say_why_they_are_not() {
    let sums = sums(&[
        ("cycles", 2000.0),
        ("instructions", 3000.0),
        ("cache-misses", 6.0),
        ("node-loads", 8.0),
        ("node-load-misses", 2.0),
    ]);
    let of = |all: Option<bool>| Counters { node_loads_are_all: all, ..Counters::default() };
    assert_eq!(of(None).ipc(&sums).value(), Some(1.5));
    assert_eq!(of(None).l3_mpki(&sums).value(), Some(2.0));
    assert_eq!(of(Some(true)).local_share(&sums).value(), Some(0.75));
    assert_eq!(of(Some(false)).local_share(&sums).value(), Some(0.8));
    assert_eq!(of(None).local_share(&sums).value(), None);
    let none = Counters::none("no counters in this virtual machine");
    assert_eq!(none.ipc(&Sums::default()), MetricValue::Missing("no counters in this virtual machine".into()));
}

/// Counts that were scaled are estimates, and so is what is computed from them; it was called counted.
#[test]
fn metrics_of_scaled_counts_are_estimates() {
    let names = ["cycles", "instructions", "cache-misses", "node-loads", "node-load-misses"];
    let mut sums = sums(&names.map(|name| (name, 10.0)));
    let counters = Counters { node_loads_are_all: Some(false), ..Counters::default() };
    let told = |sums: &Sums| {
        let metrics = [counters.ipc(sums), counters.l3_mpki(sums), counters.local_share(sums)];
        metrics.map(|told| matches!(told, MetricValue::Value { is_estimate: true, .. }))
    };
    assert_eq!(told(&sums), [false; 3]);
    sums.running[position("cache-misses")] = 0.5;
    assert_eq!(told(&sums), [false, true, false]);
    sums.running[position("node-load-misses")] = 0.9;
    assert_eq!(told(&sums), [false, true, true]);
    let figures = counters.figures(&sums);
    let is_estimate =
        |name: &str| matches!(figures[position(name)].count, MetricValue::Value { is_estimate: true, .. });
    assert!(is_estimate("cache-misses") && !is_estimate("cycles"));
}

/// Counters of a made-up machine: the opened (task, CPU) pairs. Who asks for the kernel's part is refused where `hides_kernel`.
fn made_up(tree: &Tree, scope: &Scope, hides_kernel: bool) -> (Counters, Vec<(libc::pid_t, CpuId)>) {
    let mut opened = Vec::new();
    let mut opener = |attr: EventAttr, task: libc::pid_t, cpu: CpuId| {
        if hides_kernel && !attr.flag(attr_flag::EXCLUDE_KERNEL) {
            return Err(io::Error::from_raw_os_error(libc::EACCES));
        }
        opened.push((task, cpu));
        Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
    };
    let counters = Counters::open_with(&tree.root(), &tree.machine(), scope, None, &mut opener);
    (counters, opened)
}

/// Follows CPUs; the CPUs on which events were opened.
fn follow(counters: &mut Counters, machine: &Machine, online: &[u32], is_refused: bool) -> Vec<u32> {
    let online: BTreeSet<CpuId> = online.iter().copied().map(CpuId).collect();
    let mut opened = Vec::new();
    let mut opener = |_: EventAttr, _: libc::pid_t, cpu: CpuId| {
        if is_refused {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        opened.push(cpu.0);
        Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
    };
    counters.follow_with(machine, &online, &BTreeSet::new(), &mut opener);
    opened.dedup();
    opened
}

/// A CPU that was offline for a while, or at the start, was counted no more, and no word said so.
#[test]
fn events_of_the_whole_machine_follow_cpus_that_go_and_come() {
    let tree = Tree::symmetric(2, 2, 1 << 20);
    tree.put("sys/devices/system/cpu/online", "0-2");
    let machine = tree.machine();
    let (mut counters, opened) = made_up(&tree, &Scope::System, false);
    assert_eq!(opened.len(), COUNT * 3);
    let sums = counters.sums.len();
    let cases: [(&[u32], &[u32]); 4] =
        [(&[0, 1, 2], &[]), (&[0, 1, 2, 3], &[3]), (&[0, 2, 3], &[]), (&[0, 1, 2, 3], &[1])];
    for (online, fresh) in cases {
        assert_eq!(follow(&mut counters, &machine, online, false), fresh, "{online:?}");
        assert_eq!(counters.open.len(), COUNT * online.len(), "{online:?}");
    }
    assert_eq!((counters.sums.len(), counters.uncounted()), (sums, None), "they add to their nodes' sums");
    assert!(follow(&mut counters, &machine, &[0, 1, 2, 3, 7], true).is_empty());
    assert!(counters.notes().iter().any(|note| note.ends_with("not counted there: 7.")), "{:?}", counters.notes());
    follow(&mut counters, &machine, &[0, 1, 2, 3], false);
    assert_eq!(counters.uncounted(), None);
    // Events of tasks stay with their tasks.
    let (mut of_tasks, _) = made_up(&tree, &Scope::Children, false);
    assert!(follow(&mut of_tasks, &machine, &[0, 1], false).is_empty() && of_tasks.are_of_tasks_by_cpu());
}

/// A CPU that went and came back between two looks was counted no more, and no word said so.
#[test]
fn events_that_ended_on_a_cpu_that_is_online_are_opened_anew() {
    let tree = Tree::symmetric(2, 2, 1 << 20);
    let machine = tree.machine();
    let (mut counters, _) = made_up(&tree, &Scope::System, false);
    let sums = counters.sums.len();
    let online: BTreeSet<CpuId> = [0, 1, 2, 3].map(CpuId).into();
    let mut opened = Vec::new();
    let mut opener = |_: EventAttr, _: libc::pid_t, cpu: CpuId| -> io::Result<OwnedFd> {
        opened.push(cpu);
        Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
    };
    counters.follow_with(&machine, &online, &[CpuId(2)].into(), &mut opener);
    assert_eq!(opened, [CpuId(2); COUNT]);
    assert_eq!((counters.open.len(), counters.sums.len()), (COUNT * 4, sums), "they add to their node's sums");
    assert!(counters.notes().iter().any(|note| note.starts_with("CPUs 2 were offline")), "{:?}", counters.notes());
    assert_eq!(counters.interrupted().collect::<Vec<_>>(), [CpuId(2)]);
}

#[test]
fn a_command_inherits_few_events_on_a_large_machine() {
    let large = Tree::symmetric(2, 128, 1 << 20);
    let (counters, opened) = made_up(&large, &Scope::Children, false);
    assert_eq!(opened, [(0, ANY_CPU); COUNT], "one event of each kind");
    let reading = counters.read();
    let of_all = counters.sums(&reading, &reading, None);
    assert!(of_all.counts.iter().all(Option::is_some));
    let of_node = counters.sums(&reading, &reading, Some(NodeIndex(0)));
    let MetricValue::Missing(why) = counters.ipc(&of_node) else { panic!("a node's figure out of nothing") };
    assert!(why.contains("not counted by node"), "{why}");
    assert!(counters.notes()[0].contains("5 events for each of 256 CPUs"), "{:?}", counters.notes());

    let small = Tree::symmetric(2, 4, 1 << 20);
    let (counters, opened) = made_up(&small, &Scope::Children, false);
    assert_eq!(opened.len(), 5 + 5 * 8, "the processor's events by CPU");
    assert!(counters.sums(&counters.read(), &counters.read(), Some(NodeIndex(1))).counts[position("cycles")].is_some());
    assert!(counters.notes().is_empty());
    let (_, opened) = made_up(&small, &Scope::System, false);
    assert_eq!(opened.len(), COUNT * 8);
}

#[test]
fn shares_of_the_time_are_those_of_the_task_in_either_layout() {
    let event = position("cycles");
    let raw = |running: u64| Raw { value: 100, enabled: 1000, running };
    let of = |opens: &[(Place, usize)], now: Vec<Raw>| {
        let sum = |&(place, shares): &(Place, usize)| Sum { event, place, shares, closed: Raw::default() };
        let counters = Counters { sums: opens.iter().map(sum).collect(), ..Counters::default() };
        counters.sums(&CountersReading::default(), &CountersReading(now), None)
    };
    // A task that was on one of two CPUs half of the time, and on the other for the rest.
    let sums = of(&[(Place::Node(NodeIndex(0)), 2), (Place::Node(NodeIndex(1)), 2)], vec![raw(500), raw(500)]);
    assert_eq!((sums.counts[event], sums.running[event]), (Some(200.0), 1.0));
    let sums = of(&[(Place::Anywhere, 1)], vec![raw(500)]);
    assert_eq!((sums.counts[event], sums.running[event]), (Some(200.0), 0.5));
    assert_eq!(of(&[], Vec::new()).counts[event], None, "nothing was counted");
    let sums = of(&[(Place::Anywhere, 1)], vec![Raw { value: 0, enabled: 1000, running: 0 }]);
    assert_eq!((sums.counts[event], sums.running[event]), (None, 0.0), "no hardware counter was free");
    let idle = of(&[(Place::Anywhere, 1)], vec![Raw::default()]);
    assert_eq!((idle.counts[event], idle.running[event]), (Some(0.0), 1.0), "the task did not run");
}

#[test]
fn an_event_that_had_no_counter_has_a_reason_and_no_count() {
    let (mut counters, _) = made_up(&Tree::symmetric(1, 2, 1 << 20), &Scope::Children, false);
    counters.open.clear();
    counters.sums.retain(|sum| EVENTS[sum.event].name == "cycles");
    let now = CountersReading(vec![Raw { value: 0, enabled: 1000, running: 0 }; counters.sums.len()]);
    let sums = counters.sums(&CountersReading::default(), &now, None);
    let figures = counters.figures(&sums);
    let cycles = &figures.iter().find(|figure| figure.name == "cycles").unwrap().count;
    assert_eq!(*cycles, MetricValue::Missing(NEVER_RAN.to_owned()));
}

#[test]
fn what_the_kernel_hides_is_neither_zero_nor_the_whole() {
    let (counters, _) = made_up(&Tree::symmetric(1, 2, 1 << 20), &Scope::Children, true);
    let reading = counters.read();
    let figures = counters.figures(&counters.sums(&reading, &reading, None));
    let of = |name: &str| &figures.iter().find(|figure| figure.name == name).unwrap().count;
    for name in ["context-switches", "cpu-migrations"] {
        let MetricValue::Missing(why) = of(name) else { panic!("{name} is always 0 without the kernel's part") };
        assert!(why.contains("they happen in the kernel"), "{why}");
    }
    let source = |name: &str| match of(name) {
        MetricValue::Value { source, .. } => source.clone(),
        MetricValue::Missing(why) => panic!("{name}: {why}"),
    };
    assert_eq!((source("task-clock").as_str(), source("minor-faults").as_str()), ("kernel", "kernel, user code only"));
    assert_eq!(source("cycles"), "core PMU, user code only");
    assert!(counters.notes()[0].ends_with("cycles, instructions, cache-misses, node-loads, node-load-misses."));
    let (counters, _) = made_up(&Tree::symmetric(1, 2, 1 << 20), &Scope::Children, false);
    assert!(counters.refused.iter().all(Option::is_none) && counters.notes().is_empty());
}

/// An event that counts guests, too, keeps such guests from starting.
#[test]
fn guests_that_have_the_counters_are_left_out_and_others_are_counted() {
    for (value, leaves_out) in [(None, false), (Some("N\n"), false), (Some("Y\n"), true)] {
        let tree = Tree::symmetric(1, 2, 1 << 20);
        if let Some(value) = value {
            tree.put("sys/module/kvm_amd/parameters/enable_mediated_pmu", value);
        }
        let mut opener = |attr: EventAttr, _: libc::pid_t, _: CpuId| -> io::Result<OwnedFd> {
            let is_software = attr.kind == event_type::SOFTWARE;
            assert_eq!(attr.flag(attr_flag::EXCLUDE_GUEST), leaves_out && !is_software, "{value:?}, {attr:?}");
            Ok(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()))
        };
        let counters = Counters::open_with(&tree.root(), &tree.machine(), &Scope::System, None, &mut opener);
        let reading = counters.read();
        let figures = counters.figures(&counters.sums(&reading, &reading, None));
        let source = |name: &str| match &figures.iter().find(|figure| figure.name == name).unwrap().count {
            MetricValue::Value { source, .. } => source.clone(),
            MetricValue::Missing(why) => panic!("{name}: {why}"),
        };
        let wanted = if leaves_out { "core PMU, without guests" } else { "core PMU" };
        assert_eq!((source("cycles").as_str(), source("task-clock").as_str()), (wanted, "kernel"));
        assert_eq!(counters.notes().iter().any(|note| note.contains("virtual machines")), leaves_out);
    }
}

#[test]
fn what_was_closed_stays_counted_and_holds_no_descriptor() {
    let (root, machine) = (Root::default(), Machine::live().unwrap());
    let faults = position("minor-faults");
    let start = || std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let end = |child: &mut std::process::Child| {
        child.kill().unwrap();
        child.wait().unwrap();
    };
    let mut first = start();
    let mut counters = Counters::open(&root, &machine, &Scope::Processes(vec![Pid::of_child(&first)]), None);
    if let Some(why) = counters.refused[faults].clone() {
        end(&mut first);
        return numapilot_not_run::not_run!(PageFaultEvents, "{why}");
    }
    let of_first = counters.open.len();
    let count = |counters: &Counters| {
        let now = counters.read();
        counters.sums(&CountersReading::default(), &now, None).counts[faults].unwrap()
    };
    for _ in 0..20 {
        let mut joined = start();
        counters.join(&machine, &[Pid::of_child(&joined)]);
        assert!(counters.open.len() > of_first, "it is counted");
        end(&mut joined);
        let before = count(&counters);
        counters.close(&[Pid::of_child(&joined)]);
        assert_eq!(counters.open.len(), of_first, "its events are closed");
        assert!(count(&counters) >= before, "what it had done is counted on");
    }
    end(&mut first);
}

#[test]
fn what_node_loads_means_goes_by_the_processor() {
    let of = |text: &str| {
        let tree = Tree::empty();
        tree.put("proc/cpuinfo", text);
        node_loads_are_all(&tree.root())
    };
    assert_eq!(of("vendor_id\t: GenuineIntel\nmodel\t\t: 62\nmodel name\t: Xeon"), Some(true));
    assert_eq!(of("vendor_id\t: GenuineIntel\nmodel\t\t: 79\nmodel name\t: Xeon"), Some(false));
    assert_eq!(of("vendor_id\t: GenuineIntel\nmodel\t\t: 143\n"), Some(false));
    assert_eq!(of("vendor_id\t: AuthenticAMD\nmodel : 1\n"), Some(true));
    assert_eq!(of("CPU implementer\t: 0x41\n"), None);
}

#[test]
fn faults_of_a_command_are_counted_from_its_exec_on() {
    let (root, machine) = (Root::default(), Machine::live().unwrap());
    let faults = position("minor-faults");
    if let Some(why) = &Counters::open(&root, &machine, &Scope::Children, None).refused[faults] {
        return numapilot_not_run::not_run!(PageFaultEvents, "{why}");
    }
    // One command for each opening, as `stat -r` has it: where the processor goes from us to a command before its exec, the kernel may give it our
    // event instead of a copy, and later commands then count nothing.
    let run = |bytes: &str| {
        let counters = Counters::open(&root, &machine, &Scope::Children, None);
        let before = counters.read();
        let arguments = ["if=/dev/zero", "of=/dev/null", "count=1", "status=none", bytes];
        assert!(std::process::Command::new("dd").args(arguments).status().unwrap().success());
        let after = counters.read();
        counters.sums(&before, &after, None).counts[faults].unwrap()
    };
    // A buffer of 3,072 pages more in the second command than in the first.
    let (small, large) = (run("bs=4k"), run("bs=12292k"));
    let more = large - small;
    // Large pages, where the system gives them for any mapping, fault once per 512.
    assert!((3060.0..3120.0).contains(&more) || (0.0..60.0).contains(&more), "{small} and {large}");
}
