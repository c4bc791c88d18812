//! Chooses the engine that records a program, and explains why not a better one.
//!
//! `instrument` sees every access of a program built with `numapilot cc`, on a simulated machine; `emulate` those of any x86-64 program, slower, by running
//! it in QEMU (`crates/emulator`); `pmu` those that the processor samples and `fault` the page faults of any program, on this machine; `track` the
//! lifecycles of any dynamically linked program. All preload the same library, so they need a program whose dynamic loader will load it; only `pmu` and
//! `fault` work without it, and then know mappings, but no heap blocks. [`auto`] describes what `auto` chooses.

mod auto;
mod choice;

use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

pub use choice::{Engine, EngineChoice, Refusal, Selection};

use numapilot_doctor::Diagnosis;
use numapilot_launch::Binary;
use numapilot_launch::BinaryKind;
use numapilot_launch::Target;
use numapilot_launch::find_program;
use numapilot_launch::preload_obstacle;
use numapilot_machine::Machine;
use numapilot_machine::MachineSource;

use crate::error::SourceError;

/// Programs whose business is to start another one that is named in their arguments.
const LAUNCHERS: &[&str] = &[
    "env", "time", "nice", "ionice", "nohup", "timeout", "stdbuf", "setarch", "numactl", "taskset", "chrt", "xargs",
    "sh", "bash", "dash", "zsh", "ksh", "fish", "make", "mpirun", "mpiexec", "srun", "prlimit", "setsid", "strace",
    "gdb",
];

/// Chooses the engine for `command` (its first word already resolved to `target`). `machine`: of the recording; `diagnose`: which engines work here, asked
/// only where that matters.
///
/// # Errors
/// Where no engine can record the program, or the one asked for by name cannot: with the reason and the remedy.
pub fn select(
    choice: EngineChoice,
    target: &Target,
    command: &[OsString],
    machine: &Machine,
    diagnose: impl FnOnce() -> Diagnosis,
) -> Result<Selection, SourceError> {
    let binary = &target.binary;
    let name = binary.path.display();
    let mut notes = Vec::new();
    if let Some(script) = &target.script {
        notes.push(format!(
            "{} is a script: its interpreter {name} is recorded, with the programs that it starts",
            script.display()
        ));
    }
    let is_live = matches!(machine.source(), MachineSource::Live { .. });
    if choice == EngineChoice::Auto
        && let Some(obstacle) = preload_obstacle(binary)
    {
        return without_tracker(binary, obstacle, notes, || auto::choose_without_tracker(is_live, diagnose));
    }
    let has_tracker = takes_tracker(choice, binary, &mut notes)?;
    let starts_others = target.script.is_some() || is_launcher(&binary.path);
    let refusal = instrument_refusal(binary, starts_others);
    match (choice, binary.instrumented) {
        (EngineChoice::Only(engine @ (Engine::Track | Engine::Fault | Engine::Pmu)), instrumented) => {
            if instrumented && engine == Engine::Track {
                notes.push("the program is instrumented, but engine track records no accesses".to_owned());
            }
            Ok(Selection { engine, refusals: Vec::new(), notes, has_tracker })
        }
        (EngineChoice::Only(Engine::Emulate), instrumented) => {
            if instrumented {
                notes.push("the program is instrumented: engine instrument records it faster".to_owned());
            }
            Ok(Selection { engine: Engine::Emulate, refusals: Vec::new(), notes, has_tracker })
        }
        (EngineChoice::Only(Engine::Import), _) => {
            Err(SourceError::EngineNotAvailable { name: Engine::Import.name().to_owned() })
        }
        (_, true) => Ok(Selection { engine: Engine::Instrument, refusals: Vec::new(), notes, has_tracker }),
        (EngineChoice::Only(Engine::Instrument), false) if starts_others => {
            notes
                .push(format!("{name} is not instrumented; only accesses of instrumented child programs are recorded"));
            Ok(Selection { engine: Engine::Instrument, refusals: Vec::new(), notes, has_tracker })
        }
        (EngineChoice::Only(Engine::Instrument), false) => Err(SourceError::EngineRefused {
            engine: Engine::Instrument.name(),
            path: binary.path.clone(),
            reason: refusal.reason,
            // What is started has its accesses recorded, whichever of its files are instrumented.
            remedy: format!("{}; if only libraries that it loads are, record `env {name}`", refusal.remedy),
        }),
        (EngineChoice::Auto, false) => {
            if let Some(inner) = instrumented_argument(starts_others, command) {
                notes.push(format!("{name} starts {}, which is instrumented", inner.display()));
                return Ok(Selection { engine: Engine::Instrument, refusals: Vec::new(), notes, has_tracker });
            }
            let (engine, mut refusals) = auto::choose(is_live, diagnose);
            refusals.insert(0, refusal);
            if engine == Engine::Track {
                notes.push("engine track records objects and threads, but no accesses".to_owned());
            }
            Ok(Selection { engine, refusals, notes, has_tracker })
        }
    }
}

/// Whether the tracker can be loaded into the program. `notes` gets what an engine cannot see without it.
///
/// # Errors
/// It cannot, and the engine works only with it.
fn takes_tracker(choice: EngineChoice, binary: &Binary, notes: &mut Vec<String>) -> Result<bool, SourceError> {
    match (preload_obstacle(binary), choice) {
        (None, _) => Ok(true),
        (Some((reason, _)), EngineChoice::Only(Engine::Fault | Engine::Pmu)) => {
            notes.push(no_blocks(binary, &reason));
            Ok(false)
        }
        (Some((reason, remedy)), _) => {
            let engine = if let EngineChoice::Only(engine) = choice { engine.name() } else { "auto" };
            Err(SourceError::EngineRefused { engine, path: binary.path.clone(), reason, remedy })
        }
    }
}

/// What a recording without the tracker does not show.
fn no_blocks(binary: &Binary, reason: &str) -> String {
    format!(
        "{}: {reason}: its mappings are known from the kernel, but its heap blocks are not, so accesses to the heap are shown as accesses to the \
         allocator's or anonymous memory",
        binary.path.display()
    )
}

/// What `auto` takes for a program into which no tracker can be loaded.
///
/// # Errors
/// No engine works without the tracker here, or none can record this program.
fn without_tracker(
    binary: &Binary,
    (reason, remedy): (String, String),
    mut notes: Vec<String>,
    choose: impl FnOnce() -> (Option<Engine>, Vec<Refusal>),
) -> Result<Selection, SourceError> {
    let refused = |remedy: String| {
        let (path, reason) = (binary.path.clone(), reason.clone());
        Err(SourceError::EngineRefused { engine: "auto", path, reason, remedy })
    };
    // A program of another processor does not run here, and the kernel may forbid events of a privileged one, which would then be seen as doing nothing.
    if matches!(binary.kind, BinaryKind::ForeignElf { .. }) || binary.privileged.is_some() {
        return refused(remedy);
    }
    match choose() {
        (Some(engine), refusals) => {
            notes.push(no_blocks(binary, &reason));
            Ok(Selection { engine, refusals, notes, has_tracker: false })
        }
        (None, refusals) => {
            let kernel = refusals.iter().find(|refusal| refusal.engine == Engine::Fault);
            let kernel = kernel
                .map(|refusal| format!("; or let engine fault record it, which needs no library: {}", refusal.remedy));
            refused(remedy + &kernel.unwrap_or_default())
        }
    }
}

fn instrument_refusal(binary: &Binary, starts_others: bool) -> Refusal {
    let name = binary.path.display();
    let mut remedy = "rebuild it with `numapilot cc`, `c++` or `fc` in place of the compiler (CC=\"numapilot cc\" under make, CMake \
                      and configure)"
        .to_owned();
    if starts_others {
        remedy.push_str("; if it starts an instrumented program, give `--engine instrument`");
    }
    Refusal { engine: Engine::Instrument, reason: format!("{name} is not instrumented"), remedy }
}

fn is_launcher(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|name| {
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        LAUNCHERS.contains(&name) || LAUNCHERS.contains(&stem) || stem == "python" || stem == "perl"
    })
}

/// The first argument of a launcher that is itself an instrumented binary.
fn instrumented_argument(starts_others: bool, command: &[OsString]) -> Option<PathBuf> {
    if !starts_others {
        return None;
    }
    command.iter().skip(1).take(64).find_map(|argument| {
        let path = find_program(argument)?;
        Binary::inspect(&path).ok().flatten().filter(|b| b.instrumented).map(|b| b.path)
    })
}
