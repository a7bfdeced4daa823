//! Pair of SAs with manual keys between the first two nodes, besides the SAs of IKE. The SAs use extended
//! sequence numbers and start near 2^32. The nodes save their sequence numbers across restarts, and now and
//! then a number jumps.

use crate::addresses;
use crate::node::Node;
use crate::plan::{Layout, Plan, Setup, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Direction, SaStatus};
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Mode, Protocol, SaParams, Selector, SpdId, Spi};
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
/// Whether a node has manual SAs.
pub(crate) fn is_used(plan: &Plan, node: usize) -> bool {
    let Setup { manual, nat, virtual_addrs, layout, .. } = plan.setup;
    manual && node < 2 && !nat && virtual_addrs == VirtualAddrs::No && layout != Layout::Ports
}

/// Parameters of the SA from node `from` to the other node.
fn params(setup: &Setup, from: usize, last: u64) -> SaParams {
    let gcm = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
    let spi = Spi::new(0x100 + from as u32).unwrap();
    let (src, dst) = (addresses::outer(setup, from), addresses::outer(setup, 1 - from));
    SaParams {
        esn: true,
        last_sent: last,
        last_received: last,
        reqid: REQID,
        ..SaParams::new(spi, src, dst, Mode::Tunnel, suites::esp(gcm, from as u8))
    }
}

/// Sequence numbers that a node saves across a restart.
#[derive(Clone, Copy)]
pub(crate) struct SavedNumbers {
    /// Last number that the node sent.
    sent: u64,
    /// Last number that the node received.
    received: u64,
}

impl SavedNumbers {
    /// Numbers of new SAs.
    pub(crate) const INITIAL: Self = Self { sent: START, received: START };

    /// Numbers of a node, or [`INITIAL`](Self::INITIAL) without manual SAs.
    pub(crate) fn of(node: &Node) -> Self {
        let is_its = |sa: &SaStatus, direction| sa.reqid == REQID && sa.id.direction() == direction;
        let last = |direction| {
            let mut sas = node.endpoint().datapath().sas().filter(|sa| is_its(sa, direction));
            sas.next().map(|sa| sa.seq)
        };
        let numbers = last(Direction::Outbound).zip(last(Direction::Inbound));
        numbers.map_or(Self::INITIAL, |(sent, received)| Self { sent, received })
    }
}

/// Adds the SAs and policies of a node, and returns the outbound SA. Its sequence numbers start behind all
/// numbers that the node may have used.
pub(crate) fn install(plan: &Plan, node: &mut Node, saved: SavedNumbers, now: Duration) -> SaParams {
    let (setup, own) = (&plan.setup, node.index);
    let outbound = params(setup, own, saved.sent + BLOCK);
    let inbound = params(setup, 1 - own, saved.received);
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
        let policy = Policy { spd: SpdId::MAIN, selector: Selector::between(src, dst), action, priority: 1 };
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
