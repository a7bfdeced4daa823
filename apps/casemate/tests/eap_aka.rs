//! EAP-AKA between two instances of the program: keys of a USIM in `secrets`, and sequence numbers that
//! outlive the runs of both sides.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use testnet::{Host, Running, Side, TestNet, casemate, eventually};

const IDENTITY: &str = "0232010000000000@nai.epc.mnc001.mcc232.3gppnetwork.org";
const K: &str = "465b5ce8b199b49faa5f0a2ee238a6bc";
const OPC: &str = "cd63cb71954a9f4e48a5994e37a02baf";

/// The configuration of a side. `secret` is the section for EAP.
fn conf(side: Side, local: &str, remote: &str, secret: &str, action: &str) -> String {
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n\
         local {{\n {local}\n }}\n remote {{\n {remote}\n }}\n\
         children {{ c {{ local_ts = {}\n remote_ts = {}\n start_action = {action} }} }} }} }}\n\
         secrets {{\n ike {{\n id = gateway.test\n secret = \"a secret of the two hosts\"\n }}\n\
         eap {{\n{secret}\n }}\n }}\n",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

fn client(method: &str, secret: &str) -> String {
    let local = format!("auth = {method}\n id = {IDENTITY}");
    conf(Side::Left, &local, "auth = psk\n id = gateway.test", secret, "start")
}

fn gateway(method: &str, secret: &str) -> String {
    let remote = format!("auth = {method}\n eap_id = %any");
    conf(Side::Right, "auth = psk\n id = gateway.test", &remote, secret, "none")
}

/// K and OPc in two keys, for the IMSI.
fn by_imsi() -> String {
    format!("id = 232010000000000\n secret = 0x{K}\n opc = 0x{OPC}")
}

/// K and OPc in one secret, for the whole identity.
fn by_identity() -> String {
    format!("id = {IDENTITY}\n secret = 0x{K}{OPC}")
}

/// Starts an instance whose sequence numbers are in a file of the host.
fn start(host: &Host, conf: &str) -> Running {
    fs::write(host.file("conf"), conf).unwrap();
    let program = casemate().arg("run").arg("--config").arg(host.file("conf"));
    host.start(program.arg("--aka-numbers").arg(host.file("numbers")))
}

/// The sequence number of the home network in the file of a host.
fn network_sqn(host: &Host) -> u64 {
    let text = fs::read_to_string(host.file("numbers")).unwrap();
    let line = text.lines().find(|line| line.starts_with("network ")).unwrap_or_else(|| panic!("{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_subscriber_is_authenticated_and_the_numbers_outlive_both_sides() {
    let Some(net) = TestNet::build("eap_aka") else { return };
    let authenticate = |method| {
        let right = start(&net.right, &gateway(method, &by_imsi()));
        let left = start(&net.left, &client(method, &by_identity()));
        net.left.wait_until(|status| !status["ike_sas"].as_array().unwrap().is_empty());
        // The routes follow the SAs.
        eventually("a reply through the tunnel", || net.left.pings(Side::Right.inner(true), 8));
        assert!(net.right.status().to_string().contains(IDENTITY), "the proven identity is shown");
        for log in [left.log(), right.log()] {
            assert!(!log.contains(K) && !log.contains(OPC), "{log}");
        }
        left.stop();
        right.stop();
        network_sqn(&net.right)
    };
    // SEQ and IND of the first vector are 1. No vector is used for a resynchronisation.
    assert_eq!(["eap-aka", "eap-aka'", "eap-aka"].map(authenticate), [33, 66, 99]);
    // A gateway that has lost its numbers continues behind that of the USIM.
    fs::remove_file(net.right.file("numbers")).unwrap();
    assert_eq!(authenticate("eap-aka"), 132);
}

#[test]
fn another_key_is_refused_and_explained() {
    let Some(net) = TestNet::build("eap_aka_key") else { return };
    let other = by_imsi().replace("465b", "465c");
    let right = start(&net.right, &gateway("eap-aka", &other));
    let left = start(&net.left, &client("eap-aka", &by_identity()));
    eventually("an explanation", || left.log().contains("does not know the password"));
    let sas = net.right.status()["ike_sas"].as_array().unwrap().len();
    assert_eq!(sas, 0, "{}", right.log());
}
