//! Redirection to another gateway (RFC 5685), between complete engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Identity};
use casemate_ike::{DownReason, Event, IkeState, Transmit};
use pair::{IkePeer, LEFT, Pair, RIGHT, connection, deliver};
use std::net::IpAddr;
use std::time::Duration;

const OTHER: &str = "192.0.2.3";

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A client on the left, a gateway on the right, and another gateway.
struct Net {
    pair: Pair,
    other: IkePeer,
}

impl Net {
    fn new() -> Self {
        let mut right = connection("right", "left");
        right.local_addrs = vec![AddrPattern::Any];
        let pair = Pair::new(connection("left", "right"), right.clone());
        Self { pair, other: IkePeer::new(OTHER, 3, right) }
    }

    /// Delivers messages until no host sends any more.
    fn run(&mut self) {
        let now = self.pair.now;
        for _ in 0..200 {
            let Self { pair: Pair { left, right, .. }, other } = self;
            let mut sent: Vec<Transmit> = left.sent.drain(..).collect();
            sent.extend(right.sent.drain(..).chain(other.sent.drain(..)));
            if sent.is_empty() {
                return;
            }
            for transmit in sent {
                let to = transmit.path.remote.ip();
                let host = match to {
                    _ if to == addr(LEFT) => &mut *left,
                    _ if to == addr(RIGHT) => &mut *right,
                    _ if to == addr(OTHER) => &mut *other,
                    _ => continue,
                };
                deliver(host, transmit, now);
            }
        }
        panic!("the hosts keep sending");
    }

    fn establish(&mut self) {
        self.pair.left.initiate(self.pair.now);
        self.run();
        self.pair.check_children(1);
    }

    /// Redirects the client. Returns whether the gateway could.
    fn redirect(&mut self, to: &str) -> bool {
        let (right, now) = (&mut self.pair.right, self.pair.now);
        let id = right.ike.status().next().unwrap().id;
        let done = right.with_context(now, |ike, host, context| ike.redirect(id, addr(to), host, context));
        self.run();
        done
    }

    fn peers_of_left(&self) -> Vec<IpAddr> {
        let established = self.pair.left.ike.status().filter(|sa| sa.state == IkeState::Established);
        established.map(|sa| sa.path.remote.ip()).collect()
    }
}

fn redirects(events: &[Event]) -> Vec<(IpAddr, IpAddr)> {
    let redirect = |event: &Event| match event {
        Event::Redirected { from, to, .. } => Some((*from, *to)),
        _ => None,
    };
    events.iter().filter_map(redirect).collect()
}

#[test]
fn a_client_follows_its_gateway_in_the_middle_of_a_session() {
    let mut net = Net::new();
    net.establish();
    assert!(net.redirect(OTHER));
    assert_eq!(redirects(&net.pair.left.events), [(addr(RIGHT), addr(OTHER))]);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    assert_eq!((net.pair.left.children().len(), net.other.children().len()), (1, 1));
    assert_eq!(net.pair.right.ike.status().count(), 0, "the client has closed the old IKE SA");
    assert_eq!(net.pair.left.down_reasons(), [DownReason::Reauth]);
    assert!(net.pair.left.leaked_spis().is_empty());
}

/// The new gateway must prove the identity that the client expects.
#[test]
fn a_gateway_with_another_identity_is_not_accepted() {
    let mut net = Net::new();
    let mut connection = (*net.other.ike.connections()[0]).clone();
    connection.local.id = Some(Identity::Fqdn("mallory".into()));
    net.other.ike.configure(vec![connection.into()], &[]);
    net.establish();
    assert!(net.redirect(OTHER));
    assert_eq!(net.peers_of_left(), [addr(RIGHT)], "the old IKE SA stays");
    net.pair.check_children(1);
    assert!(net.other.children().is_empty());
}

#[test]
fn a_client_that_must_not_follow_stays() {
    let mut net = Net::new();
    net.pair.left.ike.follow_redirects(false);
    net.establish();
    assert!(!net.redirect(OTHER), "the client has not announced that it follows");
    assert_eq!(net.peers_of_left(), [addr(RIGHT)]);
    // The initiator cannot redirect the responder.
    let (left, now) = (&mut net.pair.left, net.pair.now);
    let id = left.ike.status().next().unwrap().id;
    assert!(!left.with_context(now, |ike, host, context| ike.redirect(id, addr(OTHER), host, context)));
}

#[test]
fn no_redirect_leads_to_an_address_that_is_no_other_gateway() {
    for to in ["0.0.0.0", "127.0.0.1", "224.0.0.1", RIGHT, LEFT, "2001:db8::1"] {
        let mut net = Net::new();
        net.establish();
        assert!(net.redirect(to));
        assert_eq!(
            (redirects(&net.pair.left.events).len(), net.peers_of_left()),
            (0, vec![addr(RIGHT)]),
            "{to}"
        );
    }
}

/// Two gateways redirect the client to each other.
#[test]
fn a_loop_ends_after_five_redirects() {
    let mut net = Net::new();
    net.establish();
    for _ in 0..8 {
        for is_right in [true, false] {
            let (gateway, to) = if is_right { (&mut net.pair.right, OTHER) } else { (&mut net.other, RIGHT) };
            let Some(id) = gateway.ike.status().next().map(|sa| sa.id) else { continue };
            gateway
                .with_context(net.pair.now, |ike, host, context| ike.redirect(id, addr(to), host, context));
            net.run();
        }
    }
    assert_eq!(redirects(&net.pair.left.events).len(), 5);
    assert_eq!(net.pair.left.children().len(), 1);
}

#[test]
fn a_client_that_stays_is_closed_after_a_while() {
    let mut net = Net::new();
    net.establish();
    assert!(net.redirect("192.0.2.99"), "nobody is there");
    for _ in 0..200 {
        net.pair.now = net.pair.now.after(Duration::from_secs(1));
        let now = net.pair.now;
        net.pair.right.handle_timeouts(now);
        net.run();
    }
    assert!(net.pair.right.children().is_empty());
}

/// RFC 5685 section 6: the gateway redirects after the proofs, and creates no Child SA.
#[test]
fn a_gateway_redirects_new_clients() {
    let mut net = Net::new();
    let mut right = (*net.pair.right.ike.connections()[0]).clone();
    right.redirect_to = Some(addr(OTHER));
    net.pair.right.ike.configure(vec![right.into()], &[]);
    net.pair.left.initiate(net.pair.now);
    net.run();
    assert_eq!(redirects(&net.pair.left.events), [(addr(RIGHT), addr(OTHER))]);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    assert_eq!((net.pair.left.children().len(), net.other.children().len()), (1, 1));
    assert!(net.pair.right.children().is_empty() && net.pair.right.ike.status().count() == 0);
    assert!(net.pair.left.leaked_spis().is_empty() && net.pair.right.leaked_spis().is_empty());
    // A client that does not follow is served.
    let mut net = Net::new();
    let mut right = (*net.pair.right.ike.connections()[0]).clone();
    right.redirect_to = Some(addr(OTHER));
    net.pair.right.ike.configure(vec![right.into()], &[]);
    net.pair.left.ike.follow_redirects(false);
    net.establish();
    assert_eq!(net.peers_of_left(), [addr(RIGHT)]);
}

/// RFC 5685 section 3: a response to IKE_SA_INIT with the nonce of the request.
#[test]
fn a_redirect_in_ike_sa_init_needs_the_nonce() {
    for (is_right_nonce, expected) in [(true, addr(OTHER)), (false, addr(RIGHT))] {
        let mut net = Net::new();
        net.pair.left.initiate(net.pair.now);
        let request = net.pair.left.sent[0].message.clone();
        let nonce = net.pair.left.rng.nonces.last().unwrap().to_vec();
        let shown = if is_right_nonce { nonce } else { vec![0; 32] };
        let data = [&[1, 4, 192, 0, 2, 3][..], &shown].concat();
        let response = init_response(&request, &data);
        let path = net.pair.left.sent[0].path;
        let mut message = response;
        let now = net.pair.now;
        net.pair.left.with_context(now, |ike, host, context| ike.receive(&mut message, path, host, context));
        net.run();
        assert_eq!(net.peers_of_left(), [expected]);
        assert_eq!(redirects(&net.pair.left.events).len(), usize::from(is_right_nonce));
    }
}

/// An IKE_SA_INIT response with nothing but a REDIRECT notification, without an SPI of the responder.
fn init_response(request: &[u8], data: &[u8]) -> Vec<u8> {
    let notify_len = u16::try_from(8 + data.len()).unwrap();
    let len = u32::from(notify_len) + 28;
    let mut message = request[..8].to_vec();
    message.extend([0; 8]);
    // Next payload Notify, version 2.0, IKE_SA_INIT, response.
    message.extend([41, 0x20, 34, 0x20, 0, 0, 0, 0]);
    message.extend(len.to_be_bytes());
    message.extend([0, 0]);
    message.extend(notify_len.to_be_bytes());
    message.extend([0, 0]);
    message.extend(16_407u16.to_be_bytes());
    message.extend(data);
    message
}
