//! The packet path around the data path: reassembly in both directions, and fragmentation of packets that are
//! too long.
//!
//! The data path returns a verdict for each packet. This module does what depends on more than one packet,
//! once for all adapters. It stores fragments until their datagram is complete (RFC 4301 section 7), applies
//! policy to datagrams that SAs delivered in fragments, and decides which packets are fragmented, to which
//! length, and with which identification. Adapters read and write packets, and write the fragments that
//! [`Fragments`] returns.
//!
//! A gateway calls this module for fragments only. A host whose stack leaves fragmentation to the adapter
//! calls [`OutboundPath::protect`] for each packet. Memory is allocated at the start, as [`Limits`]
//! specifies.

mod opened;

pub use opened::{OpenedDatagram, OpenedFragments};

use casemate_crypto::Rng;
use casemate_datapath::fragment::{self, CannotFragment, Fragments};
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{Datapath, DropReason, Outbound, SaId, Sealed, pmtu};
use casemate_sa::{Instant, Limits, SpdId};
use casemate_wire::ip::{self, IpVersion, Ipv4};
use casemate_wire::packet::Packet;
use core::time::Duration;

/// Interval of the check for incomplete datagrams.
const EXPIRY: Duration = Duration::from_secs(1);

/// Access to the data path. An adapter with several threads keeps the data path behind a lock and holds the
/// lock no longer than `act` takes.
pub trait DatapathAccess {
    /// Calls `act` with the data path and its random source.
    fn with_datapath<T>(&mut self, act: impl FnOnce(&mut Datapath, &mut dyn Rng) -> T) -> T;
}

/// Access without a lock.
pub struct ExclusiveAccess<'a> {
    /// The data path.
    pub datapath: &'a mut Datapath,
    /// Random source for IVs.
    pub rng: &'a mut dyn Rng,
}

impl DatapathAccess for ExclusiveAccess<'_> {
    fn with_datapath<T>(&mut self, act: impl FnOnce(&mut Datapath, &mut dyn Rng) -> T) -> T {
        act(self.datapath, self.rng)
    }
}

/// Result for one fragment.
#[derive(Debug)]
pub enum Reassembled<T> {
    /// The datagram is complete.
    Whole(T),
    /// The fragment is stored until the others arrive.
    Held,
    /// The fragment or its datagram is dropped and counted.
    Dropped,
}

impl<T> Reassembled<T> {
    /// The datagram, if it is complete.
    pub fn whole(self) -> Option<T> {
        match self {
            Self::Whole(whole) => Some(whole),
            Self::Held | Self::Dropped => None,
        }
    }
}

/// How to fragment a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentPlan {
    /// Maximum size of each fragment, in bytes.
    pub mtu: usize,
    /// Identification of IPv6 fragments. An IPv4 packet keeps its own.
    pub ident: u32,
}

impl FragmentPlan {
    /// The fragments of a packet.
    pub fn fragments(self, packet: &[u8]) -> Result<Fragments<'_>, CannotFragment> {
        Fragments::new(packet, self.mtu, self.ident)
    }
}

/// What to do with an outgoing datagram. Its buffer was changed accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutboundAction {
    /// Send the datagram.
    Send {
        /// The SA of the outermost header; `None` in clear.
        sa: Option<SaId>,
        /// How to fragment the datagram, if it is too long.
        plan: Option<FragmentPlan>,
    },
    /// The datagram is dropped and counted. Its buffer contains an ICMP error for its source.
    Reply,
    /// The datagram is dropped and counted.
    Dropped(DropReason),
}

/// Generator of consecutive identifications.
#[derive(Debug)]
struct Idents(u32);

impl Idents {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }

    /// Gives an IPv4 packet without identification one, before AH covers it. Otherwise its fragments could
    /// not be distinguished from those of other packets (RFC 6864 section 4.1).
    fn number(&mut self, packet: &mut [u8]) {
        if ip::version(packet) == Ok(IpVersion::V4)
            && let Ok(mut ip) = Ipv4::parse(packet)
            && ip.ident() == 0
        {
            // The lower half, but never 0.
            ip.set_ident((self.next() as u16).max(1));
            ip.fill_checksum();
        }
    }
}

/// Outgoing datagrams: reassembly before protection, and fragmentation.
#[derive(Debug)]
pub struct OutboundPath {
    /// `None` for a stack that sends whole datagrams only.
    fragments: Option<Reassembler>,
    idents: Idents,
    expired: Instant,
}

impl OutboundPath {
    /// For a gateway. Allocates `limits.reassemblies` buffers of `limits.reassembly_bytes`. `ident` is the
    /// first identification and should be random.
    pub fn gateway(limits: &Limits, ident: u32) -> Self {
        let fragments = Some(Reassembler::new(limits.reassemblies, limits.reassembly_bytes));
        Self { fragments, idents: Idents(ident), expired: Instant::ZERO }
    }

    /// For a host whose stack sends whole datagrams only.
    pub const fn host(ident: u32) -> Self {
        Self { fragments: None, idents: Idents(ident), expired: Instant::ZERO }
    }

    /// Protects a whole datagram whose source leaves fragmentation to this module, whatever the DF bit. The
    /// packet needs [`HEAD_ROOM`](casemate_datapath::HEAD_ROOM) and
    /// [`TAIL_ROOM`](casemate_datapath::TAIL_ROOM).
    pub fn protect(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_>,
        access: &mut impl DatapathAccess,
    ) -> OutboundAction {
        protect(&mut self.idents, now, SpdId::MAIN, packet, access)
    }

    /// Adds a fragment with the verdict [`Outbound::Reassemble`] of this SPD. If its datagram is complete,
    /// protects and returns it.
    pub fn reassemble(
        &mut self,
        now: Instant,
        spd: SpdId,
        fragment: &[u8],
        access: &mut impl DatapathAccess,
    ) -> Option<(Packet<'_>, OutboundAction)> {
        let reassembled = push(self.fragments.as_mut(), now, fragment, Sender::Protected(spd), access);
        let mut whole = reassembled.whole()?;
        let action = match protect(&mut self.idents, now, spd, &mut whole, access) {
            OutboundAction::Send { sa: None, plan } => in_clear(&mut self.idents, &mut whole, plan),
            action => action,
        };
        Some((whole, action))
    }

    /// A plan for fragments of at most `mtu` bytes, with a new identification.
    pub fn plan_fragments(&mut self, mtu: usize) -> FragmentPlan {
        FragmentPlan { mtu, ident: self.idents.next() }
    }

    /// Drops incomplete datagrams after their time limit. Checks at most once a second.
    pub fn expire(&mut self, now: Instant, access: &mut impl DatapathAccess) {
        if is_expiry_due(&mut self.expired, now) {
            self.fragments.iter_mut().for_each(|table| expire(table, now, access));
        }
    }
}

fn protect(
    idents: &mut Idents,
    now: Instant,
    spd: SpdId,
    packet: &mut Packet<'_>,
    access: &mut impl DatapathAccess,
) -> OutboundAction {
    idents.number(packet.data_mut());
    let (verdict, link_mtu) = access.with_datapath(|datapath, rng| {
        (datapath.outbound_reassembled(spd, now, rng, packet), datapath.link_mtu())
    });
    let mut plan = |mtu: usize| FragmentPlan { mtu, ident: idents.next() };
    match verdict {
        Outbound::Send(Sealed { sa, fragment_to, .. }) => {
            OutboundAction::Send { sa: Some(sa), plan: fragment_to.map(|mtu| plan(mtu.into())) }
        }
        Outbound::Bypass if packet.len() > link_mtu => {
            fragment::clear_df(packet.data_mut());
            OutboundAction::Send { sa: None, plan: Some(plan(link_mtu)) }
        }
        Outbound::Bypass => OutboundAction::Send { sa: None, plan: None },
        Outbound::Reply(_) => OutboundAction::Reply,
        Outbound::Drop(reason) => OutboundAction::Dropped(reason),
        // Never the verdict for a whole datagram.
        // The data path returns neither for a reassembled datagram.
        Outbound::Reassemble | Outbound::Hold => OutboundAction::Dropped(DropReason::FragmentWithoutPorts),
    }
}

/// How to send a reassembled datagram in clear. Its link may have a lower MTU than that of the data path:
/// routers may fragment an IPv4 packet further, and the fragments of an IPv6 packet fit every link.
fn in_clear(idents: &mut Idents, whole: &mut Packet<'_>, plan: Option<FragmentPlan>) -> OutboundAction {
    let plan = if ip::version(whole.data()) == Ok(IpVersion::V6) {
        (whole.len() > pmtu::V6_MIN_MTU).then(|| FragmentPlan { mtu: pmtu::V6_MIN_MTU, ident: idents.next() })
    } else {
        fragment::clear_df(whole.data_mut());
        plan
    };
    OutboundAction::Send { sa: None, plan }
}

/// Fragments from the network.
#[derive(Debug)]
pub struct InboundFragments {
    table: Option<Reassembler>,
    expired: Instant,
}

impl InboundFragments {
    /// Allocates `slots` buffers of `limits.reassembly_bytes`.
    pub fn new(limits: &Limits, slots: usize) -> Self {
        let table = (slots > 0).then(|| Reassembler::new(slots, limits.reassembly_bytes));
        Self { table, expired: Instant::ZERO }
    }

    /// For a stack that receives whole packets only. Drops all fragments.
    pub const fn none() -> Self {
        Self { table: None, expired: Instant::ZERO }
    }

    /// Adds a fragment (RFC 4303 section 3.4.1: reassembly comes before opening). Pass the complete datagram
    /// to the data path. Fragments of peers take precedence.
    pub fn push(
        &mut self,
        now: Instant,
        fragment: &[u8],
        access: &mut impl DatapathAccess,
    ) -> Reassembled<Packet<'_>> {
        let source = ip::source(fragment);
        let is_peer = source.is_some_and(|src| access.with_datapath(|datapath, _| datapath.is_peer(src)));
        let sender = if is_peer { Sender::Known } else { Sender::Unknown };
        push(self.table.as_mut(), now, fragment, sender, access)
    }

    /// Drops incomplete datagrams after their time limit. Checks at most once a second.
    pub fn expire(&mut self, now: Instant, access: &mut impl DatapathAccess) {
        if is_expiry_due(&mut self.expired, now) {
            self.table.iter_mut().for_each(|table| expire(table, now, access));
        }
    }
}

/// Adds a fragment. Counts drops.
fn push<'r>(
    table: Option<&'r mut Reassembler>,
    now: Instant,
    fragment: &[u8],
    sender: Sender,
    access: &mut impl DatapathAccess,
) -> Reassembled<Packet<'r>> {
    let Some(table) = table else {
        record_drops(1, now, DropReason::FragmentTableFull, fragment, access);
        return Reassembled::Dropped;
    };
    // Datagrams that earlier fragments evicted.
    record_drops(table.take_evicted(), now, DropReason::FragmentTableFull, &[], access);
    match table.push(now, fragment, sender) {
        Reassembly::Whole(whole) => Reassembled::Whole(whole),
        Reassembly::Held => Reassembled::Held,
        Reassembly::Dropped(error) => {
            record_drops(1, now, error.drop_reason(), fragment, access);
            Reassembled::Dropped
        }
    }
}

fn is_expiry_due(last: &mut Instant, now: Instant) -> bool {
    let is_due = now.since(*last) >= EXPIRY;
    if is_due {
        *last = now;
    }
    is_due
}

fn expire(table: &mut Reassembler, now: Instant, access: &mut impl DatapathAccess) {
    let (timed_out, evicted) = (table.expire(now), table.take_evicted());
    record_drops(timed_out, now, DropReason::FragmentTimeout, &[], access);
    record_drops(evicted, now, DropReason::FragmentTableFull, &[], access);
}

fn record_drops(
    count: usize,
    now: Instant,
    reason: DropReason,
    packet: &[u8],
    access: &mut impl DatapathAccess,
) {
    if count > 0 {
        access
            .with_datapath(|datapath, _| (0..count).for_each(|_| datapath.record_drop(now, reason, packet)));
    }
}
