//! Queue of the requests of an established IKE SA. One request is outstanding at a time; the others wait in
//! the queue.

use super::create_child::PendingChild;
use super::established::Phase;
use super::rekey::PendingRekey;
use super::timers::Timer;
#[cfg(feature = "mobike")]
use crate::Path;
use crate::child_sa::ChildRequest;
#[cfg(feature = "records")]
use crate::child_sa::ChildSpi;
use crate::context::Step;
use crate::engine::effects::Effect;
#[cfg(feature = "records")]
use crate::engine::reauthentication::AT_ONCE;
#[cfg(feature = "mobike")]
use crate::mobike::Cookie2;
use crate::state::{Established, SaCommon, State};
use crate::{ChildId, DownReason, IkeSaId, StateFault};
use alloc::boxed::Box;
use casemate_sa::Instant;
use casemate_wire::ike::ExchangeType;

/// A request to send.
#[derive(Debug)]
pub(crate) enum Task {
    /// Create a Child SA.
    Child(Box<ChildRequest>),
    /// Rekey a Child SA.
    RekeyChild(ChildId),
    /// Delete a Child SA.
    DeleteChild(ChildId, DownReason),
    /// Delete an SA of the peer that this host has not, by our SPI of its Child SA.
    #[cfg(feature = "records")]
    DeleteSpi(ChildSpi),
    /// Ask the peer to leave out sequence numbers, so that this host accepts its packets (RFC 6311).
    #[cfg(feature = "records")]
    Synchronize,
    /// Rekey the IKE SA.
    RekeyIke,
    /// Delete the IKE SA.
    DeleteIke(DownReason),
    /// Close the IKE SA with this origin, which this IKE SA reauthenticates, once all its Child SAs have been
    /// requested here.
    DeletePredecessor(IkeSaId),
    /// Check the liveness of the peer.
    Liveness,
    /// Probe the path MTU.
    ProbePath,
    /// Send our token for this IKE SA to the peer (RFC 6290 section 4.3).
    SendCrashToken,
    /// Redirect the peer to another gateway (RFC 5685 section 5).
    #[cfg(feature = "redirect")]
    Redirect(crate::config::Gateway),
    /// Request a ticket (RFC 5723 section 4.1).
    #[cfg(feature = "resumption")]
    RequestTicket,
    /// Tell the peer that the SAs have moved to other addresses (RFC 4555 section 3.5).
    #[cfg(feature = "mobike")]
    UpdateAddresses,
    /// Tell the peer which addresses this host has besides that of the path (RFC 4555 section 3.6).
    #[cfg(feature = "mobike")]
    AnnounceAddresses,
    /// Check that the peer receives at its new address (RFC 4555 section 3.7).
    #[cfg(feature = "mobike")]
    CheckRoute,
}

impl Task {
    /// Whether the task creates a Child SA that did not exist before. A Child SA that ended may be requested
    /// again without end.
    fn requests_new_child(&self) -> bool {
        matches!(self, Self::Child(child_request) if !child_request.is_restart)
    }
}

impl Established {
    /// Earliest time to start a task; `None` while it waits for other tasks.
    pub(super) fn ready_at(&self, task: &Task) -> Option<Instant> {
        #[cfg(feature = "multiple-kex")]
        if let Some(series) = self.series.as_ref().filter(|_| !matches!(task, Task::DeleteIke(_))) {
            return series.allows_at(task);
        }
        #[cfg(feature = "records")]
        if !matches!(task, Task::Synchronize | Task::DeleteIke(_)) && self.is_synchronizing() {
            return None;
        }
        match task {
            Task::Child(child_request) => Some(child_request.postponed.until),
            // The peer may have postponed some of the Child SAs (RFC 7296 section 2.25). Until they are
            // requested again, the old IKE SA carries their traffic.
            Task::DeletePredecessor(_) if self.tasks.iter().any(Task::requests_new_child) => None,
            _ => Some(Instant::ZERO),
        }
    }

    /// Whether a task can start now.
    pub(super) fn is_ready(&self, task: &Task, now: Instant) -> bool {
        self.ready_at(task).is_some_and(|at| at <= now)
    }
}

/// What the outstanding request asked for.
pub(crate) enum Pending {
    Child(Box<PendingChild>),
    Rekey(Box<PendingRekey>),
    DeleteChild {
        id: ChildId,
        reason: DownReason,
    },
    DeleteIke(DownReason),
    /// What another process or host asked for.
    #[cfg(feature = "records")]
    Lost(super::lost_exchange::LostExchange),
    /// To delete an SA that the peer has and this host has not.
    #[cfg(feature = "records")]
    DeleteSpi(ChildSpi),
    #[cfg(feature = "records")]
    Synchronize,
    Liveness,
    SendCrashToken,
    #[cfg(feature = "redirect")]
    Redirect,
    #[cfg(feature = "resumption")]
    Ticket,
    #[cfg(feature = "mobike")]
    UpdateAddresses {
        /// Where the request was sent; `None` for several paths.
        path: Option<Path>,
        cookie: Cookie2,
    },
    #[cfg(feature = "mobike")]
    AnnounceAddresses {
        /// Where the request was sent first.
        path: Path,
    },
    #[cfg(feature = "mobike")]
    CheckRoute {
        /// Where the request was sent; `None` for several paths.
        path: Option<Path>,
        cookie: Cookie2,
    },
    /// The request that a path MTU probe will repeat.
    PathProbe {
        sent_at: Instant,
    },
}

impl Pending {
    /// Exchange type of the response.
    pub(super) const fn exchange(&self) -> ExchangeType {
        match self {
            #[cfg(feature = "multiple-kex")]
            Self::Child(pending) if pending.series.is_some() => ExchangeType::IKE_FOLLOWUP_KE,
            #[cfg(feature = "multiple-kex")]
            Self::Rekey(pending) if pending.is_in_series() => ExchangeType::IKE_FOLLOWUP_KE,
            Self::Child(_) | Self::Rekey(_) => ExchangeType::CREATE_CHILD_SA,
            #[cfg(feature = "records")]
            Self::Lost(lost) => lost.exchange,
            #[cfg(feature = "records")]
            Self::DeleteSpi(_) | Self::Synchronize => ExchangeType::INFORMATIONAL,
            #[cfg(feature = "mobike")]
            Self::UpdateAddresses { .. } | Self::AnnounceAddresses { .. } | Self::CheckRoute { .. } => {
                ExchangeType::INFORMATIONAL
            }
            #[cfg(feature = "redirect")]
            Self::Redirect => ExchangeType::INFORMATIONAL,
            #[cfg(feature = "resumption")]
            Self::Ticket => ExchangeType::INFORMATIONAL,
            Self::DeleteChild { .. }
            | Self::DeleteIke(_)
            | Self::Liveness
            | Self::SendCrashToken
            | Self::PathProbe { .. } => ExchangeType::INFORMATIONAL,
        }
    }

    /// The task that sends the request again, if it concerns the addresses of the SAs.
    #[cfg(feature = "mobike")]
    pub(super) const fn address_task(&self) -> Option<Task> {
        match self {
            Self::UpdateAddresses { .. } => Some(Task::UpdateAddresses),
            Self::AnnounceAddresses { .. } => Some(Task::AnnounceAddresses),
            Self::CheckRoute { .. } => Some(Task::CheckRoute),
            _ => None,
        }
    }
}

impl Established {
    /// Starts queued tasks until a request is outstanding.
    pub(crate) fn start_next_task(
        mut self: Box<Self>,
        common: &mut SaCommon,
        step: &mut Step<'_, '_>,
    ) -> State {
        #[cfg(feature = "resumption")]
        self.end_session_if_closing(common, step);
        self.stop_children_if_closing(step);
        self.stop_children_to_delete(step);
        while !self.channel.window.has_outstanding() && self.provisional.is_none() {
            let ready = self.tasks.iter().position(|task| self.is_ready(task, step.context.now));
            let Some(task) = ready.and_then(|at| self.tasks.remove(at)) else { break };
            if !matches!(task, Task::ProbePath) {
                self.abandon_probe(step.context.now);
            }
            match self.start_task(common, task, step) {
                Ok(pending) => self.pending = pending,
                Err(fault) => step.sa_fault(fault.into(), common.path, common),
            }
        }
        if self.channel.window.has_outstanding() {
            let interval = step.shared.settings.keepalive_interval;
            self.timers.postpone(Timer::Keepalive, step.context.now.after(interval));
        }
        State::Established(self)
    }

    /// Starts a task. Returns `None` if the task has become unnecessary.
    fn start_task(
        &mut self,
        common: &SaCommon,
        task: Task,
        step: &mut Step<'_, '_>,
    ) -> Result<Option<Pending>, StateFault> {
        match task {
            Task::Child(child_request) => self.request_child(common, *child_request, step),
            Task::RekeyChild(id) => {
                let old = self.child(id).filter(|child| child.is_installed());
                match old.map(|old| ChildRequest::replacing(old)) {
                    Some(child_request) => self.request_child(common, child_request, step),
                    None => Ok(None),
                }
            }
            Task::DeleteChild(id, reason) => self.request_child_delete(common, id, reason, step),
            #[cfg(feature = "records")]
            Task::DeleteSpi(spi) => {
                self.request_spi_delete(common, spi, step).map(|()| Some(Pending::DeleteSpi(spi)))
            }
            #[cfg(feature = "records")]
            Task::Synchronize => self.request_synchronization(common, step),
            Task::RekeyIke if self.phase == Phase::Open => {
                self.request_rekey(common, step).inspect_err(|_| self.rekey_failed(step))
            }
            Task::RekeyIke => Ok(None),
            Task::DeleteIke(reason) => self.request_ike_delete(common, reason, step),
            Task::DeletePredecessor(origin) => {
                step.effect(Effect::Reauthenticated(origin));
                #[cfg(feature = "records")]
                self.timers.set(Timer::Duplicate, Some(step.context.now.after(AT_ONCE)));
                Ok(None)
            }
            #[cfg(feature = "redirect")]
            Task::Redirect(gateway) => {
                self.request_redirect(common, &gateway, step).map(|()| Some(Pending::Redirect))
            }
            #[cfg(feature = "resumption")]
            Task::RequestTicket => self.request_ticket(common, step),
            #[cfg(feature = "mobike")]
            Task::UpdateAddresses => self.request_update(common, step),
            #[cfg(feature = "mobike")]
            Task::AnnounceAddresses => self.request_announcement(common, step),
            #[cfg(feature = "mobike")]
            Task::CheckRoute => self.request_route_check(common, step),
            #[cfg(feature = "mobike")]
            Task::Liveness if self.updates_to_check_liveness() => self.request_update(common, step),
            Task::Liveness => {
                let sent = self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|_| Ok(()));
                sent.map(|()| Some(Pending::Liveness)).map_err(|_| StateFault::Provider)
            }
            Task::ProbePath => match step.shared.path_prober {
                Some(prober) => prober.prepare(self, common, step),
                None => Ok(None),
            },
            Task::SendCrashToken => {
                let Some(token) = step.crash_token(common.spis()) else { return Ok(None) };
                let sent = self.channel.send_request(common, ExchangeType::INFORMATIONAL, step, &|out| {
                    out.notify(&token.notify())
                });
                sent.map(|()| Some(Pending::SendCrashToken)).map_err(|_| StateFault::Provider)
            }
        }
    }
}
