//! Settings of an engine for all connections: limits, times and ports.

use crate::context::random_below;
use casemate_crypto::Rng;
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
    /// Maximum number of half-open IKE SAs that peers started. Each takes about 2 KiB without the messages
    /// that [`max_half_open_bytes`](Self::max_half_open_bytes) counts, and one key exchange.
    pub max_half_open: usize,
    /// Maximum number of half-open IKE SAs that peers started from one IPv4 address or one IPv6 /64 prefix.
    /// Further requests from there are dropped. After four of them, or half of this number if that is less, a
    /// peer must return a cookie, so that no host uses up the quota of another. When few are free, the limit
    /// is half of the free ones, but one more than is possible without a cookie: so a flood from many
    /// addresses leaves some to the others. Each address or prefix takes about 100 bytes.
    pub max_half_open_per_source: usize,
    /// Maximum number of bytes of messages that half-open IKE SAs hold until their peers are authenticated:
    /// first requests and responses, which AUTH covers, requests of which fragments are missing, such as
    /// those with a key of ML-KEM, the last response, and what EAP conversations hold: fragments of TLS
    /// messages, and TLS sessions as far as known. Further first requests and fragments are dropped, and an
    /// EAP conversation that needs more bytes ends.
    /// One source, as in [`max_half_open_per_source`](Self::max_half_open_per_source), gets at most half of
    /// what the others leave of three quarters. The last quarter is for sources that hold less than 4 KiB, so
    /// that a flood from some addresses leaves room to the others. From a quarter of this number on, cookies
    /// are required.
    pub max_half_open_bytes: usize,
    /// Number of half-open IKE SAs from which on a peer must return a cookie first (RFC 7296 section 2.6).
    /// From half of [`max_half_open`](Self::max_half_open) on, cookies are required in any case.
    pub cookie_threshold: usize,
    /// Maximum number of Child SAs of one IKE SA.
    pub max_children: usize,
    /// Maximum length of a message in bytes, and of the reassembled fragments of one message.
    pub max_message_bytes: usize,
    /// Maximum length of the reassembled fragments of one message in bytes before the peer is authenticated,
    /// also of a TLS message in EAP. A chain of certificates has to fit.
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
    /// Longest wait for the status of the certificates of an authenticated peer, if it has to be fetched, and
    /// for a signature of this host, if another device makes it. The peer may repeat its request meanwhile,
    /// so this is less than the time after which peers give up.
    pub auth_wait: Duration,
    /// Time without a packet after which a NAT keepalive is sent (RFC 3948 section 4).
    pub keepalive_interval: Duration,
    /// Time that an attempt waits for another response after an unauthenticated refusal, which any host may
    /// have forged (RFC 7296 section 2.21.1).
    pub refusal_wait: Duration,
    /// Whether IKE SAs that this host starts follow redirects to other gateways (RFC 5685).
    #[cfg(feature = "redirect")]
    pub follow_redirects: bool,
    /// Longest lifetime of a ticket of this host (RFC 5723). The key that protects tickets makes new ones for
    /// as long, and its tickets are accepted for as long again.
    #[cfg(feature = "resumption")]
    pub ticket_lifetime: Duration,
}

/// Retransmission of requests (RFC 7296 section 2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmission {
    /// Time until the first retransmission.
    pub initial_timeout: Duration,
    /// Factor by which each wait is longer than the one before, in thousandths. At least 1,000.
    pub growth_permille: u32,
    /// Longest wait.
    pub max_timeout: Duration,
    /// Largest random part by which a wait is shorter, in percent of it, up to 100: so that many peers do not
    /// repeat their requests at the same time.
    pub jitter_percent: u32,
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
        max_half_open_bytes: 32 << 20,
        cookie_threshold: 64,
        max_children: 64,
        max_message_bytes: 65_000,
        max_unauthenticated_bytes: 20_480,
        max_fragment_bytes: 1_280,
        natt_port: 4_500,
        retransmission: Retransmission {
            initial_timeout: Duration::from_secs(1),
            growth_permille: 2_000,
            max_timeout: Duration::from_secs(60),
            jitter_percent: 0,
            tries: 6,
        },
        half_open_time: Duration::from_secs(30),
        auth_wait: Duration::from_secs(15),
        keepalive_interval: Duration::from_secs(20),
        refusal_wait: Duration::from_secs(2),
        #[cfg(feature = "redirect")]
        follow_redirects: true,
        #[cfg(feature = "resumption")]
        ticket_lifetime: Duration::from_secs(3_600),
    };

    /// For a device with some tens of kilobytes of free memory and a few peers.
    pub const DEVICE: Self = Self {
        max_ike_sas: 8,
        max_ike_sas_per_peer: 4,
        max_half_open: 4,
        max_half_open_per_source: 2,
        max_half_open_bytes: 32 << 10,
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
    pub(crate) fn wait(&self, tries: u32, rng: &mut dyn Rng) -> Duration {
        let whole = self.longest_wait(tries);
        if self.jitter_percent == 0 {
            return whole;
        }
        let part = whole.saturating_mul(self.jitter_percent.min(100)).checked_div(100).unwrap_or_default();
        whole.saturating_sub(random_below(rng, part))
    }

    /// Wait after this many retransmissions, without the random part.
    fn longest_wait(&self, tries: u32) -> Duration {
        let mut wait = self.initial_timeout;
        for _ in 0..tries {
            let longer = wait.checked_mul(self.growth_permille).and_then(|wait| wait.checked_div(1_000));
            match longer {
                Some(longer) if longer > wait && wait < self.max_timeout => wait = longer,
                Some(_) => break,
                None => return self.max_timeout,
            }
        }
        wait.min(self.max_timeout)
    }

    /// Time from the first transmission of a request until its sender gives up.
    pub fn total(&self) -> Duration {
        (0..=self.tries).fold(Duration::ZERO, |sum, tries| sum.saturating_add(self.longest_wait(tries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use casemate_test_support::TestRng;

    /// The defaults of strongSwan: 4 s, 1.8, five retransmissions.
    const STRONGSWAN: Retransmission = Retransmission {
        initial_timeout: Duration::from_secs(4),
        growth_permille: 1_800,
        max_timeout: Duration::MAX,
        jitter_percent: 0,
        tries: 5,
    };

    #[test]
    fn waits_are_those_of_the_manual_of_strongswan() {
        // strongswan.conf(5): 4, 7, 13, 23, 42 and 76 s, 165 s in total.
        let waits: Vec<u64> = (0..6).map(|tries| STRONGSWAN.longest_wait(tries).as_secs()).collect();
        assert_eq!(waits, [4, 7, 12, 23, 41, 75]);
        assert_eq!(STRONGSWAN.total().as_secs(), 165);
    }

    #[test]
    fn the_limit_applies_to_every_wait() {
        let limited = Retransmission { max_timeout: Duration::from_secs(10), ..STRONGSWAN };
        let waits: Vec<u64> = (0..6).map(|tries| limited.longest_wait(tries).as_secs()).collect();
        assert_eq!(waits, [4, 7, 10, 10, 10, 10]);
        let short = Retransmission { max_timeout: Duration::from_secs(1), ..STRONGSWAN };
        assert_eq!(short.total(), Duration::from_secs(6));
    }

    #[test]
    fn extreme_settings_do_not_overflow() {
        let growth_permille = u32::MAX;
        let extreme = Retransmission { growth_permille, ..STRONGSWAN };
        assert_eq!(extreme.longest_wait(u32::MAX), Duration::MAX);
        let constant = Retransmission { growth_permille: 1_000, ..STRONGSWAN };
        assert_eq!(constant.longest_wait(u32::MAX), Duration::from_secs(4));
    }

    #[test]
    fn jitter_shortens_a_wait_by_its_share_at_most() {
        let mut rng = TestRng::new(1);
        let random = Retransmission { jitter_percent: 50, ..STRONGSWAN };
        let waits: Vec<Duration> = (0..200).map(|_| random.wait(0, &mut rng)).collect();
        assert!(waits.iter().all(|wait| (2_000..=4_000).contains(&wait.as_millis())));
        assert!(waits.iter().any(|wait| wait.as_millis() < 2_400));
        assert!(waits.iter().any(|wait| wait.as_millis() > 3_600));
        let whole = Retransmission { jitter_percent: 200, ..STRONGSWAN };
        assert!((0..200).all(|_| whole.wait(0, &mut rng) <= Duration::from_secs(4)));
    }
}
