//! Pre-shared keys, found by the identities of both sides without looking at each key, and passwords of EAP
//! identities.

use super::pattern_matches;
use super::subscribers::{self, imsi};
use crate::log::wording;
use crate::sequence_numbers::SequenceStore;
use crate::swanctl::SharedKey;
use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
use casemate_eap::{EapCredentials, NetworkSequence, SequenceNumbers, Subscriber, UsimSequence};
use casemate_ike::config::{IdPattern, Identity};
use casemate_legacy::LEGACY;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// The pre-shared keys of a configuration, in its order. Identities are keys of the tables in their canonical
/// form.
#[derive(Default)]
pub(super) struct SharedKeys {
    keys: Vec<SharedKey>,
    /// Places of the keys that name this identity.
    naming: HashMap<Identity, Vec<usize>>,
    /// Place of the first key that names this identity and no other.
    naming_only: HashMap<Identity, usize>,
    /// Places of the keys without identities or with a pattern.
    patterns: Vec<usize>,
}

impl SharedKeys {
    pub(super) fn new(keys: Vec<SharedKey>) -> Self {
        let mut table = Self { keys, ..Self::default() };
        for (place, key) in table.keys.iter().enumerate() {
            if key.ids.is_empty() || key.ids.iter().any(|id| id.exact().is_none()) {
                table.patterns.push(place);
            }
            for id in key.ids.iter().filter_map(IdPattern::exact).map(Identity::canonical) {
                if key.ids.len() == 1 {
                    table.naming_only.entry(id.clone()).or_insert(place);
                }
                table.naming.entry(id).or_default().push(place);
            }
        }
        table
    }

    /// Returns the best matching key: one that names both sides, then one that names one side, then one that
    /// names none (`secrets` in swanctl.conf(5)). The first of equally good keys wins.
    pub(super) fn find(&self, local: &Identity, remote: &Identity) -> Option<&SecretBytes> {
        let ranked = self
            .candidates(Some(local), remote)
            .filter_map(|(place, key)| Some(((Reverse(rank(key, local, remote)?), place), key)));
        ranked.min_by_key(|(order, _)| *order).map(|(_, key)| &key.secret)
    }

    /// Whether a key can be that of this host and one of the peers. An identity that is not known yet
    /// matches.
    pub(super) fn may_suit(&self, local: Option<&Identity>, remote: &IdPattern) -> bool {
        let suits = |key: &SharedKey, remote: &Identity| match local {
            Some(local) => rank(key, local, remote).is_some(),
            None => key.ids.len() <= 1 || names(key, remote),
        };
        match remote {
            IdPattern::Exact(remote) => {
                self.candidates(local, remote).any(|(_, key)| suits(key, remote))
                    || local.is_none() && self.keys.iter().any(|key| key.ids.len() == 1)
            }
            pattern => self.keys.iter().any(|key| {
                let may_name = |id: &IdPattern| id.exact().is_none_or(|id| pattern_matches(pattern, id));
                let names_local = local.is_none_or(|local| names(key, local));
                key.ids.is_empty() || key.ids.iter().any(may_name) || names_local && key.ids.len() == 1
            }),
        }
    }

    /// All keys that can match, and possibly others. A key may appear twice.
    fn candidates(
        &self,
        local: Option<&Identity>,
        remote: &Identity,
    ) -> impl Iterator<Item = (usize, &SharedKey)> {
        let of_remote = self.naming.get(&remote.canonical()).map_or(&[][..], Vec::as_slice);
        let of_local = local.and_then(|local| self.naming_only.get(&local.canonical()));
        let places = of_remote.iter().chain(&self.patterns).chain(of_local);
        places.filter_map(|place| Some((*place, self.keys.get(*place)?)))
    }
}

fn names(key: &SharedKey, id: &Identity) -> bool {
    key.ids.iter().any(|pattern| pattern_matches(pattern, id))
}

/// How well the key matches: a higher number is better, and `None` is not at all.
fn rank(key: &SharedKey, local: &Identity, remote: &Identity) -> Option<u8> {
    if key.ids.is_empty() {
        return Some(0);
    }
    match (names(key, local), names(key, remote)) {
        (true, true) => Some(3),
        (false, true) => Some(2),
        // A key that names only the local side matches every peer.
        (true, false) => (key.ids.len() == 1).then_some(1),
        (false, false) => None,
    }
}

/// Passwords by EAP identity.
#[derive(Default)]
pub(super) struct EapPasswords {
    keys: Vec<SharedKey>,
    /// Subscribers of EAP-AKA with the same positions; `None` for passwords that cannot be their keys.
    subscribers: Vec<Option<Subscriber>>,
    /// Position in `keys` by identity, byte for byte.
    exact: HashMap<Vec<u8>, usize>,
    sequence_numbers: OnceLock<Arc<SequenceStore>>,
}

impl EapPasswords {
    pub(super) fn new(keys: Vec<SharedKey>, providers: &Providers<'_>) -> Self {
        let mut exact = HashMap::new();
        for (position, key) in keys.iter().enumerate() {
            // As with pre-shared keys, the last of several counts.
            exact.extend(key.ids.iter().filter_map(IdPattern::exact).map(|id| (id.to_eap(), position)));
        }
        let subscribers = keys.iter().map(|key| subscribers::subscriber(key, providers)).collect();
        Self { keys, subscribers, exact, sequence_numbers: OnceLock::new() }
    }

    /// Keeps the sequence numbers of EAP-AKA there. Only the first call counts.
    pub(super) fn use_sequence_numbers(&self, store: Arc<SequenceStore>) {
        let _ = self.sequence_numbers.set(store);
    }

    /// The position of the entry with exactly this identity, else of one with the identity in another case or
    /// a pattern that fits.
    fn named(&self, identity: &[u8]) -> Option<usize> {
        if let Some(position) = self.exact.get(identity) {
            return Some(*position);
        }
        let text = str::from_utf8(identity)
            .ok()
            .and_then(|text| casemate_strongswan::parse_identity(text).ok()?)?;
        self.keys.iter().rposition(|key| key.ids.iter().any(|pattern| pattern_matches(pattern, &text)))
    }

    /// The position of an entry without identities.
    fn unnamed(&self) -> Option<usize> {
        self.keys.iter().rposition(|key| key.ids.is_empty())
    }

    /// The position of the keys of a subscriber: those with its identity, with its IMSI, or without identity.
    fn subscriber_position(&self, identity: &[u8]) -> Option<usize> {
        let by_imsi = || imsi(identity).and_then(|imsi| self.named(imsi));
        self.named(identity).or_else(by_imsi).or_else(|| self.unnamed())
    }

    /// The name under which the sequence numbers of a subscriber are kept: one for each K.
    fn sequence_name(&self, identity: &[u8]) -> Option<Vec<u8>> {
        let key = self.keys.get(self.subscriber_position(identity)?)?;
        Some(key.ids.first().map_or(Vec::new(), |id| wording::id_pattern(id).into_bytes()))
    }
}

impl SequenceNumbers for EapPasswords {
    fn change_network(&self, identity: &[u8], change: &mut dyn FnMut(&mut NetworkSequence)) {
        if let (Some(name), Some(store)) = (self.sequence_name(identity), self.sequence_numbers.get()) {
            store.change_network(&name, change);
        }
    }

    fn change_usim(&self, identity: &[u8], change: &mut dyn FnMut(&mut UsimSequence)) {
        if let (Some(name), Some(store)) = (self.sequence_name(identity), self.sequence_numbers.get()) {
            store.change_usim(&name, change);
        }
    }
}

impl EapCredentials for EapPasswords {
    fn algorithms(&self) -> Option<&dyn PasswordAlgorithms> {
        Some(&LEGACY)
    }

    /// The password of an entry with exactly this identity, else of one with the identity in another case or
    /// a pattern that fits, else of one without identities.
    fn password(&self, identity: &[u8]) -> Option<&SecretBytes> {
        let position = self.named(identity).or_else(|| self.unnamed())?;
        self.keys.get(position).map(|key| &key.secret)
    }

    fn subscriber(&self, identity: &[u8]) -> Option<&Subscriber> {
        self.subscribers.get(self.subscriber_position(identity)?)?.as_ref()
    }

    fn sequence_numbers(&self) -> Option<&dyn SequenceNumbers> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::{KeyPurpose, Usim};
    use casemate_ike::config::IdentityKind;

    fn name(text: &str) -> Identity {
        Identity::Fqdn(text.into())
    }

    /// Every list of at most two of these, as the identities of one key each, in an order that varies.
    fn keys() -> Vec<SharedKey> {
        let ids = [
            IdPattern::Exact(name("a.example")),
            IdPattern::Exact(name("B.example")),
            IdPattern::Exact(name("c.test")),
            IdPattern::Any,
            IdPattern::Suffix(IdentityKind::Fqdn, ".example".into()),
        ];
        let one = ids.iter().map(|id| vec![id.clone()]);
        let two = ids.iter().flat_map(|a| ids.iter().map(|b| vec![a.clone(), b.clone()]));
        let lists = core::iter::once(Vec::new()).chain(one).chain(two);
        lists
            .zip(1u8..)
            .map(|(ids, n)| SharedKey {
                purpose: KeyPurpose::Ike,
                ids,
                secret: SecretBytes::new(&[n]),
                usim: Usim::default(),
            })
            .collect()
    }

    /// Removes one key after the other, so that each one is the best at some time.
    #[test]
    fn tables_find_the_same_key_as_a_look_at_each() {
        let names = ["a.example", "A.example", "b.example", "c.test", "d.test", "d.example"].map(name);
        let mut keys = keys();
        for step in 0..keys.len() {
            let table = SharedKeys::new(keys.clone());
            for (local, remote) in names.iter().flat_map(|a| names.iter().map(move |b| (a, b))) {
                let ranked = keys.iter().filter_map(|key| Some((rank(key, local, remote)?, key)));
                let best = ranked.rev().max_by_key(|(rank, _)| *rank).map(|(_, key)| &key.secret);
                assert_eq!(table.find(local, remote), best, "{local} {remote} {step}");
                let exact = IdPattern::Exact(remote.clone());
                assert_eq!(table.may_suit(Some(local), &exact), best.is_some(), "{local} {remote} {step}");
            }
            let middle = step % keys.len();
            keys.rotate_left(middle);
            keys.pop();
        }
    }

    #[test]
    fn unknown_identities_may_suit() {
        let key = |ids: &[&str]| SharedKey {
            purpose: KeyPurpose::Ike,
            ids: ids.iter().map(|id| IdPattern::Exact(name(id))).collect(),
            secret: SecretBytes::new(&[1]),
            usim: Usim::default(),
        };
        let [two, one] = [SharedKeys::new(vec![key(&["a", "b"])]), SharedKeys::new(vec![key(&["a"])])];
        let peer = IdPattern::Exact(name("peer"));
        assert!(one.may_suit(None, &peer), "this host may be `a`");
        assert!(!one.may_suit(Some(&name("host")), &peer));
        assert!(!two.may_suit(None, &peer), "a key of two others");
        assert!(two.may_suit(Some(&name("host")), &IdPattern::Any));
        assert!(!two.may_suit(Some(&name("a")), &IdPattern::Suffix(IdentityKind::Fqdn, ".example".into())));
    }

    /// Passwords of these identities in the notation of the file, each the number of its place.
    fn passwords(ids: &[&[&str]]) -> EapPasswords {
        let pattern = |id: &&str| casemate_strongswan::parse_id_pattern(id).unwrap();
        let keys = (1..).zip(ids).map(|(number, ids)| SharedKey {
            purpose: KeyPurpose::Eap,
            ids: ids.iter().map(pattern).collect(),
            secret: SecretBytes::new(&[number]),
            usim: Usim::default(),
        });
        EapPasswords::new(keys.collect(), &Providers(&[]))
    }

    #[test]
    fn the_most_specific_password_counts() {
        let all = passwords(&[&["carol"], &["*@example.org"], &["dave@example.org", "dave"], &[]]);
        for (identity, place) in [("carol", 1), ("eve@example.org", 2), ("dave@example.org", 3), ("eve", 4)] {
            let found = all.password(identity.as_bytes()).map(|password| password.expose()[0]);
            assert_eq!(found, Some(place), "{identity}");
        }
        assert_eq!(all.password(b"Carol").map(|password| password.expose()[0]), Some(1), "in any case");
        let named = passwords(&[&["carol"]]);
        assert!([&b"dave"[..], b"", b"\xff\xfe", b"carol\0"].iter().all(|id| named.password(id).is_none()));
    }

    #[test]
    fn the_last_of_equal_passwords_counts() {
        let all = passwords(&[&["carol"], &["carol"]]);
        assert_eq!(all.password(b"carol").map(|password| password.expose()[0]), Some(2));
    }
}
