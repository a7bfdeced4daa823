//! Tests of the oracle itself: each violation is found, and what is permitted is not.

use crate::net::{CHARON, INNER, OUTSIDE_VIRTUAL, PEER};
use crate::oracle::{Oracle, Sending};
use crate::traffic::MARK;
use std::net::Ipv4Addr;
use std::time::Duration;

const ESP: u8 = 50;
const UDP: u8 = 17;
const INITIATOR: u8 = 8;
const RESPONSE: u8 = 0x20;
const INFORMATIONAL: u8 = 37;
const CREATE_CHILD_SA: u8 = 36;

/// An Ethernet frame with an IPv4 packet.
pub(crate) fn frame(protocol: u8, src: Ipv4Addr, dst: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
    frame.extend(src.octets());
    frame.extend(dst.octets());
    frame.extend(payload);
    frame
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut datagram: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    datagram.extend((8 + payload.len() as u16).to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    datagram
}

/// An ESP packet with a certain content.
pub(crate) fn esp_with(content: u8, spi: u32, number: u32, iv: u64) -> Vec<u8> {
    [&spi.to_be_bytes()[..], &number.to_be_bytes(), &iv.to_be_bytes(), &[content; 40]].concat()
}

fn esp(spi: u32, number: u32, iv: u64) -> Vec<u8> {
    esp_with(7, spi, number, iv)
}

/// An encrypted IKE message of one IKE SA.
fn ike(exchange: u8, flags: u8, id: u32, iv: u64, content: &[u8]) -> Vec<u8> {
    let body = [&iv.to_be_bytes()[..], content, &[9; 17]].concat();
    let total = (28 + 4 + body.len()) as u32;
    let mut message = vec![1; 8];
    message.extend([2; 8]);
    message.extend([46, 0x20, exchange, flags]);
    message.extend(id.to_be_bytes());
    message.extend(total.to_be_bytes());
    message.extend([0, 0]);
    message.extend((4 + body.len() as u16).to_be_bytes());
    message.extend(body);
    message
}

/// Examines packets of the cell, each a second after the other and by the next gateway.
fn findings(packets: &[Vec<u8>]) -> Vec<String> {
    let mut oracle = Oracle::default();
    for (second, packet) in (0..).zip(packets) {
        let sender = ["gw1", "gw2", "gw3"][second % 3];
        oracle.examine(Sending { sender, at: Duration::from_secs(second as u64) }, packet);
    }
    oracle.findings().to_vec()
}

fn of_esp(packets: &[Vec<u8>]) -> Vec<String> {
    let frames: Vec<_> = packets.iter().map(|packet| frame(ESP, OUTSIDE_VIRTUAL, PEER, packet)).collect();
    findings(&frames)
}

fn of_ike(messages: &[Vec<u8>]) -> Vec<String> {
    let on_500 = |message: &Vec<u8>| frame(UDP, OUTSIDE_VIRTUAL, PEER, &udp([500, 500], message));
    findings(&messages.iter().map(on_500).collect::<Vec<_>>())
}

#[test]
fn repeated_esp_numbers_are_found() {
    assert!(of_esp(&[esp(1, 1, 1), esp(1, 2, 2), esp(2, 1, 1)]).is_empty());
    let both = of_esp(&[esp(1, 1, 1), esp_with(8, 1, 1, 1)]);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both[0].contains("gw2 at 1s") && both[0].contains("the sequence number was used"), "{both:?}");
    assert!(of_esp(&[esp(1, 1, 1), esp(1, 1, 2)])[0].contains("the sequence number"));
    assert!(of_esp(&[esp(1, 1, 1), esp(1, 2, 1)])[0].contains("the IV"));
    // A copy that another gateway forwards is not a use of the key. It does not hide what follows.
    assert!(of_esp(&[esp(1, 1, 1), esp(1, 1, 1)]).is_empty());
    assert_eq!(of_esp(&[esp(1, 1, 1), esp(1, 1, 1), esp_with(8, 1, 1, 1)]).len(), 2);
}

#[test]
fn esp_in_udp_is_the_same_sa() {
    let plain = frame(ESP, OUTSIDE_VIRTUAL, PEER, &esp(1, 1, 1));
    let in_udp = frame(UDP, OUTSIDE_VIRTUAL, PEER, &udp([4500, 4500], &esp_with(8, 1, 1, 1)));
    assert_eq!(findings(&[plain.clone(), in_udp.clone()]).len(), 2);
    // The other direction has another key.
    let back = frame(ESP, PEER, OUTSIDE_VIRTUAL, &esp(1, 1, 1));
    assert!(findings(&[plain.clone(), back]).is_empty());
    // Another receiver may have chosen the same SPI.
    let other = frame(ESP, OUTSIDE_VIRTUAL, CHARON, &esp(1, 1, 1));
    assert!(findings(&[plain, other]).is_empty());
}

#[test]
fn retransmissions_are_permitted_and_other_messages_with_their_iv_are_not() {
    let request = ike(CREATE_CHILD_SA, INITIATOR, 5, 1, b"proposal");
    assert!(of_ike(&[request.clone(), request.clone()]).is_empty());
    // With the marker of port 4500.
    let marked = [&[0; 4][..], &request].concat();
    let on_4500 = frame(UDP, OUTSIDE_VIRTUAL, PEER, &udp([4500, 4500], &marked));
    assert!(findings(&[on_4500.clone(), on_4500.clone()]).is_empty());
    let other = frame(
        UDP,
        OUTSIDE_VIRTUAL,
        PEER,
        &udp([500, 500], &ike(CREATE_CHILD_SA, INITIATOR, 6, 1, b"proposal")),
    );
    assert!(findings(&[on_4500, other])[0].contains("the IV was used for another message"));
    // The responder has another key.
    assert!(of_ike(&[request.clone(), ike(CREATE_CHILD_SA, RESPONSE, 5, 1, b"response")]).is_empty());
    let changed = of_ike(&[request, ike(CREATE_CHILD_SA, INITIATOR, 5, 2, b"another proposal")]);
    assert!(changed[0].contains("it was another message"), "{changed:?}");
}

#[test]
fn only_liveness_checks_may_be_encrypted_again() {
    let check = |iv| ike(INFORMATIONAL, RESPONSE, 7, iv, b"");
    assert!(of_ike(&[check(1), check(2)]).is_empty());
    let deletes = |iv| ike(INFORMATIONAL, RESPONSE, 7, iv, &[42, 0, 0, 8, 1, 0, 0, 0]);
    assert_eq!(of_ike(&[deletes(1), deletes(2)]).len(), 1);
    assert_eq!(of_ike(&[check(1), deletes(2)]).len(), 1);
}

#[test]
fn packets_of_inner_hosts_are_found_in_clear() {
    let inner = frame(UDP, INNER, PEER, &udp([1, 2], b"text"));
    assert!(findings(&[inner])[0].contains("in clear"));
    let marked = frame(UDP, OUTSIDE_VIRTUAL, PEER, &udp([1, 2], MARK));
    assert!(findings(&[marked])[0].contains("a datagram of an inner host in clear"));
    let harmless = frame(UDP, OUTSIDE_VIRTUAL, PEER, &udp([1, 2], b"text"));
    assert!(findings(&[harmless]).is_empty());
    // What the oracle cannot read is a finding, too.
    let mut fragment = frame(ESP, OUTSIDE_VIRTUAL, PEER, &esp(1, 1, 1));
    fragment[20] = 0x20;
    assert!(findings(&[fragment])[0].contains("a fragment"));
    assert!(of_ike(&[vec![0; 40]])[0].contains("cannot be read"));
}
