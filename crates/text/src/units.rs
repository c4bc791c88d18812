//! Formats numbers for people: three significant digits, always with a unit.

/// Names of units of bytes, each 1,024 times the one before.
pub(crate) const BYTE_UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `12.3 M`: a count with a decimal prefix; whole numbers below 10,000 as they are.
#[must_use]
pub fn count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 10_000.0 {
        return format!("{value:.0}");
    }
    scaled(value, 1000.0, &["", "k", "M", "G", "T", "P"])
}

/// `1 thread`, `12.3 k threads`: a count with its noun, and whatever else differs with the number.
#[must_use]
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number as f64), if number == 1 { one } else { many })
}

/// `15.2 MiB`: bytes with a binary prefix.
#[must_use]
pub fn bytes(value: u64) -> String {
    scaled(value as f64, 1024.0, &BYTE_UNITS)
}

/// `7.5 GiB`, `512 KiB`: bytes with a binary prefix and at most one decimal, for names and drawings.
#[must_use]
pub fn short_bytes(value: u64) -> String {
    let (mut value, mut unit) = (value as f64, 0);
    // 1023.95 would round to 1024 of the smaller unit.
    while value >= 1023.95 && unit + 1 < BYTE_UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short_number(value), BYTE_UNITS[unit])
}

/// `64 KiB`, `4097 B`: bytes in the greatest unit of which they are a whole number, so that [`crate::quantity::whole_bytes`] reads the same number.
#[must_use]
pub fn exact_bytes(value: u64) -> String {
    let unit = if value == 0 { 0 } else { value.trailing_zeros() / 10 };
    format!("{} {}", value >> (10 * unit), BYTE_UNITS[unit as usize])
}

/// `12.8`, `512`: at most one decimal, and none where it would be 0.
#[must_use]
pub fn short_number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// `1.50 ms`: a duration or moment given in nanoseconds.
#[must_use]
pub fn time_ns(value: u64) -> String {
    let value = value as f64;
    if value >= 60e9 {
        let seconds = (value / 1e9).round() as u64;
        return format!("{} min {:02} s", seconds / 60, seconds % 60);
    }
    scaled(value, 1000.0, &["ns", "µs", "ms", "s"])
}

/// `75.0 %` of a ratio that is no part of a whole, such as an error: 0 and 1 are no limits of it.
#[must_use]
pub fn percent(ratio: f64) -> String {
    format!("{} %", percent_number(ratio))
}

/// `75.0`: the number of [`percent`] alone, for columns under a `%` heading whose cells add up.
#[must_use]
pub fn percent_number(ratio: f64) -> String {
    format!("{:.1}", ratio * 100.0)
}

/// `75 %` of a ratio as [`percent`], where no digit behind the point means anything: imbalances, loads, limits.
#[must_use]
pub fn whole_percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// `+120 %`, `-4.1 %`: a change as a share of what it changes.
#[must_use]
pub fn signed_percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() < 9.95 { format!("{percent:+.1} %") } else { format!("{percent:+.0} %") }
}

/// Whether a share from `least` on, which rounds to all, is not all. What sums of shares differ from 1 by in the last digits is nothing.
#[must_use]
pub fn is_not_quite_all(share: f64, least: f64) -> bool {
    share >= least && share < 1.0 - 1e-9
}

/// The one rule for a part of a whole, between 0 and 1, with as many digits behind the point: what is not all does not read as all (`>99.9 %`), nor something
/// as nothing (`<0.1 %`).
#[must_use]
pub fn part_percent_to(part: f64, digits: usize) -> String {
    // What the last digit counts, in per cent.
    let unit = 0.1_f64.powi(digits as i32);
    match part * 100.0 {
        percent if percent > 0.0 && percent < unit / 2.0 => format!("<{unit:.digits$} %"),
        _ if is_not_quite_all(part, 1.0 - unit / 200.0) => format!(">{:.digits$} %", 100.0 - unit),
        percent => format!("{percent:.digits$} %"),
    }
}

/// `75.0 %`, `<0.1 %`, `>99.9 %` of a part of a whole.
#[must_use]
pub fn part_percent(part: f64) -> String {
    part_percent_to(part, 1)
}

/// `25 %`, `2.5 %`, `0.25 %`, `<0.01 %`: a part of a whole in two significant digits, where small parts decide: shares of writes, for one.
#[must_use]
pub fn significant_percent(part: f64) -> String {
    part_percent_to(part, [0.0995, 0.00995].iter().filter(|least| part.abs() < **least).count())
}

/// `75.0 %`, `0.110 %`, `<0.001 %`: a part of a whole beside a threshold that may be a small one.
#[must_use]
pub fn fine_percent(part: f64) -> String {
    part_percent_to(part, if part < 0.01 { 3 } else { 1 })
}

/// `81`: a share as a bare whole percentage, `.` for nothing at all, `<1` for next to nothing, `>99` for not quite all: for narrow columns under a `%` heading.
#[must_use]
pub fn bare_percent(share: f64) -> String {
    if share <= 0.0 {
        ".".to_owned()
    } else if share < 0.005 {
        "<1".to_owned()
    } else if is_not_quite_all(share, 0.995) {
        ">99".to_owned()
    } else {
        format!("{:.0}", share * 100.0)
    }
}

/// `37 %`, `4.1 %`, `<0.1 %`, `>99 %`: a share as short as it can be told, for pictures. What is not all does not read as all, nor something as nothing.
#[must_use]
pub fn short_percent(share: f64) -> String {
    part_percent_to(share, usize::from(share < 0.0995))
}

fn scaled(value: f64, base: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // 999.5 would round to 1000 of the smaller unit.
    while value.abs() >= base * 0.9995 && unit + 1 < units.len() {
        value /= base;
        unit += 1;
    }
    let digits = match value.abs() {
        v if unit == 0 && v.fract() == 0.0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    let gap = if units[unit].is_empty() { "" } else { " " };
    format!("{value:.digits$}{gap}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_their_unit() {
        assert_eq!(count(0.0), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(count(1_080.0), "1080");
        assert_eq!(count(12_345_678.0), "12.3 M");
        assert_eq!(count(999_960.0), "1.00 M");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(15 << 20), "15.0 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(
            [0, 4096, 1536 << 10, (1 << 20) - 1, 8053063680, u64::MAX].map(short_bytes),
            ["0 B", "4 KiB", "1.5 MiB", "1 MiB", "7.5 GiB", "16 EiB"]
        );
        assert_eq!(
            [0, 4097, 1536, 64 << 10, 1 << 63, u64::MAX].map(exact_bytes),
            ["0 B", "4097 B", "1536 B", "64 KiB", "8 EiB", "18446744073709551615 B"]
        );
        assert_eq!(time_ns(1_500_000), "1.50 ms");
        assert_eq!(time_ns(61_000_000_000), "1 min 01 s");
        assert_eq!(time_ns(119_700_000_000), "2 min 00 s");
        assert_eq!(percent(0.75), "75.0 %");
        assert_eq!([0.0, 0.0004, 0.814_52, 1.0].map(percent_number), ["0.0", "0.0", "81.5", "100.0"]);
        assert_eq!(
            [0.0, 0.0004, 0.0006, 0.75, 0.9994, 0.9996, 1.0].map(part_percent),
            ["0.0 %", "<0.1 %", "0.1 %", "75.0 %", "99.9 %", ">99.9 %", "100.0 %"]
        );
        assert_eq!(
            [0.0, 0.0003, 0.0004, 0.0007, 0.041, 0.37].map(short_percent),
            ["0.0 %", "<0.1 %", "<0.1 %", "0.1 %", "4.1 %", "37 %"]
        );
        assert_eq!(
            [0.9949, 0.9951, 0.996, 0.99999, 1.0 - 1e-12, 1.0, 1.5].map(short_percent),
            ["99 %", ">99 %", ">99 %", ">99 %", "100 %", "100 %", "150 %"]
        );
        assert_eq!(
            [0.0, 0.00004, 0.0025, 0.025, 0.25, 0.0996, 0.996, 1.0].map(significant_percent),
            ["0.00 %", "<0.01 %", "0.25 %", "2.5 %", "25 %", "10 %", ">99 %", "100 %"]
        );
        assert_eq!(
            [0.0, 0.000_001, 0.0011, 0.02, 0.9996].map(fine_percent),
            ["0.000 %", "<0.001 %", "0.110 %", "2.0 %", ">99.9 %"]
        );
        assert_eq!([0.00004, 0.0123, 0.99996].map(|part| part_percent_to(part, 2)), ["<0.01 %", "1.23 %", ">99.99 %"]);
        assert_eq!([0.003, 0.354, 1.27].map(whole_percent), ["0 %", "35 %", "127 %"]);
        assert_eq!(
            [1.2, 0.0996, 0.0994, 0.0, -0.041, -0.5].map(signed_percent),
            ["+120 %", "+10 %", "+9.9 %", "+0.0 %", "-4.1 %", "-50 %"]
        );
        assert_eq!(bare_percent(0.0), ".");
        assert_eq!(bare_percent(0.001), "<1");
        assert_eq!(bare_percent(0.814), "81");
        assert_eq!([0.9949, 0.996, 1.0].map(bare_percent), ["99", ">99", "100"]);
    }
}
