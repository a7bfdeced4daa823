//! Proof that key material is wiped on drop: this does not compile if a `zeroize` feature of a dependency gets lost.

use aes::{Aes128, Aes128Enc, Aes192, Aes192Enc, Aes256, Aes256Enc};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::U12;
use chacha20poly1305::ChaCha20Poly1305;
use zeroize::ZeroizeOnDrop;

fn wiped<T: ZeroizeOnDrop>() {}

#[test]
fn every_key_is_wiped_on_drop() {
    // `Cbc`, `Ctr` and `Ccm` hold nothing but one of these.
    wiped::<Aes128>();
    wiped::<Aes192>();
    wiped::<Aes256>();
    wiped::<Aes128Enc>();
    wiped::<Aes192Enc>();
    wiped::<Aes256Enc>();
    wiped::<AesGcm<Aes128Enc, U12>>();
    wiped::<AesGcm<Aes192Enc, U12>>();
    wiped::<AesGcm<Aes256Enc, U12>>();
    wiped::<ChaCha20Poly1305>();
    // An HMAC key is two states of its hash.
    wiped::<sha1::Sha1>();
    wiped::<sha2::Sha256>();
    wiped::<sha2::Sha384>();
    wiped::<sha2::Sha512>();
    // A MODP exponent is in `Zeroizing` by its type.
    wiped::<x25519_dalek::StaticSecret>();
    wiped::<x25519_dalek::SharedSecret>();
    wiped::<p256::SecretKey>();
    wiped::<p384::SecretKey>();
    wiped::<p521::SecretKey>();
    wiped::<p256::ecdh::SharedSecret>();
    wiped::<p256::ecdsa::SigningKey>();
    wiped::<p384::ecdsa::SigningKey>();
    wiped::<p521::ecdsa::SigningKey>();
    wiped::<ed25519_dalek::SigningKey>();
    wiped::<rsa::RsaPrivateKey>();
}
