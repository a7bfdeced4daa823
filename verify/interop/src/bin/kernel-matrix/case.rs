//! Cases of the matrix: SAs, addresses and traffic.

use crate::suite::{self, Suite};
use casemate_interop::{Output, Result};
use std::fmt;

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// IPsec protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Esp,
    Ah,
}

/// IPsec mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Transport,
    Tunnel,
}

/// Pair of SAs, one for each direction.
#[derive(Debug, Clone)]
pub(crate) struct Sa {
    pub(crate) protocol: Protocol,
    pub(crate) mode: Mode,
    pub(crate) suite: Suite,
    pub(crate) esn: bool,
    /// UDP encapsulation (RFC 3948).
    pub(crate) encap: bool,
    /// Size of the anti-replay window in packets.
    pub(crate) window: u32,
    /// Last sequence number that counts as used.
    pub(crate) used: u32,
}

/// Case of the matrix.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// IP version of the user's packets.
    pub(crate) inner: Family,
    /// IP version between the two peers.
    pub(crate) outer: Family,
    /// SAs, innermost first.
    pub(crate) sas: Vec<Sa>,
    /// Sizes of the echo requests, as arguments of `probe ping`.
    pub(crate) sizes: &'static [&'static str],
    /// Bytes to send over TCP, if any.
    pub(crate) tcp: Option<u32>,
    /// Bursts of echo requests from our side, if any.
    pub(crate) bursts: Option<Bursts>,
}

/// Bursts of echo requests of different sizes. Casemate pads the packets of a burst to one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bursts {
    pub(crate) count: u32,
    /// Sizes of the requests of each burst, as arguments of `probe ping-bursts`.
    pub(crate) sizes: &'static [&'static str],
}

/// Sizes near every limit of a 1500-byte link, up to a packet of many fragments.
const SIZES: &[&str] = &["1", "2", "15", "64", "333", "1200", "1400", "1452", "1473", "3001", "9000"];
const SIZES_ABOVE_15: &[&str] = &["15", "64", "333", "1200", "1400", "1452", "1473", "3001", "9000"];
/// All padding lengths, and all sizes near the path MTU.
const SWEEP: &[&str] = &["1-70", "1370-1480"];
/// 49 packets of 64 to 256 bytes.
const BURSTS: Bursts = Bursts { count: 200, sizes: &["36-228/4"] };
const WINDOW: u32 = 64;
const MODES: [Mode; 2] = [Mode::Transport, Mode::Tunnel];
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// All cases. Their names are unique.
pub(crate) fn all() -> Vec<Case> {
    let (esp, ah) = (suite::esp(), suite::ah());
    let mut cases = Vec::new();
    every_way(&mut cases, "esp", &of(Protocol::Esp, &esp));
    every_way(&mut cases, "ah", &of(Protocol::Ah, &ah));
    mixed_tunnels(&mut cases, &esp, &ah);
    extended_numbers(&mut cases, &esp, &ah);
    in_udp(&mut cases, &esp);
    bundles(&mut cases, &esp, &ah);
    windows(&mut cases, &esp);
    sweeps(&mut cases, &esp, &ah);
    tcp(&mut cases, &esp, &ah);
    bursts(&mut cases, &esp);
    cases
}

fn of(protocol: Protocol, suites: &[Suite]) -> Vec<Sa> {
    suites.iter().map(|suite| Sa::new(protocol, suite)).collect()
}

/// Adds cases in transport and tunnel mode, with IPv4 and IPv6.
fn every_way(cases: &mut Vec<Case>, group: &str, sas: &[Sa]) {
    for sa in sas {
        for mode in MODES {
            for family in FAMILIES {
                cases.push(Case::new(group, family, family, vec![Sa { mode, ..sa.clone() }]));
            }
        }
    }
}

fn mixed_tunnels(cases: &mut Vec<Case>, esp: &[Suite], ah: &[Suite]) {
    let names = ["aes128-sha1", "aes128ctr-sha1", "aes128gcm16", "null-aes128gmac", "chacha20poly1305"];
    let mut sas = of(Protocol::Esp, &suite::pick(esp, &names));
    sas.extend(of(Protocol::Ah, &suite::pick(ah, &["sha1", "sha256"])));
    for sa in sas {
        for (inner, outer) in [(Family::V4, Family::V6), (Family::V6, Family::V4)] {
            let group = if sa.protocol == Protocol::Ah { "ah" } else { "esp" };
            cases.push(Case::new(group, inner, outer, vec![Sa { mode: Mode::Tunnel, ..sa.clone() }]));
        }
    }
}

/// Extended sequence numbers whose low half is about to wrap: the ICV then covers a new high half (RFC 4303
/// section 2.2.1, RFC 4302 section 2.5.1).
fn extended_numbers(cases: &mut Vec<Case>, esp: &[Suite], ah: &[Suite]) {
    let names =
        ["null-sha256", "aes128-sha1", "aes256ctr-sha512", "aes128gcm16", "aes128ccm16", "chacha20poly1305"];
    let extend = |sa: Sa| Sa { esn: true, used: u32::MAX - 8, ..sa };
    let sas: Vec<Sa> = of(Protocol::Esp, &suite::pick(esp, &names)).into_iter().map(extend).collect();
    every_way(cases, "esp-esn", &sas);
    let sas: Vec<Sa> =
        of(Protocol::Ah, &suite::pick(ah, &["sha1", "sha256", "aescmac"])).into_iter().map(extend).collect();
    every_way(cases, "ah-esn", &sas);
}

fn in_udp(cases: &mut Vec<Case>, esp: &[Suite]) {
    let names = ["null-sha1", "aes128-sha1", "aes128gcm16", "aes256ccm16", "chacha20poly1305"];
    let encap = |sa: Sa| Sa { encap: true, ..sa };
    let sas: Vec<Sa> = of(Protocol::Esp, &suite::pick(esp, &names)).into_iter().map(encap).collect();
    let first = cases.len();
    every_way(cases, "esp-udp", &sas);
    // Linux counts the IPv6 header twice when it checks the length of a UDP packet (xfrm6_input.c), and
    // drops the shortest packets with NULL encryption.
    let is_short =
        |case: &&mut Case| case.outer == Family::V6 && case.name.contains("null-") && !case.is_tunnel();
    cases.iter_mut().skip(first).filter(is_short).for_each(|case| case.sizes = SIZES_ABOVE_15);
    let tunnels = of(Protocol::Esp, &suite::pick(esp, &["aes128gcm16"]));
    for sa in tunnels {
        let sa = Sa { mode: Mode::Tunnel, encap: true, ..sa };
        cases.push(Case::new("esp-udp", Family::V6, Family::V4, vec![sa.clone()]));
        cases.push(Case::new("esp-udp", Family::V4, Family::V6, vec![sa.clone()]));
        cases.push(Case::new("esp-udp-esn", Family::V4, Family::V4, vec![Sa { esn: true, ..sa }]));
    }
}

/// AH over ESP (the bundles of RFC 4301's predecessor; see the examples in RFC 4301 section 4.5.1): ESP in
/// either mode, and AH around it.
fn bundles(cases: &mut Vec<Case>, esp: &[Suite], ah: &[Suite]) {
    let inner = of(Protocol::Esp, &suite::pick(esp, &["aes128-sha1", "aes128gcm16"]));
    let outer = of(Protocol::Ah, &suite::pick(ah, &["sha1", "sha256"]));
    for (esp, ah) in inner.iter().zip(&outer) {
        for mode in MODES {
            for family in FAMILIES {
                let sas = vec![Sa { mode, ..esp.clone() }, Sa { mode: Mode::Transport, ..ah.clone() }];
                cases.push(Case::new("ah+esp", family, family, sas));
            }
        }
    }
}

fn windows(cases: &mut Vec<Case>, esp: &[Suite]) {
    for sa in of(Protocol::Esp, &suite::pick(esp, &["aes128gcm16"])) {
        for window in [0, 32, 1024, 4096] {
            let group = format!("esp-window{window}");
            cases.push(Case::new(&group, Family::V4, Family::V4, vec![Sa { window, ..sa.clone() }]));
        }
    }
}

fn sweeps(cases: &mut Vec<Case>, esp: &[Suite], ah: &[Suite]) {
    let mut sas = of(Protocol::Esp, &suite::pick(esp, &["aes128-sha1", "aes128gcm16"]));
    sas.extend(of(Protocol::Ah, &suite::pick(ah, &["sha256"])));
    let first = cases.len();
    every_way(cases, "sweep", &sas);
    cases.iter_mut().skip(first).for_each(|case| case.sizes = SWEEP);
}

fn tcp(cases: &mut Vec<Case>, esp: &[Suite], ah: &[Suite]) {
    let mut sas = of(Protocol::Esp, &suite::pick(esp, &["aes128-sha1", "aes128gcm16"]));
    sas.extend(of(Protocol::Ah, &suite::pick(ah, &["sha256"])));
    let first = cases.len();
    every_way(cases, "tcp", &sas);
    for case in cases.iter_mut().skip(first) {
        case.sizes = &["1"];
        case.tcp = Some(200_000);
    }
}

/// Packets that Casemate pads to one length (docs/decisions/0077-batch-padding.md).
fn bursts(cases: &mut Vec<Case>, esp: &[Suite]) {
    for sa in of(Protocol::Esp, &suite::pick(esp, &["aes128gcm16"])) {
        for mode in MODES {
            let sas = vec![Sa { mode, encap: true, ..sa.clone() }];
            let case = Case::new("esp-udp-bursts", Family::V4, Family::V4, sas);
            cases.push(Case { sizes: &["1"], bursts: Some(BURSTS), ..case });
        }
    }
}

impl Sa {
    fn new(protocol: Protocol, suite: &Suite) -> Self {
        let suite = suite.clone();
        Self { protocol, mode: Mode::Transport, suite, esn: false, encap: false, window: WINDOW, used: 0 }
    }
}

impl Case {
    fn new(group: &str, inner: Family, outer: Family, sas: Vec<Sa>) -> Self {
        let suites: Vec<_> = sas.iter().map(|sa| sa.suite.name.as_str()).collect();
        let mode = sas.first().map_or(Mode::Transport, |sa| sa.mode);
        let ip = match (inner, outer) {
            (Family::V4, Family::V4) => "v4",
            (Family::V6, Family::V6) => "v6",
            (Family::V4, Family::V6) => "4in6",
            (Family::V6, Family::V4) => "6in4",
        };
        let mut protocol = String::new();
        if matches!(group, "sweep" | "tcp") {
            protocol = sas.first().map(|sa| format!("/{}", sa.protocol)).unwrap_or_default();
        }
        let name = format!("{group}{protocol}/{}/{mode}/{ip}", suites.join("+"));
        Self { name, inner, outer, sas, sizes: SIZES, tcp: None, bursts: None }
    }

    /// Whether Casemate needs a counter file.
    pub(crate) fn needs_counters(&self) -> bool {
        self.sas.iter().any(|sa| sa.suite.counter_mode)
    }

    /// Whether the addresses of the user's packets differ from those of the peers.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.sas.iter().any(|sa| sa.mode == Mode::Tunnel)
    }

    /// Fewest packets in each direction: the requests of one side and the replies to those of the other.
    pub(crate) fn packets(&self) -> u64 {
        count(self.sizes).saturating_mul(2).saturating_add(self.bursts.map_or(0, Bursts::echoes))
    }
}

impl Bursts {
    /// Number of echo requests.
    pub(crate) fn echoes(self) -> u64 {
        count(self.sizes).saturating_mul(self.count.into())
    }
}

/// Number of sizes in arguments of `probe`.
fn count(sizes: &[&str]) -> u64 {
    let count = |size: &&str| {
        let (range, step) = size.split_once('/').unwrap_or((size, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bounds = first.parse::<u64>().ok().zip(last.parse::<u64>().ok());
        let span = bounds.map(|(first, last)| last.saturating_sub(first));
        span.zip(step.parse().ok())
            .and_then(|(span, step)| span.checked_div(step)?.checked_add(1))
            .unwrap_or(0)
    };
    sizes.iter().map(count).sum()
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Esp => "esp",
            Self::Ah => "ah",
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transport => "transport",
            Self::Tunnel => "tunnel",
        })
    }
}

/// One end of the link.
pub(crate) trait Peer {
    /// Starts to protect the traffic of the case.
    fn start(&mut self, case: &Case) -> Result<()>;

    /// Runs `probe ARGUMENTS` at the end of this peer.
    fn probe(&mut self, arguments: &str) -> Result<Output>;

    /// Number of packets that this peer has padded to the length of others; `None` if it pads none.
    fn padded(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Stops the protection. Returns the errors that occurred in the meantime.
    fn stop(&mut self, case: &Case) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique() {
        let cases = all();
        let names: BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn packets_count_sizes_ranges_and_bursts() {
        let cases = all();
        assert_eq!(cases[0].packets(), 2 * SIZES.len() as u64);
        let sweep = cases.iter().find(|case| case.name.starts_with("sweep")).unwrap();
        assert_eq!(sweep.packets(), 2 * (70 + 111));
        let bursts = cases.iter().find(|case| case.bursts.is_some()).unwrap();
        assert_eq!(bursts.packets(), 2 + 200 * 49);
    }
}
