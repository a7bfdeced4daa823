//! Pairs the certificates and public keys of this host with their private keys.

use super::encrypted::Container;
use super::load::{KeyFileReader, NO_PASSPHRASE, private_key_of};
use super::own::{OwnCert, OwnKeys, OwnRawKey};
use super::raw_keys::key_id;
use super::{ListedFile, ListedKind};
use crate::swanctl::{Config, Passphrase};
use crate::tokens::{OpenedKey, TokenSigningKey, open_keys};
use casemate_crypto::{KeyLimits, PrivateKey, Provider, Providers, SigningKey};
use casemate_ike::AuthorityHash;
use casemate_pki::{LocalCert, LocalCertFault, StoreLimits, TrustStore, VerifyOptions, is_self_issued};
use casemate_wire::invariant::OrBroken;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

const NO_PRIVATE_KEY: &str = "no private key belongs to it";

/// A private key before its certificate or public key was found.
pub(super) enum PrivateHalf {
    /// In this file.
    File(PathBuf, PrivateKey),
    Token(OpenedKey),
}

impl KeyFileReader<'_> {
    /// Loads the local certificates, each with its private key. Also returns all certificates that were
    /// read, of peers, too. Adds the possible roots that have issued one of the local certificates to `cas`.
    pub(super) fn own(
        &self,
        config: &Config,
        mut containers: Vec<(PathBuf, Container)>,
        cas: &mut Vec<ListedFile>,
        providers: &[&'static dyn Provider],
    ) -> (OwnKeys, Vec<ListedFile>) {
        let possible: Vec<ListedFile> =
            config.folders.possible_roots.iter().flat_map(|path| self.authority_files(path)).collect();
        let all_cas: Vec<Vec<u8>> = cas.iter().chain(&possible).map(|file| file.der.clone()).collect();
        let tokens = self.token_keys(config, providers);
        let providers = &Providers(providers);
        let named: Vec<PathBuf> = config.own_signatures.iter().flat_map(|own| own.certs.clone()).collect();
        let mut paths: Vec<PathBuf> = config.folders.certs.iter().cloned().chain(named.clone()).collect();
        paths.sort();
        paths.dedup();
        let mut keys = self.private_keys(config, providers);
        for (path, container) in containers.iter_mut() {
            keys.extend(container.keys.drain(..).map(|key| PrivateHalf::File(path.clone(), key)));
        }
        keys.extend(tokens.iter().cloned().map(PrivateHalf::Token));
        let (mut own, mut listed) = (OwnKeys::default(), Vec::new());
        for (path, container) in containers {
            for cert in self.own_certs(&path, &container.certs, &all_cas, &keys, providers) {
                let leaf = cert.cert.chain().next().map(<[u8]>::to_vec);
                listed.extend(leaf.map(|der| ListedFile { path: path.clone(), der, kind: ListedKind::Own }));
                own.certs.push(Arc::new(cert));
            }
        }
        for OpenedKey { path, certificate, .. } in &tokens {
            // A connection may name the certificate as well.
            let Some(leaf) = certificate.as_ref().filter(|_| !paths.contains(path)) else { continue };
            let issuers = Issuers::find(leaf, &[], &all_cas, providers);
            let Some(cert) = self.join(path, leaf, issuers, &keys, providers) else { continue };
            listed.push(ListedFile { path: path.clone(), der: leaf.clone(), kind: ListedKind::Own });
            own.certs.push(Arc::new(cert));
        }
        for path in paths {
            let certs = self.certificates(&path);
            let Some((leaf, rest)) = certs.split_first() else { continue };
            let issuers = Issuers::find(leaf, rest, &all_cas, providers);
            let joined = self.join(&path, leaf, issuers, &keys, providers);
            let kind = if joined.is_some() { ListedKind::Own } else { ListedKind::Peer };
            listed.push(ListedFile { path: path.clone(), der: leaf.clone(), kind });
            match joined {
                Some(cert) => own.certs.push(Arc::new(cert)),
                // A peer's certificate has no private key here; a certificate that a connection signs
                // with must have one.
                None if named.contains(&path) && !config.allows_missing_keys => {
                    self.wrong(&path, NO_PRIVATE_KEY)
                }
                None => {}
            }
        }
        own.raw = self.own_raw_keys(config, &keys, providers);
        own.tokens = tokens;
        let has_issued = |root: &ListedFile| own.certs.iter().any(|own| own.root.as_ref() == Some(&root.der));
        cas.extend(possible.into_iter().filter(has_issued));
        (own, listed)
    }

    /// The private keys of the public keys that connections name for this host.
    fn own_raw_keys(
        &self,
        config: &Config,
        keys: &[PrivateHalf],
        providers: &Providers<'_>,
    ) -> Vec<OwnRawKey> {
        let mut own = Vec::new();
        let paths: BTreeSet<&PathBuf> = config.own_signatures.iter().flat_map(|own| &own.pubkeys).collect();
        for path in paths {
            let Some(public) = self.public_key(path) else { continue };
            let signing = keys.iter().filter_map(|key| self.signing_key(key, providers));
            match { signing }.find(|key| *key.public_key() == public) {
                Some(key) => {
                    let id = key_id(key.public_key(), providers);
                    own.push(OwnRawKey { path: path.clone(), key, id });
                }
                None if config.allows_missing_keys => {}
                None => self.wrong(path, NO_PRIVATE_KEY),
            }
        }
        own
    }

    fn signing_key(&self, key: &PrivateHalf, providers: &Providers<'_>) -> Option<Box<dyn SigningKey>> {
        match key {
            PrivateHalf::File(file, key) => {
                providers.signing_key(key).map_err(|error| self.wrong(file, error)).ok()
            }
            PrivateHalf::Token(opened) => Some(Box::new(TokenSigningKey(opened.key.clone()))),
        }
    }

    /// Opens the private keys on tokens.
    fn token_keys(&self, config: &Config, providers: &[&'static dyn Provider]) -> Vec<OpenedKey> {
        let opened = open_keys(&config.tokens, &config.token_modules, providers);
        opened.filter_map(|opened| opened.map_err(|(path, why)| self.wrong(&path, why)).ok()).collect()
    }

    /// Pairs a certificate with its private key and the chain above it.
    fn join(
        &self,
        path: &Path,
        leaf: &[u8],
        issuers: Issuers,
        keys: &[PrivateHalf],
        providers: &Providers<'_>,
    ) -> Option<OwnCert> {
        let Issuers { issuer, root, intermediates, authorities } = issuers;
        let chain: Vec<&[u8]> = [leaf].into_iter().chain(intermediates.iter().map(Vec::as_slice)).collect();
        for key in keys {
            let Some(key) = self.signing_key(key, providers) else { continue };
            match LocalCert::new(&chain, key, KeyLimits::default()) {
                Ok(cert) => return Some(OwnCert { path: path.into(), cert, issuer, root, authorities }),
                Err(LocalCertFault::KeyMismatch) => {}
                Err(fault) => {
                    self.wrong(path, fault);
                    return None;
                }
            }
        }
        None
    }

    /// The private keys of all folders, each with its file.
    fn private_keys(&self, config: &Config, providers: &Providers<'_>) -> Vec<PrivateHalf> {
        let read = |path: &PathBuf| {
            let bytes = self.read(path)?;
            let key = private_key_of(&bytes, passphrase_of(config, path), providers);
            key.map_err(|why| self.wrong(path, why)).ok().map(|key| PrivateHalf::File(path.clone(), key))
        };
        config.folders.private_keys.iter().filter_map(read).collect()
    }

    /// The containers of the folder `pkcs12`.
    pub(super) fn containers(&self, config: &Config) -> Vec<(PathBuf, Container)> {
        let read = |path: &PathBuf| {
            let bytes = self.read(path)?;
            let passphrase = passphrase_of(config, path).ok_or_else(|| NO_PASSPHRASE.to_owned());
            let container = passphrase.and_then(|passphrase| Container::open(&bytes, passphrase));
            container.map_err(|why| self.wrong(path, why)).ok().map(|container| (path.clone(), container))
        };
        config.folders.containers.iter().filter_map(read).collect()
    }

    /// The certificates of a container to which private keys belong, with the chain that is in the container.
    fn own_certs(
        &self,
        path: &Path,
        certs: &[Vec<u8>],
        cas: &[Vec<u8>],
        keys: &[PrivateHalf],
        providers: &Providers<'_>,
    ) -> Vec<OwnCert> {
        let join = |leaf: &Vec<u8>| {
            let others: Vec<Vec<u8>> = certs.iter().filter(|cert| *cert != leaf).cloned().collect();
            self.join(path, leaf, Issuers::find(leaf, &others, cas, providers), keys, providers)
        };
        certs.iter().filter_map(join).collect()
    }
}

fn passphrase_of<'c>(config: &'c Config, path: &Path) -> Option<&'c Passphrase> {
    config.passphrases.iter().find(|passphrase| passphrase.file == path)
}

/// The CAs above a local certificate.
struct Issuers {
    /// The first one.
    issuer: Option<Vec<u8>>,
    /// The last one, which issued itself.
    root: Option<Vec<u8>>,
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
            let intermediates = same_file.to_vec();
            return Self { issuer: None, root: None, intermediates, authorities: Vec::new() };
        };
        let mut all = TrustStore::new(StoreLimits::default());
        for der in path.issuers() {
            all.add_root(der).or_report("a certificate of a verified path is valid");
        }
        let authorities = all.certificate_authorities(providers).as_chunks().0.to_vec();
        let intermediates = path.issuers().filter(|der| !is_self_issued(der)).map(<[u8]>::to_vec).collect();
        let issuer = path.issuers().next().map(<[u8]>::to_vec);
        // A certificate that issued itself has no other root.
        let root = path.issuers().last().filter(|root| *root != leaf).map(<[u8]>::to_vec);
        Self { issuer, root, intermediates, authorities }
    }
}
