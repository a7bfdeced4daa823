//! `eap-radius`: its meaning, and its errors.

use super::{ok, only};
use crate::swanctl::{GroupSources, RadiusConfig};
use casemate_ike::config::{EapIdentity, RemoteEap, RemoteMethod};
use casemate_radius::Retransmission;
use std::time::Duration;

fn text(keys: &str) -> String {
    format!("charon {{ plugins {{ eap-radius {{\n{keys}\n}} }} }}")
}

const ONE: &str = "servers { one { address = 192.0.2.9\n secret = \"of both\" } }";

fn read(keys: &str) -> RadiusConfig {
    ok(&text(keys)).radius.unwrap()
}

#[test]
fn one_server_has_the_defaults_of_strongswan() {
    let config = read(ONE);
    let [server] = &config.servers[..] else { panic!() };
    assert_eq!((server.auth.to_string(), server.acct.port()), ("192.0.2.9:1812".into(), 1813));
    assert_eq!((server.secret.expose(), &*server.nas_identifier), (&b"of both"[..], &b"casemate"[..]));
    let expected = Retransmission { tries: 4, timeout: Duration::from_secs(2), base_permille: 1_400 };
    assert_eq!((config.retransmission, config.ids_have_port), (expected, true));
    assert!(config.accounting.is_none() && config.dae.is_none());
    assert!(ok("charon { plugins { } }").radius.is_none());
}

#[test]
fn the_only_server_needs_no_section() {
    let config = read("server = 192.0.2.9\n secret = s\n port = 7\n nas_identifier = gw");
    let [server] = &config.servers[..] else { panic!() };
    assert_eq!((server.auth.to_string(), server.acct.port()), ("192.0.2.9:7".into(), 1813));
    assert_eq!((server.secret.expose(), &*server.nas_identifier), (&b"s"[..], &b"gw"[..]));
}

#[test]
fn preference_precedes_the_order_of_the_file() {
    let servers = "servers { a { address = 192.0.2.1\n secret = s }\n b { address = 2001:db8::2\n secret = s\n \
                   preference = 5\n auth_port = 7\n nas_identifier = gw }\n c { address = 192.0.2.3\n secret = s } }";
    let config = read(servers);
    let names: Vec<&str> = config.servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["b", "a", "c"]);
    assert_eq!(config.servers[0].auth.to_string(), "[2001:db8::2]:7");
    assert_eq!(config.servers[0].nas_identifier, b"gw");
}

#[test]
fn copies_of_claimed_names_are_trusted_only_on_request() {
    for (keys, expected) in
        [("", false), ("trust_user_name = no\n", false), ("trust_user_name = yes\n", true)]
    {
        assert_eq!(read(&format!("{keys}{ONE}")).trusts_user_name, expected);
    }
}

#[test]
fn accounting_and_requests_of_servers() {
    let config = read(&format!(
        "accounting = yes\n accounting_interval = 5m\n accounting_send_class = no\n {ONE}\n \
         dae {{ enable = yes\n listen = 192.0.2.1\n secret = other }}"
    ));
    let accounting = config.accounting.unwrap();
    assert_eq!((accounting.interval, accounting.sends_class), (Some(Duration::from_secs(300)), false));
    assert_eq!(config.dae.unwrap().listen.to_string(), "192.0.2.1:3799");
}

#[test]
fn a_peer_may_be_authenticated_by_a_server() {
    let config = ok("connections { t {\n pools = radius\n remote { auth = eap-radius\n eap_id = %any } } }");
    let RemoteMethod::Eap(RemoteEap { identity, methods, .. }) = &config.connections[0].remote.method else {
        panic!()
    };
    assert_eq!((identity, methods.len()), (&EapIdentity::Asked, 0));
    assert_eq!(config.connections[0].pools, ["radius"]);
}

/// A connection that names groups, and the attributes that do so.
fn with_groups(remote: &str, attributes: &str) -> String {
    let radius = text(&format!("{attributes}\n{ONE}"));
    format!("connections {{ t {{\n remote {{\n {remote}\n }} }} }}\n{radius}")
}

#[test]
fn groups_come_from_attributes_of_the_server() {
    for (attributes, class, filter_id) in
        [("class_group = yes", true, false), ("filter_id = yes", false, true)]
    {
        let config = ok(&with_groups("auth = eap-radius\n groups = Research, Sales", attributes));
        assert_eq!(config.radius.unwrap().groups, GroupSources { class, filter_id });
        let RemoteMethod::Eap(eap) = &config.connections[0].remote.method else { panic!() };
        assert_eq!(eap.groups, ["Research", "Sales"]);
    }
}

/// No peer would be accepted, or every member of any group.
#[test]
fn groups_without_a_source_are_refused() {
    for (remote, attributes, expected) in [
        ("auth = eap-radius\n groups = a", "class_group = no", "class_group = yes, or filter_id = yes, was"),
        ("auth = eap-mschapv2\n groups = a", "class_group = yes", "only a RADIUS server names groups"),
        ("auth = pubkey\n groups = a", "class_group = yes", "only a RADIUS server names groups"),
        ("auth = psk\n groups = a", "class_group = yes", "only a RADIUS server names groups"),
        ("auth = eap-radius\n groups = a, %any", "class_group = yes", "names of groups were expected"),
        ("auth = eap-radius\n groups = a, *.a", "class_group = yes", "names of groups were expected"),
        ("auth = eap-radius\n groups = \",\"", "class_group = yes", "the name of a group was expected"),
    ] {
        let problem = only(&with_groups(remote, attributes));
        assert!(problem.contains("remote.groups") && problem.contains(expected), "{problem}");
    }
}

#[test]
fn errors_say_what_was_expected() {
    for (given, expected) in [
        (text(""), "charon.plugins.eap-radius: from 1 to 16 sections in `servers` were expected"),
        (text("servers { one { secret = s } }\n"), "`address` was expected, the address of the server"),
        (text("server = 192.0.2.9"), "`secret` was expected, with a value"),
        (text(&format!("{ONE}\n server = 192.0.2.9\n secret = s")), "either `server` or sections"),
        (text(&format!("{ONE}\n port = 5")), "eap-radius.port: it belongs to `server`"),
        (text(&format!("{ONE}\n accounting_interval = 5")), "`5`: 0, or at least 60 s, was expected"),
        (text(&format!("{ONE}\n forward {{ }}")), "eap-radius.forward: not a section of swanctl.conf"),
        (text(&format!("{ONE}\n dae {{ enable = yes }}")), "`secret` was expected, with a value"),
        (
            "charon { plugins { eap-sim { } } }".into(),
            "charon.plugins.eap-sim: not a section of swanctl.conf",
        ),
        ("connections { t { local { auth = eap-radius } } }".into(), "eap-radius authenticates peers"),
        (
            "connections { t {\n pools = radius\n remote { auth = eap-mschapv2 } } }".into(),
            "need `auth = eap-radius` in `remote`",
        ),
        (
            "pools { radius { addrs = 10.0.0.0/8 } }".into(),
            "this name stands for the addresses of RADIUS servers",
        ),
    ] {
        // A server that cannot be read is missing, too.
        let problems = super::wrong(&given);
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
    assert!(!only(&text("servers { one { address = gateway\n secret = MYSECRET } }")).contains("MYSECRET"));
}
