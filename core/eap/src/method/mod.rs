//! Authentication methods.

mod aka;
mod gtc;
mod md5;
mod mschapv2;
mod tls;

use crate::packet::TypeData;
use crate::{CertificateStatus, EapContext, EapFault};
use aka::Flavour;
use alloc::boxed::Box;
use casemate_crypto::SecretBytes;
use core::fmt;

pub(crate) use tls::MAX_MESSAGE;

pub use aka::{NetworkSequence, Subscriber, UsimSequence, aka_identity};
pub use mschapv2::NtHash;

/// EAP type Identity (RFC 3748 section 5.1).
pub(crate) const IDENTITY: u8 = 1;
/// EAP type Notification (RFC 3748 section 5.2).
pub(crate) const NOTIFICATION: u8 = 2;
/// EAP type Nak (RFC 3748 section 5.3.1).
pub(crate) const NAK: u8 = 3;

/// A packet of a method without its EAP type.
pub(crate) struct MethodRequest<'a> {
    /// Identifier of the packet.
    pub(crate) identifier: u8,
    pub(crate) data: &'a [u8],
}

impl MethodRequest<'_> {
    /// Identifier of the request that follows this response.
    pub(crate) const fn next_identifier(&self) -> u8 {
        self.identifier.wrapping_add(1)
    }
}

/// Result of a method that has finished.
pub(crate) struct Finished {
    /// Master session key, if the method derives one.
    pub(crate) msk: Option<SecretBytes>,
}

/// A method as the peer.
pub(crate) trait PeerMethod: Send {
    fn method(&self) -> Method;

    /// Returns the type data of the response to a request.
    fn respond(
        &mut self,
        request: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<TypeData, EapFault>;

    /// Status of the certificates of the authenticator.
    fn certificate_status(&mut self) -> CertificateStatus {
        CertificateStatus::Accepted
    }

    /// The result, once the method has seen all that it requires of the authenticator; `None` before.
    fn finish(&mut self) -> Option<Finished>;

    /// Why the authenticator reports failure, if this side knows it.
    fn fault(&self) -> Option<EapFault> {
        None
    }
}

/// What a method as the authenticator does next.
pub(crate) enum ServerStep {
    /// Sends a request with this type data.
    Request(TypeData),
    Finished(Finished),
}

/// A method as the authenticator.
pub(crate) trait ServerMethod: Send {
    fn method(&self) -> Method;

    /// Returns the type data of the first request, which will have this identifier.
    fn begin(&mut self, identifier: u8, context: &mut EapContext<'_>) -> Result<TypeData, EapFault>;

    /// Handles a response.
    fn receive(
        &mut self,
        response: &MethodRequest<'_>,
        context: &mut EapContext<'_>,
    ) -> Result<ServerStep, EapFault>;

    /// Status of the certificates of the peer.
    fn certificate_status(&mut self) -> CertificateStatus {
        CertificateStatus::Accepted
    }

    /// Bytes that the method holds of messages of both sides, as far as known. The default is for methods
    /// whose messages are single packets.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The fault whose acknowledgement is awaited ([`Authenticator::fault`](crate::Authenticator::fault)).
    fn fault(&self) -> Option<EapFault> {
        None
    }

    /// Identity that the peer has proved, if it is not the one with which the method began: a tunnel hides
    /// the identity of the user.
    fn proven_identity(&self) -> Option<&[u8]> {
        None
    }
}

/// An authentication method, by its EAP type (IANA "EAP Registry").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// MD5-Challenge (RFC 3748 section 5.4). Authenticates neither the authenticator nor the conversation,
    /// and derives no keys.
    Md5,
    /// Generic Token Card (RFC 3748 section 5.6): sends the password to the authenticator.
    Gtc,
    /// EAP-AKA (RFC 4187): both sides prove that they know the key of a USIM, and derive keys.
    Aka,
    /// EAP-AKA' (RFC 9048): EAP-AKA with SHA-256 and with keys that are bound to the access network.
    AkaPrime,
    /// EAP-TLS (RFC 5216, RFC 9190): both sides prove their identities with certificates, and derive keys.
    Tls,
    /// EAP-TTLS (RFC 5281): the authenticator proves its identity with a certificate, then the peer its own
    /// with a password in the TLS tunnel, and both derive keys.
    Ttls,
    /// PEAP version 0 ([MS-PEAP]): like EAP-TTLS, with a confirmation of the result in the TLS tunnel that
    /// binds the keys of both.
    Peap,
    /// EAP-MSCHAPv2 (draft-kamath-pppext-eap-mschapv2-02): both sides prove that they know the password, and
    /// derive keys. An observer of the conversation can compute the password's hash.
    MsChapV2,
}

impl Method {
    /// All methods, the strongest first.
    pub const ALL: [Self; 8] =
        [Self::Tls, Self::AkaPrime, Self::Aka, Self::Ttls, Self::Peap, Self::MsChapV2, Self::Gtc, Self::Md5];

    /// Methods by which the peer proves a password without a tunnel, the strongest first. They also run in
    /// the tunnels of EAP-TTLS and PEAP.
    pub const WITH_PASSWORD: [Self; 3] = [Self::MsChapV2, Self::Gtc, Self::Md5];

    /// Methods that are used unless the configuration names one.
    pub const DEFAULT: &'static [Self] = &[Self::MsChapV2, Self::Ttls, Self::Peap, Self::AkaPrime, Self::Aka];

    /// EAP type.
    pub const fn id(self) -> u8 {
        match self {
            Self::Md5 => 4,
            Self::Gtc => 6,
            Self::Tls => 13,
            Self::Ttls => 21,
            Self::Aka => 23,
            Self::Peap => 25,
            Self::AkaPrime => 50,
            Self::MsChapV2 => 26,
        }
    }

    /// Returns the method with this EAP type.
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.id() == id)
    }

    /// Returns the method with this keyword.
    pub fn from_keyword(keyword: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.keyword() == keyword)
    }

    /// Keyword of strongSwan, e.g. `gtc` in `auth = eap-gtc`.
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Gtc => "gtc",
            Self::Tls => "tls",
            Self::Ttls => "ttls",
            Self::Aka => "aka",
            Self::Peap => "peap",
            Self::AkaPrime => "aka'",
            Self::MsChapV2 => "mschapv2",
        }
    }

    /// Begins this method as the peer with this EAP identity, which would also use the methods `accepted`.
    pub(crate) fn peer(self, identity: &[u8], accepted: &[Self]) -> Box<dyn PeerMethod> {
        let has_prime = accepted.contains(&Self::AkaPrime);
        match self {
            Self::Aka => Box::new(aka::AkaPeer::new(Flavour::Aka, identity, has_prime)),
            Self::AkaPrime => Box::new(aka::AkaPeer::new(Flavour::AkaPrime, identity, has_prime)),
            Self::Md5 => Box::new(md5::Md5Peer::new(identity)),
            Self::Gtc => Box::new(gtc::GtcPeer::new(identity)),
            Self::Tls => Box::new(tls::TlsPeer::default()),
            Self::Ttls => Box::new(tls::TtlsPeer::new(identity)),
            Self::Peap => Box::new(tls::PeapPeer::new(identity)),
            Self::MsChapV2 => Box::new(mschapv2::MsChapV2Peer::new(identity)),
        }
    }

    /// Begins this method as the authenticator of a peer with this EAP identity, which would also use the
    /// methods `accepted`. A message of the peer in several packets has at most `max_message` bytes.
    pub(crate) fn server(
        self,
        identity: &[u8],
        accepted: &[Self],
        max_message: usize,
    ) -> Box<dyn ServerMethod> {
        let has_prime = accepted.contains(&Self::AkaPrime);
        match self {
            Self::Aka => Box::new(aka::AkaServer::new(Flavour::Aka, identity, has_prime)),
            Self::AkaPrime => Box::new(aka::AkaServer::new(Flavour::AkaPrime, identity, has_prime)),
            Self::Md5 => Box::new(md5::Md5Server::new(identity)),
            Self::Gtc => Box::new(gtc::GtcServer::new(identity)),
            Self::Tls => Box::new(tls::TlsServer::new(identity, max_message)),
            Self::Ttls => Box::new(tls::TtlsServer::new(max_message)),
            Self::Peap => Box::new(tls::PeapServer::new(max_message)),
            Self::MsChapV2 => Box::new(mschapv2::MsChapV2Server::new(identity)),
        }
    }

    /// Whether the method derives a master session key.
    pub const fn derives_keys(self) -> bool {
        match self {
            Self::Md5 | Self::Gtc => false,
            Self::MsChapV2 | Self::Aka | Self::AkaPrime | Self::Tls | Self::Ttls | Self::Peap => true,
        }
    }

    /// Whether the method runs in a TLS session.
    pub const fn uses_tls(self) -> bool {
        match self {
            Self::Tls | Self::Ttls | Self::Peap => true,
            Self::Md5 | Self::Gtc | Self::MsChapV2 | Self::Aka | Self::AkaPrime => false,
        }
    }

    /// Whether the method proves the key of a USIM.
    pub const fn uses_usim(self) -> bool {
        matches!(self, Self::Aka | Self::AkaPrime)
    }

    /// Whether the peer proves its identity with a certificate.
    pub const fn proves_certificate(self) -> bool {
        matches!(self, Self::Tls)
    }

    /// Whether the method may replace the AUTH payload of the responder (RFC 5998 section 4): the
    /// authenticator also proves its identity to the peer, keys bind the conversation to the IKE SA, and an
    /// observer of the conversation cannot search for the password. MSCHAPv2 lacks the last property.
    pub const fn is_mutual(self) -> bool {
        match self {
            Self::Md5 | Self::Gtc | Self::MsChapV2 => false,
            Self::Tls | Self::Ttls | Self::Peap | Self::Aka | Self::AkaPrime => true,
        }
    }
}

impl fmt::Display for Method {
    /// Writes the keyword with its prefix, e.g. `eap-gtc`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eap-{}", self.keyword())
    }
}
