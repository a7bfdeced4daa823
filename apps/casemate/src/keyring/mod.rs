//! Keys and certificates of a configuration: what IKE asks of its owner.
//!
//! [`Keyring::load`] reads all files that a configuration names or that lie in its folders, or says everything that is wrong
//! with them. Nothing is ever fetched from elsewhere.

mod load;
mod own;
mod peer;

pub use load::LoadError;

use crate::swanctl::{Config, OwnSignature, PeerConditions, SharedKey};
use casemate_crypto::{Provider, Providers, PublicKey, SecretBytes, SignatureAlg};
use casemate_ike::config::{Connection, IdPattern, Identity};
use casemate_ike::spelling::name_parts;
use casemate_ike::{AuthorityHash, Credentials, NotTrusted, OwnKey, PeerCertificates};
use casemate_pki::DnPattern;
use own::OwnCerts;
use peer::Judge;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The keys and certificates of a configuration.
pub struct Keyring {
    shared: Vec<SharedKey>,
    own: OwnCerts,
    own_rules: Vec<OwnSignature>,
    judges: Vec<Judge>,
    /// Which peers were not trusted, and why, for the log.
    refusals: Mutex<Vec<(Identity, String)>>,
}

/// A gateway's IKE may run on another thread than what loaded the keys.
const _: () = {
    const fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Keyring>();
};

/// More than anybody reads between two looks.
const MAX_REFUSALS: usize = 64;

impl Keyring {
    /// Reads everything that the configuration names.
    pub fn load(config: &Config, providers: &[&'static dyn Provider]) -> Result<Self, Vec<LoadError>> {
        load::load(config, providers)
    }

    /// A ring without a key.
    pub fn empty() -> Self {
        Self {
            shared: Vec::new(),
            own: OwnCerts::default(),
            own_rules: Vec::new(),
            judges: Vec::new(),
            refusals: Mutex::default(),
        }
    }

    /// Why certificates were refused since the last call.
    pub fn take_refusals(&self) -> Vec<String> {
        mem::take(&mut *self.refusals()).into_iter().map(|(_, why)| why).collect()
    }

    /// A refusal is a whole line or none, so a thread that panicked has left no half one.
    fn refusals(&self) -> MutexGuard<'_, Vec<(Identity, String)>> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, connection: &Connection) -> Option<&Judge> {
        self.judges.iter().find(|judge| judge.conditions().connection == connection.name)
    }
}

impl Credentials for Keyring {
    /// The key whose identities fit best: both sides named, then one, then none (as swanctl.conf(5) says of `secrets`).
    fn shared_key(&self, _: &Connection, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        let rank = |key: &SharedKey| {
            if key.ids.is_empty() {
                return Some(0);
            }
            let names = |id: &Identity| key.ids.iter().any(|pattern| self.is_meant(pattern, id));
            match (names(local), names(remote)) {
                (true, true) => Some(3),
                (false, true) => Some(2),
                // A key for us alone is for every peer.
                (true, false) => (key.ids.len() == 1).then_some(1),
                (false, false) => None,
            }
        };
        let ranked = self.shared.iter().filter_map(|key| Some((rank(key)?, key)));
        // Of equals the first.
        ranked.rev().max_by_key(|(rank, _)| *rank).map(|(_, key)| &key.secret)
    }

    fn own_key(&self, connection: &Connection, wanted: &[AuthorityHash]) -> Option<OwnKey<'_>> {
        self.own.find(connection, wanted)
    }

    fn authorities(&self, connection: &Connection) -> Vec<AuthorityHash> {
        self.judge(connection).map_or(Vec::new(), |judge| judge.authorities.clone())
    }

    fn peer_key(
        &self,
        connection: &Connection,
        shown: &PeerCertificates<'_>,
        providers: &Providers<'_>,
    ) -> Result<PublicKey, NotTrusted> {
        let judge = self.judge(connection).ok_or(NotTrusted)?;
        judge.judge(shown, providers, &|pattern, id| self.is_meant(pattern, id)).map_err(|why| {
            self.refuse(shown.id, format!("{}: certificate of {}: {why}", connection.name, shown.id));
            NotTrusted
        })
    }

    fn takes(&self, connection: &Connection, peer: &Identity, alg: SignatureAlg) -> bool {
        let rules = self.judge(connection).map(|judge| &judge.conditions().signatures);
        match rules.filter(|rules| !rules.ike.is_empty() && !rules.ike.contains(&alg)) {
            None => {
                // Other connections may have refused this peer before this one takes it.
                self.refusals().retain(|(refused, _)| refused != peer);
                true
            }
            Some(rules) => {
                let why = format!(
                    "{}: signature of {peer} is {alg}, another one was asked for by remote.auth = {}",
                    connection.name, rules.text
                );
                self.refuse(peer, why);
                false
            }
        }
    }

    fn makes(&self, connection: &Connection) -> &[SignatureAlg] {
        let rules = self.own_rules.iter().find(|rules| rules.connection == connection.name);
        rules.map_or(&[], |rules| &rules.signatures.ike)
    }

    fn name_matches(&self, pattern: &str, name: &[u8]) -> bool {
        name_parts(pattern).is_some_and(|parts| DnPattern::new(parts).matches(name))
    }
}

impl Keyring {
    fn refuse(&self, peer: &Identity, why: String) {
        let mut refusals = self.refusals();
        if refusals.len() < MAX_REFUSALS {
            refusals.push((peer.clone(), why));
        }
    }

    fn is_meant(&self, pattern: &IdPattern, id: &Identity) -> bool {
        match (pattern.matches(id), pattern, id) {
            (Some(decided), ..) => decided,
            (None, IdPattern::NameLike(pattern), Identity::Name(name)) => self.name_matches(pattern, name),
            (None, ..) => false,
        }
    }
}

/// The conditions for the peers of a connection.
type Conditions = PeerConditions;
