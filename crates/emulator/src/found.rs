//! An emulator that takes our plugin, and the command that runs a program in it.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::command::Emulation;
use crate::command::NotEmulated;
use crate::qemu::Qemu;
use crate::qemu::Unavailable;
use crate::qemu::availability;

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
        Ok(Emulator { qemu: availability(&plugin)?, plugin })
    }

    /// The command that runs `program` with `arguments` (the first as the user wrote it) and preloads `preload` in it.
    ///
    /// # Errors
    /// A comma where QEMU takes none, or a script that leads nowhere.
    pub fn command(&self, program: &Path, arguments: &[OsString], preload: &OsStr) -> Result<Command, NotEmulated> {
        let line = Emulation { plugin: &self.plugin, preload, program, arguments }.command_line()?;
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
        numapilot_runtime::unpack_file(folder, crate::CONTENT_HASH, crate::PLUGIN_NAME, crate::PLUGIN)
    })
}
