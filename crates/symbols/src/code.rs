//! Finds the code addresses of functions, files and lines: the addresses to which calls from there return.
//!
//! This is the inverse of resolving: a plan names functions and lines, and the library that applies it has return addresses. Debug information also
//! gives inlined functions and lines; symbol tables give only functions. Addresses are those in the file (without load bias).

use std::path::Path;
use std::rc::Rc;

use gimli::AttributeValue;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::blocks;
use crate::debug_data::{Dwarf, Entry, References, UnitOf, opened, with_dwarf};
use crate::demangle::{demangle, short_function};
use crate::separate::DebugFolders;
use crate::unresolved::Unresolved;

/// A range of code: first and last address, inclusive.
pub type CodeRange = (u64, u64);

/// A query for code. Every condition that is given must hold for the same frame.
pub struct CodeQuery<'a> {
    /// Whether a function of this name is meant; called with each spelling of it ([`spellings`]).
    pub function: Option<&'a dyn Fn(&str) -> bool>,
    /// The end of the source file's path, at a folder's boundary.
    pub file: Option<&'a str>,
    /// Lines, first and last.
    pub lines: Option<(u32, u32)>,
}

/// Deepest inlining that is followed.
const DEPTH_MAX: usize = 256;

/// The spellings by which people may name a function: as linked, demangled, and demangled without leading namespaces and template arguments.
#[must_use]
pub fn spellings(linked: &str) -> Vec<String> {
    let linked = linked.split('.').next().filter(|base| !base.is_empty()).unwrap_or(linked); // foo.cold, foo.part.0
    let full = demangle(linked);
    let short = short_function(&full).to_owned();
    let mut names = vec![linked.to_owned()];
    let plain = without_brackets(&short);
    for name in [&full, &short, &plain] {
        names.push(name.clone());
    }
    let mut rest = plain.as_str();
    while let Some((_, tail)) = rest.split_once("::") {
        names.push(tail.to_owned());
        rest = tail;
    }
    names.dedup();
    names
}

/// `a<b>::c<d>` becomes `a::c`.
fn without_brackets(name: &str) -> String {
    let mut depth = 0_u32;
    let keep = |c: &char| match *c {
        '<' => {
            depth += 1;
            false
        }
        '>' => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => depth == 0,
    };
    if name.contains("operator") { name.to_owned() } else { name.chars().filter(keep).collect() }
}

/// Whether `path` ends with `end` at a folder's boundary.
#[must_use]
pub fn path_ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('/') || end.starts_with('/'))
}

/// Whether `end`, the end of a path, means the binary at `path`, as rules name modules: it ends this path, the path of the file that it leads to, or that of a
/// link beside either which leads to the same file. The loader goes by `libx.so.1`, a link, and the kernel by `libx.so.1.2.3`, and so do the recordings that
/// each makes. `libx.so`, for which only compilers look, means neither. Where this machine has no such file, `path` alone decides.
#[must_use]
pub fn is_module_named(path: &Path, end: &str) -> bool {
    if path_ends_with(&path.to_string_lossy(), end) {
        return true;
    }
    let Ok(real) = path.canonicalize() else { return false };
    if path_ends_with(&real.to_string_lossy(), end) {
        return true;
    }
    let leads_there = |link: &Path| link.canonicalize().is_ok_and(|file| file == real);
    if end.starts_with('/') {
        return leads_there(Path::new(end));
    }
    let name = end.rsplit('/').next().unwrap_or(end);
    let has_link = |folder: &Path| {
        let link = folder.join(name);
        path_ends_with(&link.to_string_lossy(), end) && leads_there(&link)
    };
    name.contains(".so.") && [path, real.as_path()].into_iter().filter_map(Path::parent).any(has_link)
}

/// Looks the queries up in the binary at `path`: for each, the ranges of code that it means, sorted and joined. Also whether the binary has debug
/// information: without it only functions of the symbol table are found.
///
/// # Errors
/// The file is not there, or is no ELF file. Broken debug information counts as none beyond the break.
pub fn find_code(path: &Path, queries: &[CodeQuery<'_>]) -> Result<(Vec<Vec<CodeRange>>, bool), Unresolved> {
    let cache = blocks::open(path).map_err(|_| Unresolved::NoFile)?;
    let file = object::File::parse(&cache).map_err(|_| Unresolved::NotElf)?;
    let folders = DebugFolders::of_system();
    let mut found = vec![Vec::new(); queries.len()];
    let debug_file = folders.find_for(path, &file);
    let separate = opened(&debug_file);
    let separate = separate.as_ref().and_then(|cache| object::File::parse(cache).ok());
    let separate_symbols = separate.iter().flat_map(|file| file.symbols());
    let asks_files = queries.iter().any(|query| query.file.is_some());
    let mut functions: Vec<Function> = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()).chain(separate_symbols) {
        if symbol.kind() != SymbolKind::Text || symbol.size() == 0 || !symbol.is_definition() {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        if asks_files {
            functions.push((symbol.address(), symbol.address().saturating_add(symbol.size()), name.to_owned()));
        }
        // A plan may have many rules, and a binary has many symbols: each is demangled once.
        let mut names = None;
        for (query, ranges) in queries.iter().zip(&mut found) {
            if query.file.is_none() && query.names(name, &mut names) {
                ranges.push((symbol.address(), symbol.address().saturating_add(symbol.size() - 1)));
            }
        }
    }
    functions.sort_unstable();
    let has_debug = with_dwarf(&file, &debug_file, |dwarf| search(dwarf, queries, &functions, &mut found));
    Ok((found.into_iter().map(joined).collect(), has_debug))
}

fn joined(mut ranges: Vec<CodeRange>) -> Vec<CodeRange> {
    ranges.sort_unstable();
    let mut joined: Vec<CodeRange> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

impl CodeQuery<'_> {
    /// Whether a function that is linked under this name is meant. `names` holds its spellings, once a query needed them.
    fn names(&self, linked: &str, names: &mut Option<Vec<String>>) -> bool {
        let Some(matches) = self.function else { return true };
        names.get_or_insert_with(|| spellings(linked)).iter().any(|name| matches(name))
    }

    fn locates(&self, path: Option<&str>, line: u32) -> bool {
        let Some(end) = self.file else { return true };
        path.is_some_and(|path| path_ends_with(path, end)) && self.lines.is_none_or(|(a, b)| (a..=b).contains(&line))
    }
}

/// Searches the debug information; false if there is none that can be read.
fn search(dwarf: &Dwarf<'_>, queries: &[CodeQuery<'_>], functions: &[Function], found: &mut [Vec<CodeRange>]) -> bool {
    let mut units = dwarf.units();
    let mut references = References::new(dwarf);
    let mut has_any = false;
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        has_any = true;
        // What a broken unit held before its break was found; the rest of it cannot be.
        let here = UnitOf { dwarf, unit: Rc::new(unit) };
        let (paths, rows) = (Vec::new(), Vec::new());
        let _ = UnitSearch { here, references: &mut references, queries, functions, paths, rows }.run(found);
    }
    has_any
}

/// A function of the symbol table: its first address, the address after its last, and the name under which it is linked.
type Function = (u64, u64, String);

/// A row of the line table, as far as some query asks for its file.
struct Row {
    first: u64,
    end: u64,
    path: usize,
    line: u32,
}

/// A function or an inlined call while its children are read.
struct Open {
    depth: isize,
    names: Vec<String>,
    ranges: Vec<(u64, u64)>,
    /// Code of calls inlined into it, which is at other places.
    inner: Vec<(u64, u64)>,
}

struct UnitSearch<'r, 'a, 'd> {
    here: UnitOf<'a, 'd>,
    references: &'r mut References<'a, 'd>,
    queries: &'r [CodeQuery<'r>],
    functions: &'r [Function],
    paths: Vec<String>,
    rows: Vec<Row>,
}

impl<'d> UnitSearch<'_, '_, 'd> {
    fn run(mut self, found: &mut [Vec<CodeRange>]) -> gimli::Result<()> {
        self.read_lines()?;
        let mut open: Vec<Open> = Vec::new();
        let mut listed: Vec<(u64, u64)> = Vec::new();
        let unit = Rc::clone(&self.here.unit);
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let depth = entry.depth();
            while open.last().is_some_and(|top| top.depth >= depth) {
                self.close(open.pop(), found);
            }
            let is_inlined = entry.tag() == gimli::DW_TAG_inlined_subroutine;
            if !(is_inlined || entry.tag() == gimli::DW_TAG_subprogram) || open.len() >= DEPTH_MAX {
                continue;
            }
            let mut ranges = Vec::new();
            let mut iterator = self.here.dwarf.die_ranges(&unit, entry)?;
            while let Some(range) = iterator.next()? {
                if range.begin < range.end && range.begin != 0 {
                    ranges.push((range.begin, range.end));
                }
            }
            listed.extend(&ranges);
            if is_inlined && let Some(parent) = open.last_mut() {
                self.called(entry, parent, &ranges, found);
                parent.inner.extend(&ranges);
            }
            let asks_names = self.queries.iter().any(|query| query.function.is_some());
            let names = if asks_names { self.names(entry) } else { Vec::new() };
            open.push(Open { depth, names, ranges, inner: Vec::new() });
        }
        while let Some(top) = open.pop() {
            self.close(Some(top), found);
        }
        self.find_unlisted(listed, found);
        Ok(())
    }

    /// Rows of functions of which the debug information has no entry (Clang's and Rust's line tables alone, split DWARF, assembly): symbol tables name them.
    fn find_unlisted(&self, mut listed: Vec<(u64, u64)>, found: &mut [Vec<CodeRange>]) {
        listed.sort_unstable();
        let mut holes: Vec<(u64, u64)> = Vec::new();
        for (first, end) in listed {
            match holes.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(end),
                _ => holes.push((first, end)),
            }
        }
        for row in &self.rows {
            let mut left = Vec::new();
            let from = holes.partition_point(|hole| hole.1 <= row.first);
            subtract((row.first, row.end), &holes[from..], &mut left);
            for (first, last) in left {
                let after = self.functions.partition_point(|function| function.0 <= first);
                let function = after.checked_sub(1).map(|at| &self.functions[at]).filter(|function| first < function.1);
                let Some((_, _, linked)) = function else { continue };
                let (path, mut names) = (self.paths.get(row.path).map(String::as_str), None);
                for (query, found) in self.queries.iter().zip(found.iter_mut()) {
                    if query.file.is_some() && query.locates(path, row.line) && query.names(linked, &mut names) {
                        found.push((first, last));
                    }
                }
            }
        }
    }

    /// The code of an inlined call belongs to the calling function at the call's place.
    fn called(&self, entry: &Entry<'d>, parent: &Open, ranges: &[(u64, u64)], found: &mut [Vec<CodeRange>]) {
        let line = entry.attr_value(gimli::DW_AT_call_line).and_then(|value| value.udata_value()).unwrap_or(0);
        let file = match entry.attr_value(gimli::DW_AT_call_file) {
            Some(AttributeValue::FileIndex(index)) => Some(index),
            Some(value) => value.udata_value(),
            None => None,
        };
        let path = file.and_then(|index| self.paths.get(usize::try_from(index).ok()?)).map(String::as_str);
        for (query, found) in self.queries.iter().zip(found) {
            if query.file.is_some() && query.locates(path, line as u32) && parent.is_named(query) {
                found.extend(ranges.iter().map(|&(first, end)| (first, end - 1)));
            }
        }
    }

    /// What is the function's own: for queries of functions alone all of its code, for others the rows of its lines outside inlined calls.
    fn close(&self, open: Option<Open>, found: &mut [Vec<CodeRange>]) {
        let Some(mut open) = open else { return };
        open.inner.sort_unstable();
        for (query, found) in self.queries.iter().zip(found) {
            if !open.is_named(query) {
                continue;
            }
            for &(first, end) in &open.ranges {
                if query.file.is_none() {
                    if query.function.is_some() {
                        found.push((first, end - 1));
                    }
                    continue;
                }
                let from = self.rows.partition_point(|row| row.end <= first);
                for row in self.rows[from..].iter().take_while(|row| row.first < end) {
                    if query.locates(self.paths.get(row.path).map(String::as_str), row.line) {
                        subtract((row.first.max(first), row.end.min(end)), &open.inner, found);
                    }
                }
            }
        }
    }

    /// Rows whose file some query asks for, sorted; and the paths of all files.
    fn read_lines(&mut self) -> gimli::Result<()> {
        if self.queries.iter().all(|query| query.file.is_none()) {
            return Ok(());
        }
        let here = self.here.clone();
        let Some(program) = here.unit.line_program.clone() else { return Ok(()) };
        let header = program.header();
        // DWARF 5 counts files from 0, earlier versions from 1.
        let first = u64::from(header.version() < 5);
        let text = |value| here.text(value);
        for index in 0..first + header.file_names().len() as u64 {
            let path = header.file(index).map(|file| {
                let folder = file.directory(header).and_then(text).unwrap_or_default();
                let name = text(file.path_name()).unwrap_or_default();
                if name.starts_with('/') || folder.is_empty() { name } else { format!("{folder}/{name}") }
            });
            self.paths.push(path.unwrap_or_default());
        }
        let ends: Vec<&str> = self.queries.iter().filter_map(|query| query.file).collect();
        let wanted: Vec<bool> =
            self.paths.iter().map(|path| ends.iter().any(|end| path_ends_with(path, end))).collect();
        let mut rows = program.rows();
        let mut before: Option<(u64, usize, u32)> = None;
        while let Some((_, row)) = rows.next_row()? {
            if let Some((first, path, line)) = before.take()
                && row.address() > first
                && wanted.get(path).copied().unwrap_or(false)
            {
                self.rows.push(Row { first, end: row.address(), path, line });
            }
            if !row.end_sequence() {
                let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(u32::MAX));
                before = Some((row.address(), usize::try_from(row.file_index()).unwrap_or(usize::MAX), line));
            }
        }
        self.rows.sort_unstable_by_key(|row| row.first);
        Ok(())
    }

    /// Spellings of a function's name: linked if it has one, else as in the source.
    fn names(&mut self, entry: &Entry<'d>) -> Vec<String> {
        let mut names = Vec::new();
        self.references.follow(&self.here, entry, |at, entry| {
            for attribute in [gimli::DW_AT_linkage_name, gimli::DW_AT_name] {
                let name = entry.attr_value(attribute).and_then(|value| at.text(value));
                names.extend(name.iter().flat_map(|name| spellings(name)));
            }
        });
        names
    }
}

impl Open {
    fn is_named(&self, query: &CodeQuery<'_>) -> bool {
        query.function.is_none_or(|matches| self.names.iter().any(|name| matches(name)))
    }
}

/// `whole` without what `holes` (sorted by their starts) cover.
fn subtract(whole: (u64, u64), holes: &[(u64, u64)], found: &mut Vec<CodeRange>) {
    let (mut first, end) = whole;
    for &(hole, hole_end) in holes {
        if hole_end <= first {
            continue;
        }
        if hole >= end {
            break;
        }
        if hole > first {
            found.push((first, hole - 1));
        }
        first = first.max(hole_end);
    }
    if first < end {
        found.push((first, end - 1));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Rules for one of a library's two names took nothing in a recording that had the other.
    #[test]
    fn a_library_is_named_as_the_loader_does_and_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        let [real, link, other] = ["libx.so.1.2.3", "libx.so.1", "libx.so"].map(|name| folder.path().join(name));
        std::fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2.3", &link).unwrap();
        std::os::unix::fs::symlink("libx.so.1.2.3", &other).unwrap();
        std::fs::write(folder.path().join("libx.so.1.3"), "").unwrap();
        let of_folder = |name: &str| format!("{}/{name}", folder.path().file_name().unwrap().to_string_lossy());
        for path in [&real, &link] {
            let is_named = |end: &str| is_module_named(path, end);
            assert!(
                is_named("libx.so.1") && is_named("libx.so.1.2.3") && is_named(&of_folder("libx.so.1")),
                "{path:?}"
            );
            assert!(is_named(&link.to_string_lossy()) && is_named(&other.to_string_lossy()), "{path:?}");
            for end in ["libx.so", "libx.so.1.3", "libx.so.2", "x.so.1", "", "elsewhere/libx.so.1"] {
                assert!(!is_named(end), "{end} for {path:?}");
            }
        }
        let absent = Path::new("/absent/liby.so.1");
        assert!(is_module_named(absent, "liby.so.1") && !is_module_named(absent, "liby.so.1.2.3"));
    }

    #[test]
    fn functions_have_the_spellings_that_people_use() {
        let names = spellings("_ZN3app6Engine3runEi");
        for name in ["_ZN3app6Engine3runEi", "app::Engine::run", "Engine::run", "run"] {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
        assert!(spellings("make.part.0").contains(&"make".to_owned()));
        assert!(spellings("_ZNSt6vectorIiSaIiEE9push_backEOi").contains(&"std::vector::push_back".to_owned()));
    }

    #[test]
    fn holes_are_taken_out() {
        let mut found = Vec::new();
        subtract((10, 50), &[(0, 12), (20, 30), (25, 28), (45, 60)], &mut found);
        assert_eq!(found, [(12, 19), (30, 44)]);
    }

    /// A program in which `inner` is inlined into `outer`; `nm` and `addr2line` would say the same.
    const PROGRAM: &str = "#include <stdlib.h>\n\
        void *keep[4];\n\
        static inline __attribute__((always_inline)) void *inner(int n) {\n\
            return malloc(n);\n\
        }\n\
        __attribute__((noinline)) void outer(int n) {\n\
            keep[0] = inner(n);\n\
            keep[1] = malloc(n + 1);\n\
        }\n\
        int main(int n, char **a) { (void)a; outer(n); keep[2] = malloc(9); return 0; }\n";

    #[test]
    fn inlined_functions_and_their_callers_lines_are_found() {
        assert_finds_inlined("cc", &[]);
    }

    /// Clang describes only functions into which others were inlined then.
    #[test]
    fn functions_of_line_tables_alone_are_found() {
        assert_finds_inlined("clang", &["-gline-tables-only"]);
    }

    /// Names are in other units than code then.
    #[test]
    fn inlined_functions_of_programs_that_were_optimised_as_a_whole_are_found() {
        assert_finds_inlined("cc", &["-flto"]);
    }

    fn assert_finds_inlined(compiler: &str, options: &[&str]) {
        let folder = tempfile::tempdir().unwrap();
        let (source, binary) = (folder.path().join("sites.c"), folder.path().join("sites"));
        std::fs::write(&source, PROGRAM).unwrap();
        let status = Command::new(compiler)
            .args(["-O2", "-g", "-fno-builtin"])
            .args(options)
            .arg(&source)
            .arg("-o")
            .arg(&binary)
            .status()
            .unwrap();
        assert!(status.success());
        let named = |name: &'static str| move |found: &str| found == name;
        let (inner, outer, main) = (named("inner"), named("outer"), named("main"));
        let query =
            |function, file, line: Option<u32>| CodeQuery { function, file, lines: line.map(|line| (line, line)) };
        let queries = [
            query(Some(&inner), None, None),
            query(Some(&outer), None, None),
            query(Some(&main), None, None),
            query(None, Some("sites.c"), Some(4)),
            query(None, Some("sites.c"), Some(7)),
            query(Some(&outer), Some("sites.c"), Some(8)),
            query(Some(&main), Some("sites.c"), Some(8)),
            query(None, Some("other.c"), Some(4)),
            query(Some(&main), Some("sites.c"), Some(10)),
            query(None, Some("sites.c"), Some(10)),
        ];
        let (found, has_debug) = find_code(&binary, &queries).unwrap();
        assert!(has_debug);
        let holds = |outer: &[CodeRange], inner: &[CodeRange]| {
            inner.iter().all(|i| outer.iter().any(|o| o.0 <= i.0 && i.1 <= o.1))
        };
        assert!(found[..6].iter().all(|ranges| !ranges.is_empty()), "{found:x?}");
        assert!(holds(&found[1], &found[0]), "inner's code lies in outer's: {found:x?}");
        assert!(!holds(&found[2], &found[1]), "main's is apart");
        // Line 7 is where inner is called: its code counts, beside outer's own code of that line.
        assert!(holds(&found[4], &found[0]), "{found:x?}");
        assert!(holds(&found[0], &found[3]), "line 4 is in inner alone: {found:x?}");
        assert!(holds(&found[1], &found[5]));
        assert!(found[6].is_empty() && found[7].is_empty(), "{found:x?}");
        assert!(!found[8].is_empty() && holds(&found[2], &found[8]), "{found:x?}");
        assert_eq!(found[8], found[9]);
    }

    #[test]
    fn no_binary_no_code() {
        assert!(find_code(Path::new("/nonexistent"), &[]).is_err());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        std::fs::write(&path, "no program").unwrap();
        assert!(find_code(&path, &[]).is_err());
    }
}
