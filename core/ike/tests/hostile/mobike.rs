//! Messages of MOBIKE (RFC 4555) from a peer that has the keys: wrong and missing cookies, prohibited NATs,
//! and updates by the side that does not decide.

use crate::create_child::child_request;
use crate::first_request::{GCM128, PRF, X25519, proposal, sa_of};
use crate::forge::{Attack, MessageForger, Raw, altered, give_on, notifies};
use crate::pair::{LEFT, Pair, RIGHT, connection};
use casemate_ike::config::AddrPattern;
use casemate_ike::{Event, Path, TrafficSelectorTemplate};
use casemate_wire::ike::{ExchangeType, NotifyType, PayloadType};
use std::sync::Arc;

type Notifies = Vec<(NotifyType, Vec<u8>)>;
/// Message ID and payloads of a request of the gateway.
type Check = (u32, Vec<Raw>);

const COOKIE: &[u8] = &[7; 16];

fn path(local: &str, remote: &str) -> Path {
    let end = |ip: &str| format!("{ip}:4500").parse().unwrap();
    Path { local: end(local), remote: end(remote) }
}

/// A client, and a gateway that accepts every address of its peer.
fn pair() -> Pair {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    (left.mobike, right.mobike) = (true, true);
    right.remote_addrs = vec![AddrPattern::Any];
    Pair::new(left, right)
}

/// As above. The traffic of the client is that of its own address.
fn pair_with_dynamic_traffic() -> Pair {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    (left.mobike, right.mobike) = (true, true);
    right.remote_addrs = vec![AddrPattern::Any];
    Arc::make_mut(&mut left.children[0]).local_ts = vec![TrafficSelectorTemplate::DYNAMIC];
    Arc::make_mut(&mut right.children[0]).remote_ts = vec![TrafficSelectorTemplate::DYNAMIC];
    Pair::new(left, right)
}

/// A request for a Child SA with the traffic of one address.
fn request_from(spi: u32, addr: [u8; 4]) -> Vec<Raw> {
    let one = [&[1, 0, 0, 0, 7, 0, 0, 16, 0, 0, 255, 255][..], &addr, &addr].concat();
    altered(&child_request(0x700 + spi), PayloadType::TS_I, |body| body.clone_from(&one))
}

/// Attacks an established gateway.
fn attack() -> Attack {
    Attack::on(pair())
}

impl Attack {
    /// Sends a request from this address. Returns the notifications of the response, and the request that the
    /// gateway sends then.
    fn ask_from(&mut self, addr: &str, inside: &[Raw]) -> (Notifies, Option<Check>) {
        let header = self.forger.header(ExchangeType::INFORMATIONAL, self.next, false);
        let message = self.forger.seal(&header, inside);
        self.next += 1;
        let sent = give_on(&mut self.pair, &message, path(RIGHT, addr));
        let mut opened = sent.iter().map(|message| self.forger.open(message));
        let response = opened.next().unwrap();
        let request = opened.next().map(|(header, payloads)| (header.message_id, payloads));
        (notifies(&response.1), request)
    }

    fn moves(&self) -> usize {
        self.pair.right.events.iter().filter(|event| matches!(event, Event::PathChanged { .. })).count()
    }
}

fn kinds(notifies: &[(NotifyType, Vec<u8>)]) -> Vec<NotifyType> {
    notifies.iter().map(|(kind, _)| *kind).collect()
}

fn update() -> Raw {
    Raw::notify(NotifyType::UPDATE_SA_ADDRESSES, &[])
}

#[test]
fn every_permitted_cookie_is_repeated() {
    let mut attack = attack();
    for (cookie, is_repeated) in
        [(&[1; 8][..], true), (&[1; 64], true), (&[1; 7], false), (&[1; 65], false), (&[], false)]
    {
        let (answer, _) = attack.ask_from(LEFT, &[Raw::notify(NotifyType::COOKIE2, cookie)]);
        let expected = if is_repeated { vec![(NotifyType::COOKIE2, cookie.to_vec())] } else { vec![] };
        assert_eq!(answer, expected);
    }
    attack.check_alive();
}

/// A peer that does not receive at the address that it claims cannot repeat the cookie.
#[test]
fn a_wrong_or_missing_cookie_ends_the_ike_sa() {
    for answer in [vec![], vec![Raw::notify(NotifyType::COOKIE2, COOKIE)]] {
        let mut attack = attack();
        let (_, check) = attack.ask_from("203.0.113.9", &[update()]);
        let (id, payloads) = check.expect("a return routability check");
        assert_eq!(kinds(&notifies(&payloads)), [NotifyType::COOKIE2]);
        let header = attack.forger.header(ExchangeType::INFORMATIONAL, id, true);
        let message = attack.forger.seal(&header, &answer);
        give_on(&mut attack.pair, &message, path(RIGHT, "203.0.113.9"));
        assert_eq!((attack.moves(), attack.count("cookie2")), (0, 1));
        let state = attack.pair.right.ike.status().next().unwrap().state;
        assert_eq!(state, casemate_ike::IkeState::Closing);
    }
}

#[test]
fn the_repeated_cookie_moves_the_child_sas() {
    let mut attack = attack();
    let (_, check) = attack.ask_from("203.0.113.9", &[update()]);
    let (id, payloads) = check.unwrap();
    let header = attack.forger.header(ExchangeType::INFORMATIONAL, id, true);
    let message = attack.forger.seal(&header, &payloads);
    give_on(&mut attack.pair, &message, path(RIGHT, "203.0.113.9"));
    assert_eq!((attack.moves(), attack.count("cookie2")), (1, 0));
}

#[test]
fn a_prohibited_nat_is_reported() {
    let mut attack = attack();
    let data = [&[192, 0, 2, 1][..], &[192, 0, 2, 2], &[0x11, 0x94], &[0x11, 0x94]].concat();
    let prohibition = || Raw::notify(NotifyType::NO_NATS_ALLOWED, &data);
    let cookie = Raw::notify(NotifyType::COOKIE2, COOKIE);
    let (answer, check) = attack.ask_from("203.0.113.9", &[update(), prohibition(), cookie]);
    assert_eq!(kinds(&answer), [NotifyType::UNEXPECTED_NAT_DETECTED, NotifyType::COOKIE2]);
    assert!(check.is_none() && attack.moves() == 0 && attack.count("unexpected-nat") == 1);
    let (answer, _) = attack.ask_from(LEFT, &[update(), prohibition()]);
    assert_eq!(answer, []);
}

/// The peer rekeys the IKE SA while the gateway's own rekeying is unanswered, and moves before it uses its
/// successor. The successor takes over where the peer has proved that it receives.
#[test]
fn a_successor_takes_over_the_proved_address() {
    const NEW: &str = "203.0.113.9";
    let mut pair = pair_with_dynamic_traffic();
    pair.right.ike.report_keys(true);
    let mut attack = Attack::on(pair);
    let (now, ike) = (attack.pair.now, attack.pair.right.ike.status().next().unwrap().id);
    attack.pair.right.with_context(now, |engine, host, context| engine.rekey(ike, host, context));
    attack.pair.right.sent.clear();
    let sa = sa_of(&[proposal(1, 1, &[1; 8], &[GCM128, PRF, X25519])]);
    let ke = [&[0, 31, 0, 0][..], &[9; 32]].concat();
    let request = [(PayloadType::SA, &sa[..]), (PayloadType::NONCE, &[7; 32]), (PayloadType::KE, &ke)];
    let answer = attack.ask(ExchangeType::CREATE_CHILD_SA, &request.map(|(kind, body)| Raw::new(kind, body)));
    assert_eq!(answer[0].kind, PayloadType::SA, "a successor");
    attack.ask_from(NEW, &[update()]);

    let mut successor = MessageForger::against(&attack.pair.right);
    let mut ask = |attack: &mut Attack, exchange, id, response, inside: &[Raw]| {
        let message = successor.seal(&successor.header(exchange, id, response), inside);
        let sent = give_on(&mut attack.pair, &message, path(RIGHT, NEW));
        sent.iter().filter_map(|message| successor.try_open(message)).collect::<Vec<_>>()
    };
    let sent = ask(&mut attack, ExchangeType::INFORMATIONAL, 0, false, &[]);
    let is_check = |payloads: &[Raw]| kinds(&notifies(payloads)) == [NotifyType::COOKIE2];
    let (check, cookie) = sent.into_iter().find(|(_, payloads)| is_check(payloads)).unwrap();
    ask(&mut attack, ExchangeType::INFORMATIONAL, check.message_id, true, &cookie);
    assert_eq!(attack.moves(), 1);
    let mut accepts = |id, addr: [u8; 4]| {
        let sent = ask(&mut attack, ExchangeType::CREATE_CHILD_SA, id, false, &request_from(id, addr));
        sent[0].1[0].kind == PayloadType::SA
    };
    assert!(accepts(1, [203, 0, 113, 9]), "the peer receives there");
    assert!(!accepts(2, [192, 0, 2, 1]), "the address is no longer that of the peer");
}

/// The refusal comes after the peer was authenticated. It leaves no Child SA behind, not even in part.
#[test]
fn a_prohibited_nat_in_ike_auth_leaves_no_spi() {
    let (mut attack, mut auth) = Attack::half_open(pair());
    let data = [&[192, 0, 2, 1][..], &[192, 0, 2, 9], &[0x11, 0x94], &[0x11, 0x94]].concat();
    auth.push(Raw::notify(NotifyType::NO_NATS_ALLOWED, &data));
    let header = attack.forger.header(ExchangeType::IKE_AUTH, 1, false);
    let message = attack.forger.seal(&header, &auth);
    assert_eq!(attack.give(&message).len(), 1);
    assert_eq!(attack.count("unexpected-nat"), 1);
    assert!(attack.pair.right.leaked_spis().is_empty());
}

/// Messages without UPDATE_SA_ADDRESSES move nothing, wherever they come from.
#[test]
fn other_messages_do_not_move_the_peer() {
    let mut attack = attack();
    let none = Raw::notify(NotifyType::NO_ADDITIONAL_ADDRESSES, &[]);
    for inside in [vec![], vec![none]] {
        attack.ask_from("203.0.113.9", &inside);
    }
    assert_eq!(attack.moves(), 0);
    assert_eq!(attack.pair.right.ike.status().next().unwrap().path, path(RIGHT, LEFT));
}

/// A host that has not agreed to MOBIKE ignores its notifications.
#[test]
fn without_mobike_an_update_is_ignored() {
    let mut attack = Attack::established();
    let (answer, check) = attack.ask_from("203.0.113.9", &[update()]);
    assert!(answer.is_empty() && check.is_none() && attack.moves() == 0);
}
