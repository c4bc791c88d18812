//! Names of allocations and places of statics in programs that are compiled here and now, by gcc, clang and gfortran, in several ways each.

use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_symbols::{Declarations, ElfSymbolizer, ModuleLayout, SiteFrame, SiteNamer, Symbolizer};

struct Compiled {
    folder: tempfile::TempDir,
    binary: PathBuf,
}

fn compile(compiler: &str, name: &str, text: &str, flags: &[&str]) -> Compiled {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join(name), folder.path().join("program"));
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new(compiler);
    command.args(flags).arg(&source).arg("-o").arg(&binary).current_dir(folder.path());
    assert!(command.status().unwrap_or_else(|e| panic!("{compiler} runs: {e}")).success());
    Compiled { folder, binary }
}

/// Where calls of allocators return to, by ascending address, with what they call: as `objdump` reads the code.
fn calls(binary: &Path, callees: &[&str]) -> Vec<(u64, String)> {
    let output = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(binary).output().expect("objdump runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<(u64, &str)> = text
        .lines()
        .filter_map(|line| line.trim_start().split_once(":\t"))
        .filter_map(|(address, code)| Some((u64::from_str_radix(address, 16).ok()?, code)))
        .collect();
    let callee = |code: &str| {
        // x86-64, and 64-bit Arm.
        let call = code.strip_prefix("call").or_else(|| code.strip_prefix("bl\t"))?;
        let target = call.split_once('<')?.1.trim_end().trim_end_matches('>').split('@').next()?.to_owned();
        callees.contains(&target.as_str()).then_some(target)
    };
    lines.windows(2).filter_map(|pair| Some((pair[1].0, callee(pair[0].1)?))).collect()
}

/// The name of the site of each call, by ascending address.
fn names(program: &Compiled, callees: &[&str]) -> Vec<String> {
    let path = program.binary.to_str().unwrap();
    let (mut symbolizer, mut namer) = (ElfSymbolizer::new(), SiteNamer::default());
    let of_call = |(after, callee): (u64, String)| {
        let offset = after - 1;
        let resolved = symbolizer.resolve(path, &[], &[offset]).remove(0).expect("it has a function");
        let callee = if callee == "_Znam" { "operator new[]" } else { callee.as_str() };
        let mut frames = vec![SiteFrame { function: callee, module: "/lib/libc.so.6", ..SiteFrame::default() }];
        frames.extend(resolved.iter().map(|frame| SiteFrame {
            function: &frame.function,
            file: &frame.file,
            line: frame.line,
            column: frame.column,
            module: path,
            offset,
        }));
        namer.name(&frames).name
    };
    calls(&program.binary, callees).into_iter().map(of_call).collect()
}

const FORTRAN: &str = "\
module grid
  double precision, allocatable :: u(:), v(:), r(:)
  double precision :: fixed(1000)
  integer :: n
  double precision :: common_part(100)
  common /shared_part/ common_part
end module
subroutine alloc_space
  use grid
  implicit none
  integer :: ios
  allocate ( &
 &          u(n), v(2*n),    & ! comment, here
 &          r(3*n), stat = ios)
end subroutine
program main
  use grid
  n = 1000
  call alloc_space
  u = 1; v = 2; r = 3; fixed = 4; common_part = 1
  print *, u(1), v(1), r(1), fixed(3), common_part(3)
end program
";

#[test]
fn objects_of_one_allocate_statement_of_fortran_have_their_own_names() {
    for level in ["-O0", "-O2"] {
        let program = compile("gfortran", "space.f90", FORTRAN, &["-g", level]);
        assert_eq!(names(&program, &["malloc"]), ["u", "v", "r"], "{level}");
    }
}

const STATICS: &str = "\
#include <stdlib.h>
static double *a = (double *)malloc(100000);
static double *b = new double[1000];
double *c =
#ifdef X
    (double *)malloc(800);
#else
    (double *)calloc(100, 8);
#endif
struct S { static double *member; };
double *S::member = (double *)malloc(77);
int table[1000];
int main(int argc, char **) {
  static int counter[8];
  double *x = (double *)malloc(10), *y = (double *)malloc(20); x[0] = 1; double *z = new double[3];
  a[0] = b[1] = c[2] = y[0] = z[1] = S::member[0] = table[argc] + counter[argc]++;
  return (int)x[0];
}
";
const ALLOCATORS: [&str; 3] = ["malloc", "calloc", "_Znam"];

#[test]
fn initialisers_of_statics_and_several_allocations_of_a_line_are_named_after_their_variables() {
    for compiler in ["g++", "clang++"] {
        for flags in [&["-g", "-O0"][..], &["-g", "-O2", "-fno-builtin"], &["-g", "-O0", "-fno-PIE", "-no-pie"]] {
            let program = compile(compiler, "statics.cpp", STATICS, flags);
            let mut found = names(&program, &ALLOCATORS);
            found.sort();
            let missing = ["S::member", "a", "b", "c", "x", "y"].iter().find(|name| !found.iter().any(|n| n == *name));
            // Clang leaves out what nobody reads.
            let left_out = |name: &&str| compiler == "clang++" && flags.contains(&"-O2") && ["x", "y"].contains(name);
            assert!(missing.is_none_or(left_out), "{compiler} {flags:?}: no {missing:?} in {found:?}");
            assert!(!found.iter().any(|name| name.contains("static_init") || name.contains("GLOBAL")), "{found:?}");
        }
    }
}

#[test]
fn without_columns_the_order_of_the_calls_tells_them_apart_or_all_are_told() {
    let text = "#include <stdlib.h>\ndouble *volatile k[2];\nint main(void) {\n  \
                double *x = malloc(10), *y = malloc(20); double *z = malloc(30);\n  \
                k[0] = x; k[1] = y; return z != 0;\n}\n";
    let program = compile("gcc", "columns.c", text, &["-g", "-gno-column-info", "-O0"]);
    assert_eq!(names(&program, &["malloc"]), ["x", "y", "z"]);
    let source = program.folder.path().join("columns.c");
    std::fs::write(&source, text.replace("*z = malloc(30)", "*z = f(malloc(30), malloc(4))")).unwrap();
    assert_eq!(names(&program, &["malloc"]), ["main"; 3], "the source was changed after the program was built");
    let built = std::fs::metadata(&program.binary).unwrap().modified().unwrap();
    std::fs::File::options().write(true).open(&source).unwrap().set_modified(built).unwrap();
    let found = names(&program, &["malloc"]);
    assert_eq!(found, ["x or y or z"; 3], "the source has four calls, the code three");
}

fn declared(program: &Compiled, name: &str) -> (String, u32) {
    let path = program.binary.to_str().unwrap();
    let layout = ModuleLayout::read(path, &[]).unwrap();
    let item = layout.items().find(|&item| layout.is_symbol(item) && &**layout.name(item) == name);
    let item = item.unwrap_or_else(|| panic!("{name} is no symbol"));
    let declarations = Declarations::read(&program.binary).unwrap();
    let at = declarations.find(layout.offset(item)).unwrap_or_else(|| panic!("{name} has no declaration"));
    (at.file.rsplit('/').next().unwrap_or("").to_owned(), at.line)
}

fn line_of(text: &str, part: &str) -> u32 {
    text.lines().position(|line| line.contains(part)).unwrap() as u32 + 1
}

#[test]
fn statics_have_the_lines_of_their_declarations() {
    for compiler in ["g++", "clang++"] {
        let program = compile(compiler, "statics.cpp", STATICS, &["-g", "-O0"]);
        for (name, part) in [
            ("table", "int table"),
            ("a", "*a ="),
            ("main::counter", "int counter"),
            ("S::member", "static double *member"),
        ] {
            assert_eq!(
                declared(&program, name),
                ("statics.cpp".to_owned(), line_of(STATICS, part)),
                "{compiler} {name}"
            );
        }
    }
    for level in ["-O0", "-O2"] {
        let program = compile("gfortran", "space.f90", FORTRAN, &["-g", level]);
        let place = |part| ("space.f90".to_owned(), line_of(FORTRAN, part));
        assert_eq!(declared(&program, "grid::fixed"), place(":: fixed"), "{level}");
        assert_eq!(declared(&program, "grid::u"), place("allocatable :: u"), "{level}");
        assert_eq!(declared(&program, "shared_part_"), place("common /shared_part/"), "{level}");
    }
    let bare = compile("g++", "statics.cpp", STATICS, &["-O0"]);
    assert_eq!(Declarations::read(&bare.binary).unwrap(), Declarations::default());
}

const WHOLE: &str = "\
static int file_one[1000];
static int *at(int k) {
  static int local_one[80];
  return &local_one[k];
}
int main(int c, char **v) {
  file_one[c] += c;
  *at(c) += c;
  return v == 0 || file_one[c / 2] + *at(c / 2);
}
";

/// Their declarations are in other units than their addresses.
#[test]
fn statics_of_programs_that_were_optimised_as_a_whole_have_their_lines() {
    let program = compile("gcc", "whole.c", WHOLE, &["-g", "-O2", "-flto"]);
    for name in ["file_one", "local_one"] {
        let line = line_of(WHOLE, &format!("static int {name}"));
        assert_eq!(declared(&program, name), ("whole.c".to_owned(), line), "{name}");
    }
}

/// Function at the symbol of this name, resolved.
fn function_at(program: &Compiled, name: &str) -> String {
    let path = program.binary.to_str().unwrap();
    let data = std::fs::read(&program.binary).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let symbol = object::Object::symbols(&file).find(|symbol| object::ObjectSymbol::name(symbol) == Ok(name)).unwrap();
    let offset = object::ObjectSymbol::address(&symbol) + 4;
    let mut frames = ElfSymbolizer::new().resolve(path, &[], &[offset]).remove(0).expect("the symbol table has it");
    frames.remove(0).function
}

#[test]
fn functions_have_names_where_debug_information_is_compressed() {
    // What Go's linker does by default, and many distributions.
    let source = "int twice(int n) { return 2 * n; }\nint main(void) { return twice(3); }\n";
    let program = compile("gcc", "columns.c", source, &["-g", "-gz=zlib", "-O0"]);
    assert_eq!(function_at(&program, "twice"), "twice");
}

/// Names that are no mangled ones, though `f`, `i` and `v` name types within such.
#[test]
fn short_names_of_functions_are_names() {
    let source = "int f(int n) { return 2 * n; }\nint i(int n) { return f(n) + 1; }\nint main(void) { return i(3); }\n";
    for options in [&["-O0"][..], &["-O0", "-g"]] {
        let program = compile("gcc", "short.c", source, options);
        assert_eq!(function_at(&program, "f"), "f", "{options:?}");
        assert_eq!(function_at(&program, "i"), "i", "{options:?}");
    }
    let program = compile("gfortran", "f.f90", "program f\n  print *, 1\nend program\n", &["-O0", "-g"]);
    assert_eq!(function_at(&program, "MAIN__"), "f");
}

const OBJECTS: &str = "\
#include <cstdlib>
#include <vector>
double sum(std::vector<double> v) { return v[0]; }
struct Grid {
  std::vector<double> data_;
  double *raw_, *plain_;
  Grid(int n)
      : data_(n),
        raw_(new double[n]), plain_{(double *)malloc(n)} {}
};
int main(int argc, char **) { std::vector<double> v(argc);
  if (argc) { std::vector<double> inner(argc); v[0] += inner[0]; }
  for (std::vector<double> loop(argc); v[0] < 0;) v[0] += loop[0];
  auto x = std::vector<double>(argc);
  Grid grid(argc);
  double t = sum(std::vector<double>(argc));
  return (int)(v[0] + x[0] + t + grid.data_[0] + grid.raw_[0] + grid.plain_[0]);
}
";

/// The last is the argument of a call, which has no name of its own: it is told by its function.
#[test]
fn objects_of_cpp_are_named_after_what_their_constructors_make() {
    // What gcc and clang call the same constructor.
    let makers = ["_ZNSt6vectorIdSaIdEEC1EmRKS0_", "_ZNSt6vectorIdSaIdEEC2EmRKS0_", "_Znam", "malloc"];
    for compiler in ["g++", "clang++"] {
        let program = compile(compiler, "objects.cpp", OBJECTS, &["-g", "-O0"]);
        let mut found = names(&program, &makers);
        found.sort();
        assert_eq!(found, ["data_", "inner", "loop", "main", "plain_", "raw_", "v", "x"], "{compiler}");
    }
}
