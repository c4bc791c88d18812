//! The guest's first files: a static busybox, the modules, and `guest/init`, as a cpio archive
//! (`Documentation/driver-api/early-userspace/buffer-format.rst`, the "newc" form).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use numapilot_random::fnv1a;

use crate::arch::Arch;
use crate::cache::Cache;
use crate::error::AtPath;
use crate::error::LabError;
use crate::kernel::KernelFiles;
use crate::packages::Archive;

const INIT: &str = include_str!("../guest/init");
const FOLDERS: &[&str] = &["bin", "dev", "proc", "sys", "modules", "files", "host", "changes", "root"];
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

/// An archive for this kernel: where it lies, and a hash of what it holds.
pub(crate) fn file(cache: &Cache, arch: Arch, kernel: &KernelFiles) -> Result<(PathBuf, u64), LabError> {
    let busybox = cache.once(&arch.cached("busybox-1"), |path| {
        let _lock = cache.lock("apt")?;
        Archive::open(cache, arch.debian())?.unpack_with_dependencies(&["busybox-static"], path)
    })?;
    let busybox =
        ["bin/busybox", "usr/bin/busybox"].map(|b| busybox.join(b)).into_iter().find(|b| b.exists()).unwrap_or(busybox);
    let bytes = archive(&busybox, &kernel.modules)?;
    let hash = fnv1a(&bytes);
    let path =
        cache.once(&format!("initramfs-{hash:016x}"), |path| fs::write(path, &bytes).at(path, "cannot write"))?;
    Ok((path, hash))
}

fn archive(busybox: &Path, modules: &[PathBuf]) -> Result<Vec<u8>, LabError> {
    let mut cpio = Cpio::default();
    for folder in FOLDERS {
        cpio.entry(folder, FOLDER, (0, 0), &[]);
    }
    // The kernel opens it before init mounts /dev.
    cpio.entry("dev/console", DEVICE, (5, 1), &[]);
    cpio.entry("init", PROGRAM, (0, 0), INIT.as_bytes());
    cpio.entry("bin/busybox", PROGRAM, (0, 0), &fs::read(busybox).at(busybox, "cannot read")?);
    let mut order = String::new();
    for module in modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        cpio.entry(&format!("modules/{name}"), PROGRAM, (0, 0), &fs::read(module).at(module, "cannot read")?);
        order += &format!("{name}\n");
    }
    cpio.entry("modules/order", PROGRAM, (0, 0), order.as_bytes());
    Ok(cpio.finish())
}

/// Writes the "newc" form: a header of hexadecimal fields, the name, the data, each padded to four bytes.
#[derive(Debug, Default)]
struct Cpio {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Cpio {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.names.insert(name.to_owned());
        let inode = self.names.len();
        let (size, name_size) = (data.len(), name.len() + 1);
        let header = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{size:08x}{0:08x}{0:08x}{2:08x}{3:08x}{name_size:08x}{0:08x}",
            0, 1, device.0, device.1
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_the_kernels_form() {
        let mut cpio = Cpio::default();
        cpio.entry("bin", FOLDER, (0, 0), &[]);
        cpio.entry("bin/x", PROGRAM, (0, 0), b"12345");
        let bytes = cpio.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..14], b"07070100000001");
        // 110 bytes of header and "bin\0" make 114, padded to 116.
        let second = &bytes[116..];
        assert_eq!(&second[..6], b"070701");
        assert_eq!(&second[54..62], b"00000005", "size of the data");
        assert_eq!(&second[94..102], b"00000006", "size of the name with its end");
        assert_eq!(&second[110..116], b"bin/x\0");
        assert_eq!(&second[116..124], b"12345\0\0\0");
        assert!(bytes.windows(10).any(|w| w == b"TRAILER!!!"));
    }
}
