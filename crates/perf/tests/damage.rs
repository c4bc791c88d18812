//! Damaged recordings: what comes before and behind the damage is read, what is lost is counted, whatever was hit. Recordings are synthesised
//! (`testing::streams`), so that every sample in them is known; the compressed one of perf is `testdata/perf/compressed.data`.

use std::collections::BTreeSet;
use std::io::{Cursor, Write};
use std::path::Path;

use numapilot_perf::abi::kind;
use numapilot_perf::file::{Damage, FileError, Walker};
use numapilot_perf::testing::streams::{faults, ibs, pebs};
use numapilot_perf::testing::{DataFile, record};
use numapilot_perf::{Endian, Record};

const COUNT: u64 = 200;
const PATH: &str = "damaged.data";

/// Addresses of the samples, and what was skipped.
fn walk(bytes: &[u8], is_pipe: bool) -> (Vec<u64>, Damage, Option<u64>) {
    let cursor = Cursor::new(bytes);
    let walker =
        if is_pipe { Walker::open_stream(cursor, Path::new(PATH)) } else { Walker::open(cursor, Path::new(PATH)) };
    let mut walker = walker.expect("a sound head");
    let mut addresses = Vec::new();
    while let Some(item) = walker.next().expect("damage is no error") {
        let (header, body, offset) = (item.header, item.body.to_vec(), item.offset);
        if header.kind == kind::SAMPLE
            && let Ok(Record::Sample(_, sample)) = walker.session().decode(header, &body, offset)
        {
            addresses.push(sample.addr.unwrap_or(0));
        }
    }
    (addresses, walker.damage(), walker.torn_at())
}

/// Where each record stands in the bytes of a recording, of which `head` bytes come before the records.
fn starts(recording: &DataFile, whole: &[u8]) -> Vec<(usize, usize)> {
    let records = recording.records.concat();
    let head = whole.windows(records.len()).position(|window| window == records).expect("the records");
    let place = |at: &mut usize, record: &Vec<u8>| {
        let start = *at;
        *at += record.len();
        Some((start, record.len()))
    };
    recording.records.iter().scan(head, place).collect()
}

#[test]
fn a_damaged_header_costs_its_own_stretch_and_nothing_else() {
    for (recording, name) in [(faults(COUNT), "faults"), (ibs(COUNT), "ibs"), (pebs(COUNT, Endian::Big), "pebs")] {
        for is_pipe in [false, true] {
            let whole = if is_pipe { recording.stream() } else { recording.file() };
            let (all, none, torn) = walk(&whole, is_pipe);
            assert_eq!((all.len() as u64, none, torn), (COUNT, Damage::default(), None), "{name}");
            for (number, &(at, size)) in starts(&recording, &whole).iter().enumerate().skip(4).step_by(17) {
                // A size below a header's; one that ends within the next record; one beyond every record; another type; everything gone.
                let size_at = if recording.endian == Endian::Big { [at + 6, at + 7] } else { [at + 7, at + 6] };
                let sized = |to: u16| vec![(size_at[0], (to >> 8) as u8), (size_at[1], to as u8)];
                let filled = |byte| (at..at + size).map(|place| (place, byte)).collect();
                let cases: [Vec<(usize, u8)>; 7] = [
                    sized(0),
                    sized(3),
                    sized(size as u16 + 4),
                    sized(0xfff8),
                    vec![(at + 1, 0xa5), (at + 2, 0x5a)],
                    filled(0),
                    filled(0xff),
                ];
                for (case, changes) in cases.iter().enumerate() {
                    let mut damaged = whole.clone();
                    changes.iter().for_each(|&(place, byte)| damaged[place] = byte);
                    let (found, damage, torn) = walk(&damaged, is_pipe);
                    let lost: Vec<&u64> = all.iter().filter(|address| !found.contains(address)).collect();
                    let context =
                        format!("{name}, pipe {is_pipe}, record {number}, case {case}: {damage:?}, lost {lost:x?}");
                    // (A record that swallowed half of the next one takes it along.)
                    assert!(lost.len() <= 2, "{context}");
                    assert!(found.iter().all(|address| all.contains(address)), "made up: {context}");
                    let is_last = number + 1 == recording.records.len();
                    assert!(damage.places == 1 || is_last && torn.is_some(), "{context}");
                    assert!(damage.bytes <= 2 * size as u64 + 8, "{context}");
                    let first = damage.first_at.unwrap_or(at as u64);
                    assert!(first >= at as u64 && first <= (at + 2 * size) as u64, "{context}");
                }
            }
        }
    }
}

#[test]
fn several_damaged_places_are_counted_each() {
    let recording = faults(COUNT);
    let mut whole = recording.file();
    let places = starts(&recording, &whole);
    for &number in &[20, 90, 150] {
        let (at, size) = places[number];
        whole[at..at + size].fill(0xff);
    }
    let (found, damage, torn) = walk(&whole, false);
    assert_eq!((found.len() as u64, damage.places, torn), (COUNT - 3, 3, None));
    assert_eq!(damage.bytes, [20, 90, 150].iter().map(|&number| places[number].1 as u64).sum::<u64>());
}

/// Damage of more bytes than are looked through at once.
#[test]
fn records_go_on_behind_a_long_stretch() {
    let recording = faults(COUNT);
    let (first, rest) = recording.records.split_at(100);
    let hole = vec![0x5a; (3 << 20) + 5];
    let records = [first, std::slice::from_ref(&hole), rest].concat();
    let broken = DataFile { records, ..recording };
    for (whole, is_pipe) in [(broken.file(), false), (broken.stream(), true)] {
        let (found, damage, torn) = walk(&whole, is_pipe);
        assert_eq!((found.len() as u64, torn), (COUNT, None));
        assert_eq!((damage.places, damage.bytes), (1, hole.len() as u64));
    }
}

/// Types that a newer kernel or perf may have are no damage, whatever their size.
#[test]
fn unknown_types_of_records_are_no_damage() {
    let recording = faults(COUNT);
    let mut records = recording.records.clone();
    records.insert(50, record(40, 0, &[1; 24], recording.endian));
    records.insert(90, record(101, 0, &[2; 33], recording.endian));
    records.push(record(41, 0, &[3; 8], recording.endian));
    // As many in a row as a machine has BPF programs: of types that are known by now, and of some that are not.
    for kind in [kind::BPF_METADATA, kind::SCHEDSTAT_CPU, kind::SCHEDSTAT_DOMAIN, 102, 103, 102, 103, 102] {
        records.insert(120, record(kind, 0, &[4; 40], recording.endian));
    }
    let newer = DataFile { records, ..recording };
    let (found, damage, torn) = walk(&newer.file(), false);
    assert_eq!((found.len() as u64, damage, torn), (COUNT, Damage::default(), None));
}

/// The records of `recording` as perf compresses them: frames of pieces.
fn compressed(recording: &DataFile, frames: &[std::ops::Range<usize>], per_piece: usize) -> DataFile {
    let mut records = recording.records[..frames[0].start].to_vec();
    for frame in frames {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("zstd");
        let mut taken = 0;
        for piece in recording.records[frame.clone()].chunks(per_piece) {
            encoder.write_all(&piece.concat()).expect("zstd");
            encoder.flush().expect("zstd");
            let bytes = &encoder.get_ref()[taken..];
            records.push(record(kind::COMPRESSED, 0, bytes, recording.endian));
            taken += bytes.len();
        }
    }
    DataFile { records, ..recording.clone() }
}

#[test]
fn damage_in_a_compressed_frame_costs_the_rest_of_that_frame() {
    let plain = faults(COUNT);
    let begin = plain.records.len() - COUNT as usize;
    let frames = [begin..begin + 100, begin + 100..begin + 200];
    let recording = compressed(&plain, &frames, 20);
    let whole = recording.file();
    let (all, none, _) = walk(&whole, false);
    assert_eq!((all.len() as u64, none), (COUNT, Damage::default()));
    let places = starts(&recording, &whole);
    // The third piece of the first frame: five of twenty samples each.
    let (at, size) = places[begin + 2];
    let mut seen = BTreeSet::new();
    for byte in (at + 8..at + size).step_by(3) {
        let mut damaged = whole.clone();
        damaged[byte] ^= 0xff;
        let (found, damage, torn) = walk(&damaged, false);
        assert_eq!(found[..40], all[..40], "byte {byte}");
        assert_eq!(torn, None);
        assert_eq!(found[found.len() - 100..], all[100..], "the second frame, byte {byte}");
        if damage.places > 0 {
            assert!(damage.records >= 2 && damage.bytes > 0, "{damage:?}");
            seen.insert(found.len());
        }
    }
    assert!(seen.contains(&140), "{seen:?}");
}

/// perf makes one frame of a whole recording: what stands before the damage is kept.
#[test]
fn a_compressed_recording_of_perf_keeps_what_comes_before_the_damage() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/perf/compressed.data");
    let whole = std::fs::read(path).expect("the recording");
    let (all, none, _) = walk(&whole, false);
    assert_eq!(none, Damage::default());
    let magic = whole.windows(4).position(|window| window == [0x28, 0xb5, 0x2f, 0xfd]).expect("a frame");
    let mut damaged = whole.clone();
    damaged[magic + 40..magic + 60].fill(0xff);
    let (found, damage, _) = walk(&damaged, false);
    assert!(damage.places == 1 && damage.bytes > 0 && damage.records > 0, "{damage:?}");
    assert!(found.len() < all.len() && found.iter().all(|address| all.contains(address)));
}

#[test]
fn what_is_no_recording_is_refused_in_words_of_its_own() {
    let refused = |bytes: &[u8]| match Walker::open(Cursor::new(bytes), Path::new(PATH)) {
        Ok(_) => panic!("{bytes:?} was taken"),
        Err(
            error @ (FileError::Empty(_)
            | FileError::Version1(_)
            | FileError::Packed { .. }
            | FileError::NotPerfData(_)),
        ) => {
            assert!(error.to_string().contains(PATH));
            error.to_string()
        }
        Err(error) => panic!("{error}"),
    };
    assert!(refused(b"").contains("is empty"));
    assert!(refused(b"PERFFILE\x68\0\0\0\0\0\0\0").contains("version 1"));
    assert!(refused(b"ELIFFREP\0\0\0\0\0\0\0\x68").contains("version 1"));
    assert!(refused(&[0x1f, 0x8b, 8, 0, 0]).contains("gunzip <"));
    assert!(refused(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).contains("unzstd <"));
    assert!(refused(b"\xfd7zXZ\0aaaaaaaaaaaaaa").contains("unxz <"));
    assert!(refused(b"BZh91AY&SYaaaaaaaaa").contains("bunzip2 <"));
    assert!(refused(b"PERFILE").contains("is not a perf.data file"));
}
