//! Peers that a RADIUS server authenticates: charon as the peer, Casemate as the gateway, FreeRADIUS as the
//! server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
mod freeradius;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use charon::Charon;
use freeradius::{FreeRadius, SECRET, Settings};
use std::fs;
use testnet::{Host, Running, Side, TestNet, eventually};

const PORT: u16 = 1_812;
const USERS: &str = "carol Cleartext-Password := \"sesame\"\n Class := 0x6775657374,\n \
                     Framed-IP-Address := 10.77.0.9\n";

/// The peer's configuration. `method` is the value of `auth`, with further keys of `local`.
fn peer(method: &str) -> String {
    format!(
        "connections {{\nt {{\nversion = 2\nmobike = no\nlocal_addrs = {}\nremote_addrs = {}\nvips = 0.0.0.0\n\
         proposals = aes128gcm16-prfsha256-x25519\n\
         local {{\nauth = {method}\nid = carol\n}}\n\
         remote {{\nauth = psk\nid = gateway.test\n}}\n\
         children {{\nc {{\nremote_ts = {}/32\nesp_proposals = aes128gcm16\n}}\n}}\n}}\n}}\n\
         secrets {{\nike-g {{\nid = gateway.test\nsecret = \"a secret of the two hosts\"\n}}\n\
         eap-c {{\nid = carol\nsecret = sesame\n}}\n}}\n",
        Side::Left.outer(true),
        Side::Right.outer(true),
        Side::Right.inner(true),
    )
}

/// The gateway's configuration, with keys of the section `eap-radius`.
fn gateway(eap_id: &str, radius: &str) -> String {
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = %any\n pools = radius\n\
         proposals = aes128gcm16-prfsha256-x25519\n\
         local {{ auth = psk\n id = gateway.test }}\n remote {{ auth = eap-radius\n{eap_id} }}\n\
         children {{ c {{ local_ts = {}/32\n esp_proposals = aes128gcm16 }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of the two hosts\" }} }}\n\
         charon {{ plugins {{ eap-radius {{\n{radius}\n}} }} }}\n",
        Side::Right.outer(true),
        Side::Right.inner(true),
    )
}

fn server(name: &str, port: u16, secret: &str) -> String {
    format!(
        "servers {{ {name} {{ address = 127.0.0.1\n auth_port = {port}\n acct_port = {}\n secret = \"{secret}\" }} }}\n",
        port + 1
    )
}

/// The outcome of `swanctl --initiate`.
fn initiate(charon: &Charon<'_>) -> Result<(), String> {
    let output = charon.swanctl.run(&["--initiate", "--child", "c", "--timeout", "20"]);
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{text}\n{}", charon.log())) }
}

fn start_gateway(host: &Host, eap_id: &str, radius: &str) -> Running {
    host.run_config(&gateway(eap_id, radius), None)
}

#[test]
fn each_method_of_the_server_authenticates_a_peer() {
    let Some(net) = TestNet::build("radius_methods") else { return };
    let Some(server_process) = FreeRadius::start(&net.right, &Settings { port: PORT, users: USERS }) else {
        return;
    };
    let running = start_gateway(&net.right, "eap_id = %any", &server("one", PORT, SECRET));
    let Some(charon) = Charon::start(&net.left, &peer("eap-mschapv2")) else { return };
    if let Err(why) = initiate(&charon) {
        panic!("{why}\n--- gateway\n{}\n--- server\n{}", running.log(), server_process.log());
    }
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", running.log());
}
