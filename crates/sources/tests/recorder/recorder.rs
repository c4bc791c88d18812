//! A bare recorder for the tests beside it: one recording per process, because recording owns signals and children.
//!
//! `recorder [OPTION=VALUE ...] -- PROGRAM ARGUMENTS`; prints nothing on standard output, writes the outcome as JSON to `result=FILE`, and
//! exits as the program did.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use numapilot_machine::Machine;
use numapilot_sources::Follow;
use numapilot_sources::Progress;
use numapilot_sources::ProgressState;
use numapilot_sources::RecordOptions;
use numapilot_sources::Recording;
use numapilot_sources::SourceError;
use numapilot_sources::record;
use numapilot_trace::output::Existing;

/// Keeps the last state, and how often it was told.
#[derive(Default)]
struct Kept {
    updates: u64,
    last: ProgressState,
}

impl Progress for Kept {
    fn update(&mut self, state: &ProgressState) {
        assert!(state.records >= self.last.records && state.bytes >= self.last.bytes, "progress went backwards");
        self.updates += 1;
        self.last = *state;
    }
}

fn set(options: &mut RecordOptions<'_>, name: &str, value: &str) -> Result<(), SourceError> {
    let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{name}={value}: not a number"));
    let small = || u32::try_from(number()).unwrap_or(u32::MAX);
    match name {
        "output" => options.output = PathBuf::from(value),
        "engine" => options.engine = value.parse()?,
        "ring" => options.ring_bytes = small(),
        "slots" => options.slots = small(),
        "depth" => options.max_stack_depth = small(),
        "limit-bytes" => options.limits.bytes = Some(number()),
        "limit-ms" => options.limits.duration = Some(Duration::from_millis(number())),
        "grace-ms" => options.daemon_grace = Some(Duration::from_millis(number())),
        "follow" if value == "main" => options.follow = Follow::MainProcess,
        "replace" => options.existing = Existing::Replace,
        "env" => {
            let (name, value) = value.split_once('=').expect("env=NAME=VALUE");
            options.environment.push((name.into(), value.into()));
        }
        _ => panic!("no option {name}"),
    }
    Ok(())
}

fn run(arguments: &[OsString]) -> Result<(Recording, Kept), SourceError> {
    let split = arguments.iter().position(|a| a == "--").unwrap_or(arguments.len());
    let command = arguments.iter().skip(split + 1).cloned().collect();
    let machine = Machine::load("opteron-8385").expect("a built-in model");
    let mut kept = Kept::default();
    let mut options = RecordOptions::new(command, PathBuf::from("out.numatrace"), &machine);
    for argument in &arguments[..split] {
        let (name, value) = argument.to_str().and_then(|a| a.split_once('=')).expect("OPTION=VALUE");
        if name != "result" {
            set(&mut options, name, value)?;
        }
    }
    options.progress = Some(&mut kept);
    let recording = record(options)?;
    Ok((recording, kept))
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let result = arguments.iter().find_map(|a| a.to_str()?.strip_prefix("result=").map(PathBuf::from));
    let (json, code) = match run(&arguments) {
        Ok((recording, kept)) => {
            let losses = recording.losses;
            let json = serde_json::json!({
                "engine": recording.engine.name(),
                "exit": format!("{:?}", recording.exit),
                "records": recording.records,
                "samples": recording.samples,
                "bytes": recording.bytes,
                "disk_bytes": recording.disk_bytes,
                "threads": recording.threads,
                "lost": losses.records(),
                "lost_ring_full": losses.ring_full,
                "lost_no_slot": losses.no_slot,
                "quarantined": losses.quarantined_slots,
                "stopped": recording.stopped.map(|s| format!("{s:?}")),
                "wall_ms": u64::try_from(recording.wall_time.as_millis()).unwrap_or(u64::MAX),
                "notes": recording.notes,
                "unrecorded_program": recording.unrecorded_program,
                "refusals": recording.refusals.iter().map(|r| format!("{}: {}", r.reason, r.remedy)).collect::<Vec<_>>(),
                "updates": kept.updates,
                "progress_records": kept.last.records,
            });
            (json, recording.exit.shell_code())
        }
        Err(error) => (serde_json::json!({ "error": error.to_string() }), error.exit_code()),
    };
    if let Some(path) = result {
        fs::write(path, json.to_string()).expect("result file");
    }
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}
