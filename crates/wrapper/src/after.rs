//! Call-outs after optimisation (`--after-optimisation`): the compiler runs without the sanitizer, and an assembler of ours before its own.
//!
//! Compilers look for `as` in the folder that `-B` names first. There lies a link to this program, which adds the call-outs (`numapilot-assembly`) and
//! becomes the real assembler. So it also stands where gcc starts its compiler proper from the linker (`-flto`), and where several files are
//! compiled at once.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::arguments::Invocation;
use crate::error::CompileError;
use crate::names;
use crate::toolchain::{self, BLOCKS_BY_CALLS, Family, Toolchain};

/// The option, before all others, that `numapilot cc` takes; and the variable for links, which take none.
const OPTION: &str = "--after-optimisation";
const VARIABLE: &str = "NUMAPILOT_AFTER_OPTIMISATION";
/// For our assembler: where the real one is, and the inputs that are left alone, separated by colons.
const ASSEMBLER_VARIABLE: &str = "NUMAPILOT_ASSEMBLER";
const KEPT_VARIABLE: &str = "NUMAPILOT_ASSEMBLER_KEPT";
const ASSEMBLER: &str = "as";

/// Nothing below the stack pointer is the function's: call-outs use it.
const RED_ZONE: &str = "-mno-red-zone";
/// gcc: what a function destroys is what its calling convention says, call-outs and all.
const CONVENTION: &str = "-fno-ipa-ra";
/// clang: an assembler is run, and the sanitizer calls out for atomic accesses alone, whose order is not to be seen in assembly.
const CLANG: &[&str] = &[
    "-fno-integrated-as",
    "-Xclang",
    "-fsanitize=thread",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
    "-mllvm",
    "-tsan-instrument-memory-accesses=0",
    "-mllvm",
    "-tsan-instrument-memintrinsics=0",
];

/// The assembler's options whose value is the next word.
const WITH_VALUE: &[&str] = &["-o", "-I", "--defsym", "-defsym", "--MD", "-MD", "--debug-prefix-map"];

/// Whether it is asked for, and the compiler's own arguments.
pub(super) fn is_asked(args: &[OsString]) -> (bool, &[OsString]) {
    match args.split_first() {
        Some((first, rest)) if first == OPTION => (true, rest),
        _ => (env::var_os(VARIABLE).is_some_and(|value| !value.is_empty() && value != "0"), args),
    }
}

/// Whether assembly is made here, and of a kind that is understood. Else call-outs are put in before optimisation.
pub(super) fn serves(toolchain: &Toolchain, invocation: &Invocation) -> bool {
    cfg!(target_arch = "x86_64") && (toolchain.family == Family::Gcc || !invocation.is_intermediate)
}

/// Adds the options to the command, and what our assembler needs to its environment.
pub(super) fn prepare(
    command: &mut Command,
    toolchain: &Toolchain,
    invocation: &Invocation,
) -> Result<(), CompileError> {
    let asked = toolchain::ask(&toolchain.program, &toolchain.leading, "-print-prog-name=as").unwrap_or_default();
    let path = env::var_os("PATH").unwrap_or_default();
    let named = Path::new(asked.trim());
    let assembler =
        if named.is_absolute() { Some(named.to_owned()) } else { toolchain::on_path(OsStr::new(ASSEMBLER), &path) };
    let assembler = assembler.ok_or(CompileError::NoAssembler)?;
    command.env(ASSEMBLER_VARIABLE, assembler).env(KEPT_VARIABLE, invocation.assembly.join(":"));
    if toolchain.family == Family::Gcc {
        command.args(BLOCKS_BY_CALLS).args([RED_ZONE, CONVENTION]);
    } else if invocation.compiles {
        command.args(CLANG).arg(RED_ZONE);
    } else {
        return Ok(());
    }
    command.arg("-B").arg(folder()?);
    Ok(())
}

/// The folder with our assembler, which names this very program: `ccache` takes what other options compiled for something else.
fn folder() -> Result<PathBuf, CompileError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| CompileError::File { path, source }
    };
    let ourselves = names::this_program()?;
    let data = fs::metadata(&ourselves).map_err(failed(&ourselves))?;
    let archive = numapilot_runtime::unpacked()?.callouts;
    let folder = archive.with_file_name(format!("as-{:x}-{:x}-{:x}", data.dev(), data.ino(), data.mtime()));
    let link = folder.join(ASSEMBLER);
    if fs::read_link(&link).is_ok_and(|target| target == ourselves) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    match names::place(&link, &ourselves) {
        // Another one of `make -j` was faster.
        Err(_) if fs::read_link(&link).is_ok_and(|target| target == ourselves) => Ok(folder),
        result => result.map(|()| folder).map_err(failed(&link)),
    }
}

/// Whether this program was started as an assembler, by its name.
#[must_use]
pub fn is_assembler(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == ASSEMBLER)
}

/// Turns this process into the assembler with `args`, whose input gets call-outs if a compiler wrote it; returns only why that failed.
#[must_use]
pub fn assemble(args: &[OsString]) -> CompileError {
    let path = env::var_os("PATH").unwrap_or_default();
    let named = env::var_os(ASSEMBLER_VARIABLE).map(PathBuf::from);
    let Some(path) = named.or_else(|| toolchain::on_path(OsStr::new(ASSEMBLER), &path)) else {
        return CompileError::NoAssembler;
    };
    let mut command = Command::new(&path);
    match instrumented(args) {
        Ok(Some((file, rest))) => command.args(rest).stdin(Stdio::from(file)),
        Ok(None) => command.args(args),
        Err(source) => return CompileError::Assembly { source },
    };
    CompileError::CannotRun { path, source: command.exec() }
}

/// The only input among the arguments, by its place. `None`: there are none, which means the standard input, or several.
fn input(args: &[OsString]) -> Option<usize> {
    let (mut found, mut at) = (None, 0);
    while let Some(word) = args.get(at) {
        let word = word.to_string_lossy();
        if WITH_VALUE.contains(&word.as_ref()) {
            at += 1;
        } else if !word.starts_with('-') || word == "-" || word == "--" {
            if found.is_some() || word.starts_with('@') {
                return None;
            }
            found = Some(at);
        }
        at += 1;
    }
    found
}

/// The input with call-outs, for the assembler's standard input, and its arguments without that input. `None`: the input is left as it is.
fn instrumented(args: &[OsString]) -> io::Result<Option<(File, Vec<OsString>)>> {
    let is_question = args
        .iter()
        .any(|word| word == "--version" || word == "--help" || word == "-v" || word.to_string_lossy().starts_with('@'));
    let place = input(args);
    let inputs = args.iter().filter(|word| word.to_string_lossy().ends_with(".s")).count();
    if is_question || place.is_none() && inputs > 0 {
        return Ok(None);
    }
    let is_piped = place.is_none_or(|place| args[place] == "-" || args[place] == "--");
    let mut bytes = Vec::new();
    if is_piped {
        io::stdin().lock().read_to_end(&mut bytes)?;
    } else if let Some(place) = place {
        let kept = env::var(KEPT_VARIABLE).unwrap_or_default();
        if kept.split(':').any(|kept| args[place] == kept) {
            return Ok(None);
        }
        bytes = fs::read(&args[place])?;
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) if numapilot_assembly::is_compiled(text) => numapilot_assembly::instrument(text).text.into_bytes(),
        _ if !is_piped => return Ok(None),
        _ => bytes,
    };
    let mut file = unnamed_file()?;
    file.write_all(&text)?;
    file.rewind()?;
    let rest = args.iter().enumerate().filter(|(at, _)| Some(*at) != place).map(|(_, word)| word.clone());
    Ok(Some((file, rest.collect())))
}

/// A temporary file without a name: nothing stays behind, whatever ends the assembler.
fn unnamed_file() -> io::Result<File> {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!(".numapilot-{}-{serial}.s", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    //! Command lines of the assembler, as gcc and clang write them.

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_input_is_found_among_the_options() {
        for (line, found) in [
            ("--64 -o /tmp/a.o /tmp/a.s", Some(3)),
            ("-I /usr/include --64 -o m.o m.s", Some(5)),
            ("--debug-prefix-map /a=b --64 -o m.o m.s", Some(5)),
            ("--64 -o a.o", None),
            ("--64 -o a.o -", Some(3)),
            ("a.s b.s", None),
        ] {
            assert_eq!(input(&words(line)), found, "{line}");
        }
    }

    #[test]
    fn compilers_assembly_alone_gets_call_outs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("a.s");
        let args = [OsString::from("-o"), "a.o".into(), file.clone().into_os_string()];
        let code = "\t.type f, @function\nf:\n\tmovl (%rdi), %eax\n\tret\n";
        fs::write(&file, code).expect("written");
        assert!(instrumented(&args).expect("readable").is_none(), "of unknown origin");
        fs::write(&file, format!("{code}\t.ident\t\"GCC: (Debian) 12.2.0\"\n")).expect("written");
        let (mut made, rest) = instrumented(&args).expect("readable").expect("call-outs");
        let mut text = String::new();
        made.read_to_string(&mut text).expect("text");
        assert!(text.contains("call\tnp_after_few") && rest == ["-o", "a.o"], "{rest:?} {text}");
    }

    #[test]
    fn the_option_comes_first_and_is_taken() {
        let args = words("--after-optimisation -c a.c");
        let (is_after, rest) = is_asked(&args);
        assert!(is_after && rest == words("-c a.c"));
        assert!(is_assembler(OsStr::new("/x/as")) && !is_assembler(OsStr::new("gcc")));
    }
}
