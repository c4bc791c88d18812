//! The command line of an emulated program.
//!
//! `-E LD_PRELOAD=...` preloads the tracker into the emulated program; in QEMU's own environment the variable would load it into QEMU. QEMU runs
//! binaries only, so this module resolves `#!` lines as the kernel does.

use std::error::Error;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How many interpreters deep the kernel follows `#!` lines (fs/exec.c).
const MAX_SCRIPT_DEPTH: usize = 5;

/// Bytes of a `#!` line that the kernel reads (BINPRM_BUF_SIZE).
const LINE_BYTES: usize = 256;

/// An emulated program and its emulator.
#[derive(Clone, Copy, Debug)]
pub struct Emulation<'a> {
    /// Path of the unpacked plugin.
    pub plugin: &'a Path,
    /// For the emulated program's `LD_PRELOAD`: the tracker, and what the user preloads.
    pub preload: &'a OsStr,
    /// The program or script.
    pub program: &'a Path,
    /// Arguments of the program, the first as the user wrote it.
    pub arguments: &'a [OsString],
}

/// Why there is no such command line.
#[derive(Debug)]
pub enum NotEmulated {
    /// QEMU separates variables by commas and offers no way to quote one.
    Comma(OsString),
    /// The program cannot be read.
    Unreadable(io::Error),
    /// The `#!` lines of the program lead from script to script without end.
    Scripts,
}

impl fmt::Display for NotEmulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotEmulated::Comma(list) => {
                write!(f, "QEMU cannot pass on LD_PRELOAD={} because of the comma in it", list.display())
            }
            NotEmulated::Unreadable(error) => write!(f, "the program cannot be read ({error})"),
            NotEmulated::Scripts => write!(f, "its `#!` lines lead from script to script without end"),
        }
    }
}

impl Error for NotEmulated {}

impl Emulation<'_> {
    /// Arguments for the emulator, without its own name.
    ///
    /// # Errors
    /// A comma where QEMU takes none, or a script that leads nowhere.
    pub fn command_line(&self) -> Result<Vec<OsString>, NotEmulated> {
        if self.preload.as_bytes().contains(&b',') {
            return Err(NotEmulated::Comma(self.preload.to_owned()));
        }
        let words = self.binary_and_arguments()?;
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(self.preload);
        let (binary, name, rest) = words;
        let mut line: Vec<OsString> =
            vec!["-plugin".into(), self.plugin.into(), "-E".into(), preload, "-0".into(), name, binary];
        line.extend(rest);
        Ok(line)
    }

    /// The binary behind all `#!` lines, what it is called, and its further arguments.
    fn binary_and_arguments(&self) -> Result<(OsString, OsString, Vec<OsString>), NotEmulated> {
        let mut binary = self.program.as_os_str().to_owned();
        let mut name = self.arguments.first().cloned().unwrap_or_else(|| binary.clone());
        let mut rest: Vec<OsString> = self.arguments.iter().skip(1).cloned().collect();
        for _ in 0..=MAX_SCRIPT_DEPTH {
            let Some((interpreter, option)) = script_line(Path::new(&binary)).map_err(NotEmulated::Unreadable)? else {
                return Ok((binary, name, rest));
            };
            // As the kernel: interpreter, its one argument, the script's path, the script's arguments.
            rest.insert(0, binary);
            if let Some(option) = option {
                rest.insert(0, option);
            }
            name = interpreter.clone();
            binary = interpreter;
        }
        Err(NotEmulated::Scripts)
    }
}

/// The interpreter of a script and its argument; `None` where the file has no `#!` line.
fn script_line(path: &Path) -> io::Result<Option<(OsString, Option<OsString>)>> {
    let mut head = Vec::with_capacity(LINE_BYTES);
    File::open(path)?.take(LINE_BYTES as u64).read_to_end(&mut head)?;
    let Some(line) = head.strip_prefix(b"#!") else { return Ok(None) };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, option) = (&line[..end], line[end..].trim_ascii());
    let word = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Ok(Some((word(interpreter), (!option.is_empty()).then(|| word(option)))))
}

#[cfg(test)]
mod tests {
    //! Command lines of binaries and scripts.

    use std::fs;

    use super::*;

    fn line(program: &Path, arguments: &[&str], preload: &str) -> Result<Vec<OsString>, NotEmulated> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        Emulation { plugin: Path::new("/p.so"), preload: OsStr::new(preload), program, arguments: &arguments }
            .command_line()
    }

    #[test]
    fn a_binary_keeps_its_name_and_arguments() {
        let own = std::env::current_exe().unwrap();
        let found = line(&own, &["name", "-v", "a b"], "/t.so:/x.so").unwrap();
        let own = own.to_str().unwrap();
        assert_eq!(found, ["-plugin", "/p.so", "-E", "LD_PRELOAD=/t.so:/x.so", "-0", "name", own, "-v", "a b"]);
        assert!(matches!(line(Path::new(own), &["name"], "/t,.so"), Err(NotEmulated::Comma(_))));
    }

    #[test]
    fn scripts_are_followed_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::write(&inner, "#!/bin/sh -e -u\nexit\n").unwrap();
        let outer = folder.path().join("outer");
        fs::write(&outer, format!("#! {}\n", inner.display())).unwrap();
        let found = line(&outer, &["o", "1"], "/t.so").unwrap();
        let (inner, outer) = (inner.to_str().unwrap(), outer.to_str().unwrap());
        assert_eq!(found[4..], ["-0", "/bin/sh", "/bin/sh", "-e -u", inner, outer, "1"]);
        let own = folder.path().join("own");
        fs::write(&own, format!("#!{}\n", own.display())).unwrap();
        assert!(matches!(line(&own, &["own"], "/t.so"), Err(NotEmulated::Scripts)));
        assert!(matches!(line(&folder.path().join("none"), &["n"], "/t.so"), Err(NotEmulated::Unreadable(_))));
    }
}
