//! Round trips: the parser reads what the writer wrote.

use super::*;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::vec::Vec;

/// Writes one payload and passes its parsed body to `check`.
fn through(
    write: impl FnOnce(&mut Writer<'_>) -> Result<(), WriteError>,
    check: impl FnOnce(PayloadType, Body<'_>),
) {
    let mut buf = std::vec![0xee; 70_000];
    let mut writer = Writer::new(&mut buf, &header(ExchangeType::IKE_AUTH)).unwrap();
    write(&mut writer).unwrap();
    let bytes = writer.finish().unwrap();
    let message = Message::parse(bytes).unwrap();
    let mut payloads = message.payloads();
    let payload = payloads.next().unwrap().unwrap();
    check(payload.kind, Body::parse(&payload).unwrap());
    assert_eq!(payloads.next(), None);
}

fn bytes(len: core::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), len)
}

/// Type, value, and whether the value has the long format.
type OwnedAttribute = (u16, Vec<u8>, bool);

fn attributes() -> impl Strategy<Value = Vec<OwnedAttribute>> {
    proptest::collection::btree_map(0u16..0x8000, (bytes(2..20), any::<bool>()), 0..5).prop_map(|map| {
        map.into_iter().map(|(kind, (value, long))| (kind, value, long && kind != 14)).collect()
    })
}

fn borrowed(attributes: &[OwnedAttribute]) -> Vec<Attribute<'_>> {
    let borrow = |(kind, value, is_long): &'_ OwnedAttribute| -> (AttributeType, u16, bool) {
        (AttributeType(*kind), u16::from_be_bytes([value[0], value[1]]), *is_long)
    };
    let of = |owned| {
        let (kind, short, is_long) = borrow(owned);
        let value = if is_long { AttributeValue::Variable(&owned.1) } else { AttributeValue::Fixed(short) };
        Attribute { kind, value }
    };
    attributes.iter().map(of).collect()
}

type OwnedProposal = ((u8, Vec<u8>), Vec<(u8, u16, Vec<OwnedAttribute>)>);

fn proposal() -> impl Strategy<Value = OwnedProposal> {
    let spi = prop_oneof![
        select(&[0usize, 8][..]).prop_map(|len| (1u8, len)),
        select(&[2u8, 3][..]).prop_map(|protocol| (protocol, 4)),
        (4u8..=255, 0usize..=255),
    ];
    let spi = (spi, any::<u8>()).prop_map(|((protocol, len), byte)| (protocol, std::vec![byte; len]));
    (spi, vec((any::<u8>(), any::<u16>(), attributes()), 1..6))
}

fn ports() -> impl Strategy<Value = Ports> {
    prop_oneof![
        Just(Ports::ANY),
        Just(Ports::OPAQUE),
        any::<(u16, u16)>().prop_map(|(a, b)| Ports::new(a.min(b), a.max(b)).unwrap()),
        any::<(u8, u8)>().prop_map(|(kind, code)| Ports::icmp(kind, code)),
    ]
}

fn addresses() -> impl Strategy<Value = Addresses> {
    prop_oneof![
        any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(a, b)| Addresses::V4 { start: a.min(b), end: a.max(b) }),
        any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(a, b)| Addresses::V6 { start: a.min(b), end: a.max(b) }),
    ]
}

fn range() -> impl Strategy<Value = RangeSelector> {
    (any::<u8>(), ports(), addresses()).prop_map(|(protocol, ports, addresses)| RangeSelector {
        protocol,
        ports: if protocol == 0 { Ports::ANY } else { ports },
        addresses,
    })
}

/// An identity of any type with valid data.
fn identity() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let kinds: [BoxedStrategy<(u8, Vec<u8>)>; 5] = [
        bytes(4..5).prop_map(|data| (1, data)).boxed(),
        "[!-~]{1,60}".prop_map(|name| (2, name.into_bytes())).boxed(),
        "[^\\x00-\\x1f\\x7f]{1,60}".prop_map(|name| (3, name.into_bytes())).boxed(),
        bytes(16..17).prop_map(|data| (5, data)).boxed(),
        (select(&[9u8, 10, 11, 12, 14, 201][..]), bytes(1..300)).boxed(),
    ];
    proptest::strategy::Union::new(kinds)
}

/// A configuration attribute with a valid value.
fn cp_attribute() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let kinds = prop_oneof![
        (select(&[1u16, 2, 3, 4, 6][..]), Just(4usize)),
        (select(&[10u16, 12][..]), Just(16)),
        (Just(13u16), Just(8)),
        (select(&[8u16, 15][..]), Just(17)),
        (Just(14u16), (0usize..9).prop_map(|count| count * 2)),
        (select(&[7u16, 25, 16_384, 32_767][..]), 0usize..40),
    ];
    (kinds, 0u8..=128, any::<bool>())
        .prop_map(|((kind, len), byte, is_empty)| (kind, std::vec![byte; if is_empty { 0 } else { len }]))
}

/// Removes attributes that RFC 7296 section 3.15.1 forbids: duplicates of some types, and a netmask without
/// an address.
fn without_forbidden(attributes: Vec<(u16, Vec<u8>)>) -> Vec<(u16, Vec<u8>)> {
    let has_address = attributes.iter().any(|(kind, _)| *kind == 1);
    let mut allowed: Vec<(u16, Vec<u8>)> = Vec::new();
    for attribute in attributes {
        let is_single = matches!(attribute.0, 2 | 7 | 14);
        let is_second = is_single && allowed.iter().any(|(kind, _)| *kind == attribute.0);
        if !is_second && (attribute.0 != 2 || has_address) {
            allowed.push(attribute);
        }
    }
    allowed
}

proptest! {
    #[test]
    fn sa(owned in vec(proposal(), 1..5), first in 0u8..200) {
        let attributes: Vec<Vec<Vec<_>>> =
            owned.iter().map(|(_, transforms)| transforms.iter().map(|t| borrowed(&t.2)).collect()).collect();
        let transforms: Vec<Vec<_>> = owned
            .iter()
            .zip(&attributes)
            .map(|((_, transforms), attributes)| {
                let of = |(t, attributes): (&(u8, u16, _), &'_ Vec<_>)| {
                    (TransformType(t.0), t.1, attributes.clone())
                };
                transforms.iter().zip(attributes).map(of).collect()
            })
            .collect();
        let borrowed: Vec<Vec<TransformRepr<'_>>> = transforms
            .iter()
            .map(|transforms| {
                transforms
                    .iter()
                    .map(|(kind, id, attributes)| TransformRepr { kind: *kind, id: *id, attributes })
                    .collect()
            })
            .collect();
        let proposals: Vec<_> = owned
            .iter()
            .zip(&borrowed)
            .zip(first..)
            .map(|((((protocol, spi), _), transforms), number)| ProposalRepr {
                number,
                protocol: ProtocolId(*protocol),
                spi,
                transforms,
            })
            .collect();
        through(
            |out| out.sa(&proposals),
            |kind, body| {
                let Body::Sa(sa) = body else { panic!("{kind}") };
                assert_eq!(sa.proposals().count(), proposals.len());
                for (read, written) in sa.proposals().zip(&proposals) {
                    assert_eq!(
                        (read.number, read.protocol, read.spi),
                        (written.number, written.protocol, written.spi)
                    );
                    assert_eq!(read.transforms().count(), written.transforms.len());
                    for (read, written) in read.transforms().zip(written.transforms) {
                        assert_eq!((read.kind, read.id), (written.kind, written.id));
                        assert!(read.attributes().eq(written.attributes.iter().copied()));
                    }
                }
            },
        );
    }

    #[test]
    fn ts(ranges in vec(range(), 1..30), other in bytes(0..40), kind in 9u8..=255, second: u8) {
        let mut selectors: Vec<_> = ranges.into_iter().map(Selector::Range).collect();
        selectors.push(Selector::Other { kind: TsType(kind), second, data: &other });
        let check = |kind: PayloadType, body: Body<'_>| match (kind, body) {
            (PayloadType::TS_I, Body::TsI(ts)) | (PayloadType::TS_R, Body::TsR(ts)) => {
                assert!(ts.selectors().eq(selectors.iter().copied()));
            }
            _ => panic!("{kind}"),
        };
        through(|out| out.ts_i(&selectors), check);
        through(|out| out.ts_r(&selectors), check);
    }

    #[test]
    fn cp(owned in vec(cp_attribute(), 0..20), kind: u8) {
        let owned = without_forbidden(owned);
        let attributes: Vec<_> =
            owned.iter().map(|(kind, value)| CpAttribute { kind: CfgAttribute(*kind), value }).collect();
        through(
            |out| out.cp(CfgType(kind), &attributes),
            |_, body| {
                let Body::Cp(cp) = body else { panic!() };
                assert_eq!(cp.kind, CfgType(kind));
                assert!(cp.attributes().eq(attributes.iter().copied()));
            },
        );
    }

    #[test]
    fn id((kind, data) in identity()) {
        let id = Id { kind: IdType(kind), data: &data };
        through(|out| out.id_i(&id), |_, body| assert!(matches!(body, Body::IdI(read) if read == id)));
        through(|out| out.id_r(&id), |_, body| assert!(matches!(body, Body::IdR(read) if read == id)));
    }

    #[test]
    fn ke(method in select(KeMethod::ALL), byte: u8, len in 1usize..2_000) {
        let data = std::vec![byte; method.public_len().unwrap_or(len)];
        let ke = Ke { method, data: &data };
        through(|out| out.ke(&ke), |_, body| assert!(matches!(body, Body::Ke(read) if read == ke)));
    }

    #[test]
    fn cert(encoding: u8, data in bytes(21..3_000), hashes in 0usize..20) {
        let cert = Cert { encoding: CertEncoding(encoding), data: &data };
        through(|out| out.cert(&cert), |_, body| assert!(matches!(body, Body::Cert(read) if read == cert)));
        let authorities = std::vec![encoding; hashes * 20];
        let request = CertReq { encoding: CertEncoding(encoding), authorities: &authorities };
        through(
            |out| out.certreq(&request),
            |_, body| assert!(matches!(body, Body::CertReq(read) if read == request)),
        );
    }

    #[test]
    fn auth(method in 0u8..14, data in bytes(0..600), algorithm in bytes(1..256), value in bytes(1..600)) {
        let auth = Auth { method: AuthMethod(method), data: &data };
        through(|out| out.auth(&auth), |_, body| assert!(matches!(body, Body::Auth(read) if read == auth)));
        let signature = DigitalSignature { algorithm: &algorithm, value: &value };
        through(
            |out| out.auth_signature(&signature),
            |_, body| {
                assert!(matches!(body, Body::Auth(read) if read.signature() == Some(signature)));
            },
        );
    }

    #[test]
    fn small_payloads(data in bytes(16..257), code: u8, identifier: u8) {
        let nonce = Nonce::parse(&data).unwrap();
        through(|out| out.nonce(&nonce), |_, body| assert_eq!(body, Body::Nonce(nonce)));
        through(|out| out.vendor(&Vendor(&data)), |_, body| assert_eq!(body, Body::Vendor(Vendor(&data))));
        let data = if matches!(code, 3 | 4) { &[][..] } else { &data };
        let eap = Eap { code: EapCode(code), identifier, data };
        through(|out| out.eap(&eap), |_, body| assert_eq!(body, Body::Eap(eap)));
    }

    #[test]
    fn notify(kind in 16_393u16..16_430, data in bytes(0..100), spi: [u8; 4], protocol in 2u8..4) {
        let named = Notify { protocol: ProtocolId(protocol), kind: NotifyType(kind), spi: &spi, data: &data };
        through(|out| out.notify(&named), |_, body| assert_eq!(body, Body::Notify(named)));
        let plain = Notify::new(NotifyType(kind + 1), &data);
        through(|out| out.notify(&plain), |_, body| assert_eq!(body, Body::Notify(plain)));
    }

    #[test]
    fn delete(spis in vec(any::<[u8; 4]>(), 0..100), protocol in 2u8..4) {
        let delete = Delete::children(ProtocolId(protocol), &spis).unwrap();
        through(|out| out.delete(&delete), |_, body| assert_eq!(body, Body::Delete(delete)));
        assert!(delete.spis().eq(spis.iter().map(|spi| &spi[..])));
        through(|out| out.delete(&Delete::IKE_SA), |_, body| assert_eq!(body, Body::Delete(Delete::IKE_SA)));
    }

    #[test]
    fn unknown(kind in prop_oneof![1u8..33, 49u8..53, 54u8..=255], data in bytes(0..500)) {
        through(
            |out| out.other(PayloadType(kind), false, &data),
            |read, body| {
                assert_eq!((read.0, body), (kind, Body::Unknown(&data)));
            },
        );
    }

    #[test]
    fn encrypted(data in bytes(0..500), iv in 0usize..20, icv in 0usize..40, block in 1usize..=256) {
        let layout = SkLayout { iv, block, icv };
        let mut buf = std::vec![0xee; 2_000];
        let mut writer =
            Writer::new(&mut buf, &header(ExchangeType::IKE_AUTH)).unwrap().encrypted(layout).unwrap();
        writer.payloads().vendor(&Vendor(&data)).unwrap();
        let sealable = writer.finish().unwrap();
        let plaintext = &sealable.message[sealable.parts.ciphertext.clone()];
        prop_assert!(plaintext.len().is_multiple_of(block));
        let payloads = sk::unpad(plaintext).unwrap();
        prop_assert_eq!(payloads, &sealable.message[sealable.payloads]);
        let message = Message::parse(sealable.message).unwrap();
        let Ok(Body::Encrypted(encrypted)) = Body::parse(&message.payloads().next().unwrap().unwrap()) else {
            panic!()
        };
        prop_assert_eq!(encrypted.parts(&layout), Ok(sealable.parts));
        let inner: Vec<_> = Payloads::from_plaintext(encrypted.first, payloads).map(Result::unwrap).collect();
        prop_assert_eq!(inner.len(), 1);
        prop_assert_eq!(Body::parse(&inner[0]), Ok(Body::Vendor(Vendor(&data))));
    }
}
