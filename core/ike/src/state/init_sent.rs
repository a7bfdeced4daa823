//! IKE_SA_INIT as the initiator (RFC 7296 sections 1.2, 2.6, 2.7 and 2.23).

use super::init_response::{InitExchange, PeerFeatures, write_features};
use super::select_connection::AnnouncedFeatures;
use crate::child_sa::ChildRequest;
use crate::config::Connection;
use crate::context::Cx;
use crate::keymat::{Nonces, SaKeys};
use crate::nat::{NatDetection, NatStatus, detect};
use crate::negotiate::{IkeSuite, Offer, verify_choice, with_proposals};
use crate::state::{AuthSent, IkeSa, SaCommon, State, retry_at};
use crate::transport::{
    Content, FragmentSupport, MessageKind, SecureChannel, Window, header, required, write_plain,
};
use crate::{DownReason, Path, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, KexSecret};
use casemate_sa::Instant;
use casemate_wire::ike::{
    ExchangeType, Header, IkeSpi, Ke, KeMethod, Nonce, Notify, NotifyType, WriteError, Writer,
};

/// Maximum number of cookies and other key exchange methods that a peer may request in one attempt.
const MAX_RETRIES: u32 = 8;

/// The first request is outstanding.
pub(crate) struct InitSent {
    offers: Vec<Offer>,
    method: KexMethod,
    /// Consumed by the response.
    kex: Option<Box<dyn KexSecret>>,
    nonce: Vec<u8>,
    cookie: Vec<u8>,
    /// Last message as sent. AUTH covers it.
    request: Vec<u8>,
    /// Requested Child SAs. The first is part of IKE_AUTH.
    pub(crate) child_requests: Vec<ChildRequest>,
    retries: u32,
    tries: u32,
    /// Number of failed sequences of retransmissions.
    sequences: u32,
    due: Instant,
    /// An unauthenticated refusal. It takes effect if no better response arrives in time.
    refused: Option<DownReason>,
}

impl InitSent {
    /// Starts an IKE SA.
    pub(crate) fn begin(
        (connection, path): (Arc<Connection>, Path),
        child_requests: Vec<ChildRequest>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<IkeSa, StateFault> {
        let common = SaCommon {
            id: cx.shared.next_ike_id(),
            connection,
            path,
            role: Role::Initiator,
            spi_i: cx.ike_spi(),
            spi_r: IkeSpi::NONE,
            attempts: 0,
            predecessor: None,
        };
        let state = Self::new(&common, child_requests, 0, cx)?;
        Ok(IkeSa { common, state: State::InitSent(Box::new(state)) })
    }

    /// Restarts an IKE SA whose peer did not respond to IKE_AUTH: with a new SPI, a new key exchange and the
    /// configured ports. `sequences` is the number of failed sequences so far.
    pub(crate) fn restart(
        common: &mut SaCommon,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Self, StateFault> {
        (common.spi_i, common.spi_r) = (cx.ike_spi(), IkeSpi::NONE);
        common.path.local.set_port(common.connection.local_port);
        common.path.remote.set_port(common.connection.remote_port);
        Self::new(common, child_requests, sequences, cx)
    }

    fn new(
        common: &SaCommon,
        child_requests: Vec<ChildRequest>,
        sequences: u32,
        cx: &mut Cx<'_, '_>,
    ) -> Result<Self, StateFault> {
        let offers: Vec<Offer> = common.connection.proposals.iter().map(Offer::ike).collect();
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
            child_requests,
            retries: 0,
            tries: 0,
            sequences,
            due: cx.env.now,
            refused: None,
        };
        state.send(common, cx)?;
        Ok(state)
    }

    pub(crate) const fn next_timeout(&self) -> Instant {
        self.due
    }

    /// Builds the request and sends it.
    fn send(&mut self, common: &SaCommon, cx: &mut Cx<'_, '_>) -> Result<(), StateFault> {
        let connection = &common.connection;
        let detection =
            NatDetection::new(common.spis(), common.path, connection.force_encap, cx.env.providers)?;
        let kind = MessageKind { exchange: ExchangeType::IKE_SA_INIT, message_id: 0, response: false };
        let Self { offers, method, kex, nonce, cookie, .. } = &*self;
        let build = |out: &mut Writer<'_>| {
            // RFC 7296 section 2.6: the cookie comes first.
            if !cookie.is_empty() {
                out.notify(&Notify::new(NotifyType::COOKIE, cookie))?;
            }
            with_proposals(offers, &[], |proposals| out.sa(proposals))?;
            let public = kex.as_ref().map_or(&[][..], |kex| kex.public());
            out.ke(&Ke { method: KeMethod(method.id()), data: public })?;
            out.nonce(&Nonce::parse(nonce).map_err(WriteError::Invalid)?)?;
            detection.write(out)?;
            write_features(&AnnouncedFeatures::of_connection(connection), out)
        };
        let header = header(common.spis(), common.role, kind);
        let request = write_plain(&header, &mut cx.shared.scratch, &build);
        self.request = request.map_err(|_| StateFault::Provider)?;
        cx.send(common.path, core::slice::from_ref(&self.request));
        self.tries = 0;
        // A refusal keeps its deadline.
        if self.refused.is_none() {
            self.due = cx.env.now.after(cx.shared.settings.retransmission.wait(0));
        }
        Ok(())
    }

    pub(crate) fn on_timeout(mut self: Box<Self>, common: &mut SaCommon, cx: &mut Cx<'_, '_>) -> State {
        if cx.env.now < self.due {
            return State::InitSent(self);
        }
        if let Some(reason) = self.refused.take() {
            return self.pause_after_refusal(common, reason, cx);
        }
        self.tries = self.tries.saturating_add(1);
        let retransmission = cx.shared.settings.retransmission;
        if self.tries > retransmission.tries {
            return self.restart_sequence(common, cx);
        }
        self.due = cx.env.now.after(retransmission.wait(self.tries));
        cx.send(common.path, core::slice::from_ref(&self.request));
        State::InitSent(self)
    }

    /// Starts another sequence after a pause, if the connection allows one. The refusal is not authenticated
    /// and may be forged.
    fn pause_after_refusal(
        mut self: Box<Self>,
        common: &SaCommon,
        reason: DownReason,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        if !common.connection.allows_another_sequence(self.sequences.saturating_add(1)) {
            return State::Closed(reason);
        }
        // As after the last retransmission.
        self.tries = cx.shared.settings.retransmission.tries;
        self.due = retry_at(u8::try_from(self.sequences).unwrap_or(u8::MAX), cx);
        State::InitSent(self)
    }

    /// Starts another sequence of retransmissions to a peer that did not respond, if the connection allows
    /// one.
    fn restart_sequence(mut self: Box<Self>, common: &SaCommon, cx: &mut Cx<'_, '_>) -> State {
        self.sequences = self.sequences.saturating_add(1);
        if !common.connection.allows_another_sequence(self.sequences) {
            return State::Closed(DownReason::DeadPeer);
        }
        // Another peer may answer now, and the cookie may be too old.
        self.cookie.clear();
        self.retries = 0;
        match self.send(common, cx) {
            Ok(()) => State::InitSent(self),
            Err(fault) => State::Closed(DownReason::Fault(fault.into())),
        }
    }

    /// Handles a response in clear text. The response may be forged and must not end the attempt at once (RFC
    /// 7296 section 2.21.1).
    pub(crate) fn on_response(
        mut self: Box<Self>,
        common: &mut SaCommon,
        header: &Header,
        (bytes, path): (&[u8], Path),
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> State {
        let done = match content.error() {
            _ if content.has_notify(NotifyType::COOKIE) && content.sa.is_none() => {
                self.add_cookie(common, content, cx)
            }
            Some(NotifyType::INVALID_KE_PAYLOAD) => self.change_kex(common, content, cx),
            Some(refusal) => {
                self.refuse(DownReason::Refused(refusal), cx);
                Ok(())
            }
            None => match self.accept(common, header, (bytes, path), content, cx) {
                Ok((channel, init)) => {
                    switch_to_natt_port(common, init.nat, cx);
                    return AuthSent::begin(
                        common,
                        (channel, init),
                        (self.child_requests, self.sequences),
                        cx,
                    );
                }
                Err(fault) => Err(fault),
            },
        };
        if let Err(fault) = done {
            cx.fault(fault, path);
            if fault != StateFault::KeValue.into() {
                self.refuse(DownReason::Fault(fault), cx);
            }
        }
        State::InitSent(self)
    }

    fn refuse(&mut self, reason: DownReason, cx: &Cx<'_, '_>) {
        if self.refused.is_none() {
            self.refused = Some(reason);
            self.due = cx.env.now.after(cx.shared.settings.refusal_wait);
        }
    }

    /// Repeats the request with the cookie in front (RFC 7296 section 2.6).
    fn add_cookie(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), PeerFault> {
        let cookie = content.notify(NotifyType::COOKIE).map_or(&[][..], |notify| notify.data);
        if self.cookie == cookie {
            // The last request already had this cookie, so the response is a repetition.
            return Ok(());
        }
        self.count_retry()?;
        self.cookie = cookie.into();
        self.send(common, cx).map_err(PeerFault::from)
    }

    /// Repeats the request with another key exchange method, which must be one of those offered (RFC 7296
    /// section 1.2).
    fn change_kex(
        &mut self,
        common: &SaCommon,
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(), PeerFault> {
        let data = content.notify(NotifyType::INVALID_KE_PAYLOAD).map_or(&[][..], |notify| notify.data);
        let wanted = data.as_array().map(|id| u16::from_be_bytes(*id)).and_then(KexMethod::from_id);
        if wanted == Some(self.method) {
            // The last request already used this method, so the response is a repetition.
            return Ok(());
        }
        self.count_retry()?;
        let offered = |method: &KexMethod| self.offers.iter().any(|offer| offer.kex().any(|m| m == *method));
        self.method = wanted.filter(offered).ok_or(StateFault::NotOffered)?;
        self.new_kex(cx)?;
        self.send(common, cx).map_err(PeerFault::from)
    }

    fn new_kex(&mut self, cx: &mut Cx<'_, '_>) -> Result<(), StateFault> {
        let kex = cx.env.providers.kex(self.method, cx.env.rng);
        self.kex = Some(kex.map_err(|_| StateFault::Provider)?);
        Ok(())
    }

    fn count_retry(&mut self) -> Result<(), StateFault> {
        self.retries = self.retries.saturating_add(1);
        if self.retries > MAX_RETRIES { Err(StateFault::TooManyRetries) } else { Ok(()) }
    }

    /// Evaluates the peer's choice. Changes nothing unless the whole response is valid, except that an
    /// invalid public value consumes our private value.
    fn accept(
        &mut self,
        common: &mut SaCommon,
        header: &Header,
        (bytes, path): (&[u8], Path),
        content: &Content<'_>,
        cx: &mut Cx<'_, '_>,
    ) -> Result<(SecureChannel, InitExchange), PeerFault> {
        if header.spi_r == IkeSpi::NONE {
            return Err(StateFault::ZeroSpi.into());
        }
        let (sa, ke, nonce_r) = (required(content.sa)?, required(content.ke)?, required(content.nonce)?);
        let chosen = verify_choice(&self.offers, &sa)?;
        let suite = IkeSuite::of(&chosen).ok_or(StateFault::NotOffered)?;
        if suite.kex != self.method || ke.method.0 != suite.kex.id() {
            return Err(StateFault::KeMethod.into());
        }
        let spis = (common.spi_i, header.spi_r);
        let mut nat = detect(content, spis, path, cx.env.providers)?;
        if let Some(nat) = nat.as_mut().filter(|_| common.connection.force_encap) {
            nat.local = true;
        }
        let kex = self.kex.take().ok_or(StateFault::Provider)?;
        let Ok(shared) = kex.agree(ke.data) else {
            // The public value may be forged, and our private value is consumed. The attempt continues with a
            // new one.
            self.count_retry()?;
            self.new_kex(cx)?;
            self.send(common, cx)?;
            return Err(StateFault::KeValue.into());
        };
        let nonces = Nonces { initiator: &self.nonce, responder: nonce_r.data() };
        let keys = SaKeys::initial(suite.prf, suite.sk, &shared, nonces, spis, cx.env.providers);
        let keys = keys.map_err(|_| StateFault::Provider)?;
        common.spi_r = header.spi_r;
        let peer = PeerFeatures::of(content);
        let ours = AnnouncedFeatures::of_connection(&common.connection).fragments;
        let fragments = FragmentSupport { local: ours, remote: peer.fragments };
        let channel = SecureChannel::new(common, suite, &keys, Window::new(1, 0), fragments, cx)?;
        let init = InitExchange {
            request: core::mem::take(&mut self.request),
            response: bytes.into(),
            nonce_i: core::mem::take(&mut self.nonce),
            nonce_r: nonce_r.data().into(),
            sk_pi: keys.pi,
            sk_pr: keys.pr,
            nat: nat.unwrap_or_default(),
            peer,
        };
        Ok((channel, init))
    }
}

/// Switches to port 4500 behind a NAT (RFC 7296 section 2.23).
fn switch_to_natt_port(common: &mut SaCommon, nat: NatStatus, cx: &Cx<'_, '_>) {
    let port = cx.shared.settings.natt_port;
    if nat.any() && common.path.local.port() != port {
        common.path.local.set_port(port);
        common.path.remote.set_port(port);
    }
}
