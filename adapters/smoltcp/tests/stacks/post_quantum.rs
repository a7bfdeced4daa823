//! ML-KEM after X25519, and post-quantum pre-shared keys (PPK), with every frame lost once.

use crate::ike::{IkeHost, IkePair, PLAIN};
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_ike::config::{
    AdditionalKex, AdditionalKexes, Connection, KexRound, PpkId, PpkPolicy, StartAction,
};
use casemate_ike::{Event, IkeStatus, SharedKeys};
use smoltcp::phy::Medium;
use smoltcp::time::Duration;
use std::sync::Arc;

const PPK_ID: &[u8] = b"carol@ppk";
const PPK: &[u8] = b"a post-quantum pre-shared key of both";

/// ML-KEM-768 as the first additional key exchange.
fn ml_kem(optional: bool) -> AdditionalKexes {
    let kex = AdditionalKex { methods: vec![KexMethod::MlKem768], optional };
    KexRound::new(1).map(|round| (round, kex)).into_iter().collect()
}

/// Negotiates X25519 and these additional key exchanges for the IKE SA and, with PFS, for Child SAs.
fn negotiate(mut connection: Connection, additional: &AdditionalKexes) -> Connection {
    for proposal in &mut connection.proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], additional.clone());
    }
    let child = Arc::make_mut(&mut connection.children[0]);
    child.start_action = StartAction { at_once: false, on_traffic: false };
    for proposal in &mut child.proposals {
        (proposal.kex, proposal.additional) = (vec![KexMethod::X25519], additional.clone());
    }
    connection
}

/// Requires ML-KEM and a PPK on both hosts.
fn all(_: u8, connection: Connection, keys: SharedKeys) -> (Connection, SharedKeys) {
    let mut connection = negotiate(connection, &ml_kem(false));
    connection.ppk = PpkPolicy { id: Some(PpkId::new(PPK_ID)), required: true };
    (connection, keys.with_ppk(PPK_ID, SecretBytes::new(PPK)))
}

/// What host A does.
#[derive(Debug, Clone, Copy)]
enum Act {
    Initiate,
    RekeyChild,
    RekeyIke,
}

const ACTS: [Act; 3] = [Act::Initiate, Act::RekeyChild, Act::RekeyIke];

fn act(pair: &mut IkePair, what: Act) {
    let IkeHost { host, ike, .. } = &mut pair.a;
    ike.with_endpoint(pair.now, &host.interface, &mut host.device, |endpoint, context| match what {
        Act::Initiate => {
            let connection = Arc::clone(&endpoint.ike().connections()[0]);
            endpoint.initiate(&connection, connection.children.first(), context).unwrap();
        }
        Act::RekeyChild => {
            let child = endpoint.ike().status().next().unwrap().children[0].id;
            assert!(endpoint.rekey_child(child, context));
        }
        Act::RekeyIke => {
            let id = endpoint.ike().status().next().unwrap().id;
            assert!(endpoint.rekey(id, context));
        }
    });
}

/// Runs both hosts for this time.
fn pass(pair: &mut IkePair, seconds: u64) {
    let end = pair.now + Duration::from_secs(seconds);
    while pair.now < end {
        pair.round();
        pair.now += Duration::from_millis(100);
    }
}

fn status(host: &IkeHost) -> IkeStatus {
    let all: Vec<_> = host.host.device.endpoint().ike().status().collect();
    let [one] = &all[..] else { panic!("{} IKE SAs: {:?}", all.len(), host.notices) };
    one.clone()
}

/// Checks that both hosts have one IKE SA with one Child SA, the IKE SA with ML-KEM and the PPK, and the
/// Child SA with ML-KEM if it was negotiated alone.
fn check(pair: &IkePair, is_rekeyed: bool, what: &str) {
    for host in [&pair.a, &pair.b] {
        let ike = status(host);
        let agreed: Vec<_> = ike.suite.unwrap().additional.iter().map(|(_, method)| method).collect();
        assert_eq!((agreed, ike.ppk_id.as_deref()), (vec![KexMethod::MlKem768], Some(PPK_ID)), "{what}");
        let [child] = &ike.children[..] else { panic!("{what}: {:?}", ike.children) };
        let agreed: Vec<_> = child.suite.additional.iter().map(|(_, method)| method).collect();
        let expected = if is_rekeyed { vec![KexMethod::MlKem768] } else { vec![] };
        assert_eq!(agreed, expected, "{what}");
    }
}

/// Establishes the SAs and rekeys both. Returns the number of frames of each step.
fn run(medium: Medium, lost: Option<(usize, usize)>) -> [usize; 3] {
    let mut pair = IkePair::changed(4, medium, PLAIN, &all);
    let mut frames = [0; 3];
    for (step, what) in ACTS.into_iter().enumerate() {
        let number = lost.filter(|(of, _)| *of == step).map_or(usize::MAX, |(_, number)| number);
        pair.seen.lose(number);
        act(&mut pair, what);
        pass(&mut pair, 40);
        frames[step] = pair.seen.count();
        check(&pair, step > 0, &format!("{what:?}, frame {number} lost"));
    }
    pair.stream(10);
    frames
}

#[test]
fn both_sas_are_established_and_rekeyed() {
    for medium in [Medium::Ip, Medium::Ethernet] {
        run(medium, None);
    }
}

#[test]
fn every_frame_may_be_lost() {
    let frames = run(Medium::Ip, None);
    // IKE_SA_INIT, IKE_INTERMEDIATE with a fragmented request, IKE_AUTH.
    assert_eq!(frames[0], 7);
    for (step, count) in frames.into_iter().enumerate() {
        assert!(count < 20, "{frames:?}");
        for number in 0..count {
            // The host repeats what was lost.
            assert!(run(Medium::Ip, Some((step, number)))[step] > count, "{step} {number}");
        }
    }
}

#[test]
fn a_peer_without_ml_kem_gets_x25519_unless_ml_kem_is_required() {
    for (optional, ups) in [(true, 1), (false, 0)] {
        let with = ml_kem(optional);
        let mut pair = IkePair::changed(6, Medium::Ip, PLAIN, &|number, connection, keys| {
            let additional = if number == 1 { with.clone() } else { AdditionalKexes::new() };
            (negotiate(connection, &additional), keys)
        });
        act(&mut pair, Act::Initiate);
        pass(&mut pair, 10);
        for host in [&pair.a, &pair.b] {
            assert_eq!(host.count(|event| matches!(event, Event::IkeUp { .. })), ups);
        }
        if optional {
            assert!(status(&pair.a).suite.unwrap().additional.is_empty());
        }
    }
}

#[test]
fn a_missing_or_wrong_ppk_is_refused() {
    for key in [None, Some(&b"another post-quantum pre-shared key"[..])] {
        let mut pair = IkePair::changed(4, Medium::Ip, PLAIN, &|number, connection, keys| {
            let (connection, _) = all(number, connection, SharedKeys::new());
            let key = if number == 1 { Some(PPK) } else { key };
            let keys = match key {
                Some(key) => keys.with_ppk(PPK_ID, SecretBytes::new(key)),
                None => keys,
            };
            (connection, keys)
        });
        act(&mut pair, Act::Initiate);
        pass(&mut pair, 10);
        for host in [&pair.a, &pair.b] {
            assert_eq!(host.count(|event| matches!(event, Event::IkeUp { .. })), 0, "{key:?}");
        }
        assert_eq!(pair.a.count(|event| matches!(event, Event::IkeDown { .. })), 1, "{key:?}");
    }
}
