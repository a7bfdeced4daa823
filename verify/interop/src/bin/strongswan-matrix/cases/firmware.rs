//! The machine without an operating system, which serves whoever asks and cannot be asked itself: what strongSwan says of the
//! SAs, and what comes through them.

use super::{Case, Whom, demand, kernel, nat, rekey};
use crate::arena::{Arena, SOON};
use crate::peer::Target;
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::side::{Family, Side};
use casemate_interop::Result;
use std::time::Duration;

/// The firmware's first request may come before strongSwan listens; it is sent again after 1, 2, 4, 8 and 16 seconds.
const ESTABLISHED: Duration = Duration::from_secs(40);
const SIZES: &[&str] = &["1-40", "1400", "1472", "3000", "8000"];
const PAGES: &str = "50";
const BYTES: &str = "200000";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |case: Case| cases.push(Case { whom: Whom::Firmware, ..case });
    for (family, name) in [(Family::V4, "v4"), (Family::V6, "v6")] {
        let (tunnel, transport) = (plan(initiator, "tunnel", family), plan(initiator, "transport", family));
        push(Case::new(&format!("firmware/tunnel/{name}"), tunnel, serve));
        push(kernel::case(&format!("firmware/transport/{name}"), transport, kernel::TRANSPORT, serve));
    }
    let tunnel = plan(initiator, "tunnel", Family::V4);
    push(kernel::case("firmware/tunnel/v4", tunnel, kernel::TUNNEL, serve));
    push(Case::new("firmware/rekey", plan(initiator, "tunnel", Family::V4), live_on));
    let transport = plan(initiator, "transport", Family::V4);
    push(kernel::case("firmware/rekey", transport, kernel::TRANSPORT, live_on));
    let mut lossy = plan(initiator, "tunnel", Family::V4);
    Side::BOTH.into_iter().for_each(|side| rekey::retransmit_quickly(&mut lossy, side));
    push(Case::new("firmware/loss", lossy, |arena| {
        arena.path.lose_ike(0, 3)?;
        serve(arena)
    }));
    if initiator == Side::Left {
        let mut hidden = plan(initiator, "tunnel", Family::V4);
        hidden.connection_of(Side::Right, "remote_addrs", "%any");
        hidden.child_of(Side::Right, "remote_ts", &format!("{}/32", Side::Left.wire(Family::V4)));
        push(Case::new("firmware/behind-nat", hidden, |arena| {
            nat::hide_initiator(arena)?;
            serve(arena)
        }));
    }
    let mut wrong = plan(initiator, "tunnel", Family::V4);
    wrong.on(Side::Left, "secrets.ike-t.secret", "another-secret");
    push(Case::new("firmware/wrong-secret", wrong, be_refused));
}

/// Between the two hosts, which is all that the firmware knows.
fn plan(initiator: Side, mode: &str, family: Family) -> Plan {
    let mut plan = Plan::transport(initiator);
    plan.outer(family);
    plan.child("mode", mode);
    // A word of the firmware's has no blanks.
    plan.both("secrets.ike-t.secret", "\"a-secret-of-the-two\"");
    // Where ESP is libipsec's, packets to the peer go to its TUN interface, and those that it made may not go there again.
    plan.daemon(Side::Right, "plugins.kernel-netlink.fwmark", "!0x42");
    plan.daemon(Side::Right, "plugins.socket-default.fwmark", "0x42");
    plan
}

/// Waits until strongSwan says that the Child SA stands, beginning it if that is its part.
fn establish(arena: &mut Arena) -> Result<()> {
    if arena.initiator() == Side::Right {
        return arena.initiate(Target::Child(CHILD));
    }
    arena.wait_until(ESTABLISHED, |arena| arena.child_sa(Side::Right, CHILD).map(drop))
}

/// Ping, HTTP and bulk TCP.
fn serve(arena: &mut Arena) -> Result<String> {
    establish(arena)?;
    traffic(arena)
}

fn traffic(arena: &mut Arena) -> Result<String> {
    let family = arena.plan.family();
    let (right, left) = (Side::Right.wire(family), Side::Left.wire(family));
    let before = arena.wire()?.protected();
    let ping = arena.ping_sizes(Side::Right, &right, &left, SIZES)?;
    let page = arena.probe(Side::Right, &["page", &right, &left, PAGES])?;
    arena.probe(Side::Right, &["tcp", &right, &left, BYTES])?;
    arena.probe(Side::Right, &["discard", &right, &left, BYTES])?;
    let protected = arena.wire()?.protected().saturating_sub(before);
    demand(protected > 400, &format!("{protected} protected packets on the wire, expected hundreds"))?;
    Ok(format!("{ping}; page: {page}"))
}

/// New keys for everything, and everything anew.
fn live_on(arena: &mut Arena) -> Result<String> {
    establish(arena)?;
    for target in [Target::Child(CHILD), Target::Ike(CONNECTION), Target::Child(CHILD)] {
        let before = spis(arena)?;
        let flow = arena.start_flow(Side::Right)?;
        arena.peer(Side::Right).rekey(target)?;
        arena.wait_until(SOON, |arena| {
            let now = spis(arena)?;
            let replaced =
                if matches!(target, Target::Ike(_)) { now.0 != before.0 } else { now.1 != before.1 };
            demand(replaced, "the SA was not replaced")
        })?;
        flow.stop()?;
    }
    arena.peer(Side::Right).terminate(Target::Ike(CONNECTION))?;
    // Whoever begins also begins again, by the next packet that needs it; strongSwan begins by our order.
    arena.peer(Side::Right).initiate(Target::Child(CHILD))?;
    traffic(arena)
}

fn spis(arena: &mut Arena) -> Result<(String, String)> {
    let ike = arena.ike_sa(Side::Right)?.spi_i;
    Ok((ike, arena.child_sa(Side::Right, CHILD)?.spi_in))
}

fn be_refused(arena: &mut Arena) -> Result<String> {
    if arena.initiator() == Side::Right {
        let begun = arena.initiate(Target::Child(CHILD));
        demand(begun.is_err(), "the SA was set up, expected a refusal")?;
    }
    arena.wait_until(ESTABLISHED, |arena| {
        demand(arena.strongswan_said("AUTH_FAILED"), "strongSwan's log tells of no AUTHENTICATION_FAILED")
    })?;
    let left = arena.peer(Side::Right).status()?.len();
    demand(left == 0, "an IKE SA stands although the secret is wrong")?;
    Ok(String::new())
}
