//! Sizes as plans write them: `"64 KiB"`, `"1 MiB"`, `4096`.

const UNITS: [(&str, u64); 5] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Bytes of a size such as `64 KiB` or `4096`. `None`: not of that form, or more than 2^63.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim();
    let factor = if unit.is_empty() { 1 } else { UNITS.iter().find(|(name, _)| *name == unit)?.1 };
    number.checked_mul(factor).filter(|bytes| *bytes < 1 << 63)
}

/// The shortest exact form.
pub(crate) fn format(bytes: u64) -> String {
    let (name, factor) =
        UNITS.iter().rev().find(|(_, factor)| bytes.is_multiple_of(*factor) && bytes != 0).unwrap_or(&UNITS[0]);
    format!("{} {name}", bytes / factor)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_units_or_are_bytes() {
        assert_eq!(parse("64 KiB"), Some(65536));
        assert_eq!(parse("1MiB"), Some(1 << 20));
        assert_eq!(parse("17"), Some(17));
        for bad in ["", "KiB", "1 kb", "-1", "1.5 MiB", "99999999999 TiB"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn writing_and_reading_returns_the_same(bytes in 0u64..1 << 62) {
            prop_assert_eq!(parse(&format(bytes)), Some(bytes));
        }
    }
}
