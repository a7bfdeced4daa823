//! IKE_SA_INIT requests of unknown peers (RFC 7296 sections 1.2, 2.5, 2.6, 2.7 and 2.21.1).

use crate::forge::{
    Raw, altered, count, first_request, give_on, give_right, notifies, plain, read_plain, without,
};
use crate::pair::Pair;
use casemate_ike::Path;
use casemate_wire::ike::{ExchangeType, Header, IkeSpi, NotifyType, PayloadType, Version};

/// Sends a changed request to the right side and checks the fault counter. Returns the responses.
fn try_request(alter: impl FnOnce(&mut Header, &mut Vec<Raw>), fault: &str) -> Vec<Vec<u8>> {
    let mut pair = Pair::with_defaults();
    let request = first_request(&mut pair);
    let (mut header, mut payloads) = read_plain(&request);
    alter(&mut header, &mut payloads);
    let answers = give_right(&mut pair, &plain(&header, &payloads));
    assert_eq!(count(&pair.right, fault), 1, "{:?}", pair.right.events);
    assert_eq!(pair.right.ike.status().count(), 0, "no state is kept");
    // The authentic request is still accepted.
    assert_eq!(give_right(&mut pair, &request).len(), 1);
    assert_eq!(pair.right.ike.status().count(), 1);
    answers
}

/// The only notification of the only response.
pub(crate) fn only_notify(answers: &[Vec<u8>]) -> (NotifyType, Vec<u8>) {
    assert_eq!(answers.len(), 1);
    let (header, payloads) = read_plain(&answers[0]);
    assert!(header.flags.response && !header.flags.initiator && header.message_id == 0);
    assert_eq!(header.spi_r, IkeSpi::NONE);
    assert_eq!(payloads.len(), 1);
    notifies(&payloads).remove(0)
}

#[test]
fn another_major_version() {
    let answers = try_request(|header, _| header.version = Version(0x30), "higher-major-version");
    assert_eq!(only_notify(&answers), (NotifyType::INVALID_MAJOR_VERSION, vec![]));
    assert_eq!(read_plain(&answers[0]).0.version, Version::V2);
    let silent = try_request(|header, _| header.version = Version(0x10), "lower-major-version");
    assert!(silent.is_empty());
    let response = |header: &mut Header, _: &mut Vec<Raw>| {
        header.version = Version(0x30);
        header.flags.response = true;
    };
    assert!(try_request(response, "higher-major-version").is_empty());
    // RFC 7296 section 2.5: the minor version is ignored.
    let mut pair = Pair::with_defaults();
    let (header, payloads) = read_plain(&first_request(&mut pair));
    let minor = plain(&Header { version: Version(0x2f), ..header }, &payloads);
    assert!(read_plain(&give_right(&mut pair, &minor)[0]).1.iter().any(|p| p.kind == PayloadType::SA));
}

#[test]
fn invalid_first_headers_are_rejected() {
    let silent = |alter: fn(&mut Header), fault| {
        assert!(try_request(|header, _| alter(header), fault).is_empty());
    };
    silent(|header| header.spi_i = IkeSpi::NONE, "zero-spi");
    silent(|header| header.spi_r = IkeSpi(7), "unknown-spi");
    silent(|header| header.message_id = 1, "message-id");
    silent(|header| header.message_id = u32::MAX, "message-id");
    silent(|header| header.flags.initiator = false, "message-id");
    silent(|header| header.flags.response = true, "unknown-spi");
    for exchange in [ExchangeType::IKE_AUTH, ExchangeType::CREATE_CHILD_SA, ExchangeType::INFORMATIONAL] {
        assert!(try_request(|header, _| header.exchange = exchange, "unknown-spi").is_empty());
    }
}

#[test]
fn lengths_of_the_header() {
    for (claimed, fault) in [(0, "message-length"), (27, "message-length"), (28, "bytes-behind-message")] {
        wrong_length(|_| claimed, fault);
    }
    wrong_length(|len| len + 1, "message-truncated");
    wrong_length(|_| u32::MAX, "message-truncated");
    wrong_length(|len| len - 1, "bytes-behind-message");
}

fn wrong_length(claim: impl Fn(u32) -> u32, fault: &str) {
    let mut pair = Pair::with_defaults();
    let mut request = first_request(&mut pair);
    let len = u32::try_from(request.len()).unwrap();
    request[24..28].copy_from_slice(&claim(len).to_be_bytes());
    assert!(give_right(&mut pair, &request).is_empty());
    assert_eq!((count(&pair.right, fault), pair.right.ike.status().count()), (1, 0), "{fault}");
}

#[test]
fn missing_and_duplicate_payloads_are_rejected() {
    for kind in [PayloadType::SA, PayloadType::KE, PayloadType::NONCE] {
        // RFC 7296 sections 2.21.1 and 3.10.1: an unknown peer is not told about syntax errors.
        let missing = try_request(|_, payloads| *payloads = without(payloads, kind), "payload-missing");
        assert!(missing.is_empty());
        let double = |_: &mut Header, payloads: &mut Vec<Raw>| {
            let again = payloads.iter().find(|payload| payload.kind == kind).unwrap().clone();
            payloads.push(again);
        };
        assert!(try_request(double, "payload-twice").is_empty());
    }
}

#[test]
fn an_unknown_critical_payload() {
    let answers =
        try_request(|_, payloads| payloads.push(Raw::critical(200)), "unsupported-critical-payload");
    assert_eq!(only_notify(&answers), (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![200]));
}

#[test]
fn an_encrypted_payload_before_keys_exist_is_rejected() {
    for kind in [PayloadType::SK, PayloadType::SKF] {
        let sealed = Raw::new(kind, &[0; 64]);
        let answers = try_request(|_, payloads| payloads.push(sealed), "encrypted-in-init");
        assert!(answers.is_empty());
    }
}

#[test]
fn unknown_payloads_are_ignored_up_to_a_limit() {
    let many = |count| (0..count).map(|_| Raw::new(PayloadType(200), &[])).collect::<Vec<_>>();
    assert!(try_request(|_, payloads| payloads.extend(many(300)), "too-many-payloads").is_empty());
    let mut pair = Pair::with_defaults();
    let (header, mut payloads) = read_plain(&first_request(&mut pair));
    payloads.splice(0..0, many(100));
    assert_eq!(give_right(&mut pair, &plain(&header, &payloads)).len(), 1);
    assert_eq!(pair.right.ike.status().count(), 1);
}

#[test]
fn invalid_public_values_are_rejected() {
    let ke = |alter: fn(&mut Vec<u8>), fault| {
        let answers = try_request(|_, payloads| *payloads = altered(payloads, PayloadType::KE, alter), fault);
        assert!(answers.is_empty());
    };
    // RFC 8031 section 3.2, RFC 7748 section 6.1: an all-zero shared secret is refused.
    ke(|body| body[4..].fill(0), "ke-value");
    ke(|body| body.truncate(4), "ke-length");
    ke(|body| body.truncate(35), "ke-length");
    ke(|body| body.push(0), "ke-length");
    ke(|body| body.truncate(3), "body-truncated");
}

#[test]
fn a_wrong_group_is_corrected() {
    // MODP-768 is not configured, and the public value is of that group: the response names the right one.
    let answers = try_request(
        |_, payloads| {
            *payloads = altered(payloads, PayloadType::KE, |body| {
                *body = [&[0, 1, 0, 0][..], &[7; 96]].concat();
            });
        },
        "ke-method",
    );
    assert_eq!(only_notify(&answers), (NotifyType::INVALID_KE_PAYLOAD, vec![0, 31]));
}

/// A transform substructure of a proposal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawTransform {
    kind: u8,
    id: u16,
    attributes: &'static [u8],
}

pub(crate) const fn transform(kind: u8, id: u16, attributes: &'static [u8]) -> RawTransform {
    RawTransform { kind, id, attributes }
}

/// An SA payload with one proposal: protocol 1, no SPI, these transforms.
pub(crate) fn sa(number: u8, transforms: &[RawTransform]) -> Vec<u8> {
    sa_of(&[proposal(number, 1, &[], transforms)])
}

pub(crate) fn proposal(number: u8, protocol: u8, spi: &[u8], transforms: &[RawTransform]) -> Vec<u8> {
    let last = transforms.len() - 1;
    let each = transforms.iter().enumerate().flat_map(|(at, RawTransform { kind, id, attributes })| {
        let more = if at == last { 0 } else { 3 };
        let len = u16::try_from(8 + attributes.len()).unwrap().to_be_bytes();
        [&[more, 0], &len[..], &[*kind, 0], &id.to_be_bytes(), attributes].concat()
    });
    let count = u8::try_from(transforms.len()).unwrap();
    let body: Vec<u8> = [number, protocol, u8::try_from(spi.len()).unwrap(), count]
        .into_iter()
        .chain(spi.to_vec())
        .chain(each)
        .collect();
    let len = u16::try_from(4 + body.len()).unwrap().to_be_bytes();
    [&[0, 0], &len[..], &body].concat()
}

pub(crate) fn sa_of(proposals: &[Vec<u8>]) -> Vec<u8> {
    let mut all = proposals.to_vec();
    let last = all.len() - 1;
    all[..last].iter_mut().for_each(|proposal| proposal[0] = 2);
    all.concat()
}

pub(crate) const GCM128: RawTransform = transform(1, 20, &[0x80, 14, 0, 128]);
pub(crate) const PRF: RawTransform = transform(2, 5, &[]);
pub(crate) const X25519: RawTransform = transform(4, 31, &[]);

/// SA payload with the right side's choice from these proposals.
fn choice(body: &[u8]) -> Vec<u8> {
    let mut pair = Pair::with_defaults();
    let (header, payloads) = read_plain(&first_request(&mut pair));
    let payloads = altered(&payloads, PayloadType::SA, |sa| *sa = body.into());
    let answers = give_right(&mut pair, &plain(&header, &payloads));
    let (_, answer) = read_plain(&answers[0]);
    answer.into_iter().find(|payload| payload.kind == PayloadType::SA).unwrap().body
}

fn refused(body: &[u8], fault: &str) -> Vec<Vec<u8>> {
    try_request(|_, payloads| *payloads = altered(payloads, PayloadType::SA, |sa| *sa = body.into()), fault)
}

#[test]
fn acceptable_proposals_are_chosen() {
    // The method of the received public value is preferred.
    let plain = sa(1, &[X25519, GCM128, PRF]);
    assert_eq!(choice(&sa(1, &[GCM128, PRF, X25519])), plain);
    // RFC 7296 section 3.3: INTEG NONE with a combined-mode cipher means no transform.
    assert_eq!(choice(&sa(1, &[GCM128, transform(3, 0, &[]), PRF, X25519])), plain);
    // A transform with another key length, an unknown number, or an unknown attribute is skipped.
    let strange: &[u8] = &[0x80, 14, 0, 128, 0x80, 99, 0, 1];
    for other in [transform(1, 20, &[0x80, 14, 0, 0]), transform(1, 999, &[]), transform(1, 20, strange)] {
        assert_eq!(choice(&sa(1, &[other, GCM128, PRF, X25519])), plain);
    }
    // The second proposal, with its number, if the first is not acceptable.
    let weak = proposal(
        1,
        1,
        &[],
        &[transform(1, 3, &[]), transform(2, 2, &[]), transform(3, 2, &[]), transform(4, 2, &[])],
    );
    let good = proposal(2, 1, &[], &[X25519, GCM128, PRF]);
    assert_eq!(choice(&sa_of(&[weak, good.clone()])), good);
    // An additional key exchange, which the request does not announce (RFC 9370 section 2.2.1).
    let additional = proposal(1, 1, &[], &[GCM128, PRF, X25519, transform(6, 0, &[]), transform(6, 35, &[])]);
    assert_eq!(choice(&sa_of(&[additional, good.clone()])), good);
}

#[test]
fn unacceptable_proposals_are_rejected() {
    let none = (NotifyType::NO_PROPOSAL_CHOSEN, vec![]);
    let not_chosen: [&[RawTransform]; 9] = [
        &[transform(1, 20, &[]), PRF, X25519],
        &[transform(1, 20, &[0x80, 14, 0, 128, 0x80, 99, 0, 1]), PRF, X25519],
        &[GCM128, transform(3, 12, &[]), PRF, X25519],
        &[transform(1, 12, &[0x80, 14, 0, 128]), PRF, X25519],
        &[transform(1, 12, &[0x80, 14, 0, 128]), transform(3, 0, &[]), PRF, X25519],
        &[GCM128, X25519],
        &[GCM128, PRF],
        &[GCM128, PRF, X25519, transform(99, 1, &[])],
        &[GCM128, PRF, X25519, transform(6, 0, &[])],
    ];
    for transforms in not_chosen {
        let answers = refused(&sa(1, transforms), "no-proposal-chosen");
        assert_eq!(only_notify(&answers), none, "{transforms:?}");
    }
    assert!(refused(&sa(2, &[GCM128, PRF, X25519]), "first-proposal").is_empty());
    assert!(refused(&[], "no-proposal").is_empty());
}

#[test]
fn cve_2024_3652_a_key_length_of_zero_is_not_chosen() {
    for id in [20, 12, 21] {
        let answers =
            refused(&sa(1, &[transform(1, id, &[0x80, 14, 0, 0]), PRF, X25519]), "no-proposal-chosen");
        assert_eq!(only_notify(&answers).0, NotifyType::NO_PROPOSAL_CHOSEN);
    }
}

#[test]
fn cve_2016_5391_no_type_of_transform_can_be_left_out() {
    let all = [GCM128, PRF, X25519];
    for omitted in 0..all.len() {
        let some: Vec<_> = (0..all.len()).filter(|at| *at != omitted).map(|at| all[at]).collect();
        assert_eq!(
            only_notify(&refused(&sa(1, &some), "no-proposal-chosen")).0,
            NotifyType::NO_PROPOSAL_CHOSEN
        );
    }
}

#[test]
fn a_repeated_request_gets_the_same_response_and_a_changed_one_none() {
    let mut pair = Pair::with_defaults();
    let request = first_request(&mut pair);
    let answer = give_right(&mut pair, &request);
    assert_eq!(give_right(&mut pair, &request), answer);
    let (header, mut payloads) = read_plain(&request);
    payloads.push(Raw::new(PayloadType::VENDOR, b"other"));
    assert!(give_right(&mut pair, &plain(&header, &payloads)).is_empty());
    assert_eq!((count(&pair.right, "message-id"), pair.right.ike.status().count()), (1, 1));
    // The exchange continues.
    pair.right.sent.clear();
    let answers = answer.into_iter().collect::<Vec<_>>();
    crate::forge::give_left(&mut pair, &answers[0]).into_iter().for_each(|auth| {
        assert_eq!(give_right(&mut pair, &auth).len(), 1);
    });
    pair.right.sent.clear();
    assert_eq!(pair.right.children().len(), 1);
}

#[test]
fn unknown_peers_without_connection_are_rejected() {
    let mut pair = Pair::with_defaults();
    let request = first_request(&mut pair);
    let path = Path { local: (pair.right.addr, 500).into(), remote: "192.0.2.99:500".parse().unwrap() };
    let answers = give_on(&mut pair, &request, path);
    assert_eq!(only_notify(&answers).0, NotifyType::NO_PROPOSAL_CHOSEN);
    assert_eq!((count(&pair.right, "no-connection"), pair.right.ike.status().count()), (1, 0));
}
