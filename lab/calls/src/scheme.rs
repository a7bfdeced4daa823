//! Common ways to send a call, for comparison, and parsing of ESP suites.

use crate::packet::{Esp, EspOverhead, Protection};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, ImplicitIvAlg, MacAlg, MacKind};
use casemate_ike::config::ChildAlgorithms;
use casemate_sa::Mode;
use casemate_strongswan::proposal;

/// Authentication tag of SRTP with its default transform (RFC 3711 section 4.2.1), in bytes.
pub const SRTP_SHA1_80: usize = 10;
/// CID of ROHC, in bytes, for up to 128 calls of an SA. The first call has none with a MAX_CID of at most 15
/// (RFC 5795 section 5.1.2).
pub const ROHC_CID: usize = 1;

/// Compressed length of the headers of IP, UDP and RTP in most packets with cRTP (RFC 2508 section 1), in
/// bytes.
pub const fn crtp_len(has_udp_checksum: bool) -> usize {
    if has_udp_checksum { 4 } else { 2 }
}

/// Compressed length of the same headers with ROHCv2, in bytes, without a CID: 1 byte, and the UDP checksum
/// (RFC 5225 section 6.8.2.4, pt_0_crc3).
pub const fn rohc_len(has_udp_checksum: bool) -> usize {
    if has_udp_checksum { 3 } else { 1 }
}

/// What the schemes of a comparison have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemeOptions {
    /// Mode of ESP. Header compression uses tunnel mode always.
    pub mode: Mode,
    /// Whether ESP is encapsulated in UDP (RFC 3948).
    pub encap: bool,
    /// Whether the packets have UDP checksums, which compressed headers contain. IPv6 requires them.
    pub has_udp_checksum: bool,
}

/// A way to send a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Name.
    pub name: String,
    /// Protection of the packets.
    pub protection: Protection,
}

const GCM: AeadAlg = AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 };
const GCM_IIV: (&str, EspSuite) =
    ("aes128gcm16iiv", EspSuite::ImplicitIv(ImplicitIvAlg::AesGcm16(AesBits::B128)));
const CCM_IIV: (&str, EspSuite) =
    ("aes128ccm8iiv", EspSuite::ImplicitIv(ImplicitIvAlg::AesCcm8(AesBits::B128)));

/// Suites by their `esp_proposals` keyword: those of RFC 8221 in use, the best of the paper's time, and those
/// with the shortest packets.
const SUITES: [(&str, EspSuite); 9] = [
    ("aes128gcm16", EspSuite::Combined(GCM)),
    ("chacha20poly1305", EspSuite::Combined(AeadAlg::ChaCha20Poly1305)),
    ("aes128ccm8", EspSuite::Combined(AeadAlg::AesCcm { bits: AesBits::B128, icv: 8 })),
    GCM_IIV,
    CCM_IIV,
    ("aes128-sha256", separate(CipherAlg::AesCbc(AesBits::B128), MacKind::HmacSha256)),
    ("aes128-sha1", separate(CipherAlg::AesCbc(AesBits::B128), MacKind::HmacSha1)),
    ("3des-sha1", separate(CipherAlg::TripleDesCbc, MacKind::HmacSha1)),
    ("null-sha256", separate(CipherAlg::Null, MacKind::HmacSha256)),
];

/// Suites that are shown with header compression, by their keyword.
const COMPRESSED_SUITES: [(&str, EspSuite); 3] = [("aes128gcm16", EspSuite::Combined(GCM)), GCM_IIV, CCM_IIV];

const fn separate(cipher: CipherAlg, mac: MacKind) -> EspSuite {
    EspSuite::Separate(cipher, MacAlg::standard(mac))
}

impl Scheme {
    fn new(name: &str, protection: Protection) -> Self {
        Self { name: name.into(), protection }
    }

    /// ESP with a suite. `words` are its proposal keywords.
    pub fn esp(words: &str, sizes: EspOverhead, options: SchemeOptions) -> Self {
        let SchemeOptions { mode, encap, .. } = options;
        let udp = if encap { " in UDP" } else { "" };
        let name = format!("ESP {mode}{udp}, {words}");
        Self { name, protection: Protection::Esp(Esp { sizes, mode, encap }) }
    }

    /// ESP in tunnel mode with a suite and header compression: the length of any call of an SA but the first,
    /// whose packets may be a byte shorter. `words` are the proposal keywords of the suite.
    pub fn compressed_esp(words: &str, sizes: EspOverhead, options: SchemeOptions) -> Self {
        let SchemeOptions { encap, has_udp_checksum, .. } = options;
        let Self { name, .. } = Self::esp(words, sizes, SchemeOptions { mode: Mode::Tunnel, ..options });
        let esp = Esp { sizes, mode: Mode::Tunnel, encap };
        let protection = Protection::CompressedEsp(esp, ROHC_CID + rohc_len(has_udp_checksum));
        Self { name: format!("ROHC, {name}"), protection }
    }
}

/// Returns clear text, cRTP, SRTP, ESP with each suite, and ESP with header compression.
pub fn common(options: SchemeOptions) -> Vec<Scheme> {
    let mut choices = vec![
        Scheme::new("IP", Protection::Clear),
        Scheme::new("cRTP", Protection::Compressed(crtp_len(options.has_udp_checksum))),
        Scheme::new("SRTP", Protection::Srtp(SRTP_SHA1_80)),
    ];
    choices.extend(SUITES.map(|(words, suite)| Scheme::esp(words, suite.into(), options)));
    let compressed = COMPRESSED_SUITES;
    choices.extend(compressed.map(|(words, suite)| Scheme::compressed_esp(words, suite.into(), options)));
    choices
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

    const TUNNEL: SchemeOptions = SchemeOptions { mode: Mode::Tunnel, encap: false, has_udp_checksum: true };

    #[test]
    fn proposal_keywords_parse_to_their_suites() {
        for (words, expected) in SUITES.into_iter().chain(COMPRESSED_SUITES) {
            assert_eq!(parse_suite(words), Ok(expected), "{words}");
        }
    }

    /// Computed by hand from the formats: IP, cRTP, SRTP, AES-GCM, and three suites with compressed headers,
    /// on 128 kbit/s.
    #[test]
    fn number_of_calls_on_the_papers_line() {
        let counts = |codec: &str, options: SchemeOptions| {
            let stream = Codec::named(codec).unwrap().stream(None).unwrap();
            let choices = common(options);
            let calls = |choice: &Scheme| {
                let wire = PacketFormat { version: IpVersion::V4, protection: choice.protection, link: 0 };
                Plan { line_rate: 128_000, stream, packet_len: wire.packet_len(stream.payload) }.calls()
            };
            let places = [0, 1, 2, 3, 12, 13, 14];
            places.map(|place| calls(&choices[place]))
        };
        assert_eq!(counts("g729", TUNNEL), [5, 13, 4, 2, 4, 4, 5]);
        assert_eq!(counts("g723", TUNNEL), [7, 17, 6, 4, 5, 6, 7]);
        assert_eq!(counts("g711", TUNNEL), [1; 7]);
        let without_checksum = SchemeOptions { has_udp_checksum: false, ..TUNNEL };
        assert_eq!(counts("g729", without_checksum), [5, 14, 4, 2, 4, 4, 5]);
        assert_eq!(counts("g723", without_checksum), [7, 18, 6, 4, 6, 6, 7]);
    }

    #[test]
    fn header_compression_uses_tunnel_mode() {
        let options = SchemeOptions { mode: Mode::Transport, encap: true, ..TUNNEL };
        let last = common(options).pop().unwrap();
        assert_eq!(last.name, "ROHC, ESP tunnel in UDP, aes128ccm8iiv");
        assert!(matches!(last.protection, Protection::CompressedEsp(Esp { mode: Mode::Tunnel, .. }, 4)));
    }

    #[test]
    fn scheme_names_are_unique() {
        let mut names: Vec<String> =
            common(SchemeOptions { encap: true, ..TUNNEL }).into_iter().map(|choice| choice.name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (count, 15));
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
