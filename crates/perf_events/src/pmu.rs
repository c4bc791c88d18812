//! Engine `pmu`: which events to open for what this machine's PMUs offer.
//!
//! Pure: [`plan`] turns offers (`numapilot_perf::pmu`) and what was allowed when they were tried (`probe`) into requests for `open`. On
//! hybrid processors each kind of core has its own PMU, so several plans' requests stand side by side, each on its own CPUs.

use numapilot_machine::{CpuId, parse_cpu_list};
use numapilot_perf::EventAttr;
use numapilot_perf::abi::attr_flag;
use numapilot_perf::pmu::{Offer, Pmu, PmuError, SampleRequest, Sampler, offers};

use crate::event::{EventKind, EventRequest};
pub use crate::event_limit::allowed_rate;
use crate::facts::{Answer, SamplerFact};

/// What is wanted of the samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PmuOptions {
    /// Sampling period or rate.
    pub pace: Pace,
    /// Least latency in cycles of loads that are worth a sample; 0: all. Where the hardware has it.
    pub least_latency: u64,
    /// Only accesses that missed the L3. Where the hardware can choose so.
    pub l3_misses_only: bool,
    /// Largest number of frames of a call chain.
    pub max_stack: u16,
    /// Whole CPUs rather than single programs.
    pub is_system: bool,
}

/// Sampling period or rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Sampled 1 in this many events, as the user requested.
    Fixed(u64),
    /// So many per second and CPU. The kernel adapts the period of each task's events itself; every sample says its own.
    PerSecond(u32),
}

/// Period that a recording begins with where the hardware cannot be given a rate (SPE).
const FIRST_PERIOD: u64 = 50_000;
/// Bytes of SPE packets per CPU: a quarter of a second at 10,000 records per second, several times over.
const AUX_BYTES: usize = 1 << 20;

/// Events to open, and notes on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PmuPlan {
    /// The events to open.
    pub requests: Vec<EventRequest>,
    /// Samples carry physical addresses, so that homes are known.
    pub has_physical: bool,
    /// What of it is worth telling, in sentences.
    pub notes: Vec<String>,
}

/// Plans events for everything that `facts` say works.
///
/// # Errors
/// If a PMU's own event does not fit its own format.
pub fn plan(pmus: &[Pmu], facts: &[SamplerFact], options: &PmuOptions) -> Result<PmuPlan, PmuError> {
    let works = |fact: &SamplerFact| if options.is_system { fact.system } else { fact.own } == Answer::Works;
    let usable: Vec<&SamplerFact> = facts.iter().filter(|fact| works(fact)).collect();
    // Either all have physical addresses or none: the kernel's right is the same for all of them.
    let has_physical = !usable.is_empty() && usable.iter().all(|fact| fact.physical.works());
    let period = match options.pace {
        Pace::Fixed(period) => period,
        Pace::PerSecond(_) => FIRST_PERIOD,
    };
    let callchain = options.max_stack > 0;
    let request = SampleRequest {
        period,
        least_latency: options.least_latency,
        l3_misses_only: options.l3_misses_only,
        physical: has_physical,
        callchain,
        ..SampleRequest::default()
    };
    let mut out = PmuPlan { has_physical, ..PmuPlan::default() };
    let offers = offers(pmus, &request)?;
    let mut missing: Vec<String> = pmus.iter().filter(|pmu| is_left_out(pmu, &offers)).map(left_out).collect();
    for offer in offers {
        let is_usable = |fact: &&SamplerFact| fact.pmu == offer.pmu && fact.sampler == name_of(offer.sampler);
        match usable.iter().any(is_usable) {
            true => out.add(&offer, options),
            false => missing.push(refused(&offer)),
        }
    }
    // Beside what works; where nothing does, the doctor says why.
    if !out.requests.is_empty() {
        out.notes.append(&mut missing);
    }
    Ok(out)
}

/// Whether a kind of core of a hybrid processor has no event that samples accesses.
fn is_left_out(pmu: &Pmu, offers: &[Offer]) -> bool {
    pmu.name.starts_with("cpu_") && pmu.cpus.is_some() && offers.iter().all(|offer| offer.pmu != pmu.name)
}

fn left_out(pmu: &Pmu) -> String {
    let cpus = pmu.cpus.as_deref().unwrap_or_default();
    format!("{}: it has no event that samples memory accesses, so accesses on CPUs {cpus} are not recorded", pmu.name)
}

/// A note on an event that the kernel refused when it was tried.
fn refused(offer: &Offer) -> String {
    let what = match offer.sampler {
        Sampler::PebsLoads => "loads",
        Sampler::PebsStores => "stores",
        Sampler::IbsOp | Sampler::Spe => "accesses",
    };
    let place = offer.cpus.as_deref().map(|cpus| format!(" on CPUs {cpus}")).unwrap_or_default();
    let event = event_name(offer, false);
    format!("{event}: the kernel refuses this event, so {what}{place} are not recorded; `numapilot doctor` says why")
}

/// A sampler's name in the doctor's facts.
#[must_use]
pub fn name_of(sampler: Sampler) -> &'static str {
    match sampler {
        Sampler::IbsOp => "ibs_op",
        Sampler::PebsLoads => "pebs-loads",
        Sampler::PebsStores => "pebs-stores",
        Sampler::Spe => "spe",
    }
}

impl PmuPlan {
    fn add(&mut self, offer: &Offer, options: &PmuOptions) {
        let cpus = offer.cpus.as_deref().and_then(|list| parse_cpu_list(list).ok());
        let cpus: Option<Vec<CpuId>> = cpus.map(|list| list.into_iter().map(CpuId).collect());
        let last = offer.events.len().saturating_sub(1);
        for (index, event) in offer.events.iter().enumerate() {
            let is_helper = index < last;
            let mut attr = event.clone();
            attr.flags |= 1 << attr_flag::EXCLUDE_CALLCHAIN_KERNEL;
            if !is_helper {
                pace(&mut attr, offer.sampler, options.pace);
            }
            let is_spe = offer.sampler == Sampler::Spe;
            if is_spe {
                // Packets name no thread; context switches show which thread runs on the CPU.
                attr.flags |= 1 << attr_flag::CONTEXT_SWITCH;
            }
            self.requests.push(EventRequest {
                name: event_name(offer, is_helper),
                kind: kind(offer.sampler, is_helper),
                attr,
                max_stack: options.max_stack,
                samples_stores: offer.sampler == Sampler::PebsStores,
                cpus: cpus.clone(),
                joins_group: index > 0,
                aux_bytes: if is_spe { AUX_BYTES } else { 0 },
                aux_watermark: if is_spe { (AUX_BYTES / 4) as u32 } else { 0 },
                ..EventRequest::default()
            });
        }
        self.notes.extend(offer.lacking.iter().map(|what| format!("{}: {what}", offer.pmu)));
    }
}

fn pace(attr: &mut EventAttr, sampler: Sampler, pace: Pace) {
    // SPE refuses rates (`arm_spe_pmu_event_init`).
    if let (Pace::PerSecond(rate), false) = (pace, sampler == Sampler::Spe) {
        attr.flags |= 1 << attr_flag::FREQ;
        attr.period_or_freq = u64::from(rate.max(1));
    }
}

fn kind(sampler: Sampler, is_helper: bool) -> EventKind {
    match sampler {
        _ if is_helper => EventKind::Helper,
        Sampler::IbsOp => EventKind::Ibs,
        Sampler::PebsLoads | Sampler::PebsStores | Sampler::Spe => EventKind::Access,
    }
}

fn event_name(offer: &Offer, is_helper: bool) -> String {
    let event = match offer.sampler {
        _ if is_helper => "mem-loads-aux",
        Sampler::IbsOp => return "ibs_op//".to_owned(),
        Sampler::PebsLoads => "mem-loads",
        Sampler::PebsStores => "mem-stores",
        Sampler::Spe => "",
    };
    format!("{}/{event}/", offer.pmu)
}

#[cfg(test)]
mod tests {
    //! Machines of several kinds, from the trees in `testdata/pmu`.

    use numapilot_host::testing::pmu_tree;
    use numapilot_perf::abi::sample;
    use numapilot_perf::pmu;

    use super::*;

    const OPTIONS: PmuOptions = PmuOptions {
        pace: Pace::PerSecond(1000),
        least_latency: 30,
        l3_misses_only: false,
        max_stack: 64,
        is_system: false,
    };

    fn pmus(tree: &str) -> Vec<Pmu> {
        pmu::read(pmu_tree(tree).path()).unwrap()
    }

    /// Facts that say that everything which is offered works.
    fn all(pmus: &[Pmu]) -> Vec<SamplerFact> {
        let offered = offers(pmus, &SampleRequest::default()).unwrap().into_iter();
        offered
            .map(|offer| SamplerFact {
                sampler: name_of(offer.sampler).to_owned(),
                pmu: offer.pmu,
                own: Answer::Works,
                physical: Answer::Works,
                system: Answer::Works,
                can_leave_kernel_out: true,
            })
            .collect()
    }

    fn planned(tree: &str) -> PmuPlan {
        let pmus = pmus(tree);
        plan(&pmus, &all(&pmus), &OPTIONS).unwrap()
    }

    #[test]
    fn ibs_is_one_event_at_the_kernels_pace() {
        let plan = planned("amd-zen5");
        let [request] = &plan.requests[..] else { panic!("{plan:?}") };
        assert_eq!((request.name.as_str(), request.kind, request.joins_group), ("ibs_op//", EventKind::Ibs, false));
        assert!(request.attr.is_freq() && request.attr.period_or_freq == 1000);
        assert!(request.attr.samples(sample::RAW) && request.attr.samples(sample::PHYS_ADDR) && plan.has_physical);
        assert_eq!(request.attr.config1, 128, "the latency is rounded up to what the hardware knows");
        let fixed = PmuOptions { pace: Pace::Fixed(200_000), ..OPTIONS };
        let pmus = pmus("amd-zen5");
        let plan = super::plan(&pmus, &all(&pmus), &fixed).unwrap();
        assert_eq!((plan.requests[0].attr.is_freq(), plan.requests[0].attr.period_or_freq), (false, 200_000));
    }

    #[test]
    fn misses_of_the_l3_are_chosen_where_the_hardware_can() {
        let wanted = PmuOptions { l3_misses_only: true, least_latency: 0, ..OPTIONS };
        for (tree, can) in
            [("amd-zen4", true), ("amd-zen2", false), ("intel-skylake", false), ("arm-neoverse-n1", false)]
        {
            let pmus = pmus(tree);
            let plan = super::plan(&pmus, &all(&pmus), &wanted).unwrap();
            assert_eq!(plan.requests[0].attr.config >> 16 & 1 == 1 && tree.starts_with("amd"), can, "{tree}");
            let note = if can { "total access counts are not available" } else { "cannot select" };
            assert!(plan.notes.iter().any(|text| text.contains(note)), "{tree}: {:?}", plan.notes);
        }
        let pmus = pmus("amd-zen4");
        assert_eq!(super::plan(&pmus, &all(&pmus), &OPTIONS).unwrap().requests[0].attr.config >> 16 & 1, 0);
    }

    #[test]
    fn loads_follow_their_helper_in_its_group_and_stores_stand_alone() {
        let plan = planned("intel-sapphire-rapids");
        let shown: Vec<_> = plan.requests.iter().map(|r| (r.name.as_str(), r.kind, r.joins_group)).collect();
        let want = [
            ("cpu/mem-loads-aux/", EventKind::Helper, false),
            ("cpu/mem-loads/", EventKind::Access, true),
            ("cpu/mem-stores/", EventKind::Access, false),
        ];
        assert_eq!(shown, want);
        let of_stores: Vec<bool> = plan.requests.iter().map(|request| request.samples_stores).collect();
        assert_eq!(of_stores, [false, false, true]);
        // A helper that gave samples of its own would be counted twice.
        assert_eq!(plan.requests[0].attr.period_or_freq, 0);
        assert_eq!(planned("intel-skylake").requests.len(), 2);
    }

    #[test]
    fn cores_of_a_hybrid_processor_are_opened_on_their_own_cpus() {
        let plan = planned("intel-hybrid");
        let shown: Vec<_> =
            plan.requests.iter().map(|r| (r.name.as_str(), r.joins_group, r.cpus.clone().unwrap())).collect();
        let cpus = |numbers: std::ops::Range<u32>| numbers.map(CpuId).collect::<Vec<CpuId>>();
        let (small, large) = (cpus(16..24), cpus(0..16));
        let want = [
            ("cpu_atom/mem-loads/", false, small.clone()),
            ("cpu_atom/mem-stores/", false, small),
            ("cpu_core/mem-loads-aux/", false, large.clone()),
            ("cpu_core/mem-loads/", true, large.clone()),
            ("cpu_core/mem-stores/", false, large),
        ];
        assert_eq!(shown, want);
    }

    #[test]
    fn cores_that_are_not_sampled_are_named() {
        let mut pmus = pmus("intel-hybrid");
        let mut facts = all(&pmus);
        facts
            .iter_mut()
            .filter(|fact| fact.pmu == "cpu_atom")
            .for_each(|fact| fact.own = Answer::Refused(libc::EINVAL));
        let notes = super::plan(&pmus, &facts, &OPTIONS).unwrap().notes;
        let has = |notes: &[String], words: &str| notes.iter().any(|note| note.contains(words));
        assert!(
            has(&notes, "cpu_atom/mem-loads/") && has(&notes, "so loads on CPUs 16-23 are not recorded"),
            "{notes:?}"
        );
        pmus.iter_mut().filter(|pmu| pmu.name == "cpu_atom").for_each(|pmu| pmu.events.clear());
        let notes = super::plan(&pmus, &all(&pmus), &OPTIONS).unwrap().notes;
        assert!(has(&notes, "so accesses on CPUs 16-23 are not recorded"), "{notes:?}");
    }

    #[test]
    fn spe_has_an_aux_area_a_period_and_context_switches() {
        let plan = planned("arm-neoverse-n1");
        let [request] = &plan.requests[..] else { panic!("{plan:?}") };
        assert_eq!(request.aux_bytes, AUX_BYTES);
        assert!(!request.attr.is_freq() && request.attr.flag(attr_flag::CONTEXT_SWITCH));
        assert_eq!(request.cpus.as_ref().map(Vec::len), Some(80));
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again() {
        let pmus = pmus("intel-skylake");
        let mut facts = all(&pmus);
        facts[1].own = Answer::Refused(libc::EINVAL);
        facts[0].physical = Answer::Refused(libc::EACCES);
        let plan = super::plan(&pmus, &facts, &OPTIONS).unwrap();
        assert_eq!(plan.requests.len(), 1);
        assert!(!plan.has_physical && !plan.requests[0].attr.samples(sample::PHYS_ADDR));
        assert_eq!(super::plan(&pmus, &[], &OPTIONS).unwrap(), PmuPlan::default());
    }
}
