//! GeneralName (RFC 5280 section 4.2.1.6), and comparison with the identity of an IKE peer (RFC 7296 section
//! 3.5, RFC 4945 section 3.1).

use crate::certificate::Cert;
use crate::{DnPattern, VerifiedCert, same_dn};
use casemate_crypto::der::{Malformed, Reader, SEQUENCE};
use core::net::IpAddr;

/// A GeneralName.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GeneralName<'a> {
    /// rfc822Name.
    Email(&'a str),
    /// dNSName.
    Dns(&'a str),
    /// directoryName, as a complete Name.
    Directory(&'a [u8]),
    /// uniformResourceIdentifier.
    Uri(&'a str),
    /// iPAddress: an address, or an address with its mask in a constraint.
    Ip(&'a [u8]),
    /// An unsupported kind, by its tag: otherName, x400Address, ediPartyName, registeredID.
    Other(u8),
}

impl<'a> GeneralName<'a> {
    /// Reads the next name.
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let value = reader.read_any()?;
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
    /// Length of the name in bytes, as the cost of a comparison.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Email(text) | Self::Dns(text) | Self::Uri(text) => text.len(),
            Self::Directory(bytes) | Self::Ip(bytes) => bytes.len(),
            Self::Other(_) => 0,
        }
    }
}

/// Checks that all GeneralNames can be parsed, and returns the contents.
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

/// Iterator over checked GeneralNames.
pub(crate) fn names(inside: Option<&[u8]>) -> impl Iterator<Item = GeneralName<'_>> {
    let mut reader = Reader::new(inside.unwrap_or_default());
    core::iter::from_fn(move || GeneralName::read(&mut reader).ok())
}

/// Whether the labels consist of letters, digits, hyphens and, because they are in use, underscores (RFC 1034
/// section 3.5, RFC 1123 section 2.1). The first label may be `*` if `wildcard` is true.
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

/// Name of a peer that a certificate can prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerName<'a> {
    /// ID_FQDN: a dNSName of subjectAltName, without regard to case. A dNSName with a wildcard never matches.
    Dns(&'a str),
    /// ID_RFC822_ADDR: an rfc822Name of subjectAltName. Case matters before the `@` only (RFC 5280 section
    /// 7.5).
    Email(&'a str),
    /// ID_IPV4_ADDR and ID_IPV6_ADDR: an iPAddress of subjectAltName.
    Ip(IpAddr),
    /// ID_DER_ASN1_DN: the subject, or a directoryName of subjectAltName, in DER.
    Dn(&'a [u8]),
}

impl VerifiedCert {
    /// Whether the certificate has this name.
    pub fn has_name(&self, wanted: &PeerName<'_>) -> bool {
        Cert::parse(self.der()).is_ok_and(|cert| is_named(&cert, wanted))
    }

    /// Whether the subject matches the pattern.
    pub fn subject_matches(&self, pattern: &DnPattern) -> bool {
        Cert::parse(self.der()).is_ok_and(|cert| pattern.matches(cert.subject))
    }
}

pub(crate) fn is_named(cert: &Cert<'_>, wanted: &PeerName<'_>) -> bool {
    let by_subject =
        matches!(wanted, PeerName::Dn(name) if !crate::dn::is_empty(name) && same_dn(cert.subject, name));
    by_subject || names(cert.extensions.alt_names).any(|name| is_same(&name, wanted))
}

fn is_same(name: &GeneralName<'_>, wanted: &PeerName<'_>) -> bool {
    match (name, wanted) {
        (GeneralName::Dns(name), PeerName::Dns(wanted)) => {
            is_dns_name(name, false) && name.eq_ignore_ascii_case(wanted)
        }
        (GeneralName::Email(name), PeerName::Email(wanted)) => {
            let halves = name.rsplit_once('@').zip(wanted.rsplit_once('@'));
            halves.is_some_and(|((a, host), (b, other))| a == b && host.eq_ignore_ascii_case(other))
        }
        (GeneralName::Ip(name), PeerName::Ip(IpAddr::V4(wanted))) => *name == wanted.octets(),
        (GeneralName::Ip(name), PeerName::Ip(IpAddr::V6(wanted))) => *name == wanted.octets(),
        (GeneralName::Directory(name), PeerName::Dn(wanted)) => same_dn(name, wanted),
        _ => false,
    }
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

    /// For every tag and length of a CHOICE, parsing proceeds or ends.
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
        assert!(check(&[SEQUENCE, 0]).is_err(), "not a name");
    }
}
