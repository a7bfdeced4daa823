//! Messages encoded by hand from the figures of RFC 7296, so that writer and parser are not only tested
//! against each other.

use super::*;
use core::net::Ipv4Addr;
use std::vec::Vec;

/// An IKE_SA_INIT request with SAi1, KEi, Ni, and two notifications.
fn ike_sa_init() -> Vec<u8> {
    let parts: [&[u8]; 13] = [
        // Figure 4, header: both SPIs, next payload SA, version 2.0, exchange 34, flag I, message ID 0,
        // length.
        &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[33, 0x20, 34, 0x08, 0, 0, 0, 0, 0, 0, 0, 184],
        // Figure 5, generic payload header of SA: next payload KE, not critical, 4 + 36 + 36 bytes.
        &[34, 0, 0, 76],
        // Figure 7, a proposal of 8 + 12 + 8 + 8 bytes, not the last: number 1, IKE, no SPI, 3 transforms.
        &[2, 0, 0, 36, 1, 1, 0, 3],
        // Figure 8, ENCR_AES_GCM_16 (20), with Figure 9, Key Length (14) of 256 bits in the short format.
        &[3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 1, 0],
        // PRF_HMAC_SHA2_256 (5), and Curve25519 (31) as the last transform.
        &[3, 0, 0, 8, 2, 0, 0, 5, 0, 0, 0, 8, 4, 0, 0, 31],
        // The last proposal: number 2, IKE, no SPI, 3 transforms: AES_CBC with 128 bits, HMAC_SHA2_256_128,
        // 3072-bit MODP.
        &[0, 0, 0, 36, 2, 1, 0, 3],
        &[3, 0, 0, 12, 1, 0, 0, 12, 0x80, 14, 0, 128],
        &[3, 0, 0, 8, 3, 0, 0, 12, 0, 0, 0, 8, 4, 0, 0, 15],
        // Figure 10: next payload Nonce, group 31, 32 bytes of public value.
        &[40, 0, 0, 40, 0, 31, 0, 0],
        &[0xaa; 32],
        // Figure 15: next payload N, 16 bytes of nonce. Figure 16: next payload N, no SPI, 16430 without
        // data.
        &[
            41, 0, 0, 20, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb,
            0xbb, 0xbb, 41, 0, 0, 8, 0, 0, 0x40, 0x2e,
        ],
        // RFC 7427 figure 3: the last payload, no SPI, 16431 with SHA2-256 (2) and SHA2-512 (4).
        &[0, 0, 0, 12, 0, 0, 0x40, 0x2f, 0, 2, 0, 4],
    ];
    parts.concat()
}

#[test]
fn ike_sa_init_is_written_as_in_the_figures() {
    let key_256 = [Attribute::from_key_length(256)];
    let key_128 = [Attribute::from_key_length(128)];
    let first = [
        TransformRepr::encr(EncrId::AES_GCM_16, &key_256),
        TransformRepr::prf(PrfId::HMAC_SHA2_256),
        TransformRepr::ke(KeMethod::CURVE25519),
    ];
    let second = [
        TransformRepr::encr(EncrId::AES_CBC, &key_128),
        TransformRepr::integ(IntegId::HMAC_SHA2_256_128),
        TransformRepr::ke(KeMethod::MODP_3072),
    ];
    let proposals = [
        ProposalRepr { number: 1, protocol: ProtocolId::IKE, spi: &[], transforms: &first },
        ProposalRepr { number: 2, protocol: ProtocolId::IKE, spi: &[], transforms: &second },
    ];
    let mut buf = [0xee; 300];
    let mut writer = Writer::new(&mut buf, &header(ExchangeType::IKE_SA_INIT)).unwrap();
    writer.sa(&proposals).unwrap();
    writer.ke(&Ke { method: KeMethod::CURVE25519, data: &[0xaa; 32] }).unwrap();
    writer.nonce(&Nonce::parse(&[0xbb; 16]).unwrap()).unwrap();
    writer.notify(&Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[])).unwrap();
    writer.notify(&Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, &[0, 2, 0, 4])).unwrap();
    assert_eq!(writer.finish().unwrap(), ike_sa_init());
    assert!(buf[184..].iter().all(|byte| *byte == 0xee));
}

#[test]
fn ike_sa_init_is_parsed_as_in_the_figures() {
    let bytes = ike_sa_init();
    let message = Message::parse(&bytes).unwrap();
    assert_eq!(message.header().length, 184);
    assert_eq!(message.header().exchange, ExchangeType::IKE_SA_INIT);
    let payloads: Vec<_> = message.payloads().map(Result::unwrap).collect();
    let offsets: Vec<_> = payloads.iter().map(|payload| (payload.kind.0, payload.at)).collect();
    assert_eq!(offsets, [(33, 28), (34, 104), (40, 144), (41, 164), (41, 172)]);
    let Ok(Body::Sa(sa)) = Body::parse(&payloads[0]) else { panic!() };
    let proposals: Vec<_> = sa.proposals().collect();
    assert_eq!(proposals.len(), 2);
    let names: Vec<_> = proposals.iter().flat_map(Proposal::transforms).map(|t| t.name().unwrap()).collect();
    assert_eq!(
        names,
        [
            "ENCR_AES_GCM_16",
            "PRF_HMAC_SHA2_256",
            "Curve25519",
            "ENCR_AES_CBC",
            "AUTH_HMAC_SHA2_256_128",
            "3072-bit MODP Group"
        ]
    );
    assert_eq!(proposals[0].transforms().next().unwrap().key_length(), Some(256));
    let Ok(Body::Notify(notify)) = Body::parse(&payloads[4]) else { panic!() };
    assert!(notify.hash_algorithms().eq([HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_512]));
}

#[test]
fn an_encrypted_message_is_laid_out_as_in_the_figures() {
    let mut buf = [0xee; 200];
    let layout = SkLayout { iv: 8, block: 16, icv: 12 };
    let writer = Writer::new(&mut buf, &header(ExchangeType::INFORMATIONAL)).unwrap();
    let mut writer = writer.encrypted(layout).unwrap();
    writer.payloads().delete(&Delete::children(ProtocolId::ESP, &[[1, 2, 3, 4]]).unwrap()).unwrap();
    let sealable = writer.finish().unwrap();
    let expected: [&[u8]; 7] = [
        // Figure 4: next payload SK, exchange 37, and the length.
        &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0],
        &[46, 0x20, 37, 0x08, 0, 0, 0, 0, 0, 0, 0, 68],
        // Figure 21: the first payload inside is D; header, IV, 16 bytes of ciphertext, ICV.
        &[42, 0, 0, 40],
        &[0; 8],
        // Figure 17: the last payload inside: ESP, one SPI of 4 bytes.
        &[0, 0, 0, 12, 3, 4, 0, 1, 1, 2, 3, 4],
        // Three bytes of padding, and the pad length.
        &[0, 0, 0, 3],
        &[0; 12],
    ];
    assert_eq!(sealable.message, expected.concat());
    assert_eq!(sealable.parts, Parts { iv: 32..40, ciphertext: 40..56, icv: 56..68 });
    assert_eq!(sealable.payloads, 40..52);
    let message = Message::parse(sealable.message).unwrap();
    let payload = message.payloads().next().unwrap().unwrap();
    let Ok(Body::Encrypted(encrypted)) = Body::parse(&payload) else { panic!() };
    assert_eq!((encrypted.first, encrypted.fragment), (PayloadType::DELETE, None));
    assert_eq!(encrypted.parts(&layout), Ok(sealable.parts));
}

#[test]
fn a_fragment_is_laid_out_as_in_the_figure() {
    let layout = SkLayout { iv: 8, block: 1, icv: 16 };
    for (number, next) in [(1, 35), (2, 0)] {
        let mut buf = [0xee; 200];
        let writer = Writer::new(&mut buf, &header(ExchangeType::IKE_AUTH)).unwrap();
        let fragment = Fragment::new(number, 3).unwrap();
        let sealable = writer.fragment(layout, fragment, PayloadType::ID_I, b"chunk").unwrap();
        // RFC 7383 section 2.5: next payload (only in the first fragment), number, total.
        assert_eq!(sealable.message[28..36], [next, 0, 0, 38, 0, number as u8, 0, 3]);
        assert_eq!((sealable.message[16], sealable.message.len()), (53, 66));
        assert_eq!(sealable.message[sealable.payloads], *b"chunk");
        assert_eq!(sealable.parts, Parts { iv: 36..44, ciphertext: 44..50, icv: 50..66 });
        let message = Message::parse(sealable.message).unwrap();
        let Ok(Body::Encrypted(encrypted)) = Body::parse(&message.payloads().next().unwrap().unwrap()) else {
            panic!()
        };
        assert_eq!((encrypted.fragment, encrypted.at), (Some(fragment), 36));
        assert_eq!(encrypted.parts(&layout), Ok(sealable.parts));
    }
}

#[test]
fn traffic_selector_example_of_the_rfc() {
    // RFC 7296 section 3.13: (17, 100, 198.51.100.66-198.51.100.66), encoded as in figures 19 and 20.
    let address = Ipv4Addr::new(198, 51, 100, 66);
    let range = RangeSelector {
        protocol: 17,
        ports: Ports::new(100, 100).unwrap(),
        addresses: Addresses::V4 { start: address, end: address },
    };
    let mut buf = [0; 100];
    let mut writer = Writer::new(&mut buf, &header(ExchangeType::IKE_AUTH)).unwrap();
    writer.ts_i(&[Selector::Range(range)]).unwrap();
    let bytes = writer.finish().unwrap();
    let expected =
        [0, 0, 0, 24, 1, 0, 0, 0, 7, 17, 0, 16, 0, 100, 0, 100, 198, 51, 100, 66, 198, 51, 100, 66];
    assert_eq!(bytes[28..], expected);
}

#[test]
fn configuration_example_of_the_rfc() {
    // RFC 7296 section 3.15.2: INTERNAL_IP4_ADDRESS(198.51.100.234),
    // INTERNAL_IP4_SUBNET(198.51.100.0/255.255.255.192).
    let attributes = [
        CpAttribute { kind: CfgAttribute::INTERNAL_IP4_ADDRESS, value: &[198, 51, 100, 234] },
        CpAttribute {
            kind: CfgAttribute::INTERNAL_IP4_SUBNET,
            value: &[198, 51, 100, 0, 255, 255, 255, 192],
        },
    ];
    let mut buf = [0; 100];
    let mut writer = Writer::new(&mut buf, &header(ExchangeType::IKE_AUTH)).unwrap();
    writer.cp(CfgType::REPLY, &attributes).unwrap();
    let bytes = writer.finish().unwrap();
    let expected = [
        0, 0, 0, 28, 2, 0, 0, 0, 0, 1, 0, 4, 198, 51, 100, 234, 0, 13, 0, 8, 198, 51, 100, 0, 255, 255, 255,
        192,
    ];
    assert_eq!(bytes[28..], expected);
}
