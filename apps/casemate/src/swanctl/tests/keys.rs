//! Every key of every section is read, refused with a reason, or ignored, as its schema says.

use super::super::{
    PERFORMANCE, auth_round, cell, charon, child, connection, etcd, pool, radius, scheduler, schema::Rule,
    schema::Schema, secret, token,
};
use super::{ok, only, parse, wrong};
use casemate_ike::config::{LocalMethod, PacketLimits, RemoteMethod};

/// Each section with its path, its schema, the text before its keys, which includes required keys, and
/// the text after them.
pub(super) const SECTIONS: [(&str, &Schema, &str, &str); 24] = [
    ("connections.gw", &connection::CONNECTION, "connections { gw {", "} }"),
    ("connections.gw.local", &auth_round::LOCAL, "connections { gw { local {", "} } }"),
    ("connections.gw.remote", &auth_round::REMOTE, "connections { gw { remote {", "} } }"),
    (
        "connections.gw.local.cert1",
        &auth_round::FILE,
        "connections { gw { local { cert1 {\n file = /x\n",
        "} } } }",
    ),
    ("connections.gw.children.net", &child::CHILD, "connections { gw { children { net {", "} } } }"),
    ("secrets.ike-1", &secret::SHARED, "secrets { ike-1 {\n secret = s\n", "} }"),
    ("secrets.rsa1", &secret::PASSPHRASE, "secrets { rsa1 {\n file = f\n secret = s\n", "} }"),
    ("secrets.token1", &token::TOKEN, "secrets { token1 {\n handle = a1\n", "} }"),
    ("pools.p", &pool::POOL, "pools { p {\n addrs = 10.3.0.0/24\n", "} }"),
    ("authorities.ca", &pool::AUTHORITY, "authorities { ca {\n cacert = ca.pem\n", "} }"),
    ("scheduler", &scheduler::SCHEDULER, "scheduler {", "}"),
    ("scheduler.low-latency", &scheduler::LOW_LATENCY, "scheduler { low-latency {", "} }"),
    ("scheduler.real-time", &scheduler::CLASS, "scheduler { real-time {", "} }"),
    ("performance", &PERFORMANCE, "performance {", "}"),
    (
        "charon.plugins.eap-radius",
        &radius::EAP_RADIUS,
        "charon { plugins { eap-radius { servers { a {\n address = 192.0.2.9\n secret = s\n } }\n",
        "} } }",
    ),
    (
        "charon.plugins.eap-radius.servers.a",
        &radius::SERVER,
        "charon { plugins { eap-radius { servers { a {\n address = 192.0.2.9\n secret = s\n",
        "} } } } }",
    ),
    (
        "charon.plugins.eap-radius.dae",
        &radius::DAE,
        "charon { plugins { eap-radius { servers { a {\n address = 192.0.2.9\n secret = s\n } }\n \
         dae {\n enable = yes\n secret = s\n",
        "} } } }",
    ),
    ("charon.plugins.pkcs11", &token::PKCS11, "charon { plugins { pkcs11 {", "} } }"),
    (
        "charon.plugins.pkcs11.modules.m",
        &token::MODULE,
        "charon { plugins { pkcs11 { modules { m {\n path = /x\n",
        "} } } } }",
    ),
    ("charon.plugins.revocation", &charon::REVOCATION, "charon { plugins { revocation {", "} } }"),
    ("cell", &cell::CELL, "cell {\n name = a\n node = b\n etcd {\n servers = 127.0.0.1:2379\n }\n", "}"),
    (
        "cell.etcd",
        &etcd::ETCD,
        "cell {\n name = a\n node = b\n etcd {\n servers = 127.0.0.1:2379\n ca = x\n",
        "} }",
    ),
    (
        "cell.addresses.v",
        &cell::ADDRESS,
        "cell {\n name = a\n node = b\n etcd {\n servers = 127.0.0.1:2379\n }\n \
         addresses { v {\n address = 192.0.2.1/24\n interface = eth0\n",
        "} } }",
    ),
    (
        "cell.forward",
        &cell::FORWARD,
        "cell {\n name = a\n node = b\n etcd {\n servers = 127.0.0.1:2379\n }\n forward {\n \
         address = 192.0.2.1\n",
        "} }",
    ),
];

fn with(front: &str, back: &str, key: &str, value: &str) -> String {
    format!("{front}\n{key} = {value}\n{back}")
}

#[test]
fn every_accepted_key_has_an_effect() {
    let mut count = 0;
    for (path, schema, front, back) in SECTIONS {
        let plain = format!("{:?}", ok(&format!("{front}\n{back}")));
        let taken = schema.keys.iter().filter(|(_, rule)| matches!(rule, Rule::Read | Rule::ReadPrefix));
        for (key, _) in taken {
            // The value is malformed, unless the key takes a file name.
            match parse(&with(front, back, key, "*a=*b")) {
                Ok(config) => {
                    // Some keys are synonyms of a key that is already given.
                    let config = format!("{config:?}");
                    assert!(
                        config != plain || (path, *key) == ("authorities.ca", "file") || *key == "secret",
                        "{path}.{key}"
                    );
                }
                Err(problems) => {
                    let name = format!("{path}.{key}: ");
                    assert!(
                        problems.iter().any(|problem| problem.text.starts_with(&name)),
                        "{path}.{key}: {problems:?}"
                    );
                }
            }
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}

#[test]
fn every_refused_key_gives_a_reason() {
    let mut count = 0;
    for (path, schema, front, back) in SECTIONS {
        for (key, rule) in schema.keys {
            let (harmless, why): (Option<&str>, &str) = match rule {
                Rule::Refused(why) => (None, why),
                Rule::OnlyNo(why) => (Some("no"), why),
                Rule::Only(values, why) => (values.last().copied(), why),
                Rule::Ignored => {
                    assert!(parse(&with(front, back, key, "7")).is_ok(), "{path}.{key}");
                    continue;
                }
                Rule::Read | Rule::ReadPrefix => continue,
            };
            let asked = if matches!(rule, Rule::OnlyNo(_)) { "yes" } else { "yes7" };
            let problem = only(&with(front, back, key, asked));
            assert!(problem.contains(&format!("{path}.{key}: ")) && problem.contains(why), "{problem}");
            if let Some(harmless) = harmless {
                assert!(parse(&with(front, back, key, harmless)).is_ok(), "{path}.{key} = {harmless}");
            }
            count += 1;
        }
    }
    assert!(count > 35, "{count}");
}

#[test]
fn unknown_keys_and_sections() {
    for (path, _, front, back) in SECTIONS {
        let problem = only(&with(front, back, "zzzzzz", "1"));
        assert!(
            problem.contains(&format!("{path}.zzzzzz: not a key of swanctl.conf; expected one of ")),
            "{problem}"
        );
        let problem = only(&format!("{front}\nzzzzzz {{ }}\n{back}"));
        assert!(problem.contains(&format!("{path}.zzzzzz: not a section of swanctl.conf")), "{problem}");
    }
    assert_eq!(
        only("connections {\n gw {\n  dpd_dely = 5s\n }\n}"),
        "swanctl.conf:3: connections.gw.dpd_dely: not a key of swanctl.conf; did you mean `dpd_delay`?"
    );
    assert_eq!(
        only("connections {\n gw {\n  rohc = yes\n }\n}"),
        "swanctl.conf:3: connections.gw.rohc: not a key of this section; it belongs to \
         `connections.NAME.children.NAME`"
    );
    assert!(
        only("connections { gw { children { net {\n ROHC = yes\n } } } }")
            .ends_with("not a key of swanctl.conf; did you mean `rohc`?")
    );
    assert!(
        only("secrets { foo { } }")
            .contains("secrets.foo: not a section of swanctl.conf; expected one of ike")
    );
    assert!(only("secrets { eap-1 { } }").contains("secrets.eap-1: `secret` was expected"));
    assert!(only("secrets { a = b\n }").contains("secrets.a: a section such as `ike { ... }` was expected"));
}

#[test]
fn all_errors_are_reported() {
    let problems = wrong(
        "connections {\n gw {\n  version = 1\n  proposals = aes128-sha256, foo\n  local { auth = \
         eap-fast\n }\n  children { a {\n   \
         mode = beet\n   local_ts = 10.0.0.0/99, dynamic\n } }\n }\n}\npools { p { } }\n",
    );
    assert_eq!(
        problems,
        [
            "swanctl.conf:3: connections.gw.version: `1`: IKEv1 is not implemented; only 0 or 2 is accepted",
            "swanctl.conf:4: connections.gw.proposals: `aes128-sha256`: a key exchange method was expected, such as x25519, \
             ecp256 or modp2048",
            "swanctl.conf:4: connections.gw.proposals: `foo`: `foo` names no algorithm: keywords such as aes256gcm16, aes128, \
             sha256, prfsha256 or x25519 were expected",
            "swanctl.conf:5: connections.gw.local.auth: `eap-fast`: this method is not implemented: eap, eap-radius, \
             eap-tls, eap-aka', \
             eap-aka, eap-ttls, eap-peap, eap-mschapv2, eap-gtc or eap-md5 was expected",
            "swanctl.conf:8: connections.gw.children.a.mode: `beet`: this mode is not implemented: tunnel, transport, pass or \
             drop was expected",
            "swanctl.conf:9: connections.gw.children.a.local_ts: `10.0.0.0/99`: dynamic, an address, a subnet or a range was \
             expected, optionally followed by [protocol/port]",
            "swanctl.conf:13: pools.p: `addrs` was expected, such as 10.3.0.0/24",
        ]
    );
}

#[test]
fn contradictory_keys() {
    let child = |keys: &str| only(&format!("connections {{ gw {{ children {{ a {{\n{keys}\n}} }} }} }}"));
    assert!(
        child("rekey_time = 1h\nlife_time = 30m")
            .contains(":3: connections.gw.children.a.life_time: it ends before")
    );
    assert!(child("rekey_time = 1h\nrand_time = 2h").contains("rand_time: it is longer"));
    assert!(child("rekey_bytes = 9k\nlife_bytes = 8k").contains("life_bytes: it is below"));
    assert!(
        child("mode = pass").contains("children.a.start_action: pass and drop take effect only with a trap")
    );
    assert!(
        child("mode = drop\nstart_action = trap\nesp_proposals = aes128gcm16")
            .contains("no proposal was expected")
    );
    for (keys, reason) in [
        ("rohc_max_cid = 3", "a.rohc_max_cid: it belongs to header compression: rohc = yes was expected"),
        ("rohc = no\nrohc_integrity = sha256", "a.rohc_integrity: it belongs to header compression"),
        ("rohc = yes\nrohc_icv_len = 4", "a.rohc_icv_len: there is no ICV to cut"),
        ("rohc = yes\nrohc_max_cid = 16384", "a.rohc_max_cid: `16384`: a number from 0 to 16383"),
        ("rohc = yes\nrohc_integrity = aes128gmac", "a.rohc_integrity: `aes128gmac`: none, sha1, sha256"),
        ("rohc = yes\nrohc_integrity = md5", "a.rohc_integrity: `md5`: none, sha1, sha256"),
        ("rohc = yes\nrohc_integrity = sha256 none", "separated by commas"),
        (
            "rohc = yes\nrohc_integrity = sha256\nrohc_icv_len = 17",
            "a.rohc_icv_len: the ICV of rohc_integrity has 16",
        ),
        ("rohc = yes\nrohc_integrity = sha256\nrohc_icv_len = 0", "a number of bytes from 1 to 32"),
        ("rohc = yes\nmode = transport", "a.rohc: it compresses the packets inside a tunnel"),
        ("rohc = yes\nah_proposals = sha256", "a.rohc: it compresses the packets inside a tunnel"),
        ("rohc = yes\ntfc_padding = 128", "a.rohc: padded packets cannot be compressed"),
        ("mode = pass\nstart_action = trap\nrohc = yes", "a.rohc: pass and drop have no SA"),
    ] {
        assert!(child(keys).contains(reason), "{keys}: {}", child(keys));
    }
    let gw = |keys: &str| only(&format!("connections {{ gw {{\n{keys}\n}} }}"));
    assert!(gw("local { auth = psk\ncerts = a.pem\n}").contains("local.auth: psk needs no certificate"));
    assert!(gw("remote { auth = psk\ncacerts = a.pem\n}").contains("remote.auth: psk proves no certificate"));
    for action in ["start", "trap"] {
        let child = format!("children {{ a {{\n start_action = {action}\n }} }}");
        assert!(gw(&child).contains("children.a.start_action: the peer has no single address"));
        assert!(
            gw(&format!("remote_addrs = 10.0.0.0/8\n{child}")).contains("no single address to initiate to")
        );
    }
    for (action, local, remote) in [
        ("start_action = trap", "10.1.0.0/16", "2001:db8::/32"),
        ("close_action = trap", "10.1.0.0/16", "2001:db8::/32"),
        ("dpd_action = trap", "10.1.0.0/16[tcp]", "10.2.0.0/16[udp]"),
        ("start_action = trap", "2001:db8::/32", "dynamic"),
    ] {
        let ts = format!("local_ts = {local}\n remote_ts = {remote}");
        let child = format!("remote_addrs = 192.0.2.1\nchildren {{ a {{\n {ts}\n {action}\n }} }}");
        assert!(gw(&child).contains("a.remote_ts: a trap would block nothing"), "{child}");
        // Without a trap, no traffic is blocked and the value of `dynamic` is not checked.
        ok(&format!("connections {{ gw {{\n{}\n}} }}", child.replace(action, "")));
    }
    ok(
        "connections { gw {\n remote_addrs = 192.0.2.1\n children { a {\n local_ts = 2001:db8::/32\n close_action = trap\n} } } }",
    );
    assert!(gw("pools = p").contains("connections.gw.pools: `p`: there is no such pool"));
    assert!(gw("local_port = 0").contains("a number above 0 was expected"));
    assert!(only("secrets { ike { } }").contains("secrets.ike: `secret` was expected"));
}

#[test]
fn secrets_are_never_shown() {
    for text in [
        "secrets { ike {\n secret = 0xMYSECRET\n } }",
        "secrets { ike {\n secret = 0sMYSECRET*\n } }",
        "secrets { ike {\n secret = MYSECRET\n foo = 1\n } }",
        "secrets { rsa {\n secret = MYSECRET\n } }",
        "secrets { eap {\n secret = MYSECRET\n foo = 1\n } }",
        "secrets { ike { secret = \"MYSECRET } }",
        "secrets { token {\n pin = MYSECRET\n } }",
    ] {
        assert!(wrong(text).iter().all(|problem| !problem.contains("MYSECRET")), "{text}");
    }
    let shown = format!(
        "{:?}",
        ok("secrets { ike {\n secret = MYSECRET\n }\n rsa {\n file = a\n secret = MYSECRET\n }\n \
            token {\n handle = a1\n pin = MYSECRET\n } }")
    );
    assert!(!shown.contains("MYSECRET") && shown.contains("8 bytes"));
}

/// Accepting any proof of a peer is usually an oversight.
#[test]
fn peer_without_auth_gives_a_warning() {
    let warnings = |remote: &str| {
        let config = ok(&format!("connections {{\n c {{\n  {remote}\n }}\n}}\n"));
        let [connection] = &config.connections[..] else { panic!() };
        let any = matches!(connection.remote.method, RemoteMethod::Any(_));
        (any, config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    for (remote, why) in [
        ("", "connections.c: there is no section `remote`"),
        ("remote { }", "connections.c.remote: there is no `auth`"),
        ("remote { id = sun.example.org }", "connections.c.remote: there is no `auth`"),
        ("remote { revocation = strict }", "connections.c.remote: there is no `auth`"),
    ] {
        let (any, found) = warnings(remote);
        assert!(any && found.len() == 1 && found[0].contains(why), "{remote}: {found:?}");
        assert!(found[0].contains("any pre-shared key and any trusted certificate"), "{found:?}");
    }
    for remote in ["remote { auth = psk }", "remote { auth = pubkey }", "remote { ca_id = \"C=CH, CN=ca\" }"]
    {
        assert_eq!(warnings(remote), (false, vec![]), "{remote}");
    }
}

#[test]
fn proposals_that_are_probably_not_meant_give_a_warning_where_they_are_named() {
    let warnings = |ike: &str, esp: &str| {
        let text = format!(
            "connections {{\n c {{\n proposals = {ike}\n remote {{\n auth = psk\n }}\n children {{\n n {{\n esp_proposals = {esp}\n \
             }}\n }}\n }}\n}}\n"
        );
        let config = ok(&text);
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (ike_key, esp_key) = ("connections.c.proposals", "connections.c.children.n.esp_proposals");
    for (ike, esp, name, why) in [
        ("aes256-sha256-modp1024, default", "default", ike_key, "RFC 8247"),
        ("default", "aes256gcm16-modp1024", esp_key, "RFC 8247"),
        ("aes256-sha256-x25519-ke1_modp1024", "default", ike_key, "RFC 8247"),
        ("default, aes256-sha256-x25519-mlkem768", "default", ike_key, "x25519-ke1_mlkem768 was expected"),
        ("default", "aes256gcm16-x25519-mlkem768", esp_key, "x25519-ke1_mlkem768 was expected"),
        ("aes256-sha256-x25519-ke1_none", "default", ike_key, "ke1_none has no effect"),
    ] {
        let found = warnings(ike, esp);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(name) && found[0].contains(why), "{found:?}");
    }
    assert!(warnings("default", "default").is_empty());
    let twice =
        only("connections {\n c {\n proposals = aes256-sha256-x25519-ke1_mlkem768-ke2_mlkem768\n }\n}");
    let why = "no method can be used in two additional key exchanges";
    assert!(twice.contains(":3: connections.c.proposals: ") && twice.contains(why), "{twice}");
}

/// Without an address of the peer, traffic passes in clear when a Child SA ends.
#[test]
fn trap_without_a_peer_address_gives_a_warning() {
    let warnings = |addrs: &str, action: &str| {
        let child = format!("children {{\n d {{\n {action}\n }}\n}}");
        let config = ok(&format!(
            "connections {{\n c {{\n {addrs}\n remote {{\n auth = psk\n }}\n {child}\n }}\n}}\n"
        ));
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for action in ["close_action = trap", "dpd_action = trap"] {
        for addrs in ["", "remote_addrs = %any", "remote_addrs = 192.0.2.0/24"] {
            let found = warnings(addrs, action);
            let name = format!("connections.c.children.d.{}", &action[..action.len() - " = trap".len()]);
            assert!(found.len() == 1 && found[0].contains(&name), "{addrs} {action}: {found:?}");
            assert!(found[0].contains("one address or name in `remote_addrs` was expected"), "{found:?}");
        }
        assert!(warnings("remote_addrs = 192.0.2.1", action).is_empty(), "{action}");
    }
    assert!(warnings("", "close_action = none").is_empty());
}

#[test]
fn the_path_is_probed_unless_its_mtu_is_configured() {
    let probes =
        |keys: &str| ok(&format!("connections {{ gw {{\n{keys}\n}} }}")).connections[0].path_mtu_probes;
    let given = ["", "mtu = 1400", "path_mtu_probes = no", "mtu = 1400\npath_mtu_probes = yes"];
    assert_eq!(given.map(probes), [true, false, false, true]);
    let problem = only("connections { gw {\npath_mtu_probes = maybe\n} }");
    assert!(problem.contains("connections.gw.path_mtu_probes: `maybe`: yes or no was expected"), "{problem}");
}

#[test]
fn packet_limits_of_a_connection() {
    let limits =
        |keys: &str| ok(&format!("connections {{ gw {{\n{keys}\n}} }}")).connections[0].packet_limits;
    assert_eq!(limits(""), PacketLimits::default());
    assert_eq!(limits("mtu = 1400\nmss = 1300"), PacketLimits { mtu: Some(1_400), mss: Some(1_300) });
    for (keys, expected) in [
        ("mtu = 575", "connections.gw.mtu: `575`: a number of bytes from 576 to 65535 was expected"),
        ("remote_addrs = fd00::1\nmtu = 1279", "a number of bytes from 1280 to 65535 was expected"),
        ("mtu = 70000", "from 576 to 65535"),
        ("mtu = 1400b", "from 576 to 65535"),
        ("mss = 27", "connections.gw.mss: `27`: a number of bytes from 28 to 65535 was expected"),
    ] {
        let problem = only(&format!("connections {{ gw {{\n{keys}\n}} }}"));
        assert!(problem.contains(expected), "{keys}: {problem}");
    }
}

/// A raw public key (RFC 7670) names no identity, so a second key or an open identity would let the owner of
/// one key take the identity of another.
#[test]
fn one_public_key_belongs_to_one_identity() {
    let conf = |remote: &str| {
        format!(
            "connections {{\n c {{\n local {{\n pubkeys = own.pem\n }}\n remote {{\n {remote}\n }}\n }}\n}}\n"
        )
    };
    let config = ok(&conf("id = sun.test\n pubkeys = sun.pem"));
    let [connection] = &config.connections[..] else { panic!() };
    let own = LocalMethod::Certificate(vec!["/etc/swanctl/pubkey/own.pem".into()]);
    assert_eq!((&connection.local.method, config.warnings.len()), (&own, 0));
    assert_eq!(connection.remote.method, RemoteMethod::Certificate("c".into()));
    assert_eq!(config.peer_conditions[0].pubkey, Some("/etc/swanctl/pubkey/sun.pem".into()));
    // The key ID is known when the file is read.
    assert_eq!(ok(&conf("pubkeys = sun.pem")).connections[0].remote.id, casemate_ike::config::IdPattern::Any);
    for (remote, why) in [
        ("id = *.test\n pubkeys = sun.pem", "`id` with that of the peer was expected"),
        ("id = sun.test\n pubkeys = a.pem, b.pem", "one file was expected"),
        ("id = sun.test\n pubkeys = a.pem\n certs = b.pem", "certificates or a public key were expected"),
        ("id = sun.test\n pubkeys = a.pem\n cacerts = b.pem", "certificates or a public key were expected"),
        ("pubkeys = a.pem\n cert_policy = 1.2.3", "certificates or a public key were expected"),
        ("id = sun.test\n pubkeys = a.pem\n auth = psk", "psk proves no certificate"),
    ] {
        let problem = only(&conf(remote));
        assert!(problem.contains(why), "{remote}: {problem}");
    }
}

#[test]
fn selectors_of_different_ip_versions_give_a_warning() {
    let warnings = |connection: &str, child: &str| {
        let child = format!("children {{\n d {{\n {child}\n }}\n}}");
        let config = ok(&format!(
            "connections {{\n c {{\n {connection}\n remote {{\n auth = psk\n }}\n {child}\n }}\n}}\n"
        ));
        config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (v4, v6) = ("remote_ts = 10.5.0.0/16", "remote_ts = fd05::/64");
    for (connection, child) in [
        ("remote_addrs = 2001:db8::1", v4),
        ("remote_addrs = 192.0.2.1", v6),
        ("remote_addrs = gw.example.org\n local_addrs = 192.0.2.2", v6),
        ("remote_addrs = 192.0.2.1\n vips = ::", v4),
        ("", "local_ts = 10.1.0.0/16\n remote_ts = fd05::/64"),
    ] {
        let found = warnings(connection, child);
        assert!(found.len() == 1 && found[0].contains("connections.c: children.d: "), "{found:?}");
        assert!(found[0].contains("so no packet matches"), "{found:?}");
    }
    for (connection, child) in [
        ("remote_addrs = 192.0.2.1", v4),
        ("remote_addrs = 192.0.2.1, 2001:db8::1", v6),
        ("remote_addrs = gw.example.org", v4),
        ("", v6),
        ("remote_addrs = 192.0.2.1\n vips = 0.0.0.0, ::", v6),
        ("remote_addrs = 2001:db8::1", "local_ts = 10.1.0.0/16\n remote_ts = 10.5.0.0/16"),
        ("remote_addrs = 2001:db8::1", "remote_ts = 10.5.0.0/16, fd05::/64"),
        ("remote_addrs = 2001:db8::1", ""),
    ] {
        assert_eq!(warnings(connection, child), [""; 0], "{connection} {child}");
    }
}

#[test]
fn full_transcript_auth_is_on_unless_it_is_turned_off() {
    for (key, expected) in
        [("", true), ("full_transcript_auth = yes", true), ("full_transcript_auth = no", false)]
    {
        let config = ok(&format!("connections {{\n c {{\n {key}\n remote {{\n auth = psk\n }}\n }}\n}}\n"));
        assert_eq!(config.connections[0].full_transcript_auth, expected, "{key}");
    }
}

#[test]
fn replay_takeover_is_sync_unless_it_is_configured() {
    use casemate_ike::config::ReplayTakeover;
    for (key, expected) in [
        ("", ReplayTakeover::Sync),
        ("replay_takeover = sync", ReplayTakeover::Sync),
        ("replay_takeover = strict", ReplayTakeover::Strict),
        ("replay_takeover = learn", ReplayTakeover::Learn),
    ] {
        let config = ok(&format!("connections {{\n c {{\n {key}\n remote {{\n auth = psk\n }}\n }}\n}}\n"));
        assert_eq!(config.connections[0].replay_takeover, expected, "{key}");
    }
}
