//! Rows of the paper's table and its remedies, and the protections that they compare, as files for `ip xfrm`,
//! which both the relay and the gateway read.

use super::relay::Wiring;
use casemate_testbed::veth_pair::INNER_ADDRS;
use std::fmt::{self, Write};

/// Protection of a packet. The inner header is named first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// A policy without protection.
    Bypass,
    /// AH.
    Ah,
    /// ESP in transport mode.
    EspTransport,
    /// ESP in tunnel mode.
    EspTunnel,
    /// AH inside ESP in tunnel mode.
    AhInEspTunnel,
    /// AH around ESP in transport mode.
    EspTransportAh,
    /// AH around ESP in tunnel mode.
    EspTunnelAh,
}

/// Algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suite {
    /// Algorithms of the paper's time, MD5 and DES-CBC, as still specified: HMAC-MD5-96 and DES-CBC (RFC
    /// 2403, RFC 2405).
    Era,
    /// AES-128-GCM for ESP, HMAC-SHA2-256-128 for AH.
    Today,
}

/// Both suites.
pub(super) const SUITES: [Suite; 2] = [Suite::Era, Suite::Today];

/// Protocol and mode of a header.
type Template = (&'static str, &'static str);

const AH: Template = ("ah", "transport");
const ESP: Template = ("esp", "transport");
const ESP_TUNNEL: Template = ("esp", "tunnel");

impl Protection {
    const fn templates(self) -> &'static [Template] {
        match self {
            Self::Bypass => &[],
            Self::Ah => &[AH],
            Self::EspTransport => &[ESP],
            Self::EspTunnel => &[ESP_TUNNEL],
            Self::AhInEspTunnel => &[AH, ESP_TUNNEL],
            Self::EspTransportAh => &[ESP, AH],
            Self::EspTunnelAh => &[ESP_TUNNEL, AH],
        }
    }

    /// Lines for `ip xfrm` of one end, for traffic between the inner addresses. `ends` are the addresses of
    /// the SAs.
    pub(super) fn file(self, suite: Suite, end: usize, ends: [&str; 2]) -> String {
        let mut text = String::new();
        for (from, first) in [(0, 0x1000), (1, 0x2000)] {
            for (spi, template) in (first..).zip(self.templates()) {
                let _ = writeln!(text, "{}", state(*template, suite, spi, order(ends, from)));
            }
            let direction = if from == end { "out" } else { "in" };
            let [src, dst] = order(INNER_ADDRS, from);
            let _ = write!(text, "ip xfrm policy add src {src}/32 dst {dst}/32 dir {direction}");
            for (protocol, mode) in self.templates() {
                let [src, dst] = order(ends, from);
                let _ = write!(text, " tmpl src {src} dst {dst} proto {protocol} mode {mode}");
            }
            text.push('\n');
        }
        text
    }
}

/// Line for one SA. The keys are public, because the traffic is worthless.
fn state((protocol, mode): Template, suite: Suite, spi: u32, [src, dst]: [&str; 2]) -> String {
    let key = |byte: u8, len: usize| format!("0x{}", format!("{byte:02x}").repeat(len));
    let algorithms = match (protocol, suite) {
        ("ah", Suite::Era) => format!("auth md5 {}", key(0x11, 16)),
        ("ah", Suite::Today) => format!("auth-trunc 'hmac(sha256)' {} 128", key(0x22, 32)),
        (_, Suite::Era) => format!("enc des {} auth md5 {}", key(0x34, 8), key(0x44, 16)),
        (_, Suite::Today) => format!("aead 'rfc4106(gcm(aes))' 0x{spi:032x}{spi:08x} 128"),
    };
    format!("ip xfrm state add src {src} dst {dst} proto {protocol} spi {spi} mode {mode} {algorithms}")
}

/// Source and destination of packets from this end, given the addresses of both ends.
fn order([first, second]: [&str; 2], from: usize) -> [&str; 2] {
    if from == 0 { [first, second] } else { [second, first] }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Era => "DES, MD5",
            Self::Today => "AES-GCM, SHA-2",
        })
    }
}

/// Component that forwards the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarder {
    /// The kernel alone, one segment at a time.
    Clear,
    /// The relay, with empty modules or those of the data path.
    Relay(Wiring, Option<Protection>),
    /// `casemate run`.
    Gateway(Protection),
    /// The kernel's own IPsec ("inside IP").
    Kernel(Protection),
}

/// A row of the paper's table.
#[derive(Debug)]
pub(super) struct Row {
    /// Name in the paper.
    pub(super) name: &'static str,
    /// Short name for figures.
    pub(super) short: &'static str,
    /// Rate in kb/s, as printed. The paper does not say whether b is a bit or a byte; ratios do not depend on
    /// it.
    pub(super) paper: f64,
    /// Equivalent component here.
    pub(super) forwarder: Forwarder,
}

const fn queued(name: &'static str, short: &'static str, paper: f64, protection: Option<Protection>) -> Row {
    Row { name, short, paper, forwarder: Forwarder::Relay(Wiring::Queues, protection) }
}

/// The table, in the order of the paper.
pub(super) static ROWS: [Row; 10] = [
    Row { name: "no IPsec, no STREAMS", short: "none", paper: 315.0, forwarder: Forwarder::Clear },
    Row {
        name: "STREAMS without queues or context switches, no IPsec",
        short: "functions",
        paper: 237.0,
        forwarder: Forwarder::Relay(Wiring::Functions, None),
    },
    queued("STREAMS with queues and context switches, no IPsec", "queues", 56.0, None),
    queued("IPsec without AH and ESP", "bypass", 47.0, Some(Protection::Bypass)),
    queued("AH", "AH", 26.0, Some(Protection::Ah)),
    queued("transport-mode ESP", "ESP tr.", 26.0, Some(Protection::EspTransport)),
    queued("tunnel-mode ESP", "ESP tun.", 26.0, Some(Protection::EspTunnel)),
    queued("ESP-part AH and tunnel-mode ESP", "AH in tun.", 19.0, Some(Protection::AhInEspTunnel)),
    queued("transport-mode ESP and AH", "tr. + AH", 20.0, Some(Protection::EspTransportAh)),
    queued("tunnel-mode ESP and AH", "tun. + AH", 18.0, Some(Protection::EspTunnelAh)),
];

/// Rates in kb/s that the paper expects if everything runs in one context.
pub(super) const EXPECTED_RATES: [f64; 2] = [180.0, 200.0];

/// A measured combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) forwarder: Forwarder,
    /// Algorithms; `Era` if there is no choice.
    pub(super) suite: Suite,
}

impl Case {
    const fn of(forwarder: Forwarder, suite: Suite) -> Self {
        Self { forwarder, suite }
    }

    /// Name for the progress and for samples.
    pub(super) fn name(self) -> String {
        let Self { forwarder, suite } = self;
        match forwarder {
            Forwarder::Clear => "the kernel alone".into(),
            Forwarder::Relay(wiring, None) => format!("modules that do nothing, as {wiring}"),
            Forwarder::Relay(wiring, Some(Protection::Bypass)) => {
                format!("{:?} as {wiring}", Protection::Bypass)
            }
            Forwarder::Relay(wiring, Some(protection)) => format!("{protection:?} as {wiring}, {suite}"),
            Forwarder::Gateway(protection) => format!("{protection:?} by the gateway, {suite}"),
            Forwarder::Kernel(protection) => format!("{protection:?} by the kernel, {suite}"),
        }
    }
}

/// Returns a row of the paper with modern algorithms; `None` if the row has no algorithms.
pub(super) fn today(row: &Row) -> Option<Case> {
    match row.forwarder {
        Forwarder::Relay(_, Some(protection)) if protection != Protection::Bypass => {
            Some(Case::of(row.forwarder, Suite::Today))
        }
        _ => None,
    }
}

/// The row with the algorithms of the paper's time.
pub(super) fn era(row: &Row) -> Case {
    Case::of(row.forwarder, Suite::Era)
}

/// Remedies of the paper for a protection: queues, one context, one context until it is congested (the
/// gateway, whose other threads assist only while more packets wait than one thread can protect), and inside
/// IP (the kernel).
pub(super) fn remedies(protection: Protection, suite: Suite) -> [Case; 4] {
    [
        Forwarder::Relay(Wiring::Queues, Some(protection)),
        Forwarder::Relay(Wiring::Functions, Some(protection)),
        Forwarder::Gateway(protection),
        Forwarder::Kernel(protection),
    ]
    .map(|forwarder| Case::of(forwarder, suite))
}

/// Names of the remedies, in the same order.
pub(super) const REMEDIES: [&str; 4] = ["queues", "one context", "the gateway", "inside IP"];

/// Protections for which the remedies are measured.
pub(super) const REMEDY_CASES: [(&str, Protection, Suite); 5] = [
    ("bypass", Protection::Bypass, Suite::Era),
    ("ESP tunnel, then", Protection::EspTunnel, Suite::Era),
    ("ESP + AH, then", Protection::EspTunnelAh, Suite::Era),
    ("ESP tunnel, today", Protection::EspTunnel, Suite::Today),
    ("ESP + AH, today", Protection::EspTunnelAh, Suite::Today),
];

/// Returns all combinations without duplicates. The kernel's IPsec is included with the suites that it
/// supports.
pub(super) fn cases(kernels: &[Suite]) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    let rows = ROWS.iter().flat_map(|row| [Some(era(row)), today(row)]).flatten();
    let remedies = REMEDY_CASES.iter().flat_map(|(_, protection, suite)| remedies(*protection, *suite));
    for case in rows.chain(remedies) {
        let wanted = match case.forwarder {
            // The gateway does not process bypassed traffic: the kernel sends it as usual.
            Forwarder::Gateway(Protection::Bypass) | Forwarder::Kernel(Protection::Bypass) => false,
            Forwarder::Kernel(_) => kernels.contains(&case.suite),
            Forwarder::Clear | Forwarder::Relay(..) | Forwarder::Gateway(_) => true,
        };
        if wanted && !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_the_same_states_and_opposite_policies() {
        let [near, far] = [0, 1].map(|end| Protection::EspTunnelAh.file(Suite::Era, end, INNER_ADDRS));
        let states = |text: &str| {
            text.lines().filter(|line| line.contains(" state ")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(states(&near), states(&far));
        assert_eq!(states(&near).len(), 4);
        assert!(near.contains(
            "src 10.1.0.1/32 dst 10.2.0.1/32 dir out \
             tmpl src 10.1.0.1 dst 10.2.0.1 proto esp mode tunnel tmpl"
        ));
        assert!(far.contains("src 10.1.0.1/32 dst 10.2.0.1/32 dir in "));
        assert!(!Protection::Bypass.file(Suite::Era, 0, INNER_ADDRS).contains("tmpl"));
    }

    #[test]
    fn every_case_is_measured_once() {
        // Ten rows, six of them twice, three more in one context with DES and two with AES, four gateways,
        // and four kernels.
        assert_eq!(cases(&[]).len(), 10 + 6 + 3 + 2 + 4);
        let all = cases(&SUITES);
        assert_eq!(all.len(), 10 + 6 + 3 + 2 + 4 + 4);
        assert!(all.iter().all(|case| all.iter().filter(|other| *other == case).count() == 1));
    }

    #[test]
    fn case_names_are_unique() {
        let mut names: Vec<String> = cases(&SUITES).into_iter().map(Case::name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cases(&SUITES).len());
    }
}
