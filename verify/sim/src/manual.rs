//! Pair of SAs with manual keys between the first two nodes, besides the SAs of IKE. The SAs use extended
//! sequence numbers and start near 2^32. The nodes save their sequence numbers across restarts, and now and
//! then a number jumps.

use crate::addresses;
use crate::node::Node;
use crate::plan::Plan;
use crate::plan::{Layout, Setup, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Direction, SaStatus};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Mode, Protocol, SaParams, Selector, Spi};
use casemate_test_support::hosts::suites;
use std::time::Duration;

/// Index of the child whose networks the manual SAs protect. No connection has this child.
pub(crate) const CHILD: usize = 12;
/// Jumps of a run. The sum of all jumps stays below 2^32, which is what a receiver can recover from.
pub(crate) const MAX_JUMPS: u32 = 6;

const REQID: u32 = 77;
/// Sequence numbers to skip at a restart: more than a node uses between two saves.
const BLOCK: u64 = 1_000;
/// Starts a few packets before the low 32 bits of the sequence number wrap.
const START: u64 = (1 << 32) - 40 - BLOCK;
/// Last numbers sent and received, for new SAs.
pub(crate) const INITIAL: (u64, u64) = (START, START);

/// Whether a node has manual SAs.
pub(crate) fn is_used(plan: &Plan, node: usize) -> bool {
    let Setup { manual, nat, virtual_addrs, layout, .. } = plan.setup;
    manual && node < 2 && !nat && virtual_addrs == VirtualAddrs::No && layout != Layout::Ports
}

/// Parameters of the SA from node `from` to the other node.
fn params(setup: &Setup, from: usize, last: u64) -> SaParams {
    let gcm = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
    let spi = Spi::new(0x100 + from as u32).unwrap();
    let path = (addresses::outer(setup, from), addresses::outer(setup, 1 - from));
    SaParams {
        esn: true,
        last_sent: last,
        last_received: last,
        reqid: REQID,
        ..SaParams::new(spi, path.0, path.1, Mode::Tunnel, suites::esp(gcm, from as u8))
    }
}

/// Last sequence numbers that a node sent and received, or [`INITIAL`].
pub(crate) fn saved_numbers(node: &Node) -> (u64, u64) {
    let is_its = |sa: &SaStatus, direction| sa.reqid == REQID && sa.id.direction() == direction;
    let last = |direction| {
        let mut sas = node.endpoint().datapath().sas().filter(|sa| is_its(sa, direction));
        sas.next().map(|sa| sa.seq)
    };
    last(Direction::Outbound).zip(last(Direction::Inbound)).unwrap_or(INITIAL)
}

/// Adds the SAs and policies of a node, and returns the outbound SA. Its sequence numbers start behind all
/// numbers that the node may have used.
pub(crate) fn install(plan: &Plan, node: &mut Node, (sent, received): (u64, u64), now: Duration) -> SaParams {
    let (setup, own) = (&plan.setup, node.index);
    let outbound = params(setup, own, sent + BLOCK);
    let inbound = params(setup, 1 - own, received);
    add(node, &outbound, Direction::Outbound, now);
    add(node, &inbound, Direction::Inbound, now);
    let side = |node| addresses::range(addresses::host(setup, node, CHILD, 0), 7);
    let template = |sa: &SaParams| {
        let (src, dst) = (Some(sa.src), Some(sa.dst));
        Template { protocol: Protocol::Esp, mode: Mode::Tunnel, src, dst, reqid: REQID }
    };
    for (direction, sa, (src, dst)) in [
        (Direction::Outbound, &outbound, (side(own), side(1 - own))),
        (Direction::Inbound, &inbound, (side(1 - own), side(own))),
    ] {
        let action = Action::Protect(Bundle::single(template(sa)));
        let policy = Policy { selector: Selector::between(src, dst), action, priority: 1 };
        node.endpoint_mut().datapath_mut().add_policy(direction, policy).expect("there is room");
    }
    outbound
}

fn add(node: &mut Node, sa: &SaParams, direction: Direction, now: Duration) {
    let clock = node.clock(now);
    let added = node.endpoint_mut().add_sa(sa, direction, &Providers(&[&RUSTCRYPTO]), clock);
    added.expect("there is room");
}

/// Advances the outbound sequence number of a node by `by`.
pub(crate) fn jump(plan: &Plan, node: &mut Node, by: u64, now: Duration) {
    let datapath = node.endpoint_mut().datapath_mut();
    let mut sas = datapath.sas().filter(|sa| sa.reqid == REQID && sa.id.direction() == Direction::Outbound);
    let Some((id, seq)) = sas.next().map(|sa| (sa.id, sa.seq)) else { return };
    drop(sas);
    datapath.remove_sa(id);
    add(node, &params(&plan.setup, node.index, seq + by), Direction::Outbound, now);
}
