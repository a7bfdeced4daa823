//! IKE_SA_INIT as the responder (RFC 7296 sections 1.2, 2.6 and 2.7).
//!
//! No state is kept before a request is accepted.

use super::init_exchange::{InitExchange, PeerFeatures};
use super::select_connection::{AnnouncedFeatures, awaits_look_up, by_address};
use crate::auth::IntAuth;
#[cfg(feature = "ppk")]
use crate::auth::ppk::PpkUse;
use crate::config::{Connection, Encapsulation};
use crate::context::Step;
use crate::cookie::CookieRequest;
use crate::keymat::{Nonces, SaKeys};
use crate::nat::{NatDetection, NatStatus, detect};
use crate::negotiate::{Chosen, IkeSuite, Offer, choose};
use crate::state::{HalfOpen, IkeSa, SaCommon, State};
use crate::transport::{
    Content, FragmentSupport, MessageKind, SecureChannel, Window, header, required, write_plain,
};
use crate::{IkeSpis, Path, PeerFault, Role, StateFault};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use casemate_crypto::KexMethod;
use casemate_wire::ike::{
    ExchangeType, HEADER_LEN, HashAlgorithm, Header, IkeSpi, Ke, KeMethod, Message, Nonce, Notify,
    NotifyType, WriteError, Writer,
};

/// Rejection of a first request.
pub(crate) enum InitRejected {
    Fault(PeerFault),
    WrongKexMethod(KexMethod),
    Cookie(Vec<u8>),
}

impl From<PeerFault> for InitRejected {
    fn from(fault: PeerFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StateFault> for InitRejected {
    fn from(fault: StateFault) -> Self {
        Self::Fault(fault.into())
    }
}

/// Responds to a request. `bytes` is the whole message.
pub(crate) fn respond(
    spi_i: IkeSpi,
    bytes: &[u8],
    content: &Content<'_>,
    path: Path,
    needs_cookie: bool,
    step: &mut Step<'_, '_>,
) -> Result<IkeSa, InitRejected> {
    let nonce_i = required(content.nonce)?.data();
    if needs_cookie {
        check_cookie(&CookieRequest { spi: spi_i, nonce: nonce_i, path }, content, step)?;
    }
    let Selected { connection, chosen, suite, ke } = select(content, path, step)?;
    let kex = step.respond_to_kex(suite.kex, ke.data)?;
    let spis = IkeSpis { initiator: spi_i, responder: step.ike_spi() };
    let nat = detect_nat(content, spis, path, &connection, step)?;
    let nonce_r = step.nonce();
    let nonces = Nonces { initiator: nonce_i, responder: &nonce_r };
    let keys = SaKeys::initial(suite.prf, suite.sk, &kex.shared, nonces, spis, step.context.providers);
    let keys = keys.map_err(|_| StateFault::Provider)?;
    let common = SaCommon::new(connection, path, Role::Responder, spis, step);
    let mut announced = AnnouncedFeatures::of_candidates(path, suite, step);
    announced.intermediate = !suite.additional.is_empty();
    #[cfg(feature = "ppk")]
    {
        announced.ppk = content.has_notify(NotifyType::USE_PPK) && step.context.credentials.has_ppks();
    }
    let contents = ResponseContents {
        chosen: &chosen,
        kex: suite.kex,
        public: &kex.public,
        nonce: &nonce_r,
        announced: &announced,
        detection: &nat.detection,
    };
    let response = build_response(&common, &contents, step)?;
    let (announced, nat) = (&announced, nat.status);
    let exchange = FirstExchange { request: bytes, content, response, nonce_i, nonce_r, announced, nat };
    Ok(exchange.open(common, suite, keys, step)?)
}

/// The exchange that begins an IKE SA: IKE_SA_INIT or IKE_SESSION_RESUME.
pub(super) struct FirstExchange<'m> {
    /// The whole request, and its contents.
    pub(super) request: &'m [u8],
    pub(super) content: &'m Content<'m>,
    pub(super) response: Vec<u8>,
    pub(super) nonce_i: &'m [u8],
    pub(super) nonce_r: Vec<u8>,
    /// What the response announces.
    pub(super) announced: &'m AnnouncedFeatures,
    pub(super) nat: NatStatus,
}

impl FirstExchange<'_> {
    /// Sends the response and begins the half-open IKE SA.
    pub(super) fn open(
        self,
        common: SaCommon,
        suite: IkeSuite,
        keys: SaKeys,
        step: &mut Step<'_, '_>,
    ) -> Result<IkeSa, StateFault> {
        let Self { request, content, response, nonce_i, nonce_r, announced, nat } = self;
        #[cfg(feature = "redirect")]
        let common = SaCommon { redirect: crate::redirect::RedirectState::of_request(content), ..common };
        let peer = PeerFeatures::of(content);
        let fragments = FragmentSupport { local: announced.fragments, remote: peer.fragments };
        // The peer's first protected request has message ID 1. We have sent none.
        let channel = SecureChannel::new(&common, suite, &keys, Window::new(0, 1), fragments, step)?;
        step.send(common.path, core::slice::from_ref(&response));
        let init = InitExchange {
            request: request.into(),
            response,
            nonce_i: nonce_i.into(),
            nonce_r,
            sk_pi: keys.pi,
            sk_pr: keys.pr,
            full_transcript: announced.full_transcript
                && content.has_notify(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH),
            int_auth: IntAuth::default(),
            nat,
            peer,
            #[cfg(feature = "ppk")]
            ppk: if announced.ppk { PpkUse::Agreed } else { PpkUse::No },
        };
        Ok(half_open(common, channel, init, step))
    }
}

/// What the request and the configuration agree on.
struct Selected<'c> {
    connection: Arc<Connection>,
    chosen: Chosen,
    suite: IkeSuite,
    /// The peer's public value, of the key exchange method of `suite`.
    ke: Ke<'c>,
}

/// Selects connection and algorithms.
fn select<'c>(
    content: &Content<'c>,
    path: Path,
    step: &mut Step<'_, '_>,
) -> Result<Selected<'c>, InitRejected> {
    let (sa, ke) = (required(content.sa)?, required(content.ke)?);
    let prefer = KexMethod::from_id(ke.method.0);
    let additional = content.has_notify(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED);
    let (connection, chosen) = choose_connection(path, &sa, prefer, additional, step)?;
    let suite = IkeSuite::of(&chosen).ok_or(StateFault::NoProposalChosen)?;
    // RFC 7296 section 1.2: a wrong key exchange method is corrected.
    if ke.method.0 != suite.kex.id() {
        return Err(InitRejected::WrongKexMethod(suite.kex));
    }
    Ok(Selected { connection, chosen, suite, ke })
}

/// NAT detection as the responder.
pub(super) struct ResponderNat {
    pub(super) status: NatStatus,
    /// The hashes to send.
    pub(super) detection: NatDetection,
}

/// Evaluates the peer's NAT detection hashes and computes ours.
pub(super) fn detect_nat(
    content: &Content<'_>,
    spis: IkeSpis,
    path: Path,
    connection: &Connection,
    step: &Step<'_, '_>,
) -> Result<ResponderNat, StateFault> {
    let providers = step.context.providers;
    let detected = detect(content, spis_of_request(spis.initiator), path, providers)?;
    // A peer without NAT detection does not encapsulate. Whichever connection is selected later, this
    // announcement holds.
    let force_encap = detected.is_some()
        && match connection.encapsulation {
            Encapsulation::IfNat => false,
            Encapsulation::Auto => content.prefers_udp,
            Encapsulation::Always => true,
        };
    let mut status = detected.unwrap_or_default();
    if force_encap {
        status.force_local();
    }
    Ok(ResponderNat { status, detection: NatDetection::new(spis, path, force_encap, providers)? })
}

/// The IKE SA after the response: it waits for IKE_AUTH for a limited time.
pub(super) fn half_open(
    common: SaCommon,
    channel: SecureChannel,
    init: InitExchange,
    step: &Step<'_, '_>,
) -> IkeSa {
    let started_at = step.context.now;
    let expires_at = started_at.after(step.shared.settings.half_open_time);
    let half_open = HalfOpen {
        channel,
        init,
        started_at,
        expires_at,
        #[cfg(feature = "multiple-kex")]
        kexes_done: 0,
        #[cfg(feature = "resumption")]
        resumes: None,
        #[cfg(feature = "resumption")]
        ticket_until: None,
        #[cfg(feature = "eap")]
        room: 0,
        #[cfg(feature = "eap")]
        rounds: None,
        #[cfg(feature = "revocation")]
        awaited_message: None,
        #[cfg(feature = "revocation")]
        is_wait_over: false,
    };
    IkeSa { common, state: State::HalfOpen(Box::new(half_open)) }
}

/// SPIs in the NAT detection hashes of the first request: the responder's SPI is zero, as in the header (RFC
/// 7296 section 2.23).
const fn spis_of_request(spi_i: IkeSpi) -> IkeSpis {
    IkeSpis { initiator: spi_i, responder: IkeSpi::NONE }
}

impl IkeSa {
    /// Answers a repetition of the request that created this half-open IKE SA (RFC 7296 section 2.1).
    pub(crate) fn on_repeated_init(
        &mut self,
        header: &Header,
        request: &[u8],
        path: Path,
        step: &mut Step<'_, '_>,
    ) -> Result<(), PeerFault> {
        let State::HalfOpen(state) = &mut self.state else { return Err(StateFault::MessageId.into()) };
        if state.init.request != request {
            if !repeats_with_cookie(&state.init, header.spi_i, request, path, step) {
                return Err(StateFault::MessageId.into());
            }
            state.init.request = request.into();
        }
        step.send(path, core::slice::from_ref(&state.init.response));
        Ok(())
    }
}

/// Whether a request repeats the one that created a half-open IKE SA, with a valid cookie in front (RFC 7296
/// section 2.6). Cookies were required for one transmission and not for the next one, and both responses
/// arrived at the peer. The peer's AUTH payload covers the request that the peer sent last: this one.
fn repeats_with_cookie(
    init: &InitExchange,
    spi_i: IkeSpi,
    request: &[u8],
    path: Path,
    step: &Step<'_, '_>,
) -> bool {
    let Some(payloads) = init.request.get(HEADER_LEN..) else { return false };
    let Ok(message) = Message::parse(request) else { return false };
    let Ok(content) = Content::parse(message.payloads()) else { return false };
    let cookie = CookieRequest { spi: spi_i, nonce: &init.nonce_i, path };
    request.ends_with(payloads) && shows_cookie(&cookie, &content, step)
}

fn shows_cookie(request: &CookieRequest<'_>, content: &Content<'_>, step: &Step<'_, '_>) -> bool {
    let (now, providers) = (step.context.now, step.context.providers);
    let shown = content.notify(NotifyType::COOKIE);
    shown.is_some_and(|notify| step.shared.cookies.verify(notify.data, request, now, providers))
}

pub(super) fn check_cookie(
    request: &CookieRequest<'_>,
    content: &Content<'_>,
    step: &mut Step<'_, '_>,
) -> Result<(), InitRejected> {
    if shows_cookie(request, content, step) {
        return Ok(());
    }
    let (now, providers) = (step.context.now, step.context.providers);
    let cookie = step.shared.cookies.make(request, now, step.context.rng, providers);
    Err(cookie.map_or(InitRejected::Fault(StateFault::Provider.into()), InitRejected::Cookie))
}

/// Selects the connection with the most specific addresses among those with an acceptable proposal. The
/// peer's identity, known later, may change the selection.
fn choose_connection(
    path: Path,
    sa: &casemate_wire::ike::Sa<'_>,
    prefer: Option<KexMethod>,
    additional: bool,
    step: &mut Step<'_, '_>,
) -> Result<(Arc<Connection>, Chosen), StateFault> {
    let mut refused = StateFault::NoConnection;
    for connection in by_address(&step.shared.connections, path, step.context.routes) {
        match choose(&Offer::all_ike(connection), sa, prefer, additional) {
            Ok(chosen) => return Ok((connection.clone(), chosen)),
            Err(fault) => refused = fault,
        }
    }
    if refused == StateFault::NoConnection
        && awaits_look_up(&step.shared.connections, path, step.context.routes)
    {
        // The peer sends its request again.
        return Err(StateFault::HostLookUp);
    }
    step.explain(refused, false, |explainer, step| {
        Some(explainer.first_request(path, sa, step.shared.connections.all(), step.context))
    });
    Err(refused)
}

/// Values that the response contains.
struct ResponseContents<'a> {
    chosen: &'a Chosen,
    kex: KexMethod,
    /// Our public value.
    public: &'a [u8],
    nonce: &'a [u8],
    announced: &'a AnnouncedFeatures,
    detection: &'a NatDetection,
}

fn build_response(
    common: &SaCommon,
    contents: &ResponseContents<'_>,
    step: &mut Step<'_, '_>,
) -> Result<Vec<u8>, StateFault> {
    let ResponseContents { chosen, kex, public, nonce, announced, detection } = contents;
    let kind = MessageKind { exchange: ExchangeType::IKE_SA_INIT, message_id: 0, response: true };
    let built = write_plain(&header(common.spis(), common.role, kind), &mut step.shared.scratch, &|out| {
        chosen.with_proposal(&[], |proposal| out.sa(proposal))?;
        out.ke(&Ke { method: KeMethod(kex.id()), data: public })?;
        out.nonce(&Nonce::parse(nonce).map_err(WriteError::Invalid)?)?;
        detection.write(out)?;
        announced.requests.write(out)?;
        write_features(announced, out)
    });
    built.map_err(|_| StateFault::Provider)
}

/// Writes the notifications of supported extensions.
pub(crate) fn write_features(announced: &AnnouncedFeatures, out: &mut Writer<'_>) -> Result<(), WriteError> {
    if announced.fragments {
        out.notify(&Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]))?;
    }
    // RFC 7427 section 4. SHA-1 is not announced (RFC 8247 section 3.2).
    let hashes =
        [HashAlgorithm::SHA2_256, HashAlgorithm::SHA2_384, HashAlgorithm::SHA2_512, HashAlgorithm::IDENTITY]
            .map(|hash| hash.0.to_be_bytes());
    out.notify(&Notify::new(NotifyType::SIGNATURE_HASH_ALGORITHMS, hashes.as_flattened()))?;
    #[cfg(feature = "eap")]
    if announced.multiple_auth {
        out.notify(&Notify::new(NotifyType::MULTIPLE_AUTH_SUPPORTED, &[]))?;
    }
    if announced.intermediate {
        out.notify(&Notify::new(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, &[]))?;
    }
    #[cfg(feature = "ppk")]
    if announced.ppk {
        out.notify(&Notify::new(NotifyType::USE_PPK, &[]))?;
    }
    if announced.full_transcript {
        out.notify(&Notify::new(NotifyType::IKE_SA_INIT_FULL_TRANSCRIPT_AUTH, &[]))?;
    }
    if announced.childless {
        out.notify(&Notify::new(NotifyType::CHILDLESS_IKEV2_SUPPORTED, &[]))?;
    }
    Ok(())
}
