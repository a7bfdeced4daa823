//! Protections that the paper compares, as files for `ip xfrm`, which both the relay and the gateway read.

use casemate_testbed::veth_pair::INNER_ADDRS;
use std::fmt;
use std::fmt::Write;

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
        for (way, first) in [(0, 1), (1, 0)].into_iter().zip([0x1000, 0x2000]) {
            for (spi, template) in (first..).zip(self.templates()) {
                let _ = writeln!(text, "{}", state(*template, suite, spi, pair(ends, way)));
            }
            let direction = if way.0 == end { "out" } else { "in" };
            let (src, dst) = pair(INNER_ADDRS, way);
            let _ = write!(text, "ip xfrm policy add src {src}/32 dst {dst}/32 dir {direction}");
            for (protocol, mode) in self.templates() {
                let (src, dst) = pair(ends, way);
                let _ = write!(text, " tmpl src {src} dst {dst} proto {protocol} mode {mode}");
            }
            text.push('\n');
        }
        text
    }
}

/// The keys are public, because the traffic is worthless.
fn state((protocol, mode): Template, suite: Suite, spi: u32, (src, dst): (&str, &str)) -> String {
    let key = |byte: u8, len: usize| format!("0x{}", format!("{byte:02x}").repeat(len));
    let algorithms = match (protocol, suite) {
        ("ah", Suite::Era) => format!("auth md5 {}", key(0x11, 16)),
        ("ah", Suite::Today) => format!("auth-trunc 'hmac(sha256)' {} 128", key(0x22, 32)),
        (_, Suite::Era) => format!("enc des {} auth md5 {}", key(0x34, 8), key(0x44, 16)),
        (_, Suite::Today) => format!("aead 'rfc4106(gcm(aes))' 0x{spi:032x}{spi:08x} 128"),
    };
    format!("ip xfrm state add src {src} dst {dst} proto {protocol} spi {spi} mode {mode} {algorithms}")
}

fn pair([first, second]: [&str; 2], way: (usize, usize)) -> (&str, &str) {
    if way.0 == 0 { (first, second) } else { (second, first) }
}

impl fmt::Display for Suite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Era => "DES, MD5",
            Self::Today => "AES-GCM, SHA-2",
        })
    }
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
}
