//! Two Child SAs for the same traffic, of which the DSCP chooses one (RFC 4301 sections 4.1 and 4.4.2.1). strongSwan has one child,
//! which serves both; it does not ask twice for the same traffic, so the second is asked for by us.

use super::{Case, Whom, demand};
use crate::arena::{Arena, SOON};
use crate::peer::{ChildSa, Target};
use crate::plan::{CHILD, CONNECTION, Plan, SECOND_CHILD};
use crate::side::{Family, Side};
use casemate_interop::{Error, Result};

/// Types of service: expedited forwarding, CS5, and nothing.
const EF: &str = "0xb8";
const CS5: &str = "0xa0";
const PLAIN: &str = "0";
/// Echo requests of each type of service.
const SIZES: &str = "1-20";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |case: Case| cases.push(Case { whom: Whom::Casemate, ..case });
    push(Case::new("classes/dscp", plan(initiator), |arena| {
        establish(arena)?;
        keep_apart(arena)
    }));
    push(Case::new("classes/rekey", plan(initiator), |arena| {
        establish(arena)?;
        for child in [SECOND_CHILD, CHILD] {
            let old = sas(arena)?;
            arena.peer(Side::Left).rekey(Target::Child(child))?;
            arena.wait_until(SOON, |arena| {
                let changed = which(&old, &sas(arena)?, |old, new| old.ours.spi_out != new.ours.spi_out);
                demand(changed == [child], &format!("replaced: {changed:?}, expected {child}"))
            })?;
            keep_apart(arena)?;
        }
        keep_apart(arena)
    }));
    if initiator == Side::Left {
        let mut plan = plan(initiator);
        for child in [CHILD, SECOND_CHILD] {
            plan.connection_of(Side::Left, &format!("children.{child}.start_action"), "trap");
        }
        push(Case::new("classes/trap", plan, |arena| {
            // The first is lost, and calls for both.
            let lost = ping(arena, Side::Left, EF, "1");
            demand(lost.is_err(), "a packet came through before there was an SA")?;
            arena.wait_until(SOON, |arena| sas(arena).map(drop))?;
            keep_apart(arena)
        }));
    }
}

/// Sets up both.
fn establish(arena: &mut Arena) -> Result<()> {
    arena.initiate(Target::Child(CHILD))?;
    arena.peer(Side::Left).initiate(Target::Child(SECOND_CHILD)).map_err(Error::in_front(Side::Left.name()))
}

/// A second child for the same traffic on our side.
fn plan(initiator: Side) -> Plan {
    let mut plan = Plan::new(initiator);
    for (name, value) in [
        ("esp_proposals", "aes128gcm16".into()),
        ("local_ts", Side::Left.network(Family::V4)),
        ("remote_ts", Side::Right.network(Family::V4)),
        ("dscp_values", "ef, cs5".into()),
    ] {
        plan.connection_of(Side::Left, &format!("children.{SECOND_CHILD}.{name}"), &value);
    }
    plan
}

/// Each class of packets leaves by its own SA, says Casemate, and arrives by it, says strongSwan.
fn keep_apart(arena: &mut Arena) -> Result<String> {
    let mut said = Vec::new();
    for (tos, chosen) in [(EF, SECOND_CHILD), (PLAIN, CHILD), (CS5, SECOND_CHILD)] {
        let before = sas(arena)?;
        ping(arena, Side::Left, tos, SIZES)?;
        arena.wait_until(SOON, |arena| {
            let after = sas(arena)?;
            let left = which(&before, &after, |old, new| new.ours.bytes_out > old.ours.bytes_out);
            let arrived = which(&before, &after, |old, new| new.theirs.bytes_in > old.theirs.bytes_in);
            let what = format!("TOS {tos} left by {left:?} and arrived by {arrived:?}, expected {chosen}");
            demand(left == [chosen] && arrived == [chosen], &what)
        })?;
        said.push(format!("TOS {tos} by {chosen}"));
        // Whatever the peer sends by, it comes through.
        ping(arena, Side::Right, tos, SIZES)?;
    }
    Ok(said.join(", "))
}

/// A Child SA, as each side has it.
struct Pair {
    ours: ChildSa,
    theirs: ChildSa,
}

/// The names of those that differ so.
fn which(before: &[Pair; 2], after: &[Pair; 2], differ: impl Fn(&Pair, &Pair) -> bool) -> Vec<String> {
    let changed = before.iter().zip(after).filter(|(old, new)| differ(old, new));
    changed.map(|(_, new)| new.ours.name.clone()).collect()
}

/// The first child and the second.
fn sas(arena: &mut Arena) -> Result<[Pair; 2]> {
    let children = arena.ike_sa(Side::Right)?.children;
    demand(children.len() == 2, &format!("strongSwan has {} Child SAs, expected 2", children.len()))?;
    let mut pair = |name| {
        let ours = arena.child_sa(Side::Left, name)?;
        let is_it = |child: &&ChildSa| (&child.spi_in, &child.spi_out) == (&ours.spi_out, &ours.spi_in);
        let theirs = children.iter().find(is_it).cloned();
        let theirs =
            theirs.ok_or_else(|| Error::new(format!("{CONNECTION}.{name}: strongSwan has no such SPIs")))?;
        Ok(Pair { ours, theirs })
    };
    Ok([pair(CHILD)?, pair(SECOND_CHILD)?])
}

fn ping(arena: &Arena, from: Side, tos: &str, sizes: &str) -> Result<String> {
    let [source, target] = [from, from.other()].map(|side| side.behind(Family::V4));
    arena.probe(from, &["ping-tos", &source, &target, tos, sizes])
}
