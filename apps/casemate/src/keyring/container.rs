//! PKCS #12 containers (RFC 7292): private keys with their certificates in one encrypted file, as browsers,
//! Windows and `openssl pkcs12` write them. The library checks the MAC and bounds the iterations.
//!
//! A container adds nothing to the trusted certificates: an authority in it is sent to peers at most.

use super::load::wrong_passphrase;
use crate::swanctl::Passphrase;
use casemate_crypto::{KeyLimits, PrivateKey};
use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error;

/// Maximum number of keys and certificates in a container.
const MAX_OBJECTS: usize = 64;

/// The objects in a container.
pub(super) struct Container {
    pub(super) keys: Vec<PrivateKey>,
    /// In DER.
    pub(super) certs: Vec<Vec<u8>>,
}

impl Container {
    /// Decrypts a container. It has at least one key.
    pub(super) fn open(bytes: &[u8], passphrase: &Passphrase) -> Result<Self, String> {
        let text = str::from_utf8(passphrase.secret.expose())
            .map_err(|_| format!("{}.secret: UTF-8 was expected", passphrase.section))?;
        let archive = Pkcs12Archive::from_pkcs12(bytes, text).map_err(|error| match error {
            Error::MacError(_) | Error::UnpadError | Error::Pkcs5Error(_) => wrong_passphrase(passphrase),
            error => format!("a PKCS #12 container in DER was expected: {error}"),
        })?;
        if archive.keys.len().saturating_add(archive.certs.len()) > MAX_OBJECTS {
            return Err(format!("at most {MAX_OBJECTS} keys and certificates were expected"));
        }
        if archive.keys.is_empty() {
            return Err("it contains no private key".into());
        }
        let parse = |der: &[u8]| PrivateKey::from_der(der, KeyLimits::default());
        let keys = archive.keys.iter().map(|bag| parse(bag.key.as_der()));
        Ok(Self {
            keys: keys.collect::<Result<_, _>>().map_err(|fault| fault.to_string())?,
            certs: archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_crypto::SecretBytes;

    #[test]
    fn other_bytes_and_passphrases_that_are_no_text_are_errors() {
        let error = |bytes: &[u8], secret: &[u8]| {
            let secret = SecretBytes::new(secret);
            let passphrase = Passphrase { section: "secrets.pkcs12".into(), file: "x".into(), secret };
            Container::open(bytes, &passphrase).err().unwrap()
        };
        for bytes in [&b""[..], &[0x30, 0], &[0x30, 0x80], &[0xff; 64], b"-----BEGIN CERTIFICATE-----"] {
            assert!(error(bytes, b"x").starts_with("a PKCS #12 container in DER was expected"), "{bytes:?}");
        }
        assert_eq!(error(&[0x30, 0], b"\xff"), "secrets.pkcs12.secret: UTF-8 was expected");
    }
}
