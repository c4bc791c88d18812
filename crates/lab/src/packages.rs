//! Debian packages, downloaded and unpacked beside the system: nothing is installed, nothing of the host's configuration changes, no root is needed.
//!
//! apt runs with a configuration of its own (sources, lists, archives and an empty list of installed packages, all in the lab's folder), so a
//! package comes with everything it depends on, checked against Debian's keys. `NUMAPILOT_LAB_MIRROR` names another mirror than deb.debian.org.

use std::env;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;

use crate::cache::Cache;
use crate::error::AtPath;
use crate::error::LabError;

const OFFLINE: &str = "The lab is downloaded once (220 MB, or 190 MB for aarch64) from Debian's mirror: check the network, name another mirror in \
    NUMAPILOT_LAB_MIRROR (the part before /debian), or set NUMAPILOT_LAB=skip to skip what needs a kernel with several nodes.";
const NO_APT: &str = "the lab's kernel and QEMU are Debian packages; on other systems run the lab in a Debian container, or set NUMAPILOT_LAB=skip";
/// The release whose packages are taken, whatever the host runs.
const RELEASE: &str = "bookworm";
/// Architecture of the packages whose programs run on the host.
pub(crate) const HOSTS: &str = "amd64";
const KEYRING: &str = "usr/share/keyrings/debian-archive-keyring.gpg";

/// Runs a program of the set-up to its end; its standard output.
pub(crate) fn run(command: &mut Command, what: &'static str, remedy: &'static str) -> Result<String, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| LabError::Missing { program, error, remedy })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines: Vec<&str> = text.lines().rev().take(12).collect();
    lines.reverse();
    Err(LabError::Failed { what, command: format!("{command:?}"), output: lines.join("\n"), remedy })
}

/// apt with its own configuration, for the packages of one architecture.
#[derive(Debug)]
pub(crate) struct Archive {
    folder: PathBuf,
    /// Debian's name of it.
    arch: &'static str,
}

impl Archive {
    /// Fetches the lists of packages; holds no lock, so the caller must.
    pub(crate) fn open(cache: &Cache, arch: &'static str) -> Result<Self, LabError> {
        let folder = cache.root().join(if arch == HOSTS { "apt".into() } else { format!("apt-{arch}") });
        for part in ["state/lists/partial", "cache/archives/partial"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).at(&path, "cannot make a folder")?;
        }
        let archive = Self { folder, arch };
        let status = archive.folder.join("status");
        fs::write(&status, "").at(&status, "cannot write")?;
        let keyring = archive.keyring()?;
        let mirror = env::var("NUMAPILOT_LAB_MIRROR").unwrap_or_else(|_| "http://deb.debian.org".into());
        let mirror = mirror.trim_end_matches('/');
        let mut sources = String::new();
        for (area, suite) in [
            ("debian", RELEASE.to_owned()),
            ("debian", format!("{RELEASE}-updates")),
            ("debian", format!("{RELEASE}-backports")),
            ("debian-security", format!("{RELEASE}-security")),
        ] {
            sources += &format!("deb [arch={arch} signed-by={}] {mirror}/{area} {suite} main\n", keyring.display());
        }
        let list = archive.folder.join("sources.list");
        fs::write(&list, sources).at(&list, "cannot write")?;
        run(
            archive.apt("apt-get").args(["-q", "-o", "APT::Update::Error-Mode=any", "update"]),
            "fetching Debian's lists of packages",
            OFFLINE,
        )?;
        Ok(archive)
    }

    /// Debian's keys: the host's, or (on other distributions) from the host's own package of them.
    fn keyring(&self) -> Result<PathBuf, LabError> {
        let hosts = Path::new("/").join(KEYRING);
        if hosts.exists() {
            return Ok(hosts);
        }
        let folder = self.folder.join("keyring");
        let own = folder.join(KEYRING);
        if !own.exists() {
            fs::create_dir_all(&folder).at(&folder, "cannot make a folder")?;
            run(
                Command::new("apt-get").args(["-q", "download", "debian-archive-keyring"]).current_dir(&folder),
                "downloading the package debian-archive-keyring, which this system lacks,",
                "Install debian-archive-keyring, then run this again.",
            )?;
            for package in packages_in(&folder)? {
                unpack(&package, &folder)?;
            }
        }
        Ok(own)
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (key, part) in [
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::SourceList", "sources.list"),
        ] {
            command.arg("-o").arg(format!("{key}={}", self.folder.join(part).display()));
        }
        for option in [
            "Dir::Etc::SourceParts=/dev/null",
            "Dir::Etc::Preferences=/dev/null",
            "Dir::Etc::PreferencesParts=/dev/null",
            "APT::Sandbox::User=root",
            "APT::Install-Recommends=false",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
            // The folder's own lock is held instead: a user may not take the system's.
            "Debug::NoLocking=true",
        ] {
            command.args(["-o", option]);
        }
        command.args(["-o", &format!("APT::Architecture={}", self.arch)]);
        command.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Where its lists and its configuration are.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names of packages that begin so.
    pub(crate) fn names(&self, prefix: &str) -> Result<Vec<String>, LabError> {
        let text =
            run(self.apt("apt-cache").args(["pkgnames", prefix]), "reading Debian's lists of packages", OFFLINE)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Downloads packages with all they depend on, from the backports where those have them, and unpacks them under `root`.
    pub(crate) fn unpack_with_dependencies(&self, names: &[&str], root: &Path) -> Result<(), LabError> {
        let archives = self.folder.join("cache/archives");
        for old in packages_in(&archives)? {
            fs::remove_file(&old).at(&old, "cannot delete")?;
        }
        let target = format!("{RELEASE}-backports");
        run(
            self.apt("apt-get")
                .args(["install", "-q", "-y", "--download-only", "--no-install-recommends", "-t", &target])
                .args(names),
            "downloading packages",
            OFFLINE,
        )?;
        fs::create_dir_all(root).at(root, "cannot make a folder")?;
        for package in packages_in(&archives)? {
            unpack(&package, root)?;
            fs::remove_file(&package).at(&package, "cannot delete")?;
        }
        Ok(())
    }

    /// Downloads one package alone into `folder`; its file.
    pub(crate) fn download(&self, name: &str, folder: &Path) -> Result<PathBuf, LabError> {
        fs::create_dir_all(folder).at(folder, "cannot make a folder")?;
        run(self.apt("apt-get").args(["-q", "download", name]).current_dir(folder), "downloading a package", OFFLINE)?;
        let prefix = format!("{name}_");
        packages_in(folder)?
            .into_iter()
            .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix)))
            .ok_or_else(|| LabError::Unexpected {
                path: folder.to_path_buf(),
                what: format!("apt-get download {name} left no package in this folder"),
            })
    }
}

fn packages_in(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).at(folder, "cannot list")? {
        let path = entry.at(folder, "cannot list")?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Unpacks a package's files under `root`.
pub(crate) fn unpack(package: &Path, root: &Path) -> Result<(), LabError> {
    run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root), "unpacking a package", NO_APT).map(drop)
}

/// Unpacks only those files of a package whose paths match one of tar's patterns.
pub(crate) fn unpack_some(package: &Path, patterns: &[&str], root: &Path) -> Result<(), LabError> {
    let mut reader = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| LabError::Missing { program: "dpkg-deb".into(), error, remedy: NO_APT })?;
    let stream = reader.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let unpacked = Command::new("tar")
        .args(["--extract", "--wildcards", "--directory"])
        .arg(root)
        .args(patterns)
        .stdin(stream)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let read = reader.wait().at(package, "cannot wait for dpkg-deb")?;
    unpacked.map_err(|error| LabError::Missing { program: "tar".into(), error, remedy: "install tar" })?;
    // tar's own verdict is no help: it fails where one of several patterns matches nothing. What is missing shows when it is looked for.
    if read.success() {
        return Ok(());
    }
    Err(LabError::Unexpected {
        path: package.to_path_buf(),
        what: "this package cannot be unpacked; delete it and run this again".into(),
    })
}
