//! Facts of many kinds of machine, composed by testdata/doctor/make-facts, and what is said about each, held in golden files.

use super::*;

/// Facts in `testdata/doctor`.
fn facts(name: &str) -> Facts {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/doctor").join(name);
    let bytes = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let facts: Facts = serde_json::from_str(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // A name that no field has would be passed over in silence.
    let (given, read): (serde_json::Value, _) =
        (serde_json::from_str(&bytes).unwrap(), serde_json::to_value(&facts).unwrap());
    for name in given.as_object().unwrap().keys() {
        assert!(read.get(name).is_some(), "{}: no field {name}", path.display());
    }
    facts
}

const MACHINES: [&str; 19] = [
    "amd-zen2-old-kernel",
    "amd-zen2-root",
    "amd-zen4-root",
    "amd-zen5-unprivileged",
    "amd-zen4-kernel-6.8-unprivileged",
    "arm-altra",
    "arm-graviton-guest",
    "arm-without-driver",
    "aws-guest",
    "docker",
    "firecracker",
    "gce-guest",
    "gvisor",
    "intel-spr-debian-paranoid-3",
    "intel-spr-lockdown",
    "intel-spr-root",
    "intel-spr-ubuntu-paranoid-4",
    "intel-spr-unprivileged",
    "podman-rootless",
];

#[test]
fn what_is_said_of_every_kind_of_machine() {
    let mut found: Vec<String> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/doctor"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().unwrap().strip_suffix(".json").map(str::to_owned))
        .collect();
    found.sort();
    let mut known = MACHINES.map(str::to_owned).to_vec();
    known.sort();
    assert_eq!(found, known, "testdata/doctor and the list of this test");
    for name in MACHINES {
        let diagnosis = diagnose(&facts(&format!("{name}.json")));
        insta::assert_snapshot!(name, text(&diagnosis, 120));
    }
}

#[test]
fn balancing_of_tiers_alone_shows_first_touches_alone() {
    let said = |mode: u32| {
        let mut facts = facts("intel-spr-unprivileged.json");
        facts.events.numa_balancing = Some(mode);
        text(&diagnose(&facts), 200)
    };
    let (of_tiers, both) = (said(2), said(3));
    assert!(
        of_tiers.contains("between tiers of memory only (2)") && of_tiers.contains("numa_balancing=3`"),
        "{of_tiers}"
    );
    assert!(both.contains("on (3)") && !both.contains("numa_balancing="), "{both}");
}

/// Whatever is refused, there is a reason and something to do about it; and what works names nothing in its way.
#[test]
fn every_refusal_has_a_reason_and_a_remedy() {
    for name in MACHINES {
        for finding in diagnose(&facts(&format!("{name}.json"))).engines {
            assert_eq!(finding.works, finding.obstacles.is_empty(), "{name}: {}", finding.engine);
            for obstacle in finding.obstacles.iter().chain(&finding.limits) {
                assert!(obstacle.reason.len() > 20 && obstacle.remedy.len() > 15, "{name}: {obstacle:?}");
            }
        }
    }
}

/// The same for every error number at every scope, on every kind of machine: none falls through without words.
#[test]
fn every_error_number_is_explained() {
    for name in MACHINES {
        let base = facts(&format!("{name}.json"));
        for number in 1..134 {
            let fault = Answer::Refused(number);
            let samplers = base.events.samplers.iter().cloned();
            let samplers: Vec<SamplerFact> =
                samplers.map(|sampler| SamplerFact { own: fault, system: fault, ..sampler }).collect();
            let events = [EventFacts { samplers, ..base.events.clone() }, EventFacts { fault, ..base.events.clone() }];
            for facts in events.map(|events| Facts { events, ..base.clone() }) {
                let diagnosis = diagnose(&facts);
                for finding in &diagnosis.engines {
                    assert_eq!(finding.works, finding.obstacles.is_empty(), "{name}, error {number}: {finding:?}");
                }
            }
        }
    }
}

/// A guest whose processor's counters the device tree calls by its model has counters all the same.
#[test]
fn a_guest_with_the_counters_of_armv9_has_counters() {
    let hypervisor = Some("KVM".to_owned());
    let reason = |pmu: &str| {
        let pmus = vec!["software".to_owned(), pmu.to_owned()];
        let facts = EventFacts { vendor: Vendor::Arm, hypervisor: hypervisor.clone(), pmus, ..EventFacts::default() };
        pmu::finding(&facts).obstacles.last().unwrap().reason.clone()
    };
    assert!(reason("armv9_neoverse_n2").contains("counters, but none"));
    assert!(reason("breakpoint").contains("no hardware counters"));
}

/// Linux before 6.2 looks at the rights first (EACCES), and refuses IBS of single processes to all (EINVAL): the level that lets one see the kernel's
/// accesses was said to be enough.
#[test]
fn no_level_is_said_to_give_ibs_of_processes_where_the_kernel_has_none() {
    let said = |release: &str| {
        let mut facts = facts("amd-zen4-kernel-6.8-unprivileged.json");
        facts.events.kernel = Kernel::from(release.to_owned());
        pmu::finding(&facts.events).obstacles.into_iter().next().unwrap()
    };
    let old = said("6.1.0-28-amd64");
    assert!(old.reason.contains("whole CPUs only"), "{old:?}");
    assert!(old.remedy.contains("--system") && old.remedy.contains("perf_event_paranoid=0"), "{old:?}");
    assert!(said("6.2.0-39-generic").remedy.contains("perf_event_paranoid=1"));
    // Red Hat's number says nothing of its events.
    assert!(said("5.14.0-427.13.1.el9_4.x86_64").remedy.contains("perf_event_paranoid=1"));
}

/// "perf: arm_spe: Use perf_allow_kernel() for permissions" came with 6.12: before, the driver asked for the capability alone.
#[test]
fn no_level_is_said_to_give_spe_physical_addresses_where_the_driver_asks_for_the_capability() {
    let remedy = |release: &str| {
        let mut facts = facts("arm-altra.json");
        facts.events.kernel = Kernel::from(release.to_owned());
        facts.events.samplers[0].physical = Answer::Refused(libc::EACCES);
        let limits = pmu::finding(&facts.events).limits;
        limits.into_iter().find(|limit| limit.reason.contains("physical addresses")).unwrap().remedy
    };
    let (old, new) = (remedy("6.8.0-45-generic"), remedy("6.12.9"));
    assert!(old.contains("setcap cap_perfmon+ep") && !old.contains("perf_event_paranoid"), "{old}");
    assert!(new.contains("perf_event_paranoid=1"), "{new}");
}
