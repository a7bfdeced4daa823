//! Path MTU of one SA (RFC 4301 section 8.2, RFC 1191, RFC 8201, RFC 8899).
//!
//! The smallest of four values applies, and the outbound path uses it before it seals: the MTU of the link, a
//! configured value, one that probes have found, and one that was learned from an ICMP error
//! ([`crate::icmp::parse_inbound`]). The learned one applies only for a time (RFC 4301 section 8.2.2: it MUST
//! be aged). Then larger packets are sent again. The link is the one towards the peer of the SA if the caller
//! knows it, else that of the data path.

use casemate_sa::Instant;
use core::fmt;
use core::time::Duration;

/// Smallest MTU of an IPv6 link (RFC 8200 section 5).
pub const V6_MIN_MTU: usize = 1280;
/// Every IPv4 host accepts datagrams of this size (RFC 791 section 3.1), so smaller values are ignored
/// (RFC 4301 section 6.1.1: a minimum PMTU prevents unauthenticated ICMP from setting a trivial size).
pub const V4_MIN_MTU: usize = 576;
/// Lifetime of a learned value (RFC 1191 section 6.3 and RFC 8201 section 5.3 recommend 10 minutes).
pub const MAX_AGE: Duration = Duration::from_secs(600);

/// Path MTU of one SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMtu {
    floor: usize,
    /// MTU of the link towards the peer.
    link: Option<usize>,
    configured: Option<usize>,
    probed: Option<usize>,
    learned: Option<Learned>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Learned {
    value: usize,
    learned_at: Instant,
}

/// Where the path MTU of an SA comes from. `Display` writes the variant in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathMtuSource {
    /// The MTU of the link.
    Link,
    /// The configuration.
    Configuration,
    /// Probes ([`Datapath::set_sa_probed_mtu`](crate::Datapath::set_sa_probed_mtu)).
    Probe,
    /// An ICMP error.
    Icmp,
}

impl fmt::Display for PathMtuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Link => "link",
            Self::Configuration => "configuration",
            Self::Probe => "probe",
            Self::Icmp => "icmp",
        })
    }
}

impl PathMtu {
    /// For an SA with an IPv4 outer header.
    pub const V4: Self = Self::with_floor(V4_MIN_MTU);
    /// For an SA with an IPv6 outer header.
    pub const V6: Self = Self::with_floor(V6_MIN_MTU);

    /// No learned value. Values below `floor` are raised to `floor`.
    pub const fn with_floor(floor: usize) -> Self {
        Self { floor, link: None, configured: None, probed: None, learned: None }
    }

    /// Sets the MTU of the link towards the peer.
    pub const fn set_link(&mut self, mtu: usize) {
        self.link = Some(mtu);
    }

    /// Sets the configured limit; `None` removes it.
    pub const fn set_configured(&mut self, mtu: Option<usize>) {
        self.configured = mtu;
    }

    /// Sets what probes have found; `None` if the path takes what the link does, or is not probed. A value
    /// below the smallest is raised to that.
    pub fn set_probed(&mut self, mtu: Option<usize>) {
        self.probed = mtu.map(|mtu| mtu.max(self.floor));
    }

    /// Forgets all values of the path, because the peer has another address.
    pub const fn reset(&mut self) {
        (self.link, self.probed, self.learned) = (None, None, None);
    }

    /// Forgets what belongs to a path, for a path of the other or the same IP version.
    pub(crate) const fn move_to(&mut self, is_v4: bool) {
        self.reset();
        self.floor = if is_v4 { V4_MIN_MTU } else { V6_MIN_MTU };
    }

    /// Learns that the path MTU is `mtu`. Returns whether the value changed.
    ///
    /// A value above the current one is ignored: such a message never raises the estimate (RFC 8201 section
    /// 4).
    pub fn update(&mut self, now: Instant, mtu: usize) -> bool {
        let value = mtu.max(self.floor);
        let before = self.in_force(now);
        if before.is_some_and(|before| before < value) {
            return false;
        }
        // An equal value restarts its lifetime: the path still has this MTU.
        self.learned = Some(Learned { value, learned_at: now });
        before != Some(value)
    }

    /// The MTU towards the peer. `link_mtu` applies if the SA has no link MTU of its own.
    pub fn current(&self, now: Instant, link_mtu: usize) -> usize {
        let limits = [self.configured, self.probed, self.in_force(now)];
        limits.into_iter().flatten().fold(self.link.unwrap_or(link_mtu), usize::min)
    }

    /// Where [`current`](Self::current) comes from.
    pub fn source(&self, now: Instant, link_mtu: usize) -> PathMtuSource {
        let current = Some(self.current(now, link_mtu));
        match self.link.or(Some(link_mtu)) {
            link if link == current => PathMtuSource::Link,
            _ if self.configured == current => PathMtuSource::Configuration,
            _ if self.probed == current => PathMtuSource::Probe,
            _ => PathMtuSource::Icmp,
        }
    }

    fn in_force(&self, now: Instant) -> Option<usize> {
        self.learned.filter(|learned| now.since(learned.learned_at) < MAX_AGE).map(|learned| learned.value)
    }
}

/// The largest packet that fits `path_mtu` once it is protected; 0 if none does.
///
/// `sealed_len` returns the length after protection of a packet of the given length. It must not decrease
/// with that length.
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

/// The next common MTU below `len`, for ICMP errors of IPv4 routers without an MTU (RFC 1191 section 5).
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
    fn learned_value_lowers_the_mtu_and_expires() {
        let mut path = PathMtu::V4;
        assert_eq!(path.current(T0, 1500), 1500);
        assert!(path.update(T0, 1400));
        assert!(!path.update(T0, 1450), "an ICMP error never raises the estimate");
        assert_eq!(path.current(T0, 1500), 1400);
        assert_eq!(path.current(T0, 1300), 1300, "the link MTU may be below the path MTU");

        let later = T0.after(MAX_AGE);
        assert_eq!(path.current(later, 1500), 1500, "the estimate has expired");
        assert!(path.update(later, 1450), "after expiry a higher value counts");
        assert_eq!(path.current(later, 1500), 1450);
    }

    #[test]
    fn link_mtu_of_the_sa_takes_precedence() {
        let mut path = PathMtu::V4;
        path.set_link(9000);
        assert_eq!(path.current(T0, 1500), 9000);
        path.set_link(1300);
        assert!(path.update(T0, 1400));
        assert_eq!(path.current(T0, 1500), 1300, "the link MTU is below the reported path MTU");
        path.reset();
        assert_eq!(path.current(T0, 1500), 1500);
    }

    #[test]
    fn the_smallest_value_applies_and_names_its_source() {
        let mut path = PathMtu::V4;
        let found = |path: &PathMtu| (path.current(T0, 1500), path.source(T0, 1500));
        assert_eq!(found(&path), (1500, PathMtuSource::Link));
        path.set_probed(Some(1_460));
        assert_eq!(found(&path), (1_460, PathMtuSource::Probe));
        assert!(path.update(T0, 1_400));
        assert_eq!(found(&path), (1_400, PathMtuSource::Icmp));
        path.set_configured(Some(1_300));
        assert_eq!(found(&path), (1_300, PathMtuSource::Configuration));
        path.set_link(1_280);
        assert_eq!(found(&path), (1_280, PathMtuSource::Link));
        path.reset();
        assert_eq!(found(&path), (1_300, PathMtuSource::Configuration), "the configuration stays");
        path.set_configured(None);
        path.set_probed(Some(100));
        assert_eq!(found(&path), (576, PathMtuSource::Probe), "a smaller value is raised");
        path.set_probed(None);
        assert_eq!(found(&path), (1500, PathMtuSource::Link));
    }

    #[test]
    fn repeated_value_restarts_its_lifetime() {
        let mut path = PathMtu::V4;
        assert!(path.update(T0, 1400));
        let half = T0.after(MAX_AGE / 2);
        assert!(!path.update(half, 1400), "no change for the senders");
        assert_eq!(path.current(T0.after(MAX_AGE), 1500), 1400);
        assert_eq!(path.current(half.after(MAX_AGE), 1500), 1500);
    }

    #[test]
    fn trivial_mtu_is_raised_to_the_floor() {
        for (mut path, floor) in [(PathMtu::V4, 576), (PathMtu::V6, 1280), (PathMtu::with_floor(900), 900)] {
            assert!(path.update(T0, 68));
            assert_eq!(path.current(T0, 1500), floor);
        }
    }

    #[test]
    fn inner_mtu_is_the_largest_that_fits() {
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
    fn plateaus_decrease() {
        for (len, next) in
            [(70_000, 65_535), (65_535, 32_000), (1_500, 1_492), (1_492, 1_006), (296, 68), (20, 68)]
        {
            assert_eq!(plateau_below(len), next);
        }
    }
}
