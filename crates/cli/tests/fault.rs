//! Engine `fault` on this machine's kernel: a program touches known pages from known lines and threads, and the recording must show them. If the
//! kernel allows no page-fault events (a container's seccomp profile, say), the tests are reported as not run.

use std::fs;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use crate::common::*;
use numapilot_scratch::copy_program;
use serde_json::Value;

const SOURCE: &str = include_str!("programs/touch.c");
/// Rings with room for all of the program's faults: on a busy machine the recorder may have no CPU for as long as the program runs.
const ROOMY: [&str; 4] = ["--ring-size", "4096", "--max-threads", "64"];

/// Line of the source with a mark.
fn line(mark: &str) -> u64 {
    let wanted = format!("LINE {mark} */");
    1 + SOURCE.lines().position(|line| line.contains(&wanted)).expect("the mark") as u64
}

fn program(folder: &Path, flags: &[&str]) -> PathBuf {
    build_plain(folder, "touch", SOURCE, flags)
}

/// Whether a recording failed because page-fault events are not available here.
fn has_no_events(ran: &Ran) -> bool {
    let is_so = ran.code != 0 && ran.stderr.contains("event page-faults");
    if is_so {
        numapilot_not_run::not_run!(PageFaultEvents, "{}", ran.stderr);
    }
    is_so
}

/// Records with `options` and a command; the program's output, or `None` if page-fault events are not available.
fn record(folder: &Path, options: &[&str], command: &[&str]) -> Option<Ran> {
    let trace = folder.join("t.numatrace");
    let mut all = vec!["record", "--engine", "fault", "-o", trace.to_str().expect("a path")];
    all.extend_from_slice(options);
    all.push("--");
    all.extend_from_slice(command);
    let ran = run(&all);
    if has_no_events(&ran) { None } else { Some(ran.succeeded()) }
}

fn report(folder: &Path) -> Value {
    let trace = folder.join("t.numatrace");
    let ran = run(&["report", "--json", "--threads", trace.to_str().expect("a path")]).succeeded();
    serde_json::from_str(&ran.stdout).expect("JSON")
}

/// Sites that were touched first at a line: (name, thread's tid, pages from that line by that thread).
fn touched_at(report: &Value, line: u64) -> Vec<(String, u64, u64)> {
    let threads = report["threads"].as_array().expect("threads");
    let tid = |index: &Value| {
        threads.iter().find(|row| row["thread"] == *index).map_or(0, |row| row["tid"].as_u64().expect("tid"))
    };
    let mut out = Vec::new();
    for site in report["page_faults"]["sites"].as_array().expect("sites") {
        for row in site["lines"].as_array().expect("lines") {
            let file = row["file"].as_str().expect("file");
            if row["line"] == line && file.ends_with("touch.c") {
                let name = site["name"].as_str().expect("name").to_owned();
                out.push((name, tid(&row["thread"]), row["pages"].as_u64().expect("pages")));
            }
        }
    }
    out
}

/// What the program says that it did is what the report shows.
fn shows_every_first_touch(ran: &Ran, folder: &Path) {
    let truth: Value = serde_json::from_str(&ran.stdout).expect("the program's word");
    let report = report(folder);
    let number = |name: &str| truth[name].as_u64().expect("a number");
    assert_eq!(touched_at(&report, line("first")), [("heap".to_owned(), number("first"), 99)]);
    assert_eq!(touched_at(&report, line("second")), [("heap".to_owned(), number("second"), 200)]);
    assert_eq!(touched_at(&report, line("statics")), [("statics".to_owned(), number("main"), 64)]);
    // The kernel's own count, and what it says is in memory.
    assert_eq!((number("mapped_faults"), number("mapped_resident")), (500, 500));
    assert_eq!(touched_at(&report, line("mapped")), [("mapped".to_owned(), number("main"), 500)]);
    let blocks = touched_at(&report, line("block"));
    assert_eq!(blocks, [("block".to_owned(), number("main"), number("block_faults"))]);
    assert_eq!(report["recording"]["losses"]["ring_full"].as_u64(), Some(0));
    let names = report["sites"].as_array().expect("sites").iter().map(|site| &site["place"]);
    let own: Vec<&Value> =
        names.filter(|place| place.as_str().is_some_and(|at| at.contains("libnumapilot-"))).collect();
    assert!(own.is_empty(), "numapilot's memory is shown as the program's: {own:?}");
}

#[test]
fn every_first_touch_has_its_object_its_thread_and_its_line() {
    let folder = scratch();
    let program = program(folder.path(), &[]);
    let Some(ran) = record(folder.path(), &ROOMY, &[program.to_str().expect("a path")]) else { return };
    shows_every_first_touch(&ran, folder.path());
}

/// Starts a program as shells, make and Python do: the child is no image of its own that the tracker would see.
const LAUNCHER: &str = "
#include <spawn.h>
#include <sys/wait.h>
extern char **environ;
int main(int count, char **words) {
    pid_t child;
    int status;
    if (count < 2 || posix_spawn(&child, words[1], NULL, NULL, words + 1, environ)) return 9;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 9;
}
";

#[test]
fn a_program_that_another_starts_is_recorded_as_if_it_were_the_first() {
    let folder = scratch();
    let program = program(folder.path(), &[]);
    let launcher = build_plain(folder.path(), "launcher", LAUNCHER, &[]);
    let command = [launcher.to_str().expect("a path"), program.to_str().expect("a path")];
    let Some(ran) = record(folder.path(), &ROOMY, &command) else { return };
    shows_every_first_touch(&ran, folder.path());
    let report = report(folder.path());
    let threads = report["threads"].as_array().expect("threads");
    let mut seen: Vec<_> = threads.iter().map(|row| (row["process"].as_u64(), row["tid"].as_u64())).collect();
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() == count && seen.iter().all(|(process, tid)| process.is_some() && tid.is_some()), "{threads:?}");
}

/// Fills a block by the C library, which is the program's doing. A leaf function without a frame hides its caller from the kernel, so either of two
/// functions is right.
const FILL: &str = "
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void fill_block(char *b, size_t n) { memset(b, 1, n); __asm__ volatile(\"\" ::: \"memory\"); }
__attribute__((noinline)) void work(void) {
    char *b = malloc(300 * 4096);
    fill_block(b, 300 * 4096);
    __asm__ volatile(\"\" :: \"r\"(b) : \"memory\");
}
int main(void) { work(); return 0; }
";

#[test]
fn what_the_c_library_touches_is_its_callers_doing_with_and_without_lines() {
    for (flag, has_lines) in [("-g", true), ("-g0", false)] {
        let folder = scratch();
        let program = build_plain(folder.path(), "fill", FILL, &[flag, "-fno-omit-frame-pointer"]);
        let Some(_) = record(folder.path(), &[], &[program.to_str().expect("a path")]) else { return };
        let report = report(folder.path());
        let sites = report["page_faults"]["sites"].as_array().expect("sites");
        let rows = sites.iter().flat_map(|site| site["lines"].as_array().expect("lines"));
        let of_block: Vec<&Value> = rows.filter(|row| row["pages"].as_u64() >= Some(299)).collect();
        let [row] = of_block.as_slice() else { panic!("{flag}: {of_block:?}") };
        assert!(["fill_block", "work"].contains(&row["function"].as_str().expect("a name")), "{flag}: {row}");
        let source = (row["file"].as_str().map(|file| file.ends_with("fill.c")), row["line"].as_u64() > Some(0));
        assert_eq!(source, (Some(has_lines), has_lines), "{flag}: {row}");
    }
}

#[test]
fn the_text_says_what_the_evidence_carries() {
    let folder = scratch();
    let program = program(folder.path(), &[]);
    if record(folder.path(), &["-q"], &[program.to_str().expect("a path")]).is_none() {
        return;
    }
    let trace = folder.path().join("t.numatrace");
    let text = run(&["report", trace.to_str().expect("a path"), "--width", "140"]).succeeded().stdout;
    for needed in ["Touched first", "page faults are the evidence here", "OBJECTS BY PAGES", "touch.c:"] {
        assert!(text.contains(needed), "no `{needed}` in\n{text}");
    }
    assert!(!text.contains("memory accesses ("), "faults are no memory accesses:\n{text}");
}

#[test]
fn what_the_kernels_ring_had_no_room_for_is_counted_and_shown() {
    const PAGES: u64 = 20_000;
    let folder = scratch();
    let program = program(folder.path(), &[]);
    let command = [program.to_str().expect("a path"), "storm", &PAGES.to_string()];
    let Some(ran) = record(folder.path(), &["--ring-size", "64"], &command) else { return };
    assert!(ran.stderr.contains("records were lost because rings were full"), "{}", ran.stderr);
    let report = report(folder.path());
    let lost = report["recording"]["losses"]["ring_full"].as_u64().expect("a count");
    let seen: u64 = touched_storm(&report);
    assert!(lost > PAGES / 2 && lost + seen >= PAGES, "{lost} lost, {seen} seen of {PAGES}");
    let trace = folder.path().join("t.numatrace");
    let text = run(&["report", trace.to_str().expect("a path")]).succeeded().stdout;
    assert!(text.contains(&format!("{lost} records were dropped because a ring stayed full")), "{text}");
}

fn touched_storm(report: &Value) -> u64 {
    report["page_faults"]["first_touches"].as_u64().expect("a count")
}

#[test]
fn a_static_program_is_recorded_by_the_kernel_alone() {
    let folder = scratch();
    let program = program(folder.path(), &["-static"]);
    let Some(ran) = record(folder.path(), &[], &[program.to_str().expect("a path")]) else { return };
    assert!(ran.stderr.contains("statically linked") && ran.stderr.contains("heap blocks are not"), "{}", ran.stderr);
    let report = report(folder.path());
    let truth: Value = serde_json::from_str(&ran.stdout).expect("the program's word");
    assert_eq!(
        touched_at(&report, line("statics")),
        [("statics".to_owned(), truth["main"].as_u64().expect("tid"), 64)]
    );
    let mapped: u64 = touched_at(&report, line("mapped")).iter().map(|(_, _, pages)| pages).sum();
    assert_eq!(mapped, 500);
}

/// Records a program that runs already, which says a word when it is ready and goes on after a line; its process id and what the recorder said.
fn attached(folder: &Path, command: &mut Command) -> Option<(String, Ran)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("its output")).read_line(&mut ready).expect("its word");
    let trace = folder.join("t.numatrace");
    let pid = child.id().to_string();
    let mut recorder = numapilot(&["record", "--pid", &pid, "--for", "60s", "-o", trace.to_str().expect("a path")])
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    // It records once its second chunk is there: the first is the session's start, that one holds the process's mappings.
    let chunks = || fs::read(trace.join("raw/00000.chunks")).unwrap_or_default();
    let mut waited = 0;
    while chunks().windows(4).filter(|bytes| bytes == b"NPCK").count() < 2
        && recorder.try_wait().expect("its state").is_none()
    {
        std::thread::sleep(std::time::Duration::from_millis(20));
        waited += 1;
        assert!(waited < 2500, "the recorder does not begin");
    }
    child.stdin.take().expect("its input").write_all(b"go\n").expect("it listens");
    child.wait().expect("it ends");
    let output = recorder.wait_with_output().expect("the recorder ends with the program");
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::new(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    if has_no_events(&ran) { None } else { Some((pid, ran.succeeded())) }
}

#[test]
fn a_running_program_is_recorded_without_a_restart() {
    let folder = scratch();
    let program = program(folder.path(), &[]);
    let Some((pid, ran)) = attached(folder.path(), Command::new(&program).arg("wait")) else { return };
    assert!(ran.stderr.contains("attached to 1 process "), "{}", ran.stderr);
    let report = report(folder.path());
    let after: Vec<_> = touched_at(&report, line("after"));
    assert_eq!(after.iter().map(|(_, tid, pages)| (tid.to_string(), *pages)).collect::<Vec<_>>(), [(pid, 300)]);
    assert!(report["page_faults"]["found"].as_u64().expect("a count") >= 200);
}

/// Each page of shared memory is one page, whichever process faults on it.
#[test]
fn shared_memory_of_running_processes_is_one_object_with_a_first_touch_for_each_page() {
    let folder = scratch();
    let program = build(folder.path(), "shared", "cc", include_str!("programs/shared.c"), &["-g", "-O1"]);
    let Some((_, ran)) = attached(folder.path(), &mut Command::new(&program)) else { return };
    assert!(ran.stderr.contains("attached to 3 processes"), "{}", ran.stderr);
    let faults = &report(folder.path())["page_faults"];
    let sites = faults["sites"].as_array().expect("sites");
    let of = |name: &str| {
        let site = sites.iter().find(|site| site["name"] == *name).unwrap_or_else(|| panic!("{name}: {faults:#}"));
        let later: u64 = site["later_from"].as_array().expect("counts").iter().filter_map(Value::as_u64).sum();
        let touchers = site["lines"].as_array().expect("lines").len();
        (site["pages"].as_u64().expect("a count"), later, touchers)
    };
    // Both children fault on all 24 pages, and nobody knows that 16 of them are new. Those of the other are new, and the third child's.
    assert_eq!(of("anonymous shared memory"), (0, 48, 0));
    assert_eq!(of("anonymous shared memory 2"), (16, 16, 1));
    assert_eq!(faults["shared_before"], 16);
    let count = |name: &str| faults[name].as_u64().expect("a count");
    assert_eq!(
        count("faults"),
        count("first_faults") + count("later") + count("shared_before") + count("present") + count("on_files"),
        "no fault is left out: {faults:#}"
    );
}

/// A command of the binary under test as user nobody; `None` where this test may not become that user.
fn as_nobody(folder: &Path, arguments: &[&str]) -> Option<Command> {
    // SAFETY: a plain getter.
    if !Path::new("/usr/bin/setpriv").exists()
        || fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) != 0)
    {
        numapilot_not_run::not_run!(Root, "only root can become another user");
        return None;
    }
    finish(Command::new("chown").arg("65534:65534").arg(folder)).succeeded();
    // Where the build lies, other users may not come.
    let binary = folder.join("numapilot");
    if !binary.exists() {
        copy_program(Path::new(BINARY), &binary);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary).args(arguments);
    command.env("XDG_CACHE_HOME", folder.join("cache")).env("HOME", folder).current_dir(folder);
    Some(command)
}

#[test]
fn a_user_without_rights_records_its_own_programs_and_no_others() {
    let folder = tempfile::Builder::new().prefix("cli-nobody-").tempdir().expect("a temporary folder");
    finish(Command::new("chmod").arg("755").arg(folder.path())).succeeded();
    let program = program(folder.path(), &[]);
    let trace = folder.path().join("t.numatrace");
    let arguments =
        ["record", "--engine", "fault", "-o", trace.to_str().expect("a path"), "--", program.to_str().expect("a path")];
    let Some(mut command) = as_nobody(folder.path(), &arguments) else { return };
    let ran = finish(&mut command);
    if has_no_events(&ran) {
        return;
    }
    let ran = ran.succeeded();
    let truth: Value = serde_json::from_str(&ran.stdout).expect("the program's word");
    let report = report(folder.path());
    assert_eq!(touched_at(&report, line("mapped")), [("mapped".to_owned(), truth["main"].as_u64().expect("tid"), 500)]);
    let Some(mut command) = as_nobody(folder.path(), &["record", "--system", "--for", "1s"]) else { return };
    let ran = finish(&mut command);
    if fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .is_ok_and(|level| level.trim().parse::<i32>().is_ok_and(|level| level > 0))
    {
        assert!(ran.code != 0 && ran.stderr.to_lowercase().contains("perfmon"), "{}", ran.stderr);
    }
    let Some(mut command) = as_nobody(folder.path(), &["record", "--pid", "1", "--no-children", "--for", "1s"]) else {
        return;
    };
    let ran = finish(&mut command);
    assert!(ran.code != 0 && ran.stderr.contains("access to these processes is denied"), "{}", ran.stderr);
}
