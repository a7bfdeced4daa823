//! What is compared: algorithms, how the packet is wrapped, whether there are instructions for AES, and how many threads.

use casemate_stage::arena::{BEHIND, WIRE};
use std::fmt;

/// The paper's modes of AES (its table 1), one of today, and no encryption. Keys of AES have 256 bits, as the paper's figure 2 says.
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
    /// The same with a key of 128 bits.
    Gcm128,
    /// ChaCha20-Poly1305, which came after the paper's measurements.
    ChaCha,
    /// NULL with HMAC-SHA1-96.
    Null,
}

/// The four of the paper.
pub(super) const PAPERS_MODES: [Mode; 4] = [Mode::Ctr, Mode::Cbc, Mode::Ccm, Mode::Gcm];
/// Those, and today's fifth.
pub(super) const MODES: [Mode; 5] = [Mode::Ctr, Mode::Cbc, Mode::Ccm, Mode::Gcm, Mode::ChaCha];

/// How a packet is wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Not at all: no gateway.
    Clear,
    /// No packet is: TLS 1.3 protects the file, by the program openssl at both ends.
    Tls,
    /// ESP in transport mode.
    Transport,
    /// ESP in tunnel mode.
    Tunnel,
    /// ESP in transport mode, in UDP.
    Udp,
}

/// Whether the processor's instructions for AES are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aes {
    /// They are, and whatever else the program finds.
    Instructions,
    /// They are hidden from it.
    Software,
}

/// How both gateways run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) mode: Mode,
    pub(super) form: Form,
    pub(super) aes: Aes,
    /// Threads of each gateway.
    pub(super) threads: usize,
}

impl Mode {
    /// Words for `ip xfrm state` and bytes of IV, of padding's unit, and of ICV (RFC 3602, 3686, 4106, 4309, 7634, 2410, 2404).
    const fn facts(self) -> (&'static str, [u32; 3]) {
        match self {
            Self::Ctr => ("enc 'rfc3686(ctr(aes))'", [8, 4, 12]),
            Self::Cbc => ("enc 'cbc(aes)'", [16, 16, 12]),
            Self::Ccm => ("aead 'rfc4309(ccm(aes))'", [8, 4, 16]),
            Self::Gcm | Self::Gcm128 => ("aead 'rfc4106(gcm(aes))'", [8, 4, 16]),
            Self::ChaCha => ("aead 'rfc7539esp(chacha20,poly1305)'", [8, 4, 16]),
            Self::Null => ("enc 'ecb(cipher_null)'", [0, 4, 12]),
        }
    }

    /// With keys, which are in this file: what they protect is worth nothing.
    fn algorithms(self, spi: u32) -> String {
        let (words, _) = self.facts();
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

    /// The same algorithm as OpenSSL calls it in TLS 1.3 (RFC 8446 appendix B.4), which has no other ones that are compared here.
    pub(super) const fn tls_suite(self) -> Option<&'static str> {
        match self {
            Self::Gcm => Some("TLS_AES_256_GCM_SHA384"),
            Self::Gcm128 => Some("TLS_AES_128_GCM_SHA256"),
            Self::ChaCha => Some("TLS_CHACHA20_POLY1305_SHA256"),
            Self::Ctr | Self::Cbc | Self::Ccm | Self::Null => None,
        }
    }
}

impl Form {
    /// Whether gateways protect packets.
    pub(super) const fn is_ipsec(self) -> bool {
        matches!(self, Self::Transport | Self::Tunnel | Self::Udp)
    }
}

impl Setting {
    /// The paper's ground: transport mode, one core.
    pub(super) const fn of(mode: Mode, aes: Aes) -> Self {
        Self { mode, form: Form::Transport, aes, threads: 1 }
    }

    /// The longest packet of a host that fits `mtu` bytes of the link once it is protected.
    pub(super) fn inner_mtu(self, mtu: u32) -> u32 {
        const IP: u32 = 20;
        const UDP: u32 = 8;
        const ESP: u32 = 8;
        // Pad Length and Next Header.
        const TRAILER: u32 = 2;
        let (_, [iv, unit, icv]) = self.mode.facts();
        let udp = if self.form == Form::Udp { UDP } else { 0 };
        let room = mtu.saturating_sub(IP + udp + ESP + iv + icv) / unit * unit;
        match self.form {
            Form::Clear | Form::Tls => mtu,
            Form::Tunnel => room.saturating_sub(TRAILER),
            Form::Transport | Form::Udp => room.saturating_sub(TRAILER) + IP,
        }
    }

    /// The file of one end, for `ip xfrm`.
    pub(super) fn file(self, end: usize) -> String {
        let (word, ends) = match self.form {
            Form::Tunnel => ("tunnel", WIRE),
            _ => ("transport", BEHIND),
        };
        let encap = if self.form == Form::Udp { " encap espinudp 4500 4500 0.0.0.0" } else { "" };
        let lines = [(0, 1), (1, 0)].into_iter().zip([0x1000, 0x2000]).map(|((from, to), spi)| {
            let [src, dst, inner_src, inner_dst] =
                [(ends, from), (ends, to), (BEHIND, from), (BEHIND, to)].map(|(of, at)| pick(of, at));
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

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, form, aes, threads } = self;
        let form = match form {
            Form::Clear => return f.write_str("no IPsec"),
            Form::Tls => return write!(f, "{mode} in TLS, {aes}"),
            Form::Transport => "transport",
            Form::Tunnel => "tunnel",
            Form::Udp => "in UDP",
        };
        write!(f, "{mode} {form}, {aes}, {threads} thread{}", if *threads == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(mode: Mode, form: Form, packet: u32, mtu: u32) -> bool {
        Setting { form, ..Setting::of(mode, Aes::Instructions) }.inner_mtu(mtu) >= packet
    }

    /// Lengths on the wire of a packet of 80 bytes, from the arithmetic of RFC 4303 section 2 by hand.
    #[test]
    fn the_longest_packet_just_fits() {
        for (mode, form, length) in [
            (Mode::Cbc, Form::Tunnel, 152),
            (Mode::Gcm, Form::Tunnel, 136),
            (Mode::Gcm, Form::Transport, 116),
            (Mode::Gcm, Form::Udp, 124),
            (Mode::Null, Form::Transport, 104),
        ] {
            assert!(fits(mode, form, 80, length) && !fits(mode, form, 80, length - 1), "{mode} {form:?}");
        }
    }

    #[test]
    fn both_ends_have_the_same_states_and_opposite_policies() {
        let setting = Setting { form: Form::Udp, ..Setting::of(Mode::Ccm, Aes::Software) };
        let [near, far] = [0, 1].map(|end| setting.file(end));
        let states = |text: &str| text.lines().filter(|line| line.contains(" state ")).count();
        assert_eq!((states(&near), states(&far)), (2, 2));
        assert!(near.contains("src 10.1.0.1/32 dst 10.2.0.1/32 dir out tmpl src 10.1.0.1 dst 10.2.0.1"));
        assert!(far.contains("src 10.1.0.1/32 dst 10.2.0.1/32 dir in "));
        assert!(near.contains("encap espinudp"));
    }
}
