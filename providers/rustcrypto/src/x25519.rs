//! X25519 (RFC 7748, for IKE RFC 8031).

use alloc::boxed::Box;
use casemate_crypto::{KexError, KexMethod, KexSecret, KeyError, Rng, SecretBytes};
use x25519_dalek::{PublicKey, StaticSecret, X25519_BASEPOINT_BYTES};
use zeroize::Zeroizing;

struct X25519 {
    private: StaticSecret,
    public: PublicKey,
}

/// Our side of an exchange. `public_of` is one of [`by_table`] and [`by_ladder`].
pub(crate) fn secret(
    rng: &mut dyn Rng,
    public_of: fn(&StaticSecret) -> PublicKey,
) -> Result<Box<dyn KexSecret>, KeyError> {
    let private = KexMethod::X25519.draw_private(rng, |bytes| {
        let bytes = Zeroizing::new(*bytes.first_chunk()?);
        Some(StaticSecret::from(*bytes))
    })?;
    let public = public_of(&private);
    Ok(Box::new(X25519 { private, public }))
}

/// The public value from multiples of the base point, which are 30 KiB of constants.
pub(crate) fn by_table(private: &StaticSecret) -> PublicKey {
    PublicKey::from(private)
}

/// The public value as any agreement is computed (RFC 7748 section 6.1): slower, and without constants.
pub(crate) fn by_ladder(private: &StaticSecret) -> PublicKey {
    private.diffie_hellman(&PublicKey::from(X25519_BASEPOINT_BYTES)).to_bytes().into()
}

impl KexSecret for X25519 {
    fn public(&self) -> &[u8] {
        self.public.as_bytes()
    }

    fn agree(self: Box<Self>, peer: &[u8]) -> Result<SecretBytes, KexError> {
        KexMethod::X25519.check_public(peer)?;
        let peer: [u8; 32] = *peer.first_chunk().ok_or(KexError::Failed)?;
        // RFC 8031 section 3.2: the top bit is masked and values that are not canonical are taken; the library does both.
        let shared = self.private.diffie_hellman(&PublicKey::from(peer));
        if shared.was_contributory() {
            Ok(SecretBytes::new(shared.as_bytes()))
        } else {
            Err(KexError::AllZero)
        }
    }
}
