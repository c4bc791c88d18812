//! Carries the C binaries of recordings and plans inside the `numapilot` executable, and unpacks them where a program can be started with them.
//!
//! `c/` holds their sources (`wire.h`: what they share with the recorder; `np.h`: what their parts offer each other), `java/` those of the agent for Java
//! virtual machines; `build.rs` builds them.
//! They are unpacked into a directory named by their content, so versions of numapilot never disturb each other's.

mod cache;
mod tree;

use std::ffi::CString;
use std::fs;
use std::fs::DirBuilder;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

pub use cache::UnpackError;
pub use cache::first_that_takes;
pub use cache::loader_can_take;
pub use cache::unpacked;
pub use tree::Tree;
pub use tree::TreeEntry;
pub use tree::unpack_tree;

/// The tracker: a shared object for `LD_PRELOAD`.
pub const TRACKER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-track.so"));

/// The call-outs: a static archive that instrumented programs are linked with.
pub const CALLOUTS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-callouts.a"));

/// The planner: a shared object for `LD_PRELOAD` that puts a program's objects and threads where a plan says.
pub const PLANNER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-plan.so"));

/// The agent: a shared object that Java virtual machines load (`-agentpath:`), beside the tracker.
pub const JAVA_AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libnumapilot-java.so"));

/// Functions that the call-outs put themselves before (`callouts_mem.c`): a program that carries them is linked with `--wrap=NAME` for each.
pub const WRAPPED: &[&str] = &[
    "memcpy",
    "memmove",
    "mempcpy",
    "memset",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "memcmp",
    "bcmp",
    "memchr",
    "strlen",
    "strcpy",
    "strcmp",
];

/// The linker's `--dynamic-list` of an instrumented program: the entry points, for its libraries; the seam, for the tracker.
pub const EXPORTS: &str = "{ __tsan_*; __wrap_*; Annotate*; WTFAnnotate*; numapilot_callouts; numapilot_callouts_slot; };\n";

/// Names the binaries by their content: 16 hexadecimal digits.
pub const CONTENT_HASH: &str = env!("NUMAPILOT_RUNTIME_HASH");

/// File name of the tracker.
pub const TRACKER_NAME: &str = "libnumapilot-track.so";

/// File name of the call-outs.
pub const CALLOUTS_NAME: &str = "libnumapilot-callouts.a";

/// File name of the planner.
pub const PLANNER_NAME: &str = "libnumapilot-plan.so";

/// File name of the agent.
pub const JAVA_AGENT_NAME: &str = "libnumapilot-java.so";

/// Absolute paths of the unpacked binaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// Path of the tracker library.
    pub tracker: PathBuf,
    /// Path of the archive of call-outs.
    pub callouts: PathBuf,
    /// Path of the planner library.
    pub planner: PathBuf,
    /// Path of the agent for Java virtual machines.
    pub java_agent: PathBuf,
}

/// Writes the binaries below `dir`, in a directory of their content's name, unless they are there already.
///
/// `dir` and its missing parents are made with mode 0700. Several processes may unpack at once: files appear whole, by renaming.
///
/// # Errors
///
/// Besides those of the file system: [`io::ErrorKind::PermissionDenied`] where `dir` or the directory in it belongs to another user, is a
/// symbolic link, or may be written by others. Somebody else could then swap the library that is about to be loaded into the user's programs.
pub fn unpack(dir: &Path) -> io::Result<Unpacked> {
    let home = private_home(dir, CONTENT_HASH)?;
    Ok(Unpacked {
        tracker: place(&home, TRACKER_NAME, TRACKER)?,
        callouts: place(&home, CALLOUTS_NAME, CALLOUTS)?,
        planner: place(&home, PLANNER_NAME, PLANNER)?,
        java_agent: place(&home, JAVA_AGENT_NAME, JAVA_AGENT)?,
    })
}

/// The same for one file that another crate carries; `content_hash` names its directory. Its absolute path.
///
/// # Errors
/// The errors of [`unpack`].
pub fn unpack_file(dir: &Path, content_hash: &str, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    place(&private_home(dir, content_hash)?, name, bytes)
}

/// The directory of that name below `dir`, both made if need be, and ours alone.
fn private_home(dir: &Path, content_hash: &str) -> io::Result<PathBuf> {
    let dir = std::path::absolute(dir)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    check_private(&dir)?;
    let home = dir.join(content_hash);
    match DirBuilder::new().mode(0o700).create(&home) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => check_private(&home)?,
    }
    Ok(home)
}

fn check_private(dir: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(dir)?;
    // SAFETY: geteuid has no conditions and cannot fail.
    let own_uid = unsafe { libc::geteuid() };
    let problem = if !metadata.is_dir() {
        "is not a directory"
    } else if metadata.uid() != own_uid {
        "belongs to another user"
    } else if metadata.mode() & 0o022 != 0 {
        "may be written by others (chmod go-w it)"
    } else {
        return Ok(());
    };
    let message =
        format!("{} {problem}: the libraries cannot be kept there; choose another cache directory", dir.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// The file `name` in `home` with exactly these bytes.
fn place(home: &Path, name: &str, bytes: &[u8]) -> io::Result<PathBuf> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let path = home.join(name);
    if holds(&path, bytes)? {
        return Ok(path);
    }
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let temporary = home.join(format!(".{name}.{}.{serial}", process::id()));
    // Left over from a killed process whose number came around again.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
    if let Err(error) = written {
        // Best effort: the error to report is the first one.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(path)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o500).open(path)?;
    file.write_all(bytes)
}

/// True when `path` is a regular file of ours with these bytes. False also for anything else there, which renaming replaces.
fn holds(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let Ok(name) = CString::new(path.as_os_str().as_bytes()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} holds a zero byte", path.display())));
    };
    let mut file = match open_no_follow(&name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        // A symbolic link, or something that cannot be opened: replaced.
        Err(_) => return Ok(false),
    };
    let metadata = file.metadata()?;
    // SAFETY: geteuid has no conditions and cannot fail.
    let own_uid = unsafe { libc::geteuid() };
    if !metadata.is_file()
        || metadata.uid() != own_uid
        || metadata.mode() & 0o022 != 0
        || metadata.len() != bytes.len() as u64
    {
        return Ok(false);
    }
    let mut found = Vec::with_capacity(bytes.len());
    file.read_to_end(&mut found)?;
    Ok(found == bytes)
}

fn open_no_follow(name: &CString) -> io::Result<File> {
    let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}
