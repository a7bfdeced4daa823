//! States of an IKE SA and the transitions between them.
//!
//! ```text
//!  we start:    InitSent [-> IntermediateSent] -> AuthSent -> Established -> closed
//!  peer starts: HalfOpen -> Established -> closed
//! ```
//! Each state is a type, and a transition consumes it. What a state requests from others (a successor, the
//! end of another SA) is an [`Effect`](crate::engine::effects::Effect), which the engine runs after the
//! transition.

#[cfg(feature = "mobike")]
mod address_list;
#[cfg(feature = "mobike")]
mod address_update;
#[cfg(feature = "mobike")]
mod addresses;
mod auth_accepted;
mod auth_finished;
mod auth_sent;
#[cfg(feature = "revocation")]
mod awaited_message;
#[cfg(feature = "multiple-kex")]
mod awaited_series;
mod common;
mod config_payload;
#[cfg(feature = "records")]
mod counter_sync;
mod create_child;
mod create_child_response;
mod delete;
#[cfg(feature = "eap")]
mod eap_initiator;
#[cfg(feature = "eap")]
mod eap_responder;
mod established;
mod first_proof;
mod half_open;
mod hand_over;
mod informational;
mod init_accepted;
mod init_exchange;
mod init_response;
mod init_sent;
#[cfg(feature = "eap")]
mod initiator_rounds;
#[cfg(feature = "multiple-kex")]
mod intermediate;
#[cfg(feature = "multiple-kex")]
mod kex_series;
#[cfg(feature = "records")]
mod lost_exchange;
mod path_probe;
mod peer_address;
#[cfg(feature = "ppk")]
mod ppk;
mod queries;
#[cfg(feature = "records")]
mod record;
mod rekey;
mod rekey_response;
mod responder_proof;
#[cfg(feature = "eap")]
mod responder_rounds;
#[cfg(feature = "records")]
mod restore;
#[cfg(feature = "resumption")]
mod resumption;
mod retry;
mod select_connection;
mod tasks;
mod timers;
mod traffic;

use crate::child_sa::ChildRequest;
use crate::context::Step;
use crate::transport::{Content, Received};
use crate::{DownReason, IkeSaId, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use casemate_wire::ike::{ExchangeType, Header};

pub(crate) use auth_sent::AuthSent;
pub(crate) use common::{Predecessor, SaCommon};
pub(crate) use config_payload::AssignedAddrs;
pub(crate) use established::{Established, SaContents};
pub(crate) use half_open::HalfOpen;
#[cfg(feature = "mobike")]
pub(crate) use init_exchange::InitExchange;
pub(crate) use init_response::{InitRejected, respond as respond_to_init};
pub(crate) use init_sent::InitSent;
#[cfg(feature = "multiple-kex")]
pub(crate) use intermediate::IntermediateSent;
pub(crate) use path_probe::{PathProbe, PathProber, ProbePath};
#[cfg(feature = "records")]
pub(crate) use restore::RestoredIds;
#[cfg(feature = "resumption")]
pub(crate) use resumption::respond_to_resumption;
pub(crate) use retry::{restore_later, retry_at};
pub(crate) use select_connection::by_address;
pub(crate) use tasks::Task;
pub(crate) use traffic::Hint;

/// Role of a host in an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Sent the first IKE_SA_INIT request, and sets the Initiator flag in its messages.
    Initiator,
    /// Received the first IKE_SA_INIT request.
    Responder,
}

/// An IKE SA.
pub(crate) struct IkeSa {
    pub(crate) common: SaCommon,
    pub(crate) state: State,
}

/// State of an IKE SA.
pub(crate) enum State {
    InitSent(Box<InitSent>),
    #[cfg(feature = "multiple-kex")]
    IntermediateSent(Box<IntermediateSent>),
    HalfOpen(Box<HalfOpen>),
    AuthSent(Box<AuthSent>),
    Established(Box<Established>),
    /// The IKE SA has ended.
    Closed(DownReason),
}

/// A message whose payloads were parsed.
pub(crate) struct IncomingMessage<'m> {
    pub(crate) exchange: ExchangeType,
    pub(crate) content: Content<'m>,
    /// The payloads from which `content` was parsed.
    #[cfg(any(feature = "eap", feature = "revocation", feature = "multiple-kex"))]
    pub(crate) payloads: Plaintext<'m>,
    pub(crate) path: Path,
}

/// Decrypted payloads of a message.
#[cfg(any(feature = "eap", feature = "revocation", feature = "multiple-kex"))]
#[derive(Clone, Copy)]
pub(crate) struct Plaintext<'m> {
    pub(crate) first: casemate_wire::ike::PayloadType,
    pub(crate) bytes: &'m [u8],
}

/// What is known of a message even if its payloads cannot be parsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageMeta {
    pub(crate) exchange: ExchangeType,
    pub(crate) path: Path,
}

impl IkeSa {
    /// Decrypts a datagram and reassembles fragments. `half_open_room` is the number of bytes that a
    /// half-open IKE SA of this source may hold in addition.
    pub(crate) fn receive(
        &mut self,
        header: &Header,
        datagram: &mut [u8],
        path: Path,
        half_open_room: usize,
        step: &mut Step<'_, '_>,
    ) -> Result<Received, PeerFault> {
        let state = &mut self.state;
        let (max_bytes, max_unauthenticated) =
            (step.shared.settings.max_message_bytes, step.shared.settings.max_unauthenticated_bytes);
        let (channel, limit) = match state {
            State::HalfOpen(state) => {
                #[cfg(feature = "eap")]
                {
                    state.room = half_open_room;
                }
                let room = half_open_room.saturating_add(state.channel.window.requests.held_bytes());
                (&mut state.channel, max_unauthenticated.min(room))
            }
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => (&mut state.channel, max_unauthenticated),
            State::AuthSent(state) => (&mut state.channel, max_unauthenticated),
            State::Established(state) => (&mut state.channel, max_bytes),
            // There are no keys yet (libreswan 2019-12312, VPP 98d6f29).
            State::InitSent(_) | State::Closed(_) => return Err(StateFault::WrongExchange.into()),
        };
        channel.receive(header, datagram, path, limit, step)
    }

    /// Handles a response to our first request.
    pub(crate) fn on_first_response(
        mut self,
        header: &Header,
        datagram: &[u8],
        path: Path,
        content: &Content<'_>,
        step: &mut Step<'_, '_>,
    ) -> Self {
        self.state = match self.state {
            State::InitSent(state) => {
                state.on_response(&mut self.common, header, datagram, path, content, step)
            }
            // A second response is a repetition or a forgery.
            state => state,
        };
        self
    }

    /// Handles a request with the next message ID.
    pub(crate) fn on_request(
        mut self,
        request: Result<IncomingMessage<'_>, PeerFault>,
        meta: MessageMeta,
        step: &mut Step<'_, '_>,
    ) -> Self {
        let common = &mut self.common;
        self.state = match self.state {
            State::HalfOpen(state) => state.on_request(common, request, meta, step),
            State::Established(state) => state.on_request(common, request, meta, step),
            // The peer sends it again once we are established.
            #[cfg(feature = "revocation")]
            State::AuthSent(state) if state.awaited_message.is_some() => State::AuthSent(state),
            // A responder sends no request before it knows that its response has arrived.
            state => {
                step.fault(StateFault::WrongExchange.into(), meta.path);
                state
            }
        };
        self
    }

    /// Continues EAP after an authenticator was pending.
    #[cfg(feature = "eap")]
    pub(crate) fn continue_eap(mut self, step: &mut Step<'_, '_>) -> Self {
        self.state = match self.state {
            State::HalfOpen(state) => state.continue_eap(&mut self.common, step),
            // The peer has given up, or the server has answered twice.
            state => state,
        };
        self
    }

    /// Continues after the status of the peer's certificates was looked up, or our signature was made.
    #[cfg(feature = "revocation")]
    pub(crate) fn continue_authentication(mut self, step: &mut Step<'_, '_>) -> Self {
        self.state = match self.state {
            State::HalfOpen(state) => state.continue_authentication(&mut self.common, step),
            State::AuthSent(state) => state.continue_authentication(&mut self.common, step),
            #[cfg(feature = "external-keys")]
            State::InitSent(state) => state.continue_authentication(&mut self.common, step),
            #[cfg(not(feature = "external-keys"))]
            State::InitSent(state) => State::InitSent(state),
            // The time was over.
            state => state,
        };
        self
    }

    /// Handles the response to the outstanding request.
    pub(crate) fn on_response(
        mut self,
        response: Result<IncomingMessage<'_>, PeerFault>,
        meta: MessageMeta,
        step: &mut Step<'_, '_>,
    ) -> Self {
        let common = &mut self.common;
        self.state = match self.state {
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.on_response(common, response, step),
            State::AuthSent(state) => state.on_response(common, response, step),
            State::Established(state) => state.on_response(common, response, meta, step),
            // A response in clear text goes to `on_first_response`. The other states have no outstanding
            // request.
            state => state,
        };
        self
    }

    /// Handles the response to a path MTU probe.
    pub(crate) fn on_repeated_response(mut self, step: &mut Step<'_, '_>) -> Self {
        if let (State::Established(state), Some(prober)) = (&mut self.state, step.shared.path_prober) {
            prober.on_response(state, &self.common, step);
        }
        self.start_next_task(step)
    }

    /// Requests a Child SA.
    pub(crate) fn request_child(mut self, child_request: ChildRequest, step: &mut Step<'_, '_>) -> Self {
        match &mut self.state {
            State::InitSent(state) => state.child_requests.push(child_request),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.begun.child_requests.push(child_request),
            State::AuthSent(state) => state.queued_children.push_back(child_request),
            State::Established(state) => state.tasks.push_back(Task::Child(Box::new(child_request))),
            State::HalfOpen(_) | State::Closed(_) => {}
        }
        self.start_next_task(step)
    }

    /// Queues a task.
    pub(crate) fn queue_task(mut self, task: Task, step: &mut Step<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.tasks.push_back(task);
        }
        self.start_next_task(step)
    }

    /// Sends the next queued request.
    pub(crate) fn start_next_task(mut self, step: &mut Step<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(state) => state.start_next_task(&mut self.common, step),
            // Tasks start once the IKE SA is established.
            state => state,
        };
        self
    }

    /// Closes the IKE SA. An established peer is notified.
    pub(crate) fn close(mut self, reason: DownReason, step: &mut Step<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(mut state) => {
                state.tasks.push_front(Task::DeleteIke(reason));
                state.start_next_task(&mut self.common, step)
            }
            #[cfg(feature = "revocation")]
            State::AuthSent(state) if state.awaited_message.is_some() => {
                state.decline(&mut self.common, reason, step)
            }
            State::AuthSent(state) => state.give_up(&self.common, reason, step),
            _ => State::Closed(reason),
        };
        self
    }

    /// Closes the IKE SA without a message to the peer.
    pub(crate) fn drop_silently(mut self, reason: DownReason, step: &mut Step<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(state) => state.close(&self.common, reason, step),
            State::AuthSent(state) => state.give_up(&self.common, reason, step),
            _ => State::Closed(reason),
        };
        self
    }

    /// Waits for the peer to close this redundant IKE SA.
    pub(crate) fn await_delete(mut self, step: &mut Step<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.await_delete(&self.common, step);
        }
        self
    }

    /// Hands the Child SAs over to the peer's successor, which the peer has chosen.
    pub(crate) fn concede(mut self, peer_successor: IkeSaId, step: &mut Step<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.concede(peer_successor, &self.common, step);
        }
        self
    }

    /// Notes that the successor made by the peer is closed.
    pub(crate) fn peer_successor_closed(mut self, peer_successor: IkeSaId) -> Self {
        if let State::Established(state) = &mut self.state {
            state.peer_successor_closed(peer_successor);
        }
        self
    }

    /// Handles a message in clear which suggests that the peer has forgotten the IKE SA.
    pub(crate) fn on_hint(mut self, hint: Hint, path: Path, step: &mut Step<'_, '_>) -> Self {
        let (is_attempt, is_peer) = (self.is_attempt(), path.remote.ip() == self.common.path.remote.ip());
        match &mut self.state {
            State::Established(state) if is_peer => state.on_hint(hint, step.context.now),
            _ => self.common.is_reported_unknown |= is_attempt && is_peer && hint == Hint::IkeSpi,
        }
        self.start_next_task(step)
    }

    /// Handles the proof that the peer has forgotten the IKE SA.
    pub(crate) fn on_crash(mut self, step: &mut Step<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(state) => state.on_crash(&self.common, step),
            state => state,
        };
        self
    }

    /// Handles expired timers.
    pub(crate) fn on_timeout(mut self, step: &mut Step<'_, '_>) -> Self {
        let common = &mut self.common;
        self.state = match self.state {
            State::InitSent(state) => state.on_timeout(common, step),
            #[cfg(feature = "multiple-kex")]
            State::IntermediateSent(state) => state.on_timeout(common, step),
            State::HalfOpen(state) => state.on_timeout(common, step),
            State::AuthSent(state) => state.on_timeout(common, step),
            State::Established(state) => state.on_timeout(common, step),
            State::Closed(reason) => State::Closed(reason),
        };
        self
    }
}
