//! Selects QEMU: the installed one where it is recent enough, else Debian's, unpacked beside the system with all its libraries.
//!
//! 9.2 is the first that takes the lab's plugin (`plugin/qemu_api.h`), 8.2 the first that migrates to and from files; 7.2 also crashed the guest's kernel in
//! one of forty boots.
//! `NUMAPILOT_LAB_QEMU` names another `qemu-system-x86_64`, `NUMAPILOT_LAB_QEMU_AARCH64` another `qemu-system-aarch64`.

use std::env;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use crate::arch::Arch;
use crate::arch::Emulator;
use crate::cache::Cache;
use crate::error::LabError;
use crate::packages;
use crate::packages::Archive;
use crate::packages::HOSTS;

const OLDEST: (u32, u32) = (9, 2);
const REINSTALL: &str = "delete the lab's folder (see NUMAPILOT_LAB_CACHE) and run this again, or install qemu-system-x86 (for aarch64 guests qemu-system-arm) \
    9.2 or later";

/// A QEMU that can be started.
#[derive(Debug, Clone)]
pub(crate) struct Qemu {
    /// Program and first arguments.
    words: Vec<PathBuf>,
    /// Where it looks for its modules, if not where it was built for.
    modules: Option<PathBuf>,
    /// Version as QEMU prints it.
    pub(crate) version: String,
}

impl Qemu {
    /// Finds one, or downloads it.
    pub(crate) fn find(cache: &Cache, arch: Arch) -> Result<Self, LabError> {
        let emulator = arch.emulator();
        if let Some(path) = env::var_os(emulator.variable).filter(|p| !p.is_empty()) {
            return Self { words: vec![path.into()], modules: None, version: String::new() }.with_version();
        }
        if let Some(installed) = Self::installed(emulator) {
            return Ok(installed);
        }
        let root = cache.once(emulator.folder, |path| {
            let _lock = cache.lock("apt")?;
            crate::say(&format!(
                "downloading QEMU for {arch} (36 MB, no installed one is 9.2 or later) into {}, once",
                cache.root().display()
            ));
            Archive::open(cache, HOSTS)?.unpack_with_dependencies(&[emulator.package], path)
        })?;
        Self::unpacked(&root, emulator).with_version()
    }

    fn installed(emulator: Emulator) -> Option<Self> {
        let qemu = Self { words: vec![emulator.program.into()], modules: None, version: String::new() };
        qemu.with_version().ok().filter(|q| parse_version(&q.version).is_some_and(|v| v >= OLDEST))
    }

    /// Runs through its own loader with its own C library, so that the host's may be of any age.
    fn unpacked(root: &Path, emulator: Emulator) -> Self {
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(|l| root.join(l));
        let path = libraries.each_ref().map(|l| l.display().to_string()).join(":");
        let mut words = vec![libraries[0].join("ld-linux-x86-64.so.2"), "--library-path".into(), path.into()];
        words.extend(["--argv0".into(), emulator.program.into(), root.join("usr/bin").join(emulator.program)]);
        for data in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            words.extend(["-L".into(), root.join(data)]);
        }
        Self { words, modules: Some(libraries[1].join("qemu")), version: String::new() }
    }

    fn with_version(mut self) -> Result<Self, LabError> {
        let text = packages::run(self.command().arg("-version"), "asking QEMU for its version", REINSTALL)?;
        self.version = text.lines().next().unwrap_or("").trim_start_matches("QEMU emulator version ").to_owned();
        Ok(self)
    }

    /// A command that starts it; arguments follow.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if let Some(modules) = &self.modules {
            command.env("QEMU_MODULE_DIR", modules);
        }
        command
    }
}

/// Major and minor of `10.0.2 (Debian ...)`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse_version("10.0.2 (Debian 1:10.0.2+ds-2)"), Some((10, 0)));
        assert!(parse_version("7.2.22").is_some_and(|v| v < OLDEST));
        // It refuses the plugin.
        assert!(parse_version("8.2.2 (Debian 1:8.2.2+ds-0ubuntu1)").is_some_and(|v| v < OLDEST));
        assert!(parse_version("10.0").is_some_and(|v| v >= OLDEST));
        assert_eq!(parse_version("unknown"), None);
    }

    #[test]
    fn set_up_installs_the_distributions_own_only_where_the_lab_takes_it() {
        let (major, minor) = OLDEST;
        assert!(include_str!("../../../tools/setup").contains(&format!("\"$qemu\" ge 1:{major}.{minor}; ")));
    }
}
