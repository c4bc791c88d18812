//! Writes results to standard output, or to a file that appears only when it is complete.

use std::fs;
use std::io;
use std::io::IsTerminal;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use anyhow::Result;
use numapilot_report::text::Look;

use crate::args::Colour;
use crate::args::LookArgs;

/// Width and colours of text for standard output.
pub fn look(arguments: &LookArgs) -> Look {
    let colour = match arguments.color {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
    };
    Look { width: usize::from(arguments.width), colour }
}

/// A line on standard error. Unlike `eprintln!`, it does not panic where that is a pipe without a reader.
macro_rules! tell {
    ($($argument:tt)*) => {{
        use std::io::Write as _;
        drop(writeln!(std::io::stderr(), $($argument)*));
    }};
}
pub(crate) use tell;

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

/// A file that gets its name only when it is complete. If it is dropped before, it is removed.
pub struct PendingFile {
    file: fs::File,
    temporary: PathBuf,
    path: PathBuf,
    is_whole: bool,
}

impl PendingFile {
    /// Creates a temporary file in the folder of `path`.
    pub fn create(path: &Path) -> io::Result<PendingFile> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.tmp", std::process::id()));
        let temporary = PathBuf::from(temporary);
        let file = fs::File::create(&temporary)?;
        Ok(PendingFile { file, temporary, path: path.to_owned(), is_whole: false })
    }

    /// Gives the completed file its name.
    pub fn finish(mut self) -> io::Result<()> {
        fs::rename(&self.temporary, &self.path)?;
        self.is_whole = true;
        Ok(())
    }
}

impl Write for PendingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for PendingFile {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
