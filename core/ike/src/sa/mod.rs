//! One IKE SA: its state, and what leads from one to the next.
//!
//! ```text
//!  we begin:    InitSent -> AuthSent -> Established -> closed
//!  peer begins: HalfOpen -> Established -> closed
//! ```
//! One state is one type, and a transition consumes it. What states ask of others (a successor, the end of another SA) is
//! an [`Effect`] that the engine carries out when they are done.

mod again;
mod auth_sent;
mod context;
mod create_child;
mod established;
mod half_open;
mod informational;
mod init_reply;
mod init_sent;
mod link;
mod moved;
mod reconfigured;
mod rekey;
mod select;
mod tasks;
mod virtual_ip;

use crate::child::Wish;
use crate::config::{Child, Connection};
use crate::message::Content;
use crate::{Down, IkeSaId, IkeStatus, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{ExchangeType, Header, IkeSpi};
use core::net::IpAddr;
use core::time::Duration;

pub(crate) use again::retry_at;
pub(crate) use auth_sent::AuthSent;
pub(crate) use context::{Cx, Effect, Shared};
pub(crate) use established::{Established, Parentage};
pub(crate) use half_open::HalfOpen;
pub(crate) use init_reply::{Refusal as InitRefusal, reply as init_reply};
pub(crate) use init_sent::InitSent;
pub(crate) use link::{Arrived, Link, read};
pub(crate) use tasks::Task;

/// Who began an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Whose flag stands in the header of what it sends.
    Initiator,
    /// The other one.
    Responder,
}

/// One IKE SA.
pub(crate) struct IkeSa {
    pub(crate) head: Head,
    pub(crate) state: State,
}

/// What every state has.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) id: IkeSaId,
    pub(crate) connection: Arc<Connection>,
    pub(crate) path: Path,
    pub(crate) role: Role,
    pub(crate) spi_i: IkeSpi,
    pub(crate) spi_r: IkeSpi,
    /// IKE SAs of the connection in a row that ended soon, before this one was begun.
    pub(crate) attempts: u8,
    /// The IKE SA that is closed once this one is established (RFC 7296 section 2.8.3).
    pub(crate) reauthenticates: Option<Predecessor>,
}

/// An IKE SA that is made anew with authentication.
#[derive(Debug)]
pub(crate) struct Predecessor {
    /// Its origin: the IKE SA whose IKE_AUTH exchange authenticated the peer.
    pub(crate) origin: IkeSaId,
    /// The virtual addresses that it has from the peer.
    pub(crate) addrs: Vec<IpAddr>,
}

impl Head {
    pub(crate) const fn spis(&self) -> (IkeSpi, IkeSpi) {
        (self.spi_i, self.spi_r)
    }

    /// Our own SPI, by which the peer's messages find us.
    pub(crate) const fn own_spi(&self) -> IkeSpi {
        match self.role {
            Role::Initiator => self.spi_i,
            Role::Responder => self.spi_r,
        }
    }
}

/// What an IKE SA is doing.
pub(crate) enum State {
    InitSent(Box<InitSent>),
    HalfOpen(Box<HalfOpen>),
    AuthSent(Box<AuthSent>),
    Established(Box<Established>),
    /// It is over.
    Closed(Down),
}

/// A message whose payloads can be read.
pub(crate) struct Incoming<'m> {
    pub(crate) exchange: ExchangeType,
    pub(crate) content: Content<'m>,
    pub(crate) path: Path,
}

/// Of a message, what is known even if its payloads cannot be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Meta {
    pub(crate) exchange: ExchangeType,
    pub(crate) path: Path,
}

impl IkeSa {
    /// Half-open and begun by the peer: one of those that a flood makes many of.
    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(self.state, State::HalfOpen(_))
    }

    /// When its peer was authenticated, if it is.
    pub(crate) fn peer_since(&self) -> Option<Instant> {
        match &self.state {
            State::Established(state) => Some(state.peer_since),
            _ => None,
        }
    }

    /// The IKE SA whose IKE_AUTH exchange authenticated the peer: this one, or the first of those that it replaced by rekeying.
    pub(crate) fn origin(&self) -> IkeSaId {
        match &self.state {
            State::Established(state) => state.origin,
            _ => self.head.id,
        }
    }

    /// Whether it is to take the place of what has this origin, which is not closed yet.
    pub(crate) fn reauthenticates(&self, origin: IkeSaId) -> bool {
        let is_end = |task: &Task| matches!(task, Task::EndPredecessor(of) if *of == origin);
        match &self.state {
            State::Established(state) => state.is_open() && state.tasks.iter().any(is_end),
            State::HalfOpen(_) | State::Closed(_) => false,
            State::InitSent(_) | State::AuthSent(_) => {
                self.head.reauthenticates.as_ref().is_some_and(|old| old.origin == origin)
            }
        }
    }

    /// Whether both are established with the same peer, which was authenticated equally.
    pub(crate) fn has_scope_of(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (State::Established(one), State::Established(other)) => one.scope() == other.scope(),
            _ => false,
        }
    }

    /// Whether it is established and no other has its place, nor may soon have it.
    pub(crate) fn has_place(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.is_open() && state.provisional.is_none())
    }

    /// Whether another one has taken its place, and it waits for the peer to close it.
    pub(crate) fn is_replaced(&self) -> bool {
        matches!(&self.state, State::Established(state) if state.is_replaced())
    }

    /// Whether a Child SA may still be asked for here.
    pub(crate) fn takes_wishes(&self) -> bool {
        match &self.state {
            State::InitSent(_) | State::AuthSent(_) => true,
            State::Established(state) => state.is_open(),
            State::HalfOpen(_) | State::Closed(_) => false,
        }
    }

    /// Whether it has this Child SA, or is to have it.
    pub(crate) fn has(&self, child: &Child) -> bool {
        let is_it = |wish: &Wish| wish.config.name == child.name;
        match &self.state {
            State::InitSent(state) => state.wishes.iter().any(is_it),
            State::AuthSent(state) => state.wishes().any(is_it),
            State::Established(state) => state.is_open() && state.has(child),
            State::HalfOpen(_) | State::Closed(_) => false,
        }
    }

    /// The Child SAs that are to be set up in its place when it is made anew.
    pub(crate) fn children_to_move(&self) -> Vec<Arc<Child>> {
        match &self.state {
            State::Established(state) => state.wanted_again(Down::Reauth),
            _ => Vec::new(),
        }
    }

    /// What the new IKE SA has to know of this one when it is made anew.
    pub(crate) fn predecessor(&self) -> Predecessor {
        let addrs = match &self.state {
            State::Established(state) => state.assigned_addrs().into(),
            _ => Vec::new(),
        };
        Predecessor { origin: self.origin(), addrs }
    }

    /// Takes a datagram apart.
    pub(crate) fn take(
        &mut self,
        header: &Header,
        datagram: &mut [u8],
        path: Path,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Arrived, PeerFault> {
        let state = &mut self.state;
        let (all, stranger) = (cx.shared.settings.message_bytes, cx.shared.settings.stranger_bytes);
        let (link, limit) = match state {
            State::HalfOpen(state) => (&mut state.link, stranger),
            State::AuthSent(state) => (&mut state.link, stranger),
            State::Established(state) => (&mut state.link, all),
            // libreswan 2019-12312, VPP 98d6f29: there are no keys yet.
            State::InitSent(_) | State::Closed(_) => return Err(StateFault::WrongExchange.into()),
        };
        link.take(header, (datagram, path, limit), cx)
    }

    /// A response to our first request.
    pub(crate) fn on_first_response(
        mut self,
        header: &Header,
        datagram: (&[u8], Path),
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Self {
        self.state = match self.state {
            State::InitSent(state) => state.on_response(&mut self.head, header, datagram, content, cx),
            other => other,
        };
        self
    }

    /// A request whose number is the next one.
    pub(crate) fn on_request(
        mut self,
        request: Result<Incoming<'_>, PeerFault>,
        meta: Meta,
        cx: &mut Cx<'_, '_>,
    ) -> Self {
        let head = &mut self.head;
        self.state = match self.state {
            State::HalfOpen(state) => state.on_request(head, request, meta, cx),
            State::Established(state) => state.on_request(head, request, meta, cx),
            // A responder sends no request before it knows that its answer arrived.
            other => {
                cx.fault(StateFault::WrongExchange.into(), meta.path);
                other
            }
        };
        self
    }

    /// The response that was waited for.
    pub(crate) fn on_response(
        mut self,
        response: Result<Incoming<'_>, PeerFault>,
        meta: Meta,
        cx: &mut Cx<'_, '_>,
    ) -> Self {
        let head = &mut self.head;
        self.state = match self.state {
            State::AuthSent(state) => state.on_response(head, response, cx),
            State::Established(state) => state.on_response(head, response, meta, cx),
            other => other,
        };
        self
    }

    /// A Child SA is wanted.
    pub(crate) fn wish(mut self, wish: Wish, cx: &mut Cx<'_, '_>) -> Self {
        match &mut self.state {
            State::InitSent(state) => state.wishes.push(wish),
            State::AuthSent(state) => state.others.push_back(wish),
            State::Established(state) => state.tasks.push_back(Task::Child(Box::new(wish))),
            State::HalfOpen(_) | State::Closed(_) => {}
        }
        self.proceed(cx)
    }

    /// Something is to be asked of the peer.
    pub(crate) fn ask(mut self, task: Task, cx: &mut Cx<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.tasks.push_back(task);
        }
        self.proceed(cx)
    }

    /// Sends what waits.
    pub(crate) fn proceed(mut self, cx: &mut Cx<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(state) => state.proceed(&mut self.head, cx),
            other => other,
        };
        self
    }

    /// It is to end; an established peer is told.
    pub(crate) fn end(mut self, why: Down, cx: &mut Cx<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(mut state) => {
                state.tasks.push_front(Task::DeleteIke(why));
                state.proceed(&mut self.head, cx)
            }
            State::AuthSent(state) => state.give_up(&self.head, why, cx),
            State::InitSent(_) | State::HalfOpen(_) | State::Closed(_) => State::Closed(why),
        };
        self
    }

    /// It ends, and nobody is told.
    pub(crate) fn drop_silently(mut self, why: Down, cx: &mut Cx<'_, '_>) -> Self {
        self.state = match self.state {
            State::Established(state) => state.close(&self.head, why, cx),
            State::AuthSent(state) => state.give_up(&self.head, why, cx),
            State::InitSent(_) | State::HalfOpen(_) | State::Closed(_) => State::Closed(why),
        };
        self
    }

    /// It is one too many, and the peer knows.
    pub(crate) fn await_end(mut self, cx: &mut Cx<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.linger(&self.head, cx);
        }
        self
    }

    /// The IKE SA that is to hand its Child SAs to this one before this request is processed, if there is one.
    pub(crate) fn conceding(&self, request: &Content<'_>) -> Option<IkeSaId> {
        match &self.state {
            State::Established(state) => state.conceding(request),
            _ => None,
        }
    }

    /// The peer has chosen the successor that its own exchange made.
    pub(crate) fn concede(mut self, rival: IkeSaId, cx: &mut Cx<'_, '_>) -> Self {
        if let State::Established(state) = &mut self.state {
            state.concede(rival, &self.head, cx);
        }
        self
    }

    /// The successor that the peer made is gone.
    pub(crate) fn forget_rival(mut self, rival: IkeSaId) -> Self {
        if let State::Established(state) = &mut self.state {
            state.forget_rival(rival);
        }
        self
    }

    /// Does what is due.
    pub(crate) fn on_time(mut self, cx: &mut Cx<'_, '_>) -> Self {
        let head = &mut self.head;
        self.state = match self.state {
            State::InitSent(state) => state.on_time(head, cx),
            State::HalfOpen(state) => state.on_time(cx),
            State::AuthSent(state) => state.on_time(head, cx),
            State::Established(state) => state.on_time(head, cx),
            State::Closed(why) => State::Closed(why),
        };
        self
    }

    /// When something is due. `keepalive` is the interval of NAT keepalives.
    pub(crate) fn due(&self, keepalive: Duration) -> Option<Instant> {
        match &self.state {
            State::InitSent(state) => Some(state.due()),
            State::HalfOpen(state) => Some(state.due()),
            State::AuthSent(state) => state.link.window.due(),
            State::Established(state) => state.due(&self.head, keepalive),
            State::Closed(_) => None,
        }
    }

    pub(crate) fn status(&self) -> IkeStatus {
        let head = &self.head;
        let mut status = IkeStatus {
            id: head.id,
            connection: head.connection.clone(),
            state: "connecting",
            initiator: head.role == Role::Initiator,
            spis: head.spis(),
            path: head.path,
            peer: None,
            suite: None,
            nat: (false, false),
            established: None,
            rekey_at: None,
            virtual_addrs: Vec::new(),
            dns: Vec::new(),
            children: Vec::new(),
        };
        match &self.state {
            State::HalfOpen(state) => status.suite = Some(state.link.suite),
            State::AuthSent(state) => status.suite = Some(state.link.suite),
            State::Established(state) => state.fill(&mut status),
            State::InitSent(_) => {}
            State::Closed(_) => status.state = "closed",
        }
        status
    }
}
