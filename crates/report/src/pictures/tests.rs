//! Every view of small synthetic traces against its golden file, and of every strange trace for being well formed.

use numapilot_fixtures::Kind;
use numapilot_flows::Filter;
use numapilot_trace::ids::{ObjectId, TimeNs};

use super::{View, svg};
use crate::export::{Export, ExportError};
use crate::fixture::{of_faults, of_unknown_homes, open};

#[test]
fn every_view_looks_as_it_did() {
    let opened = open(Kind::Big, 6000, 120, 8);
    for view in View::ALL {
        let picture = opened.with(Filter::default(), |export| svg(view, export)).expect("a picture");
        insta::assert_snapshot!(view.word(), picture);
    }
}

#[test]
fn filters_are_told_and_kept_to() {
    let opened = open(Kind::Big, 6000, 120, 8);
    for view in [View::Timeline, View::Pages] {
        let filter = Filter { object: Some(ObjectId(20)), ..Filter::default() };
        let picture =
            opened.with(filter, |export| svg(view, &Export { scope: "object 20", ..*export })).expect("a picture");
        assert!(picture.contains("only object 20"), "{picture}");
        insta::assert_snapshot!(format!("{}_of_one_object", view.word()), picture);
    }
}

#[test]
fn a_remote_share_that_is_unknown_is_no_zero() {
    for view in [View::Traffic, View::Timeline] {
        let filter = Filter { object: Some(ObjectId(1)), ..Filter::default() };
        let picture = of_unknown_homes().with(filter, |export| svg(view, export)).expect("a picture");
        assert!(picture.contains("an unknown share of 40 "), "{}: {picture}", view.word());
    }
}

#[test]
fn where_most_homes_are_unknown_no_picture_shows_where_accesses_go_and_says_so() {
    for view in [View::Matrix, View::Imbalance] {
        let filter = Filter { object: Some(ObjectId(1)), ..Filter::default() };
        let picture = of_unknown_homes().with(filter, |export| svg(view, export)).expect("a picture");
        assert!(picture.contains(">the home node of most accesses is unknown</text>"), "{}: {picture}", view.word());
        assert!(picture.contains(">nothing to draw<"), "{}: {picture}", view.word());
    }
}

#[test]
fn slices_without_a_known_home_have_no_remote_share_and_lone_ones_are_seen() {
    let filter = Filter { object: Some(ObjectId(1)), ..Filter::default() };
    let picture = of_unknown_homes().with(filter, |export| svg(View::Timeline, export)).expect("a picture");
    let lines: Vec<&str> = picture.lines().filter(|line| line.starts_with("<polyline")).collect();
    // One access in ten has a known home: four, in slices that do not touch. Twelve slices have accesses.
    assert_eq!(lines.len(), 4, "{picture}");
    for line in lines {
        let places: Vec<&str> = line.split('"').nth(1).expect("points").split(' ').collect();
        assert!(places.len() == 2 && places[0] != places[1], "{line}");
    }
}

#[test]
fn a_bar_of_unknown_homes_is_neither_remote_nor_local() {
    let picture = of_unknown_homes().with(Filter::default(), |export| svg(View::Objects, export)).expect("a picture");
    assert!(picture.contains(">home mostly unknown<"), "{picture}");
    // The entry of the key, and the bar of one of the two objects.
    assert_eq!(picture.matches("fill=\"#c9ccd0\"").count(), 2, "{picture}");
    assert!(!picture.contains("in the proportion of"), "all homes of the other are known: {picture}");
}

/// The time may be any in Python: sums of it wrapped round.
#[test]
fn the_last_nanoseconds_of_all_time_are_drawn_empty() {
    let opened = open(Kind::Big, 6000, 120, 8);
    for time in [TimeNs(u64::MAX - 9)..TimeNs(u64::MAX), TimeNs(u64::MAX - 1)..TimeNs(u64::MAX)] {
        let filter = Filter { time: Some(time), ..Filter::default() };
        let picture = opened.with(filter, |export| svg(View::Timeline, export)).expect("a picture");
        assert!(picture.contains(">nothing to draw<"), "{picture}");
    }
}

#[test]
fn a_short_part_of_the_time_has_ticks() {
    let opened = open(Kind::Big, 6000, 120, 8);
    let time = TimeNs(40_000_000)..TimeNs(40_500_000);
    let filter = Filter { time: Some(time), ..Filter::default() };
    let picture = opened.with(filter, |export| svg(View::Timeline, export)).expect("a picture");
    for tick in ["40000", "40100", "40400"] {
        assert!(picture.contains(&format!(">{tick}</text>")), "{tick}: {picture}");
    }
}

#[test]
fn page_faults_are_called_by_their_name() {
    let faults = of_faults();
    for (view, title) in [
        (View::Matrix, "<title>Page faults from node to node: "),
        (View::Traffic, "<title>Page faults between the nodes of "),
        (View::Timeline, "<title>Page faults of "),
        (View::Objects, "<title>Objects by their page faults: "),
    ] {
        let picture = faults.with(Filter::default(), |export| svg(view, export)).expect("a picture");
        assert!(picture.contains(title) && !picture.contains("emory accesses"), "{}: {picture}", view.word());
    }
}

/// A check for XML that needs no parser: tags nest, and nothing that XML forbids is in the text.
fn assert_well_formed(picture: &str, what: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = picture;
    while let Some(at) = rest.find('<') {
        assert!(!rest[..at].contains('>'), "{what}: a bare >");
        let end = at + rest[at..].find('>').unwrap_or_else(|| panic!("{what}: a tag without end"));
        let tag = &rest[at + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap_or("");
        assert!(["svg", "title", "rect", "text", "line", "polygon", "polyline"].contains(&name), "{what}: <{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{what}");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && picture.ends_with("</svg>\n"), "{what}");
    assert!(!picture.chars().any(|c| (c.is_control() && c != '\n') || matches!(c, '\u{202a}'..='\u{202e}')), "{what}");
    assert!(!picture.contains("NaN") || picture.contains(">NaN"), "{what}: a number that is none");
    assert!(!picture.contains("inf\""), "{what}: a number that is none");
}

#[test]
fn strange_traces_make_sound_pictures() {
    for kind in Kind::ALL {
        let opened = open(kind, 1000, 2000, 1024);
        for view in View::ALL {
            let what = format!("{} {}", kind.word(), view.word());
            let picture = opened.with(Filter::default(), |export| svg(view, export));
            if opened.trace.heap_peak().object.is_none() && view == View::Heap {
                assert!(matches!(picture, Err(ExportError::NoHeap)), "{what}");
                continue;
            }
            let picture = picture.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_well_formed(&picture, &what);
            assert!(picture.contains(if kind == Kind::Latency { "real hardware" } else { "simulated" }), "{what}");
        }
    }
}
