//! Private keys on PKCS #11 tokens (SoftHSM): tunnels with them in both roles, with Casemate and with charon
//! as the peer, wrapping keys that a token decrypts, and what refuses to work.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../charon/mod.rs"]
mod charon;
mod keys;
mod module;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../swanctl/mod.rs"]
mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../testnet/mod.rs"]
mod testnet;
mod wrapping_key;

use casemate_test_support::{Program, SoftHsm, TempDir};
use charon::Charon;
use keys::{ECDSA, Keys, PIN, RSA};
use module::{DELAY, SlowModule};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use swanctl::Swanctl;
use testnet::{Host, Running, Side, TestNet, casemate, eventually};

/// The connection of a host. `own` are the keys of `local` that name the certificate.
fn connection(side: Side, own: &str) -> String {
    let [this, peer] = [side, side.other()].map(|side| format!("{side:?}").to_lowercase());
    format!(
        "connections {{ t {{\n local_addrs = {}\n remote_addrs = {}\n send_cert = always\n\
         local {{ auth = pubkey\n id = {this}.test\n {own} }}\n\
         remote {{ auth = pubkey\n id = {peer}.test }}\n\
         children {{ c {{ local_ts = {}\n remote_ts = {} }} }} }} }}\n",
        side.outer(true),
        side.other().outer(true),
        side.inner(true),
        side.other().inner(true),
    )
}

fn own_file(side: Side) -> String {
    format!("certs = {}.pem", format!("{side:?}").to_lowercase())
}

/// The section of a private key.
fn token(more: &str) -> String {
    format!("secrets {{ token-own {{\n {more} }} }}\n")
}

fn with_pin(handle: &str) -> String {
    token(&format!("handle = {handle}\n pin = {PIN}"))
}

fn run(keys: &Keys, host: &Host, name: &str, conf: &str, has_key: bool) -> Running {
    let path = keys.install(&host.file("etc"), name, conf, has_key);
    host.start(casemate().arg("run").arg("--config").arg(path).env(SoftHsm::CONFIG, keys.hsm.config()))
}

fn initiate(host: &Host) -> bool {
    host.casemate(&["initiate", "c"]).status.success()
}

/// Both hosts have their keys on tokens, and each starts the connection once.
#[test]
fn tunnels_with_keys_on_tokens() {
    for (name, kind) in [("tokens_rsa", RSA), ("tokens_ecdsa", ECDSA)] {
        let Some(net) = TestNet::build(name) else { return };
        let Some(keys) = Keys::new(net.left.file("keys"), kind) else { return };
        keys.store_certificate("right", "a2");
        // The left host has its certificate in a file, the right one on the token.
        let left = connection(Side::Left, &own_file(Side::Left)) + &with_pin("a1") + &keys.module();
        let own = format!("cert {{ handle = a2\n slot = {}\n module = soft }}", keys.slot);
        let right = connection(Side::Right, &own) + &with_pin("0xA2") + &keys.module();
        let left = run(&keys, &net.left, "left", &left, false);
        let right = run(&keys, &net.right, "right", &right, false);
        for host in [&net.left, &net.right] {
            let logs = || format!("--- left\n{}\n--- right\n{}", left.log(), right.log());
            assert!(initiate(host), "{}", logs());
            assert!(net.left.pings(Side::Right.inner(true), 100), "{}", logs());
            assert!(host.casemate(&["terminate", "t"]).status.success());
            for host in [&net.left, &net.right] {
                host.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
            }
        }
        for log in [left.log(), right.log()] {
            assert!(!log.contains(PIN), "{log}");
        }
        // The thread of the module takes no signals.
        let reload = net.left.output("kill", &["-HUP", &left.pid().to_string()]);
        assert!(reload.status.success());
        eventually("the reload", || left.log().contains("the configuration was read again"));
        assert!(left.stop().success() && right.stop().success());
    }
}

/// charon is the peer, in both roles. Without `certs`, the certificate with the handle of the key is used.
#[test]
fn tunnels_with_charon() {
    for (name, kind) in [("tokens_charon_rsa", RSA), ("tokens_charon_ecdsa", ECDSA)] {
        let Some(net) = TestNet::build(name) else { return };
        let Some(keys) = Keys::new(net.left.file("keys"), kind) else { return };
        keys.store_certificate("right", "a2");
        let right = connection(Side::Right, "") + &with_pin("a2") + &keys.module();
        let right = run(&keys, &net.right, "right", &right, false);
        let Some(charon) = Charon::start(&net.left, "") else { return };
        let conf = connection(Side::Left, &own_file(Side::Left));
        keys.install(&charon.swanctl.directory, "left", &conf, true);
        charon.swanctl.output(&["--load-all", "--noprompt"]);
        let logs = || format!("--- charon\n{}\n--- right\n{}", charon.log(), right.log());
        for starts_here in [true, false] {
            if starts_here {
                assert!(initiate(&net.right), "{}", logs());
            } else {
                charon.swanctl.output(&["--initiate", "--child", "c"]);
            }
            assert!(net.right.pings(Side::Left.inner(true), 100), "{}", logs());
            assert!(net.right.casemate(&["terminate", "t"]).status.success());
            eventually("charon closes the SA", || {
                !charon.swanctl.output(&["--list-sas"]).contains("ESTABLISHED")
            });
        }
    }
}

/// The standard error of a dry run, which must fail.
fn refused(keys: &Keys, directory: &Path, conf: &str) -> String {
    let path = keys.install(directory, "left", conf, false);
    let program = Program::new(env!("CARGO_BIN_EXE_casemate"))
        .args(["run", "--dry-run", "--config"])
        .arg(path)
        .env(SoftHsm::CONFIG, keys.hsm.config());
    let output = program.output();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // systemd does not start the service again after this status, so a wrong PIN is sent once.
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[test]
fn what_is_wrong_is_said_at_the_start() {
    let scratch = TempDir::new("tokens-wrong").unwrap();
    let Some(keys) = Keys::new(scratch.file("keys"), ECDSA) else { return };
    let base = connection(Side::Left, &own_file(Side::Left));
    let refused = |secrets: &str, module: &str| {
        refused(&keys, &scratch.file("etc"), &format!("{base}{secrets}{module}"))
    };
    let module = keys.module();
    for (pin, expected) in [
        ("pin = 314159", "the token has refused the PIN"),
        ("", "the token requires a PIN: `pin` was expected"),
        ("pin = 2718\n slot = 5", "there is no token in slot 5"),
        ("pin = 2718\n module = hard", "module hard is unknown: one of soft was expected"),
    ] {
        let said = refused(&token(&format!("handle = a1\n {pin}")), &module);
        assert!(said.contains("pkcs11:id=%a1") && said.contains(expected), "{said}");
        assert!(!said.contains("314159"), "{said}");
    }
    let said = refused(&with_pin("b0"), &module);
    assert!(said.contains("pkcs11:id=%b0: the token has no private key with this handle"), "{said}");
    let said = refused(&with_pin("a1"), "");
    assert!(said.contains("charon.plugins.pkcs11.modules"), "{said}");
    let absent = "charon { plugins { pkcs11 { modules { m { path = /nonexistent/m.so } } } } }\n";
    let said = refused(&with_pin("a1"), absent);
    assert!(said.contains("the module cannot be used") && said.contains("/nonexistent/m.so"), "{said}");
    // TLS does not wait for tokens.
    let with_tls = format!("{base}{}{module}", with_pin("a1"))
        .replace("remote { auth = pubkey", "remote { auth = eap-tls");
    let said = self::refused(&keys, &scratch.file("etc"), &with_tls);
    assert!(said.contains("connection t: its private key is on a token"), "{said}");
    // A key without the certificate of this host.
    let said = refused(&with_pin("a2"), &module);
    assert!(said.contains("left.pem: no private key belongs to it"), "{said}");
}

/// A key that disappears while the program runs is a named fault, and the reason is in the log.
#[test]
fn a_missing_key_is_a_fault() {
    let Some(net) = TestNet::build("tokens_missing") else { return };
    let Some(keys) = Keys::new(net.left.file("keys"), ECDSA) else { return };
    let left = connection(Side::Left, &own_file(Side::Left)) + &with_pin("a1") + &keys.module();
    let right = connection(Side::Right, &own_file(Side::Right));
    let left = run(&keys, &net.left, "left", &left, false);
    let right = run(&keys, &net.right, "right", &right, true);
    assert!(initiate(&net.right), "--- left\n{}\n--- right\n{}", left.log(), right.log());
    assert!(net.right.casemate(&["terminate", "t"]).status.success());
    net.left.wait_until(|status| status["ike_sas"].as_array().unwrap().is_empty());
    keys.hsm.delete(keys.slot, PIN, "privkey", "a1");
    for host in [&net.left, &net.right] {
        assert!(!initiate(host), "{}", left.log());
    }
    let has = |text: &str| left.log().contains(text);
    eventually("the fault", || has("own-signature"));
    assert!(has("pkcs11:id=%a1: the token has no private key with this handle"), "{}", left.log());
    // The key is back: nothing has to be loaded again.
    keys.hsm.import(keys.slot, PIN, &keys.file("left.key"), "a1");
    assert!(initiate(&net.left), "{}", left.log());
}

/// The left host with a key on a slow token, and the right one with a key in a file. Two connections, so that
/// one carries traffic while the other is set up.
fn with_slow_token(net: &TestNet) -> Option<(Keys, SlowModule, Running, Running)> {
    let keys = Keys::new(net.left.file("keys"), ECDSA)?;
    let slow = SlowModule::build(net.left.file("keys").as_path(), keys.hsm.module())?;
    let both = |side: Side| {
        let one = connection(side, &format!("{}\n", own_file(side))).replace("t {", "t { unique = never\n");
        let other = one.replace(" t {", " u {").replace(" c {", " d {").replace("connections {", "");
        let ports = "local_ts = 0.0.0.0/0[tcp/7]\n remote_ts = 0.0.0.0/0[tcp/7]";
        let start = other.find("local_ts").unwrap();
        let end = start + other[start..].find('}').unwrap();
        let other = format!("{}{ports} {}", &other[..start], &other[end..]);
        one.trim_end().strip_suffix('}').unwrap().to_owned() + &other
    };
    let left = both(Side::Left) + &with_pin("a1") + &keys::module(&slow.path);
    let left = run(&keys, &net.left, "left", &left, false);
    let right = run(&keys, &net.right, "right", &both(Side::Right), true);
    Some((keys, slow, left, right))
}

/// Packets do not wait for a token, whichever host begins.
#[test]
fn traffic_goes_on_while_a_token_signs() {
    let Some(net) = TestNet::build("tokens_slow") else { return };
    let Some((_keys, _slow, left, right)) = with_slow_token(&net) else { return };
    let logs = || format!("--- left\n{}\n--- right\n{}", left.log(), right.log());
    assert!(initiate(&net.left), "{}", logs());
    for host in [&net.left, &net.right] {
        let (longest, took) = thread::scope(|scope| {
            let start = Instant::now();
            let initiating = scope.spawn(move || (host.casemate(&["initiate", "d"]), start.elapsed()));
            let mut longest = Duration::ZERO;
            while !initiating.is_finished() {
                let sent = Instant::now();
                assert!(net.right.pings(Side::Left.inner(true), 100), "{}", logs());
                longest = longest.max(sent.elapsed());
            }
            let (output, took) = initiating.join().unwrap();
            assert!(output.status.success(), "{}", logs());
            (longest, took)
        });
        assert!(took >= DELAY && took < DELAY + Duration::from_secs(5), "{took:?}");
        assert!(longest < DELAY / 2, "a ping took {longest:?}");
        assert!(host.casemate(&["terminate", "u"]).status.success());
        net.left.wait_until(|status| status["ike_sas"].as_array().unwrap().len() == 1);
    }
}

/// Without its token the host authenticates no peer; with the token it does so again.
#[test]
fn a_token_can_be_removed_and_inserted_again() {
    let Some(net) = TestNet::build("tokens_removed") else { return };
    let Some((_keys, slow, left, right)) = with_slow_token(&net) else { return };
    let logs = || format!("--- left\n{}\n--- right\n{}", left.log(), right.log());
    slow.remove_token();
    for host in [&net.left, &net.right] {
        assert!(!initiate(host), "{}", logs());
    }
    assert!(left.log().contains("pkcs11:id=%a1: the connection to the token was lost"), "{}", logs());
    slow.insert_token();
    assert!(initiate(&net.right), "{}", logs());
    assert!(net.left.pings(Side::Right.inner(true), 100), "{}", logs());
}

/// `swanctl` loads the key and the certificate of the token.
#[test]
fn swanctl_loads_keys_on_tokens() {
    let Some(net) = TestNet::build("tokens_vici") else { return };
    let Some(keys) = Keys::new(net.left.file("keys"), ECDSA) else { return };
    keys.store_certificate("left", "a1");
    let right = connection(Side::Right, &own_file(Side::Right));
    let right = run(&keys, &net.right, "right", &right, true);
    let Some(swanctl) = Swanctl::new(&net.left, "") else { return };
    // The modules are in the file of the program, as charon has them in strongswan.conf.
    let file = keys.install(&net.left.file("etc"), "left", &keys.module(), false);
    let left = net.left.start(
        casemate()
            .args(["run", "--vici"])
            .arg(net.left.file("vici"))
            .arg("--config")
            .arg(file)
            .env(SoftHsm::CONFIG, keys.hsm.config()),
    );
    let load = |secrets: &str| {
        let own = "cert { handle = a1\n module = soft }";
        let conf = connection(Side::Left, own) + secrets;
        keys.install(&swanctl.directory, "left", &conf, false);
        let output = swanctl.run(&["--load-all", "--noprompt"]);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let said = load(&token("handle = a1\n pin = 314159"));
    assert!(said.contains("the token has refused the PIN"), "{said}");
    let said = load(&with_pin("a1"));
    assert!(said.contains("successfully loaded 1 connections"), "{said}");
    let logs = || format!("--- left\n{}\n--- right\n{}", left.log(), right.log());
    assert!(initiate(&net.left), "{said}\n{}", logs());
    assert!(net.left.pings(Side::Right.inner(true), 100), "{}", logs());
    // A configuration without the key unloads it: `swanctl` finds it with get-keys.
    let said = load("");
    assert!(said.contains("unloaded private key") || said.contains("unload"), "{said}");
    assert!(!left.log().contains("314159") && !left.log().contains(PIN), "{}", left.log());
}
