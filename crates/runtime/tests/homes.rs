//! Homes of pages against the kernel's truth: programs whose pages get a second life unseen, inside the C library, under a small recorder
//! (`sim/harness.c`: four nodes of four CPUs; the k-th thread runs on node k % 4). `sim/homes.c` asks the simulated machine where its pages lie.

use std::path::PathBuf;
use std::process::Command;

use crate::sim::lab::*;

const PAGES: u64 = 4096;

struct Homes {
    lab: Lab,
    program: PathBuf,
}

impl Homes {
    fn new() -> Homes {
        let lab = Lab::new();
        let program = lab.build("gcc", GCC, &source("homes.c"), "homes");
        Homes { lab, program }
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.lab.record(1000, &[], &self.program, arguments)
    }
}

/// Pages of the line `key` on each node, and those without a home.
fn homes(outcome: &Outcome, key: &str) -> ([u64; 4], u64) {
    let on = outcome.nodes(key, None);
    ([on[0], on[1], on[2], on[3]], outcome.number(key, "none"))
}

/// At least 98 of 100 pages lie on `node`: what an allocator keeps for itself at the end of a heap stays where it was.
fn nearly_all_on(outcome: &Outcome, node: usize) {
    let (on, none) = homes(outcome, "homes");
    let all: u64 = on.iter().sum::<u64>() + none;
    assert!(on[node] * 100 >= all * 98, "{on:?}, {none} without a home: not on node {node}");
}

/// Kernels with pages of 64 KiB (arm64) were asked for parts of pages, which is an error, and for other pages than were meant: nothing was known of any page,
/// so that those that threads touched first had no home.
#[test]
fn the_kernel_is_asked_by_its_own_pages() {
    let program = crate::support::compile("residency_pages.c", "residency_pages", &["-O1"]);
    let said = |page_bytes: &str| {
        let output = Command::new(&program).arg(page_bytes).output().expect("the program starts");
        assert!(output.status.success(), "{page_bytes}: {}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(said("4096"), "30 10 302 0\n");
    assert_eq!(said("16384"), "33000022 11000011 302 -12\n");
    assert_eq!(said("65536"), "33333333000000000000000022222222 11111111000000000000000011111111 302 -12\n");
}

#[test]
fn a_block_that_free_unmapped_leaves_no_homes_behind() {
    let outcome = Homes::new().run(&["freed"]);
    assert_eq!(
        homes(&outcome, "homes"),
        ([PAGES / 2 + 1, 0, PAGES / 4 - 1, PAGES / 4], 0),
        "malloc writes its own words first"
    );
    assert_eq!(homes(&outcome, "aligned"), ([0, PAGES, 0, 0], 0));
    assert_eq!(homes(&outcome, "break"), ([0, 0, PAGES / 2, PAGES / 2], 0));
    assert_eq!(homes(&outcome, "grown"), ([PAGES / 2, PAGES / 2, 0, 0], 0));
}

#[test]
fn a_block_that_realloc_moved_keeps_its_homes() {
    let outcome = Homes::new().run(&["moved"]);
    assert_eq!(homes(&outcome, "homes"), ([1, PAGES - 1, 0, 0], 0));
    assert_eq!(homes(&outcome, "rest").0, [0; 4]);
    assert_eq!(homes(&outcome, "again"), ([1, 0, PAGES - 1, 0], 0), "the moved block was freed in its turn");
}

#[test]
fn a_heap_that_free_trimmed_has_no_homes() {
    // main made the blocks, and its malloc was the first to touch their pages.
    nearly_all_on(&Homes::new().run(&["heap"]), 0);
}

#[test]
fn a_heap_that_malloc_trim_emptied_has_no_homes() {
    nearly_all_on(&Homes::new().run(&["trim"]), 0);
}

#[test]
fn a_threads_heap_that_free_trimmed_has_no_homes() {
    nearly_all_on(&Homes::new().run(&["arena"]), 2);
}

#[test]
fn a_kept_stack_has_the_homes_of_its_next_thread() {
    let outcome = Homes::new().run(&["stack"]);
    let (on, none) = homes(&outcome, "homes");
    // Its end lies beside what the C library keeps there.
    assert!(on[2] >= 1000 && on[0] + on[1] + on[3] == 0 && on[2] + none == 1008, "{on:?}, {none}");
}

#[test]
fn a_library_that_comes_back_has_new_homes() {
    let homes_lab = Homes::new();
    let (object, input) = (homes_lab.lab.path("room.so"), homes_lab.lab.path("room.c"));
    std::fs::write(&input, "char room[16 << 20];\n").expect("written");
    check(
        &Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&input).output().expect("gcc"),
        "room",
    );
    let outcome = homes_lab.run(&["library", object.to_str().expect("UTF-8 path")]);
    assert_eq!(homes(&outcome, "homes"), ([0, 0, 0, PAGES - 2], 0));
}

#[test]
fn advice_empties_pages_when_the_kernel_obeys_it() {
    let outcome = Homes::new().run(&["advised"]);
    assert_eq!(homes(&outcome, "homes"), ([0, 0, PAGES, 0], 0));
    assert_eq!(homes(&outcome, "lazy"), ([0, PAGES, 0, 0], 0), "MADV_FREE takes pages when memory is short");
    for key in ["locked", "process"] {
        assert_eq!(homes(&outcome, key), ([0, 0, PAGES, 0], 0), "{key}");
    }
}

#[test]
fn a_policy_outlives_the_pages_of_its_mapping() {
    let outcome = Homes::new().run(&["policy"]);
    let all_on = |node: usize| (std::array::from_fn(|at| if at == node { PAGES } else { 0 }), 0);
    for key in ["homes", "again", "moved"] {
        assert_eq!(homes(&outcome, key), ([PAGES / 4; 4], 0), "{key}");
    }
    assert_eq!(homes(&outcome, "anew"), all_on(0), "the next mapping there: the fourth thread's node");
    assert_eq!(homes(&outcome, "kept"), all_on(1), "a policy moves nothing by itself");
    assert_eq!(homes(&outcome, "late"), all_on(3), "and holds for the next life");
}

/// The kernel takes the nodes with memory out of a mask, and refuses only one of which nothing is left.
#[test]
fn masks_may_name_nodes_that_are_not_there() {
    let outcome = Homes::new().run(&["masks"]);
    assert_eq!(homes(&outcome, "homes"), ([PAGES / 4; 4], 0));
    assert_eq!(homes(&outcome, "relative"), ([0, 0, 0, PAGES], 0), "the eighth of four nodes");
    for name in ["beyond", "empty", "local"] {
        assert_eq!(outcome.number("refused", name), 1, "{name}");
    }
    assert_eq!((outcome.number("threads", "result"), outcome.number("threads", "nodes")), (0, 15));
    assert_eq!(outcome.number("threads", "beyond"), 1);
}

#[test]
fn a_read_of_nothing_places_no_page_and_a_write_does() {
    let outcome = Homes::new().run(&["zero"]);
    assert_eq!(homes(&outcome, "read"), ([0; 4], PAGES - 1));
    assert_eq!(homes(&outcome, "homes"), ([0, PAGES / 2, 0, 0], PAGES / 2 - 1));
    assert_eq!(homes(&outcome, "shared"), ([PAGES, 0, 0, 0], 0), "shared memory has no zero page");
}

/// What a thread remembers of the shared mapping no longer holds there.
#[test]
fn a_read_of_nothing_places_no_page_where_shared_memory_was() {
    let outcome = Homes::new().run(&["replaced"]);
    assert_eq!(homes(&outcome, "read"), ([0; 4], PAGES));
    assert_eq!(homes(&outcome, "over"), ([0; 4], PAGES));
    assert_eq!(homes(&outcome, "homes"), ([0, PAGES, 0, 0], 0), "who writes first");
}

#[test]
fn an_unseen_first_touch_is_the_only_threads_or_nobodys() {
    let outcome = Homes::new().run(&["unseen"]);
    assert_eq!(homes(&outcome, "homes"), ([PAGES, 0, 0, 0], 0), "nobody else was there");
    assert_eq!(
        homes(&outcome, "late"),
        ([0; 4], PAGES - 1),
        "this recorder reads no page faults: unknown, and not guessed"
    );
    assert_eq!((outcome.number("known", "result"), outcome.number("known", "node")), (0, 0));
    // Programs use the answer as an index: it is a node that exists, or there is none.
    assert_eq!((outcome.number("unknown", "refused"), outcome.number("unknown", "untouched")), (1, 1));
}

/// What was there already was the caller's, too.
#[test]
fn what_the_kernel_fills_is_the_callers_only_where_nobody_was_before() {
    let outcome = Homes::new().run(&["filled"]);
    for key in ["homes", "populated", "parts", "offset", "fetched", "stored", "flagged", "checked", "random"] {
        assert_eq!(homes(&outcome, key), ([PAGES / 2, 0, 0, 0], PAGES / 2), "{key}: half is unknown, and not guessed");
    }
    for key in ["message", "spliced", "received", "queued"] {
        assert_eq!(homes(&outcome, key), ([1, 0, 0, 0], 1), "{key}");
    }
    assert_eq!((outcome.number("bad", "parts"), outcome.number("bad", "message")), (1, 1), "refused, as without us");
}

#[test]
fn who_is_about_to_touch_a_page_first_gets_it_even_if_another_thread_writes_before_that() {
    let outcome = Homes::new().run(&["told"]);
    assert_eq!(homes(&outcome, "homes"), ([0, 3, 0, 0], 0));
    assert_eq!(outcome.number("told", "faults"), 0, "nothing was still to be had by the writer");
}

#[test]
fn a_page_that_another_thread_took_while_this_one_asked_is_not_this_ones() {
    let outcome = Homes::new().run(&["overtaken"]);
    assert_eq!(homes(&outcome, "homes"), ([0; 4], 1), "this recorder reads no page faults: unknown, and not guessed");
}

#[test]
fn after_a_fork_who_writes_a_page_first_gets_a_copy_and_who_is_left_keeps_it() {
    let outcome = Homes::new().run(&["forked"]);
    let quarter = PAGES / 4;
    assert_eq!(homes(&outcome, "child"), ([3 * quarter, quarter, 0, 0], 0), "reads copy nothing");
    // This recorder reads no page faults: a page that was not copied at a write may have been before, by code that is not recorded.
    assert_eq!(homes(&outcome, "parent"), ([2 * quarter, 0, quarter, 0], quarter));
    assert_eq!(homes(&Homes::new().run(&["alone"]), "homes"), ([PAGES, 0, 0, 0], 0), "the child is gone");
}

#[test]
fn shared_memory_that_another_process_touched_first_is_not_the_finders() {
    for kind in ["file", "anonymous"] {
        let outcome = Homes::new().run(&["common", kind]);
        assert_eq!(homes(&outcome, "child"), ([0, PAGES / 2, 0, 0], PAGES / 2), "{kind}");
        assert_eq!(homes(&outcome, "parent"), ([PAGES / 2, 0, 0, 0], PAGES / 2), "{kind}");
    }
    assert_eq!(homes(&Homes::new().run(&["given"]), "homes"), ([0; 4], PAGES), "of whoever gave it its memory");
}

/// Pages that were written before counted as the giver's, too.
#[test]
fn memory_that_a_file_is_given_is_that_of_pages_which_had_none() {
    let given = |how| {
        let outcome = Homes::new().run(&[how]);
        (outcome.first("given"), outcome.number("given", "runs"))
    };
    assert_eq!(given("given"), (PAGES, 1));
    assert_eq!(given("partly"), (PAGES / 2, 2));
}

/// The mapping stays, and its pages kept the homes of those that were there before.
#[test]
fn pages_that_a_file_loses_and_gets_again_have_new_homes() {
    let outcome = Homes::new().run(&["taken"]);
    assert_eq!(homes(&outcome, "homes"), ([0, PAGES / 4, 3 * PAGES / 4, 0], 0));
}

/// Only `ftruncate` and `fallocate` were followed.
#[test]
fn a_file_that_is_emptied_by_its_path_or_by_opening_it_has_new_homes() {
    let outcome = Homes::new().run(&["emptied"]);
    for (way, node) in [2, 3, 0, 1, 2, 3].into_iter().enumerate() {
        let on = std::array::from_fn(|at| if at == node { PAGES / 8 } else { 0 });
        assert_eq!(homes(&outcome, &format!("way{way}")), (on, 0), "way {way}");
    }
}

/// The first half's pages were taken for those that lay there before.
#[test]
fn other_pages_of_a_file_at_the_same_addresses_have_their_own_homes() {
    let outcome = Homes::new().run(&["remapped"]);
    assert_eq!(homes(&outcome, "homes"), ([0, 0, 0, PAGES / 2], PAGES / 2), "of which nobody asked the file's record");
    assert_eq!(homes(&outcome, "numbered"), ([PAGES / 2, 0, 0, 0], PAGES / 2));
}

/// `MREMAP_DONTUNMAP`: pages that moved had no known home.
#[test]
fn pages_that_moved_out_of_a_mapping_which_stays_keep_their_homes() {
    let outcome = Homes::new().run(&["left mapped"]);
    assert_eq!(homes(&outcome, "moved"), ([0, PAGES, 0, 0], 0));
    assert_eq!(homes(&outcome, "homes"), ([0, 0, PAGES, 0], 0));
}

/// Initialised data that main had read stayed on main's node, whichever thread wrote them.
#[test]
fn a_page_of_a_file_is_copied_for_who_writes_it_first() {
    let outcome = Homes::new().run(&["copied"]);
    let quarter = PAGES / 4;
    assert_eq!(homes(&outcome, "read"), ([PAGES, 0, 0, 0], 0));
    assert_eq!(
        homes(&outcome, "homes"),
        ([quarter, quarter, 0, quarter], quarter),
        "this recorder reads no page faults: what was written unseen is unknown, and not guessed"
    );
    assert_eq!(homes(&outcome, "shared"), ([PAGES, 0, 0, 0], 0), "nothing is copied");
}

/// Through the C library's `syscall`, which was not followed: homes of the first life stayed.
#[test]
fn calls_by_number_end_homes_as_those_by_name() {
    let outcome = Homes::new().run(&["numbered"]);
    let quarter = PAGES / 4;
    assert_eq!(homes(&outcome, "homes"), ([0, 0, quarter, 3 * quarter], 0));
    assert_eq!(homes(&outcome, "moved"), ([0, 0, quarter, 3 * quarter], 0));
    assert_eq!(homes(&outcome, "break"), ([2 * quarter, 2 * quarter, 0, 0], 0));
}

/// The kernel finds the file's pages there as before.
#[test]
fn copies_of_a_files_pages_that_advice_discards_have_new_homes() {
    let outcome = Homes::new().run(&["dropped"]);
    assert_eq!(homes(&outcome, "homes"), ([0, PAGES / 2, PAGES / 2, 0], 0));
}

/// The first reader's node was taken for the home of pages that the page cache had already, and findings priced that.
#[test]
fn pages_that_the_page_cache_has_are_not_their_first_readers() {
    let outcome = Homes::new().run(&["cached"]);
    assert_eq!(homes(&outcome, "homes"), ([PAGES / 2, 0, 0, 0], PAGES / 2));
}

/// The kernel takes such a page where the thread is that provides it, and has no event of that: it was nobody's, or that of the thread that waited for it.
#[test]
fn memory_that_another_thread_provides_lies_where_that_thread_runs() {
    let lab = Lab::new();
    let program = lab.build("gcc", GCC, &source("provided.c"), "provided");
    let plain = Command::new(&program).output().expect("the program starts");
    if matches!(plain.status.code(), Some(77 | 78)) {
        return numapilot_not_run::not_run!(Userfaultfd, "{}", plain.status);
    }
    check(&plain, "provided.c");
    let outcome = lab.record(1000, &[], &program, &[]);
    // Node 1 provides, node 2 writes, and main, on node 0, has provided the last range before anybody wrote.
    for key in ["copied", "numbered", "moved"] {
        assert_eq!(homes(&outcome, key), ([0, 64, 0, 0], 0), "{key}");
    }
    assert_eq!(homes(&outcome, "zeroed"), ([0, 0, 64, 0], 0), "the page of zeroes is copied for who writes it");
    assert_eq!(homes(&outcome, "early"), ([64, 0, 0, 0], 0));
}
