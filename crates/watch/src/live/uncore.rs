//! Counters of the memory controllers: the kernel's named events of Intel's `uncore_imc_*` PMUs (`cas_count_read`, `cas_count_write`), with the scale given in
//! sysfs. The set of PMUs decides, not the processor's model. Events without a name in sysfs are not counted.

use std::os::fd::OwnedFd;

use numapilot_machine::CpuId;
use numapilot_machine::Machine;
use numapilot_machine::NodeIndex;
use numapilot_machine::parse_cpu_list;
use numapilot_perf::EventAttr;
use numapilot_perf::pmu::Pmu;
use numapilot_perf_events::counter::open_counter;

use super::counters;
use super::counters::Raw;
use crate::figures::MetricValue;
use crate::figures::imbalance;
use numapilot_host::Root;

/// Named events that count traffic of a memory controller, reads and writes: all of it, or that of each half of a channel (Granite Rapids, Sierra Forest).
const ALIASES: [(&str, [&str; 2]); 2] = [
    ("cas_count_read", ["cas_count_read_sch0", "cas_count_read_sch1"]),
    ("cas_count_write", ["cas_count_write_sch0", "cas_count_write_sch1"]),
];
const SOURCE: &str = "uncore (memory controllers' cas_count_read, cas_count_write)";
const NEVER_RAN: &str = "other programs had the controllers' counters all the time";
const MIB: f64 = (1_u64 << 20) as f64;

/// An event to open.
#[derive(Clone, Debug, PartialEq)]
struct Planned {
    attr: EventAttr,
    cpu: CpuId,
    /// Index of the controller.
    controller: usize,
    /// Bytes per count.
    scale: f64,
}

/// The opened counters of the memory controllers.
#[derive(Default)]
pub struct Uncore {
    open: Vec<(Planned, OwnedFd)>,
    /// Each controller's node; `None`: its package has several.
    nodes: Vec<Option<NodeIndex>>,
    because: String,
}

/// Counts at one moment.
#[derive(Clone, Debug, Default)]
pub struct UncoreReading(Vec<Raw>);

impl Uncore {
    /// Opens the counters that the machine offers.
    #[must_use]
    pub fn open(root: &Root, machine: &Machine) -> Uncore {
        let pmus = numapilot_perf::pmu::read(root.path()).unwrap_or_default();
        let (planned, nodes) = plan(&pmus, machine);
        let mut uncore = Uncore { nodes, because: absence(&pmus), ..Uncore::default() };
        for event in planned {
            match open_counter(event.attr.clone(), -1, event.cpu) {
                Ok(fd) => uncore.open.push((event, fd)),
                Err(error) => {
                    uncore.open.clear();
                    uncore.because = match error.raw_os_error() {
                        Some(libc::EACCES | libc::EPERM) => {
                            "the memory controllers' counters need more rights: run as root or with CAP_PERFMON"
                                .to_owned()
                        }
                        _ => format!("the memory controllers' counters cannot be opened: {error}"),
                    };
                    break;
                }
            }
        }
        uncore
    }

    /// Reads all counters; one that cannot be read counts as 0.
    #[must_use]
    pub fn read(&self) -> UncoreReading {
        UncoreReading(self.open.iter().map(|(_, fd)| counters::read_one(fd).unwrap_or_default()).collect())
    }

    /// Bytes that each controller served between two readings; `None` if one of its counters never counted.
    fn served(&self, before: &UncoreReading, now: &UncoreReading) -> Vec<Option<f64>> {
        let mut served = vec![Some(0.0); self.nodes.len()];
        for (index, (event, _)) in self.open.iter().enumerate() {
            let (Some(before), Some(now)) = (before.0.get(index), now.0.get(index)) else { continue };
            let bytes = counters::scaled_since(*before, *now).map(|count| count * event.scale);
            served[event.controller] = served[event.controller].zip(bytes).map(|(sum, bytes)| sum + bytes);
        }
        served
    }

    /// Controller imbalance between two readings; missing, with the reason, where the controllers have no counters that can be read.
    #[must_use]
    pub fn imbalance(&self, before: &UncoreReading, now: &UncoreReading) -> MetricValue {
        if self.open.is_empty() {
            return MetricValue::Missing(self.because.clone());
        }
        let served: Option<Vec<f64>> = self.served(before, now).into_iter().collect();
        let why = if served.is_some() { "the controllers were idle" } else { NEVER_RAN };
        let told = MetricValue::of(served.and_then(|served| imbalance(&served)), SOURCE, why);
        told.estimated_if(self.is_scaled(before, now))
    }

    /// Whether other programs had some of the counters for a part of the time, so that counts are scaled.
    fn is_scaled(&self, before: &UncoreReading, now: &UncoreReading) -> bool {
        before.0.iter().zip(&now.0).any(|(before, now)| counters::is_scaled_since(*before, *now))
    }

    /// Bytes per second that a node's controllers served.
    #[must_use]
    pub fn bytes_per_s(
        &self,
        before: &UncoreReading,
        now: &UncoreReading,
        node: NodeIndex,
        seconds: f64,
    ) -> MetricValue {
        if self.open.is_empty() {
            return MetricValue::Missing(self.because.clone());
        }
        let of_node = |controller: &usize| self.nodes[*controller] == Some(node);
        let served = self.served(before, now);
        let controllers: Vec<usize> = (0..self.nodes.len()).filter(of_node).collect();
        let bytes: Option<f64> = controllers.iter().map(|controller| served[*controller]).sum();
        let why = match controllers.is_empty() {
            true => "the counters distinguish packages, not the nodes within one",
            false => NEVER_RAN,
        };
        let known = bytes.filter(|_| !controllers.is_empty() && seconds > 0.0).map(|bytes| bytes / seconds);
        MetricValue::of(known, SOURCE, why).estimated_if(self.is_scaled(before, now))
    }
}

/// Events to open, and each controller's node: a controller is a PMU on one of the CPUs that sysfs names for it (one per package).
fn plan(pmus: &[Pmu], machine: &Machine) -> (Vec<Planned>, Vec<Option<NodeIndex>>) {
    let (mut planned, mut nodes) = (Vec::new(), Vec::new());
    for pmu in pmus.iter().filter(|pmu| pmu.name.starts_with("uncore_imc") && !pmu.name.contains("free_running")) {
        let cpus = parse_cpu_list(pmu.cpus.as_deref().unwrap_or("")).unwrap_or_default();
        for cpu in cpus.into_iter().map(CpuId) {
            let mut found = Vec::new();
            for alias in aliases(pmu) {
                let Ok(attr) = pmu.event(alias) else { continue };
                let unit = pmu.events.get(&format!("{alias}.unit")).map_or("", String::as_str);
                let scale = pmu.events.get(&format!("{alias}.scale")).and_then(|text| text.parse::<f64>().ok());
                // A cache line, if sysfs gives no scale.
                let scale = scale.map_or(64.0, |scale| if unit == "MiB" { scale * MIB } else { scale });
                found.push(Planned { attr, cpu, controller: nodes.len(), scale });
            }
            if !found.is_empty() {
                planned.append(&mut found);
                nodes.push(only_node(machine, cpu));
            }
        }
    }
    (planned, nodes)
}

/// The named events of a PMU that count its controller's traffic, each part of it once.
fn aliases(pmu: &Pmu) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (all, halves) in ALIASES {
        match pmu.events.contains_key(all) {
            true => found.push(all),
            false => found.extend(halves.into_iter().filter(|half| pmu.events.contains_key(*half))),
        }
    }
    found
}

/// The node of a CPU, if its package has no other.
fn only_node(machine: &Machine, cpu: CpuId) -> Option<NodeIndex> {
    let node = machine.node_of_cpu(cpu)?;
    let socket = machine.cpu(cpu)?.socket?;
    let others = machine.cpus().iter().filter(|other| other.socket == Some(socket)).filter_map(|other| other.node);
    others.into_iter().all(|other| other == node).then(|| machine.node_index(node)).flatten()
}

fn absence(pmus: &[Pmu]) -> String {
    let has = |start: &str| pmus.iter().any(|pmu| pmu.name.starts_with(start));
    if has("amd_umc") || has("amd_df") || has("arm_cmn") || has("arm_dmc") {
        "the controllers' PMUs here have no named events in sysfs".to_owned()
    } else if has("uncore_") {
        "none of the uncore PMUs here counts memory traffic by a named event".to_owned()
    } else {
        "the kernel offers no PMU of memory controllers here (virtual machines have none)".to_owned()
    }
}

/// Why the load of the links is not known on this machine.
#[must_use]
pub fn why_no_links(root: &Root) -> String {
    let pmus = numapilot_perf::pmu::read(root.path()).unwrap_or_default();
    match pmus.iter().any(|pmu| pmu.name.starts_with("uncore_upi") || pmu.name.starts_with("uncore_qpi")) {
        true => "the links' PMUs count flits, and the rate of the links is not known".to_owned(),
        false => "the kernel offers no PMU of links here (virtual machines have none)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Which events are opened on machines of testdata/sysfs.

    use super::*;
    use crate::fixture::Tree;

    #[test]
    fn every_controller_of_every_package_is_planned_with_its_scale() {
        let tree = Tree::of("two-sockets-smt");
        let machine = tree.machine();
        let firsts: Vec<CpuId> = machine.nodes().iter().map(|node| node.cpus[0]).collect();
        for controller in 0..2 {
            let folder = format!("sys/bus/event_source/devices/uncore_imc_{controller}");
            tree.put(&format!("{folder}/type"), &format!("{}", 20 + controller));
            tree.put(&format!("{folder}/cpumask"), &format!("{},{}", firsts[0], firsts[1]));
            tree.put(&format!("{folder}/format/event"), "config:0-7");
            tree.put(&format!("{folder}/format/umask"), "config:8-15");
            for (alias, umask) in [("cas_count_read", 3), ("cas_count_write", 12)] {
                tree.put(&format!("{folder}/events/{alias}"), &format!("event=0x04,umask={umask:#x}"));
                tree.put(&format!("{folder}/events/{alias}.scale"), "6.103515625e-5");
                tree.put(&format!("{folder}/events/{alias}.unit"), "MiB");
            }
        }
        let pmus = numapilot_perf::pmu::read(tree.root().path()).unwrap();
        let (planned, nodes) = plan(&pmus, &machine);
        assert_eq!(nodes, [0, 1, 0, 1].map(|node| Some(NodeIndex(node))));
        assert_eq!(planned.len(), 8);
        assert_eq!((planned[1].attr.kind, planned[1].attr.config, planned[1].scale), (20, 0x0c04, 64.0));
        assert_eq!((planned[7].attr.kind, planned[7].cpu, planned[7].controller), (21, firsts[1], 3));
    }

    /// Granite Rapids was said to count no traffic by a named event.
    #[test]
    fn halves_of_channels_are_counted_where_the_whole_has_no_event() {
        let tree = Tree::of("two-sockets-smt");
        let machine = tree.machine();
        let folder = "sys/bus/event_source/devices/uncore_imc_0";
        tree.put(&format!("{folder}/type"), "20");
        tree.put(&format!("{folder}/cpumask"), &machine.nodes()[0].cpus[0].to_string());
        tree.put(&format!("{folder}/format/event"), "config:0-7");
        tree.put(&format!("{folder}/format/umask"), "config:8-15");
        let events = || {
            let pmus = numapilot_perf::pmu::read(tree.root().path()).unwrap();
            let (planned, nodes) = plan(&pmus, &machine);
            assert!(nodes.len() == 1 && planned.iter().all(|event| event.controller == 0 && event.scale == 64.0));
            planned.iter().map(|event| event.attr.config).collect::<Vec<_>>()
        };
        let put = |alias: &str, event: u32, umask: u32| {
            tree.put(&format!("{folder}/events/{alias}"), &format!("event={event:#x},umask={umask:#x}"));
            tree.put(&format!("{folder}/events/{alias}.scale"), "6.103515625e-5");
            tree.put(&format!("{folder}/events/{alias}.unit"), "MiB");
        };
        for (half, event) in [("sch0", 5), ("sch1", 6)] {
            put(&format!("cas_count_read_{half}"), event, 0xcf);
            put(&format!("cas_count_write_{half}"), event, 0xf0);
        }
        assert_eq!(events(), [0xcf05, 0xcf06, 0xf005, 0xf006]);
        put("cas_count_read", 7, 1);
        assert_eq!(events(), [0x0107, 0xf005, 0xf006], "nothing counts twice");
    }

    #[test]
    fn absence_has_a_reason() {
        let tree = Tree::symmetric(2, 1, 4096);
        let uncore = Uncore::open(&tree.root(), &tree.machine());
        let nothing = UncoreReading::default();
        assert!(
            matches!(uncore.imbalance(&nothing, &nothing), MetricValue::Missing(why) if why.contains("no PMU of memory controllers"))
        );
        assert!(why_no_links(&tree.root()).contains("no PMU of links"));
    }
}
