//! `numapilot completions` and `numapilot man`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use anyhow::Result;
use clap::Command;
use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Arguments;
use crate::args::CompletionArgs;
use crate::args::ManArgs;
use crate::output;

/// What the pages' footers name.
const SOURCE: &str = concat!("numapilot ", env!("CARGO_PKG_VERSION"));

/// Prints the completion script.
pub fn completions(arguments: &CompletionArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "numapilot", &mut script);
    output::print(&String::from_utf8(script).context("completion script")?)
}

/// Writes `numapilot.1` and one page per command.
pub fn man(arguments: &ManArgs) -> Result<()> {
    fs::create_dir_all(&arguments.folder)
        .with_context(|| format!("{}: cannot be created", arguments.folder.display()))?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &arguments.folder)
}

/// Writes the pages of a command and of those below it.
fn write_pages(command: &Command, folder: &Path) -> Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_pages(below, folder)?;
    }
    let page = Man::new(command.clone()).source(SOURCE);
    let mut text = Vec::new();
    page.render(&mut text).context("manual page")?;
    let text = String::from_utf8(text).context("manual page")?;
    let path = folder.join(page.get_filename());
    fs::write(&path, readable(&text)).with_context(|| format!("{}: cannot be written", path.display()))
}

/// A page whose words are whole and whose examples are as they are written: `man` fills lines and hyphenates, so that commands ran into what is said of them,
/// and had a hyphen more at a line's end.
fn readable(page: &str) -> String {
    let page = page.replacen(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n", 1);
    let (mut out, mut is_example) = (String::with_capacity(page.len() + 128), false);
    for line in page.lines() {
        // Nothing else is indented.
        if line.starts_with("  ") != is_example {
            is_example = !is_example;
            out.push_str(if is_example { ".nf\n" } else { ".fi\n" });
        }
        if line.starts_with(".TH ") {
            // The date is empty, and its quotes are left out, so that what names the program would be the date. Then: no hyphens, and no blanks to fill a line.
            out.push_str(&line.replacen(" 1  ", " 1 \"\" ", 1));
            out.push_str("\n.nh\n.ad l\n");
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    if is_example {
        out.push_str(".fi\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_name_their_version_and_leave_examples_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        man(&ManArgs { folder: folder.path().to_owned() }).unwrap();
        let pages: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().path()).collect();
        assert!(pages.len() > 30 && folder.path().join("numapilot-ctl-add.1").is_file(), "{pages:?}");
        for path in pages {
            let page = fs::read_to_string(&path).unwrap();
            let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
            assert!(title.contains(&format!(" 1 \"\" \"{SOURCE}\"")), "{title}");
            assert!(page.contains(&format!("{title}\n.nh\n.ad l\n")) && !page.contains(".SH EXTRA"), "{page}");
            let mut is_filled = true;
            for line in page.lines() {
                is_filled = line == ".fi" || (is_filled && line != ".nf");
                assert_eq!(line.starts_with("  "), !is_filled && line != ".nf", "{}: {line}", path.display());
            }
            assert!(is_filled, "{}", path.display());
        }
    }

    #[test]
    fn what_follows_the_examples_is_filled_again() {
        let page = ".TH a 1\n.SH NAME\na\n.SH EXTRA\nExamples:\n  a \\-x   b\n  a \\-y\n\nIt ends.\n";
        let made = ".TH a 1\n.nh\n.ad l\n.SH NAME\na\n.SH EXAMPLES\n.nf\n  a \\-x   b\n  a \\-y\n.fi\n\nIt ends.\n";
        assert_eq!(readable(page), made);
        assert!(readable(".SH EXTRA\nExamples:\n  a\n").ends_with(".nf\n  a\n.fi\n"));
    }
}
