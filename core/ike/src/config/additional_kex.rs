//! Additional key exchanges of a proposal (RFC 9370): after the key exchange of IKE_SA_INIT or
//! CREATE_CHILD_SA, up to seven others follow in order, and the keys depend on all of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use casemate_crypto::KexMethod;
use casemate_wire::ike::TransformType;

/// Number of an additional key exchange: 1 to 7 (RFC 9370 section 2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KexRound(u8);

impl KexRound {
    /// All rounds, in the order in which their key exchanges take place.
    pub const ALL: [Self; 7] = [Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];

    /// The round with this number; `None` unless it is 1 to 7.
    pub const fn new(number: u8) -> Option<Self> {
        match number {
            1..=7 => Some(Self(number)),
            _ => None,
        }
    }

    /// The number, 1 to 7.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The transform type that negotiates the round: 6 to 12.
    pub const fn transform_type(self) -> TransformType {
        TransformType(TransformType::ADDKE1.0.saturating_sub(1).saturating_add(self.0))
    }

    /// The round that this transform type negotiates.
    pub(crate) const fn of_type(kind: TransformType) -> Option<Self> {
        Self::new(kind.0.saturating_add(1).saturating_sub(TransformType::ADDKE1.0))
    }
}

/// Methods of one additional key exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdditionalKex {
    /// Methods in order of preference, not empty.
    pub methods: Vec<KexMethod>,
    /// Whether the peer may leave out the key exchange (the transform NONE).
    pub optional: bool,
}

/// Additional key exchanges of a proposal, by their number.
pub type AdditionalKexes = BTreeMap<KexRound, AdditionalKex>;

/// The agreed additional key exchanges: the method of each round that takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct AgreedKexes([Option<KexMethod>; 7]);

impl AgreedKexes {
    /// No additional key exchange.
    pub const NONE: Self = Self([None; 7]);

    /// The key exchanges in order.
    pub fn iter(&self) -> impl Iterator<Item = (KexRound, KexMethod)> + '_ {
        KexRound::ALL.into_iter().zip(self.0).filter_map(|(round, method)| Some((round, method?)))
    }

    /// Number of additional key exchanges.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is no additional key exchange.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The method of the key exchange after `done` additional ones; `None` if all are done.
    pub fn after(&self, done: usize) -> Option<KexMethod> {
        self.iter().nth(done).map(|(_, method)| method)
    }

    /// The method of a round, if it takes place.
    pub fn method(&self, round: KexRound) -> Option<KexMethod> {
        self.iter().find(|(at, _)| *at == round).map(|(_, method)| method)
    }

    /// The same with this method in a round.
    pub fn with(mut self, round: KexRound, method: KexMethod) -> Self {
        let at = usize::from(round.0.saturating_sub(1));
        self.0.iter_mut().skip(at).take(1).for_each(|place| *place = Some(method));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_the_transform_types_6_to_12() {
        for (round, kind) in KexRound::ALL.into_iter().zip(6..) {
            assert_eq!(round.transform_type(), TransformType(kind));
            assert_eq!(KexRound::of_type(TransformType(kind)), Some(round));
            assert_eq!(KexRound::new(round.number()), Some(round));
        }
        for other in (0..=5).chain(13..=255) {
            assert_eq!(KexRound::of_type(TransformType(other)), None, "{other}");
        }
        assert!(KexRound::new(0).is_none() && KexRound::new(8).is_none());
    }

    #[test]
    fn agreed_key_exchanges_are_in_order() {
        let [_, second, _, _, fifth, ..] = KexRound::ALL;
        let agreed = AgreedKexes::NONE.with(fifth, KexMethod::EcpP256).with(second, KexMethod::X25519);
        let both = [(second, KexMethod::X25519), (fifth, KexMethod::EcpP256)];
        assert_eq!(agreed.iter().collect::<Vec<_>>(), both);
        assert_eq!((agreed.after(0), agreed.after(1)), (Some(KexMethod::X25519), Some(KexMethod::EcpP256)));
        assert_eq!((agreed.after(2), agreed.count()), (None, 2));
        assert_eq!((agreed.method(fifth), agreed.method(KexRound(1))), (Some(KexMethod::EcpP256), None));
        assert!(AgreedKexes::NONE.is_empty() && !agreed.is_empty());
    }
}
