//! The log of an instance under a flood of unauthenticated IKE SAs and of invalid packets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod attacker;
#[allow(dead_code, reason = "other tests use the rest")]
mod testnet;

use attacker::{AttackNet, ESP, packet};
use casemate_sa::AddrPair;
use std::time::Instant;
use testnet::{Side, TestNet, eventually};

const ATTEMPTS: usize = 60;
/// Burst size of one category of lines; after the burst, one line per second is allowed.
const BURST: usize = 20;

fn conf(side: Side, secret: &str) -> String {
    format!(
        "connections {{\n t {{\n  version = 2\n  local_addrs = {}\n  remote_addrs = {}\n  \
         proposals = aes128gcm16-prfsha256-x25519\n  local {{\n   auth = psk\n  }}\n  remote {{\n   auth = psk\n  }}\n  \
         children {{\n   c {{\n    esp_proposals = aes128gcm16\n   }}\n  }}\n }}\n}}\n\
         secrets {{\n ike-1 {{\n  secret = \"{secret}\"\n }}\n}}\n",
        side.outer(true),
        side.other().outer(true),
    )
}

#[test]
fn failed_handshakes_use_up_only_their_own_rate_limits() {
    let Some(net) = TestNet::build("handshakes_of_strangers") else { return };
    let start = Instant::now();
    let right = net.right.run_config(&conf(Side::Right, "the secret of the gateway"), None);
    let left = net.left.run_config(&conf(Side::Left, "what a stranger believes it to be"), None);
    for _ in 0..ATTEMPTS {
        assert!(!net.left.casemate(&["initiate", "c"]).status.success());
    }
    assert!(net.right.casemate(&["reload"]).status.success());
    net.right.wait_until(|status| status["ike_sas"].as_array().is_some_and(Vec::is_empty));
    // A thread writes the lines, so the last one may be late.
    eventually("the reload is logged", || right.log().contains("the configuration was read again"));
    let log = right.log();
    let allowed = BURST + usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    for kind in ["]: ended: ", "(auth-mismatch)"] {
        let lines = log.lines().filter(|line| line.contains(kind)).count();
        assert!(
            (1..=allowed).contains(&lines),
            "{lines} lines with {kind:?} from {ATTEMPTS} attempts: {log}"
        );
    }
    assert!(left.stop().success() && right.stop().success());
}

/// Invalid packets must not suppress messages about reloads and IKE.
#[test]
fn invalid_packets_use_up_only_their_own_rate_limit() {
    const BOGUS: u32 = 400;
    const SECRET: &str = "a secret of the two";
    let Some(attack_net) = AttackNet::build("bogus_packets") else { return };
    let net = &attack_net.net;
    let start = Instant::now();
    let right = net.right.run_config(&conf(Side::Right, SECRET), None);
    let left = net.left.run_config(&conf(Side::Left, SECRET), None);
    let initiate = || assert!(net.left.casemate(&["initiate", "c"]).status.success());
    initiate();
    // Packets of unknown SAs, each of which would give a line.
    let addrs = AddrPair { src: Side::Left.outer(true), dst: Side::Right.outer(true) };
    let bogus = |spi: u32| packet(addrs, ESP, &[&spi.to_be_bytes()[..], &[1; 60]].concat());
    attack_net.attack(&(0x9000..0x9000 + BOGUS).map(bogus).collect::<Vec<_>>());
    net.right.wait_until(|status| status["drops"]["no-sa"] == BOGUS);
    assert!(net.left.casemate(&["terminate", "t"]).status.success());
    initiate();
    assert!(net.right.casemate(&["reload"]).status.success());
    eventually("the reload is logged", || right.log().contains("the configuration was read again"));
    let allowed = BURST + usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    let kept = String::from_utf8(net.right.casemate(&["log"]).stdout).unwrap();
    for log in [right.log(), kept] {
        let lines = log.lines().filter(|line| line.contains("audit: no-sa, ")).count();
        assert!((1..=allowed).contains(&lines), "{lines} lines: {log}");
        let last = log.rfind("audit: no-sa, ").unwrap();
        for event in ["]: ended: ", "]: established with ", "t/c{2}: ", "the configuration was read again"] {
            assert!(log[last..].contains(event), "no {event:?}: {log}");
        }
    }
    assert!(left.stop().success() && right.stop().success());
}
