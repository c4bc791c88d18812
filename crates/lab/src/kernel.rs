//! The guest's kernels: stock Debian ones, as they are downloaded, with the few modules that the guest loads.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;

use crate::arch::Arch;
use crate::boot_image;
use crate::boot_image::unpack_xz;
use crate::cache::Cache;
use crate::error::AtPath;
use crate::error::LabError;
use crate::packages;
use crate::packages::Archive;

/// What the guest's init loads, besides what these need themselves.
const MODULES: &[&str] = &["9pnet_virtio", "9p", "overlay"];
/// What it loads where it is not built in: 6.1 has virtio as modules.
const MODULES_IF_THERE: &[&str] = &["virtio_pci"];
/// Folders of the modules in the package.
const MODULE_FOLDERS: &[&str] = &[
    "kernel/drivers/virtio",
    "kernel/net/9p",
    "kernel/fs/9p",
    "kernel/fs/netfs",
    "kernel/fs/fscache",
    "kernel/fs/overlayfs",
];

/// A kernel that the lab can boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kernel {
    /// The long-term kernel with everything numapilot uses: DAMON, weighted interleaving (6.9), PAGEMAP_SCAN (6.7).
    #[default]
    V6_12,
    /// Debian 12's kernel, without these: for testing numapilot's fall-backs.
    V6_1,
}

impl Kernel {
    /// All kernels of the lab, newest first.
    pub const ALL: [Kernel; 2] = [Kernel::V6_12, Kernel::V6_1];

    /// What its packages' names begin with; a version and Debian's name of the architecture follow.
    fn package_prefix(self) -> &'static str {
        match self {
            Kernel::V6_12 => "linux-image-6.12.",
            Kernel::V6_1 => "linux-image-6.1.",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::V6_12 => "6.12",
            Kernel::V6_1 => "6.1",
        })
    }
}

impl FromStr for Kernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Kernel::ALL.map(|k| k.to_string()).join(", ");
        Kernel::ALL
            .into_iter()
            .find(|k| k.to_string() == text)
            .ok_or_else(|| format!("there is no kernel {text:?}; known: {known}"))
    }
}

/// A kernel on disk.
#[derive(Debug, Clone)]
pub(crate) struct KernelFiles {
    /// The file that QEMU boots.
    pub(crate) vmlinux: PathBuf,
    /// Modules to load, in this order.
    pub(crate) modules: Vec<PathBuf>,
    /// Release of the kernel, as `uname -r` prints it.
    pub(crate) release: String,
}

/// The kernel's files, downloaded on first use.
pub(crate) fn files(cache: &Cache, arch: Arch, kernel: Kernel) -> Result<KernelFiles, LabError> {
    let folder = cache.once(&arch.cached(&format!("kernel-{kernel}")), |path| fetch(cache, arch, kernel, path))?;
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).at(&path, "cannot read")
    };
    let modules = text("order")?.lines().map(|name| folder.join(name)).collect();
    Ok(KernelFiles { vmlinux: folder.join("vmlinux"), modules, release: text("release")? })
}

fn fetch(cache: &Cache, arch: Arch, kernel: Kernel, folder: &Path) -> Result<(), LabError> {
    let scratch = folder.join("scratch");
    let package = download(cache, arch, kernel, &scratch)?;
    let patterns: Vec<String> = MODULE_FOLDERS.iter().map(|f| format!("*/modules/*/{f}/*")).collect();
    let mut patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    patterns.push("*/boot/vmlinuz-*");
    packages::unpack_some(&package, &patterns, &scratch)?;
    let image = only_file(&scratch.join("boot"), "vmlinuz-")?;
    let release = image.file_name().unwrap_or_default().to_string_lossy().trim_start_matches("vmlinuz-").to_owned();
    write(&folder.join("vmlinux"), &boot_image::kernel(arch, &image)?)?;
    let root =
        ["lib/modules", "usr/lib/modules"].map(|l| scratch.join(l).join(&release)).into_iter().find(|p| p.exists());
    let root = root.ok_or_else(|| unexpected(&package, "no folder of modules in this package"))?;
    let mut order = Vec::new();
    for module in MODULES_IF_THERE.iter().filter(|m| module_file(&root, m).is_some()).chain(MODULES) {
        take_module(&root, module, folder, &mut order)?;
    }
    write(&folder.join("order"), order.iter().map(|m| format!("{m}.ko\n")).collect::<String>().as_bytes())?;
    write(&folder.join("release"), release.as_bytes())?;
    fs::remove_dir_all(&scratch).at(&scratch, "cannot delete")
}

/// The newest package of the kernel, downloaded into `scratch`.
fn download(cache: &Cache, arch: Arch, kernel: Kernel, scratch: &Path) -> Result<PathBuf, LabError> {
    let _lock = cache.lock("apt")?;
    let debian = arch.debian();
    let root = cache.root().display();
    crate::say(&format!("downloading kernel {kernel} for {arch} (about 100 MB) into {root}, once"));
    let archive = Archive::open(cache, debian)?;
    let prefix = kernel.package_prefix();
    let names = archive.names(prefix)?.into_iter();
    let newest = names.filter_map(|name| version(&name, prefix, debian).map(|version| (version, name))).max();
    let Some((_, name)) = newest else {
        let what =
            format!("Debian's package lists have no package {prefix}*-{debian}; check that the mirror is complete");
        return Err(LabError::Unexpected { path: archive.folder().to_path_buf(), what });
    };
    archive.download(&name, scratch)
}

/// The numbers in a package's name, for order: `linux-image-6.12.117+deb12-amd64` gives 6.12.117.12 without the prefix. None for other flavours.
fn version(name: &str, prefix: &str, debian: &str) -> Option<Vec<u32>> {
    let middle = name.strip_prefix(prefix)?.strip_suffix(debian)?.strip_suffix('-')?;
    let plain = middle.replace("+deb", ".");
    plain.split(['.', '-']).map(|part| part.parse().ok()).collect()
}

fn module_file(root: &Path, name: &str) -> Option<PathBuf> {
    MODULE_FOLDERS
        .iter()
        .flat_map(|f| ["ko", "ko.xz"].map(|e| root.join(f).join(format!("{name}.{e}"))))
        .find(|p| p.exists())
}

/// Copies a module and first those that it needs; each once.
fn take_module(root: &Path, name: &str, folder: &Path, order: &mut Vec<String>) -> Result<(), LabError> {
    if order.iter().any(|o| o == name) {
        return Ok(());
    }
    let path = module_file(root, name)
        .ok_or_else(|| unexpected(root, &format!("the module {name}, which the guest needs, is not in this folder")))?;
    let bytes = match path.extension() {
        Some(e) if e == "xz" => unpack_xz(&path)?,
        _ => fs::read(&path).at(&path, "cannot read")?,
    };
    for needed in dependencies(&bytes) {
        take_module(root, &needed, folder, order)?;
    }
    write(&folder.join(format!("{name}.ko")), &bytes)?;
    order.push(name.to_owned());
    Ok(())
}

/// What a module's `.modinfo` names as needed (`depends=a,b`).
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|w| w == KEY) else { return Vec::new() };
    let value: Vec<u8> = module[start + KEY.len()..].iter().copied().take_while(|&b| b != 0).collect();
    String::from_utf8_lossy(&value).split(',').filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

fn only_file(folder: &Path, prefix: &str) -> Result<PathBuf, LabError> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).at(folder, "cannot list")?;
    let mut found = entries.into_iter().filter(|e| e.file_name().to_string_lossy().starts_with(prefix));
    found
        .next()
        .map(|e| e.path())
        .ok_or_else(|| unexpected(folder, &format!("there is no file {prefix}* in this folder")))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), LabError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).at(folder, "cannot make a folder")?;
    }
    fs::write(path, bytes).at(path, "cannot write")
}

fn unexpected(path: &Path, what: &str) -> LabError {
    LabError::Unexpected { path: path.to_path_buf(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_kernel_is_taken() {
        let names = [
            "linux-image-6.12.90+deb12-amd64",
            "linux-image-6.12.90+deb12.1-amd64",
            "linux-image-6.12.117+deb12-amd64",
            "linux-image-6.12.118+deb12-cloud-amd64",
            "linux-image-6.12.119+deb12-amd64-dbg",
        ];
        let prefix = Kernel::V6_12.package_prefix();
        let newest = names.iter().filter_map(|n| version(n, prefix, "amd64").map(|v| (v, *n))).max();
        assert_eq!(newest, Some((vec![117, 12], names[2])));
        let of_arm = |name| version(name, Kernel::V6_1.package_prefix(), "arm64");
        assert_eq!(of_arm("linux-image-6.1.0-56-arm64"), Some(vec![0, 56]));
        for other in
            ["linux-image-6.1.0-56-amd64", "linux-image-6.1.0-56-rt-arm64", "linux-image-6.1.0-56-arm64-unsigned"]
        {
            assert_eq!(of_arm(other), None, "{other}");
        }
    }

    #[test]
    fn modules_name_what_they_need() {
        assert_eq!(dependencies(b"ELF\0license=GPL\0depends=9pnet,netfs\0name=9p\0"), ["9pnet", "netfs"]);
        assert!(dependencies(b"ELF\0depends=\0name=9pnet\0").is_empty());
        assert!(dependencies(b"ELF").is_empty());
    }
}
