//! strongSwan's keywords: proposals, identities and traffic selectors as in `swanctl.conf`.
//!
//! Functions `parse_*` parse text into a type of [`casemate_ike::config`], and [`notation`] writes proposals.
//! An error is the end of a sentence that names what was expected. Nothing is looked up. `no_std`.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

extern crate alloc;

mod additional;
mod identity;
mod keyword;
pub mod notation;
pub mod proposal;
mod traffic;

pub use identity::{parse_id_pattern, parse_identity, parse_ppk_id};
pub use traffic::{parse_addr_range, parse_traffic_selector};

use alloc::string::String;

/// The parsed value, or the end of a sentence that names what was expected.
pub type Parsed<T> = Result<T, String>;

pub mod value {
    //! Single values: numbers, lists, and bytes in hexadecimal digits.

    use super::Parsed;
    use alloc::format;
    use alloc::vec::Vec;
    use zeroize::Zeroizing;

    /// Items of a comma-separated list, without empty ones.
    pub fn list_items(text: &str) -> impl Iterator<Item = &str> {
        text.split(',').map(str::trim).filter(|item| !item.is_empty())
    }

    /// Parses a number that fits `T`: decimal, or hexadecimal after `0x`.
    pub fn parse_number<T: TryFrom<u64>>(text: &str) -> Parsed<T> {
        parse_digits(text).and_then(|value| T::try_from(value).ok()).ok_or_else(|| {
            let bits = size_of::<T>().saturating_mul(8);
            format!("a number of at most {bits} bits was expected")
        })
    }

    /// Parses a number: decimal, or hexadecimal after `0x`.
    pub fn parse_digits(text: &str) -> Option<u64> {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => (hex, 16),
            None => (text, 10),
        };
        // from_str_radix would accept a sign.
        if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return None;
        }
        u64::from_str_radix(digits, radix).ok()
    }

    /// Parses bytes in hexadecimal digits, two for each byte. They may be secret.
    pub fn parse_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
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
}
