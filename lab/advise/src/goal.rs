//! Goals of the user: the value to minimise, and the packets to which it applies.

use crate::measure::Costs;
use casemate_calls::codec::Codec;
use casemate_calls::packet::{Esp, PacketFormat, Protection, header_len};
use casemate_calls::scheme::{ROHC_CID, rohc_len};
use casemate_crypto::EspSuite;
use casemate_sa::Mode;
use casemate_wire::ip::IpVersion;

/// A goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Throughput of one processor; the slower of sealing and opening counts.
    Throughput,
    /// Time that sealing and opening add to one small packet.
    Latency,
    /// CPU time per byte for sealing and opening.
    Cpu,
    /// CPU time per byte as a substitute for energy, which is not measured.
    Battery,
    /// Bytes on the wire per byte of the packets.
    Bytes,
    /// Bandwidth of a call.
    Calls,
}

/// Codecs for [`Goal::Calls`]: one with large packets and one with small ones.
const CODECS: [&str; 2] = ["g711", "g729"];

impl Goal {
    /// All goals.
    pub const ALL: [Self; 6] =
        [Self::Throughput, Self::Latency, Self::Cpu, Self::Battery, Self::Bytes, Self::Calls];

    /// Keyword on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Latency => "latency",
            Self::Cpu => "cpu",
            Self::Battery => "battery",
            Self::Bytes => "bytes",
            Self::Calls => "calls",
        }
    }

    /// Returns the goal with this keyword.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|goal| goal.word() == word)
    }

    /// Unit of the score. Less is better.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Throughput => "ns/byte, the slower of sealing and opening",
            Self::Latency => "ns for sealing and opening one packet",
            Self::Cpu => "ns/byte, sealing and opening",
            Self::Battery => "ns/byte, sealing and opening, as a stand-in for energy",
            Self::Bytes => "bytes on the wire per byte of the packets",
            Self::Calls => "kbit/s per call, mean of G.711 and G.729A",
        }
    }

    /// Whether the score is computed and therefore the same in every round and on every machine.
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Bytes | Self::Calls)
    }

    /// Number of packets per call of the data path. For latency, a packet does not wait for a batch.
    pub const fn batch(self) -> usize {
        if matches!(self, Self::Latency) { 1 } else { 32 }
    }

    /// Returns the score of each round.
    pub fn scores(self, costs: &Costs, use_case: &UseCase) -> Vec<f64> {
        let mix = &use_case.mix;
        match self {
            Self::Bytes => {
                vec![mix.mean(|size| use_case.protected_len(costs.suite, size) as f64) / mix.mean_size()]
            }
            Self::Calls => vec![use_case.call_bandwidth(costs.suite)],
            _ => (0..costs.rounds()).map(|round| self.score_of_round(costs, mix, round)).collect(),
        }
    }

    /// Returns the score on an undisturbed machine ([`Costs::undisturbed`]); `None` if there is no round.
    pub fn undisturbed_score(self, costs: &Costs, use_case: &UseCase) -> Option<f64> {
        self.scores(&costs.undisturbed(), use_case).first().copied()
    }

    fn score_of_round(self, costs: &Costs, mix: &Mix, round: usize) -> f64 {
        let seal = |size| costs.seal_at(size, round);
        let open = |size| costs.open_at(size, round);
        match self {
            Self::Throughput => mix.mean(seal).max(mix.mean(open)) / mix.mean_size(),
            Self::Latency => seal(mix.smallest()) + open(mix.smallest()),
            _ => (mix.mean(seal) + mix.mean(open)) / mix.mean_size(),
        }
    }
}

/// Packet lengths and their frequencies. Never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    parts: Vec<(usize, f64)>,
    /// Description.
    pub name: String,
}

impl Mix {
    /// Simple IMIX: seven small packets, four of 576 bytes and one large packet that fits a tunnel over a
    /// link of 1500 bytes.
    pub fn simple() -> Self {
        let parts = vec![(64, 7.0), (576, 4.0), (1_420, 1.0)];
        Self { parts, name: "seven packets of 64 bytes, four of 576, one of 1420 (simple IMIX)".into() }
    }

    /// Packets of one length.
    pub fn single(size: usize) -> Self {
        Self { parts: vec![(size, 1.0)], name: format!("packets of {size} bytes") }
    }

    /// Packet lengths in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|part| part.0)
    }

    /// Returns each length as often as it occurs in the mix.
    pub fn expanded(&self) -> Vec<usize> {
        self.parts.iter().flat_map(|(size, times)| vec![*size; *times as usize]).collect()
    }

    fn smallest(&self) -> usize {
        self.sizes().min().unwrap_or_default()
    }

    /// Mean packet length in bytes.
    pub fn mean_size(&self) -> f64 {
        self.mean(|size| size as f64)
    }

    fn mean(&self, of: impl Fn(usize) -> f64) -> f64 {
        let all: f64 = self.parts.iter().map(|part| part.1).sum();
        self.parts.iter().map(|(size, times)| of(*size) * times).sum::<f64>() / all
    }
}

/// Packets and path of the user.
#[derive(Debug, Clone, PartialEq)]
pub struct UseCase {
    /// Packet lengths.
    pub mix: Mix,
    /// Tunnel mode, or transport mode if both ends are the hosts themselves.
    pub mode: Mode,
    /// IP version, inside and outside of the tunnel.
    pub version: IpVersion,
    /// Whether a NAT requires UDP encapsulation.
    pub behind_nat: bool,
}

impl UseCase {
    fn esp(&self, suite: EspSuite) -> Esp {
        Esp { sizes: suite.into(), mode: self.mode, encap: self.behind_nat }
    }

    /// Length of a protected packet of `size` bytes.
    pub fn protected_len(&self, suite: EspSuite, size: usize) -> usize {
        self.esp(suite).protected_len(size, header_len(self.version))
    }

    /// Format of voice packets with a suite.
    pub(crate) fn voice_format(&self, suite: EspSuite) -> PacketFormat {
        PacketFormat { version: self.version, protection: Protection::Esp(self.esp(suite)), link: 0 }
    }

    /// Format of voice packets with a suite and header compression, or `None` without a tunnel (RFC 5856).
    pub(crate) fn compressed_voice_format(&self, suite: EspSuite) -> Option<PacketFormat> {
        // Most hosts send UDP checksums.
        let headers = ROHC_CID.saturating_add(rohc_len(true));
        let protection = Protection::CompressedEsp(self.esp(suite), headers);
        (self.mode == Mode::Tunnel).then_some(PacketFormat { version: self.version, protection, link: 0 })
    }

    /// Mean bandwidth of a call over the codecs, in kbit/s.
    fn call_bandwidth(&self, suite: EspSuite) -> f64 {
        let wire = self.voice_format(suite);
        let streams = CODECS.into_iter().filter_map(|name| Codec::named(name)?.stream(None).ok());
        let rates: Vec<f64> = streams
            .map(|stream| wire.packet_len(stream.payload) as f64 * 8.0 * stream.packets_per_second() / 1e3)
            .collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Costs;
    use casemate_crypto::{AeadAlg, AesBits};

    const GCM: EspSuite = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });

    fn use_case(mix: Mix) -> UseCase {
        UseCase { mix, mode: Mode::Tunnel, version: IpVersion::V4, behind_nat: false }
    }

    #[test]
    fn score_of_each_goal() {
        // 64 bytes take 100 and 200 ns, 576 bytes take 300 and 500 ns.
        let costs = Costs::made_up(GCM, &[(64, 100.0, 200.0), (576, 300.0, 500.0)]);
        let mix = Mix { parts: vec![(64, 1.0), (576, 3.0)], name: String::new() };
        let score = |goal: Goal| goal.scores(&costs, &use_case(mix.clone()))[0];
        assert_eq!(score(Goal::Throughput), (200.0 + 3.0 * 500.0) / (64.0 + 3.0 * 576.0));
        assert_eq!(score(Goal::Cpu), (300.0 + 3.0 * 800.0) / (64.0 + 3.0 * 576.0));
        assert_eq!(score(Goal::Battery), score(Goal::Cpu));
        assert_eq!(score(Goal::Latency), 300.0);
        // 20 outer, 8 ESP, 8 IV, 16 ICV; 64 + 2 padded to 68, 576 + 2 to 580.
        assert!((score(Goal::Bytes) - (120.0 + 3.0 * 632.0) / (64.0 + 3.0 * 576.0)).abs() < 1e-12);
        // 20 ms of speech are 160 or 20 bytes after 40 bytes of headers: 202 padded to 204, 62 padded to 64,
        // plus 52 each.
        assert!((score(Goal::Calls) - f64::midpoint(256.0, 116.0) * 8.0 * 50.0 / 1e3).abs() < 1e-9);
    }

    #[test]
    fn nat_adds_a_udp_header_and_transport_mode_saves_the_inner_header() {
        let tunnel = use_case(Mix::simple());
        let nat = UseCase { behind_nat: true, ..tunnel.clone() };
        let transport = UseCase { mode: Mode::Transport, ..tunnel.clone() };
        let sizes = [&tunnel, &nat, &transport].map(|use_case| use_case.protected_len(GCM, 64));
        assert_eq!(sizes, [120, 128, 100]);
    }
}
