//! Finds the real compiler and its family.

use std::env;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use crate::error::CompileError;
use crate::wrapper::Language;
use crate::wrapper::Wrapper;

/// For gcc: block copies stay calls, which are accounted whole.
pub(super) const BLOCKS_BY_CALLS: &[&str] = if cfg!(target_arch = "x86_64") {
    &["-mmemcpy-strategy=libcall:-1:noalign", "-mmemset-strategy=libcall:-1:noalign"]
} else {
    &[]
};

/// Counts wrappers inside wrappers: a compiler that is a script which calls numapilot would never end.
pub(super) const DEPTH_VARIABLE: &str = "NUMAPILOT_COMPILER_DEPTH";
const DEPTH_MAX: u32 = 4;

/// Compiler family, which decides the syntax of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Gcc,
    Clang,
}

/// A compiler and its family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Toolchain {
    /// Absolute, or as the variable named it.
    pub(super) program: PathBuf,
    /// Words behind the program's name in the variable ("ccache gcc").
    pub(super) leading: Vec<OsString>,
    pub(super) family: Family,
    /// gcc 11 and later can leave function entries and exits alone.
    pub(super) has_entry_exit_param: bool,
    /// Value of [`DEPTH_VARIABLE`] for the child process.
    pub(super) depth: u32,
}

/// Wrappers that this one was started under.
fn depth_outside() -> u32 {
    env::var(DEPTH_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn variable_of(language: Language) -> &'static str {
    match language {
        Language::C => "NUMAPILOT_CC",
        Language::Cxx => "NUMAPILOT_CXX",
        Language::Fortran => "NUMAPILOT_FC",
    }
}

fn names_of(language: Language) -> &'static [&'static str] {
    match language {
        Language::C => &["cc", "gcc", "clang"],
        Language::Cxx => &["c++", "g++", "clang++"],
        Language::Fortran => &["gfortran"],
    }
}

pub(super) fn find(wrapper: &Wrapper) -> Result<Toolchain, CompileError> {
    let language = wrapper.language;
    let variable = variable_of(language);
    let depth = depth_outside() + 1;
    if depth > DEPTH_MAX {
        return Err(CompileError::Loop { variable });
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let named: Vec<OsString> = match &wrapper.compiler {
        Some(_) => Vec::new(),
        None => env::var_os(variable).map(|value| words(&value)).unwrap_or_default(),
    };
    let (program, leading) = match (&wrapper.compiler, named.split_first()) {
        (Some(name), _) => {
            let missing = || CompileError::NoCompiler { tried: name.to_string_lossy().into_owned(), variable };
            (on_path(name, &path).ok_or_else(missing)?, Vec::new())
        }
        (None, Some((first, rest))) => (on_path(first, &path).unwrap_or_else(|| first.into()), rest.to_vec()),
        (None, None) => {
            let found = names_of(language).iter().find_map(|name| on_path(OsStr::new(name), &path));
            let tried = || names_of(language).join(", ");
            (found.ok_or_else(|| CompileError::NoCompiler { tried: tried(), variable })?, Vec::new())
        }
    };
    if is_ourselves(&program) {
        return Err(CompileError::Loop { variable });
    }
    let family = family_of(&program, &leading);
    let has_entry_exit_param = family == Family::Clang || gcc_major(&program, &leading).is_none_or(|major| major >= 11);
    Ok(Toolchain { program, leading, family, has_entry_exit_param, depth })
}

/// The words of a variable, or all of it where that is a file: a path may have spaces.
fn words(value: &OsStr) -> Vec<OsString> {
    if Path::new(value).is_file() {
        return vec![value.to_owned()];
    }
    value.to_string_lossy().split_whitespace().map(OsString::from).collect()
}

/// The first executable of that name on PATH that is not this program.
pub(super) fn on_path(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    let executable =
        |file: &Path| fs::metadata(file).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0);
    if Path::new(name).components().count() > 1 {
        return Some(PathBuf::from(name));
    }
    env::split_paths(path).map(|folder| folder.join(name)).find(|file| executable(file) && !is_ourselves(file))
}

fn is_ourselves(program: &Path) -> bool {
    match (fs::canonicalize(program), env::current_exe().and_then(fs::canonicalize)) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    }
}

/// By name where the name (or what it links to) says it, else by asking.
fn family_of(program: &Path, leading: &[OsString]) -> Family {
    let asked = leading.iter().rev().find(|word| !word.to_string_lossy().starts_with('-'));
    let names = [asked.map(PathBuf::from), Some(program.to_owned()), fs::canonicalize(program).ok()];
    for name in names.into_iter().flatten() {
        let name = name.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name.contains("clang") || name.contains("icx") || name.contains("icpx") {
            return Family::Clang;
        }
        if name.contains("gcc") || name.contains("g++") || name.contains("gfortran") {
            return Family::Gcc;
        }
    }
    let version = ask(program, leading, "--version").unwrap_or_default();
    if version.contains("clang") { Family::Clang } else { Family::Gcc }
}

fn gcc_major(program: &Path, leading: &[OsString]) -> Option<u32> {
    ask(program, leading, "-dumpversion")?.trim().split('.').next()?.parse().ok()
}

/// The question counts as a wrapper inside this one: what it is put to may find us on PATH in its turn (`ccache` before our folder of links), and each
/// would ask the next for ever.
pub(super) fn ask(program: &Path, leading: &[OsString], question: &str) -> Option<String> {
    let mut command = Command::new(program);
    command.args(leading).arg(question).env(DEPTH_VARIABLE, (depth_outside() + 1).to_string());
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    //! Which compiler is found, and what it is taken for.

    use super::*;

    #[test]
    fn families_are_told_by_name() {
        assert_eq!(family_of(Path::new("/x/clang-18"), &[]), Family::Clang);
        assert_eq!(family_of(Path::new("/x/x86_64-linux-gnu-g++-12"), &[]), Family::Gcc);
        assert_eq!(family_of(Path::new("/x/ccache"), &["clang".into()]), Family::Clang);
    }

    #[test]
    fn a_path_with_spaces_is_one_word_where_a_file_is_there() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let compiler = folder.path().join("my gcc");
        assert_eq!(words(OsStr::new("ccache  gcc ")), ["ccache", "gcc"]);
        assert_eq!(words(compiler.as_os_str()).len(), 2);
        fs::write(&compiler, "").expect("written");
        assert_eq!(words(compiler.as_os_str()), [compiler.into_os_string()]);
    }

    #[test]
    fn this_program_is_passed_over_on_path() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let ourselves = env::current_exe().expect("a test has a file");
        std::os::unix::fs::symlink(ourselves, folder.path().join("cc")).expect("a link");
        assert_eq!(on_path(OsStr::new("cc"), folder.path().as_os_str()), None);
    }
}
