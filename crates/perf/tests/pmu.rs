//! What machines of several kinds offer, from the files in `testdata/pmu`.

use std::path::Path;

use numapilot_host::testing::pmu_tree;
use numapilot_perf::abi::sample;
use numapilot_perf::pmu::{Offer, PmuError, SampleRequest, Sampler, offers, read};

fn offered(name: &str, request: &SampleRequest) -> Vec<Offer> {
    let pmus = read(pmu_tree(name).path()).unwrap();
    assert!(!pmus.is_empty(), "{name}");
    offers(&pmus, request).unwrap()
}

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const EXCLUDE_GUEST: u64 = 1 << 20;

#[test]
fn a_virtual_machine_offers_nothing() {
    assert_eq!(offered("virtual", &SampleRequest::default()), []);
    assert_eq!(read(Path::new("/nowhere")).unwrap(), []);
}

#[test]
fn ibs_takes_what_its_format_has() {
    let request = SampleRequest { period: 100_001, least_latency: 200, ..SampleRequest::default() };
    let [zen5] = &offered("amd-zen5", &request)[..] else { panic!("one offer") };
    let event = &zen5.events[0];
    assert_eq!((zen5.sampler, event.kind), (Sampler::IbsOp, 11));
    assert_eq!((event.config, event.config1, event.config2), (1 << 19, 256, 1));
    assert_eq!(event.period_or_freq, 100_000);
    assert!(event.samples(sample::RAW) && event.samples(sample::CALLCHAIN) && !event.samples(sample::PHYS_ADDR));
    assert!(event.flags & EXCLUDE_KERNEL != 0 && zen5.lacking.is_empty());
    assert_eq!(event.flags & EXCLUDE_HV, 0);
    let [zen4] = &offered("amd-zen4", &request)[..] else { panic!("one offer") };
    assert_eq!((zen4.events[0].config, zen4.events[0].config1, zen4.lacking.len()), (1 << 19, 0, 1));
    // Without the kernel's filter nothing may be excluded: the kernel would refuse.
    let [zen2] = &offered("amd-zen2", &request)[..] else { panic!("one offer") };
    assert_eq!((zen2.events[0].kind, zen2.events[0].flags & EXCLUDE_KERNEL, zen2.lacking.len()), (9, 0, 2));
    for (asked, taken) in [(1, 0x90), (u64::MAX, 0x7f_ffff0)] {
        let offer = offered("amd-zen5", &SampleRequest { period: asked, ..request });
        assert_eq!(offer[0].events[0].period_or_freq, taken);
    }
}

#[test]
fn pebs_loads_come_with_their_auxiliary_event_where_there_is_one() {
    let request = SampleRequest { least_latency: 30, physical: true, ..SampleRequest::default() };
    let skylake = offered("intel-skylake", &request);
    assert_eq!(
        skylake.iter().map(|offer| offer.sampler).collect::<Vec<_>>(),
        [Sampler::PebsLoads, Sampler::PebsStores]
    );
    let load = &skylake[0].events[0];
    assert_eq!((skylake[0].events.len(), load.kind, load.config, load.config1), (1, 4, 0x1cd, 30));
    assert_eq!(load.flags >> 15 & 3, 2);
    assert!(load.samples(sample::PHYS_ADDR) && load.samples(sample::DATA_SRC) && load.samples(sample::WEIGHT_STRUCT));
    assert_eq!(skylake[1].events[0].config, 0x82d0);
    let rapids = offered("intel-sapphire-rapids", &request);
    let configs: Vec<u64> = rapids[0].events.iter().map(|event| event.config).collect();
    assert_eq!(configs, [0x8203, 0x1cd]);
    assert_eq!(rapids[0].events[0].period_or_freq, 0);
    // A load's weight is a number of tagged loads, a store's is one of all stores.
    assert!(
        rapids[0].lacking.iter().any(|what| what.contains("tags at random") && what.contains("total access counts"))
    );
    assert!(rapids[1].lacking.iter().all(|what| !what.contains("tags at random")));
    // Guests that have the PMU to themselves are not kept out; IBS would refuse the flag (EINVAL).
    let are_of_host = |offers: &[Offer]| {
        offers.iter().flat_map(|offer| &offer.events).map(|event| event.flags & EXCLUDE_GUEST != 0).collect::<Vec<_>>()
    };
    assert_eq!((are_of_host(&rapids), are_of_host(&skylake)), (vec![true; 3], vec![true; 2]));
    assert_eq!(are_of_host(&offered("amd-zen5", &request)), [false]);
}

/// Each kind of core of a hybrid processor has its own events, and only the larger cores want the auxiliary one.
#[test]
fn every_kind_of_core_of_a_hybrid_processor_is_offered() {
    let request = SampleRequest { least_latency: 30, ..SampleRequest::default() };
    let hybrid = offered("intel-hybrid", &request);
    let shown: Vec<_> = hybrid
        .iter()
        .map(|offer| {
            let configs: Vec<u64> = offer.events.iter().map(|event| event.config).collect();
            (offer.pmu.as_str(), offer.sampler, offer.cpus.as_deref(), configs)
        })
        .collect();
    let want = [
        ("cpu_atom", Sampler::PebsLoads, Some("16-23"), vec![0x5d0]),
        ("cpu_atom", Sampler::PebsStores, Some("16-23"), vec![0x6d0]),
        ("cpu_core", Sampler::PebsLoads, Some("0-15"), vec![0x8203, 0x1cd]),
        ("cpu_core", Sampler::PebsStores, Some("0-15"), vec![0x2cd]),
    ];
    assert_eq!(shown, want);
    assert_eq!((hybrid[0].events[0].kind, hybrid[0].events[0].config1), (10, 30));
}

/// A newer kernel may describe fields by words of `perf_event_attr` that are unknown here: they matter to the events that use them, and to no others.
#[test]
fn a_field_of_unknown_form_matters_only_where_it_is_used() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("sys/bus/event_source/devices/cpu");
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("type", "4\n");
    write("format/event", "config:0-7\n");
    write("format/umask", "config:8-15\n");
    write("format/ldlat", "config1:0-15\n");
    write("format/novelty", "config7:0-3\n");
    write("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n");
    let pmus = read(root.path()).unwrap();
    let offers = offers(&pmus, &SampleRequest::default()).unwrap();
    assert_eq!(offers.iter().map(|offer| offer.events[0].config).collect::<Vec<_>>(), [0x1cd]);
    let message = pmus[0].event("event=1,novelty=2").unwrap_err().to_string();
    assert!(message.contains("novelty") && message.contains("config7:0-3"), "{message}");
}

#[test]
fn spe_filters_loads_and_stores() {
    let [spe] =
        &offered("arm-neoverse-n1", &SampleRequest { period: 500, physical: true, ..SampleRequest::default() })[..]
    else {
        panic!("one offer")
    };
    let event = &spe.events[0];
    assert_eq!((spe.sampler, event.kind, event.period_or_freq), (Sampler::Spe, 9, 1024));
    assert_eq!(event.config, 1 | 1 << 1 | 1 << 16 | 1 << 33 | 1 << 34);
    assert_eq!(spe.lacking, ["SPE has no call chains"]);
    // The driver drops what is no multiple of 256: a sample would stand for fewer operations than it says.
    for (asked, taken) in [(1500, 1280), (50_000, 49_920), (u64::MAX, 0xffff_ff00)] {
        let offer = offered("arm-neoverse-n1", &SampleRequest { period: asked, ..SampleRequest::default() });
        assert_eq!(offer[0].events[0].period_or_freq, taken);
    }
}

#[test]
fn terms_that_do_not_fit_are_refused_by_name() {
    let pmus = read(pmu_tree("intel-skylake").path()).unwrap();
    let cpu = pmus.iter().find(|pmu| pmu.name == "cpu").unwrap();
    for (event, word) in [("event=0x1ff", "8 bits"), ("evt=1", "no field evt"), ("event=many", "is not a number")] {
        let Err(error @ PmuError::Event { .. }) = cpu.event(event) else { panic!("{event}") };
        let message = error.to_string();
        assert!(message.contains(word) && message.contains("cpu") && message.contains(event), "{message}");
    }
}
