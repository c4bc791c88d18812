//! `numapilot query`: starts `numapilot-query`, which contains the SQL engine. It is searched in this program's folder, then on PATH.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use clap::CommandFactory;

use crate::args::Arguments;
use crate::args::QueryArgs;
use crate::output;

const ENGINE: &str = "numapilot-query";

/// Replaces this process by the engine. Returns only if that fails, or to print the help when there is no engine.
pub fn run(arguments: &QueryArgs) -> Result<ExitCode> {
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name(ENGINE)).filter(|path| path.is_file());
    let program = beside.unwrap_or_else(|| PathBuf::from(ENGINE));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    if error.kind() != ErrorKind::NotFound {
        return Err(error).with_context(|| format!("cannot start {}", program.display()));
    }
    let wants_help = |argument: &&OsStr| ["-h", "--help"].iter().any(|help| argument == help);
    if arguments.arguments.iter().map(|argument| argument.as_os_str()).any(|argument| wants_help(&argument)) {
        let mut command = Arguments::command();
        let query = command.find_subcommand_mut("query").expect("this command");
        return output::print(&query.render_help().to_string()).map(|()| ExitCode::SUCCESS);
    }
    bail!(
        "{ENGINE}, which has the SQL engine in it, is neither beside numapilot nor on the path. It is a package of its own, {ENGINE}; in the source \
         tree, `make query` builds it (some minutes); then copy target/release/{ENGINE} beside numapilot"
    )
}
