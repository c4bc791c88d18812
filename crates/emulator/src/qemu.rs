//! Finds a QEMU user-mode emulator that can load numapilot's plugin.
//!
//! QEMU can be built without plugins: Debian's `qemu-user` 10 and later are static builds that lack them, 7.2 (Debian 12) has them. Version numbers are
//! no guide, so each candidate is tested: with the argument `probe`, the plugin ends the emulator with a special exit status.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

/// Names the emulator to use: a path, or a name on PATH.
pub const QEMU_VARIABLE: &str = "NUMAPILOT_QEMU";

/// Name of QEMU's emulator of x86-64 programs.
const NAMES: &[&str] = &["qemu-x86_64"];

/// Why programs cannot be emulated where no emulator is installed.
pub const NO_EMULATOR: &str = "there is no qemu-x86_64 on PATH";

/// The plugin's answer to a probe (`PROBE_STATUS` in user.c).
const PROBE_STATUS: i32 = 42;

const REMEDY: &str = "install a QEMU user-mode emulator of version 4.2 to 8.2 that was built with plugins (Debian 12: `apt-get install qemu-user`, \
                      version 7.2), or name one with NUMAPILOT_QEMU=/path/to/qemu-x86_64";

/// An emulator that takes the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// Path of the executable.
    pub path: PathBuf,
    /// The first line of `--version`.
    pub version: String,
}

/// Why no emulator can be used, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Why programs cannot be emulated.
    pub reason: String,
    /// What the user can do about it, as a clause of the message.
    pub remedy: String,
}

/// Whether programs can be emulated here.
pub type Availability = Result<Qemu, Unavailable>;

/// Finds an emulator that takes `plugin` (a file with the bytes of [`crate::PLUGIN`]): the one that [`QEMU_VARIABLE`] names, else `qemu-x86_64` on PATH.
///
/// # Errors
/// None does: with the reason and the remedy.
pub fn availability(plugin: &Path) -> Availability {
    if crate::PLUGIN.is_empty() {
        return Err(Unavailable {
            reason: format!("emulation needs an x86-64 host, but this host is {}", std::env::consts::ARCH),
            remedy: "record on an x86-64 machine".to_owned(),
        });
    }
    if plugin.as_os_str().as_bytes().contains(&b',') {
        return Err(Unavailable {
            reason: format!("QEMU cannot take {} because of the comma in it", plugin.display()),
            remedy: "point XDG_CACHE_HOME at another folder".to_owned(),
        });
    }
    let candidates = candidates(std::env::var_os(QEMU_VARIABLE), std::env::var_os("PATH"));
    let mut refused = Vec::new();
    for path in &candidates {
        match probe(path, plugin) {
            Ok(version) => {
                return Ok(Qemu { path: std::path::absolute(path).unwrap_or_else(|_| path.clone()), version });
            }
            Err(reason) => refused.push(reason),
        }
    }
    if refused.is_empty() {
        refused.push(NO_EMULATOR.to_owned());
    }
    Err(Unavailable { reason: refused.join("; "), remedy: REMEDY.to_owned() })
}

fn candidates(named: Option<OsString>, path: Option<OsString>) -> Vec<PathBuf> {
    let folders: Vec<PathBuf> = path.iter().flat_map(|path| std::env::split_paths(path)).collect();
    let on_path = |name: &OsStr| {
        let name = name.to_owned();
        folders.iter().map(move |folder| folder.join(&name)).filter(|file| file.is_file()).collect::<Vec<_>>()
    };
    match named.filter(|name| !name.is_empty()) {
        Some(name) if name.as_bytes().contains(&b'/') => vec![PathBuf::from(name)],
        Some(name) => {
            let found = on_path(&name);
            // Not there: the attempt to run it says so.
            if found.is_empty() { vec![PathBuf::from(name)] } else { found }
        }
        None => NAMES.iter().flat_map(|name| on_path(OsStr::new(name))).collect(),
    }
}

/// The version of a QEMU, or why it cannot be used.
fn probe(qemu: &Path, plugin: &Path) -> Result<String, String> {
    let shown = qemu.display();
    let run = |arguments: &[&OsStr]| {
        Command::new(qemu)
            .args(arguments)
            .env_remove("QEMU_PLUGIN")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("{shown} cannot be run ({error})"))
    };
    let told = run(&[OsStr::new("--version")])?;
    let version = String::from_utf8_lossy(&told.stdout).lines().next().unwrap_or("").trim().to_owned();
    if !version.contains("qemu") && !version.contains("QEMU") {
        return Err(format!("{shown} is not QEMU"));
    }
    let mut argument = plugin.as_os_str().to_owned();
    argument.push(",probe=on");
    // The program is never begun; it has to be a file.
    let answer = run(&[OsStr::new("-plugin"), &argument, OsStr::new("/proc/self/exe")])?;
    if answer.status.code() == Some(PROBE_STATUS) {
        return Ok(version);
    }
    let said = String::from_utf8_lossy(&answer.stderr);
    let said = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it gave no reason").trim().to_owned();
    Err(format!("{shown} ({version}) cannot load numapilot's plugin: {said}"))
}

#[cfg(test)]
mod tests {
    //! Which files are asked, and what is said of those that are of no use.

    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_named_emulator_comes_alone() {
        let folder = tempfile::tempdir().unwrap();
        let ours = script(folder.path(), "qemu-x86_64", "#!/bin/sh\n");
        let path = Some(folder.path().as_os_str().to_owned());
        assert_eq!(candidates(None, path.clone()), std::slice::from_ref(&ours));
        assert_eq!(candidates(Some("/opt/q".into()), path.clone()), [PathBuf::from("/opt/q")]);
        assert_eq!(candidates(Some("qemu-x86_64".into()), path), [ours]);
        assert!(candidates(None, None).is_empty());
    }

    #[test]
    fn emulators_without_plugins_say_so() {
        let folder = tempfile::tempdir().unwrap();
        let text = "#!/bin/sh\ncase $1 in --version) echo 'qemu-x86_64 version 10.0.2';; *) echo 'unknown option plugin' >&2; exit 1;; esac\n";
        let qemu = script(folder.path(), "q", text);
        let reason = probe(&qemu, Path::new("/x.so")).unwrap_err();
        assert!(reason.contains("10.0.2") && reason.contains("unknown option plugin"), "{reason}");
        let other = script(folder.path(), "other", "#!/bin/sh\necho hello\n");
        assert!(probe(&other, Path::new("/x.so")).unwrap_err().contains("not QEMU"));
        assert!(probe(&folder.path().join("none"), Path::new("/x.so")).unwrap_err().contains("cannot be run"));
    }
}
