//! What to check after a failure that the message itself does not explain: a refusal by the peer, which does
//! not say why, or silence.

use super::explanation::proposal_option;
use super::wording;
use casemate_eap::Method;
use casemate_ike::config::{ChildConfig, Connection, LocalMethod};
use casemate_ike::{ChildUp, DownReason, Event, InitiateError, StateFault, TrafficSelector};
use casemate_sa::AddrRange;
use casemate_wire::ike::{ExchangeType, NotifyType};
use std::net::SocketAddr;

/// UDP port of IKE messages through a NAT (RFC 7296 section 2.23).
const NATT_PORT: u16 = 4_500;

/// What to check if the peer at this address does not respond. A half-open IKE SA is one that the peer has
/// started, and on which it has not been authenticated.
pub(super) fn dead_peer(connection: &Connection, peer: SocketAddr, half_open: bool) -> String {
    if half_open {
        return format!(
            "{peer} has sent IKE_SA_INIT, this host has responded, and IKE_AUTH was not completed: UDP port \
             4500 is blocked on the way, long requests or their fragments are lost, or the peer has stopped"
        );
    }
    format!(
        "{peer}, remote_addrs = {}: check that the peer runs and that UDP ports 500 and 4500 reach it; \
         `casemate why {}` shows the route",
        wording::addrs(&connection.remote_addrs),
        connection.name
    )
}

/// What this host requested when the peer refused the IKE SA.
pub(super) fn ike_refused(connection: &Connection, reason: DownReason) -> Vec<String> {
    match reason {
        DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN) => no_proposal_chosen(connection),
        DownReason::Refused(NotifyType::AUTHENTICATION_FAILED) => authentication_refused(connection),
        _ => Vec::new(),
    }
}

fn no_proposal_chosen(connection: &Connection) -> Vec<String> {
    let mut lines = vec![
        format!(
            "offered by this host: proposals = {}",
            wording::proposals(&wording::ike_proposals(connection))
        ),
        "the peer accepts none of them, or it has no connection for the addresses of the two hosts: its log \
         says which"
            .into(),
    ];
    if requires_additional_kex(connection) {
        lines.push(
            "each of them requires an additional key exchange (ke1_ to ke7_): a peer without RFC 9370 \
             accepts none"
                .into(),
        );
    }
    lines
}

/// Whether every proposal of a connection has an additional key exchange that the peer must not leave out.
fn requires_additional_kex(connection: &Connection) -> bool {
    connection.proposals.iter().all(|proposal| proposal.additional.values().any(|kex| !kex.optional))
}

/// What this host requested when the peer refused to replace the IKE SA.
pub(super) fn ike_rekeying_refused(connection: &Connection, reason: DownReason) -> Vec<String> {
    match reason {
        DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN | NotifyType::INVALID_KE_PAYLOAD) => vec![
            format!(
                "offered by this host: proposals = {}",
                wording::proposals(&wording::ike_proposals(connection))
            ),
            "the peer accepted the first negotiation, and has other proposals or groups for rekeying: \
             its log says which"
                .into(),
        ],
        _ => Vec::new(),
    }
}

fn authentication_refused(connection: &Connection) -> Vec<String> {
    let local = wording::local_id(connection);
    let mut lines = vec![
        format!(
            "sent by this host: local.id = {local}, local.auth = {}, and remote.id = {} for the peer",
            wording::local_auth(connection),
            wording::id_pattern(&connection.remote.id)
        ),
        refused_proof(&connection.local.method).into(),
    ];
    if connection.ppk.id.is_some() {
        lines.push(format!(
            "ppk_id = {}: the peer needs the same `secret` in a section `ppk`, or none of this `id`",
            wording::ppk_id(connection)
        ));
    }
    lines
}

/// What the peer did not accept of this host, by its way of proving its identity.
fn refused_proof(method: &LocalMethod) -> &'static str {
    match Proof::of(method) {
        Proof::Secret => {
            "the peer needs a connection for these two identities, and the same `secret` for both \
             identities: its log says what differs"
        }
        Proof::Certificate => {
            "the peer needs a connection for these two identities, and trust in the certificate of this \
             host, which must contain its identity, and be valid now and not revoked: its log says what \
             differs"
        }
        Proof::Password => {
            "the peer has no connection for these two identities, such as another name for itself than this \
             remote.id, or the user name or the password is wrong: its log says which"
        }
        Proof::Usim => {
            "`secret` (K) or `opc` of this subscriber is wrong, or the peer has no connection for these two \
             identities: its log says which"
        }
        Proof::PasswordOrCertificate => {
            "the peer needs a connection for these two identities, and accepts neither the password nor the \
             certificate of this host: its log says which was used, and what differs"
        }
    }
}

/// What this host proves its identity with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    /// A pre-shared key.
    Secret,
    /// A certificate or public key, in IKE or by EAP-TLS.
    Certificate,
    /// A password, perhaps in a TLS tunnel.
    Password,
    /// The keys of a USIM.
    Usim,
    /// What the EAP method demands that the peer chooses.
    PasswordOrCertificate,
}

impl Proof {
    /// The proof of this host.
    pub(crate) fn of(method: &LocalMethod) -> Self {
        let eap = match method {
            LocalMethod::SharedKey => return Self::Secret,
            LocalMethod::Certificate(_) => return Self::Certificate,
            LocalMethod::Eap(eap) => eap,
        };
        let is_usim = |method: &Method| matches!(method, Method::Aka | Method::AkaPrime);
        match &*eap.methods {
            [Method::Tls] => Self::Certificate,
            methods if methods.iter().all(is_usim) => Self::Usim,
            methods if methods.contains(&Method::Tls) => Self::PasswordOrCertificate,
            _ => Self::Password,
        }
    }
}

/// What this host requested when the peer refused a Child SA, the first one or one that replaces another.
pub(super) fn child_refused(
    connection: &Connection,
    child: &ChildConfig,
    is_rekeying: bool,
    reason: DownReason,
) -> Vec<String> {
    match reason {
        DownReason::Refused(NotifyType::TS_UNACCEPTABLE) => vec![format!(
            "requested by this host: local_ts = {}, remote_ts = {}; the peer has no child whose selectors \
             overlap with them",
            wording::templates(&child.local_ts),
            wording::templates(&child.remote_ts)
        )],
        DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN) => vec![format!(
            "offered by this host: {} = {}; the peer accepts none of them{}",
            proposal_option(child),
            wording::proposals(&wording::child_proposals(child, true)),
            if is_rekeying {
                ". The first Child SA has no key exchange of its own, and this one has"
            } else {
                ""
            }
        )],
        DownReason::Refused(NotifyType::INTERNAL_ADDRESS_FAILURE) => vec![format!(
            "requested by this host: vips = {}; the peer has no free virtual address, or no pool",
            wording::list(&connection.vips)
        )],
        DownReason::Refused(NotifyType::FAILED_CP_REQUIRED) => vec![
            "this host requests no virtual address, and the peer gives its traffic to virtual addresses \
             only: vips = 0.0.0.0 was expected"
                .into(),
        ],
        _ => Vec::new(),
    }
}

/// What a client does not reach that requests a tunnel for all traffic of an IP version, if the gateway has
/// allowed less.
pub(super) fn all_traffic_narrowed(up: &ChildUp) -> Vec<String> {
    let (requested, is_client) = (&up.child.remote_ts, !up.connection.vips.is_empty());
    if !is_client || up.replaces.is_some() {
        return Vec::new();
    }
    let is_missing = |all: &AddrRange| {
        let is_requested = requested.iter().any(|template| template.addrs == Some(*all));
        is_requested && !up.remote.iter().any(|allowed| allowed.contains(&TrafficSelector::any(*all)))
    };
    let missing = [AddrRange::ANY_V4, AddrRange::ANY_V6].into_iter().filter(is_missing);
    let line = |all: AddrRange| {
        format!(
            "remote_ts = {all} is requested, and the peer allows less, as shown above: the rest is not in \
             the tunnel; {all} was expected in local_ts of the peer, and an address of this IP version in \
             its pools"
        )
    };
    missing.map(line).collect()
}

/// Why an attempt could not start.
pub(super) fn not_initiated(connection: &Connection, error: InitiateError) -> Vec<String> {
    match error {
        InitiateError::UnknownHost => vec![format!(
            "remote_addrs = {}: `getent hosts NAME` shows what the system knows",
            wording::addrs(&connection.remote_addrs)
        )],
        InitiateError::NoRoute => vec![format!(
            "local_addrs = {}, remote_addrs = {}: `casemate why {}` shows the route of IKE messages",
            wording::addrs(&connection.local_addrs),
            wording::addrs(&connection.remote_addrs),
            connection.name
        )],
        InitiateError::NoPpk => vec![match connection.ppk.id.as_ref().and_then(|id| id.exact()) {
            Some(_) => {
                format!("no section `ppk` of `secrets` has ppk_id = {} as `id`", wording::ppk_id(connection))
            }
            None => format!(
                "ppk_id = {}: with ppk_required = yes, a host that initiates needs the `id` of one section \
                 `ppk` in `secrets`",
                wording::ppk_id(connection)
            ),
        }],
        InitiateError::Provider => {
            vec![format!("proposals = {}", wording::proposals(&wording::ike_proposals(connection)))]
        }
        _ => Vec::new(),
    }
}

/// The configuration that a fault without an explanation concerns.
pub(super) fn fault(fault: StateFault, connection: Option<&Connection>) -> Vec<String> {
    let Some(connection) = connection else { return Vec::new() };
    match fault {
        StateFault::NoAddress => vec![match &*connection.pools {
            [] => "the connection has no pools, but the peer requests a virtual address".into(),
            pools => format!(
                "pools = {}: no address is free, or none is of the requested IP version; a larger `addrs` of \
                 the pool helps",
                wording::list(pools)
            ),
        }],
        StateFault::AddressNotRequested => vec![format!(
            "pools = {}: `dynamic` in remote_ts stands for addresses of the pools, and the peer requests \
             none; `vips = 0.0.0.0` on the peer was expected",
            wording::list(&connection.pools)
        )],
        StateFault::AddressRefused => vec![format!(
            "vips = {}: another interface of this host has the assigned addresses, or they are those of the \
             peer or of the router to it; `ip address` shows the interfaces",
            wording::list(&connection.vips)
        )],
        StateFault::NotOffered => not_offered(connection),
        StateFault::NotUnique => vec![
            format!(
                "unique = {:?}: two peers use the same identity, or the peer has started again",
                connection.unique
            )
            .to_lowercase(),
        ],
        StateFault::PpkMissing | StateFault::PpkUnused => vec![format!(
            "ppk_id = {}, ppk_required = {}",
            wording::ppk_id(connection),
            if connection.ppk.required { "yes" } else { "no" }
        )],
        StateFault::NoSharedKey => vec![match connection.local.method {
            LocalMethod::Certificate(_) => format!(
                "local.auth = pubkey: no certificate with a private key fits local.id = {}",
                wording::local_id(connection)
            ),
            LocalMethod::SharedKey | LocalMethod::Eap(_) => format!(
                "no section of `secrets` has a key for local.id = {} and remote.id = {}",
                wording::local_id(connection),
                wording::id_pattern(&connection.remote.id)
            ),
        }],
        _ => Vec::new(),
    }
}

/// A choice of the peer that no explanation compares.
fn not_offered(connection: &Connection) -> Vec<String> {
    let has_additional = connection.proposals.iter().any(|proposal| !proposal.additional.is_empty());
    let without_announcement = has_additional.then(|| {
        "the peer chose an additional key exchange without announcing IKE_INTERMEDIATE (RFC 9242), which \
         that needs, or something else than this host has offered"
            .into()
    });
    let offered = wording::proposals(&wording::ike_proposals(connection));
    let offered = format!("offered by this host: proposals = {offered}");
    without_announcement.into_iter().chain([offered]).collect()
}

/// Message about a repeated request.
pub(super) struct Retransmission {
    pub(super) text: String,
    /// What to check. The first repetition has none, because a single datagram may get lost.
    pub(super) hint: Option<String>,
}

/// Describes a repeated request; `None` for another event.
pub(super) fn retransmission(event: &Event) -> Option<Retransmission> {
    let Event::Retransmitted { path, exchange, message_id, attempt, tries, wait, connection, .. } = event
    else {
        return None;
    };
    let wait = wait.as_millis() as f64 / 1_000.0;
    let next = if attempt < tries { "next in" } else { "the last one; given up in" };
    let text = format!(
        "{exchange} request to {} from {}: sent again, {attempt} of {tries}; {next} {wait} s",
        path.remote, path.local
    );
    let hint = || match *exchange {
        ExchangeType::IKE_AUTH if *message_id > 1 => silence_after_response(&connection.local.method).into(),
        exchange => silence(exchange, path.remote),
    };
    Some(Retransmission { text, hint: (*attempt > 1).then(hint) })
}

/// Why a peer may be silent during IKE_AUTH that has responded to a protected request.
const fn silence_after_response(method: &LocalMethod) -> &'static str {
    match method {
        LocalMethod::Eap(_) => {
            "the peer responded before: it waits for its authentication server (RADIUS), or has stopped"
        }
        LocalMethod::SharedKey | LocalMethod::Certificate(_) => {
            "the peer responded before: it drops this request, long datagrams or their fragments are lost on \
             the way, or it has stopped"
        }
    }
}

/// Why a peer may be silent, given the exchange and its port.
fn silence(exchange: ExchangeType, remote: SocketAddr) -> String {
    let port = remote.port();
    match exchange {
        ExchangeType::IKE_SA_INIT => format!(
            "no response at all: the peer is down, the address is wrong, a route is missing, or UDP port \
             {port} is blocked on the way"
        ),
        // The first request on this port, and a long one: with ML-KEM or with certificates.
        ExchangeType::IKE_INTERMEDIATE | ExchangeType::IKE_AUTH if port == NATT_PORT => format!(
            "the peer responded on the IKE port before: UDP port {port} is blocked on the way, long \
             datagrams or their fragments are lost, or the peer drops the request"
        ),
        ExchangeType::IKE_INTERMEDIATE | ExchangeType::IKE_AUTH => {
            "the peer responded to IKE_SA_INIT: long datagrams or their fragments are lost on the way, or \
             the peer drops the request"
                .into()
        }
        _ => {
            "the peer responded before: it has stopped or forgotten the IKE SA, or the path to it has failed"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::negotiated::tests::connection;
    use super::*;
    use casemate_ike::config::LocalEap;

    fn remote(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 2], port))
    }

    #[test]
    fn a_long_request_without_a_response_names_the_port_and_lost_fragments() {
        for exchange in [ExchangeType::IKE_INTERMEDIATE, ExchangeType::IKE_AUTH] {
            let moved = silence(exchange, remote(NATT_PORT));
            assert!(moved.contains("UDP port 4500 is blocked on the way"), "{exchange}: {moved}");
            let same = silence(exchange, remote(500));
            assert!(same.contains("the peer responded to IKE_SA_INIT"), "{exchange}: {same}");
            for text in [moved, same] {
                assert!(text.contains("long datagrams or their fragments are lost"), "{text}");
            }
        }
        let later = silence(ExchangeType::INFORMATIONAL, remote(NATT_PORT));
        assert!(later.contains("has stopped or forgotten the IKE SA"), "{later}");
    }

    #[test]
    fn a_peer_that_has_stopped_is_named() {
        let mut of_users = connection("default");
        of_users.remote_addrs = vec![casemate_ike::config::AddrPattern::Any];
        let half_open = dead_peer(&of_users, remote(500), true);
        assert!(half_open.starts_with("192.0.2.2:500 has sent IKE_SA_INIT"), "{half_open}");
        assert!(half_open.contains("UDP port 4500 is blocked on the way"), "{half_open}");
        let established = dead_peer(&of_users, remote(4500), false);
        assert!(established.starts_with("192.0.2.2:4500, remote_addrs = %any: "), "{established}");
    }

    #[test]
    fn a_peer_that_may_not_know_additional_key_exchanges_is_named() {
        let reason = DownReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN);
        let lines = |proposals: &str| ike_refused(&connection(proposals), reason).join("\n");
        let hybrid = "aes128gcm16-prfsha256-x25519-ke1_mlkem768";
        assert!(lines(hybrid).contains("a peer without RFC 9370 accepts none"), "{}", lines(hybrid));
        for others in ["default", "aes128gcm16-prfsha256-x25519", &format!("{hybrid}-ke1_none")] {
            assert!(!lines(others).contains("RFC 9370"), "{}", lines(others));
        }
    }

    #[test]
    fn a_choice_that_was_not_offered_has_a_text_of_its_own() {
        let text = |proposals: &str| fault(StateFault::NotOffered, Some(&connection(proposals))).join("\n");
        let (hybrid, classical) = (text("default"), text("aes128gcm16-prfsha256-x25519"));
        assert!(hybrid.contains("without announcing IKE_INTERMEDIATE (RFC 9242)"), "{hybrid}");
        assert_eq!(classical, "offered by this host: proposals = aes128gcm16-prfsha256-x25519");
    }

    /// EAP takes several IKE_AUTH requests, and port 4500 has proved to be open with the first response.
    #[test]
    fn a_peer_that_stops_within_ike_auth_has_not_a_blocked_port() {
        let id = |name: &str| casemate_ike::config::Identity::Fqdn(name.into());
        let mut connection = Connection::with_shared_key("home", id("carol"), id("gateway"));
        let path = casemate_ike::Path {
            local: "192.0.2.2:4500".parse().unwrap(),
            remote: "192.0.2.1:4500".parse().unwrap(),
        };
        let hint = |connection: &Connection, message_id| {
            let event = Event::Retransmitted {
                ike: casemate_ike::IkeSaId::for_tests(1),
                connection: connection.clone().into(),
                path,
                exchange: ExchangeType::IKE_AUTH,
                message_id,
                attempt: 2,
                tries: 6,
                wait: std::time::Duration::from_secs(4),
            };
            retransmission(&event).unwrap().hint.unwrap()
        };
        assert!(hint(&connection, 1).contains("UDP port 4500 is blocked on the way"));
        assert!(hint(&connection, 2).contains("long datagrams or their fragments are lost"));
        connection.local.method =
            LocalMethod::Eap(LocalEap { identity: None, methods: [Method::MsChapV2].into() });
        assert!(hint(&connection, 1).contains("UDP port 4500 is blocked on the way"));
        assert!(hint(&connection, 2).contains("it waits for its authentication server (RADIUS)"));
    }

    #[test]
    fn a_refused_user_is_told_what_the_method_proves() {
        let refused = |methods: &[Method]| {
            refused_proof(&LocalMethod::Eap(LocalEap { identity: None, methods: methods.into() }))
        };
        assert!(refused(&[Method::MsChapV2]).contains("user name or the password"));
        assert!(refused(&[Method::Ttls]).contains("user name or the password"));
        let certificate = refused(&[Method::Tls]);
        assert!(certificate.contains("not revoked") && !certificate.contains("secret"), "{certificate}");
        assert!(refused(&[Method::AkaPrime]).contains("`opc`"));
        assert!(refused(&[Method::MsChapV2, Method::Tls]).contains("neither the password nor"));
        assert!(refused_proof(&LocalMethod::SharedKey).contains("the same `secret`"));
    }
}
