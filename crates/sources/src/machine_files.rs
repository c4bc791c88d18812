//! The files of the simulated machine that programs find in place of this host's: lists of its nodes and CPUs (`crates/runtime/c/numa_files.c`).

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use numapilot_host::Root;
use numapilot_host::cpuinfo;
use numapilot_machine::KernelFile;
use numapilot_machine::Machine;
use numapilot_machine::MachineSource;
use numapilot_runtime::TreeEntry;
use numapilot_trace::wire::layout as wire;

use crate::engine::Engine;

/// Writes the machine's files where the program can read them, and names the place in the configuration. Where that fails, a note: then programs find this
/// host's files, as they do where the simulated machine is this host.
pub fn show(machine: &Machine, engine: Engine, config: &mut wire::Config) -> Option<String> {
    if matches!(machine.source(), MachineSource::Live { .. }) {
        return None;
    }
    // An emulated processor has instructions of its own, which no file tells.
    let processor = if engine == Engine::Emulate { String::new() } else { host_instructions() };
    let tree: Vec<(String, TreeEntry)> = machine.kernel_files(&processor).into_iter().map(entry).collect();
    let reason = match numapilot_runtime::first_that_takes(|folder| numapilot_runtime::unpack_tree(folder, &tree)) {
        Ok(path) => match name(&path, config) {
            Ok(()) => return None,
            Err(()) => format!("the path {} is longer than {} bytes", path.display(), wire::PATH_MAX - 1),
        },
        Err(error) => error.reason,
    };
    Some(format!(
        "programs that read the machine's files in /sys and /proc find this host's, not those of machine {}: {reason}",
        machine.name()
    ))
}

fn entry((path, file): (String, KernelFile)) -> (String, TreeEntry) {
    let entry = match file {
        KernelFile::Text(text) => TreeEntry::Text(text),
        KernelFile::Link(target) => TreeEntry::Link(target),
    };
    (path, entry)
}

/// Fails where the path does not fit with the zero at its end.
fn name(path: &Path, config: &mut wire::Config) -> Result<(), ()> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= config.machine_files.len() {
        return Err(());
    }
    config.machine_files.fill(0);
    config.machine_files[..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

/// The lines of `/proc/cpuinfo` by which programs choose their instructions: those run on this host's processor, whatever machine is simulated.
fn host_instructions() -> String {
    let text = cpuinfo::read(&Root::default());
    let first = text.lines().take_while(|line| !line.is_empty());
    first
        .filter(|line| line.starts_with("flags") || line.starts_with("Features"))
        .map(|line| format!("{line}\n"))
        .collect()
}
