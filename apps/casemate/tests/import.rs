//! `casemate import`: WireGuard configurations become tunnels between two hosts.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use casemate_test_support::{Program, TempDir};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use testnet::{Side, TestNet};

/// Key pairs, computed by OpenSSL: private key, public key, and the identity made from the latter.
const LEFT: [&str; 3] = [
    "dwdtCnMYpX08FsFyUbJmRXcHbQpzGKV9PBbBclGyZkU=",
    "3p5v4mwbcNq/D3R7QXUiwoVVRo/wczz+DN3rVLQAK0o=",
    "wg-de9e6fe26c1b70da",
];
const RIGHT: [&str; 3] = [
    "XasIfmJKikt54X+Lg4AO5l2rCH5iSopLeeF/i4OADuY=",
    "EQvZgacvblqfBZe9RXn7bxgllWSHe7mkqEDovz8prEc=",
    "wg-110bd981a72f6e5a",
];
const PRESHARED: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The file of a host whose peer has this `PublicKey` and `AllowedIPs`, and more lines.
fn wg(private: &str, address: &str, public: &str, allowed: &str, more: &str) -> String {
    format!(
        "[Interface]\nPrivateKey = {private}\nAddress = {address}/24\nListenPort = 51820\nDNS = 10.1.0.53\nMTU = 1400\n\
         PostUp = iptables -A FORWARD -i %i -j ACCEPT\n\n[Peer] # the other side\nPublicKey = {public}\n\
         AllowedIPs = {allowed}\n{more}"
    )
}

fn import(directory: &Path, name: &str, text: &str, more: &[&str]) -> Output {
    fs::write(directory.join(name), text).unwrap();
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).arg("import").arg(name).args(more);
    program.configure(|command| command.current_dir(directory)).output()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Loads a written file, which must be readable for its owner only, without a warning.
fn loads(path: &Path) {
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let program = Program::new(env!("CARGO_BIN_EXE_casemate")).args(["run", "--dry-run", "--config"]);
    let output = program.arg(path).output();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", stderr(&output));
}

/// With a PresharedKey, each side is converted on its own.
#[test]
fn sides_that_are_converted_on_their_own_agree() {
    let Some(net) = TestNet::build("import_psk") else { return };
    let scratch = TempDir::new("import-psk").unwrap();
    let of = |name: &str| scratch.path().join(name);
    let more = format!("PresharedKey = {PRESHARED}\nEndpoint = 192.0.2.2:51820\nPersistentKeepalive = 25\n");
    let left = wg(LEFT[0], "10.1.0.1", RIGHT[1], "10.2.0.7/24, 10.9.0.0/16", &more);
    let right = wg(RIGHT[0], "10.2.0.1", LEFT[1], "10.1.0.1/32", &format!("presharedkey={PRESHARED}\n"));
    let output = import(scratch.path(), "left.wg", &left, &["-o", "left.conf"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", stderr(&output));
    for line in [
        "left.wg:3: Address 10.1.0.1 is in local_ts, but not set",
        "left.wg:6: MTU = 1400 is the length inside the tunnel; mtu = 1480 is the same with all headers",
        "left.wg:4: ListenPort is not carried over: IKE uses UDP ports 500 and 4500",
        "left.wg:5: DNS is not carried over: name servers",
        "left.wg:7: PostUp is not carried over: no scripts are run",
        "left.wg:13: port 51820 of Endpoint is not carried over",
        "left.wg:14: PersistentKeepalive = 25 keeps the tunnel up",
    ] {
        assert!(stderr(&output).contains(line), "no `{line}` in\n{}", stderr(&output));
    }
    let output = import(scratch.path(), "right.wg", &right, &["-o", "right.conf"]);
    assert!(stderr(&output).contains("right.wg:9: peer1 has no Endpoint"), "{}", stderr(&output));
    let written = fs::read_to_string(of("left.conf")).unwrap();
    for line in [
        "remote_addrs = 192.0.2.2",
        "mtu = 1480",
        &format!("id = {}", LEFT[2]),
        &format!("id = {}", RIGHT[2]),
        "local_ts = 10.1.0.1",
        "remote_ts = 10.2.0.0/24, 10.9.0.0/16",
        "start_action = trap|start",
        &format!("secret = 0s{PRESHARED}"),
    ] {
        assert!(written.lines().any(|shown| shown.trim() == line), "no `{line}` in\n{written}");
    }
    assert!(!written.contains(LEFT[0]), "the private key is not written");
    ["left.conf", "right.conf"].iter().for_each(|name| loads(&of(name)));
    let _right = net.right.run_config_file(&of("right.conf"));
    let running = net.left.run_config_file(&of("left.conf"));
    assert!(net.left.pings(Side::Right.inner(true), 8), "{}", running.log());
    let status = net.left.status();
    assert_eq!(status["ike_sas"][0]["peer"], RIGHT[2], "{status:#}");
}

/// The MTU with all headers must be one that `mtu` accepts.
#[test]
fn an_mtu_that_does_not_fit_is_refused() {
    let scratch = TempDir::new("import-mtu").unwrap();
    let with = |mtu: &str, host: &str| {
        let text = wg(LEFT[0], "10.1.0.1", RIGHT[1], "10.2.0.1/32", &format!("Endpoint = {host}:51820\n"));
        let output = import(scratch.path(), "left.wg", &text.replace("1400", mtu), &["-o", "left.conf"]);
        let is_written = scratch.path().join("left.conf").exists();
        assert_eq!(output.status.success(), is_written, "{}", stderr(&output));
        if is_written {
            loads(&scratch.path().join("left.conf"));
            fs::remove_file(scratch.path().join("left.conf")).unwrap();
        }
        stderr(&output)
    };
    assert!(with("65455", "192.0.2.2").contains("mtu = 65535 is the same with all headers"));
    assert!(with("1200", "[2001:db8::2]").contains("mtu = 1280 is the same with all headers"));
    for (mtu, host, expected) in [
        ("65456", "192.0.2.2", "left.wg:6: MTU: a number from 576 to 65455 was expected"),
        ("1199", "[2001:db8::2]", "left.wg:6: MTU: a number from 1200 to 65455 was expected with IPv6"),
    ] {
        let error = with(mtu, host);
        assert!(error.contains(expected), "{error}");
    }
}

/// Without a PresharedKey, `--peer` writes the other side with the same new secret; `--address` is where a
/// peer without Endpoint finds this host.
#[test]
fn the_other_side_is_written_with_the_same_secret() {
    let Some(net) = TestNet::build("import_peer") else { return };
    let scratch = TempDir::new("import-peer").unwrap();
    let of = |name: &str| scratch.path().join(name);
    fs::create_dir(of("peers")).unwrap();
    let left = wg(LEFT[0], "10.1.0.1", RIGHT[1], "10.2.0.1/32", "");
    let args = ["-o", "left.conf", "--peer", "peers", "--address", "192.0.2.1"];
    let output = import(scratch.path(), "left.wg", &left, &args);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("peer1 has no PresharedKey: it gets a new secret"),
        "{}",
        stderr(&output)
    );
    let secret = |name: &str| {
        let text = fs::read_to_string(of(name)).unwrap();
        text.lines().find_map(|line| line.trim().strip_prefix("secret = 0x").map(str::to_owned)).unwrap()
    };
    assert_eq!((secret("left.conf").len(), secret("left.conf")), (64, secret("peers/peer1.conf")));
    let drops = |name: &str| fs::read_to_string(of(name)).unwrap().contains("mode = drop");
    assert_eq!(["left.conf", "peers/peer1.conf"].map(drops), [true, false], "packets before the tunnel");
    ["left.conf", "peers/peer1.conf"].iter().for_each(|name| loads(&of(name)));
    let _left = net.left.run_config_file(&of("left.conf"));
    let running = net.right.run_config_file(&of("peers/peer1.conf"));
    assert!(net.right.pings(Side::Left.inner(true), 8), "{}", running.log());
    // A file that exists is not replaced, and each run makes another secret.
    fs::remove_file(of("peers/peer1.conf")).unwrap();
    let again = import(scratch.path(), "left.wg", &left, &args);
    assert_eq!(again.status.code(), Some(1));
    assert!(!of("peers/peer1.conf").exists(), "all files or none");
    let shown = import(scratch.path(), "left.wg", &left, &[]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("secret = 0x") && !shown.contains(&secret("left.conf")));
}

#[test]
fn bad_input_names_file_line_and_expectation() {
    let scratch = TempDir::new("import-wrong").unwrap();
    let output =
        import(scratch.path(), "wrong.wg", "[Interface]\nPrivateKey = secret\n[Peer]\n", &["-o", "x"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let errors = stderr(&output);
    for line in [
        "casemate: wrong.wg:2: PrivateKey: 32 bytes in Base64 were expected",
        "casemate: wrong.wg:3: PublicKey was expected in [Peer]",
        "casemate: wrong.wg:3: AllowedIPs was expected in [Peer]",
    ] {
        assert!(errors.contains(line), "no `{line}` in\n{errors}");
    }
    assert!(!errors.contains("secret") && !scratch.path().join("x").exists(), "{errors}");
}
