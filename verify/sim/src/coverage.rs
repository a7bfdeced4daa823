//! Coverage: how often each situation occurs. A test fails if no seed draws a situation.

use crate::net::{Datagram, Payload};
use crate::node::{Incarnation, Node};
use crate::plan::{Layout, PerNode, Setup};
use crate::post_quantum::{Outcome, PostQuantum};
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

macro_rules! situations {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)+) => {
        /// Situation that a run may contain.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Situation { $($(#[$doc])* $variant,)+ }

        impl Situation {
            /// All situations.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Plural name of the situation.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

situations! {
    /// Events of virtual time.
    Step = "steps";
    /// Runs in which every packet has to arrive.
    Lossless = "lossless runs";
    /// Lossless runs under attack.
    UnderAttack = "lossless runs under attack";
    /// IKE SAs that were established. All SAs count once at each side.
    Ike = "IKE SAs";
    /// Established IKE SAs over IPv6.
    IkeOverV6 = "IKE SAs over IPv6";
    /// Established IKE SAs whose peer authenticated with a signature.
    IkeSigned = "IKE SAs with signatures";
    /// Established IKE SAs without a Child SA.
    IkeChildless = "childless IKE SAs";
    /// Established IKE SAs with a NAT on the path.
    IkeNat = "IKE SAs through NATs";
    /// Established IKE SAs with additional key exchanges.
    IkeKexes = "IKE SAs with additional key exchanges";
    /// Established IKE SAs without the additional key exchanges that one side proposed.
    IkeKexesLeftOut = "IKE SAs whose additional key exchanges were left out";
    /// Established IKE SAs whose keys depend on a post-quantum pre-shared key.
    Ppk = "IKE SAs with a PPK";
    /// Established IKE SAs without the post-quantum pre-shared key that one side has.
    PpkLeftOut = "IKE SAs whose PPK was left out";
    /// IKE SAs that resumed the session of an earlier one.
    Resumed = "IKE SAs resumed";
    /// Resumed IKE SAs whose session has additional key exchanges.
    ResumedKexes = "IKE SAs resumed with additional key exchanges";
    /// Resumed IKE SAs of connections with a post-quantum pre-shared key.
    ResumedPpk = "IKE SAs resumed with a PPK";
    /// Tickets that the peer did not accept.
    NotResumed = "tickets refused";
    /// IKE SAs that were rekeyed.
    IkeRekeyed = "IKE SAs rekeyed";
    /// IKE SAs that both sides rekeyed at once.
    IkeCollision = "collisions of IKE rekeyings";
    /// IKE SAs that were closed for reauthentication.
    Reauth = "reauthentications";
    /// IKE SAs that ended because the peer did not respond.
    Dead = "dead peers";
    /// IKE SAs that a newer IKE SA with the same peer replaced.
    NotUnique = "IKE SAs replaced as not unique";
    /// IKE SAs that were refused because one with the same peer exists.
    NotUniqueRefused = "IKE SAs refused as not unique";
    /// IKE SAs that a new configuration closed.
    IkeUnconfigured = "IKE SAs unconfigured";
    /// Authentication failures of an untrusted peer.
    UntrustedRefused = "untrusted peers refused";
    /// Peers behind a NAT whose port changed.
    Moved = "moved peers";
    /// Virtual addresses that were assigned.
    Assigned = "virtual addresses";
    /// Requests for a virtual address with an empty pool.
    PoolEmpty = "pools exhausted";
    /// Child SAs that were established.
    Child = "Child SAs";
    /// Child SAs that were rekeyed.
    ChildRekeyed = "Child SAs rekeyed";
    /// Child SAs that both sides rekeyed at once.
    ChildCollision = "collisions of Child SA rekeyings";
    /// Child SAs that a new configuration closed.
    ChildUnconfigured = "Child SAs unconfigured";
    /// Child SAs in transport mode.
    Transport = "Child SAs in transport mode";
    /// Child SAs with AH.
    Ah = "Child SAs with AH";
    /// Child SAs with extended sequence numbers.
    Extended = "Child SAs with ESN";
    /// Child SAs with header compression.
    Compressed = "Child SAs with header compression";
    /// Packets with only feedback of header compression.
    RohcFeedback = "packets with only feedback of header compression";
    /// Child SAs for IPv6.
    InnerV6 = "Child SAs for IPv6";
    /// Child SAs with UDP encapsulation.
    Encap = "Child SAs in UDP";
    /// Child SAs with a key exchange of their own.
    Pfs = "Child SAs with a key exchange";
    /// Key exchanges of Child SAs whose method had to be corrected.
    PfsCorrected = "key exchanges of Child SAs corrected";
    /// Child SAs with narrowed traffic selectors.
    Narrowed = "Child SAs narrowed";
    /// Child SAs with additional key exchanges.
    ChildKexes = "Child SAs with additional key exchanges";
    /// Child SAs without the additional key exchanges that one side proposed.
    ChildKexesLeftOut = "Child SAs whose additional key exchanges were left out";
    /// Requests for a series of key exchanges that the responder has forgotten.
    SeriesForgotten = "series of key exchanges forgotten";
    /// Child SAs whose traffic another Child SA of the connection also covers.
    Nested = "Child SAs within others";
    /// COOKIE notifications sent.
    Cookie = "cookies requested";
    /// INVALID_KE_PAYLOAD notifications sent.
    InvalidKe = "key exchanges corrected";
    /// IKE_INTERMEDIATE messages and their fragments.
    Intermediate = "IKE_INTERMEDIATE messages";
    /// IKE_FOLLOWUP_KE messages and their fragments.
    Followup = "IKE_FOLLOWUP_KE messages";
    /// Fragments of IKE messages.
    Fragment = "fragments of IKE messages";
    /// Runs over a path that drops unfragmented messages.
    NarrowPath = "runs over narrow paths";
    /// Datagrams lost.
    Lost = "datagrams lost";
    /// Packets sent by protected hosts.
    Sent = "packets";
    /// Packets delivered.
    Delivered = "packets delivered";
    /// Packets that policy passes in clear.
    Bypassed = "packets bypassed";
    /// Packets that policy drops.
    Blocked = "packets blocked";
    /// Restarts of a node.
    Restart = "restarts";
    /// Jumps of a node's clock.
    ClockJump = "jumps of clocks";
    /// Configuration reloads.
    Reload = "reloads";
    /// Jumps of the sequence number of an SA with manual keys.
    NumberJump = "jumps of sequence numbers";
    /// Losses of all NAT mappings.
    NatRebind = "NAT rebinds";
    /// Losses of all NAT mappings during an exchange.
    NatRebindMidExchange = "NAT rebinds during an exchange";
    /// Outages of a node.
    Outage = "outages";
    /// Datagrams of the attacker.
    Attack = "datagrams of the attacker";
    /// Fragments of the attacker.
    FragmentAttack = "forged fragments";
    /// IKE_SA_INIT requests of the attacker.
    Flood = "flooding requests";
    /// Ends of a process whose node keeps its state in a store.
    ProcessEnd = "ends of processes with a store";
    /// Ends of a process that writes its state first.
    OrderlyEnd = "orderly ends of processes with a store";
    /// Starts of a process while the former one goes on.
    TakeOver = "takeovers";
    /// IKE SAs that a process has restored from a store.
    Restored = "IKE SAs restored";
    /// Times in which a store loses requests or answers, or is full.
    StoreOutage = "outages of stores";
}

impl Situation {
    /// Whether only mixes have this situation.
    const fn is_of_mixes(self) -> bool {
        use Situation::{OrderlyEnd, ProcessEnd, Restored, StoreOutage, TakeOver};
        matches!(self, ProcessEnd | OrderlyEnd | TakeOver | Restored | StoreOutage)
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
