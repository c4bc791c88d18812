//! Text, pictures and the page over made-up figures of two nodes and a memory without CPUs.

use std::collections::BTreeMap;

use numapilot_machine::{CpuId, NodeId};
use numapilot_measure::{
    BandwidthCell, Calibration, Curve, CurvePoint, Disturbance, Figure, Handoff, Host, Kernel, LatencyCell, Level,
    Limit, Overlap, Proof, QueueingDelay, Relation, Spread, StairPoint, Staircase, Target, Walk,
};
use numapilot_text::style::Look;

use super::*;

fn figure(value: f64) -> Figure {
    let spread = Spread {
        best: value,
        confirmed: true,
        median: value * 1.01,
        mad: value * 0.004,
        low: value,
        high: value * 1.02,
        repetitions: 40,
    };
    Figure { spread, disturbance: Disturbance::default() }
}

fn results() -> Results {
    let host = Host {
        cpu_model: Some("Some <CPU>".to_owned()),
        kernel: Some("6.12.0".to_owned()),
        clock_mhz: 2600.0,
        isa: Some(numapilot_measure::Isa::Avx512),
        cache_bytes: 32 << 20,
    };
    let mut results = Results { host, seconds: 9.7, ..Results::default() };
    for from in 0..2_u16 {
        for to in 0..3_u16 {
            let target = Target::Node(NodeId(to));
            let ns = [90.0, 150.0, 250.0][usize::from(from.abs_diff(to).min(2))];
            for (walk, part) in [(Walk::Random, 1.0), (Walk::Strided(128), 0.2)] {
                let (from, cpu) = (NodeId(from), CpuId(u32::from(from) * 4));
                results.latency.push(LatencyCell {
                    from,
                    cpu,
                    target: target.clone(),
                    walk,
                    bytes: 128 << 20,
                    loads: 1 << 20,
                    ns: figure(ns * part),
                });
            }
            for kernel in [Kernel::Read, Kernel::Triad, Kernel::TriadNt] {
                let (from, rate) = (NodeId(from), 4e12 / ns);
                results.bandwidth.push(BandwidthCell {
                    from,
                    cpus: 4,
                    target: target.clone(),
                    kernel,
                    bytes: 128 << 20,
                    bytes_per_s: figure(rate),
                    traffic_bytes_per_s: rate * 4.0 / 3.0,
                });
            }
        }
    }
    let stair = |(bytes, ns): (u64, f64)| StairPoint { bytes, ns: figure(ns) };
    let points = [(4096, 1.5), (1 << 15, 1.6), (1 << 18, 5.0), (1 << 20, 5.2), (1 << 26, 80.0), (1 << 28, 90.0)]
        .map(stair)
        .to_vec();
    let levels = vec![
        Level { ns: 1.5, bytes: Some(49_152.0) },
        Level { ns: 5.1, bytes: Some(2e6) },
        Level { ns: 90.0, bytes: None },
    ];
    results.caches.push(Staircase {
        from: NodeId(0),
        cpu: CpuId(0),
        target: Target::Node(NodeId(0)),
        walk: Walk::Random,
        points,
        levels,
    });
    let points = [(0.0, 0.5e9, 90.0), (0.5, 15e9, 105.0), (1.0, 30e9, 240.0)]
        .map(|(asked_share, bytes_per_s, ns)| CurvePoint { asked_share, bytes_per_s, ns: figure(ns) })
        .to_vec();
    let (from, kernel) = (NodeId(0), Kernel::Read);
    results.loaded.push(Curve { from, cpu: CpuId(0), neighbours: 3, kernel, target: Target::Node(NodeId(0)), points });
    results.handoff.push(Handoff { a: CpuId(0), b: CpuId(4), relation: Relation::Apart, ns: figure(110.0) });
    results
        .placements
        .push((Target::Node(NodeId(0)), Proof::Shown { pages: 32_768, bytes_by_node: vec![(NodeId(0), 128 << 20)] }));
    results.left_out.push("hand-offs between nodes (3): not within 10 s; --full or --for more".to_owned());
    results
}

fn calibration() -> Calibration {
    let limit = Limit { bytes_per_s: 41e9, estimate: true, range: None, source: "fitted".to_owned() };
    Calibration {
        controllers: BTreeMap::from([(NodeId(0), limit)]),
        write_turnaround: Some(0.25),
        crowding: None,
        ..Calibration::default()
    }
}

#[test]
fn the_text_is_as_it_was() {
    insta::assert_snapshot!(render(&results(), Some(&calibration()), Look::default()));
}

#[test]
fn no_line_is_wider_than_asked_for() {
    use unicode_width::UnicodeWidthStr;
    for width in [80, 100, 140] {
        let text = render(&results(), Some(&calibration()), Look { width, colour: false });
        assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
    }
}

#[test]
fn disturbances_are_told_and_doubtful_figures_marked() {
    let mut results = results();
    results.latency[0].ns.disturbance =
        Disturbance { steal_share: Some(0.2), involuntary_switches: 12, ..Disturbance::default() };
    results.latency[0].ns.spread.confirmed = false;
    let text = render(&results, None, Look::default()).replace("\n  ", " ");
    assert!(text.contains("1 of 12 figures of latency"), "{text}");
    assert!(text.contains("20 % of the time stolen") && text.contains("preempted 12 times"), "{text}");
    assert!(text.contains("Figures marked `?` (1)"), "{text}");
}

#[test]
fn the_models_error_in_queues_is_told() {
    let shown = |curves: usize| {
        let queueing_delay = Some(QueueingDelay { low: 0.9, high: 1.11, curves });
        let fitted = Calibration { queueing_delay, ..calibration() };
        let both = [render(&results(), Some(&fitted), Look::default()), html(&results(), Some(&fitted))];
        both.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    for text in shown(2) {
        assert!(
            text.contains("Queueing delays are 0.90 to 1.11 times") && text.contains("(from 2 curves that rose"),
            "{text}"
        );
    }
    for text in shown(0) {
        assert!(text.contains("No latency under load rose enough"), "{text}");
    }
}

#[test]
fn every_picture_is_whole_and_only_of_what_was_measured() {
    for picture in Picture::ALL {
        let drawn = svg(picture, &results()).unwrap_or_else(|| panic!("{picture:?}"));
        assert!(drawn.starts_with("<svg") && drawn.ends_with("</svg>\n") && !drawn.contains("NaN"), "{drawn}");
        assert!(drawn.contains("Some &lt;CPU&gt;"), "{picture:?}");
        assert_eq!(svg(picture, &Results::default()), None, "{picture:?}");
    }
    let (from, cpu) = (NodeId(0), CpuId(2));
    let overlap = Overlap { from, cpu, chains: 16, ns: figure(7.5), outstanding: 12.0, range: (11.5, 12.5) };
    let page = html(&Results { overlap: Some(overlap), ..results() }, Some(&calibration()));
    assert!(page.contains("A core keeps 12.0 misses outstanding (11.5 to 12.5): 16 random chases"), "{page}");
    assert_eq!(page.matches("<svg").count(), 5);
    assert!(page.contains("not within 10 s") && !page.contains("<CPU>"));
}
