//! Whose IKE SAs and virtual addresses a peer may replace after a RADIUS server has accepted it: charon as a
//! peer, Casemate as the gateway, FreeRADIUS as the server. FreeRADIUS copies User-Name of the Access-Request
//! to Access-Accept unless its configuration names another user.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "other tests use the rest")]
mod freeradius;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{TempDir, write_program};
use charon::Charon;
use freeradius::{FreeRadius, SECRET, Settings};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use testnet::{Running, Side, TestNet, eventually};

/// A connection of the peer, with a child of the same name: its name, which begins with the ID, and keys of
/// `local`.
type Login<'l> = (&'l str, &'l str);

fn peer(logins: &[Login<'_>]) -> String {
    let connection = |(name, keys): &Login<'_>| {
        let id = name.split('-').next().unwrap();
        format!(
            "{name} {{\nversion = 2\nmobike = no\nlocal_addrs = {}\nremote_addrs = {}\nvips = 0.0.0.0\n\
             proposals = aes128gcm16-prfsha256-x25519\nlocal {{\nid = {id}\n{keys}\n}}\n\
             remote {{\nauth = psk\nid = gateway.test\n}}\n\
             children {{\n{name} {{\nremote_ts = {}/32\nesp_proposals = aes128gcm16\n}}\n}}\n}}\n",
            Side::Left.outer(true),
            Side::Right.outer(true),
            Side::Right.inner(true),
        )
    };
    let connections: String = logins.iter().map(connection).collect();
    let password = |name: &str| format!("eap-{name} {{\nid = {name}\nsecret = sesame\n}}\n");
    let passwords: String = ["carol", "dave"].map(password).concat();
    let secret = "ike-g {\nid = gateway.test\nsecret = \"a secret of the two hosts\"\n}\n";
    format!("connections {{\n{connections}}}\nsecrets {{\n{secret}{passwords}}}\n")
}

/// The gateway, with keys of its section `remote` and of the section `eap-radius`.
fn gateway(remote: &str, radius: &str) -> String {
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = %any\n pools = radius, users\n\
         proposals = aes128gcm16-prfsha256-x25519\n\
         local {{ auth = psk\n id = gateway.test }}\n remote {{ auth = eap-radius\n{remote}\n }}\n\
         children {{ c {{ local_ts = {}/32\n esp_proposals = aes128gcm16 }} }} }} }}\n\
         pools {{ users {{ addrs = 10.78.0.0/29 }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two hosts\" }} }}\n\
         charon {{ plugins {{ eap-radius {{\n{radius}\n\
         servers {{ one {{ address = 127.0.0.1\n secret = \"{SECRET}\" }} }}\n }} }} }}\n",
        Side::Right.outer(true),
        Side::Right.inner(true),
    )
}

/// Writes `swanctl.conf` of the peer, and the certificates beside it.
fn write_configuration(net: &TestNet, directory: &Path, conf: &str) {
    let from = net.right.file("certificates");
    for (file, folder) in [("ca.pem", "x509ca"), ("carol.pem", "x509"), ("carol.key", "private")] {
        fs::create_dir_all(directory.join(folder)).unwrap();
        fs::copy(from.join(file), directory.join(folder).join(file)).unwrap();
    }
    fs::write(directory.join("swanctl.conf"), conf).unwrap();
}

/// Gateway, server and peer.
struct Setup<'n> {
    net: &'n TestNet,
    gateway: Running,
    server: FreeRadius,
    charon: Charon<'n>,
}

const USERS: &str = "carol Cleartext-Password := \"sesame\"\n\ndave Cleartext-Password := \"sesame\"\n";

impl<'n> Setup<'n> {
    fn start(net: &'n TestNet, settings: &Settings<'_>, gateway: &str, logins: &[Login<'_>]) -> Option<Self> {
        let server = FreeRadius::start(&net.right, settings)?;
        let gateway = net.right.run_config(gateway, None);
        let charon = Charon::start(&net.left, &peer(&[]))?;
        write_configuration(net, &charon.swanctl.directory, &peer(logins));
        charon.swanctl.output(&["--load-all", "--noprompt"]);
        Some(Self { net, gateway, server, charon })
    }

    /// Attempts a login. Returns whether it was accepted.
    fn log_in(&self, name: &str) -> bool {
        self.charon.swanctl.run(&["--initiate", "--child", name, "--timeout", "20"]).status.success()
    }

    /// Logs in twice, and returns what the gateway then knows of its peers.
    fn log_in_twice(&self, names: [&str; 2]) -> Vec<Value> {
        for name in names {
            let logs = || format!("{}\n---\n{}", self.gateway.log(), self.server.log());
            assert!(self.log_in(name), "{name}: {}", logs());
        }
        self.net.right.status()["ike_sas"].as_array().unwrap().clone()
    }
}

/// A script that writes its environment to a file, as a user without privileges.
struct Script(TempDir);

impl Script {
    fn new() -> Self {
        let directory = TempDir::new("radius-script").unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let script = Self(directory);
        let text = format!("#!/bin/sh\n/usr/bin/env >> {}\n", script.output().display());
        write_program(&script.0.file("script"), text.as_bytes());
        script
    }

    fn output(&self) -> PathBuf {
        self.0.file("environment")
    }

    /// The gateway with the script.
    fn of(&self, gateway: &str) -> String {
        gateway.replace("local_ts", &format!("updown = {}\n local_ts", self.0.file("script").display()))
    }

    /// The environment of the first runs.
    fn environment(&self) -> String {
        let read = || fs::read_to_string(self.output()).unwrap_or_default();
        eventually("a script", || read().contains("PLUTO_VERB=up"));
        read()
    }
}

fn vips(sas: &[Value]) -> Vec<&str> {
    sas.iter().map(|sa| sa["vips"][0].as_str().unwrap()).collect()
}

const TTLS: &str = "auth = eap-ttls\neap_id = carol\naaa_id = \"CN=aaa.test\"";

/// Any user of the server may claim `carol` outside of the tunnel, and the server repeats that.
#[test]
fn a_name_that_the_server_may_have_copied_replaces_no_other_peer() {
    let Some(net) = TestNet::build("radius_claimed") else { return };
    let script = Script::new();
    let conf = script.of(&gateway("eap_id = %any", ""));
    let Some(setup) = Setup::start(&net, &Settings::of_users(USERS), &conf, &[("one", TTLS), ("two", TTLS)])
    else {
        return;
    };
    let sas = setup.log_in_twice(["one", "two"]);
    assert_eq!(vips(&sas), ["10.78.0.1", "10.78.0.2"], "{sas:#?}\n{}", setup.gateway.log());
    for sa in &sas {
        assert_eq!((&sa["eap_identity"], &sa["claimed_eap_identity"]), (&Value::Null, &"carol".into()));
    }
    let log = setup.gateway.log();
    assert_eq!(log.matches("has not said which user it has authenticated").count(), 2, "{log}");
    assert!(log.contains("update outer.session-state { User-Name := &User-Name }"), "{log}");
    let environment = script.environment();
    assert!(!environment.contains("PLUTO_XAUTH_ID"), "{environment}");
    // A claim is no name for commands.
    assert!(!net.right.casemate(&["terminate", "carol"]).status.success());
    assert!(log.contains("established with unproven EAP identity `carol`"), "{log}");
    assert!(setup.server.log().contains("User-Name = \"carol\""), "{}", setup.server.log());
}

/// The administrator says that the server does not copy claims.
#[test]
fn a_trusted_server_names_users_behind_a_tunnel() {
    let Some(net) = TestNet::build("radius_trusted") else { return };
    let conf = gateway("eap_id = %any", "trust_user_name = yes");
    let Some(setup) = Setup::start(&net, &Settings::of_users(USERS), &conf, &[("one", TTLS), ("two", TTLS)])
    else {
        return;
    };
    let sas = setup.log_in_twice(["one", "two"]);
    assert_eq!((vips(&sas), &sas[0]["eap_identity"]), (vec!["10.78.0.1"], &"carol".into()), "{sas:#?}");
}

/// The inner identity differs from the EAP identity, and the server returns it as User-Name.
#[test]
fn a_name_from_the_tunnel_is_the_user() {
    let Some(net) = TestNet::build("radius_tunnel") else { return };
    let post_auth = "update outer.session-state {\n User-Name := \"Carol of %{User-Name}\"\n }";
    let settings = Settings { post_auth, ..Settings::of_users(USERS) };
    let conf = gateway("eap_id = %any", "");
    let Some(setup) = Setup::start(&net, &settings, &conf, &[("one", TTLS), ("two", TTLS)]) else { return };
    let sas = setup.log_in_twice(["one", "two"]);
    let expected = (vec!["10.78.0.1"], &"Carol of carol".into());
    assert_eq!((vips(&sas), &sas[0]["eap_identity"]), expected, "{sas:#?}\n{}", setup.server.log());
}

const MSCHAPV2: &str = "auth = eap-mschapv2\neap_id = ";

/// The server calls two EAP identities the same user, or each by another name.
#[test]
fn the_user_of_the_server_replaces_its_own_ike_sa_only() {
    let Some(net) = TestNet::build("radius_named") else { return };
    let users = USERS.replace("\n\n", "\n User-Name := \"staff\"\n\n");
    let users = users.trim_end().to_owned() + "\n User-Name := \"staff\"\n";
    let (carol, dave) = (format!("{MSCHAPV2}carol"), format!("{MSCHAPV2}dave"));
    let logins = [("one", carol.as_str()), ("two", dave.as_str())];
    let script = Script::new();
    let conf = script.of(&gateway("eap_id = %any", ""));
    let Some(setup) = Setup::start(&net, &Settings::of_users(&users), &conf, &logins) else { return };
    let sas = setup.log_in_twice(["one", "two"]);
    assert_eq!((vips(&sas), &sas[0]["eap_identity"]), (vec!["10.78.0.1"], &"staff".into()), "{sas:#?}");
    assert!(script.environment().contains("PLUTO_XAUTH_ID=staff"));
    assert!(net.right.casemate(&["terminate", "staff"]).status.success());
    net.right.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
}

/// FreeRADIUS compares the certificate of EAP-TLS with no name, unless it is told to.
#[test]
fn a_certificate_of_another_user_proves_no_claimed_identity() {
    let Some(net) = TestNet::build("radius_tls") else { return };
    let Some(server) = FreeRadius::start(&net.right, &Settings::of_users(USERS)) else { return };
    let running = net.right.run_config(&gateway("eap_id = %any", ""), None);
    // charon sends only a certificate of its EAP identity.
    let tls = "auth = eap-tls\neap_id = dave\ncerts = carol.pem\naaa_id = aaa.test";
    let conf = peer(&[("one", tls)]).replace("esp_proposals", "start_action = start\nesp_proposals");
    let directory = net.left.file("client");
    write_configuration(&net, &directory, &conf);
    let client = net.left.run_config_file(&directory.join("swanctl.conf"));
    eventually("a session", || running.log().contains("established with"));
    let sas = net.right.status()["ike_sas"].clone();
    let logs = || format!("{}\n{}\n{}", running.log(), client.log(), server.log());
    let expected = (&Value::Null, &"dave".into());
    assert_eq!((&sas[0]["eap_identity"], &sas[0]["claimed_eap_identity"]), expected, "{}", logs());
}

/// Any user of the server could claim to be the only one of a connection.
#[test]
fn a_connection_for_one_user_refuses_a_claim() {
    let Some(net) = TestNet::build("radius_one_user") else { return };
    let carol = format!("{MSCHAPV2}carol");
    let logins = [("carol-tunnel", TTLS), ("carol-password", carol.as_str())];
    let conf = gateway("eap_id = carol", "");
    let Some(setup) = Setup::start(&net, &Settings::of_users(USERS), &conf, &logins) else { return };
    assert!(!setup.log_in("carol-tunnel"));
    let expected = "the RADIUS server has not said whether it has authenticated `carol`";
    assert!(setup.gateway.log().contains(expected), "{}", setup.gateway.log());
    assert!(setup.log_in("carol-password"), "{}", setup.gateway.log());
}
