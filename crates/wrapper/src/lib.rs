//! The compiler wrapper: `numapilot cc`, `c++` and `fc` run the compiler that the user would have run, and add what makes the program instrumented.
//!
//! Compiling: the thread sanitizer's call-outs (given to the compiler proper, so that the driver does not link the sanitizer's library, which need not be
//! installed), `-g` unless given, frame pointers, and block copies left to calls. Linking: the call-outs archive, `--wrap` for block copies, and
//! a list of symbols to export, so that the program's libraries and the tracker find them. Whatever else is asked (versions, dependencies,
//! preprocessing) passes through untouched. `docs/instrument.md` has the user's view.
//!
//! Assumes gcc 11 or later (older: function entries are called out too, for nothing), clang 14 or later, an ELF linker with `--wrap` and
//! `--dynamic-list` (bfd, gold, lld, mold).

mod after;
mod arguments;
mod error;
mod names;
mod target;
mod toolchain;
mod wrapper;

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

pub use after::assemble;
pub use after::is_assembler;
use arguments::Invocation;
pub use error::CompileError;
pub use names::Links;
pub use names::install_links;
use toolchain::Family;
use toolchain::Toolchain;
pub use wrapper::Language;
pub use wrapper::Wrapper;

/// Programs that the wrappers would run, as found by variable or on PATH: of C, C++ and Fortran, those that are there.
#[must_use]
pub fn installed() -> Vec<String> {
    let languages = [Language::C, Language::Cxx, Language::Fortran].into_iter();
    languages
        .filter_map(|language| toolchain::find(&language.into()).ok())
        .filter(|found| found.program.is_file())
        .map(|found| found.program.display().to_string())
        .collect()
}

/// Turns this process into the compiler with `args` (those behind `numapilot cc`) and what instrumentation adds; returns only why that failed. The
/// compiler is no child, so what stops the wrapper (`timeout`, a build system that gives up) stops the compiler, which then removes what it half wrote.
#[must_use]
pub fn replace(wrapper: &Wrapper, args: &[OsString]) -> CompileError {
    match command(wrapper, args) {
        Ok((mut command, path)) => CompileError::CannotRun { path, source: command.exec() },
        Err(error) => error,
    }
}

/// The command that [`replace`] runs, and the compiler's path.
///
/// # Errors
/// See [`CompileError`], but for `CannotRun`.
pub fn command(wrapper: &Wrapper, args: &[OsString]) -> Result<(Command, PathBuf), CompileError> {
    let toolchain = toolchain::find(wrapper)?;
    let (is_after, args) = after::is_asked(args);
    let invocation = Invocation::parse(args);
    let mut command = Command::new(&toolchain.program);
    command.args(&toolchain.leading).env(toolchain::DEPTH_VARIABLE, toolchain.depth.to_string());
    // What a wrapped compiler starts (ccache, a script) finds the wrapper on PATH again: the first call added everything.
    let is_inner = toolchain.depth > 1 && wrapper.compiler.is_some();
    // Code for another machine, in a build that makes some (programs for the kernel's BPF, firmware, `-m32`), is none of the program's.
    let is_foreign = invocation.is_foreign || target::is_foreign_compiler(&toolchain.program);
    if invocation.is_query || is_inner || is_foreign {
        command.args(args);
        return Ok((command, toolchain.program));
    }
    if let Some(option) = invocation.conflict() {
        return Err(CompileError::Sanitizer { option });
    }
    if let Some(option) = invocation.static_option.clone().filter(|_| invocation.links) {
        return Err(CompileError::Static { option });
    }
    let is_gcc = toolchain.family == Family::Gcc;
    let has_work = invocation.compiles || invocation.runs_linker;
    let support = (invocation.links || (has_work && is_gcc)).then(|| Support::unpack(&toolchain)).transpose()?;
    if is_after && has_work && after::serves(&toolchain, &invocation) {
        after::prepare(&mut command, &toolchain, &invocation)?;
    } else {
        if let Some(support) = support.as_ref().filter(|_| has_work && is_gcc) {
            command.args(gcc_flags(wrapper.language, support));
        }
        if invocation.compiles {
            command.args(before_flags(&toolchain));
        }
    }
    if invocation.compiles {
        command.args(compile_flags(wrapper.language, &invocation));
    }
    command.args(args);
    if let Some(support) = support.filter(|_| invocation.links) {
        command.args(link_flags(&invocation, &support));
    }
    Ok((command, toolchain.program))
}

/// Appended to the options of gcc's compilers proper. The driver itself must not see `-fsanitize=thread`, or it links libtsan.
const GCC_SPECS: &str = "*cc1_options:\n+ -fsanitize=thread";

/// Behind the last option. The blank is its end: where gcc preprocesses in a step of its own (`-save-temps`, `-no-integrated-cpp`, `-traditional-cpp`), it
/// appends more options without one.
const GCC_SPECS_END: &str = " \n\n";

/// Files beside the archive that the command line names.
struct Support {
    archive: PathBuf,
    exports: PathBuf,
    specs: PathBuf,
}

impl Support {
    fn unpack(toolchain: &Toolchain) -> Result<Support, CompileError> {
        let archive = numapilot_runtime::unpacked()?.callouts;
        let specs = gcc_specs(toolchain);
        let name = if toolchain.has_entry_exit_param { "gcc.specs" } else { "gcc-10.specs" };
        Ok(Support {
            exports: write_beside(&archive, "exports.list", numapilot_runtime::EXPORTS)?,
            specs: write_beside(&archive, name, &specs)?,
            archive,
        })
    }
}

fn gcc_specs(toolchain: &Toolchain) -> String {
    let more = if toolchain.has_entry_exit_param { " --param=tsan-instrument-func-entry-exit=0" } else { "" };
    format!("{GCC_SPECS}{more}{GCC_SPECS_END}")
}

/// The file `name` with this text in the archive's directory, which is named by the archive's content. Written whole, then renamed: several
/// compilers start at once under `make -j`.
fn write_beside(archive: &Path, name: &str, text: &str) -> Result<PathBuf, CompileError> {
    let path = archive.with_file_name(name);
    if fs::read(&path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(path);
    }
    let temporary = archive.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &path));
    written.map_err(|source| CompileError::File { path: path.clone(), source })?;
    Ok(path)
}

/// What gcc needs whether it compiles or links: with `-flto` the linker starts gcc's compiler proper (`lto1`) again, and only there is code
/// instrumented. It is started with the options of the link, whatever those of the compilation were.
fn gcc_flags(language: Language, support: &Support) -> Vec<OsString> {
    let mut option = OsString::from("-specs=");
    option.push(&support.specs);
    let mut flags = vec![option];
    // Expanded inline, block copies of unknown length would go unseen: gcc instruments before it expands them.
    flags.extend(toolchain::BLOCKS_BY_CALLS.iter().map(OsString::from));
    // The sanitizer itself does not understand fences, and gcc says so; our call-outs have nothing to understand.
    if language != Language::Fortran {
        flags.push("-Wno-tsan".into());
    }
    flags
}

/// Call-outs before optimisation by clang. gcc has its specs.
fn before_flags(toolchain: &Toolchain) -> &'static [&'static str] {
    match toolchain.family {
        Family::Clang => &["-Xclang", "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"],
        Family::Gcc => &[],
    }
}

fn compile_flags(language: Language, invocation: &Invocation) -> Vec<OsString> {
    let mut flags: Vec<OsString> = Vec::new();
    // Programs that see this macro change what they do (other locks, no assembly, slower tests); ours must run as it always does.
    if language != Language::Fortran && invocation.preprocesses {
        flags.push("-U__SANITIZE_THREAD__".into());
    }
    if !invocation.has_debug_option {
        flags.push("-g".into());
    }
    if !invocation.has_frame_option {
        flags.push("-fno-omit-frame-pointer".into());
    }
    flags
}

fn link_flags(invocation: &Invocation, support: &Support) -> Vec<OsString> {
    let mut flags: Vec<OsString> = Vec::new();
    // -Xlinker takes paths with commas, -Wl does not.
    let mut linker = |word: OsString| flags.extend([OsString::from("-Xlinker"), word]);
    for name in numapilot_runtime::WRAPPED {
        linker(format!("--wrap={name}").into());
    }
    if !invocation.shared {
        let mut option = OsString::from("--dynamic-list=");
        option.push(&support.exports);
        linker(option);
    }
    linker("--whole-archive".into());
    linker(support.archive.clone().into_os_string());
    linker("--no-whole-archive".into());
    if invocation.language_was_set {
        flags.push("-xnone".into());
    }
    flags.push("-ldl".into());
    flags
}

#[cfg(test)]
mod tests;
