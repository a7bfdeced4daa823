//! The usual ways to send a call, to be seen side by side.

use crate::packet::{Esp, EspSizes, Protection};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_sa::Mode;

/// What RFC 2508 leaves of the headers of IP, UDP and RTP in most packets, with a UDP checksum; 2 bytes less without.
pub const CRTP: usize = 4;
/// Authentication tag of SRTP with its default transform (RFC 3711 section 4.2.1).
pub const SRTP_SHA1_80: usize = 10;
/// What ROHCv2 leaves of the same headers: 1 byte at least, and the UDP checksum (RFC 5225 section 6.8.2.4, pt_0_crc3).
pub const ROHC: usize = 3;

/// A way to send a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// What it is called.
    pub name: String,
    /// What is done to the packets.
    pub protection: Protection,
    /// Whether Casemate does it, or nothing need be done.
    pub is_offered: bool,
}

/// Suites as `esp_proposals` spells them: those of RFC 8221 that are in use, and the best of the paper's time.
const SUITES: [(&str, EspSuite); 7] = [
    ("aes128gcm16", EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 })),
    ("chacha20poly1305", EspSuite::Combined(AeadAlg::ChaCha20Poly1305)),
    ("aes128ccm8", EspSuite::Combined(AeadAlg::AesCcm { bits: AesBits::B128, icv: 8 })),
    ("aes128-sha256", separate(CipherAlg::AesCbc(AesBits::B128), MacKind::HmacSha256)),
    ("aes128-sha1", separate(CipherAlg::AesCbc(AesBits::B128), MacKind::HmacSha1)),
    ("3des-sha1", separate(CipherAlg::TripleDesCbc, MacKind::HmacSha1)),
    ("null-sha256", separate(CipherAlg::Null, MacKind::HmacSha256)),
];

const fn separate(cipher: CipherAlg, mac: MacKind) -> EspSuite {
    EspSuite::Separate(cipher, MacAlg::standard(mac))
}

impl Choice {
    fn offered(name: &str, protection: Protection) -> Self {
        Self { name: name.into(), protection, is_offered: true }
    }

    /// ESP with a suite, called by the words that spell it.
    pub fn esp(words: &str, sizes: EspSizes, mode: Mode, encap: bool) -> Self {
        let udp = if encap { " in UDP" } else { "" };
        let name = format!("ESP {mode}{udp}, {words}");
        Self { name, protection: Protection::Esp(Esp { sizes, mode, encap }), is_offered: true }
    }
}

/// Clear, SRTP, ESP with each suite, and what header compression would bring; ESP in this mode, and in UDP if that is wanted.
pub fn usual(mode: Mode, encap: bool) -> Vec<Choice> {
    let mut choices = vec![
        Choice::offered("IP", Protection::Clear),
        Choice::offered("cRTP", Protection::Compressed(CRTP)),
        Choice::offered("SRTP", Protection::Srtp(SRTP_SHA1_80)),
    ];
    choices.extend(SUITES.iter().map(|(words, suite)| Choice::esp(words, (*suite).into(), mode, encap)));
    choices.extend(compressed(encap));
    choices
}

/// What the RFCs allow beyond that: no IV (RFC 8750 has these two suites for it), and compressed inner headers.
fn compressed(encap: bool) -> [Choice; 2] {
    let of = |words: &str, aead: AeadAlg| {
        let sizes = EspSizes::from(EspSuite::Combined(aead)).with_implicit_iv();
        let udp = if encap { " in UDP" } else { "" };
        Choice {
            name: format!("ROHC, ESP tunnel{udp}, {words} without IV"),
            protection: Protection::CompressedEsp(Esp { sizes, mode: Mode::Tunnel, encap }, ROHC),
            is_offered: false,
        }
    };
    let bits = AesBits::B128;
    [of("aes128gcm16", AeadAlg::AesGcm { bits, icv: 16 }), of("aes128ccm8", AeadAlg::AesCcm { bits, icv: 8 })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::packet::Wire;
    use crate::plan::Plan;
    use crate::suite::suite;
    use casemate_wire::ip::IpVersion;

    #[test]
    fn words_spell_their_suites() {
        for (words, expected) in SUITES {
            assert_eq!(suite(words), Ok(expected), "{words}");
        }
    }

    /// Worked out by hand from the formats: IP, cRTP, SRTP, AES-GCM, and the two with compressed headers, on 128 kbit/s.
    #[test]
    fn calls_on_the_line_of_the_paper() {
        let counts = |codec: &str| {
            let stream = Codec::named(codec).unwrap().stream(None).unwrap();
            let choices = usual(Mode::Tunnel, false);
            let calls = |choice: &Choice| {
                let wire = Wire { version: IpVersion::V4, protection: choice.protection, link: 0 };
                Plan { line: 128_000, stream, packet: wire.packet_len(stream.payload) }.calls()
            };
            let places = [0, 1, 2, 3, 10, 11];
            places.map(|place| calls(&choices[place]))
        };
        assert_eq!(counts("g729"), [5, 13, 4, 2, 4, 5]);
        assert_eq!(counts("g723"), [7, 17, 6, 4, 6, 7]);
        assert_eq!(counts("g711"), [1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn names_are_different() {
        let mut names: Vec<String> =
            usual(Mode::Tunnel, true).into_iter().map(|choice| choice.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (count, 12));
    }
}
