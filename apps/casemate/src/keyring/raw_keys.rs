//! Raw public keys of peers (RFC 7670) and their key IDs.
//!
//! A key contains no identity. Its owner may have the identity that the connection names, or the key ID, as
//! with strongSwan: the SHA-1 digest of the SubjectPublicKeyInfo. A key ID proves nothing; it selects the key
//! with which the AUTH payload is verified.

use super::Keyring;
use super::load::KeyFileReader;
use crate::swanctl::{PeerConditions, Revocation};
use casemate_crypto::{HashAlg, Providers, PublicKey};
use casemate_ike::config::{Connection, IdPattern, Identity};
use std::path::PathBuf;
use std::sync::Arc;

/// A public key and its key ID.
#[derive(Clone)]
pub(super) struct RawKey {
    pub(super) key: PublicKey,
    pub(super) id: Option<Identity>,
}

impl RawKey {
    pub(super) fn new(key: PublicKey, providers: &Providers<'_>) -> Self {
        let id = key_id(&key, providers);
        Self { key, id }
    }
}

/// The key ID of a key; `None` if no provider supports SHA-1.
pub(super) fn key_id(key: &PublicKey, providers: &Providers<'_>) -> Option<Identity> {
    let digest = providers.hash(HashAlg::Sha1, &[key.spki()])?;
    Some(Identity::KeyId(digest.as_slice().to_vec()))
}

/// The public keys in the folder `pubkey`.
pub(super) type KnownKeys = Arc<[RawKey]>;

/// Reads the folder `pubkey`.
pub(super) fn read_known(
    reader: &KeyFileReader<'_>,
    files: &[PathBuf],
    providers: &Providers<'_>,
) -> KnownKeys {
    files.iter().filter_map(|file| Some(RawKey::new(reader.public_key(file)?, providers))).collect()
}

/// Whether any key of the folder `pubkey` may authenticate a peer: the connection demands nothing that only a
/// certificate has.
pub(super) fn accepts_known_keys(conditions: &PeerConditions) -> bool {
    let is_open = conditions.pubkey.is_none() && !conditions.names_certificate();
    is_open && conditions.revocation != Revocation::Strict
}

impl Keyring {
    /// Gives each peer with a raw public key and without a configured identity the key ID.
    pub(crate) fn with_key_ids(&self, mut connections: Vec<Arc<Connection>>) -> Vec<Arc<Connection>> {
        for connection in &mut connections {
            let ids: Vec<Option<Identity>> =
                connection.in_remote_rounds().map(|in_round| self.missing_key_id(&in_round)).collect();
            if ids.iter().all(Option::is_none) {
                continue;
            }
            let named = Arc::make_mut(connection);
            let rounds = [&mut named.remote].into_iter().chain(&mut named.further_rounds.remote);
            for (round, id) in rounds.zip(ids) {
                if let Some(id) = id {
                    round.id = IdPattern::Exact(id);
                }
            }
        }
        connections
    }

    fn missing_key_id(&self, in_round: &Connection) -> Option<Identity> {
        let raw_key = self.verifier(in_round)?.raw_key.as_ref()?;
        raw_key.id.clone().filter(|_| in_round.remote.id == IdPattern::Any)
    }
}
