//! Values of one word: numbers, and bytes in hexadecimal digits.

use super::Read;
use alloc::format;
use alloc::vec::Vec;
use zeroize::Zeroizing;

/// The items of a list between commas. Empty ones do not count.
pub fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// A number that fits `T`, decimal or hexadecimal after `0x`.
pub fn number<T: TryFrom<u64>>(text: &str) -> Read<T> {
    digits(text).and_then(|value| T::try_from(value).ok()).ok_or_else(|| {
        let bits = size_of::<T>().saturating_mul(8);
        format!("a number of at most {bits} bits was expected")
    })
}

/// The value of decimal digits, or of hexadecimal ones after `0x`.
pub fn digits(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    // from_str_radix would take a sign.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// Bytes in hexadecimal digits, of which there are two for each. They may be a secret.
pub fn hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let mut bytes = Zeroizing::new(Vec::with_capacity(pairs.len()));
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    if rest.is_empty() { Some(bytes) } else { None }
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
