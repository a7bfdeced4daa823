//! Explanations of faults as lines of text: both sides' values in the words of the configuration file, and
//! what to change.

use super::wording::{self, quoted};
use casemate_eap::EapFault;
use casemate_ike::config::{ChildConfig, Connection, Identity, LocalMethod};
use casemate_ike::diagnosis::{
    ChildMismatch, Considered, ConsideredChild, Explanation, Mismatch, PeerProof, Proposal, Traffic, closest,
};
use casemate_ike::{Path, StateFault};
use casemate_strongswan::notation;
use casemate_wire::ike::AuthMethod;

/// The lines of an explanation. `connection` is that of the IKE SA, `path` that of the message.
pub(super) fn lines(
    explanation: &Explanation,
    fault: StateFault,
    connection: Option<&Connection>,
    path: Path,
) -> Vec<String> {
    match explanation {
        Explanation::FirstRequest { offered, considered } => first_request(offered, considered, path),
        Explanation::Initiator { proof, asked, considered } => {
            initiator(proof, asked.as_ref(), considered, path)
        }
        Explanation::Responder { proof, own } => {
            let Some(connection) = connection else { return Vec::new() };
            vec![responder(connection, proof, own, fault)]
        }
        Explanation::Eap { fault, identity, peer } => vec![eap(*fault, identity.as_deref(), peer)],
        Explanation::Choice { chosen, offered } => vec![
            format!("chosen by the peer: {}", wording::proposals(chosen)),
            format!("offered by this host: {}", wording::proposals(offered)),
        ],
        Explanation::RekeyRequest { offered } => {
            let Some(connection) = connection else { return Vec::new() };
            let mut lines = vec![format!(
                "requested by the peer, to replace the IKE SA: {}",
                wording::proposals(offered)
            )];
            lines.extend(unacceptable("proposals", offered, &wording::ike_proposals(connection)));
            lines
        }
        Explanation::ChildRequest { traffic, offered, considered } => {
            child_request(traffic, offered, considered, fault)
        }
        Explanation::ChildResponse { received, requested } => vec![
            format!("traffic in the peer's response: {}", both_sides(received)),
            format!("requested traffic: {}", both_sides(requested)),
        ],
    }
}

fn both_sides(Traffic { local, remote }: &Traffic) -> String {
    format!("local {}, remote {}", wording::traffic(local), wording::traffic(remote))
}

fn first_request(offered: &[Proposal], considered: &[Considered], path: Path) -> Vec<String> {
    let mut lines = vec![format!("requested by the peer: {}", wording::proposals(offered))];
    if considered.is_empty() {
        lines.push("no connection is configured".into());
    }
    for Considered { connection, mismatch } in considered {
        lines.extend(match mismatch {
            Mismatch::Proposals => {
                let option = format!("connection {}: proposals", connection.name);
                unacceptable(&option, offered, &wording::ike_proposals(connection))
            }
            other => vec![refused_by(connection, *other, path, None, None)],
        });
    }
    lines
}

/// The configured proposals of an option, and how the closest one differs from those of the peer.
fn unacceptable(option: &str, offered: &[Proposal], configured: &[Proposal]) -> Vec<String> {
    let mut lines = vec![format!("{option} = {}", wording::proposals(configured))];
    let Some(difference) = closest(offered, configured) else { return lines };
    if difference.offered.protocol != difference.configured.protocol {
        lines.push("the peer requests another protocol: ESP and AH differ".into());
    }
    for kind in difference.kinds {
        let of = |proposal: &Proposal| {
            let words: Vec<String> = proposal.of_kind(kind).map(notation::algorithm).collect();
            if words.is_empty() { "none".into() } else { words.join("-") }
        };
        lines.push(format!(
            "they differ in the {}: the peer requests {}, configured is {}",
            notation::kind(kind),
            of(difference.offered),
            of(difference.configured)
        ));
    }
    lines
}

fn initiator(
    proof: &PeerProof,
    asked: Option<&Identity>,
    considered: &[Considered],
    path: Path,
) -> Vec<String> {
    let asks = asked.map_or_else(
        || "it asks for no identity of this host".into(),
        |id| format!("it asks for `{id}` on this host"),
    );
    let mut lines = vec![format!(
        "the peer is {}, authenticates with {}, and {asks}",
        wording::received_id(proof.id.as_ref()),
        wording::auth_method(proof.method)
    )];
    let refused = |one: &Considered| refused_by(&one.connection, one.mismatch, path, Some(proof), asked);
    lines.extend(considered.iter().map(refused));
    lines
}

/// Why a connection was not selected.
fn refused_by(
    connection: &Connection,
    mismatch: Mismatch,
    path: Path,
    proof: Option<&PeerProof>,
    asked: Option<&Identity>,
) -> String {
    let name = &connection.name;
    let id = wording::received_id(proof.and_then(|proof| proof.id.as_ref()));
    let reason = match mismatch {
        Mismatch::RemoteAddress => format!(
            "remote_addrs = {} does not contain the peer's address {}",
            wording::addrs(&connection.remote_addrs),
            path.remote.ip()
        ),
        Mismatch::LocalAddress => format!(
            "local_addrs = {} does not contain {}, to which the peer sent its request",
            wording::addrs(&connection.local_addrs),
            path.local.ip()
        ),
        Mismatch::Proposals => format!(
            "proposals = {} does not contain the negotiated algorithms",
            wording::proposals(&wording::ike_proposals(connection))
        ),
        Mismatch::LocalIdentity => format!(
            "local.id = {} is not the identity that the peer asks for: {}",
            wording::local_id(connection),
            wording::received_id(asked)
        ),
        Mismatch::RemoteIdentity => format!(
            "remote.id = {} does not accept the peer's identity {id}",
            wording::id_pattern(&connection.remote.id)
        ),
        Mismatch::Proof(fault) => match proof {
            Some(proof) => proof_fault(connection, proof, &own_id(connection, asked), fault),
            None => format!("{fault}"),
        },
    };
    format!("connection {name}: {reason}")
}

/// The identity of this host that a peer means.
fn own_id(connection: &Connection, asked: Option<&Identity>) -> String {
    match (&connection.local.id, asked) {
        (None, Some(asked)) => asked.to_string(),
        _ => wording::local_id(connection),
    }
}

fn responder(connection: &Connection, proof: &PeerProof, own: &Identity, fault: StateFault) -> String {
    match fault {
        StateFault::WrongIdentity => format!(
            "remote.id = {} was expected, but the peer is {}",
            wording::id_pattern(&connection.remote.id),
            wording::received_id(proof.id.as_ref())
        ),
        fault => proof_fault(connection, proof, &own.to_string(), fault),
    }
}

/// Why EAP has failed.
fn eap(fault: EapFault, identity: Option<&[u8]>, peer: &Identity) -> String {
    let identity = identity.map(wording::eap_identity);
    let who = identity.unwrap_or_else(|| format!("the peer {}, which sent no EAP identity", quoted(peer)));
    match fault {
        EapFault::NoPassword => format!("no section `eap` of `secrets` has a password for {who}"),
        EapFault::WrongPassword => format!("the password of {who} differs from its `secret` in `secrets`"),
        EapFault::PasswordEncoding => format!("the `secret` of {who} is not UTF-8, which MSCHAPv2 requires"),
        EapFault::WrongAuthenticator => format!("the responder does not know the password of {who}"),
        EapFault::NoMethod => format!("this host and the peer accept no common EAP method for {who}"),
        EapFault::Refused => format!("the peer refuses {who}"),
        EapFault::RefusedInTunnel => format!(
            "the peer refuses {who} in the tunnel: TLS is established, so the user name or the password is \
             wrong"
        ),
        EapFault::EarlySuccess => format!("success was announced before {who} was authenticated"),
        EapFault::BiddingDown => {
            format!(
                "both sides prefer EAP-AKA', but EAP-AKA was negotiated, perhaps by an attacker, for {who}"
            )
        }
        EapFault::SequenceNumber => {
            format!("the sequence numbers of the USIM and of its home network differ, for {who}")
        }
        EapFault::MissingKey => format!("the method derived no key for {who}"),
        EapFault::Unsupported => format!("an algorithm of the method for {who} is missing"),
        EapFault::NoServer => format!("no RADIUS server has answered for {who}"),
        EapFault::NoGroup => {
            format!("the RADIUS server names no group of {who} that `groups` of a connection contains")
        }
        EapFault::ServerRefused => format!("the RADIUS server refuses {who}"),
        EapFault::BadServerPacket => {
            format!("the RADIUS server has sent an EAP packet that does not fit, for {who}")
        }
        EapFault::PeerCertificate => {
            format!("the certificate of the other side of TLS is missing or refused, for {who}")
        }
        EapFault::NoBinding => format!("the peer does not confirm the keys of MSCHAPv2 in PEAP, for {who}"),
        EapFault::OtherIdentity => {
            format!("another identity is proved, in the tunnel or to the RADIUS server, than that of {who}")
        }
        EapFault::UnprovenIdentity => format!(
            "the RADIUS server has not said whether it has authenticated {who}, which the connection \
             requires: it must name the user, or `trust_user_name = yes` in `eap-radius` accepts a copy of \
             the EAP identity"
        ),
        EapFault::NoCertificate => {
            format!("this host has no certificate with a private key for TLS, for {who}")
        }
        EapFault::TlsAlert => format!("the other side has ended TLS, for {who}"),
        EapFault::Tls => format!("TLS has failed, for {who}"),
        EapFault::TooLong => format!(
            "the TLS message of the peer, probably its certificates, is longer than this host accepts before \
             the peer is authenticated, for {who}"
        ),
        EapFault::OutOfState | EapFault::Malformed | EapFault::TooManyPackets => {
            format!("the EAP messages for {who} violate the protocol: {fault}")
        }
    }
}

/// Why a proof is refused, or cannot be given.
fn proof_fault(connection: &Connection, proof: &PeerProof, own: &str, fault: StateFault) -> String {
    let id = wording::received_id(proof.id.as_ref());
    let uses_key = proof.method == Some(AuthMethod::SHARED_KEY);
    match fault {
        StateFault::AuthMismatch if uses_key => format!(
            "the pre-shared key of the peer differs from the `secret` of this host for `{own}` and \
             {id}{}{CHANGED}",
            or_ppk(connection, proof)
        ),
        StateFault::AuthMismatch => format!(
            "the signature of {id} does not fit its certificate or public key{}{CHANGED}",
            or_ppk(connection, proof)
        ),
        StateFault::PpkMissing => format!(
            "the post-quantum pre-shared key that {id} names is not in `secrets`, or ppk_id does not allow it"
        ),
        StateFault::PpkUnused => format!(
            "{id} uses no post-quantum pre-shared key; hosts use them if each has a section `ppk` in \
             `secrets`"
        ),
        StateFault::NoSharedKey => match &connection.local.method {
            LocalMethod::Certificate(names) if names.is_empty() => {
                "this host has no certificate with a private key for local.id".into()
            }
            LocalMethod::Certificate(names) => format!(
                "this host has no private key for local.certs = {}, or no secret for {id}",
                wording::list(names)
            ),
            LocalMethod::SharedKey | LocalMethod::Eap(_) => {
                format!("no section of `secrets` has a key for `{own}` and {id}")
            }
        },
        StateFault::AuthMethod => format!(
            "remote.auth = {} does not allow {} of the peer; this host offers local.auth = {}",
            wording::remote_auth(connection),
            wording::auth_method(proof.method),
            wording::local_auth(connection)
        ),
        StateFault::Certificate if proof.certificates == 0 => format!(
            "the peer sent no certificate for {id}, and none is configured in remote.certs, or it is refused"
        ),
        StateFault::Certificate => format!("the certificate of {id} is refused"),
        StateFault::SignatureAlgorithm => {
            format!("the signature algorithm of {id} is not allowed by remote.auth")
        }
        StateFault::ChildlessRefused => {
            format!("childless = {:?} does not fit the request", connection.childless).to_lowercase()
        }
        StateFault::NoPeer => "it fits, but another connection was tried first".into(),
        fault => fault.description().trim().trim_end_matches('.').to_owned(),
    }
}

/// A further reason of a wrong proof: it covers the messages before, as both hosts have sent and received
/// them (RFC 7296 section 2.15).
const CHANGED: &str = ", or a device on the path changed the first messages";

/// The other reason of a wrong proof: a post-quantum pre-shared key that differs.
fn or_ppk(connection: &Connection, proof: &PeerProof) -> String {
    let id = match proof.ppk_id.as_deref() {
        None => return String::new(),
        Some([]) => wording::ppk_id(connection),
        Some(id) => format!("`{}`", wording::octets(id)),
    };
    format!(", or the `secret` of the post-quantum pre-shared key {id} differs")
}

fn child_request(
    traffic: &Traffic,
    offered: &[Proposal],
    considered: &[ConsideredChild],
    fault: StateFault,
) -> Vec<String> {
    let mut lines = vec![match fault {
        StateFault::NoProposalChosen => format!("requested by the peer: {}", wording::proposals(offered)),
        _ => format!("requested by the peer: {}", both_sides(traffic)),
    }];
    if considered.is_empty() {
        lines.push("the connection has no children".into());
    }
    considered.iter().for_each(|one| lines.extend(refused_by_child(one, traffic, offered)));
    lines
}

fn refused_by_child(one: &ConsideredChild, requested: &Traffic, offered: &[Proposal]) -> Vec<String> {
    let ConsideredChild { child, traffic, mismatch } = one;
    let name = &child.name;
    let side = |option: &str, own: &[casemate_ike::TrafficSelector], asked: &[_]| {
        format!(
            "child {name}: {option} = {} does not overlap with the requested {}",
            wording::traffic(own),
            wording::traffic(asked)
        )
    };
    let local = || side("local_ts", &traffic.local, &requested.local);
    let remote = || side("remote_ts", &traffic.remote, &requested.remote);
    match mismatch {
        ChildMismatch::Traffic => vec![local(), remote()],
        ChildMismatch::LocalTraffic => vec![local()],
        ChildMismatch::RemoteTraffic => vec![remote()],
        ChildMismatch::SharedAddress => vec![format!(
            "child {name}: another host behind the peer's address has this traffic in transport mode"
        )],
        ChildMismatch::Proposals => {
            let with_kex =
                offered.iter().any(|one| one.of_kind(casemate_wire::ike::TransformType::KE).next().is_some());
            let option = format!("child {name}: {}", proposal_option(child));
            unacceptable(&option, offered, &wording::child_proposals(child, with_kex))
        }
    }
}

/// The option that contains the proposals of a child.
pub(super) fn proposal_option(child: &ChildConfig) -> &'static str {
    use casemate_ike::config::ChildAlgorithms::{Ah, EspCombined, EspSeparate};
    match child.proposals.first().map(|proposal| &proposal.algorithms) {
        Some(Ah(_)) => "ah_proposals",
        Some(EspCombined(_) | EspSeparate(..)) | None => "esp_proposals",
    }
}
