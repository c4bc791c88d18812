//! Programs whose mappings are replaced under them, on this machine: node 0 is named, so that copies are made where there is one node, too. That
//! each copy is on its own node is for `lab.rs`.

use std::fs;
use std::path::Path;
use std::process::Command;

use numapilot_machine::NodeId;
use numapilot_replica::mappings::Action;
use numapilot_replica::mappings::LIBRARY;
use numapilot_replica::mappings::Mappings;
use numapilot_replica::mappings::Rules;
use numapilot_replica::mappings::Summary;

use crate::common::compile;
use crate::common::must;
use crate::common::run;
use crate::common::scratch;

fn on_node_0(rules: Rules) -> Mappings {
    Mappings::prepare(Rules { node: Some(NodeId(0)), ..rules }).expect("a folder for copies")
}

fn count(summary: &Summary, action: Action, path: &Path) -> usize {
    summary.events.iter().filter(|event| event.action == action && event.path == path).count()
}

#[test]
fn a_programs_mappings_are_replaced_and_its_results_are_the_same() {
    let program = compile("mapped", &["tests/c/mapped.c"], &["-O2"]);
    let data = scratch().join("data");
    let content: Vec<u8> = (0..2_000_001_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&data, content).expect("data");
    let alone = must(Command::new(&program).arg(&data));
    let mappings = on_node_0(Rules { pattern: Some("*".into()), ..Rules::default() });
    let mut command = Command::new(&program);
    mappings.apply(command.arg(&data));
    let replaced = must(&mut command);
    assert_eq!(alone.lines().take(2).collect::<Vec<_>>(), replaced.lines().take(2).collect::<Vec<_>>());
    assert!(replaced.contains("after write 1 0, sealed refuses"), "{replaced}");
    let summary = mappings.summary().expect("summary");
    assert_eq!(count(&summary, Action::Replaced, &data), 1, "{summary}");
    assert_eq!(count(&summary, Action::Replaced, Path::new("/memfd:sealed (deleted)")), 1, "{summary}");
    assert!(
        summary
            .events
            .iter()
            .any(|event| event.path.to_string_lossy().contains("libc.so") && event.action == Action::Replaced)
    );
    assert_eq!(summary.lines_lost, 0);
    // What was replaced is shown in the copies, with every page where it should be.
    let places: Vec<&str> = replaced.lines().filter(|line| line.contains(".node0")).collect();
    assert!(places.len() >= 4, "{replaced}");
    for line in places {
        let numbers: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(numbers[3], numbers[5], "{line}");
    }
    let folder = mappings.folder().to_owned();
    drop(mappings);
    assert!(!folder.exists());
}

/// Status of a program whose other thread or signal came only after the copy was made.
const LATE: Option<i32> = Some(8);

/// Runs a program that interferes with the copy of a file, until it does so in time: what it says, and how often the file was replaced. `how`: its last
/// argument, or nothing.
fn interfering(name: &str, how: &str) -> (String, usize) {
    let source = format!("tests/c/{name}.c");
    let name = format!("{name}{how}");
    let program = compile(&name, &[source.as_str()], &["-O2", "-pthread"]);
    let data = scratch().join(format!("{name}-data"));
    fs::write(&data, vec![7; 128 << 20]).expect("data");
    // The other thread has to be done before the copy is, which takes about as long: on a busy machine it loses that race again and again.
    for _ in 0..40 {
        let mappings = on_node_0(Rules { pattern: Some(format!("*{name}-data")), ..Rules::default() });
        let mut command = Command::new(&program);
        mappings.apply(command.arg(&data).arg(mappings.folder()).args((!how.is_empty()).then_some(how)));
        let output = run(&mut command);
        if output.status.code() == LATE {
            continue;
        }
        assert!(output.status.success(), "{output:?}");
        let summary = mappings.summary().expect("summary");
        eprintln!("{summary}");
        fs::remove_file(&data).expect("removed");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        return (said, count(&summary, Action::Replaced, &data));
    }
    panic!("{name} came too late each time");
}

/// A copy takes a while to make: what the program has put in the file's place meanwhile is not overwritten with it.
#[test]
fn what_another_thread_maps_there_during_the_copy_stays() {
    assert_eq!(interfering("taken", ""), ("kept".to_owned(), 0));
}

/// The C library unmaps by itself what `dlclose` takes away, and maps by itself what `malloc` needs: no hook sees it.
#[test]
fn what_the_c_library_maps_there_during_the_copy_stays() {
    assert_eq!(interfering("taken", "unseen"), ("kept".to_owned(), 0));
}

/// The copy is made in the program's own call of mmap: a handler that comes meanwhile may fork.
#[test]
fn a_handler_may_fork_during_the_copy() {
    assert_eq!(interfering("forked", ""), ("forked".to_owned(), 2));
}

/// An allocator's lock is held across forks, and who has it waits for none of ours that a fork holds. Nor does a handler of a signal that comes then.
#[test]
fn an_allocator_that_unmaps_under_its_lock_may_fork() {
    let library = compile("libforklocks.so", &["tests/c/forklocks.c"], &["-O2", "-DLIBRARY", "-shared", "-fPIC"]);
    let program = compile("forklocks", &["tests/c/forklocks.c", library.to_str().expect("UTF-8")], &["-O2"]);
    let shared = scratch().join("shared-forklocks");
    fs::write(&shared, vec![0; 1 << 20]).expect("shared");
    // With a guarded mapping, and with none.
    for (rule, replaced) in [(shared.as_path(), 2), (Path::new("/no-such-file"), 0)] {
        let pattern = Some("*no-such-file".into());
        let shared_rule = rule.to_str().map(str::to_owned);
        let mappings = on_node_0(Rules { pattern, shared: shared_rule, ..Rules::default() });
        let mut command = Command::new(&program);
        mappings.apply(command.arg(&shared));
        assert_eq!(must(&mut command), "forked\n");
        assert_eq!(count(&mappings.summary().expect("summary"), Action::Replaced, &shared), replaced);
    }
}

/// What a program does with all of its threads, it does with the one that waits for orders, too: it changes their user, and ends when the last of its own has.
#[test]
fn the_thread_that_waits_for_orders_holds_nothing_up() {
    for (name, expected) in [("setxid", "changed\n"), ("lastthread", "done\n")] {
        let source = format!("tests/c/{name}.c");
        let program = compile(name, &[source.as_str()], &["-O2"]);
        let mappings = Mappings::prepare(Rules { by_order: true, ..Rules::default() }).expect("a folder for copies");
        let mut command = Command::new(&program);
        mappings.apply(&mut command);
        assert_eq!(must(&mut command), expected, "{name}");
    }
}

/// A limit on file sizes, beyond which a signal ends the program; a cancelled thread, for which opening a file is the end; a closed standard output, whose
/// number the copy's file must not have.
#[test]
fn programs_in_an_uneasy_state_go_on() {
    let program = compile("uneasy", &["tests/c/uneasy.c"], &["-O2"]);
    let data = scratch().join("uneasy-data");
    fs::write(&data, vec![7; 16 << 20]).expect("data");
    let alone = must(Command::new(&program).arg(&data).arg("closed"));
    assert!(alone.ends_with("copy 0\n"), "{alone}");
    for (kind, expected) in [("limited", "copy 0"), ("cancelled", "copy 1"), ("closed", "copy 1")] {
        let mappings = on_node_0(Rules { pattern: Some("*uneasy-data".into()), ..Rules::default() });
        let mut command = Command::new(&program);
        mappings.apply(command.arg(&data).arg(kind));
        assert_eq!(must(&mut command), alone.replace("copy 0", expected), "{kind}");
    }
}

/// A library's constructor runs with the loader's lock held: a thread that it waits for must not need that lock for a hook's sake.
#[test]
fn threads_that_a_constructor_waits_for_do_not_wait_for_the_loader() {
    let program = compile("early", &["tests/c/early.c"], &["-O2"]);
    let library = compile("early.so", &["tests/c/early.c"], &["-O2", "-DLIBRARY", "-shared", "-fPIC"]);
    let mappings = on_node_0(Rules::default());
    let mut command = Command::new(&program);
    mappings.apply(command.arg(&library));
    assert_eq!(must(&mut command).trim(), "loaded");
}

#[test]
fn without_a_pattern_data_files_are_left() {
    let program = compile("mapped-default", &["tests/c/mapped.c"], &["-O2"]);
    let data = scratch().join("default-data");
    fs::write(&data, vec![7; 1 << 20]).expect("data");
    let mappings = on_node_0(Rules::default());
    let mut command = Command::new(&program);
    mappings.apply(command.arg(&data));
    must(&mut command);
    let summary = mappings.summary().expect("summary");
    assert_eq!(count(&summary, Action::Replaced, &data), 0, "{summary}");
    assert!(summary.events.iter().any(|event| event.action == Action::Replaced), "{summary}");
}

#[test]
fn a_write_collapses_the_copies_of_all_processes() {
    let program = compile("guarded", &["tests/c/guarded.c"], &["-O2"]);
    for how in ["write", "mprotect", "none"] {
        let shared = scratch().join(format!("shared-{how}"));
        fs::write(&shared, vec![0; 1 << 20]).expect("shared");
        let pattern = shared.to_str().map(str::to_owned);
        let mappings = on_node_0(Rules { shared: pattern, ..Rules::default() });
        let mut command = Command::new(&program);
        mappings.apply(command.arg(&shared).args(["4", how]));
        let said = must(&mut command);
        assert!(said.ends_with("guarded ok read 0\n"), "{said}");
        let (before, after) = (said.matches("before").count(), said.matches("after").count());
        assert_eq!((before, after), (5, 4), "{said}");
        let in_copies = |when: &str| {
            said.lines()
                .filter(|line| line.contains(when) && line.contains("shared-") && line.contains(".node0"))
                .count()
        };
        assert_eq!(in_copies(" before "), 5, "{said}");
        assert_eq!(in_copies(" after "), if how == "none" { 4 } else { 0 }, "{how}: {said}");
        let summary = mappings.summary().expect("summary");
        assert_eq!(count(&summary, Action::Replaced, &shared), 5, "{summary}");
        assert_eq!(count(&summary, Action::Collapsed, &shared), usize::from(how != "none"), "{how}: {summary}");
    }
}

#[test]
fn handlers_of_the_program_are_kept() {
    let library = compile("libearly.so", &["tests/c/handlers.c"], &["-O2", "-DLIBRARY", "-shared", "-fPIC"]);
    let library = library.to_str().expect("UTF-8");
    // The library's path, since its name has no soname to be found by.
    let program = compile("handlers", &["tests/c/handlers.c", library], &["-O2"]);
    let pattern = scratch().join("shared-handlers-*");
    let mappings = on_node_0(Rules { shared: pattern.to_str().map(str::to_owned), ..Rules::default() });
    // A file for each kind: what was collapsed stays so.
    let file_of = |kind: &str| scratch().join(format!("shared-handlers-{kind}"));
    let outcome = |kind: &str, mappings: Option<&Mappings>| {
        let shared = file_of(kind);
        fs::write(&shared, vec![0; 1 << 20]).expect("shared");
        let mut command = Command::new(&program);
        command.arg(&shared).arg(kind);
        if let Some(mappings) = mappings {
            mappings.apply(&mut command);
        }
        let output = run(&mut command);
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status)
    };
    // The three rows after the first write while the signals of faults would be blocked, and were ended by the first write. In the next one the kernel writes.
    // The last but one has faults of the program's own in its handler. In the last one that handler took the place of ours.
    let kinds = [
        ["own", "default", "ignored", "sent", "bus", "threads"].as_slice(),
        &["blocked", "inherited", "masked"],
        &["sigsuspend", "ppoll", "pselect", "epoll_pwait", "sigpause", "__ppoll_chk", "epoll_pwait2"],
        &[
            "nested",
            "sigsetmask",
            "sigblock",
            "sighold",
            "setcontext",
            "swapcontext",
            "attribute",
            "early",
            "timer",
            "timers",
            "spawned",
        ],
        &["read", "pread", "readv", "preadv", "recv", "recvfrom", "recvmsg", "fread"],
        &["again", "unblocked", "released", "left", "others"],
        &["__sysv_signal", "sigset", "bsd_signal", "ssignal"],
    ];
    for kind in kinds.concat() {
        assert_eq!(outcome(kind, Some(&mappings)), outcome(kind, None), "{kind}");
        assert_eq!(count(&mappings.summary().expect("summary"), Action::Collapsed, &file_of(kind)), 1, "{kind}");
    }
    assert_eq!(outcome("own", Some(&mappings)).0, "written 7\nown handler\n");
    assert_eq!(outcome("masked", Some(&mappings)).0, "written 7\n");
    assert_eq!(outcome("sigsuspend", Some(&mappings)).0, "written 7\n");
    assert_eq!(outcome("nested", Some(&mappings)).0, "own handler\n");
    assert_eq!(outcome("again", Some(&mappings)).0, "written 7\nagain\n");
    assert_eq!(outcome("left", Some(&mappings)).0, "written 7\nleft\nleft\nleft\n");
    assert_eq!(outcome("__sysv_signal", Some(&mappings)).0, "written 7\nown handler\n");
}

/// A copy that is left as it is would show other processes what was there before the write.
#[test]
fn a_program_that_can_open_no_file_collapses_its_copies() {
    let library = compile("libnofiles.so", &["tests/c/handlers.c"], &["-O2", "-DLIBRARY", "-shared", "-fPIC"]);
    let program = compile("nofiles", &["tests/c/handlers.c", library.to_str().expect("UTF-8")], &["-O2"]);
    let shared = scratch().join("shared-nofiles");
    fs::write(&shared, vec![0; 1 << 20]).expect("shared");
    let mappings = on_node_0(Rules { shared: shared.to_str().map(str::to_owned), ..Rules::default() });
    let mut command = Command::new(&program);
    mappings.apply(command.arg(&shared).arg("descriptors"));
    assert_eq!(must(&mut command), "limit 64\nwritten 7\n");
    let copies: Vec<u64> = fs::read_dir(mappings.folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry"))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("shared-"))
        .map(|entry| entry.metadata().expect("its size").len())
        .collect();
    assert_eq!(copies, [0]);
}

#[test]
fn everyday_programs_do_not_notice() {
    let source = scratch().join("small.c");
    fs::write(&source, "#include <stdio.h>\nint main(void) { puts(\"small\"); return 0; }\n").expect("source");
    let script = format!(
        "cd {}; gcc -O2 -o small small.c && ./small; python3 -c 'import json, subprocess; print(json.dumps([1, 2])); \
         print(subprocess.run([\"sort\"], input=\"b\\na\\n\", text=True, capture_output=True).stdout)'; (exec 900>&-; ls /proc/self/fd | wc -l); \
         sh -c 'kill -SEGV $$'; echo $?",
        scratch().display()
    );
    let shell = |command: &mut Command| {
        let output = run(command.arg("-c").arg(&script));
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status)
    };
    let alone = shell(&mut Command::new("bash"));
    let mappings = on_node_0(Rules { pattern: Some("*".into()), shared: Some("/dev/*".into()), ..Rules::default() });
    let mut command = Command::new("bash");
    mappings.apply(&mut command);
    assert_eq!(shell(&mut command), alone);
    let summary = mappings.summary().expect("summary");
    let processes: std::collections::HashSet<_> = summary.events.iter().map(|event| event.pid).collect();
    assert!(processes.len() >= 5, "{summary}");
}

#[test]
fn on_a_machine_with_one_node_nothing_happens_unless_a_node_is_named() {
    if Path::new("/sys/devices/system/node/node1").exists() {
        numapilot_not_run::not_run!(OneNode, "this machine has several nodes");
        return;
    }
    let mappings = Mappings::prepare(Rules::default()).expect("a folder for copies");
    let mut command = Command::new("cat");
    mappings.apply(command.arg("/proc/self/maps"));
    let maps = must(&mut command);
    assert!(!maps.contains(".node"), "{maps}");
    assert!(mappings.summary().expect("summary").events.is_empty());
}

#[test]
fn the_preload_library_needs_no_dynamic_thread_storage() {
    let path = scratch().join("remap-read.so");
    fs::write(&path, LIBRARY).expect("library");
    let relocations = must(Command::new("readelf").arg("-rW").arg(&path));
    assert!(!relocations.contains("DTPMOD") && !relocations.contains("TLSDESC"), "{relocations}");
    let needed = must(Command::new("readelf").arg("-dW").arg(&path));
    let libraries: Vec<&str> = needed.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(
        libraries
            .iter()
            .all(|line| line.contains("libc.so") || line.contains("libdl.so") || line.contains("libpthread")),
        "{libraries:?}"
    );
}
