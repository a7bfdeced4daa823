use super::*;
use std::vec;
use std::vec::Vec;

/// A transform: marker, type, number, attributes.
fn transform(marker: u8, kind: u8, id: u8, attributes: &[u8]) -> Vec<u8> {
    let [hi, lo] = u16::try_from(attributes.len() + 8).unwrap().to_be_bytes();
    [&[marker, 0, hi, lo, kind, 0, 0, id], attributes].concat()
}

/// A proposal: marker, number, protocol, SPI, how many transforms it claims, and the transforms.
fn proposal(marker: u8, number: u8, protocol: u8, spi: &[u8], count: u8, transforms: &[u8]) -> Vec<u8> {
    let [hi, lo] = u16::try_from(transforms.len() + spi.len() + 8).unwrap().to_be_bytes();
    [&[marker, 0, hi, lo, number, protocol, spi.len() as u8, count], spi, transforms].concat()
}

fn two() -> Vec<u8> {
    [transform(3, 1, 12, &[0x80, 14, 0, 128]), transform(0, 3, 12, &[])].concat()
}

#[test]
fn proposals_and_transforms_are_walked() {
    let body = [proposal(2, 1, 1, &[], 2, &two()), proposal(0, 2, 1, &[7; 8], 2, &two())].concat();
    let sa = Sa::parse(&body).unwrap();
    let found: Vec<_> = sa.proposals().map(|p| (p.number, p.protocol, p.spi)).collect();
    assert_eq!(found, [(1, ProtocolId::IKE, &[][..]), (2, ProtocolId::IKE, &[7; 8])]);
    let transforms: Vec<_> =
        sa.proposals().flat_map(|p| p.transforms()).map(|t| (t.kind.0, t.id, t.key_length())).collect();
    assert_eq!(transforms, [(1, 12, Some(128)), (3, 12, None), (1, 12, Some(128)), (3, 12, None)]);
}

#[test]
fn there_is_a_proposal_and_it_has_a_transform() {
    assert_eq!(Sa::parse(&[]), Err(Fault::NoProposal {}));
    let fault = Fault::TransformCount { at: 0, claimed: 0, found: 0 };
    assert_eq!(Sa::parse(&proposal(0, 1, 1, &[], 0, &[])), Err(fault));
}

#[test]
fn impossible_counts_are_refused() {
    for claimed in 0..=255 {
        let parsed = Sa::parse(&proposal(0, 1, 1, &[], claimed, &two())).map(|_| ());
        let fault = Fault::TransformCount { at: 0, claimed, found: 2 };
        assert_eq!(parsed, if claimed == 2 { Ok(()) } else { Err(fault) });
    }
    // 256 transforms are more than the field counts.
    let mut many: Vec<u8> = (0..255).flat_map(|_| transform(3, 1, 12, &[])).collect();
    many.extend(transform(0, 1, 12, &[]));
    let fault = Fault::TransformCount { at: 0, claimed: 0, found: 256 };
    assert_eq!(Sa::parse(&proposal(0, 1, 1, &[], 0, &many)), Err(fault));
}

#[test]
fn lengths_lie_inside_what_is_around_them() {
    let good = proposal(0, 1, 3, &[1; 4], 2, &two());
    for claimed in 0..=u16::MAX {
        let mut body = good.clone();
        body[2..4].copy_from_slice(&claimed.to_be_bytes());
        assert_eq!(Sa::parse(&body).is_ok(), usize::from(claimed) == good.len(), "proposal {claimed}");
        let mut body = good.clone();
        body[14..16].copy_from_slice(&claimed.to_be_bytes());
        assert_eq!(Sa::parse(&body).is_ok(), claimed == 12, "transform {claimed}");
    }
    let length = |claimed| Err(Fault::ProposalLength { at: 0, claimed, len: 8 });
    assert_eq!(Sa::parse(&[0, 0, 0, 7, 1, 1, 0, 0]), length(7));
    assert_eq!(Sa::parse(&[0, 0, 0, 9, 1, 1, 0, 0]), length(9));
    assert_eq!(Sa::parse(&[0, 0, 0, 8, 1, 1, 8, 0]), length(8));
    assert_eq!(Sa::parse(&[0, 0, 0]), Err(Fault::ProposalTruncated { at: 0, len: 3 }));
    let body = proposal(0, 1, 1, &[], 1, &[0, 0, 0, 7, 1, 0, 0, 1]);
    assert_eq!(Sa::parse(&body), Err(Fault::TransformLength { at: 8, claimed: 7, len: 8 }));
    let body = proposal(0, 1, 1, &[], 1, &[0; 5]);
    assert_eq!(Sa::parse(&body), Err(Fault::TransformTruncated { at: 8, len: 5 }));
}

#[test]
fn markers_tell_the_truth() {
    for found in 0..=255 {
        let last = Sa::parse(&proposal(found, 1, 1, &[], 2, &two())).map(|_| ());
        let fault = Fault::ProposalMarker { at: 0, found, expected: 0 };
        assert_eq!(last, if found == 0 { Ok(()) } else { Err(fault) });
        let body = [proposal(found, 1, 1, &[], 2, &two()), proposal(0, 2, 1, &[], 2, &two())].concat();
        let fault = Fault::ProposalMarker { at: 0, found, expected: 2 };
        assert_eq!(Sa::parse(&body).map(|_| ()), if found == 2 { Ok(()) } else { Err(fault) });
        let transforms = [transform(found, 1, 12, &[]), transform(0, 3, 12, &[])].concat();
        let fault = Fault::TransformMarker { at: 8, found, expected: 3 };
        let parsed = Sa::parse(&proposal(0, 1, 1, &[], 2, &transforms)).map(|_| ());
        assert_eq!(parsed, if found == 3 { Ok(()) } else { Err(fault) });
        let fault = Fault::TransformMarker { at: 8, found, expected: 0 };
        let parsed = Sa::parse(&proposal(0, 1, 1, &[], 1, &transform(found, 1, 12, &[]))).map(|_| ());
        assert_eq!(parsed, if found == 0 { Ok(()) } else { Err(fault) });
    }
}

#[test]
fn numbers_go_up_in_steps_of_one() {
    for second in 0..=255 {
        let body = [proposal(2, 4, 1, &[], 2, &two()), proposal(0, second, 1, &[], 2, &two())].concat();
        let fault = Fault::ProposalNumber { at: 28, found: second, expected: 5 };
        assert_eq!(Sa::parse(&body).map(|_| ()), if second == 5 { Ok(()) } else { Err(fault) });
    }
    let body = [proposal(2, 255, 1, &[], 2, &two()), proposal(0, 0, 1, &[], 2, &two())].concat();
    assert_eq!(Sa::parse(&body), Err(Fault::ProposalNumber { at: 28, found: 0, expected: 0 }));
}

#[test]
fn spis_are_those_of_their_protocol() {
    for protocol in 0..=255 {
        for size in 0..=255u8 {
            let body = proposal(0, 1, protocol, &vec![9; size.into()], 2, &two());
            let is_right = match protocol {
                1 => matches!(size, 0 | 8),
                2 | 3 => size == 4,
                _ => true,
            };
            let fault = Fault::ProposalSpiSize { at: 0, protocol: ProtocolId(protocol), claimed: size };
            assert_eq!(Sa::parse(&body).map(|_| ()), if is_right { Ok(()) } else { Err(fault) });
        }
    }
}

#[test]
fn attributes_of_both_formats() {
    let attributes = [0x80, 14, 1, 0, 0x80, 99, 7, 7, 0, 98, 0, 3, 1, 2, 3];
    let body = proposal(0, 1, 1, &[], 1, &transform(0, 1, 12, &attributes));
    let sa = Sa::parse(&body).unwrap();
    let transform = sa.proposals().next().unwrap().transforms().next().unwrap();
    let found: Vec<_> = transform.attributes().map(|a| (a.kind.0, a.value)).collect();
    let expected = [
        (14, AttributeValue::Fixed(256)),
        (99, AttributeValue::Fixed(0x707)),
        (98, AttributeValue::Variable(&[1, 2, 3])),
    ];
    assert_eq!(found, expected);
    assert!(transform.has_unknown_attribute());
}

fn with_attributes(attributes: &[u8]) -> Result<(), Fault> {
    Sa::parse(&proposal(0, 1, 1, &[], 1, &transform(0, 1, 12, attributes))).map(|_| ())
}

#[test]
fn attributes_are_whole_and_of_different_types() {
    assert_eq!(with_attributes(&[0x80, 14, 0]), Err(Fault::AttributeTruncated { at: 16, len: 3 }));
    assert_eq!(with_attributes(&[0, 99, 0, 2, 1]), Err(Fault::AttributeTruncated { at: 16, len: 5 }));
    assert_eq!(with_attributes(&[0, 99, 0xff, 0xff]), Err(Fault::AttributeTruncated { at: 16, len: 4 }));
    let twice = |kind| Err(Fault::AttributeTwice { at: 20, attribute: crate::ike::AttributeType(kind) });
    assert_eq!(with_attributes(&[0x80, 14, 0, 128, 0x80, 14, 1, 0]), twice(14));
    assert_eq!(with_attributes(&[0x80, 99, 0, 1, 0, 99, 0, 0]), twice(99));
    let long = Err(Fault::AttributeFormat { at: 16, attribute: crate::ike::AttributeType::KEY_LENGTH });
    assert_eq!(with_attributes(&[0, 14, 0, 2, 1, 0]), long);
    let many: Vec<u8> = (0..17).flat_map(|kind| [0x80, 100 + kind, 0, 0]).collect();
    assert_eq!(with_attributes(&many[..64]), Ok(()));
    assert_eq!(with_attributes(&many), Err(Fault::TooManyAttributes { at: 16, limit: 16 }));
}

#[test]
fn cve_2024_3652_a_key_length_of_zero_is_a_value() {
    for (id, bits) in [(12, 0), (20, 0), (21, 0), (12, 1), (12, 65_535)] {
        let [hi, lo] = u16::to_be_bytes(bits);
        let body = proposal(0, 1, 3, &[9; 4], 1, &transform(0, 1, id, &[0x80, 14, hi, lo]));
        let transform = Sa::parse(&body).unwrap().proposals().next().unwrap().transforms().next().unwrap();
        assert_eq!(transform.key_length(), Some(bits));
    }
}

#[test]
fn cve_2016_5391_a_proposal_without_any_type_of_transform() {
    // The types of a whole IKE proposal, each combination left out; unknown ones instead.
    for mask in 1..32u8 {
        let kinds: Vec<u8> =
            (1..=5).map(|kind| if mask & 1 << (kind - 1) != 0 { kind } else { 200 }).collect();
        let transforms: Vec<u8> = kinds
            .iter()
            .enumerate()
            .flat_map(|(i, kind)| transform(if i == 4 { 0 } else { 3 }, *kind, 1, &[]))
            .collect();
        let body = proposal(0, 1, 1, &[], 5, &transforms);
        let found: Vec<_> =
            Sa::parse(&body).unwrap().proposals().next().unwrap().transforms().map(|t| t.kind.0).collect();
        assert_eq!(found, kinds);
    }
}

#[test]
fn reserved_bytes_are_ignored() {
    let mut body = proposal(0, 1, 1, &[], 2, &two());
    (body[1], body[9], body[13]) = (0xff, 0xff, 0xff);
    assert!(Sa::parse(&body).is_ok());
}
