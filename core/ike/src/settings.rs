//! What holds for all connections of an engine: limits, times, ports.

use core::time::Duration;

/// Bounds of an IKE engine (contract: bounded everywhere), and its timing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// IKE SAs, half-open ones included. About 5 KiB each with one Child SA. IKE SAs that others have replaced may
    /// exist beside them for a while: an eighth of this number, at least two. When there are more, the oldest of
    /// them is closed.
    pub ike_sas: usize,
    /// IKE SAs with one peer that was authenticated equally (decision 0063), without those that others have
    /// replaced; a further one takes the place of the oldest, which is closed. Connections whose `unique` is
    /// `Never` have no such limit, because many peers may share an identity there.
    pub ike_sas_per_peer: usize,
    /// Half-open IKE SAs that peers began. Each costs about 3 KiB and one key exchange.
    pub half_open: usize,
    /// Half-open IKE SAs that peers began from one IPv4 address or one IPv6 /64 prefix; further requests from there are dropped. From half
    /// of them on, a peer must show a cookie, so that nobody uses up the share of another. Each address or prefix costs about 100 bytes.
    pub half_open_per_source: usize,
    /// Half-open IKE SAs from which on a peer must show a cookie first (RFC 7296 section 2.6). From half of `half_open` on it must in any
    /// case.
    pub cookie_threshold: usize,
    /// Child SAs of one IKE SA.
    pub children: usize,
    /// Longest message, in bytes; also what fragments of one message may hold together.
    pub message_bytes: usize,
    /// What fragments of one message may hold together before the peer is authenticated, in bytes: a chain of certificates.
    pub stranger_bytes: usize,
    /// Longest IP packet that carries a message, where the peer takes fragments (RFC 7383 section 2.5.1), in bytes.
    pub fragment_bytes: usize,
    /// UDP port for messages behind a NAT, which share it with ESP (RFC 3948).
    pub natt_port: u16,
    /// Repetition of requests.
    pub retransmission: Retransmission,
    /// How long a half-open IKE SA that a peer began may last.
    pub half_open_time: Duration,
    /// After how long a silence a NAT's mapping is refreshed (RFC 3948 section 4).
    pub keepalive: Duration,
    /// How long an attempt waits for another answer after one that anybody may have forged (RFC 7296 section 2.21.1).
    pub refusal_wait: Duration,
}

/// Repetition of requests (RFC 7296 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmission {
    /// Time until the first repetition.
    pub first: Duration,
    /// By how much each wait is longer than the one before.
    pub factor: u32,
    /// The longest wait.
    pub longest: Duration,
    /// Repetitions, after the last of which one more wait follows.
    pub tries: u32,
}

impl Settings {
    /// For a gateway on a server.
    pub const SERVER: Self = Self {
        ike_sas: 65_536,
        ike_sas_per_peer: 64,
        half_open: 4_096,
        half_open_per_source: 64,
        cookie_threshold: 64,
        children: 64,
        message_bytes: 65_000,
        stranger_bytes: 20_480,
        fragment_bytes: 1_280,
        natt_port: 4_500,
        retransmission: Retransmission {
            first: Duration::from_secs(1),
            factor: 2,
            longest: Duration::from_secs(60),
            tries: 6,
        },
        half_open_time: Duration::from_secs(30),
        keepalive: Duration::from_secs(20),
        refusal_wait: Duration::from_secs(2),
    };

    /// For a device with tens of kilobytes to spare and a few peers.
    pub const DEVICE: Self = Self {
        ike_sas: 8,
        ike_sas_per_peer: 4,
        half_open: 4,
        half_open_per_source: 2,
        cookie_threshold: 2,
        children: 4,
        message_bytes: 4_096,
        stranger_bytes: 4_096,
        ..Self::SERVER
    };
}

/// What is replaced when both sides rekey one IKE SA: that IKE SA and one of its two successors. If either ended early,
/// the peer would repeat its request in vain.
const REPLACED: usize = 2;

impl Settings {
    /// How many IKE SAs there may be, with those that others have replaced.
    pub(crate) fn ike_sas_with_replaced(&self) -> usize {
        self.ike_sas.saturating_add(self.ike_sas.div_ceil(8).max(REPLACED))
    }
}

impl Retransmission {
    /// How long to wait after this many repetitions.
    pub(crate) fn wait(&self, tries: u32) -> Duration {
        self.first.saturating_mul(self.factor.saturating_pow(tries)).min(self.longest)
    }
}
