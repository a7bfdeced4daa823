//! `proposals` of a connection: encryption, PRF and key exchanges of IKE.

use crate::handshake::AdditionalExchange;
use crate::measure::KexCost;
use crate::rules::{Filter, RequirementLevel};
use crate::suites::{aead_keyword, pair_keyword};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind, PrfAlg};

/// First key exchanges that a proposal contains, cheapest first.
pub(crate) struct FirstExchanges<'k>(Vec<&'k KexCost>);

impl<'k> FirstExchanges<'k> {
    /// Chooses the cheapest permitted method, and those that are SHOULD or MUST. ML-KEM is too long for
    /// IKE_SA_INIT, which has no fragments: it is an additional key exchange.
    pub(crate) fn choose(kex: &'k [KexCost], filter: &Filter) -> Self {
        let classical = kex.iter().filter(|cost| !cost.method.is_kem());
        let admitted = classical.filter_map(|cost| Some((cost, filter.kex(cost.method).ok()?)));
        let chosen = admitted
            .enumerate()
            .filter(|(rank, (_, admitted))| *rank == 0 || admitted.status >= RequirementLevel::Should)
            .map(|(_, (cost, _))| cost);
        Self(chosen.collect())
    }

    /// The cheapest one.
    pub(crate) fn cheapest(&self) -> Option<&'k KexCost> {
        self.0.first().copied()
    }
}

/// Returns the proposals, separated by commas: with the additional key exchange, and without it unless the
/// rules require it. `None` if the rules permit no algorithm.
pub(crate) fn proposals(
    suite: EspSuite,
    first: &FirstExchanges<'_>,
    additional: Option<&AdditionalExchange>,
    filter: &Filter,
    reasons: &mut Vec<String>,
) -> Option<String> {
    let cheapest = first.cheapest()?;
    reasons.push(format!(
        "{} first: the cheapest key exchange that is permitted, {:.0} us per side; methods that are \
             SHOULD or MUST follow",
        cheapest.method,
        cheapest.side_micros()
    ));
    let words = [ike_encryption(suite, filter)?, prf(filter)?.keyword().into()];
    let methods = first.0.iter().map(|cost| cost.method.keyword().to_owned());
    let classical = words.into_iter().chain(methods).collect::<Vec<_>>().join("-");
    Some(match additional {
        Some(exchange) if exchange.is_required() => format!("{classical}-{}", exchange.keyword()),
        Some(exchange) => format!("{classical}-{},{classical}", exchange.keyword()),
        None => classical,
    })
}

/// Prefers the suite of ESP if it is a SHOULD for IKE, too, because one implementation is better than two.
/// Otherwise returns the first permitted algorithm.
fn ike_encryption(suite: EspSuite, filter: &Filter) -> Option<String> {
    use AesBits::{B128, B256};
    let usual = [B128, B256].map(|bits| AeadAlg::AesGcm { bits, icv: 16 });
    let mut aeads = suite.aead().into_iter().chain(usual).chain([AeadAlg::ChaCha20Poly1305]);
    let is_good = |alg: &AeadAlg| {
        filter.ike_aead(*alg).is_ok_and(|admitted| admitted.status >= RequirementLevel::Should)
    };
    if let Some(alg) = aeads.find(is_good) {
        return Some(aead_keyword(alg));
    }
    let macs = [MacKind::HmacSha256, MacKind::HmacSha512, MacKind::HmacSha384].map(MacAlg::standard);
    let mut pairs = [B128, B256].into_iter().flat_map(|bits| macs.map(|mac| (CipherAlg::AesCbc(bits), mac)));
    let (cipher, mac) = pairs.find(|(cipher, mac)| filter.ike_pair(*cipher, *mac).is_ok())?;
    Some(pair_keyword(cipher, mac))
}

/// Returns the function with the highest level, and the shortest of those.
fn prf(filter: &Filter) -> Option<PrfAlg> {
    let mut best: Option<(RequirementLevel, PrfAlg)> = None;
    for alg in [PrfAlg::HmacSha256, PrfAlg::HmacSha384, PrfAlg::HmacSha512] {
        let Ok(admitted) = filter.prf(alg) else { continue };
        if best.is_none_or(|(status, _)| admitted.status > status) {
            best = Some((admitted.status, alg));
        }
    }
    best.map(|(_, alg)| alg)
}
