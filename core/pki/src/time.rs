//! UTCTime and GeneralizedTime in the form that RFC 5280 sections 4.1.2.5 and 5.1.2.4 require: to the second,
//! in UTC.

use casemate_crypto::der::{Malformed, Reader};

pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;

/// Seconds since 1970. May be negative.
pub(crate) type Seconds = i64;

/// Reads the next value as a time.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Seconds, Malformed> {
    let value = reader.read_any()?;
    let (year, rest) = match (value.tag, value.content) {
        (UTC_TIME, [a, b, rest @ ..]) => {
            let year = number(&[*a, *b])?;
            // RFC 5280 section 4.1.2.5.1: 50 means 1950.
            (year.saturating_add(if year >= 50 { 1900 } else { 2000 }), rest)
        }
        (GENERALIZED_TIME, [a, b, c, d, rest @ ..]) => (number(&[*a, *b, *c, *d])?, rest),
        _ => return Err(Malformed),
    };
    let [m1, m2, d1, d2, h1, h2, i1, i2, s1, s2, b'Z'] = rest else { return Err(Malformed) };
    let (month, day) = (number(&[*m1, *m2])?, number(&[*d1, *d2])?);
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*i1, *i2])?, number(&[*s1, *s2])?);
    if hour > 23 || minute > 59 || second > 59 {
        return Err(Malformed);
    }
    let of_day = hour.saturating_mul(3600).saturating_add(minute.saturating_mul(60)).saturating_add(second);
    Ok(days(year, month, day).ok_or(Malformed)?.saturating_mul(86_400).saturating_add(of_day))
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    digits.iter().try_fold(0_i64, |number, digit| match digit {
        b'0'..=b'9' => Ok(number.saturating_mul(10).saturating_add(i64::from(digit & 0x0F))),
        _ => Err(Malformed),
    })
}

/// Days from 1970 to a date of the Gregorian calendar; `None` if the date does not exist.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year.checked_rem(4)? == 0 && (year.checked_rem(100)? != 0 || year.checked_rem(400)? == 0);
    let february = if is_leap { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    if day < 1 || day > *months.get(before)? {
        return None;
    }
    let in_year = months.iter().take(before).sum::<i64>().checked_add(day)?.checked_sub(1)?;
    since_year_one(year)?.checked_add(in_year)?.checked_sub(since_year_one(1970)?)
}

/// Days from the year 1 to the first of January of `year`.
fn since_year_one(year: i64) -> Option<i64> {
    let past = year.checked_sub(1)?;
    let leap =
        past.checked_div(4)?.checked_sub(past.checked_div(100)?)?.checked_add(past.checked_div(400)?)?;
    past.checked_mul(365)?.checked_add(leap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::der::write;

    fn utc(text: &str) -> Result<Seconds, Malformed> {
        read(&mut Reader::new(&write(UTC_TIME, &[text.as_bytes()])))
    }

    fn generalized(text: &str) -> Result<Seconds, Malformed> {
        read(&mut Reader::new(&write(GENERALIZED_TIME, &[text.as_bytes()])))
    }

    /// Computed with GNU date: `date -u -d '2000-02-29 23:59:59' +%s`.
    #[test]
    fn times_match_gnu_date() {
        for (text, seconds) in [
            ("700101000000Z", 0),
            ("691231235959Z", -1),
            ("000229235959Z", 951_868_799),
            ("491231235959Z", 2_524_607_999),
            ("500101000000Z", -631_152_000),
            ("261121160704Z", 1_795_277_224),
        ] {
            assert_eq!(utc(text), Ok(seconds), "{text}");
        }
        for (text, seconds) in [
            ("20000229235959Z", 951_868_799),
            ("20500101000000Z", 2_524_608_000),
            ("99991231235959Z", 253_402_300_799),
            ("19000301000000Z", -2_203_891_200),
        ] {
            assert_eq!(generalized(text), Ok(seconds), "{text}");
        }
    }

    #[test]
    fn other_time_formats_are_rejected() {
        for text in [
            "0001010000Z",
            "000101000000",
            "000101000000+0000",
            "000101000000.5Z",
            "001301000000Z",
            "000001000000Z",
            "000132000000Z",
            "000100000000Z",
            "010229000000Z",
            "000101240000Z",
            "000101006000Z",
            "000101000060Z",
            "",
            "00010100000aZ",
            "-00101000000Z",
        ] {
            assert_eq!(utc(text), Err(Malformed), "{text}");
        }
        for text in
            ["20000101000000.1Z", "000101000000Z", "19000229000000Z", "2000010100Z", "20000101000000+0100"]
        {
            assert_eq!(generalized(text), Err(Malformed), "{text}");
        }
    }
}
