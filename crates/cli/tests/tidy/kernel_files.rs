//! Finds files of the kernel that are named by their whole paths: `/proc/self/maps`, not `proc/self/maps` under a root prefix. No tree of files can stand for
//! them in a test. The crate `host` has what reads and parses them under a root.

use std::path::Path;

/// Starts of texts that are such paths.
const STARTS: [&str; 4] = ["\"/proc/", "\"/proc\"", "\"/sys/", "\"/sys\""];

/// The crates that may name such files in their product, in how many lines at most, and why. The numbers may be lowered, and are not to be raised: what is
/// added is read under a root.
pub static MAY_NAME: [(&str, usize, &str); 13] = [
    ("balancer", 6, "settings, which its journal names by their paths"),
    ("emulator", 1, "a program that is surely there, for a trial"),
    (
        "kernel",
        7,
        "memory of running processes, what this process inherited, and folders of processes that it holds open",
    ),
    ("launch", 4, "what the programs that it starts open or are"),
    ("machine", 1, "the source of a figure, in words"),
    ("measure", 2, "the thread that measures, and its memory"),
    ("runtime", 1, "the boot, for a crate without dependencies"),
    ("service", 4, "settings, which its record names by their paths"),
    ("sources", 6, "folders of programs, seen through their own roots"),
    ("text", 1, "output files that are another name of a descriptor"),
    ("trace", 1, "the namespace of this process"),
    (
        "watch",
        8,
        "open files of a recorder, through its own root, those of this process, and mount points as they are listed",
    ),
    ("wrapper", 1, "this program, in an error"),
];

/// The crate to whose product a file belongs; `None`: to none, or to one whose matter such files are.
pub fn crate_of(path: &Path) -> Option<&str> {
    let mut parts = path.to_str()?.strip_prefix("crates/")?.splitn(3, '/');
    let (name, folder, file) = (parts.next()?, parts.next()?, parts.next()?);
    let is_test = file.ends_with("tests.rs") || file.contains("tests/");
    (folder == "src" && !is_test && !["host", "lab"].contains(&name)).then_some(name)
}

/// Numbers of the lines that name such files, without comments and the module of tests.
pub fn lines_with_whole_paths(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins_tests = |at: usize| {
        let opens_module = |line: &&str| line.contains("mod ") && line.ends_with('{');
        lines[at].trim() == "#[cfg(test)]" && lines.get(at + 1).is_some_and(opens_module)
    };
    let names_one =
        |line: &str| !line.trim_start().starts_with("//") && STARTS.iter().any(|start| line.contains(*start));
    (0..lines.len()).take_while(|at| !begins_tests(*at)).filter(|at| names_one(lines[*at])).map(|at| at + 1).collect()
}

#[test]
fn whole_paths_are_told_from_others() {
    let text = "//! \"/proc/1\"\n#[cfg(test)]\nuse x;\nlet a = read(\"/proc/self/maps\");\nroot.text(\"proc/self/maps\");\n\
                format!(\"/sys/{x}\");\nlet why = \"see /proc/cpuinfo\";\n#[cfg(test)]\nmod tests {\n    \"/proc/1\"\n}\n";
    assert_eq!(lines_with_whole_paths(text), [4, 6]);
    let of = |path: &'static str| crate_of(Path::new(path));
    assert_eq!([of("crates/watch/src/live/mod.rs"), of("crates/text/src/lib.rs")], [Some("watch"), Some("text")]);
    for path in ["crates/host/src/root.rs", "crates/watch/src/stat/tests.rs", "crates/cli/tests/tidy.rs", "README.md"] {
        assert_eq!(of(path), None, "{path}");
    }
}
