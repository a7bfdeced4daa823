//! UDP encapsulation without a NAT: what the first exchange announced holds, whichever connection is chosen
//! after it.

use super::{Keys, Side, left, right, right_takes};
use casemate_crypto::{KeyLimits, PrivateKey};
use casemate_ike::Event;
use casemate_ike::config::{Connection, IdPattern, Identity};
use casemate_sa::UdpEncap;

/// The encapsulation of inbound and outbound packets of the Child SA.
fn encap(side: &Side) -> [Option<UdpEncap>; 2] {
    let up = side.events.iter().find_map(|event| match event {
        Event::ChildUp(up) => Some([up.inbound.encap, up.outbound.encap]),
        _ => None,
    });
    up.unwrap()
}

#[test]
fn both_sides_do_what_the_first_exchange_announced() {
    for (first, chosen) in [(true, false), (false, true), (true, true), (false, false)] {
        let any = Connection { force_encap: first, ..right("any") };
        let mut named = Connection { force_encap: chosen, ..right("named") };
        named.remote.id = IdPattern::Exactly(Identity::Fqdn("left".into()));
        let key = key!("p256");
        let mut left = Side::new(1, vec![left()], Keys::new(&key, &[]));
        let mut right = Side::new(2, vec![any, named], Keys::new(&key, &[]));
        assert_eq!(right_takes(&mut left, &mut right), Ok("named".into()));
        for side in [&left, &right] {
            let is_used = encap(side).map(|encap| encap.is_some());
            assert_eq!(is_used, [first; 2], "announced {first}, configured {chosen}");
        }
    }
}
