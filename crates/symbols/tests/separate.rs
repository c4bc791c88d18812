//! Separate debug files, made here and now as distributions make theirs: found by build id and by link, refused where they are of another build.

use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_symbols::{
    DebugFolders, Declarations, ElfSymbolizer, ModuleLayout, Refusal, Separate, Shared, Symbolizer, Unresolved,
};
use object::{Object, ObjectSymbol};

const PROGRAM: &str = "\
static int table[1000];
static __attribute__((noinline)) int twice(int n) {
  return 2 * n + table[n];
}
int main(int argc, char **argv) { (void)argv; table[argc] = 1; return twice(argc); }
";

/// A stripped program, its debug file (not installed yet), and where its function and its static object lie.
struct Stripped {
    folder: tempfile::TempDir,
    binary: PathBuf,
    debug: PathBuf,
    twice: u64,
    table: u64,
}

/// Where a debug file is looked for by its link.
type Place<'a> = &'a dyn Fn(&Stripped) -> PathBuf;

fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) {
    let status = Command::new(program).args(args.iter().map(|arg| arg.as_ref())).status();
    assert!(status.unwrap_or_else(|e| panic!("{program} runs: {e}")).success(), "{program}");
}

fn stripped(text: &str, flags: &[&str]) -> Stripped {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let (source, binary, debug) = (folder.path().join("p.c"), bin.join("program"), folder.path().join("program.debug"));
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new("gcc");
    let status = command.args(["-O1", "-g", "-fno-inline"]).args(flags).arg(&source).arg("-o").arg(&binary).status();
    assert!(status.expect("gcc runs").success());
    let data = std::fs::read(&binary).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let address =
        |name| file.symbols().find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.address()).unwrap();
    let (twice, table) = (address("twice"), address("table"));
    run("objcopy", &[&"--only-keep-debug", &binary, &debug]);
    run("strip", &[&binary]);
    Stripped { folder, binary, debug, twice, table }
}

impl Stripped {
    fn folders(&self) -> DebugFolders {
        DebugFolders::new([self.folder.path().join("lib/debug")])
    }

    fn id(&self) -> String {
        let data = std::fs::read(&self.binary).unwrap();
        let id = object::File::parse(&*data).unwrap().build_id().unwrap().unwrap().to_vec();
        id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Where the debug file of its build id belongs.
    fn place(&self) -> PathBuf {
        let id = self.id();
        let folder = self.folder.path().join("lib/debug/.build-id").join(&id[..2]);
        std::fs::create_dir_all(&folder).unwrap();
        folder.join(format!("{}.debug", &id[2..]))
    }

    fn found(&self) -> Separate {
        self.folders().find(&self.binary)
    }

    /// The function `twice` by its address: name, line.
    fn function(&self) -> Result<(String, u32), Unresolved> {
        let path = self.binary.to_str().unwrap();
        let resolved = ElfSymbolizer::with(self.folders()).resolve(path, &[], &[self.twice + 1]).remove(0)?;
        Ok((resolved[0].function.clone(), resolved[0].line))
    }

    /// The static object `table`: its name by the symbols, its line by the debug information.
    fn object(&self) -> (Option<String>, Option<u32>) {
        let layout = ModuleLayout::read_with(self.binary.to_str().unwrap(), &[], &self.folders()).unwrap();
        let item = layout.find(self.table + 8).filter(|&item| layout.is_symbol(item));
        let declarations = Declarations::read_with(&self.binary, &self.folders()).unwrap();
        (item.map(|item| layout.name(item).to_string()), declarations.find(self.table).map(|found| found.line))
    }

    fn assert_named(&self, how: &str) {
        let (name, line) = self.function().unwrap_or_else(|why| panic!("{how}: {why}"));
        assert_eq!(name, "twice", "{how}");
        assert!((2..=3).contains(&line), "{how}: line {line}");
        assert_eq!(self.object(), (Some("table".to_owned()), Some(1)), "{how}");
    }

    fn assert_nameless(&self, refusals: &[Refusal]) -> String {
        let found = self.found();
        assert_eq!(found.refused.iter().map(|(_, why)| *why).collect::<Vec<_>>(), refusals, "{found:?}");
        assert_eq!(found.file, None);
        assert_eq!(self.function(), Err(Unresolved::NoSymbol));
        assert_eq!(self.object(), (None, None));
        found.advice(&self.folders())
    }
}

#[test]
fn names_come_from_the_file_of_the_build_id_however_it_is_compressed() {
    for compression in ["none", "zlib", "zstd"] {
        let program = stripped(PROGRAM, &["-Wl,--build-id"]);
        let advice = program.assert_nameless(&[]);
        assert!(advice.contains(&format!("no debug file of build id {}", program.id())), "{advice}");
        for words in ["lib/debug", "find-dbgsym-packages", "dnf debuginfo-install"] {
            assert!(advice.contains(words), "{words}: {advice}");
        }
        let option = format!("--compress-debug-sections={compression}");
        run("objcopy", &[&option, &program.debug, &program.place()]);
        program.assert_named(compression);
        let advice = program.found().advice(&program.folders());
        assert!(!advice.contains("install") && advice.contains(".debug has none either"), "{advice}");
    }
}

#[test]
fn names_come_from_the_file_of_the_link_wherever_it_lies() {
    let beside = |program: &Stripped| program.binary.parent().unwrap().to_owned();
    let hidden = |program: &Stripped| beside(program).join(".debug");
    let below = |program: &Stripped| {
        let folder = beside(program).canonicalize().unwrap();
        program.folder.path().join("lib/debug").join(folder.strip_prefix("/").unwrap())
    };
    let places: [(&str, Place<'_>); 3] = [("beside", &beside), (".debug", &hidden), ("below", &below)];
    for (how, place) in places {
        let program = stripped(PROGRAM, &["-Wl,--build-id=none"]);
        let advice = program.assert_nameless(&[]);
        assert!(advice.contains("no build id") && !advice.contains("install"), "{advice}");
        run("objcopy", &[&format!("--add-gnu-debuglink={}", program.debug.display()), &program.binary]);
        let advice = program.assert_nameless(&[]);
        assert!(advice.contains("no debug file program.debug"), "{advice}");
        let folder = place(&program);
        std::fs::create_dir_all(&folder).unwrap();
        let installed = folder.join("program.debug");
        std::fs::copy(&program.debug, &installed).unwrap();
        program.assert_named(how);
        // One more byte is another checksum.
        let mut bytes = std::fs::read(&installed).unwrap();
        bytes.push(0);
        std::fs::write(&installed, bytes).unwrap();
        let advice = program.assert_nameless(&[Refusal::OtherChecksum]);
        assert!(advice.contains("is not used: it belongs to another build (its checksum differs)"), "{advice}");
    }
}

#[test]
fn files_of_other_builds_and_damaged_ones_are_refused_with_words() {
    let program = stripped(PROGRAM, &["-Wl,--build-id"]);
    let other = stripped(&PROGRAM.replace("2 * n", "3 * n"), &["-Wl,--build-id"]);
    let place = program.place();
    std::fs::copy(&other.debug, &place).unwrap();
    let advice = program.assert_nameless(&[Refusal::OtherBuild]);
    assert!(advice.contains(&format!("{} is not used: it belongs to another build", place.display())), "{advice}");
    // Cut off anywhere.
    let whole = std::fs::read(&program.debug).unwrap();
    for length in [0, 40, 64, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&place, &whole[..length]).unwrap();
        let advice = program.assert_nameless(&[Refusal::Damaged]);
        assert!(advice.contains("cut off or damaged"), "{length}: {advice}");
    }
    // The binary itself, stripped, where its debug file would be.
    std::fs::copy(&program.binary, &place).unwrap();
    program.assert_nameless(&[Refusal::Empty]);
    std::fs::copy(&program.debug, &place).unwrap();
    program.assert_named("the right one");
}

/// Whatever one byte says, nothing panics and no name is made up for the object's place.
#[test]
fn damaged_bytes_give_other_names_or_none() {
    let program = stripped(PROGRAM, &["-Wl,--build-id"]);
    let (place, whole) = (program.place(), std::fs::read(&program.debug).unwrap());
    for step in 0..200 {
        let mut bytes = whole.clone();
        let at = step * whole.len() / 200;
        bytes[at] ^= 0xff;
        std::fs::write(&place, &bytes).unwrap();
        let _ = (program.function(), program.object());
    }
}

#[test]
fn a_section_that_claims_more_than_it_can_hold_is_refused() {
    let program = stripped(PROGRAM, &["-Wl,--build-id"]);
    let place = program.place();
    run("objcopy", &[&"--compress-debug-sections=zlib", &program.debug, &place]);
    let mut bytes = std::fs::read(&place).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let section = object::Object::section_by_name(&file, ".debug_info").unwrap();
    let header = object::ObjectSection::file_range(&section).unwrap().0 as usize;
    // Elf64_Chdr: type, reserved, size, alignment.
    bytes[header + 8..header + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&place, bytes).unwrap();
    program.assert_nameless(&[Refusal::Damaged]);
}

#[test]
fn what_dwz_took_out_is_found_checked_and_missed() {
    let program = stripped(PROGRAM, &["-Wl,--build-id"]);
    let shared = stripped(&PROGRAM.replace("2 * n", "5 * n"), &["-Wl,--build-id"]);
    let hex = shared.id();
    let id: Vec<u8> = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let link = program.folder.path().join("altlink");
    std::fs::write(&link, [b"../../.dwz/shared.debug\0".as_slice(), &id].concat()).unwrap();
    let option = format!("--add-section=.gnu_debugaltlink={}", link.display());
    run("objcopy", &[&option, &program.debug, &program.place()]);
    assert_eq!(program.found().shared, Shared::Missing("../../.dwz/shared.debug".to_owned()));
    let advice = program.found().advice(&program.folders());
    assert!(advice.contains("shared.debug that dwz moved a part of it to is missing"), "{advice}");
    program.assert_named("what is in the file itself is used");
    let folder = program.folder.path().join("lib/debug/.dwz");
    std::fs::create_dir_all(&folder).unwrap();
    let there = folder.join("shared.debug");
    std::fs::copy(&program.debug, &there).unwrap();
    let found = program.found();
    assert!(matches!(found.shared, Shared::Missing(_)), "{found:?}");
    assert_eq!(found.refused[0].1, Refusal::OtherBuild);
    std::fs::copy(&shared.debug, &there).unwrap();
    assert!(matches!(program.found().shared, Shared::File(_)));
    program.assert_named("with the shared file");
}

#[test]
fn hostile_links_stay_within_the_folders() {
    let program = stripped(PROGRAM, &["-Wl,--build-id=none"]);
    // The checksum of the file that it names is right: only its name is wrong.
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&std::fs::read(&program.debug).unwrap());
    for name in ["../program.debug", "/etc/passwd", "..", "."] {
        let mut link = name.as_bytes().to_vec();
        link.resize(name.len() + 4 - name.len() % 4, 0);
        link.extend(hasher.clone().finalize().to_le_bytes());
        let (section, binary) = (program.folder.path().join("link"), program.folder.path().join("bin/hostile"));
        std::fs::write(&section, link).unwrap();
        let option = format!("--add-section=.gnu_debuglink={}", section.display());
        run("objcopy", &[&option, &program.binary, &binary]);
        let found = program.folders().find(Path::new(&binary));
        assert_eq!((found.file, found.link.as_deref()), (None, Some(name)));
    }
}

/// The tables are the fuzz target's seeds: `main.fill` from 0x1010 to 0x1020, lines 7 and 9 of `g.go`.
#[test]
fn stripped_go_programs_have_the_functions_of_their_own_table() {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/go_table");
    for layout in ["go12", "go116", "go118"] {
        let program = stripped(PROGRAM, &["-Wl,--build-id"]);
        let path = program.binary.to_str().unwrap();
        let found = |offset| ElfSymbolizer::with(program.folders()).resolve(path, &[], &[offset]).remove(0);
        assert_eq!(found(0x1012), Err(Unresolved::NoSymbol));
        let table = tables.join(layout);
        run("objcopy", &[&"--add-section", &format!(".gopclntab={}", table.display()), &program.binary]);
        let frames = found(0x1018).unwrap_or_else(|why| panic!("{layout}: {why}"));
        let [frame] = frames.as_slice() else { panic!("{frames:?}") };
        assert_eq!((frame.function.as_str(), frame.file.as_str(), frame.line), ("main.fill", "g.go", 9), "{layout}");
        assert_eq!(found(0x1100), Err(Unresolved::NoSymbol), "{layout}: beyond Go's code");
        std::fs::write(program.folder.path().join("cut"), &std::fs::read(&table).unwrap()[..40]).unwrap();
        let cut = format!(".gopclntab={}", program.folder.path().join("cut").display());
        run("objcopy", &[&"--update-section", &cut, &program.binary]);
        assert_eq!(found(0x1012), Err(Unresolved::NoSymbol), "{layout}: cut off");
    }
}

/// As a linker of C makes them of Go 1.26's objects: other code lies before Go's, so that neither the beginning of the code nor the program's start tells where
/// that is, and the loader fills addresses in.
#[test]
fn gos_description_of_the_program_tells_where_its_code_lies() {
    let text = format!("{PROGRAM}{}", include_str!("programs/go_table.c"));
    for flags in [["-fno-toplevel-reorder", "-pie"], ["-fno-toplevel-reorder", "-no-pie"]] {
        let program = stripped(&text, &flags);
        let path = program.binary.to_str().unwrap();
        let frames = |offset| ElfSymbolizer::with(program.folders()).resolve(path, &[], &[offset]).remove(0);
        let named = |offset| -> Vec<(String, u32, bool)> {
            let frames = frames(offset).unwrap_or_else(|why| panic!("{flags:?}: {why}"));
            frames.into_iter().map(|frame| (frame.function, frame.line, frame.inlined)).collect()
        };
        let outer = ("main.twice".to_owned(), 4, false);
        assert_eq!(named(program.twice), std::slice::from_ref(&outer), "{flags:?}");
        // Behind its first byte another function is inlined.
        assert_eq!(named(program.twice + 1), [("main.once".to_owned(), 12, true), outer], "{flags:?}");
    }
}
