//! Coverage: how often each situation occurs. A test fails if no seed draws a situation.

use crate::net::{Datagram, Payload};
use crate::node::{Incarnation, Node};
use crate::plan::{Layout, PerNode, Setup};
use crate::post_quantum::{Outcome, PostQuantum};
use crate::situation::Situation;
use casemate::Notice;
use casemate_ike::config::{Connection, RemoteMethod};
use casemate_ike::{
    ChildId, ChildUp, DownReason, Event, IkeSaId, IkeState, IkeStatus, Path, PeerFault, StateFault,
    TrafficSelector,
};
use casemate_sa::{Mode, Protocol};
use casemate_wire::ike::{Body, ExchangeType, Message, NotifyType, PayloadType};
use std::collections::HashSet;
use std::fmt;

impl Situation {
    /// Whether only mixes have this situation. They are the last ones.
    const fn is_of_mixes(self) -> bool {
        self as usize >= Situation::ProcessEnd as usize
    }
}

/// Number of occurrences of each situation, in one passed run or in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    counts: [u64; Situation::ALL.len()],
    /// Digest of the bytes on the wire. The digests of merged runs add up, in any order.
    pub wire_digest: u64,
}

impl Default for Coverage {
    fn default() -> Self {
        Self { counts: [0; Situation::ALL.len()], wire_digest: 0 }
    }
}

impl Coverage {
    /// Occurrences of a situation.
    pub fn count_of(&self, what: Situation) -> u64 {
        self.counts[what as usize]
    }

    /// Names of the situations of runs without a mix that never occurred.
    pub fn unseen(&self) -> Vec<&'static str> {
        let is_unseen = |what: &&Situation| !what.is_of_mixes() && self.count_of(**what) == 0;
        Situation::ALL.iter().filter(is_unseen).map(|what| what.name()).collect()
    }

    /// Counts one occurrence.
    pub(crate) fn count(&mut self, what: Situation) {
        self.add(what, 1);
    }

    /// Counts several occurrences.
    pub(crate) fn add(&mut self, what: Situation, times: usize) {
        self.counts[what as usize] += times as u64;
    }

    /// Adds the counts and the digest of another run.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.wire_digest = self.wire_digest.wrapping_add(other.wire_digest);
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Situation::ALL
            .iter()
            .try_for_each(|what| writeln!(f, "{:>12}  {}", self.count_of(*what), what.name()))?;
        writeln!(f, "wire digest {:016x}", self.wire_digest)
    }
}

/// Counts situations. It remembers the SAs that were replaced: an SA that is replaced twice was rekeyed by
/// both sides.
#[derive(Debug, Default)]
pub(crate) struct CoverageCounter {
    pub(crate) coverage: Coverage,
    rekeyed_children: HashSet<(Incarnation, ChildId)>,
    rekeyed_ike_sas: HashSet<(Incarnation, IkeSaId)>,
}

impl CoverageCounter {
    /// Counts the situation that a notice reports.
    pub(crate) fn notice(&mut self, setup: &Setup, node: &Node, untrusted: bool, notice: &Notice) {
        let Notice::Ike(event) = notice else { return };
        let incarnation = node.incarnation();
        match event {
            Event::IkeUp { ike, connection, .. } => {
                let status = node.ikes().into_iter().find(|status| status.id == *ike);
                self.ike_up(connection, status.as_ref());
                status.iter().for_each(|status| self.ike_strength(setup, status));
            }
            Event::IkeRekeyed { old, .. } => {
                self.coverage.count(Situation::IkeRekeyed);
                if !self.rekeyed_ike_sas.insert((incarnation, *old)) {
                    self.coverage.count(Situation::IkeCollision);
                }
            }
            Event::IkeDown { reason: why, .. } => self.ike_down(*why, untrusted),
            Event::ChildUp(up) => {
                self.child_up(setup, up);
                if up.replaces.is_some_and(|old| !self.rekeyed_children.insert((incarnation, old))) {
                    self.coverage.count(Situation::ChildCollision);
                }
            }
            Event::ChildDown { reason: DownReason::Unconfigured, .. } => {
                self.coverage.count(Situation::ChildUnconfigured)
            }
            Event::NotResumed { .. } => self.coverage.count(Situation::NotResumed),
            Event::PathChanged { .. } => self.coverage.count(Situation::Moved),
            Event::ConfigAssigned { .. } => self.coverage.count(Situation::Assigned),
            Event::Fault { fault: PeerFault::State(fault), path, .. } => self.fault(*fault, *path, node),
            _ => {}
        }
    }

    fn ike_up(&mut self, connection: &Connection, status: Option<&IkeStatus>) {
        let method = &connection.remote.method;
        let situations = [
            (Situation::Ike, true),
            (Situation::IkeSigned, matches!(method, RemoteMethod::Certificate(_))),
            (Situation::IkeOverV6, status.is_some_and(|ike| ike.path.remote.is_ipv6())),
            (Situation::IkeNat, status.is_some_and(|ike| ike.nat.any())),
            (Situation::IkeChildless, status.is_some_and(|ike| ike.children.is_empty())),
        ];
        self.count(&situations);
    }

    fn ike_strength(&mut self, setup: &Setup, ike: &IkeStatus) {
        let PostQuantum { ike: demand, ppk, .. } = setup.post_quantum;
        let has_kexes = ike.suite.is_some_and(|suite| !suite.additional.is_empty());
        let has_ppk = ppk.outcome() == Outcome::Used;
        let situations = [
            (Situation::IkeKexes, has_kexes),
            (Situation::IkeKexesLeftOut, !has_kexes && demand != PerNode::NEVER),
            (Situation::Ppk, ike.ppk_id.is_some()),
            (Situation::PpkLeftOut, !has_ppk && ppk != PerNode::NEVER),
            (Situation::Resumed, ike.is_resumed),
            (Situation::ResumedKexes, ike.is_resumed && has_kexes),
            (Situation::ResumedPpk, ike.is_resumed && has_ppk),
        ];
        self.count(&situations);
    }

    fn ike_down(&mut self, why: DownReason, untrusted: bool) {
        let situations = [
            (Situation::Reauth, why.is_reauthentication()),
            (
                Situation::Dead,
                matches!(why, DownReason::DeadPeer | DownReason::Forgotten { is_reauthenticated: false, .. }),
            ),
            (Situation::NotUnique, matches!(why, DownReason::InitialContact | DownReason::NotUnique)),
            (Situation::IkeUnconfigured, why == DownReason::Unconfigured),
            (Situation::UntrustedRefused, untrusted && matches!(why, DownReason::Refused(_))),
        ];
        self.count(&situations);
    }

    fn fault(&mut self, fault: StateFault, path: Path, node: &Node) {
        // If this node has no established IKE SA on the path, the request was IKE_SA_INIT.
        let is_established =
            || node.ikes().iter().any(|ike| ike.state == IkeState::Established && ike.path == path);
        let situations = [
            (Situation::PfsCorrected, fault == StateFault::KeMethod && is_established()),
            (Situation::NotUniqueRefused, fault == StateFault::NotUnique),
            (Situation::SeriesForgotten, fault == StateFault::NoKexSeries),
            (Situation::PoolEmpty, fault == StateFault::NoAddress),
        ];
        self.count(&situations);
    }

    fn child_up(&mut self, setup: &Setup, up: &ChildUp) {
        let inbound = &up.inbound;
        let is_narrowed = |traffic: &[TrafficSelector], ours: &[casemate_ike::TrafficSelectorTemplate]| {
            let wanted = |traffic: &TrafficSelector| {
                ours.iter().any(|own| own.addrs.is_some_and(|addrs| addrs != traffic.addrs))
            };
            traffic.iter().any(wanted)
        };
        let has_kexes = !up.suite.additional.is_empty();
        let proposes_kexes = setup.post_quantum.child != PerNode::NEVER;
        let situations = [
            (Situation::Child, true),
            (Situation::ChildRekeyed, up.replaces.is_some()),
            (Situation::Transport, inbound.mode == Mode::Transport),
            (Situation::Ah, inbound.transform.protocol() == Protocol::Ah),
            (Situation::Extended, inbound.esn),
            (Situation::Compressed, inbound.rohc.is_some()),
            (Situation::InnerV6, up.local.iter().any(|traffic| !traffic.addrs.is_ipv4())),
            (Situation::Encap, inbound.encap.is_some()),
            (Situation::Pfs, up.suite.kex.is_some()),
            (Situation::ChildKexes, has_kexes),
            (Situation::ChildKexesLeftOut, up.suite.kex.is_some() && !has_kexes && proposes_kexes),
            (Situation::Narrowed, is_narrowed(&up.local, &up.child.local_ts)),
            (Situation::Nested, setup.layout == Layout::Nested && up.child.name != "net0"),
        ];
        self.count(&situations);
    }

    /// Counts a datagram that a node sends.
    pub(crate) fn datagram(&mut self, datagram: &Datagram) {
        let Payload::Udp(payload) = &datagram.payload else { return };
        let Ok(message) = Message::parse(payload.strip_prefix(&[0; 4]).unwrap_or(payload)) else { return };
        let header = message.header();
        if header.next_payload == PayloadType::SKF {
            self.coverage.count(Situation::Fragment);
        }
        self.count(&[
            (Situation::Intermediate, header.exchange == ExchangeType::IKE_INTERMEDIATE),
            (Situation::Followup, header.exchange == ExchangeType::IKE_FOLLOWUP_KE),
        ]);
        if header.exchange != ExchangeType::IKE_SA_INIT || !header.flags.response {
            return;
        }
        for payload in message.payloads().filter_map(Result::ok) {
            let Ok(Body::Notify(notify)) = Body::parse(&payload) else { continue };
            let situations = [
                (Situation::Cookie, notify.kind == NotifyType::COOKIE),
                (Situation::InvalidKe, notify.kind == NotifyType::INVALID_KE_PAYLOAD),
            ];
            self.count(&situations);
        }
    }

    fn count(&mut self, situations: &[(Situation, bool)]) {
        situations.iter().filter(|(_, occurred)| *occurred).for_each(|(what, _)| self.coverage.count(*what));
    }
}
