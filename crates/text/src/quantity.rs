//! Numbers with units, as people write them on command lines and in configuration files.

use std::time::Duration;

/// Bytes with K, M, G or T (powers of 1,024): `200M`, `1.5 GiB`.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let bytes = number * unit_of_bytes(unit)?;
    if (0.0..1e18).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err("it must be 0 bytes or more, and below 1e18".to_owned())
    }
}

/// Number of bytes of a unit.
///
/// # Errors
/// The unit is not known; the message lists those that are.
pub fn unit_of_bytes(unit: &str) -> Result<f64, String> {
    let shift = match unit {
        "" | "B" => 0,
        "K" | "KiB" | "k" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        other => return Err(format!("`{other}` is not a unit of bytes; use K, M, G or T")),
    };
    Ok((1_u64 << shift) as f64)
}

/// A duration: `100ms`, `10s`, `5m`, `1h`; a number without a unit is in seconds.
///
/// # Errors
/// The message describes what is wrong and what is accepted.
pub fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let scale = match unit {
        "" | "s" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        other => return Err(format!("`{other}` is not a unit of time; use us, ms, s, m or h")),
    };
    Duration::try_from_secs_f64(number * scale).map_err(|_| "the time must be 0 or more, and finite".to_owned())
}

/// A share as a percentage: `1%`, `0.5 %`, `30`; between 0 and 100.
///
/// # Errors
/// The message describes what is wrong.
pub fn percentage(text: &str) -> Result<f64, String> {
    let number: f64 =
        text.trim_end_matches('%').trim().parse().map_err(|_| format!("`{text}` is not a percentage, such as 1%"))?;
    if (0.0..=100.0).contains(&number) {
        Ok(number / 100.0)
    } else {
        Err("a percentage is between 0 and 100".to_owned())
    }
}

fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = digits.trim().parse().map_err(|_| format!("`{}` is not a number", digits.trim()))?;
    Ok((number, &text[digits.len()..]))
}

#[cfg(test)]
mod tests {
    //! What is understood, and what is not.

    use super::*;

    #[test]
    fn units_are_understood() {
        assert_eq!(bytes("200M"), Ok(200 << 20));
        assert_eq!(bytes("1.5 KiB"), Ok(1536));
        assert_eq!(bytes("7"), Ok(7));
        assert_eq!(time("100ms"), Ok(Duration::from_millis(100)));
        assert_eq!(time("1.5 h"), Ok(Duration::from_secs(5400)));
        assert_eq!(time("3"), Ok(Duration::from_secs(3)));
        assert_eq!(percentage("0.5%"), Ok(0.005));
        assert_eq!(percentage("30"), Ok(0.3));
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["", "M", "-1M", "5X", "nan", "1e30T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        for text in ["", "ms", "-1s", "5 days", "nan", "1e300h"] {
            assert!(time(text).is_err(), "{text}");
        }
        for text in ["", "%", "-1%", "101%", "nan", "a lot"] {
            assert!(percentage(text).is_err(), "{text}");
        }
    }
}
