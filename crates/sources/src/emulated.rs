//! The `emulate` engine's part of a recording: an emulator that takes our plugin, and the command that runs a program in it.
//!
//! Everything else is as for instrumented programs: the tracker in the program, the arena, the rings (`crates/emulator` says how accesses are seen).

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use numapilot_emulator::Emulation;
use numapilot_emulator::Qemu;
use numapilot_emulator::Unavailable;

use crate::engine::Target;
use crate::error::SourceError;

/// Variables by which a user could pass an emulator options that would spoil a recording.
const EMULATOR_VARIABLES: &[&str] =
    &["QEMU_PLUGIN", "QEMU_SET_ENV", "QEMU_UNSET_ENV", "QEMU_ARGV0", "QEMU_GUEST_BASE", "QEMU_RESERVED_VA"];

/// An emulator, ready to run programs.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// The executable and its version.
    pub qemu: Qemu,
    plugin: PathBuf,
}

impl Emulator {
    /// Finds an emulator that takes the plugin, which is unpacked for it.
    ///
    /// # Errors
    /// There is none: with the reason and the remedy.
    pub fn find() -> Result<Emulator, Unavailable> {
        let plugin = unpacked_plugin().map_err(|error| Unavailable {
            reason: error.to_string(),
            remedy: "check that the cache folder is writable".to_owned(),
        })?;
        Ok(Emulator { qemu: numapilot_emulator::availability(&plugin)?, plugin })
    }

    /// The command that runs `target` with `arguments` (the first as the user wrote it) and preloads `preload` in it.
    pub(crate) fn command(
        &self,
        target: &Target,
        arguments: &[OsString],
        preload: &OsStr,
    ) -> Result<Command, SourceError> {
        let emulation =
            Emulation { qemu: &self.qemu.path, plugin: &self.plugin, preload, program: &target.exec_path, arguments };
        let line = emulation.command_line().map_err(|error| SourceError::NotExecutable {
            path: target.exec_path.clone(),
            reason: error.to_string(),
            remedy: "run it without numapilot to see whether it works at all".to_owned(),
        })?;
        let mut command = Command::new(&self.qemu.path);
        command.args(line);
        for name in EMULATOR_VARIABLES {
            command.env_remove(name);
        }
        // For programs that the program starts (crates/runtime/c/emulator_exec.c).
        let mut variable = self.qemu.path.clone().into_os_string();
        variable.push(",");
        variable.push(&self.plugin);
        command.env("NUMAPILOT_EMULATOR", variable);
        Ok(command)
    }
}

/// Unpacks the emulator's plugin into the first place that takes it.
///
/// # Errors
/// No place does: with what each said.
fn unpacked_plugin() -> Result<PathBuf, numapilot_runtime::UnpackError> {
    numapilot_runtime::first_that_takes(|folder| {
        let (hash, name) = (numapilot_emulator::CONTENT_HASH, numapilot_emulator::PLUGIN_NAME);
        numapilot_runtime::unpack_file(folder, hash, name, numapilot_emulator::PLUGIN)
    })
}
