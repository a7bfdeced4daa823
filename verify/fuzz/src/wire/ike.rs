//! IKEv2 messages.

use super::{assert_parts, ike_payload};
use crate::Target;
use casemate_wire::ike::sk::unpad;
use casemate_wire::ike::{Body, Fault, HEADER_LEN, Header, MAX_PAYLOADS, Message, Payload, Payloads};

pub(crate) const TARGET: Target = Target {
    name: "ike",
    about: "IKEv2 messages: headers round-trip, payloads make up the message, an encrypted payload is the last one",
    max_len: 1_500,
    run,
    seeds,
    dictionary: &[],
};

fn run(bytes: &[u8]) {
    let header = Header::parse(bytes);
    assert_eq!(header.is_ok(), bytes.len() >= HEADER_LEN);
    let Ok(header) = header else { return };
    let mut emitted = [0; HEADER_LEN];
    header.emit(&mut emitted);
    let mut expected = bytes[..HEADER_LEN].to_vec();
    // Undefined flags are ignored.
    expected[19] &= 0x38;
    assert_eq!(emitted, expected[..]);
    let is_whole = bytes[17] >> 4 == 2
        && u32::from_be_bytes([bytes[24], bytes[25], bytes[26], bytes[27]]) as usize == bytes.len();
    let message = Message::parse(bytes);
    assert_eq!(message.is_ok(), is_whole);
    // Otherwise few inputs would have a valid version and length.
    let mut repaired = bytes.to_vec();
    repaired[17] = 0x20;
    repaired[24..28].copy_from_slice(&(bytes.len() as u32).to_be_bytes());
    let message = Message::parse(&repaired).unwrap();
    assert_eq!((message.bytes(), message.header().message_id), (&repaired[..], header.message_id));
    check_chain(&repaired[HEADER_LEN..], HEADER_LEN, message.payloads(), |payload| {
        // Walks the encrypted content as if the key were known: it is also a chain, but contains no
        // encrypted payload.
        let Ok(Body::Encrypted(encrypted)) = Body::parse(payload) else { return };
        let Ok(plaintext) = unpad(encrypted.content) else { return };
        let inner = Payloads::from_plaintext(encrypted.first, plaintext);
        check_chain(plaintext, 0, inner, |payload| assert!(!payload.kind.is_encrypted()));
    });
}

/// Walks a chain: its payloads follow each other and, without a fault, make up the whole.
fn check_chain<'a>(whole: &'a [u8], start: usize, mut chain: Payloads<'a>, each: impl Fn(&Payload<'a>)) {
    let (mut parts, mut count, mut is_last) = (Vec::new(), 0, false);
    let fault = loop {
        match chain.next() {
            None => break None,
            Some(Err(fault)) => break Some(fault),
            Some(Ok(payload)) => {
                assert!(!is_last, "a payload follows an encrypted one");
                is_last = payload.kind.is_encrypted();
                let at = payload.at - start;
                parts.push(&whole[at..at + 4]);
                parts.push(payload.body);
                count += 1;
                ike_payload::check(&payload);
                each(&payload);
            }
        }
    };
    assert!(chain.next().is_none(), "the chain continues after its end");
    assert!(count <= MAX_PAYLOADS);
    let read: usize = parts.iter().map(|part| part.len()).sum();
    assert_parts(&whole[..read], &parts);
    assert_eq!(fault.is_none(), read == whole.len() && !is_unfinished(fault), "{fault:?}");
}

/// Whether the chain claims more payloads than the message contains.
fn is_unfinished(fault: Option<Fault>) -> bool {
    matches!(fault, Some(Fault::PayloadHeaderTruncated { len: 0, .. } | Fault::TooManyPayloads { .. }))
}

fn seeds() -> Vec<Vec<u8>> {
    let bodies = ike_payload::bodies();
    let mut seeds: Vec<Vec<u8>> = bodies.iter().map(|(kind, body)| message(&[(*kind, body)])).collect();
    let open: Vec<(u8, &Vec<u8>)> = bodies
        .iter()
        .filter(|(kind, _)| !matches!(kind, 46 | 53))
        .map(|(kind, body)| (*kind, body))
        .collect();
    seeds.push(message(&open));
    // The same payloads in clear inside an encrypted payload.
    let inner = message(&open);
    let mut content = inner[HEADER_LEN..].to_vec();
    content.push(0);
    let mut outer = message(&[(46, &content)]);
    outer[HEADER_LEN] = inner[16];
    seeds.push(outer);
    seeds
}

/// Message with these payloads.
fn message(payloads: &[(u8, &Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![1; HEADER_LEN];
    bytes[16..20].copy_from_slice(&[payloads[0].0, 0x20, 34, 8]);
    for (at, (_, body)) in payloads.iter().enumerate() {
        let [hi, lo] = (body.len() as u16 + 4).to_be_bytes();
        bytes.extend([payloads.get(at + 1).map_or(0, |next| next.0), 0, hi, lo]);
        bytes.extend(*body);
    }
    let len = (bytes.len() as u32).to_be_bytes();
    bytes[24..28].copy_from_slice(&len);
    bytes
}
