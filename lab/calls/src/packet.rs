//! Length of a voice packet on the line, with all headers.
//!
//! IPv4 without options, IPv6 without extension headers, RTP without contributing sources. Lengths are in
//! bytes.

use casemate_crypto::EspSuite;
use casemate_sa::Mode;
use casemate_wire::ip::{IpVersion, v4, v6};
use casemate_wire::{esp, udp};

/// Length of the RTP header (RFC 3550 section 5.1).
pub const RTP_HEADER_LEN: usize = 12;

/// Lengths that an ESP suite adds to a packet. With the ESP header they determine the length of every
/// protected packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EspOverhead {
    /// Length of the IV.
    pub iv: usize,
    /// Length of the ICV.
    pub icv: usize,
    /// Alignment of payload, padding and trailer together (RFC 4303 section 2.4). At least 1.
    pub pad_to: usize,
}

impl From<EspSuite> for EspOverhead {
    fn from(suite: EspSuite) -> Self {
        Self { iv: suite.iv_len(), icv: suite.icv_len(), pad_to: suite.pad_to() }
    }
}

/// Encapsulation of an ESP SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Esp {
    /// Overhead of the suite.
    pub sizes: EspOverhead,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// Whether ESP is encapsulated in UDP (RFC 3948).
    pub encap: bool,
}

impl Esp {
    /// Length of the protected form of a packet of `packet` bytes with an IP header of `ip` bytes.
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

/// Protection of the packets of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// None.
    Clear,
    /// None, but the headers of IP, UDP and RTP are compressed on the line to this many bytes.
    Compressed(usize),
    /// SRTP (RFC 3711) with an authentication tag of this many bytes.
    Srtp(usize),
    /// IPsec.
    Esp(Esp),
    /// IPsec in tunnel mode, with the inner headers compressed to this many bytes (RFC 5856).
    CompressedEsp(Esp, usize),
}

/// Format of the packets of a call on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketFormat {
    /// IP version, inside and outside of a tunnel.
    pub version: IpVersion,
    /// Protection of the packets.
    pub protection: Protection,
    /// Framing overhead of the line per packet, in bytes.
    pub link: usize,
}

impl PacketFormat {
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

/// Length of an IP header in bytes.
pub const fn header_len(version: IpVersion) -> usize {
    match version {
        IpVersion::V4 => v4::HEADER_LEN,
        IpVersion::V6 => v6::HEADER_LEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::parse_suite;
    use crate::scheme::{SRTP_SHA1_80, crtp_len, rohc_len};

    fn esp(words: &str) -> Esp {
        Esp { sizes: parse_suite(words).unwrap().into(), mode: Mode::Tunnel, encap: false }
    }

    fn len(protection: Protection) -> usize {
        PacketFormat { version: IpVersion::V4, protection, link: 0 }.packet_len(40)
    }

    /// Sums of the header lengths in the RFCs, computed by hand, for 40 bytes of speech.
    #[test]
    fn packet_length_of_40_bytes_of_speech_over_ipv4() {
        let gcm = esp("aes128gcm16");
        for (expected, protection) in [
            (80, Protection::Clear),
            (44, Protection::Compressed(crtp_len(true))),
            (42, Protection::Compressed(crtp_len(false))),
            (90, Protection::Srtp(SRTP_SHA1_80)),
            (152, Protection::Esp(esp("aes128-sha1"))),
            (136, Protection::Esp(gcm)),
            (136, Protection::Esp(esp("chacha20poly1305"))),
            (144, Protection::Esp(Esp { encap: true, ..gcm })),
            (128, Protection::Esp(esp("aes128ccm8"))),
            (128, Protection::Esp(esp("aes128gcm16iiv"))),
            (120, Protection::Esp(esp("aes128ccm8iiv"))),
            (116, Protection::Esp(Esp { mode: Mode::Transport, ..gcm })),
            (100, Protection::CompressedEsp(gcm, rohc_len(true))),
            (92, Protection::CompressedEsp(esp("aes128gcm16iiv"), rohc_len(true))),
            (88, Protection::CompressedEsp(esp("aes128gcm16iiv"), rohc_len(false))),
            (84, Protection::CompressedEsp(esp("aes128ccm8iiv"), rohc_len(true))),
            (80, Protection::CompressedEsp(esp("aes128ccm8iiv"), rohc_len(false))),
        ] {
            assert_eq!(len(protection), expected, "{protection:?}");
        }
    }

    #[test]
    fn ipv6_and_link_headers_add_to_the_length() {
        let wire = |protection, link| PacketFormat { version: IpVersion::V6, protection, link };
        assert_eq!(wire(Protection::Clear, 0).packet_len(40), 100);
        // Outer 40, ESP 8, IV 8, 100 and trailer 2 padded to 104, ICV 16.
        assert_eq!(wire(Protection::Esp(esp("aes128gcm16")), 0).packet_len(40), 176);
        assert_eq!(wire(Protection::Clear, 18).packet_len(40), 118);
    }
}
