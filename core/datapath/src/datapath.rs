//! The entry point of the crate: [`Datapath`], its configuration, policies, MTUs, counters and events.

use crate::admission::CachedAdmission;
use crate::batch_padding::{BatchPadding, BatchPlanner, PaddingCounters};
use crate::classify::CachedDecision;
use crate::demux::EncapPorts;
use crate::event::{Audit, AuditedHeader, Event, Events};
use crate::icmp::{PmtuUpdate, Quoted};
use crate::pmtu::PathMtuSource;
use crate::rohc::HeaderCompression;
use crate::sa::AddrPair;
use crate::sad::Sad;
use crate::spd::{FlowCache, InsertError, Policy, PolicyId, PolicyTable};
use crate::trace::Tracer;
#[cfg(feature = "spds")]
use crate::withheld::Withheld;
use crate::{Direction, DropCounters, DropReason, SaId, Unmatched};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use casemate_sa::{Instant, Limits, Protocol, RateLimiter, SpdId, UdpEncap};
use casemate_wire::flow::FlowKey;
use casemate_wire::ip::proto;
use casemate_wire::ip::v6::Ipv6;
use core::net::IpAddr;

/// Head room that an outgoing packet needs, in bytes: two SAs of a bundle with IPv6 outer headers, UDP, and
/// the longest IVs and ICVs.
pub const HEAD_ROOM: usize = 256;
/// Tail room that an outgoing packet needs, in bytes: padding, trailer and ICV of two SAs. Traffic-flow
/// padding comes on top.
pub const TAIL_ROOM: usize = 160;

/// Rate limit of the ICMP errors that the outbound path sends: average and burst (RFC 1812 section 4.3.2.8:
/// the rate SHOULD be limited). It suffices for path MTU discovery of many flows and is too low for an
/// amplification attack.
const ICMP_PER_SECOND: u32 = 1_000;
const ICMP_BURST: u32 = 100;

/// Configuration of a data path.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Sizes of all tables.
    pub limits: Limits,
    /// Random and secret, so that an attacker cannot choose table entries that collide.
    pub seed: u64,
    /// What happens to packets that match no policy.
    pub unmatched: Unmatched,
    /// MTU in bytes of the link towards the peers. An SA may have its own ([`Datapath::set_sa_link_mtu`]).
    pub link_mtu: usize,
}

impl Config {
    /// Server sizes, Ethernet, and RFC 4301's default: packets without a policy are discarded.
    pub const fn server(seed: u64) -> Self {
        Self { limits: Limits::SERVER, seed, unmatched: Unmatched::Discard, link_mtu: 1500 }
    }
}

/// What a data path protects: a network, or a single host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A network: the data path forwards packets of other hosts. If there is a local host, its stack
    /// fragments by itself. Fragments from an SA pass if no policy needs the fields that they hide, except
    /// those for the gateway's own addresses ([`Datapath::set_local_addrs`]). Bypassed packets stay
    /// unchanged.
    Gateway,
    /// A single host, whose stack leaves fragmentation to the data path and its caller. Each fragment that an
    /// SA delivers gets the verdict [`Inbound::ReassembleOpened`](crate::Inbound::ReassembleOpened), because
    /// the stack would reassemble it with clear-text fragments (RFC 4301 section 7.4). The MSS of clear-text
    /// TCP connections is lowered to the link MTU, too.
    Host,
}

/// SPD, SAD, flow caches, counters and events. Used by one thread at a time.
pub struct Datapath {
    pub(crate) sad: Sad,
    pub(crate) spd_out: PolicyTable,
    pub(crate) spd_in: PolicyTable,
    pub(crate) flows_out: FlowCache<CachedDecision>,
    pub(crate) flows_in: FlowCache<CachedAdmission>,
    pub(crate) events: Events,
    pub(crate) default_unmatched: Unmatched,
    #[cfg(feature = "spds")]
    pub(crate) withheld: Withheld,
    /// Whether the caller keeps packets without an SA.
    pub(crate) holds_packets: bool,
    pub(crate) link_mtu: usize,
    /// Largest value that [`Self::set_sa_link_mtu`] ever received.
    widest_sa_link: usize,
    /// The first limits of the sequence numbers of new SAs: sent and received.
    #[cfg(feature = "records")]
    pub(crate) first_limits: Option<(u64, u64)>,
    pub(crate) encap_ports: EncapPorts,
    /// Number of changes to SAs and policies. Flow cache entries of an earlier epoch are invalid.
    pub(crate) epoch: u64,
    /// Rate limit of the ICMP errors that the outbound path sends.
    pub(crate) icmp_limit: RateLimiter,
    pub(crate) role: Role,
    /// The gateway's own addresses, sorted.
    pub(crate) local_addrs: Vec<IpAddr>,
    /// Makes compressors, if SAs with header compression are allowed.
    pub(crate) rohc: Option<&'static dyn HeaderCompression>,
    /// Outbound SAs whose feedback should leave in a packet of its own, each at most once.
    pub(crate) feedback_due: VecDeque<SaId>,
    drops: DropCounters,
    pub(crate) batch_padding: Option<BatchPlanner>,
    pub(crate) padding_counters: PaddingCounters,
    pub(crate) limits: Limits,
    pub(crate) tracer: Tracer,
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
            default_unmatched: unmatched,
            #[cfg(feature = "spds")]
            withheld: Withheld::new(limits.policies, seed),
            link_mtu,
            holds_packets: false,
            widest_sa_link: 0,
            #[cfg(feature = "records")]
            first_limits: None,
            encap_ports: EncapPorts::new(),
            epoch: 0,
            icmp_limit: RateLimiter::new(ICMP_PER_SECOND, ICMP_BURST),
            role: Role::Gateway,
            local_addrs: Vec::new(),
            rohc: None,
            feedback_due: VecDeque::new(),
            drops: DropCounters::new(),
            batch_padding: None,
            padding_counters: PaddingCounters::default(),
            limits,
            tracer: Tracer::OFF,
        }
    }

    /// Sets what the data path protects. The default is [`Role::Gateway`].
    pub fn set_role(&mut self, role: Role) {
        self.role = role;
        self.forget_flows();
    }

    /// What the data path protects.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Sets the gateway's own addresses. Fragments that SAs deliver for them get the verdict
    /// [`Inbound::ReassembleOpened`](crate::Inbound::ReassembleOpened), because the gateway's stack would
    /// reassemble them with clear-text fragments (RFC 4301 section 7.4).
    pub fn set_local_addrs(&mut self, addrs: &[IpAddr]) {
        let mut local_addrs = addrs.to_vec();
        local_addrs.sort_unstable();
        if local_addrs != self.local_addrs {
            self.local_addrs = local_addrs;
            self.forget_flows();
        }
    }

    /// Whether packets to this address are for the local host.
    pub fn is_local_addr(&self, addr: IpAddr) -> bool {
        self.role == Role::Host || self.local_addrs.binary_search(&addr).is_ok()
    }

    /// Accepts ESP, IKE and keepalives at this UDP port, even before an SA uses it (RFC 3948 section 2).
    /// Returns `false` if there are too many ports.
    pub fn add_encap_port(&mut self, port: u16) -> bool {
        self.encap_ports.contains(&port) || self.encap_ports.try_push(port).is_ok()
    }

    /// Whether an inbound SA has this source address. Fragments of peers take precedence in reassembly.
    pub fn is_peer(&self, addr: IpAddr) -> bool {
        self.sad.is_peer(addr)
    }

    /// When an SA was last used; `None` if it was never used or does not exist.
    pub fn last_used(&self, id: SaId) -> Option<Instant> {
        self.sad.last_used(id)
    }

    /// Invalidates the flow cache. The next packet of a flow without an SA raises [`Event::Acquire`] again.
    pub fn flush_flow_cache(&mut self) {
        self.forget_flows();
    }

    /// Adds a policy for one direction to its SPD. The selector of an inbound policy has the orientation of
    /// inbound packets.
    pub fn add_policy(&mut self, direction: Direction, policy: Policy) -> Result<PolicyId, InsertError> {
        self.forget_flows();
        self.spd_mut(direction).insert(policy)
    }

    /// Removes a policy and returns it; `None` if it does not exist.
    pub fn remove_policy(&mut self, direction: Direction, id: PolicyId) -> Option<Policy> {
        self.forget_flows();
        let removed = self.spd_mut(direction).remove(id)?;
        #[cfg(feature = "spds")]
        self.withheld.note_removal(direction, &removed);
        Some(removed)
    }

    /// The policies of one direction, of all SPDs, in order of precedence.
    pub fn policies(&self, direction: Direction) -> impl Iterator<Item = (PolicyId, &Policy)> {
        match direction {
            Direction::Outbound => self.spd_out.iter(),
            Direction::Inbound => self.spd_in.iter(),
        }
    }

    /// Whether every packet passes unchanged: there is no SA and no policy, and packets without a policy
    /// pass. Cheap enough to be called for each packet.
    pub fn passes_everything(&self) -> bool {
        self.default_unmatched == Unmatched::PassClear
            && !self.withholds_packets()
            && self.sad.is_empty()
            && self.spd_out.is_empty()
            && self.spd_in.is_empty()
    }

    /// Lowers the path MTU of an outbound SA to `mtu` bytes (RFC 4301 section 8.2.1). Returns `false` if the
    /// SA does not exist or already has a lower path MTU.
    pub fn set_path_mtu(&mut self, id: SaId, mtu: usize, now: Instant) -> bool {
        self.sad.outbound_by_id(id).is_some_and(|sa| sa.path_mtu.update(now, mtu))
    }

    /// Sets the MTU in bytes of the link towards the peer of an outbound SA. Until the first call, and after
    /// the peer has moved to another address, the data path's link MTU applies. Returns `false` if the SA
    /// does not exist.
    pub fn set_sa_link_mtu(&mut self, id: SaId, mtu: usize) -> bool {
        let Some(sa) = self.sad.outbound_by_id(id) else { return false };
        sa.path_mtu.set_link(mtu);
        self.widest_sa_link = self.widest_sa_link.max(mtu);
        true
    }

    /// Sets the configured MTU in bytes of the path of an outbound SA; `None` removes it. Returns `false` if
    /// the SA does not exist.
    pub fn set_sa_configured_mtu(&mut self, id: SaId, mtu: Option<usize>) -> bool {
        self.sad.outbound_by_id(id).map(|sa| sa.path_mtu.set_configured(mtu)).is_some()
    }

    /// Sets the path MTU in bytes that probes have found for an outbound SA; `None` if the path takes what
    /// the link does, or is not probed. It is forgotten when the peer moves to another address. Returns
    /// `false` if the SA does not exist.
    pub fn set_sa_probed_mtu(&mut self, id: SaId, mtu: Option<usize>) -> bool {
        self.sad.outbound_by_id(id).map(|sa| sa.path_mtu.set_probed(mtu)).is_some()
    }

    /// The path MTU of an outbound SA in bytes and where it comes from; `None` if the SA does not exist.
    pub fn sa_path_mtu(&self, id: SaId, now: Instant) -> Option<(usize, PathMtuSource)> {
        if id.direction() != Direction::Outbound || self.sad.id_of(id.direction(), id.slot()) != id {
            return None;
        }
        let path = &self.sad.outbound_ref(id.slot())?.path_mtu;
        Some((path.current(now, self.link_mtu), path.source(now, self.link_mtu)))
    }

    /// Limits the MSS of TCP connections through an outbound SA, besides what fits its path. `None` removes
    /// the limit. Returns `false` if the SA does not exist.
    pub fn set_sa_max_mss(&mut self, id: SaId, mss: Option<u16>) -> bool {
        self.sad.outbound_by_id(id).map(|sa| sa.max_mss = mss.unwrap_or(u16::MAX)).is_some()
    }

    /// Sets the SPD whose policies apply to the packets of an inbound SA; without a call it is the main SPD.
    /// Returns `false` if the SA does not exist.
    pub fn set_sa_spd(&mut self, id: SaId, spd: SpdId) -> bool {
        self.forget_flows();
        self.sad.inbound_by_id(id).map(|sa| sa.spd = spd).is_some()
    }

    /// The largest known link MTU. A longer packet from an SA was reassembled by the peer before it was
    /// sealed.
    pub fn max_link_mtu(&self) -> usize {
        self.link_mtu.max(self.widest_sa_link)
    }

    /// Applies an ICMP error about the path MTU to the SA that it quotes, within the limits of
    /// [`crate::pmtu`]. Returns `false` if the error quotes none of the local SAs.
    pub(crate) fn learn_path_mtu(&mut self, update: &PmtuUpdate, now: Instant) -> bool {
        let path = AddrPair { src: update.src, dst: update.dst };
        let (slot, encap) = match update.quoted {
            Quoted::Esp(spi) => (self.sad.find_outbound(path, None, Protocol::Esp, spi), None),
            Quoted::Ah(spi) => (self.sad.find_outbound(path, None, Protocol::Ah, spi), None),
            Quoted::UdpEsp { src_port, dst_port, spi } => {
                let slot = self.sad.find_outbound(path, Some(dst_port), Protocol::Esp, spi);
                (slot, Some(UdpEncap { src_port, dst_port }))
            }
        };
        let sa = slot.and_then(|slot| self.sad.outbound(slot)).filter(|sa| sa.encapsulation.encap == encap);
        sa.map(|sa| sa.path_mtu.update(now, update.mtu)).is_some()
    }

    /// Sets the MTU of the link. It applies to bypassed packets and to SAs without their own link MTU
    /// ([`set_sa_link_mtu`](Self::set_sa_link_mtu)).
    pub fn set_link_mtu(&mut self, mtu: usize) {
        self.link_mtu = mtu;
    }

    /// The MTU of the link in bytes. A bypassed packet must not be longer.
    pub const fn link_mtu(&self) -> usize {
        self.link_mtu
    }

    /// Sets whether packets without an SA get the verdict [`Hold`](crate::Outbound::Hold), for callers that
    /// keep them until the SA exists. The default is to drop them.
    pub const fn hold_packets(&mut self, holds: bool) {
        self.holds_packets = holds;
    }

    /// Sets whether packets that are sealed together are padded to one length, for callers that send such
    /// packets in one call. The default is not to pad. Padded packets need 240 bytes of tail room besides
    /// [`TAIL_ROOM`]; a packet without them stays as it is.
    pub fn set_batch_padding(&mut self, padding: Option<BatchPadding>) {
        self.batch_padding = padding.map(BatchPlanner::new);
    }

    /// Packets and bytes of that padding.
    pub const fn padding_counters(&self) -> PaddingCounters {
        self.padding_counters
    }

    /// Number of dropped packets by reason.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }

    /// Counts a drop outside of the data path, for example in reassembly, so that one table holds all drops.
    pub fn record_drop(&mut self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.trace_recorded_drop(now, reason, packet);
        self.count_drop(now, reason, packet, None);
    }

    /// Removes and returns the oldest unread event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Sizes of the tables.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether there are unread events.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Number of events that were lost because the ring was full.
    pub fn lost_events(&self) -> u64 {
        self.events.lost()
    }

    fn spd_mut(&mut self, direction: Direction) -> &mut PolicyTable {
        match direction {
            Direction::Outbound => &mut self.spd_out,
            Direction::Inbound => &mut self.spd_in,
        }
    }

    pub(crate) fn forget_flows(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Counts a drop and raises an audit event if the RFC requires one.
    #[cold]
    pub(crate) fn count_drop(
        &mut self,
        now: Instant,
        reason: DropReason,
        packet: &[u8],
        header: Option<AuditedHeader>,
    ) {
        self.drops.count(reason);
        if reason.is_audited() {
            let flow = FlowKey::parse_quoted(packet).ok();
            let flow_label = Ipv6::parse_quoted(packet).ok().map(|ip| ip.flow_label());
            let (src, dst) = (flow.map(|flow| flow.src()), flow.map(|flow| flow.dst()));
            let udp = flow.filter(|flow| flow.proto() == Some(proto::UDP)).and_then(|flow| flow.ports());
            let udp = udp.map(|ports| UdpEncap { src_port: ports.src, dst_port: ports.dst });
            self.events.push(Event::Audit(Audit { at: now, reason, src, dst, header, udp, flow_label }));
        }
    }
}
