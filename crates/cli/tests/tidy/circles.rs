//! Finds files of one crate that import each other, directly or by way of others.
//!
//! Reads Rust as tokens, without a compiler. What counts as an import of file B by file A:
//!
//! * a `use` of something that B defines, and a path in A's code that leads to it (`crate::b::Item`, `super::b::item()`, `b::item()`);
//! * a name that B only passes on is followed to the file that defines it. So a parent that re-exports its children is imported by nobody
//!   for their sake, and it imports a child only if its own code uses the child: `pub use child::Item` counts where `Item` occurs in
//!   the parent's other code. `mod child;` never counts;
//! * `use b::*` counts for B, and for what B re-exports of the names that A's code mentions.
//!
//! What is compiled for tests only (`#[cfg(test)]`) is left out: tests look into what they test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A path of names below a crate's root; empty for the root itself.
type Names = Vec<String>;

/// What one file brings in, defines and mentions.
#[derive(Default)]
struct Source {
    /// Names that `use` brings in, with what they stand for.
    imports: Vec<Import>,
    /// Modules of which `use` brings in everything.
    globs: Vec<Import>,
    /// Names of items that the file defines, at any depth.
    defines: BTreeSet<String>,
    /// Paths of two names or more in its code, each with the module in which it stands.
    paths: Vec<(Names, Names)>,
    /// Every name in its code outside of `use`.
    words: BTreeSet<String>,
    /// Child modules that exist only in tests.
    test_children: BTreeSet<String>,
}

struct Import {
    name: String,
    /// Where it leads: the module in which the `use` stands, and the path as written.
    path: (Names, Names),
    is_public: bool,
}

/// Files that import each other.
pub struct Circle {
    /// Paths relative to the source folder, sorted.
    pub files: Vec<String>,
    /// Each import inside the circle, as `a.rs -> b.rs: Name, name`.
    pub imports: Vec<String>,
}

/// The circles among the files below `src`, a crate's source folder. Panics where a file cannot be read.
pub fn circles_in(src: &Path) -> Vec<Circle> {
    let mut files = BTreeMap::new();
    collect(src, &[], &mut files);
    circles(&files)
}

/// Files by module: the path relative to the source folder, and the text.
type Files = BTreeMap<Names, (String, String)>;

fn collect(folder: &Path, module: &[String], files: &mut Files) {
    for entry in fs::read_dir(folder).expect("a source folder") {
        let path = entry.expect("a folder's entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let mut names = module.to_vec();
        // Programs in `bin` have roots of their own.
        let is_other_root = module.is_empty() && name == "bin";
        if path.is_dir() && !is_other_root {
            names.push(name);
            collect(&path, &names, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let mut shown = module.to_vec();
            shown.push(format!("{name}.rs"));
            // The root is lib.rs; beside it, main.rs is a module that nobody imports.
            let is_root = name == "lib" || name == "main" && !folder.join("lib.rs").exists();
            if name != "mod" && !(is_root && module.is_empty()) {
                names.push(name);
            }
            files.insert(names, (shown.join("/"), fs::read_to_string(&path).expect("a source file")));
        }
    }
}

/// What a file imports: the other file, and the names.
type Edges = BTreeMap<Names, BTreeSet<String>>;

fn circles(files: &Files) -> Vec<Circle> {
    let mut sources: BTreeMap<&Names, Source> =
        files.iter().map(|(module, (_, text))| (module, read(module, text))).collect();
    let tests: Vec<Names> = sources
        .iter()
        .flat_map(|(module, source)| source.test_children.iter().map(|name| joined(module, std::slice::from_ref(name))))
        .collect();
    sources.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    let edges: BTreeMap<&Names, Edges> = sources.keys().map(|m| (*m, imported(m, &sources))).collect();
    let reachable: BTreeMap<&Names, BTreeSet<&Names>> = edges.keys().map(|m| (*m, reach(m, &edges))).collect();
    let mut done: BTreeSet<&Names> = BTreeSet::new();
    let mut found = Vec::new();
    for module in edges.keys() {
        let members: Vec<&Names> = edges
            .keys()
            .copied()
            .filter(|other| reachable[module].contains(*other) && reachable[*other].contains(*module))
            .collect();
        if done.contains(*module) || members.is_empty() {
            continue;
        }
        done.extend(&members);
        let name = |module: &Names| files[module].0.clone();
        let mut imports = Vec::new();
        for member in &members {
            for (other, names) in edges[*member].iter().filter(|(other, _)| members.contains(other)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                imports.push(format!("{} -> {}: {}", name(member), name(other), names.join(", ")));
            }
        }
        let mut in_circle: Vec<String> = members.into_iter().map(name).collect();
        in_circle.sort();
        found.push(Circle { files: in_circle, imports });
    }
    found
}

/// Every module to which a chain of imports leads from `start`.
fn reach<'a>(start: &Names, edges: &'a BTreeMap<&Names, Edges>) -> BTreeSet<&'a Names> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&Names> = edges[start].keys().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(edges[module].keys());
        }
    }
    seen
}

/// What `module` imports from other files.
fn imported(module: &Names, sources: &BTreeMap<&Names, Source>) -> Edges {
    let source = &sources[module];
    let mut targets = Edges::new();
    let mut add = |found: Option<(Names, String)>| {
        if let Some((file, name)) = found {
            targets.entry(file).or_default().insert(name);
        }
    };
    for import in source.imports.iter().filter(|import| !import.is_public || source.words.contains(&import.name)) {
        add(definer(&import.path, sources, 0));
    }
    for path in &source.paths {
        add(definer(path, sources, 0));
    }
    for glob in &source.globs {
        let Some((file, rest)) = file_of(&glob.path, sources) else { continue };
        if !rest.is_empty() || !glob.is_public {
            add(Some((file.clone(), "*".to_owned())));
        }
        for word in source.words.iter().filter(|word| knows(&file, word, sources)) {
            add(definer(&(file.clone(), vec!["self".into(), word.clone()]), sources, 0));
        }
    }
    targets.remove(module);
    targets
}

fn knows(file: &Names, name: &str, sources: &BTreeMap<&Names, Source>) -> bool {
    let source = &sources[file];
    source.defines.contains(name) || source.imports.iter().any(|import| import.name == name)
}

/// Longer chains of re-exports than this go round in a circle.
const MAX_CHAIN: usize = 16;

/// The file that defines what a path leads to, and its name there; `None` for a path into another crate, and for one that names a module as a whole.
fn definer(path: &(Names, Names), sources: &BTreeMap<&Names, Source>, depth: usize) -> Option<(Names, String)> {
    let (file, rest) = file_of(path, sources)?;
    let name = rest.first()?;
    let source = &sources[&file];
    if depth < MAX_CHAIN {
        if let Some(import) = source.imports.iter().find(|import| import.name == *name) {
            let (at, written) = &import.path;
            return definer(&(at.clone(), joined(written, &rest[1..])), sources, depth + 1);
        }
        for glob in source.globs.iter().filter(|_| !source.defines.contains(name)) {
            let Some((other, _)) = file_of(&glob.path, sources) else { continue };
            if other != file && knows(&other, name, sources) {
                return definer(&(other, joined(&["self".into()], &rest)), sources, depth + 1);
            }
        }
    }
    Some((file, name.clone()))
}

/// The file in which a path ends, and the names that are left of it there. `None` if it does not lead into this crate.
fn file_of((at, written): &(Names, Names), sources: &BTreeMap<&Names, Source>) -> Option<(Names, Names)> {
    let mut module = at.clone();
    let mut rest = written.as_slice();
    let first = rest.first()?;
    match first.as_str() {
        "crate" => {
            module.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|name| name == "super") {
                module.pop();
                rest = &rest[1..];
            }
        }
        name if is_module(&joined(at, &[name.to_owned()]), sources) => {}
        name => {
            // A name that the file brought in: the path goes on from what it stands for.
            let import = holder(at, sources)?.imports.iter().find(|import| import.name == name)?;
            if import.path.1.first() == Some(first) {
                return None;
            }
            return file_of(&(import.path.0.clone(), joined(&import.path.1, &rest[1..])), sources);
        }
    }
    let whole = joined(&module, rest);
    let length = (0..=whole.len()).rev().find(|length| is_module(&whole[..*length], sources))?;
    let file = whole[..length].to_vec();
    // Inline modules belong to their file.
    let mut left = whole[length..].to_vec();
    let inline = module.len().saturating_sub(length);
    left.drain(..inline.min(left.len()));
    Some((file, left))
}

fn is_module(names: &[String], sources: &BTreeMap<&Names, Source>) -> bool {
    sources.contains_key(&names.to_vec())
}

/// The file that holds a module: its own, or the one that has it inline.
fn holder<'a>(module: &Names, sources: &'a BTreeMap<&Names, Source>) -> Option<&'a Source> {
    (0..=module.len()).rev().find_map(|length| sources.get(&module[..length].to_vec()))
}

fn joined(a: &[String], b: &[String]) -> Names {
    a.iter().chain(b).cloned().collect()
}

/// Reads one file.
fn read(module: &Names, text: &str) -> Source {
    let tokens = tokens(text);
    let mut source = Source::default();
    let mut here = module.clone();
    // The depths of braces at which inline modules end.
    let mut ends: Vec<usize> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        let next = tokens.get(at + 1).map_or("", String::as_str);
        match tokens[at].as_str() {
            "#" if tokens[at..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"].map(str::to_owned)) => {
                let item = at + 7;
                let end = item_end(&tokens, item);
                source.test_children.extend(declared_module(&tokens[item..end]));
                at = end;
                continue;
            }
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if ends.last() == Some(&depth) {
                    ends.pop();
                    here.pop();
                }
            }
            "mod" if tokens.get(at + 2).is_some_and(|t| t == "{") => {
                here.push(next.to_owned());
                ends.push(depth);
                depth += 1;
                at += 3;
                continue;
            }
            // The name of a child is no mention of an item of that name.
            "mod" => at += 1,
            "pub" | "use" => {
                let (end, is_public) = after_visibility(&tokens, at);
                at = end;
                // `impl Trait + use<'a>` is no import.
                if tokens.get(at).is_some_and(|t| t == "use") && tokens.get(at + 1).is_some_and(|t| t != "<") {
                    at = read_use(&tokens, at + 1, &here, is_public, &mut source);
                    continue;
                }
                at -= usize::from(is_public);
            }
            "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => {
                source.defines.insert(next.to_owned());
            }
            word if is_name(word) => {
                let length = path_length(&tokens[at..]);
                source.words.insert(word.to_owned());
                if length > 1 {
                    let names = tokens[at..at + 2 * length - 1].iter().step_by(2).cloned().collect();
                    source.paths.push((here.clone(), names));
                    at += 2 * length - 1;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    source
}

/// Where the item at `at` goes on after its visibility, and whether it has one. What `pub(in path)` names is no import.
fn after_visibility(tokens: &[String], at: usize) -> (usize, bool) {
    if tokens[at] != "pub" {
        return (at, false);
    }
    let is_confined = tokens.get(at + 1).is_some_and(|t| t == "(");
    let length = if is_confined { tokens[at..].iter().position(|t| t == ")").unwrap_or(0) } else { 0 };
    (at + length + 1, true)
}

/// Names in a path at the start of `tokens`: 1 for a name alone.
fn path_length(tokens: &[String]) -> usize {
    let mut length = 1;
    while tokens.get(2 * length - 1).is_some_and(|t| t == "::") && tokens.get(2 * length).is_some_and(|t| is_name(t)) {
        length += 1;
    }
    length
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The name in `mod name;`, with or without a visibility.
fn declared_module(item: &[String]) -> Option<String> {
    let at = item.iter().position(|t| t == "mod")?;
    (item.get(at + 2)? == ";").then(|| item[at + 1].clone())
}

/// One past the end of the item at `start`: its semicolon, or the brace that closes its body.
fn item_end(tokens: &[String], start: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth == 0 && token == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Reads the tree of names of a `use` from `start`; one past its semicolon.
fn read_use(tokens: &[String], start: usize, here: &Names, is_public: bool, source: &mut Source) -> usize {
    let end = start + tokens[start..].iter().position(|t| t == ";").unwrap_or(tokens.len() - start);
    let mut prefixes: Vec<Names> = vec![Vec::new()];
    let mut path: Names = Vec::new();
    let mut alias = None;
    let mut at = start;
    while at <= end {
        let token = tokens.get(at).map_or(";", String::as_str);
        match token {
            "{" => prefixes.push(std::mem::take(&mut path)),
            "," | "}" | ";" => {
                let prefix: Names = prefixes.concat();
                if let Some(last) = path.pop() {
                    let whole = if last == "self" || last == "*" {
                        joined(&prefix, &path)
                    } else {
                        joined(&prefix, &joined(&path, std::slice::from_ref(&last)))
                    };
                    let name = alias.take().unwrap_or_else(|| whole.last().cloned().unwrap_or_default());
                    let import = Import { name, path: (here.clone(), whole), is_public };
                    if last == "*" { &mut source.globs } else { &mut source.imports }.push(import);
                }
                path.clear();
                if token == "}" {
                    prefixes.pop();
                }
            }
            "::" => {}
            "as" => {
                alias = tokens.get(at + 1).cloned();
                at += 1;
            }
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    end + 1
}

/// Names, `::` and single signs of a Rust text, without comments, literals of text and lifetimes.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let starts = |at: usize, what: &str| what.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&c));
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        if starts(at, "//") {
            at += chars[at..].iter().position(|c| *c == '\n').unwrap_or(chars.len() - at);
        } else if starts(at, "/*") {
            at += 2;
            while at < chars.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if c == '"' {
            at = after_text(&chars, at + 1);
        } else if c == '\'' {
            at = after_quote(&chars, at);
        } else if c.is_alphanumeric() || c == '_' {
            let length = chars[at..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
            let word: String = chars[at..at + length].iter().collect();
            at += length;
            let hashes = chars[at..].iter().take_while(|c| **c == '#').count();
            if ["r", "br", "cr"].contains(&word.as_str()) && chars.get(at + hashes) == Some(&'"') {
                let close = format!("\"{}", "#".repeat(hashes));
                at += hashes + 1;
                while at < chars.len() && !starts(at, &close) {
                    at += 1;
                }
                at += close.len();
            } else {
                found.push(word);
            }
        } else if starts(at, "::") {
            found.push("::".to_owned());
            at += 2;
        } else {
            if !c.is_whitespace() {
                found.push(c.to_string());
            }
            at += 1;
        }
    }
    found
}

/// One past the end of a literal of text whose inside begins at `at`.
fn after_text(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// One past a character literal or a lifetime at `at`.
fn after_quote(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        return at + 3 + chars[(at + 3).min(chars.len())..].iter().position(|c| *c == '\'').unwrap_or(0) + 1;
    }
    if chars.get(at + 2) == Some(&'\'') {
        return at + 3;
    }
    at + 1 + chars[at + 1..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of each circle of a crate that consists of these: module and text.
    fn found(modules: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = modules.iter().map(|(module, text)| {
            let names = module.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect();
            (names, ((*module).to_owned(), (*text).to_owned()))
        });
        circles(&files.collect()).into_iter().map(|circle| circle.files).collect()
    }

    #[test]
    fn imports_of_every_form_make_a_circle() {
        for back in ["use crate::a::{B as C, A};", "use super::a::f;", "fn g() { crate::a::f() }", "use crate::{a::A};"]
        {
            let circle = found(&[("", "mod a; mod b;"), ("a", "use crate::b::g;"), ("b", back)]);
            assert_eq!(circle, [["a", "b"]], "{back}");
        }
        let long =
            [("", ""), ("a", "use crate::b::B;"), ("b", "use crate::c; fn f() { c::g() }"), ("c", "use super::a::A;")];
        assert_eq!(found(&long), [["a", "b", "c"]]);
    }

    #[test]
    fn a_name_counts_for_the_file_that_defines_it() {
        let parent = "mod b; mod c; pub use b::B; use c::C;";
        let children = [("a::b", "use super::C; pub struct B;"), ("a::c", "pub struct C;")];
        assert!(found(&[("", "pub use a::B;"), ("a", parent), children[0], children[1]]).is_empty());
        let used = format!("{parent} fn f(b: B) {{}}  pub struct A;");
        assert!(found(&[("", ""), ("a", &used), children[0], children[1]]).is_empty());
        assert_eq!(found(&[("", ""), ("a", &used), ("a::b", "use super::A; pub struct B;")]), [["a", "a::b"]]);
    }

    #[test]
    fn what_no_compiler_imports_does_not_count() {
        for back in [
            "// crate::a::f()",
            "const T: &str = \"crate::a::f\"; const R: &str = r#\"crate::a::\"f\"\"#;",
            "/* crate::a::f */ fn f<'a>(c: char) -> bool { c == '\"' } // \" crate::a::f()",
            "#[cfg(test)] mod tests { use crate::a::f; }",
            "#[cfg(test)] use crate::a::f;",
            "pub(in crate::a) struct B;",
            "use other::a::f;",
        ] {
            let circle = found(&[("", "mod a; mod b;"), ("a", "use crate::b::g;"), ("b", back)]);
            assert!(circle.is_empty(), "{back}: {circle:?}");
        }
        let tests = [
            ("", "mod a;"),
            ("a", "#[cfg(test)] mod tests; use crate::b::B;"),
            ("b", ""),
            ("a::tests", "use super::A;"),
        ];
        assert!(found(&tests).is_empty());
    }
}
