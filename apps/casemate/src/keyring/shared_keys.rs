//! Pre-shared keys, found by the identities of both sides without looking at each key.

use super::pattern_matches;
use crate::swanctl::SharedKey;
use casemate_crypto::SecretBytes;
use casemate_ike::config::{IdPattern, Identity};
use std::cmp::Reverse;
use std::collections::HashMap;

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
}
