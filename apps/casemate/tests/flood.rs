//! The log of an instance against a host that begins IKE SAs and never proves who it is, and against bogus
//! packets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod attacker;
#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

use attacker::{ESP, Site, packet};
use lab::{Lab, Side};
use std::time::Instant;

const ATTEMPTS: usize = 60;
/// Lines of one kind that may come at once; after that, one more each second.
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
fn handshakes_of_strangers_fill_their_own_budgets_only() {
    let Some(lab) = Lab::build("handshakes_of_strangers") else { return };
    let start = Instant::now();
    let right = lab.right.negotiate(&conf(Side::Right, "the secret of the gateway"), None);
    let left = lab.left.negotiate(&conf(Side::Left, "what a stranger believes it to be"), None);
    for _ in 0..ATTEMPTS {
        assert!(!lab.left.casemate(&["initiate", "c"]).status.success());
    }
    assert!(lab.right.casemate(&["reload"]).status.success());
    lab.right.waits_until(|status| status["ike_sas"].as_array().is_some_and(Vec::is_empty));
    let said = right.said();
    let allowed = BURST + usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    for kind in ["]: ended: ", "auth-mismatch: "] {
        let lines = said.lines().filter(|line| line.contains(kind)).count();
        assert!(
            (1..=allowed).contains(&lines),
            "{lines} lines with {kind:?} from {ATTEMPTS} attempts: {said}"
        );
    }
    assert!(said.contains("the configuration was read again"), "{said}");
    assert!(left.stop().success() && right.stop().success());
}

/// The audit's case: bogus packets silenced the log, the messages about a reload and IKE included.
#[test]
fn bogus_packets_fill_their_own_budget_only() {
    const BOGUS: u32 = 400;
    const SECRET: &str = "a secret of the two";
    let Some(site) = Site::build("bogus_packets") else { return };
    let lab = &site.lab;
    let start = Instant::now();
    let right = lab.right.negotiate(&conf(Side::Right, SECRET), None);
    let left = lab.left.negotiate(&conf(Side::Left, SECRET), None);
    let initiate = || assert!(lab.left.casemate(&["initiate", "c"]).status.success());
    initiate();
    // Of SAs that there are not, each of them worth a line.
    let ends = (Side::Left.outer(true), Side::Right.outer(true));
    let bogus = |spi: u32| packet(ends, ESP, &[&spi.to_be_bytes()[..], &[1; 60]].concat());
    site.attack(&(0x9000..0x9000 + BOGUS).map(bogus).collect::<Vec<_>>());
    lab.right.waits_until(|status| status["drops"]["no-sa"] == BOGUS);
    assert!(lab.left.casemate(&["terminate", "t"]).status.success());
    initiate();
    assert!(lab.right.casemate(&["reload"]).status.success());
    let allowed = BURST + usize::try_from(start.elapsed().as_secs()).unwrap() + 1;
    let kept = String::from_utf8(lab.right.casemate(&["log"]).stdout).unwrap();
    for said in [right.said(), kept] {
        let lines = said.lines().filter(|line| line.contains("audit: no-sa, ")).count();
        assert!((1..=allowed).contains(&lines), "{lines} lines: {said}");
        let last = said.rfind("audit: no-sa, ").unwrap();
        for event in ["]: ended: ", "]: established with ", "t/c{2}: ", "the configuration was read again"] {
            assert!(said[last..].contains(event), "no {event:?}: {said}");
        }
    }
    assert!(left.stop().success() && right.stop().success());
}
