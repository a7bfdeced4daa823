//! SPDs that belong to one Child SA or to one IKE SA: which numbers they have, and how long they exist.
//!
//! A number is in use while a Child SA has it, and that of an IKE SA also while the IKE SA exists. Rekeying
//! changes neither. Reauthentication does: its IKE SA is a new one. Two Child SAs that do not replace each
//! other never share a number of their own, even if peer, identity and traffic are the same. They may belong
//! to two hosts behind one NAT, and none may get the packets of the other.

mod numbers;

use crate::notice::PolicyChange;
use crate::{InstallError, Notice};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_ike::config::Connection;
use casemate_ike::{ByOrigin, ChildId, ChildUp, IkeSaId};
use casemate_sa::table::OrderedMap;
use casemate_sa::{SpdId, SpdOwner, SpdPair, SpdRule, SpdRules};
use numbers::{Key, Numbers};

pub(crate) use numbers::PeerName;

/// The SPDs that belong to Child SAs and IKE SAs.
#[derive(Default)]
pub(crate) struct OwnSpds {
    ikes: ByOrigin<IkeSpds>,
    children: OrderedMap<ChildId, ChildSpds>,
    numbers: Numbers,
}

/// The SPDs of an IKE SA and its successors by rekeying.
struct IkeSpds {
    peer: Option<Arc<PeerName>>,
    own: Vec<(Key, SpdId)>,
}

/// A Child SA that has an SPD of its own, or one of its IKE SA.
struct ChildSpds {
    id: ChildId,
    pair: SpdPair,
}

impl ChildSpds {
    fn has(&self, spd: SpdId) -> bool {
        [self.pair.outbound, self.pair.inbound].contains(&spd)
    }
}

impl OwnSpds {
    /// The SPDs of a Child SA. Those of its own are new, unless it replaces another Child SA by rekeying.
    pub(crate) fn child_up(
        &mut self,
        up: &ChildUp,
        peer: Option<PeerName>,
        notices: &mut VecDeque<Notice>,
    ) -> Result<SpdPair, InstallError> {
        let rules = up.child.spds;
        if let Some(pair) = rules.pair() {
            return Ok(pair);
        }
        let origin = self.enter(up.ike, peer);
        let before = up.replaces.and_then(|old| self.children.get(old)).map(|old| old.pair);
        let pair = match before {
            Some(pair) => pair,
            None => self.assign(rules, origin, notices)?,
        };
        [pair.outbound, pair.inbound].into_iter().for_each(|spd| self.numbers.hold(spd));
        self.children.insert(up.id, ChildSpds { id: up.id, pair });
        Ok(pair)
    }

    /// Notes that an IKE SA is up, and gives it the SPDs that its Child SAs share. If no number is left, its
    /// Child SAs try again.
    pub(crate) fn ike_up(
        &mut self,
        ike: IkeSaId,
        connection: &Connection,
        peer: Option<PeerName>,
        notices: &mut VecDeque<Notice>,
    ) {
        let rules = || connection.children.iter().map(|child| child.spds);
        if rules().all(|rules| rules.pair().is_some()) {
            return;
        }
        let origin = self.enter(ike, peer);
        for rules in rules() {
            let of_ike = |rule| match rule {
                SpdRule::Own(own) if own.owner == SpdOwner::IkeSa => rule,
                _ => SpdRule::default(),
            };
            let rules = SpdRules { outbound: of_ike(rules.outbound), inbound: of_ike(rules.inbound) };
            let _ = self.assign(rules, origin, notices);
        }
    }

    /// The entry of an IKE SA. Returns its origin.
    fn enter(&mut self, ike: IkeSaId, peer: Option<PeerName>) -> IkeSaId {
        self.ikes.origin(ike).unwrap_or_else(|| {
            self.ikes.insert(ike, IkeSpds { peer: peer.map(Arc::new), own: Vec::new() });
            ike
        })
    }

    /// SPDs by these rules. Those that the IKE SA has already are used again.
    fn assign(
        &mut self,
        rules: SpdRules,
        origin: IkeSaId,
        notices: &mut VecDeque<Notice>,
    ) -> Result<SpdPair, InstallError> {
        let mut fresh = Vec::new();
        let outbound = self.spd(rules.outbound, true, origin, &mut fresh)?;
        let inbound = self.spd(rules.inbound, false, origin, &mut fresh)?;
        let peer = self.peer(origin);
        for (key, spd) in fresh {
            self.numbers.take(spd, peer.clone());
            notices.push_back(Notice::Policy(PolicyChange::SpdAdded { spd }));
            if let Some(entry) = self.ikes.get_mut(origin).filter(|_| key.is_of_ike()) {
                entry.own.push((key, spd));
                self.numbers.hold(spd);
            }
        }
        Ok(SpdPair { outbound, inbound })
    }

    /// The SPD of one direction. Adds it to `fresh` if nothing has its number yet.
    fn spd(
        &self,
        rule: SpdRule,
        is_outbound: bool,
        origin: IkeSaId,
        fresh: &mut Vec<(Key, SpdId)>,
    ) -> Result<SpdId, InstallError> {
        let own = match rule {
            SpdRule::Fixed(spd) => return Ok(spd),
            SpdRule::Own(own) => own,
        };
        let key = Key::new(&own, is_outbound);
        let known = fresh.iter().find(|(other, _)| *other == key).map(|(_, spd)| *spd);
        if let Some(spd) = known.or_else(|| self.of_ike(origin, key)) {
            return Ok(spd);
        }
        let taken: Vec<SpdId> = fresh.iter().map(|(_, other)| *other).collect();
        let spd = self.numbers.next(own.numbers, self.peer(origin).as_deref(), &taken)?;
        fresh.push((key, spd));
        Ok(spd)
    }

    /// The peer of an IKE SA.
    fn peer(&self, origin: IkeSaId) -> Option<Arc<PeerName>> {
        self.ikes.get(origin)?.peer.clone()
    }

    /// The SPD that an IKE SA has.
    fn of_ike(&self, origin: IkeSaId, key: Key) -> Option<SpdId> {
        let own = &self.ikes.get(origin)?.own;
        own.iter().find(|(known, _)| *known == key).map(|(_, spd)| *spd)
    }

    /// Notes that a Child SA has ended and its policies are removed.
    pub(crate) fn child_down(&mut self, id: ChildId, notices: &mut VecDeque<Notice>) {
        let Some(child) = self.children.remove(id) else { return };
        [child.pair.outbound, child.pair.inbound].into_iter().for_each(|spd| self.release(spd, notices));
    }

    /// Notes that an IKE SA replaces another one.
    pub(crate) fn ike_rekeyed(&mut self, old: IkeSaId, new: IkeSaId) {
        self.ikes.rekeyed(old, new);
    }

    /// Notes that an IKE SA has ended.
    pub(crate) fn ike_down(&mut self, ike: IkeSaId, notices: &mut VecDeque<Notice>) {
        let Some(ended) = self.ikes.ended(ike) else { return };
        ended.own.into_iter().for_each(|(_, spd)| self.release(spd, notices));
    }

    /// Notes that there is no interface for this SPD. Returns the Child SAs that have it, which must be
    /// closed. Later ones of the same IKE SA get another number.
    pub(crate) fn reject(&mut self, spd: SpdId, notices: &mut VecDeque<Notice>) -> Vec<ChildId> {
        let mut released = 0_usize;
        for (_, entry) in self.ikes.iter_mut() {
            let before = entry.own.len();
            entry.own.retain(|(_, own)| *own != spd);
            released = released.saturating_add(before.saturating_sub(entry.own.len()));
        }
        (0..released).for_each(|_| self.release(spd, notices));
        self.children.values().filter(|child| child.has(spd)).map(|child| child.id).collect()
    }

    /// The SPDs that the Child SAs of an IKE SA share.
    pub(crate) fn of_ike_sa(&self, ike: IkeSaId, rules: SpdRules) -> Option<SpdPair> {
        let origin = self.ikes.origin(ike)?;
        let of = |rule, is_outbound| match rule {
            SpdRule::Own(own) => self.of_ike(origin, Key::new(&own, is_outbound)),
            SpdRule::Fixed(_) => None,
        };
        let [outbound, inbound] = [of(rules.outbound, true), of(rules.inbound, false)];
        outbound.or(inbound)?;
        Some(SpdPair { outbound: outbound.unwrap_or_default(), inbound: inbound.unwrap_or_default() })
    }

    fn release(&mut self, spd: SpdId, notices: &mut VecDeque<Notice>) {
        if self.numbers.release(spd) {
            notices.push_back(Notice::Policy(PolicyChange::SpdRemoved { spd }));
        }
    }
}
