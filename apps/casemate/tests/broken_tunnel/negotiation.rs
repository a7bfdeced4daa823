//! Configurations of the two hosts that do not fit together.

use crate::testnet::{Host, Side};
use crate::tunnel::{BrokenTunnel, set};
use std::time::Duration;

/// A refusal appears as soon as the messages have passed.
const AT_ONCE: Duration = Duration::from_secs(1);
/// An unauthenticated refusal takes effect after a pause (RFC 7296 section 2.21.1).
const AFTER_REFUSAL: Duration = Duration::from_secs(3);

#[test]
fn pre_shared_keys_differ() {
    let tunnel = BrokenTunnel::start("pre_shared_keys_differ", |_, right| {
        set(&mut right.secret, "secret", "\"another secret\"");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "the pre-shared key of the peer differs from the `secret` of this host for `right.test` and \
                 `left.test`, or a device on the path changed the first messages";
    tunnel.log_names(Side::Right, &["auth-mismatch", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "use the same `secret`"]);
    let refused = "refused by the peer: AUTHENTICATION_FAILED";
    tunnel.log_names(Side::Left, &[refused, "local.id = left.test, local.auth = psk", "secret"], AT_ONCE);
    tunnel.why_names(Side::Left, &[refused, "compare the secrets"]);
}

#[test]
fn the_initiator_has_another_identity() {
    let tunnel = BrokenTunnel::start("the_initiator_has_another_identity", |left, _| {
        set(&mut left.local, "id", "stranger.test");
        left.secret.retain(|(name, _)| *name == "secret");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "connection gw: remote.id = left.test does not accept the peer's identity `stranger.test`";
    tunnel.log_names(Side::Right, &["no-peer", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "make remote.id here equal to local.id on the peer"]);
    tunnel.log_names(Side::Left, &["local.id = stranger.test", "remote.id = right.test"], AT_ONCE);
    tunnel.why_names(Side::Left, &["compare local.id here with remote.id on the peer"]);
}

#[test]
fn the_responder_has_another_identity() {
    let tunnel = BrokenTunnel::start("the_responder_has_another_identity", |left, _| {
        set(&mut left.remote, "id", "other.test");
        left.secret.retain(|(name, _)| *name == "secret");
    });
    let Some(tunnel) = tunnel else { return };
    let cause =
        "connection gw: local.id = right.test is not the identity that the peer asks for: `other.test`";
    tunnel.log_names(Side::Right, &["no-peer", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
    tunnel.why_names(Side::Left, &["remote.id = other.test"]);
}

#[test]
fn the_responder_is_not_the_expected_one() {
    let tunnel = BrokenTunnel::start("the_responder_is_not_the_expected_one", |left, _| {
        // A pattern is not sent, so the responder shows its identity.
        set(&mut left.remote, "id", "*.example.org");
        left.secret.retain(|(name, _)| *name == "secret");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "remote.id = *.example.org was expected, but the peer is `right.test`";
    tunnel.log_names(Side::Left, &["wrong-identity", cause], AT_ONCE);
    tunnel.why_names(Side::Left, &[cause]);
}

#[test]
fn ike_proposals_have_no_encryption_in_common() {
    let tunnel = BrokenTunnel::start("ike_proposals_have_no_encryption_in_common", |left, _| {
        set(&mut left.connection, "proposals", "aes256-sha512-x25519");
    });
    let Some(tunnel) = tunnel else { return };
    let causes = [
        "no-proposal-chosen",
        "requested by the peer: aes256-sha512-x25519",
        "connection gw: proposals = aes128gcm16-prfsha256-x25519",
        "they differ in the encryption: the peer requests aes256, configured is aes128gcm16",
    ];
    tunnel.log_names(Side::Right, &causes, AT_ONCE);
    tunnel.why_names(Side::Right, &causes[1..]);
    let offered = "offered by this host: proposals = aes256-sha512-x25519";
    tunnel.log_names(Side::Left, &["NO_PROPOSAL_CHOSEN", offered], AFTER_REFUSAL);
    tunnel.why_names(Side::Left, &["compare `proposals` on both hosts"]);
}

#[test]
fn ike_proposals_have_no_group_in_common() {
    let tunnel = BrokenTunnel::start("ike_proposals_have_no_group_in_common", |left, _| {
        set(&mut left.connection, "proposals", "aes128gcm16-prfsha256-modp2048");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "they differ in the key exchange (Diffie-Hellman group): the peer requests modp2048, configured \
                 is x25519";
    tunnel.log_names(Side::Right, &["no-proposal-chosen", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
    tunnel.log_names(Side::Left, &["proposals = aes128gcm16-prfsha256-modp2048"], AFTER_REFUSAL);
}

#[test]
fn esp_proposals_have_nothing_in_common() {
    let tunnel = BrokenTunnel::start("esp_proposals_have_nothing_in_common", |left, _| {
        set(&mut left.child, "esp_proposals", "aes256gcm16");
    });
    let Some(tunnel) = tunnel else { return };
    let causes = [
        "requested by the peer: aes256gcm16",
        "child net: esp_proposals = aes128gcm16",
        "they differ in the encryption: the peer requests aes256gcm16, configured is aes128gcm16",
    ];
    tunnel.log_names(Side::Right, &causes, AT_ONCE);
    tunnel.why_names(Side::Right, &causes);
    tunnel.log_names(Side::Left, &["gw/net: no Child SA", "esp_proposals = aes256gcm16"], AT_ONCE);
    tunnel.why_names(Side::Left, &["no Child SA", "compare `esp_proposals`"]);
}

#[test]
fn traffic_selectors_do_not_overlap() {
    let tunnel = BrokenTunnel::start("traffic_selectors_do_not_overlap", |left, _| {
        set(&mut left.child, "remote_ts", "10.77.0.0/16");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "child net: local_ts = 10.2.0.1/32 does not overlap with the requested 10.77.0.0/16";
    tunnel.log_names(Side::Right, &["ts-unacceptable", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "local_ts of each host must overlap with remote_ts of the other"]);
    let requested = "requested by this host: local_ts = 10.1.0.1/32, remote_ts = 10.77.0.0/16";
    tunnel.log_names(Side::Left, &["TS_UNACCEPTABLE", requested], AT_ONCE);
    tunnel.why_names(Side::Left, &["local_ts of each host must overlap"]);
}

#[test]
fn the_peer_narrows_the_traffic_selectors() {
    let tunnel = BrokenTunnel::start("the_peer_narrows_the_traffic_selectors", |left, _| {
        set(&mut left.child, "remote_ts", "10.2.0.0/16");
    });
    let Some(tunnel) = tunnel else { return };
    tunnel.log_names(Side::Left, &["gw/net{1}: esp aes128gcm16 tunnel"], AT_ONCE);
    let cause =
        "gw/net: the Child SA is narrower than configured: remote_ts = 10.2.0.0/16, negotiated 10.2.0.1/32";
    tunnel.why_names(Side::Left, &["gw: up", cause, "local_ts of the peer must contain 10.2.0.0/16"]);
    let child = |side: &Host| side.status()["ike_sas"][0]["children"][0]["narrowed"].clone();
    assert_eq!([child(&tunnel.net.left), child(&tunnel.net.right)], [true, false]);
    let shown = tunnel.net.left.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
    assert!(shown.contains("esp tunnel narrowed"), "{shown}");
    // A packet that is configured and not negotiated.
    let notes = |dst: &str| {
        let trace = tunnel.net.left.casemate(&["trace", "dst", dst, "--timeout", "1"]);
        String::from_utf8(trace.stderr).unwrap()
    };
    let note = format!("{cause}; packets outside the negotiated selectors may not reach this instance");
    assert!(notes("10.2.9.9").contains(&note), "{}", notes("10.2.9.9"));
    assert!(!notes("10.2.0.1").contains("narrower"), "{}", notes("10.2.0.1"));
}

#[test]
fn the_peer_has_no_connection_for_this_address() {
    let tunnel = BrokenTunnel::start("the_peer_has_no_connection_for_this_address", |_, right| {
        set(&mut right.connection, "remote_addrs", "192.0.2.99");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "connection gw: remote_addrs = 192.0.2.99 does not contain the peer's address 192.0.2.1";
    tunnel.log_names(Side::Right, &["no-connection", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "correct remote_addrs"]);
    tunnel.log_names(Side::Left, &["or it has no connection for the addresses"], AFTER_REFUSAL);
}

#[test]
fn one_host_wants_a_signature() {
    let tunnel = BrokenTunnel::start("one_host_wants_a_signature", |_, right| {
        set(&mut right.remote, "auth", "pubkey");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "remote.auth = pubkey does not allow a pre-shared key (psk)";
    tunnel.log_names(Side::Right, &["auth-method", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "make local.auth of each host fit remote.auth of the other"]);
    tunnel.why_names(Side::Left, &["AUTHENTICATION_FAILED", "local.auth = psk"]);
}

#[test]
fn there_is_no_secret_for_the_identities() {
    let tunnel = BrokenTunnel::start("there_is_no_secret_for_the_identities", |_, right| {
        set(&mut right.secret, "id-1", "stranger.test");
        set(&mut right.secret, "id-2", "else.test");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "no section of `secrets` has a key for `right.test` and `left.test`";
    tunnel.log_names(Side::Right, &["no-shared-key", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "add a section to `secrets`"]);
}

#[test]
fn the_address_pool_is_exhausted() {
    let tunnel = BrokenTunnel::start("the_address_pool_is_exhausted", |left, right| {
        for conf in [&mut *left, &mut *right] {
            set(&mut conf.connection, "unique", "never");
        }
        set(&mut left.connection, "vips", "0.0.0.0");
        set(&mut left.child, "local_ts", "dynamic");
        // The second connection requests another address.
        left.copies = vec!["copy"];
        set(&mut right.connection, "pools", "clients");
        set(&mut right.child, "remote_ts", "dynamic");
        right.more = "pools {\n clients {\n  addrs = 10.9.0.1/32\n }\n}\n".into();
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "pools = clients: no address is free, or none is of the requested IP version";
    tunnel.log_names(Side::Right, &["no-address", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &["no-address", cause]);
    tunnel.log_names(Side::Left, &["INTERNAL_ADDRESS_FAILURE", "vips = 0.0.0.0"], AT_ONCE);
}

#[test]
fn the_peer_refuses_to_rekey_a_child_sa() {
    let tunnel = BrokenTunnel::start("the_peer_refuses_to_rekey_a_child_sa", |left, _| {
        // IKE_AUTH has no key exchange for the Child SA, so only rekeying shows that the hosts differ.
        set(&mut left.child, "esp_proposals", "aes128gcm16-x25519");
        set(&mut left.child, "rekey_time", "2s");
        set(&mut left.child, "life_time", "60s");
        set(&mut left.child, "rand_time", "0s");
    });
    let Some(tunnel) = tunnel else { return };
    let refused = "gw/net: rekeying failed, and {1} stays until its lifetime ends: refused by the peer: \
                   NO_PROPOSAL_CHOSEN";
    let offered = "esp_proposals = aes128gcm16-x25519; the peer accepts none of them";
    tunnel.log_names(Side::Left, &[refused, offered], AT_ONCE + Duration::from_secs(2));
    tunnel.why_names(Side::Left, &["gw: up", offered, "with their key exchange methods"]);
    let cause = "they differ in the key exchange (Diffie-Hellman group): the peer requests x25519, configured is \
                 none";
    tunnel.log_names(Side::Right, &["no-proposal-chosen", cause], AT_ONCE + Duration::from_secs(2));
    tunnel.why_names(Side::Right, &[cause]);
}

#[test]
fn one_host_wants_ah() {
    let tunnel = BrokenTunnel::start("one_host_wants_ah", |left, _| {
        left.child.retain(|(name, _)| *name != "esp_proposals");
        set(&mut left.child, "ah_proposals", "sha256");
    });
    let Some(tunnel) = tunnel else { return };
    let causes =
        ["requested by the peer: AH sha256", "the peer requests another protocol: ESP and AH differ"];
    tunnel.log_names(Side::Right, &causes, AT_ONCE);
    tunnel.why_names(Side::Right, &causes);
    tunnel.log_names(Side::Left, &["gw/net: no Child SA", "ah_proposals = AH sha256"], AT_ONCE);
}

#[test]
fn the_peer_expects_another_address_of_its_own() {
    let tunnel = BrokenTunnel::start("the_peer_expects_another_address_of_its_own", |_, right| {
        set(&mut right.connection, "local_addrs", "192.0.2.98");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "connection gw: local_addrs = 192.0.2.98 does not contain 192.0.2.2, to which the peer sent its \
                 request";
    tunnel.log_names(Side::Right, &["no-connection", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "local_addrs = 192.0.2.98 is not an address of this host"]);
}

#[test]
fn two_peers_have_the_same_identity() {
    let tunnel = BrokenTunnel::start("two_peers_have_the_same_identity", |left, right| {
        set(&mut right.connection, "unique", "keep");
        // The second connection stands for another host with a copy of the configuration.
        set(&mut left.connection, "unique", "never");
        left.child.retain(|(name, _)| *name != "start_action");
        left.copies = vec!["copy"];
    });
    let Some(tunnel) = tunnel else { return };
    assert!(tunnel.net.left.casemate(&["initiate", "gw"]).status.success());
    let second = tunnel.net.left.casemate(&["initiate", "copy"]);
    assert!(String::from_utf8(second.stderr).unwrap().contains("AUTHENTICATION_FAILED"));
    let cause = "unique = keep: two peers use the same identity";
    tunnel.log_names(Side::Right, &["not-unique", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &["gw: up", cause, "give each peer its own identity"]);
}

#[test]
fn there_is_no_certificate_for_the_own_identity() {
    let tunnel = BrokenTunnel::start("there_is_no_certificate_for_the_own_identity", |left, _| {
        set(&mut left.local, "auth", "pubkey");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "local.auth = pubkey: no certificate with a private key fits local.id = left.test";
    tunnel.log_names(Side::Left, &["no-shared-key", cause], AT_ONCE);
    tunnel.why_names(Side::Left, &[cause]);
}
