//! Reasons why a conversation fails.

use core::fmt;

/// Why an EAP conversation failed. No variant contains bytes of a peer, of a password or of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EapFault {
    /// A packet that the state of the conversation does not allow: a response without a request, another
    /// identifier, a request after the result, another method in the middle.
    OutOfState,
    /// The authenticator announced success before the method had finished.
    EarlySuccess,
    /// The type data of a packet has a wrong length or a wrong field.
    Malformed,
    /// The other side reported failure.
    Refused,
    /// The other side reported failure after TLS was established, so it refuses the proof in the tunnel.
    RefusedInTunnel,
    /// The authenticator requests a method that is not configured, or the peer accepts none of ours.
    NoMethod,
    /// There is no password for the identity.
    NoPassword,
    /// The password is not UTF-8, which the method needs.
    PasswordEncoding,
    /// The proof of the peer is wrong: probably another password.
    WrongPassword,
    /// The authenticator does not know the password that it verifies.
    WrongAuthenticator,
    /// Both sides prefer another method, but a weaker one was negotiated: perhaps by an attacker.
    BiddingDown,
    /// The sequence numbers of both sides differ even after they were synchronised, or all are used.
    SequenceNumber,
    /// The peer does not bind the keys of the method in the tunnel to the tunnel.
    NoBinding,
    /// The peer has proved another identity than the required one, in the tunnel or to the AAA server.
    OtherIdentity,
    /// The AAA server has accepted the peer, but may have authenticated another identity than the required
    /// one.
    UnprovenIdentity,
    /// TLS failed: no common version or algorithm, or a record or handshake message that is wrong.
    Tls,
    /// The other side ended TLS with an alert, perhaps because it does not accept our certificate.
    TlsAlert,
    /// The certificate of the other side is not accepted.
    PeerCertificate,
    /// There is no certificate with a private key for our side of TLS.
    NoCertificate,
    /// The method finished without the keys that it derives.
    MissingKey,
    /// A message in several packets is longer than the limit.
    TooLong,
    /// More packets than [`MAX_PACKETS`](crate::MAX_PACKETS).
    TooManyPackets,
    /// An algorithm of the method is not available.
    Unsupported,
    /// No AAA server has answered, or there is none.
    NoServer,
    /// The AAA server has refused the peer.
    ServerRefused,
    /// The AAA server has sent a packet that does not fit the conversation.
    BadServerPacket,
    /// The AAA server has accepted the peer, which belongs to none of the required groups.
    NoGroup,
}

impl EapFault {
    /// The same fault, if it is that of a conversation in a TLS tunnel.
    pub(crate) const fn in_tunnel(self) -> Self {
        match self {
            Self::Refused => Self::RefusedInTunnel,
            other => other,
        }
    }

    /// Every fault.
    pub const ALL: [Self; 27] = [
        Self::OutOfState,
        Self::EarlySuccess,
        Self::Malformed,
        Self::Refused,
        Self::RefusedInTunnel,
        Self::NoMethod,
        Self::NoPassword,
        Self::PasswordEncoding,
        Self::WrongPassword,
        Self::WrongAuthenticator,
        Self::BiddingDown,
        Self::SequenceNumber,
        Self::NoBinding,
        Self::OtherIdentity,
        Self::UnprovenIdentity,
        Self::Tls,
        Self::TlsAlert,
        Self::PeerCertificate,
        Self::NoCertificate,
        Self::MissingKey,
        Self::TooLong,
        Self::TooManyPackets,
        Self::Unsupported,
        Self::NoServer,
        Self::ServerRefused,
        Self::BadServerPacket,
        Self::NoGroup,
    ];

    /// Name as shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OutOfState => "eap-out-of-state",
            Self::EarlySuccess => "eap-early-success",
            Self::Malformed => "eap-malformed",
            Self::Refused => "eap-refused",
            Self::RefusedInTunnel => "eap-refused-in-tunnel",
            Self::NoMethod => "eap-no-method",
            Self::NoPassword => "eap-no-password",
            Self::PasswordEncoding => "eap-password-encoding",
            Self::WrongPassword => "eap-wrong-password",
            Self::WrongAuthenticator => "eap-wrong-authenticator",
            Self::BiddingDown => "eap-bidding-down",
            Self::SequenceNumber => "eap-sequence-number",
            Self::NoBinding => "eap-no-binding",
            Self::OtherIdentity => "eap-other-identity",
            Self::UnprovenIdentity => "eap-unproven-identity",
            Self::Tls => "eap-tls",
            Self::TlsAlert => "eap-tls-alert",
            Self::PeerCertificate => "eap-peer-certificate",
            Self::NoCertificate => "eap-no-certificate",
            Self::MissingKey => "eap-missing-key",
            Self::TooLong => "eap-too-long",
            Self::TooManyPackets => "eap-too-many-packets",
            Self::Unsupported => "eap-unsupported",
            Self::NoServer => "eap-no-server",
            Self::ServerRefused => "eap-server-refused",
            Self::BadServerPacket => "eap-bad-server-packet",
            Self::NoGroup => "eap-no-group",
        }
    }
}

impl fmt::Display for EapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for EapFault {}
