//! Reauthentication: a new IKE SA beside the old one, which is then closed (RFC 7296 section 2.8.3).
//!
//! The old IKE SA may be rekeyed meanwhile, by the peer or by us. So the two are linked by the origin of the
//! old one: the IKE SA whose IKE_AUTH exchange authenticated the peer. Every successor has the same origin.

use super::Ike;
use crate::child::Wish;
use crate::sa::{IkeSa, Role};
use crate::{Down, Env, Event, IkeSaId, NotBegun};
use casemate_sa::Instant;
use core::time::Duration;

/// After so long, a response has arrived in spite of some losses.
const ARRIVES: Duration = Duration::from_secs(10);

/// What takes the place of an IKE SA that is due for reauthentication.
enum Other {
    /// It is being set up. What comes of it is known soon.
    Begun,
    /// It is there.
    Established,
}

impl Ike {
    /// Begins a new IKE SA beside the old one, which is closed once the new one is established.
    pub(super) fn reauthenticate(&mut self, old: IkeSaId, env: &mut Env<'_>) {
        let Some(sa) = self.sas.get(old) else { return };
        let (connection, children) = (sa.head.connection.clone(), sa.children_to_move());
        let predecessor = sa.predecessor();
        match self.other_of(sa, env.now) {
            Some(Other::Begun) => return,
            Some(Other::Established) => {
                self.act(old, env, |sa, cx| sa.end(Down::Reauth, cx));
                return;
            }
            None => {}
        }
        let wishes = children.into_iter().map(|child| Wish::new(child, None)).collect();
        // The old one is closed soon, so a full table does not stop its reauthentication.
        let most = self.shared.settings.ike_sas_with_replaced();
        match self.begin(&connection, wishes, most, env) {
            Ok(id) => self.head_of(id, |head| head.reauthenticates = Some(predecessor)),
            // Only the peer can do it.
            Err(NotBegun::NoRemoteAddress) => {
                self.act(old, env, |sa, cx| sa.end(Down::Reauth, cx));
            }
            Err(error) => self.shared.events.push_back(Event::NotBegun { connection, error }),
        }
    }

    /// The IKE SA that takes the place of `old`, if there is one.
    fn other_of(&self, old: &IkeSa, now: Instant) -> Option<Other> {
        let others = || self.sas.of_connection(&old.head.connection).filter(|sa| sa.origin() != old.origin());
        if others().any(|sa| sa.reauthenticates(old.origin())) {
            return Some(Other::Begun);
        }
        // Two that both sides began at once do not make each other anew: then both would be closed.
        let apart = old.head.connection.reauth.and_then(|time| time.checked_div(2)).unwrap_or_default();
        let since = old.peer_since()?;
        let near = |sa: &&IkeSa| sa.takes_wishes() && sa.head.path.remote.ip() == old.head.path.remote.ip();
        for other in others().filter(near) {
            let Some(its) = other.peer_since() else {
                if other.origin() > old.origin() {
                    return Some(Other::Begun);
                }
                continue;
            };
            if !other.has_scope_of(old) {
                continue;
            }
            let is_newer = other.origin() > old.origin() && its > since.after(apart);
            // Of two that both sides began at once, the one with the lower SPIs is redundant: both sides choose the same.
            let is_twin = its <= since.after(apart) && since <= its.after(apart);
            if is_newer || (is_twin && other.head.spis() > old.head.spis()) {
                // The response that establishes it at the peer may be on its way: the peer closes the old one then, and if it
                // does not, we do when the old one is due again.
                let is_known = other.head.role == Role::Initiator || now.since(its) >= ARRIVES;
                return Some(if is_known { Other::Established } else { Other::Begun });
            }
        }
        None
    }

    /// Closes what has this origin, because another IKE SA has been authenticated in its place. An IKE SA
    /// that another has replaced is closed by the peer.
    pub(super) fn end_origin(&mut self, origin: IkeSaId, env: &mut Env<'_>) {
        let ends = |sa: &&IkeSa| sa.origin() == origin && sa.has_place();
        let ended = self.sas.values().filter(ends).map(|sa| sa.head.id).collect::<alloc::vec::Vec<_>>();
        for id in ended {
            self.act(id, env, |sa, cx| sa.end(Down::Reauth, cx));
        }
    }
}
