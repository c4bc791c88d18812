//! Names that do not fit: those of one column stay apart.
//!
//! The middle of a name goes first, since both ends tell most. Where that makes two different names look the same, what stays is the part in which they
//! differ; where not even that has room, a number stands in for the rest.

use std::collections::{BTreeMap, BTreeSet};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::style::shorten;

/// Each text in at most `width` columns, so that different texts stay different (if `width` has room for a number that tells them apart).
#[must_use]
pub fn elide_all(texts: &[&str], width: usize) -> Vec<String> {
    let distinct: BTreeSet<&str> = texts.iter().copied().collect();
    let mut shown: BTreeMap<&str, String> = distinct.iter().map(|&text| (text, shorten(text, width))).collect();
    for alike in look_alikes(&shown) {
        let common =
            alike.iter().skip(1).fold(alike[0].chars().count(), |common, text| common.min(prefix(alike[0], text)));
        for text in alike {
            // What fits whole stays as it is.
            if text.width() > width {
                shown.insert(text, around(text, common, width));
            }
        }
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let clashing: BTreeSet<&str> =
        look_alikes(&shown).into_iter().flatten().filter(|text| text.width() > width).collect();
    taken.extend(shown.iter().filter(|(text, _)| !clashing.contains(*text)).map(|(_, shown)| shown.clone()));
    let mut number = 0_usize;
    for text in clashing {
        let numbered = loop {
            number += 1;
            let mark = format!("…{number}");
            let candidate = format!("{}{mark}", head(text, width.saturating_sub(mark.width())));
            // A width without room for numbers cannot keep names apart.
            if candidate.width() > width || taken.insert(candidate.clone()) {
                break candidate;
            }
        };
        shown.insert(text, shorten(&numbered, width));
    }
    texts.iter().map(|text| shown.get(text).cloned().unwrap_or_default()).collect()
}

/// Groups of different texts that are shown alike.
fn look_alikes<'a>(shown: &BTreeMap<&'a str, String>) -> Vec<Vec<&'a str>> {
    let mut groups: BTreeMap<&str, Vec<&'a str>> = BTreeMap::new();
    for (text, shown) in shown {
        groups.entry(shown).or_default().push(text);
    }
    groups.into_values().filter(|group| group.len() > 1).collect()
}

/// Characters that two texts have in common at their beginning.
fn prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

/// The first characters of `text`, in at most `width` columns.
fn head(text: &str, width: usize) -> String {
    let mut used = 0;
    text.chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect()
}

/// A little of the beginning, then what follows the first `common` characters.
fn around(text: &str, common: usize, width: usize) -> String {
    let rest: String = text.chars().skip(common.saturating_sub(1)).collect();
    let start = head(text, width.saturating_sub(2) / 4);
    let room = width.saturating_sub(start.width() + 1);
    format!("{start}…{}", head(&rest, room))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_stays() {
        let names = [
            "std::vector<Point, A>::buffer_of_x_coordinates_main",
            "std::vector<Point, A>::buffer_of_y_coordinates_main",
        ];
        let shown = elide_all(&names, 16);
        assert_ne!(shown[0], shown[1], "{shown:?}");
        assert!(shown[0].contains("x_c") && shown[1].contains("y_c"), "{shown:?}");
        assert_eq!(elide_all(&["short", "a_rather_long_name"], 10), ["short", &shorten("a_rather_long_name", 10)]);
    }

    #[test]
    fn equal_names_stay_equal() {
        let shown = elide_all(&["a_rather_long_name"; 3], 9);
        assert_eq!(shown[0], shown[1]);
        assert_eq!(shown[1], shown[2]);
    }

    proptest! {
        #[test]
        fn different_names_stay_different_within_the_width(
            names in prop::collection::vec("[ab日]{0,14}(_common_middle_part_)?[ab]{0,14}", 1..40),
            width in 5..24usize,
        ) {
            let texts: Vec<&str> = names.iter().map(String::as_str).collect();
            let shown = elide_all(&texts, width);
            for (a, short_a) in texts.iter().zip(&shown) {
                prop_assert!(short_a.width() <= width, "{a} in {width}: {short_a}");
                for (b, short_b) in texts.iter().zip(&shown) {
                    prop_assert_eq!(a == b, short_a == short_b, "{} and {} in {}: {} and {}", a, b, width, short_a, short_b);
                }
            }
        }
    }
}
