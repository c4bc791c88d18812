//! Imports of synthesised recordings, from the file to the trace: what was sampled, what answered, whose memory it is.

use std::fs;
use std::path::Path;
use std::process::Command;

use numapilot_flows::{Evidence, ObjectKind, Trace};
use numapilot_host::Pid;
use numapilot_perf::abi::{attr_flag, event_type, misc, sample, software};
use numapilot_perf::file::feature;
use numapilot_perf::testing::streams::{faults, ibs, pebs};
use numapilot_perf::testing::{DataFile, Out, SampleSpec, SideBandSpec, put_text, record};
use numapilot_perf::{Endian, EventAttr, SampleId};
use numapilot_trace::tables::{ModuleColumns, TraceReader};

use super::*;

const PID: u32 = 700;
const START: u64 = 5_000_000;
const CODE: u64 = 0x5555_5555_4000;
const LIBRARY: u64 = 0x7f12_0000_0000;

/// Imports a recording; what became of it, and the trace.
fn imported(recording: &DataFile) -> (Imported, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("perf.data");
    fs::write(&input, recording.file()).unwrap();
    imported_file(&input, folder.path())
}

fn imported_file(input: &Path, folder: &Path) -> (Imported, Trace) {
    let output = folder.join("t.numatrace");
    let options = ImportOptions {
        input: input.to_owned(),
        output: output.clone(),
        existing: Existing::Replace,
        machine: None,
        core_khz_max: None,
    };
    let mut importer = Importer::open(&options).unwrap();
    let folder = importer.folder().to_owned();
    numapilot_flows::finalise_stream(&folder, &mut importer).unwrap();
    (importer.finish().unwrap(), Trace::open(&output).unwrap())
}

/// An event whose samples have address, data source and period.
fn event(kind: u32, config: u64) -> EventAttr {
    let fields = sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::ADDR | sample::CPU;
    EventAttr {
        kind,
        config,
        period_or_freq: 1_000_000,
        sample_type: fields | sample::PERIOD | sample::DATA_SRC,
        flags: 1 << attr_flag::SAMPLE_ID_ALL,
        ..EventAttr::default()
    }
}

fn map(addr: u64, len: u64, file_offset: u64, protection: u32, path: &str) -> SideBandSpec {
    SideBandSpec::Mmap2 { pid: PID, tid: PID, addr, len, file_offset, build_id: None, protection, path: path.into() }
}

/// A recording of these events, each with its name, of a process with these mappings, and samples: event, address, data source.
fn recording(
    events: &[(EventAttr, &str)],
    maps: &[SideBandSpec],
    samples: &[(usize, u64, u64)],
    command: &str,
) -> DataFile {
    let endian = Endian::Little;
    let first = &events[0].0;
    let comm = SideBandSpec::Comm { pid: PID, tid: PID, name: "app".into(), by_exec: true };
    let side_band = std::iter::once(&comm).chain(maps).zip(START..).map(|(spec, time)| {
        let id = SampleId {
            pid_tid: Some((Pid(PID), Tid(PID))),
            time: Some(time),
            identifier: Some(1),
            ..SampleId::default()
        };
        spec.encode(first, &id, endian)
    });
    let mut records: Vec<Vec<u8>> = side_band.collect();
    records.extend(samples.iter().zip(1..).map(|(&(event, addr, data_src), number)| {
        let spec = SampleSpec {
            misc: misc::USER,
            id: event as u64 + 1,
            ip: CODE + 0x10,
            pid: PID,
            tid: PID,
            time: START + number * 1000,
            addr,
            period: 1_000_000,
            data_src,
            ..SampleSpec::default()
        };
        spec.encode(&events[event].0, endian)
    }));
    let section = |number, fill: &dyn Fn(&mut Out)| {
        let mut out = Out::new(endian);
        fill(&mut out);
        (number, out.bytes)
    };
    let features = vec![
        section(feature::CMDLINE, &|out| {
            let words: Vec<&str> = command.split(' ').collect();
            out.u32(words.len() as u32);
            words.iter().for_each(|word| put_text(out, word));
        }),
        section(feature::EVENT_DESC, &|out| {
            out.u32(events.len() as u32).u32(8);
            for (number, (_, name)) in (1..).zip(events) {
                out.u64(0).u32(1);
                put_text(out, name);
                out.u64(number);
            }
        }),
    ];
    let events = events.iter().zip(1..).map(|((attr, _), id)| (attr.clone(), vec![id])).collect();
    DataFile { endian, events, records, features }
}

const NOT_AVAILABLE: u64 = 1 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26 | 0xf << 33;
const LOAD: u64 = 2;

fn note<'a>(imported: &'a Imported, words: &str) -> &'a str {
    imported
        .notes
        .iter()
        .find(|note| note.contains(words))
        .unwrap_or_else(|| panic!("{words:?}: {:#?}", imported.notes))
}

/// Cycles that PEBS samples have the address of whatever instruction was there.
#[test]
fn sampled_cycles_are_no_memory_accesses_for_having_addresses() {
    let cycles = (event(event_type::HARDWARE, 0), "cycles:pp");
    let samples: Vec<_> = (0..409).map(|number| (0, 0x1000_0000 + number * 64, NOT_AVAILABLE)).collect();
    let (imported, trace) =
        imported(&recording(&[cycles], &[], &samples, "/usr/bin/perf record -e cycles:pp -d ./app 7"));
    assert_eq!((imported.counts.samples, imported.counts.other_events, imported.counts.accesses), (409, 409, 0));
    assert_eq!((trace.accesses().len(), trace.evidence()), (0, Evidence::Other));
    let said = note(&imported, "409 samples of `cycles:pp` for 409000000 cycles");
    assert!(said.contains("do not sample memory accesses"), "{said}");
    let meta = trace.meta();
    assert_eq!(meta.more["sampled_events"][0]["kind"], "other");
    assert_eq!(meta.more["sampled_events"][0]["unit"], "cycles");
    // Who ran is known all the same, and for how long.
    assert_eq!(meta.duration_ns, 409 * 1000);
    assert_eq!((trace.threads().len(), trace.processes().len()), (1, 1));
    assert_eq!(meta.command, ["./app", "7"]);
}

/// Each event's samples are what that event samples, in one recording.
#[test]
fn events_in_one_recording_are_told_apart() {
    let events = [
        (event(event_type::HARDWARE, 0), "cycles:P"),
        (event(4, 0x1cd), "cpu/mem-loads,ldlat=30/P"),
        (event(event_type::SOFTWARE, software::PAGE_FAULTS), "page-faults"),
        (event(4, 0x20d1), "r20d1:pp"),
    ];
    let heap = [map(0x1000_0000, 1 << 20, 0, 3, "[heap]")];
    let at = |number: u64| 0x1000_0000 + number * 4096;
    let samples = [
        (0, at(0), NOT_AVAILABLE),
        (2, at(1), NOT_AVAILABLE),
        (1, at(1), LOAD | 0xd << 33),
        (1, at(2), LOAD | 0xd << 33),
        // A raw event that the data source shows to be one of loads.
        (3, at(3), LOAD | 0xd << 33),
        (3, at(4), NOT_AVAILABLE),
    ];
    let (imported, trace) = imported(&recording(&events, &heap, &samples, "perf record -- ./app"));
    let kinds = |name: &str| {
        trace.meta().more["sampled_events"].as_array().unwrap().iter().find(|row| row["event"] == name).unwrap()["kind"]
            .clone()
    };
    assert_eq!(kinds("cycles:P"), "other");
    assert_eq!(kinds("cpu/mem-loads,ldlat=30/P"), "accesses");
    assert_eq!(kinds("page-faults"), "page-faults");
    assert_eq!(kinds("r20d1:pp"), "accesses");
    // Page faults beside accesses tell where pages are, and are no accesses.
    let addresses: Vec<u64> = trace.accesses().map(|access| access.address.0).collect();
    assert_eq!(addresses, [at(1), at(2), at(3)]);
    assert_eq!((imported.counts.other_events, imported.counts.faults), (2, 1));
    assert_eq!(trace.evidence(), Evidence::Accesses);
}

/// Clocks that tick in software have no addresses at all; that they were asked for (`-d`) makes no difference.
#[test]
fn clock_samples_stand_for_nanoseconds() {
    let clock = (event(event_type::SOFTWARE, software::CPU_CLOCK), "cpu-clock");
    let samples = [(0, 0, NOT_AVAILABLE), (0, 0, NOT_AVAILABLE)];
    let (imported, trace) = imported(&recording(&[clock], &[], &samples, "perf record -d ./app"));
    note(&imported, "2 samples of `cpu-clock` for 2000000 ns");
    assert_eq!(trace.evidence(), Evidence::Other);
}

/// `ibs_op` counts cycles unless told otherwise: a sample is of an access, and for how many it stands nobody knows.
#[test]
fn accesses_that_were_sampled_by_cycles_count_as_one_each() {
    let by_operations = ibs(100);
    let mut by_cycles = by_operations.clone();
    by_cycles.events[0].0.config = 0;
    let weights = |recording: &DataFile| {
        let (imported, trace) = imported(recording);
        let weights: Vec<u32> = trace.accesses().map(|access| access.weight).collect();
        assert_eq!(weights.len(), 100);
        (imported, weights)
    };
    assert!(weights(&by_operations).1.iter().all(|&weight| weight == 10_000));
    let (imported, by_cycles) = weights(&by_cycles);
    assert!(by_cycles.iter().all(|&weight| weight == 1));
    note(&imported, "100 samples of accesses were taken with a period in cycles");
}

#[test]
fn recordings_of_page_faults_are_evidence_of_first_touches() {
    let (_, trace) = imported(&faults(56));
    assert_eq!(trace.evidence(), Evidence::PageFaults);
    assert!(trace.holds_faults());
    assert_eq!(trace.placements().len(), 56);
}

/// A recording of `perf c2c`: lines that travel between caches, hits of the shared cache, of the core's own, and accesses to devices.
#[test]
fn cache_to_cache_transfers_are_told_from_hits() {
    let loads = (event(4, 0x1cd), "cpu/mem-loads,ldlat=30/P");
    let heap = [map(0x1000_0000, 1 << 20, 0, 3, "[heap]")];
    let word = |mask: u64, number: u64, remote: u64, snoop: u64, hops: u64| {
        LOAD | mask << 5 | snoop << 19 | number << 33 | remote << 37 | hops << 43
    };
    const HIT: u64 = 2;
    const HITM: u64 = 0x10;
    let words = [
        word(HIT | 0x40, 3, 0, HITM, 0),
        word(HIT | 0x40, 3, 0, HITM, 0),
        // Another node's, as Intel tells it, and by the older mask; and one of which the mask alone does not say how far away it is.
        word(HIT | 0x400, 3, 1, HITM, 0),
        word(HIT | 0x800, 0, 0, HITM, 0),
        word(HIT | 0x400, 0, 0, HITM, 0),
        word(HIT | 0x40, 3, 0, 4, 0),
        word(HIT | 8, 1, 0, 2, 0),
        word(HIT | 0x10, 0xc, 0, 0, 0),
        word(HIT | 0x80, 0xd, 0, 0, 0),
        word(HIT | 0x1000, 0xf, 0, 0, 0),
        word(1, 0xf, 0, 0, 0),
    ];
    let samples: Vec<_> = words.iter().map(|&word| (0, 0x1000_0000, word)).collect();
    let (imported, trace) = imported(&recording(&[loads], &heap, &samples, "perf c2c record ./app"));
    let counts = imported.counts;
    assert_eq!((counts.core_cached, counts.shared_cached, counts.device, counts.level_unknown), (2, 1, 1, 1));
    assert_eq!((counts.transfers, counts.transfers_own_node, counts.transfers_other_node), (5, 2, 2));
    let said = note(&imported, "answered 5 of 10 sampled accesses (cache-to-cache transfers");
    assert!(said.contains("2 on the same node, 2 on another node, 1 on an unknown node"), "{said}");
    note(
        &imported,
        "answered 3 of 10 sampled accesses, 2 by the core's own (L1, line fill buffer, L2), 1 by the shared one (L3)",
    );
    // Transfers, memory and what nobody told are memory accesses; hits are not.
    assert_eq!(trace.accesses().filter(|access| access.is_memory_access()).count(), 7);
    assert_eq!(trace.accesses().len(), 10);
}

/// What `perf mem record` asks of Intel's processors unless told otherwise.
#[test]
fn loads_that_were_too_fast_to_be_sampled_are_told() {
    let loads = EventAttr { config1: 30, ..event(4, 0x1cd) };
    let events = [(loads, "cpu/mem-loads,ldlat=30/P"), (event(4, 0x2cd), "cpu/mem-stores/P")];
    let (imported, _) =
        imported(&recording(&events, &[], &[(0, 0x1000_0000, LOAD | 0xd << 33)], "perf mem record ./app"));
    note(&imported, "`cpu/mem-loads,ldlat=30/P` samples only loads of 30 cycles or more");
}

/// A recording whose records are those of these rounds, each with its mark behind it, and these.
fn in_rounds(recording: DataFile, rounds: &[&[Vec<u8>]], last: Vec<Vec<u8>>) -> DataFile {
    let mark = record(kind::FINISHED_ROUND, 0, &[], recording.endian);
    let mut records: Vec<Vec<u8>> = Vec::new();
    for round in rounds {
        records.extend_from_slice(round);
        records.push(mark.clone());
    }
    records.extend(last);
    DataFile { records, ..recording }
}

/// `perf record --tail-synthesize`, and with it `--overwrite`, list the processes and their mappings behind all samples: these had no objects.
#[test]
fn what_is_listed_at_the_end_was_there_before() {
    let loads = (event(4, 0x1cd), "cpu/mem-loads,ldlat=30/P");
    let memory = map(0x1000_0000, 1 << 20, 0, 3, "//anon");
    let samples: Vec<_> = (0..30).map(|number| (0, 0x1000_0000 + number * 64, LOAD | 0xd << 33)).collect();
    let kinds = |recording: &DataFile| -> Vec<ObjectKind> {
        let (_, trace) = imported(recording);
        let kind = |access: numapilot_flows::AccessRef| {
            access.object.and_then(|object| trace.site_of(object)).map_or(ObjectKind::Unknown, |site| site.kind)
        };
        trace.accesses().map(kind).collect()
    };
    let events = [loads];
    let usual = kinds(&recording(&events, std::slice::from_ref(&memory), &samples, "perf record -a"));
    assert!(usual.len() == 30 && !usual.contains(&ObjectKind::Unknown), "{usual:?}");
    for option in ["--tail-synthesize", "--overwrite"] {
        let whole = recording(&events, &[], &samples, &format!("perf record {option} -a"));
        let pid_tid = Some((Pid(PID), Tid(PID)));
        let id = SampleId { pid_tid, time: Some(0), identifier: Some(1), ..SampleId::default() };
        let comm = SideBandSpec::Comm { pid: PID, tid: PID, name: "app".into(), by_exec: false };
        let list = [&comm, &memory].map(|spec| spec.encode(&events[0].0, &id, whole.endian));
        let sampled = whole.records[1..].to_vec();
        let rounds: Vec<&[Vec<u8>]> = sampled.chunks(10).collect();
        assert_eq!(kinds(&in_rounds(whole, &rounds, list.to_vec())), usual, "{option}");
    }
}

/// `perf record -o - | perf inject -b` tells a file's build id before the first sample in it: behind its mapping, and behind other samples of its process.
#[test]
fn a_build_id_that_comes_late_is_the_binarys() {
    const ID: [u8; 20] = [0xab; 20];
    let path = "/not/here/libwork.so";
    let loads = (event(4, 0x1cd), "cpu/mem-loads,ldlat=30/P");
    let maps = [map(0x1000_0000, 1 << 20, 0, 3, "[heap]"), map(LIBRARY, 0x1000, 0, 5, path)];
    let samples: Vec<_> = (0..50).map(|number| (0, 0x1000_0000 + number * 64, LOAD | 0xd << 33)).collect();
    let whole = recording(&[loads], &maps, &samples, "perf record -o -");
    let mut body = Out::new(whole.endian);
    body.u32(PID).raw(&ID).raw(&[0; 4]).text(path);
    let build_id = record(kind::HEADER_BUILD_ID, misc::USER, &body.bytes, whole.endian);
    let records = whole.records.clone();
    for at in [1, 3] {
        let mut rounds: Vec<Vec<Vec<u8>>> = records.chunks(10).map(<[Vec<u8>]>::to_vec).collect();
        rounds[at].insert(0, build_id.clone());
        let rounds: Vec<&[Vec<u8>]> = rounds.iter().map(Vec::as_slice).collect();
        let changed = in_rounds(DataFile { records: Vec::new(), ..whole.clone() }, &rounds, Vec::new());
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("perf.data");
        fs::write(&input, changed.file()).unwrap();
        let (imported, _) = imported_file(&input, folder.path());
        assert_eq!(imported.counts.samples, 50);
        let tables = TraceReader::open(&folder.path().join("t.numatrace")).unwrap();
        let modules = tables.read::<ModuleColumns>().unwrap();
        let told: Vec<String> =
            modules.rows().filter(|module| &*module.path == path).map(|module| module.build_id.to_string()).collect();
        assert_eq!(told.last(), Some(&"ab".repeat(20)), "before round {at}: {told:?}");
    }
}

/// The kinds and names of the objects at these addresses.
fn objects(maps: &[SideBandSpec], addresses: &[u64]) -> Vec<(ObjectKind, String)> {
    let loads = (event(4, 0x1cd), "cpu/mem-loads,ldlat=30/P");
    let samples: Vec<_> = addresses.iter().map(|&address| (0, address, LOAD | 0xd << 33)).collect();
    let (_, trace) = imported(&recording(&[loads], maps, &samples, "perf mem record ./app"));
    assert_eq!(trace.losses().inconsistent_records, 0);
    let object = |access: numapilot_flows::AccessRef| {
        let Some(site) = access.object.and_then(|object| trace.site_of(object)) else {
            return (ObjectKind::Unknown, String::new());
        };
        let name = format!("{} {}", site.place(), site.name.rsplit('/').next().unwrap_or_default());
        (site.kind, name.trim().to_owned())
    };
    trace.accesses().map(object).collect()
}

/// As the loader maps a library whose first segment has its code (`-z noseparate-code`): first all of it, executable, then its data and zeroed data over that.
#[test]
fn data_of_an_absent_binary_is_not_swallowed_by_its_executable_mapping() {
    let path = "/not/here/libwork.so";
    let maps = [
        map(CODE, 0x1000, 0, 5, "/not/here/app"),
        map(CODE + 0x1000, 0x1000, 0, 3, "/not/here/app"),
        map(CODE + 0x2000, 0x3000, 0, 3, "//anon"),
        map(LIBRARY, 0x10_0000, 0, 5, path),
        map(LIBRARY + 0x2000, 0x2000, 0x1000, 3, path),
        map(LIBRARY + 0x4000, 0xf_c000, 0, 3, "//anon"),
        map(LIBRARY + 0x2000, 0x1000, 0x1000, 1, path),
        // Later, unseen by perf, the library is unmapped, and its addresses become memory of the program's own.
        map(LIBRARY + 0x8_0000, 0x1_0000, 0, 3, "//anon"),
    ];
    let addresses = [
        LIBRARY + 0x100,
        LIBRARY + 0x3000,
        LIBRARY + 0x5000,
        LIBRARY + 0x2000,
        LIBRARY + 0x8_0000,
        CODE + 0x1800,
        CODE + 0x2800,
        CODE + 0x10,
    ];
    let found = objects(&maps, &addresses);
    let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
    let (code, data, zeroed) = ("libwork.so", "libwork.so [data]", "libwork.so [bss]");
    assert_eq!(names[..4], [code, data, zeroed, code]);
    assert_eq!(found[4].0, ObjectKind::Anonymous);
    assert_eq!(names[5..], ["app [data]", "app [bss]", "app"]);
}

/// A binary that is here covers its own zeroed data, and nothing else that is mapped without a file where it was.
#[test]
fn anonymous_memory_where_a_binary_was_is_not_part_of_it() {
    let program = std::env::current_exe().unwrap();
    let path = program.to_str().unwrap();
    let maps = [map(LIBRARY, 0x1000, 0, 5, path), map(LIBRARY, 0x1000, 0, 3, "//anon")];
    assert_eq!(objects(&maps, &[LIBRARY + 8])[0].0, ObjectKind::Anonymous);
}

/// perf lists the kernel's page of old system calls with every process.
#[test]
fn the_vsyscall_page_contradicts_nothing() {
    let maps = [map(0xffff_ffff_ff60_0000, 0x1000, 0, 4, "[vsyscall]"), map(0x1000_0000, 0x1000, 0, 3, "//anon")];
    assert_eq!(objects(&maps, &[0x1000_0000])[0].0, ObjectKind::Anonymous);
}

#[test]
fn damaged_recordings_give_what_is_left_and_count_what_is_not() {
    let recording = pebs(200, Endian::Little);
    let records = recording.records.concat();
    let mut whole = recording.file();
    let head = whole.windows(records.len()).position(|window| window == records).unwrap();
    let at = head + recording.records[..100].concat().len();
    whole[at..at + recording.records[100].len()].fill(0xff);
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("damaged.data");
    fs::write(&input, whole).unwrap();
    let (imported, trace) = imported_file(&input, folder.path());
    assert_eq!((imported.counts.accesses, imported.counts.damaged_places), (199, 1));
    assert_eq!(imported.counts.damaged_bytes, recording.records[100].len() as u64);
    assert_eq!(trace.losses().unread, 1);
    assert!(trace.losses().records_lost());
    note(&imported, &format!("damaged in 1 place, the first at byte {at}"));
}

/// A real link with its code in the first segment, recorded by perf where it works, and gone afterwards.
#[test]
fn a_removed_program_of_one_segment_keeps_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("touch.c");
    let text = "static char zeroed[1 << 20]; static char data[1 << 19] = {1};\n\
                int main(void) { for (int i = 0; i < 1 << 20; i += 4096) zeroed[i] = 1;\n\
                for (int i = 0; i < 1 << 19; i += 4096) data[i] = 2; return 0; }\n";
    fs::write(&source, text).unwrap();
    let program = folder.path().join("touch");
    let link = ["-O0", "-Wl,-z,noseparate-code", "-o"];
    let built = Command::new("cc").args(link).arg(&program).arg(&source).status();
    let input = folder.path().join("perf.data");
    let recorded = Command::new("perf")
        .args(["record", "-q", "-e", "page-faults:u", "-c", "1", "-d", "-o"])
        .arg(&input)
        .arg(&program)
        .output();
    let is_recorded =
        built.is_ok_and(|status| status.success()) && recorded.is_ok_and(|output| output.status.success());
    if !is_recorded {
        return numapilot_not_run::not_run!(PerfRecord, "there is no compiler, or no perf that may record page faults");
    }
    fs::remove_file(&program).unwrap();
    let (_, trace) = imported_file(&input, folder.path());
    let pages = |name: &str| {
        let is_it = |access: &numapilot_flows::AccessRef| {
            access
                .object
                .and_then(|object| trace.site_of(object))
                .is_some_and(|site| (&*site.place(), &*site.name) == ("touch", name))
        };
        trace.accesses().filter(is_it).count()
    };
    assert!(pages("[bss]") >= 250, "{}", pages("[bss]"));
    assert!(pages("[data]") >= 100, "{}", pages("[data]"));
    assert_eq!(trace.losses().accesses_without_object, 0);
    // They are the program's own pages, so their faults are first touches.
    assert!(trace.placements().len() >= 350, "{}", trace.placements().len());
    assert_eq!(trace.meta().command, [program.to_str().unwrap()]);
}
