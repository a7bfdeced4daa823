//! How the SPDs of Child SAs are chosen.

use crate::{SpdId, SpdPair};

/// How the SPD of one direction of Child SAs is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpdRule {
    /// All Child SAs have this SPD.
    Fixed(SpdId),
    /// Each Child SA or each IKE SA has an SPD of its own.
    #[cfg(feature = "spds")]
    Own(OwnSpd),
}

/// An SPD that belongs to one Child SA or to one IKE SA. A Child SA that replaces another by rekeying keeps
/// it.
#[cfg(feature = "spds")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnSpd {
    /// What the SPD belongs to.
    pub owner: SpdOwner,
    /// Whether the owner has one SPD for each direction. Otherwise both directions have the same.
    pub per_direction: bool,
    /// Numbers from which the SPD gets one.
    pub numbers: SpdNumbers,
}

/// What an SPD belongs to.
#[cfg(feature = "spds")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpdOwner {
    /// A Child SA.
    ChildSa,
    /// An IKE SA: its Child SAs share the SPD.
    IkeSa,
}

/// A range of numbers of SPDs. Its length limits how many exist at the same time.
#[cfg(feature = "spds")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpdNumbers {
    first: u32,
    last: u32,
}

#[cfg(feature = "spds")]
impl SpdNumbers {
    /// The numbers from `first` to `last`. `None` if there is none, or if that of the main SPD is among them.
    pub const fn new(first: u32, last: u32) -> Option<Self> {
        if first == 0 || last < first { None } else { Some(Self { first, last }) }
    }

    /// The lowest number.
    pub const fn first(self) -> u32 {
        self.first
    }

    /// The highest number.
    pub const fn last(self) -> u32 {
        self.last
    }

    /// Whether the SPD has one of these numbers.
    pub const fn contains(self, spd: SpdId) -> bool {
        self.first <= spd.number() && spd.number() <= self.last
    }
}

impl SpdRule {
    /// The SPD that all Child SAs have; `None` if each has its own.
    pub const fn fixed(self) -> Option<SpdId> {
        match self {
            Self::Fixed(spd) => Some(spd),
            #[cfg(feature = "spds")]
            Self::Own(_) => None,
        }
    }

    /// Whether all Child SAs have the main SPD.
    pub const fn is_main(self) -> bool {
        match self {
            Self::Fixed(spd) => spd.is_main(),
            #[cfg(feature = "spds")]
            Self::Own(_) => false,
        }
    }
}

impl Default for SpdRule {
    /// The main SPD.
    fn default() -> Self {
        Self::Fixed(SpdId::MAIN)
    }
}

/// How the SPDs of both directions of Child SAs are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpdRules {
    /// SPD of outgoing packets.
    pub outbound: SpdRule,
    /// SPD of incoming packets.
    pub inbound: SpdRule,
}

impl SpdRules {
    /// The main SPD in both directions.
    pub const MAIN: Self = Self::fixed(SpdPair::MAIN);

    /// These SPDs for all Child SAs.
    pub const fn fixed(pair: SpdPair) -> Self {
        Self { outbound: SpdRule::Fixed(pair.outbound), inbound: SpdRule::Fixed(pair.inbound) }
    }

    /// The SPDs that all Child SAs have; `None` if each has its own in a direction.
    pub const fn pair(self) -> Option<SpdPair> {
        match (self.outbound.fixed(), self.inbound.fixed()) {
            (Some(outbound), Some(inbound)) => Some(SpdPair { outbound, inbound }),
            _ => None,
        }
    }

    /// Whether all Child SAs have the main SPD in both directions.
    pub const fn are_main(self) -> bool {
        self.outbound.is_main() && self.inbound.is_main()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_without_a_word_lead_to_the_main_spd() {
        assert_eq!(SpdRules::default(), SpdRules::MAIN);
        assert!(SpdRules::MAIN.are_main());
        assert_eq!(SpdRules::MAIN.pair(), Some(SpdPair::MAIN));
    }

    #[cfg(feature = "spds")]
    #[test]
    fn an_own_spd_has_no_fixed_number() {
        assert_eq!(SpdNumbers::new(0, 3), None);
        assert_eq!(SpdNumbers::new(3, 2), None);
        let numbers = SpdNumbers::new(2, 3).unwrap();
        assert_eq!([1, 2, 3, 4].map(|n| numbers.contains(SpdId::new(n))), [false, true, true, false]);
        let own = SpdRule::Own(OwnSpd { owner: SpdOwner::ChildSa, per_direction: false, numbers });
        let rules = SpdRules { outbound: own, inbound: SpdRule::default() };
        assert_eq!((rules.pair(), rules.are_main(), own.is_main()), (None, false, false));
    }
}
