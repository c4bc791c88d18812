//! Where the runtime's binaries are unpacked: the user's cache folder, or a private one below /tmp.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use crate::Unpacked;

/// No folder takes the binaries.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot unpack the tracker library: {reason}; check that the cache folder is writable, or point XDG_CACHE_HOME at one that is"
)]
pub struct UnpackError {
    /// The folders that were tried, each with its error.
    pub reason: String,
}

/// Characters that end a name in LD_PRELOAD.
#[must_use]
pub fn loader_can_take(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| matches!(b, b':' | b' ' | b'\t' | b'\n'))
}

/// Characters that a Java virtual machine does not take in a path of its options.
fn java_can_take(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| matches!(b, b'=' | b'\'' | b'"'))
}

fn candidates(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    // SAFETY: a plain getter of this process's user id.
    let user = unsafe { libc::geteuid() };
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let runtime = absolute("XDG_RUNTIME_DIR");
    [cache, runtime]
        .into_iter()
        .flatten()
        .map(|folder| folder.join("numapilot"))
        .chain([PathBuf::from(format!("/tmp/numapilot-{user}"))])
        .filter(|path| loader_can_take(path) && java_can_take(path))
        .collect()
}

/// Unpacks the tracker and the call-outs into the first place that takes them.
///
/// # Errors
/// No place does: with what each said.
pub fn unpacked() -> Result<Unpacked, UnpackError> {
    first_that_takes(crate::unpack)
}

/// Unpacks something into the first place that takes it.
///
/// # Errors
/// No place does: with what each said.
pub fn first_that_takes<T>(unpack: impl Fn(&Path) -> io::Result<T>) -> Result<T, UnpackError> {
    let mut reasons = Vec::new();
    for folder in candidates(|name| std::env::var_os(name)) {
        match unpack(&folder) {
            Ok(unpacked) => return Ok(unpacked),
            Err(error) => reasons.push(format!("{}: {error}", folder.display())),
        }
    }
    Err(UnpackError { reason: reasons.join("; ") })
}

#[cfg(test)]
mod tests {
    //! Where the libraries may go.

    use super::*;

    #[test]
    fn folders_that_the_loader_cannot_name_are_passed_over() {
        let set = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        };
        let found = candidates(set(&[("XDG_CACHE_HOME", "/home/a b/cache"), ("XDG_RUNTIME_DIR", "/run/user/7")]));
        assert_eq!(found[0], Path::new("/run/user/7/numapilot"));
        let found = candidates(set(&[("XDG_CACHE_HOME", "/home/a=b/cache"), ("XDG_RUNTIME_DIR", "/run/user/7")]));
        assert_eq!(found[0], Path::new("/run/user/7/numapilot"));
        let found = candidates(set(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/home/a")]));
        assert_eq!(found[0], Path::new("/home/a/.cache/numapilot"));
        assert!(candidates(|_| None)[0].starts_with("/tmp"));
    }
}
