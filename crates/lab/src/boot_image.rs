//! The file that QEMU boots, out of a packaged kernel.
//!
//! x86-64: the uncompressed kernel (its PVH entry), which saves the guest seconds of unpacking: the payload of the packaged image
//! (`Documentation/arch/x86/boot.rst`: setup_sects, payload_offset, payload_length). 64-bit Arm: Debian packages the uncompressed image, which QEMU boots
//! as it is (`Documentation/arch/arm64/booting.rst`).

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use crate::arch::Arch;
use crate::error::AtPath;
use crate::error::LabError;

/// Magic number of an arm64 image, at [`ARM_MAGIC_AT`].
const ARM_MAGIC: &[u8] = b"ARM\x64";
const ARM_MAGIC_AT: usize = 0x38;

/// The kernel that QEMU boots, from the image as it is packaged.
pub(crate) fn kernel(arch: Arch, image: &Path) -> Result<Vec<u8>, LabError> {
    let bytes = fs::read(image).at(image, "cannot read")?;
    match arch {
        Arch::X86_64 => uncompressed(image, &bytes),
        Arch::Aarch64 if bytes.get(ARM_MAGIC_AT..ARM_MAGIC_AT + 4) == Some(ARM_MAGIC) => Ok(bytes),
        Arch::Aarch64 => Err(unexpected(image, "this is not an uncompressed boot image of arm64")),
    }
}

/// The kernel's ELF file out of a bzImage.
fn uncompressed(image: &Path, bytes: &[u8]) -> Result<Vec<u8>, LabError> {
    let payload = payload(bytes).ok_or_else(|| unexpected(image, "this is not an x86 boot image with a payload"))?;
    let kernel = if payload.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let mut kernel = Vec::new();
        let decoder = zstd::Decoder::new(payload).map(zstd::Decoder::single_frame);
        decoder.and_then(|mut d| d.read_to_end(&mut kernel)).at(image, "cannot unpack the zstd payload")?;
        kernel
    } else if payload.starts_with(b"\xfd7zXZ\0") {
        let packed = image.with_extension("payload.xz");
        fs::write(&packed, payload).at(&packed, "cannot write")?;
        unpack_xz(&packed)?
    } else {
        return Err(unexpected(image, "the payload is neither zstd nor xz"));
    };
    if kernel.starts_with(b"\x7fELF") { Ok(kernel) } else { Err(unexpected(image, "the payload holds no ELF file")) }
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| image.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let setup_sectors = match *image.get(0x1f1)? {
        0 => 4,
        n => usize::from(n),
    };
    let start = (setup_sectors + 1) * 512 + word(0x248)?;
    image.get(start..start.checked_add(word(0x24c)?)?)
}

/// What an xz file holds: a kernel, or a module.
pub(crate) fn unpack_xz(path: &Path) -> Result<Vec<u8>, LabError> {
    // The kernel's payload has its size after the stream, which xz reports as trailing garbage after writing all.
    let output = Command::new("xz")
        .args(["--decompress", "--stdout", "--single-stream", "--quiet"])
        .arg(path)
        .output()
        .map_err(|error| LabError::Missing {
            program: "xz".into(),
            error,
            remedy: "install xz-utils (tools/setup lab does)",
        })?;
    if output.stdout.is_empty() {
        return Err(unexpected(path, &format!("xz cannot unpack it: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(output.stdout)
}

fn unexpected(path: &Path, what: &str) -> LabError {
    LabError::Unexpected { path: path.to_path_buf(), what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_or_foreign_image_has_no_payload() {
        assert_eq!(payload(b""), None);
        let mut image = vec![0u8; 4096];
        assert_eq!(payload(&image), None, "no signature");
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&4u32.to_le_bytes());
        image[1040..1044].copy_from_slice(b"load");
        assert_eq!(payload(&image), Some(&b"load"[..]));
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&image), None, "reaches past the end");
    }

    #[test]
    fn an_arm_image_is_booted_as_it_is_and_another_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vmlinuz-6.12");
        let mut image = vec![0u8; 64];
        fs::write(&path, &image).expect("written");
        let refused = kernel(Arch::Aarch64, &path).expect_err("no kernel").to_string();
        assert!(refused.contains("vmlinuz-6.12") && refused.contains("arm64"), "{refused}");
        image[ARM_MAGIC_AT..ARM_MAGIC_AT + 4].copy_from_slice(ARM_MAGIC);
        fs::write(&path, &image).expect("written");
        assert_eq!(kernel(Arch::Aarch64, &path).ok(), Some(image));
    }
}
