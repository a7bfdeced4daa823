//! Path MTU of one SA (RFC 4301 section 8.2, RFC 1191, RFC 8201).
//!
//! Fed by [`crate::icmp::parse_inbound`], asked by the outbound side before it seals. A learned value only ever lowers the
//! link's MTU, and only for a while (section 8.2.2: it MUST be aged); then the network is probed again by simply sending.
//! The link is that towards the peer of the SA, where the caller knows it, and that of the data path otherwise.

use casemate_sa::Instant;
use core::time::Duration;

/// Smallest MTU of an IPv6 link (RFC 8200 section 5).
pub const V6_MIN_MTU: usize = 1280;
/// Every IPv4 host takes datagrams of this size (RFC 791 section 3.1), so a claim below it is not worth believing
/// (RFC 4301 section 6.1.1: a minimum PMTU keeps unauthenticated ICMP from setting a trivial size).
pub const V4_MIN_MTU: usize = 576;
/// How long a learned value holds (RFC 1191 section 6.3 and RFC 8201 section 5.3 recommend 10 minutes).
pub const MAX_AGE: Duration = Duration::from_secs(600);

/// What is known of the path below one SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    floor: usize,
    /// MTU of the link towards the peer.
    link: Option<usize>,
    learned: Option<Learned>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Learned {
    value: usize,
    learned_at: Instant,
}

impl PathMtu {
    /// Of an SA whose outer header is IPv4.
    pub const V4: Self = Self::with_floor(V4_MIN_MTU);
    /// Of an SA whose outer header is IPv6.
    pub const V6: Self = Self::with_floor(V6_MIN_MTU);

    /// Nothing learned yet; claims below `floor` count as `floor`.
    pub const fn with_floor(floor: usize) -> Self {
        Self { floor, link: None, learned: None }
    }

    /// The link towards the peer takes packets of at most `mtu` bytes.
    pub const fn set_link(&mut self, mtu: usize) {
        self.link = Some(mtu);
    }

    /// The peer is somewhere else now: nothing is known of the path there.
    pub const fn forget(&mut self) {
        (self.link, self.learned) = (None, None);
    }

    /// Takes note that the path lets no more than `mtu` bytes through; whether that changed the value.
    ///
    /// A value above the one in force is ignored: such a message never raises the estimate (RFC 8201 section 4).
    pub fn update(&mut self, now: Instant, mtu: usize) -> bool {
        let value = mtu.max(self.floor);
        let before = self.in_force(now);
        if before.is_some_and(|before| before < value) {
            return false;
        }
        // An equal value starts its time anew: the path is still that narrow.
        self.learned = Some(Learned { value, learned_at: now });
        before != Some(value)
    }

    /// The MTU to use towards the peer; `link_mtu` is that of the link if no other one is set.
    pub fn current(&self, now: Instant, link_mtu: usize) -> usize {
        let link_mtu = self.link.unwrap_or(link_mtu);
        self.in_force(now).map_or(link_mtu, |value| value.min(link_mtu))
    }

    fn in_force(&self, now: Instant) -> Option<usize> {
        self.learned.filter(|learned| now.since(learned.learned_at) < MAX_AGE).map(|learned| learned.value)
    }
}

/// The largest packet that still fits `path_mtu` once it is protected; 0 if none does.
///
/// `sealed_len` says how long a packet of the given length becomes on the wire; it never falls as that length grows.
pub fn inner_mtu(path_mtu: usize, sealed_len: impl Fn(usize) -> usize) -> usize {
    // Padding makes the overhead depend on the length, so search instead of subtracting.
    let (mut fits, mut too_long) = (0usize, path_mtu.saturating_add(1));
    while too_long.saturating_sub(fits) > 1 {
        let middle = fits.midpoint(too_long);
        if sealed_len(middle) <= path_mtu {
            fits = middle;
        } else {
            too_long = middle;
        }
    }
    fits
}

/// The next usual MTU below `len`: what to try after an IPv4 router that gave none (RFC 1191 section 5, its MTU field is 0).
pub fn plateau_below(len: usize) -> usize {
    // RFC 1191 section 7.1.
    const PLATEAUS: [usize; 10] = [65_535, 32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296];
    PLATEAUS.into_iter().find(|&plateau| plateau < len).unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Instant = Instant::from_secs(1_000);

    #[test]
    fn lowers_ages_and_never_raises() {
        let mut path = PathMtu::V4;
        assert_eq!(path.current(T0, 1500), 1500);
        assert!(path.update(T0, 1400));
        assert!(!path.update(T0, 1450), "a message never raises the estimate");
        assert_eq!(path.current(T0, 1500), 1400);
        assert_eq!(path.current(T0, 1300), 1300, "the link may be narrower than the path");

        let later = T0.after(MAX_AGE);
        assert_eq!(path.current(later, 1500), 1500, "aged");
        assert!(path.update(later, 1450), "after aging a higher value is news");
        assert_eq!(path.current(later, 1500), 1450);
    }

    #[test]
    fn the_link_towards_the_peer_counts_before_that_of_the_data_path() {
        let mut path = PathMtu::V4;
        path.set_link(9000);
        assert_eq!(path.current(T0, 1500), 9000);
        path.set_link(1300);
        assert!(path.update(T0, 1400));
        assert_eq!(path.current(T0, 1500), 1300, "the link is narrower than what a router said");
        path.forget();
        assert_eq!(path.current(T0, 1500), 1500);
    }

    #[test]
    fn repeating_a_value_renews_it() {
        let mut path = PathMtu::V4;
        assert!(path.update(T0, 1400));
        let half = T0.after(MAX_AGE / 2);
        assert!(!path.update(half, 1400), "nothing changed for the senders");
        assert_eq!(path.current(T0.after(MAX_AGE), 1500), 1400);
        assert_eq!(path.current(half.after(MAX_AGE), 1500), 1500);
    }

    #[test]
    fn a_trivial_size_is_not_believed() {
        for (mut path, floor) in [(PathMtu::V4, 576), (PathMtu::V6, 1280), (PathMtu::with_floor(900), 900)] {
            assert!(path.update(T0, 68));
            assert_eq!(path.current(T0, 1500), floor);
        }
    }

    #[test]
    fn inner_mtu_is_the_last_that_fits() {
        // ESP in IPv4 with 16-byte blocks: outer header 20, ESP header 8, IV 16, trailer 2, ICV 16.
        let sealed_len = |inner: usize| 60 + (inner + 2).next_multiple_of(16);
        for path_mtu in 0..3_000 {
            let found = inner_mtu(path_mtu, sealed_len);
            let last = (0..=path_mtu).rev().find(|&n| sealed_len(n) <= path_mtu);
            assert_eq!(found, last.unwrap_or(0), "path MTU {path_mtu}");
        }
        assert_eq!(inner_mtu(1500, |n| n), 1500);
    }

    #[test]
    fn plateaus_go_down() {
        for (len, next) in
            [(70_000, 65_535), (65_535, 32_000), (1_500, 1_492), (1_492, 1_006), (296, 68), (20, 68)]
        {
            assert_eq!(plateau_below(len), next);
        }
    }
}
