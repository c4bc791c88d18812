//! What the tracker's tests share: an arena of their own, programs compiled on the spot, and checks on what they left in their rings.

pub mod arena;
mod ties;

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;

use numapilot_trace::record::Event;
use numapilot_trace::record::Record;

pub use arena::Arena;
pub use numapilot_scratch::scratch;

/// Directory of the test programs' sources.
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The tracker, unpacked as users get it.
pub fn tracker() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| numapilot_runtime::unpack(&scratch().join("cache")).expect("unpack").tracker)
}

/// Compiles `source` from `tests/programs` with these flags to an executable or library called `name`: once, however many tests of a process want it, since
/// one would write it anew while another runs it.
pub fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    /// What it was built from, and where it is.
    type Built = OnceLock<(Vec<String>, PathBuf)>;
    static BUILT: Mutex<BTreeMap<String, Arc<Built>>> = Mutex::new(BTreeMap::new());
    let wanted: Vec<String> = std::iter::once(source).chain(flags.iter().copied()).map(str::to_owned).collect();
    let entry = Arc::clone(BUILT.lock().expect("what was built").entry(name.to_owned()).or_default());
    let (how, output) = entry.get_or_init(|| (wanted.clone(), compile_anew(source, name, flags)));
    assert_eq!(*how, wanted, "{name} is the name of another program");
    output.clone()
}

fn compile_anew(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let output = scratch().join(name);
    let compiler = if source.ends_with(".cpp") { "g++" } else { "gcc" };
    let mut command = Command::new(compiler);
    command
        .arg(programs().join(source))
        .arg("-I")
        .arg(programs())
        .args(["-g", "-pthread", "-o"])
        .arg(&output)
        .args(flags);
    let result = command
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error} (install the packages of `tools/setup test`)"));
    assert!(result.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&result.stderr));
    output
}

/// A program that ended, and what it left.
pub struct Run {
    /// Its exit status and output.
    pub output: Output,
    /// Everything decoded, one list per ring, each in the order written.
    pub rings: Vec<Vec<Record>>,
    /// What the program itself says happened, one line each.
    pub truth: Vec<String>,
    /// The arena after the run.
    pub arena: Arena,
}

/// Runs `program` with the tracker. `NP_TRUTH` names the file for what the program says itself.
pub fn record(program: &Path, arguments: &[&str]) -> Run {
    record_with(Arena::new(192, 4 << 20), program, arguments, |_| {})
}

/// The same with an arena and environment of the test's choice.
pub fn record_with(arena: Arena, program: &Path, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Run {
    let truth = tempfile::NamedTempFile::new_in(scratch()).expect("truth file");
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("NP_TRUTH", truth.path())
        .env("NUMAPILOT_ARENA", arena.path())
        .env("LD_PRELOAD", tracker());
    prepare(&mut command);
    let output = command.output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let truth = fs::read_to_string(truth.path()).expect("truth").lines().map(str::to_owned).collect();
    let rings = arena.decode();
    Run { output, rings, truth, arena }
}

impl Run {
    /// Panics with the program's output unless it succeeded.
    pub fn assert_success(&self) -> &Run {
        let text = String::from_utf8_lossy(&self.output.stderr);
        assert!(
            self.output.status.success(),
            "{}\n{text}\n{}",
            self.output.status,
            String::from_utf8_lossy(&self.output.stdout)
        );
        self
    }

    /// Every record, in real order.
    pub fn ordered(&self) -> Vec<&Record> {
        let mut records: Vec<&Record> = self.rings.iter().flatten().collect();
        records.sort_by_key(|record| record.stamp.order);
        ties::settled(&records)
    }

    /// Events of all rings that `pick` takes.
    pub fn events<'a, T>(&'a self, mut pick: impl FnMut(&'a Event) -> Option<T>) -> Vec<T> {
        self.rings.iter().flatten().filter_map(|record| pick(&record.event)).collect()
    }

    /// Panics if anything was lost anywhere.
    pub fn assert_no_loss(&self) -> &Run {
        let losses = self.arena.losses();
        assert_eq!((losses.lost_no_slot, losses.lost_full, losses.lost_stopped), (0, 0, 0));
        let lost =
            self.events(|event| if let Event::Lost { count, cause } = event { Some((*count, *cause)) } else { None });
        assert!(lost.is_empty(), "lost (count, cause): {lost:?}");
        self
    }

    /// Frames of every stack, by id.
    pub fn stacks(&self) -> HashMap<u32, Vec<u64>> {
        let stacks = self.events(|event| match event {
            Event::Stack { id, frames, .. } => Some((id.0, frames.iter().map(|frame| frame.0).collect())),
            _ => None,
        });
        stacks.into_iter().collect()
    }

    /// Follows every block's life in real order, per process: a block is never made where one lives, and only live ones are
    /// given back. Returns how many were made and how many were given back. `inherited` frees of unknown blocks are allowed to forked children.
    pub fn check_lives(&self) -> (usize, usize) {
        let mut process_of = HashMap::new();
        let mut forked: Vec<u32> = Vec::new();
        for record in self.rings.iter().flatten() {
            match &record.event {
                Event::ThreadStart { index, process, .. } => drop(process_of.insert(index.0, process.0)),
                Event::ProcessStart { index, parent: Some(_), by_exec: false, .. } => forked.push(index.0),
                _ => {}
            }
        }
        let mut live: HashMap<(u32, u64), u64> = HashMap::new();
        let (mut made, mut freed) = (0, 0);
        for record in self.ordered() {
            let process = process_of[&record.thread.0];
            match &record.event {
                Event::Alloc { address, bytes, .. } => {
                    made += 1;
                    let old = live.insert((process, address.0), *bytes);
                    assert!(old.is_none(), "{:#x} was made while it lived, at {:?}", address.0, record.stamp.order);
                }
                Event::Free { address } => {
                    freed += 1;
                    let known = live.remove(&(process, address.0)).is_some();
                    assert!(
                        known || forked.contains(&process),
                        "{:#x} was freed unknown, at {:?}",
                        address.0,
                        record.stamp.order
                    );
                }
                _ => {}
            }
        }
        (made, freed)
    }

    /// Panics unless the program's own list of blocks (`alloc ADDRESS BYTES KIND`, `free ADDRESS`) is a subsequence of the records.
    pub fn assert_blocks_match_truth(&self) -> &Run {
        let described: Vec<String> = self
            .ordered()
            .iter()
            .filter_map(|record| match &record.event {
                Event::Alloc { address, bytes, kind, .. } => Some(format!("alloc {:x} {bytes} {kind:?}", address.0)),
                Event::Free { address } => Some(format!("free {:x}", address.0)),
                _ => None,
            })
            .collect();
        let expected: Vec<&String> =
            self.truth.iter().filter(|line| line.starts_with("alloc ") || line.starts_with("free ")).collect();
        assert!(!expected.is_empty(), "the program said nothing");
        let mut at = 0;
        for line in &expected {
            match described[at..].iter().position(|found| found == *line) {
                Some(skipped) => at += skipped + 1,
                None => panic!("`{line}` is not among the records after `{:?}`", described.get(at.wrapping_sub(1))),
            }
        }
        self
    }
}
