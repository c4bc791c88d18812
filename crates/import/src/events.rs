//! The recorded events: what each of them samples, by its type, configuration and name, and what each of its samples stands for.

use numapilot_perf::EventAttr;
use numapilot_perf::abi::{event_type, software};
use numapilot_perf::file::Features;
use numapilot_perf::ibs::COUNTS_OPERATIONS;
use serde::Serialize;

use numapilot_perf_events::places::{AccessRule, EventFact};

/// `PERF_COUNT_HW_*` that count time: cycles, bus cycles, stalled cycles (front end, back end), reference cycles.
const HARDWARE_CYCLES: [u64; 5] = [0, 6, 7, 8, 9];

/// How samples of an event are decoded, from its attribute and its recorded name.
pub(super) fn fact(attr: &EventAttr, index: usize, features: &Features) -> EventFact {
    let name = recorded_name(index, features).unwrap_or("");
    let is_fault = is_fault(attr);
    let is_ibs = pmu(attr, features) == Some("ibs_op");
    let samples_accesses = is_fault || is_ibs || is_spe(attr, features) || names_accesses(name);
    EventFact {
        rule: if samples_accesses { AccessRule::All } else { AccessRule::AsTold },
        counts_other: counts_cycles(attr, name, features),
        is_fault,
        is_ibs,
        is_of_stores: names_stores(name) || is_intels(attr, features, &STORE_EVENTS),
        has_no_l2_miss: has_no_l2_miss(&features.cpu_id),
        is_helper: is_helper(name) || is_other_view(name, features),
    }
}

/// Name of an event as perf wrote it.
pub(super) fn recorded_name(index: usize, features: &Features) -> Option<&str> {
    features.event_names.get(index).map(|(name, _)| name.as_str()).filter(|name| !name.is_empty())
}

/// Name of an event for people.
pub(super) fn name(attr: &EventAttr, index: usize, features: &Features) -> String {
    if let Some(name) = recorded_name(index, features) {
        return name.to_owned();
    }
    let known = match (attr.kind, attr.config) {
        (event_type::HARDWARE, config) => HARDWARE_NAMES.get(usize::try_from(config).unwrap_or(usize::MAX)).copied(),
        (event_type::SOFTWARE, config) => SOFTWARE_NAMES.get(usize::try_from(config).unwrap_or(usize::MAX)).copied(),
        _ => None,
    };
    match (known, pmu(attr, features)) {
        (Some(name), _) => name.to_owned(),
        (None, Some(pmu)) => format!("{pmu}/config={:#x}/", attr.config),
        (None, None) => format!("event of type {} with config {:#x}", attr.kind, attr.config),
    }
}

/// What the event's count is of, as far as that is known: its own name else.
pub(super) fn unit(attr: &EventAttr, index: usize, features: &Features) -> String {
    let name = recorded_name(index, features).unwrap_or("");
    let is_clock =
        attr.kind == event_type::SOFTWARE && [software::CPU_CLOCK, software::TASK_CLOCK].contains(&attr.config);
    match () {
        () if is_clock => "ns".to_owned(),
        () if is_fault(attr) => "page faults".to_owned(),
        () if counts_cycles(attr, name, features) => "cycles".to_owned(),
        () if pmu(attr, features) == Some("ibs_op") => "micro-operations".to_owned(),
        () if is_spe(attr, features) => "operations".to_owned(),
        () if (attr.kind, attr.config) == (event_type::HARDWARE, 1) => "instructions".to_owned(),
        () => self::name(attr, index, features),
    }
}

/// What the samples of an event are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum EventKind {
    /// Memory accesses.
    Accesses,
    /// Page faults.
    PageFaults,
    /// Something else.
    Other,
}

/// What the samples of an event are; `accesses` of them were recognised as accesses.
pub(super) fn kind(fact: EventFact, accesses: u64) -> EventKind {
    match () {
        () if fact.is_fault => EventKind::PageFaults,
        () if fact.rule == AccessRule::All || accesses > 0 => EventKind::Accesses,
        () => EventKind::Other,
    }
}

/// Names of hardware events, by `PERF_COUNT_HW_*`.
const HARDWARE_NAMES: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];
/// Names of software events, by `PERF_COUNT_SW_*`.
const SOFTWARE_NAMES: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];

fn pmu<'a>(attr: &EventAttr, features: &'a Features) -> Option<&'a str> {
    features.pmu_name(attr.kind)
}

fn is_fault(attr: &EventAttr) -> bool {
    let faults = [software::PAGE_FAULTS, software::PAGE_FAULTS_MIN, software::PAGE_FAULTS_MAJ];
    attr.kind == event_type::SOFTWARE && faults.contains(&attr.config)
}

fn is_spe(attr: &EventAttr, features: &Features) -> bool {
    pmu(attr, features).is_some_and(|name| name.starts_with("arm_spe"))
}

/// Whether perf's or the kernel's name of an event says that it samples loads or stores: `mem-loads`, `cpu/mem-stores/P`, `mem_load_retired.l3_miss:pp`.
fn names_accesses(name: &str) -> bool {
    let event = name.split_once('/').map_or(name, |(_, event)| event);
    ["mem-loads", "mem-stores", "mem-ldst", "mem_load", "mem_inst_retired", "mem_uops_retired", "mem_trans_retired"]
        .iter()
        .any(|known| event.starts_with(known))
}

/// Whether IBS of the recorded processor cannot tell what missed the second cache: AMD's families before 15h, and that up to its model 30h (Kaveri). perf
/// writes the vendor, and family, model and stepping as decimal numbers.
fn has_no_l2_miss(cpu_id: &str) -> bool {
    let mut numbers = cpu_id.strip_prefix("AuthenticAMD,").unwrap_or_default().split(',').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(0x15)), Some(Ok(model))) => model < 0x30,
        (Some(Ok(family)), _) => family < 0x15,
        _ => false,
    }
}

/// A note on accesses that an event leaves out by choice, of which there is no count; `None`: it samples all that it counts.
pub(super) fn filter_note(attr: &EventAttr, index: usize, features: &Features) -> Option<String> {
    /// Least latency that the kernel takes for `mem-loads`: all loads have it.
    const ALL_LOADS: u64 = 3;
    let shown = name(attr, index, features);
    if pmu(attr, features) == Some("ibs_op") {
        return ibs_filter_note(attr, &shown);
    }
    if is_spe(attr, features) {
        return spe_filter_note(attr, &shown);
    }
    // POWER counts marked instructions by both of its events (`MEM_LOADS` and `MEM_STORES` in `arch/powerpc/perf/power9-events-list.h`), and has no threshold.
    let is_of_power = features.arch.starts_with("ppc");
    let is_named = recorded_name(index, features).is_some_and(counts_tagged_loads);
    if is_of_power || !is_named && !is_intels(attr, features, &LOAD_EVENTS) {
        return None;
    }
    let least = attr.config1 & 0xffff;
    Some(if least > ALL_LOADS {
        format!(
            "`{shown}` samples only loads of {least} cycles or more, and of these only such as the processor tagged at random: most loads that caches \
             answered are missing, so that shares of stores are too large, and mean latencies too; total access counts are not available"
        )
    } else {
        format!(
            "`{shown}` samples only loads that the processor tagged at random: the shares of objects are right among loads, but stores have too large a \
             share, and total access counts are not available"
        )
    })
}

/// What filters of `ibs_op` leave out (`perf_ibs_init` in `arch/x86/events/amd/ibs.c`).
fn ibs_filter_note(attr: &EventAttr, shown: &str) -> Option<String> {
    /// What the L3 or a cache before it answered is passed over.
    const L3_MISSES_ONLY: u64 = 1 << 16;
    /// `strmst` in `config1`, since 2026: stores that go around the caches.
    const STREAMING_STORES: u64 = 1 << 12;
    // `ldlat`; Zen 5 has it for what missed the L3 only.
    let least = attr.config1 & 0xfff;
    if attr.config1 & STREAMING_STORES != 0 {
        return Some(format!(
            "`{shown}` samples only streaming stores: all other accesses are missing, and total access counts are not \
             available"
        ));
    }
    match (least, attr.config & L3_MISSES_ONLY) {
        (0, 0) => None,
        (0, _) => Some(format!(
            "`{shown}` samples only accesses that missed the L3: the shares of objects are right, but total access counts are not available"
        )),
        _ => Some(format!(
            "`{shown}` samples only loads of {least} cycles or more, on Zen 5 only such as missed the L3: stores are missing, and total access counts \
             are not available"
        )),
    }
}

/// What filters of SPE leave out (`arm_spe_event_to_pmsfcr` and its like in `drivers/perf/arm_spe_pmu.c`).
fn spe_filter_note(attr: &EventAttr, shown: &str) -> Option<String> {
    /// `load_filter` and `store_filter`: operations of any of the kinds that are named are sampled, and all if none is.
    const LOADS: u64 = 1 << 33;
    const STORES: u64 = 1 << 34;
    /// Of `event_filter`: operations that the processor did not give up, which are all that a program makes.
    const RETIRED: u64 = 1 << 1;
    let mut left_out = Vec::new();
    match attr.config & (LOADS | STORES) {
        LOADS => left_out.push("stores are missing".to_owned()),
        STORES => left_out.push("loads are missing".to_owned()),
        _ => {}
    }
    // `event_filter`, `inv_event_filter` and `inv_data_src_filter`.
    if attr.config1 & !RETIRED != 0 || attr.config3 != 0 || attr.config4 != 0 {
        left_out.push(
            "accesses are missing that a filter by events or data sources leaves out, so that shares of objects may be wrong, and total \
             access counts are not available"
                .to_owned(),
        );
    }
    // `min_latency`.
    let least = attr.config2 & 0xfff;
    if least > 0 {
        left_out.push(format!(
            "only accesses of {least} cycles or more are sampled: most that caches answered are missing, so that total access counts are not \
             available, and mean latencies are too large"
        ));
    }
    (!left_out.is_empty()).then(|| format!("`{shown}`: {}", left_out.join("; ")))
}

/// Event and umask of Intel's events of loads with their latencies, of large cores and of small ones (since Gracemont), and of its events of stores: for those
/// that were named by their numbers (`cpu/event=0xcd,umask=0x1,ldlat=30/`; `mem-loads` and `mem-stores` in `arch/x86/events/intel/core.c`).
const LOAD_EVENTS: [u64; 2] = [0x1cd, 0x5d0];
const STORE_EVENTS: [u64; 3] = [0x2cd, 0x82d0, 0x6d0];

/// Whether it is an event of an Intel processor's cores with one of these numbers.
fn is_intels(attr: &EventAttr, features: &Features, numbers: &[u64]) -> bool {
    let is_of_cores = pmu(attr, features).is_some_and(|name| name == "cpu" || name.starts_with("cpu_"));
    features.cpu_id.starts_with("GenuineIntel") && is_of_cores && numbers.contains(&(attr.config & 0xffff))
}

/// Whether an event of Intel's counts loads with their latencies: "the MEM_TRANS_RETIRED event for load latency counts only tagged retired loads" (SDM 3B).
/// Events of stores count all of them.
fn counts_tagged_loads(name: &str) -> bool {
    let by_latency = ["mem_trans_retired.load_latency", "mem_uops_retired.load_latency"];
    name.split(['/', '{', ','])
        .any(|word| word == "mem-loads" || by_latency.iter().any(|known| word.starts_with(known)))
}

/// Whether perf's or the kernel's name of an event says that it samples nothing but stores.
fn names_stores(name: &str) -> bool {
    let event = name.split_once('/').map_or(name, |(_, event)| event);
    ["mem-stores", "mem_uops_retired.store_latency"].iter().any(|known| event.starts_with(known))
}

/// Whether an event is only there to make `mem-loads` possible (Alder Lake, Sapphire Rapids and later): perf samples it, too
/// (`{cpu/mem-loads-aux/,cpu/mem-loads,ldlat=30/}:P` in `tools/perf/arch/x86/util/mem-events.c`), but it counts blocked loads.
fn is_helper(name: &str) -> bool {
    name.split(['/', '{', ',']).any(|word| word == "mem-loads-aux")
}

/// Whether an event is one of those that `perf inject --itrace` makes out of SPE's records beside `memory`, which has all accesses (`arm_spe_synth_events` in
/// `tools/perf/util/arm-spe.c`): their samples are of the same accesses.
fn is_other_view(name: &str, features: &Features) -> bool {
    const VIEWS: [&str; 10] = [
        "l1d-miss",
        "l1d-access",
        "llc-miss",
        "llc-access",
        "tlb-miss",
        "tlb-access",
        "branch-miss",
        "branch",
        "remote-access",
        "instructions",
    ];
    let has_all = || features.event_names.iter().any(|(name, _)| name == "memory");
    let has_spe = || features.pmus.iter().any(|(_, name)| name.starts_with("arm_spe"));
    VIEWS.contains(&name) && has_all() && has_spe()
}

/// Whether the period is a number of cycles.
fn counts_cycles(attr: &EventAttr, name: &str, features: &Features) -> bool {
    let is_ibs = pmu(attr, features) == Some("ibs_op");
    let is_hardware = attr.kind == event_type::HARDWARE && HARDWARE_CYCLES.contains(&(attr.config & 0xffff_ffff));
    is_hardware || is_ibs && attr.config & COUNTS_OPERATIONS == 0 || name.split([':', '/']).any(|word| word == "cycles")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(name: &str) -> Features {
        let pmus = vec![(11, "ibs_op".to_owned()), (4, "cpu".to_owned())];
        Features { event_names: vec![(name.to_owned(), Vec::new())], pmus, ..Features::default() }
    }

    #[test]
    fn events_are_judged_by_what_they_are_and_not_by_their_addresses() {
        let rule = |kind, config, name| {
            let attr = EventAttr { kind, config, ..EventAttr::default() };
            let fact = fact(&attr, 0, &features(name));
            (fact.rule, fact.counts_other)
        };
        assert_eq!(rule(0, 0, "cycles:P"), (AccessRule::AsTold, true));
        assert_eq!(rule(0, 1, "instructions"), (AccessRule::AsTold, false));
        assert_eq!(rule(1, 0, "cpu-clock"), (AccessRule::AsTold, false));
        assert_eq!(rule(1, 2, "page-faults"), (AccessRule::All, false));
        assert_eq!(rule(4, 0x1cd, "cpu/mem-loads,ldlat=30/P"), (AccessRule::All, false));
        assert_eq!(rule(4, 0x1cd, "cpu_core/mem-stores/P"), (AccessRule::All, false));
        assert_eq!(rule(4, 0x20d1, "mem_load_retired.l3_miss:pp"), (AccessRule::All, false));
        assert_eq!(rule(4, 0x3c, "cpu/cycles/pp"), (AccessRule::AsTold, true));
        assert_eq!(rule(11, 0, "ibs_op//"), (AccessRule::All, true), "counts cycles by default");
        assert_eq!(rule(11, 1 << 19, "ibs_op/cnt_ctl=1/"), (AccessRule::All, false));
        assert_eq!(rule(5, 0, "mem:0x601040:rw"), (AccessRule::AsTold, false), "a breakpoint");
    }

    #[test]
    fn the_event_that_leads_mem_loads_samples_nothing_of_its_own() {
        let is_helper = |name: &str| fact(&EventAttr::default(), 0, &features(name)).is_helper;
        assert!(is_helper("cpu/mem-loads-aux/") && is_helper("cpu_core/mem-loads-aux/P") && is_helper("mem-loads-aux"));
        assert!(!is_helper("cpu/mem-loads,ldlat=30/P") && !is_helper("cpu/mem-stores/P"));
    }

    /// `perf inject --itrace` of a recording of SPE: a load that missed everything is in five events.
    #[test]
    fn an_access_of_spe_counts_once_however_many_events_show_it() {
        let counted = |names: &[&str], pmu: &str| -> Vec<bool> {
            let event_names = names.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
            let features = Features { event_names, pmus: vec![(12, pmu.to_owned())], ..Features::default() };
            (0..names.len()).map(|index| !fact(&EventAttr::default(), index, &features).is_helper).collect()
        };
        let all = ["arm_spe_0//", "l1d-miss", "llc-access", "tlb-access", "memory", "instructions"];
        assert_eq!(counted(&all, "arm_spe_0"), [true, false, false, false, true, false]);
        // `--itrace=m`: the misses alone; and a recording of the processor's counters.
        assert_eq!(counted(&["arm_spe_0//", "llc-miss"], "arm_spe_0"), [true, true]);
        assert_eq!(counted(&["instructions", "memory"], "cpu"), [true, true]);
    }

    #[test]
    fn events_of_stores_are_known_by_their_names() {
        let is_of_stores = |name: &str| fact(&EventAttr::default(), 0, &features(name)).is_of_stores;
        assert!(is_of_stores("cpu_atom/mem-stores/P") && is_of_stores("mem-stores") && is_of_stores("cpu/mem-stores/"));
        assert!(!is_of_stores("cpu_atom/mem-loads,ldlat=30/P") && !is_of_stores("ibs_op//") && !is_of_stores(""));
    }

    #[test]
    fn amds_older_processors_do_not_tell_what_missed_their_second_cache() {
        let lacks = |cpu_id: &str| {
            let features = Features { cpu_id: cpu_id.to_owned(), ..features("ibs_op//") };
            fact(&EventAttr::default(), 0, &features).has_no_l2_miss
        };
        // Opterons 8385 and 6380; Kaveri, Zen, Intel; nothing known.
        assert_eq!(["AuthenticAMD,16,4,2", "AuthenticAMD,21,2,0"].map(lacks), [true; 2]);
        let others = ["AuthenticAMD,21,48,1", "AuthenticAMD,25,17,1", "GenuineIntel,6,143,8", "AuthenticAMD", ""];
        assert_eq!(others.map(lacks), [false; 5]);
    }

    #[test]
    fn accesses_that_an_event_leaves_out_are_told() {
        let note = |kind, config, config1, name: &str| {
            let attr = EventAttr { kind, config, config1, ..EventAttr::default() };
            filter_note(&attr, 0, &features(name)).unwrap_or_default()
        };
        assert!(note(4, 0x1cd, 30, "cpu_core/mem-loads,ldlat=30/P").contains("only loads of 30 cycles or more"));
        assert!(note(11, 1 << 16, 0, "ibs_op/l3missonly=1/").contains("only accesses that missed the L3"));
        assert!(note(11, 1 << 19, 128, "ibs_op/cnt_ctl=1,ldlat=128/").contains("only loads of 128 cycles or more"));
        let pmus = vec![(12, "arm_spe_0".to_owned())];
        let spe = |least| {
            let attr = EventAttr { kind: 12, config2: least, ..EventAttr::default() };
            filter_note(&attr, 0, &Features { pmus: pmus.clone(), ..features("arm_spe_0/load_filter=1/") })
        };
        assert!(spe(0).is_none() && spe(30).is_some_and(|note| note.contains("only accesses of 30 cycles or more")));
        assert!(note(11, 1 << 19, 1 << 12, "ibs_op/cnt_ctl=1,strmst=1/").contains("only streaming stores"));
        let all = [
            (4, 0x2cd, 0, "cpu/mem-stores/P"),
            (4, 0x81d0, 0, "mem_inst_retired.all_loads:pp"),
            (11, 1 << 19, 0, "ibs_op//"),
        ];
        assert_eq!(all.map(|(kind, config, config1, name)| note(kind, config, config1, name)), ["", "", ""]);
    }

    /// `load_filter`, `store_filter`, `event_filter`, `inv_event_filter` and `inv_data_src_filter` of `drivers/perf/arm_spe_pmu.c`.
    #[test]
    fn what_filters_of_spe_leave_out_is_told() {
        let note_of = |attr: EventAttr| {
            let pmus = vec![(12, "arm_spe_0".to_owned())];
            filter_note(&attr, 0, &Features { pmus, ..features("arm_spe_0//") }).unwrap_or_default()
        };
        let note = |config: u64, config1: u64, config3: u64| {
            note_of(EventAttr { kind: 12, config, config1, config3, ..EventAttr::default() })
        };
        let (loads, stores) = (1 << 33, 1 << 34);
        assert_eq!(note(loads, 0, 0), "`arm_spe_0//`: stores are missing");
        assert_eq!(note(stores, 0, 0), "`arm_spe_0//`: loads are missing");
        assert_eq!([note(0, 0, 0), note(loads | stores, 0, 0)], ["", ""]);
        assert_eq!(note(loads | stores, 2, 0), "", "retired operations only");
        // Misses of the last cache, and what is not one of remote accesses.
        for (filter, inverse) in [(1 << 9, 0), (0, 1 << 10)] {
            assert!(note(loads | stores, filter, inverse).contains("a filter by events"));
        }
        let by_source = EventAttr { kind: 12, config4: !0b1001, ..EventAttr::default() };
        assert!(note_of(by_source).contains("or data sources"));
    }

    /// `perf record -e cpu/event=0xcd,umask=0x1,ldlat=30/ -d`, and a store of Gracemont, which kernels until 2026 call a load.
    #[test]
    fn intels_events_are_known_by_their_numbers_too() {
        let of = |cpu_id: &str, config: u64| {
            let attr = EventAttr { kind: 4, config, config1: 30, ..EventAttr::default() };
            let features = Features { cpu_id: cpu_id.to_owned(), ..features("cpu/config=1/") };
            (filter_note(&attr, 0, &features).is_some(), fact(&attr, 0, &features).is_of_stores)
        };
        let (intel, amd) = ("GenuineIntel-6-8F-8", "AuthenticAMD,25,17,1");
        assert_eq!([of(intel, 0x1cd), of(intel, 0x5d0)], [(true, false); 2]);
        assert_eq!([of(intel, 0x2cd), of(intel, 0x82d0), of(intel, 0x6d0)], [(false, true); 3]);
        assert_eq!([of(intel, 0x81d0), of(amd, 0x1cd), of(amd, 0x2cd)], [(false, false); 3]);
    }

    /// Without a threshold, too, the weights of loads are of another kind than those of stores.
    #[test]
    fn loads_that_the_processor_did_not_tag_are_told() {
        let note = |config1: u64, name: &str| {
            let attr = EventAttr { kind: 4, config: 0x1cd, config1, ..EventAttr::default() };
            filter_note(&attr, 0, &features(name)).unwrap_or_default()
        };
        for (least, name) in [
            (3, "cpu/mem-loads,ldlat=3/P"),
            (30, "cpu_core/mem-loads,ldlat=30/P"),
            (64, "mem_trans_retired.load_latency_gt_64"),
        ] {
            let said = note(least, name);
            assert!(
                said.contains("tagged at random") && said.contains("total access counts are not available"),
                "{said}"
            );
            assert_eq!(said.contains("cycles or more"), least > 3, "{said}");
        }
        let power = Features { arch: "ppc64le".to_owned(), ..features("cpu/mem-loads/") };
        assert_eq!(filter_note(&EventAttr::default(), 0, &power), None);
    }

    #[test]
    fn events_without_a_recorded_name_are_named_by_their_numbers() {
        let name = |kind, config| {
            let attr = EventAttr { kind, config, ..EventAttr::default() };
            (name(&attr, 0, &features("")), unit(&attr, 0, &features("")))
        };
        assert_eq!(name(0, 0), ("cycles".to_owned(), "cycles".to_owned()));
        assert_eq!(name(1, 1), ("task-clock".to_owned(), "ns".to_owned()));
        assert_eq!(name(4, 0x3c).0, "cpu/config=0x3c/");
        assert_eq!(name(77, 1).0, "event of type 77 with config 0x1");
    }
}
