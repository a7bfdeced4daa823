//! A suite, as `esp_proposals` of swanctl.conf spells it.

use casemate_crypto::EspSuite;
use casemate_ike::config::ChildAlgorithms;
use casemate_ike::spelling::proposal;

/// Reads one suite, such as `aes128gcm16` or `aes128-sha256`. Words about key exchange and sequence numbers may stand there; they
/// change no length.
///
/// # Errors
/// The end of a sentence about the text: what was expected.
pub fn suite(text: &str) -> Result<EspSuite, String> {
    let proposals = proposal::esp(text)?;
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

    #[test]
    fn one_suite_is_read() {
        let names = |text| suite(text).map(|suite| suite.to_string());
        assert_eq!(names("aes128gcm16-x25519-esn"), Ok("ENCR_AES_GCM_16-128".into()));
        assert_eq!(names("3des-sha1"), Ok("ENCR_3DES/AUTH_HMAC_SHA1_96".into()));
        assert_eq!(names("aes256gmac"), Ok("ENCR_NULL/AUTH_AES_256_GMAC".into()));
    }

    #[test]
    fn no_suite_and_several_are_refused() {
        for text in ["aes128gcm16-aes256gcm16", "aes128-sha1-sha256", "default"] {
            assert_eq!(suite(text), Err(one_expected()), "{text}");
        }
        assert!(suite("rot13").unwrap_err().contains("names no algorithm"));
        assert!(suite("aes128").unwrap_err().contains("integrity"));
    }
}
