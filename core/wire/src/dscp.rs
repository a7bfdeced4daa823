//! Differentiated services code points (RFC 2474) and their names.

use core::fmt;
use core::str::FromStr;

/// A differentiated services code point: six bits of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// Code point of packets without special treatment (RFC 2474 section 4.1).
    pub const DEFAULT: Self = Self(0);
    /// Highest code point: all bits set.
    pub const MAX: Self = Self(63);
    /// Number of code points.
    pub const COUNT: usize = 64;

    /// Returns the code point with this value; `None` above 63.
    pub const fn new(value: u8) -> Option<Self> {
        if value < 64 { Some(Self(value)) } else { None }
    }

    /// Returns the upper six bits of a TOS or traffic class byte (RFC 2474 section 3).
    #[inline]
    pub const fn from_tos(tos: u8) -> Self {
        Self(tos >> 2)
    }

    /// Value, below 64.
    #[inline]
    pub const fn value(self) -> u8 {
        self.0
    }

    /// Returns class selector `n` (RFC 2474 section 4.2.2); `None` above 7.
    pub const fn class_selector(n: u8) -> Option<Self> {
        if n < 8 { Some(Self(n << 3)) } else { None }
    }

    /// Returns the assured forwarding code point of class 1 to 4 and drop precedence 1 to 3 (RFC 2597 section
    /// 6); `None` for other values.
    pub const fn assured(class: u8, precedence: u8) -> Option<Self> {
        if matches!((class, precedence), (1..=4, 1..=3)) {
            Some(Self(class << 3 | precedence << 1))
        } else {
            None
        }
    }
}

/// Code points with names that contain no number.
const NAMED: [(&str, Dscp); 4] = [
    ("default", Dscp::DEFAULT),
    // RFC 8622: LE is 000001.
    ("le", Dscp(1)),
    // RFC 5865: VOICE-ADMIT is 101100.
    ("voice-admit", Dscp(44)),
    // RFC 3246: EF is 101110.
    ("ef", Dscp(46)),
];

impl fmt::Display for Dscp {
    /// Writes a name that [`from_str`](str::parse) parses, or the number of a code point without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = NAMED.into_iter().find(|(_, dscp)| dscp == self);
        match (named, self.0 >> 3, self.0 & 7) {
            (Some((name, _)), ..) => f.write_str(name),
            (None, class, 0) => write!(f, "cs{class}"),
            (None, class @ 1..=4, drop @ (2 | 4 | 6)) => write!(f, "af{class}{}", drop >> 1),
            _ => self.0.fmt(f),
        }
    }
}

/// Error: the text is not a code point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseDscpError;

impl fmt::Display for ParseDscpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "unknown DSCP, expected ef, voice-admit, le, default, cs0 to cs7, af11 to af43, \
             or a number up to 63",
        )
    }
}

impl core::error::Error for ParseDscpError {}

impl FromStr for Dscp {
    type Err = ParseDscpError;

    /// Parses a name in lower case, as in the RFCs, or a decimal number.
    fn from_str(text: &str) -> Result<Self, ParseDscpError> {
        let digit = |byte: u8| byte.checked_sub(b'0');
        let named = || NAMED.into_iter().find(|(name, _)| *name == text).map(|(_, dscp)| dscp);
        let found = match *text.as_bytes() {
            [b'c', b's', n] => digit(n).and_then(Self::class_selector),
            [b'a', b'f', class, precedence] => {
                digit(class).zip(digit(precedence)).and_then(|(class, drop)| Self::assured(class, drop))
            }
            [b'0'..=b'9', ..] => text.parse().ok().and_then(Self::new),
            _ => named(),
        };
        found.ok_or(ParseDscpError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    /// Values from the IANA registry "Differentiated Services Field Codepoints (DSCP)".
    #[test]
    fn names_match_the_registry() {
        for (name, value) in [
            ("cs0", 0),
            ("cs1", 8),
            ("cs5", 40),
            ("cs7", 56),
            ("af11", 10),
            ("af12", 12),
            ("af23", 22),
            ("af31", 26),
            ("af43", 38),
            ("ef", 46),
            ("voice-admit", 44),
            ("le", 1),
            ("default", 0),
            ("0", 0),
            ("63", 63),
        ] {
            assert_eq!(name.parse(), Ok(Dscp(value)), "{name}");
        }
    }

    #[test]
    fn displayed_names_parse() {
        for dscp in (0..64).filter_map(Dscp::new) {
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
        }
        let shown = [0, 1, 8, 10, 38, 44, 46, 56, 2, 63].map(|value| Dscp(value).to_string());
        assert_eq!(shown, ["default", "le", "cs1", "af11", "af43", "voice-admit", "ef", "cs7", "2", "63"]);
    }

    #[test]
    fn invalid_names_are_rejected() {
        for text in
            ["", "cs", "cs8", "af10", "af51", "af14", "af1", "64", "256", "-1", "EF", "0x2e", "cs/", "ef "]
        {
            assert_eq!(text.parse::<Dscp>(), Err(ParseDscpError), "{text:?}");
        }
        assert_eq!(Dscp::new(64), None);
        assert_eq!(Dscp::from_tos(0xb8).value(), 46);
        assert_eq!(Dscp::from_tos(0xbb).value(), 46);
    }
}
