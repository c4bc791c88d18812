//! The lab itself: what comes back from a guest, what happens when one hangs or dies, and that many can run at once.
//! Each test says how it ran.

use std::fs;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use crate::common::shell;
use numapilot_lab::Accelerator;
use numapilot_lab::Kernel;
use numapilot_lab::Lab;
use numapilot_lab::LabError;
use numapilot_lab::Topology;
use numapilot_lab::compile_pattern;
use serde_json::Value;

fn lab() -> Lab {
    Lab::new(Topology::symmetric(4))
}

#[test]
fn output_files_and_exit_code_come_back_and_the_host_is_left_alone() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let elsewhere = tempfile::tempdir().expect("another folder");
    fs::write(folder.path().join("in"), "from the host").expect("written");
    let script = "cat in; echo to stderr >&2; echo from the guest > out; echo lost > \"$1/lost\" && cat \"$1/lost\"; \
                  echo given > $NUMAPILOT_LAB_FILES/given; echo \"$WORD\"; exit 7";
    let mut command = shell(script);
    command.arg("sh").arg(elsewhere.path()).env("WORD", "it's").current_dir(folder.path());
    let outcome = lab().run(&command).expect("a guest");
    eprintln!("{}", outcome.how);
    assert_eq!(outcome.exit, 7, "{outcome:?}");
    assert_eq!(outcome.stdout, "from the hostlost\nit's\n");
    assert_eq!(outcome.stderr, "to stderr\n");
    assert_eq!(fs::read_to_string(folder.path().join("out")).expect("written by the guest"), "from the guest\n");
    assert_eq!(fs::read_to_string(outcome.files().join("given")).expect("given by the guest"), "given\n");
    assert!(!elsewhere.path().join("lost").exists(), "the guest wrote to the host outside its working folder");
}

#[test]
fn a_killed_command_and_one_that_does_not_exist_have_the_shells_exit_codes() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let outcome =
        lab().run(&shell("sh -c 'kill -SEGV $$'; echo $?; /no/such/program; echo $?; kill -KILL $$")).expect("a guest");
    eprintln!("{}", outcome.how);
    assert_eq!(outcome.stdout, "139\n127\n");
    assert_eq!(outcome.exit, 137);
}

#[test]
fn a_hang_is_ended_and_shown() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let started = Instant::now();
    let result = lab().time_limit(Duration::from_secs(10)).run(&shell("echo working on it >&2; sleep 1000"));
    let Err(LabError::Hung { limit, how, stderr, console, .. }) = result else { panic!("not ended: {result:?}") };
    eprintln!("{how}; ended after {:.1} s", started.elapsed().as_secs_f64());
    assert_eq!(limit, Duration::from_secs(10));
    assert!(stderr.contains("working on it"), "{stderr}");
    assert!(console.contains("numapilot-lab: running"), "{console}");
}

/// The kernel's own word, written to its log by the command: a CPU that truly stands still cannot be had for the asking.
const STANDS_STILL: &str =
    "echo '<0>watchdog: BUG: soft lockup - CPU#1 stuck for 398s! [sh:9]' > /dev/kmsg; sleep 1000";

#[test]
fn a_command_whose_guest_stands_still_runs_again_in_another() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = shell(&format!("[ -e again ] || {{ touch again; {STANDS_STILL}; }}; echo done"));
    command.current_dir(folder.path());
    let outcome = lab().run(&command).expect("a guest").expect_success();
    eprintln!("{}", outcome.how);
    assert_eq!(outcome.stdout, "done\n");
    assert!(outcome.how.ends_with("guests before it that a defect of the emulator ended: 1"), "{}", outcome.how);

    let result = lab().run(&shell(&format!("echo working on it >&2; {STANDS_STILL}")));
    let Err(LabError::Stuck { cpu: 1, seconds: 398, stderr, .. }) = result else { panic!("not given up: {result:?}") };
    assert!(stderr.contains("working on it"), "{stderr}");
}

/// The kernel's own report, written to its log by the command, before the guest dies as it does after such a report.
const OLD_CODE: &str = "printf '<0>Oops: int3: 0000 [#1] PREEMPT SMP NOPTI\\n' > /dev/kmsg; printf '<0>RIP: 0010:__schedule+0x3fd/0xbf0\\n' > /dev/kmsg; \
    printf '<0>Code: 01 0f <1f> 44 00 00\\n' > /dev/kmsg; echo c > /proc/sysrq-trigger";

#[test]
fn a_command_whose_guest_executed_old_code_runs_again_in_another() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = shell(&format!("[ -e again ] || {{ touch again; {OLD_CODE}; }}; echo done"));
    command.current_dir(folder.path());
    // Under KVM such a report is the kernel's own business.
    let outcome = lab().accelerator(Accelerator::Emulated).run(&command).expect("a guest").expect_success();
    eprintln!("{}", outcome.how);
    assert_eq!(outcome.stdout, "done\n");
    assert!(outcome.how.ends_with("guests before it that a defect of the emulator ended: 1"), "{}", outcome.how);
}

#[test]
fn a_guest_that_dies_tells_why() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let result = lab().run(&shell("echo c > /proc/sysrq-trigger"));
    let Err(LabError::Died { console, how }) = result else { panic!("no death: {result:?}") };
    eprintln!("{how}");
    assert!(console.contains("sysrq triggered crash"), "{console}");
}

#[test]
fn guests_run_side_by_side() {
    if !numapilot_lab::wanted("the lab's own test") {
        return;
    }
    let guests: Vec<_> =
        (0..3u8).map(|i| thread::spawn(move || lab().run(&shell(&format!("echo guest {i}; exit {i}"))))).collect();
    for (i, guest) in guests.into_iter().enumerate() {
        let outcome = guest.join().expect("no panic").expect("a guest");
        eprintln!("{}", outcome.how);
        assert_eq!(outcome.exit, i32::try_from(i).expect("small"));
        assert_eq!(outcome.stdout, format!("guest {i}\n"));
    }
}

/// Pages of each block by node, at the end of a run of the pattern.
fn last_placement(text: &str) -> Vec<(String, Vec<u64>)> {
    let truth: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e} in {text}"));
    let last = truth["placement"].as_array().and_then(|p| p.last()).expect("a placement");
    let blocks = last["blocks"].as_array().expect("blocks");
    blocks
        .iter()
        .map(|block| {
            let pages = block["pages_on_node"].as_array().expect("nodes").iter().filter_map(Value::as_u64).collect();
            (block["block"].as_str().expect("a name").to_owned(), pages)
        })
        .collect()
}

#[test]
fn pages_are_where_they_were_touched_or_moved_to_on_both_kernels() {
    if !numapilot_lab::wanted("placement of pages on a real kernel") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pattern = compile_pattern(folder.path()).expect("compiles");
    for kernel in Kernel::ALL {
        let script = format!(
            "echo 0 > /proc/sys/kernel/numa_balancing; exec {} --passes 2 --block here,mib=2,touch=1,read=0 \
             --block moved,mib=2,touch=0,move=3,read=2 --block each,mib=4,touch=each,read=0+1+2+3,write",
            pattern.display()
        );
        let outcome = lab().kernel(kernel).run(&shell(&script)).expect("a guest").expect_success();
        eprintln!("{}", outcome.how);
        let expected = [
            ("here".to_owned(), vec![0, 512, 0, 0]),
            ("moved".to_owned(), vec![0, 0, 0, 512]),
            ("each".to_owned(), vec![256, 256, 256, 256]),
        ];
        assert_eq!(last_placement(&outcome.stdout), expected, "kernel {kernel}");
    }
}

#[test]
fn with_icount_two_runs_take_the_same_time() {
    if !numapilot_lab::wanted("reproducible runs") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let pattern = compile_pattern(folder.path()).expect("compiles");
    let seconds = || {
        let script = format!("exec {} --passes 20 --block b,mib=4,touch=0,read=1", pattern.display());
        let outcome = lab().icount(true).run(&shell(&script)).expect("a guest").expect_success();
        eprintln!("{}", outcome.how);
        let truth: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
        truth["placement"][1]["seconds"].as_f64().expect("seconds")
    };
    let (first, second) = (seconds(), seconds());
    assert!((first / second - 1.0).abs() < 0.02, "{first} s and {second} s of the guest's time");
}
