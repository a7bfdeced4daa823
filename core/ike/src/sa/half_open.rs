//! IKE_AUTH as the responder (RFC 7296 sections 1.2, 2.15 and 2.21.2).

use super::init_reply::{Init, authorities};
use super::select::by_identity;
use super::virtual_ip::Leased;
use super::{Cx, Effect, Established, Head, Incoming, Link, Meta, Parentage, Role, State};
use crate::auth::{Claim, OwnProof, OwnSide, PeerAuthenticated, SignedOctets, verify};
use crate::child::{Ends, Grant, KeySource, Place, Refusal, install, respond};
use crate::config::{Childless, Connection, Identity, Unique};
use crate::keymat::Nonces;
use crate::message::{Content, need};
use crate::pool::Lessee;
use crate::{Assigned, Down, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
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
        let remote = head.path.remote.ip();
        let to = Lessee { scope: peer.scope(), remote, replaces, has: &[] };
        let leasing = content.cp.map_or(Ok(()), |cp| leased.fill(&cp, &head.connection, to, cx));
        let remote = if leased.addrs.is_empty() { [remote].into() } else { leased.addrs.clone() };
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

    /// Judges the peer's proof and makes ours, on the first connection of those that may be meant that takes the one and has the other.
    fn prove<'c>(
        &self,
        head: &mut Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, 'c>,
    ) -> Result<Mutual<'c>, PeerFault> {
        let (id, id_body) = need(content.id_i)?;
        let id = Identity::from_payload(&id).ok_or(StateFault::IdentityType)?;
        let asked = match content.id_r {
            None => None,
            Some((id, _)) => Some(Identity::from_payload(&id).ok_or(StateFault::IdentityType)?),
        };
        // Without AUTH the peer wants EAP (RFC 7296 section 2.16), which is not spoken here.
        let auth = content.auth.ok_or(StateFault::AuthMethod)?;
        let claim = Claim { id: &id, auth, certs: &content.certs, remote: head.path.remote.ip() };
        let candidates = by_identity((head.path, self.link.suite), &id, asked.as_ref(), cx);
        // What is told when none takes it: why the best of those does not that take such a proof at all.
        let mut refused = StateFault::NoPeer;
        for connection in candidates {
            let proved = self.prove_on(&connection, head.path, (&claim, id_body), content, cx);
            if proved.is_ok() || says_more(refused) {
                head.connection = connection;
            }
            match proved {
                Ok(mutual) => return Ok(mutual),
                Err(fault) if says_more(refused) => refused = fault,
                Err(_) => {}
            }
        }
        Err(refused.into())
    }

    /// On one connection.
    fn prove_on<'c>(
        &self,
        connection: &Connection,
        path: Path,
        (claim, id_body): (&Claim<'_>, &[u8]),
        content: &Content<'_>,
        cx: &mut Cx<'_, 'c>,
    ) -> Result<Mutual<'c>, StateFault> {
        check_childless(connection, content)?;
        let (init, suite) = (&self.init, self.link.suite);
        let wanted = [&*init.peer.authorities, &*authorities(content)].concat();
        let own = OwnSide::new(connection, &wanted, path.local.ip(), cx.env.credentials)?;
        let (message, nonce) = (&*init.request, &*init.nonce_r);
        let theirs = SignedOctets { message, nonce, sk_p: &init.pi, id: id_body, suite };
        let peer = verify(claim, &theirs, (connection, &own.id), cx.env)?;
        let (message, nonce, own_body) = (&*init.response, &*init.nonce_i, own.id_body());
        let ours = SignedOctets { message, nonce, sk_p: &init.pr, id: &own_body, suite };
        let proof = own.prove(&ours, claim.id, (connection, &init.peer.hashes), cx)?;
        Ok(Mutual { peer, own, proof })
    }

    /// What other IKE SAs with the same peer mean, if it was authenticated equally there (RFC 7296 section
    /// 2.4): those that were there before this one was begun. When both sides begin at once, neither means
    /// the other's new one. If none is closed and there are as many as there may be, the oldest is. Returns
    /// whether those that this one replaces are closed.
    fn check_unique(
        &self,
        head: &Head,
        peer: &PeerAuthenticated,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<bool, StateFault> {
        let first_contact = content.says(NotifyType::INITIAL_CONTACT);
        let (peers, scope) = (&cx.shared.peers, peer.scope());
        let older: Vec<_> = peers.before(scope, self.begun).collect();
        let most = cx.shared.settings.ike_sas_per_peer;
        let is_full = peers.count(scope, most) >= most;
        let closes_older = match head.connection.unique {
            Unique::Never => return Ok(false),
            Unique::No => first_contact,
            Unique::Keep if !first_contact && !older.is_empty() => return Err(StateFault::NotUnique),
            Unique::Keep | Unique::Replace => true,
        };
        if older.is_empty() || !closes_older {
            if is_full && let Some(oldest) = peers.oldest(scope) {
                // A peer that restarts without INITIAL_CONTACT leaves IKE SAs here: the oldest makes room, so that the peer is
                // never locked out.
                cx.fault(StateFault::PeerLimit.into(), head.path);
                cx.effect(Effect::Evict(oldest));
            }
            return Ok(false);
        }
        // A peer that has forgotten them need not be told.
        let why = Down::NotUnique;
        let closes = older.into_iter().map(|ike| Effect::Close { ike, why, tell: !first_contact });
        cx.shared.effects.extend(closes);
        Ok(true)
    }

    fn first_child(
        &self,
        head: &Head,
        content: &Content<'_>,
        ends: &Ends,
        cx: &mut Cx<'_, '_>,
    ) -> Result<First, PeerFault> {
        let connection = &head.connection;
        if is_childless(content) {
            return Ok(First::None);
        }
        let between = (ends, self.init.nat, head.path);
        match respond((&connection.children, &[]), content, between, false, cx) {
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
        let Self { link, init, .. } = *self;
        let Joined { peer, ends, first } = joined;
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

/// Whether the request is for an IKE SA alone (RFC 6023 section 3).
const fn is_childless(content: &Content<'_>) -> bool {
    content.sa.is_none() && content.ts_i.is_none() && content.ts_r.is_none()
}

fn check_childless(connection: &Connection, content: &Content<'_>) -> Result<(), StateFault> {
    match (connection.childless, is_childless(content)) {
        (Childless::Never, true) | (Childless::Force, false) => Err(StateFault::ChildlessRefused),
        _ => Ok(()),
    }
}

/// Whether any other fault says more of why a peer is refused.
const fn says_more(than: StateFault) -> bool {
    matches!(than, StateFault::NoPeer | StateFault::AuthMethod | StateFault::ChildlessRefused)
}
