//! `wire.h` and `wire::layout` must be the same: compiles the header with the C compiler and compares every size, offset and constant.

use std::fmt::Write as _;
use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;

use numapilot_trace::wire::layout::*;

/// Adds (C expression, Rust value) of each field's offset.
macro_rules! offsets {
    ($out:ident, $c:literal, $rust:ty, $base:expr, [$($field:ident),* $(,)?]) => {
        $($out.push((format!("offsetof(struct {}, {})", $c, stringify!($field)), ($base + offset_of!($rust, $field)) as u64));)*
    };
}

/// Every offset.
fn offsets() -> Vec<(String, u64)> {
    let mut out = Vec::new();
    of_config(&mut out);
    of_arena(&mut out);
    of_slot(&mut out);
    out
}

fn of_config(out: &mut Vec<(String, u64)>) {
    offsets!(
        out,
        "np_config",
        Config,
        0,
        [
            mode,
            bind,
            placement,
            node_count,
            cpu_count,
            clock_khz,
            seed,
            sample_period,
            sample_rate_hz,
            window_cycles,
            cycles_per_access_q8,
            l1_lines,
            l2_sets,
            l2_ways,
            l3_sets,
            l3_ways,
            l3_count,
            l2_cycles,
            l3_cycles,
            dir_entries_log2,
            max_stack_depth,
            line_sampling,
            memory_latency_cycles,
            node_has_memory,
            node_order,
            cpu_order,
            cpu_node,
            cpu_l3,
            node_distance,
            node_memory_bytes,
            machine_files,
        ]
    );
}

fn of_arena(out: &mut Vec<(String, u64)>) {
    offsets!(
        out,
        "np_arena",
        ArenaHeader,
        0,
        [
            magic,
            version,
            header_bytes,
            arena_bytes,
            slots_offset,
            slot_count,
            slot_bytes,
            filter_offset,
            filter_bytes,
            ring_offset,
            ring_bytes,
            l3_offset,
            dir_offset,
            sync_offset,
            start_order,
            start_ns,
            recorder_pid,
            emulated,
            order_source,
            pid_namespace,
            config,
            cpu_load,
        ]
    );
    offsets!(
        out,
        "np_arena",
        ArenaState,
        offset_of!(ArenaHeader, state),
        [state, drain_futex, fault_futex, fault_events]
    );
    offsets!(
        out,
        "np_arena",
        ArenaIds,
        offset_of!(ArenaHeader, ids),
        [next_stack_id, next_thread_index, next_process_index, next_module_id, next_code_id,]
    );
    of_arena_counts(out);
}

fn of_arena_counts(out: &mut Vec<(String, u64)>) {
    offsets!(out, "np_arena", ArenaEpoch, offset_of!(ArenaHeader, epoch), [epoch_futex, epoch_waiters, slots_high]);
    offsets!(
        out,
        "np_arena",
        ArenaLosses,
        offset_of!(ArenaHeader, losses),
        [lost_no_slot, lost_full, lost_stopped, failed_unwinds, lost_after_end, early_timeouts,]
    );
    offsets!(
        out,
        "np_arena",
        ArenaUnrecorded,
        offset_of!(ArenaHeader, unrecorded),
        [
            limited_processes,
            unrecorded_programs,
            unrecorded_named,
            unrecorded_name,
            java_machines,
            java_troubles,
            java_dropped,
            last_map_order,
        ]
    );
    offsets!(out, "np_arena", ArenaOrder, offset_of!(ArenaHeader, order), [order_sequence]);
}

fn of_slot(out: &mut Vec<(String, u64)>) {
    offsets!(
        out,
        "np_slot",
        SlotHot,
        offset_of!(Slot, hot),
        [
            accesses,
            stall_cycles,
            l1_mask,
            node,
            sample_left,
            sample_weight,
            cpu,
            thread_index,
            l3_index,
            in_hook,
            line_mask,
            line_pick,
        ]
    );
    offsets!(
        out,
        "np_slot",
        SlotProducer,
        offset_of!(Slot, producer),
        [head, tail_seen, last_order, last_clock, rng, next_throttle, hook_frame, hook_return,]
    );
    offsets!(out, "np_slot", SlotConsumer, offset_of!(Slot, consumer), [tail]);
    of_slot_rest(out);
}

fn of_slot_rest(out: &mut Vec<(String, u64)>) {
    offsets!(
        out,
        "np_slot",
        SlotIdentity,
        offset_of!(Slot, identity),
        [
            state,
            run_state,
            pid,
            tid,
            process_index,
            parent_thread,
            stack_lo,
            stack_hi,
            generation,
            pid_namespace,
            reserved,
        ]
    );
    offsets!(
        out,
        "np_slot",
        SlotCounts,
        offset_of!(Slot, counts),
        [
            l2_lookups,
            l3_lookups,
            memory_accesses,
            cache_transfers,
            memory_writes,
            next_counters,
            wait_cycles,
            memory_cycles,
            by_home,
            by_home_written,
            memory_streamed,
            ask_page,
            ask_state,
            answer_tid,
            answer_pages,
            ask_failures,
            memory_dependent,
            scratch,
        ]
    );
}

#[test]
fn rust_and_c_agree_on_every_size_offset_and_constant() {
    let mut expected = offsets();
    for (name, size) in
        [("np_config", size_of::<Config>()), ("np_arena", size_of::<ArenaHeader>()), ("np_slot", size_of::<Slot>())]
    {
        expected.push((format!("sizeof(struct {name})"), size as u64));
    }
    for (name, value) in [
        ("NP_ARENA_MAGIC", ARENA_MAGIC),
        ("NP_ARENA_VERSION", u64::from(ARENA_VERSION)),
        ("NP_MAX_NODES", MAX_NODES as u64),
        ("NP_MAX_CPUS", MAX_CPUS as u64),
        ("NP_PAGE_SHIFT", u64::from(PAGE_SHIFT)),
        ("NP_LINE_SHIFT", u64::from(LINE_SHIFT)),
        ("NP_NONE16", u64::from(NONE16)),
        ("NP_CODE_FRAME", CODE_FRAME),
        ("NP_JAVA_FRAME", JAVA_FRAME),
        ("NP_CODE_SHIFT", u64::from(CODE_SHIFT)),
        ("NP_CODE_JAVA", u64::from(CODE_JAVA)),
        ("NP_NONE32", u64::from(NONE32)),
    ] {
        expected.push((name.to_owned(), value));
    }
    expected.extend(CONSTANTS.iter().map(|(name, value)| ((*name).to_owned(), *value)));

    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/c/wire.h");
    let text = std::fs::read_to_string(&header).unwrap();
    assert_every_enumerator_is_compared(&text);

    let mut program = String::from("#include <stddef.h>\n#include <stdio.h>\n#include \"wire.h\"\nint main(void) {\n");
    for (expression, _) in &expected {
        writeln!(program, "    printf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    program.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("layout.c");
    let binary = folder.path().join("layout");
    std::fs::write(&source, program).unwrap();
    let include = format!("-I{}", header.parent().unwrap().display());
    let status = Command::new("cc").args(["-std=c11", &include, "-o"]).arg(&binary).arg(&source).status().unwrap();
    assert!(status.success(), "wire.h does not compile");
    let output = Command::new(&binary).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let actual: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(actual.len(), expected.len());
    for ((expression, rust), c) in expected.iter().zip(actual) {
        assert_eq!(*rust, c, "{expression}");
    }
}

/// An enumerator added to `wire.h` must be added to `layout::CONSTANTS` too.
fn assert_every_enumerator_is_compared(text: &str) {
    let mut inside = false;
    let mut missing = Vec::new();
    for line in text.lines() {
        let line = line.split("/*").next().unwrap_or("");
        inside |= line.trim_start().starts_with("enum np_") && line.contains('{');
        if inside {
            for part in line.split(['{', ',']) {
                let name = part.split('=').next().unwrap_or("").trim();
                if name.starts_with("NP_") && part.contains('=') && !CONSTANTS.iter().any(|(known, _)| *known == name) {
                    missing.push(name.to_owned());
                }
            }
            inside &= !line.contains('}');
        }
    }
    assert!(missing.is_empty(), "not in layout::CONSTANTS: {missing:?}");
}
