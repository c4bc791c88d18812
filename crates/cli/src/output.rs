//! Writes results to standard output, or to a file that appears only when it is complete.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use anyhow::Result;
use anyhow::bail;
use indicatif::ProgressBar;
use numapilot_host::workers;
use numapilot_text::destination::PendingFile;
use numapilot_text::style::Look;
use numapilot_text::style::clean;

use crate::args::Colour;
use crate::args::LookArgs;

/// Width and colours of text for standard output.
pub fn look(arguments: &LookArgs) -> Look {
    let colour = match arguments.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => is_screen() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    Look { width: usize::from(arguments.width), colour }
}

/// Whether standard output is a terminal that obeys control sequences.
pub fn is_screen() -> bool {
    std::io::stdout().is_terminal() && !is_dumb(std::env::var_os("TERM").as_deref())
}

/// Whether no line that moves is shown: it is not asked for, or the terminal would print what moves it. (Elsewhere than on a terminal, the library shows none.)
pub fn hides_progress(is_quiet: bool) -> bool {
    is_quiet || is_dumb(std::env::var_os("TERM").as_deref())
}

/// Whether a terminal of this kind (TERM) prints control sequences in place of obeying them, as those of editors and of build servers do.
pub fn is_dumb(kind: Option<&OsStr>) -> bool {
    kind.is_some_and(|kind| kind == "dumb")
}

/// A line on standard error. Unlike `eprintln!`, it does not panic where that is a pipe without a reader, and names in it cannot talk to the terminal: any user
/// chooses the names of processes and files.
macro_rules! tell {
    ($($argument:tt)*) => {
        $crate::output::tell_plainly(&format!($($argument)*))
    };
}
pub(crate) use tell;

/// Writes lines to standard error without prefix or wrapping; control characters are replaced. `tell!` calls it.
pub fn tell_plainly(text: &str) {
    drop(writeln!(std::io::stderr(), "{}", text.lines().map(clean).collect::<Vec<_>>().join("\n")));
}

/// Lets a progress line move by itself, where it is shown. Not where the system refuses the thread that this takes: the library would panic.
pub fn animate(bar: &ProgressBar) {
    const STACK_BYTES: usize = 2 << 20;
    if !bar.is_hidden() && workers::startable(1, STACK_BYTES) == 1 {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
}

/// A line on a terminal's standard error that moves while something takes its time; nothing elsewhere. Whoever prints removes it before.
pub fn spinner(message: &str) -> ProgressBar {
    let bar = if hides_progress(false) { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    bar.set_message(clean(message));
    animate(&bar);
    bar
}

/// Prints to standard output. (A closed pipe ends the process by SIGPIPE, quietly.)
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")
}

/// Prints JSON with a final line feed.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("JSON")?;
    text.push('\n');
    print(&text)
}

/// Whether one of these files is standard output (`-`): then nothing else is printed. Fails where several are.
pub fn takes_standard_output(files: &[&Option<PathBuf>]) -> Result<bool> {
    let count = files.iter().filter(|file| file.as_deref() == Some(Path::new("-"))).count();
    if count > 1 {
        bail!("only one file can be standard output (`-`); give the others names");
    }
    Ok(count == 1)
}

/// Writes a file by way of a temporary one beside it, so that no half-written file is ever left under its name. `-` is standard output.
pub fn write_file(path: &Path, text: &str) -> Result<()> {
    write_with(path, |out| Ok(out.write_all(text.as_bytes())?))
        .with_context(|| format!("{}: cannot be written", path.display()))
}

/// Like [`write_file`], for output that `write` produces in pieces.
pub fn write_with(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    if path == Path::new("-") {
        let mut out = std::io::stdout().lock();
        write(&mut out)?;
        return out.flush().context("standard output");
    }
    let mut file = PendingFile::create(path)?;
    write(&mut file)?;
    Ok(file.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of traces come from others; and the messages of a report that goes to a file stay free of progress.
    #[test]
    fn what_takes_long_is_told_without_what_talks_to_the_terminal() {
        let bar = spinner("reading \u{1b}[2Jx");
        assert_eq!(bar.message(), "reading \\u{1b}[2Jx");
        assert!(bar.is_hidden() || std::io::stderr().is_terminal());
        bar.finish_and_clear();
    }
}
