//! Input and output of the guest's command, as files in the exchange folder: `settings` and `job` (shell) in; `stdout`, `stderr`, `exit` out.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use numapilot_text::shell::quoted_bytes;

use crate::error::AtPath;
use crate::error::LabError;

/// Where the guest sees the exchange folder; also in its environment as `NUMAPILOT_LAB_FILES`.
pub const FILES_IN_GUEST: &str = "/run/lab";
/// Variables of the host's environment that the guest gets.
const INHERITED: &[&str] = &["PATH", "HOME", "LANG"];

/// The folder that the command runs in: its own, else this process's. Shared for writing, unless it is the root.
pub(crate) fn working_folder(command: &Command) -> Result<PathBuf, LabError> {
    let folder = match command.get_current_dir() {
        Some(folder) => folder.to_path_buf(),
        None => env::current_dir().at(Path::new("."), "cannot determine the working folder")?,
    };
    let folder = folder.canonicalize().at(&folder, "cannot be the lab's working folder")?;
    if folder.as_os_str().as_bytes().contains(&b',') {
        return Err(LabError::Command(format!(
            "the path of its folder {} has a comma, at which QEMU ends a path",
            folder.display()
        )));
    }
    Ok(folder)
}

/// Writes what the guest is to do; the words `before` come before the command's own. `seen`: folders of the host that the guest shall see where its file tree
/// is not the host's.
pub(crate) fn write(
    before: &[&str],
    command: &Command,
    work: &Path,
    files: &Path,
    seen: &[PathBuf],
) -> Result<(), LabError> {
    let mut settings = Vec::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    settings.extend_from_slice(format!("LAB_TIME={now}\nLAB_WORK=").as_bytes());
    // A root that the guest could write would be the host's own.
    settings.extend(quoted_bytes(if work == Path::new("/") { b"".as_slice() } else { work.as_os_str().as_bytes() }));
    settings.push(b'\n');
    if !seen.is_empty() {
        settings.extend_from_slice(b"see_folders() {\n");
        for folder in seen {
            settings.extend([b"see ", quoted_bytes(folder.as_os_str().as_bytes()).as_slice(), b"\n"].concat());
        }
        settings.extend_from_slice(b"}\n");
    }
    let mut job = Vec::new();
    for name in INHERITED {
        if let Some(value) = env::var_os(name) {
            export(&mut job, OsStr::new(name), &value)?;
        }
    }
    export(&mut job, OsStr::new("NUMAPILOT_LAB_FILES"), OsStr::new(FILES_IN_GUEST))?;
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => export(&mut job, name, value)?,
            None => job.extend([b"unset ", name.as_bytes(), b"\n"].concat()),
        }
    }
    job.extend([b"cd ", quoted_bytes(work.as_os_str().as_bytes()).as_slice(), b" || exit 127\nexec"].concat());
    let before = before.iter().map(OsStr::new);
    for word in before.chain([command.get_program()]).chain(command.get_args()) {
        job.push(b' ');
        job.extend(quoted_bytes(word.as_bytes()));
    }
    job.push(b'\n');
    for (name, bytes) in [("settings", settings), ("job", job)] {
        let path = files.join(name);
        fs::write(&path, bytes).at(&path, "cannot write")?;
    }
    Ok(())
}

fn export(job: &mut Vec<u8>, name: &OsStr, value: &OsStr) -> Result<(), LabError> {
    let valid = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    if !name.as_bytes().iter().all(valid) {
        return Err(LabError::Command(format!("the shell has no variable {name:?}")));
    }
    job.extend([b"export ", name.as_bytes(), b"=", quoted_bytes(value.as_bytes()).as_slice(), b"\n"].concat());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_job_runs_the_very_words_in_the_very_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let work = folder.path().join("it's a \"folder\" $HOME");
        fs::create_dir(&work).expect("made");
        let words = ["a b", "it's", "$HOME `x` \\ \"", "", "*", "-n\nnew"];
        let mut command = Command::new("printf");
        command.arg("[%s]").args(words).env("LAB_TEST", "a'b $c").env_remove("HOME").current_dir(&work);
        write(&[], &command, &working_folder(&command).expect("a folder"), folder.path(), &[]).expect("written");
        let job = folder.path().join("job");
        let output = Command::new("sh").arg(&job).stdin(Stdio::null()).output().expect("sh runs");
        let expected: String = words.iter().map(|w| format!("[{w}]")).collect();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", String::from_utf8_lossy(&output.stderr));
        let mut command = Command::new("sh");
        command.args(["-c", "printf '%s|%s' \"$LAB_TEST\" \"$PWD\""]).env("LAB_TEST", "a'b $c").current_dir(&work);
        write(&[], &command, &work, folder.path(), &[]).expect("written");
        let output = Command::new("sh").arg(&job).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("a'b $c|{}", work.display()));
    }

    #[test]
    fn the_root_is_not_shared_for_writing() {
        let folder = tempfile::tempdir().expect("a folder");
        write(&[], &Command::new("true"), Path::new("/"), folder.path(), &[]).expect("written");
        let settings = fs::read_to_string(folder.path().join("settings")).expect("written");
        assert!(settings.contains("LAB_WORK=''\n"), "{settings}");
        assert!(!settings.contains("see"), "{settings}");
    }

    #[test]
    fn the_shell_reads_which_folders_are_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let seen = [PathBuf::from("/it's a folder"), PathBuf::from("/b")];
        write(&[], &Command::new("true"), Path::new("/"), folder.path(), &seen).expect("written");
        let script = "see() { echo \"<$1>\"; }; . \"$0/settings\"; see_folders";
        let output = Command::new("sh").args(["-c", script]).arg(folder.path()).output().expect("sh runs");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "</it's a folder>\n</b>\n");
    }
}
