//! Debian's `swanctl`, unmodified, manages instances through vici.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

mod swanctl;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use swanctl::Swanctl;
use testnet::{Host, Side, TestNet, eventually};

/// A CRL in PEM.
const CRL: &[u8] = include_bytes!("../../../core/pki/tests/data/root.crl");

/// The configuration of one side; `auth` is the content of both authentication sections besides their `id`.
fn conf(side: Side, auth: &str) -> String {
    let name = |side| if side == Side::Left { "left.example.org" } else { "right.example.org" };
    let net = |side| if side == Side::Left { "10.1.0.0/16" } else { "10.2.0.0/16" };
    let other = side.other();
    format!(
        "connections {{\nhome {{\nlocal_addrs = {}\nremote_addrs = {}\nversion = 2\nmobike = no\n\
         proposals = aes128gcm16-prfsha256-x25519\n\
         local {{\n{auth}\nid = {}\n}}\nremote {{\n{auth}\nid = {}\n}}\n\
         children {{\nnet {{\nlocal_ts = {}\nremote_ts = {}\nesp_proposals = aes128gcm16-x25519\n}}\n}}\n}}\n}}\n\
         pools {{\nguests {{\naddrs = 10.3.0.0/24\n}}\n}}\n\
         secrets {{\nike-1 {{\nid-1 = {}\nsecret = \"0123456789abcdef0123456789abcdef\"\n}}\n}}\n",
        side.outer(true),
        other.outer(true),
        name(side),
        name(other),
        net(side),
        net(other),
        name(other),
    )
}

/// Whether `text` contains all parts in this order, as the expressions of strongSwan's test scenarios demand.
fn has_in_order(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| {
        let found = rest.find(part).map(|at| &rest[at + part.len()..]);
        rest = found.unwrap_or("");
        found.is_some()
    })
}

fn wait_for(host: &Host, file: &str, parts: &[&str]) {
    let path = host.file(file);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    eventually(&format!("{parts:?} in {file}"), || has_in_order(&read(), parts));
}

/// Only the host whose configuration demands encapsulation acts as if it were behind a NAT, and charon shows
/// that as `nat-fake`.
#[test]
fn a_demanded_encapsulation_is_not_a_nat() {
    let Some(net) = TestNet::build("vici_forced") else { return };
    let demanding = conf(Side::Left, "auth = psk").replacen("mobike = no", "mobike = no\nencap = yes", 1);
    let Some(left) = Swanctl::new(&net.left, &demanding) else { return };
    let right = Swanctl::new(&net.right, &conf(Side::Right, "auth = psk")).unwrap();
    let _running = [net.left.run_vici(&[]), net.right.run_vici(&[])];
    [&left, &right].into_iter().for_each(|side| drop(side.output(&["--load-all", "--noprompt"])));
    left.output(&["--initiate", "--child", "net", "--timeout", "20"]);
    let raw = left.output(&["--list-sas", "--raw"]);
    assert!(has_in_order(&raw, &["nat-fake=yes", "nat-any=yes"]) && !raw.contains("nat-local"), "{raw}");
    let raw = right.output(&["--list-sas", "--raw"]);
    assert!(has_in_order(&raw, &["nat-remote=yes", "nat-any=yes"]) && !raw.contains("nat-fake"), "{raw}");
    let nat = |host: &Host| host.status()["ike_sas"][0]["nat"].clone();
    assert_eq!(nat(&net.left), serde_json::json!({"local": false, "remote": false, "forced": true}));
    assert_eq!(nat(&net.right), serde_json::json!({"local": false, "remote": true, "forced": false}));
}

#[test]
fn swanctl_loads_lists_initiates_rekeys_and_terminates() {
    let Some(net) = TestNet::build("vici") else { return };
    let psk = "auth = psk";
    let Some(left) = Swanctl::new(&net.left, &conf(Side::Left, psk)) else { return };
    let right = Swanctl::new(&net.right, &conf(Side::Right, psk)).unwrap();
    let _running = [net.left.run_vici(&[]), net.right.run_vici(&[])];
    for side in [&left, &right] {
        let loaded = side.output(&["--load-all", "--noprompt"]);
        for line in ["loaded ike secret 'ike-1'", "loaded pool 'guests'", "loaded connection 'home'"] {
            assert!(loaded.contains(line), "{loaded}");
        }
    }
    let monitor = left.start(&["--monitor-sa", "--raw"], &net.left.file("monitor"));
    let log = left.start(&["--log"], &net.left.file("sa-log"));
    // The clients are registered when the instance serves two sessions beside this one.
    eventually("two clients", || left.output(&["--list-conns"]).contains("home: IKEv2"));
    let initiated = left.output(&["--initiate", "--child", "net", "--timeout", "20"]);
    assert!(initiated.contains("established with right.example.org"), "{initiated}");
    assert!(initiated.contains("initiate completed successfully"), "{initiated}");
    // The form of evaltest.dat in strongSwan's scenario ikev2/net2net-psk, with these addresses and names.
    let of_scenario = [
        "home",
        "version=2 state=ESTABLISHED local-host=192.0.2.1 local-port=",
        "local-id=left.example.org",
        "remote-host=192.0.2.2 remote-port=",
        "remote-id=right.example.org",
        "initiator=yes",
        "encr-alg=AES_GCM_16 encr-keysize=128 prf-alg=PRF_HMAC_SHA2_256 dh-group=CURVE_25519",
        "child-sas",
        "net",
        "reqid=1 state=INSTALLED mode=TUNNEL",
        "ESP",
        "encr-alg=AES_GCM_16 encr-keysize=128",
        "rekey-time=",
        "life-time=",
        "local-ts=[10.1.0.0/16] remote-ts=[10.2.0.0/16]",
    ];
    let raw = left.output(&["--list-sas", "--raw"]);
    assert!(has_in_order(&raw, &of_scenario), "{raw}");
    assert!(net.left.pings(Side::Right.inner(true), 100), "the tunnel carries packets");
    let raw = left.output(&["--list-sas", "--raw", "--ike", "home"]);
    assert!(has_in_order(&raw, &["bytes-in=", "packets-in=", "bytes-out=128 packets-out=1"]), "{raw}");
    assert!(!left.output(&["--list-sas", "--raw", "--ike", "other"]).contains("home"));
    let shown = left.output(&["--list-sas"]);
    assert!(
        has_in_order(&shown, &["home: #1, ESTABLISHED, IKEv2", "net: #1, reqid 1, INSTALLED, TUNNEL"]),
        "{shown}"
    );

    left.output(&["--rekey", "--child", "net"]);
    wait_for(&net.left, "sa-log", &["replaces {1}"]);
    left.output(&["--rekey", "--ike", "home"]);
    wait_for(&net.left, "sa-log", &["home[1]: was replaced by [2]"]);
    assert!(left.output(&["--list-sas", "--raw"]).contains("uniqueid=2 version=2 state=ESTABLISHED"));
    let counters = left.output(&["--counters"]);
    for exchange in ["ike-init", "ike-auth"] {
        for (way, count) in [("in-req", 0), ("in-resp", 1), ("out-req", 1), ("out-resp", 0)] {
            let name = format!("{exchange}-{way}");
            let line = counters.lines().find(|line| line.trim_start().starts_with(&name)).unwrap();
            assert!(line.ends_with(&format!(": {count}")), "{line}");
        }
    }
    assert!(has_in_order(&counters, &["ike-rekey-init", ": 1", "child-rekey", ": 1"]), "{counters}");
    let terminated = left.output(&["--terminate", "--child", "net", "--raw"]);
    assert!(terminated.contains("success=yes matches=1 terminated=1"), "{terminated}");
    let terminated = left.output(&["--terminate", "--ike", "home", "--raw"]);
    assert!(terminated.contains("success=yes matches=1 terminated=1"), "{terminated}");
    let failed = left.fails(&["--terminate", "--ike", "home"]);
    assert!(failed.contains("no matching SAs to terminate found"), "{failed}");
    wait_for(
        &net.left,
        "monitor",
        &[
            "ike-updown event {up=yes home",
            "child-updown event {up=yes home",
            "child-updown event {home",
            "ike-updown event {home",
        ],
    );
    drop((monitor, log));
    for (arguments, error) in [
        (["--initiate", "--child", "none"], "CHILD_SA config 'none' not found"),
        (["--initiate", "--ike", "none"], "IKE_SA config 'none' not found"),
    ] {
        let failed = left.fails(&arguments);
        assert!(failed.contains(error), "{failed}");
    }
}

#[test]
fn swanctl_shows_the_configuration_and_the_program() {
    let Some(net) = TestNet::build("vici_lists") else { return };
    let conf = conf(Side::Left, "auth = psk").replace(
        "net {",
        "bypass {\nmode = pass\nlocal_ts = 10.1.0.0/24\nremote_ts = 10.1.0.0/24[tcp/80-90]\nstart_action = trap\n}\nnet {\nstart_action = trap",
    );
    let Some(left) = Swanctl::new(&net.left, &conf) else { return };
    let _running = net.left.run_vici(&[]);
    left.output(&["--load-all", "--noprompt"]);
    for (arguments, parts) in [
        (
            &["--list-conns"][..],
            &[
                "home: IKEv2",
                "pre-shared key",
                "id: left.example.org",
                "net: TUNNEL, rekeying every 3600s",
                "10.1.0.0/16",
            ][..],
        ),
        (
            &["--list-pols"],
            &["home/net, TUNNEL", "10.2.0.0/16", "home/bypass, PASS", "10.1.0.0/24[tcp/80-90]"],
        ),
        (&["--list-pools"], &["guests", "10.3.0.0", "0 / 0 / 254"]),
        (&["--stats"], &["uptime: ", "IKE_SAs: 0 total, 0 half-open", "loaded plugins: "]),
        (&["--version", "--daemon"], &["casemate (Linux"]),
        (&["--list-algs"], &["AES_GCM_16", "PRF_HMAC_SHA2_256", "CURVE_25519"]),
        (&["--flush-certs"], &[]),
        (&["--reload-settings"], &[]),
        (&["--counters", "--all"], &[]),
        (&["--counters", "--reset"], &[]),
    ] {
        let shown = left.output(arguments);
        assert!(has_in_order(&shown, parts), "{arguments:?}: {shown}");
    }
    // What the file has no more is unloaded.
    fs::write(left.directory.join("swanctl.conf"), "").unwrap();
    left.output(&["--load-all", "--noprompt", "--clear"]);
    for list in ["--list-conns", "--list-pools", "--list-pols"] {
        assert_eq!(left.output(&[list]), "", "{list}");
    }
}

/// A file with errors is refused by `casemate run` and through vici with the same words, and nothing changes.
#[test]
fn refusals_have_the_words_of_the_file() {
    let Some(net) = TestNet::build("vici_refusals") else { return };
    let right = conf(Side::Left, "auth = psk");
    let Some(left) = Swanctl::new(&net.left, &right) else { return };
    let _running = net.left.run_vici(&[]);
    left.output(&["--load-all", "--noprompt"]);
    for (from, to, words) in [
        ("x25519\n}", "rot13\n}", "connections.home.children.net.esp_proposals: `aes128gcm16-rot13`: "),
        (
            "mobike = no",
            "mediation = yes",
            "connections.home.mediation: `yes`: mediation is not implemented; only no is accepted",
        ),
        ("10.1.0.0/16", "10.1.0.0/33", "connections.home.children.net.local_ts: "),
        ("mobike = no", "pools = nowhere", "connections.home.pools: `nowhere`: there is no such pool"),
    ] {
        let wrong = right.replacen(from, to, 1);
        let path = left.directory.join("swanctl.conf");
        fs::write(&path, &wrong).unwrap();
        let refused = left.fails(&["--load-conns"]);
        assert!(refused.contains(words), "{refused}");
        let of_file = net.left.casemate(&["run", "--config", path.to_str().unwrap(), "--dry-run"]);
        let of_file = String::from_utf8_lossy(&of_file.stderr).into_owned();
        assert!(of_file.contains(words), "{of_file}");
        assert!(
            left.output(&["--list-conns", "--raw"]).contains("local-ts=[10.1.0.0/16]"),
            "nothing has changed"
        );
    }
}

#[test]
fn swanctl_loads_certificates_and_keys() {
    let Some(net) = TestNet::build("vici_certificates") else { return };
    let auth = "auth = pubkey";
    let Some(left) = Swanctl::new(
        &net.left,
        &conf(Side::Left, &format!("{auth}\ncerts = left.pem")).replacen(
            "remote {\nauth = pubkey\ncerts = left.pem",
            "remote {\nauth = pubkey",
            1,
        ),
    ) else {
        return;
    };
    let right = Swanctl::new(&net.right, &conf(Side::Right, auth)).unwrap();
    for (swanctl, name) in [(&left, "left"), (&right, "right")] {
        let script = format!(
            "cd {0} && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 30 -subj '/CN=Test CA' 2>/dev/null; \
             cp ../ca.pem ../ca.key . 2>/dev/null || cp ca.pem ca.key ..; cp ../ca.pem x509ca/; \
             openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout private/{name}.pem -out r.pem -subj '/CN={name}.example.org' -addext 'subjectAltName=DNS:{name}.example.org' 2>/dev/null && \
             openssl x509 -req -in r.pem -CA ../ca.pem -CAkey ../ca.key -copy_extensions copy -days 30 -out x509/{name}.pem 2>/dev/null",
            swanctl.directory.display()
        );
        let made = Command::new("sh").arg("-c").arg(&script).status().unwrap();
        if !made.success() {
            return casemate_test_support::skip("openssl (Debian package openssl) made no certificates");
        }
    }
    fs::create_dir_all(left.directory.join("x509crl")).unwrap();
    fs::write(left.directory.join("x509crl/root.crl"), CRL).unwrap();
    let _running = [net.left.run_vici(&[]), net.right.run_vici(&[])];
    for side in [&left, &right] {
        let loaded = side.output(&["--load-all", "--noprompt"]);
        assert!(
            has_in_order(
                &loaded,
                &[
                    "loaded certificate",
                    "loaded certificate",
                    "loaded private key",
                    "loaded connection 'home'"
                ]
            ),
            "{loaded}"
        );
    }
    let certificates = left.output(&["--list-certs"]);
    assert!(
        has_in_order(
            &certificates,
            &["CN=left.example.org", "has private key", "CN=Test CA", "X.509 CRLs", "CN=root"]
        ),
        "{certificates}"
    );
    // The second run finds its keys loaded, by their identifiers, and unloads none.
    left.output(&["--load-creds", "--noprompt"]);
    left.output(&["--initiate", "--child", "net", "--timeout", "20"]);
    assert!(left.output(&["--list-sas", "--raw"]).contains("local-id=left.example.org"));
    left.output(&["--terminate", "--ike", "home"]);
    fs::remove_file(left.directory.join("private/left.pem")).unwrap();
    left.output(&["--load-creds", "--noprompt"]);
    assert!(
        left.fails(&["--initiate", "--child", "net", "--timeout", "20"])
            .contains("establishing CHILD_SA 'net' failed")
    );
}

/// `swanctl` sends the public keys with the connection, and those of the folder for themselves.
#[test]
fn swanctl_loads_raw_public_keys() {
    let Some(net) = TestNet::build("vici_raw_keys") else { return };
    let keys = |own: &str, peer: &str, side| {
        let keys = format!("local {{\nauth = pubkey\npubkeys = {own}.pem");
        let text = conf(side, "auth = pubkey").replacen("local {\nauth = pubkey", &keys, 1);
        text.replacen(
            "remote {\nauth = pubkey",
            &format!("remote {{\nauth = pubkey\npubkeys = {peer}.pem"),
            1,
        )
    };
    let Some(left) = Swanctl::new(&net.left, &keys("left", "right", Side::Left)) else { return };
    let right = Swanctl::new(&net.right, &keys("right", "left", Side::Right)).unwrap();
    let [a, b] = [&left, &right].map(|side| side.directory.display());
    let script = format!(
        "set -e
        openssl genpkey -algorithm ed25519 -out {a}/private/left.pem
        openssl genpkey -algorithm ec -pkeyopt ec_paramgen_curve:P-256 -out {b}/private/right.pem
        openssl pkey -in {a}/private/left.pem -pubout -out {a}/pubkey/left.pem
        openssl pkey -in {b}/private/right.pem -pubout -out {b}/pubkey/right.pem
        cp {a}/pubkey/left.pem {b}/pubkey/ && cp {b}/pubkey/right.pem {a}/pubkey/"
    );
    if !Command::new("sh").arg("-c").arg(&script).status().unwrap().success() {
        return casemate_test_support::skip("openssl (Debian package openssl) made no keys");
    }
    let _running = [net.left.run_vici(&[]), net.right.run_vici(&[])];
    for side in [&left, &right] {
        let loaded = side.output(&["--load-all", "--noprompt"]);
        let expected = ["loaded", "pubkey/left.pem", "pubkey/right.pem", "loaded connection 'home'"];
        assert!(has_in_order(&loaded, &expected) && !loaded.contains("failed"), "{loaded}");
    }
    left.output(&["--initiate", "--child", "net", "--timeout", "20"]);
    assert!(right.output(&["--list-sas", "--raw"]).contains("remote-id=left.example.org"));
}

/// FRR's nhrpd connects as its own user with CAP_DAC_OVERRIDE. The kernel permits that, as with charon's
/// socket, and refuses other users.
#[test]
fn clients_of_other_users_need_the_capability_to_write_any_file() {
    let Some(net) = TestNet::build("vici_users") else { return };
    let Some(_) = Swanctl::new(&net.left, "") else { return };
    let _running = net.left.run_vici(&[]);
    let directory = net.left.file("vici").parent().unwrap().to_owned();
    fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).unwrap();
    let uri = format!("unix://{}", net.left.file("vici").display());
    let stats = |capability: &[&str]| {
        let user = ["--reuid=12345", "--regid=12345", "--clear-groups"];
        let swanctl = ["swanctl", "--stats", "--uri", uri.as_str()];
        net.left.output("setpriv", &[&user[..], capability, &swanctl].concat())
    };
    let capable = stats(&["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]);
    let text = String::from_utf8_lossy(&[capable.stdout, capable.stderr].concat()).into_owned();
    assert!(capable.status.success() && text.contains("uptime"), "{text}");
    let other = stats(&[]);
    let text = String::from_utf8_lossy(&[other.stdout, other.stderr].concat()).into_owned();
    assert!(!other.status.success() && text.contains("Permission denied"), "{text}");
}
