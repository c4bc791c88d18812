//! Which compiler a call of the wrapper means, by the name under which it is called.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::path::Path;

/// Before the compiler's name in the names of links.
pub(super) const PREFIX: &str = "numapilot-";

/// Names that stand for whichever compiler the system has chosen.
pub(super) const GENERIC: &[&str] = &["cc", "c++", "fc"];

/// What is compiled; decides which compiler is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `NUMAPILOT_CC`, else `cc`, `gcc`, `clang`.
    C,
    /// `NUMAPILOT_CXX`, else `c++`, `g++`, `clang++`.
    Cxx,
    /// `NUMAPILOT_FC`, else `gfortran`.
    Fortran,
}

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
}
