//! Reauthentication: sets up a new IKE SA beside the old one, which is then closed (RFC 7296 section 2.8.3).
//!
//! Either side may rekey the old IKE SA meanwhile. The new IKE SA therefore refers to the origin of the old
//! one: the IKE SA whose IKE_AUTH exchange authenticated the peer. Every successor has the same origin.

use super::Ike;
use super::effects::RefusedReauthentication;
use super::retries::Retry;
use crate::child_sa::ChildRequest;
use crate::state::IkeSa;
use crate::{Context, DownReason, Event, ForgottenSign, Host, IkeSaId, Lookup, Role};
use alloc::vec::Vec;
use casemate_sa::Instant;
use core::time::Duration;

/// Time after which a response has arrived in spite of some losses.
const RESPONSE_ARRIVAL: Duration = Duration::from_secs(10);

/// Time within which two IKE SAs that both sides begin at once are established: half-open IKE SAs last 30
/// seconds, and retransmissions of the last request take 15.
#[cfg(feature = "records")]
pub(crate) const AT_ONCE: Duration = Duration::from_secs(45);

/// State of the IKE SA that replaces one that is due for reauthentication.
enum Replacement {
    /// The IKE SA is being set up.
    Connecting,
    /// The IKE SA is established.
    Established,
}

impl Ike {
    /// Starts a new IKE SA beside the old one. The old IKE SA is closed once the new one is established.
    pub(super) fn reauthenticate(&mut self, old: IkeSaId, host: &mut dyn Host, context: &mut Context<'_>) {
        let Some(sa) = self.sas.get(old) else { return };
        let (connection, children) = (sa.common.connection.clone(), sa.children_to_reauthenticate());
        if !self.shared.connections.contains(&connection) {
            return;
        }
        let predecessor = sa.predecessor();
        match self.find_replacement(sa, context.now) {
            Some(Replacement::Connecting) => return,
            Some(Replacement::Established) => {
                self.apply_to_sa(old, host, context, |sa, step| sa.close(DownReason::Reauth, step));
                return;
            }
            None => {}
        }
        let child_requests = children.into_iter().map(|child| ChildRequest::new(child, None)).collect();
        // A resumed session does not authenticate the peer.
        #[cfg(feature = "resumption")]
        self.shared.resumption.client.forget(&connection.name, None);
        // The old IKE SA is closed soon, so a full table does not prevent its reauthentication.
        let limit = self.shared.settings.ike_sas_with_replaced();
        // The peer is where its name led before, so there is no look-up to wait for.
        let path = connection.path(Lookup::Cached, context.routes);
        let begin = |path| self.begin_ike_sa(&connection, path, child_requests, limit, host, context);
        match path.and_then(begin) {
            Ok(id) => self.update_common(id, |common| common.predecessor = Some(predecessor)),
            // Only the peer can start the new IKE SA.
            Err(error) if error.is_final() => {
                self.apply_to_sa(old, host, context, |sa, step| sa.close(DownReason::Reauth, step));
            }
            Err(error) => self.shared.events.push_back(Event::InitiateFailed { connection, error }),
        }
    }

    /// Starts a new IKE SA with another gateway beside one that its gateway has redirected. It replaces an
    /// attempt that no host has answered yet, such as that of an earlier redirect.
    #[cfg(feature = "redirect")]
    pub(super) fn follow_redirect(
        &mut self,
        old: IkeSaId,
        redirect: crate::redirect::Redirect,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let Some(origin) = self.sas.get(old).map(IkeSa::origin) else { return };
        self.cancel_replacement(origin, host, context);
        let Some(sa) = self.sas.get(old) else { return };
        if let Some(Replacement::Connecting) = self.find_replacement(sa, context.now) {
            return;
        }
        let (connection, children) = (sa.common.connection.clone(), sa.children_to_reauthenticate());
        let (predecessor, path) = (sa.predecessor(), sa.common.path);
        if !self.shared.connections.contains(&connection)
            || self.sas.current_count() >= self.shared.settings.ike_sas_with_replaced()
        {
            return;
        }
        let child_requests = children.into_iter().map(|child| ChildRequest::new(child, None)).collect();
        let mut step = self.step(host, context);
        let begun =
            crate::state::InitSent::begin_redirected((connection, path), redirect, child_requests, &mut step);
        let Ok(mut sa) = begun else { return };
        sa.common.predecessor = Some(predecessor);
        self.sas.insert(sa);
        self.close_excess_replaced(host, context);
        self.run_effects(host, context);
    }

    /// Starts a new IKE SA beside one that the peer seems to have forgotten, if the connection names the
    /// peer's address and no other IKE SA with the peer is established or being set up. If the peer responds,
    /// the old IKE SA ends as after a reauthentication. If the peer has set up a newer IKE SA, the old one
    /// ends at once.
    pub(super) fn replace_forgotten(&mut self, old: IkeSaId, host: &mut dyn Host, context: &mut Context<'_>) {
        let Some(sa) = self.sas.get(old) else { return };
        let (connection, peer) = (sa.common.connection.clone(), sa.common.path.remote.ip());
        if !self.shared.connections.contains(&connection) {
            return;
        }
        let is_successor = |other: &IkeSa| {
            other.is_current() && other.has_same_scope(sa) && other.authenticated_at() > sa.authenticated_at()
        };
        if sa.is_reported_forgotten() && self.sas.of_connection(&connection).any(is_successor) {
            let sign = sa.forgotten_by().unwrap_or(ForgottenSign::Report);
            let reason = DownReason::Forgotten { sign, is_reauthenticated: false };
            self.apply_to_sa(old, host, context, |sa, step| sa.drop_silently(reason, step));
            return;
        }
        let path = connection.path(Lookup::Cached, context.routes).ok();
        let Some(path) = path.filter(|path| path.remote.ip() == peer) else { return };
        if self.any_with(peer, context.now, |other| other.common.id != old && other.is_alive()) {
            return;
        }
        let (children, predecessor) = (sa.children_to_reauthenticate(), sa.predecessor());
        #[cfg(feature = "resumption")]
        if let Some(lost) = sa.forgotten_session() {
            self.shared.resumption.client.add(lost);
        }
        let child_requests = children.into_iter().map(|child| ChildRequest::new(child, None)).collect();
        // The peer may be setting up a new IKE SA itself, which needs the room.
        let limit = self.shared.settings.max_ike_sas;
        if let Ok(id) = self.begin_ike_sa(&connection, path, child_requests, limit, host, context) {
            self.update_common(id, |common| common.predecessor = Some(predecessor));
        }
    }

    /// Ends the attempts to replace an IKE SA that no host has answered yet: the peer has just set up a new
    /// one itself, or has redirected this host elsewhere.
    pub(super) fn cancel_replacement(
        &mut self,
        origin: IkeSaId,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let is_attempt = |sa: &&IkeSa| sa.is_first_request_outstanding() && sa.reauthenticates(origin);
        let attempts = self.sas.values().filter(is_attempt).map(|sa| sa.common.id).collect::<Vec<_>>();
        for id in attempts {
            self.apply_to_sa(id, host, context, |sa, step| sa.drop_silently(DownReason::Replaced, step));
        }
    }

    /// Finds the IKE SA that replaces `old`.
    fn find_replacement(&self, old: &IkeSa, now: Instant) -> Option<Replacement> {
        let others =
            || self.sas.of_connection(&old.common.connection).filter(|sa| sa.origin() != old.origin());
        if others().any(|sa| sa.reauthenticates(old.origin())) {
            return Some(Replacement::Connecting);
        }
        // Two IKE SAs that the sides started at the same time do not replace each other: both would be
        // closed.
        let half_interval =
            old.common.connection.reauth.and_then(|time| time.checked_div(2)).unwrap_or_default();
        let old_since = old.authenticated_at()?;
        let near = |sa: &&IkeSa| {
            sa.accepts_child_requests() && sa.common.path.remote.ip() == old.common.path.remote.ip()
        };
        for other in others().filter(near) {
            let Some(since) = other.authenticated_at() else {
                if other.origin() > old.origin() {
                    return Some(Replacement::Connecting);
                }
                continue;
            };
            if !other.has_same_scope(old) {
                continue;
            }
            let is_newer = other.origin() > old.origin() && since > old_since.after(half_interval);
            // Of two IKE SAs that the sides started at the same time, the one whose origin has the lower SPIs
            // is redundant. Both sides choose the same one, although either may just have rekeyed one.
            let is_simultaneous =
                since <= old_since.after(half_interval) && old_since <= since.after(half_interval);
            if is_newer || (is_simultaneous && other.origin_spis() > old.origin_spis()) {
                // The response that establishes the new IKE SA at the peer may be in transit. The peer then
                // closes the old one. If it does not, this side does when the old one is due again.
                let is_known = other.common.role == Role::Initiator || now.since(since) >= RESPONSE_ARRIVAL;
                return Some(if is_known { Replacement::Established } else { Replacement::Connecting });
            }
        }
        None
    }

    /// Closes an IKE SA that this host has set up in place of another one, if the peer has set up one at the
    /// same time: both hosts may have found that one of them has lost the keys of the former IKE SA. The one
    /// whose origin has the lower SPIs is redundant. Only its initiator closes it, so that one remains.
    #[cfg(feature = "records")]
    pub(super) fn close_duplicate(&mut self, ike: IkeSaId, host: &mut dyn Host, context: &mut Context<'_>) {
        // The peer assigns virtual addresses only in the IKE SA that this host has initiated.
        let may_end = |sa: &&IkeSa| sa.accepts_child_requests() && sa.predecessor().addrs.is_empty();
        let Some(sa) = self.sas.get(ike).filter(may_end) else { return };
        let is_at_once = |other: &IkeSa| match (other.authenticated_at(), sa.authenticated_at()) {
            (Some(one), Some(other)) => one <= other.after(AT_ONCE) && other <= one.after(AT_ONCE),
            _ => false,
        };
        let stays = |other: &IkeSa| {
            other.is_current()
                && other.accepts_child_requests()
                && other.is_initiated_by_peer()
                && other.has_same_scope(sa)
                && other.common.path.remote.ip() == sa.common.path.remote.ip()
                && other.origin_spis() > sa.origin_spis()
                && is_at_once(other)
        };
        if self.sas.of_connection(&sa.common.connection).any(stays) {
            self.apply_to_sa(ike, host, context, |sa, step| sa.close(DownReason::Reauth, step));
        }
    }

    /// IKE SAs with this origin that no successor has replaced.
    fn current_of_origin(&self, origin: IkeSaId) -> Vec<IkeSaId> {
        let is_one = |sa: &&IkeSa| sa.origin() == origin && sa.is_current();
        self.sas.values().filter(is_one).map(|sa| sa.common.id).collect()
    }

    /// Notes that a host has refused the new IKE SA. It may be any host, so the IKE SA with this origin stays
    /// until its deadline. If the peer accepts only one IKE SA, setting up the new one afterwards helps. If
    /// it has ended meanwhile, its Child SAs were left to the IKE SA that is now refused.
    pub(super) fn note_refused_reauthentication(
        &mut self,
        refused: RefusedReauthentication,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        let RefusedReauthentication { origin, connection, children } = refused;
        let refused = self.current_of_origin(origin);
        for id in &refused {
            self.apply_to_sa(*id, host, context, |sa, step| sa.note_refused_reauthentication(step));
        }
        // If this host is closing the IKE SA, its end sets them up, if they are still wanted.
        let is_gone = !self.sas.values().any(|sa| sa.origin() == origin && !sa.is_replaced());
        if is_gone && !children.is_empty() {
            let (at, restores) = (context.now, true);
            let retry = Retry { connection, children, at, attempts: 1, waits_for_addrs: false, restores };
            self.shared.retries.add(retry);
        }
    }

    /// Closes the IKE SA with this origin, because another IKE SA has been authenticated in its place. The
    /// peer closes an IKE SA that has been replaced by rekeying.
    pub(super) fn close_origin(&mut self, origin: IkeSaId, host: &mut dyn Host, context: &mut Context<'_>) {
        for id in self.current_of_origin(origin) {
            self.apply_to_sa(id, host, context, |sa, step| match sa.forgotten_by() {
                // The Delete payload would have to wait for the outstanding request.
                Some(sign) => {
                    sa.drop_silently(DownReason::Forgotten { sign, is_reauthenticated: true }, step)
                }
                None => sa.close(DownReason::Reauth, step),
            });
        }
    }
}
