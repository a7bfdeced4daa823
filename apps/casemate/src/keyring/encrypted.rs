//! Private keys that a passphrase encrypts: PKCS #8 (RFC 5958 section 3) with PBES2 (RFC 8018 section 6.2),
//! as OpenSSL writes them today, and the older encryption inside of PEM files, with the headers of RFC 1421
//! and a key that OpenSSL derives with MD5.
//!
//! PBES1, scrypt and ciphers other than AES-CBC and 3DES are not supported.
//!
//! A PKCS #12 container (RFC 7292) has private keys and certificates in one encrypted file, as browsers,
//! Windows and `openssl pkcs12` write them. As in strongSwan, a root CA in it is trusted.

use super::load::{is_der, wrong_passphrase};
use crate::swanctl::{Passphrase, base64};
use casemate_crypto::der::{OCTET_STRING, Reader, SEQUENCE, write};
use casemate_crypto::{
    AesBits, CipherAlg, KeyLimits, PasswordAlgorithms as _, PrivateKey, Providers, SecretBytes,
};
use casemate_legacy::LEGACY;
use casemate_pki::is_authority;
use casemate_strongswan::value::parse_hex;
use p12_keystore::Pkcs12Archive;
use p12_keystore::error::Error;
use pkcs5::EncryptionScheme;
use zeroize::Zeroizing;

/// Maximum number of iterations of PBKDF2, which takes a few seconds. OpenSSL's default is 2048.
const MAX_ITERATIONS: u32 = 4_000_000;

/// Length of the salt that OpenSSL takes from the IV of an old PEM file, in bytes.
const PEM_SALT_LEN: usize = 8;

/// Maximum number of keys and certificates in a container.
const MAX_OBJECTS: usize = 64;

const MALFORMED: &str = "malformed encrypted private key";

/// A private key that needs a passphrase.
pub(super) enum EncryptedKey {
    /// EncryptedPrivateKeyInfo in DER.
    Pkcs8(Zeroizing<Vec<u8>>),
    /// An old PEM file.
    Pem {
        cipher: PemCipher,
        /// As long as a block of the cipher.
        iv: Zeroizing<Vec<u8>>,
        ciphertext: Zeroizing<Vec<u8>>,
    },
}

/// The cipher of an old PEM file.
pub(super) struct PemCipher {
    /// Name in the header `DEK-Info`.
    name: &'static str,
    alg: CipherAlg,
    /// Length of a block, in bytes.
    block: usize,
}

const PEM_CIPHERS: [PemCipher; 4] = [
    PemCipher { name: "AES-128-CBC", alg: CipherAlg::AesCbc(AesBits::B128), block: 16 },
    PemCipher { name: "AES-192-CBC", alg: CipherAlg::AesCbc(AesBits::B192), block: 16 },
    PemCipher { name: "AES-256-CBC", alg: CipherAlg::AesCbc(AesBits::B256), block: 16 },
    PemCipher { name: "DES-EDE3-CBC", alg: CipherAlg::TripleDesCbc, block: 8 },
];

impl EncryptedKey {
    /// Finds the encrypted private key in a file; `None` if the file has none.
    pub(super) fn find(file: &[u8]) -> Result<Option<Self>, String> {
        if is_der(file) {
            // RFC 5958 section 3: an EncryptedPrivateKeyInfo begins with its algorithm; other keys begin with
            // a number.
            let begins = Reader::only(SEQUENCE, file).ok().and_then(|reader| reader.peek());
            return Ok((begins == Some(SEQUENCE)).then(|| Self::Pkcs8(Zeroizing::new(file.to_vec()))));
        }
        let blocks = pem_blocks(str::from_utf8(file).unwrap_or_default());
        let is_encrypted = |block: &PemBlock<'_>| block.label == "ENCRYPTED " || block.has_old_encryption();
        match &blocks[..] {
            [block] if block.label == "ENCRYPTED " => block.data().map(|der| Some(Self::Pkcs8(der))),
            [block] if is_encrypted(block) => Self::from_pem(block).map(Some),
            blocks if blocks.iter().any(is_encrypted) => Err("several keys, expected one".into()),
            _ => Ok(None),
        }
    }

    fn from_pem(block: &PemBlock<'_>) -> Result<Self, String> {
        let expected = || {
            let names = PEM_CIPHERS.map(|cipher| cipher.name).join(", ");
            format!("DEK-Info with one of {names} and an IV was expected")
        };
        let (name, iv) =
            block.header("DEK-Info").and_then(|text| text.split_once(',')).ok_or_else(expected)?;
        let cipher =
            PEM_CIPHERS.into_iter().find(|cipher| cipher.name == name.trim()).ok_or_else(expected)?;
        let iv = parse_hex(iv.trim()).filter(|iv| iv.len() == cipher.block).ok_or_else(expected)?;
        Ok(Self::Pem { cipher, iv, ciphertext: block.data()? })
    }

    /// Decrypts the key, in DER. Returns `None` if the passphrase is wrong, as far as the padding shows it,
    /// and an error if the encryption is malformed or not supported.
    pub(super) fn decrypt(
        self,
        passphrase: &[u8],
        providers: &Providers<'_>,
    ) -> Result<Option<SecretBytes>, String> {
        match self {
            Self::Pkcs8(der) => decrypt_pkcs8(&der, passphrase),
            Self::Pem { cipher, iv, ciphertext } => {
                decrypt_pem(&cipher, &iv, ciphertext, passphrase, providers)
            }
        }
    }
}

fn decrypt_pkcs8(der: &[u8], passphrase: &[u8]) -> Result<Option<SecretBytes>, String> {
    let malformed = |_| MALFORMED.to_owned();
    let mut reader = Reader::only(SEQUENCE, der).map_err(malformed)?;
    let algorithm = write(SEQUENCE, &[reader.read(SEQUENCE).map_err(malformed)?]);
    let ciphertext = reader.read(OCTET_STRING).map_err(malformed)?;
    let scheme = EncryptionScheme::try_from(algorithm.as_slice())
        .map_err(|_| "encrypted by an unknown algorithm: PBES2 with PBKDF2 and AES or 3DES was expected")?;
    let kdf = scheme.pbes2().and_then(|parameters| parameters.kdf.pbkdf2());
    let iterations =
        kdf.ok_or("PBES2 with PBKDF2 was expected, as by `openssl pkcs8 -topk8`")?.iteration_count;
    if iterations > MAX_ITERATIONS {
        return Err(format!("{iterations} iterations of PBKDF2: at most {MAX_ITERATIONS} were expected"));
    }
    match scheme.decrypt(passphrase, ciphertext).map(Zeroizing::new) {
        Ok(key) => Ok(Some(SecretBytes::new(&key))),
        Err(pkcs5::Error::DecryptFailed) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn decrypt_pem(
    cipher: &PemCipher,
    iv: &[u8],
    mut text: Zeroizing<Vec<u8>>,
    passphrase: &[u8],
    providers: &Providers<'_>,
) -> Result<Option<SecretBytes>, String> {
    if text.is_empty() || !text.len().is_multiple_of(cipher.block) {
        return Err(MALFORMED.into());
    }
    let key = pem_key(passphrase, iv, cipher.alg.key_len());
    let key = providers.0.iter().find_map(|provider| provider.cipher(cipher.alg, &key).ok());
    let key = key.ok_or_else(|| format!("no provider supports {}", cipher.name))?;
    // A cipher with shorter blocks uses the beginning of the field.
    let mut field = [0; 16];
    field.iter_mut().zip(iv).for_each(|(to, from)| *to = *from);
    if !key.decrypt(&field, &mut text) {
        return Err(MALFORMED.into());
    }
    Ok(without_padding(&text, cipher.block).map(SecretBytes::new))
}

/// The key of an old PEM file: MD5 of the passphrase and the salt, and then of the last digest before both.
fn pem_key(passphrase: &[u8], iv: &[u8], len: usize) -> Zeroizing<Vec<u8>> {
    let salt = iv.get(..PEM_SALT_LEN).unwrap_or(iv);
    let mut key = Zeroizing::new(Vec::new());
    let mut last = Zeroizing::new([0; 16]);
    while key.len() < len {
        let before: &[u8] = if key.is_empty() { &[] } else { &*last };
        last = Zeroizing::new(LEGACY.md5(&[before, passphrase, salt]));
        key.extend_from_slice(&*last);
    }
    key.truncate(len);
    key
}

/// Removes the padding of RFC 8018 section 6.1.1: each byte is the number of bytes.
fn without_padding(text: &[u8], block: usize) -> Option<&[u8]> {
    let last = *text.last()?;
    let len = usize::from(last);
    let (text, padding) = text.split_at_checked(text.len().checked_sub(len)?)?;
    ((1..=block).contains(&len) && padding.iter().all(|byte| *byte == last)).then_some(text)
}

/// A private key in PEM.
struct PemBlock<'t> {
    /// What comes before `PRIVATE KEY`, such as `RSA `.
    label: &'t str,
    lines: Vec<&'t str>,
}

/// The label, if a block with a private key begins on this line.
fn label(line: &str) -> Option<&str> {
    line.trim().strip_prefix("-----BEGIN ")?.strip_suffix("PRIVATE KEY-----")
}

/// All private keys in a PEM file.
fn pem_blocks(text: &str) -> Vec<PemBlock<'_>> {
    let mut lines = text.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.by_ref().find(|line| label(line).is_some()) {
        let inside = lines.by_ref().map(str::trim).take_while(|line| !line.starts_with("-----END "));
        blocks.push(PemBlock { label: label(line).unwrap_or_default(), lines: inside.collect() });
    }
    blocks
}

impl<'t> PemBlock<'t> {
    /// The value of a header (RFC 1421 section 4.6).
    fn header(&self, name: &str) -> Option<&'t str> {
        let headers = self.lines.iter().filter_map(|line| line.split_once(':'));
        { headers }.find(|(header, _)| *header == name).map(|(_, value)| value.trim())
    }

    fn has_old_encryption(&self) -> bool {
        self.header("Proc-Type") == Some("4,ENCRYPTED")
    }

    fn data(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        let mut text = Zeroizing::new(String::new());
        self.lines.iter().filter(|line| !line.contains(':')).for_each(|line| text.push_str(line));
        base64(&text).ok_or_else(|| MALFORMED.to_owned())
    }
}

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

impl Container {
    /// The certificates of CAs.
    pub(super) fn authorities(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.certs.iter().filter(|der| is_authority(der))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_checked() {
        assert_eq!(without_padding(&[1, 2, 2, 2], 4), Some(&[1, 2][..]));
        assert_eq!(without_padding(&[4; 4], 4), Some(&[][..]));
        for wrong in [&[][..], &[1, 2, 3, 0], &[1, 1, 2, 3], &[5; 8], &[9, 9, 9, 9]] {
            assert_eq!(without_padding(wrong, 4), None, "{wrong:?}");
        }
    }

    #[test]
    fn arbitrary_files_are_no_panic() {
        for file in [
            &b""[..],
            b"0",
            b"-----BEGIN PRIVATE KEY-----",
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n\xff",
            &[0x30, 0x80],
        ] {
            assert!(EncryptedKey::find(file).is_ok_and(|key| key.is_none()), "{file:?}");
        }
        for text in ["", "Proc-Type: 4,ENCRYPTED\n", "Proc-Type: 4,ENCRYPTED\nDEK-Info: RC4,00\n\nAAAA\n"] {
            let file = format!("-----BEGIN RSA PRIVATE KEY-----\n{text}-----END RSA PRIVATE KEY-----\n");
            assert_eq!(EncryptedKey::find(file.as_bytes()).is_err(), !text.is_empty(), "{text}");
        }
        let pem = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAAwAA==\n";
        let key = EncryptedKey::find(pem.as_bytes()).unwrap().unwrap();
        assert_eq!(key.decrypt(b"x", &Providers(&[])).err().as_deref(), Some(MALFORMED));
    }

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
