//! Text within HTML and XML, SVG among it.

/// Text for the content of elements and for attributes in double quotes.
#[must_use]
pub fn escaped(text: &str) -> String {
    with(text, |c| c)
}

/// [`escaped`] for text of one line, such as a picture's: what XML forbids even as a reference (control characters, U+FFFE, U+FFFF) becomes U+FFFD, and
/// so do line breaks and tabs.
#[must_use]
pub fn escaped_line(text: &str) -> String {
    let is_forbidden = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    with(text, |c| if is_forbidden(c) { '\u{fffd}' } else { c })
}

fn with(text: &str, shown: impl Fn(char) -> char) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(shown(c)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_names_is_only_text() {
        let name = "<script>alert('x')</script> &amp; \"y\"";
        let text = "&lt;script&gt;alert('x')&lt;/script&gt; &amp;amp; &quot;y&quot;";
        assert_eq!([escaped(name), escaped_line(name)], [text, text]);
        assert_eq!(escaped("std::vector<naïve, 日本>"), "std::vector&lt;naïve, 日本&gt;");
    }

    #[test]
    fn a_line_holds_only_what_xml_allows() {
        let text = "a\nb\tc\0\u{1b}[m\u{85}\u{fffe}\u{ffff}\u{fffd}é";
        assert_eq!(escaped(text), text);
        assert_eq!(escaped_line(text), "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}[m\u{fffd}\u{fffd}\u{fffd}\u{fffd}é");
    }
}
