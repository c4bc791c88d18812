//! Records to bytes and back, in pieces, with damage.

use crate::common::{event, record, records, thread_ring};
use numapilot_random::Xorshift;
use numapilot_trace::ids::ThreadIndex;
use numapilot_trace::record::{Event, Record};
use numapilot_trace::wire::{Clock, Encoder, RingState, WireFault, decode, record_head, scan};
use proptest::prelude::*;

const OPTERON: Clock = Clock { khz: 2_400_000, origin_cycles: 12_345 };

/// The bytes of each record (with its time record, if it has one).
fn encode_each(clock: Clock, records: &[Record]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new(clock);
    let one = |record| {
        let mut bytes = Vec::new();
        encoder.encode(record, &mut bytes);
        bytes
    };
    records.iter().map(one).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_record_survives_any_split(records in records(1..40), cuts in proptest::collection::vec(any::<bool>(), 40), pad in 1..9usize) {
        let pieces = encode_each(OPTERON, &records);
        let mut state = RingState::new(OPTERON);
        let mut scanned = RingState::new(OPTERON);
        let mut decoded = Vec::new();
        let mut piece = Vec::new();
        for (index, bytes) in pieces.iter().enumerate() {
            piece.extend_from_slice(bytes);
            if cuts[index] || index + 1 == pieces.len() {
                Encoder::pad(pad * 8, &mut piece);
                for result in decode(&piece, &mut state) {
                    decoded.push(result.unwrap());
                }
                scan(&piece, &mut scanned).unwrap();
                prop_assert_eq!(state, scanned);
                piece.clear();
            }
        }
        prop_assert_eq!(decoded, records);
    }

    #[test]
    fn any_bytes_give_records_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600), known in any::<bool>()) {
        let mut state = RingState::new(OPTERON);
        state.bases_known = known;
        let length = bytes.len() as u64;
        let results: Vec<_> = decode(&bytes, &mut state).collect();
        let errors = results.iter().filter(|result| result.is_err()).count();
        prop_assert!(errors <= 1);
        prop_assert_eq!(state.offset, length);
        prop_assert!(results.len() <= bytes.len() / 8 + 1);
    }

    #[test]
    fn heads_lead_from_record_to_record(records in records(1..40)) {
        let bytes = encode_each(OPTERON, &records).concat();
        let mut at = 0;
        while let Some(head) = record_head(&bytes[at..]) {
            let mut state = RingState::new(OPTERON);
            prop_assert!(scan(&bytes[at..at + head.bytes], &mut state).is_ok(), "one record by itself");
            prop_assert!(record_head(&bytes[at..at + head.bytes - 1]).is_none(), "a record that is cut off");
            at += head.bytes;
        }
        prop_assert_eq!(at, bytes.len());
    }

    #[test]
    fn a_changed_byte_never_panics(records in records(1..12), at in any::<prop::sample::Index>(), change in 1..=255u8) {
        let mut bytes = encode_each(OPTERON, &records).concat();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        let mut state = RingState::new(OPTERON);
        let decoded = decode(&bytes, &mut state).count();
        prop_assert!(decoded <= bytes.len() / 8);
    }

    #[test]
    fn times_survive_the_clock(time in 0..1u64 << 50, khz in 1_000_000..5_000_000u32) {
        let clock = Clock { khz, origin_cycles: 99 };
        let time = numapilot_trace::ids::TimeNs(time);
        prop_assert_eq!(clock.time(clock.cycles(time)), time);
    }

    #[test]
    fn an_event_alone_keeps_its_type(event in event()) {
        let record = record(5, 6, u32::MAX, event);
        let bytes = encode_each(Clock::NANOSECONDS, std::slice::from_ref(&record)).concat();
        let mut state = RingState::new(Clock::NANOSECONDS);
        let mut expected = record;
        if let Event::ThreadStart { index, .. } = &expected.event {
            expected.thread = *index;
        }
        let decoded: Vec<_> = decode(&bytes, &mut state).map(Result::unwrap).collect();
        prop_assert_eq!(decoded, vec![expected]);
    }
}

#[test]
fn cut_at_every_byte_gives_the_whole_records_before_it() {
    let records = thread_ring(3, 60, &mut Xorshift::new(7));
    let pieces = encode_each(OPTERON, &records);
    let bytes = pieces.concat();
    let mut ends: Vec<usize> = Vec::new();
    for piece in &pieces {
        ends.push(ends.last().unwrap_or(&0) + piece.len());
    }
    for cut in 0..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let mut state = RingState::new(OPTERON);
        let results: Vec<_> = decode(&bytes[..cut], &mut state).collect();
        let sound: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).cloned().collect();
        assert_eq!(sound, records[..whole], "cut at {cut}");
    }
}

#[test]
fn after_an_error_records_wait_for_the_next_time_record() {
    let records = thread_ring(1, 10, &mut Xorshift::new(1));
    let pieces = encode_each(OPTERON, &records);
    let mut state = RingState::new(OPTERON);
    let mut bad = pieces[0].clone();
    bad.extend_from_slice(&[0xff; 8]);
    let results: Vec<_> = decode(&bad, &mut state).collect();
    assert_eq!(results.len(), 2);
    let error = results[1].as_ref().unwrap_err();
    assert_eq!((error.offset, error.fault), (pieces[0].len() as u64, WireFault::UnknownType(0xff)));
    assert_eq!(error.to_string(), "bad record at byte 104 of the ring: unknown record type 255");
    assert_eq!(decode(&pieces[1], &mut state).count(), 0);
    assert_eq!(state.skipped, 1);
    // A fresh encoder begins with a time record, as the runtime does where deltas do not fit.
    let again = encode_each(OPTERON, &records[2..3]).concat();
    let results: Vec<_> = decode(&again, &mut state).collect();
    assert_eq!(results, vec![Ok(records[2].clone())]);
    assert_eq!(results[0].as_ref().unwrap().thread, ThreadIndex(1));
}
