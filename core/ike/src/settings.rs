//! Settings of an engine for all connections: limits, times and ports.

use core::time::Duration;

/// Limits and times of an IKE engine. Every resource of the engine is bounded by one of these values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IkeSettings {
    /// Maximum number of IKE SAs, half-open ones included. Each takes about 5 KiB with one Child SA. Replaced
    /// IKE SAs may exist beside them for a while: an eighth of this number, at least two. When there are
    /// more, the oldest is closed.
    pub max_ike_sas: usize,
    /// Maximum number of IKE SAs with one peer that was authenticated equally (decision 0063), without
    /// replaced ones. A further IKE SA replaces the oldest, which is closed. Connections whose `unique` is
    /// `Never` have no such limit, because many peers may share an identity there.
    pub max_ike_sas_per_peer: usize,
    /// Maximum number of half-open IKE SAs that peers started. Each takes about 3 KiB and one key exchange.
    pub max_half_open: usize,
    /// Maximum number of half-open IKE SAs that peers started from one IPv4 address or one IPv6 /64 prefix.
    /// Further requests from there are dropped. From half of this number on, a peer must return a cookie, so
    /// that no host uses up the quota of another. Each address or prefix takes about 100 bytes.
    pub max_half_open_per_source: usize,
    /// Number of half-open IKE SAs from which on a peer must return a cookie first (RFC 7296 section 2.6).
    /// From half of [`max_half_open`](Self::max_half_open) on, cookies are required in any case.
    pub cookie_threshold: usize,
    /// Maximum number of Child SAs of one IKE SA.
    pub max_children: usize,
    /// Maximum length of a message in bytes, and of the reassembled fragments of one message.
    pub max_message_bytes: usize,
    /// Maximum length of the reassembled fragments of one message in bytes before the peer is authenticated.
    /// A chain of certificates has to fit.
    pub max_unauthenticated_bytes: usize,
    /// Maximum length in bytes of an IP packet that carries a message, if the peer supports fragmentation
    /// (RFC 7383 section 2.5.1).
    pub max_fragment_bytes: usize,
    /// UDP port for messages through a NAT, shared with ESP (RFC 3948).
    pub natt_port: u16,
    /// Retransmission of requests.
    pub retransmission: Retransmission,
    /// Lifetime of a half-open IKE SA that a peer started.
    pub half_open_time: Duration,
    /// Time without a packet after which a NAT keepalive is sent (RFC 3948 section 4).
    pub keepalive_interval: Duration,
    /// Time that an attempt waits for another response after an unauthenticated refusal, which any host may
    /// have forged (RFC 7296 section 2.21.1).
    pub refusal_wait: Duration,
}

/// Retransmission of requests (RFC 7296 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmission {
    /// Time until the first retransmission.
    pub initial_timeout: Duration,
    /// Factor by which each wait is longer than the one before.
    pub factor: u32,
    /// Longest wait.
    pub max_timeout: Duration,
    /// Number of retransmissions. One more wait follows the last of them.
    pub tries: u32,
}

impl IkeSettings {
    /// For a gateway on a server.
    pub const SERVER: Self = Self {
        max_ike_sas: 65_536,
        max_ike_sas_per_peer: 64,
        max_half_open: 4_096,
        max_half_open_per_source: 64,
        cookie_threshold: 64,
        max_children: 64,
        max_message_bytes: 65_000,
        max_unauthenticated_bytes: 20_480,
        max_fragment_bytes: 1_280,
        natt_port: 4_500,
        retransmission: Retransmission {
            initial_timeout: Duration::from_secs(1),
            factor: 2,
            max_timeout: Duration::from_secs(60),
            tries: 6,
        },
        half_open_time: Duration::from_secs(30),
        keepalive_interval: Duration::from_secs(20),
        refusal_wait: Duration::from_secs(2),
    };

    /// For a device with some tens of kilobytes of free memory and a few peers.
    pub const DEVICE: Self = Self {
        max_ike_sas: 8,
        max_ike_sas_per_peer: 4,
        max_half_open: 4,
        max_half_open_per_source: 2,
        cookie_threshold: 2,
        max_children: 4,
        max_message_bytes: 4_096,
        max_unauthenticated_bytes: 4_096,
        ..Self::SERVER
    };
}

/// Number of IKE SAs that are replaced when both sides rekey one: that IKE SA and one of its two successors.
/// If either were closed early, the peer would repeat its request in vain.
const REPLACED: usize = 2;

impl IkeSettings {
    /// Maximum number of IKE SAs, replaced ones included.
    pub(crate) fn ike_sas_with_replaced(&self) -> usize {
        self.max_ike_sas.saturating_add(self.max_ike_sas.div_ceil(8).max(REPLACED))
    }
}

impl Retransmission {
    /// Wait after this many retransmissions.
    pub(crate) fn wait(&self, tries: u32) -> Duration {
        self.initial_timeout.saturating_mul(self.factor.saturating_pow(tries)).min(self.max_timeout)
    }
}
