//! Identities and authentication of both sides (RFC 7296 section 3.5, RFC 4301 section 4.4.3.1).

use alloc::string::String;
use alloc::vec::Vec;
#[cfg(feature = "eap")]
use casemate_eap::Method;
use casemate_pki::{canonical_dn, same_dn};
use casemate_wire::ike::{Id, IdType};
use core::fmt::{self, Write as _};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Identity as in an ID payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Identity {
    /// ID_IPV4_ADDR or ID_IPV6_ADDR.
    Address(IpAddr),
    /// ID_FQDN: a domain name in ASCII.
    Fqdn(String),
    /// ID_RFC822_ADDR: an email address.
    Email(String),
    /// ID_DER_ASN1_DN: a distinguished name in DER.
    Dn(Vec<u8>),
    /// ID_KEY_ID: opaque bytes that both sides know.
    KeyId(Vec<u8>),
}

/// Type of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdentityKind {
    /// An IP address.
    Address,
    /// A domain name.
    Fqdn,
    /// An email address.
    Email,
    /// A distinguished name.
    Dn,
    /// Opaque bytes.
    KeyId,
}

impl Identity {
    /// Identity of an ID payload; `None` if its type is not supported.
    pub fn from_payload(id: &Id<'_>) -> Option<Self> {
        let text = || core::str::from_utf8(id.data).ok().map(String::from);
        match id.kind {
            IdType::IPV4_ADDR => Some(Self::Address(Ipv4Addr::from(*id.data.as_array::<4>()?).into())),
            IdType::IPV6_ADDR => Some(Self::Address(Ipv6Addr::from(*id.data.as_array::<16>()?).into())),
            IdType::FQDN => text().map(Self::Fqdn),
            IdType::RFC822_ADDR => text().map(Self::Email),
            IdType::DER_ASN1_DN => Some(Self::Dn(id.data.into())),
            IdType::KEY_ID => Some(Self::KeyId(id.data.into())),
            _ => None,
        }
    }

    /// Type and data of the ID payload.
    pub fn to_payload(&self) -> (IdType, Vec<u8>) {
        match self {
            Self::Address(IpAddr::V4(addr)) => (IdType::IPV4_ADDR, addr.octets().into()),
            Self::Address(IpAddr::V6(addr)) => (IdType::IPV6_ADDR, addr.octets().into()),
            Self::Fqdn(name) => (IdType::FQDN, name.as_bytes().into()),
            Self::Email(name) => (IdType::RFC822_ADDR, name.as_bytes().into()),
            Self::Dn(der) => (IdType::DER_ASN1_DN, der.clone()),
            Self::KeyId(bytes) => (IdType::KEY_ID, bytes.clone()),
        }
    }

    /// Type and data as one string of bytes, for table keys.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, data) = self.to_payload();
        [&[kind.0], &*data].concat()
    }

    /// The identity as an EAP identity: the data of the ID payload, but the text of an address.
    #[cfg(feature = "eap")]
    pub fn to_eap(&self) -> Vec<u8> {
        match self {
            Self::Address(addr) => alloc::format!("{addr}").into_bytes(),
            other => other.to_payload().1,
        }
    }

    /// Type of the identity.
    pub const fn kind(&self) -> IdentityKind {
        match self {
            Self::Address(_) => IdentityKind::Address,
            Self::Fqdn(_) => IdentityKind::Fqdn,
            Self::Email(_) => IdentityKind::Email,
            Self::Dn(_) => IdentityKind::Dn,
            Self::KeyId(_) => IdentityKind::KeyId,
        }
    }

    /// Canonical form, equal for all identities that name the same peer
    /// ([`is_same_peer`](Self::is_same_peer)): a key for tables.
    pub fn canonical(&self) -> Self {
        match self {
            Self::Fqdn(name) => Self::Fqdn(name.to_ascii_lowercase()),
            Self::Email(name) => Self::Email(name.to_ascii_lowercase()),
            Self::Dn(der) => Self::Dn(canonical_dn(der).unwrap_or_else(|| der.clone())),
            other => other.clone(),
        }
    }

    /// Whether both identities name the same peer. Domain names and email addresses are compared without
    /// regard to case, distinguished names as in RFC 5280 section 7.1.
    pub fn is_same_peer(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fqdn(a), Self::Fqdn(b)) | (Self::Email(a), Self::Email(b)) => a.eq_ignore_ascii_case(b),
            (Self::Dn(a), Self::Dn(b)) => a == b || same_dn(a, b),
            (a, b) => a == b,
        }
    }
}

impl fmt::Display for Identity {
    /// Writes the form that a configuration accepts. Control characters of a peer never reach a terminal. A
    /// distinguished name without such a form is written as its DER in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        };
        match self {
            Self::Address(addr) => addr.fmt(f),
            Self::Fqdn(text) | Self::Email(text) => text.chars().try_for_each(|character| match character {
                // Harmless, and part of names such as `DOMAIN\user`.
                '\\' | '"' | '\'' => f.write_char(character),
                other => other.escape_debug().fmt(f),
            }),
            Self::Dn(der) => match casemate_pki::dn_to_text(der) {
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

/// Identities that a connection accepts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum IdPattern {
    /// `%any`: every identity.
    Any,
    /// This identity.
    Exact(Identity),
    /// `*.example.com` or `*@example.com`: a name of this type with this suffix and something before it.
    Suffix(IdentityKind, String),
    /// A distinguished name with wildcards for some values, as written. The implementation of
    /// [`Credentials`](crate::Credentials) interprets it.
    DnPattern(String),
}

impl IdPattern {
    /// Whether `id` matches; `None` if [`Credentials`] has to decide, as for [`DnPattern`](Self::DnPattern).
    ///
    /// [`Credentials`]: crate::Credentials
    pub fn matches(&self, id: &Identity) -> Option<bool> {
        Some(match (self, id) {
            (Self::Any, _) => true,
            (Self::Exact(wanted), id) => wanted.is_same_peer(id),
            (Self::Suffix(kind, end), Identity::Fqdn(name) | Identity::Email(name)) => {
                let split = name.len().checked_sub(end.len()).filter(|at| *at > 0);
                let tail = split.and_then(|at| name.get(at..));
                *kind == id.kind() && tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
            }
            (Self::Suffix(..), _) => false,
            (Self::DnPattern(_), Identity::Dn(_)) => return None,
            (Self::DnPattern(_), _) => false,
        })
    }

    /// The identity, if only one matches.
    pub fn exact(&self) -> Option<&Identity> {
        match self {
            Self::Exact(id) => Some(id),
            _ => None,
        }
    }
}

/// Authentication of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAuth {
    /// Our identity. Without one, the subject of our certificate or else our address.
    pub id: Option<Identity>,
    /// Method.
    pub method: LocalMethod,
}

/// Authentication method of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalMethod {
    /// A pre-shared key.
    SharedKey,
    /// A signature with the private key of one of these certificates. The implementation of
    /// [`Credentials`](crate::Credentials) knows their names. Without names, any certificate or raw key that
    /// fits the identity and the peer's request is used.
    Certificate(Vec<String>),
    /// EAP, as the initiator. As the responder, this host accepts only peers that require no AUTH payload
    /// before EAP (RFC 5998).
    #[cfg(feature = "eap")]
    Eap(LocalEap),
}

/// Authentication of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAuth {
    /// Accepted identities.
    pub id: IdPattern,
    /// Method.
    pub method: RemoteMethod,
}

/// Authentication method of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteMethod {
    /// A pre-shared key.
    SharedKey,
    /// A signature. The implementation of [`Credentials`](crate::Credentials) knows by this name the accepted
    /// authorities, algorithms and revocation checks.
    Certificate(String),
    /// A pre-shared key or a signature.
    Any(String),
    /// EAP, of an initiator. As the initiator, this host accepts a responder that proves itself by EAP alone
    /// (RFC 5998).
    #[cfg(feature = "eap")]
    Eap(RemoteEap),
}

/// How this host authenticates itself by EAP, as the initiator.
#[cfg(feature = "eap")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalEap {
    /// EAP identity; `None` for the identity of the ID payload.
    pub identity: Option<Vec<u8>>,
    /// Accepted methods in order of preference. Never empty.
    pub methods: Vec<Method>,
}

/// How this host, as the responder, has a peer authenticate itself by EAP.
#[cfg(feature = "eap")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEap {
    /// EAP identity of the peer.
    pub identity: EapIdentity,
    /// Accepted methods in order of preference. Empty if the packets are passed on to an AAA server, which
    /// chooses the method ([`Credentials::eap_authenticator`](crate::Credentials::eap_authenticator)).
    pub methods: Vec<Method>,
    /// Names of groups: the peer must belong to one of them, as the AAA server says. Empty if it need not.
    pub groups: Vec<String>,
}

#[cfg(feature = "eap")]
impl RemoteEap {
    /// Whether an AAA server authenticates the peer.
    pub const fn is_relayed(&self) -> bool {
        self.methods.is_empty()
    }

    /// Whether a peer that belongs to these groups is accepted. Upper and lower case are the same, as in
    /// strongSwan.
    pub(crate) fn accepts_groups(&self, groups: &[Vec<u8>]) -> bool {
        let is_member =
            |name: &String| groups.iter().any(|group| group.eq_ignore_ascii_case(name.as_bytes()));
        self.groups.is_empty() || self.groups.iter().any(is_member)
    }
}

/// EAP identity that a peer must prove.
#[cfg(feature = "eap")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EapIdentity {
    /// The identity of its ID payload.
    Ike,
    /// This one.
    Fixed(Vec<u8>),
    /// The one that the peer sends in its response to an EAP Identity request. The identity of the ID payload
    /// is then a claim without proof: it selects the connection and nothing else.
    Asked,
}

/// When certificates are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendCert {
    /// Always.
    Always,
    /// When the peer requests one.
    IfAsked,
    /// Never.
    Never,
}

/// Whether OCSP responses for the certificates of IKE are exchanged in IKE itself (RFC 4806). A response of a
/// peer is used in each case.
#[cfg(feature = "revocation")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OcspInIke {
    /// The response for our certificate is sent to a peer that requests it.
    Reply,
    /// The peer's response is requested, and ours is not sent.
    Request,
    /// Both.
    Both,
    /// Neither.
    Never,
}

#[cfg(feature = "revocation")]
impl OcspInIke {
    /// Whether the peer's response is requested.
    pub const fn requests(self) -> bool {
        matches!(self, Self::Request | Self::Both)
    }

    /// Whether our response is sent to a peer that requests it.
    pub const fn replies(self) -> bool {
        matches!(self, Self::Reply | Self::Both)
    }
}
