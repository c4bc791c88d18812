//! Moments as dates, in universal time: the same on every machine.

/// `2026-11-22 01:02:03.123 UTC` of nanoseconds since 1970 (UTC, without leap seconds, as the kernel's `CLOCK_REALTIME` counts).
#[must_use]
pub fn utc(unix_ns: u64) -> String {
    // Days to a date of the Gregorian calendar, in eras of 400 years that begin in March (the leap day is then a year's last).
    let shifted = unix_ns / 86_400_000_000_000 + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {} UTC", time_of_day(unix_ns))
}

/// `01:02:03.123`: the time of [`utc`] without its day.
#[must_use]
pub fn time_of_day(unix_ns: u64) -> String {
    let ms = unix_ns / 1_000_000;
    let (hour, minute, second) = (ms / 3_600_000 % 24, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{hour:02}:{minute:02}:{second:02}.{:03}", ms % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00.000 UTC");
        assert_eq!(utc(951_782_399_999_000_000), "2000-02-28 23:59:59.999 UTC");
        assert_eq!(utc(951_782_400_000_000_000), "2000-02-29 00:00:00.000 UTC");
        assert_eq!(utc(1_735_689_599_000_000_000), "2024-12-31 23:59:59.000 UTC");
        assert_eq!(utc(4_107_542_400_000_000_000), "2100-03-01 00:00:00.000 UTC");
        assert_eq!(utc(u64::MAX), "2554-07-21 23:34:33.709 UTC");
        assert_eq!(time_of_day(951_782_399_999_000_000), "23:59:59.999");
    }
}
