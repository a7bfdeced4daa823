//! Cases for devices: services behind a tunnel. Also the selection of cases that runs for a device by
//! default.

use super::{Case, RunsOn, kernel};
use crate::peer::{Family, Side};
use crate::plan::Plan;
use crate::testbed::Testbed;
use casemate_interop::Result;

/// Names of cases with their role; `*` matches anything. Each case covers a feature that depends on the
/// platform of the device: time, routes, sockets, certificates without a file system, packets larger than
/// the MTU.
pub(super) const DEFAULT_CASES: &[&str] = &[
    "services/*",
    "kernel/services/*",
    "auth/psk/*",
    "auth/ecdsa256/initiate",
    "auth/ed25519/respond",
    "auth/chain/*",
    "auth/refused/psk-ours/*",
    "auth/refused/psk-theirs/*",
    "auth/refused/authority-theirs/initiate",
    "addresses/both-in-6/*",
    "addresses/virtual-4/initiate",
    "delete/child/by-us/initiate",
    "delete/ike/by-peer/respond",
    "dpd/by-us/initiate",
    "dpd/by-peer/respond",
    "loss/requests/initiate",
    "loss/responses/respond",
    "nat/initiator-behind/*",
    "nat/mapping-changes/initiate",
    "negotiation/cookie/*",
    "negotiation/invalid-ke/*",
    "post-quantum/x25519-mlkem768/*",
    "post-quantum/three/initiate",
    "post-quantum/loss-2/respond",
    "post-quantum/rekey-ike/by-peer/initiate",
    "post-quantum/classical-peer/*",
    "ppk/required/*",
    "ppk/unknown/optional/*",
    "ppk/wrong/initiate",
    "rekey/child-pfs/by-us/initiate",
    "rekey/child-pfs/by-peer/respond",
    "rekey/ike/by-us/respond",
    "rekey/ike/by-peer/initiate",
    "kernel/tunnel/6in4/initiate",
    "kernel/tunnel/4in6/respond",
    "kernel/transport/v4/respond",
    "kernel/transport/v6/initiate",
    "kernel/ah/sha256-esn/transport/initiate",
    "kernel/ah/sha256-esn/tunnel/respond",
    "kernel/udp/initiator-behind-nat/initiate",
    "kernel/udp/transport-behind-nat/*",
    "kernel/udp/transport-v4/respond",
    "kernel/rekey/child/transport/by-us/initiate",
    "kernel/rekey/child/tunnel/by-peer/respond",
];

/// Sizes much larger than the MTU, up to the limit of strongSwan (`charon.max_packet`).
const SIZES: &[&str] = &["8000", "9001", "9900"];
const PAGES: &str = "100";
const BYTES: &str = "400000";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let case = Case::new("services", Plan::new(initiator), use_services);
    cases.push(Case { runs_on: RunsOn::Device, ..case });
    let case = kernel::case("services", Plan::transport(initiator), kernel::TRANSPORT, use_services);
    cases.push(Case { runs_on: RunsOn::Device, ..case });
}

/// Uses ping, HTTP and bulk TCP: the services of the device from the right side, and the echo services of
/// both sides from the opposite side.
fn use_services(testbed: &mut Testbed) -> Result<String> {
    testbed.establish()?;
    let [left, right] = Side::BOTH.map(|side| testbed.plan.between.address(side, Family::V4));
    for (side, from, to) in [(Side::Left, &left, &right), (Side::Right, &right, &left)] {
        testbed.ping_sizes(side, from, to, SIZES)?;
        testbed.probe(side, &["tcp", from, to, BYTES])?;
    }
    let page = testbed.probe(Side::Right, &["page", &right, &left, PAGES])?;
    let taken = testbed.probe(Side::Right, &["discard", &right, &left, BYTES])?;
    Ok(format!("page: {page}; discard: {taken}"))
}
