//! The links that give the wrapper the names under which it is called.
//!
//! Build systems look for "gcc" or "clang" in the compiler's name, and makefiles set `CC` themselves. So the wrapper also answers to
//! `numapilot-gcc` and its kin, and to `gcc` itself through a folder that comes first on PATH. A link's own name says which compiler it stands
//! for; that compiler is looked for on PATH, where links to the wrapper are passed over.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use crate::error::CompileError;
use crate::toolchain;
use crate::wrapper::{GENERIC, PREFIX};

/// Compilers that get links, where they are on PATH.
const COMPILERS: &[&str] = &["gcc", "g++", "gfortran", "clang", "clang++"];

/// Kind of links to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// `numapilot-gcc` and so on, for `CC=numapilot-gcc`.
    Prefixed,
    /// `gcc`, `cc` and so on, for a folder that comes first on PATH.
    Plain,
}

/// The file of this program, which links stand for.
///
/// # Errors
/// The system does not tell it.
pub(crate) fn this_program() -> Result<PathBuf, CompileError> {
    std::env::current_exe().map_err(|source| CompileError::File { path: PathBuf::from("/proc/self/exe"), source })
}

/// Makes links to this program in `folder`, one for each compiler on PATH; the paths of the links. The folder is made if need be.
///
/// # Errors
/// The system refuses, or another file has a link's name: nothing is overwritten but links to this program.
pub fn install_links(folder: &Path, links: Links) -> Result<Vec<PathBuf>, CompileError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CompileError::File { path, source }
    };
    let ourselves = this_program()?;
    fs::create_dir_all(folder).map_err(failed(folder))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut made = Vec::new();
    for name in link_names(links, |name| toolchain::on_path(OsStr::new(name), &path).is_some()) {
        let link = folder.join(name);
        place(&link, &ourselves).map_err(failed(&link))?;
        made.push(link);
    }
    Ok(made)
}

fn link_names(links: Links, is_there: impl Fn(&str) -> bool) -> Vec<String> {
    let triple = format!("{}-linux-gnu-", std::env::consts::ARCH);
    let is_there = &is_there;
    match links {
        Links::Prefixed => {
            let named = COMPILERS.iter().filter(|name| is_there(name));
            GENERIC.iter().chain(named).map(|name| format!("{PREFIX}{name}")).collect()
        }
        Links::Plain => {
            let plain =
                ["cc", "c++", "c99", "c89", "f77", "f95"].iter().chain(COMPILERS).map(|name| (*name).to_owned());
            let crossed = COMPILERS.iter().map(|name| format!("{triple}{name}"));
            plain.chain(crossed).filter(|name| is_there(name)).collect()
        }
    }
}

pub(super) fn place(link: &Path, ourselves: &Path) -> io::Result<()> {
    match symlink(ourselves, link) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        result => return result,
    }
    let is_ours = |target: PathBuf| target.file_name() == ourselves.file_name();
    if !fs::read_link(link).is_ok_and(is_ours) {
        let why = "it is there already, and is no link to numapilot: name another folder";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    fs::remove_file(link)?;
    symlink(ourselves, link)
}

#[cfg(test)]
mod tests {
    //! Names as build systems write them.

    use super::*;

    #[test]
    fn only_compilers_that_are_there_get_links() {
        let names = link_names(Links::Prefixed, |name| name.starts_with('g'));
        assert!(names.contains(&"numapilot-gfortran".to_owned()) && names.contains(&"numapilot-cc".to_owned()));
        assert!(!names.iter().any(|name| name.contains("clang")));
        assert_eq!(link_names(Links::Plain, |name| name == "gcc"), ["gcc"]);
    }

    #[test]
    fn a_foreign_file_is_not_overwritten() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (link, ourselves) = (folder.path().join("gcc"), Path::new("/opt/numapilot"));
        place(&link, ourselves).expect("a link");
        place(&link, ourselves).expect("the same link again");
        std::fs::remove_file(&link).expect("removed");
        std::fs::write(&link, "theirs").expect("a file");
        assert!(place(&link, ourselves).unwrap_err().to_string().contains("no link to numapilot"));
        assert_eq!(std::fs::read(&link).expect("it is there"), b"theirs");
    }
}
