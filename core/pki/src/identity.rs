//! The names of a certificate, compared with the identity of an IKE peer (RFC 7296 section 3.5, RFC 4945 section 3.1).

use crate::certificate::Cert;
use crate::general_name::{self, GeneralName};
use crate::{DnPattern, VerifiedCert, same_dn};
use core::net::IpAddr;

/// An identity that a certificate can prove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerName<'a> {
    /// ID_FQDN: the dNSName of subjectAltName, without regard to case. One with a wildcard is no host and proves nothing.
    Dns(&'a str),
    /// ID_RFC822_ADDR: the rfc822Name of subjectAltName. Case matters before the `@` only (RFC 5280 section 7.5).
    Email(&'a str),
    /// ID_IPV4_ADDR and ID_IPV6_ADDR: the iPAddress of subjectAltName.
    Ip(IpAddr),
    /// ID_DER_ASN1_DN: the subject, or a directoryName of subjectAltName, in DER.
    Dn(&'a [u8]),
}

impl VerifiedCert {
    /// Whether the certificate bears this name.
    pub fn is_named(&self, wanted: &PeerName<'_>) -> bool {
        Cert::parse(self.der()).is_ok_and(|cert| is_named(&cert, wanted))
    }

    /// Whether the subject is one of those that the pattern means.
    pub fn is_like(&self, pattern: &DnPattern) -> bool {
        Cert::parse(self.der()).is_ok_and(|cert| pattern.matches(cert.subject))
    }
}

pub(crate) fn is_named(cert: &Cert<'_>, wanted: &PeerName<'_>) -> bool {
    let by_subject =
        matches!(wanted, PeerName::Dn(name) if !crate::dn::is_empty(name) && same_dn(cert.subject, name));
    by_subject || general_name::names(cert.extensions.alt_names).any(|name| is_same(&name, wanted))
}

fn is_same(name: &GeneralName<'_>, wanted: &PeerName<'_>) -> bool {
    match (name, wanted) {
        (GeneralName::Dns(name), PeerName::Dns(wanted)) => {
            general_name::is_dns_name(name, false) && name.eq_ignore_ascii_case(wanted)
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
