//! IKE_SESSION_RESUME as the responder (RFC 5723 section 4.3.2), in place of IKE_SA_INIT. No operation with
//! public keys is done. The limits and cookies of IKE_SA_INIT apply before a ticket is decrypted.

use crate::context::Step;
use crate::cookie::CookieRequest;
use crate::keymat::{Nonces, SaKeys};
use crate::nat::NatDetection;
use crate::resumption::Session;
use crate::state::init_response::{FirstExchange, InitRejected, check_cookie, detect_nat, write_features};
use crate::state::select_connection::{AnnouncedFeatures, by_address};
use crate::state::{IkeSa, SaCommon, State};
use crate::transport::{Content, MessageKind, header, required, write_plain};
use crate::{IkeSpis, Path, Role, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_wire::ike::{ExchangeType, IkeSpi, Nonce, NotifyType, WriteError};

/// Responds to a request. `bytes` is the whole message.
pub(crate) fn respond_to_resumption(
    spi_i: IkeSpi,
    bytes: &[u8],
    content: &Content<'_>,
    path: Path,
    needs_cookie: bool,
    step: &mut Step<'_, '_>,
) -> Result<IkeSa, InitRejected> {
    let nonce_i = required(content.nonce)?.data();
    let ticket = content.notify(NotifyType::TICKET_OPAQUE).ok_or(StateFault::PayloadMissing)?.data;
    let now = step.context.now;
    if needs_cookie || !step.shared.resumption.gateway.allows_without_cookie(now) {
        check_cookie(&CookieRequest { spi: spi_i, nonce: nonce_i, path }, content, step)?;
    }
    let session = step.open_ticket(ticket)?;
    let connection = step.resumable_connection(&session)?;
    let mut suitable = by_address(&step.shared.connections, path, step.context.routes);
    if !suitable.any(|one| Arc::ptr_eq(one, &connection)) {
        return Err(StateFault::NotResumable.into());
    }
    drop(suitable);
    let spis = IkeSpis { initiator: spi_i, responder: step.ike_spi() };
    let nat = detect_nat(content, spis, path, &connection, step)?;
    let (suite, nonce_r) = (session.suite, step.nonce());
    let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
    let keys = SaKeys::resumed(suite.prf, suite.sk, &session.sk_d, nonces, spis, step.context.providers);
    let keys = keys.map_err(|_| StateFault::Provider)?;
    let announced = AnnouncedFeatures::of_resumption(&connection);
    let common = SaCommon::new(connection, path, Role::Responder, spis, step);
    let response = build(&common, &nonce_r, &announced, &nat.detection, step)?;
    let (announced, nat) = (&announced, nat.status);
    let exchange = FirstExchange { request: bytes, content, response, nonce_i, nonce_r, announced, nat };
    Ok(resuming(exchange.open(common, suite, keys, step)?, session))
}

/// Adds the session that the peer resumes.
fn resuming(mut sa: IkeSa, session: Session) -> IkeSa {
    if let State::HalfOpen(state) = &mut sa.state {
        state.init.full_transcript = session.peer.full_transcript;
        state.resumes = Some(Box::new(session));
        // The keys of the session depend on its additional key exchanges already.
        #[cfg(feature = "multiple-kex")]
        {
            state.kexes_done = state.channel.suite.additional.count();
        }
    }
    sa
}

fn build(
    common: &SaCommon,
    nonce: &[u8],
    announced: &AnnouncedFeatures,
    detection: &NatDetection,
    step: &mut Step<'_, '_>,
) -> Result<Vec<u8>, StateFault> {
    let kind = MessageKind { exchange: ExchangeType::IKE_SESSION_RESUME, message_id: 0, response: true };
    let built = write_plain(&header(common.spis(), common.role, kind), &mut step.shared.scratch, &|out| {
        out.nonce(&Nonce::parse(nonce).map_err(WriteError::Invalid)?)?;
        detection.write(out)?;
        write_features(announced, out)
    });
    built.map_err(|_| StateFault::Provider)
}
