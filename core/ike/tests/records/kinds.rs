//! Every kind of IKE SA: the successor has the same state, and both hosts can use it.

use crate::pair::{IkePeer, Pair, connection, with_pool};
use crate::{SECOND, SIDES, Side, check_usable, established, records, take_over};
use casemate_crypto::{AeadAlg, AesBits, CipherAlg, ImplicitIvAlg, MacAlg, MacKind};
use casemate_ike::Event;
use casemate_ike::config::{
    AddrPattern, Connection, Encapsulation, EspCombined, IdPattern, Identity, Lifespan,
};
use casemate_ike::config::{ChildAlgorithms, ChildConfig, ChildMode, ChildProposal};
use std::sync::Arc;
use std::time::Duration;

fn changed(change: impl Fn(&mut Connection)) -> Pair {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    change(&mut left);
    change(&mut right);
    Pair::new(left, right)
}

fn with_child(change: impl Fn(&mut ChildConfig)) -> Pair {
    changed(|connection| {
        let mut child = (*connection.children[0]).clone();
        change(&mut child);
        connection.children = vec![Arc::new(child)];
    })
}

fn with_algorithms(algorithms: ChildAlgorithms) -> Pair {
    with_child(|child| {
        child.proposals =
            vec![ChildProposal { algorithms: algorithms.clone(), ..child.proposals[0].clone() }];
    })
}

fn kinds() -> Vec<(&'static str, Pair)> {
    let gcm = AeadAlg::aes_gcm(AesBits::B256, 16).unwrap();
    let sha = MacAlg::standard(MacKind::HmacSha256);
    let cbc = CipherAlg::AesCbc(AesBits::B128);
    let mut pool = {
        let (left, right, addrs) = with_pool("10.9.0.9", &["0.0.0.0"]);
        let mut pair = Pair::new(left, right);
        pair.right.add_pool(&addrs);
        pair
    };
    pool.right.ike.keep_records(true);
    vec![
        ("defaults", Pair::with_defaults()),
        ("pool", pool),
        ("encapsulated", changed(|connection| connection.encapsulation = Encapsulation::Always)),
        ("mobike", changed(|connection| connection.mobike = true)),
        (
            "transport",
            with_child(|child| {
                child.mode = ChildMode::Transport;
                child.local_ts = vec![casemate_ike::TrafficSelectorTemplate::DYNAMIC];
                child.remote_ts = vec![casemate_ike::TrafficSelectorTemplate::DYNAMIC];
            }),
        ),
        ("aes-gcm", with_algorithms(ChildAlgorithms::EspCombined(vec![EspCombined::Aead(gcm)]))),
        (
            "implicit IV",
            with_algorithms(ChildAlgorithms::EspCombined(vec![EspCombined::ImplicitIv(
                ImplicitIvAlg::new(gcm).unwrap(),
            )])),
        ),
        ("gmac", with_algorithms(ChildAlgorithms::EspCombined(vec![EspCombined::Gmac(AesBits::B128)]))),
        ("aes-cbc", with_algorithms(ChildAlgorithms::EspSeparate(vec![cbc], vec![sha]))),
        ("ah", with_algorithms(ChildAlgorithms::Ah(vec![sha]))),
    ]
}

#[test]
fn both_hosts_use_an_ike_sa_after_a_takeover_of_either() {
    for side in SIDES {
        for (name, pair) in kinds() {
            eprintln!("{name}, {side:?}");
            let mut pair = established(pair);
            pair.check_children(1);
            take_over(&mut pair, side, 1);
            take_over(&mut pair, side, 2);
            check_usable(&mut pair);
        }
    }
}

#[test]
fn the_successor_has_the_same_record() {
    for (name, pair) in kinds() {
        let mut pair = established(pair);
        pair.advance(3 * SECOND);
        for side in SIDES {
            let now = pair.now;
            let before = records(side.of(&mut pair), now);
            assert_eq!(before.len(), 1, "{name}");
            take_over(&mut pair, side, 1);
            assert_eq!(records(side.of(&mut pair), now), before, "{name}, {side:?}");
        }
    }
}

#[test]
fn leased_and_assigned_addresses_stay() {
    let (left, right, pool) = with_pool("10.9.0.9", &["0.0.0.0"]);
    let mut pair = Pair::new(left, right);
    pair.right.add_pool(&pool);
    let mut pair = established(pair);
    take_over(&mut pair, Side::Left, 1);
    let assigned = pair.left.events.iter().find_map(|event| match event {
        Event::ConfigAssigned { config, new_addrs, .. } => Some((config.clone(), new_addrs.clone())),
        _ => None,
    });
    let (config, new_addrs) = assigned.unwrap();
    let addr = ["10.9.0.1".parse().unwrap()];
    assert_eq!((&*config.addrs, &*new_addrs, config.dns.len()), (&addr[..], &addr[..], 1));

    // The successor of the gateway has to know the pool.
    let now = pair.now;
    let records = records(&pair.right, now);
    let mut gateway = crate::successor_of(&pair.right, 9);
    gateway.add_pool(&pool);
    crate::restore(&mut gateway, records, 1, now).unwrap();
    pair.right = gateway;
    // Another peer gets another address.
    let mut any = (*pair.right.ike.connections()[0]).clone();
    any.remote.id = IdPattern::Any;
    any.remote_addrs = vec![AddrPattern::Any];
    pair.right.ike.configure(vec![any.into()], &[pool]);
    let mut other = (*pair.left.ike.connections()[0]).clone();
    other.local.id = Some(Identity::Fqdn("other".into()));
    other.local_addrs = vec![AddrPattern::Any];
    other.name = "other".into();
    pair.left = IkePeer::new("192.0.2.9", 11, other);
    pair.left.routes.source = Some("192.0.2.9".parse().unwrap());
    pair.left.initiate(now);
    pair.run();
    let assigned = pair.left.events.iter().find_map(|event| match event {
        Event::ConfigAssigned { config, .. } => Some(config.addrs.clone()),
        _ => None,
    });
    assert_eq!(assigned, Some(vec!["10.9.0.2".parse().unwrap()]));
}

#[test]
fn deadlines_do_not_move() {
    let span = Lifespan::rekeyed_after(Duration::from_secs(1_000));
    let mut pair = established(changed(|connection| connection.lifespan = span));
    let rekey_at = |pair: &Pair| pair.left.ike.status().next().unwrap().rekey_at.unwrap();
    let before = rekey_at(&pair);
    pair.advance(100 * SECOND);
    // The record was made 50 seconds ago.
    let now = pair.now;
    let mut made = records(&pair.left, now);
    pair.now = now.after(50 * SECOND);
    made.iter_mut().for_each(|record| record.advance(50 * SECOND));
    let mut new = crate::successor_of(&pair.left, 7);
    crate::restore(&mut new, made, 1, pair.now).unwrap();
    pair.left = new;
    assert_eq!(rekey_at(&pair), before);
}
