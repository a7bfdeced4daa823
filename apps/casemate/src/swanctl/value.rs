//! Readers of single values: booleans, numbers, times, sizes and choices.
//!
//! A reader takes the text of a value and returns its meaning, or a message that says which value was
//! expected. The formats are those of swanctl.conf(5).

pub(super) use casemate_strongswan::Parsed;
pub(super) use casemate_strongswan::value::{list_items, parse_digits, parse_hex, parse_number};
use casemate_wire::dscp::{Dscp, ParseDscpError};
use std::time::Duration;
use zeroize::Zeroizing;

/// The URIs in a list. One in single quotes may contain commas.
pub(super) fn uris(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let items = text.split(move |character| {
        is_quoted ^= character == '\'';
        character == ',' && !is_quoted
    });
    items.map(|item| item.trim().trim_matches('\'')).filter(|item| !item.is_empty())
}

/// Reads `yes`, `no`, or one of their synonyms.
pub(super) fn truth(text: &str) -> Parsed<bool> {
    let words = [
        ("yes", true),
        ("no", false),
        ("true", true),
        ("false", false),
        ("enabled", true),
        ("disabled", false),
        ("1", true),
        ("0", false),
    ];
    choice(&words)(text).map_err(|_| "yes or no was expected".into())
}

/// Returns a reader of one of `words`, case-insensitive.
pub(super) fn choice<'w, T: Copy>(words: &'w [(&'w str, T)]) -> impl Fn(&str) -> Parsed<T> + use<'w, T> {
    move |text| {
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        found.map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("{} was expected", or(&names))
        })
    }
}

/// Formats a list as `a, b or c`.
pub(super) fn or(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).into(),
        [front @ .., last] => format!("{} or {last}", front.join(", ")),
    }
}

/// Reads a number of type `T` other than 0.
pub(super) fn positive<T: TryFrom<u64>>(text: &str) -> Parsed<T> {
    if parse_digits(text) == Some(0) {
        return Err("a number above 0 was expected".into());
    }
    parse_number(text)
}

/// Reads a time in seconds or with one of the units s, m, h and d. 0 stands for "never" and gives `None`.
pub(super) fn time(text: &str) -> Parsed<Option<Duration>> {
    let units = [('s', 1), ('m', 60), ('h', 3_600), ('d', 86_400)];
    let seconds = scaled(text, &units).filter(|seconds| *seconds <= u64::from(u32::MAX));
    let seconds = seconds.ok_or("a time of at most 136 years was expected, such as 30s, 5m, 4h or 1d")?;
    Ok(Some(Duration::from_secs(seconds)).filter(|time| !time.is_zero()))
}

/// Reads a number of bytes, also with one of the units k, m and g (powers of 1024). 0 gives `None`.
pub(super) fn volume(text: &str) -> Parsed<Option<u64>> {
    let units = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];
    let bytes =
        scaled(text, &units).ok_or("a number of bytes was expected, such as 500000000, 500m or 2g")?;
    Ok(Some(bytes).filter(|bytes| *bytes != 0))
}

/// Reads a DSCP value, by name or number.
pub(super) fn code_point(text: &str) -> Parsed<Dscp> {
    text.parse().map_err(|why: ParseDscpError| why.to_string())
}

/// Reads a number of packets. 0 gives `None`.
pub(super) fn count(text: &str) -> Parsed<Option<u64>> {
    parse_number::<u64>(text).map(|count| Some(count).filter(|count| *count != 0))
}

/// Reads a number with an optional unit, case-insensitive.
fn scaled(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let last = text.chars().next_back()?.to_ascii_lowercase();
    match units.iter().find(|(unit, _)| *unit == last) {
        // The final `d` of a hexadecimal number is a digit, not a unit.
        Some((_, factor)) if parse_digits(text).is_none() => {
            let number = text.get(..text.len().checked_sub(1)?)?.trim_end_matches(' ');
            parse_digits(number)?.checked_mul(*factor)
        }
        _ => parse_digits(text),
    }
}

/// Decodes Base64 (RFC 4648 section 4) with or without padding. The bytes may be a secret.
pub(crate) fn base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    for group in text.chunks(4) {
        let mut bits = 0u32;
        for position in 0..4 {
            let six = group.get(position).map_or(Some(0), |byte| six_bits(*byte))?;
            bits = bits << 6 | six;
        }
        let [_, whole @ ..] = bits.to_be_bytes();
        // Two characters give one byte, three give two; a single one is an error.
        let len = group.len().checked_sub(1).filter(|len| *len > 0)?;
        bytes.extend(whole.iter().take(len));
    }
    Some(bytes)
}

fn six_bits(byte: u8) -> Option<u32> {
    let value = match byte {
        b'A'..=b'Z' => byte.wrapping_sub(b'A'),
        b'a'..=b'z' => byte.wrapping_sub(b'a').wrapping_add(26),
        b'0'..=b'9' => byte.wrapping_sub(b'0').wrapping_add(52),
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes() {
        let seconds = |text| time(text).map(|time| time.map(|time| time.as_secs()));
        for (text, value) in
            [("5400", 5400), ("30s", 30), ("5m", 300), ("4h", 14_400), ("1d", 86_400), ("2 H", 7_200)]
        {
            assert_eq!(seconds(text), Ok(Some(value)), "{text}");
        }
        assert_eq!(seconds("0s"), Ok(None));
        assert_eq!(seconds("0x1d"), Ok(Some(29)));
        for text in ["", "s", "-1", "1w", "1m30s", "1.5h", "99999999999999999999d", "4294967296", "١s"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!(volume("1K"), Ok(Some(1024)));
        assert_eq!(volume("2 g"), Ok(Some(2 << 30)));
        assert_eq!(volume("0"), Ok(None));
        assert!(volume("17179869184g").is_err());
        assert_eq!(count("1000000"), Ok(Some(1_000_000)));
    }

    #[test]
    fn numbers_booleans_and_choices() {
        assert_eq!(parse_number::<u16>("0x1F4"), Ok(500));
        assert_eq!(parse_number::<u8>("256"), Err("a number of at most 8 bits was expected".into()));
        assert!(parse_number::<u8>("+1").is_err());
        assert!(positive::<u16>("0").is_err());
        assert_eq!(truth("Enabled"), Ok(true));
        assert_eq!(truth("maybe"), Err("yes or no was expected".into()));
        assert_eq!(choice(&[("a", 1), ("b", 2), ("c", 3)])("x"), Err("a, b or c was expected".into()));
        assert_eq!(list_items(" a, b ,,c,").collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn bytes() {
        let hex = |text| parse_hex(text).map(|bytes| bytes.to_vec());
        assert_eq!(hex("0aFf"), Some(vec![10, 255]));
        assert_eq!((hex("0"), hex("0g"), hex("")), (None, None, Some(vec![])));
        let base64 = |text| base64(text).map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
        // RFC 4648 section 10.
        for (text, plain) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(base64(text).as_deref(), Some(plain));
            assert_eq!(base64(text.trim_end_matches('=')).as_deref(), Some(plain));
        }
        for text in ["Z", "Zm9vY", "Zm 9v", "Zm9-"] {
            assert_eq!(base64(text), None, "{text}");
        }
    }
}
