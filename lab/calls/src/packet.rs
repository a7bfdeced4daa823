//! How long a packet of speech is on the line, with all its headers.
//!
//! IPv4 without options, IPv6 without extension headers, RTP without contributing sources. Lengths are in bytes.

use casemate_crypto::EspSuite;
use casemate_sa::Mode;
use casemate_wire::ip::{IpVersion, v4, v6};
use casemate_wire::{esp, udp};

/// RTP's header (RFC 3550 section 5.1).
pub const RTP_HEADER_LEN: usize = 12;

/// What an ESP suite adds to a packet. Everything but the SA's own header follows from these three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EspSizes {
    /// Length of the IV.
    pub iv: usize,
    /// Length of the ICV.
    pub icv: usize,
    /// Payload, padding and trailer together are a multiple of this (RFC 4303 section 2.4). At least 1.
    pub pad_to: usize,
}

impl EspSizes {
    /// The same suite without an IV in each packet (RFC 8750), which counter modes allow.
    pub fn with_implicit_iv(self) -> Self {
        Self { iv: 0, ..self }
    }
}

impl From<EspSuite> for EspSizes {
    fn from(suite: EspSuite) -> Self {
        Self { iv: suite.iv_len(), icv: suite.icv_len(), pad_to: suite.pad_to() }
    }
}

/// An SA of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Esp {
    /// What its suite adds.
    pub sizes: EspSizes,
    /// Tunnel or transport.
    pub mode: Mode,
    /// In UDP (RFC 3948).
    pub encap: bool,
}

impl Esp {
    /// Length of the packet that protects one of `packet` bytes with an IP header of `ip` bytes.
    pub fn protected_len(self, packet: usize, ip: usize) -> usize {
        let text = match self.mode {
            Mode::Tunnel => packet,
            Mode::Transport => packet.saturating_sub(ip),
        };
        let udp = if self.encap { udp::HEADER_LEN } else { 0 };
        let padded = (text + esp::TRAILER_LEN).next_multiple_of(self.sizes.pad_to.max(1));
        ip + udp + esp::HEADER_LEN + self.sizes.iv + padded + self.sizes.icv
    }
}

/// What is done to a call's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    Clear,
    /// Nothing, and the headers of IP, UDP and RTP are compressed on the line to so many bytes.
    Compressed(usize),
    /// SRTP (RFC 3711), with an authentication tag of so many bytes.
    Srtp(usize),
    /// IPsec.
    Esp(Esp),
    /// IPsec in tunnel mode, where the inner headers are compressed to so many bytes before (RFC 5856).
    CompressedEsp(Esp, usize),
}

/// A call's packets on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// The version of IP, inside and outside of a tunnel.
    pub version: IpVersion,
    /// What is done to them.
    pub protection: Protection,
    /// What the line's own framing adds to each.
    pub link: usize,
}

impl Wire {
    /// Length of a packet with `payload` bytes of speech.
    pub fn packet_len(self, payload: usize) -> usize {
        let ip = header_len(self.version);
        let clear = ip + udp::HEADER_LEN + RTP_HEADER_LEN + payload;
        self.link
            + match self.protection {
                Protection::Clear => clear,
                Protection::Compressed(headers) => headers + payload,
                Protection::Srtp(tag) => clear + tag,
                Protection::Esp(esp) => esp.protected_len(clear, ip),
                Protection::CompressedEsp(esp, headers) => {
                    Esp { mode: Mode::Tunnel, ..esp }.protected_len(headers + payload, ip)
                }
            }
    }
}

/// Length of an IP header.
pub const fn header_len(version: IpVersion) -> usize {
    match version {
        IpVersion::V4 => v4::HEADER_LEN,
        IpVersion::V6 => v6::HEADER_LEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::{CRTP, ROHC, SRTP_SHA1_80};
    use crate::suite::suite;

    fn esp(words: &str) -> Esp {
        Esp { sizes: suite(words).unwrap().into(), mode: Mode::Tunnel, encap: false }
    }

    fn len(protection: Protection) -> usize {
        Wire { version: IpVersion::V4, protection, link: 0 }.packet_len(40)
    }

    /// Sums of the header lengths of the RFCs, by hand, for 40 bytes of speech.
    #[test]
    fn forty_bytes_of_speech_over_ipv4() {
        let gcm = esp("aes128gcm16");
        for (expected, protection) in [
            (80, Protection::Clear),
            (44, Protection::Compressed(CRTP)),
            (90, Protection::Srtp(SRTP_SHA1_80)),
            (152, Protection::Esp(esp("aes128-sha1"))),
            (136, Protection::Esp(gcm)),
            (136, Protection::Esp(esp("chacha20poly1305"))),
            (144, Protection::Esp(Esp { encap: true, ..gcm })),
            (128, Protection::Esp(esp("aes128ccm8"))),
            (128, Protection::Esp(Esp { sizes: gcm.sizes.with_implicit_iv(), ..gcm })),
            (116, Protection::Esp(Esp { mode: Mode::Transport, ..gcm })),
            (100, Protection::CompressedEsp(gcm, ROHC)),
            (92, Protection::CompressedEsp(Esp { sizes: gcm.sizes.with_implicit_iv(), ..gcm }, ROHC)),
        ] {
            assert_eq!(len(protection), expected, "{protection:?}");
        }
    }

    #[test]
    fn ipv6_and_the_line_add_their_headers() {
        let wire = |protection, link| Wire { version: IpVersion::V6, protection, link };
        assert_eq!(wire(Protection::Clear, 0).packet_len(40), 100);
        // Outer 40, ESP 8, IV 8, 100 and trailer 2 padded to 104, ICV 16.
        assert_eq!(wire(Protection::Esp(esp("aes128gcm16")), 0).packet_len(40), 176);
        assert_eq!(wire(Protection::Clear, 18).packet_len(40), 118);
    }
}
