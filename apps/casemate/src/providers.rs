//! Which providers of algorithms the program uses.

use casemate_crypto::{CipherAlg, EspSuite, MacAlg, MacKind, Provider};
use casemate_sa::{SaParams, Transform};

/// Those for the algorithms of today, the fastest first. Intel's library is there only where it is installed, of a version that
/// is known, and the processor has what it needs.
pub fn modern() -> Vec<&'static dyn Provider> {
    let mut providers: Vec<&'static dyn Provider> = Vec::new();
    if casemate_ipsec_mb::IPSEC_MB.available().is_ok() {
        providers.push(&casemate_ipsec_mb::IPSEC_MB);
    }
    providers.extend([&casemate_aws_lc::AWS_LC as &dyn Provider, &casemate_rustcrypto::RUSTCRYPTO]);
    providers
}

/// Those for every algorithm, the obsolete ones last.
pub fn all() -> Vec<&'static dyn Provider> {
    let mut providers = modern();
    providers.push(&casemate_legacy::LEGACY);
    providers
}

/// The providers for these SAs, in order of preference: the obsolete algorithms only if an SA names one of them.
pub fn providers<'a>(sas: impl IntoIterator<Item = &'a SaParams>) -> Vec<&'static dyn Provider> {
    if sas.into_iter().any(|sa| is_legacy(&sa.transform)) { all() } else { modern() }
}

/// Whether the algorithms are for the papers and old peers only (DES, 3DES, MD5).
fn is_legacy(transform: &Transform) -> bool {
    let mac_is_legacy = |mac: MacAlg| mac.kind() == MacKind::HmacMd5;
    match transform {
        Transform::Esp { suite: EspSuite::Separate(cipher, mac), .. } => {
            matches!(cipher, CipherAlg::DesCbc | CipherAlg::TripleDesCbc) || mac_is_legacy(*mac)
        }
        Transform::Esp { suite: EspSuite::Combined(_), .. } => false,
        Transform::Ah { suite, .. } => mac_is_legacy(suite.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xfrm::XfrmFile;

    #[test]
    fn the_legacy_provider_is_loaded_by_name() {
        let names = |words: &str| {
            let line = format!("xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 256 {words}");
            let file = XfrmFile::parse(line.as_bytes()).unwrap();
            let providers = providers(file.states.iter().map(|state| &state.value));
            providers.iter().map(|p| p.name()).filter(|name| *name != "ipsec-mb").collect::<Vec<_>>()
        };
        let sha1 = "auth sha1 0123456789abcdefghij";
        assert_eq!(names(&format!("proto ah {sha1}")), ["aws-lc", "rustcrypto"]);
        assert_eq!(names(&format!("proto esp enc aes 0123456789abcdef {sha1}")), ["aws-lc", "rustcrypto"]);
        for words in [
            format!("proto esp enc des 01234567 {sha1}"),
            format!("proto esp enc des3_ede 0123456789abcdef01234567 {sha1}"),
            "proto esp enc cipher_null '' auth md5 0123456789abcdef".into(),
            "proto ah auth md5 0123456789abcdef".into(),
        ] {
            assert_eq!(names(&words), ["aws-lc", "rustcrypto", "legacy"], "{words}");
        }
    }
    #[test]
    fn intels_library_comes_first_where_it_is_there() {
        let is_first = all().first().is_some_and(|first| first.name() == "ipsec-mb");
        assert_eq!(is_first, casemate_ipsec_mb::IPSEC_MB.available().is_ok());
    }
}
