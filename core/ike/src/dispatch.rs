//! From a datagram to the IKE SA that it is for (RFC 7296 sections 2.1 to 2.6 and 2.21).

use crate::farewell::Request;
use crate::message::{Content, Kind, header, plain};
use crate::registry::source_of;
use crate::sa::{Arrived, Cx, Incoming, InitRefusal, Meta, Role, State, init_reply, read};
use crate::{Env, Ike, IkeSaId, Path, PeerFault, StateFault};
use casemate_wire::ike::{Answer, ExchangeType, Fault, Header, IkeSpi, Message, Notify, NotifyType};

/// Takes one datagram.
pub(crate) fn receive(ike: &mut Ike, datagram: &mut [u8], path: Path, env: &mut Env<'_>) {
    if let Err(fault) = try_receive(ike, datagram, path, env) {
        let (shared, _) = ike.parts();
        Cx { env, shared }.fault(fault, path);
    }
}

fn try_receive(ike: &mut Ike, datagram: &mut [u8], path: Path, env: &mut Env<'_>) -> Result<(), PeerFault> {
    let header = match Message::parse(datagram) {
        Ok(message) => *message.header(),
        Err(fault) => {
            answer_version(ike, datagram, fault, path, env);
            return Err(fault.into());
        }
    };
    if header.spi_i == IkeSpi::NONE {
        return Err(StateFault::ZeroSpi.into());
    }
    let first = header.exchange == ExchangeType::IKE_SA_INIT;
    if first && !header.flags.response && header.spi_r == IkeSpi::NONE {
        return first_request(ike, &header, datagram, path, env);
    }
    let own = if header.flags.initiator { header.spi_r } else { header.spi_i };
    let id = match find(ike, &header, own) {
        Err(_) if answer_again(ike, &header, datagram, path, env) => return Ok(()),
        found => found?,
    };
    if first {
        return first_response(ike, id, &header, datagram, path, env);
    }
    protected(ike, id, (&header, datagram), path, env)
}

/// The IKE SA of a message.
fn find(ike: &mut Ike, header: &Header, own: IkeSpi) -> Result<IkeSaId, PeerFault> {
    let (_, sas) = ike.parts();
    let head = &sas.with_spi(own).ok_or(StateFault::UnknownSpi)?.head;
    // Our first request knows no SPI of the peer yet.
    let knows_peer = head.spi_r != IkeSpi::NONE;
    if head.spi_i != header.spi_i || (knows_peer && head.spi_r != header.spi_r) {
        return Err(StateFault::UnknownSpi.into());
    }
    if header.flags.initiator != (head.role == Role::Responder) {
        return Err(StateFault::WrongRole.into());
    }
    Ok(head.id)
}

/// Answers a request that has ended its IKE SA and comes again; whether it is one.
fn answer_again(ike: &mut Ike, header: &Header, datagram: &[u8], path: Path, env: &mut Env<'_>) -> bool {
    let Some(request) = Request::of(header, datagram) else { return false };
    let (shared, _) = ike.parts();
    let answer = shared.farewells.to(&request, env.now).to_vec();
    Cx { env, shared }.send(path, &answer);
    !answer.is_empty()
}

/// RFC 7296 section 2.5: a request of a higher version is told which one is spoken here.
fn answer_version(ike: &mut Ike, datagram: &[u8], fault: Fault, path: Path, env: &mut Env<'_>) {
    let Fault::HigherMajorVersion { .. } = fault else { return };
    let Ok(request) = Header::parse(datagram) else { return };
    if request.flags.response {
        return;
    }
    let (shared, _) = ike.parts();
    unprotected(&request, (NotifyType::INVALID_MAJOR_VERSION, &[]), path, &mut Cx { env, shared });
}

/// Answers a request that no IKE SA protects with one notification.
fn unprotected(request: &Header, (kind, data): (NotifyType, &[u8]), path: Path, cx: &mut Cx<'_, '_>) {
    let role = if request.flags.initiator { Role::Responder } else { Role::Initiator };
    let exchange = request.exchange;
    let answer = Kind { exchange, message_id: request.message_id, response: true };
    let header = header((request.spi_i, request.spi_r), role, answer);
    let built = plain(&header, &mut cx.shared.scratch, &|out| out.notify(&Notify::new(kind, data)));
    if let Ok(message) = built {
        cx.send(path, &[message]);
    }
}

fn first_request(
    ike: &mut Ike,
    request: &Header,
    datagram: &[u8],
    path: Path,
    env: &mut Env<'_>,
) -> Result<(), PeerFault> {
    if request.message_id != 0 || !request.flags.initiator {
        return Err(StateFault::MessageId.into());
    }
    let (shared, sas) = ike.parts();
    let known = sas.half_open(request.spi_i, path.remote);
    let (current, (_, half_open)) = (sas.current(), sas.counts());
    let from_source = sas.half_open_from(source_of(path.remote.ip()));
    let mut cx = Cx { env, shared };
    if let Some(State::HalfOpen(state)) = known.and_then(|id| sas.get(id)).map(|sa| &sa.state) {
        // RFC 7296 section 2.1: the same request has the same answer.
        if state.init.request == datagram {
            let response = &state.init.response;
            cx.send(path, core::slice::from_ref(response));
            return Ok(());
        }
        return Err(StateFault::MessageId.into());
    }
    if half_open >= cx.shared.settings.half_open {
        return Err(StateFault::HalfOpenLimit.into());
    }
    if from_source >= cx.shared.settings.half_open_per_source {
        return Err(StateFault::SourceLimit.into());
    }
    if current >= cx.shared.settings.ike_sas {
        return Err(StateFault::SaLimit.into());
    }
    // Cookies come before the table is full: a flood of strangers must not keep others out.
    let settings = &cx.shared.settings;
    let needs_cookie = half_open >= settings.cookie_threshold.min(settings.half_open / 2)
        || from_source >= settings.half_open_per_source / 2;
    let replied =
        Message::parse(datagram).map_err(PeerFault::from).and_then(|m| Content::parse(m.payloads()));
    let replied = replied
        .map_err(InitRefusal::Fault)
        .and_then(|content| init_reply((request.spi_i, datagram), &content, path, needs_cookie, &mut cx));
    match replied {
        Ok(sa) => {
            sas.insert(sa);
            ike.make_room(env);
            Ok(())
        }
        Err(refusal) => refuse_first(request, refusal, path, &mut cx),
    }
}

/// RFC 7296 section 2.21.1: what may be said to a stranger. INVALID_SYNTAX is not (section 3.10.1).
fn refuse_first(
    request: &Header,
    refusal: InitRefusal,
    path: Path,
    cx: &mut Cx<'_, '_>,
) -> Result<(), PeerFault> {
    let (fault, data) = match refusal {
        InitRefusal::Cookie(cookie) => {
            unprotected(request, (NotifyType::COOKIE, &cookie), path, cx);
            return Err(StateFault::Cookie.into());
        }
        InitRefusal::OtherKex(method) => (StateFault::KeMethod.into(), method.id().to_be_bytes().to_vec()),
        InitRefusal::Fault(fault) => (fault, crate::message::critical(fault).into_iter().collect()),
    };
    match fault.answer() {
        Answer::Notify(NotifyType::INVALID_SYNTAX) | Answer::Silence => {}
        Answer::Notify(kind) => unprotected(request, (kind, &data), path, cx),
    }
    Err(fault)
}

fn first_response(
    ike: &mut Ike,
    id: IkeSaId,
    response: &Header,
    datagram: &[u8],
    path: Path,
    env: &mut Env<'_>,
) -> Result<(), PeerFault> {
    if !response.flags.response || response.message_id != 0 {
        return Err(StateFault::WrongExchange.into());
    }
    let (_, sas) = ike.parts();
    let waits = sas.get(id).is_some_and(|sa| matches!(sa.state, State::InitSent(_)));
    let from_peer = sas.get(id).is_some_and(|sa| sa.head.path.remote.ip() == path.remote.ip());
    // A second response to the first request is a repetition, or forged (VPP 336eac8).
    if !waits || !from_peer {
        return Err(StateFault::StrayResponse.into());
    }
    let content = Content::parse(Message::parse(datagram)?.payloads())?;
    ike.with(id, env, |sa, cx| sa.on_first_response(response, (datagram, path), &content, cx));
    Ok(())
}

/// When both sides rekey an IKE SA, the peer's successor is provisional until our own exchange ends. A request on it proves that the
/// peer, which knows both results, has chosen it: the Child SAs move there before the request is processed.
fn concede(ike: &mut Ike, id: IkeSaId, request: Option<&Content<'_>>, env: &mut Env<'_>) {
    let (_, sas) = ike.parts();
    let old = request.and_then(|request| sas.get(id)?.conceding(request));
    if let Some(old) = old {
        ike.with(old, env, |sa, cx| sa.concede(id, cx));
    }
}

fn protected(
    ike: &mut Ike,
    id: IkeSaId,
    (header, datagram): (&Header, &mut [u8]),
    path: Path,
    env: &mut Env<'_>,
) -> Result<(), PeerFault> {
    // Opening leaves the ICV as it is.
    let request = Request::of(header, datagram);
    let (shared, sas) = ike.parts();
    let sa = sas.get_mut(id).ok_or(StateFault::UnknownSpi)?;
    let before = shared.transmits.len();
    let mut cx = Cx { env, shared };
    let arrived = sa.take(header, datagram, path, &mut cx)?;
    let Arrived::Whole { first, payloads } = arrived else { return Ok(()) };
    let meta = Meta { exchange: header.exchange, path };
    let content = read(first, &payloads);
    concede(ike, id, content.as_ref().ok().filter(|_| !header.flags.response), env);
    let message = content.map(|content| Incoming { exchange: header.exchange, content, path });
    ike.with(id, env, |sa, cx| {
        if header.flags.response {
            sa.on_response(message, meta, cx)
        } else {
            sa.on_request(message, meta, cx)
        }
    });
    let (shared, sas) = ike.parts();
    if let Some(request) = request.filter(|_| sas.get(id).is_none()) {
        let most = shared.settings.ike_sas;
        shared.farewells.keep(request, shared.transmits.iter().skip(before), (env.now, most));
    }
    Ok(())
}
