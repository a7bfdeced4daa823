//! Dispatches a datagram to its IKE SA (RFC 7296 sections 2.1 to 2.6 and 2.21).

use super::{Ike, SaUpdate};
use crate::context::{Shared, Step};
use crate::engine::ike_sa_table::quota_source;
use crate::engine::response_cache::RequestKey;
use crate::engine::unprotected::respond_in_clear;
use crate::state::{IkeSa, IncomingMessage, InitRejected, MessageMeta, State, respond_to_init};
use crate::transport::{Content, Received, parse_payloads};
use crate::{Context, Host, IkeSaId, Path, PeerFault, Role, StateFault};
use casemate_wire::ike::{ExchangeType, Fault, FaultResponse, Header, IkeSpi, Message, Notify, NotifyType};
use casemate_wire::invariant::OrBroken;
use core::net::IpAddr;

/// Maximum number of half-open IKE SAs from one source for which no cookie is required.
const MAX_WITHOUT_COOKIE: usize = 4;

impl Ike {
    /// Processes an IKE message, without the non-ESP marker. Decrypts the message in place.
    pub fn receive(
        &mut self,
        datagram: &mut [u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        if let Err(fault) = self.dispatch(datagram, path, host, context) {
            self.step(host, context).fault(fault, path);
        }
    }

    fn dispatch(
        &mut self,
        datagram: &mut [u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), PeerFault> {
        let header = match Message::parse(datagram) {
            Ok(message) => *message.header(),
            Err(fault) => {
                reject_version(datagram, fault, path, &mut self.step(host, context));
                return Err(fault.into());
            }
        };
        if header.spi_i == IkeSpi::NONE {
            let is_report = self.on_unprotected(&header, datagram, path, host, context)?;
            return if is_report { Ok(()) } else { Err(StateFault::ZeroSpi.into()) };
        }
        let is_init = is_first_exchange(header.exchange);
        if is_init && !header.flags.response && header.spi_r == IkeSpi::NONE {
            return self.on_init_request(&header, datagram, path, host, context);
        }
        let id = match self.find_sa(&header) {
            Ok(id) => id,
            Err(_) if self.repeat_final_response(&header, datagram, path, host, context) => return Ok(()),
            Err(_) if self.on_unprotected(&header, datagram, path, host, context)? => return Ok(()),
            Err(fault) => {
                self.respond_to_unknown(&header, datagram, path, host, context);
                return Err(fault.into());
            }
        };
        if is_init {
            return self.on_init_response(id, &header, datagram, path, host, context);
        }
        if self.on_unprotected(&header, datagram, path, host, context)? {
            return Ok(());
        }
        self.on_protected(id, &header, datagram, path, host, context)
    }

    /// Finds the IKE SA of a message.
    pub(super) fn find_sa(&self, header: &Header) -> Result<IkeSaId, StateFault> {
        let own_spi = if header.flags.initiator { header.spi_r } else { header.spi_i };
        let common = &self.sas.get_by_spi(own_spi).ok_or(StateFault::UnknownSpi)?.common;
        // Before the response to our first request the peer's SPI is unknown.
        let knows_peer = common.spi_r != IkeSpi::NONE;
        if common.spi_i != header.spi_i || (knows_peer && common.spi_r != header.spi_r) {
            return Err(StateFault::UnknownSpi);
        }
        if header.flags.initiator != (common.role == Role::Responder) {
            return Err(StateFault::WrongRole);
        }
        Ok(common.id)
    }

    /// Repeats the response to a request that has closed its IKE SA. Returns whether there is such a
    /// response.
    fn repeat_final_response(
        &mut self,
        header: &Header,
        datagram: &[u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> bool {
        let Some(request) = RequestKey::of(header, datagram) else { return false };
        let response = self.shared.response_cache.lookup(&request, context.now).to_vec();
        self.step(host, context).send(path, &response);
        !response.is_empty()
    }

    fn on_init_request(
        &mut self,
        request: &Header,
        datagram: &[u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), PeerFault> {
        if request.message_id != 0 || !request.flags.initiator {
            return Err(StateFault::MessageId.into());
        }
        // AUTH covers the request, so it is kept.
        if datagram.len() > self.shared.settings.max_unauthenticated_bytes {
            return Err(StateFault::FragmentLimit.into());
        }
        let Self { shared, sas } = self;
        if let Some(id) = sas.find_half_open(request.spi_i, path.remote)
            && let Some(sa) = sas.get_mut(id)
        {
            let before = sa.half_open_bytes();
            let repeated = sa.on_repeated_init(request, datagram, path, &mut Step { context, host, shared });
            sas.count_half_open_bytes(id, before);
            return repeated;
        }
        let needs_cookie = self.check_limits(path.remote.ip(), datagram.len())?;
        let content =
            Message::parse(datagram).map_err(PeerFault::from).and_then(|m| Content::parse(m.payloads()));
        let mut step = self.step(host, context);
        let responded = content.map_err(InitRejected::Fault).and_then(|content| {
            #[cfg(feature = "resumption")]
            if request.exchange == ExchangeType::IKE_SESSION_RESUME {
                let spi_i = request.spi_i;
                return crate::state::respond_to_resumption(
                    spi_i,
                    datagram,
                    &content,
                    path,
                    needs_cookie,
                    &mut step,
                );
            }
            respond_to_init(request.spi_i, datagram, &content, path, needs_cookie, &mut step)
        });
        match responded {
            Ok(sa) => {
                self.sas.insert(sa);
                self.close_excess_replaced(host, context);
                Ok(())
            }
            Err(rejected) => Err(reject_init(request, rejected, path, &mut step)),
        }
    }

    /// Checks that a peer may start another IKE SA with a request of this length. Returns whether it needs a
    /// cookie.
    fn check_limits(&self, source: IpAddr, len: usize) -> Result<bool, StateFault> {
        let settings = &self.shared.settings;
        let source = quota_source(source);
        let (half_open, bytes) = (self.sas.half_open_count(), self.sas.half_open_bytes());
        let max_bytes = settings.max_half_open_bytes;
        if half_open >= settings.max_half_open || bytes.saturating_add(len) > max_bytes {
            return Err(StateFault::HalfOpenLimit);
        }
        if len > self.sas.half_open_room(source, max_bytes) {
            return Err(StateFault::SourceLimit);
        }
        let from_source = self.sas.half_open_from(source);
        let most = settings.max_half_open_per_source;
        // Without a cookie, anyone can use this part of a source's quota.
        let without_cookie = MAX_WITHOUT_COOKIE.min(most / 2);
        let free = settings.max_half_open.saturating_sub(half_open);
        // Many sources with real addresses leave some of the table to others.
        if from_source >= most.min(without_cookie.saturating_add(1).max(free.div_ceil(2))) {
            return Err(StateFault::SourceLimit);
        }
        if self.sas.current_count() >= settings.max_ike_sas {
            return Err(StateFault::SaLimit);
        }
        // Cookies are required before the table is full, so that a flood of unknown peers does not keep other
        // peers out.
        Ok(half_open >= settings.cookie_threshold.min(settings.max_half_open / 2)
            || from_source >= without_cookie
            || bytes >= max_bytes / 4)
    }

    fn on_init_response(
        &mut self,
        id: IkeSaId,
        response: &Header,
        datagram: &[u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), PeerFault> {
        if !response.flags.response || response.message_id != 0 {
            return Err(StateFault::WrongExchange.into());
        }
        // A second response to the first request is a repetition or a forgery (VPP 336eac8).
        let is_response = |sa: &&IkeSa| match &sa.state {
            State::InitSent(state) => state.exchange() == response.exchange,
            _ => false,
        };
        let sa = self.sas.get(id).filter(is_response);
        if sa.is_none_or(|sa| sa.common.path.remote.ip() != path.remote.ip()) {
            return Err(StateFault::StrayResponse.into());
        }
        let content = Content::parse(Message::parse(datagram)?.payloads())?;
        self.update_sa(id, host, context, |sa, step| {
            sa.on_first_response(response, datagram, path, &content, step)
        });
        Ok(())
    }

    fn on_protected(
        &mut self,
        id: IkeSaId,
        header: &Header,
        datagram: &mut [u8],
        path: Path,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) -> Result<(), PeerFault> {
        // Decryption does not change the ICV.
        let request = RequestKey::of(header, datagram);
        let Self { shared, sas } = self;
        let max_bytes = shared.settings.max_half_open_bytes;
        let remote = sas.get(id).ok_or(StateFault::UnknownSpi)?.common.path.remote.ip();
        let room = sas.half_open_room(quota_source(remote), max_bytes);
        let sa = sas.get_mut(id).ok_or(StateFault::UnknownSpi)?;
        let sent_before = shared.transmits.len();
        let before = sa.half_open_bytes();
        let received = sa.receive(header, datagram, path, room, &mut Step { context, host, shared });
        sas.count_half_open_bytes(id, before);
        let (first, payloads) = match received? {
            Received::Message { first, payloads } => (first, payloads),
            Received::RepeatedResponse => {
                self.update_sa(id, host, context, |sa, step| sa.on_repeated_response(step));
                return Ok(());
            }
            #[cfg(feature = "records")]
            Received::Synchronization(request) => {
                self.update_sa(id, host, context, |sa, step| sa.on_synchronization(request, path, step));
                return Ok(());
            }
            Received::Nothing => return Ok(()),
        };
        let meta = MessageMeta { exchange: header.exchange, path };
        let content = parse_payloads(first, &payloads);
        if !header.flags.response
            && let Ok(request) = &content
        {
            self.concede_to_peer_successor(id, request, host, context);
        }
        let message = content.map(|content| IncomingMessage {
            exchange: header.exchange,
            content,
            #[cfg(any(feature = "eap", feature = "revocation", feature = "multiple-kex"))]
            payloads: crate::state::Plaintext { first, bytes: &payloads },
            path,
        });
        let update = self.update_sa(id, host, context, |sa, step| {
            if header.flags.response {
                sa.on_response(message, meta, step)
            } else {
                sa.on_request(message, meta, step)
            }
        });
        if update == SaUpdate::Ended
            && let Some(request) = request
        {
            let Shared { response_cache, transmits, settings, .. } = &mut self.shared;
            let sent = transmits.iter().skip(sent_before);
            response_cache.store(request, sent, context.now, settings.max_ike_sas);
        }
        Ok(())
    }

    /// Moves the Child SAs to the peer's successor if this request proves that the peer has chosen it. When
    /// both sides rekey an IKE SA, the peer's successor is provisional until our own exchange ends. The peer
    /// knows both results, so a request on its successor decides. The Child SAs move before the request is
    /// processed.
    fn concede_to_peer_successor(
        &mut self,
        id: IkeSaId,
        request: &Content<'_>,
        host: &mut dyn Host,
        context: &mut Context<'_>,
    ) {
        if let Some(old) = self.sas.get(id).and_then(|sa| sa.predecessor_to_concede(request)) {
            self.update_sa(old, host, context, |sa, step| sa.concede(id, step));
        }
    }
}

/// Whether an exchange begins an IKE SA.
fn is_first_exchange(exchange: ExchangeType) -> bool {
    let is_resumption = cfg!(feature = "resumption") && exchange == ExchangeType::IKE_SESSION_RESUME;
    exchange == ExchangeType::IKE_SA_INIT || is_resumption
}

/// Responds to a request of a higher major version with the supported version (RFC 7296 section 2.5).
fn reject_version(datagram: &[u8], fault: Fault, path: Path, step: &mut Step<'_, '_>) {
    let Fault::HigherMajorVersion { .. } = fault else { return };
    let Some(request) = Header::parse(datagram).or_report("the version is a field of a whole header") else {
        return;
    };
    if !request.flags.response {
        respond_in_clear(&request, &[Notify::new(NotifyType::INVALID_MAJOR_VERSION, &[])], path, step);
    }
}

/// Responds to a rejected first request with what an unauthenticated peer may learn (RFC 7296 section
/// 2.21.1). INVALID_SYNTAX is not sent (section 3.10.1). Returns the fault to report.
fn reject_init(request: &Header, rejected: InitRejected, path: Path, step: &mut Step<'_, '_>) -> PeerFault {
    let (fault, data) = match rejected {
        InitRejected::Cookie(cookie) => {
            respond_in_clear(request, &[Notify::new(NotifyType::COOKIE, &cookie)], path, step);
            return StateFault::Cookie.into();
        }
        InitRejected::WrongKexMethod(method) => {
            (StateFault::KeMethod.into(), method.id().to_be_bytes().to_vec())
        }
        InitRejected::Fault(fault) => {
            (fault, crate::transport::unsupported_critical(fault).into_iter().collect())
        }
    };
    match fault.response() {
        FaultResponse::Notify(NotifyType::INVALID_SYNTAX) | FaultResponse::Silence => {}
        FaultResponse::Notify(kind) => respond_in_clear(request, &[Notify::new(kind, &data)], path, step),
    }
    fault
}
