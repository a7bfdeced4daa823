//! A private key on a token.

use crate::login::{Tokens, find};
use crate::{TokenError, TokenModule, TokenObject, public_key, retried, signature};
use casemate_crypto::{KeyKind, Provider, Providers, PublicKey, SecretBytes, SignatureAlg};
use cryptoki::mechanism::MechanismType;
use cryptoki::mechanism::rsa::{PkcsMgfType, PkcsOaepParams, PkcsOaepSource};
use cryptoki::object::{Attribute, AttributeType, ObjectClass, ObjectHandle};
use cryptoki::session::Session;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Hash functions of OAEP, with their MGF1. Many tokens, and SoftHSM up to 2.6, have SHA-1 only, which is not
/// weak here: OAEP does not need a hash function without collisions.
const HASHES: [(MechanismType, PkcsMgfType); 2] =
    [(MechanismType::SHA256, PkcsMgfType::MGF1_SHA256), (MechanismType::SHA1, PkcsMgfType::MGF1_SHA1)];

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

    /// Decrypts a text of RSA with OAEP, with SHA-256 or SHA-1 and without a label. Blocks for up to 10
    /// seconds.
    pub fn decrypt(&self, encrypted: Vec<u8>) -> Result<SecretBytes, TokenError> {
        let kind = self.public_key().kind();
        if kind != KeyKind::Rsa {
            return Err(TokenError::Key(format!("an RSA key was expected, not {kind}")));
        }
        let shared = Arc::clone(&self.shared);
        self.module
            .call(move |tokens| shared.with_key(tokens, |session, key| decrypt(session, key, &encrypted)))
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
    /// Runs an operation with the key, logged in to its token.
    fn with_key<T>(
        &self,
        tokens: &mut Tokens,
        operation: impl Fn(&Session, ObjectHandle) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        retried(tokens, self.slot, |tokens| {
            // The token may have been removed and inserted again, or exchanged.
            tokens.log_in(self.slot, self.pin.as_ref(), Some(&self.serial))?;
            let session = tokens.open(self.slot)?.session;
            operation(session, private_key(session, &self.object.id)?)
        })
    }

    fn sign(&self, tokens: &mut Tokens, alg: SignatureAlg, message: &[u8]) -> Result<Vec<u8>, TokenError> {
        let (public, providers) = (&self.public, Providers(&self.providers));
        let signature = self.with_key(tokens, |session, key| {
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

/// Decrypts a text of RSAES-OAEP (RFC 8017 section 7.1) with an empty label. It does not say which hash
/// function it has.
fn decrypt(session: &Session, key: ObjectHandle, encrypted: &[u8]) -> Result<SecretBytes, TokenError> {
    let (mut reasons, mut lost) = (Vec::new(), None);
    for (hash, mgf) in HASHES {
        let params = PkcsOaepParams::new(hash, mgf, PkcsOaepSource::empty());
        match session.decrypt(&params.into(), key, encrypted) {
            Ok(text) => return Ok(SecretBytes::new(&Zeroizing::new(text))),
            Err(error) => match TokenError::from(error) {
                // Also what some tokens answer to a text that they cannot decrypt.
                TokenError::Lost(why) => lost = Some(why),
                TokenError::Algorithm(why) | TokenError::Other(why) => reasons.push(why),
                error => reasons.push(error.to_string()),
            },
        }
    }
    Err(lost.map_or_else(|| TokenError::Decryption(reasons.join(", then ")), TokenError::Lost))
}
