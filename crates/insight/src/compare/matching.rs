//! Matches the objects of two recordings: by allocation site, then by size.
//!
//! An edit moves lines, a fix replaces the allocating function: so equality is tried first, and then ever looser keys among what is
//! left. Within one key the sizes of an instance decide, and no match is made between sizes that differ more than eightfold.

use std::collections::HashMap;

use serde::Serialize;

use super::run::ObjectSummary;

/// Largest ratio of the sizes of one object's instances between runs, whose inputs may differ.
const GREATEST_SIZE_RATIO: f64 = 8.0;

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
        let mut candidates: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, object) in after.iter().enumerate().filter(|(index, _)| free_after[*index]) {
            candidates.entry(key(object, kind)).or_default().push(index);
        }
        for (index, object) in before.iter().enumerate() {
            if !free_before[index] {
                continue;
            }
            let Some(found) = candidates.get_mut(&key(object, kind)) else { continue };
            let nearest = (0..found.len())
                .map(|at| (at, size_ratio(object, &after[found[at]])))
                .filter(|(_, ratio)| *ratio <= GREATEST_SIZE_RATIO)
                .min_by(|a, b| a.1.total_cmp(&b.1));
            let Some((at, _)) = nearest else { continue };
            let partner = found.swap_remove(at);
            free_before[index] = false;
            free_after[partner] = false;
            pairs.push(Matched { kind, before: Some(index), after: Some(partner) });
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

fn key(object: &ObjectSummary, kind: MatchKind) -> String {
    let file = object.place.rsplit_once(':').map_or(object.place.as_str(), |(file, _)| file);
    match kind {
        MatchKind::Same => format!("{:?}\0{}\0{}\0{}", object.kind, object.name, object.function, object.place),
        MatchKind::Moved => format!("{:?}\0{}\0{}\0{file}", object.kind, object.name, object.function),
        _ => format!("{:?}\0{}", object.kind, object.name),
    }
}

/// How many times larger one instance is than the other; at least 1.
fn size_ratio(a: &ObjectSummary, b: &ObjectSummary) -> f64 {
    let size = |object: &ObjectSummary| (object.bytes as f64 / object.instances.max(1) as f64).max(1.0);
    let ratio = size(a) / size(b);
    ratio.max(1.0 / ratio)
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
