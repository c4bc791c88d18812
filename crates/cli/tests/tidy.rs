//! Checks the house style that no compiler checks: width, length, leftovers, headers, imports that go round in circles, and documents that agree with the
//! program.

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/kernel_files.rs"]
mod kernel_files;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use numapilot_scratch::root;

/// Lines of code and prose may be this long; the C headers that draw record layouts need this width.
const MAX_COLUMNS: usize = 160;
/// Longer files hold more than one idea.
const MAX_LINES: usize = 800;
/// Banned words, in two halves, so that this file does not contain them.
const BANNED: &[(&str, &str)] =
    &[("dbg", "!("), ("todo", "!("), ("unimplemented", "!("), ("FIX", "ME"), ("XX", "X "), ("#[ign", "ore")];

/// Every file that git tracks or would track, relative to the root. Panics outside a git checkout.
fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "this test needs a git checkout: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .expect("UTF-8 paths")
        .lines()
        .map(PathBuf::from)
        .filter(|p| root().join(p).is_file())
        .collect()
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e))
}

fn is_code(path: &Path) -> bool {
    has_extension(path, &["rs", "c", "h", "cpp", "hpp", "f90", "py", "sh", "ts"]) && !path.starts_with("testdata")
}

fn complain(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn code_is_neither_wide_nor_long_and_has_no_leftovers() {
    let mut problems = Vec::new();
    for path in files().into_iter().filter(|p| is_code(p)) {
        let text = fs::read_to_string(root().join(&path)).expect("source file is UTF-8");
        let lines = text.lines().count();
        if lines > MAX_LINES {
            problems.push(format!("{}: {lines} lines, at most {MAX_LINES}", path.display()));
        }
        for (index, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), index + 1);
            if line.chars().count() > MAX_COLUMNS {
                problems.push(format!("{place}: {} columns, at most {MAX_COLUMNS}", line.chars().count()));
            }
            if line.contains('\t') && !has_extension(&path, &["c", "h", "cpp", "hpp"]) {
                problems.push(format!("{place}: a tab"));
            }
            if line.ends_with(' ') {
                problems.push(format!("{place}: trailing space"));
            }
            for (a, b) in BANNED {
                if line.contains(&format!("{a}{b}")) {
                    problems.push(format!("{place}: leftover `{a}{b}`"));
                }
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            problems.push(format!("{}: no newline at the end", path.display()));
        }
    }
    complain(problems);
}

/// Tests that only print that they did not run would be counted as passed.
#[test]
fn tests_say_in_one_way_that_they_did_not_run() {
    let ways =
        [["print", "ln!(\"skipped"], ["print", "ln!(\"NOT RUN"], ["print", "ln!(\"not run"]].map(|way| way.concat());
    let mut problems = Vec::new();
    for path in files().into_iter().filter(|p| has_extension(p, &["rs"])) {
        let text = fs::read_to_string(root().join(&path)).expect("UTF-8");
        for (index, _) in text.lines().enumerate().filter(|(_, line)| ways.iter().any(|way| line.contains(way))) {
            problems.push(format!("{}:{}: a test says this with not_run! (crates/not_run)", path.display(), index + 1));
        }
    }
    complain(problems);
}

#[test]
fn every_rust_file_says_what_it_owns() {
    let problems = files()
        .into_iter()
        .filter(|p| has_extension(p, &["rs"]))
        .filter(|p| !fs::read_to_string(root().join(p)).expect("UTF-8").trim_start().starts_with("//!"))
        .map(|p| format!("{}: does not begin with a `//!` comment", p.display()))
        .collect();
    complain(problems);
}

/// The commands that rows of tables in a document name: the word behind each "`numapilot ".
fn commands_in_tables(document: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).expect("UTF-8");
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let mut found: Vec<String> = rows
        .flat_map(|row| row.split("`numapilot ").skip(1))
        .filter_map(|rest| rest.split([' ', '`']).next().map(str::to_owned))
        .collect();
    found.sort();
    found.dedup();
    found
}

#[test]
fn documents_name_exactly_the_commands_that_exist() {
    let output = Command::new(env!("CARGO_BIN_EXE_numapilot")).arg("--help").output().expect("numapilot --help");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let mut in_help: Vec<String> = help
        .lines()
        .skip_while(|l| !l.starts_with("Commands:"))
        .skip(1)
        .take_while(|l| l.starts_with("  "))
        .filter(|l| !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next().map(str::to_owned))
        .filter(|c| c != "help")
        .collect();
    assert!(!in_help.is_empty(), "no commands in: {help}");
    in_help.sort();
    let by_job = commands_in_tables("docs/reference/by-job.md");
    assert_eq!(by_job, in_help, "docs/reference/by-job.md (left) and --help (right) differ");
    let unknown: Vec<String> = commands_in_tables("README.md").into_iter().filter(|c| !in_help.contains(c)).collect();
    assert!(unknown.is_empty(), "README's table names commands that do not exist: {unknown:?}");
}

#[test]
fn relative_links_in_documents_lead_somewhere() {
    let mut problems = Vec::new();
    for path in files().into_iter().filter(|p| has_extension(p, &["md"])) {
        let text = fs::read_to_string(root().join(&path)).expect("UTF-8");
        for piece in text.split("](").skip(1) {
            let target = piece.split([')', '#', ' ']).next().unwrap_or("");
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let base = root().join(&path).parent().expect("a folder").to_path_buf();
            if !base.join(target).exists() {
                problems.push(format!("{}: link to {target}, which does not exist", path.display()));
            }
        }
    }
    complain(problems);
}

/// Lines of a function, from its signature to its closing brace.
const FUNCTION_LINES: usize = 70;

/// Name and length of each function of a formatted file.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let Some((before, rest)) = line.trim_start().split_once("fn ") else { continue };
        let is_signature = before.split_whitespace().all(|word| {
            word.starts_with("pub")
                || ["const", "async", "unsafe", "extern", "\"C\"", "super)", "crate)"].contains(&word)
        });
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if !is_signature || name.is_empty() {
            continue;
        }
        let is_end = |line: &&str| line.strip_prefix(indent) == Some("}");
        // A method without a body ends its signature with a semicolon.
        let has_body =
            lines[start..].iter().find(|line| line.ends_with(['{', ';', '}'])).is_some_and(|line| line.ends_with('{'));
        if has_body && let Some(length) = lines[start..].iter().position(is_end) {
            found.push((name, length + 1));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut problems = Vec::new();
    for path in files().into_iter().filter(|p| has_extension(p, &["rs"])) {
        let text = fs::read_to_string(root().join(&path)).expect("UTF-8");
        for (name, length) in functions(&text) {
            if length > FUNCTION_LINES {
                problems.push(format!("{}: fn {name} has {length} lines of at most {FUNCTION_LINES}", path.display()));
            }
        }
    }
    complain(problems);
}

/// The files of a crate that depend on each other can only be read, tested and changed together.
#[test]
fn no_files_of_a_crate_import_each_other() {
    let mut problems = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = entry.expect("a folder's entry").path();
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let programs = fs::read_dir(folder.join("src/bin")).into_iter().flatten().map(|p| p.expect("a program").path());
        let roots = std::iter::once(folder.join("src")).chain(programs).filter(|root| root.is_dir());
        for circle in roots.flat_map(|root| circles::circles_in(&root)) {
            let imports = circle.imports.join("\n    ");
            problems.push(format!("crates/{name}/src: a circle of {} files:\n    {imports}", circle.files.len()));
        }
    }
    complain(problems);
}

/// What changes the whole process. Tests of other files would run in the changed one.
const OF_THE_PROCESS: &[&str] = &[
    "env::set_var",
    "env::remove_var",
    "env::set_current_dir",
    "panic::set_hook",
    "panic::take_hook",
    "libc::setrlimit",
    "libc::umask",
    "#[global_allocator]",
];

/// What is wrong with the files of tests in the folder `tests` of a crate whose manifest is `manifest`, where they share a program; and how many do.
fn shared_tests(tests: &Path, manifest: &str) -> (Vec<String>, usize) {
    let sections = manifest.split("[[test]]").skip(1);
    let programs: Vec<&str> = sections
        .filter_map(|section| section.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')))
        .collect();
    let all = fs::read_to_string(tests.join("all.rs")).expect("the shared program");
    let modules: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    let (mut problems, mut shared) = (Vec::new(), 0);
    for entry in fs::read_dir(tests).expect("the tests") {
        let path = entry.expect("a folder's entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.join("main.rs").exists() {
            problems.push(format!(
                "{}: cargo looks for no program there, since the crate has `autotests = false`",
                path.display()
            ));
        }
        if !has_extension(&path, &["rs"]) {
            continue;
        }
        match (modules.contains(&name.as_str()), programs.contains(&name.as_str())) {
            (false, false) => problems.push(format!("{}: no line in all.rs, so it never runs", path.display())),
            (true, true) => problems.push(format!("{}: in all.rs and a program of its own", path.display())),
            (false, true) => continue,
            (true, false) => shared += 1,
        }
        let text = fs::read_to_string(&path).expect("UTF-8");
        for word in OF_THE_PROCESS.iter().filter(|word| text.contains(*word)) {
            problems
                .push(format!("{}: `{word}` needs a program of its own (`[[test]]` in Cargo.toml)", path.display()));
        }
    }
    (problems, shared)
}

/// Cargo finds no file of tests by itself in a crate where they share a program: one that nothing names would never run.
#[test]
fn every_file_of_tests_belongs_to_a_program() {
    let (mut problems, mut shared) = (Vec::new(), 0);
    for entry in fs::read_dir(root().join("crates")).expect("the crates") {
        let folder = entry.expect("a folder's entry").path();
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        if manifest.lines().any(|line| line == "autotests = false") {
            let (found, count) = shared_tests(&folder.join("tests"), &manifest);
            problems.extend(found);
            shared += count;
        }
    }
    complain(problems);
    assert!(shared > 60, "only {shared} files of tests share a program");
}

/// The part of a path that stands in the guide as it is: all of it, or the folder that holds what a placeholder stands for.
fn fixed_part(path: &str) -> &str {
    match path.find("NAME").into_iter().chain(path.find('*')).min() {
        Some(at) => path[..at].rfind('/').map_or("", |slash| &path[..slash]),
        None => path,
    }
}

/// The crate that a path belongs to, or the folder of the repository; with the slash behind it.
fn place_of(path: &str) -> String {
    let depth = if path.starts_with("crates/") { 2 } else { 1 };
    path.split('/').take(depth).map(|part| format!("{part}/")).collect()
}

/// Paths in full must exist. A name without a folder must be a file of a crate or folder that its section names.
#[test]
fn the_guide_to_changes_names_files_that_exist() {
    let guide = "docs/internals/changes.md";
    let text = fs::read_to_string(root().join(guide)).expect("the guide");
    let known: Vec<String> = files().iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let folders: BTreeSet<&str> = known.iter().filter_map(|path| Some(path.split_once('/')?.0)).collect();
    let (mut in_full, mut without_folder, mut problems) = (0, 0, Vec::new());
    for section in text.split("\n## ") {
        let quoted = section.split('`').skip(1).step_by(2).filter_map(|words| words.split_whitespace().next());
        let (paths, names): (Vec<&str>, Vec<&str>) =
            quoted.partition(|word| word.split_once('/').is_some_and(|(folder, _)| folders.contains(folder)));
        in_full += paths.len();
        for path in paths.iter().filter(|path| !root().join(fixed_part(path)).exists()) {
            problems.push(format!("{guide}: {path} does not exist"));
        }
        let places: Vec<String> = paths.iter().map(|path| place_of(path)).collect();
        let extensions = ["rs", "c", "h", "py", "pyi", "ts", "toml", "md"];
        for name in names.into_iter().filter(|name| has_extension(Path::new(name), &extensions)) {
            without_folder += 1;
            let end = format!("/{name}");
            let mut nearby = known.iter().filter(|path| places.iter().any(|place| path.starts_with(place.as_str())));
            let exists =
                fixed_part(name) != name || root().join(name).exists() || nearby.any(|path| path.ends_with(&end));
            if !exists {
                let section = section.lines().next().unwrap_or_default();
                problems.push(format!("{guide}, `{section}`: no crate or folder that it names has a file {name}"));
            }
        }
    }
    assert!(in_full > 150 && without_folder > 50, "the test reads the guide: {in_full} paths, {without_folder} names");
    complain(problems);
}

/// What reads them by whole paths is tested on the machine under the test alone, and a parser of its own gives other answers than that of `host`.
#[test]
fn files_of_the_kernel_are_read_under_a_root() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files().into_iter().filter(|p| has_extension(p, &["rs"])) {
        let Some(name) = kernel_files::crate_of(&path) else { continue };
        let text = fs::read_to_string(root().join(&path)).expect("UTF-8");
        let lines = kernel_files::lines_with_whole_paths(&text).into_iter();
        found.entry(name.to_owned()).or_default().extend(lines.map(|line| format!("{}:{line}", path.display())));
    }
    let mut problems = Vec::new();
    for (name, places) in &found {
        let known = kernel_files::MAY_NAME.iter().find(|(known, ..)| known == name);
        let (most, why) = known.map_or((0, "no reason is known"), |(_, most, why)| (*most, *why));
        if places.len() > most {
            problems.push(format!(
                "crates/{name} names files of the kernel by whole paths in {} lines, at most {most} ({why}); `numapilot_host::Root` reads them: {}",
                places.len(),
                places.join(", ")
            ));
        }
    }
    let is_gone = |name: &str| found.get(name).is_none_or(Vec::is_empty);
    let gone = kernel_files::MAY_NAME.iter().filter(|(name, ..)| is_gone(name));
    problems.extend(gone.map(|(name, ..)| format!("tidy/kernel_files.rs: crates/{name} names none any more")));
    complain(problems);
}

/// A fuzz target that `make fuzz` leaves out would never run.
#[test]
fn the_lists_of_fuzz_targets_agree() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("UTF-8");
    let is_target = |path: &PathBuf| {
        path.starts_with("fuzz/fuzz_targets") && read(&path.to_string_lossy()).contains("fuzz_target!(")
    };
    let sources = files().into_iter().filter(is_target);
    let targets: BTreeSet<String> =
        sources.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    assert!(targets.len() > 5, "the test finds the targets: {targets:?}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<String>>();
    let makefile = read("Makefile");
    let list = makefile.split_once("\n\t@for target in ").and_then(|(_, rest)| rest.split_once("; do fuzz/run"));
    assert_eq!(list.map(|(list, _)| words(list)), Some(targets.clone()), "Makefile (left), fuzz/fuzz_targets (right)");
    let programs = read("fuzz/Cargo.toml");
    let programs = programs.split("[[bin]]").skip(1).filter_map(|part| part.split('"').nth(1).map(str::to_owned));
    assert_eq!(programs.collect::<BTreeSet<String>>(), targets, "fuzz/Cargo.toml (left), fuzz/fuzz_targets (right)");
    let page = read("fuzz/README.md");
    let rows = page.lines().filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()));
    assert_eq!(rows.collect::<BTreeSet<String>>(), targets, "fuzz/README.md (left), fuzz/fuzz_targets (right)");
}
