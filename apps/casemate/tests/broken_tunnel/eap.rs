//! EAP between hosts whose methods or passwords do not fit together.

use crate::testnet::Side;
use crate::tunnel::{BrokenTunnel, Conf, set};
use std::time::Duration;

/// A refusal appears as soon as the messages have passed.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The left host authenticates itself by EAP with this password.
pub(crate) fn use_eap(left: &mut Conf, right: &mut Conf) {
    set(&mut left.local, "auth", "eap-mschapv2");
    set(&mut left.local, "eap_id", "carol");
    set(&mut right.remote, "auth", "eap-mschapv2");
    set(&mut right.remote, "eap_id", "%any");
    for conf in [left, right] {
        conf.more = password("carol", "a password for carol");
    }
}

fn password(id: &str, password: &str) -> String {
    format!("secrets {{\n eap {{\n  id = {id}\n  secret = \"{password}\"\n }}\n}}\n")
}

#[test]
fn eap_passwords_differ() {
    let tunnel = BrokenTunnel::start("eap_passwords_differ", |left, right| {
        use_eap(left, right);
        left.more = password("carol", "another password");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "the password of `carol` differs from its `secret` in `secrets`";
    tunnel.log_names(Side::Right, &["eap-failed", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause, "use the same `secret` in a section `eap`"]);
    let refused = "refused by the peer: AUTHENTICATION_FAILED";
    tunnel.log_names(Side::Left, &[refused, "local.auth = eap", "password is wrong"], AT_ONCE);
    assert!(!tunnel.why(Side::Right).contains("another password"));
}

#[test]
fn there_is_no_password_for_the_eap_identity() {
    let tunnel = BrokenTunnel::start("there_is_no_password_for_the_eap_identity", |left, right| {
        use_eap(left, right);
        right.more = password("dave", "a password for dave");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "no section `eap` of `secrets` has a password for `carol`";
    tunnel.log_names(Side::Right, &["eap-failed", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
}

#[test]
fn eap_methods_differ() {
    let tunnel = BrokenTunnel::start("eap_methods_differ", |left, right| {
        use_eap(left, right);
        set(&mut left.local, "auth", "eap-md5");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "this host and the peer accept no common EAP method for `carol`";
    tunnel.log_names(Side::Right, &["eap-failed", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
}

#[test]
fn the_peer_does_not_use_eap() {
    let tunnel = BrokenTunnel::start("the_peer_does_not_use_eap", |left, right| {
        use_eap(left, right);
        set(&mut left.local, "auth", "psk");
        left.local.retain(|(name, _)| *name != "eap_id");
    });
    let Some(tunnel) = tunnel else { return };
    let cause = "remote.auth = eap-mschapv2 does not allow a pre-shared key (psk) of the peer; this host \
                 offers \
                 local.auth = psk";
    tunnel.log_names(Side::Right, &["auth-method", cause], AT_ONCE);
    tunnel.why_names(Side::Right, &[cause]);
}
