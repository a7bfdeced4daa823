//! Secrets of EAP identities: passwords, and keys of USIMs for EAP-AKA.

use super::pattern_matches;
use crate::log::wording;
use crate::sequence_numbers::SequenceStore;
use crate::swanctl::{OperatorKey, SharedKey};
use casemate_crypto::{PasswordAlgorithms, Providers, SecretBytes};
use casemate_eap::{EapCredentials, NetworkSequence, SequenceNumbers, Subscriber, UsimSequence};
use casemate_ike::config::IdPattern;
use casemate_legacy::LEGACY;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Secrets by EAP identity.
#[derive(Default)]
pub(super) struct EapSecrets {
    keys: Vec<SharedKey>,
    /// Subscribers of EAP-AKA with the same positions; `None` for passwords that cannot be their keys.
    subscribers: Vec<Option<Subscriber>>,
    /// Position in `keys` by identity, byte for byte.
    exact: HashMap<Vec<u8>, usize>,
    sequence_numbers: OnceLock<Arc<SequenceStore>>,
}

impl EapSecrets {
    pub(super) fn new(keys: Vec<SharedKey>, providers: &Providers<'_>) -> Self {
        let mut exact = HashMap::new();
        for (position, key) in keys.iter().enumerate() {
            // Unlike with pre-shared keys, the last of several counts; `secret::warn_of_equal` says so.
            exact.extend(key.ids.iter().filter_map(IdPattern::exact).map(|id| (id.to_eap(), position)));
        }
        let subscribers = keys.iter().map(|key| subscriber(key, providers)).collect();
        Self { keys, subscribers, exact, sequence_numbers: OnceLock::new() }
    }

    /// Whether an `id` of a section is this identity, or a pattern that fits it.
    pub(super) fn names(&self, identity: &str) -> bool {
        self.named(identity.as_bytes()).is_some()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.keys.is_empty()
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

impl SequenceNumbers for EapSecrets {
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

impl EapCredentials for EapSecrets {
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

/// Length of K, OP and OPc in bytes.
const BLOCK: usize = 16;

/// The subscriber of an entry. Without a key of the operator, `secret` is K, or K and OPc, as in strongSwan.
/// `None` if its length is another one, or without AES.
fn subscriber(key: &SharedKey, providers: &Providers<'_>) -> Option<Subscriber> {
    let (k, rest) = key.secret.expose().split_first_chunk::<BLOCK>()?;
    let amf = key.usim.amf;
    let block = |key: &[u8]| <[u8; BLOCK]>::try_from(key).ok();
    match &key.usim.operator {
        Some(OperatorKey::Op(op)) => Subscriber::with_op(k, &block(op.expose())?, amf, providers),
        Some(OperatorKey::Opc(opc)) => Some(Subscriber::new(k, &block(opc.expose())?, amf)),
        None if rest.is_empty() => Some(Subscriber::new(k, &[0; BLOCK], amf)),
        None => Some(Subscriber::new(k, &block(rest)?, amf)),
    }
}

/// The IMSI in a permanent identity (RFC 4187 section 4.1.1.6, TS 23.003 section 19.3.2): up to 15 digits
/// behind a digit for the method and in front of the realm.
fn imsi(identity: &[u8]) -> Option<&[u8]> {
    const MAX_LEN: usize = 15;
    const MIN_LEN: usize = 6;
    let user = identity.split(|byte| *byte == b'@').next()?;
    let imsi = match user.split_first()? {
        // Permanent identities of EAP-AKA and EAP-AKA'.
        (b'0' | b'6', imsi) => imsi,
        _ => return None,
    };
    let is_imsi = (MIN_LEN..=MAX_LEN).contains(&imsi.len()) && imsi.iter().all(u8::is_ascii_digit);
    is_imsi.then_some(imsi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swanctl::{KeyPurpose, Usim};

    /// Passwords of these identities in the notation of the file, each the number of its place.
    fn passwords(ids: &[&[&str]]) -> EapSecrets {
        let pattern = |id: &&str| casemate_strongswan::parse_id_pattern(id).unwrap();
        let keys = (1..).zip(ids).map(|(number, ids)| SharedKey {
            purpose: KeyPurpose::Eap,
            ids: ids.iter().map(pattern).collect(),
            secret: SecretBytes::new(&[number]),
            usim: Usim::default(),
        });
        EapSecrets::new(keys.collect(), &Providers(&[]))
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

    #[test]
    fn imsis_of_permanent_identities() {
        let expected = Some(&b"232010000000000"[..]);
        assert_eq!(imsi(b"0232010000000000@nai.epc.mnc001.mcc232.3gppnetwork.org"), expected);
        assert_eq!(imsi(b"6232010000000000@wlan.mnc001.mcc232.3gppnetwork.org"), expected);
        assert_eq!(imsi(b"0232010000000000"), expected);
        for other in
            [&b"carol"[..], b"", b"0", b"0carol@example.org", b"2232010000000000@x", b"02320100000000001"]
        {
            assert_eq!(imsi(other), None, "{other:?}");
        }
    }

    #[test]
    fn secrets_are_k_or_k_and_opc() {
        let is_subscriber = |len: u8, operator| {
            let secret = SecretBytes::new(&(0..len).collect::<Vec<u8>>());
            let usim = Usim { operator, ..Usim::default() };
            let key = SharedKey { purpose: KeyPurpose::Eap, ids: Vec::new(), secret, usim };
            subscriber(&key, &Providers(&[&casemate_rustcrypto::RUSTCRYPTO])).is_some()
        };
        for (len, expected) in
            [(0, false), (15, false), (16, true), (17, false), (31, false), (32, true), (33, false)]
        {
            assert_eq!(is_subscriber(len, None), expected, "{len}");
        }
        let block = || SecretBytes::new(&[7; 16]);
        assert!(is_subscriber(16, Some(OperatorKey::Op(block()))));
        assert!(is_subscriber(16, Some(OperatorKey::Opc(block()))));
    }
}
