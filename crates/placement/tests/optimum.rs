//! The offline optimum: never worse than what anybody would try, equal to brute force on small instances, never below its bound.

use numapilot_machine::{Machine, NodeIndex};
use numapilot_placement::{
    Change, Demand, OptimumOptions, PageGroup, PageHome, Phase, Placement, ThreadGroup, Work, optimum, run_time_s,
    usual_placements,
};
use numapilot_random::Linear;
use numapilot_traffic::MemorySystem;
use proptest::prelude::*;

/// Relative difference below which two times are the same: the solver's accuracy, and what the search takes for no improvement.
const SAME: f64 = 1e-6;

fn on_machine(name: &str) -> (Machine, MemorySystem) {
    let machine = Machine::load(name).expect("built-in");
    let system = MemorySystem::new(&machine).expect("complete");
    (machine, system)
}

/// Groups of pages of some sizes, first touched on node 0; a group of threads per node, each with work in every phase.
fn demand(nodes: usize) -> impl Strategy<Value = Demand> {
    let work = |groups: usize| {
        (
            0.0..1e9f64,
            1.0..10.0f64,
            0.0..200.0f64,
            prop::collection::vec((0.0..1.0f64, 0.0..0.5f64), groups),
            any::<bool>(),
        )
    };
    (1usize..4, 1usize..3, any::<bool>()).prop_flat_map(move |(groups, phases, reads_only)| {
        let pages = prop::collection::vec(1u64..9, groups);
        let work = prop::collection::vec(prop::collection::vec(work(groups), nodes), phases);
        (pages, work, 1.0..4.0f64).prop_map(move |(pages, work, threads)| {
            let mut first_touch = vec![0.0; nodes];
            first_touch[0] = 1.0;
            let phases = work
                .into_iter()
                .map(|work| Phase { work: work.into_iter().map(|w| one_work(w, reads_only)).collect() });
            Demand {
                threads: NodeIndex::all(nodes).map(|node| ThreadGroup { node, threads }).collect(),
                pages: pages.iter().map(|&p| PageGroup { bytes: p * 4096, first_touch: first_touch.clone() }).collect(),
                phases: phases.collect(),
            }
        })
    })
}

type RawWork = (f64, f64, f64, Vec<(f64, f64)>, bool);

fn one_work((accesses, outstanding, think_ns, shares, is_idle): RawWork, reads_only: bool) -> Work {
    let sum: f64 = shares.iter().map(|(r, w)| r + w).sum::<f64>() + 1e-9;
    let writes = |w: f64| if reads_only { 0.0 } else { w / sum };
    let reads = |(r, w): (f64, f64)| (r + if reads_only { w } else { 0.0 }) / sum;
    let mut work = Work {
        accesses: if is_idle { 0.0 } else { accesses },
        outstanding,
        think_ns,
        reads: shares.iter().map(|&s| reads(s)).collect(),
        writes: shares.iter().map(|&(_, w)| writes(w)).collect(),
    };
    work.reads[0] += 1e-9 / sum;
    work
}

fn in_every_phase(demand: &Demand, placement: &Placement) -> Vec<Placement> {
    vec![placement.clone(); demand.phases.len()]
}

/// All ways to put `pages` on `nodes` nodes.
fn spreads(pages: u64, nodes: usize) -> Vec<Vec<u64>> {
    if nodes == 1 {
        return vec![vec![pages]];
    }
    let with = |first: u64| {
        spreads(pages - first, nodes - 1).into_iter().map(move |rest| std::iter::once(first).chain(rest).collect())
    };
    (0..=pages).flat_map(with).collect()
}

/// Every placement of all groups.
fn all_placements(demand: &Demand, nodes: usize) -> Vec<Placement> {
    let mut all = vec![Vec::new()];
    for group in &demand.pages {
        let ways = spreads(group.page_count(), nodes);
        all = all
            .iter()
            .flat_map(|done: &Vec<PageHome>| {
                ways.iter()
                    .map(move |way| done.iter().cloned().chain([PageHome::Spread(way.clone())]).collect::<Vec<_>>())
            })
            .collect();
    }
    let threads: Vec<NodeIndex> = demand.threads.iter().map(|t| t.node).collect();
    all.into_iter().map(|pages| Placement { pages, threads: threads.clone() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_usual_or_random_is_better(demand in demand(4), seed in any::<u64>()) {
        let (machine, system) = on_machine("opteron-8385");
        let options = OptimumOptions { random_starts: 1, evaluations_max: 2000, ..OptimumOptions::default() };
        let found = optimum(&machine, &system, &demand, &options).expect("sound");
        for (name, placement) in usual_placements(&machine, &demand).expect("sound") {
            let usual_s = run_time_s(&machine, &system, &demand, &in_every_phase(&demand, &placement)).expect("sound");
            prop_assert!(found.total_s <= usual_s * (1.0 + SAME), "{}: {} s, found {} s", name, usual_s, found.total_s);
        }
        let mut random = Linear::new(seed);
        for _ in 0..20 {
            let mut placement = usual_placements(&machine, &demand).expect("sound")[0].1.clone();
            for (home, group) in placement.pages.iter_mut().zip(&demand.pages) {
                let ways = spreads(group.page_count(), 4);
                *home = PageHome::Spread(ways[random.index(ways.len())].clone());
            }
            let random_s = run_time_s(&machine, &system, &demand, &in_every_phase(&demand, &placement)).expect("sound");
            prop_assert!(found.total_s <= random_s * (1.0 + SAME), "seed {}: {:?}: {} s, found {} s", seed, placement, random_s, found.total_s);
        }
        prop_assert!(found.bound_s <= found.total_s * (1.0 + SAME), "bound {} s, found {} s", found.bound_s, found.total_s);
    }

    #[test]
    fn brute_force_finds_nothing_better(demand in demand(2)) {
        let (machine, system) = on_machine("xeon-2s");
        let found = optimum(&machine, &system, &demand, &OptimumOptions::default()).expect("sound");
        for (phase, of_phase) in found.phases.iter().enumerate() {
            let alone = Demand { phases: vec![demand.phases[phase].clone()], ..demand.clone() };
            for placement in all_placements(&alone, 2) {
                let brute_s = run_time_s(&machine, &system, &alone, std::slice::from_ref(&placement)).expect("sound");
                prop_assert!(of_phase.run_s <= brute_s * (1.0 + SAME), "{:?}: {} s, found {:?}", placement, brute_s, of_phase);
                prop_assert!(of_phase.bound_s <= brute_s * (1.0 + SAME), "bound {} s, {:?}: {} s", of_phase.bound_s, placement, brute_s);
            }
        }
    }

    #[test]
    fn more_freedom_is_never_worse_and_never_below_its_bound(demand in demand(2)) {
        let (machine, system) = on_machine("xeon-2s");
        let find = |replicate, move_threads, change| {
            let options = OptimumOptions { replicate, move_threads, change, evaluations_max: 4000, ..OptimumOptions::default() };
            let found = optimum(&machine, &system, &demand, &options).expect("sound");
            assert!(found.bound_s <= found.total_s * (1.0 + SAME), "{found:?}");
            found.total_s
        };
        let free = find(false, false, Change::Free);
        prop_assert!(find(true, false, Change::Free) <= free * (1.0 + SAME));
        prop_assert!(find(false, true, Change::Free) <= free * (1.0 + SAME));
        let never = find(false, false, Change::Never);
        prop_assert!(free <= never * (1.0 + SAME));
        let dear = find(false, false, Change::PerPage(1e12));
        let first_touch = &usual_placements(&machine, &demand).expect("sound")[0].1;
        let stays = run_time_s(&machine, &system, &demand, &in_every_phase(&demand, first_touch)).expect("sound");
        prop_assert!((dear - stays).abs() <= stays * SAME, "at 1,000 s a page nothing moves: {} s against {} s", dear, stays);
        let cheap = find(false, false, Change::PerPage(1.0));
        prop_assert!(cheap >= free * (1.0 - SAME) && cheap <= stays * (1.0 + SAME));
    }
}

/// One array first touched on node 0, accessed from everywhere, as in Streamcluster.
fn hot_array(writes: f64, outstanding: f64) -> Demand {
    let work = Work { accesses: 1e9, outstanding, think_ns: 1.0, reads: vec![1.0 - writes], writes: vec![writes] };
    Demand {
        threads: NodeIndex::all(4).map(|node| ThreadGroup { node, threads: 4.0 }).collect(),
        pages: vec![PageGroup { bytes: 64 << 20, first_touch: vec![1.0, 0.0, 0.0, 0.0] }],
        phases: vec![Phase { work: vec![work; 4] }],
    }
}

#[test]
fn a_hot_array_is_spread_and_a_read_one_copied() {
    let (machine, system) = on_machine("opteron-8385");
    let first_touch = &usual_placements(&machine, &hot_array(0.2, 4.0)).expect("sound")[0].1;
    let demand = hot_array(0.2, 4.0);
    let few = OptimumOptions { evaluations_max: 2000, ..OptimumOptions::default() };
    let before_s = run_time_s(&machine, &system, &demand, std::slice::from_ref(first_touch)).expect("sound");
    let spread = optimum(&machine, &system, &demand, &few).expect("sound");
    eprintln!("written: first touch {before_s:.3} s, found {:.3} s, bound {:.3} s", spread.total_s, spread.bound_s);
    let PageHome::Spread(counts) = &spread.phases[0].placement.pages[0] else { panic!("written pages have no copies") };
    let pages: u64 = counts.iter().sum();
    assert!(counts.iter().all(|&c| c > pages / 5 && c < pages / 3), "{counts:?}");
    // Links, which carry three quarters of the accesses and all probes, keep it from a quarter of the time.
    assert!(spread.total_s < before_s / 1.5);

    let demand = hot_array(0.0, 4.0);
    let options = OptimumOptions { replicate: true, ..few };
    let copied = optimum(&machine, &system, &demand, &options).expect("sound");
    eprintln!("read: found {:.3} s with copies, bound {:.3} s", copied.total_s, copied.bound_s);
    assert_eq!(copied.phases[0].placement.pages[0], PageHome::Replicated);
    assert!(copied.total_s < spread.total_s);
}

#[test]
fn what_a_later_phase_writes_has_no_copies() {
    let (machine, system) = on_machine("opteron-8385");
    let mut demand = hot_array(0.0, 4.0);
    demand.phases.push(hot_array(0.3, 4.0).phases.remove(0));
    let find = |change| {
        let options = OptimumOptions { replicate: true, change, evaluations_max: 600, ..OptimumOptions::default() };
        let found = optimum(&machine, &system, &demand, &options).expect("sound");
        let placements: Vec<Placement> = found.phases.iter().map(|p| p.placement.clone()).collect();
        // Fails on copies of what is written.
        let run_s = run_time_s(&machine, &system, &demand, &placements).expect("possible placements");
        assert!((run_s + found.change_s - found.total_s).abs() < SAME * run_s && found.bound_s <= found.total_s);
        placements
    };
    assert!(find(Change::Never).iter().all(|p| p.pages[0] != PageHome::Replicated));
    assert_eq!(
        find(Change::PerPage(4000.0))[0].pages[0],
        PageHome::Replicated,
        "copying 64 MiB pays for seconds of reading"
    );
}

#[test]
fn private_arrays_go_to_their_users_and_the_bound_is_near_when_idle() {
    let (machine, system) = on_machine("opteron-8385");
    let own = |group: usize| (0..4).map(|g| f64::from(u8::from(g == group))).collect::<Vec<_>>();
    let work =
        |group| Work { accesses: 1e7, outstanding: 1.0, think_ns: 500.0, reads: own(group), writes: vec![0.0; 4] };
    let demand = Demand {
        threads: NodeIndex::all(4).map(|node| ThreadGroup { node, threads: 1.0 }).collect(),
        pages: (0..4).map(|_| PageGroup { bytes: 1 << 20, first_touch: vec![1.0, 0.0, 0.0, 0.0] }).collect(),
        phases: vec![Phase { work: (0..4).map(work).collect() }],
    };
    let found = optimum(&machine, &system, &demand, &OptimumOptions::default()).expect("sound");
    for (group, home) in found.phases[0].placement.pages.iter().enumerate() {
        let PageHome::Spread(counts) = home else { panic!("copies were not allowed") };
        assert_eq!(counts[group], 256, "{counts:?}");
    }
    assert!(found.gap() >= -SAME && found.gap() < 0.05, "nearly idle, so the bound is tight: gap {}", found.gap());
}

#[test]
fn threads_are_moved_to_what_they_share() {
    let (machine, system) = on_machine("opteron-8385");
    // Two groups that chase pointers through one array, on opposite corners; moving one next to the other beats any spread.
    let work = Work { accesses: 1e7, outstanding: 1.0, think_ns: 10.0, reads: vec![1.0], writes: vec![0.0] };
    let demand = Demand {
        threads: vec![
            ThreadGroup { node: NodeIndex(0), threads: 1.0 },
            ThreadGroup { node: NodeIndex(3), threads: 1.0 },
        ],
        pages: vec![PageGroup { bytes: 1 << 20, first_touch: vec![1.0, 0.0, 0.0, 0.0] }],
        phases: vec![Phase { work: vec![work; 2] }],
    };
    let options = OptimumOptions { move_threads: true, ..OptimumOptions::default() };
    let fixed = optimum(&machine, &system, &demand, &OptimumOptions::default()).expect("sound");
    let moved = optimum(&machine, &system, &demand, &options).expect("sound");
    let placement = &moved.phases[0].placement;
    assert_eq!(placement.threads[0], placement.threads[1], "{placement:?}");
    assert!(moved.total_s < fixed.total_s * 0.99, "{} s against {} s", moved.total_s, fixed.total_s);
}

#[test]
fn memory_that_is_too_small_is_respected() {
    let (machine, system) = on_machine("opteron-8385");
    let mut demand = hot_array(0.2, 4.0);
    // 40 GiB on nodes of 16: first touch of node 0 falls back to its neighbours.
    demand.pages[0].bytes = 40 << 30;
    demand.phases[0].work.iter_mut().skip(1).for_each(|w| w.accesses = 0.0);
    let found = optimum(&machine, &system, &demand, &OptimumOptions::default()).expect("fits");
    let PageHome::Spread(counts) = &found.phases[0].placement.pages[0] else { panic!("written") };
    assert!(counts.iter().all(|&c| c * 4096 <= 16 << 30), "{counts:?}");
    demand.pages[0].bytes = 80 << 30;
    let error = optimum(&machine, &system, &demand, &OptimumOptions::default()).expect_err("64 GiB are there");
    assert!(error.to_string().contains("do not fit"), "{error}");
}

#[test]
fn unsound_demands_are_answered_with_place_and_remedy() {
    let (machine, system) = on_machine("opteron-8385");
    let message = |change: fn(&mut Demand)| {
        let mut demand = hot_array(0.2, 4.0);
        change(&mut demand);
        optimum(&machine, &system, &demand, &OptimumOptions::default()).expect_err("unsound").to_string()
    };
    assert!(
        message(|d| d.threads[1].node = NodeIndex(9)).contains("threads[1]: node 9 has no CPUs, or does not exist")
    );
    assert!(message(|d| d.pages[0].first_touch = vec![1.0]).contains("give 4 shares"));
    assert!(message(|d| d.phases[0].work[2].reads[0] = 0.3).contains("phases[0].work[2]: shares sum to 0.5"));
    assert!(message(|d| d.phases[0].work[0].outstanding = f64::NAN).contains("outstanding NaN"));
    assert!(message(|d| drop(d.phases[0].work.pop())).contains("3 entries for 4 groups of threads"));
}
