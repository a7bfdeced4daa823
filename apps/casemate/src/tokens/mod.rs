//! Tokens (PKCS #11): the certificates and private keys on them that a configuration names, and the
//! signatures of those keys.
//!
//! `signatures` has messages signed: IKE waits for the result, while the event loop goes on. `queue` decides
//! which signature is next.

mod queue;
mod signatures;

pub(crate) use signatures::{TokenLink, TokenState};

use crate::swanctl::{Environment, ModuleConfig, TokenModules, TokenReference, TokenSecret};
use casemate_crypto::{Provider, PublicKey, Rng, SecretBytes, SignatureAlg, SignatureError, SigningKey};
use casemate_linux::process::Signals;
use casemate_linux::sandbox;
use casemate_pkcs11::{TokenError, TokenKey, TokenModule, TokenObject};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A private key on a token.
#[derive(Clone)]
pub(crate) struct OpenedKey {
    /// Path of the object, for messages.
    pub(crate) path: PathBuf,
    pub(crate) key: TokenKey,
    /// The certificate with the same CKA_ID, if the module loads certificates and there is one.
    pub(crate) certificate: Option<Vec<u8>>,
}

/// Opens the private keys of a configuration. An error has the path of its object.
pub(crate) fn open_keys<'s>(
    secrets: &'s [TokenSecret],
    modules: &'s TokenModules,
    providers: &'s [&'static dyn Provider],
) -> impl Iterator<Item = Result<OpenedKey, (PathBuf, String)>> + 's {
    secrets
        .iter()
        .map(move |secret| open_key(secret, modules, providers).map_err(|why| (secret.key.to_path(), why)))
}

/// Opens a private key. Blocks for up to 10 seconds.
pub(crate) fn open_key(
    secret: &TokenSecret,
    modules: &TokenModules,
    providers: &[&'static dyn Provider],
) -> Result<OpenedKey, String> {
    let (module, config) = module_of(&secret.key, modules)?;
    let object = object_of(&secret.key);
    let key = module.open_key(&object, secret.pin.as_ref(), providers).map_err(|why| why.to_string())?;
    let certificate = match config.loads_certificates.then(|| module.certificate(&object)) {
        None | Some(Err(TokenError::NoCertificate)) => None,
        Some(read) => Some(read.map_err(|why| why.to_string())?),
    };
    Ok(OpenedKey { path: secret.key.to_path(), key, certificate })
}

/// The opened private keys of a configuration, by the names of their sections in `secrets`.
#[derive(Clone, Default)]
pub struct TokenKeys(BTreeMap<String, OpenedKey>);

impl TokenKeys {
    /// The keys of these sections. `opened` are all keys on tokens.
    pub(crate) fn new(secrets: &[TokenSecret], opened: &[OpenedKey]) -> Self {
        let of_section = |secret: &TokenSecret| {
            let path = secret.key.to_path();
            let opened = opened.iter().find(|opened| opened.path == path)?;
            Some((secret.name.clone(), opened.clone()))
        };
        Self(secrets.iter().filter_map(of_section).collect())
    }

    /// Whether the key of a section is there.
    pub(crate) fn check(&self, section: &str) -> Result<(), String> {
        self.find(section).map(drop)
    }

    fn find(&self, section: &str) -> Result<&OpenedKey, String> {
        self.0.get(section).ok_or_else(|| {
            format!("`{section}`: the name of a section of `secrets` that begins with `token` was expected")
        })
    }

    /// Has a text decrypted by the token with the key of a section. Blocks for up to 10 seconds. An error has
    /// the path of the key.
    pub(crate) fn decrypt(&self, section: &str, encrypted: Vec<u8>) -> Result<SecretBytes, String> {
        let OpenedKey { path, key, .. } = self.find(section)?;
        key.decrypt(encrypted).map_err(|why| format!("{}: {why}", path.display()))
    }
}

fn object_of(reference: &TokenReference) -> TokenObject {
    TokenObject { slot: reference.slot, id: reference.id.clone() }
}

/// The module of an object: the one that it names, or the only one.
fn module_of<'m>(
    reference: &TokenReference,
    modules: &'m TokenModules,
) -> Result<(TokenModule, &'m ModuleConfig), String> {
    let names = || modules.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let config = match (&reference.module, modules.len()) {
        (_, 0) => {
            return Err("there is no module: a section with its `path` was expected in \
                        charon.plugins.pkcs11.modules"
                .into());
        }
        (Some(name), _) => modules
            .get(name)
            .ok_or_else(|| format!("module {name} is unknown: one of {} was expected", names())),
        (None, 1) => modules.values().next().ok_or_else(String::new),
        (None, _) => Err(format!("`module` was expected, one of {}", names())),
    }?;
    Ok((TokenModule::new(config.path.clone(), enter_thread), config))
}

/// A module is foreign code, so its thread has no capabilities. The thread starts before the event loop
/// blocks the signals that it takes, and must not get them.
fn enter_thread() -> Result<(), String> {
    Signals::block().map_err(|error| error.to_string())?;
    sandbox::drop_capabilities().map_err(|error| error.to_string())
}

/// An environment that also has the certificates on tokens.
pub(crate) struct TokenEnvironment<'e> {
    files: &'e dyn Environment,
    modules: &'e TokenModules,
}

impl<'e> TokenEnvironment<'e> {
    /// `files` has everything but the objects on tokens.
    pub(crate) fn new(files: &'e dyn Environment, modules: &'e TokenModules) -> Self {
        Self { files, modules }
    }
}

impl Environment for TokenEnvironment<'_> {
    fn read(&self, path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
        let Some(reference) = TokenReference::of_path(path) else { return self.files.read(path) };
        let (module, _) = module_of(&reference, self.modules).map_err(io::Error::other)?;
        module.certificate(&object_of(&reference)).map(Zeroizing::new).map_err(io::Error::other)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        // The length is known when the certificate was read. Tokens hold little.
        if TokenReference::of_path(path).is_some() { Ok(1) } else { self.files.len(path) }
    }

    fn matching(&self, directory: &Path, pattern: &str) -> io::Result<Vec<PathBuf>> {
        self.files.matching(directory, pattern)
    }
}

/// A private key on a token where a [`SigningKey`] is expected. It never signs itself, because its caller
/// would wait for the token: [`TokenLink`] has messages signed.
pub(crate) struct TokenSigningKey(pub(crate) TokenKey);

impl SigningKey for TokenSigningKey {
    fn public_key(&self) -> &PublicKey {
        self.0.public_key()
    }

    fn sign(&self, _: SignatureAlg, _: &[u8], _: &mut dyn Rng) -> Result<Vec<u8>, SignatureError> {
        Err(SignatureError::Failed)
    }
}
