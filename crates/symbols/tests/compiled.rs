//! Symbols of programs that are compiled here and now: lines, inlined frames, templates, static objects, build ids.

use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_symbols::{ElfSymbolizer, ModuleLayout, SiteFrame, SiteNamer, Symbolizer, Unresolved};
use object::{Object, ObjectSymbol};

const PROGRAM: &str = r#"
#include <cstdlib>
#include <vector>
struct Point { double x, y, z; };
int table[1000];
extern "C" { extern int alias_of_table[1000] __attribute__((alias("table"))); }
static const int squares[4] = {0, 1, 4, 9};
thread_local int mine = 3;
volatile int sink;
static inline __attribute__((always_inline)) void inner(int n) {
    sink = squares[n & 3];
}
namespace shapes { __attribute__((noinline)) void outer(int n) { inner(n); sink = n; } }
template <typename T> __attribute__((noinline)) T *make(int n) {
    T *made = (T *)malloc(n * sizeof(T));
    return made;
}
int main(int argc, char **) {
    static int counter[8];
    shapes::outer(argc);
    counter[argc] += argc;
    std::vector<Point> points(argc * 10);
    sink = mine + table[argc] + counter[argc] + (make<Point>(argc) != nullptr) + points.size();
}
"#;

struct Compiled {
    _folder: tempfile::TempDir,
    source: PathBuf,
    binary: PathBuf,
}

fn compile(flags: &[&str]) -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("program.cpp"), folder.path().join("program"));
    std::fs::write(&source, PROGRAM).unwrap();
    let status = Command::new("g++")
        .args(["-O2", "-g", "-Wl,--build-id"])
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status();
    assert!(status.expect("g++ runs").success());
    Compiled { _folder: folder, source, binary }
}

fn build_id(binary: &Path) -> Vec<u8> {
    let data = std::fs::read(binary).unwrap();
    object::File::parse(&*data).unwrap().build_id().unwrap().unwrap().to_vec()
}

fn symbol(binary: &Path, part: &str) -> (u64, u64) {
    let data = std::fs::read(binary).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let named = |exact: bool| {
        file.symbols().find(|symbol| {
            let name = symbol.name().unwrap();
            symbol.size() > 0 && if exact { name == part } else { name.contains(part) }
        })
    };
    let found = named(true).or_else(|| named(false)).unwrap();
    (found.address(), found.size())
}

fn line_of(text: &str) -> u32 {
    PROGRAM.lines().position(|line| line.contains(text)).unwrap() as u32 + 1
}

#[test]
fn inlined_functions_come_innermost_first_with_their_lines() {
    let program = compile(&[]);
    let (start, bytes) = symbol(&program.binary, "outer");
    let path = program.binary.to_str().unwrap();
    let offsets: Vec<u64> = (start..start + bytes).collect();
    let resolved = ElfSymbolizer::new().resolve(path, &build_id(&program.binary), &offsets);
    assert_eq!(resolved.len(), offsets.len());
    let inlined = resolved.iter().flatten().find(|frames| frames.len() == 2).expect("inner is inlined into outer");
    let seen: Vec<_> = inlined.iter().map(|frame| (frame.function.as_str(), frame.line, frame.inlined)).collect();
    assert_eq!(seen, [("inner", line_of("sink = squares"), true), ("shapes::outer", line_of("void outer"), false)]);
    assert_eq!(Path::new(&inlined[0].file).file_name(), program.source.file_name());
}

#[test]
fn another_build_or_no_binary_gives_a_reason_and_no_name() {
    let program = compile(&[]);
    let path = program.binary.to_str().unwrap();
    let mut symbolizer = ElfSymbolizer::new();
    assert_eq!(symbolizer.resolve(path, &[1, 2, 3], &[0x1000]), [Err(Unresolved::OtherBuild)]);
    assert_eq!(symbolizer.resolve("[vdso]", &[], &[1]), [Err(Unresolved::InMemoryOnly)]);
    assert_eq!(symbolizer.resolve("/nonexistent", &[], &[1]), [Err(Unresolved::NoFile)]);
    assert_eq!(symbolizer.resolve(program.source.to_str().unwrap(), &[], &[1]), [Err(Unresolved::NotElf)]);
    let odd = symbolizer.resolve(path, &[], &[u64::MAX, 0]);
    // Some linkers put the file's header into the segment of the code.
    assert!(matches!(odd[..], [Err(Unresolved::NoSymbol), Err(Unresolved::NoSymbol | Unresolved::NotCode)]), "{odd:?}");
    assert_eq!(ModuleLayout::read(path, &[9]), Err(Unresolved::OtherBuild));
}

/// A call stack that ended in data was said to lead to a function of the name of a table.
#[test]
fn addresses_of_data_have_no_functions() {
    let program = compile(&[]);
    let path = program.binary.to_str().unwrap();
    let ((table, _), (main, _)) = (symbol(&program.binary, "table"), symbol(&program.binary, "main"));
    let resolved = ElfSymbolizer::new().resolve(path, &[], &[table + 8, main]);
    assert_eq!(resolved[0], Err(Unresolved::NotCode));
    assert!(
        resolved[1].as_ref().is_ok_and(|frames| frames.iter().any(|frame| frame.function == "main")),
        "{resolved:?}"
    );
}

#[test]
fn static_objects_have_names_sizes_and_places() {
    let program = compile(&[]);
    let layout = ModuleLayout::read(program.binary.to_str().unwrap(), &build_id(&program.binary)).unwrap();
    let (table, _) = symbol(&program.binary, "table");
    let item = layout.find(table + 3999).expect("table is an object");
    assert_eq!((&**layout.name(item), layout.bytes(item), layout.offset(item)), ("table", 4000, table));
    assert!(layout.is_symbol(item));
    let names: Vec<&str> = layout.symbols().map(|(_, _, name)| name).collect();
    assert!(!names.contains(&"alias_of_table"), "aliases are one object");
    assert!(names.contains(&"squares") && !names.contains(&"mine"), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with("counter")), "{names:?}");
    let (main, _) = symbol(&program.binary, "main");
    let code = layout.find(main).expect("code lies in a section");
    assert_eq!((&**layout.name(code), layout.is_symbol(code)), (".text", false));
}

#[test]
fn sites_are_named_after_the_variable_or_the_element_type() {
    let program = compile(&[]);
    let path = program.binary.to_str().unwrap();
    let (start, bytes) = symbol(&program.binary, "make");
    let offsets: Vec<u64> = (start..start + bytes).collect();
    let mut symbolizer = ElfSymbolizer::new();
    let resolved = symbolizer.resolve(path, &[], &offsets);
    let frame = resolved.iter().flatten().flatten().find(|frame| frame.line == line_of("malloc(n"));
    let frame = frame.expect("the call of malloc has its line");
    let (line, column) = (frame.line, frame.column);
    let site = SiteFrame { function: &frame.function, file: &frame.file, line, column, module: path, offset: 0 };
    let mut namer = SiteNamer::default();
    assert_eq!(namer.name(&[site]).name, "made");
    assert_eq!(namer.name(&[site]).function, "make<Point>");

    let (start, bytes) = symbol(&program.binary, "main");
    let offsets: Vec<u64> = (start..start + bytes).collect();
    let resolved = symbolizer.resolve(path, &[], &offsets);
    let line = line_of("std::vector<Point>");
    let caller = resolved.iter().flatten().flatten().find(|frame| frame.line == line).expect("main makes the vector");
    let constructor = "std::vector<Point, std::allocator<Point> >::vector";
    let mut frames = [constructor, "main"].map(|function| SiteFrame {
        function,
        file: &caller.file,
        line,
        module: path,
        ..SiteFrame::default()
    });
    let named = namer.name(&frames);
    assert_eq!((named.name.as_str(), named.function.as_str(), named.line), ("points", "main", line));
    frames.iter_mut().for_each(|frame| frame.file = "/gone/program.cpp");
    assert_eq!(namer.name(&frames).name, "vector<Point>", "without the source, the element type");
}

#[test]
fn truncated_and_corrupted_binaries_give_errors_not_panics() {
    let program = compile(&["-static-libgcc"]);
    let whole = std::fs::read(&program.binary).unwrap();
    let damaged = program.binary.with_extension("damaged");
    let mut state = 0x1234_5678_9abc_def0u64;
    for round in 0..60 {
        let mut bytes = whole.clone();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if round % 2 == 0 {
            bytes.truncate((state >> 33) as usize % whole.len());
        } else {
            for step in 0..64u64 {
                let at = (state.rotate_left(step as u32) >> 20) as usize % 4096;
                bytes[at] ^= (state >> (step % 56)) as u8;
            }
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let path = damaged.to_str().unwrap();
        let _ = ModuleLayout::read(path, &[]);
        let _ = ElfSymbolizer::new().resolve(path, &[], &[0x1139, 0x1200, 0x2000]);
    }
}
