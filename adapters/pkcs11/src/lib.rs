//! Private keys and certificates on PKCS #11 tokens: smart cards, USB tokens, and hardware security modules.
//!
//! A token comes with a module, a shared library that [`TokenModule`] loads into this process (OASIS PKCS #11
//! 2.40; 3.0 for Ed25519). Each module has one thread, on which all its functions run one after the other, so
//! that a slow token delays no other work. The token performs every operation with a private key: signatures,
//! and the decryption of short texts with RSA. Hashing and the padding of RSA with PKCS #1 v1.5 happen here,
//! because not every token can.
//!
//! A PIN is sent to a token once. A token counts wrong PINs and locks itself after a few, so a PIN that it
//! has refused is not tried again until the program ends.
#![forbid(unsafe_code)]

mod error;
mod key;
mod login;
mod public_key;
mod signature;
mod worker;

pub use error::TokenError;
pub use key::TokenKey;
pub use worker::ThreadEntry;

use casemate_crypto::{Provider, SecretBytes};
use cryptoki::object::{Attribute, AttributeType, ObjectClass};
use cryptoki::session::Session;
use login::{Tokens, find};
use std::path::{Path, PathBuf};

/// A PKCS #11 module: the path of its shared library. All values with one path share the library and its
/// thread.
#[derive(Debug, Clone)]
pub struct TokenModule {
    path: PathBuf,
    entry: ThreadEntry,
}

/// A certificate or a key pair on a token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenObject {
    /// Slot (CK_SLOT_ID). `None` for the only one with a token, or the only one whose token shows an object
    /// with this identifier.
    pub slot: Option<u64>,
    /// CKA_ID, which a certificate and the halves of its key pair have in common.
    pub id: Vec<u8>,
}

impl TokenModule {
    /// The library at `path` is loaded with the first operation. Its thread calls `entry` before that.
    pub fn new(path: PathBuf, entry: ThreadEntry) -> Self {
        Self { path, entry }
    }

    /// Reads a certificate in DER, without a login. Blocks for up to 10 seconds.
    pub fn certificate(&self, object: &TokenObject) -> Result<Vec<u8>, TokenError> {
        let object = object.clone();
        self.call(move |tokens| {
            let slot = tokens.slot_of(&object)?;
            let read = |tokens: &mut Tokens| read_certificate(tokens.open(slot)?.session, &object.id);
            retried(tokens, slot, read)?.ok_or(TokenError::NoCertificate)
        })
    }

    /// Opens a private key: logs in with the PIN and reads the public key. Blocks for up to 10 seconds.
    pub fn open_key(
        &self,
        object: &TokenObject,
        pin: Option<&SecretBytes>,
        providers: &[&'static dyn Provider],
    ) -> Result<TokenKey, TokenError> {
        TokenKey::open(self, object, pin.cloned(), providers.to_vec())
    }

    pub(crate) fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Tokens) -> Result<T, TokenError> + Send + 'static,
    ) -> Result<T, TokenError> {
        worker::call(&self.path, self.entry, job)
    }

    pub(crate) fn submit(&self, job: impl FnOnce(&mut Tokens) + Send + 'static) -> Result<(), TokenError> {
        worker::submit(&self.path, self.entry, job)
    }

    /// Path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Runs an operation with the token in a slot, and once more with another session if the connection to the
/// token was lost: perhaps the token was removed and inserted again.
pub(crate) fn retried<T>(
    tokens: &mut Tokens,
    slot: u64,
    mut operation: impl FnMut(&mut Tokens) -> Result<T, TokenError>,
) -> Result<T, TokenError> {
    match operation(tokens) {
        Err(TokenError::Lost(_)) => {
            tokens.forget(slot);
            operation(tokens)
        }
        done => done,
    }
}

/// The certificate with this CKA_ID.
pub(crate) fn read_certificate(session: &Session, id: &[u8]) -> Result<Option<Vec<u8>>, TokenError> {
    let Some(found) = find(session, ObjectClass::CERTIFICATE, id)? else { return Ok(None) };
    let attributes = session.get_attributes(found, &[AttributeType::Value])?;
    Ok(attributes.into_iter().find_map(|attribute| match attribute {
        Attribute::Value(der) => Some(der),
        _ => None,
    }))
}
