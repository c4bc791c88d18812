//! The frame of pages that need no script: they open from disk, print well, load nothing, and follow the reader's light or dark setting.

use std::fmt::Write;

use numapilot_text::markup::escaped_line;

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fbfbf9; --ink: #20262e; --faint: #5c6672; --line: #dcdcd6; }
@media (prefers-color-scheme: dark) { :root { --ground: #16191d; --ink: #e8eaed; --faint: #9aa4b0; --line: #343a42; } }
body { font: 16px/1.5 system-ui, sans-serif; background: var(--ground); color: var(--ink); max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; }
h2 { font-size: 1.15rem; margin-top: 2.2rem; } p.origin, figcaption { color: var(--faint); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: right; padding: .35rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; border-radius: 8px; } ul.notes { color: var(--faint); }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure { break-inside: avoid; } }";

/// A whole page: heading, the line that says where the figures come from, and a body of sound HTML.
pub fn page(title: &str, origin: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{0}</title><style>{STYLE}</style></head><body><main>\n<h1>{0}</h1>\n<p class=\"origin\">{1}</p>\n{body}</main></body></html>\n",
        escaped_line(title),
        escaped_line(origin)
    )
}

/// The list of what limits the figures, if anything does.
pub fn notes(out: &mut String, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    out.push_str("<h2>What to know about these figures</h2>\n<ul class=\"notes\">\n");
    for note in notes {
        let _ = writeln!(out, "<li>{}</li>", escaped_line(note));
    }
    out.push_str("</ul>\n");
}
