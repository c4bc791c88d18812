//! What a picture of traffic leaves out.

use numapilot_insight::{Estimate, Matrix, Source};
use numapilot_text::units::short_percent;

use super::links::PAIRS_MAX;
use super::{Picture, picture};
use crate::Counted;
use crate::fixture::system;

/// The picture of a machine of whose links nothing is known. Each pair of its nodes has another number of accesses.
fn of_pairs(nodes: usize) -> (String, Vec<f64>) {
    let machine = system(nodes, 0, true);
    let cell = |from: usize, home: usize| if from == home { 0.0 } else { (from * nodes + home) as f64 };
    let row = |from: usize| (0..nodes).map(|home| Estimate::exact(cell(from, home))).collect();
    let matrix = Matrix {
        nodes: machine.nodes().iter().map(|node| node.id).collect(),
        accesses: (0..nodes).map(row).collect(),
        unknown: 0.0,
        source: Source::Counted,
    };
    let drawn = picture(&Picture {
        machine: &machine,
        matrix: &matrix,
        links: &[],
        title: "a made one",
        findings: &[],
        origin: "made",
        counted: Counted::Accesses,
    });
    let mut shares: Vec<f64> =
        matrix.accesses.iter().flatten().map(|cell| cell.value).filter(|value| *value > 0.0).collect();
    let all: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= all);
    shares.sort_by(f64::total_cmp);
    (drawn, shares)
}

#[test]
fn of_many_pairs_the_heaviest_are_drawn_and_the_others_are_told() {
    let (drawn, shares) = of_pairs(12);
    let light = shares.len() - PAIRS_MAX;
    assert_eq!((shares.len(), light), (132, 76));
    assert_eq!(drawn.matches("<polygon").count(), PAIRS_MAX);
    let labels: Vec<&str> = drawn
        .lines()
        .filter(|line| line.contains("font-size=\"12.5\""))
        .filter_map(|line| line.split_once('>')?.1.strip_suffix("</text>"))
        .collect();
    assert_eq!(labels, shares[light..].iter().map(|share| short_percent(*share)).collect::<Vec<_>>());
    let told =
        format!(">Not drawn: 76 lighter arrows, {} of accesses.</text>", short_percent(shares[..light].iter().sum()));
    assert!(told.contains("33 %") && drawn.contains(&told), "{told}: {drawn}");
}

#[test]
fn the_pairs_of_eight_nodes_are_all_drawn() {
    let (drawn, shares) = of_pairs(8);
    assert_eq!((drawn.matches("<polygon").count(), shares.len()), (PAIRS_MAX, PAIRS_MAX));
    assert!(!drawn.contains("Not drawn"), "{drawn}");
}
