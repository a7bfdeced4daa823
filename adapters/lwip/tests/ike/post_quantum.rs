//! ML-KEM and post-quantum pre-shared keys (PPK) through the C interface.

use crate::host::{IkeHost, TestConnection, exchange_messages};
use casemate_lwip::*;
use std::ffi::CString;

const PPK: &[u8] = b"thirty-two bytes of a quantum key";

fn text(text: &str) -> Option<CString> {
    Some(CString::new(text).unwrap())
}

/// Requires these key exchanges for the IKE SA and the Child SA.
fn with_kex(kex: &str) -> TestConnection {
    TestConnection {
        proposals: text(&format!("aes128-sha256-{kex}")),
        child_proposals: text(&format!("aes128gcm16-{kex}")),
        ..TestConnection::shared()
    }
}

fn with_ppk(id: &str, key: &[u8], required: u32) -> TestConnection {
    TestConnection { ppk_id: text(id), ppk: key.to_vec(), ppk_required: required, ..TestConnection::shared() }
}

/// Initiates the connection of the first host. Returns whether both hosts have a Child SA.
fn establish(one: &TestConnection, other: &TestConnection) -> ([IkeHost; 2], bool) {
    let (mut a, mut b) = (IkeHost::new(1), IkeHost::new(2));
    assert_eq!((a.add(one), b.add(other)), (0, 0));
    assert_eq!(a.initiate(c"peer/all"), 0);
    exchange_messages(&mut a, &mut b);
    let children = (a.children(), b.children());
    assert!([(0, 0), (1, 1)].contains(&children), "{:?} {:?}", a.events, b.events);
    ([a, b], children == (1, 1))
}

#[test]
fn ml_kem_follows_a_classical_key_exchange() {
    for kex in ["x25519-ke1_mlkem512", "x25519-ke1_mlkem768", "ecp384-ke1_mlkem1024"] {
        let ([mut a, mut b], is_up) = establish(&with_kex(kex), &with_kex(kex));
        assert!(is_up, "{kex}: {:?} {:?}", a.events, b.events);
        for (side, name) in [(0, c"peer/all"), (0, c"peer"), (1, c"peer/all"), (1, c"peer")] {
            assert_eq!([&mut a, &mut b][side].rekey(name), 0);
            exchange_messages(&mut a, &mut b);
            assert_eq!((a.children(), b.children()), (1, 1), "{kex} {name:?}: {:?} {:?}", a.events, b.events);
        }
    }
}

#[test]
fn a_peer_without_ml_kem_gets_the_fallback_or_is_refused() {
    let classical = with_kex("x25519");
    let fallback = TestConnection {
        proposals: text("aes128-sha256-x25519-ke1_mlkem768,aes128-sha256-x25519"),
        ..classical.clone()
    };
    let required = with_kex("x25519-ke1_mlkem768");
    for (one, expected) in [(&fallback, true), (&required, false)] {
        for (first, second) in [(one, &classical), (&classical, one)] {
            assert_eq!(establish(first, second).1, expected);
        }
    }
}

#[test]
fn a_ppk_is_used_or_required() {
    let none = TestConnection::shared();
    let (optional, required) = (with_ppk("carol@ppk", PPK, 0), with_ppk("carol@ppk", PPK, 1));
    let wrong = with_ppk("carol@ppk", b"another key", 0);
    let unknown = with_ppk("dave@ppk", PPK, 0);
    for (one, other, expected) in [
        (&optional, &optional, true),
        (&required, &required, true),
        (&required, &optional, true),
        (&optional, &none, true),
        (&none, &optional, true),
        (&optional, &unknown, true),
        (&required, &none, false),
        (&none, &required, false),
        (&required, &unknown, false),
        (&optional, &wrong, false),
        (&required, &wrong, false),
    ] {
        assert_eq!(establish(one, other).1, expected, "{:?} {:?}", one.ppk_id, other.ppk_id);
    }
}

#[test]
fn invalid_ppks_are_refused() {
    let absent = |key: &[u8], required| TestConnection { ppk_id: None, ..with_ppk("", key, required) };
    for connection in [
        absent(PPK, 0),
        absent(&[], 1),
        with_ppk("", PPK, 0),
        with_ppk("*@ppk", PPK, 0),
        with_ppk(&"x".repeat(65), PPK, 0),
        with_ppk("carol@ppk", &[], 0),
        with_ppk("carol@ppk", &[7; 257], 0),
    ] {
        let mut a = IkeHost::new(1);
        assert_eq!(a.add(&connection), Status::Ppk as i32);
        assert_eq!(a.initiate(c"peer"), Status::Absent as i32);
        // The refused connection has left no key behind.
        assert_eq!(a.add(&with_ppk("carol@ppk", PPK, 0)), 0);
    }
    assert_eq!(IkeHost::new(1).add(&with_ppk("carol@ppk", PPK, 2)), Status::Value as i32);
    let mut a = IkeHost::new(1);
    let named = |name, key: &[u8]| TestConnection { name, ..with_ppk("carol@ppk", key, 0) };
    assert_eq!(a.add(&named(c"first", PPK)), 0);
    assert_eq!(a.add(&named(c"second", b"another key")), Status::Ppk as i32);
    assert_eq!(a.add(&named(c"second", PPK)), 0);
    assert_eq!((a.remove(c"first"), a.remove(c"second")), (0, 0));
    assert_eq!(a.add(&named(c"third", b"another key")), 0);
}
