//! An SA pair with manual keys between the first two nodes, beside those of IKE: its sequence numbers are 64 bits long and
//! near the end of the first 32, they outlive restarts because somebody writes them down, and now and then they jump.

use crate::node::Node;
use crate::places;
use crate::plan::Plan;
use crate::style::{Layout, Style, VirtualAddrs};
use casemate_crypto::{AeadAlg, AesBits, EspSuite, Providers};
use casemate_datapath::spd::{Action, Bundle, Policy, Template};
use casemate_datapath::{Direction, SaStatus};
use casemate_datapath_tests::suites;
use casemate_rustcrypto::RUSTCRYPTO;
use casemate_sa::{Mode, Protocol, SaParams, Selector, Spi};
use std::time::Duration;

/// The child that these networks would be of.
pub(crate) const CHILD: usize = 12;
/// Jumps in a run: all of them together stay below the 32 bits that a receiver can make up for.
pub(crate) const MOST_JUMPS: u32 = 6;

const REQID: u32 = 77;
/// Longer than what is lost of a counter that is written down now and then.
const BLOCK: u64 = 1_000;
/// A few packets before the lower half of the number is used up.
const START: u64 = (1 << 32) - 40 - BLOCK;
/// The last numbers, sent and received, of SAs that are new.
pub(crate) const FRESH: (u64, u64) = (START, START);

/// Whether a node has such SAs.
pub(crate) fn has(plan: &Plan, node: usize) -> bool {
    let Style { manual, nat, virtual_addrs, layout, .. } = plan.style;
    manual && node < 2 && !nat && virtual_addrs == VirtualAddrs::No && layout != Layout::Ports
}

/// What one direction is like. `from` is the node that sends.
fn params(style: &Style, from: usize, last: u64) -> SaParams {
    let gcm = EspSuite::Combined(AeadAlg::AesGcm { bits: AesBits::B128, icv: 16 });
    let spi = Spi::new(0x100 + from as u32).unwrap();
    let path = (places::outer(style, from), places::outer(style, 1 - from));
    SaParams {
        esn: true,
        last_sent: last,
        last_received: last,
        reqid: REQID,
        ..SaParams::new(spi, path, Mode::Tunnel, suites::esp(gcm, from as u8))
    }
}

/// The last numbers that a node has sent and received.
pub(crate) fn written_down(node: &Node) -> (u64, u64) {
    let is_its = |sa: &SaStatus, direction| sa.reqid == REQID && sa.id.direction() == direction;
    let last = |direction| {
        let mut sas = node.endpoint().datapath().sas().filter(|sa| is_its(sa, direction));
        sas.next().map(|sa| sa.seq)
    };
    last(Direction::Outbound).zip(last(Direction::Inbound)).unwrap_or(FRESH)
}

/// Gives a node its SAs and policies; answers the outbound SA. What it sends from now on has numbers behind all that it
/// may have used.
pub(crate) fn install(plan: &Plan, node: &mut Node, (sent, received): (u64, u64), now: Duration) -> SaParams {
    let (style, own) = (&plan.style, node.index);
    let outbound = params(style, own, sent + BLOCK);
    let inbound = params(style, 1 - own, received);
    add(node, &outbound, Direction::Outbound, now);
    add(node, &inbound, Direction::Inbound, now);
    let side = |node| places::range(places::host(style, node, CHILD, 0), 7);
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

/// The numbers that a node sends jump ahead.
pub(crate) fn jump(plan: &Plan, node: &mut Node, by: u64, now: Duration) {
    let datapath = node.endpoint_mut().datapath_mut();
    let mut sas = datapath.sas().filter(|sa| sa.reqid == REQID && sa.id.direction() == Direction::Outbound);
    let Some((id, seq)) = sas.next().map(|sa| (sa.id, sa.seq)) else { return };
    drop(sas);
    datapath.remove_sa(id);
    add(node, &params(&plan.style, node.index, seq + by), Direction::Outbound, now);
}
