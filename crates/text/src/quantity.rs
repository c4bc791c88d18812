//! Numbers with units, as people write them on command lines and in configuration files.

use std::time::Duration;

use crate::units::BYTE_UNITS;

/// Bytes with K, M, G or T (powers of 1,024): `200M`, `1.5 GiB`. Fractions of a byte are cut off.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let bytes = number * unit_of_bytes(unit)? as f64;
    if (0.0..1e18).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("it must be 0 bytes or more, and below 1e18".to_owned())
    }
}

/// Bytes as [`bytes`], but a whole number of the unit, so that none is lost: `64 KiB`, `4096`; below 8 EiB.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn whole_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = parts(text);
    let unit = unit_of_bytes(unit)?;
    let number: u64 = number.parse().map_err(|_| format!("`{number}` is not a whole number"))?;
    let bytes = number.checked_mul(unit).filter(|bytes| *bytes < 1 << 63);
    bytes.ok_or_else(|| "it must be below 8 EiB".to_owned())
}

/// Number of bytes of a unit: its name, or the first letter of it, in capitals or small letters.
fn unit_of_bytes(unit: &str) -> Result<u64, String> {
    let is_it = |name: &&str| [*name, &name[..1]].iter().any(|known| unit.eq_ignore_ascii_case(known));
    match BYTE_UNITS.iter().position(is_it) {
        Some(power) => Ok(1_u64 << (10 * power)),
        None if unit.is_empty() => Ok(1),
        None => Err(format!("`{unit}` is not a unit of bytes; use K, M, G or T")),
    }
}

/// A duration: `100ms`, `10s`, `5m`, `1h`; a number without a unit is in seconds.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn time(text: &str) -> Result<Duration, String> {
    duration(text, "s")
}

/// A duration as [`time`], but a number without a unit is in milliseconds: for options that took a number of them before they took units.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn time_in_ms(text: &str) -> Result<Duration, String> {
    duration(text, "ms")
}

/// A duration as [`time`], but a number without a unit is in microseconds.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn time_in_us(text: &str) -> Result<Duration, String> {
    duration(text, "us")
}

/// A duration, with the unit of a number that has none.
fn duration(text: &str, unit_of_bare: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let unit = if unit.is_empty() { unit_of_bare } else { unit };
    let scale = match unit {
        "s" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("`{other}` is not a unit of time; use us, ms, s, m or h")),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| "the time must be 0 or more, and finite".to_owned())
}

/// A change as a percentage, as a share: `23%`, `-0.5 %`, `+30`.
///
/// # Errors
/// The message describes what is wrong.
pub fn change(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse::<f64>();
    let percent = number.ok().filter(|number| number.is_finite());
    percent.map(|percent| percent / 100.0).ok_or_else(|| format!("`{text}` is not a percentage, such as 30%"))
}

/// A percentage, as a share: `1%`, `0.5 %`, `130`; 0 or more.
///
/// # Errors
/// The message describes what is wrong.
pub fn percentage(text: &str) -> Result<f64, String> {
    match change(text)? {
        share if share >= 0.0 => Ok(share),
        _ => Err("the percentage must be 0 or more".to_owned()),
    }
}

/// A percentage of a whole, as a share: between 0 and 100.
///
/// # Errors
/// The message describes what is wrong.
pub fn part(text: &str) -> Result<f64, String> {
    match change(text)? {
        share if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("the percentage must be between 0 and 100".to_owned()),
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let (number, unit) = parts(text);
    let shown = if number.is_empty() { text } else { number };
    Ok((number.parse().map_err(|_| format!("`{shown}` is not a number"))?, unit))
}

/// The number, and the unit that follows it.
fn parts(text: &str) -> (&str, &str) {
    let text = text.trim();
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (number.trim(), &text[number.len()..])
}

#[cfg(test)]
mod tests {
    //! What is understood, and what is not.

    use proptest::prelude::*;

    use super::*;
    use crate::units::exact_bytes;

    #[test]
    fn units_are_understood() {
        assert_eq!(bytes("200M"), Ok(200 << 20));
        assert_eq!(bytes("1.5 KiB"), Ok(1536));
        assert_eq!(bytes("7"), Ok(7));
        assert_eq!(
            ["64 KiB", "1MiB", "17", " 1g ", "512mib"].map(|text| whole_bytes(text).ok()),
            [65536, 1 << 20, 17, 1 << 30, 512 << 20].map(Some)
        );
        assert_eq!(time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(time("1.5 h"), Ok(Duration::from_secs(5400)));
        assert_eq!(time("3"), Ok(Duration::from_secs(3)));
        assert_eq!(
            ["50", "0.5 s", "250us"].map(time_in_ms),
            [50_000, 500_000, 250].map(|us| Ok(Duration::from_micros(us)))
        );
        assert_eq!(["100", "1 ms"].map(time_in_us), [100, 1000].map(|us| Ok(Duration::from_micros(us))));
        assert_eq!(percentage("0.5%"), Ok(0.005));
        assert_eq!(["30", "0.5 %", " 130 % "].map(percentage), [Ok(0.3), Ok(0.005), Ok(1.3)]);
        assert_eq!(["+23%", "-5", "2 %"].map(change), [Ok(0.23), Ok(-0.05), Ok(0.02)]);
        assert_eq!(["0", "100%"].map(part), [Ok(0.0), Ok(1.0)]);
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "M", "-1M", "5X", "nan", "1e30T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for text in ["", "ms", "-1s", "5 days", "nan", "1e300h"] {
            assert!(time(text).is_err() && time_in_ms(text).is_err(), "{text}");
        }
        for text in ["", "KiB", "1 kb", "-1", "1.5 MiB", "8 EiB", "99999999999 TiB"] {
            assert!(whole_bytes(text).is_err(), "{text}");
        }
        for text in ["", "%", "nan", "inf%", "1%%", "% 1", "a lot"] {
            assert!(change(text).is_err() && percentage(text).is_err() && part(text).is_err(), "{text}");
        }
        assert!(percentage("-1%").is_err() && part("-1%").is_err() && part("101%").is_err());
    }

    proptest! {
        #[test]
        fn whole_bytes_are_read_as_they_were_written(bytes in 0u64..1 << 63) {
            prop_assert_eq!(whole_bytes(&exact_bytes(bytes)), Ok(bytes));
        }
    }
}
