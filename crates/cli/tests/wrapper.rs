//! The compiler wrapper under link-time optimisation, under the names of compilers, and in programs of which it compiled a part only.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::common::*;
use numapilot_scratch::write_program;
use numapilot_symbols::Coverage;

const MAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
double sum(const double *p, long n);
void fill(double *p, long n);
int main(void) {
    long n = 1 << 21;
    double *table = malloc(n * sizeof *table), total = 0;
    fill(table, n);
    for (int k = 0; k < 4; k++) total += sum(table, n);
    printf("%g\n", total);
    return 0;
}
"#;
const PART: &str = r#"
double sum(const double *p, long n) { double s = 0; for (long i = 0; i < n; i++) s += p[i]; return s; }
void fill(double *p, long n) { for (long i = 0; i < n; i++) p[i] = i & 7; }
"#;
/// MAIN writes 262,144 cache lines once and reads them four times, which optimisers may merge to one. Caches hold a part of them: 98,304 in the L3.
const SWEPT: f64 = 1.8 * 262_144.0;

/// Accesses that the program made, by its threads' exact counts.
#[track_caller]
fn accesses(program: &Path, folder: &Path) -> f64 {
    let trace = folder.join("t.numatrace");
    record::<&str>(&trace, &["--machine", "opteron-8385"], program, &[]).succeeded();
    number(&report_json(&trace, &[]), "/headline/totals/accesses/value")
}

/// Compiles MAIN and PART apart, links them, and counts the memory accesses of a run.
#[track_caller]
fn apart(compiler: &str, compile: &[&str], link: &[&str]) -> f64 {
    let folder = scratch();
    for (name, source) in [("main", MAIN), ("part", PART)] {
        fs::write(folder.path().join(format!("{name}.c")), source).expect("written");
        let mut command = numapilot(&["cc", "-c"]);
        command.current_dir(folder.path()).env("NUMAPILOT_CC", compiler).arg(format!("{name}.c"));
        finish(command.args(compile)).succeeded();
    }
    let mut command = numapilot(&["cc", "main.o", "part.o", "-o", "program"]);
    finish(command.current_dir(folder.path()).env("NUMAPILOT_CC", compiler).args(link)).succeeded();
    accesses(&folder.path().join("program"), folder.path())
}

#[test]
fn link_time_optimisation_keeps_the_call_outs() {
    let plain = apart("gcc", &["-O2"], &[]);
    assert!(plain > SWEPT, "{plain}");
    let variants: [(&str, &[&str], &[&str]); 8] = [
        ("gcc", &["-O2", "-flto"], &["-O2", "-flto"]),
        ("gcc", &["-O2", "-flto=auto"], &["-O2", "-flto=auto"]),
        ("gcc", &["-O2", "-flto"], &[]),
        ("gcc", &["-O2", "-flto", "-ffat-lto-objects"], &["-O2", "-flto"]),
        ("gcc", &["-O2", "-flto"], &["-O2", "-flto", "-fuse-linker-plugin"]),
        ("gcc", &["-O2", "-flto", "-ffat-lto-objects"], &["-O2", "-flto", "-fno-use-linker-plugin"]),
        ("clang", &["-O2", "-flto"], &["-O2", "-flto"]),
        ("clang", &["-O2", "-flto=thin"], &["-O2", "-flto=thin"]),
    ];
    for (compiler, compile, link) in variants {
        let found = apart(compiler, compile, link);
        assert!(
            found > SWEPT,
            "{compiler} {compile:?}, linked with {link:?}: {found} memory accesses, without optimisation at the link {plain}"
        );
    }
}

/// Parts that are joined by `-r` before the program is linked: the compiler proper runs at the first of these.
#[test]
fn partial_links_keep_the_call_outs() {
    let folder = scratch();
    let run =
        |words: &[&str]| finish(numapilot(words).current_dir(folder.path()).env("NUMAPILOT_CC", "gcc")).succeeded();
    for (name, source) in [("main", MAIN), ("part", PART)] {
        fs::write(folder.path().join(format!("{name}.c")), source).expect("written");
        run(&["cc", "-O2", "-flto", "-c", &format!("{name}.c")]);
    }
    run(&["cc", "-O2", "-flto", "-r", "-flinker-output=nolto-rel", "main.o", "part.o", "-o", "all.o"]);
    run(&["cc", "all.o", "-o", "program"]);
    let found = accesses(&folder.path().join("program"), folder.path());
    assert!(found > SWEPT, "{found}");
}

/// Links that answer for compilers, in a folder of their own; its path.
#[track_caller]
fn links(folder: &Path, option: &str) -> PathBuf {
    let links = folder.join("links");
    finish(numapilot(&["cc", option]).arg(&links)).succeeded();
    links
}

fn path_with(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").expect("PATH"))
}

fn is_instrumented(program: &Path) -> bool {
    let image = fs::read(program).expect("a program");
    image.windows(b"numapilot_callouts".len()).any(|window| window == b"numapilot_callouts")
}

#[test]
fn links_named_after_compilers_instrument() {
    let folder = scratch();
    let path = path_with(&links(folder.path(), "--install-links"));
    fs::write(folder.path().join("a.c"), "int main(void) { return 0; }\n").expect("written");
    fs::write(folder.path().join("a.cpp"), "int main() { return 0; }\n").expect("written");
    for (compiler, file) in
        [("numapilot-gcc", "a.c"), ("numapilot-g++", "a.cpp"), ("numapilot-clang", "a.c"), ("numapilot-cc", "a.c")]
    {
        let mut command = Command::new("sh");
        command
            .current_dir(folder.path())
            .env("PATH", &path)
            .args(["-c", &format!("{compiler} {file} -o p && {compiler} --version")]);
        let version = finish(&mut command).succeeded().stdout;
        assert!(is_instrumented(&folder.path().join("p")), "{compiler}");
        let is_named = version.contains(if compiler.contains("clang") { "clang" } else { "Free Software Foundation" });
        assert!(is_named || compiler.ends_with("cc"), "{compiler}: {version}");
        fs::remove_file(folder.path().join("p")).expect("removed");
    }
}

/// The makefile sets `CC` itself, and its compiler is a script that looks for the compiler on PATH again, as ccache does.
#[test]
fn a_folder_first_on_path_instruments_makefiles_that_set_cc() {
    let folder = scratch();
    let path = path_with(&links(folder.path(), "--install-path"));
    fs::write(folder.path().join("a.c"), "int main(void) { return 0; }\n").expect("written");
    write_program(&folder.path().join("again"), "#!/bin/sh\nexec \"$@\"\n");
    let makefile = "CC = gcc\nCXX = ./again gcc\nall: p q\np: a.c\n\t$(CC) $< -o $@\nq: a.c\n\t$(CXX) $< -o $@\n";
    fs::write(folder.path().join("Makefile"), makefile).expect("written");
    let mut make = Command::new("make");
    make.current_dir(folder.path()).env("PATH", &path).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    finish(&mut make).succeeded();
    assert!(is_instrumented(&folder.path().join("p")) && is_instrumented(&folder.path().join("q")));
}

/// A model that no engine simulates is named as such from the start, and no report takes the host for it.
#[test]
fn a_machine_that_is_not_simulated_is_never_called_real_hardware() {
    let folder = scratch();
    let program = build_plain(folder.path(), "plain", "int main(void) { return 0; }\n", &[]);
    let trace = folder.path().join("t.numatrace");
    let mut command = numapilot(&["record", "--machine", "opteron-8385", "-o"]);
    let ran = finish(command.arg(&trace).arg("--").arg(&program)).succeeded();
    let told = ran.stderr.lines().position(|line| line.contains("does not simulate opteron-8385"));
    let done = ran.stderr.lines().position(|line| line.contains("of program time in"));
    assert!(told.is_some() && told < done, "{}", ran.stderr);
    let text = finish(numapilot(&["report"]).arg(&trace)).succeeded().stdout;
    assert!(!text.contains("real hardware") && text.contains("not simulated"), "{text}");
    assert_eq!(report_json(&trace, &[])["recording"]["origin"], "other-host");
}

/// Works for a second or so in the part that PART compiles, and touches little memory elsewhere.
const BUSY_MAIN: &str = r#"
#include <stdio.h>
#include <stdlib.h>
double work(double *p, long n);
int main(void) {
    double *p = malloc(4096 * sizeof *p);
    for (long i = 0; i < 4096; i++) p[i] = i;
    printf("%g\n", work(p, 4096));
    return 0;
}
"#;
const BUSY_PART: &str = r#"
double work(double *p, long n) {
    double s = 0;
    for (int k = 0; k < 600000; k++) for (long i = 0; i < n; i++) s += p[i];
    return s;
}
"#;

/// A program whose `work` the system's compiler made; recorded.
fn half_instrumented(folder: &Path, with_debug_information: bool) -> PathBuf {
    let debug: &[&str] = if with_debug_information { &["-g"] } else { &[] };
    for (name, source) in [("main", BUSY_MAIN), ("part", BUSY_PART)] {
        fs::write(folder.join(format!("{name}.c")), source).expect("written");
    }
    finish(Command::new("cc").args(["-O1", "-c", "part.c"]).args(debug).current_dir(folder)).succeeded();
    finish(numapilot(&["cc", "-O1", "main.c", "part.o", "-o", "half"]).current_dir(folder)).succeeded();
    if !with_debug_information {
        finish(Command::new("strip").arg("half").current_dir(folder)).succeeded();
    }
    let trace = folder.join("half.numatrace");
    record::<&str>(&trace, &["--machine", "opteron-8385"], &folder.join("half"), &[]).succeeded();
    trace
}

#[test]
fn a_recording_that_saw_too_little_gives_no_verdict() {
    let folder = scratch();
    let trace = half_instrumented(folder.path(), true);
    let shown = trace.to_str().expect("UTF-8");
    let text = run(&["report", shown]).succeeded().stdout;
    let first = text.lines().next().expect("a line");
    assert!(first.starts_with("Nothing can be judged: "), "{first}");
    assert!(text.contains("part.c") && !text.contains("Nothing to fix"), "{text}");
    let report = report_json(&trace, &[]);
    assert_eq!(report["headline"]["verdict"], "blind");
    assert!(report["headline"]["totals"]["remote_share"].is_null() && report["findings"]["nothing"] == "blind");
    assert!(report["findings"]["findings"].as_array().expect("a list").is_empty());
    let commands: [&[&str]; 5] = [
        &["check", "--max-remote", "100%", "--trace", shown],
        &["compare", shown, shown],
        &["whatif", shown, "--set", "p=interleave"],
        &["simulate", shown],
        &["report", shown, "--plan", "-"],
    ];
    for command in commands {
        let ran = run(command);
        assert!(
            ran.code != 0 && ran.stderr.contains("Nothing can be judged"),
            "{command:?}: {}\n{}",
            ran.code,
            ran.stderr
        );
    }
    let page = run(&["report", shown, "--html", "-"]).succeeded().stdout;
    assert!(page.contains("Nothing can be judged") && !page.contains("Nothing to fix"));
}

/// Whether a program is instrumented is asked of its file, which test runners remove. Its accesses answer, too.
#[test]
fn a_program_that_is_gone_when_the_recording_ends_is_judged_by_its_accesses() {
    let folder = scratch();
    let source = "static volatile char table[1 << 24];\nint main(void) { for (long i = 0; i < 1 << 24; i += 64) table[i] = 1; return 0; }\n";
    build(folder.path(), "kept", "cc", source, &[]);
    let trace = folder.path().join("t.numatrace");
    let script = format!("cd {} && cp kept gone && ./gone && rm gone", folder.path().display());
    let options = ["--machine", "opteron-8385", "--engine", "instrument"];
    record(&trace, &options, Path::new("/bin/sh"), &["-c", &script]).succeeded();
    let report = report_json(&trace, &[]);
    assert!(report["headline"]["blindness"].is_null(), "{}", report["headline"]);
    assert!(number(&report, "/headline/totals/accesses/value") > 200_000.0, "{}", report["headline"]);
}

/// Neither debug information nor a symbol table is needed to tell instrumented code from other code.
#[test]
fn the_share_of_instrumented_code_is_told_of_stripped_programs_too() {
    for with_debug_information in [true, false] {
        let folder = scratch();
        let report = report_json(&half_instrumented(folder.path(), with_debug_information), &[]);
        let module = &report["instrumentation"]["modules"][0];
        assert!(module["path"].as_str().expect("a path").ends_with("/half"), "{module}");
        let share = number(module, "/instrumented_bytes") / number(module, "/code_bytes");
        assert!((0.5..0.9).contains(&share), "{with_debug_information}: {module}");
        let clause = report["recording"]["instrumented"][0].as_str().expect("a clause").to_owned();
        assert!(
            clause.contains("% of half (not: ") && (!with_debug_information || clause.contains("part.c")),
            "{clause}"
        );
    }
}

/// Share of a binary's code that is instrumented.
#[track_caller]
fn share(binary: &Path) -> f64 {
    let found = Coverage::read(binary.to_str().expect("UTF-8"), &[]).expect("a binary");
    assert!(found.has_archive && found.code_bytes > 0, "{}: {found:?}", binary.display());
    found.instrumented_bytes as f64 / found.code_bytes as f64
}

/// PART's user, all of whose functions touch memory: of a stripped program those that touch none cannot be told from code without instrumentation.
const KEEPING_MAIN: &str = r#"
#include <stdio.h>
double sum(const double *p, long n);
void fill(double *p, long n);
double table[4096];
volatile double kept;
int main(void) {
    fill(table, 4096);
    kept = sum(table, 4096);
    printf("%g\n", kept);
    return 0;
}
"#;

/// The call-outs' own code belongs to no part, with or without symbol names, however the program or the library was linked.
#[test]
fn stripping_does_not_change_the_share_of_instrumented_code() {
    let folder = scratch();
    for (name, source) in [("main", KEEPING_MAIN), ("part", PART)] {
        fs::write(folder.path().join(format!("{name}.c")), source).expect("written");
    }
    fs::write(folder.path().join("hiding.map"), "{ global: sum; fill; local: *; };\n").expect("written");
    let shell = |compiler: &str, script: &str| {
        let script = format!("set -e; np() {{ '{BINARY}' cc \"$@\"; }}; {script}");
        let mut command = Command::new("sh");
        finish(command.args(["-c", &script]).current_dir(folder.path()).env("NUMAPILOT_CC", compiler)).succeeded();
    };
    let links = [
        "np -O2 main.c part.c -o x",
        "np -O2 -flto main.c part.c -o x",
        "np -O2 -ffunction-sections main.c part.c -Wl,--gc-sections -o x",
        "np -O2 -c part.c && rm -f part.a && ar rc part.a part.o && np -O2 main.c part.a -o x",
        "np -O2 -c part.c main.c && np -r part.o main.o -o all.o && np all.o -o x",
        "np -O2 -shared -fPIC part.c -o x",
        "np -O2 -shared -fPIC part.c -Wl,--version-script=hiding.map -o x",
    ];
    for (compiler, link) in ["gcc", "clang"].iter().flat_map(|compiler| links.map(|link| (compiler, link))) {
        shell(compiler, link);
        let whole = share(&folder.path().join("x"));
        shell(compiler, "strip -s x -o stripped");
        let stripped = share(&folder.path().join("stripped"));
        assert!(whole > 0.98 && stripped > 0.98, "{compiler}, {link}: {whole}, stripped {stripped}");
    }
    // As wrappers linked them before these sections had names: the call-outs are told by the names of their functions.
    shell("gcc", links[0]);
    shell("gcc", "objcopy --rename-section np_callouts_text=.t --rename-section np_callouts_wrapped=.w x older");
    let older = share(&folder.path().join("older"));
    assert!(older > 0.98, "{older}");
}

/// All of it is instrumented: that it computes in registers is no reason to distrust the recording.
#[test]
fn a_program_that_computes_in_registers_is_not_called_blind() {
    let folder = scratch();
    let source = "#include <math.h>\nint main(int c, char **v) { double s = c; for (long i = 0; i < 200000000; i++) s = s * 0.5 + i; return s < 0; }\n";
    let program = build(folder.path(), "registers", "cc", source, &["-lm"]);
    let trace = folder.path().join("t.numatrace");
    record::<&str>(&trace, &["--machine", "opteron-8385"], &program, &[]).succeeded();
    let report = report_json(&trace, &[]);
    assert_eq!(report["headline"]["verdict"], "nothing-seen", "{}", report["instrumentation"]);
    assert!(number(&report, "/instrumentation/user_ns") > 1e8, "{}", report["instrumentation"]);
    assert!(report["headline"]["blindness"].is_null());
}

/// What stops the wrapper stops the compiler, because they are one process; the compiler's death by a signal is the wrapper's.
#[test]
fn the_compiler_takes_the_wrappers_place() {
    let folder = scratch();
    let compiler = folder.path().join("my-gcc");
    write_program(&compiler, "#!/bin/sh\n[ \"$1\" = -dumpversion ] && exec echo 12\nkill -9 $$\n");
    let ran = finish(numapilot(&["cc", "-c", "a.c"]).env("NUMAPILOT_CC", &compiler));
    assert_eq!(ran.code, -1, "{}", ran.stderr);
}

/// A compiler cache first on PATH starts the wrapper behind it, which skips its own links and finds the cache again: this must end with an error message.
#[test]
fn a_compiler_that_leads_back_to_the_wrapper_is_refused_and_not_asked_for_ever() {
    let folder = scratch();
    let (links, caches) = (folder.path().join("links"), folder.path().join("caches"));
    finish(numapilot(&["cc", "--install-path"]).arg(&links)).succeeded();
    std::fs::create_dir(&caches).expect("a folder");
    let cache = caches.join("gcc");
    // Each start leaves a line, and a runaway is stopped, so that a failure of this test leaves the machine alone.
    let script = format!(
        "#!/bin/sh\necho x >> {0}/starts\n[ $(wc -l < {0}/starts) -lt 200 ] || exit 9\nexec {1}/gcc \"$@\"\n",
        folder.path().display(),
        links.display()
    );
    write_program(&cache, &script);
    std::fs::write(folder.path().join("g.c"), "int g(int *p) { return *p; }\n").expect("a source");
    let path = format!("{}:{}:/usr/bin:/bin", caches.display(), links.display());
    let ran = finish(Command::new(&cache).args(["-c", "g.c"]).current_dir(folder.path()).env("PATH", path));
    assert!(ran.code != 0 && ran.stderr.contains("leads back to numapilot"), "{}: {}", ran.code, ran.stderr);
    let starts = std::fs::read_to_string(folder.path().join("starts")).expect("it was started").lines().count();
    assert!(starts < 50, "{starts} starts");
}

/// Loads a library and calls its functions, without being instrumented itself: what Python does with its extensions.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words) {
    void *library = dlopen(words[1], atoi(words[2]) ? RTLD_NOW | RTLD_GLOBAL : RTLD_NOW);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
    void (*fill)(double *, long) = (void (*)(double *, long))dlsym(library, "fill");
    double (*sum)(const double *, long) = (double (*)(const double *, long))dlsym(library, "sum");
    long n = 1 << 21;
    double *table = malloc(n * sizeof *table), total = 0;
    fill(table, n);
    for (int k = 0; k < 4; k++) total += sum(table, n);
    printf("%g\n", total);
    if (atoi(words[3])) dlclose(library);
    free(malloc(1 << 20));
    return 0;
}
"#;

#[test]
fn a_library_that_a_program_without_call_outs_loads_is_recorded() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("part.c"), PART).expect("written");
    fs::write(path("host.c"), HOST).expect("written");
    let mut library = numapilot(&["cc", "-O2", "-g", "-shared", "-fPIC", "part.c", "-o", "part.so"]);
    finish(library.current_dir(folder.path())).succeeded();
    let mut host = Command::new("gcc");
    finish(host.args(["-O2", "-g", "host.c", "-o", "host", "-ldl"]).current_dir(folder.path())).succeeded();
    for (global, close) in [("0", "0"), ("0", "1"), ("1", "0")] {
        let trace = path("t.numatrace");
        let command = format!("{} {} {global} {close}", path("host").display(), path("part.so").display());
        let options = ["--machine", "opteron-8385", "--engine", "instrument"];
        let ran = record(&trace, &options, Path::new("/bin/sh"), &["-c", &command]).succeeded();
        assert_eq!(ran.stdout.trim(), "2.93601e+07", "{}", ran.stderr);
        let found = report_json(&trace, &[]);
        let accesses = number(&found, "/headline/totals/accesses/value");
        assert!(accesses > SWEPT, "global {global}, closed {close}: {accesses}");
    }
}
