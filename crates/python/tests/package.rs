//! The package as Python sees it: the library that cargo has just made, beside the package's Python files, under pytest (`tests/python`), on made-up traces of
//! every kind and on recordings; and what the generic scripts in C say of the same traces, for Python's to be compared with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_fixtures::{Kind, Size, write};
use numapilot_scratch::{made, must, root};

/// The virtual environment of `tools/setup test`, with everything that the package is tested with.
fn python() -> PathBuf {
    let said = must(&mut Command::new(root().join("tools/python")));
    PathBuf::from(said.trim_end())
}

/// The package: Python's files, and the library under the name that they import.
fn install_package(site: &Path) {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/numapilot");
    must(Command::new("cp").arg("-r").arg(package).arg(site));
    fs::copy(made("libnumapilot_native", ".so"), site.join("numapilot/_native.abi3.so")).expect("copied");
}

/// The C scripts, installed as their users have them.
fn install_c_scripts(scratch: &Path) -> PathBuf {
    let prefix = scratch.join("prefix");
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-C"]).arg(root().join("crates/capi")).arg("install");
    make.arg(format!("OUT={}", scratch.join("capi").display())).arg(format!("PREFIX={}", prefix.display()));
    must(make.arg(format!("ARCHIVE={}", made("libnumapilot_capi", ".a").display())));
    let out = scratch.join("scripts");
    let mut make = Command::new("make");
    make.args(["--no-print-directory", "-C"]).arg(root().join("scripts")).arg(format!("OUT={}", out.display()));
    must(make.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    out
}

/// Small traces of every kind, and recordings.
fn make_traces(folder: &Path) -> Vec<PathBuf> {
    fs::create_dir(folder).expect("made");
    for kind in Kind::ALL {
        let size = kind.size();
        // Findings price what is proposed for each object, on 64 nodes over a network of thousands of paths: some will do there.
        let objects = size.objects.min(if kind == Kind::Nodes64 { 16 } else { 400 });
        let size = Size { accesses: size.accesses.min(6000), objects, ..size };
        write(kind, &size, &folder.join(format!("{}.numatrace", kind.word()))).expect("a trace");
    }
    for name in ["mg", "facerec", "streamcluster", "psearchy", "webserver"] {
        let name = format!("{name}.numatrace");
        must(Command::new("cp").arg("-r").arg(root().join("testdata/traces").join(&name)).arg(folder));
    }
    let mut traces: Vec<PathBuf> = fs::read_dir(folder).expect("read").flatten().map(|entry| entry.path()).collect();
    traces.sort();
    traces
}

/// What the C scripts say of each trace, in `tables`. Their names are those of the table that defines the scripts for every language.
fn run_c_scripts(programs: &Path, traces: &[PathBuf], tables: &Path) {
    fs::create_dir(tables).expect("made");
    let questions = fs::read_to_string(root().join("scripts/questions.toml")).expect("the table of questions");
    let names = questions.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let scripts: Vec<&str> = names.collect();
    assert!(!scripts.is_empty(), "questions.toml names no script");
    for trace in traces {
        let stem = trace.file_stem().expect("a name").to_string_lossy();
        for script in &scripts {
            let said = must(Command::new(programs.join(script)).arg(trace));
            fs::write(tables.join(format!("{stem}-{script}.csv")), said).expect("written");
        }
    }
}

#[test]
fn the_package_and_the_generic_scripts() {
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let site = scratch.path().join("site");
    fs::create_dir(&site).expect("made");
    install_package(&site);
    let traces = make_traces(&scratch.path().join("traces"));
    let tables = scratch.path().join("tables");
    run_c_scripts(&install_c_scripts(scratch.path()), &traces, &tables);
    let mut pytest = Command::new(python());
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root().join("crates/python/tests/python"));
    pytest.env("PYTHONPATH", &site).env("PYTHONDONTWRITEBYTECODE", "1");
    pytest.env("NUMAPILOT_TEST_TRACES", scratch.path().join("traces")).env("NUMAPILOT_TEST_C_TABLES", &tables);
    eprintln!("{}", must(&mut pytest));
}
