//! Estimates of a heap of which a sample is recorded: by hand, and against programs whose every allocation is known.

use numapilot_flows::{Filter, NameError, Named, Object, ObjectKind, Site, SiteId, Tables, Thread, Trace};
use numapilot_insight::{Analysis, Estimate, SampledHeap};
use numapilot_random::Random;
use numapilot_trace::ids::{ObjectId, ThreadIndex, TimeNs};
use numapilot_trace::record::BlockSample;

/// An object: site, bytes, birth, thread, death, interval, and whether it is a later place.
type Sampled = (u32, u64, u64, u32, Option<u64>, u32, bool);

fn trace(sampled: &[Sampled]) -> Trace {
    trace_of(sampled, &[(0, None); 3])
}

/// `lives`: start and end of each thread.
fn trace_of(sampled: &[Sampled], lives: &[(u64, Option<u64>)]) -> Trace {
    let site = |name: &str, file: &str, line| Site {
        kind: ObjectKind::Pool,
        name: name.into(),
        function: "Grid.fill".into(),
        file: file.into(),
        line,
        ..Site::default()
    };
    let sites = vec![
        site("double[]", "Grid.java", 12),
        site("byte[]", "Grid.java", 20),
        site("long[]", "Grid.java", 30),
        site("requests", "", 0),
    ];
    let objects =
        sampled.iter().zip(0..).map(|(&(site, bytes, birth, thread, death, interval_bytes, is_moved), id)| Object {
            id: ObjectId(id),
            site: SiteId(site),
            bytes,
            birth: TimeNs(birth),
            death: death.map(TimeNs),
            thread: Some(ThreadIndex(thread)),
            sample: (site < 3).then_some(BlockSample { interval_bytes, is_moved }),
            ..Object::default()
        });
    let objects = objects.collect();
    let thread = |(index, &(start, end)): (u32, &(u64, Option<u64>))| Thread {
        index: ThreadIndex(index),
        start: TimeNs(start),
        end: end.map(TimeNs),
        ..Thread::default()
    };
    let threads = (0..).zip(lives).map(thread).collect();
    Trace::from_tables(Tables { end: TimeNs(1_000_000), sites, objects, threads, ..Tables::default() })
}

fn heap(trace: &Trace, filter: Filter) -> SampledHeap {
    Analysis::on(trace, None, filter).sampled_heap().expect("objects were sampled")
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= expected * 1e-6
}

/// A sample of I bytes at a distance of I stands for 1 / (1 - 1 / e) objects; one of many I for itself.
const AT_INTERVAL: f64 = 1.581_976_706_869_326_5;

#[test]
fn a_sample_stands_for_what_was_as_likely_not_sampled() {
    let trace = trace(&[(0, 1000, 10, 0, None, 1000, false), (1, 100_000, 20, 1, None, 1000, false)]);
    let heap = heap(&trace, Filter::default());
    let [large, small] = heap.sites.as_slice() else { panic!("{:?}", heap.sites) };
    assert_eq!((&*small.name, &*small.place, &*small.function), ("double[]", "Grid.java:12", "Grid.fill"));
    assert!(near(small.usage.allocations.value, AT_INTERVAL), "{small:?}");
    assert!(near(small.usage.allocated_bytes.value, 1000.0 * AT_INTERVAL), "{small:?}");
    assert!(small.usage.allocated_bytes.low >= 1000.0 && small.usage.allocated_bytes.high > 2000.0, "{small:?}");
    assert_eq!((&*large.name, large.usage.samples), ("byte[]", 1));
    assert!(near(large.usage.allocated_bytes.value, 100_000.0), "{large:?}");
    assert!(large.usage.allocated_bytes.margin() < 1.0, "it was sampled surely: {large:?}");
    assert_eq!((heap.interval_bytes, heap.total.samples, heap.total.allocating_threads), ([1000, 1000], 2, 2));
}

/// Make sure that each sample is weighted by the distance of its own time, and that none is where each object is sampled.
#[test]
fn distances_may_change_and_may_be_nothing() {
    let trace = trace(&[(0, 100, 10, 0, None, 0, false), (1, 4000, 20, 0, None, 4000, false)]);
    let heap = heap(&trace, Filter::default());
    assert_eq!(heap.interval_bytes, [0, 4000]);
    let exact = heap.sites.iter().find(|row| row.name == "double[]").expect("a row");
    assert_eq!(exact.usage.allocated_bytes, Estimate::exact(100.0));
    assert_eq!(exact.usage.allocations, Estimate::exact(1.0));
    assert!(near(heap.total.allocated_bytes.value, 100.0 + 4000.0 * AT_INTERVAL), "{heap:?}");
}

#[test]
fn a_move_is_no_allocation_and_its_object_still_takes_memory() {
    // The first object moves at 50, and is there to the end; the second dies at 50; the third comes when both are gone or moved.
    let trace = trace(&[
        (0, 1 << 20, 10, 0, Some(50), 1, false),
        (0, 1 << 20, 50, 0, None, 1, true),
        (1, 3 << 20, 20, 1, Some(50), 1, false),
        (2, 1 << 20, 60, 1, None, 1, false),
        (3, 1 << 30, 5, 1, None, 1, false),
    ]);
    let all = heap(&trace, Filter::default());
    assert_eq!((all.total.samples, all.total.allocations.value.round()), (3, 3.0));
    assert_eq!((all.peak_time, all.total.at_peak_bytes.value), (TimeNs(20), f64::from(4 << 20)));
    assert_eq!(all.total.left_bytes.value, f64::from(2 << 20));
    let row = |name: &str| all.sites.iter().find(|row| row.name == name).expect("a row").usage.clone();
    assert_eq!((row("double[]").samples, row("double[]").left_bytes.value), (1, f64::from(1 << 20)));
    assert_eq!((row("byte[]").at_peak_bytes.value, row("byte[]").left_bytes.value), (f64::from(3 << 20), 0.0));
    assert_eq!(row("long[]").at_peak_bytes.value, 0.0);
    // What the program's own pools hold is no sample.
    assert!(all.sites.iter().all(|row| row.name != "requests"));
    let early = heap(&trace, Filter { time: Some(TimeNs(0)..TimeNs(15)), ..Filter::default() });
    assert_eq!((early.sites.len(), early.total.samples), (1, 1));
    assert_eq!(early.sites[0].usage.left_bytes.value, f64::from(1 << 20), "where it was moved to");
    let of_one = heap(&trace, Filter { thread: Some(ThreadIndex(1)), ..Filter::default() });
    assert_eq!((of_one.sites.len(), of_one.total.samples), (2, 2));
    let of_heap = heap(&trace, Filter { kind: Some(ObjectKind::Heap), ..Filter::default() });
    assert!(of_heap.sites.is_empty());
}

#[test]
fn sampled_objects_can_be_chosen_and_other_pools_have_none() {
    let sampled = trace(&[(0, 100, 10, 0, None, 0, false), (3, 100, 10, 0, None, 0, false)]);
    assert_eq!(sampled.blocks_named("double[]"), Ok(vec![Named::Site(SiteId(0))]));
    assert_eq!(sampled.blocks_named("requests"), Err(NameError::NoBlock));
    let others = trace(&[(3, 100, 10, 0, None, 0, false)]);
    assert!(Analysis::on(&others, None, Filter::default()).sampled_heap().is_none());
}

/// Between 0, never reached, and 1.
fn share(random: &mut Random) -> f64 {
    random.unit() + f64::EPSILON
}

/// Sizes at the three sites: much smaller than the distance, like it, and much larger.
const SIZES: [u64; 3] = [64, 4096, 40_000];
const INTERVAL: u32 = 4096;
const ROUNDS: usize = 600;

/// A thread that allocates at the sites in turn, sampled wherever one of the process's events falls into an object. Returns the samples.
/// The random numbers begin anew after `period` allocations, and then again.
fn program(seed: u64, period: u64) -> Vec<Sampled> {
    let mut random = Random::new(seed);
    let mut next = -f64::from(INTERVAL) * share(&mut random).ln();
    let mut samples = Vec::new();
    for moment in 0..(ROUNDS * 12) as u64 {
        if moment % period == 0 {
            random = Random::new(seed);
        }
        // Nine small ones, two of the middle size, a large one.
        let site = [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 2][moment as usize % 12];
        let bytes = SIZES[site as usize];
        if next < bytes as f64 {
            samples.push((site, bytes, moment, 0, None, INTERVAL, false));
        }
        while next < bytes as f64 {
            next -= f64::from(INTERVAL) * share(&mut random).ln();
        }
        next -= bytes as f64;
    }
    samples
}

/// Make sure that estimates are right on average, and as far from the truth as their intervals say. 84 samples of small objects in each program.
#[test]
fn estimates_are_unbiased_and_their_intervals_hold_the_truth() {
    // 11 % for one, 0.6 % for the mean.
    check_programs(u64::MAX, &[(0, None); 3], 0.02);
}

/// Make sure that intervals hold the truth where each new thread starts HotSpot's random numbers anew, with the seed of the one before.
#[test]
fn intervals_hold_the_truth_where_threads_repeat_the_draws() {
    const PERIOD: u64 = 600;
    let workers = (0..12).map(|round| (round * PERIOD, Some(round * PERIOD + 50)));
    let lives: Vec<(u64, Option<u64>)> = std::iter::once((0, None)).chain(workers).collect();
    // As many as one round tells: 39 % for one, 2.2 % for the mean.
    check_programs(PERIOD, &lives, 0.07);
}

/// In which round a moved object was drawn is not recorded. All of them counted to the round of the collection, as independent draws.
#[test]
fn what_was_moved_is_no_better_known_than_what_was_allocated() {
    let lives: Vec<(u64, Option<u64>)> = (0..20).map(|round| (round * 100, Some(round * 100 + 50))).collect();
    let made = (0..20).map(|round| (0, 1000, round * 100 + 60, 0, Some(5000), 1000, false));
    let moved = (0..20).map(|_| (0, 1000, 5000, 0, None, 1000, true));
    let sampled: Vec<Sampled> = made.chain(moved).collect();
    let repeated = heap(&trace_of(&sampled, &lives), Filter::default()).total;
    assert!(near(repeated.left_bytes.high, repeated.allocated_bytes.high), "{repeated:?}");
    let independent = heap(&trace(&sampled), Filter::default()).total;
    let above = |estimate: &Estimate| estimate.high - estimate.value;
    assert!(above(&repeated.left_bytes) > 4.0 * above(&independent.left_bytes), "{repeated:?}, {independent:?}");
}

#[track_caller]
fn check_programs(period: u64, lives: &[(u64, Option<u64>)], tolerance: f64) {
    const PROGRAMS: usize = 300;
    let truth = [9 * ROUNDS, 2 * ROUNDS, ROUNDS].map(|count| count as f64);
    let (mut sums, mut held) = ([0.0; 3], [0usize; 3]);
    for seed in 0..PROGRAMS as u64 {
        let found = heap(&trace_of(&program(seed, period), lives), Filter::default());
        for (site, bytes) in SIZES.iter().enumerate() {
            let row = found.sites.iter().find(|row| row.site.0 as usize == site).expect("a row");
            let (estimate, expected) = (&row.usage.allocated_bytes, truth[site] * *bytes as f64);
            sums[site] += estimate.value / expected;
            held[site] += usize::from(estimate.low <= expected && expected <= estimate.high);
        }
    }
    for (site, (sum, held)) in sums.iter().zip(held).enumerate() {
        let mean = sum / PROGRAMS as f64;
        assert!((mean - 1.0).abs() < tolerance, "site {site}: {mean} of the truth");
        assert!(held as f64 >= 0.92 * PROGRAMS as f64, "site {site}: {held} of {PROGRAMS} intervals");
    }
}
