//! A peer with a group key claims an identity that another peer proves with a signature. IKE SAs, addresses
//! and quota of the other peer stay as they are.

use super::{SelectionCredentials, SelectionPeer, left, right, right_takes, signs};
use casemate_crypto::{KeyLimits, PrivateKey};
use casemate_ike::config::{Connection, IdPattern, Identity, Pool, RemoteMethod, Unique};
use casemate_ike::{DownReason, IkeSettings, IkeState};
use casemate_sa::AddrRange;
use std::net::IpAddr;
use std::time::Duration;

fn own_key() -> PrivateKey {
    key!("p256")
}

fn gateway_key() -> PrivateKey {
    key!("p384")
}

/// The peer that signs.
fn signer(seed: u64) -> SelectionPeer {
    let keys = SelectionCredentials::new(&own_key(), &[]).trusting("left", &gateway_key(), &[]);
    SelectionPeer::new(seed, vec![asking(signs(left()))], keys)
}

/// The peer with the group key and the same name.
fn impostor(seed: u64, unique: Unique) -> SelectionPeer {
    let begins = Connection { unique, ..asking(left()) };
    SelectionPeer::new(seed, vec![begins], SelectionCredentials::new(&own_key(), &[]))
}

/// Requests a virtual address.
fn asking(connection: Connection) -> Connection {
    Connection { vips: vec![IpAddr::from([0, 0, 0, 0])], ..connection }
}

fn pool() -> Pool {
    let addrs = AddrRange::new([10, 9, 0, 1].into(), [10, 9, 0, 9].into()).unwrap();
    Pool { name: "pool".into(), addrs, dns: vec![], dns_domains: vec![], subnets: vec![] }
}

/// A gateway with these connections: "pinned" names the peer and accepts its signature, "group" accepts any
/// peer with the group key, "any" accepts both.
fn gateway(names: &[&str], unique: Unique) -> SelectionPeer {
    let connection = |name: &&str| {
        let mut connection = match *name {
            "group" => right("group"),
            name => signs(right(name)),
        };
        if *name == "pinned" {
            connection.remote.id = IdPattern::Exact(Identity::Fqdn("left".into()));
        }
        if *name == "any" {
            connection.remote.method = RemoteMethod::Any(String::new());
            connection.local.method = casemate_ike::config::LocalMethod::SharedKey;
        }
        Connection { unique, pools: vec!["pool".into()], ..connection }
    };
    let own = own_key();
    let keys = SelectionCredentials::new(&gateway_key(), &[]).trusting("pinned", &own, &[]).trusting(
        "any",
        &own,
        &[],
    );
    let connections = names.iter().map(connection).collect();
    let settings = IkeSettings { max_ike_sas_per_peer: 3, ..IkeSettings::SERVER };
    SelectionPeer::with(settings, 2, connections, &[pool()], keys)
}

/// The peer starts one second later. Returns the selected connection.
fn begins(peer: &mut SelectionPeer, gateway: &mut SelectionPeer) -> String {
    gateway.now = gateway.now.after(Duration::from_secs(1));
    peer.now = gateway.now;
    gateway.events.clear();
    right_takes(peer, gateway).unwrap()
}

/// Connections and virtual addresses of the IKE SAs, oldest first.
fn connected(gateway: &SelectionPeer) -> Vec<(String, Vec<String>)> {
    let row = |ike: casemate_ike::IkeStatus| {
        let addrs = ike.virtual_addrs.iter().map(ToString::to_string).collect();
        (ike.connection.name.clone(), addrs)
    };
    gateway.ike.status().filter(|ike| ike.state == IkeState::Established).map(row).collect()
}

fn row(name: &str, addr: &str) -> (String, Vec<String>) {
    (name.into(), vec![addr.into()])
}

#[test]
fn initial_contact_spares_otherwise_authenticated_ike_sas() {
    let mut gateway = gateway(&["pinned", "group"], Unique::No);
    assert_eq!(begins(&mut signer(1), &mut gateway), "pinned");
    assert_eq!(begins(&mut impostor(3, Unique::No), &mut gateway), "group");
    let both = [row("pinned", "10.9.0.1"), row("group", "10.9.0.2")];
    assert_eq!(connected(&gateway), both);
    // Each peer replaces its own IKE SA when it restarts, with the same address.
    assert_eq!(begins(&mut impostor(4, Unique::No), &mut gateway), "group");
    assert_eq!(connected(&gateway), both);
    assert_eq!(begins(&mut signer(5), &mut gateway), "pinned");
    assert_eq!(connected(&gateway), [row("group", "10.9.0.2"), row("pinned", "10.9.0.1")]);
}

/// The connection does not require a kind of proof, so it accepts both.
#[test]
fn initial_contact_spares_ike_sas_with_another_proof() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        let mut gateway = gateway(&["any"], unique);
        // The gateway authenticates with the group key to every peer.
        let mut signer = signer(1);
        let mut connection = (*signer.ike.connections()[0]).clone();
        connection.remote.method = RemoteMethod::SharedKey;
        signer.ike.configure(vec![connection.into()], &[]);
        assert_eq!(begins(&mut signer, &mut gateway), "any");
        assert_eq!(begins(&mut impostor(3, Unique::No), &mut gateway), "any");
        assert_eq!(connected(&gateway), [row("any", "10.9.0.1"), row("any", "10.9.0.2")], "{unique:?}");
    }
}

#[test]
fn an_impostor_does_not_lock_the_peer_out() {
    let mut gateway = gateway(&["pinned", "group"], Unique::Keep);
    assert_eq!(begins(&mut impostor(3, Unique::Never), &mut gateway), "group");
    assert_eq!(begins(&mut signer(1), &mut gateway), "pinned");
    assert_eq!(connected(&gateway).len(), 2);
}

#[test]
fn a_released_address_is_kept_for_the_equally_authenticated_peer() {
    let mut gateway = gateway(&["pinned", "group"], Unique::No);
    assert_eq!(begins(&mut signer(1), &mut gateway), "pinned");
    let id = gateway.ike.status().next().unwrap().id;
    gateway.act(|ike, host, context| ike.terminate(id, DownReason::Local, host, context));
    for _ in 0..10 {
        gateway.now = gateway.now.after(Duration::from_secs(100));
        gateway.act(casemate_ike::Ike::handle_timeouts);
    }
    assert_eq!(gateway.ike.status().count(), 0);
    while gateway.ike.next_transmit().is_some() {}
    assert_eq!(begins(&mut impostor(3, Unique::No), &mut gateway), "group");
    assert_eq!(begins(&mut signer(4), &mut gateway), "pinned");
    assert_eq!(connected(&gateway), [row("group", "10.9.0.2"), row("pinned", "10.9.0.1")]);
}

#[test]
fn each_identity_has_its_own_quota() {
    let mut gateway = gateway(&["pinned", "group"], Unique::No);
    assert_eq!(begins(&mut signer(1), &mut gateway), "pinned");
    for seed in 10..15 {
        // Without INITIAL_CONTACT.
        assert_eq!(begins(&mut impostor(seed, Unique::Never), &mut gateway), "group");
    }
    let names: Vec<_> = connected(&gateway).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["pinned", "group", "group", "group"]);
}
