//! Negotiation of proposals: offers from the configuration, and choices from those of a peer (RFC 7296
//! sections 2.7, 3.3.3 and 3.3.6). `algorithms` converts between algorithms and their numbers, and
//! `additional` negotiates additional key exchanges.

#[cfg(feature = "multiple-kex")]
mod additional;
pub(crate) mod algorithms;

use crate::StateFault;
use crate::config::{
    AgreedKexes, ChildAlgorithms, ChildConfig, ChildProposal, Connection, EsnPolicy, IkeEncryption,
    IkeProposal, KexRound,
};
pub use algorithms::{Algorithm, ChildSuite, ChildTransform, IkeSuite};
pub(crate) use algorithms::{mac_id, mac_with_id};
use alloc::vec::Vec;
use casemate_crypto::KexMethod;
use casemate_wire::ike::{
    IntegId, KeMethod, Proposal, ProposalRepr, ProtocolId, Sa, SequenceNumbers, Transform, TransformRepr,
    TransformType,
};

/// One proposal of ours. The peer chooses one transform of each type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) protocol: ProtocolId,
    /// In order of preference within each type.
    pub(crate) algorithms: Vec<Algorithm>,
}

/// The chosen proposal: one transform of each type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chosen {
    /// Number of the proposal.
    pub(crate) number: u8,
    pub(crate) protocol: ProtocolId,
    /// SPI of the peer.
    pub(crate) spi: Vec<u8>,
    algorithms: Vec<Algorithm>,
}

impl Chosen {
    /// One transform of each type, without a proposal.
    #[cfg(feature = "records")]
    pub(crate) const fn of(protocol: ProtocolId, algorithms: Vec<Algorithm>) -> Self {
        Self { number: 1, protocol, spi: Vec::new(), algorithms }
    }

    pub(crate) fn algorithm(&self, kind: TransformType) -> Option<Algorithm> {
        self.algorithms.iter().find(|alg| alg.kind == kind).copied()
    }

    /// The agreed additional key exchanges; `None` if a method is unknown.
    #[cfg(feature = "multiple-kex")]
    pub(crate) fn additional(&self) -> Option<AgreedKexes> {
        additional::agreed(&self.algorithms)
    }

    /// The agreed additional key exchanges: there are none.
    #[cfg(not(feature = "multiple-kex"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
    pub(crate) const fn additional(&self) -> Option<AgreedKexes> {
        Some(AgreedKexes::NONE)
    }

    /// Passes the chosen proposal with our SPI to `use_it`.
    pub(crate) fn with_proposal<T>(&self, spi: &[u8], use_it: impl FnOnce(&[ProposalRepr<'_>]) -> T) -> T {
        let transforms: Vec<TransformRepr<'_>> = self.algorithms.iter().map(|alg| alg.to_wire()).collect();
        use_it(&[ProposalRepr { number: self.number, protocol: self.protocol, spi, transforms: &transforms }])
    }
}

const fn kex(method: KexMethod) -> Algorithm {
    Algorithm::new(TransformType::KE, method.id())
}

/// Whether additional key exchanges may be offered.
const HAS_ADDITIONAL: bool = cfg!(feature = "multiple-kex");

impl Offer {
    /// Offers for an IKE SA of this connection. Without the feature `multiple-kex`, proposals with additional
    /// key exchanges are left out.
    pub(crate) fn all_ike(connection: &Connection) -> Vec<Self> {
        let usable = |proposal: &&IkeProposal| HAS_ADDITIONAL || proposal.additional.is_empty();
        connection.proposals.iter().filter(usable).map(Self::ike).collect()
    }

    /// Offers for a Child SA, as [`Self::all_ike`]. `with_kex` is true for CREATE_CHILD_SA.
    pub(crate) fn all_child(config: &ChildConfig, with_kex: bool) -> Vec<Self> {
        let usable = |proposal: &&ChildProposal| HAS_ADDITIONAL || proposal.additional.is_empty();
        config.proposals.iter().filter(usable).map(|proposal| Self::child(proposal, with_kex)).collect()
    }

    /// Offer for an IKE SA.
    pub(crate) fn ike(proposal: &IkeProposal) -> Self {
        let mut algorithms: Vec<Algorithm> = Vec::new();
        match &proposal.encryption {
            IkeEncryption::Combined(algs) => {
                algorithms.extend(algs.iter().filter_map(|alg| algorithms::aead(*alg)));
            }
            IkeEncryption::Separate(ciphers, macs) => {
                algorithms.extend(ciphers.iter().map(|alg| algorithms::cipher(*alg)));
                algorithms.extend(macs.iter().filter_map(|alg| algorithms::mac(*alg)));
            }
        }
        algorithms.extend(proposal.prfs.iter().map(|prf| Algorithm::new(TransformType::PRF, prf.id())));
        algorithms.extend(proposal.kex.iter().map(|method| kex(*method)));
        #[cfg(feature = "multiple-kex")]
        algorithms.extend(additional::offer(&proposal.additional));
        Self { protocol: ProtocolId::IKE, algorithms }
    }

    /// Offer for a Child SA. In IKE_AUTH it has no key exchange (RFC 7296 section 1.2).
    pub(crate) fn child(proposal: &ChildProposal, with_kex: bool) -> Self {
        let mut algorithms: Vec<Algorithm> = Vec::new();
        let protocol = match &proposal.algorithms {
            ChildAlgorithms::EspCombined(algs) => {
                algorithms.extend(algs.iter().filter_map(|alg| algorithms::esp_combined(*alg)));
                ProtocolId::ESP
            }
            ChildAlgorithms::EspSeparate(ciphers, macs) => {
                algorithms.extend(ciphers.iter().map(|alg| algorithms::cipher(*alg)));
                algorithms.extend(macs.iter().filter_map(|alg| algorithms::mac(*alg)));
                ProtocolId::ESP
            }
            ChildAlgorithms::Ah(macs) => {
                algorithms.extend(macs.iter().filter_map(|alg| algorithms::mac(*alg)));
                ProtocolId::AH
            }
        };
        if with_kex {
            algorithms.extend(proposal.kex.iter().map(|method| kex(*method)));
            #[cfg(feature = "multiple-kex")]
            algorithms.extend(additional::offer(&proposal.additional));
        }
        let esn = |id: SequenceNumbers| Algorithm::new(TransformType::ESN, id.0);
        let (plain, extended) = (esn(SequenceNumbers::PLAIN), esn(SequenceNumbers::EXTENDED));
        match proposal.esn {
            EsnPolicy::Disabled => algorithms.push(plain),
            EsnPolicy::Required => algorithms.push(extended),
            EsnPolicy::Preferred => algorithms.extend([extended, plain]),
            EsnPolicy::Allowed => algorithms.extend([plain, extended]),
        }
        Self { protocol, algorithms }
    }

    /// Key exchange methods of the offer.
    pub(crate) fn kex(&self) -> impl Iterator<Item = KexMethod> + '_ {
        let ids = self.algorithms.iter().filter(|alg| alg.kind == TransformType::KE);
        ids.filter_map(|alg| KexMethod::from_id(alg.id))
    }

    /// Whether the offer has additional key exchanges.
    pub(crate) fn has_additional(&self) -> bool {
        self.algorithms.iter().any(|alg| KexRound::of_type(alg.kind).is_some())
    }

    fn has(&self, kind: TransformType) -> bool {
        self.algorithms.iter().any(|alg| alg.kind == kind)
    }

    /// Chooses one transform of each type, in our order of preference; `None` if a type has none in common.
    fn match_with(&self, theirs: &Proposal<'_>, prefer: Option<KexMethod>) -> Option<Vec<Algorithm>> {
        if theirs.protocol != self.protocol {
            return None;
        }
        // RFC 7296 section 3.3.6: an unknown or unwanted transform type makes the proposal unacceptable,
        // unless NONE is among its transforms.
        if theirs.transforms().any(|t| !self.has(t.kind) && !offers_none(theirs, t.kind)) {
            return None;
        }
        let mut chosen: Vec<Algorithm> = Vec::new();
        let prefer = prefer.map(kex).filter(|method| self.algorithms.contains(method));
        for own in prefer.iter().chain(self.single_algorithms()) {
            let is_decided = chosen.iter().any(|alg| alg.kind == own.kind);
            if !is_decided && theirs.transforms().any(|t| matches_transform(own, &t)) {
                chosen.push(*own);
            }
        }
        let complete = self.single_algorithms().all(|own| {
            let known = chosen.iter().any(|alg| alg.kind == own.kind);
            known || (own.kind == TransformType::ESN && self.implies_plain(theirs))
        });
        if !complete {
            return None;
        }
        #[cfg(feature = "multiple-kex")]
        chosen.extend(additional::choose(&self.algorithms, theirs)?);
        Some(chosen)
    }

    /// The algorithms except those of additional key exchanges, which depend on each other.
    fn single_algorithms(&self) -> impl Iterator<Item = &Algorithm> {
        self.algorithms.iter().filter(|alg| KexRound::of_type(alg.kind).is_none())
    }

    /// RFC 7296 section 3.3.3 requires the ESN transform. Old peers that omit it mean 32 bits.
    fn implies_plain(&self, theirs: &Proposal<'_>) -> bool {
        let plain = Algorithm::new(TransformType::ESN, SequenceNumbers::PLAIN.0);
        self.algorithms.contains(&plain) && theirs.transforms().all(|t| t.kind != TransformType::ESN)
    }
}

fn matches_transform(own: &Algorithm, theirs: &Transform<'_>) -> bool {
    // RFC 7296 section 3.3.6: a transform with an unknown attribute is unacceptable.
    own.kind == theirs.kind
        && own.id == theirs.id
        && own.key_bits == theirs.key_length()
        && !theirs.has_unknown_attribute()
}

/// Whether a proposal has transforms of additional key exchanges.
fn has_additional(proposal: &Proposal<'_>) -> bool {
    proposal.transforms().any(|transform| KexRound::of_type(transform.kind).is_some())
}

/// Whether a proposal allows to omit this transform type.
fn offers_none(proposal: &Proposal<'_>, kind: TransformType) -> bool {
    let has_none =
        matches!(kind, TransformType::INTEG | TransformType::KE) || KexRound::of_type(kind).is_some();
    const { assert!(IntegId::NONE.0 == 0 && KeMethod::NONE.0 == 0) };
    has_none && proposal.transforms().any(|t| t.kind == kind && t.id == 0)
}

/// Chooses our first offer that matches any proposal of the peer. Prefers a key exchange method for which the
/// peer has already sent a public value, which saves a round trip. `additional` tells whether additional key
/// exchanges are possible; if not, proposals with them are skipped (RFC 9370 section 2.2.1).
pub(crate) fn choose(
    offers: &[Offer],
    theirs: &Sa<'_>,
    prefer: Option<KexMethod>,
    additional: bool,
) -> Result<Chosen, StateFault> {
    // RFC 7296 section 3.3.1: the first proposal has number 1.
    if theirs.proposals().next().is_none_or(|first| first.number != 1) {
        return Err(StateFault::FirstProposal);
    }
    let found = offers.iter().find_map(|offer| {
        let mut proposals = theirs.proposals().filter(|proposal| additional || !has_additional(proposal));
        proposals.find_map(|proposal| Some((proposal, offer.match_with(&proposal, prefer)?)))
    });
    let (proposal, algorithms) = found.ok_or(StateFault::NoProposalChosen)?;
    Ok(Chosen { number: proposal.number, protocol: proposal.protocol, spi: proposal.spi.into(), algorithms })
}

/// Checks the peer's choice from our offers: one proposal, with one offered transform of each type.
pub(crate) fn verify_choice(offers: &[Offer], response: &Sa<'_>) -> Result<Chosen, StateFault> {
    let mut proposals = response.proposals();
    let (Some(proposal), None) = (proposals.next(), proposals.next()) else {
        return Err(StateFault::NotOffered);
    };
    let offer = usize::from(proposal.number).checked_sub(1).and_then(|at| offers.get(at));
    let algorithms = offer.and_then(|offer| offer.match_with(&proposal, None));
    let algorithms = algorithms.ok_or(StateFault::NotOffered)?;
    // More transforms than types would leave the choice open. NONE does not count.
    let named = proposal.transforms().filter(|t| t.id != 0 || matches!(t.kind, TransformType::ESN));
    let known = algorithms.iter().filter(|alg| alg.id != 0 || matches!(alg.kind, TransformType::ESN));
    if named.count() > known.count() {
        return Err(StateFault::NotOffered);
    }
    Ok(Chosen { number: proposal.number, protocol: proposal.protocol, spi: proposal.spi.into(), algorithms })
}

/// Passes our offers to `use_them`, numbered from 1, all with our SPI.
pub(crate) fn with_proposals<T>(
    offers: &[Offer],
    spi: &[u8],
    use_them: impl FnOnce(&[ProposalRepr<'_>]) -> T,
) -> T {
    let transforms: Vec<Vec<TransformRepr<'_>>> =
        offers.iter().map(|offer| offer.algorithms.iter().map(|alg| alg.to_wire()).collect()).collect();
    let reprs: Vec<ProposalRepr<'_>> = (1..=u8::MAX)
        .zip(offers.iter().zip(&transforms))
        .map(|(number, (offer, transforms))| ProposalRepr {
            number,
            protocol: offer.protocol,
            spi,
            transforms,
        })
        .collect();
    use_them(&reprs)
}

#[cfg(test)]
mod tests;
