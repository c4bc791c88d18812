//! The exact counts against a program whose accesses are known by arithmetic, on both kernels, and against the kernel's own word for where its pages are.

use std::process::Command;

use crate::common;
use numapilot_lab::Kernel;
use numapilot_lab::Lab;
use numapilot_lab::Outcome;
use numapilot_lab::PrivateCache;
use numapilot_lab::Topology;
use numapilot_lab::Truth;
use numapilot_lab::TruthOptions;

/// As in programs/marked.c.
const NODES: usize = 4;
const PAGE_WORDS: u64 = 512;
const PAGES: u64 = 64;
const LINE_WORDS: u64 = 8;

fn run(lab: &Lab, cache: Option<PrivateCache>) -> (Truth, Vec<u64>) {
    let folder = tempfile::tempdir().expect("a folder");
    let lab = lab.clone().truth(TruthOptions { cache, marked_only: true, ..TruthOptions::default() });
    let outcome =
        lab.run(Command::new(common::marked(folder.path())).current_dir(folder.path())).expect("the lab runs");
    let mut outcome = outcome.expect_success();
    let truth = outcome.truth.take().expect("asked for");
    eprintln!("{}", outcome.how);
    (truth, blocks(&outcome))
}

/// Addresses of the program's blocks, which the kernel says to be where they should.
fn blocks(outcome: &Outcome) -> Vec<u64> {
    let line = |(node, line): (usize, &str)| {
        let (address, found) = line.split_once(' ').expect("two words");
        assert_eq!(found, node.to_string(), "the kernel's word on block {node}");
        u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address")
    };
    outcome.stdout.lines().enumerate().map(line).collect()
}

/// Loads and stores of `cpu` on the block at `address`, and on how many pages of which node.
fn on_block(truth: &Truth, address: u64, cpu: usize, node: usize) -> (u64, u64, usize) {
    let inside = |p: &&numapilot_lab::PageCount| p.address.wrapping_sub(address) < PAGES * 4096 && p.cpu == cpu;
    let pages: Vec<_> = truth.pages.iter().filter(inside).collect();
    assert!(pages.iter().all(|p| p.node == node), "a page of node {node}'s block elsewhere");
    (pages.iter().map(|p| p.loads).sum(), pages.iter().map(|p| p.stores).sum(), pages.len())
}

fn check_every_access(lab: &Lab) {
    let (truth, blocks) = run(lab, None);
    assert_eq!((truth.regions.len(), truth.without_page, truth.regions_lost), (NODES, 0, 0));
    let block_words = PAGES * PAGE_WORDS;
    for (region, counts) in truth.regions.iter().enumerate() {
        let cpu = 2 * region + 1;
        let mut known = 0;
        for (node, &block) in blocks.iter().enumerate() {
            let loads = (node as u64 + 1) * block_words;
            let stores = if node == region { block_words } else { 0 };
            assert_eq!(on_block(&truth, block, cpu, node), (loads, stores, PAGES as usize), "CPU {cpu}, block {node}");
            known += loads + stores;
        }
        let all: u64 = counts.cpus[cpu].nodes.iter().map(|n| n.sum()).sum();
        // The loops keep their counters in registers; the block's addresses lie on the stack.
        assert!((known..known + 64).contains(&all), "{all} accesses, {known} of them on the blocks");
        assert_eq!(all, counts.cpus[cpu].accesses);
        let others: u64 = counts.cpus.iter().map(|c| c.accesses).sum::<u64>() - counts.cpus[cpu].accesses;
        assert_eq!(others, 0, "only CPU {cpu} ran in region {region}");
    }
    let rows: u64 = truth.pages.iter().map(|p| p.loads + p.stores).sum();
    assert_eq!(rows, truth.matrix().iter().flatten().sum::<u64>(), "pages and matrix");
}

#[test]
fn every_access_is_counted_on_its_node() {
    if numapilot_lab::wanted("every_access_is_counted_on_its_node") {
        check_every_access(&Lab::new(Topology::symmetric(NODES)).icount(true));
    }
}

#[test]
fn every_access_is_counted_on_the_older_kernel_and_with_a_thread_per_cpu() {
    if numapilot_lab::wanted("every_access_is_counted_on_the_older_kernel_and_with_a_thread_per_cpu") {
        check_every_access(&Lab::new(Topology::symmetric(NODES)).kernel(Kernel::V6_1));
    }
}

#[test]
fn the_cache_lets_one_access_a_line_through_and_coherence_the_stores() {
    if !numapilot_lab::wanted("the_cache_lets_one_access_a_line_through_and_coherence_the_stores") {
        return;
    }
    // A block is 256 KiB; the cache holds 32 KiB, so each pass over it starts with a line that has left.
    let (truth, blocks) =
        run(&Lab::new(Topology::symmetric(NODES)).icount(true), Some(PrivateCache { sets: 64, ways: 8 }));
    let lines = PAGES * PAGE_WORDS / LINE_WORDS;
    for region in 0..NODES {
        for (node, &block) in blocks.iter().enumerate() {
            let (loads, stores, _) = on_block(&truth, block, 2 * region + 1, node);
            let expected = (node as u64 + 1) * lines;
            assert!(loads.abs_diff(expected) <= 16, "{loads} loads for {expected} lines' passes, block {node}");
            let expected = if node == region { lines } else { 0 };
            // The last block's own last lines are still there from the loads, and nobody else has them.
            let kept = if node == region && node == NODES - 1 { 512 } else { 0 };
            assert!(
                (expected - kept..=expected).contains(&stores),
                "{stores} stores for {expected} lines, block {node}"
            );
        }
    }
}

#[test]
fn nodes_behind_the_hole_below_4_gib_are_told_apart() {
    if !numapilot_lab::wanted("nodes_behind_the_hole_below_4_gib_are_told_apart") {
        return;
    }
    // Node 2 ends and node 3 begins behind the hole; blocks are where the kernel says, and the plugin agrees.
    let (truth, blocks) = run(&Lab::new(Topology::symmetric(NODES).memory_per_node_mib(1024)), None);
    for (node, &block) in blocks.iter().enumerate() {
        assert!(on_block(&truth, block, 1, node).0 > 0);
    }
}
