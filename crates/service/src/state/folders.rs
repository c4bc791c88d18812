//! The list of state folders on this machine, at a fixed place, so that each daemon restores the settings that killed daemons left changed, whatever folder it
//! uses.

use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use numapilot_host::Pid;

use super::Done;
use super::SettingsGuard;
use super::System;
use crate::error::ServiceError;

/// The list, in the folder of [`crate::Places::machine`].
const LIST: &str = "folders";
/// Maximum number of additional default folders for daemons of one user.
const BESIDE_MAX: u32 = 64;

/// Takes a state folder: `wanted` or, if another process uses that and `beside` is set, a free one beside it. Before that, it restores all settings that killed
/// daemons left changed, in all listed folders, the last one first. `machine`: folder of the list.
///
/// # Errors
/// Another process uses the folder, or it cannot be written.
pub fn take<S: System + Clone>(
    machine: &Path,
    wanted: &Path,
    beside: bool,
    system: &S,
) -> Result<(SettingsGuard<S>, Vec<Done>), ServiceError> {
    // Held until the folder is taken: if two daemons start at once, one waits.
    let _turn = turn(machine)?;
    let mut done = put_back_orphans(machine, system)?;
    let (guard, own) = if beside { first_free(wanted, system)? } else { SettingsGuard::open(wanted, system.clone())? };
    done.extend(own);
    let mut list = read(machine);
    if !list.iter().any(|folder| folder == guard.folder()) {
        list.push(guard.folder().to_owned());
        write(machine, &list)?;
    }
    Ok((guard, done))
}

/// Restores settings that killed daemons have left changed since this one started.
///
/// # Errors
/// The list cannot be written.
pub fn put_back<S: System + Clone>(machine: &Path, system: &S) -> Result<Vec<Done>, ServiceError> {
    let _turn = turn(machine)?;
    put_back_orphans(machine, system)
}

fn put_back_orphans<S: System + Clone>(machine: &Path, system: &S) -> Result<Vec<Done>, ServiceError> {
    let before = read(machine);
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for folder in before.iter().rev() {
        if !SettingsGuard::<S>::has_record(folder) {
            // Nothing to restore; the folder of a running daemon that has changed nothing yet stays on the list.
            if SettingsGuard::<S>::is_held(folder) {
                left.push(folder.clone());
            }
            continue;
        }
        match SettingsGuard::open(folder, system.clone()) {
            Ok((guard, restored)) => {
                done.extend(restored);
                if SettingsGuard::<S>::has_record(guard.folder()) {
                    left.push(folder.clone());
                }
            }
            // The folder of a running daemon, or a damaged one, which its next user reports.
            Err(_) => left.push(folder.clone()),
        }
    }
    left.reverse();
    if left != before {
        write(machine, &left)?;
    }
    Ok(done)
}

fn first_free<S: System + Clone>(wanted: &Path, system: &S) -> Result<(SettingsGuard<S>, Vec<Done>), ServiceError> {
    let mut taken = None;
    for number in 1..=BESIDE_MAX {
        let folder = match number {
            1 => wanted.to_owned(),
            _ => {
                wanted.with_file_name(format!("{}-{number}", wanted.file_name().unwrap_or_default().to_string_lossy()))
            }
        };
        match SettingsGuard::open(&folder, system.clone()) {
            Err(error @ ServiceError::Taken { .. }) => taken = Some(error),
            other => return other,
        }
    }
    Err(taken.unwrap_or(ServiceError::Taken { path: wanted.to_owned(), pid: Pid(0) }))
}

/// Locks the list.
fn turn(machine: &Path) -> Result<File, ServiceError> {
    let path = machine.join(format!("{LIST}.lock"));
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&path).map_err(|source| ServiceError::file(&path, "take the lock", source))?;
    // SAFETY: `file` is open. The lock is held for some milliseconds only.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(ServiceError::file(&path, "take the lock", io::Error::last_os_error()));
    }
    Ok(file)
}

fn read(machine: &Path) -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let text = std::fs::read(machine.join(LIST)).unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n').filter(|line| line.first() == Some(&b'/'));
    lines.map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec()))).collect()
}

fn write(machine: &Path, list: &[PathBuf]) -> Result<(), ServiceError> {
    use std::os::unix::ffi::OsStrExt;
    let (file, temporary) = (machine.join(LIST), machine.join(format!("{LIST}.tmp")));
    let write = || -> io::Result<()> {
        let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        for folder in list {
            out.write_all(folder.as_os_str().as_bytes())?;
            out.write_all(b"\n")?;
        }
        out.sync_all()?;
        std::fs::rename(&temporary, &file)
    };
    write().map_err(|source| ServiceError::file(&file, "record the state folder", source))
}
