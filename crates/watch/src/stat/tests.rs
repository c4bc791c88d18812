//! Golden texts: a captured machine, and a replayed trace.

use std::path::Path;

use numapilot_report::text::Look;

use super::*;
use crate::figures::NumaStat;
use crate::fixture::Tree;
use crate::live::Live;
use crate::live::LiveOptions;
use crate::maps::Reader;
use crate::replay::ReplayOptions;
use crate::replay::replay;

/// A captured machine that offers nothing but the kernel's counts.
pub fn captured() -> Stat {
    let tree = Tree::symmetric(2, 4, 1 << 20);
    let put = |step: u64| {
        for node in 0..2_u64 {
            let counts = [1_000_000 + step * 512, 20, 30, 700, 999_000 + step * 500, 1020 + step * 12];
            let text: String =
                NumaStat::NAMES.iter().zip(counts).map(|(name, count)| format!("{name} {count}\n")).collect();
            tree.put(&format!("sys/devices/system/node/node{node}/numastat"), &text);
        }
        tree.put("proc/vmstat", &format!("numa_hint_faults {}\nnuma_hint_faults_local {}\n", step * 400, step * 100));
    };
    tree.put("proc/sys/kernel/numa_balancing", "1");
    tree.process(40, "app", &[(40, 0, 900)]);
    tree.put("proc/40/numa_maps", "5600bb000000 default heap anon=6 N0=500 N1=12 kernelpagesize_kB=4\n7f00 default anon=9 N1=99 kernelpagesize_kB=4");
    put(1);
    let options = LiveOptions { no_latency: "nothing counts latencies".to_owned(), ..LiveOptions::default() };
    let mut live = Live::open(tree.root(), tree.machine(), &options);
    put(2);
    let mut interval = live.interval();
    (interval.from_ns, interval.to_ns) = (0, 1_000_000_000);
    let map = Reader::default().read(live.root(), live.machine(), 40).unwrap();
    Stat { interval, memory: vec![map] }
}

/// The second interval of the trace that tests share.
pub fn simulated() -> Stat {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces/mg.numatrace");
    let options = ReplayOptions { policy: "first-touch".to_owned(), interval_ns: 50_000_000, length_ns: None, seed: 1 };
    let replay = replay(&trace, None, &options).unwrap();
    Stat { interval: replay.frames[1].interval.clone(), memory: Vec::new() }
}

#[test]
fn texts_are_as_they_were() {
    insta::assert_snapshot!("captured_text", text(&captured(), Look::default()));
    insta::assert_snapshot!("simulated_text", text(&simulated(), Look { width: 80, colour: false }));
    let intervals = simulated().interval;
    insta::assert_snapshot!("simulated_brief", brief_heading(&intervals, Look::default()) + &brief(&intervals));
    insta::assert_snapshot!("captured_csv", csv_heading().to_owned() + &csv(&captured()));
    insta::assert_snapshot!("captured_json", serde_json::to_string_pretty(&json(&captured())).unwrap());
}

#[test]
fn every_line_of_csv_has_every_column() {
    let columns = csv_heading().matches(',').count();
    for stat in [captured(), simulated()] {
        for line in csv(&stat).lines() {
            let mut is_quoted = false;
            let commas = line.chars().filter(|c| {
                is_quoted ^= *c == '"';
                *c == ',' && !is_quoted
            });
            assert_eq!(commas.count(), columns, "{line}");
        }
    }
}
