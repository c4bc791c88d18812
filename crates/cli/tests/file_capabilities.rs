//! numapilot with capabilities of its file, as `doctor` and the error messages advise (`setcap cap_perfmon+ep`): the tracker still finds the recording's
//! memory, and the program its environment.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::common::*;
use numapilot_scratch::copy_program;

const NOBODY: u32 = 65534;
/// `struct vfs_cap_data` of `linux/capability.h`: revision 2, effective; permitted and inheritable, the low words and the high ones. CAP_PERFMON is 38.
const PERFMON: [u32; 5] = [0x0200_0001, 0, 0, 1 << (38 - 32), 0];

fn give_perfmon(file: &Path) -> std::io::Result<()> {
    let path = CString::new(file.as_os_str().as_bytes()).expect("no NUL");
    let value: Vec<u8> = PERFMON.iter().flat_map(|word| word.to_le_bytes()).collect();
    // SAFETY: NUL-terminated names and a value of the given length.
    let done = unsafe {
        libc::setxattr(path.as_ptr(), c"security.capability".as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn setcap_takes_neither_the_tracker_nor_the_environment_from_the_program() {
    // SAFETY: no precondition.
    if unsafe { libc::geteuid() } != 0 {
        return numapilot_not_run::not_run!(Root, "only root gives a file capabilities");
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let (binary, work) = (folder.path().join("numapilot"), folder.path().join("work"));
    copy_program(Path::new(BINARY), &binary);
    fs::create_dir(&work).expect("a folder");
    chown(&work, Some(NOBODY), Some(NOBODY)).expect("its owner");
    if let Err(error) = give_perfmon(&binary) {
        return numapilot_not_run::not_run!(Root, "the file system takes no capabilities: {error}");
    }
    let mut command = Command::new(&binary);
    command.args(["record", "--engine", "track", "-o", "t.numatrace", "--", "env"]).current_dir(&work);
    command.env("XDG_CACHE_HOME", work.join("cache")).env("LD_LIBRARY_PATH", "/of-this-test");
    let output = match command.uid(NOBODY).gid(NOBODY).output() {
        // The capability is not in this container's bounding set.
        Err(error) => return numapilot_not_run::not_run!(Root, "a file with CAP_PERFMON cannot be started: {error}"),
        Ok(output) => output,
    };
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("nothing was recorded") && !stderr.contains(" 0 threads"), "{stderr}");
    assert!(stdout.lines().any(|line| line == "LD_LIBRARY_PATH=/of-this-test"), "{stdout}");
}
