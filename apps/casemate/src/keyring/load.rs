//! Loads certificate and key files.

use super::encrypted::EncryptedKey;
use super::raw_keys::{self, KnownKeys, RawKey};
use super::verifier::PeerVerifier;
use super::{EapSecrets, Keyring, ListedFile, ListedKind, SharedKeys};
use crate::revocation::{Authorities, AuthorityUris, CrlFile, CrlFiles};
use crate::swanctl::{
    Config, Environment, KeyPurpose, Location, NamedFiles, Passphrase, PeerConditions, SharedKey, ppk_ids,
};
use crate::tokens::TokenEnvironment;
use casemate_crypto::{KeyLimits, KeyParseError, PrivateKey, Provider, Providers, PublicKey, SecretBytes};
use casemate_pki::{StoreLimits, TrustStore, is_self_issued, pem};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use zeroize::Zeroizing;

/// Maximum size of a certificate or key file, in bytes.
const MAX_FILE: u64 = 16 << 20;

pub(super) const NO_PASSPHRASE: &str = "it is encrypted: a section of `secrets` that begins with the name \
     of the folder, with this `file` and the passphrase as its \
     `secret`, was expected";

/// An error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFileError {
    path: PathBuf,
    why: String,
    /// The line of the configuration that names the file; `None` if only its folder does.
    named_at: Option<Location>,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)?;
        match &self.named_at {
            Some(location) => write!(f, " (named in {location})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for KeyFileError {}

/// A certificate or CRL, with the file that contains it.
struct DerOfFile<'p> {
    path: &'p Path,
    der: Vec<u8>,
}

impl ListedFile {
    fn authority(path: &Path, der: Vec<u8>) -> Self {
        Self { path: path.into(), der, kind: ListedKind::Authority }
    }
}

/// What the verifiers of all connections share.
struct Trusted<'t> {
    cas: &'t [ListedFile],
    /// Certificates of other CAs.
    intermediates: &'t [ListedFile],
    crls: &'t [DerOfFile<'t>],
    crl_files: &'t CrlFiles,
    known_keys: &'t KnownKeys,
}

/// Reads files and collects errors.
pub(super) struct KeyFileReader<'e> {
    environment: &'e dyn Environment,
    named_files: &'e NamedFiles,
    errors: RefCell<Vec<KeyFileError>>,
}

pub(super) fn load(
    config: &Config,
    providers: &[&'static dyn Provider],
    environment: &dyn Environment,
) -> Result<Keyring, Vec<KeyFileError>> {
    let environment = TokenEnvironment::new(environment, &config.token_modules);
    let named_files = &config.named_files;
    let reader = KeyFileReader { environment: &environment, named_files, errors: RefCell::new(Vec::new()) };
    let list = Providers(providers);
    let folders = &config.folders;
    let listed = config.authorities.iter().map(|authority| &authority.cacert);
    let mut cas: Vec<ListedFile> =
        folders.cacerts.iter().chain(listed).flat_map(|path| reader.authority_files(path)).collect();
    let containers = reader.containers(config);
    let contained = containers.iter().flat_map(|(path, container)| {
        container.authorities().map(|der| ListedFile::authority(path, der.clone()))
    });
    let (roots, intermediates): (Vec<_>, Vec<_>) = contained.partition(|file| is_self_issued(&file.der));
    cas.extend(roots);
    let (own, mut listed) = reader.own(config, containers, &mut cas, providers);
    let crl_files = config.authorities.iter().flat_map(|authority| &authority.crls).chain(&folders.crls);
    let crls: Vec<DerOfFile<'_>> = crl_files
        .flat_map(|path| reader.crls(path).into_iter().map(move |der| DerOfFile { path, der }))
        .collect();
    let known_keys = raw_keys::read_known(&reader, &folders.public_keys, &list);
    let crl_files = CrlFiles::new(
        crls.iter().map(|DerOfFile { path, der }| CrlFile { path: path.into(), der: der.clone() }),
    );
    let trusted = Trusted {
        cas: &cas,
        intermediates: &intermediates,
        crls: &crls,
        crl_files: &crl_files,
        known_keys: &known_keys,
    };
    let verifiers =
        config.peer_conditions.iter().map(|conditions| Arc::new(reader.verify(conditions, &trusted, &list)));
    let verifiers = verifiers.collect();
    listed.retain(|file| file.kind == ListedKind::Own || !cas.iter().any(|ca| ca.der == file.der));
    listed.extend(cas);
    listed.extend(crls.into_iter().map(|crl| ListedFile {
        path: crl.path.into(),
        der: crl.der,
        kind: ListedKind::Crl,
    }));
    super::tls::refuse_tokens(&reader, config, &own);
    let authorities = reader.authorities(config);
    let errors = reader.errors.into_inner();
    if !errors.is_empty() {
        return Err(errors);
    }
    let keys_for = |purpose| config.shared_keys.iter().filter(move |key| key.purpose == purpose).cloned();
    Ok(Keyring {
        shared: SharedKeys::new(keys_for(KeyPurpose::Ike).collect()),
        ppks: ppks(keys_for(KeyPurpose::Ppk)),
        eap: EapSecrets::new(keys_for(KeyPurpose::Eap).collect(), &list),
        own,
        sends_ocsp: config.connections.iter().any(|connection| connection.ocsp.replies()),
        own_rules: config.own_signatures.clone(),
        verifiers,
        listed,
        refusals: Arc::default(),
        providers: providers.to_vec(),
        radius: Mutex::default(),
        authorities: Arc::new(authorities),
        revocation: Mutex::default(),
        tokens: Mutex::default(),
    })
}

/// Post-quantum pre-shared keys by PPK_ID in lower case. The first one with a PPK_ID is used.
fn ppks(keys: impl Iterator<Item = SharedKey>) -> HashMap<Vec<u8>, SecretBytes> {
    let mut all = HashMap::new();
    for key in keys {
        for octets in ppk_ids(&key) {
            all.entry(octets.to_ascii_lowercase()).or_insert_with(|| key.secret.clone());
        }
    }
    all
}

impl KeyFileReader<'_> {
    pub(super) fn wrong(&self, path: &Path, why: impl fmt::Display) {
        let named_at = self.named_files.get(path).cloned();
        let error = KeyFileError { path: path.into(), why: why.to_string(), named_at };
        let mut errors = self.errors.borrow_mut();
        if !errors.contains(&error) {
            errors.push(error);
        }
    }

    pub(super) fn read(&self, path: &Path) -> Option<Zeroizing<Vec<u8>>> {
        let len = self.environment.len(path);
        let is_too_large = |len| len > MAX_FILE;
        match len.and_then(|len| {
            if is_too_large(len) { Ok(Zeroizing::default()) } else { self.environment.read(path) }
        }) {
            Ok(bytes) if bytes.is_empty() => {
                self.wrong(path, format!("a file of 1 to {MAX_FILE} bytes was expected"));
                None
            }
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.wrong(path, error);
                None
            }
        }
    }

    /// The objects in a file, in PEM or DER.
    fn items(&self, path: &Path, read: impl Fn(&[u8]) -> Result<Vec<Vec<u8>>, String>) -> Vec<Vec<u8>> {
        let Some(bytes) = self.read(path) else { return Vec::new() };
        read(&bytes).unwrap_or_else(|fault| {
            self.wrong(path, fault);
            Vec::new()
        })
    }

    pub(super) fn certificates(&self, path: &Path) -> Vec<Vec<u8>> {
        self.items(path, certificates_of)
    }

    /// The certificates of CAs in a file.
    pub(super) fn authority_files(&self, path: &Path) -> impl Iterator<Item = ListedFile> {
        self.certificates(path).into_iter().map(move |der| ListedFile::authority(path, der))
    }

    fn crls(&self, path: &Path) -> Vec<Vec<u8>> {
        self.items(path, crls_of)
    }

    /// The URIs of CAs, and the certificates of OCSP responders.
    fn authorities(&self, config: &Config) -> Authorities {
        let with_uris =
            config.authorities.iter().filter(|one| !one.crl_uris.is_empty() || !one.ocsp_uris.is_empty());
        let uris = with_uris.flat_map(|authority| {
            self.certificates(&authority.cacert).into_iter().map(|cacert| AuthorityUris {
                cacert,
                crls: authority.crl_uris.clone(),
                ocsp: authority.ocsp_uris.clone(),
            })
        });
        let responders = config.folders.responders.iter().flat_map(|path| self.certificates(path));
        let fetching = config.charon.fetching;
        Authorities { uris: uris.collect(), responders: responders.collect(), fetching }
    }

    /// Makes the verifier of the peers of a connection.
    fn verify(
        &self,
        conditions: &PeerConditions,
        trusted: &Trusted<'_>,
        providers: &Providers<'_>,
    ) -> PeerVerifier {
        let Trusted { cas, intermediates, crls, crl_files, known_keys } = *trusted;
        let raw_key = conditions.pubkey.as_deref().and_then(|path| self.peer_key(path, conditions));
        let raw_key = raw_key.map(|key| RawKey::new(key, providers));
        let accepts_known = raw_keys::accepts_known_keys(conditions);
        let known_keys = if accepts_known { known_keys.clone() } else { KnownKeys::default() };
        let mut store = TrustStore::new(StoreLimits::default());
        let named: Vec<DerOfFile<'_>> = conditions
            .cacerts
            .iter()
            .flat_map(|path| self.certificates(path).into_iter().map(move |der| DerOfFile { path, der }))
            .collect();
        // A connection that names CAs accepts only certificates below them. The path goes on to a CA above,
        // so that its constraints and CRLs apply.
        for DerOfFile { path, der } in &named {
            store.add_required_root(der).unwrap_or_else(|fault| self.wrong(path, fault));
        }
        for ListedFile { path, der, .. } in cas {
            store.add_root(der).unwrap_or_else(|fault| self.wrong(path, fault));
        }
        for ListedFile { path, der, .. } in intermediates {
            store.add_intermediate(der).unwrap_or_else(|fault| self.wrong(path, fault));
        }
        for DerOfFile { path, der } in crls {
            match store.add_crl(der) {
                Ok(true) => {}
                Ok(false) => self.wrong(path, "this kind of CRL is not supported"),
                Err(fault) => self.wrong(path, fault),
            }
        }
        let pinned = conditions.certs.iter().flat_map(|path| self.certificates(path)).collect();
        // A peer with a raw key needs no hint which certificate to send.
        let authorities = match conditions.pubkey {
            Some(_) => Vec::new(),
            None => store.certificate_authorities(providers).as_chunks().0.to_vec(),
        };
        PeerVerifier {
            conditions: conditions.clone(),
            store,
            crl_files: crl_files.clone(),
            authorities,
            pinned,
            raw_key,
            known_keys,
        }
    }

    pub(super) fn public_key(&self, path: &Path) -> Option<PublicKey> {
        let bytes = self.read(path)?;
        public_key_of(&bytes).map_err(|why| self.wrong(path, why)).ok()
    }

    /// The raw public key of a peer, which must be able to make a signature that `auth` allows.
    fn peer_key(&self, path: &Path, conditions: &PeerConditions) -> Option<PublicKey> {
        let key = self.public_key(path)?;
        let rules = &conditions.signatures;
        let fault = rules.demands().check_key(&key).err();
        if let Some(fault) = fault {
            self.wrong(path, format!("{fault} by remote.auth = {}", rules.text));
        } else if !rules.ike.is_empty() && !rules.ike.iter().any(|alg| alg.accepts_key(key.kind())) {
            let why = format!("the {} key cannot sign as remote.auth = {} requires", key.kind(), rules.text);
            self.wrong(path, why);
        }
        Some(key)
    }
}

/// The certificates in a file, in PEM or DER.
pub(crate) fn certificates_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    objects_of(bytes, pem::certificates)
}

/// The CRLs in a file, in PEM or DER.
pub(crate) fn crls_of(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    objects_of(bytes, pem::crls)
}

fn objects_of(
    bytes: &[u8],
    read: impl Fn(&[u8]) -> Result<Vec<Vec<u8>>, pem::PemFault>,
) -> Result<Vec<Vec<u8>>, String> {
    if is_container(bytes) {
        return Err(CONTAINER.into());
    }
    if is_der(bytes) { Ok(vec![bytes.to_vec()]) } else { read(bytes).map_err(|fault| fault.to_string()) }
}

/// The public key in a file: a SubjectPublicKeyInfo in PEM or DER.
pub(crate) fn public_key_of(bytes: &[u8]) -> Result<PublicKey, String> {
    let parse =
        |der: &[u8]| PublicKey::from_spki(der, KeyLimits::default()).map_err(|fault| fault.to_string());
    if is_der(bytes) {
        return parse(bytes);
    }
    pem::public_key(bytes).map_err(|fault| fault.to_string()).and_then(|der| parse(&der))
}

/// The private key in a file, in PEM or DER; if it is encrypted, with this passphrase.
pub(crate) fn private_key_of(
    bytes: &[u8],
    passphrase: Option<&Passphrase>,
    providers: &Providers<'_>,
) -> Result<PrivateKey, String> {
    let parse = |der: &[u8]| PrivateKey::from_der(der, KeyLimits::default());
    let Some(encrypted) = EncryptedKey::find(bytes)? else {
        if is_container(bytes) {
            return Err(CONTAINER.into());
        }
        if is_der(bytes) {
            return parse(bytes).map_err(|fault| fault.to_string());
        }
        let der = pem::private_key(bytes).map_err(|fault| fault.to_string())?;
        return parse(der.expose()).map_err(|fault| fault.to_string());
    };
    let passphrase = passphrase.ok_or(NO_PASSPHRASE)?;
    let decrypted = encrypted.decrypt(passphrase.secret.expose(), providers)?;
    // One wrong passphrase in 256 gives bytes whose padding is right.
    match decrypted.as_ref().map(|der| parse(der.expose())) {
        Some(Ok(key)) => Ok(key),
        None | Some(Err(KeyParseError::Malformed)) => Err(wrong_passphrase(passphrase)),
        Some(Err(fault)) => Err(fault.to_string()),
    }
}

pub(super) fn wrong_passphrase(passphrase: &Passphrase) -> String {
    format!("{}.secret is not its passphrase, or the file is damaged", passphrase.section)
}

/// What is wrong with a PKCS #12 container in a folder for other files.
const CONTAINER: &str = "it is a PKCS #12 container: the folder pkcs12 was expected, and a section `pkcs12` \
                         of `secrets` with the passphrase";

/// Whether a file is a PKCS #12 container in DER: a sequence that begins with the version 3 and another
/// sequence (RFC 7292 section 4). No certificate, CRL or private key begins like this.
fn is_container(bytes: &[u8]) -> bool {
    let long = match bytes {
        [0x30, len, ..] if *len >= 0x80 => usize::from(len & 0x7f),
        [0x30, ..] => 0,
        _ => return false,
    };
    bytes.get(long.saturating_add(2)..).is_some_and(|rest| rest.starts_with(&[2, 1, 3, 0x30]))
}

/// Whether a file is DER, which begins with a sequence; PEM is text.
pub(super) fn is_der(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_in_the_wrong_folder_is_named() {
        for container in [&[0x30, 0x82, 9, 0x16, 2, 1, 3, 0x30, 0x82][..], &[0x30, 5, 2, 1, 3, 0x30, 0]] {
            assert!(is_container(container));
            assert_eq!(certificates_of(container), Err(CONTAINER.into()));
            assert_eq!(private_key_of(container, None, &Providers(&[])).err(), Some(CONTAINER.into()));
        }
        // A certificate, and a private key in PKCS #8.
        assert!(
            !is_container(&[0x30, 0x82, 3, 0x43, 0x30, 0x82, 2]) && !is_container(&[0x30, 5, 2, 1, 0, 0x30])
        );
        assert!(!is_container(b"") && !is_container(b"0") && !is_container(b"-----BEGIN"));
    }
}
