//! Parses a compiler's command line, as far as the wrapper must know it. Nothing is changed here.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::target;

/// Options whose value is the next word.
const WITH_VALUE: &[&str] = &[
    "-o",
    "-x",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-include",
    "-imacros",
    "-isystem",
    "-iquote",
    "-idirafter",
    "-iprefix",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-isysroot",
    "--sysroot",
    "-MF",
    "-MT",
    "-MQ",
    "-T",
    "-u",
    "-z",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-Xanalyzer",
    "-mllvm",
    "-arch",
    "-target",
    "--param",
    "-aux-info",
    "-dumpbase",
    "-dumpbase-ext",
    "-dumpdir",
    "-e",
    "-G",
    "-wrapper",
    "-J",
    "-B",
    "-A",
    "-specs",
    "-gcc-toolchain",
    "-rpath",
    "-h",
];

/// Options that make the compiler print something and do nothing else.
const QUERIES: &[&str] =
    &["--version", "-dumpversion", "-dumpfullversion", "-dumpmachine", "-dumpspecs", "-###", "--target-help", "-print"];

/// Sanitizers that take the same call-outs, the same interposed functions or a shadow of the address space.
const CONFLICTING: &[&str] =
    &["address", "hwaddress", "kernel-address", "kernel-hwaddress", "memory", "thread", "leak", "dataflow"];

/// Largest depth of response files inside response files.
const RESPONSE_DEPTH_MAX: u32 = 8;

/// A parsed compiler command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Invocation {
    /// Passed through untouched: a question, or nothing to do.
    pub(super) is_query: bool,
    /// Some input is source code, and is compiled (not only preprocessed).
    pub(super) compiles: bool,
    /// A program or a shared library comes out.
    pub(super) links: bool,
    /// The linker runs: for a program, a library, or (`-r`) one object out of several.
    pub(super) runs_linker: bool,
    /// It is a shared library.
    pub(super) shared: bool,
    pub(super) has_debug_option: bool,
    pub(super) has_frame_option: bool,
    /// Some input is compiled that the preprocessor sees first. Options for it disturb what needs none: clang warns of them.
    pub(super) preprocesses: bool,
    /// The code is for another architecture or word size than this one's, for which there are no call-outs.
    pub(super) is_foreign: bool,
    /// `-x` was given: it would hold for what we append too.
    pub(super) language_was_set: bool,
    pub(super) static_option: Option<String>,
    /// What comes out, or an input of the linker, is intermediate code: assembly is made elsewhere.
    pub(super) is_intermediate: bool,
    /// Inputs in assembly, as named.
    pub(super) assembly: Vec<String>,
    sanitizers: Vec<String>,
}

impl Invocation {
    pub(super) fn parse(args: &[OsString]) -> Invocation {
        let mut words = Vec::new();
        expand(args, &mut words, 0);
        let mut found = Invocation::default();
        let mut scan = Scan::default();
        let mut index = 0;
        while index < words.len() {
            let word = words[index].as_str();
            let value = words.get(index + 1).map(String::as_str);
            index += if WITH_VALUE.contains(&word) { 2 } else { 1 };
            found.word(&mut scan, word, value);
        }
        // A header beside other inputs is precompiled, and these are linked.
        let has_parts = scan.sources + scan.others > 0;
        found.is_query |= !has_parts && scan.headers == 0;
        found.compiles = !scan.only_preprocesses && scan.sources + scan.headers > 0;
        found.preprocesses = found.compiles && scan.sources + scan.headers > scan.preprocessed;
        found.runs_linker = has_parts && !scan.stops_early && !scan.only_preprocesses;
        found.links = found.runs_linker && !scan.relocatable;
        found.is_foreign = scan.has_other_words || scan.has_other_target;
        if !found.shared {
            found.static_option = found.static_option.or(scan.linker_static);
        }
        found
    }

    fn word(&mut self, scan: &mut Scan, word: &str, value: Option<&str>) {
        if QUERIES.contains(&word) || word.starts_with("--help") || is_print_query(word) {
            self.is_query = true;
        }
        match word {
            "-c" | "-S" | "--compile" | "--assemble" => scan.stops_early = true,
            "-fsyntax-only" | "--analyze" | "--precompile" | "-emit-ast" => scan.stops_early = true,
            "-E" | "-M" | "-MM" | "--preprocess" => scan.only_preprocesses = true,
            "-r" => scan.relocatable = true,
            "-shared" | "--shared" => self.shared = true,
            "-static" | "--static" | "-static-pie" => self.static_option = Some(word.to_owned()),
            "-x" => self.set_language(scan, value.unwrap_or("none")),
            "-l" => scan.others += 1,
            "-m32" | "-mx32" | "-m16" => scan.has_other_words = true,
            "-m64" => scan.has_other_words = false,
            "-target" => scan.has_other_target = value.is_some_and(|target| !target::is_own(target)),
            "-Xlinker" => scan.linker_word(value.unwrap_or("")),
            "-" => scan.input(word),
            "-emit-llvm" | "-fembed-bitcode" => self.is_intermediate = true,
            _ if !word.starts_with('-') => {
                if word.ends_with(".s") {
                    self.assembly.push(word.to_owned());
                }
                scan.input(word);
            }
            _ => self.option(scan, word),
        }
    }

    fn option(&mut self, scan: &mut Scan, word: &str) {
        if let Some(language) = word.strip_prefix("-x") {
            self.set_language(scan, language);
        } else if word.starts_with("-l") {
            // A library can be all that a link is of: `-shared -Wl,--whole-archive -lparts -Wl,--no-whole-archive`.
            scan.others += 1;
        } else if let Some(list) = word.strip_prefix("-Wl,") {
            for word in list.split(',') {
                scan.linker_word(word);
            }
        } else if let Some(target) = word.strip_prefix("--target=") {
            scan.has_other_target = !target::is_own(target);
        } else if let Some(list) = word.strip_prefix("-fsanitize=") {
            self.sanitizers.extend(list.split(',').map(str::to_owned));
        } else if word == "-flto" || word.starts_with("-flto=") || word == "-fno-lto" {
            self.is_intermediate = word != "-fno-lto";
        } else if let Some(list) = word.strip_prefix("-fno-sanitize=") {
            self.sanitizers.retain(|name| list != "all" && !list.split(',').any(|off| off == name));
        } else if word.ends_with("omit-frame-pointer") || word.ends_with("omit-leaf-frame-pointer") {
            self.has_frame_option = true;
        } else if is_debug_option(word) {
            self.has_debug_option = true;
        }
    }

    fn set_language(&mut self, scan: &mut Scan, language: &str) {
        self.language_was_set = true;
        scan.language = (language != "none").then(|| language.to_owned());
    }

    /// The option that cannot be combined with ours, where code is made.
    pub(super) fn conflict(&self) -> Option<String> {
        if !self.compiles && !self.runs_linker {
            return None;
        }
        let name = self.sanitizers.iter().find(|name| CONFLICTING.contains(&name.as_str()))?;
        Some(format!("-fsanitize={name}"))
    }
}

/// State of the parser.
#[derive(Default)]
struct Scan {
    stops_early: bool,
    only_preprocesses: bool,
    relocatable: bool,
    /// By `-m32` and its kin, and by clang's `-target`; of each the last one holds.
    has_other_words: bool,
    has_other_target: bool,
    language: Option<String>,
    sources: usize,
    /// Of the sources: those that went through the preprocessor before, and clang's intermediate code.
    preprocessed: usize,
    headers: usize,
    /// Objects, libraries, linker scripts.
    others: usize,
    /// The linker's option by which it takes no shared libraries from here on, as the compiler's option; where that holds at the end, none at all.
    linker_static: Option<String>,
    /// Values of `linker_static` that `--push-state` saved.
    linker_states: Vec<Option<String>>,
}

impl Scan {
    fn linker_word(&mut self, word: &str) {
        self.relocatable |= is_relocatable(word);
        match word {
            "-static" | "--static" | "-Bstatic" | "-dn" | "-non_shared" => {
                self.linker_static = Some(format!("-Wl,{word}"));
            }
            "-Bdynamic" | "-dy" | "-call_shared" => self.linker_static = None,
            "-push-state" | "--push-state" => self.linker_states.push(self.linker_static.clone()),
            "-pop-state" | "--pop-state" => self.linker_static = self.linker_states.pop().flatten(),
            _ => {}
        }
    }

    fn input(&mut self, word: &str) {
        let extension = Path::new(word).extension().and_then(OsStr::to_str).unwrap_or("");
        let header = match &self.language {
            Some(language) => language.ends_with("-header"),
            None => matches!(extension, "h" | "hh" | "hpp" | "hxx" | "H" | "h++" | "tcc"),
        };
        let object = self.language.is_none()
            && (matches!(extension, "o" | "os" | "a" | "so" | "lo" | "obj" | "ld" | "lds" | "s" | "")
                || is_versioned_library(word));
        if header {
            self.headers += 1;
        } else if object && word != "-" {
            self.others += 1;
        } else {
            self.sources += 1;
            let is_preprocessed = match self.language.as_deref() {
                Some(language) => language.ends_with("cpp-output") || language == "ir",
                None => matches!(extension, "i" | "ii" | "ll" | "bc"),
            };
            self.preprocessed += usize::from(is_preprocessed);
        }
    }
}

/// Whether an option makes the linker write one object.
fn is_relocatable(option: &str) -> bool {
    matches!(option, "-r" | "-i" | "--relocatable")
}

fn is_versioned_library(word: &str) -> bool {
    Path::new(word).file_name().and_then(OsStr::to_str).is_some_and(|name| name.contains(".so."))
}

/// `-print-search-dirs`, `--print-multiarch`, ... but not gcc's `-print-...` warnings, of which there are none.
fn is_print_query(word: &str) -> bool {
    word.starts_with("-print-") || word.starts_with("--print-")
}

/// Whether the option decides by itself how much debug information there is: `-g`, `-g3`, `-ggdb`, `-gdwarf-5`, ... Others that begin with those letters only
/// say in what form it is: since gcc 11 and clang 12, `-gsplit-dwarf` alone makes none, and neither do `-gdwarf64`, `-gctf` and `-gbtf`.
fn is_debug_option(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("-g") else { return false };
    let is_form = ["dwarf32", "dwarf64"].contains(&rest);
    rest.is_empty()
        || rest.starts_with(|c: char| c.is_ascii_digit())
        || ["gdb", "dwarf", "stabs", "vms", "line", "mlt", "lldb", "full"].iter().any(|name| rest.starts_with(name))
            && !is_form
}

/// `@file` is replaced by the file's words, for looking only. One that cannot be read is taken literally, as the compilers do. Paths in it may be in any
/// encoding.
fn expand(args: &[OsString], words: &mut Vec<String>, depth: u32) {
    for arg in args {
        let word = arg.to_string_lossy();
        let text = word
            .strip_prefix('@')
            .filter(|_| depth < RESPONSE_DEPTH_MAX)
            .and_then(|path| fs::read(path).ok())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match text {
            Some(text) => expand(&split_response(&text), words, depth + 1),
            None => words.push(word.into_owned()),
        }
    }
}

/// White space separates; quotes of both kinds group; a backslash takes the next character as it is.
fn split_response(text: &str) -> Vec<OsString> {
    let (mut words, mut word, mut quote, mut open) = (Vec::new(), String::new(), None, false);
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (c, quote) {
            ('\\', _) => {
                word.extend(characters.next());
                open = true;
            }
            (c, Some(q)) if c == q => quote = None,
            (c, Some(_)) => word.push(c),
            ('"' | '\'', None) => (quote, open) = (Some(c), true),
            (c, None) if c.is_whitespace() => {
                if open {
                    words.push(OsString::from(std::mem::take(&mut word)));
                }
                open = false;
            }
            (c, None) => {
                word.push(c);
                open = true;
            }
        }
    }
    if open {
        words.push(OsString::from(word));
    }
    words
}
