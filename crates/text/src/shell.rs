//! Words of commands as a POSIX shell reads them back.

/// The word as it is where a shell takes it so, else in single quotation marks. A path or argument that is no UTF-8 is shown with `to_string_lossy` first; what
/// a shell is to run goes through [`quoted_bytes`].
#[must_use]
pub fn quoted(word: &str) -> String {
    String::from_utf8_lossy(&quoted_bytes(word.as_bytes())).into_owned()
}

/// [`quoted`] for arguments and paths, which are bytes of any sort but NUL.
#[must_use]
pub fn quoted_bytes(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:@%,=".contains(byte);
    // Some shells replace `=ls` by the path of `ls`.
    if !word.is_empty() && !word.starts_with(b"=") && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut out = vec![b'\''];
    for &byte in word {
        match byte {
            b'\'' => out.extend_from_slice(br"'\''"),
            other => out.push(other),
        }
    }
    out.push(b'\'');
    out
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn plain_words_stay_and_others_are_quoted() {
        assert_eq!(
            ["a-2/b_c.d", "--seed=3", "", "a b", "it's", "=ls", "~"].map(quoted),
            ["a-2/b_c.d", "--seed=3", "''", "'a b'", r"'it'\''s'", "'=ls'", "'~'"]
        );
        assert_eq!(quoted(&OsStr::from_bytes(b"a\xff").to_string_lossy()), "'a\u{fffd}'");
    }

    #[test]
    fn a_shell_reads_the_very_words() {
        let words: [&[u8]; 10] = [
            b"",
            b"it's",
            b"''",
            b"$HOME `x` \\ \" ;&|",
            b"*",
            b"-n\nnew",
            b"\x1b[2J\t\r",
            b"=ls",
            b"a\xff\xc3",
            "日本".as_bytes(),
        ];
        let mut script = b"printf '[%s]'".to_vec();
        let mut expected = Vec::new();
        for word in words {
            script.extend([b" ".as_slice(), &quoted_bytes(word)].concat());
            expected.extend([b"[".as_slice(), word, b"]"].concat());
        }
        let output = Command::new("sh").arg("-c").arg(OsStr::from_bytes(&script)).output().expect("sh runs");
        assert_eq!(output.stdout, expected);
    }
}
