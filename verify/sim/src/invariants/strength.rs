//! Strength of the keys: additional key exchanges, post-quantum pre-shared keys and resumed sessions are as
//! both sides demand, and both sides of an IKE SA have the same keys.

use super::{Checked, Monitor, violated};
use crate::node::{Incarnation, Node};
use crate::plan::Plan;
use crate::post_quantum::Outcome;
use casemate::Notice;
use casemate_ike::{ChildUp, Event, IkeKeys, IkeSaId, IkeSpis, IkeStatus};
use casemate_wire::ike::{ExchangeType, Header};

impl Monitor {
    /// Checks the methods of a new IKE SA or Child SA.
    pub(crate) fn check_strength(&mut self, plan: &Plan, node: &Node, notice: &Notice) -> Checked {
        match notice {
            Notice::Ike(Event::IkeUp { ike, resumes, .. }) => {
                resumes.map_or(Ok(()), |old| self.check_resumed(node, old))?;
                check_ike(plan, node, *ike)
            }
            Notice::Ike(Event::IkeRekeyed { new, .. }) => check_ike(plan, node, *new),
            Notice::Ike(Event::ChildUp(up)) => check_child(plan, node, up),
            _ => Ok(()),
        }
    }

    /// RFC 5723 section 4.3.1: a ticket is used once, and the peer of its session was authenticated.
    fn check_resumed(&mut self, node: &Node, old: IkeSaId) -> Checked {
        if !self.was_up(node, old) {
            return violated(format!("node {} resumes {old}, whose peer it never authenticated", node.index));
        }
        if !self.resumed.insert((node.incarnation(), old)) {
            return violated(format!("node {} resumes {old} a second time", node.index));
        }
        Ok(())
    }

    /// Checks that both sides of an IKE SA derived the same keys.
    pub(super) fn check_ike_keys(&self, node: &Node, other: &Node, spis: IkeSpis) -> Checked {
        let keys_of = |node: &Node| self.latest_keys(node.incarnation(), spis);
        match (keys_of(node), keys_of(other)) {
            (Some(ours), Some(theirs)) if ours == theirs => Ok(()),
            _ => violated(format!(
                "nodes {} and {} have different keys for an IKE SA",
                node.index, other.index
            )),
        }
    }

    fn latest_keys(&self, incarnation: Incarnation, spis: IkeSpis) -> Option<&IkeKeys> {
        self.ike_keys.get(&(incarnation, [spis.initiator, spis.responder]))?.last()
    }

    /// Keys of an IKE message. Each IKE_INTERMEDIATE exchange has the keys of the one before, and its
    /// response leaves after its keys were replaced.
    pub(super) fn keys_of_message(&self, incarnation: Incarnation, header: &Header) -> Option<&IkeKeys> {
        let all = self.ike_keys.get(&(incarnation, [header.spi_i, header.spi_r]))?;
        if header.exchange != ExchangeType::IKE_INTERMEDIATE {
            return all.last();
        }
        all.get(header.message_id.saturating_sub(1) as usize)
    }
}

/// Checks the additional key exchanges and the PPK of an IKE SA, unless it has been replaced already.
fn check_ike(plan: &Plan, node: &Node, id: IkeSaId) -> Checked {
    let Some(ike) = node.ikes().into_iter().find(|ike| ike.id == id) else { return Ok(()) };
    check_ike_status(plan, node, &ike)
}

pub(super) fn check_ike_status(plan: &Plan, node: &Node, ike: &IkeStatus) -> Checked {
    let wanted = &plan.setup.post_quantum;
    if [wanted.ike, wanted.ppk].iter().any(|demand| demand.outcome() == Outcome::Refused) {
        return violated(format!("node {}: {} is up although one side refuses it", node.index, ike.id));
    }
    let (rounds, agreed) =
        (wanted.agreed_rounds(wanted.ike), ike.suite.map(|suite| suite.additional.count()));
    if agreed != Some(rounds) {
        return violated(format!(
            "node {}: {} has {agreed:?} additional key exchanges instead of {rounds}",
            node.index, ike.id
        ));
    }
    // A resumed IKE SA has the PPK of its session.
    let (wants_ppk, uses_ppk) = (wanted.ppk.outcome() == Outcome::Used, ike.ppk_id.is_some());
    if uses_ppk != wants_ppk {
        return violated(format!(
            "node {}: {} uses a PPK: {uses_ppk}, but should: {wants_ppk}",
            node.index, ike.id
        ));
    }
    Ok(())
}

fn check_child(plan: &Plan, node: &Node, up: &ChildUp) -> Checked {
    let wanted = &plan.setup.post_quantum;
    let rounds = if up.suite.kex.is_some() { wanted.agreed_rounds(wanted.child) } else { 0 };
    let agreed = up.suite.additional.count();
    if agreed != rounds {
        return violated(format!(
            "node {}: Child SA {} has {agreed} additional key exchanges instead of {rounds}",
            node.index, up.id
        ));
    }
    // RFC 7296 section 1.2: only the Child SA of IKE_AUTH has no key exchange.
    if up.replaces.is_some() && plan.setup.pfs && up.suite.kex.is_none() {
        return violated(format!(
            "node {}: Child SA {} was rekeyed without a key exchange",
            node.index, up.id
        ));
    }
    Ok(())
}
