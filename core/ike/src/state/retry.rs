//! Restarts of SAs that ended or failed, and the pauses between attempts.
//!
//! There is a pause between any two attempts, and pauses are bounded. A configuration that asks to keep
//! trying therefore does so at little cost.

use super::tasks::Pending;
use super::timers::Timer;
use crate::child_sa::{ChildRequest, ChildSa};
#[cfg(feature = "eap")]
use crate::config::Lookup;
use crate::config::{ChildConfig, Lifespan};
use crate::context::{Step, random_below};
use crate::engine::effects::Effect;
use crate::engine::retries::Retry;
use crate::negotiate::Offer;
use crate::state::{Established, IkeSa, SaCommon, State, Task};
use crate::transport::Content;
use crate::{ChildId, DownReason, Event, Role};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::KexMethod;
use casemate_sa::Instant;
use casemate_wire::ike::NotifyType;
use core::time::Duration;

/// Shortest pause. A random part is added.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
/// Number of attempts after which the pause no longer grows: 64 s, and up to 128 s with the random part.
const LONGEST_PAUSE: u8 = 5;
/// Lifetime after which an SA counts as stable. An SA that ends sooner may end soon again.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// Shortest pause after the peer has reported TEMPORARY_FAILURE (RFC 7296 section 2.25).
const BUSY_RETRY: Duration = Duration::from_secs(2);
/// Shortest pause after the peer has refused to restore an IKE SA, or this host has refused the peer. The
/// cause is often short: a server, an OCSP responder or a free address is missing. A random part is added.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Longest such pause without its random part.
const LONGEST_REFUSED_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Number of attempts at a silent peer after which the pause no longer grows: 16 s, and up to 32 s with the
/// random part. Each attempt takes about two minutes itself.
const LONGEST_SILENT_PAUSE: u8 = 3;
/// Shortest lifetime that is respected. A peer that announces less does not make this host start without
/// pause.
#[cfg(feature = "eap")]
const SHORTEST_LIFETIME: Duration = Duration::from_secs(10);

/// Time of the next attempt after `attempts` consecutive ones. Each pause is twice as long as the one before.
/// A random part of up to its length is added, so that two peers rarely start together.
pub(crate) fn retry_at(attempts: u8, step: &mut Step<'_, '_>) -> Instant {
    let pause =
        FIRST_PAUSE.saturating_mul(1_u32.checked_shl(attempts.min(LONGEST_PAUSE).into()).unwrap_or(1));
    let random = random_below(step.context.rng, pause);
    step.context.now.after(pause.saturating_add(random))
}

/// Schedules another attempt to restore an IKE SA after one has failed, if children that are to be kept up
/// were requested, and the connection allows it.
pub(crate) fn restore_later(
    common: &SaCommon,
    mut children: Vec<Arc<ChildConfig>>,
    reason: DownReason,
    step: &mut Step<'_, '_>,
) {
    children.retain(|child| child.is_kept_up());
    if !common.restores || !common.connection.keeps_trying || children.is_empty() {
        return;
    }
    let at = match reason {
        DownReason::DeadPeer => retry_at(common.attempts.min(LONGEST_SILENT_PAUSE), step),
        DownReason::Refused(_) | DownReason::Fault(_) => {
            let factor = 1_u32.checked_shl(common.attempts.into()).unwrap_or(u32::MAX);
            let pause = REFUSED_PAUSE.saturating_mul(factor).min(LONGEST_REFUSED_PAUSE);
            let random = random_below(step.context.rng, pause.checked_div(4).unwrap_or_default());
            step.context.now.after(pause.saturating_add(random))
        }
        _ => return,
    };
    let (connection, attempts) = (common.connection.clone(), common.attempts.saturating_add(1));
    step.effect(Effect::Retry(Retry {
        connection,
        children,
        at,
        attempts,
        waits_for_addrs: false,
        restores: true,
    }));
}

/// Number of consecutive attempts that ended soon, after an SA with `attempts` such predecessors ended after
/// `lasted`.
pub(super) fn attempts_after(lasted: Duration, attempts: u8) -> u8 {
    if lasted >= STABLE_AFTER { 0 } else { attempts.saturating_add(1) }
}

/// Time of the reauthentication of a new IKE SA, if it is configured. As with rekeying, a random part is
/// subtracted. If both sides have the same time, the initiator comes first: the responder waits longer, by
/// less than the time in which the reauthentication must succeed.
pub(super) fn reauth_at(common: &SaCommon, step: &mut Step<'_, '_>) -> Option<Instant> {
    #[cfg(feature = "resumption")]
    if let Some(resumes) = common.resumes {
        // The peer was not authenticated anew.
        return resumes.reauth_at;
    }
    let time = common.connection.reauth?;
    let Lifespan { rekey, jitter: random, hard } = common.connection.lifespan;
    let tenth = time.checked_div(10).unwrap_or_default();
    let early = random_below(step.context.rng, random.min(tenth));
    let over = hard.map_or(tenth, |hard| hard.saturating_sub(rekey.unwrap_or(time)));
    let later = match common.role {
        Role::Initiator => Duration::ZERO,
        Role::Responder => tenth.min(over).checked_div(2).unwrap_or_default(),
    };
    Some(step.context.now.after(time.saturating_sub(early).saturating_add(later)))
}

/// Data of AUTH_LIFETIME (RFC 4478) for the peer: seconds until it must have reauthenticated. `None` if this
/// host does not demand it, or can start the new IKE SA itself.
#[cfg(feature = "eap")]
pub(super) fn announced_lifetime(common: &SaCommon, step: &Step<'_, '_>) -> Option<[u8; 4]> {
    let time = common.connection.reauth?;
    #[cfg(feature = "resumption")]
    let time =
        common.resumes.map_or(Some(time), |resumes| Some(resumes.reauth_at?.since(step.context.now)))?;
    // The IKE SA is closed up to a tenth earlier than configured.
    let least = time.saturating_sub(time.checked_div(10).unwrap_or_default());
    match common.connection.path(Lookup::Cached, step.context.routes) {
        Err(error) if error.is_final() => {
            Some(u32::try_from(least.as_secs()).unwrap_or(u32::MAX).to_be_bytes())
        }
        _ => None,
    }
}

/// Reason for the end of an SA, and which side closed it.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndCause {
    /// Reason.
    pub(super) reason: DownReason,
    /// The peer closed the SA, perhaps at the same time as this host. The peer may be about to set it up
    /// again.
    pub(super) by_peer: bool,
}

impl EndCause {
    /// Closed by this host, perhaps because the peer decided so or is dead.
    pub(super) const fn local(reason: DownReason) -> Self {
        Self { reason, by_peer: matches!(reason, DownReason::Peer) }
    }

    /// Closed by the peer.
    pub(super) const fn by_peer(reason: DownReason) -> Self {
        Self { reason, by_peer: true }
    }

    /// Time of the restart. If the peer may restart the SA as well, the responder waits longer than the
    /// initiator, so that only one of them does.
    pub(super) fn restart_at(self, attempts: u8, role: Role, step: &mut Step<'_, '_>) -> Instant {
        match self.reason {
            reason if reason.is_reauthentication() => step.context.now,
            _ if self.by_peer && role == Role::Responder => retry_at(attempts.saturating_add(1), step),
            _ if self.by_peer || attempts > 0 => retry_at(attempts, step),
            _ => step.context.now,
        }
    }
}

impl IkeSa {
    /// Notes that the IKE SA that reauthenticates this one was refused. After the first refusal, this one has
    /// a tenth of `reauth_time` left, or less.
    pub(crate) fn note_refused_reauthentication(mut self, step: &Step<'_, '_>) -> Self {
        let State::Established(state) = &mut self.state else { return self };
        let is_first = !core::mem::replace(&mut state.is_reauth_refused, true);
        if let Some(time) = self.common.connection.reauth.filter(|_| is_first) {
            let end = step.context.now.after(time.checked_div(10).unwrap_or_default());
            let known = state.timers.get(Timer::Expire);
            state.timers.set(Timer::Expire, Some(known.map_or(end, |at| at.min(end))));
        }
        self
    }
}

impl Established {
    /// Reauthenticates before the end of the lifetime that a message of the peer announces: in the second
    /// tenth before it, at a random time.
    #[cfg(feature = "eap")]
    pub(super) fn limit_authentication(&mut self, content: &Content<'_>, step: &mut Step<'_, '_>) {
        let announced = content
            .notify(casemate_wire::ike::NotifyType::AUTH_LIFETIME)
            .and_then(|notify| notify.data.as_array());
        let Some(announced) = announced else { return };
        let lifetime = Duration::from_secs(u32::from_be_bytes(*announced).into()).max(SHORTEST_LIFETIME);
        let tenth = lifetime.checked_div(10).unwrap_or_default();
        let early = tenth.saturating_add(random_below(step.context.rng, tenth));
        let at = step.context.now.after(lifetime.saturating_sub(early));
        #[cfg(feature = "resumption")]
        self.ticket.limit_deadline(at);
        let before = self.timers.get(Timer::Reauthenticate);
        self.timers.set(Timer::Reauthenticate, Some(before.map_or(at, |before| before.min(at))));
    }

    /// Whether this host is deleting the Child SA, or is about to, because it is no longer wanted. An expired
    /// Child SA, or one that the peer decided to close, is still wanted.
    fn is_being_deleted(&self, child: &ChildSa) -> bool {
        let is_unwanted =
            |id: ChildId, reason| id == child.id && !matches!(reason, DownReason::Expired | DownReason::Peer);
        matches!(self.pending, Some(Pending::DeleteChild { id, reason }) if is_unwanted(id, reason))
            || self
                .tasks
                .iter()
                .any(|task| matches!(task, Task::DeleteChild(id, reason) if is_unwanted(*id, *reason)))
    }

    /// Configurations of existing and requested Child SAs that are to be set up again.
    pub(super) fn children_to_restart(&self, reason: DownReason) -> Vec<Arc<ChildConfig>> {
        let mut again: Vec<Arc<ChildConfig>> = Vec::new();
        #[cfg(feature = "records")]
        again.extend(self.again.iter().flatten().cloned());
        let here =
            self.children().iter().filter(|child| !self.is_being_deleted(child)).map(|child| &child.config);
        for child in here.chain(self.requested_children()).filter(|child| child.restarts_after(reason)) {
            if !again.contains(child) {
                again.push(child.clone());
            }
        }
        again
    }

    /// Restarts a Child SA that ended, if its configuration asks for that and no other Child SA has replaced
    /// it.
    pub(super) fn restart_child(&mut self, ended: &ChildSa, end: EndCause, step: &mut Step<'_, '_>) {
        let lasted = step.context.now.since(ended.installed_at);
        self.restart_child_after(&ended.config, end, attempts_after(lasted, ended.attempts), step);
    }

    fn restart_child_after(
        &mut self,
        child: &Arc<ChildConfig>,
        end: EndCause,
        attempts: u8,
        step: &mut Step<'_, '_>,
    ) {
        if self.is_open() && child.restarts_after(end.reason) && !self.has_or_requests(child) {
            let until = end.restart_at(attempts, self.channel.role(), step);
            self.tasks.push_back(Task::Child(Box::new(ChildRequest::restart(
                child.clone(),
                until,
                attempts,
            ))));
        }
    }

    /// Restarts a requested Child SA after the peer has closed it and the Child SA that it was to replace.
    pub(super) fn restart_requested_child(&mut self, child_request: &ChildRequest, step: &mut Step<'_, '_>) {
        self.restart_child_after(
            &child_request.config,
            EndCause::by_peer(DownReason::Peer),
            child_request.attempts,
            step,
        );
    }

    /// Requests a failed restart of a Child SA again after a pause, because nothing else would.
    pub(super) fn retry_request(&mut self, child_request: Option<ChildRequest>, step: &mut Step<'_, '_>) {
        let Some(ChildRequest { config, attempts, .. }) =
            child_request.filter(|child_request| !self.has_or_requests(&child_request.config))
        else {
            return;
        };
        let child_request = ChildRequest::restart(config, retry_at(attempts, step), attempts);
        self.tasks.push_back(Task::Child(Box::new(child_request)));
    }

    /// Schedules another rekeying of a Child SA after a pause, as long as the Child SA exists.
    pub(super) fn child_rekey_failed(
        &mut self,
        old: ChildId,
        config: &Arc<ChildConfig>,
        step: &mut Step<'_, '_>,
    ) {
        match self.child(old) {
            Some(child) if child.is_installed() => {
                child.rekey_at = Some(retry_at(child.rekey_failures, step));
                child.rekey_failures = child.rekey_failures.saturating_add(1);
            }
            Some(_) => {}
            // The peer closed the Child SA meanwhile. It was being replaced then, so `close_action` was not
            // applied.
            None => self.restart_child_after(config, EndCause::by_peer(DownReason::Peer), 0, step),
        }
    }

    /// Starts the reauthentication of the IKE SA: sets up a new IKE SA beside it, so that its Child SAs are
    /// closed when the new ones exist (RFC 7296 section 2.8.3). Tries again until it succeeds or the deadline
    /// passes.
    ///
    /// If the peer has virtual addresses from this host, only the peer can start the new IKE SA, because the
    /// initiator requests the addresses. The old IKE SA is then closed, so that the peer starts again.
    pub(super) fn reauthenticate(&mut self, common: &SaCommon, step: &mut Step<'_, '_>) {
        if !self.contents.leased.is_empty() {
            return self.tasks.push_back(Task::DeleteIke(DownReason::Reauth));
        }
        step.effect(Effect::Reauthenticate(common.id));
        let Lifespan { rekey, hard, .. } = common.connection.lifespan;
        if self.reauth_attempts == 0
            && let Some(hard) = hard
        {
            let over = hard.saturating_sub(rekey.or(common.connection.reauth).unwrap_or_default());
            let end = step.context.now.after(over);
            let known = self.timers.get(Timer::Expire);
            self.timers.set(Timer::Expire, Some(known.map_or(end, |at| at.min(end))));
            // A successor without authentication would outlive the deadline.
            self.timers.set(Timer::Rekey, None);
        }
        self.timers.set(Timer::Reauthenticate, Some(retry_at(self.reauth_attempts, step)));
        self.reauth_attempts = self.reauth_attempts.saturating_add(1);
    }

    /// Reports the peer's refusal and schedules another rekeying.
    pub(super) fn rekey_refused(&mut self, common: &SaCommon, refusal: NotifyType, step: &mut Step<'_, '_>) {
        let reason = DownReason::Refused(refusal);
        step.event(Event::IkeRekeyFailed { ike: common.id, connection: common.connection.clone(), reason });
        self.rekey_failed(step);
    }

    /// Repeats the request for a successor with the key exchange method that the peer asks for.
    pub(super) fn retry_with_kex(
        &mut self,
        common: &SaCommon,
        offers: &[Offer],
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) {
        let notify = content.notify(NotifyType::INVALID_KE_PAYLOAD);
        let id = notify.and_then(|notify| notify.data.as_array().map(|id| u16::from_be_bytes(*id)));
        let offered = |method: &KexMethod| offers.iter().any(|offer| offer.kex().any(|m| m == *method));
        let Some(method) = id.and_then(KexMethod::from_id).filter(offered) else {
            return self.rekey_refused(common, NotifyType::INVALID_KE_PAYLOAD, step);
        };
        match self.request_rekey_with(common, Some(method), step) {
            Ok(pending) => self.pending = pending,
            Err(fault) => {
                step.sa_fault(fault.into(), common.path, common);
                self.rekey_failed(step);
            }
        }
    }

    /// Closes the IKE SA, or its successor, at this time at the latest.
    #[cfg(feature = "redirect")]
    pub(crate) fn expire_by(&mut self, latest: Instant) {
        self.ends_by = Some(latest);
        let expiry = self.timers.get(Timer::Expire).map_or(latest, |at| at.min(latest));
        self.timers.set(Timer::Expire, Some(expiry));
    }

    /// Random time of the next attempt after TEMPORARY_FAILURE, so that both sides do not collide again.
    pub(super) fn busy_retry_at(step: &mut Step<'_, '_>) -> Instant {
        let wait = BUSY_RETRY.saturating_add(random_below(step.context.rng, BUSY_RETRY.saturating_mul(2)));
        step.context.now.after(wait)
    }

    /// Schedules another rekeying of the IKE SA after a pause.
    pub(super) fn rekey_failed(&mut self, step: &mut Step<'_, '_>) {
        self.timers.set(Timer::Rekey, Some(retry_at(self.rekey_failures, step)));
        self.rekey_failures = self.rekey_failures.saturating_add(1);
    }
}
