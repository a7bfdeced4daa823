//! Identities of peers are shown as escaped text and never reach another program.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use testnet::TestNet;

/// `swanctl.conf` of a host with the identity `id` that accepts any peer.
fn conf(own: &str, peer: &str, id: &str, local_ts: &str, remote_ts: &str) -> String {
    format!(
        "connections {{\n t {{\n  version = 2\n  local_addrs = {own}\n  remote_addrs = {peer}\n  \
         proposals = aes128gcm16-prfsha256-x25519\n  local {{\n   auth = psk\n   id = \"{id}\"\n  }}\n  \
         remote {{\n   auth = psk\n   id = %any\n  }}\n  children {{\n   c {{\n    local_ts = {local_ts}\n    \
         remote_ts = {remote_ts}\n    esp_proposals = aes128gcm16\n   }}\n  }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n  secret = \"a secret of two hosts\"\n }}\n}}\n"
    )
}

/// CVE-2023-28771 of Zyxel: a string from an IKE message became part of a command line.
#[test]
fn zyxel_2023_28771_peer_identity_is_escaped_and_reaches_no_shell() {
    let Some(net) = TestNet::build("zyxel_2023_28771") else { return };
    let made = net.left.file("made-by-a-name");
    let touch = format!("touch {}", made.display());
    // Names with control characters are refused on receipt (RFC 7296 section 3.5); only key IDs may
    // contain them.
    let ids = [
        ("fqdn", format!("$({touch})")),
        ("fqdn", format!("`{touch}`;{touch}\\n\"'; {touch} #")),
        ("email", format!("a@b\u{202e}\u{2028}|{touch}& }} flush ruleset")),
        ("keyid", format!("\"; {touch}\n\x1b[2J\r\n{touch}; \"")),
    ];
    // A script records what `nft` reads.
    let heard = net.right.file("heard");
    let nft = net.right.fake_nft(&format!("/usr/bin/tee -a {} | $NFT \"$@\"", heard.display()));
    let (near, far) = ("10.1.0.1/32", "10.2.0.1/32");
    let right_conf = conf("192.0.2.2", "%any", "right.test", far, near);
    let right = net.right.run_config_with_nft(&right_conf, &nft);
    for (kind, text) in &ids {
        // Written in hexadecimal, because configuration files do not accept such names as text.
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let id = format!("{kind}:#{digits}");
        let left = net.left.run_config(&conf("192.0.2.1", "192.0.2.2", &id, near, far), None);
        let begun = net.left.casemate(&["initiate", "c"]);
        assert!(begun.status.success(), "{text:?}: {}", String::from_utf8_lossy(&begun.stderr));
        let text = net.right.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["status"]);
        let status = net.right.status();
        let peer =
            status["ike_sas"][0]["peer"].as_str().unwrap_or_else(|| panic!("no peer in {status}")).to_owned();
        let log = net.right.stdout_of(env!("CARGO_BIN_EXE_casemate"), &["log"]);
        assert!(log.contains(&peer) && right.log().contains(&peer), "{peer} in {log}");
        for shown in [text.as_str(), &log, &right.log()] {
            let raw = |sign: char| sign != '\n' && (sign.is_control() || sign == '\u{202e}');
            assert!(!shown.contains(raw), "{shown:?}");
        }
        assert!(!peer.contains(char::is_control), "{peer:?}");
        assert!(text.contains(&peer) && !peer.contains("\\\\"), "one form everywhere: {peer} in {text}");
        assert!(left.stop().success());
        net.right.wait_until(|status| status["ike_sas"].as_array().is_some_and(Vec::is_empty));
    }
    assert!(right.stop().success());
    let heard = fs::read_to_string(&heard).unwrap();
    assert!(heard.contains("10.1.0.1"), "the filter of a Child SA: {heard}");
    assert!(!heard.contains("touch"), "{heard}");
    assert!(!made.exists(), "an identity was executed");
}
