//! Identities of connections: distinguished names compared as in RFC 5280 section 7.1, between complete
//! engines.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod pair;

use casemate_crypto::der::{OID, SEQUENCE, write};
use casemate_ike::config::{IdPattern, Identity};
use casemate_ike::{Event, SharedKeys};
use pair::{Pair, connection, key};

const SET: u8 = 0x31;
const UTF8: u8 = 0x0C;
const PRINTABLE: u8 = 0x13;
const TELETEX: u8 = 0x14;
const BMP: u8 = 0x1E;

/// `C=CH, O=<organization>, CN=moon`, with the two last values as strings of this type.
fn name(tag: u8, organization: &[u8], common_name: &[u8]) -> Identity {
    let part = |last: u8, tag: u8, value: &[u8]| {
        let attribute = write(SEQUENCE, &[&write(OID, &[&[0x55, 4, last]]), &write(tag, &[value])]);
        write(SET, &[&attribute])
    };
    let parts = [part(6, PRINTABLE, b"CH"), part(10, tag, organization), part(3, tag, common_name)];
    Identity::Dn(write(SEQUENCE, &[&parts.concat()]))
}

/// Name as configured: PrintableStrings, as strongSwan encodes them.
fn configured() -> Identity {
    Identity::Dn(casemate_pki::DnText::from_text("C=CH, O=Casemate, CN=moon").unwrap().der)
}

fn meets(own: Identity, meant: IdPattern) -> bool {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    (left.local.id, right.remote.id) = (Some(own), meant);
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    let is_up = pair.right.events.iter().any(|event| matches!(event, Event::IkeUp { .. }));
    assert_eq!(is_up, pair.left.down_reasons().is_empty(), "{:?}", pair.left.events);
    is_up
}

#[test]
fn a_distinguished_name_is_the_same_in_any_string_type() {
    for (tag, organization, common_name) in [
        (PRINTABLE, &b"Casemate"[..], &b"moon"[..]),
        (UTF8, b"Casemate", b"moon"),
        (UTF8, b"  CASEMATE ", b"Moon"),
        (TELETEX, b"Casemate", b"moon"),
        (BMP, b"\0C\0a\0s\0e\0m\0a\0t\0e", b"\0m\0o\0o\0n"),
    ] {
        let own = name(tag, organization, common_name);
        assert!(meets(own.clone(), IdPattern::Exact(configured())), "{tag:02x}");
        assert!(configured().is_same_peer(&own) && own.is_same_peer(&configured()), "{tag:02x}");
    }
    for (organization, common_name) in [(&b"Casemates"[..], &b"moon"[..]), (b"Casemate", b"sun")] {
        assert!(!meets(name(UTF8, organization, common_name), IdPattern::Exact(configured())));
    }
}

#[test]
fn the_responder_is_requested_by_a_name_in_another_string_type() {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    left.remote.id = IdPattern::Exact(configured());
    right.local.id = Some(name(UTF8, b"Casemate", b"MOON"));
    let mut pair = Pair::new(left, right);
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
}

#[test]
fn a_shared_key_is_found_by_a_name_in_any_string_type() {
    let (mut left, mut right) = (connection("left", "right"), connection("right", "left"));
    left.local.id = Some(name(UTF8, b"casemate", b"moon"));
    right.remote.id = IdPattern::Any;
    let mut pair = Pair::new(left, right);
    let secret = casemate_crypto::SecretBytes::new(b"the key of moon");
    pair.left.keys = Box::new(key(secret.expose()));
    let other = casemate_crypto::SecretBytes::new(b"the key of others");
    let keys = SharedKeys::new().with(IdPattern::Exact(configured()), secret);
    pair.right.keys = Box::new(keys.with(IdPattern::Any, other));
    pair.left.initiate(pair.now);
    pair.run();
    pair.check_children(1);
}

#[test]
fn identities_are_displayed_as_configured() {
    assert_eq!(name(UTF8, b"Casemate", b"moon").to_string(), "C=CH, O=Casemate, CN=moon");
    assert_eq!(name(BMP, b"\0C", b"\0\x1b").to_string().split('#').next(), Some("asn1dn:"));
}
