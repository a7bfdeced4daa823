//! The additional key exchange with ML-KEM (RFC 9370): which method, whether it is recommended on this
//! device, and its cost in time and on the wire.

use crate::goal::{Goal, UseCase};
use crate::measure::{Costs, KexCost};
use crate::rules::{Admitted, Filter, RequirementLevel};
use casemate_calls::packet::header_len;
use casemate_crypto::KexMethod;
use casemate_wire::ip::IpVersion;

/// Methods in order of preference, if the rules do not distinguish them.
const METHODS: [KexMethod; 3] = [KexMethod::MlKem768, KexMethod::MlKem1024, KexMethod::MlKem512];
/// The longest time for one side in microseconds: users do not notice it beside the round trips.
const MOST_MICROS: f64 = 50_000.0;
/// The same where CPU time stands for energy.
const MOST_MICROS_ON_BATTERY: f64 = 10_000.0;
/// Hours between two key exchanges: the default of `rekey_time` of a connection.
const REKEY_HOURS: f64 = 4.0;

/// An additional key exchange after the first one.
#[derive(Debug, Clone, PartialEq)]
pub struct AdditionalExchange {
    /// Cost of the method.
    pub cost: KexCost,
    /// Cost of the first key exchange.
    pub first: KexCost,
    /// Verdict of the rules. With MUST, no other key exchange is permitted.
    pub admitted: Admitted,
    /// The longest acceptable time for one side, in microseconds.
    pub most_micros: f64,
    /// Cost on the wire.
    pub wire: WireCost,
}

/// IP packets of both sides, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireCost {
    /// Packets.
    pub packets: usize,
    /// Bytes with all headers from IP on.
    pub bytes: usize,
}

impl AdditionalExchange {
    /// Chooses the method with the highest requirement level. The error says why there is none: a clause.
    pub(crate) fn choose(
        first: &KexCost,
        kex: &[KexCost],
        filter: &Filter,
        use_case: &UseCase,
        goal: Goal,
    ) -> Result<Self, String> {
        let mut best: Option<(KexCost, Admitted)> = None;
        let mut refusal = None;
        for method in METHODS {
            let Some(cost) = kex.iter().find(|cost| cost.method == method) else { continue };
            match filter.kex(method) {
                Ok(admitted) if best.as_ref().is_none_or(|(_, known)| admitted.status > known.status) => {
                    best = Some((*cost, admitted));
                }
                Ok(_) => {}
                Err(why) => refusal = Some(format!("{} ({})", why.why, why.source)),
            }
        }
        let (cost, admitted) =
            best.ok_or_else(|| refusal.unwrap_or_else(|| "no provider has it".to_owned()))?;
        let most_micros = if goal == Goal::Battery { MOST_MICROS_ON_BATTERY } else { MOST_MICROS };
        let wire = wire_cost(cost.method, use_case.version, use_case.behind_nat);
        Ok(Self { cost, first: *first, admitted, most_micros, wire })
    }

    /// Whether the rules require the method.
    pub fn is_required(&self) -> bool {
        self.admitted.status == RequirementLevel::Must
    }

    /// Whether to use the method: the rules require it, or this device is fast enough.
    pub fn is_recommended(&self) -> bool {
        self.is_required() || self.cost.side_micros() <= self.most_micros
    }

    /// Keyword in a proposal.
    pub fn keyword(&self) -> String {
        format!("ke1_{}", self.cost.method.keyword())
    }

    /// Bytes on the wire in a day, with rekeying at the default interval.
    pub fn bytes_a_day(&self) -> f64 {
        self.wire.bytes as f64 * 24.0 / REKEY_HOURS
    }

    /// Number of packets of the mix whose ESP overhead has as many bytes; `None` without a suite.
    pub fn packets_with_that_overhead(&self, costs: &Costs, use_case: &UseCase) -> Option<f64> {
        let ratio = *Goal::Bytes.scores(costs, use_case).first()?;
        Some(self.wire.bytes as f64 / ((ratio - 1.0) * use_case.mix.mean_size()))
    }

    /// Kilobytes of traffic that take as much CPU time as the key exchange of one side.
    pub fn kilobytes_with_that_time(&self, costs: &Costs, use_case: &UseCase) -> Option<f64> {
        let nanos_per_byte = Goal::Battery.undisturbed_score(costs, use_case)?;
        Some(self.cost.side_micros() / nanos_per_byte)
    }

    /// Reasons for or against the key exchange. `costs` are those of the recommended suite.
    pub(crate) fn reasons(&self, costs: Option<&Costs>, use_case: &UseCase) -> Vec<String> {
        let Self { cost, first, .. } = self;
        if !self.is_recommended() {
            return vec![format!(
                "no ML-KEM: {} would take {:.0} ms of one side on this device, more than {:.0} ms. A \
                 post-quantum pre-shared key (ppk_id, RFC 8784) protects against the same attacker without \
                 that time",
                cost.method,
                cost.side_micros() / 1e3,
                self.most_micros / 1e3
            )];
        }
        let mut reasons = vec![format!(
            "{} after {} (RFC 9370): recorded traffic stays secret if a quantum computer breaks the first \
             key exchange later. It takes {:.0} us of the initiator and {:.0} us of the responder besides \
             {:.0} us and {:.0} us{}",
            self.keyword(),
            first.method,
            cost.initiator_micros(),
            cost.responder_micros(),
            first.initiator_micros(),
            first.responder_micros(),
            self.equal_traffic(costs, use_case).unwrap_or_default()
        )];
        reasons.push(if self.is_required() {
            format!("no proposal without {}: it is a MUST ({})", cost.method, self.admitted.source)
        } else {
            "second proposal: for peers without ML-KEM. Remove it to require ML-KEM".into()
        });
        reasons.push(
            "ML-KEM needs 25 to 51 KB of stack: where a device has less, give it a proposal without ke1_ and \
             a post-quantum pre-shared key (ppk_id, RFC 8784)"
                .into(),
        );
        reasons
    }

    /// The cost, as traffic that costs as much.
    fn equal_traffic(&self, costs: Option<&Costs>, use_case: &UseCase) -> Option<String> {
        let costs = costs?;
        Some(format!(
            ", as long as {:.0} KB of traffic. It adds {} packets with {} bytes to each handshake and to the \
             rekeying of the IKE SA, as many bytes as ESP adds to {:.0} packets, {:.0} KB in a day",
            self.kilobytes_with_that_time(costs, use_case)?,
            self.wire.packets,
            self.wire.bytes,
            self.packets_with_that_overhead(costs, use_case)?,
            self.bytes_a_day() / 1e3
        ))
    }
}

/// Bytes of the header of an IKE message (RFC 7296 section 3.1).
const IKE_HEADER: usize = 28;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// Bytes of the non-ESP marker, which precedes messages on port 4500 (RFC 7296 section 3.1).
const MARKER: usize = 4;
/// Bytes of a KE payload before its data (RFC 7296 section 3.4).
const KE_HEADER: usize = 8;
/// Bytes of the Encrypted payload with AES-GCM (RFC 5282): header, IV, pad length and ICV.
const SK_OVERHEAD: usize = 4 + 8 + 1 + 16;
/// Further bytes of the payload for a fragment: its number and the total (RFC 7383 section 2.5).
const FRAGMENT_NUMBERS: usize = 4;
/// The longest IP packet of Casemate with a fragment.
const LONGEST_PACKET: usize = 1_280;
/// INTERMEDIATE_EXCHANGE_SUPPORTED and the transform in IKE_SA_INIT, in either direction.
const ANNOUNCEMENT: usize = 8 + 8;

/// What the exchange IKE_INTERMEDIATE with this method, and its negotiation, add to a handshake with one
/// proposal. IKE_FOLLOWUP_KE, which follows a rekeying, is as long.
pub fn wire_cost(method: KexMethod, version: IpVersion, behind_nat: bool) -> WireCost {
    let values = [method.public_len(), method.response_len()];
    let messages = values.map(|len| message(len.saturating_add(KE_HEADER), version, behind_nat));
    let sum = |of: fn(&WireCost) -> usize| messages.iter().map(of).sum::<usize>();
    WireCost {
        packets: sum(|message| message.packets),
        bytes: sum(|message| message.bytes).saturating_add(2 * ANNOUNCEMENT),
    }
}

/// Packets of an encrypted message with this many bytes of payloads.
fn message(payloads: usize, version: IpVersion, behind_nat: bool) -> WireCost {
    let headers = header_len(version) + UDP_HEADER + if behind_nat { MARKER } else { 0 } + IKE_HEADER;
    let whole = headers + SK_OVERHEAD + payloads;
    // The limit leaves room for the marker, whether there is one or not.
    let reserved = if behind_nat { 0 } else { MARKER };
    if whole + reserved <= LONGEST_PACKET {
        return WireCost { packets: 1, bytes: whole };
    }
    let overhead = headers + SK_OVERHEAD + FRAGMENT_NUMBERS;
    let packets = payloads.div_ceil(LONGEST_PACKET - reserved - overhead);
    WireCost { packets, bytes: payloads + packets * overhead }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Mix;
    use crate::rules::Profile;
    use casemate_sa::Mode;

    fn use_case() -> UseCase {
        UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat: false }
    }

    fn choose(profile: &str, micros: f64, goal: Goal) -> Result<AdditionalExchange, String> {
        let filter = Filter::new(Some(Profile::named(profile).unwrap()), false).unwrap();
        let kex = METHODS.map(|method| KexCost::made_up(method, micros));
        let first = KexCost::made_up(KexMethod::X25519, 1.0);
        AdditionalExchange::choose(&first, &kex, &filter, &use_case(), goal)
    }

    #[test]
    fn the_rules_and_the_time_decide() {
        let usual = choose("rfc8221", 10.0, Goal::Throughput).unwrap();
        assert_eq!((usual.keyword().as_str(), usual.is_required()), ("ke1_mlkem768", false));
        let cnsa2 = choose("cnsa2", 1e6, Goal::Throughput).unwrap();
        assert_eq!((cnsa2.keyword().as_str(), cnsa2.is_required()), ("ke1_mlkem1024", true));
        assert!(usual.is_recommended() && cnsa2.is_recommended());
        assert_eq!(choose("cnsa", 10.0, Goal::Cpu).unwrap_err(), "MUST NOT (RFC 9206 section 8)");
        for (goal, micros, expected) in [
            (Goal::Latency, 49_999.0, true),
            (Goal::Latency, 50_001.0, false),
            (Goal::Battery, 9_999.0, true),
            (Goal::Battery, 10_001.0, false),
        ] {
            assert_eq!(choose("rfc8221", micros, goal).unwrap().is_recommended(), expected, "{micros}");
        }
        let slow = choose("rfc8221", 80_000.0, Goal::Bytes).unwrap().reasons(None, &use_case());
        assert!(slow.len() == 1 && slow[0].starts_with("no ML-KEM: ml-kem-768 would take 80 ms"), "{slow:?}");
    }

    /// The benchmark of handshakes compares the sum with real messages.
    #[test]
    fn long_values_are_in_fragments() {
        let cost = |method| wire_cost(method, IpVersion::V4, false);
        // 800 and 768 bytes with 8 + 29 + 28 + 28 around them, and 32 in IKE_SA_INIT.
        assert_eq!(cost(KexMethod::MlKem512), WireCost { packets: 2, bytes: 800 + 768 + 2 * 93 + 32 });
        assert_eq!(cost(KexMethod::MlKem768).packets, 3);
        assert_eq!(cost(KexMethod::MlKem1024).packets, 4);
        let nat = wire_cost(KexMethod::MlKem512, IpVersion::V6, true);
        assert_eq!(nat.bytes - cost(KexMethod::MlKem512).bytes, 2 * (20 + 4));
    }
}
