//! Glob patterns of plans: `*` matches any run of characters, `?` any one, every other character itself.

/// Whether the whole of `text` matches `pattern`. Linear in `text` for each `*`; never recursive.
#[must_use]
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to resume after a mismatch: behind the last star, which then matches one more character.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    p = after;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*.c", "x/y.c", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("*a*b*", "xxaxxbxx", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// The definition, by recursion.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.first() {
            None => text.is_empty(),
            Some(b'*') => slow(&pattern[1..], text) || (!text.is_empty() && slow(pattern, &text[1..])),
            Some(&c) => !text.is_empty() && (c == b'?' || c == text[0]) && slow(&pattern[1..], &text[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_does_what_the_definition_says(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            prop_assert_eq!(glob_matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
