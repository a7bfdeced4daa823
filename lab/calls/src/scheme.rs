//! Common ways to send a call, for comparison, and parsing of ESP suites.

use crate::packet::{Esp, EspOverhead, Protection};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, MacAlg, MacKind};
use casemate_ike::config::ChildAlgorithms;
use casemate_sa::Mode;
use casemate_strongswan::proposal;

/// Compressed length of the headers of IP, UDP and RTP in most packets with a UDP checksum (RFC 2508); 2
/// bytes less without a checksum.
pub const CRTP: usize = 4;
/// Authentication tag of SRTP with its default transform (RFC 3711 section 4.2.1).
pub const SRTP_SHA1_80: usize = 10;
/// Compressed length of the same headers with ROHCv2: at least 1 byte, and the UDP checksum (RFC 5225 section
/// 6.8.2.4, pt_0_crc3).
pub const ROHC: usize = 3;

/// A way to send a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Name.
    pub name: String,
    /// Protection of the packets.
    pub protection: Protection,
    /// Whether Casemate supports it, or no support is needed.
    pub is_supported: bool,
}

/// Suites by their `esp_proposals` keyword: those of RFC 8221 in use, and the best of the paper's time.
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

impl Scheme {
    fn supported(name: &str, protection: Protection) -> Self {
        Self { name: name.into(), protection, is_supported: true }
    }

    /// ESP with a suite. `words` are its proposal keywords.
    pub fn esp(words: &str, sizes: EspOverhead, mode: Mode, encap: bool) -> Self {
        let udp = if encap { " in UDP" } else { "" };
        let name = format!("ESP {mode}{udp}, {words}");
        Self { name, protection: Protection::Esp(Esp { sizes, mode, encap }), is_supported: true }
    }
}

/// Returns clear text, SRTP, ESP with each suite, and header compression. ESP uses `mode`, and UDP
/// encapsulation if `encap` is set.
pub fn common(mode: Mode, encap: bool) -> Vec<Scheme> {
    let mut choices = vec![
        Scheme::supported("IP", Protection::Clear),
        Scheme::supported("cRTP", Protection::Compressed(CRTP)),
        Scheme::supported("SRTP", Protection::Srtp(SRTP_SHA1_80)),
    ];
    choices.extend(SUITES.iter().map(|(words, suite)| Scheme::esp(words, (*suite).into(), mode, encap)));
    choices.extend(compressed(encap));
    choices
}

/// Further options of the RFCs: no IV (RFC 8750 covers these two suites) and compressed inner headers.
fn compressed(encap: bool) -> [Scheme; 2] {
    let of = |words: &str, aead: AeadAlg| {
        let sizes = EspOverhead::from(EspSuite::Combined(aead)).with_implicit_iv();
        let udp = if encap { " in UDP" } else { "" };
        Scheme {
            name: format!("ROHC, ESP tunnel{udp}, {words} without IV"),
            protection: Protection::CompressedEsp(Esp { sizes, mode: Mode::Tunnel, encap }, ROHC),
            is_supported: false,
        }
    };
    let bits = AesBits::B128;
    [of("aes128gcm16", AeadAlg::AesGcm { bits, icv: 16 }), of("aes128ccm8", AeadAlg::AesCcm { bits, icv: 8 })]
}

/// Parses one suite, such as `aes128gcm16` or `aes128-sha256`. Keywords for key exchange and sequence numbers
/// are accepted; they do not affect lengths.
///
/// # Errors
/// The error completes a sentence: what was expected.
pub fn parse_suite(text: &str) -> Result<EspSuite, String> {
    let proposals = proposal::parse_esp(text)?;
    let [only] = proposals.as_slice() else { return Err(one_expected()) };
    match &only.algorithms {
        ChildAlgorithms::EspCombined(algorithms) => match algorithms.as_slice() {
            [algorithm] => Ok(algorithm.suite()),
            _ => Err(one_expected()),
        },
        ChildAlgorithms::EspSeparate(ciphers, macs) => match (ciphers.as_slice(), macs.as_slice()) {
            ([cipher], [mac]) => Ok(EspSuite::Separate(*cipher, *mac)),
            _ => Err(one_expected()),
        },
        ChildAlgorithms::Ah(_) => Err(one_expected()),
    }
}

fn one_expected() -> String {
    "the algorithms of one SA were expected, such as aes128gcm16 or aes128-sha256".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Codec;
    use crate::packet::PacketFormat;
    use crate::plan::Plan;
    use casemate_wire::ip::IpVersion;

    #[test]
    fn proposal_keywords_parse_to_their_suites() {
        for (words, expected) in SUITES {
            assert_eq!(parse_suite(words), Ok(expected), "{words}");
        }
    }

    /// Computed by hand from the formats: IP, cRTP, SRTP, AES-GCM, and the two with compressed headers, on
    /// 128 kbit/s.
    #[test]
    fn number_of_calls_on_the_papers_line() {
        let counts = |codec: &str| {
            let stream = Codec::named(codec).unwrap().stream(None).unwrap();
            let choices = common(Mode::Tunnel, false);
            let calls = |choice: &Scheme| {
                let wire = PacketFormat { version: IpVersion::V4, protection: choice.protection, link: 0 };
                Plan { line_rate: 128_000, stream, packet_len: wire.packet_len(stream.payload) }.calls()
            };
            let places = [0, 1, 2, 3, 10, 11];
            places.map(|place| calls(&choices[place]))
        };
        assert_eq!(counts("g729"), [5, 13, 4, 2, 4, 5]);
        assert_eq!(counts("g723"), [7, 17, 6, 4, 6, 7]);
        assert_eq!(counts("g711"), [1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn scheme_names_are_unique() {
        let mut names: Vec<String> =
            common(Mode::Tunnel, true).into_iter().map(|choice| choice.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (count, 12));
    }

    #[test]
    fn parses_a_single_suite() {
        let names = |text| parse_suite(text).map(|suite| suite.to_string());
        assert_eq!(names("aes128gcm16-x25519-esn"), Ok("ENCR_AES_GCM_16-128".into()));
        assert_eq!(names("3des-sha1"), Ok("ENCR_3DES/AUTH_HMAC_SHA1_96".into()));
        assert_eq!(names("aes256gmac"), Ok("ENCR_NULL/AUTH_AES_256_GMAC".into()));
    }

    #[test]
    fn rejects_zero_or_several_suites() {
        for text in ["aes128gcm16-aes256gcm16", "aes128-sha1-sha256", "default"] {
            assert_eq!(parse_suite(text), Err(one_expected()), "{text}");
        }
        assert!(parse_suite("rot13").unwrap_err().contains("names no algorithm"));
        assert!(parse_suite("aes128").unwrap_err().contains("integrity"));
    }
}
