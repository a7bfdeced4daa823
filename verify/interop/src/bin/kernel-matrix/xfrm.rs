//! `ip xfrm` commands of a case, for either side. `casemate run --xfrm` and `ip -batch` read the same text.

use crate::case::{Case, Family, Sa};
use casemate_interop::ENCAP_PORT;
use casemate_test_support::TestRng;
use std::fmt::Write as _;

/// Peer of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Casemate, or its replacement.
    Ours,
    /// The guest.
    Guest,
}

impl Side {
    /// Other peer.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Ours => Self::Guest,
            Self::Guest => Self::Ours,
        }
    }

    /// Address on the link.
    pub(crate) fn link(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Ours, Family::V4) => "10.9.0.1",
            (Self::Guest, Family::V4) => "10.9.0.2",
            (Self::Ours, Family::V6) => "fd09::1",
            (Self::Guest, Family::V6) => "fd09::2",
        }
    }

    /// Address behind the tunnel.
    pub(crate) fn behind(self, family: Family) -> &'static str {
        match (self, family) {
            (Self::Ours, Family::V4) => "10.99.1.1",
            (Self::Guest, Family::V4) => "10.99.2.1",
            (Self::Ours, Family::V6) => "fd99:1::1",
            (Self::Guest, Family::V6) => "fd99:2::1",
        }
    }

    /// Address of the user's packets in a case.
    pub(crate) fn user(self, case: &Case) -> &'static str {
        if case.is_tunnel() { self.behind(case.inner) } else { self.link(case.inner) }
    }

    /// Ethernet address.
    pub(crate) fn mac(self) -> &'static str {
        match self {
            Self::Ours => "52:54:00:09:00:01",
            Self::Guest => "52:54:00:09:00:02",
        }
    }
}

/// State and policy commands of one side.
pub(crate) fn lines(case: &Case, side: Side) -> String {
    let mut text = String::new();
    for layer in 0..case.sas.len() {
        for from in [Side::Ours, Side::Guest] {
            text.push_str(&state(case, layer, from, side));
        }
    }
    text.push_str(&policy(case, side, "out"));
    text.push_str(&policy(case, side.other(), "in"));
    if case.is_tunnel() {
        text.push_str(&policy(case, side.other(), "fwd"));
    }
    text
}

/// Additional commands for a kernel, where an IKE daemon would exempt its own socket: encapsulated packets
/// arrive as UDP, and the policy for the addresses of the link would drop them before decapsulation.
pub(crate) fn lines_for_kernel(case: &Case, side: Side) -> String {
    if case.is_tunnel() || !case.sas.iter().any(|sa| sa.encap) {
        return String::new();
    }
    let (from, to) = (side.other().link(case.outer), side.link(case.outer));
    format!(
        "xfrm policy add src {from} dst {to} proto 17 sport {ENCAP_PORT} dport {ENCAP_PORT} dir in priority 1\n"
    )
}

/// SPI of an SA, unique for each layer and direction.
pub(crate) fn spi(layer: usize, from: Side) -> u32 {
    let direction = if from == Side::Ours { 1 } else { 2 };
    0x1000_u32.saturating_add((layer as u32).saturating_mul(0x100)).saturating_add(direction)
}

fn state(case: &Case, layer: usize, from: Side, side: Side) -> String {
    let Some(sa) = case.sas.get(layer) else { return String::new() };
    let (src, dst, spi) = (from.link(case.outer), from.other().link(case.outer), spi(layer, from));
    let Sa { protocol, mode, window, .. } = sa;
    let mut line = format!(
        "xfrm state add src {src} dst {dst} proto {protocol} spi {spi:#010x} mode {mode} replay-window {window}"
    );
    if sa.esn {
        line.push_str(" flag esn");
    }
    if sa.used > 0 {
        let word = if from == side { "replay-oseq" } else { "replay-seq" };
        let _ = write!(line, " {word} {:#x}", sa.used);
    }
    if sa.encap {
        let _ = write!(line, " encap espinudp {ENCAP_PORT} {ENCAP_PORT} 0.0.0.0");
    }
    if case.inner != case.outer {
        let (src, dst) = (from.user(case), from.other().user(case));
        let _ = write!(line, " sel src {src} dst {dst}");
    }
    let mut key = KeyBytes::of(case, layer, from);
    line.push_str(&sa.suite.words(|bytes| key.take(bytes)));
    line.push('\n');
    line
}

/// Keys of an SA with their purpose: `encryption-key` or `integrity-key`.
pub(crate) fn keys(case: &Case, layer: usize, sa: &Sa, from: Side) -> Vec<(&'static str, String)> {
    let mut key = KeyBytes::of(case, layer, from);
    sa.suite.keys(|bytes| key.take(bytes))
}

fn policy(case: &Case, from: Side, direction: &str) -> String {
    let (src, dst) = (from.user(case), from.other().user(case));
    let mut line = format!("xfrm policy add src {src} dst {dst} dir {direction} priority 100");
    for sa in &case.sas {
        let (src, dst) = (from.link(case.outer), from.other().link(case.outer));
        let ends = if case.is_tunnel() { format!(" src {src} dst {dst}") } else { String::new() };
        let _ = write!(line, " tmpl{ends} proto {} mode {}", sa.protocol, sa.mode);
    }
    line.push('\n');
    line
}

/// Key bytes that are equal in all runs and different for each SA: the seed is a hash of the SA's name.
struct KeyBytes(TestRng);

impl KeyBytes {
    fn of(case: &Case, layer: usize, from: Side) -> Self {
        let name = format!("{} {layer} {from:?}", case.name);
        // FNV-1a hash.
        let hash = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Self(TestRng::new(hash))
    }

    /// Next `bytes` bytes in the format of iproute2; two quotes for an empty key.
    fn take(&mut self, bytes: usize) -> String {
        if bytes == 0 {
            return "''".into();
        }
        (0..bytes).fold(String::from("0x"), |mut text, _| {
            let _ = write!(text, "{:02x}", self.0.next_u64() >> 56);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case;

    fn find(name: &str) -> Case {
        case::all().into_iter().find(|case| case.name == name).unwrap()
    }

    /// Words that are keys, not algorithm names.
    fn keys(text: &str) -> Vec<&str> {
        text.split_whitespace().filter(|word| word.starts_with("0x") && word.len() > 12).collect()
    }

    #[test]
    fn both_sides_have_the_same_keys_and_each_direction_has_its_own() {
        let case = find("esp/aes128-sha1/tunnel/v4");
        let (ours, guests) = (lines(&case, Side::Ours), lines(&case, Side::Guest));
        assert_eq!(keys(&ours), keys(&guests));
        let mut keys = keys(&ours);
        assert_eq!(keys.len(), 4);
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4);
    }

    #[test]
    fn policies_are_mirrored() {
        let case = find("ah+esp/aes128-sha1+sha1/tunnel/v4");
        let text = lines(&case, Side::Ours);
        assert!(text.contains(
            "policy add src 10.99.1.1 dst 10.99.2.1 dir out priority 100 tmpl src 10.9.0.1 dst 10.9.0.2 proto esp mode \
             tunnel tmpl src 10.9.0.1 dst 10.9.0.2 proto ah mode transport\n"
        ));
        assert!(text.contains("policy add src 10.99.2.1 dst 10.99.1.1 dir fwd"));
    }
}
