//! IKE_SA_INIT as the initiator (RFC 7296 sections 1.2, 2.6, 2.7 and 2.23).

use super::auth_sent::AuthSent;
use super::init_reply::{Features, Init, write_features};
use super::link::Fragments;
use super::select::Announced;
use super::{Cx, Head, IkeSa, Link, Role, State, retry_at};
use crate::child::Wish;
use crate::config::Connection;
use crate::keymat::{Nonces, SaKeys};
use crate::message::{Content, Kind, Window, header, need, plain};
use crate::nat::{Detection, Nat, detect};
use crate::negotiate::{IkeSuite, Offer, accepted, with_reprs};
use crate::{Down, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret};
use casemate_sa::Instant;
use casemate_wire::ike::{
    ExchangeType, Header, IkeSpi, Ke, KeMethod, Nonce, Notify, NotifyType, WriteError, Writer,
};

/// Cookies, and other groups, that a peer may ask for in one attempt.
const MAX_RETRIES: u32 = 8;

/// A first request is on its way.
pub(crate) struct InitSent {
    offers: Vec<Offer>,
    method: KexMethod,
    /// Used up by the answer.
    kex: Option<Box<dyn KexSecret>>,
    nonce: Vec<u8>,
    cookie: Vec<u8>,
    /// The message as it was sent last, which AUTH will cover.
    request: Vec<u8>,
    /// Child SAs that are wanted, the first one in IKE_AUTH.
    pub(crate) wishes: Vec<Wish>,
    retries: u32,
    tries: u32,
    /// Sequences of repetitions that were in vain.
    sequences: u32,
    due: Instant,
    /// A refusal that anybody may have sent: it counts if nothing better comes in time.
    refused: Option<Down>,
}

impl InitSent {
    /// Begins an IKE SA.
    pub(crate) fn begin(
        (connection, path): (Arc<Connection>, Path),
        wishes: Vec<Wish>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<IkeSa, StateFault> {
        let head = Head {
            id: cx.shared.next_ike_id(),
            connection,
            path,
            role: Role::Initiator,
            spi_i: cx.ike_spi(),
            spi_r: IkeSpi::NONE,
            attempts: 0,
            reauthenticates: None,
        };
        let state = Self::new(&head, wishes, 0, cx)?;
        Ok(IkeSa { head, state: State::InitSent(Box::new(state)) })
    }

    /// Restarts an IKE SA whose peer did not respond to IKE_AUTH: a new SPI, a new key exchange, the configured ports. `sequences`
    /// of requests were in vain so far.
    pub(crate) fn restart(
        head: &mut Head,
        wishes: Vec<Wish>,
        sequences: u32,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Self, StateFault> {
        (head.spi_i, head.spi_r) = (cx.ike_spi(), IkeSpi::NONE);
        head.path.local.set_port(head.connection.local_port);
        head.path.remote.set_port(head.connection.remote_port);
        Self::new(head, wishes, sequences, cx)
    }

    fn new(head: &Head, wishes: Vec<Wish>, sequences: u32, cx: &mut Cx<'_, '_>) -> Result<Self, StateFault> {
        let offers: Vec<Offer> = head.connection.proposals.iter().map(Offer::ike).collect();
        let method =
            offers.iter().find_map(|offer| offer.kex().next()).ok_or(StateFault::NoProposalChosen)?;
        let kex = cx.env.providers.kex(method, cx.env.rng).map_err(|_| StateFault::Provider)?;
        let nonce = cx.nonce();
        let mut state = Self {
            offers,
            method,
            kex: Some(kex),
            nonce,
            cookie: Vec::new(),
            request: Vec::new(),
            wishes,
            retries: 0,
            tries: 0,
            sequences,
            due: cx.env.now,
            refused: None,
        };
        state.send(head, cx)?;
        Ok(state)
    }

    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Makes the request anew and sends it.
    fn send(&mut self, head: &Head, cx: &mut Cx<'_, '_>) -> Result<(), StateFault> {
        let connection = &head.connection;
        let detection = Detection::new(head.spis(), head.path, connection.force_encap, cx.env.providers)?;
        let kind = Kind { exchange: ExchangeType::IKE_SA_INIT, message_id: 0, response: false };
        let Self { offers, method, kex, nonce, cookie, .. } = &*self;
        let build = |out: &mut Writer<'_>| {
            // RFC 7296 section 2.6: the cookie comes first.
            if !cookie.is_empty() {
                out.notify(&Notify::new(NotifyType::COOKIE, cookie))?;
            }
            with_reprs(offers, &[], |proposals| out.sa(proposals))?;
            let public = kex.as_ref().map_or(&[][..], |kex| kex.public());
            out.ke(&Ke { method: KeMethod(method.id()), data: public })?;
            out.nonce(&Nonce::parse(nonce).map_err(WriteError::Refused)?)?;
            detection.write(out)?;
            write_features(&Announced::by(connection), out)
        };
        let header = header(head.spis(), head.role, kind);
        let request = plain(&header, &mut cx.shared.scratch, &build);
        self.request = request.map_err(|_| StateFault::Provider)?;
        cx.send(head.path, core::slice::from_ref(&self.request));
        self.tries = 0;
        // A refusal goes on waiting for something better: neither longer nor shorter.
        if self.refused.is_none() {
            self.due = cx.env.now.after(cx.shared.settings.retransmission.wait(0));
        }
        Ok(())
    }

    pub(crate) fn on_time(mut self: Box<Self>, head: &mut Head, cx: &mut Cx<'_, '_>) -> State {
        if cx.env.now < self.due {
            return State::InitSent(self);
        }
        if let Some(why) = self.refused.take() {
            return self.pause(head, why, cx);
        }
        self.tries = self.tries.saturating_add(1);
        let how = cx.shared.settings.retransmission;
        if self.tries > how.tries {
            return self.begin_anew(head, cx);
        }
        self.due = cx.env.now.after(how.wait(self.tries));
        cx.send(head.path, core::slice::from_ref(&self.request));
        State::InitSent(self)
    }

    /// The peer refused, or somebody else did, for nothing proves it: another sequence after a pause, if the connection wants one.
    fn pause(mut self: Box<Self>, head: &Head, why: Down, cx: &mut Cx<'_, '_>) -> State {
        if !head.connection.tries_again_after(self.sequences.saturating_add(1)) {
            return State::Closed(why);
        }
        // As after the last repetition.
        self.tries = cx.shared.settings.retransmission.tries;
        self.due = retry_at(u8::try_from(self.sequences).unwrap_or(u8::MAX), cx);
        State::InitSent(self)
    }

    /// The peer did not answer: another sequence of repetitions, if the connection wants one.
    fn begin_anew(mut self: Box<Self>, head: &Head, cx: &mut Cx<'_, '_>) -> State {
        self.sequences = self.sequences.saturating_add(1);
        if !head.connection.tries_again_after(self.sequences) {
            return State::Closed(Down::Dead);
        }
        // It may be another peer by now, and the cookie too old.
        self.cookie.clear();
        self.retries = 0;
        match self.send(head, cx) {
            Ok(()) => State::InitSent(self),
            Err(fault) => State::Closed(Down::Fault(fault.into())),
        }
    }

    /// A response in clear text: it may be forged, and must not end the attempt at once (RFC 7296 section 2.21.1).
    pub(crate) fn on_response(
        mut self: Box<Self>,
        head: &mut Head,
        header: &Header,
        (bytes, path): (&[u8], Path),
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        let done = match content.error() {
            _ if content.says(NotifyType::COOKIE) && content.sa.is_none() => {
                self.add_cookie(head, content, cx)
            }
            Some(NotifyType::INVALID_KE_PAYLOAD) => self.change_kex(head, content, cx),
            Some(refusal) => {
                self.refuse(Down::Refused(refusal), cx);
                Ok(())
            }
            None => match self.accept(head, header, (bytes, path), content, cx) {
                Ok((link, init)) => {
                    follow_nat(head, init.nat, cx);
                    return AuthSent::begin(head, (link, init), (self.wishes, self.sequences), cx);
                }
                Err(fault) => Err(fault),
            },
        };
        if let Err(fault) = done {
            cx.fault(fault, path);
            if fault != StateFault::KeValue.into() {
                self.refuse(Down::Fault(fault), cx);
            }
        }
        State::InitSent(self)
    }

    fn refuse(&mut self, why: Down, cx: &Cx<'_, '_>) {
        if self.refused.is_none() {
            self.refused = Some(why);
            self.due = cx.env.now.after(cx.shared.settings.refusal_wait);
        }
    }

    /// RFC 7296 section 2.6: the same request, with the cookie in front.
    fn add_cookie(
        &mut self,
        head: &Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), PeerFault> {
        let cookie = content.notify(NotifyType::COOKIE).map_or(&[][..], |notify| notify.data);
        if self.cookie == cookie {
            // The last request had it: this is a repetition of the response to the one before.
            return Ok(());
        }
        self.count_retry()?;
        self.cookie = cookie.into();
        self.send(head, cx).map_err(PeerFault::from)
    }

    /// RFC 7296 section 1.2: another group, which must be one that was offered.
    fn change_kex(
        &mut self,
        head: &Head,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), PeerFault> {
        let data = content.notify(NotifyType::INVALID_KE_PAYLOAD).map_or(&[][..], |notify| notify.data);
        let wanted = data.as_array().map(|id| u16::from_be_bytes(*id)).and_then(KexMethod::from_id);
        if wanted == Some(self.method) {
            // The last request had it: this is a repetition of the response to the one before.
            return Ok(());
        }
        self.count_retry()?;
        let offered = |method: &KexMethod| self.offers.iter().any(|offer| offer.kex().any(|m| m == *method));
        self.method = wanted.filter(offered).ok_or(StateFault::NotOffered)?;
        self.draw_kex(cx)?;
        self.send(head, cx).map_err(PeerFault::from)
    }

    fn draw_kex(&mut self, cx: &mut Cx<'_, '_>) -> Result<(), StateFault> {
        let kex = cx.env.providers.kex(self.method, cx.env.rng);
        self.kex = Some(kex.map_err(|_| StateFault::Provider)?);
        Ok(())
    }

    fn count_retry(&mut self) -> Result<(), StateFault> {
        self.retries = self.retries.saturating_add(1);
        if self.retries > MAX_RETRIES { Err(StateFault::TooManyRetries) } else { Ok(()) }
    }

    /// Reads the peer's choice. Changes nothing unless all of it is right but the public value, which uses up ours.
    fn accept(
        &mut self,
        head: &mut Head,
        header: &Header,
        (bytes, path): (&[u8], Path),
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(Link, Init), PeerFault> {
        if header.spi_r == IkeSpi::NONE {
            return Err(StateFault::ZeroSpi.into());
        }
        let (sa, ke, nonce_r) = (need(content.sa)?, need(content.ke)?, need(content.nonce)?);
        let chosen = accepted(&self.offers, &sa)?;
        let suite = IkeSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
        if suite.kex != self.method || ke.method.0 != suite.kex.id() {
            return Err(StateFault::KeMethod.into());
        }
        let spis = (head.spi_i, header.spi_r);
        let mut nat = detect(content, spis, path, cx.env.providers)?;
        if let Some(nat) = nat.as_mut().filter(|_| head.connection.force_encap) {
            nat.local = true;
        }
        let kex = self.kex.take().ok_or(StateFault::Provider)?;
        let Ok(shared) = kex.agree(ke.data) else {
            // It may be forged, and our private value is gone: the attempt goes on with another one.
            self.count_retry()?;
            self.draw_kex(cx)?;
            self.send(head, cx)?;
            return Err(StateFault::KeValue.into());
        };
        let nonces = Nonces { initiator: &self.nonce, responder: nonce_r.data() };
        let keys = SaKeys::first(suite.prf, suite.sk, &shared, nonces, spis, cx.env.providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        head.spi_r = header.spi_r;
        let peer = Features::of(content);
        let ours = Announced::by(&head.connection).fragments;
        let fragments = Fragments { ours, theirs: peer.fragments };
        let link = Link::new(head, suite, &keys, Window::new(1, 0), fragments, cx)?;
        let init = Init {
            request: core::mem::take(&mut self.request),
            response: bytes.into(),
            nonce_i: core::mem::take(&mut self.nonce),
            nonce_r: nonce_r.data().into(),
            pi: keys.pi,
            pr: keys.pr,
            nat: nat.unwrap_or_default(),
            peer,
        };
        Ok((link, init))
    }
}

/// RFC 7296 section 2.23: behind a NAT, everything goes on at port 4500.
fn follow_nat(head: &mut Head, nat: Nat, cx: &Cx<'_, '_>) {
    let port = cx.shared.settings.natt_port;
    if nat.any() && head.path.local.port() != port {
        head.path.local.set_port(port);
        head.path.remote.set_port(port);
    }
}
