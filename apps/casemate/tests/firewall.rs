//! The rules of docs/manual/firewall.md admit a tunnel, and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use std::fs;
use std::path::Path;
use testnet::{Host, Side, TestNet};

/// The rules of the page.
fn rules() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/firewall.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("```nft\n").unwrap();
    rest.split("```").next().unwrap().to_owned()
}

fn load(host: &Host, rules: &str) {
    let file = host.file("rules");
    fs::write(&file, rules).unwrap();
    host.stdout_of("nft", &["-f", file.to_str().unwrap()]);
}

fn conf(side: Side, encap: &str) -> String {
    let (own, peer) = (side.outer(true), side.other().outer(true));
    let (local, remote) = (side.inner(true), side.other().inner(true));
    format!(
        "connections {{ t {{\n local_addrs = {own}\n remote_addrs = {peer}\n encap = {encap}\n\
         local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ c {{\n local_ts = {local}/32\n\
         remote_ts = {remote}/32\n start_action = trap\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret of these two hosts\" }} }}\n"
    )
}

/// Whether the first packet from left to right passes a tunnel that it sets up, behind these rules.
fn passes(rules: &str, encap: &str) -> Option<bool> {
    let net = TestNet::build("rules_of_the_manual")?;
    [&net.left, &net.right].into_iter().for_each(|host| load(host, rules));
    let [left, right] = [&net.left, &net.right].map(|host| host.run_config(&conf(host.side, encap), None));
    let inner = Side::Right.inner(true);
    let passes = net.left.pings_at_once(inner, 100) || net.left.pings_at_once(inner, 100);
    assert!(left.stop().success() && right.stop().success());
    Some(passes)
}

#[test]
fn rules_of_the_manual_admit_a_tunnel() {
    let without_ike = rules().replace("udp dport { 500, 4500 } accept", "");
    assert_ne!(without_ike, rules());
    for encap in ["no", "yes"] {
        let Some(is_admitted) = passes(&rules(), encap) else { return };
        assert!(is_admitted, "encap = {encap}");
        assert_eq!(passes(&without_ike, encap), Some(false), "encap = {encap}");
    }
}
