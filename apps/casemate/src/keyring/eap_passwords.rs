//! Passwords of EAP identities.

use super::pattern_matches;
use crate::swanctl::SharedKey;
use casemate_crypto::{PasswordAlgorithms, SecretBytes};
use casemate_eap::EapCredentials;
use casemate_ike::config::{IdPattern, Identity};
use casemate_legacy::LEGACY;
use std::collections::HashMap;

/// Passwords by EAP identity.
#[derive(Debug, Default)]
pub(super) struct EapPasswords {
    keys: Vec<SharedKey>,
    /// Position in `keys` by identity, byte for byte.
    exact: HashMap<Vec<u8>, usize>,
}

impl EapPasswords {
    pub(super) fn new(keys: Vec<SharedKey>) -> Self {
        let mut exact = HashMap::new();
        for (position, key) in keys.iter().enumerate() {
            // As with pre-shared keys, the last of several counts.
            exact.extend(key.ids.iter().filter_map(IdPattern::exact).map(|id| (id.to_eap(), position)));
        }
        Self { keys, exact }
    }
}

impl EapCredentials for EapPasswords {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    /// The password of an entry with this identity, else of one with a pattern that fits, else of one without
    /// identities.
    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        if let Some(position) = self.exact.get(identity) {
            return self.keys.get(*position).map(|key| &key.secret);
        }
        let text =
            str::from_utf8(identity).ok().and_then(|text| casemate_strongswan::parse_identity(text).ok()?);
        let fits = |key: &&SharedKey| {
            let matches = |id: &Identity| key.ids.iter().any(|pattern| pattern_matches(pattern, id));
            text.as_ref().is_some_and(matches)
        };
        let keys = || self.keys.iter().rev();
        let found = keys().find(fits).or_else(|| keys().find(|key| key.ids.is_empty()));
        found.map(|key| &key.secret)
    }
}
