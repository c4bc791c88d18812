//! Page homes, simulated and by a real kernel, in one run: a program is recorded on a simulated machine *inside* the
//! guest, while its threads run on the nodes that the simulated machine has them on. Both place pages for the same
//! threads at the same moments, so a page with different home nodes shows a difference in the recorded first
//! touches, not in scheduling.
//!
//! `homes/mirror.c` (preloaded) moves the threads; `homes/launcher.c` (by ptrace) asks the kernel for each page's node
//! before it goes away and at the end. The recorder's side is the trace's placements. Small pages are compared: the
//! guest's large ones are switched off, as is its NUMA balancing.

mod compare;
mod kernel;

use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use numapilot_flows::Trace;
use numapilot_text::shell::quoted;
use numapilot_trace::engine::Engine;
use numapilot_trace::tables::TraceReader;

use crate::error::AtPath;
use crate::error::LabError;
use crate::job::FILES_IN_GUEST;
use crate::lab::Lab;
use crate::packages;
use kernel::CPUS_PER_NODE;

pub use compare::Example;
pub use compare::Homes;
pub use compare::ObjectHomes;
pub use compare::Reason;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/homes");
const NO_COMPILER: &str = "Install gcc (tools/setup test does).";
/// Threads are laid out node by node in the order of their appearance; the program's first thread is the fourth, after
/// `env`, the launcher, and its child.
const FIRST_NODE: u32 = 3;
const PAGES: &str = "pages.txt";
const TRACE: &str = "homes.numatrace";

/// What is compared, and how it is recorded.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The `numapilot` that records.
    pub recorder: PathBuf,
    /// Engine that records: one that simulates the machine.
    pub engine: Engine,
    /// The simulated machine: as many nodes as the guest has.
    pub machine: String,
    /// The program and its arguments. A program that starts another by exec has that one's first pages where its own main thread was.
    pub command: Vec<String>,
    /// Variables beside those of this process.
    pub environment: Vec<(String, String)>,
    /// Where it runs, on the host; changes stay in the guest unless the working folder holds it.
    pub folder: Option<PathBuf>,
    /// Where to keep the trace and the launcher's list of pages, for looking closer.
    pub keep: Option<PathBuf>,
}

/// Result of a comparison.
#[derive(Debug)]
pub struct Compared {
    /// Comparison of the home nodes of all pages.
    pub homes: Homes,
    /// The program's own exit status.
    pub exit: i32,
    /// Output of the program.
    pub stdout: String,
    /// How the guest was run, for reports.
    pub how: String,
}

/// Compiles the launcher and the mirror into `folder`.
fn tools(folder: &Path) -> Result<(PathBuf, PathBuf), LabError> {
    let (launcher, mirror) = (folder.join("launcher"), folder.join("mirror.so"));
    for (out, source, flags) in [(&launcher, "launcher.c", &[][..]), (&mirror, "mirror.c", &["-shared", "-fPIC"][..])] {
        let mut compiler = Command::new("cc");
        compiler.arg("-O2").args(flags).arg("-o").arg(out).arg(Path::new(SOURCES).join(source)).arg("-pthread");
        packages::run(&mut compiler, "compiling the tools that compare page homes", NO_COMPILER)?;
    }
    Ok((launcher, mirror))
}

impl Comparison {
    /// Records the program in a guest of `lab` (as many nodes as the simulated machine, of two CPUs each) and
    /// compares.
    ///
    /// # Errors
    /// If the tools cannot be compiled, the lab does not run, or the recording failed; the guest's own words are in
    /// the error.
    pub fn run(&self, lab: &Lab) -> Result<Compared, LabError> {
        let folder = tempfile::tempdir().at(&env::temp_dir(), "cannot make a folder in")?;
        let (launcher, mirror) = tools(folder.path())?;
        let record = [
            self.recorder.display().to_string().as_str(),
            "record",
            "--quiet",
            "--engine",
            self.engine.name(),
            "--machine",
            &self.machine,
            "-o",
            &format!("{FILES_IN_GUEST}/{TRACE}"),
            "--",
            // `instrument` wants an instrumented program, or one that it knows to start others.
            "env",
            "./launcher",
            &format!("{FILES_IN_GUEST}/{PAGES}"),
            &mirror.display().to_string(),
        ]
        .map(|word| if word == "./launcher" { launcher.display().to_string() } else { word.to_owned() });
        let words: Vec<String> = record.iter().chain(&self.command).map(|word| quoted(word)).collect();
        let script = format!(
            "echo never > /sys/kernel/mm/transparent_hugepage/enabled; echo 0 > /proc/sys/kernel/numa_balancing; \
             export LAB_CPUS_PER_NODE={CPUS_PER_NODE} LAB_FIRST_NODE={FIRST_NODE}; exec {}",
            words.join(" ")
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(self.folder.as_deref().unwrap_or(folder.path()));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let outcome = lab.run(&command)?;
        if let Some(keep) = &self.keep {
            fs::create_dir_all(keep).at(keep, "cannot make the folder")?;
            let mut copy = Command::new("cp");
            copy.arg("-r").args([PAGES, TRACE].map(|name| outcome.files().join(name))).arg(keep);
            packages::run(&mut copy, "keeping the trace and the list of pages", "See the message of cp above.")?;
        }
        let failed = |what: &'static str| LabError::Failed {
            what,
            command: self.command.join(" "),
            output: format!("exit {}\n{}\n{}", outcome.exit, outcome.stdout, outcome.stderr),
            remedy: "See the guest's messages above.",
        };
        let pages = outcome.files().join(PAGES);
        let pages = fs::read_to_string(&pages).map_err(|_| failed("asking the kernel for the pages' nodes"))?;
        let recorded = outcome.files().join(TRACE);
        let trace = Trace::open(&recorded).map_err(|_| failed("recording in the guest"))?;
        let placements = TraceReader::open(&recorded).and_then(|reader| reader.read());
        let placements = placements.map_err(|_| failed("reading the recorded homes"))?;
        let homes = Homes::compare(&trace, &placements, &pages);
        Ok(Compared { homes, exit: outcome.exit, stdout: outcome.stdout, how: outcome.how })
    }
}
