//! Notes and counts of a recording of events: what it holds, and what its evidence can and cannot show.

use std::collections::BTreeSet;

use numapilot_machine::CpuId;
use numapilot_text::units;
use serde_json::Value;
use serde_json::json;

use super::drain::LiveOutcome;
use numapilot_perf_events::open::Multiplexed;

/// The counts, for `meta.json`.
pub fn counts(outcome: &LiveOutcome) -> Value {
    let (counts, asked, sizes) = (&outcome.counts, &outcome.asked, &outcome.sizes_asked);
    let mut out = json!({
        "samples": counts.samples, "accesses": counts.accesses, "page_faults": counts.faults,
        "without_address": counts.without_address, "of_guests": counts.of_guests,
        "kernel_addresses": counts.kernel_addresses, "addresses_beyond": counts.beyond_addresses, "of_more_weight": counts.of_more_weight,
        "home_by_first_touch": counts.home_by_first_touch, "home_by_query": counts.home_by_query,
        "without_thread": counts.without_thread, "of_the_tracker": counts.trackers, "lost_records": counts.lost, "throttled": counts.throttled,
        "undecodable_records": counts.undecodable, "corrupt_ring_bytes": outcome.corrupt_bytes,
        "aux_pieces": outcome.aux.pieces, "aux_truncated": outcome.aux.truncated, "aux_partial": outcome.aux.partial,
        "aux_collisions": outcome.aux.collisions, "aux_bytes_missing": outcome.aux.missing_bytes, "aux_records_late": outcome.aux.late,
        "aux_restarts": outcome.aux.restarts, "aux_off_ns": outcome.aux.off_ns,
        "pages_asked": asked.pages, "pages_told": asked.told, "pages_gone": asked.absent,
        "pages_of_ended_processes": asked.gone, "asked_too_late": asked.late,
        "page_sizes_asked": sizes.pages, "page_sizes_told": sizes.told, "page_sizes_between": sizes.between, "page_sizes_asked_too_late": sizes.late,
        "stamp_error_ticks": outcome.stamp_error_ticks,
        "filled_for_others": outcome.filled_for_others, "of_threads_beyond": outcome.left_out,
    });
    out["not_retired"] = counts.not_retired.into();
    out["of_unknown_weight"] = counts.of_unknown_weight.into();
    out["multiplexed"] = outcome.multiplexed.iter().map(|of| json!({ "event": of.event, "share": of.share })).collect();
    out
}

/// A note on a rate of samples per second and CPU that the kernel does not take; `None`: it takes it.
pub fn slower(share: u32, allowed: u32) -> Option<String> {
    (allowed < share).then(|| {
        format!(
            "each CPU is sampled at most {allowed} times per second instead of {share}, because the kernel takes no more: it lowers \
             kernel.perf_event_max_sample_rate where taking samples took too long"
        )
    })
}

/// A note on SPE, which takes no rate (`arm_spe_pmu_event_init` in `drivers/perf/arm_spe_pmu.c`).
pub fn no_rate(period: u64) -> String {
    format!("SPE takes a period and no rate: each CPU samples 1 in {period} of its operations; `--period` sets another")
}

/// Notes that a reader of the trace needs to interpret it correctly.
pub fn notes(outcome: &LiveOutcome, numa_balancing: Option<i64>) -> Vec<String> {
    let counts = &outcome.counts;
    let mut notes = Vec::new();
    if counts.faults > 0 {
        notes.push(evidence(numa_balancing));
    }
    notes.extend(unknown_nodes(outcome));
    notes.extend(counts.guests_note());
    notes.extend(counts.beyond_note());
    notes.extend(counts.weight_note());
    notes.extend(counts.cycles_note());
    notes.extend(counts.retired_note());
    if counts.without_thread > 0 {
        notes.push(format!(
            "{} left out, because the thread is unknown",
            units::counted(counts.without_thread, "sample is", "samples are")
        ));
    }
    notes.extend(unknown_sizes(outcome));
    notes.extend(sizes_between(outcome));
    if outcome.filled_for_others > 0 {
        notes.push(format!(
            "another program (perf, `numapilot top`) sampled {} too, and the kernel may have recorded time and call stack with that program's settings: \
             such times are off by up to some 20 ms, and stacks may be missing or cut",
            units::counted(outcome.filled_for_others, "page fault", "page faults")
        ));
    }
    if outcome.counter_was_reset {
        notes.push(
            "the processor's time-stamp counter restarted while recording, because the machine was suspended: the program's own records after that are out \
             of order with the kernel's; record again without suspending the machine"
                .to_owned(),
        );
    }
    notes.extend(counts.throttling_note());
    notes.extend(multiplexed(&outcome.multiplexed));
    if outcome.left_out > 0 {
        notes.push(format!(
            "{} left out, because more threads were started than a trace can hold (4,194,304): record for a shorter time",
            units::counted(outcome.left_out, "record is", "records are")
        ));
    }
    notes.extend(unobserved(&outcome.unobserved_cpus));
    notes.extend(interrupted(&outcome.interrupted_cpus));
    notes.extend(returned(&outcome.returned_cpus));
    notes.extend(outcome.aux.notes());
    if counts.undecodable > 0 {
        notes.push(format!("{} records of the kernel could not be decoded; please report this", counts.undecodable));
    }
    if outcome.corrupt_bytes > 0 {
        notes
            .push(format!("{} bytes of the kernel's rings were no records; please report this", outcome.corrupt_bytes));
    }
    notes
}

/// That events took turns with others at the processor's counters.
fn multiplexed(events: &[Multiplexed]) -> Option<String> {
    let named: Vec<String> =
        events.iter().map(|of| format!("`{}` for {:.0} % of the time", of.event, of.share * 100.0)).collect();
    (!named.is_empty()).then(|| {
        format!(
            "the processor sampled {}, because others used its counters in turn: total access counts are too low by as much, and shares are off between what \
             different events sample (loads, stores), and between what ran at different times; stop other profilers (perf, VTune, another numapilot), and \
             record again",
            named.join(", ")
        )
    })
}

/// That the kernel did not say on which nodes pages are. The first touch of a page is known from its page fault alone: samples of accesses do not show it.
fn unknown_nodes(outcome: &LiveOutcome) -> Vec<String> {
    let (counts, asked) = (&outcome.counts, &outcome.asked);
    let is_of_faults = counts.faults > 0;
    let mut notes = Vec::new();
    let unknown = asked.gone + asked.late;
    if unknown > 0 {
        let (which, home) = match is_of_faults {
            true => (
                recorded(outcome, unknown),
                "the first toucher's node is taken as the home node, which is correct under the default policy",
            ),
            false => (
                recorded_as(outcome, unknown, ["access", "accesses"]),
                "unless another record tells the home node, it is unknown",
            ),
        };
        notes.push(format!(
            "for {which} the page's node could not be looked up in time ({} because the process had ended): {home}",
            asked.gone.min(counts.accesses)
        ));
    }
    if let Some(why) = &asked.refused {
        let home = match is_of_faults {
            true => "their first toucher's node is taken as the home node",
            false => "unless another record tells a home node, it is unknown",
        };
        notes.push(format!("the kernel did not report the nodes of pages ({why}): {home}"));
    }
    notes
}

/// That CPUs came online after the events were opened.
fn unobserved(cpus: &[CpuId]) -> Option<String> {
    let names: Vec<String> = cpus.iter().map(CpuId::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "nothing was recorded on {}, which came online during the recording: {}",
            units::counted(names.len() as u64, "CPU", "CPUs"),
            names.join(", ")
        )
    })
}

/// That events were opened anew on CPUs that had been offline.
fn interrupted(cpus: &BTreeSet<CpuId>) -> Option<String> {
    let names: Vec<String> = cpus.iter().map(CpuId::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "nothing was recorded on {} while they were offline and for up to some seconds after they came back: {}; names and mappings of programs that were \
             started there in that time may be unknown",
            units::counted(names.len() as u64, "CPU", "CPUs"),
            names.join(", ")
        )
    })
}

/// That CPUs came back, and that their events were not opened anew.
fn returned(cpus: &[CpuId]) -> Option<String> {
    let names: Vec<String> = cpus.iter().map(CpuId::to_string).collect();
    (!names.is_empty()).then(|| {
        format!(
            "nothing was recorded on {} from the moment on when they went offline, although they came back: {}; record again without taking CPUs offline or \
             suspending the machine",
            units::counted(names.len() as u64, "CPU", "CPUs"),
            names.join(", ")
        )
    })
}

/// So many page faults of those that were asked about, which include the tracker's own: whose they are is known later, and those are not recorded.
fn recorded(outcome: &LiveOutcome, asked: u64) -> String {
    recorded_as(outcome, asked, ["page fault", "page faults"])
}

/// The same of other samples, by their name for one and for several.
fn recorded_as(outcome: &LiveOutcome, asked: u64, [one, several]: [&str; 2]) -> String {
    let up_to = if outcome.counts.trackers > 0 { "up to " } else { "" };
    format!("{up_to}{}", units::counted(asked.min(outcome.counts.accesses), one, several))
}

/// That pages may be larger than they count.
fn unknown_sizes(outcome: &LiveOutcome) -> Option<String> {
    let sizes = &outcome.sizes_asked;
    let unknown = sizes.pages.saturating_sub(sizes.told + sizes.between) + sizes.late;
    let why = match sizes.is_too_old {
        true => "this kernel, older than Linux 6.7, cannot be asked".to_owned(),
        false => "their processes had ended, or the look-up came too late".to_owned(),
    };
    (unknown > 0 && !sizes.are_never_huge).then(|| {
        format!(
            "for {} the size of the mapped page is unknown ({why}): each counts as one page of the base size, even if it mapped a huge page",
            recorded(outcome, unknown)
        )
    })
}

/// That pages may be of sizes that the kernel does not report.
fn sizes_between(outcome: &LiveOutcome) -> Option<String> {
    let between = outcome.sizes_asked.between;
    (between > 0).then(|| {
        format!(
            "{} may have mapped several pages at once, because multi-size THP is on (/sys/kernel/mm/transparent_hugepage/hugepages-*kB) and the kernel \
             does not report such sizes: each counts as one page, so counts of pages are lower bounds, and objects with larger pages have too small \
             shares",
            recorded(outcome, between)
        )
    })
}

/// What page faults can and cannot show.
fn evidence(numa_balancing: Option<i64>) -> String {
    let always = "page faults are the evidence here, not memory accesses: each page's first touch is exact (thread, line, node), but how often memory is \
                  accessed, and with what latency, is unknown";
    let later = match numa_balancing {
        Some(mode) if mode & 1 != 0 => {
            "later faults are mostly hinting faults of the kernel's NUMA balancing (kernel.numa_balancing is on), so they show threads that use a page, at \
             a rate that the kernel sets; the kernel may move the pages as well"
        }
        _ => {
            "threads that use a page after its first touch are not recorded, because the kernel's NUMA balancing is off (`sysctl kernel.numa_balancing=1` \
             turns it on, on machines with several nodes)"
        }
    };
    format!("{always}; {later}")
}

#[cfg(test)]
mod tests {
    use numapilot_perf_events::homes::Asked;
    use numapilot_perf_events::page_sizes::SizesAsked;
    use numapilot_sampled::Counts;

    use super::*;

    #[test]
    fn cpus_that_came_later_are_named() {
        let said = |cpus: Vec<CpuId>| notes(&LiveOutcome { unobserved_cpus: cpus, ..LiveOutcome::default() }, None);
        let words = said(vec![CpuId(4), CpuId(12)]);
        assert!(words.iter().any(|note| note.contains("on 2 CPUs") && note.ends_with(": 4, 12")), "{words:?}");
        assert!(said(Vec::new()).iter().all(|note| !note.contains("came online")));
    }

    /// What was done there after a suspension of the machine was missing, and no word said so.
    #[test]
    fn cpus_that_were_offline_for_a_while_are_named() {
        let said = |cpus: Vec<CpuId>| notes(&LiveOutcome { returned_cpus: cpus, ..LiveOutcome::default() }, None);
        let words = said(vec![CpuId(4), CpuId(12)]);
        assert!(words.iter().any(|note| note.contains("on 2 CPUs") && note.contains("came back: 4, 12;")), "{words:?}");
        assert!(said(Vec::new()).iter().all(|note| !note.contains("came back")));
        let outcome = LiveOutcome { interrupted_cpus: [CpuId(7), CpuId(3)].into(), ..LiveOutcome::default() };
        let is_told = |note: &String| note.contains("on 2 CPUs while") && note.contains("came back: 3, 7;");
        assert!(notes(&outcome, None).iter().any(is_told));
    }

    /// Two recordings with `ibs_op` at a time: each saw a part of the accesses, and no word said so.
    #[test]
    fn events_that_took_turns_are_named_with_their_shares() {
        let of = |event: &str, share| Multiplexed { event: event.to_owned(), share };
        let multiplexed = vec![of("cpu/mem-loads/", 0.5), of("cpu/mem-stores/", 0.333)];
        let outcome = LiveOutcome { multiplexed, ..LiveOutcome::default() };
        let words = notes(&outcome, None);
        let named = "sampled `cpu/mem-loads/` for 50 % of the time, `cpu/mem-stores/` for 33 % of the time, because";
        assert!(words.iter().any(|note| note.contains(named)), "{words:?}");
        assert_eq!(counts(&outcome)["of_unknown_weight"], 0);
        assert_eq!(counts(&outcome)["multiplexed"][0], json!({ "event": "cpu/mem-loads/", "share": 0.5 }));
        assert!(notes(&LiveOutcome::default(), None).iter().all(|note| !note.contains("in turn")));
    }

    /// Recordings of accesses were said to have homes by the first touch, of "page faults".
    #[test]
    fn no_first_touch_is_taken_for_a_home_where_none_is_seen() {
        let said = |faults: u64| {
            let asked = Asked { gone: 3, late: 2, refused: Some("no".to_owned()), ..Asked::default() };
            let counts = Counts { accesses: 100, faults, ..Counts::default() };
            let nodes = unknown_nodes(&LiveOutcome { counts, asked, ..LiveOutcome::default() });
            assert_eq!(nodes.len(), 2, "{nodes:?}");
            nodes
        };
        let (accesses, faults) = (said(0), said(100));
        assert!(accesses[0].starts_with("for 5 accesses the page's node") && accesses[0].contains("(3 because"));
        assert!(accesses.iter().all(|note| !note.contains("toucher") && note.ends_with("it is unknown")));
        assert!(faults[0].starts_with("for 5 page faults the page's node"));
        assert!(faults.iter().all(|note| note.contains("first toucher's node is taken")));
        assert!(unknown_nodes(&LiveOutcome::default()).is_empty());
    }

    /// The kernel lowers `perf_event_max_sample_rate` by itself.
    #[test]
    fn a_lower_rate_is_told() {
        assert_eq!(slower(2500, 2500), None);
        assert!(slower(2500, 1000).is_some_and(|note| note.contains("at most 1000 times per second instead of 2500")));
        assert!(no_rate(49_920).contains("samples 1 in 49920 of its operations"));
    }

    #[test]
    fn pages_of_unknown_size_are_counted_and_why_is_said() {
        let counts = Counts { accesses: 100, ..Counts::default() };
        let outcome = |sizes_asked| LiveOutcome { sizes_asked, counts, ..LiveOutcome::default() };
        let said = |sizes_asked: SizesAsked| unknown_sizes(&outcome(sizes_asked));
        let asked = SizesAsked { pages: 10, told: 7, late: 2, ..SizesAsked::default() };
        let words = said(asked).expect("a note");
        assert!(words.starts_with("for 5 page faults") && words.contains("too late"), "{words}");
        let words = said(SizesAsked { is_too_old: true, ..asked }).expect("a note");
        assert!(words.contains("older than Linux 6.7"), "{words}");
        assert_eq!(said(SizesAsked { are_never_huge: true, ..asked }), None, "there are no huge pages");
        assert_eq!(said(SizesAsked { told: 10, late: 0, ..asked }), None);
        let between = SizesAsked { between: 3, late: 0, ..asked };
        assert_eq!(said(between), None, "of those another note speaks");
        let told = |sizes_asked: SizesAsked| sizes_between(&outcome(sizes_asked));
        assert!(
            told(between).is_some_and(|words| words.starts_with("3 page faults") && words.contains("lower bounds"))
        );
        assert_eq!(told(asked), None);
    }

    /// "For 2837 page faults", of a recording of 1860: the tracker's own were among them.
    #[test]
    fn no_more_page_faults_are_unknown_than_were_recorded() {
        let counts = Counts { accesses: 1860, trackers: 1313, ..Counts::default() };
        let sizes_asked = SizesAsked { pages: 2100, told: 195, late: 932, ..SizesAsked::default() };
        let words = unknown_sizes(&LiveOutcome { counts, sizes_asked, ..LiveOutcome::default() }).expect("a note");
        assert!(words.starts_with("for up to 1860 page faults the size"), "{words}");
    }
}
