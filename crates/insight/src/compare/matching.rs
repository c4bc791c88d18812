//! Matches the objects of two recordings: by allocation site, then by size.
//!
//! An edit moves lines, a fix replaces the allocating function: so equality is tried first, and then ever looser keys among what is
//! left. Within one key the pair with the nearest sizes of an instance comes first, of equal ones that with the nearest lines; no match is made between
//! sizes that differ more than eightfold.

use std::cmp::Ordering;
use std::collections::HashMap;

use serde::Serialize;

use super::run::ObjectSummary;

/// Largest ratio of the sizes of one object's instances between runs, whose inputs may differ.
const GREATEST_SIZE_RATIO: f64 = 8.0;

/// Number of partners that each object is tried with in one round.
const NEAREST: usize = 32;

/// How two objects were matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatchKind {
    /// Same name, function, file and line.
    Same,
    /// Same name, function and file; the line moved.
    Moved,
    /// Same name and kind, allocated elsewhere.
    Renamed,
    /// The object exists only before.
    Gone,
    /// The object exists only after.
    New,
}

/// A pair, by positions in the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matched {
    /// How the two were matched.
    pub kind: MatchKind,
    /// Position in the list before; `None` if the object is new.
    pub before: Option<usize>,
    /// Position in the list after; `None` if the object is gone.
    pub after: Option<usize>,
}

/// Matches every object of both lists at most once.
#[must_use]
pub fn match_objects(before: &[ObjectSummary], after: &[ObjectSummary]) -> Vec<Matched> {
    let mut pairs = Vec::new();
    let mut free_before = vec![true; before.len()];
    let mut free_after = vec![true; after.len()];
    for kind in [MatchKind::Same, MatchKind::Moved, MatchKind::Renamed] {
        // Rounds, because each object is tried with its nearest few only.
        loop {
            let mut found = nearest_pairs(before, after, &free_before, &free_after, kind);
            found.sort_by(Pair::order);
            let matched = pairs.len();
            for Pair { before, after, .. } in found {
                if free_before[before] && free_after[after] {
                    (free_before[before], free_after[after]) = (false, false);
                    pairs.push(Matched { kind, before: Some(before), after: Some(after) });
                }
            }
            if pairs.len() == matched {
                break;
            }
        }
    }
    let alone = |free: &[bool]| -> Vec<usize> { (0..free.len()).filter(|&index| free[index]).collect() };
    pairs.extend(alone(&free_before).into_iter().map(|index| Matched {
        kind: MatchKind::Gone,
        before: Some(index),
        after: None,
    }));
    pairs.extend(alone(&free_after).into_iter().map(|index| Matched {
        kind: MatchKind::New,
        before: None,
        after: Some(index),
    }));
    pairs
}

/// Two objects that may be one, and how far apart they are.
struct Pair {
    ratio: f64,
    lines: u32,
    before: usize,
    after: usize,
}

impl Pair {
    /// The nearer sizes first, of equal ones the nearer lines, then the order of the lists.
    fn order(&self, other: &Pair) -> Ordering {
        let key = |pair: &Pair| (pair.lines, pair.before, pair.after);
        self.ratio.total_cmp(&other.ratio).then_with(|| key(self).cmp(&key(other)))
    }
}

/// What distances are of, once for each object: there are as many pairs as the product of two lists.
struct Spot {
    size: f64,
    line: u32,
}

impl Spot {
    fn of(object: &ObjectSummary) -> Spot {
        let size = (object.bytes as f64 / object.instances.max(1) as f64).max(1.0);
        Spot { size, line: line(object) }
    }

    /// How many times larger one instance is than the other; at least 1.
    fn ratio(&self, other: &Spot) -> f64 {
        let ratio = self.size / other.size;
        ratio.max(1.0 / ratio)
    }
}

/// For each free object before, the nearest free ones of its key after.
fn nearest_pairs(
    before: &[ObjectSummary],
    after: &[ObjectSummary],
    free_before: &[bool],
    free_after: &[bool],
    kind: MatchKind,
) -> Vec<Pair> {
    let mut candidates: HashMap<String, Vec<(usize, Spot)>> = HashMap::new();
    for (index, object) in after.iter().enumerate().filter(|(index, _)| free_after[*index]) {
        candidates.entry(key(object, kind)).or_default().push((index, Spot::of(object)));
    }
    let mut pairs = Vec::new();
    for (index, object) in before.iter().enumerate().filter(|(index, _)| free_before[*index]) {
        let Some(found) = candidates.get(&key(object, kind)) else { continue };
        let own = Spot::of(object);
        let pair = |(partner, spot): &(usize, Spot)| Pair {
            ratio: own.ratio(spot),
            lines: own.line.abs_diff(spot.line),
            before: index,
            after: *partner,
        };
        let mut near: Vec<Pair> = found.iter().map(pair).filter(|pair| pair.ratio <= GREATEST_SIZE_RATIO).collect();
        // Their order does not matter yet.
        if near.len() > NEAREST {
            near.select_nth_unstable_by(NEAREST, Pair::order);
            near.truncate(NEAREST);
        }
        pairs.extend(near);
    }
    pairs
}

/// The line of an object's place; 0 where it has none.
fn line(object: &ObjectSummary) -> u32 {
    object.place.rsplit_once(':').and_then(|(_, line)| line.parse().ok()).unwrap_or(0)
}

fn key(object: &ObjectSummary, kind: MatchKind) -> String {
    let file = object.place.rsplit_once(':').map_or(object.place.as_str(), |(file, _)| file);
    match kind {
        MatchKind::Same => format!("{:?}\0{}\0{}\0{}", object.kind, object.name, object.function, object.place),
        MatchKind::Moved => format!("{:?}\0{}\0{}\0{file}", object.kind, object.name, object.function),
        _ => format!("{:?}\0{}", object.kind, object.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numapilot_flows::ObjectKind;
    use proptest::prelude::*;

    fn object(name: &str, function: &str, place: &str, bytes: u64) -> ObjectSummary {
        ObjectSummary {
            kind: ObjectKind::Heap,
            name: name.to_owned(),
            function: function.to_owned(),
            place: place.to_owned(),
            file: String::new(),
            line: 0,
            instances: 1,
            bytes,
            peak_live_bytes: bytes,
            share: 0.1,
            remote: 0.5,
            known_homes: 1.0,
            busiest_node: 1.0,
            remote_of_all: Vec::new(),
            latency_cycles: None,
        }
    }

    #[test]
    fn equal_places_match_first_then_moved_lines_then_names() {
        let before = [
            object("block", "read", "a.cpp:10", 100),
            object("block", "copy", "a.cpp:20", 100),
            object("x", "f", "a.cpp:1", 8),
        ];
        let after = [
            object("block", "copy", "a.cpp:20", 100),
            object("block", "read", "a.cpp:11", 100),
            object("x", "g", "b.cpp:7", 8),
        ];
        let found = match_objects(&before, &after);
        let of =
            |index: usize| found.iter().find(|pair| pair.before == Some(index)).map(|pair| (pair.kind, pair.after));
        assert_eq!(of(0), Some((MatchKind::Moved, Some(1))));
        assert_eq!(of(1), Some((MatchKind::Same, Some(0))));
        assert_eq!(of(2), Some((MatchKind::Renamed, Some(2))));
    }

    #[test]
    fn sizes_choose_among_equals_and_keep_strangers_apart() {
        let before = [object("v", "f", "a.c:1", 1 << 20), object("v", "f", "a.c:1", 64)];
        let after = [object("v", "f", "a.c:1", 96), object("v", "f", "a.c:1", 2 << 20)];
        let found = match_objects(&before, &after);
        assert!(found.contains(&Matched { kind: MatchKind::Same, before: Some(0), after: Some(1) }));
        assert!(found.contains(&Matched { kind: MatchKind::Same, before: Some(1), after: Some(0) }));
        let apart = match_objects(&before[..1], &after[..1]);
        assert_eq!(apart.iter().map(|pair| pair.kind).collect::<Vec<_>>(), [MatchKind::Gone, MatchKind::New]);
    }

    #[test]
    fn the_nearest_pair_of_all_comes_first() {
        // Both buffers moved by two lines, and the fix changed which is accessed more: the lists are in the order of accesses.
        let before = [object("buf", "f", "a.c:10", 100), object("buf", "f", "a.c:20", 100)];
        let after = [object("buf", "f", "a.c:22", 100), object("buf", "f", "a.c:12", 100)];
        let found = match_objects(&before, &after);
        let pair = |before, after| Matched { kind: MatchKind::Moved, before: Some(before), after: Some(after) };
        assert!(found.contains(&pair(0, 1)) && found.contains(&pair(1, 0)), "{found:?}");
        // The first takes nothing that is nearer to the second.
        let before = [object("v", "f", "a.c:1", 200 << 10), object("v", "f", "a.c:2", 1 << 20)];
        let found = match_objects(&before, &[object("v", "f", "a.c:3", 900 << 10)]);
        assert!(found.contains(&pair(1, 0)), "{found:?}");
    }

    /// More of one name and size than are tried in one round: in the order of the lists, as few are.
    #[test]
    fn many_that_are_alike_match_in_order() {
        let many: Vec<ObjectSummary> = (0..100).map(|_| object("v", "f", "a.c:1", 64)).collect();
        let mut found = match_objects(&many, &many);
        found.sort_by_key(|pair| pair.before);
        let same = |index| Matched { kind: MatchKind::Same, before: Some(index), after: Some(index) };
        assert_eq!(found, (0..100).map(same).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn every_object_is_matched_exactly_once(
            before in prop::collection::vec((0u8..4, 0u8..3, 0u8..3, 1u64..1000), 0..20),
            after in prop::collection::vec((0u8..4, 0u8..3, 0u8..3, 1u64..1000), 0..20),
        ) {
            let make = |list: &[(u8, u8, u8, u64)]| -> Vec<ObjectSummary> {
                list.iter().map(|(name, function, line, bytes)| {
                    object(&name.to_string(), &function.to_string(), &format!("a.c:{line}"), *bytes)
                }).collect()
            };
            let (old, new) = (make(&before), make(&after));
            let found = match_objects(&old, &new);
            let mut olds: Vec<usize> = found.iter().filter_map(|pair| pair.before).collect();
            let mut news: Vec<usize> = found.iter().filter_map(|pair| pair.after).collect();
            olds.sort_unstable();
            news.sort_unstable();
            prop_assert_eq!(olds, (0..old.len()).collect::<Vec<_>>());
            prop_assert_eq!(news, (0..new.len()).collect::<Vec<_>>());
        }
    }
}
