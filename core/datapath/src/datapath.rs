//! The door: SAs and policies in, packets through, counters and events out.

use crate::admission::Remembered;
use crate::arrival::EncapPorts;
use crate::classify::Decision;
use crate::event::{Audit, Event, Events};
use crate::icmp::{PmtuUpdate, Quoted, RateLimiter};
use crate::sa_in::SaIn;
use crate::sa_out::SaOut;
use crate::sad::{NotAdded, Sad};
use crate::spd::{FlowCache, InsertError, Policy, PolicyId, PolicyTable};
use crate::{Direction, DropCounters, DropReason, SaId, SaStatus, Unmatched};
use alloc::vec::Vec;
use casemate_crypto::{KeyError, Providers};
use casemate_sa::{Instant, Limits, Protocol, SaParams, UdpEncap};
use casemate_wire::flow::FlowKey;
use casemate_wire::ip::v6::Ipv6;
use core::fmt;
use core::net::IpAddr;

/// Room that an outgoing packet needs in front: two SAs of a bundle with IPv6 outer headers, UDP, and the longest IVs and
/// ICVs.
pub const HEAD_ROOM: usize = 256;
/// Room that an outgoing packet needs behind it: padding, trailer and ICV of two SAs. Traffic-flow padding comes on top.
pub const TAIL_ROOM: usize = 160;

/// ICMP errors that the outbound road sends in the long run, and at once (RFC 1812 section 4.3.2.8: the rate SHOULD be
/// limited). Enough for path MTU discovery of many flows, too few to be of use as an amplifier.
const ICMP_PER_SECOND: u32 = 1_000;
const ICMP_BURST: u32 = 100;

/// How a data path is set up.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Sizes of all tables.
    pub limits: Limits,
    /// Random and secret: keeps strangers from making table entries collide.
    pub seed: u64,
    /// What happens to packets that no policy names.
    pub unmatched: Unmatched,
    /// MTU of the link towards the peers, in bytes, where no SA has another one.
    pub link_mtu: usize,
}

impl Config {
    /// For servers: RFC 4301's default to discard, and Ethernet.
    pub const fn server(seed: u64) -> Self {
        Self { limits: Limits::SERVER, seed, unmatched: Unmatched::Discard, link_mtu: 1500 }
    }
}

/// Whom a data path serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Hosts whose packets it forwards, and perhaps a host with a stack that cuts packets by itself.
    /// Fragments that SAs deliver pass where policy does not look at what they hide, unless they are for the
    /// gateway itself ([`Datapath::set_hosts`]); what is bypassed is left alone.
    Gateway,
    /// One host, whose stack leaves it to the data path and its caller to cut what is too long. Each fragment
    /// that SAs deliver gets the verdict [`Inbound::ReassembleOpened`](crate::Inbound::ReassembleOpened): the
    /// stack would put it together with fragments in clear (RFC 4301 section 7.4). TCP segments are kept as
    /// short as the link takes in clear, too.
    Host,
}

/// Addresses of an SA, and its UDP encapsulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaPath {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Ports, with UDP encapsulation. Whether there is any does not change.
    pub encap: Option<UdpEncap>,
}

/// Why an SA was not added. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddSaError {
    /// The SAD holds as many SAs as it may.
    Full,
    /// There is an SA with this SPI, protocol and destination already.
    Duplicate,
    /// Source and destination are of different IP versions.
    MixedVersions,
    /// UDP encapsulation is for ESP only (RFC 3948 section 1).
    EncapsulatedAh,
    /// SAs use more different UDP ports than the data path listens on.
    TooManyEncapPorts,
    /// The anti-replay window is larger than the limit.
    WindowTooLarge {
        /// The limit, in packets.
        limit: u32,
    },
    /// The last sequence number does not fit 32 bits and the SA has no extended ones.
    SequenceTooLarge,
    /// Traffic-flow padding is for tunnels only (RFC 4303 section 2.7).
    PaddedTransport,
    /// The key could not be set up.
    Key(KeyError),
}

impl From<KeyError> for AddSaError {
    fn from(error: KeyError) -> Self {
        Self::Key(error)
    }
}

impl From<NotAdded> for AddSaError {
    fn from(why: NotAdded) -> Self {
        match why {
            NotAdded::Full => Self::Full,
            NotAdded::Duplicate => Self::Duplicate,
        }
    }
}

impl fmt::Display for AddSaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the SAD is full"),
            Self::Duplicate => f.write_str("an SA with this SPI, protocol and destination exists already"),
            Self::MixedVersions => f.write_str("source and destination are of different IP versions"),
            Self::EncapsulatedAh => f.write_str("UDP encapsulation is for ESP, not for AH"),
            Self::TooManyEncapPorts => f.write_str("too many different UDP encapsulation ports"),
            Self::WindowTooLarge { limit } => {
                write!(f, "the anti-replay window is above the limit of {limit} packets")
            }
            Self::SequenceTooLarge => {
                f.write_str("a sequence number above 32 bits needs extended sequence numbers")
            }
            Self::PaddedTransport => f.write_str("traffic-flow padding needs tunnel mode"),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for AddSaError {}

/// SPD, SAD and everything that packets need on their way. One thread's.
pub struct Datapath {
    pub(crate) sad: Sad,
    pub(crate) spd_out: PolicyTable,
    pub(crate) spd_in: PolicyTable,
    pub(crate) flows_out: FlowCache<Decision>,
    pub(crate) flows_in: FlowCache<Remembered>,
    pub(crate) events: Events,
    pub(crate) unmatched: Unmatched,
    pub(crate) link_mtu: usize,
    /// The largest that an SA's link ever had.
    widest_sa_link: usize,
    pub(crate) encap_ports: EncapPorts,
    /// Counts changes of SAs and policies, so that the flow caches forget what they decided before.
    pub(crate) epoch: u64,
    /// For the ICMP errors that the outbound road sends.
    pub(crate) icmp_limit: RateLimiter,
    pub(crate) role: Role,
    /// The gateway's own addresses, in order.
    pub(crate) hosts: Vec<IpAddr>,
    drops: DropCounters,
    limits: Limits,
}

impl Datapath {
    /// An empty data path. Allocates the flow caches and the event ring.
    pub fn new(config: Config) -> Self {
        let Config { limits, seed, unmatched, link_mtu } = config;
        Self {
            sad: Sad::new(limits.sas, seed),
            spd_out: PolicyTable::new(limits.policies, seed),
            spd_in: PolicyTable::new(limits.policies, seed),
            flows_out: FlowCache::new(limits.flows, seed),
            flows_in: FlowCache::new(limits.flows, seed),
            events: Events::new(limits.audit_events),
            unmatched,
            link_mtu,
            widest_sa_link: 0,
            encap_ports: EncapPorts::new(),
            epoch: 0,
            icmp_limit: RateLimiter::new(ICMP_PER_SECOND, ICMP_BURST),
            role: Role::Gateway,
            hosts: Vec::new(),
            drops: DropCounters::new(),
            limits,
        }
    }

    /// Whom the data path serves; [`Role::Gateway`] unless told otherwise.
    pub fn set_role(&mut self, role: Role) {
        self.role = role;
        self.forget_flows();
    }

    /// Whom the data path serves.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// A gateway has these addresses itself. Fragments that SAs deliver for them get the verdict
    /// [`Inbound::ReassembleOpened`](crate::Inbound::ReassembleOpened): its stack would put them together with
    /// fragments in clear (RFC 4301 section 7.4).
    pub fn set_hosts(&mut self, addrs: &[IpAddr]) {
        let mut hosts = addrs.to_vec();
        hosts.sort_unstable();
        if hosts != self.hosts {
            self.hosts = hosts;
            self.forget_flows();
        }
    }

    /// Whether packets to this address are for the host of the data path.
    pub fn is_host(&self, addr: IpAddr) -> bool {
        self.role == Role::Host || self.hosts.binary_search(&addr).is_ok()
    }

    /// Adds an SA. Its keys come from the first provider that has the algorithms.
    pub fn add_sa(
        &mut self,
        params: &SaParams,
        direction: Direction,
        providers: &Providers<'_>,
        now: Instant,
    ) -> Result<SaId, AddSaError> {
        self.check(params)?;
        let port = params.encap.map(|encap| encap.dst_port).filter(|_| direction == Direction::Inbound);
        let new_port = port.filter(|port| !self.encap_ports.contains(port));
        if new_port.is_some() && self.encap_ports.is_full() {
            return Err(AddSaError::TooManyEncapPorts);
        }
        let id = match direction {
            Direction::Outbound => self.sad.add_outbound(SaOut::new(params, providers, now)?)?,
            Direction::Inbound => self.sad.add_inbound(SaIn::new(params, providers, now)?)?,
        };
        self.encap_ports.extend(new_port);
        self.forget_flows();
        Ok(id)
    }

    /// ESP, IKE and keepalives may arrive at this UDP port, before there is any SA (RFC 3948 section 2). `false` if there are
    /// too many ports.
    pub fn listen_encapsulated(&mut self, port: u16) -> bool {
        self.encap_ports.contains(&port) || self.encap_ports.try_push(port).is_ok()
    }

    fn check(&self, params: &SaParams) -> Result<(), AddSaError> {
        if params.src.is_ipv4() != params.dst.is_ipv4() {
            return Err(AddSaError::MixedVersions);
        }
        if params.encap.is_some() && params.transform.protocol() == Protocol::Ah {
            return Err(AddSaError::EncapsulatedAh);
        }
        if params.replay_window > self.limits.replay_window {
            return Err(AddSaError::WindowTooLarge { limit: self.limits.replay_window });
        }
        if !params.esn && params.last_sent.max(params.last_received) > u64::from(u32::MAX) {
            return Err(AddSaError::SequenceTooLarge);
        }
        if params.tfc_pad_to > 0 && params.mode == casemate_sa::Mode::Transport {
            return Err(AddSaError::PaddedTransport);
        }
        Ok(())
    }

    /// Removes an SA; `false` if it is gone already.
    pub fn remove_sa(&mut self, id: SaId) -> bool {
        self.forget_flows();
        self.sad.remove(id)
    }

    /// The other end of an SA has another address or port (RFC 7296 section 2.23). Its counters and its window stay as they
    /// are. `false` if the SA is gone or has no such path.
    pub fn move_sa(&mut self, id: SaId, path: SaPath) -> bool {
        self.forget_flows();
        self.sad.move_sa(id, path)
    }

    /// Whether an inbound SA comes from this address: its fragments are reassembled before those of others.
    pub fn is_peer(&self, addr: IpAddr) -> bool {
        self.sad.is_peer(addr)
    }

    /// When an SA was used last; `None` if it never was, or is gone.
    pub fn last_used(&self, id: SaId) -> Option<Instant> {
        self.sad.last_used(id)
    }

    /// Flows for which no SA was found are looked at anew, and ask for one again.
    pub fn ask_again(&mut self) {
        self.forget_flows();
    }

    /// Adds a policy for one direction. Inbound selectors are oriented like inbound packets.
    pub fn add_policy(&mut self, direction: Direction, policy: Policy) -> Result<PolicyId, InsertError> {
        self.forget_flows();
        self.spd_mut(direction).insert(policy)
    }

    /// Removes a policy and returns it; `None` if it is gone already.
    pub fn remove_policy(&mut self, direction: Direction, id: PolicyId) -> Option<Policy> {
        self.forget_flows();
        self.spd_mut(direction).remove(id)
    }

    /// The policies of one direction, the first that decides first.
    pub fn policies(&self, direction: Direction) -> impl Iterator<Item = (PolicyId, &Policy)> {
        match direction {
            Direction::Outbound => self.spd_out.iter(),
            Direction::Inbound => self.spd_in.iter(),
        }
    }

    /// Whether every packet passes as it is: there is no SA and no policy, and what no policy names passes. Cheap enough to be
    /// asked for each packet.
    pub fn passes_everything(&self) -> bool {
        self.unmatched == Unmatched::PassClear
            && self.sad.is_empty()
            && self.spd_out.is_empty()
            && self.spd_in.is_empty()
    }

    /// Every SA with its state, outbound ones first.
    pub fn sas(&self) -> impl Iterator<Item = SaStatus> + '_ {
        let out = self.sad.iter_outbound().map(|(id, sa)| SaStatus::of_outbound(id, sa));
        out.chain(self.sad.iter_inbound().map(|(id, sa)| SaStatus::of_inbound(id, sa)))
    }

    /// Lets an outbound SA use sequence numbers up to `last`, because they are written down now. The first call switches
    /// the check on. `false` if the SA is gone.
    pub fn set_durable(&mut self, id: SaId, last: u64) -> bool {
        self.sad.outbound_by_id(id).map(|sa| sa.seq.set_durable(last)).is_some()
    }

    /// The last sequence number that an outbound SA used; `None` if the SA is gone.
    pub fn last_seq(&mut self, id: SaId) -> Option<u64> {
        self.sad.outbound_by_id(id).map(|sa| sa.seq.last())
    }

    /// The path of an outbound SA takes packets of at most `mtu` bytes (RFC 4301 section 8.2.1). `false` if the SA is gone
    /// or already knew of a narrower path.
    pub fn set_path_mtu(&mut self, id: SaId, mtu: usize, now: Instant) -> bool {
        self.sad.outbound_by_id(id).is_some_and(|sa| sa.path_mtu.update(now, mtu))
    }

    /// The link towards the peer of an outbound SA takes packets of at most `mtu` bytes; before, and after the peer moved to another
    /// address, the data path's link counts. `false` if the SA is gone.
    pub fn set_sa_link_mtu(&mut self, id: SaId, mtu: usize) -> bool {
        let Some(sa) = self.sad.outbound_by_id(id) else { return false };
        sa.path_mtu.set_link(mtu);
        self.widest_sa_link = self.widest_sa_link.max(mtu);
        true
    }

    /// The MTU of the widest link that is known. A longer packet that an SA delivers was put together by its peer.
    pub fn widest_link(&self) -> usize {
        self.link_mtu.max(self.widest_sa_link)
    }

    /// Believes a router's word about the path of one of our SAs, as far as [`crate::pmtu`] goes. `false` if it was about
    /// no SA of ours.
    pub(crate) fn learn_path_mtu(&mut self, update: &PmtuUpdate, now: Instant) -> bool {
        let path = (update.src, update.dst);
        let (slot, encap) = match update.quoted {
            Quoted::Esp(spi) => (self.sad.find_outbound(path, None, (Protocol::Esp, spi)), None),
            Quoted::Ah(spi) => (self.sad.find_outbound(path, None, (Protocol::Ah, spi)), None),
            Quoted::UdpEsp { src_port, dst_port, spi } => {
                let slot = self.sad.find_outbound(path, Some(dst_port), (Protocol::Esp, spi));
                (slot, Some(UdpEncap { src_port, dst_port }))
            }
        };
        let sa = slot.and_then(|slot| self.sad.outbound(slot)).filter(|sa| sa.framing.encap == encap);
        sa.map(|sa| sa.path_mtu.update(now, update.mtu)).is_some()
    }

    /// The MTU of the link changed: that of SAs without one of their own
    /// ([`set_sa_link_mtu`](Self::set_sa_link_mtu)), and of what is bypassed.
    pub fn set_link_mtu(&mut self, mtu: usize) {
        self.link_mtu = mtu;
    }

    /// The MTU of the link, in bytes: what is bypassed must not be longer.
    pub const fn link_mtu(&self) -> usize {
        self.link_mtu
    }

    /// How many packets were dropped, by reason.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Counts a drop that happened outside, in reassembly or in the caller, so that one table holds them all.
    pub fn note_drop(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.count_drop(now, reason, packet, None);
    }

    /// The oldest event not yet read.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Sizes of the tables.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether there is an event that was not read yet.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// How many events were lost because nobody read them.
    pub fn lost_events(&self) -> u64 {
        self.events.lost()
    }

    fn spd_mut(&mut self, direction: Direction) -> &mut PolicyTable {
        match direction {
            Direction::Outbound => &mut self.spd_out,
            Direction::Inbound => &mut self.spd_in,
        }
    }

    fn forget_flows(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Counts a drop and, where the RFC asks for it, records it.
    #[cold]
    pub(crate) fn count_drop(
        &mut self,
        now: Instant,
        reason: DropReason,
        packet: &[u8],
        header: Option<(Protocol, u32, u32)>,
    ) {
        self.drops.count(reason);
        if reason.is_audited() {
            let flow = FlowKey::parse_quoted(packet).ok();
            let flow_label = Ipv6::parse_quoted(packet).ok().map(|ip| ip.flow_label());
            let (src, dst) = (flow.map(|flow| flow.src()), flow.map(|flow| flow.dst()));
            self.events.push(Event::Audit(Audit { at: now, reason, src, dst, header, flow_label }));
        }
    }
}
