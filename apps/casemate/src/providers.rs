//! The crypto providers of the program.

use casemate_crypto::{
    AeadAlg, AeadRange, AhSuite, CipherAlg, EspSuite, MacAlg, MacKind, Provider, Providers,
};
use casemate_ike::ChildTransform;
use casemate_sa::{SaParams, Transform};

/// The providers of current algorithms, in order of preference
/// ([0074](../../../docs/decisions/0074-ring.md)). Intel's library is included only if it is installed in a
/// known version and the processor has the required instructions, ring only on processors for which it is
/// the fastest, and not if the instructions for AWS-LC are chosen.
pub fn modern() -> Vec<&'static dyn Provider> {
    let mut providers: Vec<&'static dyn Provider> = Vec::new();
    if casemate_ipsec_mb::IPSEC_MB.available().is_ok() {
        providers.push(&casemate_ipsec_mb::IPSEC_MB);
    }
    if uses_ring(casemate_ring::RING.is_fastest(), std::env::var_os(AWS_LC_INSTRUCTIONS).is_some()) {
        providers.push(&casemate_ring::RING);
    }
    providers.push(&casemate_aws_lc::AWS_LC);
    providers.push(&casemate_rustcrypto::UNCOMMON);
    providers
}

/// Variable with which AWS-LC can be told not to use instructions of an x86-64 processor.
const AWS_LC_INSTRUCTIONS: &str = "OPENSSL_ia32cap";

/// Whether ring is used: on processors for which it is the fastest, unless the instructions for AWS-LC are
/// chosen, because ring would use all of them.
const fn uses_ring(is_fastest: bool, are_instructions_chosen: bool) -> bool {
    is_fastest && !are_instructions_chosen
}

/// The providers of all algorithms; the obsolete algorithms come last.
pub fn all() -> Vec<&'static dyn Provider> {
    let mut providers = modern();
    providers.push(&casemate_legacy::LEGACY);
    providers
}

/// The providers for these SAs, in order of preference. The provider of obsolete algorithms is included
/// only if an SA uses one of them.
pub fn for_sas<'a>(sas: impl IntoIterator<Item = &'a SaParams>) -> Vec<&'static dyn Provider> {
    if sas.into_iter().any(|sa| is_legacy(&sa.transform)) { all() } else { modern() }
}

/// Whether the algorithms are obsolete (DES, 3DES, MD5), for experiments and old peers only.
fn is_legacy(transform: &Transform) -> bool {
    let mac_is_legacy = |mac: MacAlg| mac.kind() == MacKind::HmacMd5;
    match transform {
        Transform::Esp { suite: EspSuite::Separate(cipher, mac), .. } => {
            matches!(cipher, CipherAlg::DesCbc | CipherAlg::TripleDesCbc) || mac_is_legacy(*mac)
        }
        Transform::Esp { suite: EspSuite::Combined(_) | EspSuite::ImplicitIv(_), .. } => false,
        Transform::Ah { suite, .. } => mac_is_legacy(suite.0),
    }
}

/// Names of the providers for the algorithms of an installed SA, chosen as [`Providers`] chooses.
pub(crate) fn name_for(transform: ChildTransform, providers: &[&'static dyn Provider]) -> String {
    let first = |able: &dyn Fn(&dyn Provider) -> bool| {
        providers.iter().find(|provider| able(**provider)).map_or("none", |provider| provider.name())
    };
    let aead = |alg: AeadAlg| aead_names(Providers(providers).aead_choice(alg, &sample_key(alg.key_len())));
    match transform {
        ChildTransform::Esp(EspSuite::Combined(alg)) => aead(alg),
        ChildTransform::Esp(EspSuite::ImplicitIv(alg)) => aead(alg.aead()),
        ChildTransform::Esp(EspSuite::Separate(cipher, mac)) => {
            let (encr, integ) = (sample_key(cipher.key_len()), sample_key(mac.key_len()));
            let joint = providers.iter().find(|p| p.etm(cipher, &encr, mac, &integ).is_ok());
            if let Some(provider) = joint {
                return provider.name().into();
            }
            let mac = first(&|provider| provider.mac(mac, &integ).is_ok());
            let cipher = match cipher {
                CipherAlg::Null => mac,
                cipher => first(&|provider| provider.cipher(cipher, &encr).is_ok()),
            };
            if cipher == mac { mac.into() } else { format!("{cipher}, {mac}") }
        }
        ChildTransform::Ah(AhSuite(mac)) => {
            first(&|provider| provider.mac(mac, &sample_key(mac.key_len())).is_ok()).into()
        }
    }
}

/// The algorithms of a transform.
pub(crate) const fn algorithms(transform: &Transform) -> ChildTransform {
    match transform {
        Transform::Esp { suite, .. } => ChildTransform::Esp(*suite),
        Transform::Ah { suite, .. } => ChildTransform::Ah(*suite),
    }
}

/// A key that protects nothing, to ask a provider whether it has an algorithm. No two of its bytes are equal,
/// because providers may refuse weak keys.
fn sample_key(len: usize) -> Vec<u8> {
    (1..=u8::MAX).cycle().take(len).collect()
}

/// Names of the providers for a combined-mode cipher, with the length up to which each is used.
fn aead_names(choice: impl Iterator<Item = (&'static str, AeadRange)>) -> String {
    let mut names = Vec::new();
    for (name, AeadRange { max_len, .. }) in choice {
        if max_len == usize::MAX {
            names.push(name.to_owned());
            // The next one is only for batches that are too small, which are not shown.
            break;
        }
        names.push(format!("{name} to {max_len} bytes"));
    }
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xfrm::XfrmFile;

    #[test]
    fn legacy_provider_is_used_only_for_legacy_algorithms() {
        let names = |words: &str| {
            let line = format!("xfrm state add src 192.0.2.1 dst 192.0.2.2 spi 256 {words}");
            let file = XfrmFile::parse(line.as_bytes()).unwrap();
            let providers = for_sas(file.states.iter().map(|state| &state.value));
            providers
                .iter()
                .map(|p| p.name())
                .filter(|name| !["ipsec-mb", "ring"].contains(name))
                .collect::<Vec<_>>()
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
    fn a_provider_for_short_packets_is_shown_with_its_limit() {
        let of = |max_len| AeadRange { max_len, ..AeadRange::ALL };
        let names = |choice: &[(&'static str, AeadRange)]| aead_names(choice.iter().copied());
        assert_eq!(names(&[("a", of(512)), ("b", AeadRange::ALL)]), "a to 512 bytes, b");
        assert_eq!(names(&[("a", AeadRange { min_batch: 2, ..AeadRange::ALL }), ("b", AeadRange::ALL)]), "a");
        assert_eq!(names(&[]), "none");
    }

    #[test]
    fn ring_is_left_out_if_instructions_are_chosen() {
        assert!(uses_ring(true, false));
        assert!(!uses_ring(true, true) && !uses_ring(false, false));
    }

    #[test]
    fn ipsec_mb_comes_first_if_available() {
        let is_first = all().first().is_some_and(|first| first.name() == "ipsec-mb");
        assert_eq!(is_first, casemate_ipsec_mb::IPSEC_MB.available().is_ok());
    }
}
