//! Settings that follow from the ranking, in the syntax of configuration files.

use crate::encapsulation::{EncapsulationSamples, EncapsulationVerdict};
use crate::goal::{Goal, UseCase};
use crate::handshake::AdditionalExchange;
use crate::ike_proposal::{self, FirstExchanges};
use crate::measure::{Costs, KexCost};
use crate::rank::RankedSuite;
use crate::rules::Filter;
use crate::suites::proposal_keyword;
use casemate_crypto::EspSuite;
use casemate_sa::Mode;

/// Default lifetime of a Child SA in seconds (`rekey_time` of swanctl.conf).
const REKEY_SECONDS: f64 = 3_600.0;
/// Time in seconds within which packets may be reordered.
const REORDER_SECONDS: f64 = 1e-3;
/// Speech in a packet of G.729A, in bytes, and packets per second.
const VOICE_PAYLOAD: usize = 20;
const VOICE_RATE: f64 = 50.0;
/// Minimum and maximum size of the anti-replay window. RFC 4303 section 3.4.3 prefers at least 64.
const WINDOWS: (u32, u32) = (64, 4_096);

/// Recommended settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `proposals` of a connection.
    pub ike: String,
    /// The additional key exchange with ML-KEM that the rules permit and a provider has, recommended or not.
    pub additional_exchange: Option<AdditionalExchange>,
    /// `esp_proposals` of a child.
    pub esp: String,
    /// `mode` of a child.
    pub mode: Mode,
    /// Whether to use extended (64-bit) sequence numbers.
    pub esn: bool,
    /// `replay_window` of a child, in packets.
    pub replay_window: u32,
    /// `rohc` of a child: header compression, which both ends must support.
    pub rohc: bool,
    /// Whether to set `encap = auto` for the connection: ESP in UDP between two Casemates.
    pub encap_auto: bool,
    /// Reasons for the settings.
    pub reasons: Vec<String>,
}

impl Settings {
    /// Derives the settings from a ranking. `None` if the rules permit no algorithm for IKE.
    pub fn recommend(
        places: &[RankedSuite],
        found: &[Costs],
        kex: &[KexCost],
        filter: &Filter,
        use_case: &UseCase,
        goal: Goal,
    ) -> Option<Self> {
        let first = places.first()?;
        let mut reasons = Vec::new();
        let costs = found.iter().find(|costs| costs.suite == first.scored.suite);
        let rate = costs.map_or(0.0, |costs| rate(costs, use_case));
        let esn = needs_esn(rate, &mut reasons);
        let replay_window = window(rate, &mut reasons);
        let esp = esp(places, esn, &mut reasons);
        let exchanges = FirstExchanges::choose(kex, filter);
        let additional = AdditionalExchange::choose(exchanges.cheapest()?, kex, filter, use_case, goal);
        let recommended = additional.as_ref().ok().filter(|exchange| exchange.is_recommended());
        let ike = ike_proposal::proposals(first.scored.suite, &exchanges, recommended, filter, &mut reasons)?;
        match &additional {
            Ok(exchange) => reasons.extend(exchange.reasons(costs, use_case)),
            Err(why) => reasons.push(format!("no ML-KEM: {why}")),
        }
        reasons.push(match use_case.mode {
            Mode::Transport => {
                "transport mode: both ends are the hosts themselves, and it saves the inner header".into()
            }
            Mode::Tunnel => {
                "tunnel mode: the gateway forwards packets of other hosts (--host-to-host if it does not)"
                    .into()
            }
        });
        if use_case.behind_nat {
            reasons.push("UDP encapsulation: IKE detects the NAT and enables it automatically".into());
        }
        let mode = use_case.mode;
        let additional_exchange = additional.ok();
        let (rohc, encap_auto) = (false, false);
        Some(Self { ike, additional_exchange, esp, mode, esn, replay_window, rohc, encap_auto, reasons })
    }

    /// Adds `encap = auto` if ESP in UDP has been measured to be faster, and the reason for either choice.
    /// The error of `measured` is the reason why it was not measured.
    #[must_use]
    pub fn with_encapsulation(
        mut self,
        measured: Result<&EncapsulationSamples, &str>,
        use_case: &UseCase,
    ) -> Self {
        if use_case.behind_nat {
            return self;
        }
        self.encap_auto = measured.is_ok_and(|samples| samples.verdict() == EncapsulationVerdict::Faster);
        self.reasons.push(match measured {
            Ok(samples) if self.encap_auto => format!(
                "encap = auto: {}, at a cost of 8 bytes per packet. It has an effect only if both gateways \
                 are Casemate and have it; a firewall must then admit UDP port 4500 instead of ESP",
                samples.comparison()
            ),
            Ok(samples) => format!("no UDP encapsulation: {}", samples.comparison()),
            Err(reason) => format!(
                "no UDP encapsulation: without a NAT it costs 8 bytes per packet. Whether one TCP stream is \
                 faster with `encap = auto` was not measured: {reason}"
            ),
        });
        self
    }

    /// Adds header compression for a goal about lengths, if both ends are Casemate. `suite` is the
    /// recommended one.
    #[must_use]
    pub fn with_header_compression(mut self, suite: EspSuite, use_case: &UseCase) -> Self {
        let Some(compressed) = use_case.compressed_voice_format(suite) else {
            self.reasons
                .push("no header compression: it needs the headers inside a tunnel (RFC 5856)".into());
            return self;
        };
        let [voice, whole] =
            [compressed, use_case.voice_format(suite)].map(|format| format.packet_len(VOICE_PAYLOAD));
        self.rohc = true;
        self.reasons.push(format!(
            "rohc = yes: headers in the tunnel are compressed (RFC 5225, RFC 5856). A packet of G.729A has \
             {voice} bytes instead of {whole}, so a call takes {:.1} kbit/s instead of {:.1}; TCP headers \
             stay as they are. Only Casemate knows this key and implicit IVs: --other-peer leaves them out",
            kbit_per_second(voice),
            kbit_per_second(whole)
        ));
        self
    }

    /// Returns lines for `swanctl.conf` with placeholder names.
    pub fn swanctl(&self) -> String {
        let mode = if self.mode == Mode::Transport { "        mode = transport\n" } else { "" };
        let rohc = if self.rohc { "        rohc = yes\n" } else { "" };
        let encap = if self.encap_auto { "    encap = auto\n" } else { "" };
        let Self { ike, esp, replay_window, .. } = self;
        format!(
            "connections {{\n  gateway {{\n    proposals = {ike}\n{encap}    children {{\n      net {{\n        \
             esp_proposals = {esp}\n{mode}        \
             replay_window = {replay_window}\n{rohc}      }}\n    }}\n  }}\n}}\n"
        )
    }
}

/// Bandwidth of a call with voice packets of this length.
fn kbit_per_second(voice: usize) -> f64 {
    voice as f64 * 8.0 * VOICE_RATE / 1e3
}

/// Packets per second that one processor seals or opens.
fn rate(costs: &Costs, use_case: &UseCase) -> f64 {
    let per_byte = Goal::Throughput.undisturbed_score(costs, use_case).unwrap_or(f64::NAN);
    1e9 / (per_byte * use_case.mix.mean_size())
}

/// Whether a 32-bit counter would wrap under one key (RFC 4303 section 3.3.3).
fn needs_esn(rate: f64, reasons: &mut Vec<String>) -> bool {
    let seconds = 2f64.powi(32) / rate;
    let needs = seconds < 2.0 * REKEY_SECONDS;
    let minutes = seconds / 60.0;
    reasons.push(if needs {
        format!(
            "ESN: at {rate:.0} packets/s, the maximum of one processor, 32 bits are used up in \
             {minutes:.0} minutes, and keys live for 60 (RFC 4303 section 3.3.3)"
        )
    } else {
        format!(
            "no ESN: even at {rate:.0} packets/s, the maximum of one processor, 32 bits last \
             {minutes:.0} minutes, and keys live for 60"
        )
    });
    needs
}

fn window(rate: f64, reasons: &mut Vec<String>) -> u32 {
    let (least, most) = WINDOWS;
    let window = ((rate * REORDER_SECONDS) as u32).next_power_of_two().clamp(least, most);
    reasons.push(format!(
        "replay_window {window}: packets that arrive within a millisecond may be reordered; at least 64 \
             (RFC 4303 section 3.4.3)"
    ));
    window
}

/// The first suite, its form with an IV in each packet if it has none, and the best mandatory suite for peers
/// that do not support the first.
fn esp(places: &[RankedSuite], esn: bool, reasons: &mut Vec<String>) -> String {
    let Some(first) = places.first() else { return String::new() };
    let mut chosen = vec![first.scored.suite];
    if let EspSuite::ImplicitIv(alg) = first.scored.suite {
        let explicit = EspSuite::Combined(alg.aead());
        reasons.push(format!("{explicit} second: the same with an IV, for peers without RFC 8750"));
        chosen.push(explicit);
    }
    let common = places.iter().find(|place| place.scored.is_mandatory()).map(|place| place.scored.suite);
    if let Some(common) = common.filter(|common| !first.scored.is_mandatory() && !chosen.contains(common)) {
        let place = if chosen.len() == 1 { "second" } else { "third" };
        reasons.push(format!("{common} {place}: it is a MUST, so every peer supports it"));
        chosen.push(common);
    }
    let esn = if esn { "-esn-noesn" } else { "" };
    let words = chosen.into_iter().map(|suite| format!("{}{esn}", proposal_keyword(suite)));
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::Mix;
    use crate::rank::{ScoredSuite, rank};
    use crate::rules::{Keying, Profile};
    use crate::suites;
    use casemate_crypto::{AesBits, CipherAlg, ImplicitIvAlg, KexMethod, MacAlg, MacKind};
    use casemate_ike::config::{EsnPolicy, IkeEncryption};
    use casemate_strongswan::proposal;
    use casemate_wire::ip::IpVersion;

    /// Settings under a profile. AES-GCM with 128 bits costs `price` ns per byte, and other suites cost more,
    /// in the order of [`suites::all`].
    fn settings(profile: &str, price: f64) -> Settings {
        settings_for(profile, price, Goal::Cpu)
    }

    fn settings_for(profile: &str, price: f64, goal: Goal) -> Settings {
        let filter = Filter::new(Some(Profile::named(profile).unwrap()), false).unwrap();
        let use_case =
            UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat: false };
        let sorted = suites::classify(&filter, Keying::Negotiated, goal, true);
        let prices = (0..).map(|rank| price * (1.0 + f64::from(rank)));
        let costs: Vec<Costs> = sorted
            .candidates
            .iter()
            .zip(prices)
            .map(|(candidate, price)| {
                let samples: Vec<_> = use_case
                    .mix
                    .sizes()
                    .map(|size| (size, price * size as f64, price * size as f64))
                    .collect();
                Costs::made_up(candidate.suite, &samples)
            })
            .collect();
        let scored = sorted
            .candidates
            .iter()
            .filter_map(|candidate| ScoredSuite::new(candidate, &costs, goal, &use_case));
        let places = rank(scored.collect(), goal);
        let kex = [
            KexMethod::X25519,
            KexMethod::EcpP256,
            KexMethod::EcpP384,
            KexMethod::Modp2048,
            KexMethod::Modp3072,
            KexMethod::MlKem768,
            KexMethod::MlKem1024,
        ];
        let kex: Vec<KexCost> = kex
            .into_iter()
            .zip(1..)
            .map(|(method, rank)| KexCost::made_up(method, f64::from(rank)))
            .collect();
        Settings::recommend(&places, &costs, &kex, &filter, &use_case, goal).unwrap()
    }

    #[test]
    fn recommended_proposals_parse() {
        for profile in ["rfc8221", "iot", "cnsa", "cnsa2", "suite-b-128", "suite-b-256"] {
            for price in [0.1, 1_000.0] {
                let settings = settings(profile, price);
                for one in settings.ike.split(',') {
                    assert_eq!(proposal::parse_ike(one).map(|read| read.len()), Ok(1), "{one}");
                }
                for one in settings.esp.split(',') {
                    assert_eq!(proposal::parse_esp(one).map(|read| read.len()), Ok(1), "{one}");
                }
            }
        }
    }

    #[test]
    fn only_a_fast_machine_needs_extended_sequence_numbers() {
        let (fast, slow) = (settings("rfc8221", 0.1), settings("rfc8221", 1_000.0));
        assert!(fast.esn && fast.esp.ends_with("-esn-noesn") && fast.replay_window == 4_096, "{fast:?}");
        assert!(!slow.esn && !slow.esp.contains("esn") && slow.replay_window == 64, "{slow:?}");
        let read = proposal::parse_esp(fast.esp.split(',').next().unwrap()).unwrap();
        assert_eq!(read[0].esn, EsnPolicy::Preferred);
    }

    #[test]
    fn an_optional_suite_is_followed_by_a_mandatory_one() {
        assert!(settings_for("rfc8221", 1_000.0, Goal::Bytes).esp.ends_with("ccm8,aes256gcm16"));
        assert_eq!(settings("rfc8221", 1_000.0).esp, "aes128gcm16");
        let classical = "aes128gcm16-prfsha256-curve25519-ecp256-modp2048";
        assert_eq!(settings("rfc8221", 1_000.0).ike, format!("{classical}-ke1_mlkem768,{classical}"));
    }

    #[test]
    fn the_shortest_suite_has_an_implicit_iv_and_is_followed_by_others() {
        for goal in [Goal::Bytes, Goal::Calls] {
            let settings = settings_for("rfc8221", 1_000.0, goal);
            assert_eq!(settings.esp, "aes256ccm8iiv,aes256ccm8,aes256gcm16", "{:?}", settings.reasons);
        }
        assert!(!settings_for("rfc8221", 1_000.0, Goal::Throughput).esp.contains("iiv"));
        // CNSA permits one transform, and that has an IV.
        assert_eq!(settings_for("cnsa", 1_000.0, Goal::Bytes).esp, "aes256gcm16");
    }

    #[test]
    fn encapsulation_is_advised_if_it_is_faster() {
        let use_case =
            UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat: false };
        let measured = |ratio| EncapsulationSamples { esp: vec![1.0; 5], in_udp: vec![ratio; 5] };
        let base = settings("rfc8221", 1_000.0);
        let with = |ratio| base.clone().with_encapsulation(Ok(&measured(ratio)), &use_case);
        assert!(with(3.0).encap_auto && with(3.0).swanctl().contains("\n    encap = auto\n"));
        let last = |settings: Settings| settings.reasons.last().cloned().unwrap();
        assert!(last(with(3.0)).starts_with("encap = auto: ESP in UDP is 3.0 (3.0-3.0) times as fast"));
        assert!(!with(1.0).encap_auto && !with(1.0).swanctl().contains("encap"));
        assert!(last(with(1.0)).starts_with("no UDP encapsulation: ESP in UDP makes no difference"));
        let not_measured = base.clone().with_encapsulation(Err("no namespaces"), &use_case);
        assert!(!not_measured.encap_auto && last(not_measured).ends_with("not measured: no namespaces"));
        let behind_nat = UseCase { behind_nat: true, ..use_case };
        assert_eq!(base.clone().with_encapsulation(Err("a NAT"), &behind_nat), base);
    }

    /// Lengths of lab/calls/tests/datapath.rs: 20 bytes of speech and 40 of headers, or 4 with header
    /// compression, and trailer, padded to 64 and 28; with 20 + 8 + 8 bytes around them.
    #[test]
    fn header_compression_is_advised_for_tunnels() {
        let suite = EspSuite::ImplicitIv(ImplicitIvAlg::AesCcm8(AesBits::B128));
        let mut use_case =
            UseCase { mix: Mix::simple(), mode: Mode::Tunnel, version: IpVersion::V4, behind_nat: false };
        let settings = settings_for("rfc8221", 1_000.0, Goal::Calls);
        let tunnel = settings.clone().with_header_compression(suite, &use_case);
        let reason = tunnel.reasons.last().unwrap();
        assert!(reason.contains("64 bytes instead of 100"), "{reason}");
        assert!(reason.contains("25.6 kbit/s instead of 40.0"), "{reason}");
        assert!(tunnel.swanctl().contains("replay_window = 64\n        rohc = yes\n      }\n"));
        use_case.mode = Mode::Transport;
        let transport = settings.clone().with_header_compression(suite, &use_case);
        assert_eq!((transport.rohc, transport.swanctl()), (false, settings.swanctl()));
    }

    #[test]
    fn profiles_apply_to_ike() {
        assert_eq!(settings("cnsa", 1_000.0).ike, "aes256gcm16-prfsha512-ecp384-modp3072");
        let cnsa2 = settings("cnsa2", 1_000.0);
        assert_eq!(cnsa2.ike, "aes256gcm16-prfsha384-ecp384-ke1_mlkem1024", "without a second proposal");
        assert_eq!(cnsa2.esp, "aes256gcm16");
        assert_eq!(settings("suite-b-256", 1_000.0).ike, "aes256-sha384-prfsha384-ecp384");
        let read = proposal::parse_ike(&settings("suite-b-128", 1_000.0).ike).unwrap();
        let pair = IkeEncryption::Separate(
            vec![CipherAlg::AesCbc(AesBits::B128)],
            vec![MacAlg::standard(MacKind::HmacSha256)],
        );
        assert_eq!(read[0].encryption, pair);
    }
}
