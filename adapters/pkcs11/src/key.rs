//! A private key on a token.

use crate::login::{Tokens, find};
use crate::{TokenError, TokenModule, TokenObject, public_key, retried, signature};
use casemate_crypto::{Provider, Providers, PublicKey, SecretBytes, SignatureAlg};
use cryptoki::object::{Attribute, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use std::sync::Arc;

/// A private key that does not leave its token. Clones share it.
#[derive(Clone)]
pub struct TokenKey {
    module: TokenModule,
    shared: Arc<Shared>,
}

struct Shared {
    object: TokenObject,
    slot: u64,
    /// Serial number of the token. A token with another one does not get the PIN.
    serial: String,
    pin: Option<SecretBytes>,
    public: PublicKey,
    providers: Vec<&'static dyn Provider>,
}

impl TokenKey {
    pub(crate) fn open(
        module: &TokenModule,
        object: &TokenObject,
        pin: Option<SecretBytes>,
        providers: Vec<&'static dyn Provider>,
    ) -> Result<Self, TokenError> {
        let object = object.clone();
        let shared = module.call(move |tokens| {
            let slot = tokens.slot_of(&object)?;
            let (public, serial) = retried(tokens, slot, |tokens| {
                tokens.log_in(slot, pin.as_ref(), None)?;
                let opened = tokens.open(slot)?;
                let key = private_key(opened.session, &object.id)?;
                check_pin_policy(opened.session, key)?;
                Ok((public_key::read(opened.session, key, &object.id)?, opened.serial.to_owned()))
            })?;
            Ok(Shared { object, slot, serial, pin, public, providers })
        })?;
        Ok(Self { module: module.clone(), shared: Arc::new(shared) })
    }

    /// The module of the token.
    pub fn module(&self) -> &TokenModule {
        &self.module
    }

    /// The public key.
    pub fn public_key(&self) -> &PublicKey {
        &self.shared.public
    }

    /// Signs a message, in the format of [`SignatureAlg`]. Blocks for up to 10 seconds.
    pub fn sign(&self, alg: SignatureAlg, message: Vec<u8>) -> Result<Vec<u8>, TokenError> {
        let shared = Arc::clone(&self.shared);
        self.module.call(move |tokens| shared.sign(tokens, alg, &message))
    }

    /// Has a message signed. `done` is called on the thread of the module. The error says why it will not be.
    pub fn sign_later(
        &self,
        alg: SignatureAlg,
        message: Vec<u8>,
        done: impl FnOnce(Result<Vec<u8>, TokenError>) + Send + 'static,
    ) -> Result<(), TokenError> {
        let shared = Arc::clone(&self.shared);
        self.module.submit(move |tokens| done(shared.sign(tokens, alg, &message)))
    }
}

impl Shared {
    fn sign(&self, tokens: &mut Tokens, alg: SignatureAlg, message: &[u8]) -> Result<Vec<u8>, TokenError> {
        let (public, providers) = (&self.public, Providers(&self.providers));
        let signature = retried(tokens, self.slot, |tokens| {
            // The token may have been removed and inserted again, or exchanged.
            tokens.log_in(self.slot, self.pin.as_ref(), Some(&self.serial))?;
            let session = tokens.open(self.slot)?.session;
            let key = private_key(session, &self.object.id)?;
            signature::sign(session, key, public.kind(), alg, message, &providers)
        })?;
        // SHA-1 is refused by the caller where it must not be used.
        let verified = providers.verify_allowing_sha1(alg, public, message, &signature);
        verified.map(|()| signature).map_err(|_| TokenError::Mismatch)
    }
}

fn private_key(session: &Session, id: &[u8]) -> Result<ObjectHandle, TokenError> {
    find(session, ObjectClass::PRIVATE_KEY, id)?.ok_or(TokenError::NoKey)
}

/// Refuses keys that need the PIN again for each signature.
fn check_pin_policy(session: &Session, key: ObjectHandle) -> Result<(), TokenError> {
    // Tokens without the attribute have no such keys.
    let attributes = session.get_attributes(key, &[AttributeType::AlwaysAuthenticate]).unwrap_or_default();
    if attributes.contains(&Attribute::AlwaysAuthenticate(true)) {
        Err(TokenError::PinForEachSignature)
    } else {
        Ok(())
    }
}
