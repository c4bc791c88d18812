//! What a recording lacks, and what was made of it, in words for people.

use std::io::Read;

use numapilot_perf::abi::sample;
use numapilot_perf::file::Walker;
use serde_json::{Value, json};

use super::Counts;
use super::facts::Facts;

/// The counts, for `meta.json`.
pub(super) fn counts(counts: &Counts) -> Value {
    json!({
        "samples": counts.samples, "accesses": counts.accesses, "without_address": counts.without_address,
        "kernel_addresses": counts.kernel_addresses, "without_thread": counts.without_thread,
        "answered_by_caches": counts.cached, "with_latency": counts.with_latency, "with_home": counts.with_home,
        "home_by_first_touch": counts.home_by_first_touch, "page_faults": counts.faults, "with_cpu": counts.with_cpu,
        "cpu_by_event_id": counts.cpu_by_id, "undecodable_records": counts.undecodable, "lost_records": counts.lost,
        "throttled": counts.throttled, "aux_buffers_cut": counts.aux_flagged, "aux_bytes_unread": counts.aux_bytes_unread,
    })
}

/// Everything that a reader of the trace must know to read it right.
pub(super) fn notes<R: Read>(
    facts: &Facts,
    counts: &Counts,
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
    kinds(counts, &mut notes);
    lacking(facts, counts, &mut notes);
    losses(counts, &mut notes);
    if let Some(bad) = first_bad {
        notes.push(format!(
            "{} records could not be decoded and were passed over, the first in {bad}",
            counts.undecodable
        ));
    }
    let path = walker.path().display();
    if walker.was_killed() {
        notes.push(format!("{path}: perf was killed before it could complete the file; what it had written is here"));
    }
    if let Some(at) = walker.torn_at() {
        notes.push(format!("{path}: the file ends in the middle of a record at byte {at}; what comes before is here"));
    }
    notes.extend(walker.problems().iter().map(|problem| format!("{path}: {problem}; it was passed over")));
    notes
}

/// What the samples are.
fn kinds(counts: &Counts, notes: &mut Vec<String>) {
    if counts.samples == 0 {
        notes.push("the recording holds no samples".to_owned());
        return;
    }
    if counts.faults > 0 {
        notes.push(format!(
            "{} of {} samples are page faults: they show who touched each page first, not who uses it; their number is no number of memory accesses",
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
        notes.push(format!("{} samples touch memory of the kernel and are left out", counts.kernel_addresses));
    }
    if counts.without_thread > 0 {
        notes.push(format!("{} samples do not tell their thread and are left out", counts.without_thread));
    }
    if counts.cached > 0 {
        notes.push(format!(
            "{} of {} sampled accesses were answered by the core's own caches; they are in the trace and count for no memory access",
            counts.cached, counts.accesses
        ));
    }
}

/// What was not recorded.
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
            "no CPUs were recorded, so nobody knows from which node accesses came; record with `--sample-cpu` or `-a`"
                .to_owned(),
        );
    } else if counts.cpu_by_id > 0 {
        notes.push(format!(
            "CPUs of {} accesses follow from the order of the event's ids, not from the samples",
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

/// What got lost before the file.
fn losses(counts: &Counts, notes: &mut Vec<String>) {
    if counts.lost > 0 {
        notes.push(format!(
            "perf lost {} records because it could not keep up; record with a larger `-m`, or a longer period",
            counts.lost
        ));
    }
    if counts.throttled > 0 {
        notes.push(format!(
            "the kernel slowed sampling down {} times: shares over time are skewed there",
            counts.throttled
        ));
    }
    if counts.aux_flagged > 0 {
        notes.push(format!("{} AUX buffers were cut, overwritten or had collisions", counts.aux_flagged));
    }
    if counts.aux_bytes_unread > 0 {
        notes.push(format!("{} bytes of AUX traces are of no kind that is read here", counts.aux_bytes_unread));
    }
}
