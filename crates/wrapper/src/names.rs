//! The names under which the wrapper is called, and the links that give it those names.
//!
//! Build systems look for "gcc" or "clang" in the compiler's name, and makefiles set `CC` themselves. So the wrapper also answers to
//! `numapilot-gcc` and its kin, and to `gcc` itself through a folder that comes first on PATH. A link's own name says which compiler it stands
//! for; that compiler is looked for on PATH, where links to the wrapper are passed over.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;

use crate::CompileError;
use crate::Language;
use crate::toolchain;

/// Before the compiler's name in the names of links.
const PREFIX: &str = "numapilot-";
/// Compilers that get links, where they are on PATH.
const COMPILERS: &[&str] = &["gcc", "g++", "gfortran", "clang", "clang++"];
/// Names that stand for whichever compiler the system has chosen.
const GENERIC: &[&str] = &["cc", "c++", "fc"];

/// Which compiler a call of the wrapper means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrapper {
    pub(super) language: Language,
    /// The compiler's name on PATH; `None`: what the variable of the language says, or the system's.
    pub(super) compiler: Option<OsString>,
}

impl From<Language> for Wrapper {
    /// `numapilot cc`, `c++` and `fc`.
    fn from(language: Language) -> Wrapper {
        Wrapper { language, compiler: None }
    }
}

impl Wrapper {
    /// By the name that the program was started under: `numapilot-gcc-13`, `g++`, `/opt/shims/cc`. `None` for names of no compiler.
    #[must_use]
    pub fn by_name(program: &OsStr) -> Option<Wrapper> {
        let name = Path::new(program).file_name()?.to_str()?;
        let (is_ours, compiler) = name.strip_prefix(PREFIX).map_or((false, name), |rest| (true, rest));
        let language = language_of(compiler)?;
        let compiler = (!is_ours || !GENERIC.contains(&compiler)).then(|| OsString::from(compiler));
        Some(Wrapper { language, compiler })
    }
}

/// Language of a compiler by its name, such as `gcc`, `clang++-16` or `x86_64-linux-gnu-gfortran`.
fn language_of(compiler: &str) -> Option<Language> {
    let is_version = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let unversioned = compiler.rsplit_once('-').filter(|(_, end)| is_version(end)).map_or(compiler, |(stem, _)| stem);
    match unversioned.rsplit_once('-').map_or(unversioned, |(_, stem)| stem) {
        "cc" | "gcc" | "clang" | "c89" | "c99" | "icx" => Some(Language::C),
        "c++" | "g++" | "clang++" | "icpx" => Some(Language::Cxx),
        "fc" | "f77" | "f95" | "gfortran" => Some(Language::Fortran),
        _ => None,
    }
}

/// Kind of links to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// `numapilot-gcc` and so on, for `CC=numapilot-gcc`.
    Prefixed,
    /// `gcc`, `cc` and so on, for a folder that comes first on PATH.
    Plain,
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
    let ourselves = std::env::current_exe().map_err(failed(Path::new("/proc/self/exe")))?;
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

fn place(link: &Path, ourselves: &Path) -> io::Result<()> {
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

    fn named(name: &str) -> Option<(Language, Option<String>)> {
        let wrapper = Wrapper::by_name(OsStr::new(name))?;
        Some((wrapper.language, wrapper.compiler.map(|compiler| compiler.to_string_lossy().into_owned())))
    }

    #[test]
    fn a_links_name_says_which_compiler_it_stands_for() {
        let some = |language, name: &str| Some((language, Some(name.to_owned())));
        assert_eq!(named("numapilot-gcc"), some(Language::C, "gcc"));
        assert_eq!(named("/opt/bin/numapilot-g++-13"), some(Language::Cxx, "g++-13"));
        assert_eq!(named("numapilot-clang++"), some(Language::Cxx, "clang++"));
        assert_eq!(named("gfortran"), some(Language::Fortran, "gfortran"));
        assert_eq!(named("x86_64-linux-gnu-gcc-12"), some(Language::C, "x86_64-linux-gnu-gcc-12"));
        assert_eq!(named("cc"), some(Language::C, "cc"));
        assert_eq!(named("numapilot-cc"), Some((Language::C, None)), "whatever NUMAPILOT_CC says");
        for other in ["numapilot", "numapilot-0.9", "numapilot-query", "gcc-ar", "gcc-ranlib-12", ""] {
            assert_eq!(named(other), None, "{other}");
        }
    }

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
