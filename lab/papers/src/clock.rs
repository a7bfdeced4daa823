//! The time of day in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Now, as in RFC 3339: `2026-11-22T12:34:56Z`.
pub fn utc() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format(since.as_secs())
}

fn format(seconds: u64) -> String {
    let (year, month, day) = date(seconds / DAY);
    let rest = seconds % DAY;
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Of a day, counted from 1970-01-01 (the Gregorian calendar repeats itself every 400 years of 146,097 days).
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of a year.
    let since_march = days + 719_468;
    let (era, day) = (since_march / 146_097, since_march % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those of `date -u -d @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format(1_795_350_896), "2026-11-22T12:34:56Z");
        assert_eq!(format(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(format(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
