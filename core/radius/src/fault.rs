//! Reasons why a packet is discarded or a request fails.

use core::fmt;

/// Why a packet was discarded, or a request cannot be sent. No variant contains bytes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RadiusFault {
    /// The length of the packet or of an attribute is wrong.
    Malformed,
    /// The packet answers no outstanding request of this server, or its code is not one of an answer.
    Unexpected,
    /// The response to an Access-Request has no Message-Authenticator, or more than one.
    NoMessageAuthenticator,
    /// A Message-Authenticator or a Response Authenticator is wrong: probably another secret.
    WrongAuthenticator,
    /// A key of the server cannot be decrypted: probably another secret.
    WrongKey,
    /// The packet does not fit into 4,096 bytes.
    TooLong,
    /// As many requests are outstanding as the server may have.
    Full,
}

impl RadiusFault {
    /// Words for users.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Malformed => "the packet is malformed",
            Self::Unexpected => "the packet answers no request",
            Self::NoMessageAuthenticator => "the packet has no Message-Authenticator",
            Self::WrongAuthenticator => {
                "an authenticator is wrong: both sides probably have different secrets"
            }
            Self::WrongKey => "a key cannot be decrypted",
            Self::TooLong => "the packet would be too long",
            Self::Full => "too many requests await an answer",
        }
    }
}

impl fmt::Display for RadiusFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for RadiusFault {}
