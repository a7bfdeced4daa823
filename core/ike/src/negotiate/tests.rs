//! Proposals of peers, written with the numbers of the IANA registry "IKEv2 Parameters" and evaluated as RFC
//! 7296 sections 2.7 and 3.3 require.

use super::*;
use crate::config::{AdditionalKexes, EspCombined};
use crate::transport::{Content, MessageKind, header, write_plain};
use crate::{IkeSpis, IkeSuite, Role};
use alloc::vec;
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, EspSuite, ImplicitIvAlg, MacAlg, MacKind, PrfAlg};
use casemate_wire::ike::{Attribute, AttributeType, AttributeValue, ExchangeType, IkeSpi, Message};

/// Transform type, transform ID, and key length in bits.
type WireTransform = (u8, u16, Option<u16>);
/// Proposal number, protocol ID, and transforms.
type WireProposal<'p> = (u8, u8, &'p [WireTransform]);

const GCM_128: WireTransform = (1, 20, Some(128));
const GCM_256: WireTransform = (1, 20, Some(256));
const CBC_128: WireTransform = (1, 12, Some(128));
const PRF_SHA256: WireTransform = (2, 5, None);
const MAC_SHA256: WireTransform = (3, 12, None);
const MAC_NONE: WireTransform = (3, 0, None);
const X25519: WireTransform = (4, 31, None);
const MODP2048: WireTransform = (4, 14, None);
const ESN_NO: WireTransform = (5, 0, None);
const ESN_YES: WireTransform = (5, 1, None);

/// Encodes proposals, parses them again, and passes them to `judge`.
fn on_wire<T>(proposals: &[WireProposal<'_>], judge: impl FnOnce(&Sa<'_>) -> T) -> T {
    on_wire_with(proposals, &[], judge)
}

/// Like [`on_wire`], with more attributes next to each key length.
fn on_wire_with<T>(
    proposals: &[WireProposal<'_>],
    more: &[Attribute<'_>],
    judge: impl FnOnce(&Sa<'_>) -> T,
) -> T {
    let attributes: Vec<Vec<Attribute<'_>>> = proposals
        .iter()
        .flat_map(|(.., wires)| *wires)
        .map(|(.., bits)| {
            let key = bits.map(Attribute::from_key_length);
            key.iter().chain(more.iter().filter(|_| key.is_some())).copied().collect()
        })
        .collect();
    let mut attributes = attributes.iter();
    let transforms: Vec<Vec<TransformRepr<'_>>> = proposals
        .iter()
        .map(|(.., wires)| {
            let repr = |(kind, id, _): &WireTransform| TransformRepr {
                kind: TransformType(*kind),
                id: *id,
                attributes: attributes.next().unwrap(),
            };
            wires.iter().map(repr).collect()
        })
        .collect();
    let spi = |protocol| if protocol == 1 { &[][..] } else { &[1, 2, 3, 4][..] };
    let reprs: Vec<ProposalRepr<'_>> = proposals
        .iter()
        .zip(&transforms)
        .map(|((number, protocol, _), transforms)| ProposalRepr {
            number: *number,
            protocol: ProtocolId(*protocol),
            spi: spi(*protocol),
            transforms,
        })
        .collect();
    let kind = MessageKind { exchange: ExchangeType::IKE_SA_INIT, message_id: 0, response: false };
    let header = header(IkeSpis { initiator: IkeSpi(1), responder: IkeSpi::NONE }, Role::Initiator, kind);
    let bytes = write_plain(&header, &mut [0; 2_000], &|out| out.sa(&reprs)).unwrap();
    let message = Message::parse(&bytes).unwrap();
    judge(&Content::parse(message.payloads()).unwrap().sa.unwrap())
}

/// AES-GCM with both key lengths, SHA-256, and both key exchange methods.
fn ours() -> Offer {
    let gcm = |bits| AeadAlg::aes_gcm(bits, 16).unwrap();
    Offer::ike(&IkeProposal {
        encryption: IkeEncryption::Combined(vec![gcm(AesBits::B256), gcm(AesBits::B128)]),
        prfs: vec![PrfAlg::HmacSha256],
        kex: vec![KexMethod::X25519, KexMethod::Modp2048],
        additional: AdditionalKexes::new(),
    })
}

fn suite(theirs: &[WireProposal<'_>], prefer: Option<KexMethod>) -> Result<IkeSuite, StateFault> {
    on_wire(theirs, |sa| choose(&[ours()], sa, prefer, true).map(|chosen| IkeSuite::of(&chosen).unwrap()))
}

#[test]
fn our_preference_decides_unless_the_peer_sent_a_public_value() {
    let all: &[WireTransform] = &[GCM_128, GCM_256, PRF_SHA256, MODP2048, X25519];
    let chosen = |prefer| suite(&[(1, 1, all)], prefer).unwrap();
    let sk = chosen(None).sk;
    assert_eq!(sk.encr_key_len(), 36, "AES-256 and a salt");
    assert_eq!(sk.integ_key_len(), 0);
    assert_eq!(chosen(None).kex, KexMethod::X25519);
    assert_eq!(chosen(Some(KexMethod::Modp2048)).kex, KexMethod::Modp2048);
    assert_eq!(chosen(Some(KexMethod::EcpP256)).kex, KexMethod::X25519, "a method that we do not offer");
    let without: &[WireTransform] = &[GCM_128, PRF_SHA256, X25519];
    let chosen = suite(&[(1, 1, without)], Some(KexMethod::Modp2048)).unwrap();
    assert_eq!(chosen.kex, KexMethod::X25519, "a method that is not in the peer's proposal");
}

#[test]
fn an_unacceptable_proposal_is_skipped() {
    let (bad, good): (&[WireTransform], &[WireTransform]) =
        (&[CBC_128, MAC_SHA256, PRF_SHA256, X25519], &[GCM_128, PRF_SHA256, X25519]);
    assert_eq!(suite(&[(1, 1, bad)], None), Err(StateFault::NoProposalChosen));
    assert!(suite(&[(1, 1, bad), (2, 1, good)], None).is_ok());
    let number =
        on_wire(&[(1, 1, bad), (2, 1, good)], |sa| choose(&[ours()], sa, None, true).unwrap().number);
    assert_eq!(number, 2);
    // Each type is required, with the right key length, in a proposal for IKE.
    for missing in 0..good.len() {
        let wires: Vec<WireTransform> =
            (0..good.len()).filter(|at| *at != missing).map(|at| good[at]).collect();
        assert_eq!(suite(&[(1, 1, &wires)], None), Err(StateFault::NoProposalChosen), "{missing}");
    }
    for encr in [(1, 20, Some(192)), (1, 20, None), (1, 19, Some(128))] {
        let wires = [encr, PRF_SHA256, X25519];
        assert_eq!(suite(&[(1, 1, &wires)], None), Err(StateFault::NoProposalChosen), "{encr:?}");
    }
    assert_eq!(suite(&[(1, 3, good)], None), Err(StateFault::NoProposalChosen), "for ESP");
}

/// RFC 7296 section 3.3.6.
#[test]
fn an_unknown_transform_type_makes_a_proposal_unacceptable() {
    let with = |other: WireTransform| suite(&[(1, 1, &[GCM_128, PRF_SHA256, X25519, other])], None);
    assert!(with(MAC_NONE).is_ok(), "RFC 5282 section 8: no integrity algorithm, or NONE");
    assert_eq!(with(MAC_SHA256), Err(StateFault::NoProposalChosen));
    assert_eq!(with((6, 14, None)), Err(StateFault::NoProposalChosen), "an additional key exchange");
    assert!(with((6, 0, None)).is_ok(), "RFC 9370 section 2.2.1: one that may be NONE");
    assert_eq!(with((200, 1, None)), Err(StateFault::NoProposalChosen));
    assert_eq!(with((200, 0, None)), Err(StateFault::NoProposalChosen));
    assert_eq!(with(ESN_NO), Err(StateFault::NoProposalChosen));
    // Unknown transforms of a known type are ignored.
    assert!(with((4, 999, None)).is_ok());
}

/// RFC 7296 section 3.3.6.
#[test]
fn an_unknown_attribute_makes_a_transform_unacceptable() {
    let unknown = [Attribute { kind: AttributeType(99), value: AttributeValue::Fixed(1) }];
    let theirs: [WireProposal<'_>; 1] = [(1, 1, &[GCM_128, PRF_SHA256, X25519])];
    let judge =
        |more: &[_]| on_wire_with(&theirs, more, |sa| choose(&[ours()], sa, None, true).map(|c| c.number));
    assert_eq!((judge(&[]), judge(&unknown)), (Ok(1), Err(StateFault::NoProposalChosen)));
}

/// RFC 7296 section 3.3.1.
#[test]
fn the_first_proposal_has_the_number_1() {
    let good: &[WireTransform] = &[GCM_128, PRF_SHA256, X25519];
    for number in [0, 2, 255] {
        assert!(matches!(suite(&[(number, 1, good)], None), Err(StateFault::FirstProposal)), "{number}");
    }
}

fn child(sequence: EsnPolicy, with_kex: bool) -> Offer {
    let gcm = EspCombined::Aead(AeadAlg::aes_gcm(AesBits::B128, 16).unwrap());
    let algorithms = ChildAlgorithms::EspCombined(vec![gcm]);
    Offer::child(
        &ChildProposal {
            algorithms,
            kex: vec![KexMethod::X25519],
            additional: AdditionalKexes::new(),
            esn: sequence,
        },
        with_kex,
    )
}

#[test]
fn a_child_sa_without_esn_transform_has_32_bit_sequence_numbers() {
    let esn = |sequence, wires: &[WireTransform]| {
        let chosen = on_wire(&[(1, 3, wires)], |sa| choose(&[child(sequence, false)], sa, None, true));
        chosen.map(|chosen| crate::ChildSuite::of(&chosen).unwrap().esn)
    };
    let none = Err(StateFault::NoProposalChosen);
    for sequence in [EsnPolicy::Disabled, EsnPolicy::Allowed, EsnPolicy::Preferred] {
        assert_eq!(esn(sequence, &[GCM_128]), Ok(false), "{sequence:?}");
    }
    assert_eq!(esn(EsnPolicy::Required, &[GCM_128]), none);
    assert_eq!(esn(EsnPolicy::Required, &[GCM_128, ESN_NO]), none);
    assert_eq!(esn(EsnPolicy::Disabled, &[GCM_128, ESN_YES]), none);
    assert_eq!(esn(EsnPolicy::Preferred, &[GCM_128, ESN_NO, ESN_YES]), Ok(true));
    assert_eq!(esn(EsnPolicy::Allowed, &[GCM_128, ESN_YES, ESN_NO]), Ok(false));
}

/// RFC 8750 section 5: both forms of a cipher are offered, and peers without implicit IVs choose the other.
#[test]
fn implicit_iv_is_chosen_if_the_peer_offers_it() {
    let bits = AesBits::B128;
    let forms = [
        (ImplicitIvAlg::AesCcm8(bits), (1, 29, Some(128)), (1, 14, Some(128))),
        (ImplicitIvAlg::AesGcm16(bits), (1, 30, Some(128)), GCM_128),
        (ImplicitIvAlg::ChaCha20Poly1305, (1, 31, None), (1, 28, None)),
    ];
    for (alg, implicit, explicit) in forms {
        let algorithms = vec![EspCombined::ImplicitIv(alg), EspCombined::Aead(alg.aead())];
        let ours = Offer::child(
            &ChildProposal {
                algorithms: ChildAlgorithms::EspCombined(algorithms),
                kex: vec![],
                additional: AdditionalKexes::new(),
                esn: EsnPolicy::Disabled,
            },
            false,
        );
        let suite = |wires: &[WireTransform]| {
            let chosen = on_wire(&[(1, 3, wires)], |sa| choose(core::slice::from_ref(&ours), sa, None, true));
            crate::ChildSuite::of(&chosen.unwrap()).unwrap()
        };
        let both = suite(&[explicit, implicit, ESN_NO]);
        assert_eq!(both.transform, crate::ChildTransform::Esp(EspSuite::ImplicitIv(alg)));
        let plain = suite(&[explicit, ESN_NO]);
        assert_eq!(plain.transform, crate::ChildTransform::Esp(EspSuite::Combined(alg.aead())));
        assert_eq!(both.encr_key_len(), plain.encr_key_len(), "{alg}: the same key and salt");
    }
}

/// RFC 7296 section 1.2: IKE_AUTH has no key exchange of its own.
#[test]
fn a_child_sa_in_ike_auth_has_no_key_exchange() {
    let judge = |with_kex, wires: &[WireTransform]| {
        on_wire(&[(1, 3, wires)], |sa| {
            choose(&[child(EsnPolicy::Disabled, with_kex)], sa, None, true).map(|c| c.spi)
        })
    };
    assert_eq!(judge(false, &[GCM_128, ESN_NO]), Ok(vec![1, 2, 3, 4]), "with the peer's SPI");
    assert_eq!(judge(false, &[GCM_128, ESN_NO, X25519]), Err(StateFault::NoProposalChosen));
    assert!(judge(false, &[GCM_128, ESN_NO, X25519, (4, 0, None)]).is_ok());
    assert_eq!(judge(true, &[GCM_128, ESN_NO]), Err(StateFault::NoProposalChosen));
    assert!(judge(true, &[GCM_128, ESN_NO, X25519]).is_ok());
}

/// RFC 7296 section 2.7: the responder MUST choose one proposal, and one transform of each type.
#[test]
fn a_response_must_choose_one_of_our_offers() {
    let cbc = Offer::ike(&IkeProposal {
        encryption: IkeEncryption::Separate(
            vec![CipherAlg::AesCbc(AesBits::B128)],
            vec![MacAlg::standard(MacKind::HmacSha256)],
        ),
        prfs: vec![PrfAlg::HmacSha256],
        kex: vec![KexMethod::X25519],
        additional: AdditionalKexes::new(),
    });
    let offers = [ours(), cbc];
    let judge = |answer: &[WireProposal<'_>]| {
        on_wire(answer, |sa| verify_choice(&offers, sa).map(|chosen| IkeSuite::of(&chosen).unwrap().kex))
    };
    let (gcm, cbc): (&[WireTransform], &[WireTransform]) =
        (&[GCM_128, PRF_SHA256, X25519], &[CBC_128, MAC_SHA256, PRF_SHA256, X25519]);
    assert_eq!(judge(&[(1, 1, gcm)]), Ok(KexMethod::X25519));
    assert_eq!(judge(&[(2, 1, cbc)]), Ok(KexMethod::X25519));
    assert_eq!(judge(&[(1, 1, &[GCM_128, PRF_SHA256, X25519, MAC_NONE])]), Ok(KexMethod::X25519));
    let refused: [&[WireProposal<'_>]; 8] = [
        &[(2, 1, gcm)],
        &[(1, 1, cbc)],
        &[(0, 1, gcm)],
        &[(3, 1, gcm)],
        &[(1, 3, gcm)],
        &[(1, 1, gcm), (2, 1, cbc)],
        &[(1, 1, &[GCM_128, GCM_256, PRF_SHA256, X25519])],
        &[(1, 1, &[GCM_128, PRF_SHA256, (4, 19, None)])],
    ];
    for answer in refused {
        assert_eq!(judge(answer), Err(StateFault::NotOffered), "{answer:?}");
    }
}

#[test]
fn offers_are_numbered_from_1_and_have_our_spi() {
    with_proposals(&[ours(), child(EsnPolicy::Disabled, false)], &[9, 9], |reprs| {
        let seen: Vec<_> = reprs.iter().map(|repr| (repr.number, repr.protocol.0, repr.spi)).collect();
        assert_eq!(seen, [(1, 1, &[9, 9][..]), (2, 3, &[9, 9])]);
        let kinds: Vec<_> = reprs[0].transforms.iter().map(|t| (t.kind.0, t.id)).collect();
        assert_eq!(kinds, [(1, 20), (1, 20), (2, 5), (4, 31), (4, 14)]);
    });
}
