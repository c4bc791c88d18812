//! From the first word of a command to the binary that the kernel will run: PATH, then `#!` lines.

use std::ffi::CString;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use crate::binary::Binary;
use crate::error::LaunchError;

/// How many interpreters deep the kernel follows `#!` lines (BINPRM_BUF chain limit in fs/exec.c).
const MAX_SCRIPT_DEPTH: usize = 5;

/// A program that is ready to be started.
#[derive(Clone, Debug)]
pub struct Target {
    /// Path to pass to `execve`.
    pub exec_path: PathBuf,
    /// The binary that then runs: the file itself, or its interpreter.
    pub binary: Binary,
    /// The script, where the program is one.
    pub script: Option<PathBuf>,
}

/// The file that `execvp` would run for `program`, executable or not.
#[must_use]
pub fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).is_file().then(|| PathBuf::from(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/local/bin:/usr/bin:/bin"));
    let candidates: Vec<PathBuf> = std::env::split_paths(&path)
        .map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder })
        .collect();
    let mut found = candidates.iter().map(|folder| folder.join(program)).filter(|file| file.is_file());
    let first = found.next()?;
    if is_executable(&first) {
        return Some(first);
    }
    Some(found.find(|file| is_executable(file)).unwrap_or(first))
}

fn is_executable(path: &Path) -> bool {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    unsafe { libc::access(name.as_ptr(), libc::X_OK) == 0 }
}

/// Finds and inspects the program of `command`.
///
/// # Errors
/// Not found, not executable, or neither a binary nor a script.
pub fn resolve_target(command: &[OsString]) -> Result<Target, LaunchError> {
    let program = command.first().filter(|p| !p.is_empty()).ok_or(LaunchError::NoCommand)?;
    resolve(program)
}

fn resolve(program: &OsStr) -> Result<Target, LaunchError> {
    let shown = program.to_string_lossy().into_owned();
    let on_path = !program.as_bytes().contains(&b'/');
    let Some(exec_path) = find_program(program) else {
        if Path::new(program).is_dir() && !on_path {
            return Err(not_executable(program, "it is a folder", "name a program in it"));
        }
        return Err(LaunchError::NotFound { program: shown, on_path });
    };
    if !is_executable(&exec_path) {
        let remedy = format!("make it executable with `chmod +x {}`", exec_path.display());
        return Err(LaunchError::NotExecutable { path: exec_path, reason: "it is not executable".to_owned(), remedy });
    }
    let mut current = exec_path.clone();
    for depth in 0..=MAX_SCRIPT_DEPTH {
        if let Some(binary) = Binary::inspect(&current)? {
            return Ok(Target { script: (depth > 0).then(|| exec_path.clone()), exec_path, binary });
        }
        current = interpreter(&current)?;
    }
    Err(not_executable(
        exec_path.as_os_str(),
        "its `#!` lines lead from script to script",
        "name a binary as the interpreter",
    ))
}

/// The binary behind a script's `#!` line, looking through `env`.
fn interpreter(script: &Path) -> Result<PathBuf, LaunchError> {
    let mut head = [0_u8; 256];
    let count = File::open(script)
        .and_then(|mut file| file.read(&mut head))
        .map_err(|e| not_executable(script.as_os_str(), &format!("it cannot be read ({e})"), "make it readable"))?;
    let Some(line) = head[..count].strip_prefix(b"#!") else {
        return Err(not_executable(
            script.as_os_str(),
            "it is neither an ELF binary nor a script with a `#!` line",
            "name the program that runs it, as in `numapilot record -- sh FILE`",
        ));
    };
    let line = line.split(|&b| b == b'\n').next().unwrap_or_default();
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let missing = |what: &str| {
        not_executable(
            script.as_os_str(),
            &format!("its `#!` line names {what}"),
            "correct that line, or install the interpreter",
        )
    };
    let name = words.next().ok_or_else(|| missing("no interpreter"))?;
    let path = PathBuf::from(OsStr::from_bytes(name));
    if path.file_name() == Some(OsStr::new("env")) {
        let inner = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'=')).unwrap_or_default();
        return find_program(OsStr::from_bytes(inner))
            .ok_or_else(|| missing(&format!("`{}`, which is not on PATH", String::from_utf8_lossy(inner))));
    }
    if path.is_file() { Ok(path) } else { Err(missing(&format!("{}, which does not exist", path.display()))) }
}

fn not_executable(path: impl AsRef<OsStr>, reason: &str, remedy: &str) -> LaunchError {
    LaunchError::NotExecutable {
        path: PathBuf::from(path.as_ref()),
        reason: reason.to_owned(),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    //! Scripts and names as users write them.

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
    fn scripts_resolve_to_their_interpreter_through_env_and_other_scripts() {
        let folder = tempfile::tempdir().unwrap();
        let plain = script(folder.path(), "plain", "#!/bin/sh -e\nexit 0\n");
        let target = resolve(plain.as_os_str()).unwrap();
        assert_eq!(target.script.as_deref(), Some(plain.as_path()));
        assert_eq!(target.exec_path, plain);
        assert!(target.binary.path.ends_with("sh"));
        let by_env = script(folder.path(), "env", "#!/usr/bin/env -S A=1 sh\n");
        assert!(resolve(by_env.as_os_str()).unwrap().binary.path.ends_with("sh"));
        let nested = script(folder.path(), "nested", &format!("#!{}\n", plain.display()));
        assert!(resolve(nested.as_os_str()).unwrap().binary.path.ends_with("sh"));
    }

    #[test]
    fn what_cannot_run_is_refused_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let text = script(folder.path(), "text", "just words\n");
        assert!(resolve(text.as_os_str()).unwrap_err().to_string().contains("neither an ELF binary nor a script"));
        let lost = script(folder.path(), "lost", "#!/no/such/interpreter\n");
        assert!(
            resolve(lost.as_os_str()).unwrap_err().to_string().contains("/no/such/interpreter, which does not exist")
        );
        let own = script(folder.path(), "own", &format!("#!{}/own\n", folder.path().display()));
        assert!(resolve(own.as_os_str()).unwrap_err().to_string().contains("script to script"));
        let flat = folder.path().join("flat");
        fs::write(&flat, "#!/bin/sh\n").unwrap();
        assert!(resolve(flat.as_os_str()).unwrap_err().to_string().contains("chmod +x"));
        assert!(resolve(folder.path().join("x/").as_os_str()).unwrap_err().to_string().contains("not found"));
        assert!(resolve(folder.path().as_os_str()).unwrap_err().to_string().contains("folder"));
        assert!(resolve(OsStr::new("no-such-program-anywhere")).unwrap_err().to_string().contains("PATH"));
    }
}
