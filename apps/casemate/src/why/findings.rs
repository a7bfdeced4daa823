//! What is wrong with a connection, and what to try: conclusions from its state, its traffic and its last
//! failure.

use super::eap_advice::{eap_advice, refused_proof_advice};
use super::negotiation::{long_request_advice, negotiated};
use super::traffic::traffic;
use crate::history::{Cause, ConnectionHistory, PastEvent, SaChange};
use crate::log::level::Level;
use crate::log::wording;
use crate::status::{ChildTraffic, ConnectionState, ConnectionStatus, Narrowing, SharedTraffic};
use casemate::InstallError;
use casemate_ike::config::{AddrPattern, Connection};
use casemate_ike::{DownReason, IkeStatus, InitiateError, StateFault};
use casemate_wire::ike::{ExchangeType, NotifyType};
use std::collections::HashSet;

/// What is known about a connection.
pub(super) struct Facts<'a> {
    pub(super) connection: &'a Connection,
    pub(super) status: &'a ConnectionStatus,
    /// What is known about the peer, if the report is about one and not about the connection.
    pub(super) peer: &'a [String],
    /// Whether the last error is over.
    pub(super) is_error_past: bool,
    /// The IKE SAs that the report is about.
    pub(super) ikes: &'a [IkeStatus],
    pub(super) traffic: &'a [ChildTraffic],
    pub(super) narrowings: &'a [Narrowing],
    /// Traffic that other peers have, too.
    pub(super) shared: &'a [SharedTraffic],
    pub(super) record: Option<&'a ConnectionHistory>,
    /// The last request of a peer that no connection accepted, or that the peer did not complete, unless that
    /// is over.
    pub(super) last_refused: Option<&'a PastEvent>,
    /// The last one if it is over.
    pub(super) past_refused: Option<&'a PastEvent>,
    /// Whether packets from or to the peer were dropped.
    pub(super) has_drops: bool,
}

/// Conclusions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    pub(super) causes: Vec<String>,
    pub(super) tries: Vec<String>,
}

impl Findings {
    pub(super) fn add(&mut self, cause: impl Into<String>, tries: &[&str]) {
        self.causes.push(cause.into());
        self.tries.extend(tries.iter().map(|text| (*text).to_owned()));
    }

    /// Keeps the first of equal lines: a failure may have several causes with the same advice.
    fn remove_repetitions(&mut self) {
        let mut known = HashSet::new();
        self.tries.retain(|text| known.insert(text.clone()));
    }
}

/// Draws conclusions.
pub(super) fn findings(facts: &Facts<'_>) -> Findings {
    let mut found = Findings::default();
    match facts.peer {
        [] => {
            state(facts, &mut found);
            ended(facts, &mut found);
        }
        about => found.causes.extend_from_slice(about),
    }
    // What removes the cause of a failure comes before what starts the next attempt.
    let general = std::mem::take(&mut found.tries);
    refused_request(facts, &mut found);
    last_error(facts, &mut found);
    found.tries.extend(general);
    negotiated(facts.ikes, &mut found);
    traffic(facts.traffic, &mut found);
    for narrowing in facts.narrowings {
        found.causes.push(narrowing.cause());
        found.tries.extend(narrowing.advice());
    }
    for shared in facts.shared {
        found.causes.push(shared.cause());
    }
    if !facts.shared.is_empty() {
        found.tries.extend(SharedTraffic::advice().map(str::to_owned));
    }
    if facts.has_drops {
        found.add(
            "packets from or to the peer were dropped, see above",
            &[
                "docs/manual/inspect.md explains each drop reason",
                "`casemate trace peer ADDRESS` with the address of the peer shows the next such packets",
            ],
        );
    }
    found.remove_repetitions();
    found
}

fn state(facts: &Facts<'_>, found: &mut Findings) {
    let Facts { connection, status, record, .. } = facts;
    let name = &connection.name;
    match status.state {
        ConnectionState::PoliciesOnly => {
            found.add("it has only policies with mode = pass or drop, so nothing is negotiated", &[]);
        }
        ConnectionState::Up if facts.traffic.iter().all(|traffic| !traffic.is_one_way()) => {
            found.add("the connection is up", &[]);
        }
        ConnectionState::Up => {}
        ConnectionState::NoChildSa => {
            found.add("the IKE SA is up, but there is no Child SA for packets", &[])
        }
        ConnectionState::Passive => {
            found.add(
                "only the peer can start the connection, because remote_addrs names no single address",
                &[],
            );
            if facts.last_refused.is_none() && record.is_none_or(|record| record.events.is_empty()) {
                found.add(
                    "no peer has sent a request for it since the start",
                    &["start the connection on the peer, and check that UDP ports 500 and 4500 reach this \
                       host"],
                );
            }
        }
        ConnectionState::Trapped => found.add(
            "a packet for the remote traffic selectors starts the next attempt",
            // A packet helps nothing while the cause of a failure is there.
            match record.and_then(|record| record.last_error.as_ref()) {
                Some(error) if !error.is_over => &[],
                _ => &["send a packet from the local to the remote traffic selectors, such as a ping"],
            },
        ),
        // The refused request is the cause, and is reported below.
        ConnectionState::Down if facts.last_refused.is_some() => {}
        ConnectionState::Down if record.is_none_or(|record| record.events.is_empty()) => {
            found.causes.push(
                "no event of this connection since the start: neither this host nor a peer has requested it"
                    .into(),
            );
            found.tries.push(format!("`casemate initiate {name}`, or start_action = start in a child"));
        }
        ConnectionState::Down => {
            found.causes.push("no further attempt is planned".into());
            found.tries.push(format!("`casemate initiate {name}` after the cause is removed"));
        }
        ConnectionState::Connecting | ConnectionState::Waiting => {}
    }
}

/// Why the last SA has ended, if that is no error: such an end is not the last error.
fn ended(facts: &Facts<'_>, found: &mut Findings) {
    let changes = facts.record.iter().flat_map(|record| record.events.iter().rev());
    let mut changes = changes.filter_map(|event| Some((event, event.change?)));
    let (what, (event, reason)) = match facts.status.state {
        ConnectionState::Up | ConnectionState::Connecting | ConnectionState::PoliciesOnly => return,
        ConnectionState::NoChildSa => match changes.find(|(_, change)| !change.is_of_ike()) {
            Some((event, SaChange::ChildDown(reason))) => ("Child SA", (event, reason)),
            _ => return,
        },
        _ => match changes.find(|(_, change)| change.is_of_ike()) {
            Some((event, SaChange::IkeDown(reason))) => ("IKE SA", (event, reason)),
            _ => return,
        },
    };
    if event.level < Level::Info {
        return;
    }
    found.causes.push(format!("the last {what} has ended, {} s ago: {reason}", event.at.elapsed().as_secs()));
    let may_start = facts.connection.remote_addrs.iter().any(AddrPattern::is_single);
    if reason == DownReason::Peer && may_start && !facts.connection.is_started_by_peer() {
        found.tries.push(
            "close_action = start in a child, if this host is to start it again after the peer has closed it"
                .into(),
        );
    }
}

/// The last request that was refused, if the connection or the peer is not up.
fn refused_request(facts: &Facts<'_>, found: &mut Findings) {
    let is_up =
        if facts.peer.is_empty() { facts.status.state == ConnectionState::Up } else { facts.is_error_past };
    if is_up {
        return;
    }
    let line = |event: &PastEvent| event.lines.first().cloned().unwrap_or_default();
    let age = |event: &PastEvent| event.at.elapsed().as_secs();
    if let Some(refused) = facts.last_refused {
        let (what, advice) = match refused.cause {
            Some(Cause::DeadPeer) => ("an attempt of a peer was not completed", INCOMPLETE),
            Some(Cause::Fault(fault)) => ("a request of a peer was refused", advice_for_fault(fault)),
            _ => ("a request of a peer was refused", &[][..]),
        };
        found.causes.push(format!("{what}, {} s ago: {}", age(refused), line(refused)));
        found.causes.extend(refused.lines.iter().skip(1).cloned());
        found.tries.extend(advice.iter().map(|text| (*text).to_owned()));
    } else if let Some(past) = facts.past_refused {
        found.causes.push(format!("an earlier refusal is over: {}, {} s ago", line(past), age(past)));
    }
}

/// What to try if a peer has sent IKE_SA_INIT and no IKE_AUTH has arrived.
const INCOMPLETE: &[&str] = &[
    "let UDP port 4500 pass between the hosts, in both directions: after IKE_SA_INIT, IKE uses it instead of \
     port 500",
    "fragmentation = yes on both hosts, which is the default, if certificates or ML-KEM make requests long",
];

fn last_error(facts: &Facts<'_>, found: &mut Findings) {
    let Some(record) = facts.record else { return };
    let Some(error) = &record.last_error.as_ref().map(|error| &error.event) else { return };
    let seconds = error.at.elapsed().as_secs();
    let line = error.lines.first().map_or("", |line| line);
    if facts.is_error_past {
        found.causes.push(format!("an earlier error is over: {line}, {seconds} s ago"));
        return;
    }
    found.causes.push(format!("last error, {seconds} s ago: {line}"));
    found.causes.extend(error.lines.iter().skip(1).cloned());
    if record.last_heard.is_none() && matches!(error.cause, Some(Cause::NoResponse { .. } | Cause::DeadPeer))
    {
        found.causes.push("the peer has never responded since the start".into());
    }
    if let Some(cause) = error.cause {
        found.tries.extend(advice(cause, facts.connection));
    }
}

/// What to try after a failure.
fn advice(cause: Cause, connection: &Connection) -> Vec<String> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    match cause {
        Cause::NoResponse { exchange: ExchangeType::IKE_SA_INIT, remote } => vec![
            format!("ping {}: is the peer reachable, and is it the right address?", remote.ip()),
            format!(
                "is IKE running on the peer, and may UDP port {} pass in both directions?",
                remote.port()
            ),
            format!("`tcpdump udp port {}` on the peer: does the request arrive?", remote.port()),
        ],
        Cause::NoResponse {
            exchange: exchange @ (ExchangeType::IKE_INTERMEDIATE | ExchangeType::IKE_AUTH),
            remote,
        } => long_request_advice(exchange, remote),
        Cause::NoResponse { .. } | Cause::DeadPeer => {
            texts(&["check that the peer runs and that the path to it works"])
        }
        Cause::IkeRefused(NotifyType::NO_PROPOSAL_CHOSEN) => texts(&[
            "compare `proposals` on both hosts: encryption, integrity, PRF and key exchange must have one \
             algorithm each in common",
            "compare the peer's addresses with those of this host: its connection may be for other addresses",
        ]),
        Cause::IkeRefused(NotifyType::AUTHENTICATION_FAILED) => texts(&[
            "compare local.id here with remote.id on the peer, and remote.id here with local.id on the peer",
            refused_proof_advice(connection),
        ]),
        Cause::RekeyRefused(_) => texts(&[
            "compare `proposals` on both hosts: the peer's log says why it refuses to replace the IKE SA",
            "reauth_time instead of rekey_time negotiates from the beginning, as the first time",
        ]),
        Cause::ChildRefused(NotifyType::TS_UNACCEPTABLE) => {
            texts(&["local_ts of each host must overlap with remote_ts of the other"])
        }
        Cause::ChildRefused(NotifyType::NO_PROPOSAL_CHOSEN) => {
            texts(&["compare `esp_proposals` of the child on both hosts, with their key exchange methods"])
        }
        Cause::ChildRefused(NotifyType::INTERNAL_ADDRESS_FAILURE) => {
            texts(&["the pool of the peer needs a free address: enlarge it, or close unused connections"])
        }
        Cause::IkeRefused(_) | Cause::ChildRefused(_) => texts(&["the peer's log says why it refused"]),
        Cause::Eap(fault) => texts(eap_advice(fault, connection)),
        Cause::Fault(fault) => texts(advice_for_fault(fault)),
        Cause::Malformed => texts(&["the peer violates the protocol: report this to its vendor"]),
        Cause::NotInitiated(InitiateError::NoRoute) => vec![format!(
            "add a route to {}, or correct remote_addrs",
            wording::addrs(&connection.remote_addrs)
        )],
        Cause::NotInitiated(InitiateError::UnknownHost) => vec![
            format!(
                "`getent hosts` with the name in remote_addrs = {}: does the system find an address?",
                wording::addrs(&connection.remote_addrs)
            ),
            "if all traffic goes through the tunnel: an address in remote_addrs, or a child with \
             `mode = pass` for the name servers of the local network, because the trap blocks the look-up"
                .into(),
        ],
        Cause::NotInstalled(InstallError::SpdNumbersOfPeer) => texts(&[
            "give each client an identity of its own: one identity has 128 numbers of `%unique` at most",
            "look for a client that opens Child SAs without end: `casemate status`, and `unique = replace`",
        ]),
        Cause::NotInstalled(InstallError::SpdNumbers) => {
            texts(&["close unused Child SAs: `%unique` has 1,024 numbers for all children together"])
        }
        Cause::NotInitiated(_) | Cause::NotInstalled(_) | Cause::NoTrap => Vec::new(),
    }
}

/// What to try after this host refused the peer.
pub(super) fn advice_for_fault(fault: StateFault) -> &'static [&'static str] {
    match fault {
        StateFault::NoConnection => &[
            "correct remote_addrs or local_addrs of the connection, or the address from which the peer sends",
        ],
        StateFault::NoProposalChosen => {
            &["name an algorithm of each kind that both hosts support, as shown above"]
        }
        StateFault::NotOffered => &[
            "the peer violates the protocol: report this to its vendor",
            "`proposals` without `ke1_`, if the peer cannot do additional key exchanges after all",
        ],
        StateFault::KeMethod | StateFault::KeValue => &[
            "the key exchange of the peer does not fit the agreed method: report this to its vendor",
            "`proposals` with another key exchange, or without `ke1_`, avoid the method",
        ],
        StateFault::NoPeer | StateFault::WrongIdentity => {
            &["make remote.id here equal to local.id on the peer, and local.id here equal to its remote.id"]
        }
        StateFault::AuthMismatch => {
            &["use the same `secret` for the two identities on both hosts, and for `ppk_id`, if it is shown \
             above"]
        }
        StateFault::NoSharedKey => {
            &["add a section to `secrets` with the identity of the peer and the secret, or the private key"]
        }
        StateFault::EapFailed => &[
            "use the same `secret` in a section `eap` of `secrets` on both hosts, with the EAP identity as \
             `id`",
            "if a RADIUS server decides: its log says why, and `casemate log` whether it has answered",
        ],
        StateFault::PpkMissing | StateFault::PpkUnused => &[
            "give both hosts a section `ppk` in `secrets` with the same `id` and `secret`, and ppk_id to the \
             connection of the initiator",
            "with ppk_required = no on both hosts, the IKE SA comes up without the key",
        ],
        StateFault::AuthRounds => {
            &["give each `local` section of one host its `remote` section on the other, in the same order"]
        }
        StateFault::AuthMethod => &["make local.auth of each host fit remote.auth of the other"],
        StateFault::Certificate => &[
            "check the peer's certificate with `openssl x509 -text`: dates, names and CA",
            "check the clock of this host with `date`",
        ],
        StateFault::SignatureAlgorithm => {
            &["allow the algorithm in remote.auth, or use another key on the peer"]
        }
        StateFault::OwnSignature => {
            &["`casemate log` has the reason: docs/manual/tokens.md explains the messages of tokens"]
        }
        StateFault::TsUnacceptable | StateFault::TsNotOffered => {
            &["local_ts of each host must overlap with remote_ts of the other"]
        }
        StateFault::AddressNotRequested => &["let the peer request a virtual address: `vips = 0.0.0.0`"],
        StateFault::AddressRefused => &[
            "remove the assigned address from the other interface of this host, which `ip address` shows, or \
             let the peer assign others",
        ],
        StateFault::NoAddress => &["enlarge `addrs` of the pool, or close unused connections"],
        StateFault::NotUnique => &["give each peer its own identity, or set unique = no or replace"],
        _ => &["docs/manual/troubleshooting.md explains each fault"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_that_was_not_offered_has_no_advice_that_points_to_nothing() {
        assert!(!advice_for_fault(StateFault::NotOffered).concat().contains("above"));
    }

    #[test]
    fn the_same_advice_is_given_once() {
        let mut found = Findings::default();
        found.add("one", &["try this", "try that"]);
        found.add("other", &["try this"]);
        found.remove_repetitions();
        assert_eq!((found.causes.len(), found.tries), (2, vec!["try this".into(), "try that".into()]));
    }

    #[test]
    fn every_refusal_has_advice() {
        for fault in StateFault::ALL {
            assert!(!advice_for_fault(*fault).is_empty());
        }
    }
}
