//! An IKE SA whose peer is authenticated: requests of both sides, time, and the end (RFC 7296 sections 1.3, 1.4, 2.4, 2.8).

use super::again::{End, attempts_after, reauth_at};
use super::context::random_below;
use super::tasks::Pending;
use super::{Cx, Effect, Head, Incoming, Link, Meta, State, Task};
use crate::auth::PeerAuthenticated;
use crate::child::{ChildSa, Ends, Stage, Wish};
use crate::config::Identity;
use crate::nat::Nat;
use crate::peers::AuthScope;
use crate::restarts::Restart;
use crate::{Assigned, ChildId, Down, Event, IkeSaId, IkeStatus, Path, PeerFault, StateFault, Transmit};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{Answer, ExchangeType, Notify, NotifyType};
use core::net::IpAddr;
use core::time::Duration;

/// How long an SA that was replaced waits to be closed by the peer. The response that replaced it may be lost, so it lasts longer
/// than a peer repeats a request: 123 s here, 165 s with strongSwan.
pub(super) const LINGER: Duration = Duration::from_secs(180);
/// After a refusal for the time being (RFC 7296 section 2.25), another attempt comes after at least so long.
const AGAIN: Duration = Duration::from_secs(2);

/// What an IKE SA begins with.
pub(crate) struct Parentage {
    pub(crate) peer: PeerAuthenticated,
    pub(crate) nat: Nat,
    pub(crate) ends: Ends,
    /// Addresses that the peer has from us.
    pub(crate) leased: Vec<IpAddr>,
    /// What we have from the peer.
    pub(crate) assigned: Assigned,
    pub(crate) children: Vec<ChildSa>,
    /// What is still to be asked for.
    pub(crate) tasks: VecDeque<Task>,
}

impl Parentage {
    /// The IKE SA `ike`, which had it last, has ended.
    pub(crate) fn dissolve(self, (ike, origin): (IkeSaId, IkeSaId), why: Down, cx: &mut Cx<'_, '_>) {
        self.children.iter().for_each(|child| cx.child_down(child.id, why, origin));
        self.leased.iter().for_each(|addr| cx.shared.pools.release(*addr));
        let addrs = cx.shared.assigned.release(&self.assigned.addrs);
        if !addrs.is_empty() {
            cx.event(Event::Unassigned { ike, addrs });
        }
    }
}

/// What it is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// Another one has taken its place, and the peer is to close it.
    Replaced,
    /// We are closing it.
    Closing,
}

/// The peer is authenticated.
pub(crate) struct Established {
    pub(crate) link: Link,
    pub(super) parentage: Parentage,
    pub(super) phase: Phase,
    pub(super) pending: Option<Pending>,
    /// The IKE SA that both sides are rekeying, if the peer's exchange made this one: whether it stays is not known yet. Until then
    /// nothing is asked for here.
    pub(super) provisional: Option<IkeSaId>,
    pub(crate) tasks: VecDeque<Task>,
    since: Instant,
    /// When the peer was authenticated: an IKE SA that replaces another is as old as that, to those who ask which is older.
    pub(super) peer_since: Instant,
    pub(super) rekey_at: Option<Instant>,
    pub(super) expires_at: Option<Instant>,
    pub(super) reauth_at: Option<Instant>,
    last_heard: Instant,
    last_sent: Instant,
    /// Requests for a successor in a row that failed.
    pub(super) rekey_failures: u8,
    /// The IKE SA that it replaced.
    pub(super) predecessor: Option<IkeSaId>,
    /// The IKE SA whose IKE_AUTH exchange authenticated the peer.
    pub(super) origin: IkeSaId,
    /// How often it was to be made anew with authentication.
    pub(super) reauth_attempts: u8,
}

impl Established {
    /// The peer has just proved who it is.
    pub(crate) fn new(head: &Head, link: Link, parentage: Parentage, cx: &mut Cx<'_, '_>) -> Self {
        let (ike, connection, path) = (head.id, head.connection.clone(), head.path);
        let peer = Identity::clone(parentage.peer.id());
        cx.event(Event::IkeUp { ike, connection, peer, path });
        let reauth_at = reauth_at(head, cx);
        Self::with(head, link, parentage, (cx.env.now, reauth_at), cx)
    }

    /// In the place of `old`, with the same peer.
    pub(super) fn successor(
        &self,
        old: &Head,
        (head, link): (&Head, Link),
        parentage: Parentage,
        cx: &mut Cx<'_, '_>,
    ) -> Self {
        cx.event(Event::IkeRekeyed { old: old.id, new: head.id });
        let mut successor = Self::with(head, link, parentage, (self.peer_since, self.reauth_at), cx);
        (successor.predecessor, successor.origin) = (Some(old.id), self.origin);
        if self.reauth_attempts > 0 {
            // Rekeying does not extend the time for reauthentication.
            successor.reauth_attempts = self.reauth_attempts;
            successor.expires_at = self.expires_at;
            successor.rekey_at = None;
        }
        successor
    }

    fn with(
        head: &Head,
        link: Link,
        mut parentage: Parentage,
        (peer_since, reauth_at): (Instant, Option<Instant>),
        cx: &mut Cx<'_, '_>,
    ) -> Self {
        cx.shared.peers.insert(&parentage.peer, peer_since, head.id);
        cx.shared.own(&parentage.children, head.id);
        let now = cx.env.now;
        let (rekey_at, expires_at) = cx.lifespan(&head.connection.lifespan, now);
        let tasks = core::mem::take(&mut parentage.tasks);
        Self {
            link,
            parentage,
            phase: Phase::Open,
            pending: None,
            provisional: None,
            tasks,
            since: now,
            peer_since,
            rekey_at,
            expires_at,
            reauth_at,
            last_heard: now,
            last_sent: now,
            rekey_failures: 0,
            predecessor: None,
            origin: head.id,
            reauth_attempts: 0,
        }
    }

    /// Whether it goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// What was authenticated equally has the same.
    pub(super) const fn scope(&self) -> &AuthScope {
        self.parentage.peer.scope()
    }

    /// Virtual addresses that we have from the peer.
    pub(super) fn assigned_addrs(&self) -> &[IpAddr] {
        &self.parentage.assigned.addrs
    }

    /// Whether another one has taken its place.
    pub(crate) fn is_replaced(&self) -> bool {
        self.phase == Phase::Replaced
    }

    pub(crate) const fn children(&self) -> &Vec<ChildSa> {
        &self.parentage.children
    }

    pub(super) fn child(&mut self, id: ChildId) -> Option<&mut ChildSa> {
        self.parentage.children.iter_mut().find(|child| child.id == id)
    }

    pub(crate) fn on_request(
        mut self: Box<Self>,
        head: &mut Head,
        request: Result<Incoming<'_>, PeerFault>,
        meta: Meta,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        self.heard(head, meta.path, cx);
        let done = request.and_then(|request| match request.exchange {
            ExchangeType::CREATE_CHILD_SA => self.on_create_child(head, &request.content, cx).map(|()| None),
            ExchangeType::INFORMATIONAL => self.on_informational(head, &request.content, cx),
            _ => Err(StateFault::WrongExchange.into()),
        });
        match done {
            Ok(None) => {}
            Ok(Some(why)) => return self.close_after(head, End::by_peer(why), cx),
            Err(fault) => {
                cx.fault(fault, meta.path);
                self.link.refuse(head, meta.exchange, fault, cx);
                // RFC 7296 section 2.21.3: this one is fatal in both peers, without a Delete payload.
                if fault.answer() == Answer::Notify(NotifyType::INVALID_SYNTAX) {
                    return self.close_or_leave(head, Down::Fault(fault), cx);
                }
            }
        }
        self.proceed(head, cx)
    }

    pub(crate) fn on_response(
        mut self: Box<Self>,
        head: &mut Head,
        response: Result<Incoming<'_>, PeerFault>,
        meta: Meta,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        self.heard(head, meta.path, cx);
        if self.pending.as_ref().is_some_and(|pending| pending.exchange() != meta.exchange) {
            // RFC 7296 section 1: an exchange is a pair. This is no answer, and the true one may still come.
            cx.fault(StateFault::WrongExchange.into(), meta.path);
            return State::Established(self);
        }
        self.link.window.settled();
        let response = match response {
            Ok(response) if self.is_fatal(&response) => {
                return self.close_or_leave(head, Down::Refused(NotifyType::INVALID_SYNTAX), cx);
            }
            Ok(response) => Ok(response.content),
            Err(fault) => {
                cx.fault(fault, meta.path);
                Err(fault)
            }
        };
        match self.pending.take() {
            Some(Pending::Child(pending)) => self.on_child_response(head, *pending, response, cx),
            Some(Pending::Rekey(pending)) => self.on_rekey_response(head, *pending, response, cx),
            Some(Pending::DeleteChildren(gone)) => {
                gone.into_iter().for_each(|(id, why)| self.remove_child(id, End::here(why), cx));
            }
            Some(Pending::DeleteIke(why)) => return self.close(head, why, cx),
            Some(Pending::Liveness) | None => {}
        }
        self.proceed(head, cx)
    }

    /// RFC 7296 section 2.21.3: whoever says that a request of ours is no good has deleted the IKE SA.
    fn is_fatal(&self, response: &Incoming<'_>) -> bool {
        let is_ending = matches!(self.pending, Some(Pending::DeleteIke(_)));
        !is_ending && response.content.says(NotifyType::INVALID_SYNTAX)
    }

    /// A message of the peer authenticated.
    fn heard(&mut self, head: &mut Head, path: Path, cx: &mut Cx<'_, '_>) {
        self.last_heard = cx.env.now;
        // RFC 7296 section 2.23: a peer behind a NAT is where its last message came from. Whoever is behind one itself stays.
        let Nat { local, remote } = self.parentage.nat;
        if remote && !local && path.remote != head.path.remote && path.local == head.path.local {
            let before = core::mem::replace(&mut head.path, path).remote.ip();
            let children = self.children().iter().map(|child| child.id).collect();
            cx.event(Event::Moved { ike: head.id, children, path });
            self.follow_addr((before, path.remote.ip()), cx);
        }
    }

    /// Sends what waits, if nothing is on its way.
    pub(crate) fn proceed(mut self: Box<Self>, head: &mut Head, cx: &mut Cx<'_, '_>) -> State {
        while !self.link.window.is_waiting() && self.provisional.is_none() {
            let ready = self.tasks.iter().position(|task| self.is_ready(task, cx.env.now));
            let Some(task) = ready.and_then(|at| self.tasks.remove(at)) else { break };
            match self.start(head, task, cx) {
                Ok(pending) => self.pending = pending,
                Err(fault) => cx.fault(fault.into(), head.path),
            }
        }
        if self.link.window.is_waiting() {
            self.last_sent = self.last_sent.max(cx.env.now);
        }
        State::Established(self)
    }

    /// Begins a task; answers nothing if there is nothing to do any more.
    fn start(&mut self, head: &Head, task: Task, cx: &mut Cx<'_, '_>) -> Result<Option<Pending>, StateFault> {
        match task {
            Task::Child(wish) => self.request_child(head, *wish, cx),
            Task::RekeyChild(id) => {
                let old = self.child(id).filter(|child| child.stage == Stage::Live);
                match old.map(|old| Wish::replacing(old)) {
                    Some(wish) => self.request_child(head, wish, cx),
                    None => Ok(None),
                }
            }
            Task::DeleteChild(id, why) => self.request_delete(head, (id, why), cx),
            Task::RekeyIke if self.phase == Phase::Open => {
                self.request_rekey(head, cx).inspect_err(|_| self.rekey_failed(cx))
            }
            Task::RekeyIke => Ok(None),
            Task::DeleteIke(why) => self.request_end(head, why, cx),
            Task::EndPredecessor(origin) => {
                cx.effect(Effect::Reauthenticated(origin));
                Ok(None)
            }
            Task::Liveness => {
                let sent = self.link.request(head, ExchangeType::INFORMATIONAL, cx, &|_| Ok(()));
                sent.map(|()| Some(Pending::Liveness)).map_err(|_| StateFault::Provider)
            }
        }
    }

    pub(crate) fn on_time(mut self: Box<Self>, head: &mut Head, cx: &mut Cx<'_, '_>) -> State {
        if self.link.repeat(head, cx).is_err() {
            // What was to be closed anyway is closed for that reason, and does not begin anew because the peer is dead.
            let why = self.closing_why().unwrap_or(Down::Dead);
            return self.close_or_leave(head, why, cx);
        }
        let now = cx.env.now;
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.expires_at) {
            // Nobody closed it in time.
            match self.phase {
                Phase::Open => self.tasks.push_front(Task::DeleteIke(Down::Expired)),
                Phase::Replaced | Phase::Closing => return self.close(head, Down::Replaced, cx),
            }
        }
        if self.keeps_time() {
            if is_due(&mut self.reauth_at) {
                self.reauthenticate(head, cx);
            }
            if is_due(&mut self.rekey_at) {
                self.tasks.push_back(Task::RekeyIke);
            }
            self.look_after_children(now);
            self.look_for_life(head, cx);
        }
        self.keep_alive(head, cx);
        self.proceed(head, cx)
    }

    /// Whether it rekeys, is reauthenticated and looks for signs of life: not as long as another IKE SA may take its place.
    fn keeps_time(&self) -> bool {
        self.is_open() && self.provisional.is_none()
    }

    fn look_after_children(&mut self, now: Instant) {
        let Self { parentage, tasks, .. } = self;
        for child in &mut parentage.children {
            if child.rekey_at.take_if(|at| *at <= now).is_some() && child.stage == Stage::Live {
                tasks.push_back(Task::RekeyChild(child.id));
            }
            if child.expires_at.take_if(|at| *at <= now).is_some() {
                match child.stage {
                    Stage::Live => tasks.push_back(Task::DeleteChild(child.id, Down::Expired)),
                    // The peer did not close it in time.
                    Stage::Replaced => tasks.push_back(Task::DeleteChild(child.id, Down::Replaced)),
                    Stage::Closing => {}
                }
            }
        }
    }

    /// RFC 7296 section 2.4: only a peer from which nothing came is asked whether it lives.
    fn look_for_life(&mut self, head: &Head, cx: &Cx<'_, '_>) {
        let Some(delay) = head.connection.dpd_delay else { return };
        let packets =
            self.children().iter().filter_map(|child| cx.env.host.last_inbound(child.agreed.spi_in));
        self.last_heard = packets.chain([self.last_heard]).max().unwrap_or(self.last_heard);
        let has_work = self.tasks.iter().any(|task| self.is_ready(task, cx.env.now));
        let idle = !has_work && !self.link.window.is_waiting();
        if idle && cx.env.now.since(self.last_heard) >= delay {
            self.tasks.push_back(Task::Liveness);
        }
    }

    /// RFC 3948 section 4: whoever is behind a NAT keeps its mapping alive.
    fn keep_alive(&mut self, head: &Head, cx: &mut Cx<'_, '_>) {
        let interval = cx.shared.settings.keepalive;
        if self.parentage.nat.local && cx.env.now.since(self.last_sent) >= interval {
            self.last_sent = cx.env.now;
            let (path, message) = (head.path, Vec::new());
            cx.shared.transmits.push_back(Transmit { path, marker: false, message });
        }
    }

    /// When something is due.
    pub(crate) fn due(&self, head: &Head, keepalive: Duration) -> Option<Instant> {
        let open = self.keeps_time();
        let children = self.children().iter().filter_map(ChildSa::due).min().filter(|_| open);
        let (rekey, reauth) = (self.rekey_at.filter(|_| open), self.reauth_at.filter(|_| open));
        let idle = open && !self.link.window.is_waiting();
        let life = head.connection.dpd_delay.filter(|_| idle).map(|delay| self.last_heard.after(delay));
        let alive = self.parentage.nat.local.then(|| self.last_sent.after(keepalive));
        let tasks = self.tasks.iter().filter_map(|task| self.ready_at(task)).min().filter(|_| idle);
        let times = [children, rekey, reauth, self.link.window.due(), self.expires_at, life, alive, tasks];
        times.into_iter().flatten().min()
    }

    /// A Child SA is gone. What replaces it is used from now on.
    pub(super) fn remove_child(&mut self, id: ChildId, end: End, cx: &mut Cx<'_, '_>) {
        let children = &mut self.parentage.children;
        let Some(at) = children.iter().position(|child| child.id == id) else { return };
        let gone = children.swap_remove(at);
        let successors = children.iter_mut().filter(|child| child.replaces == Some(id));
        for child in successors.filter(|child| child.stage != Stage::Closing && !child.active) {
            child.active = true;
            cx.event(Event::ChildActive(child.id));
        }
        cx.child_down(id, end.why, self.origin);
        self.bring_back(&gone, end, cx);
    }

    /// Something is to be tried again soon, at a random time so that both sides do not meet again.
    pub(super) fn again_at(cx: &mut Cx<'_, '_>) -> Instant {
        let wait = AGAIN.saturating_add(random_below(cx.env.rng, AGAIN.saturating_mul(2)));
        cx.env.now.after(wait)
    }

    /// Waits for the peer to close it, in whose place another one stands.
    pub(crate) fn linger(&mut self, head: &Head, cx: &mut Cx<'_, '_>) {
        self.be_replaced(head, cx);
        self.provisional = None;
        self.tasks.clear();
        self.expires_at = Some(cx.env.now.after(LINGER));
    }

    /// Another one stands in its place: a peer that accepts only one IKE SA may begin anew while this one is being closed.
    pub(super) fn be_replaced(&mut self, head: &Head, cx: &mut Cx<'_, '_>) {
        self.phase = Phase::Replaced;
        cx.shared.peers.remove(&self.parentage.peer, self.peer_since, head.id);
    }

    /// It is over. If the peer's exchange made a successor meanwhile, that one takes the Child SAs.
    fn close_or_leave(mut self: Box<Self>, head: &Head, why: Down, cx: &mut Cx<'_, '_>) -> State {
        if let Some(rival) = self.rival() {
            self.leave_to(rival, head, cx);
        }
        let why = if self.phase == Phase::Replaced { Down::Replaced } else { why };
        self.close(head, why, cx)
    }

    /// It is over, and so are its Child SAs.
    pub(crate) fn close(self: Box<Self>, head: &Head, why: Down, cx: &mut Cx<'_, '_>) -> State {
        self.close_after(head, End::here(why), cx)
    }

    fn close_after(self: Box<Self>, head: &Head, end: End, cx: &mut Cx<'_, '_>) -> State {
        let why = end.why;
        let children = self.wanted_again(why);
        if self.phase != Phase::Replaced && (!children.is_empty() || why == Down::Reauth) {
            let attempts = attempts_after(cx.env.now.since(self.peer_since), head.attempts);
            let at = end.again_at(attempts, head.role, cx);
            let connection = head.connection.clone();
            cx.effect(Effect::Begin(Restart { connection, children, at, attempts }));
        }
        if let Some(old) = self.provisional {
            cx.effect(Effect::RivalGone(old, head.id));
        }
        if let Some(rival) = self.rival().filter(|_| self.phase != Phase::Replaced) {
            cx.effect(Effect::Redundant(rival));
        }
        let Self { parentage, pending, peer_since, origin, .. } = *self;
        if let Some(Pending::Child(pending)) = pending {
            cx.env.host.release_spi(pending.request.spi);
        }
        cx.shared.peers.remove(&parentage.peer, peer_since, head.id);
        parentage.dissolve((head.id, origin), why, cx);
        State::Closed(why)
    }

    pub(crate) fn fill(&self, status: &mut IkeStatus) {
        let Parentage { peer, nat, leased, assigned, children, .. } = &self.parentage;
        status.state = match self.phase {
            Phase::Open => "established",
            Phase::Replaced => "rekeyed",
            Phase::Closing => "closing",
        };
        status.peer = Some(Identity::clone(peer.id()));
        status.suite = Some(self.link.suite);
        status.nat = (nat.local, nat.remote);
        status.established = Some(self.since);
        status.rekey_at = self.rekey_at;
        let own = &assigned.addrs;
        status.virtual_addrs = if own.is_empty() { leased.clone() } else { own.clone() };
        status.dns = assigned.dns.clone();
        status.children = children.iter().map(ChildSa::status).collect();
    }
}

/// A last word to a peer that believes in an IKE SA which we do not have.
pub(super) struct Farewell;

impl Farewell {
    /// Says it once. An answer is not waited for.
    pub(super) fn say(head: &Head, link: &mut Link, what: NotifyType, cx: &mut Cx<'_, '_>) {
        let notify = Notify::new(what, &[]);
        let _ = link.request(head, ExchangeType::INFORMATIONAL, cx, &|out| out.notify(&notify));
    }
}
