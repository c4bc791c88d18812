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

/// Variables by which QEMU's user mode takes options (`arg_table` of its `linux-user/main.c`). They would spoil a recording: the emulator would wait for a
/// debugger, write its own trace between the program's output, or run the program on another processor or address range.
const EMULATOR_VARIABLES: &[&str] = &[
    "QEMU_ARGV0",
    "QEMU_CPU",
    "QEMU_DFILTER",
    "QEMU_GDB",
    "QEMU_GUEST_BASE",
    "QEMU_JITDUMP",
    "QEMU_LD_PREFIX",
    "QEMU_LOG",
    "QEMU_LOG_FILENAME",
    "QEMU_ONE_INSN_PER_TB",
    "QEMU_PAGESIZE",
    "QEMU_PERFMAP",
    "QEMU_PLUGIN",
    "QEMU_RAND_SEED",
    "QEMU_RESERVED_VA",
    "QEMU_RTSIG_MAP",
    "QEMU_SET_ENV",
    "QEMU_SINGLESTEP",
    "QEMU_STACK_SIZE",
    "QEMU_STRACE",
    "QEMU_TB_SIZE",
    "QEMU_TRACE",
    "QEMU_UNAME",
    "QEMU_UNSET_ENV",
];

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

#[cfg(test)]
mod tests {
    use super::*;

    /// With `QEMU_GDB=1234`, the program would not begin until a debugger comes.
    #[test]
    fn options_of_the_users_for_the_emulator_do_not_reach_it() {
        let qemu = Qemu { path: "/usr/bin/qemu-x86_64".into(), version: String::new() };
        let emulator = Emulator { qemu, plugin: "/p.so".into() };
        let command = emulator.command(Path::new("/bin/true"), &["true".into()], OsStr::new("/l.so")).unwrap();
        let removed: Vec<&OsStr> =
            command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert_eq!(removed, EMULATOR_VARIABLES.iter().map(OsStr::new).collect::<Vec<_>>());
        assert!(["QEMU_GDB", "QEMU_LOG", "QEMU_STRACE"].iter().all(|name| removed.contains(&OsStr::new(name))));
    }
}
