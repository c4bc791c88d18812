//! `numapilot cc`, `c++` and `fc`, also when started by a link with a compiler's name. All their arguments go to the compiler byte for byte, so they
//! are taken before the usual parsing.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use numapilot_wrapper::CompileError;
use numapilot_wrapper::Language;
use numapilot_wrapper::Links;
use numapilot_wrapper::Wrapper;
use numapilot_wrapper::install_links;

use crate::output::tell;

/// Runs the compiler if the program's name or its first argument asks for it; else `None`.
pub fn intercept() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = arguments.next()?;
    if numapilot_wrapper::is_assembler(&program) {
        return Some(report(&numapilot_wrapper::assemble(&arguments.collect::<Vec<_>>())));
    }
    if let Some(wrapper) = Wrapper::by_name(&program) {
        return Some(run(&wrapper, &arguments.collect::<Vec<_>>()));
    }
    let language = match arguments.next()?.to_str()? {
        "cc" => Language::C,
        "c++" => Language::Cxx,
        "fc" => Language::Fortran,
        _ => return None,
    };
    let arguments: Vec<OsString> = arguments.collect();
    Some(links(&arguments).unwrap_or_else(|| run(&language.into(), &arguments)))
}

/// Handles `numapilot cc --install-links DIR` and `--install-path DIR`, options that no compiler has; else `None`.
fn links(arguments: &[OsString]) -> Option<ExitCode> {
    let kind = match arguments.first()?.to_str()? {
        "--install-links" => Links::Prefixed,
        "--install-path" => Links::Plain,
        _ => return None,
    };
    let [_, folder] = arguments else {
        tell!("numapilot: write `numapilot cc --install-links DIR` or `numapilot cc --install-path DIR`");
        return Some(ExitCode::from(2));
    };
    let made = match install_links(Path::new(folder), kind) {
        Ok(made) => made,
        Err(error) => {
            tell!("numapilot: {error}");
            return Some(ExitCode::FAILURE);
        }
    };
    let mut out = std::io::stdout().lock();
    for link in &made {
        if writeln!(out, "{}", link.display()).is_err() {
            return Some(ExitCode::FAILURE);
        }
    }
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    let folder = folder.display();
    match kind {
        Links::Prefixed => {
            tell!("numapilot: with {folder} on PATH: CC=numapilot-gcc CXX=numapilot-g++ ./configure");
        }
        Links::Plain => tell!("numapilot: now build with this folder first on PATH: PATH={folder}:$PATH make"),
    }
    Some(ExitCode::SUCCESS)
}

/// Becomes the compiler; returns only where that is not possible.
pub fn run(wrapper: &Wrapper, arguments: &[OsString]) -> ExitCode {
    report(&numapilot_wrapper::replace(wrapper, arguments))
}

fn report(error: &CompileError) -> ExitCode {
    tell!("numapilot: {error}");
    let is_missing = matches!(error, CompileError::NoCompiler { .. } | CompileError::CannotRun { .. });
    ExitCode::from(if is_missing { 127 } else { 1 })
}
