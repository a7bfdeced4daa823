//! Whose IKE SAs and virtual addresses a peer may replace after a RADIUS server has accepted it: charon as the
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

use charon::Charon;
use freeradius::{CLIENTS, FreeRadius, SECRET, Settings};
use serde_json::Value;
use std::fs;
use testnet::{Running, Side, TestNet};

/// A connection of the peer, with a child of the same name: its name, which is also the ID, and keys of `local`.
type Login<'l> = (&'l str, &'l str);

fn peer(logins: &[Login<'_>]) -> String {
    let connection = |(name, keys): &Login<'_>| {
        format!(
            "{name} {{\nversion = 2\nmobike = no\nlocal_addrs = {}\nremote_addrs = {}\nvips = 0.0.0.0\n\
             proposals = aes128gcm16-prfsha256-x25519\nlocal {{\nid = {name}\n{keys}\n}}\n\
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

/// Gateway, server and peer.
struct Setup<'n> {
    net: &'n TestNet,
    gateway: Running,
    server: FreeRadius,
    charon: Charon<'n>,
}

const USERS: &str = "carol Cleartext-Password := \"sesame\"\n\ndave Cleartext-Password := \"sesame\"\n";

impl<'n> Setup<'n> {
    fn start(net: &'n TestNet, users: &str, gateway: &str, logins: &[Login<'_>]) -> Option<Self> {
        let server = FreeRadius::start(&net.right, &Settings { port: 1_812, users, clients: CLIENTS })?;
        let gateway = net.right.run_config(gateway, None);
        let charon = Charon::start(&net.left, &peer(&[]))?;
        let (from, to) = (net.right.file("certificates"), &charon.swanctl.directory);
        for (file, folder) in [("ca.pem", "x509ca"), ("carol.pem", "x509"), ("carol.key", "private")] {
            fs::copy(from.join(file), to.join(folder).join(file)).unwrap();
        }
        fs::write(to.join("swanctl.conf"), peer(logins)).unwrap();
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

fn vips(sas: &[Value]) -> Vec<&str> {
    sas.iter().map(|sa| sa["vips"][0].as_str().unwrap()).collect()
}

const TTLS: &str = "auth = eap-ttls\neap_id = carol\naaa_id = \"CN=aaa.test\"";

/// Any user of the server may claim `carol` outside of the tunnel, and the server repeats that.
#[test]
fn a_name_that_the_server_may_have_copied_replaces_no_other_peer() {
    let Some(net) = TestNet::build("radius_claimed") else { return };
    let conf = gateway("eap_id = %any", "");
    let Some(setup) = Setup::start(&net, USERS, &conf, &[("one", TTLS), ("two", TTLS)]) else { return };
    let sas = setup.log_in_twice(["one", "two"]);
    assert_eq!(vips(&sas), ["10.78.0.0", "10.78.0.1"], "{sas:#?}\n{}", setup.gateway.log());
}
