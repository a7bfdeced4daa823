//! Proposals as plain lists of algorithms, and the difference between two lists of proposals.

use super::{MAX_ALGORITHMS, MAX_PROPOSALS};
use crate::SkSuite;
use crate::config::{AgreedKexes, ChildProposal, EspCombined, IkeProposal};
use crate::negotiate::{Algorithm, ChildSuite, ChildTransform, IkeSuite, Offer, algorithms};
use alloc::vec::Vec;
use casemate_crypto::{AhSuite, CipherAlg, EspSuite, MacKind};
use casemate_wire::ike::{ProtocolId, Sa, SequenceNumbers, TransformType};
use core::cmp::Reverse;

/// A proposal: alternatives of each transform type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// IKE, ESP or AH.
    pub protocol: ProtocolId,
    /// Algorithms in order of preference within each type.
    pub algorithms: Vec<Algorithm>,
}

impl From<&IkeProposal> for Proposal {
    fn from(proposal: &IkeProposal) -> Self {
        Self::from(&Offer::ike(proposal))
    }
}

impl From<&Offer> for Proposal {
    fn from(offer: &Offer) -> Self {
        Self { protocol: offer.protocol, algorithms: offer.algorithms.clone() }
    }
}

impl From<&IkeSuite> for Proposal {
    /// The negotiated algorithms of an IKE SA.
    fn from(suite: &IkeSuite) -> Self {
        let mut algorithms: Vec<Algorithm> = match suite.sk {
            SkSuite::Combined(alg) => algorithms::aead(alg).into_iter().collect(),
            SkSuite::Separate(cipher, mac) => {
                [algorithms::cipher(cipher)].into_iter().chain(algorithms::mac(mac)).collect()
            }
        };
        algorithms.push(Algorithm::new(TransformType::PRF, suite.prf.id()));
        algorithms.push(Algorithm::new(TransformType::KE, suite.kex.id()));
        algorithms.extend(additional(suite.additional));
        Self { protocol: ProtocolId::IKE, algorithms }
    }
}

impl From<&ChildSuite> for Proposal {
    /// The negotiated algorithms of a Child SA.
    fn from(suite: &ChildSuite) -> Self {
        let (protocol, mut algorithms): (_, Vec<Algorithm>) = match suite.transform {
            ChildTransform::Ah(AhSuite(mac)) => (ProtocolId::AH, algorithms::mac(mac).into_iter().collect()),
            ChildTransform::Esp(suite) => (ProtocolId::ESP, esp_algorithms(suite)),
        };
        algorithms.extend(suite.kex.map(|kex| Algorithm::new(TransformType::KE, kex.id())));
        algorithms.extend(additional(suite.additional));
        let esn = if suite.esn { SequenceNumbers::EXTENDED } else { SequenceNumbers::PLAIN };
        algorithms.push(Algorithm::new(TransformType::ESN, esn.0));
        Self { protocol, algorithms }
    }
}

/// Transforms of additional key exchanges.
fn additional(kexes: AgreedKexes) -> Vec<Algorithm> {
    kexes.iter().map(|(round, method)| Algorithm::new(round.transform_type(), method.id())).collect()
}

fn esp_algorithms(suite: EspSuite) -> Vec<Algorithm> {
    let combined = match suite {
        EspSuite::Combined(alg) => Some(EspCombined::Aead(alg)),
        EspSuite::ImplicitIv(alg) => Some(EspCombined::ImplicitIv(alg)),
        EspSuite::Separate(CipherAlg::Null, mac) => match mac.kind() {
            MacKind::AesGmac(bits) => Some(EspCombined::Gmac(bits)),
            _ => None,
        },
        EspSuite::Separate(..) => None,
    };
    match (combined, suite) {
        (Some(alg), _) => algorithms::esp_combined(alg).into_iter().collect(),
        (None, EspSuite::Separate(cipher, mac)) => {
            [algorithms::cipher(cipher)].into_iter().chain(algorithms::mac(mac)).collect()
        }
        (None, _) => Vec::new(),
    }
}

impl Proposal {
    /// Proposal of a child. In IKE_AUTH it has no key exchange (RFC 7296 section 1.2).
    pub fn of_child(proposal: &ChildProposal, with_kex: bool) -> Self {
        Self::from(&Offer::child(proposal, with_kex))
    }

    /// The first proposals of a payload, with the first algorithms of each.
    pub(crate) fn read(sa: &Sa<'_>) -> Vec<Self> {
        let proposals = sa.proposals().take(MAX_PROPOSALS).map(|proposal| Self {
            protocol: proposal.protocol,
            algorithms: proposal.transforms().map(Algorithm::from).take(MAX_ALGORITHMS).collect(),
        });
        proposals.collect()
    }

    fn has_kind(&self, kind: TransformType) -> bool {
        self.algorithms.iter().any(|alg| alg.kind == kind)
    }

    /// Algorithms of one transform type.
    pub fn of_kind(&self, kind: TransformType) -> impl Iterator<Item = Algorithm> + '_ {
        self.algorithms.iter().copied().filter(move |alg| alg.kind == kind)
    }

    /// Number of transform types in which the two proposals have an algorithm in common.
    fn common_kinds(&self, other: &Self) -> usize {
        let mut kinds: Vec<TransformType> = Vec::new();
        for alg in self.algorithms.iter().filter(|alg| other.algorithms.contains(alg)) {
            if !kinds.contains(&alg.kind) {
                kinds.push(alg.kind);
            }
        }
        kinds.len()
    }

    /// Transform types in which the two proposals have no algorithm in common. Two proposals without
    /// encryption in common differ in the encryption only: which integrity algorithms fit depends on it.
    fn differing_kinds(&self, other: &Self) -> Vec<TransformType> {
        let mut kinds: Vec<TransformType> = Vec::new();
        for kind in self.algorithms.iter().chain(&other.algorithms).map(|alg| alg.kind) {
            let is_shared = || self.of_kind(kind).any(|alg| other.algorithms.contains(&alg));
            // A missing ESN transform means 32 bits. NONE may stand for a missing transform.
            let may_be_missing = kind == TransformType::ESN || kind == TransformType::INTEG;
            let is_missing = !self.has_kind(kind) || !other.has_kind(kind);
            let fits = (may_be_missing && is_missing) || is_shared();
            if !fits && !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }
}

/// The two proposals, of two lists without an acceptable combination, that have the most in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference<'p> {
    /// Proposal of the peer.
    pub offered: &'p Proposal,
    /// Configured proposal.
    pub configured: &'p Proposal,
    /// Transform types in which they have no algorithm in common. Empty if the protocols differ, or if the
    /// peer's proposal contains something that is not supported.
    pub kinds: Vec<TransformType>,
}

/// Finds the proposals of two lists that have the most in common: those of the same protocol with the fewest
/// differing transform types, and of these the ones that have an algorithm in common in the most types. An
/// AEAD cipher has no integrity algorithm that could differ: without the second rule, it would be as close to
/// a cipher that needs one as the same cipher with another integrity algorithm. `None` if a list is empty.
pub fn closest<'p>(offered: &'p [Proposal], configured: &'p [Proposal]) -> Option<Difference<'p>> {
    let pairs = configured.iter().flat_map(|own| offered.iter().map(move |theirs| (theirs, own)));
    let difference = |(offered, configured): (&'p Proposal, &'p Proposal)| Difference {
        offered,
        configured,
        kinds: if offered.protocol == configured.protocol {
            offered.differing_kinds(configured)
        } else {
            Vec::new()
        },
    };
    pairs.map(difference).min_by_key(|found| {
        let (offered, configured) = (found.offered, found.configured);
        let common = Reverse(offered.common_kinds(configured));
        (offered.protocol != configured.protocol, found.kinds.len(), common)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AdditionalKexes, IkeEncryption, child_proposals, ike_proposals};
    use alloc::vec;
    use casemate_crypto::{AeadAlg, AesBits, CipherAlg, KexMethod, MacAlg, MacKind, PrfAlg};

    fn gcm(bits: AesBits, kex: KexMethod) -> Proposal {
        let encryption = IkeEncryption::Combined(vec![AeadAlg::AesGcm { bits, icv: 16 }]);
        Proposal::from(&IkeProposal {
            encryption,
            prfs: vec![PrfAlg::HmacSha256],
            kex: vec![kex],
            additional: AdditionalKexes::new(),
        })
    }

    fn cbc(mac: MacKind) -> Proposal {
        let encryption =
            IkeEncryption::Separate(vec![CipherAlg::AesCbc(AesBits::B128)], vec![MacAlg::standard(mac)]);
        let kex = vec![KexMethod::Modp2048];
        Proposal::from(&IkeProposal {
            encryption,
            prfs: vec![PrfAlg::HmacSha256],
            kex,
            additional: AdditionalKexes::new(),
        })
    }

    #[test]
    fn the_closest_pair_names_what_differs() {
        let x25519 = [gcm(AesBits::B128, KexMethod::X25519)];
        let others = [gcm(AesBits::B256, KexMethod::EcpP384), gcm(AesBits::B128, KexMethod::EcpP256)];
        let found = closest(&others, &x25519).unwrap();
        assert_eq!((found.offered, found.kinds), (&others[1], vec![TransformType::KE]));
        let [sha256, sha512] = [[cbc(MacKind::HmacSha256)], [cbc(MacKind::HmacSha512)]];
        assert_eq!(closest(&sha256, &sha512).unwrap().kinds, [TransformType::INTEG]);
        let kinds = closest(&x25519, &sha256).unwrap().kinds;
        assert_eq!(kinds, [TransformType::ENCR, TransformType::KE], "integrity follows from the encryption");
        let ours: Vec<Proposal> = ike_proposals().iter().map(Proposal::from).collect();
        assert_eq!(closest(&ours, &ours).unwrap().kinds, [], "equal lists have no difference");
        assert_eq!(closest(&[], &ours), None);
    }

    /// An old device: its cipher is in the second default proposal, after an AEAD cipher that it has not.
    #[test]
    fn a_common_cipher_is_closer_than_an_aead_cipher() {
        let ours: Vec<Proposal> = ike_proposals().iter().map(Proposal::from).collect();
        let old = [cbc(MacKind::HmacSha1)];
        assert_eq!(closest(&old, &ours).unwrap().kinds, [TransformType::INTEG]);
        let ours: Vec<Proposal> =
            child_proposals().iter().map(|proposal| Proposal::of_child(proposal, false)).collect();
        let old = [Proposal {
            protocol: ProtocolId::ESP,
            algorithms: old[0]
                .algorithms
                .iter()
                .copied()
                .filter(|alg| [TransformType::ENCR, TransformType::INTEG].contains(&alg.kind))
                .collect(),
        }];
        assert_eq!(closest(&old, &ours).unwrap().kinds, [TransformType::INTEG]);
    }
}
