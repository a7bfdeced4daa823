//! GeneralName (RFC 5280 section 4.2.1.6).

use casemate_crypto::der::{Malformed, Reader, SEQUENCE};

/// One name of any kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GeneralName<'a> {
    /// rfc822Name.
    Email(&'a str),
    /// dNSName.
    Dns(&'a str),
    /// directoryName, as a whole Name.
    Directory(&'a [u8]),
    /// uniformResourceIdentifier.
    Uri(&'a str),
    /// iPAddress: an address, or in a constraint an address and its mask.
    Ip(&'a [u8]),
    /// A kind that is not looked into, by its tag: otherName, x400Address, ediPartyName, registeredID.
    Other(u8),
}

impl<'a> GeneralName<'a> {
    /// The next one.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let value = reader.any()?;
        let text = || match core::str::from_utf8(value.content) {
            Ok(text) if text.is_ascii() => Ok(text),
            _ => Err(Malformed),
        };
        match value.tag {
            0x81 => text().map(Self::Email),
            0x82 => text().map(Self::Dns),
            0xA4 => crate::dn::check(value.content).map(|()| Self::Directory(value.content)),
            0x86 => text().map(Self::Uri),
            0x87 => Ok(Self::Ip(value.content)),
            0xA0 | 0xA3 | 0xA5 | 0x88 => Ok(Self::Other(value.tag)),
            _ => Err(Malformed),
        }
    }
}

impl GeneralName<'_> {
    /// Bytes to look at.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Email(text) | Self::Dns(text) | Self::Uri(text) => text.len(),
            Self::Directory(bytes) | Self::Ip(bytes) => bytes.len(),
            Self::Other(_) => 0,
        }
    }
}

/// What is inside GeneralNames, all of which can be read.
pub(crate) fn check(names: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::only(SEQUENCE, names)?;
    let inside = reader.clone().rest();
    loop {
        match GeneralName::read(&mut reader)? {
            GeneralName::Ip(address) if !matches!(address.len(), 4 | 16) => return Err(Malformed),
            GeneralName::Dns(name) if !is_dns_name(name, true) => return Err(Malformed),
            _ if reader.is_empty() => return Ok(inside),
            _ => {}
        }
    }
}

/// The names inside GeneralNames that were checked.
pub(crate) fn names(inside: Option<&[u8]>) -> impl Iterator<Item = GeneralName<'_>> {
    let mut reader = Reader::new(inside.unwrap_or_default());
    core::iter::from_fn(move || GeneralName::read(&mut reader).ok())
}

/// Labels of letters, digits, hyphens and, as they are in use, underscores (RFC 1034 section 3.5, RFC 1123 section 2.1); the first may be
/// `*` if `wildcard` says so.
pub(crate) fn is_dns_name(name: &str, wildcard: bool) -> bool {
    let name = match name.strip_prefix("*.") {
        Some(rest) if wildcard => rest,
        _ => name,
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;
    use alloc::vec;

    #[test]
    fn names_of_hosts() {
        for (name, right) in [
            ("moon.strongswan.org", true),
            ("moon", true),
            ("*.strongswan.org", true),
            ("a_b.c-d.e", true),
            ("", false),
            (".org", false),
            ("org.", false),
            ("a..b", false),
            ("*", false),
            ("a.*.b", false),
            ("a*.b", false),
            ("-a.b", false),
            ("a-.b", false),
            ("a b.c", false),
        ] {
            assert_eq!(is_dns_name(name, true), right, "{name}");
        }
        assert!(!is_dns_name("*.strongswan.org", false));
        assert!(!is_dns_name(&String::from_iter(["a"; 64]), false));
    }

    /// Whatever the tag of a CHOICE, and however long it says it is, reading goes on or ends.
    #[test]
    fn cve_2017_9023_choices_of_every_tag() {
        for tag in 0..=255 {
            for (len, content) in [(0, 0), (1, 0), (1, 1), (2, 2), (4, 4), (0x7F, 4), (0x80, 4), (0xFF, 4)] {
                let mut name = vec![tag, len];
                name.resize(2 + content, 0);
                let mut names_of_both = name.clone();
                names_of_both.extend_from_slice(&name);
                assert!(names(Some(&names_of_both)).take(5).count() <= 2, "{tag} {len}");
                let whole = [&[SEQUENCE, names_of_both.len() as u8][..], &names_of_both].concat();
                let is_known = matches!(tag, 0x81 | 0x82 | 0x86..=0x88 | 0xA0 | 0xA3..=0xA5);
                assert!(is_known || check(&whole).is_err(), "{tag} {len}");
            }
        }
        assert!(check(&[SEQUENCE, 0]).is_err(), "no name at all");
    }
}
