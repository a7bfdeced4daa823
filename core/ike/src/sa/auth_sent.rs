//! IKE_AUTH as the initiator (RFC 7296 sections 1.2, 2.15 and 2.21.2).

use super::established::Farewell;
use super::init_reply::{Init, wanted_authorities, write_certreq};
use super::virtual_ip;
use super::{Cx, Effect, Established, Head, Incoming, InitSent, Link, Parentage, Role, State, Task};
use crate::auth::{Claim, OwnSide, PeerAuthenticated, SignedOctets, verify};
use crate::child::{ChildRequest, Ends, KeySource, Place, Substitution, Wish, install};
use crate::config::{Childless, IdPattern, Identity, Unique};
use crate::credentials::id_matches;
use crate::keymat::Nonces;
use crate::message::{Content, need};
use crate::peers::Pair;
use crate::{Assigned, Down, Event, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, Id, Notify, NotifyType};

/// Our proof is on its way.
pub(crate) struct AuthSent {
    pub(crate) link: Link,
    init: Init,
    /// Who we said we are.
    own_id: Identity,
    /// The two identities, if the peer's is known from the configuration.
    pair: Option<Pair>,
    first: Option<Box<ChildRequest>>,
    /// Child SAs that are wanted beside the first.
    pub(crate) others: VecDeque<Wish>,
    /// Sequences of requests that were in vain before this one.
    sequences: u32,
}

impl AuthSent {
    /// Sends our proof, and the request for the first Child SA.
    pub(crate) fn begin(
        head: &mut Head,
        (link, init): (Link, Init),
        (wishes, sequences): (Vec<Wish>, u32),
        cx: &mut Cx<'_, '_>,
    ) -> State {
        match Self::try_begin(head, (link, init), (wishes, sequences), cx) {
            Ok(state) => State::AuthSent(Box::new(state)),
            Err(fault) => {
                cx.fault(fault.into(), head.path);
                State::Closed(Down::Fault(fault.into()))
            }
        }
    }

    fn try_begin(
        head: &mut Head,
        (mut link, init): (Link, Init),
        (wishes, sequences): (Vec<Wish>, u32),
        cx: &mut Cx<'_, '_>,
    ) -> Result<Self, StateFault> {
        let credentials = cx.env.credentials;
        let connection = head.connection.clone();
        let own = OwnSide::new(&connection, &init.peer.authorities, head.path.local.ip(), credentials)?;
        let own_body = own.id_body();
        let octets = SignedOctets {
            message: &init.request,
            nonce: &init.nonce_r,
            sk_p: &init.pi,
            id: &own_body,
            suite: link.suite,
        };
        // Which key is ours with a peer that has not said its name: the one for the name that we expect.
        let expected = connection.remote.id.exactly().cloned();
        let to = expected.clone().unwrap_or(Identity::Address(head.path.remote.ip()));
        let proof = own.prove(&octets, &to, (&connection, &init.peer.hashes), cx)?;
        let authorities = wanted_authorities(&connection, cx);
        let mut others: VecDeque<Wish> = wishes.into();
        let childless = match connection.childless {
            Childless::Force => true,
            Childless::Prefer => init.peer.childless,
            Childless::Never | Childless::Allow => others.is_empty() && init.peer.childless,
        };
        let first = match others.pop_front() {
            Some(wish) if !childless => {
                let ends = ends_of_request(head, &connection.vips);
                Some(Box::new(ChildRequest::new(wish, &ends, false, cx)?))
            }
            Some(wish) => {
                others.push_front(wish);
                None
            }
            None => None,
        };
        // RFC 7296 section 2.4: only where it is known between which two there is no other.
        let pair = expected.as_ref().map(|peer| Pair::new(&own.id, peer, head.path.remote.ip()));
        let is_first_contact = connection.unique != Unique::Never
            && pair.as_ref().is_some_and(|pair| !cx.shared.peers.has(pair));
        let known = head.reauthenticates.as_ref().map_or(&[][..], |old| &old.addrs);
        let vips = virtual_ip::wanted(&connection.vips, known);
        let sent = link.request(head, ExchangeType::IKE_AUTH, cx, &|out| {
            own.write(out, |out, id| out.id_i(id))?;
            if is_first_contact {
                out.notify(&Notify::new(NotifyType::INITIAL_CONTACT, &[]))?;
            }
            write_certreq(&authorities, out)?;
            if let Some(peer) = &expected {
                let (kind, data) = peer.to_payload();
                out.id_r(&Id { kind, data: &data })?;
            }
            proof.write(out)?;
            virtual_ip::write_request(&vips, out)?;
            first.as_ref().map_or(Ok(()), |first| first.write(None, out))
        });
        let own_id = own.id;
        match sent {
            Ok(()) => {
                pair.iter().for_each(|pair| cx.shared.peers.begin(pair, head.id));
                Ok(Self { link, init, own_id, pair, first, others, sequences })
            }
            Err(_) => {
                first.iter().for_each(|first| cx.env.host.release_spi(first.spi));
                Err(StateFault::Provider)
            }
        }
    }

    /// The Child SAs that are wanted.
    pub(crate) fn wishes(&self) -> impl Iterator<Item = &Wish> {
        self.first.iter().map(|first| &first.wish).chain(&self.others)
    }

    pub(crate) fn on_time(mut self: Box<Self>, head: &mut Head, cx: &mut Cx<'_, '_>) -> State {
        match self.link.repeat(head, cx) {
            Ok(()) => State::AuthSent(self),
            Err(_) => self.begin_anew(head, cx),
        }
    }

    /// The peer did not respond: it may have forgotten IKE_SA_INIT, so another sequence of requests begins with that, if the
    /// connection wants one.
    fn begin_anew(self: Box<Self>, head: &mut Head, cx: &mut Cx<'_, '_>) -> State {
        let sequences = self.sequences.saturating_add(1);
        if !head.connection.tries_again_after(sequences) {
            return self.give_up(head, Down::Dead, cx);
        }
        self.settle(head, cx);
        self.first.iter().for_each(|first| cx.env.host.release_spi(first.spi));
        let wishes = self.first.into_iter().map(|first| first.wish).chain(self.others).collect();
        match InitSent::restart(head, wishes, sequences, cx) {
            Ok(state) => State::InitSent(Box::new(state)),
            Err(fault) => State::Closed(Down::Fault(fault.into())),
        }
    }

    /// The exchange has ended: IKE_AUTH of another IKE SA does not have to consider this one any more.
    fn settle(&self, head: &Head, cx: &mut Cx<'_, '_>) {
        self.pair.iter().for_each(|pair| cx.shared.peers.settle(pair, head.id));
    }

    pub(crate) fn give_up(self: Box<Self>, head: &Head, why: Down, cx: &mut Cx<'_, '_>) -> State {
        self.settle(head, cx);
        self.first.iter().for_each(|first| cx.env.host.release_spi(first.spi));
        State::Closed(why)
    }

    pub(crate) fn on_response(
        mut self: Box<Self>,
        head: &mut Head,
        response: Result<Incoming<'_>, PeerFault>,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        let judged = response.map_err(Rejection::from).and_then(|response| {
            if response.exchange != ExchangeType::IKE_AUTH {
                return Err(StateFault::WrongExchange.into());
            }
            let peer = self.judge(head, &response.content, cx)?;
            self.link.window.settled();
            Ok((peer, response))
        });
        match judged {
            Ok((peer, response)) => self.establish(head, peer, &response.content, cx),
            Err(rejection) => {
                // What was to be authenticated anew is not. With a peer that takes only one IKE SA, closing the old one helps.
                let old = head.reauthenticates.take();
                old.into_iter().for_each(|old| cx.effect(Effect::Reauthenticated(old.origin)));
                match rejection {
                    Rejection::Refused(notify) => self.give_up(head, Down::Refused(notify), cx),
                    Rejection::Fault(fault) => self.reject(head, fault, cx),
                }
            }
        }
    }

    /// RFC 7296 section 2.21.2: the peer believes that it is authenticated, and is told that it is not.
    fn reject(mut self: Box<Self>, head: &mut Head, fault: PeerFault, cx: &mut Cx<'_, '_>) -> State {
        cx.fault(fault, head.path);
        self.settle(head, cx);
        self.first.iter().for_each(|first| cx.env.host.release_spi(first.spi));
        self.link.window.settled();
        Farewell::say(head, &mut self.link, NotifyType::AUTHENTICATION_FAILED, cx);
        State::Closed(Down::Fault(fault))
    }

    /// Judges the peer's proof.
    fn judge(
        &self,
        head: &Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<PeerAuthenticated, Rejection> {
        let Some((id, id_body)) = content.id_r else {
            // Without an identity it can only be a refusal.
            return Err(content.error().map_or(StateFault::PayloadMissing.into(), Rejection::Refused));
        };
        let id = Identity::from_payload(&id).ok_or(StateFault::IdentityType)?;
        let pattern = &head.connection.remote.id;
        let is_meant = match pattern {
            // With no name for the peer, the address that it was called at has to do: nothing less would tell peers apart.
            IdPattern::Any => true,
            pattern => id_matches(cx.env.credentials, pattern, &id),
        };
        if !is_meant {
            return Err(StateFault::WrongIdentity.into());
        }
        let octets = SignedOctets {
            message: &self.init.response,
            nonce: &self.init.nonce_i,
            sk_p: &self.init.pr,
            id: id_body,
            suite: self.link.suite,
        };
        let auth = need(content.auth)?;
        let claim = Claim { id: &id, auth, certs: &content.certs, remote: head.path.remote.ip() };
        verify(&claim, &octets, (&head.connection, &self.own_id), cx.env).map_err(Rejection::from)
    }

    fn establish(
        self: Box<Self>,
        head: &mut Head,
        peer: PeerAuthenticated,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        self.settle(head, cx);
        let Self { link, init, first, others, .. } = *self;
        let assigned = content.cp.map(|cp| virtual_ip::read_reply(&cp)).unwrap_or_default();
        let ends = ends_with(head, &assigned);
        let mut tasks: VecDeque<Task> = others.into_iter().map(|wish| Task::Child(Box::new(wish))).collect();
        // There are many IKE SAs, and most have one Child SA: room for more would be a waste.
        let mut children = Vec::with_capacity(1);
        if let Some(mut first) = first {
            let nonces = Nonces { initiator: &init.nonce_i, responder: &init.nonce_r };
            let (prf, d, role) = (link.suite.prf, &link.d, Role::Initiator);
            let source = KeySource { prf, d, nonces, shared: None, role };
            let made = match content.error().filter(|_| content.sa.is_none()) {
                Some(refusal) => Err(Down::Refused(refusal)),
                None => first
                    .finish(content, Substitution::new(init.nat, head.path))
                    .map_err(Down::Fault)
                    .and_then(|answer| {
                        let place = Place::new(head, init.nat);
                        let config = &first.wish.config;
                        let child = install((config, answer.agreed), &source, &place, (None, true), cx);
                        child.map_err(|fault| Down::Fault(fault.into()))
                    }),
            };
            match made {
                Ok(mut child) => {
                    child.attempts = first.wish.attempts;
                    tasks.extend(head.end_of_unconfigured(child.id, &child.config));
                    children.push(child);
                }
                Err(why) => {
                    cx.env.host.release_spi(first.spi);
                    if let Down::Fault(fault) = why {
                        // The peer has a Child SA that we have not: it must go.
                        tasks.push_front(Task::DeleteIke(why));
                        cx.fault(fault, head.path);
                    }
                    let (connection, child) = (head.connection.clone(), first.wish.config.clone());
                    cx.event(Event::ChildFailed { connection, child, why });
                }
            }
        }
        tasks.extend(head.reauthenticates.take().map(|old| Task::EndPredecessor(old.origin)));
        if !assigned.addrs.is_empty() {
            let fresh = cx.shared.assigned.hold(&assigned.addrs);
            cx.event(Event::Assigned { ike: head.id, what: assigned.clone(), fresh });
        }
        let leased = Vec::new();
        let parentage = Parentage { peer, nat: init.nat, ends, leased, assigned, children, tasks };
        let established = Box::new(Established::new(head, link, parentage, cx));
        established.proceed(head, cx)
    }
}

/// Why a response does not authenticate its sender.
enum Rejection {
    /// The peer says no.
    Refused(NotifyType),
    Fault(PeerFault),
}

impl From<PeerFault> for Rejection {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for Rejection {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}

/// What `dynamic` means while it is not known yet which address we get: any of the versions that we ask for.
fn ends_of_request(head: &Head, vips: &[core::net::IpAddr]) -> Ends {
    let own = if vips.is_empty() { [head.path.local.ip()].into() } else { vips.to_vec() };
    Ends { local: own, remote: [head.path.remote.ip()].into() }
}

fn ends_with(head: &Head, assigned: &Assigned) -> Ends {
    let own = if assigned.addrs.is_empty() { [head.path.local.ip()].into() } else { assigned.addrs.clone() };
    Ends { local: own, remote: [head.path.remote.ip()].into() }
}
