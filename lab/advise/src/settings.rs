//! The settings that follow from the ranking, as configuration files spell them.

use crate::goal::{Goal, UseCase};
use crate::measure::{Costs, KexCost};
use crate::rank::Place;
use crate::rules::{Filter, Status};
use crate::suites::{aead_spelling, pair_spelling, spelling};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind, PrfAlg};
use casemate_measure::spread::Spread;
use casemate_sa::Mode;

/// Child SAs get other keys after so many seconds unless told otherwise (`rekey_time` of swanctl.conf).
const REKEY: f64 = 3_600.0;
/// Packets that arrive within so many seconds may arrive in any order.
const DISORDER: f64 = 1e-3;
/// Sizes of the anti-replay window: RFC 4303 section 3.4.3 prefers 64 at least.
const WINDOWS: (u32, u32) = (64, 4_096);

/// What to write into a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `proposals` of a connection.
    pub ike: String,
    /// `esp_proposals` of a child.
    pub esp: String,
    /// `mode` of a child.
    pub mode: Mode,
    /// Sequence numbers of 64 bits.
    pub esn: bool,
    /// `replay_window` of a child, in packets.
    pub replay_window: u32,
    /// Why they are as they are.
    pub reasons: Vec<String>,
}

impl Settings {
    /// For the first place of a ranking. `None` if the rules leave nothing for IKE.
    pub fn of(
        places: &[Place],
        found: &[Costs],
        kex: &[KexCost],
        filter: &Filter,
        use_case: &UseCase,
    ) -> Option<Self> {
        let first = places.first()?;
        let mut reasons = Vec::new();
        let rate = found
            .iter()
            .find(|costs| costs.suite == first.spot.suite)
            .map_or(0.0, |costs| rate(costs, use_case));
        let esn = needs_esn(rate, &mut reasons);
        let replay_window = window(rate, &mut reasons);
        let esp = esp(places, esn, &mut reasons);
        let ike = ike(first.spot.suite, kex, filter, &mut reasons)?;
        reasons.push(match use_case.mode {
            Mode::Transport => {
                "transport mode: both ends are the hosts themselves, and it saves the inner header".into()
            }
            Mode::Tunnel => {
                "tunnel mode: the packets are those of others (--host-to-host if they are not)".into()
            }
        });
        reasons.push(match use_case.behind_nat {
            true => "UDP encapsulation: IKE finds the NAT and switches it on by itself".into(),
            false => "no UDP encapsulation: without a NAT it costs 8 bytes a packet for nothing".into(),
        });
        Some(Self { ike, esp, mode: use_case.mode, esn, replay_window, reasons })
    }

    /// Lines for `swanctl.conf`, with names to be replaced.
    pub fn swanctl(&self) -> String {
        let mode = if self.mode == Mode::Transport { "        mode = transport\n" } else { "" };
        let Self { ike, esp, replay_window, .. } = self;
        format!(
            "connections {{\n  gateway {{\n    proposals = {ike}\n    children {{\n      net {{\n        esp_proposals = {esp}\n{mode}        \
             replay_window = {replay_window}\n      }}\n    }}\n  }}\n}}\n"
        )
    }
}

/// Packets a second that one processor protects or opens.
fn rate(costs: &Costs, use_case: &UseCase) -> f64 {
    let per_byte =
        Spread::of(Goal::Throughput.scores(costs, use_case)).map_or(f64::NAN, |spread| spread.median);
    1e9 / (per_byte * use_case.mix.bytes())
}

/// RFC 4303 section 3.3.3: a counter of 32 bits must not come round under one key.
fn needs_esn(rate: f64, reasons: &mut Vec<String>) -> bool {
    let seconds = 2f64.powi(32) / rate;
    let needs = seconds < 2.0 * REKEY;
    let minutes = seconds / 60.0;
    reasons.push(if needs {
        format!("ESN: at {rate:.0} packets a second, which is all that one processor protects, 32 bits are used up in {minutes:.0} minutes, and keys live for 60 (RFC 4303 section 3.3.3)")
    } else {
        format!("no ESN: even at {rate:.0} packets a second, which is all that one processor protects, 32 bits last {minutes:.0} minutes, and keys live for 60")
    });
    needs
}

fn window(rate: f64, reasons: &mut Vec<String>) -> u32 {
    let (least, most) = WINDOWS;
    let window = ((rate * DISORDER) as u32).next_power_of_two().clamp(least, most);
    reasons.push(format!(
        "replay_window {window}: what arrives in a millisecond may arrive in any order; at least 64 (RFC 4303 section 3.4.3)"
    ));
    window
}

/// The first place, and for peers that have not got it the best that they all must have.
fn esp(places: &[Place], esn: bool, reasons: &mut Vec<String>) -> String {
    let first = places.first().into_iter();
    let common = places.iter().skip(1).find(|place| place.spot.is_common());
    let is_enough = places.first().is_some_and(|place| place.spot.is_common());
    let chosen = first.chain(common.filter(|_| !is_enough));
    if let Some(place) = common.filter(|_| !is_enough) {
        reasons.push(format!("{} second: a MUST, so that every peer has it", place.spot.suite));
    }
    let esn = if esn { "-esn-noesn" } else { "" };
    chosen.map(|place| format!("{}{esn}", spelling(place.spot.suite))).collect::<Vec<_>>().join(",")
}

fn ike(suite: EspSuite, kex: &[KexCost], filter: &Filter, reasons: &mut Vec<String>) -> Option<String> {
    let words = [ike_encryption(suite, filter)?, prf(filter)?.keyword().into()];
    let admitted = kex.iter().filter_map(|cost| Some((cost, filter.kex(cost.method).ok()?)));
    let chosen: Vec<_> = admitted
        .enumerate()
        .filter(|(rank, (_, admitted))| *rank == 0 || admitted.status >= Status::Should)
        .map(|(_, chosen)| chosen)
        .collect();
    let (cheapest, _) = chosen.first()?;
    reasons.push(format!(
        "{} first: the cheapest key exchange that is admitted, {:.0} us a side; what is SHOULD or MUST follows",
        cheapest.method, cheapest.micros.median
    ));
    let methods = chosen.iter().map(|(cost, _)| cost.method.keyword().to_owned());
    Some(words.into_iter().chain(methods).collect::<Vec<_>>().join("-"))
}

/// What ESP has if it is a SHOULD for IKE too, for one implementation is less than two; otherwise the first that is admitted.
fn ike_encryption(suite: EspSuite, filter: &Filter) -> Option<String> {
    use AesBits::{B128, B256};
    let own = match suite {
        EspSuite::Combined(alg) => Some(alg),
        EspSuite::Separate(..) => None,
    };
    let usual = [B128, B256].map(|bits| AeadAlg::AesGcm { bits, icv: 16 });
    let mut aeads = own.into_iter().chain(usual).chain([AeadAlg::ChaCha20Poly1305]);
    let is_good =
        |alg: &AeadAlg| filter.ike_aead(*alg).is_ok_and(|admitted| admitted.status >= Status::Should);
    if let Some(alg) = aeads.find(is_good) {
        return Some(aead_spelling(alg));
    }
    let macs = [MacKind::HmacSha256, MacKind::HmacSha512, MacKind::HmacSha384].map(MacAlg::standard);
    let mut pairs = [B128, B256].into_iter().flat_map(|bits| macs.map(|mac| (CipherAlg::AesCbc(bits), mac)));
    let (cipher, mac) = pairs.find(|(cipher, mac)| filter.ike_pair(*cipher, *mac).is_ok())?;
    Some(pair_spelling(cipher, mac))
}

/// The one with the strongest level, the shortest of those.
fn prf(filter: &Filter) -> Option<PrfAlg> {
    let mut best: Option<(Status, PrfAlg)> = None;
    for alg in [PrfAlg::HmacSha256, PrfAlg::HmacSha384, PrfAlg::HmacSha512] {
        let Ok(admitted) = filter.prf(alg) else { continue };
        if best.is_none_or(|(status, _)| admitted.status > status) {
            best = Some((admitted.status, alg));
        }
    }
    best.map(|(_, alg)| alg)
}

#[cfg(test)]
mod tests;
