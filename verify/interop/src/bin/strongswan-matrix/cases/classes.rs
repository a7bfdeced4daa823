//! Cases with two Child SAs for the same traffic, selected by the DSCP (RFC 4301 sections 4.1 and 4.4.2.1).
//! strongSwan has one child for both SAs. strongSwan does not request two SAs for the same traffic, so
//! Casemate requests the second one.

use super::{Case, RunsOn, ensure};
use crate::peer::{ChildSa, Target};
use crate::peer::{Family, Side};
use crate::plan::{CHILD, CONNECTION, Plan, SECOND_CHILD};
use crate::testbed::{CONVERGENCE_LIMIT, Testbed};
use casemate_interop::{Error, Result};

/// Values of the TOS octet: expedited forwarding, CS5, and default.
const EF: &str = "0xb8";
const CS5: &str = "0xa0";
const PLAIN: &str = "0";
/// Sizes of the echo requests for each TOS octet.
const SIZES: &str = "1-20";

pub(super) fn add(cases: &mut Vec<Case>, initiator: Side) {
    let mut push = |case: Case| cases.push(Case { runs_on: RunsOn::Casemate, ..case });
    push(Case::new("classes/dscp", plan(initiator), |testbed| {
        establish(testbed)?;
        expect_separate_sas(testbed)
    }));
    push(Case::new("classes/rekey", plan(initiator), |testbed| {
        establish(testbed)?;
        for child in [SECOND_CHILD, CHILD] {
            let old = sas(testbed)?;
            testbed.peer(Side::Left).rekey(Target::Child(child))?;
            testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
                let changed = which(&old, &sas(testbed)?, |old, new| old.ours.spi_out != new.ours.spi_out);
                ensure(changed == [child], &format!("SAs replaced: {changed:?}, expected {child}"))
            })?;
            expect_separate_sas(testbed)?;
        }
        expect_separate_sas(testbed)
    }));
    if initiator == Side::Left {
        let mut plan = plan(initiator);
        for child in [CHILD, SECOND_CHILD] {
            plan.connection_of(Side::Left, &format!("children.{child}.start_action"), "trap");
        }
        push(Case::new("classes/trap", plan, |testbed| {
            // The first packet triggers both SAs, and waits for one of them. strongSwan may send the reply on
            // the other one before its response about that has been processed here; then the reply is lost.
            let first = ping(testbed, Side::Left, EF, "1");
            first.or_else(|_| ping(testbed, Side::Left, EF, "1"))?;
            testbed.wait_until(CONVERGENCE_LIMIT, |testbed| sas(testbed).map(drop))?;
            expect_separate_sas(testbed)
        }));
    }
}

/// Sets up both children.
fn establish(testbed: &mut Testbed) -> Result<()> {
    testbed.initiate(Target::Child(CHILD))?;
    testbed.peer(Side::Left).initiate(Target::Child(SECOND_CHILD)).map_err(Error::context(Side::Left.name()))
}

/// Plan with a second child for the same traffic on the left side.
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

/// Checks that each class of packets uses its own SA, with the counters of Casemate for sent packets and of
/// strongSwan for received packets.
fn expect_separate_sas(testbed: &mut Testbed) -> Result<String> {
    let mut summary = Vec::new();
    for (tos, chosen) in [(EF, SECOND_CHILD), (PLAIN, CHILD), (CS5, SECOND_CHILD)] {
        let before = sas(testbed)?;
        ping(testbed, Side::Left, tos, SIZES)?;
        testbed.wait_until(CONVERGENCE_LIMIT, |testbed| {
            let after = sas(testbed)?;
            let left = which(&before, &after, |old, new| new.ours.bytes_out > old.ours.bytes_out);
            let arrived = which(&before, &after, |old, new| new.theirs.bytes_in > old.theirs.bytes_in);
            let what = format!("TOS {tos} left by {left:?} and arrived by {arrived:?}, expected {chosen}");
            ensure(left == [chosen] && arrived == [chosen], &what)
        })?;
        summary.push(format!("TOS {tos} by {chosen}"));
        // Casemate accepts packets of the peer on either SA.
        ping(testbed, Side::Right, tos, SIZES)?;
    }
    Ok(summary.join(", "))
}

/// Child SA as both sides report it.
struct SaPair {
    ours: ChildSa,
    theirs: ChildSa,
}

/// Returns the names of the SAs for which `differ` returns true.
fn which(
    before: &[SaPair; 2],
    after: &[SaPair; 2],
    differ: impl Fn(&SaPair, &SaPair) -> bool,
) -> Vec<String> {
    let changed = before.iter().zip(after).filter(|(old, new)| differ(old, new));
    changed.map(|(_, new)| new.ours.name.clone()).collect()
}

/// Returns the SAs of the first and the second child.
fn sas(testbed: &mut Testbed) -> Result<[SaPair; 2]> {
    let children = testbed.ike_sa(Side::Right)?.children;
    ensure(children.len() == 2, &format!("strongSwan has {} Child SAs, expected 2", children.len()))?;
    let mut pair = |name| {
        let ours = testbed.child_sa(Side::Left, name)?;
        let is_it = |child: &&ChildSa| (&child.spi_in, &child.spi_out) == (&ours.spi_out, &ours.spi_in);
        let theirs = children.iter().find(is_it).cloned();
        let theirs =
            theirs.ok_or_else(|| Error::new(format!("{CONNECTION}.{name}: strongSwan has no such SPIs")))?;
        Ok(SaPair { ours, theirs })
    };
    Ok([pair(CHILD)?, pair(SECOND_CHILD)?])
}

fn ping(testbed: &Testbed, from: Side, tos: &str, sizes: &str) -> Result<String> {
    let [source, target] = [from, from.other()].map(|side| side.behind(Family::V4));
    testbed.probe(from, &["ping-tos", &source, &target, tos, sizes])
}
