//! One self-contained HTML page: the data packed, the page's own script and style, nothing fetched. `docs/report.md` describes page and data;
//! the script's source is in `web/`.

mod contents;
mod findings;
mod head;
mod pack;
mod tables;

pub use contents::Page;

use numapilot_host::workers;
use numapilot_text::markup::escaped;
use numapilot_text::style::clean;

/// The page's script: `web/`, built by `npm run build` there. A test holds it to a fresh build.
const SCRIPT: &str = include_str!("../../assets/report.js");
/// The page's style, of the same build.
const STYLE: &str = include_str!("../../assets/report.css");
/// The page's content security policy: it allows only that script and that style, by their hashes.
const POLICY: &str = include_str!("../../assets/report.csp");

/// Largest number of samples or cells in the page: a file of some 10 MB, which the page filters in well below 100 ms.
pub const ROW_BUDGET: usize = 250_000;

/// Renders the page.
#[must_use]
pub fn html(page: &Page<'_>) -> String {
    // Both walk every access several times; neither needs the other.
    let (cube, figures) = workers::both(|| page.analysis.cube(ROW_BUDGET), || head::Figures::of(page.analysis));
    let mut tables = tables::Tables::new(page.analysis.trace());
    tables.cube(&cube);
    let head = head::head(page, &cube, &figures, &tables);
    let data = tables.columns.pack(head.value);
    let title = shown(&format!("{} on {}", head.program, page.heading.machine));
    let summary: String = head.summary.iter().map(|line| format!("<p>{}</p>\n", shown(line))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"generator\" content=\"numapilot {version}\">\n\
         <title>{title} - numapilot</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <noscript>\n<h1>{title}</h1>\n{summary}<p>The views need JavaScript.</p>\n</noscript>\n\
         <script id=\"data\" type=\"application/octet-stream\">{data}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>\n",
        policy = POLICY.trim_end(),
        version = escaped(page.version),
    )
}

/// Text that holds names of programs, as the script shows it: what would turn the text beside a name around stands there as an escape.
fn shown(text: &str) -> String {
    escaped(&clean(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_turns_no_text_beside_it_around() {
        assert_eq!(shown("evil\u{202e}gpj\u{7}<b>"), "evil\\u{202e}gpj\\u{7}&lt;b&gt;");
    }
}
