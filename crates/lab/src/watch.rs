//! Observes a guest from outside: the plugin in QEMU, the program in the guest that marks a command's beginning and end, and the file of counts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::error::AtPath;
use crate::error::LabError;
use crate::samples;
use crate::samples::Sampling;
use crate::topology::Topology;
use crate::truth::Truth;
use crate::truth::TruthOptions;

const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-lab.so"));
const MEASURE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/measure"));
const COUNTS: &str = "counts";
const SAMPLES: &str = "samples";

/// Puts the plugin and the program into the exchange folder.
pub(crate) fn prepare(files: &Path) -> Result<(), LabError> {
    if PLUGIN.is_empty() {
        return Err(LabError::Command("accesses can be counted on x86-64 hosts only".into()));
    }
    for (name, bytes) in [("plugin.so", PLUGIN), ("measure", MEASURE)] {
        let path = files.join(name);
        fs::write(&path, bytes).at(&path, "cannot write")?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).at(&path, "cannot make it executable")?;
    }
    Ok(())
}

/// Prefix of the command in the guest.
pub(crate) fn command(options: &TruthOptions) -> &'static [&'static str] {
    if options.marked_only { &["/run/lab/measure", "marked"] } else { &["/run/lab/measure", "begin"] }
}

/// The value of QEMU's `-plugin`; `{files}` is the exchange folder.
pub(crate) fn plugin(options: &TruthOptions, topology: &Topology, one_thread: bool) -> String {
    let mut words = format!("{{files}}/plugin.so,output={{files}}/{COUNTS}");
    for (first, end, node) in topology.memory_ranges() {
        words.push_str(&format!(",range={first:x}-{end:x}:{node}"));
    }
    if let Some(cache) = options.cache {
        words.push_str(&format!(",cache={}x{}", cache.sets, cache.ways));
    }
    if let Some(sampling) = options.sampling {
        words.push_str(&format!(",samples={{files}}/{SAMPLES},period={},seed={}", sampling.period, sampling.seed));
        for from in 0..topology.nodes() {
            if let Some((first, last)) = topology.cpus_of(from) {
                words.push_str(&format!(",cpus={first}-{last}:{from}"));
            }
            for to in 0..topology.nodes() {
                let cycles = samples::latency_cycles(topology, from, to);
                words.push_str(&format!(",latency={from}-{to}:{cycles}"));
            }
        }
    }
    if one_thread {
        words.push_str(",one-thread=on");
    }
    words
}

/// What the plugin counted. `console`: where QEMU says why there is nothing.
pub(crate) fn read(files: &Path, console: &str) -> Result<Truth, LabError> {
    let path = files.join(COUNTS);
    let wrong = |what: String| LabError::Unexpected { path: path.clone(), what };
    let text = fs::read_to_string(&path)
        .map_err(|error| wrong(format!("the plugin wrote no counts ({error})\n--- console ---\n{console}")))?;
    Truth::parse(&text).map_err(wrong)
}

/// The plugin's samples as a recording.
pub(crate) fn recording(
    files: &Path,
    sampling: Sampling,
    topology: &Topology,
    command: &Command,
) -> Result<Vec<u8>, LabError> {
    let path = files.join(SAMPLES);
    let records = fs::read(&path).at(&path, "cannot read the samples")?;
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    samples::recording(&records, sampling, topology, &words).at(&path, "no samples")
}
