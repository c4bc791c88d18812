//! Where the runtime's two binaries are unpacked: the user's cache folder, or a private one below /tmp.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use numapilot_runtime::Unpacked;

use crate::error::SourceError;

/// Characters that end a name in LD_PRELOAD.
pub(crate) fn loader_can_take(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| matches!(b, b':' | b' ' | b'\t' | b'\n'))
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
        .filter(|path| loader_can_take(path))
        .collect()
}

/// Unpacks the tracker and the call-outs into the first place that takes them.
///
/// # Errors
/// No place does: with what each said.
pub fn unpacked() -> Result<Unpacked, SourceError> {
    first_that_takes(numapilot_runtime::unpack)
}

/// Unpacks the emulator's plugin into the first place that takes it.
///
/// # Errors
/// No place does: with what each said.
pub fn unpacked_plugin() -> Result<PathBuf, SourceError> {
    first_that_takes(|folder| {
        let (hash, name) = (numapilot_emulator::CONTENT_HASH, numapilot_emulator::PLUGIN_NAME);
        numapilot_runtime::unpack_file(folder, hash, name, numapilot_emulator::PLUGIN)
    })
}

fn first_that_takes<T>(unpack: impl Fn(&Path) -> io::Result<T>) -> Result<T, SourceError> {
    let mut reasons = Vec::new();
    for folder in candidates(|name| std::env::var_os(name)) {
        match unpack(&folder) {
            Ok(unpacked) => return Ok(unpacked),
            Err(error) => reasons.push(format!("{}: {error}", folder.display())),
        }
    }
    Err(SourceError::Runtime { reason: reasons.join("; ") })
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
        let found = candidates(set(&[("XDG_CACHE_HOME", "relative"), ("HOME", "/home/a")]));
        assert_eq!(found[0], Path::new("/home/a/.cache/numapilot"));
        assert!(candidates(|_| None)[0].starts_with("/tmp"));
    }
}
