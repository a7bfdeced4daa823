//! Hosts that serve whoever asks and say nothing of their SAs, the machine without an operating system and lwIP: what
//! strongSwan says of the SAs, and what comes through them.

use super::{Case, Whom, auth, demand, kernel, nat, rekey};
use crate::arena::{Arena, SOON};
use crate::peer::Target;
use crate::plan::{CHILD, CONNECTION, Plan};
use crate::side::{Family, Side};
use casemate_interop::Result;
use std::time::Duration;

/// For a guest that has to share the machine, and for requests that are sent again.
const ESTABLISHED: Duration = Duration::from_secs(20);
const SIZES: &[&str] = &["1-40", "1400", "1472", "3000", "8000"];
const PAGES: &str = "50";
const BYTES: &str = "200000";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    add_for(Host { name: "firmware", whom: Whom::Firmware }, cases, initiator);
    add_for(LWIP, cases, initiator);
    let mut certified = plan(initiator, "tunnel", Family::V4);
    auth::certify(&mut certified, ["ecdsa256"; 2], "ca-ecdsa");
    let mut raw = plan(initiator, "tunnel", Family::V4);
    auth::know_each_other(&mut raw, "ed25519");
    for (name, plan) in [("lwip/certificates", certified), ("lwip/raw-keys", raw)] {
        cases.push(LWIP.case(Case::new(name, plan, |arena| LWIP.serve(arena))));
    }
}

/// Who is on the left side.
#[derive(Debug, Clone, Copy)]
struct Host {
    name: &'static str,
    whom: Whom,
}

const LWIP: Host = Host { name: "lwip", whom: Whom::Lwip };

fn add_for(host: Host, cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |case: Case| cases.push(host.case(case));
    let name = |what: &str| format!("{}/{what}", host.name);
    let serve = move |arena: &mut Arena| host.serve(arena);
    for (family, version) in [(Family::V4, "v4"), (Family::V6, "v6")] {
        let (tunnel, transport) = (plan(initiator, "tunnel", family), plan(initiator, "transport", family));
        push(Case::new(&name(&format!("tunnel/{version}")), tunnel, serve));
        push(kernel::case(&name(&format!("transport/{version}")), transport, kernel::TRANSPORT, serve));
    }
    let tunnel = plan(initiator, "tunnel", Family::V4);
    push(kernel::case(&name("tunnel/v4"), tunnel, kernel::TUNNEL, serve));
    let live_on = move |arena: &mut Arena| host.live_on(arena);
    push(Case::new(&name("rekey"), plan(initiator, "tunnel", Family::V4), live_on));
    let transport = plan(initiator, "transport", Family::V4);
    let case = kernel::case(&name("rekey"), transport, kernel::TRANSPORT, live_on);
    push(Case { is_alone: true, ..case });
    let mut lossy = plan(initiator, "tunnel", Family::V4);
    Side::BOTH.into_iter().for_each(|side| rekey::retransmit_quickly(&mut lossy, side));
    push(Case::new(&name("loss"), lossy, move |arena| {
        arena.path.lose_ike(0, 3)?;
        host.serve(arena)
    }));
    if initiator == Side::Left {
        let mut hidden = plan(initiator, "tunnel", Family::V4);
        hidden.connection_of(Side::Right, "remote_addrs", "%any");
        hidden.child_of(Side::Right, "remote_ts", &format!("{}/32", Side::Left.wire(Family::V4)));
        // Before it starts, for it begins by itself.
        nat::hide_initiator(&mut hidden);
        push(Case::new(&name("behind-nat"), hidden, move |arena| host.serve(arena)));
    }
    let mut wrong = plan(initiator, "tunnel", Family::V4);
    wrong.on(Side::Left, "secrets.ike-t.secret", "another-secret");
    push(Case::new(&name("wrong-secret"), wrong, be_refused));
}

impl Host {
    fn case(self, case: Case) -> Case {
        Case { whom: self.whom, ..case }
    }

    /// Ping, HTTP and bulk TCP.
    fn serve(self, arena: &mut Arena) -> Result<String> {
        establish(arena)?;
        self.traffic(arena)
    }

    fn traffic(self, arena: &mut Arena) -> Result<String> {
        let family = arena.plan.family();
        let (right, left) = (Side::Right.wire(family), Side::Left.wire(family));
        let before = arena.wire()?.protected();
        let ping = arena.ping_sizes(Side::Right, &right, &left, SIZES)?;
        arena.probe(Side::Right, &["tcp", &right, &left, BYTES])?;
        let page = match self.whom {
            Whom::Lwip => {
                // lwIP takes orders, and its iperf server wants more than bytes.
                arena.ping_sizes(Side::Left, &left, &right, SIZES)?;
                arena.probe(Side::Left, &["tcp", &left, &right, BYTES])?;
                arena.probe(Side::Right, &["site", &right, &left, PAGES])?
            }
            _ => {
                arena.probe(Side::Right, &["discard", &right, &left, BYTES])?;
                arena.probe(Side::Right, &["page", &right, &left, PAGES])?
            }
        };
        let protected = arena.wire()?.protected().saturating_sub(before);
        demand(protected > 400, &format!("{protected} protected packets on the wire, expected hundreds"))?;
        Ok(format!("{ping}; page: {page}"))
    }

    /// New keys for everything, and everything anew.
    fn live_on(self, arena: &mut Arena) -> Result<String> {
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
        self.traffic(arena)
    }
}

/// Between the two hosts, which is all that they know.
fn plan(initiator: Side, mode: &str, family: Family) -> Plan {
    let mut plan = Plan::transport(initiator);
    plan.outer(family);
    plan.child("mode", mode);
    // A word of their configuration has no blanks.
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
