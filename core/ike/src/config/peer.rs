//! How each side is known, and how it proves who it is.

use super::{Identity, IdentityKind};
use alloc::string::String;
use alloc::vec::Vec;
use casemate_sa::AddrRange;
use core::net::IpAddr;

/// Addresses that an end of a connection may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddrPattern {
    /// `%any`: every address.
    Any,
    /// `%any4` or `%any6`, a subnet, a range, or one address.
    Range(AddrRange),
}

impl AddrPattern {
    /// Whether an end at `addr` fits.
    pub fn matches(&self, addr: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::Range(range) => range.contains(addr),
        }
    }

    /// The one address that fits, if there is just one.
    pub fn single(&self) -> Option<IpAddr> {
        match self {
            Self::Range(range) if range.first() == range.last() => Some(range.first()),
            _ => None,
        }
    }
}

/// Which identities are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdPattern {
    /// `%any`: every identity.
    Any,
    /// This one.
    Exactly(Identity),
    /// `*.example.com` or `*@example.com`: a name of this type that ends so, with something in front of it.
    Ending(IdentityKind, String),
    /// A distinguished name in which some values may be anything; how to read it is for whoever knows X.509. Holds the
    /// pattern as it was written.
    NameLike(String),
}

impl IdPattern {
    /// Whether `id` is meant, as far as its bytes tell: [`NameLike`](Self::NameLike) is for [`Credentials`] to decide.
    ///
    /// [`Credentials`]: crate::Credentials
    pub fn matches(&self, id: &Identity) -> Option<bool> {
        Some(match (self, id) {
            (Self::Any, _) => true,
            (Self::Exactly(wanted), id) => wanted.names_same(id),
            (Self::Ending(kind, end), Identity::Fqdn(name) | Identity::Email(name)) => {
                let split = name.len().checked_sub(end.len()).filter(|at| *at > 0);
                let tail = split.and_then(|at| name.get(at..));
                *kind == id.kind() && tail.is_some_and(|tail| tail.eq_ignore_ascii_case(end))
            }
            (Self::Ending(..), _) => false,
            (Self::NameLike(_), Identity::Name(_)) => return None,
            (Self::NameLike(_), _) => false,
        })
    }

    /// The identity, if only one is meant.
    pub fn exactly(&self) -> Option<&Identity> {
        match self {
            Self::Exactly(id) => Some(id),
            _ => None,
        }
    }
}

/// How this host proves who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalAuth {
    /// Its identity; without one, the subject of its certificate or else its address.
    pub id: Option<Identity>,
    /// The proof.
    pub method: LocalMethod,
}

/// A proof of our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalMethod {
    /// A pre-shared key.
    SharedKey,
    /// A signature with the private key of one of these certificates, which are names that the owner of the credentials
    /// knows; without any, of whichever certificate or raw key fits the identity and what the peer asks for.
    Certificate(Vec<String>),
}

/// How the peer has to prove who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAuth {
    /// Its identity.
    pub id: IdPattern,
    /// The proof.
    pub method: RemoteMethod,
}

/// A proof of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteMethod {
    /// A pre-shared key.
    SharedKey,
    /// A signature, under conditions that the owner of the credentials knows by this name: which authorities, which
    /// algorithms, which revocation.
    Certificate(String),
    /// A pre-shared key or a signature.
    Any(String),
}
