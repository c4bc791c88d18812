//! What tests run: commands that must succeed, and where those find the repository and what cargo has made.

use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

/// The root folder of the repository.
///
/// # Panics
/// Where the sources are gone.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Runs a command that must at least start.
///
/// # Panics
/// Where it does not.
pub fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error} (install the packages of `tools/setup test`)"))
}

/// Runs a command that must succeed; its standard output.
///
/// # Panics
/// Where it does not start, or fails: with all that it said.
pub fn must(command: &mut Command) -> String {
    let output = run(command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{errors}", output.status);
    said
}

/// Writes a script that the caller then runs. By another process: one that this process forks meanwhile would hold the file open for writing until it becomes
/// its own program, and the script could not be run then (`ETXTBSY`).
///
/// # Panics
/// Where it cannot be written.
pub fn write_program(path: &Path, text: &str) {
    must(Command::new("sh").args(["-c", "printf %s \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).arg(text));
}

/// Copies a program that the caller then runs, by another process as [`write_program`] does.
///
/// # Panics
/// Where it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    must(Command::new("cp").arg("--preserve=mode").arg(from).arg(to));
}

/// What cargo has made of a crate's sources beside the program of the tests: the newest file of which the name begins and ends so.
///
/// # Panics
/// Where there is none.
#[must_use]
pub fn made(prefix: &str, suffix: &str) -> PathBuf {
    let test = env::current_exe().expect("this test's path");
    let entries = test.ancestors().skip(1).take(2).flat_map(|folder| fs::read_dir(folder).expect("read").flatten());
    let found = entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(prefix) && name.ends_with(suffix)
    });
    let newest = found.max_by_key(|path| path.metadata().and_then(|data| data.modified()).expect("a time"));
    newest.unwrap_or_else(|| panic!("cargo makes {prefix}*{suffix} before it runs this"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn a_command_that_succeeds_returns_what_it_said() {
        assert_eq!(must(&mut shell("echo said; echo aside >&2")), "said\n");
        assert_eq!(run(&mut shell("exit 3")).status.code(), Some(3));
    }

    #[test]
    #[should_panic(expected = "exit status: 3\nsaid\n\nwrong\n")]
    fn a_command_that_fails_is_told_with_all_that_it_said() {
        must(&mut shell("echo said; echo wrong >&2; exit 3"));
    }

    #[test]
    fn programs_that_were_written_or_copied_can_be_run() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let [script, copy] = ["script", "copy"].map(|name| folder.path().join(name));
        write_program(&script, "#!/bin/sh\necho \"$1 %s\"\n");
        assert_eq!(must(Command::new(&script).arg("said")), "said %s\n");
        copy_program(&script, &copy);
        assert_eq!(must(Command::new(&copy).arg("again")), "again %s\n");
    }

    #[test]
    fn the_repository_and_this_program_are_found() {
        assert!(root().join("crates/scratch/src/commands.rs").is_file());
        let this = env::current_exe().expect("this program");
        let name = this.file_name().expect("a name").to_string_lossy();
        assert_eq!(made(&name, &name), this);
    }
}
