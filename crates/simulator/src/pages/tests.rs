//! Any sequence of actions leaves the page table consistent: counts by slice equal a recount page by page, and free memory adds up.

use numapilot_placement::PageSize;
use proptest::prelude::*;

use super::*;
use crate::program::{Builder, Origin, Region, Slice};

const SMALL_PAGES: u64 = 40;
const LARGE_PAGES: u64 = 3 * SMALL_PER_LARGE;

/// A region of small pages and one of large ones, with slices that overlap and straddle.
fn program() -> Program {
    let mut builder = Builder::new("pages", Origin::Synthetic { file: "test".into() });
    let process = builder.process("p");
    let label = builder.label("l");
    let region =
        |first, pages, page_size| Region { name: "r".into(), process, first_page: PageNumber(first), pages, page_size };
    builder.region(region(1024, SMALL_PAGES, PageSize::Small));
    builder.region(region(4096, LARGE_PAGES, PageSize::Large));
    let slices = [
        (0, 0, 40),
        (0, 3, 1),
        (0, 10, 20),
        (0, 25, 15),
        (1, 0, LARGE_PAGES),
        (1, 100, 700),
        (1, 511, 2),
        (1, 1000, 1),
    ];
    for (region, first, pages) in slices {
        builder.slice(Slice { region, first, pages, label });
    }
    builder.program_mut().clone()
}

fn machine() -> Machine {
    Machine::load("opteron-8385").expect("a built-in model")
}

/// Recounts everything page by page.
fn check(pages: &PageTable, program: &Program, machine: &Machine) {
    let mut in_runs = BTreeMap::new();
    for run in pages.homes() {
        for page in run.first_page.run(run.pages) {
            assert_eq!(in_runs.insert((run.process, page), run.node), None, "{page:?} is in two runs");
        }
    }
    let of_region = |(index, region): (usize, &Region)| -> Vec<_> {
        let home = |page| Some(((region.process, region.first_page + page), pages.home(index, page)?));
        (0..region.pages).filter_map(home).collect()
    };
    assert_eq!(in_runs, program.regions.iter().enumerate().flat_map(of_region).collect());
    for (index, slice) in program.slices.iter().enumerate() {
        let mut seen = SliceCounts { by_home: vec![0; machine.nodes().len()], ..SliceCounts::default() };
        for page in slice.first..slice.first + slice.pages {
            let unit = pages.unit(slice.region as usize, page);
            match (pages.home(slice.region as usize, page), pages.copies(unit)) {
                (None, mask) => {
                    assert_eq!(mask, 0, "an absent page has copies");
                    seen.absent += 1;
                }
                (Some(home), 0) => seen.by_home[home] += 1,
                (Some(home), mask) => {
                    assert!(
                        mask >> home.0 & 1 == 1 && mask.count_ones() > 1,
                        "copies {mask:b} of a page at home on {home:?}"
                    );
                    *seen.copied.entry((mask, home)).or_default() += 1;
                }
            }
        }
        let counts = pages.counts(index as u32);
        assert_eq!((&counts.by_home, counts.absent, &counts.copied), (&seen.by_home, seen.absent, &seen.copied));
    }
    let mut used = vec![0u64; machine.nodes().len()];
    for region in 0..2 {
        let mut page = 0;
        while page < program.regions[region].pages {
            let unit = pages.unit(region, page);
            let home = pages.home(region, page);
            let mask = pages.copies(unit).max(home.map_or(0, |home| 1 << home.0));
            (0..used.len()).filter(|node| mask >> node & 1 == 1).for_each(|node| used[node] += unit.pages * PAGE_BYTES);
            page = unit.first + unit.pages;
        }
    }
    for (node, used) in used.iter().enumerate() {
        assert_eq!(pages.free_bytes()[node] + used, machine.nodes()[node].memory_bytes, "memory of node {node}");
    }
}

#[derive(Clone, Debug)]
enum Order {
    Place(usize, u64, usize),
    Migrate(usize, u64, usize),
    Replicate(usize, u64, Vec<usize>),
    Collapse(usize, u64),
    Split(u64),
    Unmap(u64, u64),
}

fn order() -> impl Strategy<Value = Order> {
    let page = (0usize..2, 0u64..LARGE_PAGES)
        .prop_map(|(region, page)| (region, if region == 0 { page % SMALL_PAGES } else { page }));
    prop_oneof![
        3 => (page.clone(), 0usize..4).prop_map(|((r, p), n)| Order::Place(r, p, n)),
        3 => (page.clone(), 0usize..5).prop_map(|((r, p), n)| Order::Migrate(r, p, n)),
        2 => (page.clone(), prop::collection::vec(0usize..4, 0..4)).prop_map(|((r, p), n)| Order::Replicate(r, p, n)),
        1 => page.prop_map(|(r, p)| Order::Collapse(r, p)),
        1 => (0..LARGE_PAGES).prop_map(Order::Split),
        1 => (1000u64..6000, 0u64..3000).prop_map(|(f, n)| Order::Unmap(f, n)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn counts_and_memory_stay_true(orders in prop::collection::vec(order(), 1..60)) {
        let (program, machine) = (program(), machine());
        let mut pages = PageTable::new(&program, &machine);
        for order in orders {
            match order {
                Order::Place(region, page, node) => {
                    let unit = pages.unit(region, page);
                    if pages.home(region, unit.first).is_none() {
                        prop_assert_eq!(pages.place(unit, NodeIndex(node)), Some(NodeIndex(node)));
                    }
                }
                Order::Migrate(region, page, node) => {
                    let unit = pages.unit(region, page);
                    let (was, to) = (pages.home(region, page), NodeIndex(node));
                    match pages.migrate(unit, to) {
                        Ok(from) => prop_assert_eq!((Some(from), pages.home(region, page)), (was, Some(to))),
                        Err(why) => {
                            prop_assert!(was.is_none() || was == Some(to) || node > 3, "{why:?}");
                            prop_assert_eq!(pages.home(region, page), was);
                        }
                    }
                }
                Order::Replicate(region, page, nodes) => {
                    let nodes: Vec<NodeIndex> = nodes.into_iter().map(NodeIndex).collect();
                    let _ = pages.replicate(pages.unit(region, page), &nodes);
                }
                Order::Collapse(region, page) => {
                    pages.collapse(pages.unit(region, page));
                }
                Order::Split(page) => {
                    pages.split(pages.unit(1, page));
                }
                Order::Unmap(first, count) => {
                    pages.unmap(0, PageNumber(first), count, 7, &|_, _| false);
                }
            }
            check(&pages, &program, &machine);
        }
        let unmapped: Vec<_> = pages.unmapped().collect();
        for (unit, since) in unmapped {
            prop_assert!(since == 7 && pages.home(unit.region, unit.first).is_some());
            prop_assert_eq!(pages.resolve(pages.key(unit)), Ok(unit));
        }
    }
}

#[test]
fn a_full_node_passes_pages_on_to_the_nearest() {
    let mut parts: String = numapilot_machine::builtin_text("opteron-8385").expect("a built-in model").into();
    parts = parts.replace("memory_gib = { value = 16,", "memory_gib = { value = 0.003,");
    let machine = Machine::from_model_text(&parts, "small").expect("a model with room for one large page per node");
    let program = program();
    let mut pages = PageTable::new(&program, &machine);
    let homes: Vec<_> = (0..3).map(|page| pages.place(pages.unit(1, page * SMALL_PER_LARGE), NodeIndex(0))).collect();
    assert_eq!(homes, [0, 1, 2].map(|node| Some(NodeIndex(node))), "one hop before two");
    assert_eq!(pages.migrate(pages.unit(1, 0), NodeIndex(1)), Err(Refusal::NoRoom));
    assert_eq!(pages.replicate(pages.unit(1, 0), &[1, 3].map(NodeIndex)), Err(Refusal::NoRoom));
    assert_eq!(pages.replicate(pages.unit(1, 0), &[NodeIndex(3)]), Ok(1));
    assert_eq!(
        pages.migrate(pages.unit(1, SMALL_PER_LARGE), NodeIndex(3)),
        Err(Refusal::NoRoom),
        "the copy has taken it"
    );
    assert_eq!(pages.migrate(pages.unit(1, 0), NodeIndex(3)), Ok(NodeIndex(0)), "to where its copy is");
    check(&pages, &program, &machine);
}
