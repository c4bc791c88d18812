//! Threads, processes, modules and mappings: every beginning and end, with its family.

use std::collections::HashSet;

use crate::support::Arena;
use crate::support::compile;
use crate::support::record;
use crate::support::record_with;
use crate::support::scratch;
use crate::support::tracker;
use numapilot_trace::record::Event;

#[test]
fn threads_of_every_making_begin_end_and_keep_their_names() {
    let program = compile("threads.c", "threads", &["-O1", "-fno-builtin"]);
    let run = record(&program, &[]);
    run.assert_success().assert_no_loss().assert_blocks_match_truth();
    run.check_lives();
    let mut starts = run.events(|event| match event {
        Event::ThreadStart { index, parent, start_routine, stack_low, stack_high, .. } => {
            Some((index.0, parent.map(|parent| parent.0), start_routine.0 != 0, stack_low.0 < stack_high.0))
        }
        _ => None,
    });
    starts.sort_unstable();
    assert_eq!(starts[0], (0, None, false, true));
    assert_eq!(starts[1..6], (1..6).map(|index| (index, Some(0), true, true)).collect::<Vec<_>>());
    // Clones without storage of their own bring their own stacks, whose bounds nobody knows.
    assert_eq!(starts[6..], [(6, Some(0), true, false), (7, Some(0), true, false)]);
    let ends: HashSet<u32> = run
        .events(|event| if let Event::ThreadEnd { index } = event { Some(index.0) } else { None })
        .into_iter()
        .collect();
    // The last one leaves by a raw system call, which the recorder finds out.
    assert_eq!(ends, (0..7).collect());
    let names = run.events(|event| if let Event::ThreadName { name } = event { Some(name.clone()) } else { None });
    for name in ["returns", "exits", "is cancelled"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }
}

#[test]
fn a_tree_of_processes_is_recorded_whole() {
    let program = compile("processes.c", "processes", &["-O1", "-fno-builtin"]);
    let run = record(&program, &[]);
    assert_eq!(run.output.status.code(), Some(7), "{}", String::from_utf8_lossy(&run.output.stderr));
    run.assert_no_loss();
    run.check_lives();
    let processes = run.events(|event| match event {
        Event::ProcessStart { index, parent, by_exec, arguments, exe, .. } => {
            assert!(exe.ends_with("/processes"), "{exe}");
            Some((index.0, parent.map(|parent| parent.0), *by_exec, arguments.len()))
        }
        _ => None,
    });
    let indices: HashSet<u32> = processes.iter().map(|process| process.0).collect();
    assert_eq!(indices.len(), processes.len(), "a process index was used twice");
    // Itself; 10 times child, grandchild, raw child; three of vfork, spawn's, and a fork and its exec; itself again.
    assert_eq!(processes.len(), 1 + 30 + 4 + 2 + 1);
    assert_eq!(processes.iter().filter(|process| process.2).count(), 2, "two images replaced others");
    assert_eq!(
        processes.iter().filter(|process| process.1.is_none()).count(),
        1,
        "only the first has no parent: {processes:?}"
    );
    assert_eq!(
        processes.iter().filter(|process| process.3 == 2).count(),
        6,
        "command lines of the leaves: {processes:?}"
    );
    let ends =
        run.events(
            |event| if let Event::ProcessEnd { by_exec, code, .. } = event { Some((*by_exec, *code)) } else { None },
        );
    assert_eq!(ends.iter().filter(|end| **end == (false, 7)).count(), 36, "{ends:?}");
    assert_eq!(ends.iter().filter(|end| end.0).count(), 2, "{ends:?}");
}

#[test]
fn plugins_load_by_the_callers_runpath_and_are_announced_each_time() {
    let directory = scratch().join("plugins");
    std::fs::create_dir_all(&directory).expect("directory");
    let runpath = format!("-Wl,-rpath,{},--enable-new-dtags", directory.display());
    let search = format!("-L{}", directory.display());
    compile("plugin.c", "plugins/libdependency-host.so", &["-shared", "-fPIC", "-O1", "-DDEPENDENCY"]);
    let flags = [
        "-shared",
        "-fPIC",
        "-O1",
        "-fno-optimize-sibling-calls",
        &search,
        "-Wl,--no-as-needed",
        "-ldependency-host",
        &runpath,
    ];
    compile("plugin.c", "plugins/libplugin-host.so", &flags);
    let program = compile("host.c", "host", &["-O1", "-fno-builtin", "-rdynamic", &runpath]);
    let run = record(&program, &[]);
    run.assert_success().assert_no_loss().assert_blocks_match_truth();
    run.check_lives();
    for library in ["libplugin-host.so", "libdependency-host.so"] {
        let ids = run.events(|event| match event {
            Event::Module { id, path, build_id, .. } if path.ends_with(library) => {
                assert!(path.starts_with('/'), "{path}");
                assert_eq!(build_id.len(), 20, "{path}");
                Some(id.0)
            }
            _ => None,
        });
        assert_eq!(ids.len(), 5, "{library} is announced each time that it is loaded");
        let ends = run.events(|event| if let Event::ModuleEnd { id } = event { Some(id.0) } else { None });
        assert!(ids.iter().all(|id| ends.contains(id)), "{library}: {ids:?} ended {ends:?}");
    }
    let names = run.events(|event| if let Event::Module { path, .. } = event { Some(path.clone()) } else { None });
    for name in ["/host", "/libc.so.6", "/libnumapilot-track.so"] {
        assert!(names.iter().any(|path| path.ends_with(name)), "{name} is not in {names:?}");
    }
}

/// Two threads that look at the loader's list at once: what stays loaded never ends.
#[test]
fn modules_that_stay_loaded_do_not_end_while_others_come_and_go() {
    let directory = scratch().join("crowd");
    std::fs::create_dir_all(&directory).expect("directory");
    let one = compile("modules_race.c", "crowd/one.so", &["-shared", "-fPIC", "-O1", "-DLIBRARY"]);
    // Without a name of their own, copies of a library are as many libraries.
    let copies: Vec<String> = (0..126)
        .map(|number| {
            let copy = directory.join(format!("copy{number}.so"));
            std::fs::copy(&one, &copy).expect("copied");
            copy.display().to_string()
        })
        .collect();
    let (loaded, linked) = copies.split_at(6);
    let mut flags = vec!["-O1", "-Wl,--no-as-needed"];
    flags.extend(linked.iter().map(String::as_str));
    let program = compile("modules_race.c", "modules-race", &flags);
    let mut arguments = vec!["1000"];
    arguments.extend(loaded.iter().map(String::as_str));
    let run = record_with(Arena::new(8, 16 << 20), &program, &arguments, |_| {});
    run.assert_success();
    let ends: HashSet<u32> =
        run.events(|event| if let Event::ModuleEnd { id } = event { Some(id.0) } else { None }).into_iter().collect();
    let stays = |path: &str| !loaded.iter().any(|library| library == path);
    let ended = run.events(|event| match event {
        Event::Module { id, path, .. } if stays(path) && ends.contains(&id.0) => Some(path.clone()),
        _ => None,
    });
    assert!(ended.is_empty(), "these are loaded to the end: {ended:?}");
    let linked_seen = run.events(|event| match event {
        Event::Module { path, .. } if linked.contains(path) => Some(()),
        _ => None,
    });
    assert_eq!(linked_seen.len(), linked.len());
}

/// Of a library that was unloaded without `dlclose`, the next one at its address would have the code and the variables.
#[test]
fn a_library_in_the_place_of_one_that_left_unseen_is_another_one() {
    let directory = scratch().join("left");
    std::fs::create_dir_all(&directory).expect("directory");
    let first = compile("modules_race.c", "left/first.so", &["-shared", "-fPIC", "-O1", "-DLIBRARY"]);
    let second = directory.join("second.so");
    std::fs::copy(&first, &second).expect("copied");
    let [first, second] = [first, second].map(|path| path.display().to_string());
    let program = compile("modules_left.c", "modules-left", &["-O1"]);
    let run = record(&program, &[&first, &second]);
    run.assert_success().assert_no_loss();
    let places = String::from_utf8_lossy(&run.output.stdout).into_owned();
    let places: Vec<&str> = places.lines().collect();
    assert!(places.len() == 2 && places[0] == places[1], "of no use, unless they lie at one address: {places:?}");
    let told: Vec<(bool, u32, &str)> = run
        .ordered()
        .iter()
        .filter_map(|record| match &record.event {
            Event::Module { id, path, .. } if [&first, &second].contains(&path) => Some((true, id.0, path.as_str())),
            Event::ModuleEnd { id } => Some((false, id.0, "")),
            _ => None,
        })
        .collect();
    let [(true, old, old_path), (false, ended, _), (true, new, new_path)] = told[..3] else {
        panic!("the first begins, ends, and the second begins: {told:?}");
    };
    assert_eq!((old_path, new_path), (first.as_str(), second.as_str()));
    assert!(ended == old && new != old, "{told:?}");
}

/// The loader's list is that of one namespace: what is in another stays loaded when something in this one goes.
#[test]
fn modules_of_other_namespaces_end_with_them_alone() {
    let library = |name: &str| compile("namespaces.c", name, &["-shared", "-fPIC", "-O1", "-DLIBRARY"]);
    let (own, other) = (library("namespace-own.so"), library("namespace-other.so"));
    let program = compile("namespaces.c", "namespaces", &["-O1", "-fno-builtin"]);
    let arguments = [own.to_str().expect("UTF-8"), other.to_str().expect("UTF-8")];
    let run = record(&program, &arguments);
    run.assert_success().assert_no_loss();
    let ids = |path: &str| {
        run.events(|event| match event {
            Event::Module { id, path: found, .. } if found == path => Some(id.0),
            _ => None,
        })
    };
    let ends = run.events(|event| if let Event::ModuleEnd { id } = event { Some(id.0) } else { None });
    let (own, other) = (ids(arguments[0]), ids(arguments[1]));
    assert_eq!(own.len(), 1, "it is announced once, by the stack of its first allocation");
    assert!(!ends.contains(&own[0]), "it stays loaded");
    assert!(other.iter().all(|id| ends.contains(id)), "{other:?} ended {ends:?}");
}

#[test]
fn mappings_of_every_kind_are_recorded_exactly() {
    let program = compile("maps.c", "maps", &["-O1"]);
    let run = record(&program, &[]);
    run.assert_success().assert_no_loss();
    let described: Vec<String> = run
        .ordered()
        .iter()
        .filter_map(|record| match &record.event {
            Event::Map { address, bytes, flags, path, .. } => {
                Some(format!("map {:x} {bytes} {flags} {}", address.0, if path.is_empty() { "-" } else { path }))
            }
            Event::Unmap { address, bytes } => Some(format!("unmap {:x} {bytes}", address.0)),
            _ => None,
        })
        .collect();
    let mut at = 0;
    for line in &run.truth {
        match described[at..].iter().position(|found| found == line) {
            Some(skipped) => at += skipped + 1,
            None => panic!("`{line}` is not among {:#?}", &described[at..]),
        }
    }
    // What the kernel refused has ended nothing.
    let is_unmapped = |what: &str| described.iter().any(|line| line.starts_with("unmap ") && line.ends_with(what));
    assert!(!is_unmapped(&format!(" {}", 1_u64 << 47)), "{described:#?}");
    for huge in run.truth.iter().filter(|line| line.ends_with(" 137 -")) {
        let words: Vec<&str> = huge.split(' ').collect();
        let half = words[2].parse::<u64>().expect("a number") / 2;
        assert!(!is_unmapped(&format!("unmap {} {half}", words[1])), "{described:#?}");
    }
    let initial = run.events(|event| {
        if let Event::Map { flags, path, .. } = event { (flags & 64 != 0).then(|| path.clone()) } else { None }
    });
    assert!(
        initial.iter().any(|path| path.ends_with("/maps")) && initial.iter().any(|path| path == "[stack]"),
        "{initial:?}"
    );
    assert!(!initial.iter().any(|path| path.contains("test-arena")), "the arena is not the program's: {initial:?}");
}

#[test]
fn a_thread_that_jumps_out_of_a_hook_is_recorded_on() {
    let program = compile("jumps.c", "jumps", &["-O1", "-fno-builtin"]);
    for depth in ["here", "deep"] {
        let run = record_with(Arena::new(8, 32 << 20), &program, &[depth], |_| {});
        run.assert_success();
        let blocks = run.events(|event| matches!(event, Event::Alloc { bytes: 777, .. }).then_some(()));
        assert_eq!(blocks.len(), 1000, "{depth}");
        let lost: u64 = run
            .events(|event| if let Event::Lost { count, .. } = event { Some(*count) } else { None })
            .into_iter()
            .sum();
        assert!(lost <= 3000, "{depth}: at most one for each jump, not {lost}");
    }
}

/// Out of the real allocator, too: that is the program's own fault, but mostly goes well, and was the end of its thread's recording without a word.
#[test]
fn a_thread_that_jumps_out_of_the_allocator_is_recorded_on() {
    let allocator = compile("atomic_malloc.c", "libatomic_malloc.so", &["-shared", "-fPIC", "-O1", "-fno-builtin"]);
    let program = compile("jumps.c", "jumps", &["-O1", "-fno-builtin"]);
    let both = format!("{}:{}", tracker().display(), allocator.display());
    let run = record_with(Arena::new(8, 64 << 20), &program, &["allocator"], |command| {
        command.env("LD_PRELOAD", &both);
    });
    run.assert_success();
    let blocks = run.events(|event| matches!(event, Event::Alloc { bytes: 777, .. }).then_some(()));
    assert_eq!(blocks.len(), 1000);
}

#[test]
fn more_threads_than_slots_are_counted_and_run() {
    let program = compile("alloc_churn.cpp", "churn-few", &["-O1", "-fno-builtin"]);
    let run = record_with(Arena::new(8, 4 << 20), &program, &["32", "500"], |_| {});
    run.assert_success();
    assert!(run.arena.losses().lost_no_slot > 0);
}
