//! Dispatches a datagram to its IKE SA (RFC 7296 sections 2.1 to 2.6 and 2.21).

use crate::context::Step;
use crate::engine::ike_sa_table::quota_source;
use crate::engine::response_cache::RequestKey;
use crate::state::{IncomingMessage, InitRejected, MessageMeta, State, respond_to_init};
use crate::transport::{Content, MessageKind, Received, header, parse_payloads, write_plain};
use crate::{Context, Host, Ike, IkeSaId, Path, PeerFault, Role, StateFault};
use casemate_wire::ike::{ExchangeType, Fault, FaultResponse, Header, IkeSpi, Message, Notify, NotifyType};

/// Processes one datagram.
pub(crate) fn receive(
    ike: &mut Ike,
    datagram: &mut [u8],
    path: Path,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) {
    if let Err(fault) = try_receive(ike, datagram, path, host, context) {
        let (shared, _) = ike.parts();
        Step { context, host, shared }.fault(fault, path);
    }
}

fn try_receive(
    ike: &mut Ike,
    datagram: &mut [u8],
    path: Path,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) -> Result<(), PeerFault> {
    let header = match Message::parse(datagram) {
        Ok(message) => *message.header(),
        Err(fault) => {
            answer_unsupported_version(ike, datagram, fault, path, host, context);
            return Err(fault.into());
        }
    };
    if header.spi_i == IkeSpi::NONE {
        return Err(StateFault::ZeroSpi.into());
    }
    let first = header.exchange == ExchangeType::IKE_SA_INIT;
    if first && !header.flags.response && header.spi_r == IkeSpi::NONE {
        return on_init_request(ike, &header, datagram, path, host, context);
    }
    let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
    let id = match find_sa(ike, &header, own) {
        Err(_) if answer_from_cache(ike, &header, datagram, path, host, context) => return Ok(()),
        found => found?,
    };
    if first {
        return on_init_response(ike, id, &header, datagram, path, host, context);
    }
    on_protected(ike, id, (&header, datagram), path, host, context)
}

/// Finds the IKE SA of a message.
fn find_sa(ike: &mut Ike, header: &Header, own: IkeSpi) -> Result<IkeSaId, PeerFault> {
    let (_, sas) = ike.parts();
    let common = &sas.get_by_spi(own).ok_or(StateFault::UnknownSpi)?.common;
    // Before the response to our first request the peer's SPI is unknown.
    let knows_peer = common.spi_r != IkeSpi::NONE;
    if common.spi_i != header.spi_i || (knows_peer && common.spi_r != header.spi_r) {
        return Err(StateFault::UnknownSpi.into());
    }
    if header.flags.initiator != (common.role == Role::Responder) {
        return Err(StateFault::WrongRole.into());
    }
    Ok(common.id)
}

/// Repeats the response to a request that has closed its IKE SA. Returns whether there is such a response.
fn answer_from_cache(
    ike: &mut Ike,
    header: &Header,
    datagram: &[u8],
    path: Path,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) -> bool {
    let Some(request) = RequestKey::of(header, datagram) else { return false };
    let (shared, _) = ike.parts();
    let answer = shared.response_cache.lookup(&request, context.now).to_vec();
    Step { context, host, shared }.send(path, &answer);
    !answer.is_empty()
}

/// Answers a request of a higher major version with the supported version (RFC 7296 section 2.5).
fn answer_unsupported_version(
    ike: &mut Ike,
    datagram: &[u8],
    fault: Fault,
    path: Path,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) {
    let Fault::HigherMajorVersion { .. } = fault else { return };
    let Ok(request) = Header::parse(datagram) else { return };
    if request.flags.response {
        return;
    }
    let (shared, _) = ike.parts();
    send_unprotected(
        &request,
        (NotifyType::INVALID_MAJOR_VERSION, &[]),
        path,
        &mut Step { context, host, shared },
    );
}

/// Answers a request with one notification in clear text.
fn send_unprotected(
    request: &Header,
    (kind, data): (NotifyType, &[u8]),
    path: Path,
    step: &mut Step<'_, '_>,
) {
    let role = if request.flags.initiator { Role::Responder } else { Role::Initiator };
    let exchange = request.exchange;
    let answer = MessageKind { exchange, message_id: request.message_id, response: true };
    let header = header((request.spi_i, request.spi_r), role, answer);
    let built = write_plain(&header, &mut step.shared.scratch, &|out| out.notify(&Notify::new(kind, data)));
    if let Ok(message) = built {
        step.send(path, &[message]);
    }
}

fn on_init_request(
    ike: &mut Ike,
    request: &Header,
    datagram: &[u8],
    path: Path,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) -> Result<(), PeerFault> {
    if request.message_id != 0 || !request.flags.initiator {
        return Err(StateFault::MessageId.into());
    }
    let (shared, sas) = ike.parts();
    let known = sas.find_half_open(request.spi_i, path.remote);
    let (current, (_, half_open)) = (sas.current_count(), sas.counts());
    let from_source = sas.half_open_count(quota_source(path.remote.ip()));
    let mut step = Step { context, host, shared };
    if let Some(State::HalfOpen(state)) = known.and_then(|id| sas.get(id)).map(|sa| &sa.state) {
        // RFC 7296 section 2.1: a repeated request gets the same response.
        if state.init.request == datagram {
            let response = &state.init.response;
            step.send(path, core::slice::from_ref(response));
            return Ok(());
        }
        return Err(StateFault::MessageId.into());
    }
    if half_open >= step.shared.settings.max_half_open {
        return Err(StateFault::HalfOpenLimit.into());
    }
    if from_source >= step.shared.settings.max_half_open_per_source {
        return Err(StateFault::SourceLimit.into());
    }
    if current >= step.shared.settings.max_ike_sas {
        return Err(StateFault::SaLimit.into());
    }
    // Cookies are required before the table is full, so that a flood of unknown peers does not keep other
    // peers out.
    let settings = &step.shared.settings;
    let needs_cookie = half_open >= settings.cookie_threshold.min(settings.max_half_open / 2)
        || from_source >= settings.max_half_open_per_source / 2;
    let replied =
        Message::parse(datagram).map_err(PeerFault::from).and_then(|m| Content::parse(m.payloads()));
    let replied = replied.map_err(InitRejected::Fault).and_then(|content| {
        respond_to_init((request.spi_i, datagram), &content, path, needs_cookie, &mut step)
    });
    match replied {
        Ok(sa) => {
            sas.insert(sa);
            ike.close_excess_replaced(host, context);
            Ok(())
        }
        Err(refusal) => reject_init(request, refusal, path, &mut step),
    }
}

/// Answers a rejected first request with what an unauthenticated peer may learn (RFC 7296 section 2.21.1).
/// INVALID_SYNTAX is not sent (section 3.10.1).
fn reject_init(
    request: &Header,
    refusal: InitRejected,
    path: Path,
    step: &mut Step<'_, '_>,
) -> Result<(), PeerFault> {
    let (fault, data) = match refusal {
        InitRejected::Cookie(cookie) => {
            send_unprotected(request, (NotifyType::COOKIE, &cookie), path, step);
            return Err(StateFault::Cookie.into());
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
        FaultResponse::Notify(kind) => send_unprotected(request, (kind, &data), path, step),
    }
    Err(fault)
}

fn on_init_response(
    ike: &mut Ike,
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
    let (_, sas) = ike.parts();
    let waits = sas.get(id).is_some_and(|sa| matches!(sa.state, State::InitSent(_)));
    let from_peer = sas.get(id).is_some_and(|sa| sa.common.path.remote.ip() == path.remote.ip());
    // A second response to the first request is a repetition or a forgery (VPP 336eac8).
    if !waits || !from_peer {
        return Err(StateFault::StrayResponse.into());
    }
    let content = Content::parse(Message::parse(datagram)?.payloads())?;
    ike.update_sa(id, host, context, |sa, step| {
        sa.on_first_response(response, (datagram, path), &content, step)
    });
    Ok(())
}

/// Moves the Child SAs to the peer's successor if this request proves that the peer has chosen it. When both
/// sides rekey an IKE SA, the peer's successor is provisional until our own exchange ends. The peer knows
/// both results, so a request on its successor decides. The Child SAs move before the request is processed.
fn concede_to_peer_successor(
    ike: &mut Ike,
    id: IkeSaId,
    request: Option<&Content<'_>>,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) {
    let (_, sas) = ike.parts();
    let old = request.and_then(|request| sas.get(id)?.predecessor_to_concede(request));
    if let Some(old) = old {
        ike.update_sa(old, host, context, |sa, step| sa.concede(id, step));
    }
}

fn on_protected(
    ike: &mut Ike,
    id: IkeSaId,
    (header, datagram): (&Header, &mut [u8]),
    path: Path,
    host: &mut dyn Host,
    context: &mut Context<'_>,
) -> Result<(), PeerFault> {
    // Decryption does not change the ICV.
    let request = RequestKey::of(header, datagram);
    let (shared, sas) = ike.parts();
    let sa = sas.get_mut(id).ok_or(StateFault::UnknownSpi)?;
    let before = shared.transmits.len();
    let mut step = Step { context, host, shared };
    let arrived = sa.receive(header, datagram, path, &mut step)?;
    let Received::Message { first, payloads } = arrived else { return Ok(()) };
    let meta = MessageMeta { exchange: header.exchange, path };
    let content = parse_payloads(first, &payloads);
    concede_to_peer_successor(
        ike,
        id,
        content.as_ref().ok().filter(|_| !header.flags.response),
        host,
        context,
    );
    let message = content.map(|content| IncomingMessage { exchange: header.exchange, content, path });
    ike.update_sa(id, host, context, |sa, step| {
        if header.flags.response {
            sa.on_response(message, meta, step)
        } else {
            sa.on_request(message, meta, step)
        }
    });
    let (shared, sas) = ike.parts();
    if let Some(request) = request.filter(|_| sas.get(id).is_none()) {
        let most = shared.settings.max_ike_sas;
        shared.response_cache.store(request, shared.transmits.iter().skip(before), (context.now, most));
    }
    Ok(())
}
