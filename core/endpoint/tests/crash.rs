//! A host restarts without its SAs, accepts any peer, and only its peer sends. The host reports the unknown
//! SPI, and its token proves that it has forgotten the IKE SA (RFC 7296 sections 1.5 and 2.21.4, RFC 6290).
//! Forged messages close nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail")]

mod common;

use casemate::Endpoint;
use casemate_crypto::SecretBytes;
use casemate_datapath::DropReason;
use casemate_ike::config::{AddrPattern, ChildConfig, Connection, StartAction};
use casemate_ike::{Path, StateFault};
use common::node::{Node, connection, exchange_messages};
use common::packets::{forged, protect, receive};
use common::{OWN, PEER};
use std::time::Duration;

/// Identifies a response in the flags of an IKE header, and the original initiator.
const RESPONSE: u8 = 0x20;
const INITIATOR: u8 = 0x08;
const IKE_AUTH: u8 = 35;
const INFORMATIONAL: u8 = 37;
const NOTIFY: u8 = 41;

/// The connection of the host that sends packets. It names the address of its peer.
fn sender(start_action: StartAction) -> Connection {
    let child = ChildConfig { start_action, ..ChildConfig::new("all") };
    Connection { dpd_delay: None, ..connection(OWN, PEER, child) }
}

fn receiver(secret: Option<u8>) -> Node {
    let connection = connection(PEER, OWN, ChildConfig::new("all"));
    let mut node =
        Node::new(Connection { remote_addrs: vec![AddrPattern::Any], dpd_delay: None, ..connection });
    node.endpoint.set_crash_secret(secret.map(|secret| SecretBytes::new(&[secret; 32])));
    node
}

/// Two hosts with a Child SA, started by the first one.
fn established(start_action: StartAction, secret: Option<u8>) -> [Node; 2] {
    let mut nodes = [Node::new(sender(start_action)), receiver(secret)];
    nodes[0].endpoint.set_crash_secret(Some(SecretBytes::new(&[7; 32])));
    let connection = nodes[0].endpoint.ike().connections()[0].clone();
    let child = Some(&connection.children[0]);
    if !start_action.at_once {
        nodes[0].act(|endpoint, context| endpoint.initiate(&connection, child, context)).unwrap();
    }
    exchange_messages(&mut nodes);
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    nodes
}

fn restart_receiver(nodes: &mut [Node; 2], secret: Option<u8>) {
    let now = nodes[1].now;
    nodes[1] = receiver(secret);
    nodes[1].reseed(9);
    nodes[1].now = now;
}

/// The first host sends packets. Tenths of a second until the second host accepts one, at most 20 s.
fn outage(nodes: &mut [Node; 2]) -> u32 {
    for tenths in 0..200 {
        let packet = protect(&mut nodes[0], OWN, PEER);
        if receive(&mut nodes[1], &packet).is_none() {
            return tenths;
        }
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_millis(100)));
        exchange_messages(nodes);
    }
    200
}

const ACTIONS: [StartAction; 3] = [
    StartAction { at_once: false, on_traffic: false },
    StartAction { at_once: false, on_traffic: true },
    StartAction { at_once: true, on_traffic: false },
];

#[test]
fn a_token_shows_at_once_that_the_peer_has_restarted() {
    for start_action in ACTIONS {
        let mut nodes = established(start_action, Some(5));
        restart_receiver(&mut nodes, Some(5));
        assert_eq!(outage(&mut nodes), 1, "{start_action:?}");
        let states: Vec<_> = nodes[0].endpoint.ike().status().map(|ike| ike.state).collect();
        assert_eq!((states.len(), nodes.each_ref().map(Node::children)), (1, [1, 1]), "{states:?}");
    }
}

#[test]
fn without_a_token_the_peer_is_replaced_when_it_does_not_respond() {
    // No secret, or another one than before.
    for (before, after) in [(None, None), (Some(5), Some(6)), (Some(5), None), (None, Some(5))] {
        let mut nodes = established(ACTIONS[0], before);
        restart_receiver(&mut nodes, after);
        let outage = outage(&mut nodes);
        assert!((10..15).contains(&outage), "{before:?} {after:?} {outage}");
        assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    }
}

/// Both sides rekey their IKE SA; each then has the other's token for the new one.
#[test]
fn a_successor_has_its_own_tokens() {
    for by in [0, 1] {
        let mut nodes = established(ACTIONS[0], Some(5));
        let ike = nodes[by].endpoint.ike().status().next().unwrap().id;
        nodes[by].act(|endpoint, context| endpoint.rekey(ike, context));
        exchange_messages(&mut nodes);
        restart_receiver(&mut nodes, Some(5));
        assert_eq!(outage(&mut nodes), 1, "{by}");
    }
}

/// The host that cannot initiate learns of a crash, too: it closes the IKE SA.
#[test]
fn a_host_that_cannot_initiate_closes_the_forgotten_ike_sa() {
    let mut nodes = established(ACTIONS[0], Some(5));
    let now = nodes[0].now;
    nodes[0] = Node::new(sender(ACTIONS[0]));
    nodes[0].endpoint.set_crash_secret(Some(SecretBytes::new(&[7; 32])));
    nodes[0].now = now;
    // It asks the restarted host for a rekeying.
    let ike = nodes[1].endpoint.ike().status().next().unwrap().id;
    nodes[1].act(|endpoint, context| endpoint.rekey(ike, context));
    exchange_messages(&mut nodes);
    assert_eq!((nodes[1].endpoint.ike().ike_sa_count(), nodes[1].children()), (0, 0));
}

/// An IKE message in clear: SPIs, flags, message ID and notifications.
fn clear(spis: [u64; 2], exchange: u8, flags: u8, id: u32, notifies: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (at, (kind, data)) in notifies.iter().enumerate() {
        let next = if at + 1 < notifies.len() { NOTIFY } else { 0 };
        let len = (8 + data.len()) as u16;
        body.extend([next, 0]);
        body.extend(len.to_be_bytes());
        body.extend([0, 0]);
        body.extend(kind.to_be_bytes());
        body.extend(*data);
    }
    let len = (28 + body.len()) as u32;
    [
        &spis[0].to_be_bytes()[..],
        &spis[1].to_be_bytes(),
        &[NOTIFY, 0x20, exchange, flags],
        &id.to_be_bytes(),
        &len.to_be_bytes(),
        &body,
    ]
    .concat()
}

const INVALID_IKE_SPI: u16 = 4;
const INVALID_SPI: u16 = 11;
const QCD_TOKEN: u16 = 16_419;

/// A node receives a message from its peer. Returns the number of messages that it sends.
fn receive_ike(node: &mut Node, mut message: Vec<u8>, from: [u8; 4], to: [u8; 4]) -> usize {
    let path = Path { local: (to, 500).into(), remote: (from, 500).into() };
    node.act(|endpoint, context| endpoint.receive_ike(&mut message, path, context));
    std::iter::from_fn(|| node.endpoint.next_transmit()).count()
}

fn spis(node: &Node) -> [u64; 2] {
    let spis = node.endpoint.ike().status().next().unwrap().spis;
    [spis.initiator.0, spis.responder.0]
}

#[test]
fn forged_messages_close_nothing_and_cause_few_checks() {
    let mut nodes = established(ACTIONS[0], Some(5));
    let spis = spis(&nodes[0]);
    let spi_out = nodes[0].endpoint.ike().status().next().unwrap().children[0].spi_out.get().to_be_bytes();
    let token = (QCD_TOKEN, &[0xab; 16][..]);
    let (invalid_ike, invalid) = ((INVALID_IKE_SPI, &[][..]), (INVALID_SPI, &spi_out[..]));
    let mut sent = 0;
    for tenths in 0..600_u32 {
        for message in [
            clear(spis, INFORMATIONAL, RESPONSE, tenths % 4, &[invalid_ike, token, token, token, token]),
            clear(spis, IKE_AUTH, RESPONSE, 1, &[token]),
            clear(spis, INFORMATIONAL, RESPONSE, tenths % 4, &[invalid_ike]),
            clear(spis, INFORMATIONAL, INITIATOR, 0, &[invalid_ike, token]),
            clear([0, 0], INFORMATIONAL, INITIATOR, 0, &[invalid]),
            clear([5, 6], INFORMATIONAL, INITIATOR, 0, &[invalid, token]),
        ] {
            sent += receive_ike(&mut nodes[0], message, PEER, OWN);
        }
        nodes.iter_mut().for_each(|node| node.now = node.now.after(Duration::from_millis(100)));
    }
    // The messages of the checks are lost here, so one check is repeated and a new IKE SA is tried.
    assert!((1..=14).contains(&sent), "{sent}");
    assert_eq!(nodes.each_ref().map(Node::children), [1, 1]);
    assert!(nodes[0].endpoint.ike().faults().state(StateFault::CrashToken) > 0);
}

#[test]
fn a_hint_needs_the_spi_and_the_address_of_the_peer() {
    let mut nodes = established(ACTIONS[0], Some(5));
    let spi_out = nodes[0].endpoint.ike().status().next().unwrap().children[0].spi_out.get().to_be_bytes();
    let hint = |spi: &[u8]| clear([0, 0], INFORMATIONAL, INITIATOR, 0, &[(INVALID_SPI, spi)]);
    let message = hint(&[1, 2, 3, 4]);
    assert_eq!(receive_ike(&mut nodes[0], message, PEER, OWN), 0);
    assert_eq!(receive_ike(&mut nodes[0], hint(&spi_out), [192, 0, 2, 77], OWN), 0);
    assert_eq!(receive_ike(&mut nodes[0], hint(&spi_out[..3]), PEER, OWN), 0);
    assert_eq!(receive_ike(&mut nodes[0], hint(&spi_out), PEER, OWN), 1, "a liveness check");
    // Checks of the messages in clear that this host receives are limited.
    for _ in 0..100 {
        assert_eq!(receive_ike(&mut nodes[0], hint(&spi_out), PEER, OWN), 0);
    }
}

/// Tokens are only for IKE SAs that do not exist, whatever a sender makes of the SPIs and flags.
#[test]
fn no_token_of_a_living_ike_sa_is_sent() {
    let mut nodes = established(ACTIONS[0], Some(5));
    let [i, r] = spis(&nodes[1]);
    let request = |spis: [u64; 2], flags: u8| {
        let mut message = clear(spis, INFORMATIONAL, flags, 0, &[(1, &[0; 60])]);
        // An Encrypted payload.
        message[16] = 46;
        message
    };
    for (name, spis, expected) in [
        ("living", [i, r], 0),
        ("exchanged", [r, i], 0),
        ("one is ours", [99, r], 0),
        ("one is ours", [r, 99], 0),
        ("unknown", [98, 99], 1),
        ("a first request", [98, 0], 0),
    ] {
        for flags in [0, INITIATOR] {
            let sent = receive_ike(&mut nodes[1], request(spis, flags), OWN, PEER);
            assert_eq!(sent, expected, "{name} {flags}");
        }
        assert_eq!(receive_ike(&mut nodes[1], request(spis, RESPONSE), OWN, PEER), 0, "a response");
    }
    // In clear, or too short.
    let message = clear([98, 99], INFORMATIONAL, INITIATOR, 0, &[(1, &[0; 60])]);
    assert_eq!(receive_ike(&mut nodes[1], message, OWN, PEER), 0);
}

#[test]
fn messages_about_unknown_spis_are_limited() {
    let mut node = receiver(Some(5));
    let mut sent = [0, 0];
    for tenths in 0..100_u32 {
        for source in 0..=255 {
            receive(&mut node, &forged([198, 51, 100, source], PEER));
            node.act(Endpoint::handle_timeouts);
            sent[0] += std::iter::from_fn(|| node.endpoint.next_transmit()).count();
            let mut message = clear([1, tenths.into()], INFORMATIONAL, INITIATOR, 0, &[(1, &[0; 60])]);
            (message[7], message[15], message[16]) = (source, 1, 46);
            sent[1] += receive_ike(&mut node, message, [198, 51, 100, source], PEER);
        }
        node.now = node.now.after(Duration::from_millis(100));
    }
    let total: usize = sent.iter().sum();
    assert!(total <= 100 + 1_000, "{sent:?}");
    assert!(sent.iter().all(|sent| *sent > 0), "{sent:?}");
}

#[test]
fn one_address_gets_one_report_in_a_second() {
    let mut node = receiver(None);
    let mut sent = 0;
    for _ in 0..100 {
        assert_eq!(receive(&mut node, &forged(OWN, PEER)), Some(DropReason::NoSa));
        node.act(Endpoint::handle_timeouts);
        sent += std::iter::from_fn(|| node.endpoint.next_transmit()).count();
        node.now = node.now.after(Duration::from_millis(100));
    }
    assert_eq!(sent, 10);
}
