//! Which events sample memory accesses here, and their descriptions.

use super::PmuError;
use super::sysfs::Pmu;
use crate::abi::{attr_flag, sample};
use crate::attr::EventAttr;
use crate::spe::interval;

/// A way to sample memory accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sampler {
    /// AMD IBS: micro-operations of every kind, one event per CPU.
    IbsOp,
    /// Intel PEBS: loads with at least some latency.
    PebsLoads,
    /// Intel PEBS: stores.
    PebsStores,
    /// Arm SPE: packets in an AUX buffer.
    Spe,
}

/// What the samples should hold, and which accesses to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRequest {
    /// Operations (IBS, SPE) or events (PEBS) per sample.
    pub period: u64,
    /// Least latency in cycles of loads that are worth a sample; 0: all. Where the hardware has it.
    pub least_latency: u64,
    /// Only what the caches up to the third level did not answer. Where the hardware can choose so.
    pub l3_misses_only: bool,
    /// Physical addresses: for privileged users only.
    pub physical: bool,
    /// Whether samples have call chains.
    pub callchain: bool,
    /// Whether only user code is sampled.
    pub user_only: bool,
}

impl Default for SampleRequest {
    fn default() -> SampleRequest {
        SampleRequest {
            period: 100_000,
            least_latency: 0,
            l3_misses_only: false,
            physical: false,
            callchain: true,
            user_only: true,
        }
    }
}

/// Events that belong together: open the first as the leader of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Hardware facility that takes the samples.
    pub sampler: Sampler,
    /// Name of the PMU in sysfs.
    pub pmu: String,
    /// CPUs on which it counts; `None`: all.
    pub cpus: Option<String>,
    /// Events. The last one gives the samples.
    pub events: Vec<EventAttr>,
    /// Parts of the request that this PMU cannot fulfil, as sentences for the user.
    pub lacking: Vec<&'static str>,
}

/// All events with which these PMUs can sample memory accesses.
///
/// # Errors
/// If a PMU's own event does not fit its own format.
pub fn offers(pmus: &[Pmu], request: &SampleRequest) -> Result<Vec<Offer>, PmuError> {
    let mut out = Vec::new();
    for pmu in pmus {
        match pmu.name.as_str() {
            "ibs_op" => out.push(ibs(pmu, request)?),
            // Hybrid processors have a PMU for each kind of core (`cpu_core`, `cpu_atom`, `cpu_lowpower`), with an event of its own for loads and their
            // latencies.
            name if name == "cpu" || name.starts_with("cpu_") => out.extend(pebs(pmu, request)?),
            name if name.starts_with("arm_spe_") => out.push(spe(pmu, request)?),
            _ => {}
        }
    }
    Ok(out)
}

fn common(attr: EventAttr, request: &SampleRequest, fields: u64) -> EventAttr {
    let optional = [(request.physical, sample::PHYS_ADDR), (request.callchain, sample::CALLCHAIN)];
    let optional = optional.into_iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, bit)| all | bit);
    let excluded = u64::from(request.user_only) * (1 << attr_flag::EXCLUDE_KERNEL | 1 << attr_flag::EXCLUDE_HV);
    let base =
        sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::ADDR | sample::CPU | sample::PERIOD;
    EventAttr {
        period_or_freq: request.period,
        sample_type: base | fields | optional,
        flags: attr.flags | excluded | 1 << attr_flag::SAMPLE_ID_ALL,
        ..attr
    }
}

/// Hardware without that filter.
const NO_CHOICE: &str = "this PMU cannot select accesses that missed the L3: all accesses are sampled";
/// "The MEM_TRANS_RETIRED event for load latency counts only tagged retired loads", and which are tagged the hardware draws (SDM 3B, "Load Latency Performance
/// Monitoring Facility"; of small cores: "the number of tagged load uops retired"). The events of stores count all of them.
const TAGGED: &str = "only loads that the processor tags at random are counted: the shares of objects are right among loads, but stores have too large a \
                      share, and total access counts are not available";
/// The hardware draws again when what it tagged did not miss, without counting how often.
const SKEWED: &str = "only accesses that missed the L3 are sampled: the shares of objects are right, but total access counts are not available";

/// AMD IBS. The kernel takes periods that are multiples of 16 from 0x90 to 0x7fffff0.
fn ibs(pmu: &Pmu, request: &SampleRequest) -> Result<Offer, PmuError> {
    let mut terms: Vec<String> = Vec::new();
    let mut lacking = Vec::new();
    // Micro-operations rather than cycles, so that a sample stands for operations.
    if pmu.format.contains_key("cnt_ctl") {
        terms.push("cnt_ctl=1".to_owned());
    } else {
        lacking.push("the sampling period counts cycles, not operations");
    }
    // The kernel's filter, in software; without it IBS counts everything or refuses.
    if request.user_only {
        match pmu.format.contains_key("swfilt") {
            true => terms.push("swfilt=1".to_owned()),
            false => lacking.push("the kernel's own accesses are sampled as well"),
        }
    }
    if request.least_latency > 0 {
        // From 128 to 2048 cycles, in steps of 128.
        match pmu.format.contains_key("ldlat") {
            true => terms.push(format!("ldlat={}", request.least_latency.next_multiple_of(128).clamp(128, 2048))),
            false => lacking.push("this PMU cannot select loads by latency"),
        }
    }
    if request.l3_misses_only {
        match pmu.format.contains_key("l3missonly") {
            true => {
                terms.push("l3missonly=1".to_owned());
                lacking.push(SKEWED);
            }
            false => lacking.push(NO_CHOICE),
        }
    }
    let attr = common(pmu.event(&terms.join(","))?, request, sample::RAW | sample::DATA_SRC | sample::WEIGHT_STRUCT);
    let period = (request.period / 16 * 16).clamp(0x90, 0x7f_ffff0);
    // IBS knows no hypervisor's mode: what excludes it has no effect, or is refused (`perf_ibs_init` in `arch/x86/events/amd/ibs.c`).
    let mut flags = attr.flags & !(1 << attr_flag::EXCLUDE_HV);
    if !pmu.format.contains_key("swfilt") {
        flags &= !(1 << attr_flag::EXCLUDE_KERNEL);
    }
    let events = vec![EventAttr { period_or_freq: period, flags, ..attr }];
    Ok(Offer { sampler: Sampler::IbsOp, pmu: pmu.name.clone(), cpus: pmu.cpus.clone(), events, lacking })
}

/// Intel PEBS. Some processors want an auxiliary event to lead.
fn pebs(pmu: &Pmu, request: &SampleRequest) -> Result<Vec<Offer>, PmuError> {
    let fields = sample::DATA_SRC | sample::WEIGHT_STRUCT;
    let offer = |sampler, events, lacking| {
        let (pmu, cpus) = (pmu.name.clone(), pmu.cpus.clone());
        Offer { sampler, pmu, cpus, events, lacking }
    };
    // PEBS stops where a guest runs in any case. An event that does not say so, and guests that have the PMU to themselves (since Linux 7.0), keep each
    // other out: EOPNOTSUPP here, EBUSY there (`mediated_pmu_account_event`, `perf_create_mediated_pmu` in kernel/events/core.c).
    let of_host = |attr: EventAttr| EventAttr { flags: attr.flags | 1 << attr_flag::EXCLUDE_GUEST, ..attr };
    let precise =
        |attr: EventAttr, level: u64| of_host(EventAttr { flags: attr.flags | level << attr_flag::PRECISE_IP, ..attr });
    let no_choice = || if request.l3_misses_only { vec![NO_CHOICE] } else { Vec::new() };
    let mut out = Vec::new();
    if pmu.events.contains_key("mem-loads") {
        let mut load = pmu.event("mem-loads")?;
        // The least that the kernel takes is 3: loads that hit the first cache.
        if let Some(field) = pmu.format.get("ldlat") {
            field.set(&mut load, request.least_latency.clamp(3, 0xffff));
        }
        let mut events = Vec::new();
        if pmu.events.contains_key("mem-loads-aux") {
            let helper = common(pmu.event("mem-loads-aux")?, &SampleRequest { period: 0, ..*request }, fields);
            events.push(of_host(helper));
        }
        events.push(precise(common(load, request, fields), 2));
        let lacking = [vec![TAGGED], no_choice()].concat();
        out.push(offer(Sampler::PebsLoads, events, lacking));
    }
    if pmu.events.contains_key("mem-stores") {
        let store = precise(common(pmu.event("mem-stores")?, request, fields), 2);
        out.push(offer(
            Sampler::PebsStores,
            vec![store],
            vec!["for stores, most processors report only whether they hit the L1 cache"],
        ));
    }
    Ok(out)
}

/// Arm SPE: loads and stores, with time stamps.
fn spe(pmu: &Pmu, request: &SampleRequest) -> Result<Offer, PmuError> {
    let mut terms = Vec::new();
    let mut lacking = Vec::new();
    for (term, wanted) in [
        ("ts_enable", true),
        ("load_filter", true),
        ("store_filter", true),
        ("jitter", true),
        ("pa_enable", request.physical),
    ] {
        if wanted && pmu.format.contains_key(term) {
            terms.push(format!("{term}=1"));
        }
    }
    if request.least_latency > 0 && pmu.format.contains_key("min_latency") {
        terms.push(format!("min_latency={}", request.least_latency.min(0xfff)));
    }
    if request.l3_misses_only {
        lacking.push(NO_CHOICE);
    }
    if request.callchain {
        lacking.push("SPE has no call chains");
    }
    // What the driver would make of it: samples stand for that many operations.
    let least = pmu.caps.get("min_interval").and_then(|text| text.parse().ok()).unwrap_or(0);
    let period = interval(request.period.max(least));
    let request = SampleRequest { period, callchain: false, physical: false, ..*request };
    let events = vec![common(pmu.event(&terms.join(","))?, &request, 0)];
    Ok(Offer { sampler: Sampler::Spe, pmu: pmu.name.clone(), cpus: pmu.cpus.clone(), events, lacking })
}
