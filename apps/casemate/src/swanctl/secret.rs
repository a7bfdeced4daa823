//! `secrets`: pre-shared keys, and what opens encrypted private keys.

use super::schema::{self, Keys, Problems, Rule, Schema};
use super::value::{Read, base64, hex};
use super::view::View;
use casemate_crypto::SecretBytes;
use casemate_ike::config::IdPattern;
use casemate_ike::spelling;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A pre-shared key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKey {
    /// Who shares it; nobody named is everybody.
    pub ids: Vec<IdPattern>,
    /// The key.
    pub secret: SecretBytes,
}

/// What opens an encrypted private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passphrase {
    /// The file with the private key.
    pub file: PathBuf,
    /// The passphrase.
    pub secret: SecretBytes,
}

pub(super) const SHARED: Schema =
    Schema { keys: &[("secret", Rule::Take), ("id", Rule::TakeAll)], sections: &[] };

pub(super) const PASSPHRASE: Schema =
    Schema { keys: &[("file", Rule::Take), ("secret", Rule::Take)], sections: &[] };

/// Sections of keys that lie in a folder of the same name.
const FOLDERS: [&str; 4] = ["private", "rsa", "ecdsa", "pkcs8"];

/// Sections that strongSwan knows, and why there is nothing to do with them here.
const REFUSED: [(&str, &str); 7] = [
    ("eap", "EAP is not implemented"),
    ("xauth", "XAuth is a part of IKEv1, which is not implemented"),
    ("ntlm", "EAP is not implemented"),
    ("ppk", "post-quantum pre-shared keys are not implemented"),
    ("pkcs12", "PKCS #12 containers are not read"),
    ("token", "tokens are not implemented"),
    ("bliss", "BLISS is not implemented"),
];

/// Bytes from which on a pre-shared key can be as strong as the ciphers that hang on it (CVE-2018-5389: weak ones are found offline).
const STRONG: usize = 16;

/// Reads all sections of `secrets`.
pub(super) fn read(
    view: &View<'_, '_>,
    directory: &Path,
    problems: &Problems,
) -> (Vec<SharedKey>, Vec<Passphrase>) {
    let (mut keys, mut passphrases) = (Vec::new(), Vec::new());
    for section in view.sections() {
        let name = section.name();
        if let Some((_, why)) = REFUSED.iter().find(|(front, _)| name.starts_with(front)) {
            refuse(&section, &format!("this section is not supported: {why}"), problems);
        } else if let Some(folder) = FOLDERS.iter().find(|folder| name.starts_with(**folder)) {
            passphrases.extend(passphrase(&section, &directory.join(folder), problems));
        } else if name.starts_with("ike") {
            keys.extend(shared(&section, problems));
        } else {
            let names = [&["ike"][..], &FOLDERS].concat();
            refuse(&section, &schema::unknown("section", name, &names), problems);
        }
    }
    for (name, value) in view.keys() {
        let why = "a section such as `ike { ... }` was expected";
        problems.wrong(&value.place, format!("{}: {why}", view.path_of(name)));
    }
    (keys, passphrases)
}

/// The files in which the secrets stand.
pub(super) fn files(view: &View<'_, '_>) -> BTreeSet<PathBuf> {
    let secret = |section: View<'_, '_>| Some(section.key("secret")?.place.file.to_path_buf());
    view.sections().into_iter().filter_map(secret).collect()
}

fn refuse(section: &View<'_, '_>, why: &str, problems: &Problems) {
    if let Some(place) = section.place() {
        problems.wrong(place, format!("{}: {why}", section.path()));
    }
}

fn shared(section: &View<'_, '_>, problems: &Problems) -> Option<SharedKey> {
    let keys = Keys::new(section, &SHARED, problems);
    let ids = keys.all("id", spelling::id_pattern);
    let secret = take_secret(&keys)?;
    // RFC 7296 section 2.15: a key made of a password can be guessed by whoever took part in one exchange.
    if secret.expose().len() < STRONG {
        let why =
            format!("it has less than {STRONG} bytes: a peer that is an impostor can try guesses offline");
        keys.warn("secret", &why);
    }
    Some(SharedKey { ids, secret })
}

fn passphrase(section: &View<'_, '_>, folder: &Path, problems: &Problems) -> Option<Passphrase> {
    let keys = Keys::new(section, &PASSPHRASE, problems);
    if !keys.has("file") {
        keys.wrong_section("`file` was expected, the name of a file with a private key");
    }
    let file = keys.get("file", |file| Ok(folder.join(file)));
    let secret = take_secret(&keys);
    Some(Passphrase { file: file?, secret: secret? })
}

fn take_secret(keys: &Keys<'_>) -> Option<SecretBytes> {
    if !keys.has("secret") {
        keys.wrong_section("`secret` was expected, and a value behind it");
    }
    keys.secret("secret", secret)
}

/// Text, hexadecimal digits after `0x`, or Base64 after `0s`.
fn secret(text: &str) -> Read<SecretBytes> {
    let bytes = if let Some(digits) = text.strip_prefix("0x") {
        hex(digits).ok_or("pairs of hexadecimal digits were expected behind 0x")?
    } else if let Some(digits) = text.strip_prefix("0s") {
        base64(digits).ok_or("Base64 was expected behind 0s")?
    } else {
        return Ok(SecretBytes::new(text.as_bytes()));
    };
    if bytes.is_empty() {
        Err("an empty secret protects nothing".into())
    } else {
        Ok(SecretBytes::new(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_spellings() {
        for (text, bytes) in
            [("0x616263", "abc"), ("0sYWJj", "abc"), ("0sYWI=", "ab"), ("a b", "a b"), ("0X61", "0X61")]
        {
            assert_eq!(secret(text).unwrap().expose(), bytes.as_bytes());
        }
        for text in ["0x1", "0xzz", "0s*", "0x", "0s"] {
            assert!(secret(text).is_err(), "{text}");
        }
    }
}
