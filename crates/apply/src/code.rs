//! Which binaries a program consists of, and where in them the code is that a plan's frames mean.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use numapilot_launch::{Binary, BinaryKind, Target, find_program};
use numapilot_plan::{Frame, glob_matches};
use numapilot_symbols::{CodeQuery, CodeRange, find_code, is_module_named};

/// Arguments in which binaries are looked for: `env`, `sh` and their kin start what they are given.
const ARGUMENTS_MAX: usize = 64;

/// A binary or library of the program.
#[derive(Clone, Debug)]
pub(super) struct Module {
    pub path: PathBuf,
    /// Device and inode of the file.
    pub id: (u64, u64),
}

impl Module {
    /// `None`: there is no such file.
    fn at(path: PathBuf) -> Option<Module> {
        let status = std::fs::metadata(&path).ok()?;
        Some(Module { path, id: (status.dev(), status.ino()) })
    }

    /// Whether the end of a path means it, as rules name modules.
    pub fn is_named(&self, end: &str) -> bool {
        is_module_named(&self.path, end)
    }
}

/// The program, binaries among its arguments, what these are linked with as the loader says, and libraries that rules name by path.
pub(super) fn modules(target: &Target, command: &[OsString], named: &[&str]) -> Vec<Module> {
    let mut paths = vec![target.binary.path.clone()];
    let mut interpreters = vec![target.binary.clone()];
    for argument in command.iter().skip(1).take(ARGUMENTS_MAX) {
        let binary = find_program(argument).and_then(|path| Binary::inspect(&path).ok().flatten());
        if let Some(binary) = binary {
            paths.push(binary.path.clone());
            interpreters.push(binary);
        }
    }
    for binary in &interpreters {
        paths.extend(libraries(binary, &target.binary));
    }
    paths.extend(named.iter().filter(|path| path.starts_with('/')).map(PathBuf::from));
    let mut modules: Vec<Module> = Vec::new();
    for module in paths.into_iter().filter_map(Module::at) {
        if !modules.iter().any(|known| known.id == module.id) {
            modules.push(module);
        }
    }
    modules
}

/// Folders of the system's loaders.
const OF_SYSTEM: [&str; 6] = ["/usr", "/lib", "/lib64", "/lib32", "/nix/store", "/gnu/store"];

/// The loader that a binary names, if it may be run: the program's own runs anyway. A file that the program is given to look at (`objdump -d FILE`) may name
/// anything, itself for one.
fn loader<'b>(binary: &'b Binary, program: &Binary) -> Option<&'b str> {
    let BinaryKind::Dynamic { interpreter } = &binary.kind else { return None };
    let is_systems = |real: PathBuf| OF_SYSTEM.iter().any(|folder| real.starts_with(folder));
    let may_run = binary.kind == program.kind || Path::new(interpreter).canonicalize().is_ok_and(is_systems);
    may_run.then_some(interpreter.as_str())
}

/// What the dynamic loader would load for this binary: it is asked, and starts nothing.
fn libraries(binary: &Binary, program: &Binary) -> Vec<PathBuf> {
    let Some(interpreter) = loader(binary, program) else { return Vec::new() };
    let Ok(output) = Command::new(interpreter).arg("--list").arg(&binary.path).env_remove("LD_PRELOAD").output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let path = |line: &str| {
        let place = line.split_once("=> ").map_or(line, |(_, place)| place).trim();
        let path = place.rsplit_once(" (").map_or(place, |(path, _)| path);
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines().filter_map(path).collect()
}

/// The code of one frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Index of the module, and the range of code in it.
    pub ranges: Vec<(u32, CodeRange)>,
    /// A binary that was looked in has no debug information, and the frame needs it.
    pub lacks_debug: Option<PathBuf>,
}

fn is_in(module: &Module, frame: &Frame) -> bool {
    frame.module.as_ref().is_none_or(|end| module.is_named(end))
}

/// Looks all frames up in all modules.
pub(super) fn look_up(modules: &[Module], frames: &[Frame]) -> Vec<Found> {
    let mut found = vec![Found::default(); frames.len()];
    let matchers: Vec<Option<Matcher<'_>>> =
        frames.iter().map(|frame| frame.function.as_deref().map(matcher)).collect();
    for (number, module) in modules.iter().enumerate() {
        let wanted: Vec<usize> = (0..frames.len()).filter(|&index| is_in(module, &frames[index])).collect();
        let asking: Vec<usize> =
            wanted.iter().copied().filter(|&i| frames[i].function.is_some() || frames[i].file.is_some()).collect();
        for &index in wanted.iter().filter(|index| !asking.contains(index)) {
            let range = frames[index].offset.map_or((0, u64::MAX >> 17), call_at);
            found[index].ranges.push((number as u32, range));
        }
        if asking.is_empty() {
            continue;
        }
        let query = |&index: &usize| CodeQuery {
            function: matchers[index].as_deref(),
            file: frames[index].file.as_deref(),
            lines: frames[index].lines,
        };
        let queries: Vec<CodeQuery<'_>> = asking.iter().map(query).collect();
        let Ok((ranges, has_debug)) = find_code(&module.path, &queries) else { continue };
        for (&index, ranges) in asking.iter().zip(ranges) {
            let call = frames[index].offset.map(call_at);
            // Of the code that is meant, the one call: other calls of the same line are other objects.
            let at_call = |range: CodeRange| match call {
                None => Some(range),
                Some((first, last)) => {
                    let (first, last) = (first.max(range.0), last.min(range.1));
                    (first <= last).then_some((first, last))
                }
            };
            found[index].ranges.extend(ranges.into_iter().filter_map(at_call).map(|range| (number as u32, range)));
            if !has_debug && number == 0 && frames[index].file.is_some() {
                found[index].lacks_debug = Some(module.path.clone());
            }
        }
    }
    found
}

/// The code of the call that a plan's offset means: the address that it returns to, or its own last byte, which is what reports show. (The planner
/// looks up the byte before the return address; no call is so short that two could be meant.)
fn call_at(offset: u64) -> CodeRange {
    (offset.max(1) - 1, offset)
}

type Matcher<'a> = Box<dyn Fn(&str) -> bool + 'a>;

fn matcher(pattern: &str) -> Matcher<'_> {
    Box::new(move |name| glob_matches(pattern, name))
}

/// Ranges of several patterns in one module, cut so that none overlap, each with the patterns that hold there.
pub(super) fn disjoint(ranges: &[(CodeRange, u32)]) -> Vec<(CodeRange, u64)> {
    let mut edges: Vec<u64> = ranges.iter().flat_map(|((first, last), _)| [*first, last + 1]).collect();
    edges.sort_unstable();
    edges.dedup();
    let mut cut: Vec<(CodeRange, u64)> = Vec::new();
    for pair in edges.windows(2) {
        let (first, last) = (pair[0], pair[1] - 1);
        let holding = ranges.iter().filter(|((a, b), _)| *a <= first && last <= *b);
        let patterns = holding.fold(0, |all, (_, pattern)| all | 1_u64 << pattern);
        match cut.last_mut() {
            _ if patterns == 0 => {}
            Some(before) if before.1 == patterns && before.0.1 + 1 == first => before.0.1 = last,
            _ => cut.push(((first, last), patterns)),
        }
    }
    cut
}

/// Data of a module that rules name: symbols (also by their source spelling) or sections.
pub(super) fn statics(path: &Path, symbol: Option<&str>, section: Option<&str>) -> Vec<CodeRange> {
    let Ok(layout) = numapilot_symbols::ModuleLayout::read(&path.to_string_lossy(), &[]) else { return Vec::new() };
    let names_it = |item: &numapilot_symbols::LayoutItem| {
        let name = layout.name(*item);
        match (symbol, section) {
            (Some(pattern), _) if layout.is_symbol(*item) => {
                glob_matches(pattern, name)
                    || numapilot_symbols::spellings(name).iter().any(|n| glob_matches(pattern, n))
            }
            (_, Some(wanted)) => !layout.is_symbol(*item) && **name == *wanted,
            _ => false,
        }
    };
    let items = layout.items().filter(names_it).filter(|item| layout.bytes(*item) > 0);
    items.map(|item| (layout.offset(item), layout.offset(item) + layout.bytes(item) - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_cut_with_their_patterns() {
        let cut = disjoint(&[((10, 30), 0), ((20, 40), 1), ((41, 50), 1), ((60, 60), 2)]);
        assert_eq!(cut, [((10, 19), 1), ((20, 30), 3), ((31, 50), 2), ((60, 60), 4)]);
        assert!(disjoint(&[]).is_empty());
    }

    #[test]
    fn a_library_is_named_as_the_loader_does_and_as_the_kernel_does() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libx.so.1.2.3"), "").unwrap();
        std::os::unix::fs::symlink("libx.so.1.2.3", folder.path().join("libx.so.1")).unwrap();
        let module = Module::at(folder.path().join("libx.so.1")).unwrap();
        assert!(module.is_named("libx.so.1") && module.is_named("libx.so.1.2.3") && !module.is_named("libx.so"));
        assert!(Module::at(folder.path().join("liby.so")).is_none());
    }

    /// A file that a program looks at named a loader of its own, which was run to list the file's libraries.
    #[test]
    fn no_loader_is_run_that_a_file_among_the_arguments_names() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let [source, strange, loader, ran] = ["a.c", "strange", "loader", "ran"].map(|name| folder.path().join(name));
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        std::fs::write(&loader, format!("#!/bin/sh\ntouch '{}'\n", ran.display())).unwrap();
        std::fs::set_permissions(&loader, std::fs::Permissions::from_mode(0o755)).unwrap();
        let names_it = format!("-Wl,--dynamic-linker={}", loader.display());
        assert!(Command::new("cc").arg(&source).arg(names_it).arg("-o").arg(&strange).status().unwrap().success());
        let command = [OsString::from("true"), strange.clone().into_os_string()];
        let found = modules(&numapilot_launch::resolve_target(&command).unwrap(), &command, &[]);
        assert!(found.iter().any(|module| module.path == strange) && !ran.exists(), "{found:?}");
    }
}
