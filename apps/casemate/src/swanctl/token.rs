//! Tokens (PKCS #11): the modules in `charon.plugins.pkcs11`, under their names in strongswan.conf(5), the
//! private keys in `secrets`, and the certificates that sections name by `handle`, `slot` and `module`.
//!
//! A certificate on a token has a path like one in a file: a PKCS #11 URI (RFC 7512), which also names the
//! object in messages. It never contains a PIN.

use super::problem::Problems;
use super::resolved::Resolved;
use super::schema::{Keys, Rule, Schema};
use super::value::{Parsed, parse_hex, truth};
use casemate_crypto::SecretBytes;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Maximum length of a CKA_ID in bytes.
const MAX_ID: usize = 255;
/// Begin of the URI of an object on a token.
const SCHEME: &str = "pkcs11:";

pub(super) const PKCS11: Schema = Schema {
    keys: &[
        ("load", Rule::Ignored),
        ("reload_certs", Rule::Ignored),
        ("use_dh", Rule::OnlyNo(ONLY_KEYS)),
        ("use_ecc", Rule::OnlyNo(ONLY_KEYS)),
        ("use_hasher", Rule::OnlyNo(ONLY_KEYS)),
        ("use_pubkey", Rule::OnlyNo(ONLY_KEYS)),
        ("use_rng", Rule::OnlyNo(ONLY_KEYS)),
    ],
    sections: &["=modules"],
};

const ONLY_KEYS: &str = "tokens are used for their private keys and certificates only";

const MODULES: Schema = Schema { keys: &[], sections: &[""] };

pub(super) const MODULE: Schema = Schema {
    keys: &[("path", Rule::Read), ("os_locking", Rule::Ignored), ("load_certs", Rule::Read)],
    sections: &[],
};

pub(super) const TOKEN: Schema = Schema {
    keys: &[("handle", Rule::Read), ("slot", Rule::Read), ("module", Rule::Read), ("pin", Rule::Read)],
    sections: &[],
};

/// The modules, by name.
pub type TokenModules = BTreeMap<String, ModuleConfig>;

/// A module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleConfig {
    /// Path of its shared library.
    pub path: PathBuf,
    /// Whether the certificates of private keys are read from tokens.
    pub loads_certificates: bool,
}

/// An object on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenReference {
    /// Name of the module; `None` for the only one.
    pub module: Option<String>,
    /// Slot; `None` if the object decides.
    pub slot: Option<u64>,
    /// CKA_ID.
    pub id: Vec<u8>,
}

/// A private key on a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSecret {
    /// Name of its section.
    pub name: String,
    /// The key.
    pub key: TokenReference,
    /// The PIN, if the token requires one.
    pub pin: Option<SecretBytes>,
}

impl TokenReference {
    /// The URI as a path.
    pub(crate) fn to_path(&self) -> PathBuf {
        let mut uri = format!("{SCHEME}id=");
        for byte in &self.id {
            // Writing to a string cannot fail.
            let _ = write!(uri, "%{byte:02x}");
        }
        if let Some(slot) = self.slot {
            let _ = write!(uri, ";slot-id={slot}");
        }
        if let Some(module) = &self.module {
            let _ = write!(uri, "?module-name={module}");
        }
        uri.into()
    }

    /// The object that a path made by [`to_path`](Self::to_path) names; `None` for the path of a file.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        let (object, module) = match path.to_str()?.strip_prefix(SCHEME)?.split_once("?module-name=") {
            Some((object, module)) => (object, Some(module.to_owned())),
            None => (path.to_str()?.strip_prefix(SCHEME)?, None),
        };
        let (id, slot) = match object.split_once(";slot-id=") {
            Some((id, slot)) => (id, Some(slot.parse().ok()?)),
            None => (object, None),
        };
        Some(Self { module, slot, id: parse_hex(&id.strip_prefix("id=")?.replace('%', ""))?.to_vec() })
    }
}

/// Reads the section `pkcs11` among the sections of `plugins`.
pub(super) fn modules(plugins: &Resolved<'_, '_>, problems: &Problems) -> TokenModules {
    let mut modules = TokenModules::new();
    for section in plugins.sections().iter().filter(|section| section.name() == "pkcs11") {
        Keys::new(section, &PKCS11, problems);
        for list in section.sections() {
            Keys::new(&list, &MODULES, problems);
            for module in list.sections() {
                modules.extend(read_module(&module, problems).map(|read| (module.name().to_owned(), read)));
            }
        }
    }
    modules
}

fn read_module(section: &Resolved<'_, '_>, problems: &Problems) -> Option<ModuleConfig> {
    let keys = Keys::new(section, &MODULE, problems);
    if !keys.has("path") {
        keys.section_error("`path` was expected, the absolute path of the shared library");
    }
    let loads_certificates = keys.get("load_certs", truth).unwrap_or(true);
    Some(ModuleConfig { path: keys.get("path", super::auth_round::absolute)?, loads_certificates })
}

/// Reads the section of a private key.
pub(super) fn secret(section: &Resolved<'_, '_>, problems: &Problems) -> Option<TokenSecret> {
    let keys = Keys::new(section, &TOKEN, problems);
    if !keys.has("handle") {
        keys.section_error("`handle` was expected, the CKA_ID of a private key in hexadecimal digits");
    }
    let pin = keys.secret("pin", pin);
    Some(TokenSecret { name: section.name().to_owned(), key: reference(&keys)?, pin })
}

/// The object that a section names by `handle`, `slot` and `module`. Other keys than `handle` need it.
pub(super) fn reference(keys: &Keys<'_>) -> Option<TokenReference> {
    let (slot, module) = (keys.get("slot", slot), keys.get("module", module));
    for name in ["slot", "module"].into_iter().filter(|name| keys.has(name) && !keys.has("handle")) {
        keys.error(name, "it belongs to `handle`: the CKA_ID of an object on a token was expected beside it");
    }
    Some(TokenReference { module, slot, id: keys.get("handle", handle)? })
}

/// Reads a CKA_ID: hexadecimal digits, which may begin with `0x` and have colons between the bytes.
fn handle(text: &str) -> Parsed<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).replace(':', "");
    let id = parse_hex(&digits).filter(|id| (1..=MAX_ID).contains(&id.len()));
    id.map(|id| id.to_vec()).ok_or_else(|| "pairs of hexadecimal digits were expected".into())
}

fn slot(text: &str) -> Parsed<u64> {
    text.parse().map_err(|_| "the number of a slot was expected".into())
}

fn module(text: &str) -> Parsed<String> {
    let is_name = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_name { Ok(text.into()) } else { Err("the name of a section in `modules` was expected".into()) }
}

/// The PIN is text as it stands, as with strongSwan.
fn pin(text: &str) -> Parsed<SecretBytes> {
    if text.is_empty() { Err("a PIN was expected".into()) } else { Ok(SecretBytes::new(text.as_bytes())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_the_object() {
        for (module, slot, uri) in [
            (None, None, "pkcs11:id=%00%a1"),
            (Some("card"), Some(1_234_567_890), "pkcs11:id=%00%a1;slot-id=1234567890?module-name=card"),
            (None, Some(0), "pkcs11:id=%00%a1;slot-id=0"),
        ] {
            let reference = TokenReference { module: module.map(Into::into), slot, id: vec![0, 0xA1] };
            assert_eq!(reference.to_path(), Path::new(uri));
            assert_eq!(TokenReference::of_path(Path::new(uri)), Some(reference));
        }
        assert_eq!(TokenReference::of_path(Path::new("/etc/x.pem")), None);
    }

    #[test]
    fn handles_are_hexadecimal() {
        for (text, id) in [("a1", &[0xA1][..]), ("0xA1b2", &[0xA1, 0xB2]), ("00:01", &[0, 1])] {
            assert_eq!(handle(text).as_deref(), Ok(id), "{text}");
        }
        for text in ["", "0x", "a", "xy"] {
            assert!(handle(text).is_err(), "{text}");
        }
    }
}
