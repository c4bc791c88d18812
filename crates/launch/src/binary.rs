//! Properties of a binary that decide whether the tracker can be loaded: its architecture, how it is linked, whether it is instrumented or privileged.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use object::Object;
use object::ObjectSymbol;
use object::elf;
use object::endian::Endianness;
use object::read::ReadCache;
use object::read::elf::Dyn;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;

use crate::error::LaunchError;

/// Exported by every program that `numapilot cc` linked (NP_CALLOUTS_SYMBOL in np.h), unless a version script or `--exclude-libs` hides it.
const CALLOUTS_SYMBOL: &str = "numapilot_callouts";

/// The section of the call-outs, which `strip` leaves (NP_CALLOUTS_TEXT in callouts.h).
const CALLOUTS_SECTION: &str = "np_callouts_text";

/// What code of AddressSanitizer and ThreadSanitizer calls at its start.
const SANITIZER_SYMBOLS: [&[u8]; 3] = [b"__asan_init", b"__hwasan_init", b"__tsan_init"];

/// How a binary is linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// Dynamically linked.
    Dynamic {
        /// Path of the loader (PT_INTERP).
        interpreter: String,
    },
    /// Statically linked.
    Static,
    /// Loaded by a dynamic loader, and in need of no library: it has no C library (Go's `-buildmode=pie` without cgo).
    Bare,
    /// Built for another architecture or word size.
    ForeignElf {
        /// Description of the binary, as in "a 32-bit x86 binary".
        what: String,
    },
}

/// A binary, as far as recording it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Path of the file.
    pub path: PathBuf,
    /// How it is linked.
    pub kind: BinaryKind,
    /// Whether it was built with `numapilot cc`.
    pub instrumented: bool,
    /// Set where the loader runs it in secure mode: why.
    pub privileged: Option<String>,
    /// Whether the library of AddressSanitizer or ThreadSanitizer is a shared one: the program ends where another was loaded before.
    pub sanitized: bool,
}

impl Binary {
    /// Inspects `path`; `None` where it is no ELF file.
    ///
    /// # Errors
    /// The file cannot be read, or its ELF headers are damaged.
    pub fn inspect(path: &Path) -> Result<Option<Binary>, LaunchError> {
        let unreadable = |e: std::io::Error| LaunchError::NotExecutable {
            path: path.to_owned(),
            reason: format!("it cannot be read ({e})"),
            remedy: "make it readable (`chmod +r`), so that numapilot can read its symbols".to_owned(),
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut ident = [0_u8; 20];
        let count = read_up_to(&mut file, &mut ident).map_err(unreadable)?;
        if count < 4 || ident[..4] != elf::ELFMAG {
            return Ok(None);
        }
        let binary = |kind, instrumented, sanitized| Binary {
            path: path.to_owned(),
            kind,
            instrumented,
            privileged: privilege(path),
            sanitized,
        };
        if let Some(what) = foreign(&ident[..count]) {
            return Ok(Some(binary(BinaryKind::ForeignElf { what }, false, false)));
        }
        let (kind, instrumented, sanitized) = inspect_elf64(file).map_err(|e| LaunchError::NotExecutable {
            path: path.to_owned(),
            reason: format!("its ELF headers are damaged ({e})"),
            remedy: "build it again".to_owned(),
        })?;
        Ok(Some(binary(kind, instrumented, sanitized)))
    }
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read(&mut buffer[count..])? {
            0 => break,
            n => count += n,
        }
    }
    Ok(count)
}

/// In words, where the ELF identification is not that of this recorder.
fn foreign(ident: &[u8]) -> Option<String> {
    let host = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
    let machine = match (ident.get(5), ident.get(18..20)) {
        (Some(&elf::ELFDATA2LSB), Some(bytes)) => u16::from_le_bytes([bytes[0], bytes[1]]),
        (_, Some(bytes)) => u16::from_be_bytes([bytes[0], bytes[1]]),
        _ => return Some("an ELF file cut off in its header".to_owned()),
    };
    let name = match machine {
        elf::EM_386 => "x86".to_owned(),
        elf::EM_X86_64 => "x86_64".to_owned(),
        elf::EM_ARM => "ARM".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_RISCV => "RISC-V".to_owned(),
        elf::EM_PPC64 => "POWER".to_owned(),
        elf::EM_S390 => "s390".to_owned(),
        other => format!("machine number {other}"),
    };
    let bits = if ident.get(4) == Some(&elf::ELFCLASS64) { 64 } else { 32 };
    (bits != 64 || machine != host).then(|| format!("a {bits}-bit {name} binary"))
}

/// How it is linked, and whether it is instrumented and sanitized.
fn inspect_elf64(file: File) -> Result<(BinaryKind, bool, bool), object::Error> {
    let cache = ReadCache::new(file);
    let header = elf::FileHeader64::<Endianness>::parse(&cache)?;
    let endian = header.endian()?;
    let (mut interpreter, mut needs_libraries) = (None, false);
    for segment in header.program_headers(endian, &cache)? {
        if let Some(name) = segment.interpreter(endian, &cache)? {
            interpreter = Some(String::from_utf8_lossy(name).into_owned());
        }
        // Of entries that cannot be read, nothing is concluded.
        needs_libraries |= match segment.dynamic(endian, &cache) {
            Ok(entries) => entries.into_iter().flatten().any(|entry| entry.tag32(endian) == Some(elf::DT_NEEDED)),
            Err(_) => true,
        };
    }
    let parsed = object::File::parse(&cache)?;
    let mut symbols = parsed.dynamic_symbols().chain(parsed.symbols());
    let instrumented = symbols
        .any(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(CALLOUTS_SYMBOL.as_bytes()))
        || parsed.section_by_name(CALLOUTS_SECTION).is_some();
    // Where the sanitizer's library is linked in, its functions are definitions.
    let sanitized = parsed
        .dynamic_symbols()
        .any(|symbol| symbol.is_undefined() && symbol.name_bytes().is_ok_and(|name| SANITIZER_SYMBOLS.contains(&name)));
    let kind = match interpreter {
        None => BinaryKind::Static,
        Some(_) if !needs_libraries => BinaryKind::Bare,
        Some(interpreter) => BinaryKind::Dynamic { interpreter },
    };
    Ok((kind, instrumented, sanitized))
}

/// Why the kernel would set AT_SECURE for this file (man ld.so, "Secure-execution mode").
fn privilege(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok()?;
    // SAFETY: plain getters of this process's ids.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    if meta.mode() & libc::S_ISUID != 0 && meta.uid() != user {
        return Some("it is set-user-ID".to_owned());
    }
    if meta.mode() & (libc::S_ISGID | libc::S_IXGRP) == (libc::S_ISGID | libc::S_IXGRP) && meta.gid() != group {
        return Some("it is set-group-ID".to_owned());
    }
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: both names are NUL-terminated; a null buffer of size 0 only asks whether the attribute is there.
    let size = unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    (size > 0 && user != 0).then(|| "it has file capabilities".to_owned())
}

#[cfg(test)]
mod tests {
    //! Binaries of every kind that users meet.

    use std::fs;

    use super::*;

    #[test]
    fn this_test_is_a_dynamic_uninstrumented_binary() {
        let binary = Binary::inspect(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(matches!(&binary.kind, BinaryKind::Dynamic { interpreter } if interpreter.contains("ld-linux")));
        assert!(!binary.instrumented);
        assert_eq!(binary.privileged, None);
    }

    /// As Go links position-independent programs: a recording of one had nothing in it, and nobody said why.
    #[test]
    fn a_program_that_needs_no_library_is_not_taken_for_one_with_a_c_library() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("bare.c"), folder.path().join("bare"));
        fs::write(&source, "void _start(void) { for (;;) {} }\n").unwrap();
        let mut command = std::process::Command::new("cc");
        let loader = "-Wl,--dynamic-linker=/lib64/ld-linux-x86-64.so.2";
        command.args(["-nostdlib", "-fPIE", "-pie", "-fno-stack-protector", loader, "-o"]).arg(&program).arg(&source);
        assert!(command.status().expect("cc runs").success());
        assert_eq!(Binary::inspect(&program).unwrap().unwrap().kind, BinaryKind::Bare);
    }

    /// As `strip` leaves a program that was linked with a version script. It was refused as one that is not instrumented.
    #[test]
    fn the_call_outs_tell_of_instrumentation_where_their_names_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("hiding.c"), folder.path().join("hiding"));
        let hidden = "__attribute__((section(\"np_callouts_text\"), used)) static void entry(void) {}\n";
        for (callouts, instrumented) in [(hidden, true), ("", false)] {
            fs::write(&source, format!("{callouts}int main(void) {{ return 0; }}\n")).unwrap();
            let status = std::process::Command::new("cc").arg("-s").arg(&source).arg("-o").arg(&program).status();
            assert!(status.expect("cc runs").success());
            assert_eq!(Binary::inspect(&program).unwrap().unwrap().instrumented, instrumented);
        }
    }

    #[test]
    fn foreign_and_damaged_binaries_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("elf");
        let mut bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes.truncate(64);
        fs::write(&path, &bytes).unwrap();
        assert!(Binary::inspect(&path).unwrap_err().to_string().contains("damaged"));
        bytes[4] = elf::ELFCLASS32;
        fs::write(&path, &bytes).unwrap();
        let kind = Binary::inspect(&path).unwrap().unwrap().kind;
        assert!(matches!(kind, BinaryKind::ForeignElf { what } if what.contains("32-bit")));
        bytes[4] = elf::ELFCLASS64;
        bytes[18] = 243;
        fs::write(&path, &bytes).unwrap();
        let kind = Binary::inspect(&path).unwrap().unwrap().kind;
        assert!(matches!(kind, BinaryKind::ForeignElf { what } if what.contains("RISC-V")));
        fs::write(&path, b"\x7fELF").unwrap();
        let kind = Binary::inspect(&path).unwrap().unwrap().kind;
        assert!(matches!(kind, BinaryKind::ForeignElf { what } if what.contains("cut off")));
        fs::write(&path, b"no").unwrap();
        assert_eq!(Binary::inspect(&path).unwrap(), None);
    }
}
