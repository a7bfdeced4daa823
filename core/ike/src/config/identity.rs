//! Who a peer is (RFC 7296 section 3.5, RFC 4301 section 4.4.3.1).

use crate::spelling;
use alloc::string::String;
use alloc::vec::Vec;
use casemate_pki::{canonical_dn, same_dn};
use casemate_wire::ike::{Id, IdType};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The identity of one side, as it stands in an ID payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// ID_IPV4_ADDR or ID_IPV6_ADDR.
    Address(IpAddr),
    /// ID_FQDN: a domain name, in ASCII.
    Fqdn(String),
    /// ID_RFC822_ADDR: a mail address.
    Email(String),
    /// ID_DER_ASN1_DN: a distinguished name, in DER.
    Name(Vec<u8>),
    /// ID_KEY_ID: bytes that mean something to both sides.
    KeyId(Vec<u8>),
}

/// The type of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IdentityKind {
    /// An address.
    Address,
    /// A domain name.
    Fqdn,
    /// A mail address.
    Email,
    /// A distinguished name.
    Name,
    /// Opaque bytes.
    KeyId,
}

impl Identity {
    /// The identity in an ID payload; `None` if its type cannot name a peer here.
    pub fn from_payload(id: &Id<'_>) -> Option<Self> {
        let text = || core::str::from_utf8(id.data).ok().map(String::from);
        match id.kind {
            IdType::IPV4_ADDR => Some(Self::Address(Ipv4Addr::from(*id.data.as_array::<4>()?).into())),
            IdType::IPV6_ADDR => Some(Self::Address(Ipv6Addr::from(*id.data.as_array::<16>()?).into())),
            IdType::FQDN => text().map(Self::Fqdn),
            IdType::RFC822_ADDR => text().map(Self::Email),
            IdType::DER_ASN1_DN => Some(Self::Name(id.data.into())),
            IdType::KEY_ID => Some(Self::KeyId(id.data.into())),
            _ => None,
        }
    }

    /// Type and data for an ID payload.
    pub fn to_payload(&self) -> (IdType, Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(addr)) => (IdType::IPV4_ADDR, addr.octets().into()),
            Self::Address(IpAddr::V6(addr)) => (IdType::IPV6_ADDR, addr.octets().into()),
            Self::Fqdn(name) => (IdType::FQDN, name.as_bytes().into()),
            Self::Email(name) => (IdType::RFC822_ADDR, name.as_bytes().into()),
            Self::Name(der) => (IdType::DER_ASN1_DN, der.clone()),
            Self::KeyId(bytes) => (IdType::KEY_ID, bytes.clone()),
        }
    }

    /// As one string of bytes, by which tables find it: its type, then its data.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, data) = self.to_payload();
        [&[kind.0], &*data].concat()
    }

    /// Its type.
    pub const fn kind(&self) -> IdentityKind {
        match self {
            Self::Address(_) => IdentityKind::Address,
            Self::Fqdn(_) => IdentityKind::Fqdn,
            Self::Email(_) => IdentityKind::Email,
            Self::Name(_) => IdentityKind::Name,
            Self::KeyId(_) => IdentityKind::KeyId,
        }
    }

    /// One for all that name the same peer ([`names_same`](Self::names_same)).
    pub(crate) fn folded(&self) -> Self {
        match self {
            Self::Fqdn(name) => Self::Fqdn(name.to_ascii_lowercase()),
            Self::Email(name) => Self::Email(name.to_ascii_lowercase()),
            Self::Name(der) => Self::Name(canonical_dn(der).unwrap_or_else(|| der.clone())),
            other => other.clone(),
        }
    }

    /// Whether both name the same peer: names of domains and mail are compared without regard to case, distinguished names as RFC 5280
    /// section 7.1 says.
    pub fn names_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) | (Self::Email(a), Self::Email(b)) => a.eq_ignore_ascii_case(b),
            (Self::Name(a), Self::Name(b)) => a == b || same_dn(a, b),
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for Identity {
    /// As people write it, and as a configuration reads it; control characters of a peer never reach a terminal. A distinguished name that
    /// cannot be written so is shown as its DER in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::Address(addr) => addr.fmt(f),
            Self::Fqdn(text) | Self::Email(text) => write!(f, "{}", text.escape_debug()),
            Self::Name(der) => match spelling::name_text(der) {
                Some(text) => f.write_str(&text),
                None => {
                    f.write_str("asn1dn:#")?;
                    hex(f, der)
                }
            },
            Self::KeyId(bytes) => {
                f.write_str("keyid:#")?;
                hex(f, bytes)
            }
        }
    }
}
