//! Turns drafts into findings: drops those without a fix that gains enough, grades the confidence of the rest, and states why where none is left.

use std::collections::BTreeMap;

use numapilot_flows::{Evidence, Object, ObjectKind, SiteId, Trace};
use numapilot_machine::Machine;
use numapilot_text::units::{fine_percent, percent, short_percent, significant_percent, time_ns};
use numapilot_trace::engine::Engine;
use numapilot_trace::ids::ProcessIndex;
use numapilot_traffic::TrafficError;

use super::{Confidence, Criterion, Draft, Finding, Findings, MATERIAL, Nothing, PatternKind, Scene, Subject, drafts};
use crate::context::{AllSums, Analysis};
use crate::fixes::{FixCandidate, FixPricer};
use crate::processor_time::processor_ns;
use crate::scene::{Interest, Surveyed};
use crate::totals::{UNKNOWN_MATERIAL, UNKNOWN_MAX};
use crate::unseen::{self, UnseenSite};

/// How many times as long as they ran threads must count as busy for a recording to be taken for one of threads that mostly wait: samples and the kernel's
/// clock ticks say it of a short run no better.
const MOSTLY_IDLE: f64 = 2.0;

impl Analysis<'_> {
    /// Finds patterns with their fixes and predicted gains on `machine`, and says what cannot be judged and why.
    #[must_use]
    pub fn findings(&self, machine: Option<&Machine>) -> Findings {
        self.findings_surveyed(machine, &mut Surveyed::default())
    }

    /// The same, which leaves what it found of the recording to [`Analysis::what_if_surveyed`].
    #[must_use]
    pub fn findings_surveyed(&self, machine: Option<&Machine>, surveyed: &mut Surveyed) -> Findings {
        find(self, machine, surveyed)
    }
}

/// All findings of a whole recording. Filtered and unpriced recordings have none, with the reason in `cannot_say`.
fn find(analysis: &Analysis<'_>, machine: Option<&Machine>, surveyed: &mut Surveyed) -> Findings {
    if let Some(blindness) = analysis.blindness() {
        return Findings { nothing: Some(Nothing::Blind), cannot_say: vec![blindness.says()], ..Findings::default() };
    }
    let silent = |why: Vec<String>| Findings { cannot_say: why, ..Findings::default() };
    if !analysis.filter().is_empty() {
        return silent(vec![
            "Findings need the whole recording, so none are shown with filters: repeat the command without them."
                .to_owned(),
        ]);
    }
    let sums = analysis.sum();
    if sums.all.samples == 0 {
        return Findings { nothing: Some(Nothing::NothingSeen), ..Findings::default() };
    }
    if let Some(why) = why_unpriced(analysis, &sums) {
        return silent(why);
    }
    if let Some(why) = too_few(analysis, &sums) {
        return silent(vec![why]);
    }
    let Some(machine) = machine else {
        let why = "The trace has no machine model, so the gains of fixes cannot be predicted. A recording of perf gets one where it is imported: `numapilot \
             import --machine FILE`.";
        return silent(vec![why.to_owned()]);
    };
    judged(analysis, machine, &sums, surveyed).unwrap_or_else(|error| {
        silent(vec![format!("The gains of fixes cannot be predicted on this machine: {error}.")])
    })
}

/// Why no fix can be priced in this recording, in whole sentences; `None` where fixes can be priced.
pub(crate) fn why_unpriced(analysis: &Analysis<'_>, sums: &AllSums) -> Option<Vec<String>> {
    let engine = &analysis.trace().meta().engine;
    let evidence = analysis.trace().evidence();
    if *engine == Engine::Import && evidence == Evidence::PageFaults {
        let why = "Page faults do not show how often memory is accessed, so patterns cannot be recognised and no fix has a price. Record with \
             `perf mem record`.";
        return Some(vec![why.to_owned()]);
    }
    if evidence == Evidence::PageFaults || *engine == Engine::Track {
        return Some(vec![format!(
            "Engine {engine} does not see how often memory is accessed, so patterns cannot be recognised and no fix has a price. Record with \
             `--engine instrument`, or with `--engine pmu` where the processor samples memory accesses."
        )]);
    }
    if analysis.trace().meta().rates_are_unknown() {
        let why = "Most accesses were sampled by cycles, so it is not known how often memory is accessed, and no fix has a price. Record with an event that \
             counts accesses or operations, such as `-e ibs_op/cnt_ctl=1/` on AMD.";
        return Some(vec![why.to_owned()]);
    }
    if sums.known.weight < (1.0 - UNKNOWN_MAX) * sums.all.weight {
        let unseen = unseen::sentences(analysis.trace(), &unseen::unseen_sites(analysis));
        if !unseen.is_empty() {
            return Some(unseen);
        }
        let why = "The home node of more than half of the accesses is unknown, so no placement can be judged. Record from the program's start, or with \
                   physical addresses.";
        return Some(vec![why.to_owned()]);
    }
    None
}

/// That the accesses sampled are too few for any judgement, in a whole sentence.
pub(crate) fn too_few(analysis: &Analysis<'_>, sums: &AllSums) -> Option<String> {
    let samples = sums.all.samples;
    analysis.samples_too_few(samples).then(|| {
        let sampled = if samples == 1 { "1 memory access was" } else { &format!("{samples} memory accesses were") };
        format!("Only {sampled} sampled, which is too little to judge by. Record longer, or sample more often.")
    })
}

/// That many accesses have an unknown home, in a whole sentence.
fn homes_unknown(sums: &AllSums) -> Option<String> {
    let share = 1.0 - sums.known.share_of(&sums.all).value;
    (share >= UNKNOWN_MATERIAL).then(|| {
        format!(
            "The home node of {} of the accesses is unknown, so it is not known whether they are remote. No finding and no gain covers them.",
            short_percent(share)
        )
    })
}

fn judged(
    analysis: &Analysis<'_>,
    machine: &Machine,
    sums: &AllSums,
    surveyed: &mut Surveyed,
) -> Result<Findings, TrafficError> {
    let scene = Scene::new(analysis, machine, &Interest::default())?;
    let pricer_of_fixes = FixPricer::new(&scene)?;
    let unseen = unseen::unseen_sites(analysis);
    let (mut findings, dropped) = found(&pricer_of_fixes, drafts(&scene), &unseen)?;
    for finding in &mut findings {
        if is_of_simulated_file(finding, analysis.trace()) {
            finding.would_change.push(
                "the page cache has its pages on other nodes than those of the threads that read them first, where the recording takes them to be"
                    .to_owned(),
            );
        }
    }
    let order = |finding: &Finding| usize::from(!matches!(finding.subject, Subject::Site(_)));
    findings.sort_by(|a, b| {
        let gain = |finding: &Finding| finding.fixes.first().map_or(0.0, |fix| fix.decisive().value);
        (gain(b) * 1000.0).round().total_cmp(&(gain(a) * 1000.0).round()).then(order(a).cmp(&order(b)))
    });
    let memory_share = scene.now.memory_ns / scene.now.busy_ns.max(1.0);
    let at_stake = scene.all_at_stake();
    let is_open = !unseen.is_empty() || homes_unknown(sums).is_some();
    let busy_ns = scene.now.busy_ns;
    let idle = mostly_idle(analysis.trace(), busy_ns);
    // Of the time that the threads ran.
    let is_hardly = |share: f64| share * idle.map_or(1.0, |ran_ns| busy_ns / ran_ns) < MATERIAL;
    let nothing = match (findings.is_empty(), is_hardly(memory_share), is_hardly(at_stake) && dropped == 0) {
        // Memory with unknown homes may be the problem, so "nothing to fix" cannot be claimed.
        (false, _, _) => None,
        (true, false, _) if is_open => None,
        (_, true, _) => Some(Nothing::HardlyWaits),
        (_, _, true) => Some(Nothing::WellPlaced),
        // Of the time in which they waited for something else, no fix gains anything.
        _ if idle.is_some() => None,
        _ => Some(Nothing::NoFixGains),
    };
    let idle = idle.filter(|_| findings.is_empty() && nothing.is_none());
    let shared_cores = shared_cores(&pricer_of_fixes, &findings);
    let found = Findings {
        findings,
        nothing,
        memory_share: Some(memory_share),
        at_stake: Some(at_stake),
        modelled_ns: Some(scene.now.run_ns),
        tried_by_many: vec![pricer_of_fixes.price(&FixCandidate::of_all())?],
        cannot_say: limits_of(analysis, sums, &unseen, "these findings do")
            .into_iter()
            .chain(scene.usage.paced().map(paced))
            .chain(unconverged(scene.now.unsettled))
            .chain(shared_cores)
            .chain(idle.map(|ran_ns| waits_unseen(ran_ns, busy_ns)))
            .chain(caches_apart(analysis.trace()))
            .collect(),
    };
    drop(pricer_of_fixes);
    surveyed.keep(scene);
    Ok(found)
}

/// That threads share cores in the recording, or where fixes of the findings move them, in whole sentences.
fn shared_cores(pricer_of_fixes: &FixPricer<'_>, findings: &[Finding]) -> Option<String> {
    let pins = [FixCandidate::of_threads(), FixCandidate::of_processes()];
    let is_proposed =
        |pin: &&FixCandidate| findings.iter().flat_map(|finding| &finding.fixes).any(|fix| fix.kind == pin.kind);
    let proposed: Vec<&FixCandidate> = pins.iter().filter(is_proposed).collect();
    pricer_of_fixes.shared_cores(&proposed).map(str::to_owned)
}

/// Whether it is about a file whose pages' homes were simulated, as if the program had read it in itself.
fn is_of_simulated_file(finding: &Finding, trace: &Trace) -> bool {
    let Subject::Site(site) = finding.subject else { return false };
    trace.meta().simulated && trace.site(site).is_some_and(|site| site.kind == ObjectKind::File)
}

/// The findings with a fix that gains enough, and the number of drafts without one.
fn found(
    pricer_of_fixes: &FixPricer<'_>,
    drafts: Vec<Draft>,
    unseen: &[UnseenSite],
) -> Result<(Vec<Finding>, usize), TrafficError> {
    let is_of_processes = |pattern: PatternKind| pattern == PatternKind::ProcessWideSharing;
    let (processes, others): (Vec<Draft>, Vec<Draft>) =
        drafts.into_iter().partition(|draft| is_of_processes(draft.pattern));
    let (mut findings, mut dropped): (Vec<Finding>, usize) = (Vec::new(), 0);
    for mut draft in processes.into_iter().chain(others) {
        draft.candidates.retain(|candidate| pricer_of_fixes.fits(candidate));
        if let Subject::Site(site) = draft.subject {
            // Where it gains to pin processes, that explains what their objects cost; where it does not, they are judged by themselves.
            let is_explained = findings.iter().any(|finding| is_of_processes(finding.pattern));
            if is_explained || unseen.iter().any(|unseen| unseen.site == site) {
                continue;
            }
        }
        // Most drafts end here, before their intervals are computed.
        let best = draft
            .candidates
            .iter()
            .map(|candidate| pricer_of_fixes.value(candidate))
            .try_fold(0.0, |best: f64, gain| Ok(best.max(gain?)))?;
        if best < MATERIAL {
            dropped += 1;
            continue;
        }
        let finding = finding(pricer_of_fixes, draft)?;
        match finding.fixes.first() {
            // The gain must exceed the sampling error, and what a model that did not converge left open. What is not known of the machine and the program
            // widens its interval and lowers the confidence. Of a few cache lines the sampling error is the gain itself: that is not sure, and says so.
            Some(fix)
                if fix.decisive().value >= MATERIAL.max(fix.uncertainty.of_samples + fix.uncertainty.unsettled)
                    && fix.uncertainty.median > 0.0 =>
            {
                findings.push(finding);
            }
            _ => dropped += 1,
        }
    }
    Ok((findings, dropped))
}

/// How long the processes ran by the kernel, ns, where that is far less than their threads count as busy, because the recording shows no waits.
fn mostly_idle(trace: &Trace, busy_ns: f64) -> Option<f64> {
    let shows_waits = !trace.waits().is_empty() || !trace.counters().is_empty();
    processor_ns(trace.meta()).filter(|ran_ns| !shows_waits && busy_ns >= MOSTLY_IDLE * ran_ns)
}

/// That a recording of a program which mostly waits does not show when it does, in whole sentences.
fn waits_unseen(ran_ns: f64, busy_ns: f64) -> String {
    format!(
        "The kernel counted {} of processor time, but the threads count as busy for {}, because this engine records no waits. Remote accesses may cost a \
         larger share of the time in which the threads ran, so it is unknown whether there is something to fix. Look at the objects with most remote \
         accesses.",
        time_ns(ran_ns as u64),
        time_ns(busy_ns as u64)
    )
}

/// That sleeps decide how long the run is, so that gains are of processor time, in whole sentences. `share`: of the run, 0 to 1.
pub(crate) fn paced(share: f64) -> String {
    format!(
        "The threads that decide when the run ends sleep, or wait until a time-out, in {} of the run time, as servers do that wait for input. Less work \
         would hardly shorten the run itself, so gains are of processor time: how much less of it the same work would take.",
        short_percent(share)
    )
}

/// That the model has no exact run time for the program as it was recorded, so that every gain is less sure.
fn unconverged(unsettled: f64) -> Option<String> {
    // No number is no convergence either.
    (unsettled > 0.0 || unsettled.is_nan()).then(|| {
        let off = if unsettled.is_finite() {
            format!("at least {}, which the intervals of gains include", percent(unsettled))
        } else {
            "any amount, and so are gains".to_owned()
        };
        format!(
            "The traffic model did not converge for the program as it was recorded: modelled run times are off by {off}."
        )
    })
}

fn finding(pricer_of_fixes: &FixPricer<'_>, draft: Draft) -> Result<Finding, TrafficError> {
    let mut fixes =
        draft.candidates.iter().map(|candidate| pricer_of_fixes.price(candidate)).collect::<Result<Vec<_>, _>>()?;
    fixes.sort_by(|a, b| b.decisive().value.total_cmp(&a.decisive().value));
    let gains = fixes.first().is_some_and(|fix| fix.decisive().low > 0.0);
    let (confidence, confidence_because) = confidence(&draft.criterion, gains);
    Ok(Finding {
        pattern: draft.pattern,
        subject: draft.subject,
        at_stake: draft.at_stake,
        evidence: draft.evidence,
        confidence,
        confidence_because,
        would_change: draft.would_change,
        fixes,
    })
}

fn confidence(criterion: &Criterion, gains: bool) -> (Confidence, String) {
    let Criterion { value, threshold, below, what } = criterion;
    let holds = if *below { value.high <= *threshold } else { value.low >= *threshold };
    let (says, end) = match (*below, holds) {
        (false, true) => ("is at least", value.low),
        (false, false) => ("may be as low as", value.low),
        (true, true) => ("is at most", value.high),
        (true, false) => ("may be as high as", value.high),
    };
    // Two digits, or more where both would read the same.
    let is_near = significant_percent(end) == significant_percent(*threshold);
    let in_words: fn(f64) -> String = if is_near { fine_percent } else { significant_percent };
    let why = format!(
        "the {what} {says} {} (95 % interval), {} the threshold of {}{}",
        in_words(end),
        if *below == holds { "below" } else { "above" },
        in_words(*threshold),
        if gains { "" } else { ", and the fix may gain nothing" }
    );
    let confidence = match (holds, gains) {
        (true, true) => Confidence::High,
        (false, false) => Confidence::Low,
        _ => Confidence::Medium,
    };
    (confidence, why)
}

/// That processes share memory, and that what they do to each other's cache lines is not simulated, in whole sentences.
fn caches_apart(trace: &Trace) -> Option<String> {
    if !trace.meta().simulated || trace.processes().len() < 2 {
        return None;
    }
    let is_shared = |object: &&Object| trace.kind_of(Some(object.id)) == ObjectKind::Shared;
    let mut mapped_by: BTreeMap<SiteId, ProcessIndex> = BTreeMap::new();
    let mut shared = trace.objects().iter().filter(is_shared);
    let is_mapped_again =
        shared.any(|object| *mapped_by.entry(object.site).or_insert(object.process) != object.process);
    let is_inherited = || {
        trace.accesses().any(|access| {
            let object = access.object.and_then(|id| trace.object(id)).filter(is_shared);
            let process = trace.thread(access.thread).map(|thread| thread.process);
            object.is_some_and(|object| process.is_some_and(|process| process != object.process))
        })
    };
    (is_mapped_again || is_inherited()).then(|| {
        "Processes share memory, and the caches of each process are simulated separately: a write by one invalidates no line in another's caches. So lines \
         that several processes write, and false sharing between processes, are not found, and such memory costs more than this report says."
            .to_owned()
    })
}

/// What limits findings or a prediction, in whole sentences. `what`: their name with "do" or "does".
pub(crate) fn limits_of(analysis: &Analysis<'_>, sums: &AllSums, unseen: &[UnseenSite], what: &str) -> Vec<String> {
    let mut said = Vec::new();
    if analysis.trace().counters().is_empty() {
        said.push(
            "This engine does not count accesses and waits. Access rates come from the weights of samples, and threads count as busy while any access of them \
             is sampled, so predicted gains tend to be too small."
                .to_owned(),
        );
    }
    if let Some(host) = analysis.trace().meta().other_processor() {
        let machine = &analysis.trace().meta().machine_name;
        let host = if host.is_empty() { "whose processor is not known" } else { host };
        said.push(format!(
            "The program ran on the recording host ({host}), not on {machine}: its times, and where its accesses went, are that host's, and gains are those of \
             {machine} only as far as the two are alike."
        ));
    }
    if analysis.trace().losses().records_lost() {
        said.push(format!("Records were lost, so {what} not cover the whole run."));
    }
    said.extend(unseen::sentences(analysis.trace(), unseen));
    said.extend(homes_unknown(sums).filter(|_| unseen.is_empty()));
    said
}

#[cfg(test)]
mod tests {
    use numapilot_flows::{AccessRef, Filter, Process, Site, Tables, Thread};
    use numapilot_machine::NodeId;
    use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};

    use super::*;
    use crate::headline::Verdict;

    /// Local accesses to one object, of which every `unknown`-th has no known home (0: none).
    fn trace(samples: u64, unknown: u64) -> Trace {
        let mut tables = Tables { end: TimeNs(1_000_000), ..Tables::default() };
        tables.threads.push(Thread { index: ThreadIndex(0), node: Some(NodeId(0)), ..Thread::default() });
        tables.sites.push(Site { kind: ObjectKind::Heap, name: "grid".into(), ..Site::default() });
        tables.objects.push(Object { bytes: 1 << 20, ..Object::default() });
        for at in 0..samples {
            tables.accesses.push(&AccessRef {
                time: TimeNs(at * 1_000_000 / samples),
                object: Some(ObjectId(0)),
                node: Some(NodeId(0)),
                home: (unknown == 0 || at % unknown != 0).then_some(NodeId(0)),
                weight: 10,
                cluster: 10.0,
                ..AccessRef::at(at * 64)
            });
        }
        Trace::from_tables(tables)
    }

    fn found(trace: &Trace, filter: Filter) -> (Findings, Verdict) {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let analysis = Analysis::on(trace, Some(&machine), filter);
        (analysis.findings(Some(&machine)), analysis.headline().verdict)
    }

    /// "At least 75.8 %, above the threshold of 63.2 %" had more digits than are known; a bound next to its threshold keeps them.
    #[test]
    fn a_confidence_has_the_digits_that_tell_a_bound_from_its_threshold() {
        let because = |low: f64, threshold: f64| {
            let value = crate::estimate::Estimate { value: 0.8, low, high: 0.9 };
            confidence(&Criterion::above(value, threshold, "share"), true).1
        };
        assert_eq!(because(0.758, 0.632), "the share is at least 76 % (95 % interval), above the threshold of 63 %");
        assert_eq!(
            because(0.634, 0.632),
            "the share is at least 63.4 % (95 % interval), above the threshold of 63.2 %"
        );
    }

    /// Prices on a machine that the program did not run on said nothing of it.
    #[test]
    fn a_recording_of_another_host_says_so() {
        let said = |engine: Engine, host: &str| {
            let meta = numapilot_trace::meta::Meta {
                engine: engine.into(),
                machine: serde_json::json!({ "source": "builtin", "cpu_model": "AMD Opteron" }),
                machine_name: "opteron-8385".to_owned(),
                host: [("cpu_model".to_owned(), host.into())].into_iter().collect(),
                ..numapilot_trace::meta::Meta::default()
            };
            let found = found(&trace(1000, 0).with_meta(meta), Filter::default()).0;
            found.cannot_say.iter().any(|why| why.contains("ran on the recording host (Xeon), not on opteron-8385"))
        };
        assert!(said(Engine::Pmu, "Xeon") && !said(Engine::Pmu, "AMD Opteron") && !said(Engine::Import, "Xeon"));
    }

    /// 64 remote accesses in a second, of a thread that ran for so long by the kernel.
    fn seldom(ran_ns: Option<u64>) -> Findings {
        let mut tables = Tables { end: TimeNs(1_000_000_000), ..Tables::default() };
        tables.threads.push(Thread { index: ThreadIndex(0), node: Some(NodeId(0)), ..Thread::default() });
        tables.sites.push(Site { kind: ObjectKind::Heap, name: "table".into(), ..Site::default() });
        tables.objects.push(Object { bytes: 1 << 20, ..Object::default() });
        for at in 0..64 {
            let (node, home) = (Some(NodeId(0)), Some(NodeId(3)));
            let (time, object) = (TimeNs(at * 15_000_000), Some(ObjectId(0)));
            let access = AccessRef { time, object, node, home, weight: 1, cluster: 1.0, ..AccessRef::at(at * 64) };
            tables.accesses.push(&access);
        }
        let mut meta = numapilot_trace::meta::Meta::default();
        if let Some(ns) = ran_ns {
            let rows = serde_json::json!([{ "pid": 1, "user_ns": ns, "system_ns": 0 }]);
            meta.more.insert("processor_time".to_owned(), rows);
        }
        found(&Trace::from_tables(tables).with_meta(meta), Filter::default()).0
    }

    #[test]
    fn a_server_that_idles_is_not_said_to_wait_hardly_for_memory() {
        for ran_ns in [None, Some(100_000_000), Some(900_000_000)] {
            assert_eq!(seldom(ran_ns).nothing, Some(Nothing::HardlyWaits), "{ran_ns:?}");
        }
        // Accesses take about 10 us, which is half of what it ran.
        let idle = seldom(Some(20_000));
        assert!(idle.findings.is_empty() && idle.nothing.is_none(), "{idle:?}");
        assert!(idle.cannot_say.iter().any(|why| why.starts_with("The kernel counted ")), "{:?}", idle.cannot_say);
    }

    #[test]
    fn a_model_that_converged_to_no_number_did_not_converge() {
        assert_eq!(unconverged(0.0), None);
        let told = |unsettled| unconverged(unsettled).expect("a sentence");
        let some = "are off by at least 2.0 %, which the intervals of gains include.";
        assert!(told(0.02).ends_with(some), "{}", told(0.02));
        for open in [f64::NAN, f64::INFINITY] {
            assert!(told(open).ends_with("are off by any amount, and so are gains."), "{}", told(open));
        }
    }

    /// A counter that four processes write at addresses of their own had one sample, and nothing said why.
    #[test]
    fn what_processes_do_to_each_others_lines_is_said_to_be_unseen() {
        let says = |kind: ObjectKind, processes: u32, simulated: bool| {
            let mut tables = Tables { sites: vec![Site { kind, ..Site::default() }], ..Tables::default() };
            for index in (0..processes).map(ProcessIndex) {
                tables.processes.push(Process { index, ..Process::default() });
                tables.objects.push(Object { id: ObjectId(index.0), process: index, ..Object::default() });
            }
            let meta = numapilot_trace::meta::Meta { simulated, ..numapilot_trace::meta::Meta::default() };
            caches_apart(&Trace::from_tables(tables).with_meta(meta)).is_some()
        };
        assert!(says(ObjectKind::Shared, 2, true));
        assert!(!says(ObjectKind::Shared, 1, true) && !says(ObjectKind::Anonymous, 2, true));
        assert!(!says(ObjectKind::Shared, 2, false), "real caches are coherent");
    }

    #[test]
    fn well_placed_is_what_was_seen_to_be() {
        assert_eq!(found(&trace(1000, 0), Filter::default()).0.nothing, Some(Nothing::WellPlaced));
        let (third, _) = found(&trace(1000, 3), Filter::default());
        assert_eq!(third.nothing, None, "a third of the accesses may be remote");
        assert!(third.cannot_say.iter().any(|why| why.contains("of 33 % of the accesses is unknown")), "{third:?}");
        assert_eq!(found(&trace(1000, 100), Filter::default()).0.nothing, Some(Nothing::WellPlaced));
        let says = |unknown: u64| {
            let trace = trace(1000, unknown);
            let machine = Machine::load("opteron-8385").expect("a built-in model");
            let change = crate::whatif::PlacementOverride::read(&trace, "*=interleave").expect("a change");
            let answer = Analysis::on(&trace, Some(&machine), Filter::default()).what_if(&machine, &[change]);
            answer.expect("a prediction").cannot_say.iter().any(|why| why.contains("of the accesses is unknown"))
        };
        assert!(says(3) && !says(100), "a prediction covers no memory of unknown home");
        let (few, verdict) = found(&trace(29, 0), Filter::default());
        assert_eq!((few.nothing, few.memory_share, verdict), (None, None, Verdict::TooFew));
        assert_ne!(found(&trace(1000, 0), Filter::default()).1, Verdict::TooFew);
        assert!(few.cannot_say[0].starts_with("Only 29 memory accesses were sampled"), "{few:?}");
    }

    /// `report` said of 29 samples that they are too little to judge by, and `whatif` predicted a gain from them.
    #[test]
    fn no_gain_is_predicted_from_what_findings_do_not_judge_by() {
        let machine = Machine::load("opteron-8385").expect("a built-in model");
        let asked = |samples: u64| {
            let trace = trace(samples, 0);
            let change = crate::whatif::PlacementOverride::read(&trace, "*=interleave").expect("a change");
            let answer = Analysis::on(&trace, Some(&machine), Filter::default()).what_if(&machine, &[change]);
            answer.map(|_| ()).map_err(|error| error.to_string())
        };
        let refused = asked(29).expect_err("refused");
        assert!(refused.starts_with("Only 29 memory accesses were sampled"), "{refused}");
        assert_eq!(asked(1000), Ok(()));
    }

    #[test]
    fn what_a_filter_leaves_out_was_recorded_all_the_same() {
        let late = Filter { time: Some(TimeNs(2_000_000)..TimeNs(3_000_000)), ..Filter::default() };
        let (filtered, verdict) = found(&trace(1000, 0), late);
        assert_eq!((filtered.nothing, verdict), (None, Verdict::NothingPasses));
        let (none, verdict) = found(&Trace::from_tables(Tables::default()), Filter::default());
        assert_eq!((none.nothing, verdict), (Some(Nothing::NothingSeen), Verdict::NothingSeen));
    }
}
