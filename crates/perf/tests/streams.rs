//! Synthesised recordings of IBS, PEBS and SPE decode to what they were made of, and are those in `testdata/perf-streams`.

use std::io::Cursor;
use std::path::Path;

use numapilot_perf::abi::kind;
use numapilot_perf::data_src::{Level, Operation};
use numapilot_perf::file::Walker;
use numapilot_perf::ibs::OpRecord;
use numapilot_perf::spe::{Records, SourceTable};
use numapilot_perf::testing::DataFile;
use numapilot_perf::testing::streams::{Truth, faults, ibs, pebs, spe, truth};
use numapilot_perf::{Endian, MemoryAccess, Record, SideBand};

const COUNT: u64 = 560;

/// Accesses of a recording, sorted by time.
fn accesses(bytes: &[u8], is_pipe: bool) -> Vec<Truth> {
    let path = Path::new("synthetic.data");
    let mut walker = if is_pipe {
        Walker::open_stream(Cursor::new(bytes), path).unwrap()
    } else {
        Walker::open(Cursor::new(bytes), path).unwrap()
    };
    let mut out = Vec::new();
    while let Some(item) = walker.next().unwrap() {
        let (header, body, aux) = (item.header, item.body.to_vec(), item.aux.to_vec());
        let offset = item.offset;
        if header.kind == kind::AUXTRACE {
            let decoded = walker.session().decode(header, &body, offset).unwrap();
            let Record::SideBand(SideBand::Auxtrace { cpu, .. }, _) = decoded else { panic!("{decoded:?}") };
            let records = Records::new(&aux).map(|record| {
                let access = record.access(SourceTable::Common).unwrap();
                seen(&MemoryAccess { cpu: Some(cpu), time: record.timestamp.map(|tick| tick * 10), ..access })
            });
            out.extend(records);
            continue;
        }
        if let Record::Sample(event, sample) = walker.session().decode(header, &body, offset).unwrap() {
            let attr = &walker.session().events()[event];
            let access = match sample.raw {
                Some(raw) => MemoryAccess::of_ibs(attr, &sample, &OpRecord::decode(raw, 0).unwrap()),
                None => MemoryAccess::of_sample(attr, &sample),
            };
            let access = access.expect("an access");
            assert_eq!(access.period, Some(10_000));
            out.push(seen(&access));
        }
    }
    assert!(walker.torn_at().is_none() && walker.problems().is_empty(), "{:?}", walker.problems());
    out.sort_by_key(|access| access.time);
    out
}

fn seen(access: &MemoryAccess<'_>) -> Truth {
    Truth {
        time: access.time.unwrap(),
        tid: access.tid.unwrap().0,
        cpu: access.cpu.unwrap().0,
        address: access.address,
        physical: access.physical_address.unwrap(),
        ip: access.ip.unwrap(),
        is_write: access.operation == Operation::Store,
        level: access.level,
        is_remote: access.distance.is_other_node() == Some(true),
        latency: access.latency_cycles,
    }
}

/// What is left of the truth when memory only tells its distance, and stores no latency.
fn visible(truth: Truth) -> Truth {
    let latency = truth.latency.filter(|_| !truth.is_write);
    Truth { is_remote: truth.is_remote && truth.level == Level::Ram, latency, ..truth }
}

#[test]
fn ibs_registers_tell_every_access() {
    let want: Vec<Truth> = truth(COUNT).into_iter().map(visible).collect();
    assert_eq!(accesses(&ibs(COUNT).file(), false), want);
}

#[test]
fn pebs_words_tell_every_access_in_both_forms_and_byte_orders() {
    let want: Vec<Truth> = truth(COUNT).into_iter().map(visible).collect();
    for endian in [Endian::Little, Endian::Big] {
        let recording = pebs(COUNT, endian);
        assert_eq!(accesses(&recording.file(), false), want, "{endian:?}");
        assert_eq!(accesses(&recording.stream(), true), want, "{endian:?}");
    }
}

#[test]
fn spe_packets_tell_every_access() {
    // No core tells of line fills under way. The event of a remote access tells the distance of memory, which the source does not.
    let told = |truth: Truth| {
        let level = if truth.level == Level::LineFill { Level::Unknown } else { truth.level };
        Truth { level, is_remote: truth.is_remote && truth.level == Level::Ram, ..truth }
    };
    let want: Vec<Truth> = truth(COUNT).into_iter().map(told).collect();
    assert_eq!(accesses(&spe(COUNT).file(), false), want);
}

/// `testdata/perf-streams` was written by this test with NUMAPILOT_WRITE_GOLDEN=1.
#[test]
fn the_published_streams_are_what_the_generator_writes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/perf-streams");
    let streams: [(&str, DataFile); 5] = [
        ("page-faults.data", faults(COUNT)),
        ("ibs-zen4.data", ibs(COUNT)),
        ("pebs.data", pebs(COUNT, Endian::Little)),
        ("pebs-big-endian.data", pebs(COUNT, Endian::Big)),
        ("spe-neoverse-n1.data", spe(COUNT)),
    ];
    for (name, stream) in streams {
        let bytes = stream.file();
        if std::env::var_os("NUMAPILOT_WRITE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), &bytes).unwrap();
        }
        assert!(std::fs::read(folder.join(name)).unwrap() == bytes, "{name} differs from what the generator writes");
    }
}
