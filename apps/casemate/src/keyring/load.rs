//! Loads certificate and key files.

use super::own::OwnRawKey;
use super::verifier::PeerVerifier;
use super::{EapPasswords, Keyring, ListedFile, ListedKind, OwnCert, OwnKeys, SharedKeys};
use crate::swanctl::{Config, Environment, KeyPurpose, PeerConditions};
use casemate_crypto::{KeyLimits, PrivateKey, Provider, Providers, PublicKey, SigningKey};
use casemate_ike::AuthorityHash;
use casemate_pki::{LocalCert, LocalCertFault, StoreLimits, TrustStore, VerifyOptions, is_self_issued, pem};
use casemate_wire::invariant::OrBroken;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Maximum size of a certificate or key file, in bytes.
const MAX_FILE: u64 = 16 << 20;

const NO_PRIVATE_KEY: &str = "no private key belongs to it";

/// An error in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyFileError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for KeyFileError {}

/// A certificate or CRL, with the file that contains it.
struct DerOfFile<'p> {
    path: &'p Path,
    der: Vec<u8>,
}

/// Reads files and collects errors.
struct KeyFileReader<'e> {
    environment: &'e dyn Environment,
    errors: RefCell<Vec<KeyFileError>>,
}

pub(super) fn load(
    config: &Config,
    providers: &[&'static dyn Provider],
    environment: &dyn Environment,
) -> Result<Keyring, Vec<KeyFileError>> {
    let reader = KeyFileReader { environment, errors: RefCell::new(Vec::new()) };
    let list = Providers(providers);
    let folders = &config.folders;
    let listed = config.authorities.iter().map(|authority| authority.cacert.clone());
    let cas: Vec<Vec<u8>> =
        folders.cacerts.iter().cloned().chain(listed).flat_map(|path| reader.certificates(&path)).collect();
    let crl_files = config.authorities.iter().flat_map(|authority| &authority.crls).chain(&folders.crls);
    let crls: Vec<DerOfFile<'_>> = crl_files
        .flat_map(|path| reader.crls(path).into_iter().map(move |der| DerOfFile { path, der }))
        .collect();
    let verifiers =
        config.peer_conditions.iter().map(|conditions| reader.verify(conditions, &cas, &crls, &list));
    let verifiers = verifiers.collect();
    let (own, mut listed) = reader.own(config, &cas, &list);
    listed.extend(cas.into_iter().map(|der| ListedFile { der, kind: ListedKind::Authority }));
    listed.extend(crls.into_iter().map(|crl| ListedFile { der: crl.der, kind: ListedKind::Crl }));
    let errors = reader.errors.into_inner();
    if !errors.is_empty() {
        return Err(errors);
    }
    let keys_for = |purpose| config.shared_keys.iter().filter(move |key| key.purpose == purpose).cloned();
    Ok(Keyring {
        shared: SharedKeys::new(keys_for(KeyPurpose::Ike).collect()),
        eap: EapPasswords::new(keys_for(KeyPurpose::Eap).collect()),
        own,
        own_rules: config.own_signatures.clone(),
        verifiers,
        listed,
        refusals: Mutex::default(),
    })
}

impl KeyFileReader<'_> {
    fn wrong(&self, path: &Path, why: impl fmt::Display) {
        let error = KeyFileError { path: path.into(), why: why.to_string() };
        let mut errors = self.errors.borrow_mut();
        if !errors.contains(&error) {
            errors.push(error);
        }
    }

    fn read(&self, path: &Path) -> Option<Zeroizing<Vec<u8>>> {
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

    fn certificates(&self, path: &Path) -> Vec<Vec<u8>> {
        self.items(path, certificates_of)
    }

    fn crls(&self, path: &Path) -> Vec<Vec<u8>> {
        self.items(path, crls_of)
    }

    /// Makes the verifier of the peers of a connection.
    fn verify(
        &self,
        conditions: &PeerConditions,
        cas: &[Vec<u8>],
        crls: &[DerOfFile<'_>],
        providers: &Providers<'_>,
    ) -> PeerVerifier {
        let raw_key = conditions.pubkey.as_deref().and_then(|path| self.peer_key(path, conditions));
        let mut store = TrustStore::new(StoreLimits::default());
        let named: Vec<DerOfFile<'_>> = conditions
            .cacerts
            .iter()
            .flat_map(|path| self.certificates(path).into_iter().map(move |der| DerOfFile { path, der }))
            .collect();
        for DerOfFile { path, der } in &named {
            store.add_root(der).unwrap_or_else(|fault| self.wrong(path, fault));
        }
        for der in cas {
            // A connection that names CAs trusts only those; the other CA certificates can be
            // intermediates.
            let added = if named.is_empty() { store.add_root(der) } else { store.add_intermediate(der) };
            added.unwrap_or_else(|fault| self.wrong(Path::new("certification authorities"), fault));
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
        PeerVerifier { conditions: conditions.clone(), store, authorities, pinned, raw_key }
    }

    fn public_key(&self, path: &Path) -> Option<PublicKey> {
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

    /// Loads the local certificates, each with its private key. Also returns all certificates that were
    /// read, of peers, too.
    fn own(&self, config: &Config, cas: &[Vec<u8>], providers: &Providers<'_>) -> (OwnKeys, Vec<ListedFile>) {
        let named: Vec<PathBuf> = config.own_signatures.iter().flat_map(|own| own.certs.clone()).collect();
        let mut paths: Vec<PathBuf> = config.folders.certs.iter().cloned().chain(named.clone()).collect();
        paths.sort();
        paths.dedup();
        let mut keys: BTreeMap<PathBuf, PrivateKey> = BTreeMap::new();
        for path in &config.folders.private_keys {
            keys.extend(self.private_key(path).map(|key| (path.clone(), key)));
        }
        let (mut own, mut listed) = (OwnKeys::default(), Vec::new());
        for path in paths {
            let certs = self.certificates(&path);
            let Some((leaf, rest)) = certs.split_first() else { continue };
            let issuers = Issuers::find(leaf, rest, cas, providers);
            let joined = self.join(&path, leaf, issuers, &keys, providers);
            let kind = if joined.is_some() { ListedKind::Own } else { ListedKind::Peer };
            listed.push(ListedFile { der: leaf.clone(), kind });
            match joined {
                Some(cert) => own.certs.push(cert),
                // A peer's certificate has no private key here; a certificate that a connection signs
                // with must have one.
                None if named.contains(&path) && !config.allows_missing_keys => {
                    self.wrong(&path, NO_PRIVATE_KEY)
                }
                None => {}
            }
        }
        own.raw = self.own_raw_keys(config, &keys, providers);
        (own, listed)
    }

    /// The private keys of the public keys that connections name for this host.
    fn own_raw_keys(
        &self,
        config: &Config,
        keys: &BTreeMap<PathBuf, PrivateKey>,
        providers: &Providers<'_>,
    ) -> Vec<OwnRawKey> {
        let mut own = Vec::new();
        let paths: BTreeSet<&PathBuf> = config.own_signatures.iter().flat_map(|own| &own.pubkeys).collect();
        for path in paths {
            let Some(public) = self.public_key(path) else { continue };
            let signing = keys.iter().filter_map(|(file, key)| self.signing_key(file, key, providers));
            match { signing }.find(|key| *key.public_key() == public) {
                Some(key) => own.push(OwnRawKey { path: path.clone(), key }),
                None if config.allows_missing_keys => {}
                None => self.wrong(path, NO_PRIVATE_KEY),
            }
        }
        own
    }

    fn signing_key(
        &self,
        file: &Path,
        key: &PrivateKey,
        providers: &Providers<'_>,
    ) -> Option<Box<dyn SigningKey>> {
        providers.signing_key(key).map_err(|error| self.wrong(file, error)).ok()
    }

    /// Pairs a certificate with its private key and the chain above it.
    fn join(
        &self,
        path: &Path,
        leaf: &[u8],
        issuers: Issuers,
        keys: &BTreeMap<PathBuf, PrivateKey>,
        providers: &Providers<'_>,
    ) -> Option<OwnCert> {
        let Issuers { intermediates, authorities } = issuers;
        let chain: Vec<&[u8]> = [leaf].into_iter().chain(intermediates.iter().map(Vec::as_slice)).collect();
        for (file, key) in keys {
            let Some(key) = self.signing_key(file, key, providers) else { continue };
            match LocalCert::new(&chain, key, KeyLimits::default()) {
                Ok(cert) => return Some(OwnCert { path: path.into(), cert, authorities }),
                Err(LocalCertFault::KeyMismatch) => {}
                Err(fault) => {
                    self.wrong(path, fault);
                    return None;
                }
            }
        }
        None
    }

    fn private_key(&self, path: &Path) -> Option<PrivateKey> {
        let bytes = self.read(path)?;
        private_key_of(&bytes).map_err(|why| self.wrong(path, why)).ok()
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

/// The private key in a file, in PEM or DER.
pub(crate) fn private_key_of(bytes: &[u8]) -> Result<PrivateKey, String> {
    let parse =
        |der: &[u8]| PrivateKey::from_der(der, KeyLimits::default()).map_err(|fault| fault.to_string());
    if is_der(bytes) {
        return parse(bytes);
    }
    pem::private_key(bytes).map_err(|fault| fault.to_string()).and_then(|der| parse(der.expose()))
}

/// Whether a file is DER, which begins with a sequence; PEM is text.
fn is_der(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x30)
}

/// The CAs above a local certificate.
struct Issuers {
    /// Certificates between the local certificate and its root, which are sent with it.
    intermediates: Vec<Vec<u8>>,
    /// Hashes of all CAs.
    authorities: Vec<AuthorityHash>,
}

impl Issuers {
    /// Finds the CAs of `leaf` among the configured CAs and the certificates in the same file.
    fn find(leaf: &[u8], same_file: &[Vec<u8>], cas: &[Vec<u8>], providers: &Providers<'_>) -> Self {
        let mut store = TrustStore::new(StoreLimits::default());
        for der in cas.iter().chain(same_file) {
            // A certificate that does not fit is harmless: no path leads through it.
            let _ = if is_self_issued(der) { store.add_root(der) } else { store.add_intermediate(der) };
        }
        // With a clock before 1970, no certificate is valid yet.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let Ok(path) = store.verify(&[leaf], now, &VerifyOptions::default(), providers) else {
            // Expired, or the root is missing: only the certificates in the same file are sent with it.
            return Self { intermediates: same_file.to_vec(), authorities: Vec::new() };
        };
        let mut all = TrustStore::new(StoreLimits::default());
        for der in path.issuers() {
            all.add_root(der).or_report("a certificate of a verified path is valid");
        }
        let authorities = all.certificate_authorities(providers).as_chunks().0.to_vec();
        let intermediates = path.issuers().filter(|der| !is_self_issued(der)).map(<[u8]>::to_vec).collect();
        Self { intermediates, authorities }
    }
}
