//! The log of an instance against a host that begins IKE SAs and never proves who it is.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test may fail")]

#[allow(dead_code, reason = "other tests use the rest")]
mod lab;

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
