//! IKE_AUTH as the responder (RFC 7296 sections 1.2, 2.15 and 2.21.2).

use super::init_reply::{Init, authorities, is_between};
use super::virtual_ip::Leased;
use super::{Cx, Effect, Established, Head, Incoming, Link, Meta, Parentage, Role, State};
use crate::auth::{Claim, OwnProof, OwnSide, PeerAuthenticated, SignedOctets, verify};
use crate::child::{Ends, Grant, KeySource, Place, Refusal, install, respond};
use crate::config::{Childless, Connection, IdPattern, Identity, Unique};
use crate::credentials::id_matches;
use crate::keymat::Nonces;
use crate::message::{Content, need};
use crate::negotiate::IkeSuite;
use crate::pool::Lessee;
use crate::{Assigned, Down, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_sa::Instant;
use casemate_wire::ike::{Answer, ExchangeType, Notify, NotifyType};

/// Keys are agreed, the peer is unknown.
pub(crate) struct HalfOpen {
    pub(crate) link: Link,
    pub(crate) init: Init,
    pub(crate) begun: Instant,
    pub(crate) until: Instant,
}

/// What the peer has proved, and our proof.
struct Mutual<'c> {
    peer: PeerAuthenticated,
    own: OwnSide<'c>,
    proof: OwnProof,
}

/// What the request came to.
struct Joined {
    peer: PeerAuthenticated,
    ends: Ends,
    first: First,
}

/// The first Child SA.
enum First {
    Granted(Box<Grant>),
    Refused(StateFault),
    /// Neither side wants one (RFC 6023).
    None,
}

impl HalfOpen {
    pub(crate) const fn due(&self) -> Instant {
        self.until
    }

    pub(crate) fn on_time(self: Box<Self>, cx: &Cx<'_, '_>) -> State {
        if cx.env.now < self.until { State::HalfOpen(self) } else { State::Closed(Down::Dead) }
    }

    pub(crate) fn on_request(
        mut self: Box<Self>,
        head: &mut Head,
        request: Result<Incoming<'_>, PeerFault>,
        meta: Meta,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        let mut leased = Leased::default();
        let judged = request.and_then(|request| {
            if request.exchange != ExchangeType::IKE_AUTH {
                return Err(StateFault::WrongExchange.into());
            }
            self.authenticate(head, &request, &mut leased, cx)
        });
        match judged {
            Ok(joined) => self.establish(head, joined, leased, cx),
            Err(fault) => {
                leased.addrs.iter().for_each(|addr| cx.shared.pools.release(*addr));
                cx.fault(fault, meta.path);
                self.link.refuse(head, meta.exchange, fault, cx);
                State::Closed(Down::Fault(fault))
            }
        }
    }

    fn authenticate(
        &mut self,
        head: &mut Head,
        request: &Incoming<'_>,
        leased: &mut Leased,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Joined, PeerFault> {
        let content = &request.content;
        let Mutual { peer, own, proof } = self.prove(head, content, cx)?;
        let replaces = self.check_unique(head, &peer, content, cx)?;
        // From here on the peer's address is the one that it proved to have.
        head.path = request.path;
        let to = Lessee { id: peer.id(), replaces };
        let leasing = content.cp.map_or(Ok(()), |cp| leased.fill(&cp, &head.connection, to, cx));
        let remote =
            if leased.addrs.is_empty() { [head.path.remote.ip()].into() } else { leased.addrs.clone() };
        let ends = Ends { local: [head.path.local.ip()].into(), remote };
        let first = match leasing {
            Ok(()) => self.first_child(head, content, &ends, cx)?,
            Err(fault) => First::Refused(fault),
        };
        if let First::Refused(fault) = first {
            cx.fault(fault.into(), request.path);
        }
        let sent = self.link.answer(head, ExchangeType::IKE_AUTH, cx, &|out| {
            own.write(out, |out, id| out.id_r(id))?;
            proof.write(out)?;
            leased.write(out)?;
            match &first {
                First::Granted(grant) => grant.write(None, out),
                First::Refused(fault) => match fault.answer() {
                    Answer::Notify(kind) => out.notify(&Notify::new(kind, &[])),
                    Answer::Silence => Ok(()),
                },
                First::None => Ok(()),
            }
        });
        if sent.is_err() {
            if let First::Granted(grant) = &first {
                cx.env.host.release_spi(grant.agreed.spi_in);
            }
            return Err(StateFault::Provider.into());
        }
        Ok(Joined { peer, ends, first })
    }

    /// Judges the peer's proof and makes ours.
    fn prove<'c>(
        &self,
        head: &mut Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, 'c>,
    ) -> Result<Mutual<'c>, PeerFault> {
        let credentials = cx.env.credentials;
        let (id, id_body) = need(content.id_i)?;
        let id = Identity::from_payload(&id).ok_or(StateFault::IdentityType)?;
        let asked = match content.id_r {
            None => None,
            Some((id, _)) => Some(Identity::from_payload(&id).ok_or(StateFault::IdentityType)?),
        };
        // Without AUTH the peer wants EAP (RFC 7296 section 2.16), which is not spoken here.
        let auth = content.auth.ok_or(StateFault::AuthMethod)?;
        head.connection = self.find_connection(head, &id, asked.as_ref(), cx)?;
        let wanted = [&*self.init.peer.authorities, &*authorities(content)].concat();
        let own = OwnSide::new(&head.connection, &wanted, head.path.local.ip(), credentials)?;
        let init = &self.init;
        let theirs = SignedOctets {
            message: &init.request,
            nonce: &init.nonce_r,
            sk_p: &init.pi,
            id: id_body,
            suite: self.link.suite,
        };
        let claim = Claim { id: &id, auth, certs: &content.certs };
        let peer = verify(&claim, &theirs, (&head.connection, &own.id), cx.env)?;
        let own_body = own.id_body();
        let ours = SignedOctets {
            message: &init.response,
            nonce: &init.nonce_i,
            sk_p: &init.pr,
            id: &own_body,
            suite: self.link.suite,
        };
        let connection = head.connection.clone();
        let proof = own.prove(&ours, &id, (&connection, &init.peer.hashes), cx)?;
        Ok(Mutual { peer, own, proof })
    }

    /// The entry of the PAD for the identities (RFC 4301 section 4.4.3): among those between these ends that would have
    /// agreed to the algorithms, one that names the peer comes before one that takes anybody.
    fn find_connection(
        &self,
        head: &Head,
        id: &Identity,
        asked: Option<&Identity>,
        cx: &Cx<'_, '_>,
    ) -> Result<Arc<Connection>, StateFault> {
        let credentials = cx.env.credentials;
        let IkeSuite { sk, prf, kex } = self.link.suite;
        let suits = |connection: &&Arc<Connection>| {
            let is_ours = match (&connection.local.id, asked) {
                (Some(own), Some(asked)) => own.names_same(asked),
                _ => true,
            };
            is_ours
                && is_between(connection, head.path)
                && id_matches(credentials, &connection.remote.id, id)
                && connection.proposals.iter().any(|proposal| proposal.allows(sk, prf, kex))
        };
        let rank = |connection: &&Arc<Connection>| match connection.remote.id {
            IdPattern::Exactly(_) => 0,
            IdPattern::Ending(..) | IdPattern::NameLike(_) => 1,
            IdPattern::Any => 2,
        };
        let found = cx.shared.connections.iter().filter(suits).min_by_key(rank);
        found.cloned().ok_or(StateFault::NoPeer)
    }

    /// What other IKE SAs with the same peer mean (RFC 7296 section 2.4): those that were there before this one was begun. When
    /// both sides begin at once, neither means the other's new one. Answers whether they are closed.
    fn check_unique(
        &self,
        head: &Head,
        peer: &PeerAuthenticated,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<bool, StateFault> {
        let mut older = cx.shared.peers.before(peer.id(), self.begun).peekable();
        if older.peek().is_none() {
            return Ok(false);
        }
        let first_contact = content.says(NotifyType::INITIAL_CONTACT);
        let why = Down::NotUnique;
        match head.connection.unique {
            Unique::Never => Ok(false),
            Unique::No if !first_contact => Ok(false),
            Unique::Keep if !first_contact => Err(StateFault::NotUnique),
            _ => {
                // A peer that has forgotten them need not be told.
                let closes = older.map(|ike| Effect::Close { ike, why, tell: !first_contact });
                cx.shared.effects.extend(closes);
                Ok(true)
            }
        }
    }

    fn first_child(
        &self,
        head: &Head,
        content: &Content<'_>,
        ends: &Ends,
        cx: &mut Cx<'_, '_>,
    ) -> Result<First, PeerFault> {
        let connection = &head.connection;
        if content.sa.is_none() && content.ts_i.is_none() && content.ts_r.is_none() {
            // RFC 6023 section 3: only where we said that we can.
            return match connection.childless {
                Childless::Never => Err(StateFault::ChildlessRefused.into()),
                _ => Ok(First::None),
            };
        }
        if connection.childless == Childless::Force {
            return Err(StateFault::ChildlessRefused.into());
        }
        match respond((&connection.children, &[]), content, ends, false, cx) {
            Ok(grant) => Ok(First::Granted(Box::new(grant))),
            Err(Refusal::Fault(PeerFault::State(fault))) if fault != StateFault::PayloadMissing => {
                Ok(First::Refused(fault))
            }
            Err(Refusal::Fault(fault)) => Err(fault),
            // There is no key exchange in IKE_AUTH.
            Err(Refusal::OtherKex(_)) => Ok(First::Refused(StateFault::NoProposalChosen)),
        }
    }

    /// The answer is on its way.
    fn establish(
        self: Box<Self>,
        head: &mut Head,
        joined: Joined,
        leased: Leased,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        let Self { link, mut init, .. } = *self;
        let Joined { peer, ends, first } = joined;
        // The peer was made to believe in a NAT.
        init.nat.local |= head.connection.force_encap;
        // There are many IKE SAs, and most have one Child SA: room for more would be a waste.
        let mut children = Vec::with_capacity(1);
        if let First::Granted(grant) = first {
            let nonces = Nonces { initiator: &init.nonce_i, responder: &init.nonce_r };
            let (prf, d, role) = (link.suite.prf, &link.d, Role::Responder);
            let source = KeySource { prf, d, nonces, shared: None, role };
            let Grant { config, agreed, .. } = *grant;
            let (spi, place) = (agreed.spi_in, Place::new(head, init.nat));
            match install((&config, agreed), &source, &place, (None, true), cx) {
                Ok(child) => children.push(child),
                Err(fault) => {
                    cx.env.host.release_spi(spi);
                    leased.addrs.iter().for_each(|addr| cx.shared.pools.release(*addr));
                    return State::Closed(Down::Fault(fault.into()));
                }
            }
        }
        let (leased, assigned) = (leased.addrs, Assigned::default());
        let parentage =
            Parentage { peer, nat: init.nat, ends, leased, assigned, children, tasks: VecDeque::new() };
        State::Established(Box::new(Established::new(head, link, parentage, cx)))
    }
}
