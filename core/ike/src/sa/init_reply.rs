//! IKE_SA_INIT as the responder (RFC 7296 sections 1.2, 2.6 and 2.7).
//!
//! Until a request is answered nothing is kept of it.

use super::link::Fragments;
use super::select::{Announced, by_address};
use super::{Cx, HalfOpen, Head, IkeSa, Link, Role, State};
use crate::auth::announced_hashes;
use crate::config::{Connection, RemoteMethod};
use crate::keymat::{Nonces, SaKeys};
use crate::message::{Content, Kind, Window, header, need, plain};
use crate::nat::{Detection, Nat, detect};
use crate::negotiate::{Chosen, IkeSuite, Offer, choose};
use crate::{AuthorityHash, Path, PeerFault, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::{KexMethod, SecretBytes};
use casemate_wire::ike::{
    CertEncoding, CertReq, ExchangeType, HashAlgorithm, IkeSpi, Ke, KeMethod, Nonce, Notify, NotifyType,
    WriteError, Writer,
};

/// What IKE_AUTH needs of the first exchange.
pub(crate) struct Init {
    /// Both messages, whole, for AUTH covers them.
    pub(crate) request: Vec<u8>,
    pub(crate) response: Vec<u8>,
    pub(crate) nonce_i: Vec<u8>,
    pub(crate) nonce_r: Vec<u8>,
    /// SK_pi and SK_pr.
    pub(crate) pi: SecretBytes,
    pub(crate) pr: SecretBytes,
    pub(crate) nat: Nat,
    pub(crate) peer: Features,
}

/// What the peer said of itself.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Hashes for signatures, by number.
    pub(crate) hashes: Vec<u16>,
    pub(crate) fragments: bool,
    pub(crate) childless: bool,
    /// Authorities that it trusts.
    pub(crate) authorities: Vec<AuthorityHash>,
}

impl Features {
    pub(crate) fn of(content: &Content<'_>) -> Self {
        Self {
            hashes: announced_hashes(content),
            fragments: content.says(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED),
            childless: content.says(NotifyType::CHILDLESS_IKEV2_SUPPORTED),
            authorities: authorities(content),
        }
    }
}

/// Most authorities of a peer that are looked at.
const MAX_AUTHORITIES: usize = 64;

/// The authorities that a message names.
pub(crate) fn authorities(content: &Content<'_>) -> Vec<AuthorityHash> {
    let hashes = content.certreqs.iter().flat_map(|request| request.hashes());
    hashes.copied().take(MAX_AUTHORITIES).collect()
}

/// What is said to a request that is not taken.
pub(crate) enum Refusal {
    Fault(PeerFault),
    OtherKex(KexMethod),
    Cookie(Vec<u8>),
}

impl From<PeerFault> for Refusal {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for Refusal {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}

/// Answers a request. `bytes` is the whole message.
pub(crate) fn reply(
    (spi_i, bytes): (IkeSpi, &[u8]),
    content: &Content<'_>,
    path: Path,
    needs_cookie: bool,
    cx: &mut Cx<'_, '_>,
) -> Result<IkeSa, Refusal> {
    let nonce_i = need(content.nonce)?.data();
    if needs_cookie {
        check_cookie((spi_i, nonce_i, path), content, cx)?;
    }
    let (sa, ke) = (need(content.sa)?, need(content.ke)?);
    let prefer = KexMethod::from_id(ke.method.0);
    let (connection, chosen) = choose_connection(path, &sa, prefer, cx)?;
    let suite = IkeSuite::of(&chosen).ok_or(StateFault::NoProposalChosen)?;
    // RFC 7296 section 1.2: a wrong guess of the group is corrected.
    if ke.method.0 != suite.kex.id() {
        return Err(Refusal::OtherKex(suite.kex));
    }
    let kex = cx.env.providers.kex(suite.kex, cx.env.rng).map_err(|_| StateFault::Provider)?;
    let public = kex.public().to_vec();
    let shared = kex.agree(ke.data).map_err(|_| StateFault::KeValue)?;
    let spi_r = cx.ike_spi();
    let spis = (spi_i, spi_r);
    let detected = detect(content, spis_of_request(spi_i), path, cx.env.providers)?;
    // A peer that says nothing of NATs does not encapsulate. Whichever connection is chosen later, what is
    // announced here holds.
    let pretend = detected.is_some() && connection.force_encap;
    let mut nat = detected.unwrap_or_default();
    nat.local |= pretend;
    let nonce_r = cx.nonce();
    let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
    let keys = SaKeys::first(suite.prf, suite.sk, &shared, nonces, spis, cx.env.providers);
    let keys = keys.map_err(|_| StateFault::Provider)?;
    let id = cx.shared.next_ike_id();
    let (role, reauthenticates) = (Role::Responder, None);
    let head = Head { id, connection, path, role, spi_i, spi_r, attempts: 0, reauthenticates };
    let announced = Announced::for_all(path, suite, cx);
    let detection = Detection::new(spis, path, pretend, cx.env.providers)?;
    let response = answer(&head, (&chosen, suite), (&public, &nonce_r), (&announced, &detection), cx)?;
    let peer = Features::of(content);
    let fragments = Fragments { ours: announced.fragments, theirs: peer.fragments };
    // Its first protected request has the number 1; we have sent none.
    let link = Link::new(&head, suite, &keys, Window::new(0, 1), fragments, cx)?;
    cx.send(path, core::slice::from_ref(&response));
    let init = Init {
        request: bytes.into(),
        response,
        nonce_i: nonce_i.into(),
        nonce_r,
        pi: keys.pi,
        pr: keys.pr,
        nat,
        peer,
    };
    let begun = cx.env.now;
    let until = begun.after(cx.shared.settings.half_open_time);
    Ok(IkeSa { head, state: State::HalfOpen(Box::new(HalfOpen { link, init, begun, until })) })
}

/// RFC 7296 section 2.23: in the first request, the responder's SPI is zero in the hashes as it is in the header.
const fn spis_of_request(spi_i: IkeSpi) -> (IkeSpi, IkeSpi) {
    (spi_i, IkeSpi::NONE)
}

fn check_cookie(
    bound: (IkeSpi, &[u8], Path),
    content: &Content<'_>,
    cx: &mut Cx<'_, '_>,
) -> Result<(), Refusal> {
    let (now, providers) = (cx.env.now, cx.env.providers);
    let shown = content.notify(NotifyType::COOKIE);
    if shown.is_some_and(|notify| cx.shared.cookies.accepts(notify.data, bound, now, providers)) {
        return Ok(());
    }
    let cookie = cx.shared.cookies.make(bound, now, cx.env.rng, providers);
    Err(cookie.map_or(Refusal::Fault(StateFault::Provider.into()), Refusal::Cookie))
}

/// The connection that names these ends most closely and has a proposal that suits. Who the peer is comes later, and may change the
/// choice.
fn choose_connection(
    path: Path,
    sa: &casemate_wire::ike::Sa<'_>,
    prefer: Option<KexMethod>,
    cx: &Cx<'_, '_>,
) -> Result<(Arc<Connection>, Chosen), StateFault> {
    let mut refused = StateFault::NoConnection;
    for connection in by_address(&cx.shared.connections, path) {
        let offers: Vec<Offer> = connection.proposals.iter().map(Offer::ike).collect();
        match choose(&offers, sa, prefer) {
            Ok(chosen) => return Ok((connection, chosen)),
            Err(fault) => refused = fault,
        }
    }
    Err(refused)
}

fn answer(
    head: &Head,
    (chosen, suite): (&Chosen, IkeSuite),
    (public, nonce): (&[u8], &[u8]),
    (announced, detection): (&Announced, &Detection),
    cx: &mut Cx<'_, '_>,
) -> Result<Vec<u8>, StateFault> {
    let kind = Kind { exchange: ExchangeType::IKE_SA_INIT, message_id: 0, response: true };
    let built = plain(&header(head.spis(), head.role, kind), &mut cx.shared.scratch, &|out| {
        chosen.with_repr(&[], |proposal| out.sa(proposal))?;
        out.ke(&Ke { method: KeMethod(suite.kex.id()), data: public })?;
        out.nonce(&Nonce::parse(nonce).map_err(WriteError::Refused)?)?;
        detection.write(out)?;
        write_certreq(&announced.authorities, out)?;
        write_features(announced, out)
    });
    built.map_err(|_| StateFault::Provider)
}

/// The authorities that we name, if the peer is to show a certificate.
pub(crate) fn wanted_authorities(connection: &Connection, cx: &Cx<'_, '_>) -> Vec<AuthorityHash> {
    match connection.remote.method {
        RemoteMethod::Certificate(_) | RemoteMethod::Any(_) if connection.send_certreq => {
            cx.env.credentials.authorities(connection)
        }
        _ => Vec::new(),
    }
}

pub(crate) fn write_certreq(authorities: &[AuthorityHash], out: &mut Writer<'_>) -> Result<(), WriteError> {
    if authorities.is_empty() {
        return Ok(());
    }
    let authorities = authorities.as_flattened();
    out.certreq(&CertReq { encoding: CertEncoding::X509_SIGNATURE, authorities })
}

/// What we can do beyond RFC 7296.
pub(crate) fn write_features(announced: &Announced, out: &mut Writer<'_>) -> Result<(), WriteError> {
    if announced.fragments {
        out.notify(&Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]))?;
    }
    // RFC 7427 section 4. SHA-1 is not among them (RFC 8247 section 3.2).
    let hashes =
        [HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384, HashAlgorithm::SHA2_512, HashAlgorithm::IDENTITY]
            .map(|hash| hash.0.to_be_bytes());
    out.notify(&Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, hashes.as_flattened()))?;
    if announced.childless {
        out.notify(&Notify::new(NotifyType::CHILDLESS_IKEV2_SUPPORTED, &[]))?;
    }
    Ok(())
}
