//! What runtimes write as the name of a function, brought to the form of all others: the function without parameters and return type, and the source
//! file where the name has one.
//!
//! A line in such a name is that of the function's definition, not of an instruction, so it is no line of a frame.

use crate::demangle::{demangle, short_function, tidy};
use crate::resolver::ResolvedFrame;

/// Kinds of code that V8 writes before the name of a JavaScript function, with a mark of its tier (`~`, `^`, `+`, `*`) after them, and another one where newer
/// versions compiled it for one context (v8/src/objects/code-kind.cc).
const V8_FUNCTIONS: [&str; 6] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:", "Module:"];
const V8_TIERS: [char; 5] = ['~', '^', '+', '*', '-'];
const V8_OF_ONE_CONTEXT: char = '\'';
/// How names of accessors begin, the only ones with a blank in them that are not computed; and places, which come behind the name.
const ACCESSORS: [&str; 2] = ["get ", "set "];
const PLACES: [&str; 3] = ["/", "file:", "node:"];
/// Before the name of a Python function (Python/perf_trampoline.c).
const PYTHON: &str = "py::";

pub(super) fn parse(name: &str) -> ResolvedFrame {
    let name = name.trim();
    let (function, file) = javascript(name).or_else(|| python(name)).unwrap_or_else(|| (other(name), ""));
    ResolvedFrame { function: tidy(&function), file: tidy(file), ..ResolvedFrame::default() }
}

/// `JS:*hash /srv/app.js:12:14`, `JS:*get size /srv/app.js:20:9`, or, without a name, `JS:~ /srv/app.js:12:14`.
fn javascript(name: &str) -> Option<(String, &str)> {
    let rest = V8_FUNCTIONS.iter().find_map(|kind| name.strip_prefix(kind))?;
    let rest = rest.strip_prefix(V8_TIERS).map_or(rest, |rest| rest.strip_prefix(V8_OF_ONE_CONTEXT).unwrap_or(rest));
    let (function, place) = accessor(rest).or_else(|| rest.split_once(' ')).unwrap_or((rest, ""));
    let (file, line) = place_of(place);
    let function = match (function, line) {
        ("", Some(line)) => format!("(anonymous, line {line})"),
        ("", None) => "(anonymous)".to_owned(),
        (function, _) => function.to_owned(),
    };
    Some((function, file))
}

/// Name and place of an accessor.
fn accessor(text: &str) -> Option<(&str, &str)> {
    let property = ACCESSORS.iter().find_map(|word| text.strip_prefix(word))?;
    let (property, place) = property.split_once(' ')?;
    let is_place = PLACES.iter().any(|start| property.starts_with(start));
    (!is_place).then(|| (&text[..ACCESSORS[0].len() + property.len()], place))
}

/// File and line of `FILE:LINE:COLUMN`, as far as they are there.
fn place_of(place: &str) -> (&str, Option<u32>) {
    let number = |text: &str| text.parse::<u32>().ok();
    let Some((before, last)) = place.rsplit_once(':') else { return (place, None) };
    let Some(last) = number(last) else { return (place, None) };
    match before.rsplit_once(':') {
        Some((file, line)) if number(line).is_some() => (file, number(line)),
        _ => (before, Some(last)),
    }
}

/// `py::sum:/srv/app.py`.
fn python(name: &str) -> Option<(String, &str)> {
    let rest = name.strip_prefix(PYTHON)?;
    let (function, file) = rest.split_once(':').unwrap_or((rest, ""));
    Some((function.to_owned(), file))
}

/// `int32 [App] App.Program::Main(string[])[OptimizedTier1]` (.NET), `java.lang.Object App.sum(int[], int)`, `Interpreter`, ...
fn other(name: &str) -> String {
    if name.starts_with("_Z") || name.starts_with("_R") {
        return short_function(&demangle(name)).to_owned();
    }
    let is_call = |end: usize| end > 0 && !name[..end].ends_with(char::is_whitespace);
    let Some(parameters) = name.find('(').filter(|&end| is_call(end)) else { return name.to_owned() };
    let Some((_, after)) = name[parameters..].rsplit_once(')') else { return name.to_owned() };
    let is_tier = after.is_empty() || (after.starts_with('[') && after.ends_with(']'));
    let function = name[..parameters].rsplit(char::is_whitespace).next().filter(|function| !function.is_empty());
    function.filter(|_| is_tier).unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> (String, String) {
        let frame = parse(name);
        assert_eq!((frame.line, frame.column, frame.inlined), (0, 0, false));
        (frame.function, frame.file)
    }

    fn pair(function: &str, file: &str) -> (String, String) {
        (function.to_owned(), file.to_owned())
    }

    #[test]
    fn names_of_real_runtimes_are_parsed() {
        assert_eq!(parsed("JS:*hash /srv/app.js:12:14"), pair("hash", "/srv/app.js"));
        assert_eq!(parsed("LazyCompile:~ node:internal/fs:3:1"), pair("(anonymous, line 3)", "node:internal/fs"));
        assert_eq!(parsed("Script:~ /srv/my app.js:1:1"), pair("(anonymous, line 1)", "/srv/my app.js"));
        assert_eq!(parsed("Function:-run app.js:7"), pair("run", "app.js"));
        assert_eq!(parsed("JS:^"), pair("(anonymous)", ""));
        for tier in ["*'", "+'", "~", ""] {
            assert_eq!(parsed(&format!("JS:{tier}hash /srv/app.js:12:14")), pair("hash", "/srv/app.js"), "{tier}");
            let accessor = format!("JS:{tier}get size /srv/my app.js:20:9");
            assert_eq!(parsed(&accessor), pair("get size", "/srv/my app.js"), "{tier}");
        }
        assert_eq!(parsed("JS:+' /srv/app.js:3:1"), pair("(anonymous, line 3)", "/srv/app.js"));
        assert_eq!(parsed("JS:*get /srv/my app.js:3:1"), pair("get", "/srv/my app.js"));
        assert_eq!(parsed("JS:~set app.js:7"), pair("set", "app.js"));
        assert_eq!(parsed("Builtin:ArrayMap"), pair("Builtin:ArrayMap", ""));
        assert_eq!(parsed("py::sum:/srv/a:b.py"), pair("sum", "/srv/a:b.py"));
        assert_eq!(parsed("java.lang.Object App.sum(int[], int)"), pair("App.sum", ""));
        assert_eq!(parsed("void App$Node.<init>()"), pair("App$Node.<init>", ""));
        assert_eq!(parsed("Interpreter"), pair("Interpreter", ""));
        assert_eq!(parsed("StubRoutines (1)"), pair("StubRoutines (1)", ""));
        let dotnet = "int32 [App] App.Program::Main(string[])[OptimizedTier1]";
        assert_eq!(parsed(dotnet), pair("App.Program::Main", ""));
        assert_eq!(parsed("_ZN3app3sumEPi"), pair("app::sum", ""));
        assert_eq!(parsed("evalexpr_0_1"), pair("evalexpr_0_1", ""));
        assert_eq!(parsed(""), pair("", ""));
    }

    #[test]
    fn odd_names_stay_as_they_are() {
        for name in ["(", "a(", ")(", "a b(c", "x)y(z)w", "é(ß)ü"] {
            assert_eq!(parse(name).function, name);
        }
    }
}
