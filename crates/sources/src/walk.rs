//! Counts the records of a drained piece, and finds where they become invalid, by following their lengths.
//!
//! Only lengths and types are looked at (a few nanoseconds per record); `numapilot_trace::wire` decodes.

use numapilot_trace::wire::layout as wire;
use numapilot_trace::wire::record_head;

/// Contents of a piece of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Whole records, padding not counted.
    pub records: u64,
    /// Number of these records that are sampled accesses.
    pub samples: u64,
    /// Bytes up to the first thing that is no record.
    pub good_bytes: usize,
    /// The thread that says that it starts here.
    pub thread: Option<u32>,
    /// Whether a thread's end is here.
    pub is_ended: bool,
}

/// Counts the records of `piece`.
pub(crate) fn walk(piece: &[u8]) -> Walked {
    let mut walked = Walked::default();
    while let Some(head) = record_head(&piece[walked.good_bytes..]) {
        walked.records += u64::from(head.kind != wire::REC_PAD);
        walked.samples += u64::from(head.kind == wire::REC_ACCESS);
        match head.kind {
            wire::REC_THREAD_START => walked.thread = u32::try_from(head.value).ok(),
            wire::REC_THREAD_END => walked.is_ended = true,
            _ => {}
        }
        walked.good_bytes += head.bytes;
    }
    walked
}

#[cfg(test)]
mod tests {
    //! Pieces as the runtime writes them, and as a stray write leaves them.

    use proptest::prelude::*;

    use super::*;

    fn record(kind: u32, words: u64, value: u64) -> Vec<u8> {
        let mut bytes = (u64::from(kind) | words << 8 | value << 16).to_le_bytes().to_vec();
        bytes.resize(usize::try_from(words).unwrap() * 8, 0);
        bytes
    }

    #[test]
    fn records_are_counted_and_padding_is_not() {
        let mut piece = record(wire::REC_TIME, 4, 0);
        piece.extend(record(wire::REC_ACCESS, 5, 0x1000));
        piece.extend(record(wire::REC_FREE, 2, 0x2000));
        piece.extend(record(wire::REC_PAD, 1, 24));
        piece.extend([0_u8; 16]);
        piece.extend(record(wire::REC_ACCESS, 5, 0x3000));
        let whole = Walked { records: 4, samples: 2, good_bytes: piece.len(), ..Walked::default() };
        assert_eq!(walk(&piece), whole);
        piece.extend(record(77, 3, 0));
        assert_eq!(walk(&piece), whole, "unknown type ends the walk");
    }

    /// Make sure that a type which is added is known here: everything behind a record of an unknown one would be thrown away.
    #[test]
    fn every_type_of_record_is_known() {
        let types = wire::CONSTANTS.iter().filter(|(name, _)| name.starts_with("NP_REC_") && *name != "NP_REC_PAD");
        let mut last = 0;
        for (name, kind) in types {
            let piece = record(*kind as u32, 12, 0);
            assert_eq!(walk(&piece).good_bytes, piece.len(), "{name}");
            last = last.max(*kind);
        }
        assert_eq!(last, u64::from(wire::REC_LAST));
    }

    #[test]
    fn a_threads_start_and_end_are_noticed() {
        let mut piece = record(wire::REC_THREAD_START, 9, 41);
        assert_eq!((walk(&piece).thread, walk(&piece).is_ended), (Some(41), false));
        piece = record(wire::REC_FREE, 2, 7);
        piece.extend(record(wire::REC_THREAD_END, 2, 41));
        assert_eq!((walk(&piece).thread, walk(&piece).is_ended), (None, true));
    }

    #[test]
    fn long_records_are_measured_by_their_counts() {
        let mut piece = (u64::from(wire::REC_PROCESS_START)).to_le_bytes().to_vec();
        piece.extend(0_u64.to_le_bytes());
        piece.extend(0_u64.to_le_bytes());
        piece.extend((5_u64 | 4_001 << 32).to_le_bytes());
        piece.resize(40 + 8 + 4_008, 0);
        assert_eq!(walk(&piece), Walked { records: 1, good_bytes: 4_056, ..Walked::default() });
        piece.pop();
        assert_eq!(walk(&piece).good_bytes, 0, "cut off");
        let mut pool = (u64::from(wire::REC_POOL) | 5 << 16).to_le_bytes().to_vec();
        pool.extend(0_u64.to_le_bytes());
        pool.extend(3_001_u64.to_le_bytes());
        pool.resize(24 + 3_008, 0);
        assert_eq!(walk(&pool), Walked { records: 1, good_bytes: 3_032, ..Walked::default() });
        let mut counters = (u64::from(wire::REC_COUNTERS)).to_le_bytes().to_vec();
        counters.resize(72, 0);
        counters.extend(300_u64.to_le_bytes());
        counters.resize(80 + 300 * 8, 0);
        assert_eq!(walk(&counters), Walked { records: 1, good_bytes: 2_480, ..Walked::default() });
    }

    proptest! {
        #[test]
        fn any_bytes_are_walked_within_their_bounds(piece in prop::collection::vec(any::<u8>(), 0..4096)) {
            prop_assert!(walk(&piece).good_bytes <= piece.len());
        }
    }
}
