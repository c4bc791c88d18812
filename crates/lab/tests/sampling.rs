//! The emulated PMU's samples against the exact counts of the same run: the error bars that numapilot puts behind a share must cover the truth as often as
//! they say.

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use crate::common;
use numapilot_insight::Estimate;
use numapilot_insight::Tally;
use numapilot_lab::Lab;
use numapilot_lab::Region;
use numapilot_lab::Sampling;
use numapilot_lab::Topology;
use numapilot_lab::TruthOptions;
use numapilot_perf::MemoryAccess;
use numapilot_perf::Record;
use numapilot_perf::data_src::Level;
use numapilot_perf::data_src::Operation;
use numapilot_perf::file::Item;
use numapilot_perf::file::Walker;

const NODES: usize = 4;
const ROUNDS: usize = 6;
const PERIOD: u64 = 500;
const BLOCK_BYTES: u64 = 1 << 20;

/// One sample, as the decoder of real recordings gives it.
struct Sample {
    time: u64,
    cpu: usize,
    node: usize,
    period: u32,
}

/// Reads the recording as `numapilot import` does: nodes by physical address and the recorded map of memory.
fn samples(recording: Vec<u8>) -> Vec<Sample> {
    let mut walker = Walker::open(Cursor::new(recording), Path::new("recording")).expect("a recording");
    let memory = walker.features().memory.clone();
    let node_of = |physical: u64| {
        let block = (physical / BLOCK_BYTES) as usize;
        memory.iter().position(|n| n.blocks.get(block / 64).is_some_and(|w| w >> (block % 64) & 1 != 0))
    };
    let mut out = Vec::new();
    while walker.next().expect("sound").is_some() {
        let Some(Item { header, body, offset, .. }) = walker.current() else { continue };
        let Ok(Record::Sample(event, sample)) = walker.session().decode(header, body, offset) else {
            panic!("no sample")
        };
        let access = MemoryAccess::of_sample(&walker.session().events()[event], &sample).expect("an access");
        assert_eq!(access.level, Level::Ram);
        assert!(matches!(access.operation, Operation::Load | Operation::Store));
        assert!(access.tid.is_some_and(|tid| tid.0 > 0), "the thread was read from the guest's kernel");
        let cpu = access.cpu.expect("told").0 as usize;
        let node = node_of(access.physical_address.expect("told")).expect("memory of a node");
        let latency = if node == cpu / 2 { 200 } else { 400 };
        assert_eq!(access.latency_cycles, Some(latency), "modelled by distance");
        out.push(Sample { time: access.time.expect("told"), cpu, node, period: access.period.expect("told") as u32 });
    }
    out
}

/// Shares of the nodes in a region's samples, as reports compute them.
fn shares(samples: &[Sample], region: &Region) -> Vec<Estimate> {
    let (mut all, mut nodes) = (Tally::default(), vec![Tally::default(); NODES]);
    for sample in samples.iter().filter(|s| s.time > region.begin_ns && s.time <= region.end_ns) {
        all.add(sample.period);
        nodes[sample.node].add(sample.period);
    }
    nodes.iter().map(|node| node.share_of(&all)).collect()
}

#[test]
fn the_error_bars_of_emulated_samples_cover_the_truth_at_their_rate() {
    if !numapilot_lab::wanted("the_error_bars_of_emulated_samples_cover_the_truth_at_their_rate") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = common::marked(folder.path());
    let sampling = Sampling { period: PERIOD, seed: 1 };
    let options = TruthOptions { marked_only: true, sampling: Some(sampling), ..TruthOptions::default() };
    let lab = Lab::new(Topology::symmetric(NODES)).icount(true).truth(options);
    let mut command = Command::new(program);
    let outcome = lab.run(command.arg(ROUNDS.to_string()).current_dir(folder.path())).expect("the lab runs");
    let mut outcome = outcome.expect_success();
    let (truth, recording) = (outcome.truth.take().expect("asked for"), outcome.samples.take().expect("asked for"));
    let samples = samples(recording);
    assert_eq!(truth.regions.len(), NODES * ROUNDS);
    let (mut covered, mut cells, mut worst) = (0, 0, 0.0_f64);
    for (index, region) in truth.regions.iter().enumerate() {
        let counts = &region.cpus[2 * (index % NODES) + 1].nodes;
        let all: u64 = counts.iter().map(|c| c.sum()).sum();
        for (count, estimate) in counts.iter().zip(shares(&samples, region)) {
            let share = count.sum() as f64 / all as f64;
            cells += 1;
            covered += u32::from((estimate.low..=estimate.high).contains(&share));
            worst = worst.max((estimate.value - share).abs());
        }
    }
    let accesses: u64 = truth.matrix().iter().flatten().sum();
    let expected = accesses as f64 / PERIOD as f64;
    let of_cpus: Vec<usize> = (0..2 * NODES).map(|cpu| samples.iter().filter(|s| s.cpu == cpu).count()).collect();
    eprintln!(
        "{}: {} samples of {accesses} accesses ({expected:.0} expected), by CPU {of_cpus:?}; 95 % intervals of {cells} shares cover the exact one \
         {covered} times ({:.1} %); largest error {:.1} points",
        outcome.how,
        samples.len(),
        100.0 * f64::from(covered) / f64::from(cells),
        100.0 * worst
    );
    // Geometric gaps: the number of samples is binomial.
    assert!(
        (samples.len() as f64 - expected).abs() < 4.0 * expected.sqrt(),
        "{} samples, {expected} expected",
        samples.len()
    );
    // Of 96 intervals of 95 %, 91 are expected to cover; 84 and fewer are had once in 400 times. Four of a region hang together, hence the width.
    assert!(cells == 96 && covered >= 84, "{covered} of {cells} intervals cover the truth");
}
