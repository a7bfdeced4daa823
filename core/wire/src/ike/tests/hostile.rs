//! Malicious messages. Tests that are named after a vulnerability reproduce it.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

/// Parses everything in a message.
fn parse_all(bytes: &[u8]) {
    let Ok(message) = Message::parse(bytes) else { return };
    for payload in message.payloads().map_while(Result::ok) {
        if let Ok(body) = Body::parse(&payload) {
            parse_all_fields(body);
        }
    }
}

fn parse_all_fields(body: Body<'_>) {
    match body {
        Body::Sa(sa) => {
            let transforms: Vec<_> = sa.proposals().flat_map(|proposal| proposal.transforms()).collect();
            assert!(!transforms.is_empty());
            for transform in transforms {
                let _ = (transform.key_length(), transform.has_unknown_attribute(), transform.name());
            }
        }
        Body::TsI(ts) | Body::TsR(ts) => assert!(ts.selectors().count() > 0),
        Body::Delete(delete) => assert!(delete.spis().len() <= 65_535),
        Body::Cp(cp) => cp.attributes().for_each(|attribute| {
            let _ = (attribute.v4(), attribute.v6(), attribute.v4_subnet(), attribute.v6_prefix());
        }),
        Body::Notify(notify) => assert!(notify.hash_algorithms().count() <= 40_000),
        Body::Cert(cert) => assert!(cert.hash_and_url().is_none_or(|(_, url)| !url.is_empty())),
        Body::CertReq(request) => assert!(request.hashes().len() <= 4_000),
        Body::Auth(auth) => assert!(auth.signature().is_none_or(|signature| !signature.value.is_empty())),
        Body::Encrypted(encrypted) => {
            for layout in [SkLayout { iv: 8, block: 1, icv: 16 }, SkLayout { iv: 16, block: 16, icv: 12 }] {
                let _ = encrypted.parts(&layout);
            }
            let _ = sk::unpad(encrypted.content);
        }
        _ => {}
    }
}

/// One valid payload of each type.
fn valid_payloads() -> Vec<(u8, bool, Vec<u8>)> {
    let sa = [0, 0, 0, 44, 1, 3, 4, 3, 9, 9, 9, 9, 3, 0, 0, 16, 1, 0, 0, 20, 0x80, 14, 1, 0, 0x40, 1, 0, 0];
    let sa = [&sa[..], &[3, 0, 0, 8, 4, 0, 0, 31, 0, 0, 0, 8, 5, 0, 0, 1]].concat();
    let v4 = [7, 17, 0, 16, 0, 1, 0, 2, 10, 0, 0, 1, 10, 0, 0, 2];
    let v6 = [&[8, 0, 0, 40, 0, 0, 0xff, 0xff][..], &[1; 16], &[2; 16]].concat();
    [
        (33, sa),
        (34, [&[0, 31, 0, 0][..], &[7; 32]].concat()),
        (35, [&[2, 0, 0, 0][..], b"example.com"].concat()),
        (36, [&[1, 0, 0, 0][..], &[192, 0, 2, 1]].concat()),
        (37, [&[12][..], &[1; 20], b"http://example.com"].concat()),
        (38, [&[4][..], &[2; 40]].concat()),
        (39, [&[14, 0, 0, 0, 2, 0x30, 0][..], &[3; 64]].concat()),
        (40, std::vec![4; 32]),
        (41, [&[0, 0, 0x40, 4][..], &[5; 20]].concat()),
        (42, [&[3, 4, 0, 2][..], &[6; 8]].concat()),
        (43, b"vendor".to_vec()),
        (44, [&[2, 0, 0, 0], &v4[..], &v6].concat()),
        (45, [&[1, 0, 0, 0], &v6[..]].concat()),
        (47, [&[1, 0, 0, 0, 0, 1, 0, 0, 0, 15, 0, 17][..], &[8; 17]].concat()),
        (48, std::vec![1, 1, 0, 6, 1, 2]),
        (200, std::vec![9; 3]),
        (53, [&[0, 1, 0, 2][..], &[10; 48]].concat()),
    ]
    .map(|(kind, body)| (kind, false, body))
    .into()
}

fn valid_message() -> Vec<u8> {
    let owned = valid_payloads();
    let payloads: Vec<_> = owned.iter().map(|(kind, critical, body)| (*kind, *critical, &body[..])).collect();
    message(&payloads)
}

#[test]
fn every_valid_payload_is_parsed() {
    assert_eq!(fault(&valid_message()), None);
    parse_all(&valid_message());
}

#[test]
fn a_message_cut_anywhere_is_an_error() {
    let whole = valid_message();
    for len in 0..whole.len() {
        assert!(fault(&whole[..len]).is_some(), "{len}");
        // The same with a matching message length: the payload chain ends early.
        let mut cut = whole[..len].to_vec();
        if len >= HEADER_LEN {
            cut[24..28].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
            assert!(fault(&cut).is_some(), "{len}");
        }
    }
}

#[test]
fn a_payload_cut_anywhere_never_panics() {
    for (kind, critical, body) in valid_payloads() {
        for len in 0..body.len() {
            parse_all(&message(&[(kind, critical, &body[..len])]));
        }
    }
}

#[test]
fn no_changed_byte_causes_a_panic() {
    for (kind, critical, body) in valid_payloads() {
        let whole = message(&[(kind, critical, &body)]);
        for at in 0..whole.len() {
            for value in 0..=255 {
                let mut changed = whole.clone();
                changed[at] = value;
                parse_all(&changed);
            }
        }
    }
}

#[test]
fn no_extreme_value_of_two_bytes_causes_a_panic() {
    for (kind, critical, body) in valid_payloads() {
        let whole = message(&[(kind, critical, &body)]);
        for at in HEADER_LEN..whole.len() - 1 {
            for value in (0..64).chain([0x7fff, 0x8000, 0xfffe, 0xffff]) {
                let mut changed = whole.clone();
                changed[at..at + 2].copy_from_slice(&u16::to_be_bytes(value));
                parse_all(&changed);
            }
        }
    }
}

#[test]
fn cve_2015_3991_payloads_of_ikev1_are_unknown() {
    let sa = valid_payloads().remove(0).2;
    for kind in 1..=32 {
        let bytes = message(&[(kind, false, &sa)]);
        let payload = Message::parse(&bytes).unwrap().payloads().next().unwrap().unwrap();
        assert_eq!(Body::parse(&payload), Ok(Body::Unknown(&sa)), "{kind}");
        let critical = message(&[(kind, true, &sa)]);
        assert_eq!(fault(&critical), Some(Fault::UnsupportedCriticalPayload { payload: PayloadType(kind) }));
    }
    // The reverse: an IKEv1 message with IKEv2 payloads is rejected because of its version.
    let mut bytes = valid_message();
    bytes[17] = 0x10;
    assert_eq!(fault(&bytes), Some(Fault::LowerMajorVersion { version: Version(0x10) }));
}

#[test]
fn cve_2026_12413_a_fragment_after_up_to_300_unknown_payloads() {
    for count in 0..=300 {
        let mut payloads = std::vec![(200, false, &[][..]); count];
        let fragment = [0, 1, 0, 2, 0];
        payloads.push((53, false, &fragment));
        let bytes = message(&payloads);
        let found = Message::parse(&bytes).unwrap().payloads().filter(Result::is_ok).count();
        assert_eq!(found, (count + 1).min(MAX_PAYLOADS));
        let expected = (count >= MAX_PAYLOADS).then_some(Fault::TooManyPayloads { limit: MAX_PAYLOADS });
        assert_eq!(fault(&bytes), expected);
    }
}

#[test]
fn cve_2023_38711_identities_of_every_type_and_length() {
    for kind in 0..=255 {
        for len in [0, 1, 3, 4, 5, 15, 16, 17, 1_000] {
            let body = [&[kind, 0, 0, 0], &std::vec![b'x'; len][..]].concat();
            parse_all(&message(&[(35, false, &body), (36, false, &body)]));
        }
    }
}

#[test]
fn cve_2023_38712_several_delete_payloads_in_one_message() {
    let (ike, esp) = ([1, 0, 0, 0], [3, 4, 0, 1, 1, 2, 3, 4]);
    let bytes = message(&[(42, false, &ike), (42, false, &esp), (42, false, &ike), (42, false, &esp)]);
    let bodies: Vec<_> = Message::parse(&bytes)
        .unwrap()
        .payloads()
        .map(|payload| Body::parse(&payload.unwrap()).unwrap())
        .collect();
    let child = Body::Delete(Delete::children(ProtocolId::ESP, &[[1, 2, 3, 4]]).unwrap());
    assert_eq!(bodies, [Body::Delete(Delete::IKE_SA), child, Body::Delete(Delete::IKE_SA), child]);
}

#[test]
fn the_critical_bit_of_a_known_type_is_ignored() {
    let owned = valid_payloads();
    for (kind, _, body) in owned.iter().filter(|(kind, ..)| *kind != 200) {
        assert_eq!(fault(&message(&[(*kind, true, body)])), None, "{kind}");
    }
}

proptest! {
    #[test]
    fn any_bytes_never_panic(bytes in vec(any::<u8>(), 0..600)) {
        parse_all(&bytes);
    }

    #[test]
    fn any_payloads_never_panic(
        payloads in vec((prop_oneof![33u8..=54, any::<u8>()], any::<bool>(), vec(any::<u8>(), 0..120)), 0..8),
    ) {
        let borrowed: Vec<_> =
            payloads.iter().map(|(kind, critical, body)| (*kind, *critical, &body[..])).collect();
        parse_all(&message(&borrowed));
    }

    #[test]
    fn valid_messages_with_a_few_changed_bytes_never_panic(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = valid_message();
        for (at, value) in changes {
            *at.get_mut(&mut bytes) = value;
        }
        bytes[17] = 0x20;
        let len = u32::try_from(bytes.len()).unwrap();
        bytes[24..28].copy_from_slice(&len.to_be_bytes());
        parse_all(&bytes);
    }
}
