//! The section `secrets`: pre-shared keys, passwords for EAP, passphrases of encrypted private keys and PKCS
//! #12 containers, and private keys on tokens.

use super::ppk;
use super::problem::{Location, Problems};
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::suggestion::unknown;
use super::token::{self, TokenSecret};
use super::value::{Parsed, base64, parse_hex};
use casemate_crypto::SecretBytes;
use casemate_eap::Subscriber;
use casemate_ike::config::{IdPattern, Identity};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a shared key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyPurpose {
    /// AUTH payloads: a pre-shared key.
    Ike,
    /// EAP: a password.
    Eap,
    /// A post-quantum pre-shared key (RFC 8784). Its identities are PPK_IDs.
    Ppk,
}

/// A pre-shared key or a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKey {
    /// What it is for.
    pub purpose: KeyPurpose,
    /// Identities that share the key; an empty list means all.
    pub ids: Vec<IdPattern>,
    /// The key.
    pub secret: SecretBytes,
    /// For EAP-AKA, whose key K is `secret`.
    pub usim: Usim,
}

/// What EAP-AKA needs besides K.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usim {
    /// The key of the operator, unless it follows K.
    pub operator: Option<OperatorKey>,
    /// AMF of the vectors.
    pub amf: [u8; 2],
}

impl Default for Usim {
    fn default() -> Self {
        Self { operator: None, amf: Subscriber::DEFAULT_AMF }
    }
}

/// A key of an operator (TS 35.206), of 16 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorKey {
    /// OP, which is the same for all subscribers.
    Op(SecretBytes),
    /// OPc, which is derived from OP and K.
    Opc(SecretBytes),
}

/// The passphrase of an encrypted private key or a PKCS #12 container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passphrase {
    /// Path of the section, for messages.
    pub section: String,
    /// The encrypted file.
    pub file: PathBuf,
    /// The passphrase.
    pub secret: SecretBytes,
}

pub(super) const SHARED: Schema =
    Schema { keys: &[("secret", Rule::Read), ("id", Rule::ReadPrefix)], sections: &[] };

pub(super) const EAP: Schema = Schema {
    keys: &[
        ("secret", Rule::Read),
        ("id", Rule::ReadPrefix),
        ("op", Rule::Read),
        ("opc", Rule::Read),
        ("amf", Rule::Read),
    ],
    sections: &[],
};

pub(super) const PASSPHRASE: Schema =
    Schema { keys: &[("file", Rule::Read), ("secret", Rule::Read)], sections: &[] };

/// Sections of private keys and containers, each with a folder of the same name.
const FOLDERS: [&str; 5] = ["private", "rsa", "ecdsa", "pkcs8", "pkcs12"];

/// Sections that strongSwan knows and Casemate does not support, with the reason.
const REFUSED: [(&str, &str); 3] = [
    ("xauth", "XAuth is a part of IKEv1, which is not implemented"),
    ("ntlm", "NT hashes of passwords are not implemented; `eap` with the password was expected"),
    ("bliss", "BLISS is not implemented"),
];

/// Minimum length, in bytes, of a pre-shared key that is as strong as the ciphers that depend on it
/// (CVE-2018-5389: an attacker finds a weak key offline).
const MIN_SECRET_LEN: usize = 16;

/// The sections of `secrets`.
#[derive(Default)]
pub(super) struct Secrets {
    pub(super) shared_keys: Vec<SharedKey>,
    pub(super) passphrases: Vec<Passphrase>,
    pub(super) tokens: Vec<TokenSecret>,
    /// Names and locations of the sections of `shared_keys`.
    pub(super) places: Vec<(String, Location)>,
}

/// Reads all sections of `secrets`.
pub(super) fn read(resolved: &Resolved<'_, '_>, directory: &Path, problems: &Problems) -> Secrets {
    let mut secrets = Secrets::default();
    for section in resolved.sections() {
        let name = section.name();
        if let Some(again) = section.reopened() {
            let text = "two sections have this name and are read as one, with the last value of each key: \
                        another name was expected for the second one";
            problems.warn(again, format!("{}: {text}", section.path()));
        }
        if let Some((_, why)) = REFUSED.iter().find(|(front, _)| name.starts_with(front)) {
            refuse(&section, &format!("this section is not supported: {why}"), problems);
        } else if let Some(folder) = FOLDERS.iter().find(|folder| name.starts_with(**folder)) {
            secrets.passphrases.extend(passphrase(&section, &directory.join(folder), problems));
        } else if name.starts_with("ike") {
            secrets.shared_keys.extend(pre_shared_key(&section, problems));
        } else if name.starts_with("eap") {
            secrets.shared_keys.extend(eap(&section, problems));
        } else if name.starts_with("ppk") {
            secrets.shared_keys.extend(ppk::secret(&section, problems));
        } else if name.starts_with("token") {
            secrets.tokens.extend(token::secret(&section, problems));
        } else {
            let names = [&["ike", "eap", "ppk", "token"][..], &FOLDERS].concat();
            refuse(&section, &unknown("section", name, &names), problems);
        }
        if let (true, Some(location)) = (secrets.places.len() < secrets.shared_keys.len(), section.location())
        {
            secrets.places.push((section.path().to_owned(), location.clone()));
        }
    }
    warn_of_equal(&secrets.shared_keys, &secrets.places, problems);
    for (name, value) in resolved.keys() {
        let why = "a section such as `ike { ... }` was expected";
        problems.error(&value.location, format!("{}: {why}", resolved.path_of(name)));
    }
    secrets
}

/// Warns of secrets of which only one is ever used. `places` are the names and locations of their sections.
fn warn_of_equal(keys: &[SharedKey], places: &[(String, Location)], problems: &Problems) {
    let mut earlier = Earlier::default();
    for (n, (key, (name, location))) in keys.iter().zip(places).enumerate() {
        let Some((other, at)) = earlier.add(n, key).and_then(|n| places.get(n)) else { continue };
        let used = match key.purpose {
            KeyPurpose::Ike | KeyPurpose::Ppk => "the first one is used, and this one is not",
            KeyPurpose::Eap => "this one is used, and the first one is not",
        };
        problems.warn(location, format!("{name}: {other} at {at} is for the same identities: {used}"));
    }
}

/// The first secret for each combination of identities: the positions of secrets.
#[derive(Default)]
struct Earlier {
    /// Pre-shared keys by all their identities, and passwords and post-quantum pre-shared keys of all users.
    by_ids: BTreeMap<(KeyPurpose, BTreeSet<IdPattern>), usize>,
    /// Passwords and post-quantum pre-shared keys by each identity.
    by_id: BTreeMap<(KeyPurpose, IdPattern), usize>,
}

impl Earlier {
    /// Adds the secret at a position. Returns that of an earlier one of which one takes the place of the
    /// other: pre-shared keys of the same identities, or passwords with an identity in common.
    fn add(&mut self, position: usize, key: &SharedKey) -> Option<usize> {
        let ids: BTreeSet<IdPattern> = key.ids.iter().map(|id| found_by(id, key.purpose)).collect();
        let first = match key.purpose {
            KeyPurpose::Eap | KeyPurpose::Ppk if !ids.is_empty() => {
                let of_id = |id| *self.by_id.entry((key.purpose, id)).or_insert(position);
                ids.into_iter().map(of_id).min()
            }
            _ => Some(*self.by_ids.entry((key.purpose, ids)).or_insert(position)),
        };
        first.filter(|first| *first < position)
    }
}

/// Passwords are found byte for byte, pre-shared keys by the canonical form of identities, post-quantum
/// pre-shared keys without regard to case.
fn found_by(id: &IdPattern, purpose: KeyPurpose) -> IdPattern {
    match (purpose, id.exact()) {
        (KeyPurpose::Eap, _) | (_, None) => id.clone(),
        (KeyPurpose::Ppk, Some(Identity::KeyId(octets))) => {
            IdPattern::Exact(Identity::KeyId(octets.to_ascii_lowercase()))
        }
        (KeyPurpose::Ike | KeyPurpose::Ppk, Some(id)) => IdPattern::Exact(id.canonical()),
    }
}

/// The configuration files that contain secrets.
pub(super) fn files(resolved: &Resolved<'_, '_>) -> BTreeSet<PathBuf> {
    let secret = |section: Resolved<'_, '_>| {
        let value = section.key("secret").or_else(|| section.key("pin"))?;
        Some(value.location.file.to_path_buf())
    };
    resolved.sections().into_iter().filter_map(secret).collect()
}

fn refuse(section: &Resolved<'_, '_>, why: &str, problems: &Problems) {
    if let Some(location) = section.location() {
        problems.error(location, format!("{}: {why}", section.path()));
    }
}

fn shared(section: &Resolved<'_, '_>, purpose: KeyPurpose, problems: &Problems) -> Option<SharedKey> {
    let keys = Keys::new(section, &SHARED, problems);
    let ids = keys.all("id", casemate_strongswan::parse_id_pattern);
    Some(SharedKey { purpose, ids, secret: take_secret(&keys)?, usim: Usim::default() })
}

/// Reads a password, or the keys of a USIM.
fn eap(section: &Resolved<'_, '_>, problems: &Problems) -> Option<SharedKey> {
    let keys = Keys::new(section, &EAP, problems);
    let ids = keys.all("id", casemate_strongswan::parse_id_pattern);
    let (op, opc) = (keys.secret("op", block), keys.secret("opc", block));
    if op.is_some() && opc.is_some() {
        keys.error("op", "OPc is derived from it: either `op` or `opc` was expected");
    }
    let operator = opc.map(OperatorKey::Opc).or(op.map(OperatorKey::Op));
    let secret = match operator.is_some() {
        true => keys.secret("secret", block),
        false => take_secret(&keys),
    };
    if operator.is_some() && !keys.has("secret") {
        keys.section_error("`secret` was expected, with K of the USIM");
    }
    let amf = keys.get("amf", amf).unwrap_or(Subscriber::DEFAULT_AMF);
    Some(SharedKey { purpose: KeyPurpose::Eap, ids, secret: secret?, usim: Usim { operator, amf } })
}

/// Reads a key of 16 bytes.
fn block(text: &str) -> Parsed<SecretBytes> {
    const LEN: usize = 16;
    let bytes = secret(text)?;
    if bytes.len() == LEN { Ok(bytes) } else { Err("16 bytes were expected".into()) }
}

/// Reads an AMF: four hexadecimal digits.
fn amf(text: &str) -> Parsed<[u8; 2]> {
    let bytes = parse_hex(text.strip_prefix("0x").unwrap_or(text));
    let amf = bytes.and_then(|bytes| bytes.as_slice().try_into().ok());
    amf.ok_or_else(|| "four hexadecimal digits were expected".into())
}

fn pre_shared_key(section: &Resolved<'_, '_>, problems: &Problems) -> Option<SharedKey> {
    let key = shared(section, KeyPurpose::Ike, problems)?;
    // RFC 7296 section 2.15: anyone who took part in one exchange can guess a key that is a password.
    if key.secret.expose().len() < MIN_SECRET_LEN {
        let why = format!(
            "it has less than {MIN_SECRET_LEN} bytes: an impostor of a peer can guess it offline; use a \
             longer one"
        );
        Keys::new(section, &SHARED, problems).warn("secret", &why);
    }
    Some(key)
}

fn passphrase(section: &Resolved<'_, '_>, folder: &Path, problems: &Problems) -> Option<Passphrase> {
    let keys = Keys::new(section, &PASSPHRASE, problems);
    if !keys.has("file") {
        keys.section_error("`file` was expected, the name of a file with a private key");
    }
    let file = keys.get("file", |file| Ok(folder.join(file)));
    keys.note_files("file", &file);
    let secret = take_secret(&keys);
    Some(Passphrase { section: section.path().to_owned(), file: file?, secret: secret? })
}

pub(super) fn take_secret(keys: &Keys<'_>) -> Option<SecretBytes> {
    if !keys.has("secret") {
        keys.section_error("`secret` was expected, with a value");
    }
    let is_odd = Cell::new(false);
    let read = keys.secret("secret", |text| {
        is_odd.set(text.starts_with(TYPOGRAPHIC_QUOTES));
        secret(text)
    });
    if is_odd.get() {
        keys.warn(
            "secret",
            "it begins with a typographic quotation mark, which is a part of it: `\"` was expected",
        );
    }
    read
}

/// Quotation marks that word processors and web pages put in place of `"`.
const TYPOGRAPHIC_QUOTES: [char; 7] =
    ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}', '\u{ab}', '\u{bb}'];

/// Reads a secret: text, hexadecimal digits after `0x`, or Base64 after `0s`.
fn secret(text: &str) -> Parsed<SecretBytes> {
    let bytes = if let Some(digits) = text.strip_prefix("0x") {
        parse_hex(digits).ok_or("pairs of hexadecimal digits were expected after 0x")?
    } else if let Some(digits) = text.strip_prefix("0s") {
        base64(digits).ok_or("Base64 was expected after 0s")?
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
    use crate::swanctl::{Config, SystemEnvironment};

    #[test]
    fn secrets_in_three_notations() {
        for (text, bytes) in
            [("0x616263", "abc"), ("0sYWJj", "abc"), ("0sYWI=", "ab"), ("a b", "a b"), ("0X61", "0X61")]
        {
            assert_eq!(secret(text).unwrap().expose(), bytes.as_bytes());
        }
        for text in ["0x1", "0xzz", "0s*", "0x", "0s"] {
            assert!(secret(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sections_with_the_same_name_cause_a_warning() {
        let text = b"secrets {\neap-c {\nid = carol\nsecret = a\n}\neap-c {\nid = dave\nsecret = b\n}\n}\n";
        let config = Config::parse(Path::new("/nowhere/x.conf"), text, &SystemEnvironment).unwrap();
        let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
        let [warning] = &warnings[..] else { panic!("one warning expected: {warnings:?}") };
        assert!(
            warning.starts_with("/nowhere/x.conf:6: secrets.eap-c: two sections have this name"),
            "{warning}"
        );
    }

    #[test]
    fn a_suffix_of_letters_causes_a_warning() {
        for (key, count) in [("id", 0), ("id2", 0), ("id-dave", 0), ("idd", 1)] {
            let text = format!("secrets {{\neap-c {{\n{key} = carol\nsecret = a\n}}\n}}\n");
            let config = Config::parse(Path::new("/nowhere/x.conf"), text.as_bytes(), &SystemEnvironment);
            let warnings = config.unwrap().warnings;
            assert_eq!(
                warnings.iter().filter(|one| one.to_string().contains("one more `id`")).count(),
                count
            );
        }
    }

    #[test]
    fn secrets_of_the_same_identities_cause_a_warning() {
        let warnings = |text: &str| {
            let text = format!("secrets {{\n{text}\n}}\n");
            let path = Path::new("/nowhere/x.conf");
            let config = Config::parse(path, text.as_bytes(), &SystemEnvironment).unwrap();
            let about = config.warnings.into_iter().map(|warning| warning.to_string());
            about.filter(|text| text.contains("same identities")).collect::<Vec<_>>()
        };
        let pair = |kind: &str, a: &str, b: &str| {
            let one =
                |name: &str, ids: &str| format!("{kind}-{name} {{ secret = 0123456789abcdef\n {ids}\n}}\n");
            warnings(&(one("a", a) + &one("b", b)))
        };
        let expected = "/nowhere/x.conf:5: secrets.eap-b: secrets.eap-a at /nowhere/x.conf:2 is for the same \
                        identities: this one is used, and the first one is not";
        assert_eq!(pair("eap", "id = u", "id = u"), [expected]);
        let [ike] = &pair("ike", "id1 = a.test\n id2 = b.test", "id1 = B.test\n id2 = a.test")[..] else {
            panic!("one warning expected")
        };
        assert!(ike.ends_with("the first one is used, and this one is not"), "{ike}");
        assert_eq!(pair("ike", "", "").len(), 1);
        for (a, b) in [("id1 = a.test", "id1 = a.test\n id2 = b.test"), ("", "id = a.test")] {
            assert_eq!(pair("ike", a, b), Vec::<String>::new());
        }
        assert_eq!(pair("eap", "id = u", "id = v"), Vec::<String>::new());
        assert_eq!(pair("ppk", "id = u\n id2 = v", "id = V").len(), 1);
    }
}
