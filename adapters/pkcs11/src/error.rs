//! Why a token did not do what it was asked.

use cryptoki::error::{Error, RvError};
use std::fmt;

/// An error of a token or its module. Its text contains no PIN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenError {
    /// The module cannot be loaded or initialized.
    Module(String),
    /// The module did not answer in time.
    Timeout,
    /// Too many operations wait for the module.
    Busy,
    /// There is no token in this slot.
    NoToken(u64),
    /// There is no token in any slot.
    NoTokens,
    /// The object may be on several tokens, in these slots.
    WhichSlot(Vec<u64>),
    /// The slot has another token than the one on which the key was found.
    OtherToken {
        /// Serial number of the token that was expected.
        expected: String,
        /// Serial number of the present one.
        found: String,
    },
    /// The token has no certificate with this CKA_ID.
    NoCertificate,
    /// The token has no private key with this CKA_ID, as far as the PIN shows.
    NoKey,
    /// The token requires a PIN, and none was given.
    PinMissing,
    /// The PIN is not UTF-8.
    PinText,
    /// The token has refused the PIN.
    PinWrong,
    /// The token has refused the PIN before.
    PinWrongBefore,
    /// The token is in use with another PIN, which it has accepted.
    PinDiffers,
    /// One more wrong PIN would lock the token.
    PinFinalTry,
    /// The token has locked its PIN.
    PinLocked,
    /// The PIN must be changed before it can be used.
    PinExpired,
    /// The key requires the PIN for each signature (CKA_ALWAYS_AUTHENTICATE).
    PinForEachSignature,
    /// The kind of the key is not supported, or its public key cannot be read.
    Key(String),
    /// The token does not support the signature algorithm.
    Algorithm(String),
    /// The token does not decrypt a text.
    Decryption(String),
    /// The signature does not fit the public key with the same CKA_ID.
    Mismatch,
    /// The connection to the token was lost, for example because the token was removed.
    Lost(String),
    /// Another error of the module.
    Other(String),
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(why) => write!(f, "the module cannot be used: {why}"),
            Self::Timeout => f.write_str("the module did not answer in time"),
            Self::Busy => f.write_str("too many signatures wait for the module"),
            Self::NoToken(slot) => write!(f, "there is no token in slot {slot}"),
            Self::NoTokens => f.write_str("the module has no slot with a token"),
            Self::WhichSlot(slots) => {
                let slots: Vec<String> = slots.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "it is not known which token has it: `slot` was expected, one of {}",
                    slots.join(", ")
                )
            }
            Self::OtherToken { expected, found } => {
                write!(f, "another token was inserted: serial number {expected} was expected, not {found}")
            }
            Self::NoCertificate => f.write_str("the token has no certificate with this handle (CKA_ID)"),
            Self::NoKey => f.write_str("the token has no private key with this handle (CKA_ID)"),
            Self::PinMissing => f.write_str("the token requires a PIN: `pin` was expected"),
            Self::PinText => f.write_str("the PIN is not UTF-8"),
            Self::PinWrong => {
                f.write_str("the token has refused the PIN, which is not tried again: the token would lock")
            }
            Self::PinWrongBefore => f.write_str(
                "the token has refused this PIN before: another PIN was expected, or a new start of the \
                 program",
            ),
            Self::PinDiffers => f.write_str("the token is in use with another PIN, which it has accepted"),
            Self::PinFinalTry => f.write_str(
                "another wrong PIN would lock the token, so none is tried: a login by another program was \
                 expected",
            ),
            Self::PinLocked => f.write_str("the token has locked its PIN: its owner has to unlock it"),
            Self::PinExpired => f.write_str("the PIN has expired: its owner has to change it"),
            Self::PinForEachSignature => f.write_str(
                "the key requires the PIN for each signature (CKA_ALWAYS_AUTHENTICATE), which is not \
                 supported",
            ),
            Self::Key(why) => write!(f, "the key cannot be used: {why}"),
            Self::Algorithm(why) => write!(f, "the token does not support the signature algorithm: {why}"),
            Self::Decryption(why) => write!(
                f,
                "the token cannot decrypt it: a text of RSA with OAEP (SHA-256 or SHA-1) and the public key with \
                 this handle (CKA_ID) was expected: {why}"
            ),
            Self::Mismatch => f.write_str(
                "the signature does not fit the public key: one handle (CKA_ID) for both halves of a key \
                 pair was expected",
            ),
            Self::Lost(why) => write!(f, "the connection to the token was lost: {why}"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for TokenError {}

impl From<Error> for TokenError {
    fn from(error: Error) -> Self {
        let Error::Pkcs11(code, function) = error else { return Self::Other(error.to_string()) };
        let text = format!("C_{function:?} returned {code:?}");
        match code {
            RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange => Self::PinWrong,
            RvError::PinLocked => Self::PinLocked,
            RvError::PinExpired => Self::PinExpired,
            RvError::MechanismInvalid | RvError::MechanismParamInvalid => Self::Algorithm(text),
            RvError::SessionHandleInvalid
            | RvError::SessionClosed
            | RvError::DeviceRemoved
            | RvError::DeviceError
            | RvError::TokenNotPresent
            | RvError::TokenNotRecognized
            | RvError::UserNotLoggedIn
            | RvError::KeyHandleInvalid
            | RvError::ObjectHandleInvalid => Self::Lost(text),
            _ => Self::Other(text),
        }
    }
}
