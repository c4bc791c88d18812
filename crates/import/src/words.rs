//! Notes for the user: what a recording lacks, and how its samples were interpreted.

use std::io::Read;

use numapilot_perf::abi::sample;
use numapilot_perf::file::{Damage, Walker};
use numapilot_text::units;
use serde_json::{Value, json};

use super::Counts;
use super::command;
use super::events::{EventKind, filter_note};
use super::facts::{Facts, SampledEvent};

/// The counts, for `meta.json`.
pub(super) fn counts(counts: &Counts) -> Value {
    json!({
        "samples": counts.samples, "accesses": counts.accesses, "without_address": counts.without_address, "of_guests": counts.of_guests,
        "kernel_addresses": counts.kernel_addresses, "addresses_beyond": counts.beyond_addresses, "of_more_weight": counts.of_more_weight,
        "without_thread": counts.without_thread,
        "other_events": counts.other_events, "device_accesses": counts.device,
        "answered_by_caches": counts.core_cached + counts.shared_cached,
        "answered_by_core_caches": counts.core_cached, "answered_by_shared_cache": counts.shared_cached,
        "cache_to_cache": counts.transfers, "cache_to_cache_other_node": counts.transfers_other_node,
        "cache_to_cache_own_node": counts.transfers_own_node, "level_unknown": counts.level_unknown,
        "of_unknown_weight": counts.of_unknown_weight, "not_retired": counts.not_retired, "with_latency": counts.with_latency, "with_home": counts.with_home,
        "home_by_first_touch": counts.home_by_first_touch, "page_faults": counts.faults, "with_cpu": counts.with_cpu,
        "cpu_by_event_id": counts.cpu_by_id, "deferred_stacks": counts.deferred_stacks, "undecodable_records": counts.undecodable,
        "damaged_places": counts.damaged_places, "damaged_bytes": counts.damaged_bytes,
        "damaged_records": counts.damaged_records, "lost_records": counts.lost, "filtered_samples": counts.filtered,
        "throttled": counts.throttled, "aux_buffers_cut": counts.aux_flagged, "aux_bytes_unread": counts.aux_bytes_unread,
    })
}

/// Notes that a reader of the trace needs to interpret it correctly.
pub(super) fn notes<R: Read>(
    facts: &Facts,
    (counts, sampled): (&Counts, &[SampledEvent]),
    walker: &Walker<R>,
    first_bad: Option<&str>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(pmu) = facts.emulated_pmu() {
        notes.push(format!(
            "emulated: the samples are those of an emulated PMU (`{pmu}`) of a guest in QEMU, not of hardware; latencies are modelled, times are the guest's"
        ));
    }
    notes.push(
        "imported from perf: it records neither allocations nor unmappings, so heap blocks appear as `allocator` or as anonymous memory".to_owned(),
    );
    if command::program(&facts.features.command).is_none() {
        let line = facts.features.command.join(" ");
        notes.push(format!(
            "the recorded program's name is unknown, because perf's command line has options that numapilot does not know: `{line}`"
        ));
    }
    kinds(counts, sampled, &mut notes);
    if counts.accesses > 0 {
        let events = (0..).zip(&facts.attrs);
        notes.extend(events.filter_map(|(index, attr)| filter_note(attr, index, &facts.features)));
    }
    levels(counts, &mut notes);
    lacking(facts, counts, &mut notes);
    losses(counts, &mut notes);
    if let Some(bad) = first_bad {
        let records = units::counted(counts.undecodable, "record", "records");
        notes.push(format!("skipped {records} that could not be decoded, the first in {bad}"));
    }
    let path = walker.path().display();
    let damage = walker.damage();
    if let Some(at) = damage.first_at {
        let Damage { places, bytes, records, .. } = damage;
        notes.push(format!(
            "{path}: damaged in {places} {}, the first at byte {at}: {bytes} bytes were skipped, in them {records} whole records and an unknown number of \
             others; what comes before and after was imported. Record again, or copy the file again if it came from another machine",
            if places == 1 { "place" } else { "places" }
        ));
    }
    if walker.was_killed() {
        notes.push(format!(
            "{path}: perf was killed before it could complete the file; what it had written was imported"
        ));
    }
    if let Some(at) = walker.torn_at() {
        notes.push(format!(
            "{path}: the file ends in the middle of a record at byte {at}; what comes before was imported"
        ));
    }
    notes.extend(walker.problems().iter().map(|problem| format!("{path}: {problem}; it was skipped")));
    notes
}

/// What the recording's samples are evidence of, for `meta.json`: `accesses`, `page-faults`, or `none` of memory accesses.
pub(super) fn evidence(counts: &Counts, sampled: &[SampledEvent]) -> &'static str {
    let has = |kind| sampled.iter().any(|event| event.kind == kind);
    // (Samples of AUX traces belong to no event's own.)
    let all_events: u64 = sampled.iter().map(|event| event.samples).sum();
    match () {
        () if has(EventKind::Accesses) || counts.samples > all_events => "accesses",
        () if has(EventKind::PageFaults) => "page-faults",
        () => "none",
    }
}

/// Notes on what the samples are.
fn kinds(counts: &Counts, sampled: &[SampledEvent], notes: &mut Vec<String>) {
    if counts.samples == 0 {
        notes.push("the recording holds no samples".to_owned());
        return;
    }
    let others = sampled.iter().filter(|event| event.kind == EventKind::Other);
    let others: Vec<String> = others
        .map(|event| format!("{} samples of `{}` for {} {}", event.samples, event.event, event.period, event.unit))
        .collect();
    if !others.is_empty() {
        notes.push(format!(
            "sampled: {}. These events do not sample memory accesses, so these samples hold none; record with `perf mem record`, `-e ibs_op/cnt_ctl=1/` \
             or `-e arm_spe//`",
            others.join(", ")
        ));
    }
    notes.extend(counts.cycles_note());
    notes.extend(counts.retired_note());
    if counts.faults > 0 {
        notes.push(format!(
            "{} of {} samples are page faults: they show which thread touched each page first, not which threads use it; their number is not a number of \
             memory accesses. perf does not record how large the page is that a fault maps: each counts as one page of 4 KiB, also where it mapped a huge page",
            counts.faults, counts.samples
        ));
    }
    if counts.without_address > 0 {
        notes.push(format!(
            "{} of {} samples have no data address; record with `perf mem record`, or `-d` and an event that has addresses",
            counts.without_address, counts.samples
        ));
    }
    if counts.kernel_addresses > 0 {
        notes.push(format!("{} samples access kernel memory and are left out", counts.kernel_addresses));
    }
    notes.extend(counts.guests_note());
    notes.extend(counts.beyond_note());
    notes.extend(counts.weight_note());
    if counts.device > 0 {
        notes.push(format!(
            "{} samples are accesses to device registers, not to memory, and are left out",
            counts.device
        ));
    }
    if counts.without_thread > 0 {
        notes.push(format!(
            "{} samples have no thread id, or none that names a thread (it had ended, or was of another PID namespace than perf), and are left out",
            counts.without_thread
        ));
    }
}

/// Notes on which cache or memory answered the accesses.
fn levels(counts: &Counts, notes: &mut Vec<String>) {
    let Counts { accesses, core_cached, shared_cached, transfers, .. } = *counts;
    let hits = core_cached + shared_cached;
    if hits > 0 {
        let which = match (core_cached, shared_cached) {
            (core, 0) => format!("{core} by the core's own (L1, line fill buffer, L2)"),
            (0, shared) => format!("{shared} by the shared one (L3)"),
            (core, shared) => {
                format!("{core} by the core's own (L1, line fill buffer, L2), {shared} by the shared one (L3)")
            }
        };
        notes.push(format!(
            "caches of the accessing node answered {hits} of {accesses} sampled accesses, {which}; they are in the trace, but do not count as memory accesses"
        ));
    }
    if transfers > 0 {
        let unknown = transfers - counts.transfers_own_node - counts.transfers_other_node;
        let from = [
            (counts.transfers_own_node, "on the same node"),
            (counts.transfers_other_node, "on another node"),
            (unknown, "on an unknown node"),
        ];
        let from: Vec<String> =
            from.iter().filter(|(count, _)| *count > 0).map(|(count, place)| format!("{count} {place}")).collect();
        notes.push(format!(
            "another core's cache answered {transfers} of {accesses} sampled accesses (cache-to-cache transfers, HITM among them): {}; they count as \
             memory accesses",
            from.join(", ")
        ));
    }
    if counts.level_unknown > 0 {
        notes.push(format!(
            "{} of {accesses} sampled accesses do not say which cache or memory answered; they count as memory accesses",
            counts.level_unknown
        ));
    }
}

/// Notes on what the recording lacks.
fn lacking(facts: &Facts, counts: &Counts, notes: &mut Vec<String>) {
    if counts.accesses == 0 {
        return;
    }
    let all_sample = |bit: u64| facts.attrs.iter().any(|attr| attr.samples(bit));
    if !all_sample(sample::TIME) {
        notes.push("no times were recorded: accesses are in the order of the file".to_owned());
    }
    if counts.with_cpu == 0 {
        notes.push(
            "no CPUs were recorded, so the accessing nodes are unknown; record with `--sample-cpu` or `-a`".to_owned(),
        );
    } else if counts.cpu_by_id > 0 {
        notes.push(format!(
            "the samples have no CPU, so the CPUs of {} accesses were derived from the order of the event's ids",
            counts.cpu_by_id
        ));
    }
    if facts.features.nodes.is_empty() {
        notes.push("the recording does not describe the machine's nodes".to_owned());
    }
    let unknown = counts.accesses - counts.with_home;
    if unknown > 0 {
        notes.push(format!(
            "home nodes of {unknown} of {} accesses are unknown; record with `--phys-data` (as root) to learn them",
            counts.accesses
        ));
    }
    if counts.home_by_first_touch > 0 {
        notes.push(format!(
            "home nodes of {} accesses are those of the page's first touch, which holds under the default policy and without migration",
            counts.home_by_first_touch
        ));
    }
    if counts.with_latency > 0 && counts.with_latency < counts.accesses {
        notes.push(format!("latencies were measured for {} of {} accesses", counts.with_latency, counts.accesses));
    } else if counts.with_latency > 0 && facts.emulated_pmu().is_none() {
        notes.push("latencies were measured by the hardware, in core cycles".to_owned());
    }
}

/// A note on accesses of AUX traces whose times are not known.
pub(super) fn untimed(accesses: u64) -> Option<String> {
    (accesses > 0).then(|| {
        format!(
            "the recording does not say which times the ticks of {} in AUX traces are (a clock of its own, `perf record -k`, or an old perf or kernel): \
             they have the times at which perf wrote the traces",
            units::counted(accesses, "access", "accesses")
        )
    })
}

/// Notes on records that perf or the kernel lost.
fn losses(counts: &Counts, notes: &mut Vec<String>) {
    if counts.lost > 0 {
        notes.push(format!(
            "perf lost {} because it could not keep up; record with a larger `-m`, or a longer period",
            units::counted(counts.lost, "record", "records")
        ));
    }
    notes.extend(counts.filtered_note());
    notes.extend(counts.throttling_note());
    notes.extend(counts.stacks_note());
    if counts.aux_flagged > 0 {
        notes.push(format!(
            "{} AUX buffers were truncated, overwritten or had collisions: samples are missing there",
            counts.aux_flagged
        ));
    }
    if counts.aux_bytes_unread > 0 {
        notes.push(format!(
            "{} bytes of AUX traces have a format that numapilot does not read, and were skipped",
            counts.aux_bytes_unread
        ));
    }
}
