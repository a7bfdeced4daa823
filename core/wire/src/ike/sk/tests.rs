use super::*;
use crate::ike::Body;
use proptest::prelude::*;
use std::vec;

fn payload(kind: PayloadType, body: &[u8]) -> Payload<'_> {
    Payload { kind, critical: false, next: PayloadType::NONE, body, at: 28 }
}

fn encrypted(kind: PayloadType, body: &[u8]) -> Result<Encrypted<'_>, Fault> {
    Body::parse(&payload(kind, body)).map(|body| match body {
        Body::Encrypted(encrypted) => encrypted,
        other => panic!("{other:?}"),
    })
}

#[test]
fn cve_2016_1287_cve_2022_34721_fragment_numbers() {
    for (number, total) in [(0, 0), (0, 1), (1, 0), (2, 1), (65_535, 65_534), (0, 65_535), (65_535, 0)] {
        let fault = Fault::FragmentNumber { found: number, limit: total };
        assert_eq!(Fragment::new(number, total), Err(fault));
        let body = [&number.to_be_bytes()[..], &total.to_be_bytes(), &[0; 60]].concat();
        assert_eq!(encrypted(PayloadType::SKF, &body), Err(fault));
    }
    for (number, total) in [(1u16, 1u16), (1, 65_535), (65_535, 65_535)] {
        let body = [&u16::to_be_bytes(number)[..], &total.to_be_bytes(), &[0; 60]].concat();
        let read = encrypted(PayloadType::SKF, &body).unwrap();
        assert_eq!(read.fragment, Some(Fragment::new(number, total).unwrap()));
        assert_eq!((read.at, read.content.len()), (36, 60));
    }
    for len in 0..4 {
        let fault = Fault::EncryptedLength { len, least: 4 };
        assert_eq!(encrypted(PayloadType::SKF, &[0, 1, 0, 1][..len]), Err(fault));
    }
}

#[test]
fn a_payload_too_short_for_its_parts_is_refused() {
    let layout = Layout { iv: 16, block: 16, icv: 12 };
    let body = [0; 200];
    for len in 0..=body.len() {
        let parts = encrypted(PayloadType::SK, &body[..len]).unwrap().parts(&layout);
        match parts {
            Err(fault) if len < 44 => assert_eq!(fault, Fault::EncryptedLength { len, least: 44 }),
            Err(fault) => assert_eq!(fault, Fault::EncryptedBlocks { len: len - 28 }),
            Ok(parts) => {
                assert!((len - 28) % 16 == 0);
                assert_eq!((parts.iv, parts.icv), (32..48, 32 + len - 12..32 + len));
            }
        }
    }
}

#[test]
fn lengths_that_no_algorithm_has_do_no_harm() {
    let huge = Layout { iv: usize::MAX, block: usize::MAX, icv: usize::MAX };
    let fault = Fault::EncryptedLength { len: 9, least: usize::MAX };
    assert_eq!(encrypted(PayloadType::SK, &[0; 9]).unwrap().parts(&huge), Err(fault));
    let none = Layout { iv: 0, block: 0, icv: 0 };
    assert_eq!(encrypted(PayloadType::SK, &[0; 9]).unwrap().parts(&none).unwrap().ciphertext, 32..41);
    assert!(encrypted(PayloadType::SK, &[]).unwrap().parts(&none).is_err());
}

#[test]
fn padding_is_taken_off_whatever_it_is() {
    assert_eq!(unpad(&[1, 2, 9, 9, 2]), Ok(&[1, 2][..]));
    assert_eq!(unpad(&[0]), Ok(&[][..]));
    assert_eq!(unpad(&[]), Err(Fault::EncryptedPadding { claimed: 0, len: 0 }));
    assert_eq!(unpad(&[7, 7, 7]), Err(Fault::EncryptedPadding { claimed: 7, len: 3 }));
    assert_eq!(unpad(&[7, 7, 3]), Err(Fault::EncryptedPadding { claimed: 3, len: 3 }));
    assert_eq!(unpad(&[255; 256]), Ok(&[][..]));
}

proptest! {
    #[test]
    fn padding_is_the_least_that_fits(len in 0usize..5_000, block in 1usize..=256) {
        let pad = usize::from(pad_len(len, block).unwrap());
        prop_assert!((len + pad + 1).is_multiple_of(block) && pad < block);
        let mut plaintext = vec![1; len];
        plaintext.resize(len + pad, 0);
        plaintext.push(pad as u8);
        prop_assert_eq!(unpad(&plaintext), Ok(&plaintext[..len]));
    }
}
