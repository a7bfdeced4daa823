//! Domain names of name servers, and which domains a peer may claim (RFC 8598).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// Longest name in presentation format, without the final dot (RFC 1035 section 2.3.4).
const MAX_NAME_LEN: usize = 253;
/// Longest label.
const MAX_LABEL_LEN: usize = 63;

/// A domain name in presentation format with A-labels (RFC 8598 section 4.1): lower case, at least one label,
/// without a final dot. It contains nothing but letters, digits, `-`, `_` and dots.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DomainName(String);

impl DomainName {
    /// Reads a name; `None` if it is not a domain name, or the root.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_suffix(b".").unwrap_or(text);
        let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_end = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
        let is_label = |label: &[u8]| {
            label.len() <= MAX_LABEL_LEN
                && is_end(label.first())
                && is_end(label.last())
                && label.iter().all(is_inner)
        };
        let is_name = text.len() <= MAX_NAME_LEN && text.split(|byte| *byte == b'.').all(is_label);
        let text = core::str::from_utf8(text).ok().filter(|_| is_name)?;
        // Resolvers take such text for an address.
        let last = text.rsplit('.').next().unwrap_or_default();
        (!last.bytes().all(|byte| byte.is_ascii_digit())).then(|| Self(text.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is `other` or a domain below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let above = self.0.strip_suffix(&other.0);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }

    /// Whether the domain is below a top-level domain, such as `example.org`.
    fn has_parent(&self) -> bool {
        self.0.contains('.')
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Domains that a peer may claim for the name servers that it assigns (RFC 8598 section 5: local policy).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DomainPolicy {
    /// These domains and those below them, also if the peer names none. If the list is empty, the peer may
    /// claim every domain below a top-level domain.
    pub accepted: Vec<DomainName>,
}

impl DomainPolicy {
    /// Whether the peer may claim a domain. Top-level domains are only accepted by name (RFC 8598 section 8).
    pub fn accepts(&self, domain: &DomainName) -> bool {
        match &*self.accepted {
            [] => domain.has_parent(),
            accepted => accepted.iter().any(|one| domain.is_within(one)),
        }
    }
}

/// Whether a peer can assign an address, as that of a name server or as a virtual one: it is the address of
/// a host, neither this host itself nor a group, and not only valid on a link.
pub fn is_host(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            !(first == 0 || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || first >= 240)
        }
        IpAddr::V6(v6) => {
            let is_special = v6.is_unspecified() || v6.is_loopback() || v6.is_multicast();
            !(is_special || v6.is_unicast_link_local() || v6.to_ipv4_mapped().is_some())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn name(text: &str) -> DomainName {
        DomainName::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn names_are_labels_of_letters_digits_and_hyphens() {
        for (text, expected) in [
            ("corp.example", "corp.example"),
            ("Corp.EXAMPLE.", "corp.example"),
            ("internal", "internal"),
            ("10.in-addr.arpa", "10.in-addr.arpa"),
            ("_tcp.xn--bcher-kva.example", "_tcp.xn--bcher-kva.example"),
        ] {
            assert_eq!(name(text).as_str(), expected);
        }
        let long_label = "a".repeat(64);
        let long_name = ["a".repeat(63).as_str(); 4].join(".");
        for text in [
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "a.b..",
            "a b",
            "a\n.b",
            "a\0",
            "~corp",
            "-a.b",
            "a-.b",
            "b\u{fc}cher.de",
            "10.1.2.3",
            "a.1",
            &long_label,
            &long_name,
            "a/b",
            "a;b",
            "a%b",
            "\x1b[1m.a",
        ] {
            assert_eq!(DomainName::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(DomainName::parse(b"\xff\xfe"), None);
        let longest = [&["a".repeat(63).as_str(); 3].join("."), "b".repeat(61).as_str()].join(".");
        assert_eq!(name(&longest).as_str().len(), 253);
    }

    #[test]
    fn domains_below_an_accepted_one_are_accepted() {
        let any = DomainPolicy::default();
        assert!(any.accepts(&name("corp.example")) && !any.accepts(&name("com")));
        let some = DomainPolicy { accepted: vec![name("corp.example"), name("internal")] };
        for (text, expected) in [
            ("corp.example", true),
            ("a.b.corp.example", true),
            ("internal", true),
            ("x.internal", true),
            ("example", false),
            ("othercorp.example", false),
            ("corp.example.com", false),
        ] {
            assert_eq!(some.accepts(&name(text)), expected, "{text}");
        }
    }

    #[test]
    fn only_other_hosts_are_name_servers() {
        for text in ["10.1.0.53", "192.0.2.1", "8.8.8.8", "2001:db8::53", "fd00::53"] {
            assert!(is_host(text.parse().unwrap()), "{text}");
        }
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.53",
            "169.254.1.1",
            "224.0.0.251",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "ff02::fb",
            "fe80::1",
            "::ffff:127.0.0.1",
        ] {
            assert!(!is_host(text.parse().unwrap()), "{text}");
        }
    }
}
