//! Gateways to which peers are redirected (RFC 5685): an address or the name of a host.

use alloc::boxed::Box;
use core::fmt;
use core::net::IpAddr;

/// A gateway to which a peer is redirected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gateway {
    /// An address.
    Addr(IpAddr),
    /// The name of a host, which the redirected peer looks up.
    Name(HostName),
}

impl Gateway {
    /// Reads an address or the name of a host; `None` if the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().map(Self::Addr).ok().or_else(|| HostName::new(text).map(Self::Name))
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Addr(addr) => addr.fmt(f),
            Self::Name(name) => f.write_str(name.as_str()),
        }
    }
}

/// The name of a host (RFC 1123 section 2.1), of at most 253 bytes. Underscores are accepted, which some
/// networks use. The last label is not a number, so that a malformed address is no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostName(Box<str>);

/// Longest name and longest label in bytes (RFC 1035 section 2.3.4, without the length bytes).
const MAX_LEN: usize = 253;
const MAX_LABEL_LEN: usize = 63;

impl HostName {
    /// Checks a name; `None` if it is malformed. It may end with a dot.
    pub fn new(text: &str) -> Option<Self> {
        let is_label = |label: &str| {
            (1..=MAX_LABEL_LEN).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        let name = text.strip_suffix('.').unwrap_or(text);
        let last = name.rsplit('.').next()?;
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        let is_name = name.len() <= MAX_LEN && name.split('.').all(is_label) && !is_number;
        is_name.then(|| Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn addresses_and_names() {
        for text in ["192.0.2.1", "2001:db8::1"] {
            assert!(matches!(Gateway::parse(text), Some(Gateway::Addr(addr)) if addr.to_string() == text));
        }
        for text in ["gw", "gw.example.org", "gw.example.org.", "1.a", "a-1", "a_b"] {
            assert!(matches!(Gateway::parse(text), Some(Gateway::Name(name)) if name.as_str() == text));
        }
        let long = ["a".repeat(64), ["a"; 128].join(".")];
        for text in ["", ".", "a..b", "a b", "a\n", "a\0", "192.0.2.300", "1", "ä"] {
            assert_eq!(Gateway::parse(text), None, "{text}");
        }
        assert_eq!(long.map(|text| Gateway::parse(&text)), [None, None]);
    }
}
