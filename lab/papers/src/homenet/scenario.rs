//! Compared scenarios: algorithms, encapsulation, AES instructions and number of threads.

use casemate_testbed::veth_pair::{INNER_ADDRS, LINK_ADDRS};
use std::fmt;

/// Modes of AES in the paper (table 1), a modern cipher, and no encryption. AES keys have 256 bits, as in
/// figure 2 of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// AES-CTR with HMAC-SHA1-96.
    Ctr,
    /// AES-CBC with HMAC-SHA1-96.
    Cbc,
    /// AES-CCM with an ICV of 16 bytes.
    Ccm,
    /// AES-GCM with an ICV of 16 bytes.
    Gcm,
    /// AES-GCM with a 128-bit key and an ICV of 16 bytes.
    Gcm128,
    /// ChaCha20-Poly1305, which is newer than the paper's measurements.
    ChaCha,
    /// NULL with HMAC-SHA1-96.
    Null,
}

/// The four modes of the paper.
pub(super) const PAPERS_MODES: [Mode; 4] = [Mode::Ctr, Mode::Cbc, Mode::Ccm, Mode::Gcm];
/// The four modes of the paper and ChaCha20-Poly1305.
pub(super) const MODES: [Mode; 5] = [Mode::Ctr, Mode::Cbc, Mode::Ccm, Mode::Gcm, Mode::ChaCha];

/// Encapsulation of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encapsulation {
    /// None: no gateway.
    Clear,
    /// None, but TLS 1.3 protects the file, with the program openssl at both ends.
    Tls,
    /// ESP in transport mode.
    Transport,
    /// ESP in tunnel mode.
    Tunnel,
    /// ESP in transport mode with UDP encapsulation.
    Udp,
}

/// Whether AES instructions are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aes {
    /// The program uses AES instructions and the best available provider.
    Instructions,
    /// AES instructions are hidden from the program.
    Software,
}

/// Configuration of both gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scenario {
    pub(super) mode: Mode,
    pub(super) encapsulation: Encapsulation,
    pub(super) aes: Aes,
    /// Number of threads of each gateway.
    pub(super) threads: usize,
}

impl Mode {
    /// Words for `ip xfrm state`, and the lengths of IV, padding unit and ICV (RFC 3602, 3686, 4106, 4309,
    /// 7634, 2410, 2404).
    const fn parameters(self) -> (&'static str, [u32; 3]) {
        match self {
            Self::Ctr => ("enc 'rfc3686(ctr(aes))'", [8, 4, 12]),
            Self::Cbc => ("enc 'cbc(aes)'", [16, 16, 12]),
            Self::Ccm => ("aead 'rfc4309(ccm(aes))'", [8, 4, 16]),
            Self::Gcm | Self::Gcm128 => ("aead 'rfc4106(gcm(aes))'", [8, 4, 16]),
            Self::ChaCha => ("aead 'rfc7539esp(chacha20,poly1305)'", [8, 4, 16]),
            Self::Null => ("enc 'ecb(cipher_null)'", [0, 4, 12]),
        }
    }

    /// Algorithms with keys. The keys are public, because the traffic is worthless.
    fn algorithms(self, spi: u32) -> String {
        let (words, _) = self.parameters();
        let key = |len: usize| format!("0x{spi:08x}{}", "5a".repeat(len - 4));
        let sha1 = format!("auth 'hmac(sha1)' {}", key(20));
        match self {
            Self::Ctr => format!("{words} {} {sha1}", key(36)),
            Self::Cbc => format!("{words} {} {sha1}", key(32)),
            Self::Null => format!("{words} '' {sha1}"),
            Self::Ccm => format!("{words} {} 128", key(35)),
            Self::Gcm | Self::ChaCha => format!("{words} {} 128", key(36)),
            Self::Gcm128 => format!("{words} {} 128", key(20)),
        }
    }

    /// OpenSSL's name of the TLS 1.3 suite with the same algorithm (RFC 8446 appendix B.4), if there is one.
    pub(super) const fn tls_suite(self) -> Option<&'static str> {
        match self {
            Self::Gcm => Some("TLS_AES_256_GCM_SHA384"),
            Self::Gcm128 => Some("TLS_AES_128_GCM_SHA256"),
            Self::ChaCha => Some("TLS_CHACHA20_POLY1305_SHA256"),
            Self::Ctr | Self::Cbc | Self::Ccm | Self::Null => None,
        }
    }
}

impl Encapsulation {
    /// Whether gateways protect the packets.
    pub(super) const fn is_ipsec(self) -> bool {
        matches!(self, Self::Transport | Self::Tunnel | Self::Udp)
    }
}

impl Scenario {
    /// Basic configuration of the paper: transport mode, one core.
    pub(super) const fn of(mode: Mode, aes: Aes) -> Self {
        Self { mode, encapsulation: Encapsulation::Transport, aes, threads: 1 }
    }

    /// Longest packet of a host that fits `mtu` bytes of the link after protection.
    pub(super) fn inner_mtu(self, mtu: u32) -> u32 {
        const IP: u32 = 20;
        const UDP: u32 = 8;
        const ESP: u32 = 8;
        // Pad Length and Next Header.
        const TRAILER: u32 = 2;
        let (_, [iv, unit, icv]) = self.mode.parameters();
        let udp = if self.encapsulation == Encapsulation::Udp { UDP } else { 0 };
        let room = mtu.saturating_sub(IP + udp + ESP + iv + icv) / unit * unit;
        match self.encapsulation {
            Encapsulation::Clear | Encapsulation::Tls => mtu,
            Encapsulation::Tunnel => room.saturating_sub(TRAILER),
            Encapsulation::Transport | Encapsulation::Udp => room.saturating_sub(TRAILER) + IP,
        }
    }

    /// Lines for `ip xfrm` of one end.
    pub(super) fn xfrm(self, end: usize) -> String {
        let (word, ends) = match self.encapsulation {
            Encapsulation::Tunnel => ("tunnel", LINK_ADDRS),
            _ => ("transport", INNER_ADDRS),
        };
        let encap =
            if self.encapsulation == Encapsulation::Udp { " encap espinudp 4500 4500 0.0.0.0" } else { "" };
        let lines = [(0, 1), (1, 0)].into_iter().zip([0x1000, 0x2000]).map(|((from, to), spi)| {
            let [src, dst, inner_src, inner_dst] =
                [(ends, from), (ends, to), (INNER_ADDRS, from), (INNER_ADDRS, to)]
                    .map(|(of, at)| pick(of, at));
            let direction = if from == end { "out" } else { "in" };
            let algorithms = self.mode.algorithms(spi);
            format!(
                "ip xfrm state add src {src} dst {dst} proto esp spi {spi} mode {word} {algorithms}{encap}\n\
                 ip xfrm policy add src {inner_src}/32 dst {inner_dst}/32 dir {direction} \
                 tmpl src {src} dst {dst} proto esp mode {word}\n"
            )
        });
        lines.collect()
    }
}

fn pick([first, second]: [&'static str; 2], end: usize) -> &'static str {
    if end == 0 { first } else { second }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ctr => "CTR",
            Self::Cbc => "CBC",
            Self::Ccm => "CCM",
            Self::Gcm => "GCM",
            Self::Gcm128 => "GCM-128",
            Self::ChaCha => "ChaCha20",
            Self::Null => "NULL",
        })
    }
}

impl fmt::Display for Aes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instructions => "AES instructions",
            Self::Software => "AES in software",
        })
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, encapsulation: form, aes, threads } = self;
        let form = match form {
            Encapsulation::Clear => return f.write_str("no IPsec"),
            Encapsulation::Tls => return write!(f, "{mode} in TLS, {aes}"),
            Encapsulation::Transport => "transport",
            Encapsulation::Tunnel => "tunnel",
            Encapsulation::Udp => "in UDP",
        };
        write!(f, "{mode} {form}, {aes}, {threads} thread{}", if *threads == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(mode: Mode, form: Encapsulation, packet: u32, mtu: u32) -> bool {
        Scenario { encapsulation: form, ..Scenario::of(mode, Aes::Instructions) }.inner_mtu(mtu) >= packet
    }

    /// Lengths of a protected packet of 80 bytes, computed by hand from RFC 4303 section 2.
    #[test]
    fn the_longest_inner_packet_fits_exactly() {
        for (mode, form, length) in [
            (Mode::Cbc, Encapsulation::Tunnel, 152),
            (Mode::Gcm, Encapsulation::Tunnel, 136),
            (Mode::Gcm, Encapsulation::Transport, 116),
            (Mode::Gcm, Encapsulation::Udp, 124),
            (Mode::Null, Encapsulation::Transport, 104),
        ] {
            assert!(fits(mode, form, 80, length) && !fits(mode, form, 80, length - 1), "{mode} {form:?}");
        }
    }

    #[test]
    fn both_ends_have_the_same_states_and_opposite_policies() {
        let scenario =
            Scenario { encapsulation: Encapsulation::Udp, ..Scenario::of(Mode::Ccm, Aes::Software) };
        let [near, far] = [0, 1].map(|end| scenario.xfrm(end));
        let states = |text: &str| text.lines().filter(|line| line.contains(" state ")).count();
        assert_eq!((states(&near), states(&far)), (2, 2));
        assert!(near.contains("src 10.1.0.1/32 dst 10.2.0.1/32 dir out tmpl src 10.1.0.1 dst 10.2.0.1"));
        assert!(far.contains("src 10.1.0.1/32 dst 10.2.0.1/32 dir in "));
        assert!(near.contains("encap espinudp"));
    }
}
