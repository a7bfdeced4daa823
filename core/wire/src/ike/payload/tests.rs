use super::*;
use crate::ike::Message;
use crate::ike::tests::{fault, message};
use std::vec;
use std::vec::Vec;

fn walk(first: u8, plaintext: &[u8]) -> Vec<Result<(u8, usize, usize), Fault>> {
    Payloads::of_plaintext(PayloadType(first), plaintext)
        .map(|payload| payload.map(|payload| (payload.kind.0, payload.at, payload.body.len())))
        .collect()
}

#[test]
fn a_chain_is_followed_to_its_end() {
    let chain = [40, 0x80, 0, 4, 0, 0x7f, 0, 6, 1, 2];
    assert_eq!(walk(43, &chain), [Ok((43, 0, 0)), Ok((40, 4, 2))]);
    let critical: Vec<bool> =
        Payloads::of_plaintext(PayloadType(43), &chain).map(|payload| payload.unwrap().critical).collect();
    assert_eq!(critical, [true, false]);
    assert_eq!(walk(0, &[]), []);
}

#[test]
fn a_length_below_four_is_refused() {
    for claimed in 0..4 {
        let fault = Fault::PayloadLength { at: 0, payload: PayloadType(43), claimed };
        assert_eq!(walk(43, &[43, 0, 0, claimed as u8, 0, 0, 0, 4]), [Err(fault)]);
    }
}

#[test]
fn a_length_beyond_the_message_is_refused() {
    for claimed in 9..=u16::MAX {
        let [hi, lo] = claimed.to_be_bytes();
        let fault = Fault::PayloadTruncated { at: 0, payload: PayloadType(43), claimed, len: 8 };
        assert_eq!(walk(43, &[0, 0, hi, lo, 1, 2, 3, 4]), [Err(fault)]);
    }
}

#[test]
fn a_promised_payload_must_be_there() {
    for len in 0..4 {
        let fault = Fault::PayloadHeaderTruncated { at: 4, payload: PayloadType(40), len };
        let chain = [40, 0, 0, 4, 0, 0, 0, 4];
        assert_eq!(walk(43, &chain[..4 + len]), [Ok((43, 0, 0)), Err(fault)]);
    }
}

#[test]
fn bytes_behind_the_last_payload_are_refused() {
    let fault = Fault::BytesBehindPayloads { at: 4, len: 1 };
    assert_eq!(walk(43, &[0, 0, 0, 4, 0]), [Ok((43, 0, 0)), Err(fault)]);
    assert_eq!(walk(0, &[9]), [Err(Fault::BytesBehindPayloads { at: 0, len: 1 })]);
}

#[test]
fn a_chain_that_names_itself_comes_to_an_end() {
    // Each payload says that one of its own kind follows.
    let mut chain = vec![0; 4 * MAX_PAYLOADS];
    chain.chunks_mut(4).for_each(|header| header.copy_from_slice(&[43, 0, 0, 4]));
    let found = walk(43, &chain);
    assert_eq!(found.len(), MAX_PAYLOADS + 1);
    assert_eq!(found.last(), Some(&Err(Fault::TooManyPayloads { limit: MAX_PAYLOADS })));
    chain.truncate(400);
    let fault = Fault::PayloadHeaderTruncated { at: 400, payload: PayloadType(43), len: 0 };
    assert_eq!(walk(43, &chain).last(), Some(&Err(fault)));
}

#[test]
fn as_many_payloads_as_the_limit_says() {
    let payloads = vec![(43, false, &[][..]); MAX_PAYLOADS + 1];
    assert_eq!(fault(&message(&payloads[1..])), None);
    assert_eq!(fault(&message(&payloads)), Some(Fault::TooManyPayloads { limit: MAX_PAYLOADS }));
    assert_eq!(
        fault(&message(&[(200, false, &[][..]); 300])),
        Some(Fault::TooManyPayloads { limit: MAX_PAYLOADS })
    );
}

#[test]
fn an_encrypted_payload_is_the_last() {
    for kind in [46, 53] {
        let body = [0, 1, 0, 1, 9, 9];
        let bytes = message(&[(43, false, &[]), (kind, false, &body), (43, false, &[])]);
        assert_eq!(fault(&bytes), Some(Fault::EncryptedNotLast { at: 32, payload: PayloadType(kind) }));
        let bytes = message(&[(43, false, &[]), (kind, false, &body)]);
        assert_eq!(fault(&bytes), None);
    }
}

#[test]
fn an_encrypted_payload_names_the_first_inside() {
    let mut bytes = message(&[(46, false, &[1, 2, 3])]);
    bytes[28] = 35;
    let payloads: Vec<_> = Message::parse(&bytes).unwrap().payloads().collect();
    let payload =
        Payload { kind: PayloadType::SK, critical: false, next: PayloadType::ID_I, body: &[1, 2, 3], at: 28 };
    assert_eq!(payloads, [Ok(payload)]);
}

#[test]
fn ike_sa_init_has_no_encrypted_payload() {
    for kind in [46, 53] {
        let mut bytes = message(&[(43, false, &[]), (kind, false, &[0, 1, 0, 1, 0])]);
        assert_eq!(fault(&bytes), None);
        bytes[18] = ExchangeType::IKE_SA_INIT.0;
        assert_eq!(fault(&bytes), Some(Fault::EncryptedInInit { at: 32, payload: PayloadType(kind) }));
    }
}

#[test]
fn an_encrypted_payload_holds_no_other() {
    for kind in [46, 53] {
        let nested = Fault::EncryptedNested { at: 4, payload: PayloadType(kind) };
        assert_eq!(walk(43, &[kind, 0, 0, 4, 0, 0, 0, 4]), [Ok((43, 0, 0)), Err(nested)]);
    }
}

#[test]
fn vpp_98d6f29_no_message_is_read_beyond_its_length() {
    // The datagram goes on, the message does not.
    let mut bytes = message(&[(43, false, &[1, 2, 3, 4])]);
    bytes.extend([0; 20]);
    assert_eq!(fault(&bytes), Some(Fault::BytesBehindMessage { claimed: 36, len: 56 }));
    bytes.truncate(36);
    bytes[30..32].copy_from_slice(&[0, 9]);
    let truncated = Fault::PayloadTruncated { at: 28, payload: PayloadType(43), claimed: 9, len: 8 };
    assert_eq!(fault(&bytes), Some(truncated));
}
