//! Debian's `charon-cmd`, strongSwan's client for the command line, unmodified, connects to Casemate as the
//! gateway with each of its authentication profiles of IKEv2.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "only the certificates are needed")]
mod freeradius;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Process, Program};
use std::fs;
use std::time::{Duration, Instant};
use testnet::{Host, Running, Side, TestNet, eventually};

const PROGRAM: &str = "/usr/sbin/charon-cmd";
const TIMEOUT: Duration = Duration::from_secs(20);
const PASSWORD: &str = "a password for carol";
/// The only address of the gateway's pool.
const VIRTUAL: &str = "10.77.0.9";

/// Plugins to load. `resolve` is not among them, because it would change the name servers of this machine,
/// and `bypass-lan` would except the gateway's address on the cable from kernel-libipsec.
const PLUGINS: &str = "random nonce kdf aes sha1 sha2 hmac mgf1 pem pkcs1 pkcs8 x509 pubkey constraints \
     curve25519 gcm gmp openssl md5 eap-identity eap-mschapv2 eap-tls kernel-libipsec kernel-netlink \
     socket-default";

const PASSWORD_ROUND: &str = "remote {\nauth = eap-mschapv2\neap_id = %any\n}\n";

/// Starts the gateway `aaa.test`. `remote` are its sections for the user.
fn start_gateway(net: &TestNet, remote: &str) -> Running {
    let (from, to) = (net.right.file("certificates"), net.right.file("gateway"));
    if !from.exists() {
        freeradius::make_certificates(&from);
    }
    for (file, folder) in [("ca.pem", "x509ca"), ("aaa.test.pem", "x509"), ("aaa.test.key", "private")] {
        fs::create_dir_all(to.join(folder)).unwrap();
        fs::copy(from.join(file), to.join(folder).join(file)).unwrap();
    }
    let conf = format!(
        "connections {{\nusers {{\nversion = 2\nlocal_addrs = {}\npools = users\n\
         local {{\nauth = pubkey\nid = aaa.test\ncerts = aaa.test.pem\n}}\n{remote}\
         children {{\noffice {{\nlocal_ts = {}/32\n}}\n}}\n}}\n}}\n\
         pools {{\nusers {{\naddrs = {VIRTUAL}/32\n}}\n}}\n\
         secrets {{\neap-carol {{\nid = carol\nsecret = \"{PASSWORD}\"\n}}\n}}\n",
        Side::Right.outer(true),
        Side::Right.inner(true),
    );
    fs::write(to.join("swanctl.conf"), conf).unwrap();
    net.right.run_config_file(&to.join("swanctl.conf"))
}

/// Starts the client with a profile; `key` says whether the user has a certificate. The password is on
/// standard input, which getpass(3) reads in a session without a terminal. Notes the skipped test and returns
/// `None` if charon-cmd is not installed.
fn start_client(net: &TestNet, profile: &str, key: bool, password: &str) -> Option<Process> {
    if !fs::exists(PROGRAM).unwrap() {
        casemate_test_support::skip("charon-cmd (Debian package charon-cmd) is not installed");
        return None;
    }
    let (settings, certificates) = (net.left.file("strongswan.conf"), net.right.file("certificates"));
    fs::write(&settings, format!("charon-cmd {{\nload = {PLUGINS}\n}}\n")).unwrap();
    let gateway = Side::Right.outer(true).to_string();
    // Without stdbuf, the log reaches its file when the client ends.
    let mut program = Program::new("setsid")
        .args(["stdbuf", "--output=L", PROGRAM])
        .args(["--host", &gateway, "--remote-identity", "aaa.test", "--identity", "carol"])
        .args(["--profile", profile, "--cert"])
        .arg(certificates.join("ca.pem"));
    if key {
        program = program.arg("--cert").arg(certificates.join("carol.pem"));
        program = program.arg("--rsa").arg(certificates.join("carol.key"));
    }
    let program = program.env("STRONGSWAN_CONF", &settings).input(format!("{password}\n"));
    let program = program.log_to(&net.left.file("charon-cmd.log"));
    Some(program.start_with(|command| net.left.netns.spawn(command)))
}

/// Whether the client has its virtual address.
fn has_virtual_address(host: &Host) -> bool {
    host.stdout_of("ip", &["-brief", "address"]).contains(&format!("{VIRTUAL}/32"))
}

#[test]
fn each_profile_brings_up_a_tunnel() {
    let Some(net) = TestNet::build("charon_cmd") else { return };
    let certificate = "remote {\nauth = pubkey\nid = carol\n}\n";
    let both = certificate.replace("remote", "remote-1") + &PASSWORD_ROUND.replace("remote", "remote-2");
    let tls = "remote {\nauth = eap-tls\neap_id = %any\ncacerts = ca.pem\n}\n";
    let profiles = [
        ("ikev2-eap", PASSWORD_ROUND, false, "EAP method EAP_MSCHAPV2 succeeded"),
        ("ikev2-eap", tls, true, "EAP method EAP_TLS succeeded"),
        ("ikev2-pub", certificate, true, "authentication of 'carol' (myself) with RSA"),
        ("ikev2-pub-eap", &both, true, "EAP method EAP_MSCHAPV2 succeeded"),
    ];
    for (profile, remote, key, expected) in profiles {
        let gateway = start_gateway(&net, remote);
        let Some(mut client) = start_client(&net, profile, key, PASSWORD) else { return };
        let is_up = || has_virtual_address(&net.left) && net.left.pings(Side::Right.inner(true), 1000);
        let start = Instant::now();
        while !is_up() {
            let logs = [client.log(), gateway.log()].join("\n---\n");
            let has_ended = client.exit_status().is_some();
            assert!(!has_ended && start.elapsed() < TIMEOUT, "{profile}: {logs}");
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = client.log();
        assert!(log.contains(expected), "{profile}: {log}");
        let status = net.right.status();
        let child = &status["ike_sas"][0]["children"][0];
        assert_eq!(status["ike_sas"][0]["vips"][0], VIRTUAL, "{profile}: {status:#}");
        assert_eq!(child["remote_ts"][0], format!("{VIRTUAL}/32"), "{profile}: {status:#}");
        assert!(child["packets_in"].as_u64() > Some(0), "{profile}: {status:#}");
        if remote == PASSWORD_ROUND {
            is_found_by_name(&net.right);
        }
        client.stop(TIMEOUT);
        net.right.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
        eventually("the end in the log", || gateway.log().contains("users[1]: ended: closed by the peer"));
        gateway.stop();
    }
}

/// `status` and `why` show the user `carol` with the IKE SA and the virtual address.
fn is_found_by_name(gateway: &Host) {
    let program = env!("CARGO_BIN_EXE_casemate");
    let status = gateway.stdout_of(program, &["status"]);
    let has_row = |parts: &[&str]| status.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has_row(&["users[1]", "carol", VIRTUAL, "established"]), "{status}");
    assert!(has_row(&["users/office{", "[1] carol", "installed"]), "{status}");
    for name in ["carol", "users[1]"] {
        let why = gateway.stdout_of(program, &["why", name]);
        let fact = format!("{name} is the peer of users[1], at {}", Side::Left.outer(true));
        assert!(why.contains(&fact) && why.contains(&format!("virtual address {VIRTUAL}")), "{why}");
    }
    assert!(!gateway.casemate(&["why", "dave"]).status.success(), "no user has this name");
}

#[test]
fn a_wrong_password_is_refused_and_explained() {
    let Some(net) = TestNet::build("charon_cmd_refused") else { return };
    let gateway = start_gateway(&net, PASSWORD_ROUND);
    let Some(mut client) = start_client(&net, "ikev2-eap", false, "a wrong guess") else { return };
    assert_eq!(client.wait(TIMEOUT).code(), Some(1), "{}", client.log());
    assert!(client.log().contains("EAP_MSCHAPV2 method failed"), "{}", client.log());
    let expected = "the password of `carol` differs from its `secret` in `secrets`";
    eventually("an explanation", || gateway.log().contains(expected));
    let log = gateway.log();
    assert!(!log.contains(PASSWORD) && !log.contains("a wrong guess"), "{log}");
    let why = net.right.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["why", "carol"]);
    assert!(why.contains("carol is not connected") && why.contains(expected), "{why}");
    assert!(net.right.status()["ike_sas"].as_array().unwrap().is_empty());
    assert!(!has_virtual_address(&net.left));
}
