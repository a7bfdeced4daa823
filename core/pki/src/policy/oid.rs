//! Object identifiers of policies, as text and in DER.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

/// Maximum length of an object identifier in DER, in bytes.
const MAX_LEN: usize = 64;

/// Object identifier of a certificate policy. `Display` writes it as numbers with dots between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOid(Vec<u8>);

impl PolicyOid {
    /// Parses numbers with dots between them, such as `1.3.6.1.4.1.36906.1.1.1`; `None` if that is no object
    /// identifier (ITU-T X.660), or a very long one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut arcs = text.split('.').map(arc);
        let (first, second) = (arcs.next()??, arcs.next()??);
        if first > 2 || first < 2 && second > 39 {
            return None;
        }
        let mut content = Vec::new();
        write_arc(first.checked_mul(40)?.checked_add(second)?, &mut content);
        for arc in arcs {
            write_arc(arc?, &mut content);
        }
        (content.len() <= MAX_LEN).then_some(Self(content))
    }

    /// Content of the OBJECT IDENTIFIER.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A number without sign and without leading zeros.
fn arc(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_number)
}

/// Writes a number in base 128; all bytes but the last have their first bit set.
fn write_arc(arc: u64, out: &mut Vec<u8>) {
    let digits = (0..10u32).rev().map(|place| (arc >> place.saturating_mul(7)).to_le_bytes()[0] & 0x7F);
    let mut significant: Vec<u8> = digits.skip_while(|digit| *digit == 0).collect();
    let last = significant.pop().unwrap_or(0);
    out.extend(significant.iter().map(|digit| digit | 0x80));
    out.push(last);
}

impl fmt::Display for PolicyOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut text, mut arc, mut is_first) = (String::new(), 0u64, true);
        for byte in &self.0 {
            arc = arc.wrapping_shl(7) | u64::from(byte & 0x7F);
            if byte & 0x80 != 0 {
                continue;
            }
            if is_first {
                let first = arc.checked_div(40).unwrap_or_default().min(2);
                write!(text, "{first}.{}", arc.saturating_sub(first.saturating_mul(40)))?;
            } else {
                write!(text, ".{arc}")?;
            }
            (arc, is_first) = (0, false);
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn object_identifiers_as_text() {
        let der = |text| PolicyOid::parse(text).map(|oid| oid.0);
        assert_eq!(der("2.5.29.32.0"), Some([0x55, 0x1D, 0x20, 0].into()), "anyPolicy");
        assert_eq!(
            der("1.2.840.113549"),
            Some([0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D].into()),
            "RSA (RFC 8017)"
        );
        assert_eq!(der("2.999.3"), Some([0x88, 0x37, 3].into()), "ITU-T X.690 section 8.19.5");
        let largest = alloc::format!("1.2.{}", u64::MAX);
        for text in ["1.3.6.1.4.1.36906.1.1.1", "0.0", "0.39", "2.100.0.128", &largest] {
            assert_eq!(PolicyOid::parse(text).unwrap().to_string(), text);
        }
        let long = alloc::format!("1.2{}", ".1".repeat(64));
        for wrong in [
            "",
            "1",
            "1.",
            ".1",
            "1..2",
            "3.1",
            "0.40",
            "1.2.x",
            "1.2.-3",
            "1.2.+3",
            "1.2.03",
            "1.2.18446744073709551616",
            &long,
        ] {
            assert_eq!(PolicyOid::parse(wrong), None, "{wrong}");
        }
    }
}
