//! Redirection to another gateway (RFC 5685), between complete engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_ike::config::{AddrPattern, Gateway, Identity};
use casemate_ike::{DownReason, Event, HostAddrs, IkeState, StateFault, Transmit};
use pair::{IkePeer, LEFT, Pair, RIGHT, connection, deliver};
use std::net::IpAddr;
use std::time::Duration;

const OTHER: &str = "192.0.2.3";

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn gateway(text: &str) -> Gateway {
    Gateway::parse(text).unwrap()
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
        let done = right.with_context(now, |ike, host, context| ike.redirect(id, gateway(to), host, context));
        self.run();
        done
    }

    fn peers_of_left(&self) -> Vec<IpAddr> {
        let established = self.pair.left.ike.status().filter(|sa| sa.state == IkeState::Established);
        established.map(|sa| sa.path.remote.ip()).collect()
    }
}

/// Which gateways have redirected the client, and to which others.
fn redirects(events: &[Event]) -> Vec<(IpAddr, String)> {
    let redirect = |event: &Event| match event {
        Event::Redirected { from, to, .. } => Some((*from, to.to_string())),
        _ => None,
    };
    events.iter().filter_map(redirect).collect()
}

#[test]
fn a_client_follows_its_gateway_in_the_middle_of_a_session() {
    let mut net = Net::new();
    net.establish();
    assert!(net.redirect(OTHER));
    assert_eq!(redirects(&net.pair.left.events), [(addr(RIGHT), OTHER.to_owned())]);
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
    assert!(!left.with_context(now, |ike, host, context| ike.redirect(id, gateway(OTHER), host, context)));
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
            let (peer, to) = if is_right { (&mut net.pair.right, OTHER) } else { (&mut net.other, RIGHT) };
            let Some(id) = peer.ike.status().next().map(|sa| sa.id) else { continue };
            peer.with_context(net.pair.now, |ike, host, context| {
                ike.redirect(id, gateway(to), host, context)
            });
            net.run();
        }
    }
    assert_eq!(redirects(&net.pair.left.events).len(), 5);
    assert_eq!(net.pair.left.children().len(), 1);
}

/// A gateway redirects one IKE SA again and again, each time to another address.
#[test]
fn one_ike_sa_follows_five_redirects_in_five_minutes() {
    for rekeys in [false, true] {
        let mut net = Net::new();
        net.establish();
        for host in 50..60 {
            assert!(net.redirect(&format!("192.0.2.{host}")), "no host has this address");
            if rekeys && host == 52 {
                let (left, now) = (&mut net.pair.left, net.pair.now);
                let ike = left.ike.status().find(|sa| sa.state == IkeState::Established).unwrap().id;
                left.with_context(now, |engine, host, context| engine.rekey(ike, host, context));
                net.run();
            }
        }
        assert_eq!(redirects(&net.pair.left.events).len(), 5, "rekeyed: {rekeys}");
        assert_eq!(net.peers_of_left(), [addr(RIGHT)]);
        net.pair.now = net.pair.now.after(Duration::from_secs(300));
        assert!(net.redirect(OTHER));
        assert_eq!(redirects(&net.pair.left.events).len(), 6);
        assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    }
}

/// Rekeying does not extend the time.
#[test]
fn a_client_that_stays_is_closed_after_a_while() {
    for rekeys in [false, true] {
        let mut net = Net::new();
        net.establish();
        assert!(net.redirect("192.0.2.99"), "no host has this address");
        for second in 0..200 {
            net.pair.now = net.pair.now.after(Duration::from_secs(1));
            let now = net.pair.now;
            if rekeys && second == 60 {
                let ike = net.pair.left.ike.status().next().unwrap().id;
                net.pair.left.with_context(now, |engine, host, context| engine.rekey(ike, host, context));
            }
            net.pair.right.handle_timeouts(now);
            net.run();
        }
        let rekeyed = |event: &Event| matches!(event, Event::IkeRekeyed { .. });
        assert_eq!(net.pair.right.events.iter().any(rekeyed), rekeys);
        assert!(net.pair.right.children().is_empty());
    }
}

/// The client rekeys the IKE SA before it responds, and the old one ends with the outstanding redirect.
#[test]
fn a_client_that_does_not_answer_a_redirect_is_closed() {
    let mut net = Net::new();
    net.establish();
    let (id, now) = (net.pair.right.ike.status().next().unwrap().id, net.pair.now);
    let to = gateway("192.0.2.99");
    assert!(net.pair.right.with_context(now, |ike, host, context| ike.redirect(id, to, host, context)));
    net.pair.right.sent.clear();
    let id = net.pair.left.ike.status().next().unwrap().id;
    net.pair.left.with_context(now, |ike, host, context| ike.rekey(id, host, context));
    for _ in 0..200 {
        net.run();
        net.pair.now = net.pair.now.after(Duration::from_secs(1));
        net.pair.right.handle_timeouts(net.pair.now);
    }
    assert_eq!(redirects(&net.pair.left.events), []);
    assert!(net.pair.right.children().is_empty());
}

/// RFC 5685 section 6: the gateway redirects after the proofs, and creates no Child SA.
#[test]
fn a_gateway_redirects_new_clients() {
    let mut net = Net::new();
    let mut right = (*net.pair.right.ike.connections()[0]).clone();
    right.redirect_to = Some(gateway(OTHER));
    net.pair.right.ike.configure(vec![right.into()], &[]);
    net.pair.left.initiate(net.pair.now);
    net.run();
    assert_eq!(redirects(&net.pair.left.events), [(addr(RIGHT), OTHER.to_owned())]);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    assert_eq!((net.pair.left.children().len(), net.other.children().len()), (1, 1));
    assert!(net.pair.right.children().is_empty() && net.pair.right.ike.status().count() == 0);
    assert!(net.pair.left.leaked_spis().is_empty() && net.pair.right.leaked_spis().is_empty());
    // A client that does not follow is served.
    let mut net = Net::new();
    let mut right = (*net.pair.right.ike.connections()[0]).clone();
    right.redirect_to = Some(gateway(OTHER));
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

/// The name of another gateway, whose addresses the client looks up.
const NAME: &str = "gw2.example.org";

impl Net {
    /// Lets time pass for the client.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.pair.now = self.pair.now.after(Duration::from_millis(250));
            let now = self.pair.now;
            self.pair.left.handle_timeouts(now);
            self.run();
        }
    }

    /// The client tries without a limit.
    fn keep_trying(&mut self) {
        let mut left = (*self.pair.left.ike.connections()[0]).clone();
        left.keying_tries = 0;
        self.pair.left.ike.configure(vec![left.into()], &[]);
    }

    /// Redirects new clients to this gateway.
    fn redirect_new(&mut self, to: &str) {
        let mut right = (*self.pair.right.ike.connections()[0]).clone();
        right.redirect_to = Some(gateway(to));
        self.pair.right.ike.configure(vec![right.into()], &[]);
    }

    fn resolve(&mut self, addrs: &[&str]) {
        self.pair.left.routes.host = HostAddrs::Known(addrs.iter().copied().map(addr).collect());
    }

    fn has_fault(&self) -> bool {
        let is_it =
            |event: &Event| format!("{event:?}").contains(&format!("{:?}", StateFault::RedirectGateway));
        self.pair.left.events.iter().any(is_it)
    }
}

/// In the middle of a session, the old IKE SA works on while the name is looked up. Addresses that are no
/// other gateway are left out.
#[test]
fn a_client_follows_to_a_name() {
    let mut net = Net::new();
    net.establish();
    net.pair.left.routes.host = HostAddrs::Pending;
    assert!(net.redirect(NAME));
    assert_eq!(redirects(&net.pair.left.events), [(addr(RIGHT), NAME.to_owned())]);
    net.wait(2);
    assert_eq!(net.peers_of_left(), [addr(RIGHT)]);
    net.pair.check_children(1);
    net.resolve(&["127.0.0.1", LEFT, RIGHT, OTHER]);
    net.wait(1);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    assert_eq!((net.pair.left.children().len(), net.other.children().len()), (1, 1));
    assert_eq!(net.pair.left.down_reasons(), [DownReason::Reauth]);
    assert!(net.pair.left.leaked_spis().is_empty() && !net.has_fault());
}

/// A second redirect replaces the first one, whose name is still being looked up.
#[test]
fn the_last_redirect_counts() {
    let mut net = Net::new();
    net.establish();
    net.pair.left.routes.host = HostAddrs::Pending;
    assert!(net.redirect(NAME));
    net.wait(2);
    assert!(net.redirect(OTHER));
    net.wait(1);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    assert_eq!(net.pair.left.down_reasons(), [DownReason::Replaced, DownReason::Reauth]);
    net.wait(60);
    assert_eq!((net.peers_of_left(), net.has_fault()), (vec![addr(OTHER)], false));
    assert!(net.pair.left.leaked_spis().is_empty());
}

/// The old IKE SA stays if the name leads nowhere, at once or after the time of a look-up.
#[test]
fn an_established_ike_sa_stays_if_the_name_leads_nowhere() {
    let nowhere = [&["127.0.0.1"][..], &[RIGHT], &[LEFT], &[]]
        .map(|addrs: &[&str]| HostAddrs::Known(addrs.iter().copied().map(addr).collect()));
    for found in nowhere.into_iter().chain([HostAddrs::Unknown, HostAddrs::Pending]) {
        let mut net = Net::new();
        net.keep_trying();
        net.establish();
        net.pair.left.routes.host = found;
        assert!(net.redirect(NAME));
        net.wait(31);
        assert_eq!((net.peers_of_left(), net.has_fault()), (vec![addr(RIGHT)], true));
        assert_eq!(net.pair.left.ike.status().count(), 1);
        net.pair.check_children(1);
        assert!(net.pair.left.leaked_spis().is_empty());
    }
}

/// A new client comes back to the original gateway, after a pause, if the name leads nowhere.
#[test]
fn a_new_client_follows_to_a_name_or_comes_back() {
    let mut net = Net::new();
    net.redirect_new(NAME);
    net.resolve(&[OTHER]);
    net.pair.left.initiate(net.pair.now);
    net.run();
    net.wait(1);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
    assert_eq!((net.pair.left.children().len(), net.other.children().len()), (1, 1));

    let mut net = Net::new();
    net.redirect_new(NAME);
    net.keep_trying();
    net.pair.left.initiate(net.pair.now);
    net.run();
    net.wait(1);
    assert!(net.has_fault() && net.peers_of_left().is_empty());
    // Until the pause ends, nothing is sent.
    assert_eq!(net.pair.right.ike.status().count(), 0);
    let mut right = (*net.pair.right.ike.connections()[0]).clone();
    right.redirect_to = None;
    net.pair.right.ike.configure(vec![right.into()], &[]);
    net.wait(9);
    assert_eq!(net.peers_of_left(), [addr(RIGHT)]);
    net.pair.check_children(1);
    assert!(net.pair.left.leaked_spis().is_empty());
    // With a limit of attempts, the client gives up.
    let mut net = Net::new();
    net.redirect_new(NAME);
    net.pair.left.initiate(net.pair.now);
    net.run();
    net.wait(20);
    assert!(net.pair.left.ike.status().next().is_none());
    assert_eq!(redirects(&net.pair.left.events).len(), 1);
}

/// A redirect in IKE_SA_INIT may name a gateway, too. Further responses are ignored during the look-up.
#[test]
fn a_redirect_in_ike_sa_init_to_a_name() {
    let mut net = Net::new();
    net.pair.left.routes.host = HostAddrs::Pending;
    net.pair.left.initiate(net.pair.now);
    let (request, path) = (net.pair.left.sent[0].message.clone(), net.pair.left.sent[0].path);
    let nonce = net.pair.left.rng.nonces.last().unwrap().to_vec();
    let name = [&[3, u8::try_from(NAME.len()).unwrap()], NAME.as_bytes()].concat();
    let mut message = init_response(&request, &[name, nonce].concat());
    let now = net.pair.now;
    net.pair.left.with_context(now, |ike, host, context| ike.receive(&mut message, path, host, context));
    assert_eq!(redirects(&net.pair.left.events), [(addr(RIGHT), NAME.to_owned())]);
    net.run();
    assert!(net.peers_of_left().is_empty(), "the response of the first gateway is too late");
    net.resolve(&[OTHER]);
    net.wait(1);
    assert_eq!(net.peers_of_left(), [addr(OTHER)]);
}
