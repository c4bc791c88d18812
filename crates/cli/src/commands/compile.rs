//! `numapilot cc`, `c++` and `fc`. Their arguments are the compiler's, byte for byte, so they are taken before anything else parses them.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;

use numapilot_sources::compile::CompileError;
use numapilot_sources::compile::Language;

/// Runs the compiler if that is what was asked for.
pub fn intercept() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let language = match arguments.next()?.to_str()? {
        "cc" => Language::C,
        "c++" => Language::Cxx,
        "fc" => Language::Fortran,
        _ => return None,
    };
    Some(run(language, &arguments.collect::<Vec<_>>()))
}

/// Runs the compiler; returns its status.
pub fn run(language: Language, arguments: &[OsString]) -> ExitCode {
    match numapilot_sources::compile::run(language, arguments) {
        Ok(status) => {
            let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            ExitCode::from(u8::try_from(code).unwrap_or(1))
        }
        Err(error) => {
            eprintln!("numapilot: {error}");
            let is_missing = matches!(error, CompileError::NoCompiler { .. } | CompileError::CannotRun { .. });
            ExitCode::from(if is_missing { 127 } else { 1 })
        }
    }
}
