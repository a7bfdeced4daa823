//! EAP-AKA, AKA' and PEAP of hostapd: Casemate is the client, and a gateway passes EAP on to hostapd by
//! RADIUS. The gateway is charon in one test and Casemate in the other.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod charon;
#[allow(dead_code, reason = "only the certificates are needed")]
mod freeradius;
mod hostapd;
#[allow(dead_code, reason = "other tests use the rest")]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use charon::Charon;
use hostapd::{Hostapd, IMSI, K, OPC, SECRET};
use std::path::Path;
use std::time::{Duration, Instant};
use testnet::{Side, TestNet};

const TIMEOUT: Duration = Duration::from_secs(15);

const REALM: &str = "@nai.epc.mnc001.mcc232.3gppnetwork.org";
/// The users of hostapd: the first digit tells AKA and AKA' apart (3GPP TS 23.003 section 19.3.2).
const USERS: &str = "\"0\"* AKA\n\"6\"* AKA'\n\"carol\" PEAP\n\"carol\" MSCHAPV2 \"sesame\" [2]\n";

/// A connection `t` of a side, with a child. `local` and `remote` are keys of these sections.
fn connection(side: Side, local: &str, remote: &str, action: &str) -> String {
    format!(
        "connections {{\nt {{\nversion = 2\nlocal_addrs = {}\nremote_addrs = {}\n\
         proposals = aes128gcm16-prfsha256-x25519\nlocal {{\n{local}\n}}\nremote {{\n{remote}\n}}\n\
         children {{\nc {{\nlocal_ts = {}/32\nremote_ts = {}/32\nesp_proposals = aes128gcm16\n\
         start_action = {action}\n}}\n}}\n}}\n}}\n",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

/// The `swanctl.conf` of the gateway, whichever it is.
fn gateway() -> String {
    let remote = "auth = eap-radius\neap_id = %any";
    connection(Side::Right, "auth = psk\nid = gateway.test", remote, "none")
        + "secrets {\nike-g {\nid = gateway.test\nsecret = \"a secret of the two hosts\"\n}\n}\n"
}

/// The server, in both forms of the section `eap-radius`.
fn radius() -> String {
    format!("eap-radius {{\nservers {{\none {{\naddress = 127.0.0.1\nsecret = \"{SECRET}\"\n}}\n}}\n}}\n")
}

/// The client's configuration for a method, with keys of its section `local` and of its secret.
fn client(method: &str, local: &str, secret: &str, certificates: &Path) -> String {
    let local = format!("auth = {method}\n{local}");
    format!(
        "{}authorities {{\nca {{\ncacert = {}/ca.pem\n}}\n}}\n\
         secrets {{\nike {{\nid = gateway.test\nsecret = \"a secret of the two hosts\"\n}}\n\
         eap {{\n{secret}\n}}\n}}\n",
        connection(Side::Left, &local, "auth = psk\nid = gateway.test", "start"),
        certificates.display(),
    )
}

/// Has a client authenticate with each method. `log` is that of the gateway.
fn authenticate(net: &TestNet, server: &Hostapd, certificates: &Path, log: impl Fn() -> String) {
    let usim = format!("id = {IMSI}\nsecret = 0x{K}\nopc = 0x{OPC}");
    let methods = [
        ("eap-aka", format!("id = 0{IMSI}{REALM}"), usim.as_str()),
        ("eap-aka'", format!("id = 6{IMSI}{REALM}"), &usim),
        ("eap-peap", "id = carol\naaa_id = aaa.test".into(), "id = carol\nsecret = sesame"),
    ];
    for (method, local, secret) in methods {
        let before = server.successes();
        // Each client is a new USIM, because the authentication centre has one vector.
        let running = net.left.run_config(&client(method, &local, secret, certificates), None);
        let is_up = || {
            let is_established = !net.left.status()["ike_sas"].as_array().unwrap().is_empty();
            is_established && net.left.pings(Side::Right.inner(true), 8)
        };
        let start = Instant::now();
        while !is_up() {
            let logs = [running.log(), log(), server.log()].join("\n---\n");
            assert!(start.elapsed() < TIMEOUT, "{method}: {logs}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(server.successes(), before + 1, "{method}: {}", server.log());
        running.stop();
    }
}

#[test]
fn casemate_is_a_client_of_charon_in_front_of_hostapd() {
    let Some(net) = TestNet::build("hostapd_charon") else { return };
    let certificates = net.right.file("certificates");
    freeradius::make_certificates(&certificates);
    let Some(server) = Hostapd::start(&net.right, USERS, &certificates) else { return };
    let Some(charon) = Charon::start_with(&net.right, &gateway(), "eap-radius", &radius()) else { return };
    authenticate(&net, &server, &certificates, || charon.log());
}

#[test]
fn casemate_is_a_client_of_casemate_in_front_of_hostapd() {
    let Some(net) = TestNet::build("hostapd_casemate") else { return };
    let certificates = net.right.file("certificates");
    freeradius::make_certificates(&certificates);
    let Some(server) = Hostapd::start(&net.right, USERS, &certificates) else { return };
    let conf = format!("{}charon {{\nplugins {{\n{}}}\n}}\n", gateway(), radius());
    let running = net.right.run_config(&conf, None);
    authenticate(&net, &server, &certificates, || running.log());
    // hostapd names no user. It asks for the identity of AKA itself, and gets the same one.
    let log = running.log();
    for digit in [0, 6] {
        assert!(log.contains(&format!("established with EAP identity `{digit}{IMSI}{REALM}`")), "{log}");
    }
    assert!(log.contains("established with unproven EAP identity `carol`"), "{log}");
}
