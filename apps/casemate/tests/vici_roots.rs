//! Which certificates that a client of vici loads are authorities for others.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;
#[allow(dead_code, reason = "other tests use the rest")]
mod vici_client;

use casemate_test_support::{Program, TempDir, skip};
use std::fs;
use std::process::Command;
use testnet::TestNet;
use vici_client::{COMMAND, Client, EVENT};

/// A root CA with a certificate of this host, and the self-signed certificate of a peer, which openssl(1)
/// marks as that of a CA.
const SCRIPT: &str = "set -e
    root() { openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -keyout $1.key \
        -out $1.pem -subj /CN=$1 2>/dev/null; }
    root ca
    root peer
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout own.key -out r.pem -subj /CN=own -addext subjectAltName=DNS:own \
        2>/dev/null
    openssl x509 -req -in r.pem -CA ca.pem -CAkey ca.key -copy_extensions copy -days 30 -out own.pem 2>/dev/null";

/// The flags of all listed certificates, sorted.
fn flags(client: &mut Client) -> Vec<String> {
    client.send(COMMAND, "list-certs", &[]);
    let mut flags = Vec::new();
    loop {
        let received = client.receive().unwrap();
        if received.kind != EVENT {
            flags.sort();
            return flags;
        }
        flags.push(received.message.text("flag").unwrap().to_owned());
    }
}

#[test]
fn a_self_signed_certificate_is_no_authority_unless_it_has_issued_one_of_this_host() {
    if Command::new("openssl").arg("version").output().is_err() {
        return skip("openssl (Debian package openssl)");
    }
    let Some(net) = TestNet::build("vici_roots") else { return };
    let scratch = TempDir::new("vici-roots").unwrap();
    let script = format!("cd {}\n{SCRIPT}", scratch.path().display());
    assert!(Program::new("bash").args(["-c", &script]).output().status.success());
    let _running = net.left.run_vici(&[]);
    let mut client = Client::connect(&net.left.file("vici"));
    client.register("list-cert");
    let load = |client: &mut Client, name: &str, flag: &str| {
        let data = fs::read(scratch.file(name)).unwrap();
        client.succeed("load-cert", |message| {
            message.value("type", "X509");
            message.value("flag", flag);
            message.value("data", &data);
        });
    };
    load(&mut client, "peer.pem", "NONE");
    assert_eq!(flags(&mut client), ["NONE"], "a certificate of a peer");
    load(&mut client, "ca.pem", "NONE");
    load(&mut client, "own.pem", "NONE");
    assert_eq!(flags(&mut client), ["NONE"; 3], "nothing has a private key");
    // As swanctl sends a PKCS #12 container.
    for key in ["own.key", "peer.key"] {
        let data = fs::read(scratch.file(key)).unwrap();
        client.succeed("load-key", |message| {
            message.value("type", "any");
            message.value("data", &data);
        });
        assert_eq!(flags(&mut client), ["CA", "NONE", "NONE"], "{key}");
    }
    load(&mut client, "peer.pem", "CA");
    assert_eq!(flags(&mut client).iter().filter(|flag| *flag == "CA").count(), 2);
}
