//! Time stamps of log messages: UTC in the format of RFC 3339, with milliseconds.
//!
//! UTC needs no time zone file, which an instance without privileges might not be able to read, and lines of
//! hosts in different time zones can be compared.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// Formats a time, such as `2026-11-26T06:31:11.042Z`. A time before 1970 is written as the beginning of
/// 1970.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / SECONDS_PER_DAY, since.as_secs() % SECONDS_PER_DAY);
    let Date { year, month, day } = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// A day of the Gregorian calendar.
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

/// The date of a day, counted from 1 January 1970. Years begin in March here, so that the leap day is the
/// last day of a year.
fn date(days_since_1970: u64) -> Date {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    // 1 March 0000 is 719,468 days before 1 January 1970.
    let days = days_since_1970.saturating_add(719_468);
    let (era, day_of_era) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let leap_days = day_of_era / 1_460 + day_of_era / (DAYS_OF_400_YEARS - 1);
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let day_of_year = day_of_era + year_of_era / 100 - (365 * year_of_era + year_of_era / 4);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    Date { year, month, day }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Values of `date --utc --rfc-3339=seconds --date @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_709_164_800, "2024-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn days_follow_one_another() {
        let mut last = date(0);
        for day in 1..=50_000 {
            let next = date(day);
            let follows = match (next.day, next.month) {
                (1, 1) => (next.year, last.month, last.day) == (last.year + 1, 12, 31),
                (1, month) => month == last.month + 1 && last.day >= 28 && next.year == last.year,
                (day, month) => (day, month, next.year) == (last.day + 1, last.month, last.year),
            };
            assert!(follows, "day {day}");
            last = next;
        }
    }
}
