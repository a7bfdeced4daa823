use super::*;
use std::collections::HashSet;
use std::format;
use std::string::ToString;

#[test]
fn values_without_a_name_are_their_number() {
    assert_eq!(ExchangeType(34).to_string(), "IKE_SA_INIT");
    assert_eq!(ExchangeType(33).to_string(), "33");
    assert_eq!(NotifyType(65_535).to_string(), "65535");
    assert_eq!(format!("{:>6}", EncrId(1_024)), "  1024");
}

#[test]
fn cve_2015_3991_numbers_of_ikev1_are_no_payloads_of_ikev2() {
    // IKEv1's SA is 1, its KE 4, its notification 11 (RFC 2408 section 3.1).
    for number in 1..=32 {
        assert_eq!(PayloadType(number).name(), None, "{number}");
    }
}

#[test]
fn errors_and_status_types_are_told_apart() {
    // RFC 7296 section 3.10.1 lists errors up to 44 and status types from 16384.
    for kind in NotifyType::ALL {
        assert_eq!(kind.is_error(), kind.0 < 100, "{kind}");
    }
    assert!(
        NotifyType(16_383).is_error() && !NotifyType(16_384).is_error() && !NotifyType(65_535).is_error()
    );
}

#[test]
fn no_two_values_share_a_name() {
    let names: HashSet<_> = NotifyType::ALL.iter().map(|kind| kind.name().unwrap()).collect();
    assert_eq!(names.len(), NotifyType::ALL.len());
    let names: HashSet<_> = KeMethod::ALL.iter().map(|method| method.name().unwrap()).collect();
    assert_eq!(names.len(), KeMethod::ALL.len());
}

#[test]
fn transforms_are_named_by_their_type() {
    assert_eq!(TransformType::ENCR.id_name(20), Some("ENCR_AES_GCM_16"));
    assert_eq!(TransformType::PRF.id_name(5), Some("PRF_HMAC_SHA2_256"));
    assert_eq!(TransformType::INTEG.id_name(0), Some("NONE"));
    assert_eq!(TransformType::KE.id_name(31), Some("Curve25519"));
    assert_eq!(TransformType::ADDKE7.id_name(36), Some("ml-kem-768"));
    assert_eq!(TransformType::ESN.id_name(1), Some("Extended Sequence Numbers"));
    assert_eq!(TransformType(13).id_name(1), None);
}

#[test]
fn public_values_have_the_lengths_of_the_rfcs() {
    for method in KeMethod::ALL {
        let Some(len) = method.public_len() else { continue };
        let name = method.name().unwrap();
        let bits: usize = name
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .map_while(|c| c.to_digit(10))
            .fold(0, |n, digit| n * 10 + digit as usize);
        let expected = match name {
            // RFC 8031 section 3.1.
            "Curve25519" => 32,
            "Curve448" => 56,
            // RFC 7296 section 3.4: as long as the prime.
            _ if name.contains("MODP") => bits / 8,
            // RFC 5903 section 7, RFC 5114 section 2, RFC 6954 section 3: two coordinates of whole bytes.
            _ => 2 * bits.div_ceil(8),
        };
        assert_eq!(len, expected, "{name}");
    }
    assert_eq!(KeMethod::ALL.iter().filter(|method| method.public_len().is_none()).count(), 4);
    assert_eq!(KeMethod(1_024).public_len(), None);
}
