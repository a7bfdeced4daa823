//! The packet path around the data path: fragments on their way out and in, and packets that are too long.
//!
//! The data path gives a verdict on each packet. What one packet alone does not settle is done here, once for
//! all adapters: fragments are held until their datagram is whole (RFC 4301 section 7), a datagram that SAs
//! delivered in fragments is offered to the policy as a whole, and it is decided what is cut, to which
//! length, and with which identification. Adapters read packets, write them, and write the pieces that
//! [`Fragments`] makes of them.
//!
//! A gateway calls this for fragments only. A host's stack leaves cutting to us and calls
//! [`OutboundPath::protect`] for each packet. Memory is allocated at the start, as [`Limits`] say.

use casemate_crypto::Rng;
use casemate_datapath::fragment::{self, CannotFragment, Fragments};
use casemate_datapath::reassembly::{Reassembler, Reassembly, Sender};
use casemate_datapath::{Datapath, DropReason, Inbound, Outbound, SaId, Sealed, Via, pmtu};
use casemate_sa::{Instant, Limits};
use casemate_wire::ip::{self, IpVersion, Ipv4};
use casemate_wire::packet::Packet;
use core::time::Duration;

/// How often datagrams are dropped whose fragments did not come in time.
const EXPIRY: Duration = Duration::from_secs(1);

/// Lends the data path for a moment. An adapter with several threads keeps it behind a lock and holds that no
/// longer than `act` takes.
pub trait Lender {
    /// Calls `act` with the data path and its randomness.
    fn lend<T>(&mut self, act: impl FnOnce(&mut Datapath, &mut dyn Rng) -> T) -> T;
}

/// For adapters that need no lock.
pub struct Unlocked<'a> {
    /// The data path.
    pub datapath: &'a mut Datapath,
    /// Randomness for IVs.
    pub rng: &'a mut dyn Rng,
}

impl Lender for Unlocked<'_> {
    fn lend<T>(&mut self, act: impl FnOnce(&mut Datapath, &mut dyn Rng) -> T) -> T {
        act(self.datapath, self.rng)
    }
}

/// What became of a fragment.
#[derive(Debug)]
pub enum Joined<T> {
    /// Its datagram is whole now.
    Whole(T),
    /// It waits for others.
    Held,
    /// It, or its datagram, is dropped and counted.
    Dropped,
}

impl<T> Joined<T> {
    /// The datagram, if it is whole.
    pub fn whole(self) -> Option<T> {
        match self {
            Self::Whole(whole) => Some(whole),
            Self::Held | Self::Dropped => None,
        }
    }
}

/// How a packet is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Bytes of each piece, at most.
    pub mtu: usize,
    /// Identification of IPv6 fragments. An IPv4 packet keeps its own.
    pub ident: u32,
}

impl Cut {
    /// The pieces of a packet that may be cut.
    pub fn pieces(self, packet: &[u8]) -> Result<Fragments<'_>, CannotFragment> {
        Fragments::new(packet, self.mtu, self.ident)
    }
}

/// What becomes of an outgoing datagram; its buffer was changed to match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// It is sent.
    Send {
        /// The SA whose header is outermost; `None` in clear.
        sa: Option<SaId>,
        /// In pieces, if it is too long.
        cut: Option<Cut>,
    },
    /// It is dropped and counted, and the buffer holds an ICMP error for its source.
    Reply,
    /// It is dropped and counted.
    Dropped(DropReason),
}

/// Identifications, one after the other.
#[derive(Debug)]
struct Idents(u32);

impl Idents {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(1);
        self.0
    }

    /// An IPv4 packet without identification gets one, before AH covers it: its fragments could not be told
    /// apart otherwise (RFC 6864 section 4.1).
    fn number(&mut self, packet: &mut [u8]) {
        if ip::version(packet) == Ok(IpVersion::V4)
            && let Ok(mut ip) = Ipv4::parse(packet)
            && ip.ident() == 0
        {
            // The lower half, and never 0.
            ip.set_ident((self.next() as u16).max(1));
            ip.fill_checksum();
        }
    }
}

/// Datagrams on their way out.
#[derive(Debug)]
pub struct OutboundPath {
    /// `None` for a stack that offers whole datagrams only.
    fragments: Option<Reassembler>,
    idents: Idents,
    expired: Instant,
}

impl OutboundPath {
    /// For a gateway: allocates `limits.reassemblies` buffers of `limits.reassembly_bytes`. `ident` should be
    /// random; identifications follow it.
    pub fn gateway(limits: &Limits, ident: u32) -> Self {
        let fragments = Some(Reassembler::new(limits.reassemblies, limits.reassembly_bytes));
        Self { fragments, idents: Idents(ident), expired: Instant::ZERO }
    }

    /// For a host whose stack offers whole datagrams only.
    pub const fn host(ident: u32) -> Self {
        Self { fragments: None, idents: Idents(ident), expired: Instant::ZERO }
    }

    /// Protects a whole datagram whose source leaves cutting to us, whatever its DF bit says. It needs
    /// [`HEAD_ROOM`](casemate_datapath::HEAD_ROOM) and [`TAIL_ROOM`](casemate_datapath::TAIL_ROOM).
    pub fn protect(&mut self, now: Instant, packet: &mut Packet<'_>, lender: &mut impl Lender) -> Leaving {
        protect(&mut self.idents, now, packet, lender)
    }

    /// Takes a fragment whose verdict was [`Outbound::Reassemble`]. If its datagram is whole now, that is
    /// protected and returned with what becomes of it.
    pub fn reassemble(
        &mut self,
        now: Instant,
        fragment: &[u8],
        lender: &mut impl Lender,
    ) -> Option<(Packet<'_>, Leaving)> {
        let joined = push(self.fragments.as_mut(), now, fragment, Sender::Known, lender);
        let mut whole = joined.whole()?;
        let leaving = match protect(&mut self.idents, now, &mut whole, lender) {
            Leaving::Send { sa: None, cut } => in_clear(&mut self.idents, &mut whole, cut),
            leaving => leaving,
        };
        Some((whole, leaving))
    }

    /// How a packet is cut into pieces of at most `mtu` bytes, with an identification of its own.
    pub fn cut(&mut self, mtu: usize) -> Cut {
        Cut { mtu, ident: self.idents.next() }
    }

    /// Drops datagrams whose fragments did not come in time. Looks once a second at most.
    pub fn expire(&mut self, now: Instant, lender: &mut impl Lender) {
        if is_due(&mut self.expired, now) {
            self.fragments.iter_mut().for_each(|table| expire(table, now, lender));
        }
    }
}

fn protect(idents: &mut Idents, now: Instant, packet: &mut Packet<'_>, lender: &mut impl Lender) -> Leaving {
    idents.number(packet.data_mut());
    let (verdict, link_mtu) =
        lender.lend(|datapath, rng| (datapath.outbound_reassembled(now, rng, packet), datapath.link_mtu()));
    let mut cut = |mtu: usize| Cut { mtu, ident: idents.next() };
    match verdict {
        Outbound::Send(Sealed { sa, fragment_to, .. }) => {
            Leaving::Send { sa: Some(sa), cut: fragment_to.map(|mtu| cut(mtu.into())) }
        }
        Outbound::Bypass if packet.len() > link_mtu => {
            fragment::permit(packet.data_mut());
            Leaving::Send { sa: None, cut: Some(cut(link_mtu)) }
        }
        Outbound::Bypass => Leaving::Send { sa: None, cut: None },
        Outbound::Reply(_) => Leaving::Reply,
        Outbound::Drop(reason) => Leaving::Dropped(reason),
        // The verdict on a whole datagram is never that.
        Outbound::Reassemble => Leaving::Dropped(DropReason::FragmentWithoutPorts),
    }
}

/// How a datagram that came in fragments leaves in clear. Its link may be narrower than that of the data
/// path: an IPv4 packet may be cut further, and an IPv6 packet fits each link.
fn in_clear(idents: &mut Idents, whole: &mut Packet<'_>, cut: Option<Cut>) -> Leaving {
    let cut = if ip::version(whole.data()) == Ok(IpVersion::V6) {
        (whole.len() > pmtu::V6_MIN_MTU).then(|| Cut { mtu: pmtu::V6_MIN_MTU, ident: idents.next() })
    } else {
        fragment::permit(whole.data_mut());
        cut
    };
    Leaving::Send { sa: None, cut }
}

/// Fragments that come from the network.
#[derive(Debug)]
pub struct Arrivals {
    table: Option<Reassembler>,
    expired: Instant,
}

impl Arrivals {
    /// Allocates so many buffers of `limits.reassembly_bytes`.
    pub fn new(limits: &Limits, slots: usize) -> Self {
        let table = (slots > 0).then(|| Reassembler::new(slots, limits.reassembly_bytes));
        Self { table, expired: Instant::ZERO }
    }

    /// For a stack that offers whole packets only: drops all fragments.
    pub const fn none() -> Self {
        Self { table: None, expired: Instant::ZERO }
    }

    /// Takes a fragment (RFC 4303 section 3.4.1: reassembly comes before opening). The data path is to see
    /// the datagram that is whole with it. Fragments of peers go before those of others.
    pub fn join(&mut self, now: Instant, fragment: &[u8], lender: &mut impl Lender) -> Joined<Packet<'_>> {
        let source = ip::source(fragment);
        let is_peer = source.is_some_and(|src| lender.lend(|datapath, _| datapath.is_peer(src)));
        let sender = if is_peer { Sender::Known } else { Sender::Stranger };
        push(self.table.as_mut(), now, fragment, sender, lender)
    }

    /// Drops datagrams whose fragments did not come in time. Looks once a second at most.
    pub fn expire(&mut self, now: Instant, lender: &mut impl Lender) {
        if is_due(&mut self.expired, now) {
            self.table.iter_mut().for_each(|table| expire(table, now, lender));
        }
    }
}

/// Fragments that SAs delivered: their source cut them before they were protected.
#[derive(Debug)]
pub struct Opened {
    table: Reassembler,
    idents: Idents,
    expired: Instant,
}

impl Opened {
    /// Allocates `limits.reassemblies` buffers of `limits.reassembly_bytes`. `ident` should be random;
    /// identifications follow it.
    pub fn new(limits: &Limits, ident: u32) -> Self {
        let table = Reassembler::new(limits.reassemblies, limits.reassembly_bytes);
        Self { table, idents: Idents(ident), expired: Instant::ZERO }
    }

    /// Takes a fragment that these SAs delivered and whose verdict was [`Inbound::ReassembleOpened`] (RFC
    /// 4301 section 7.4). A datagram that is whole with it is returned if policy admits it, with how a
    /// gateway cuts it: IPv6 packets are not cut on their way (RFC 8200 section 5), and their source has cut
    /// this one. A datagram for the host itself stays whole.
    pub fn join(
        &mut self,
        now: Instant,
        via: Via,
        fragment: &[u8],
        lender: &mut impl Lender,
    ) -> Joined<(Packet<'_>, Option<Cut>)> {
        let mut whole = match push(Some(&mut self.table), now, fragment, Sender::Opened(via), lender) {
            Joined::Whole(whole) => whole,
            Joined::Held => return Joined::Held,
            Joined::Dropped => return Joined::Dropped,
        };
        let verdict = lender.lend(|datapath, _| datapath.admit_reassembled(now, via, &mut whole));
        let Inbound::Deliver(_) = verdict else { return Joined::Dropped };
        let is_v6 = ip::version(whole.data()) == Ok(IpVersion::V6);
        let cut = if is_for_host(whole.data(), lender) {
            None
        } else if is_v6 {
            Some(Cut { mtu: pmtu::V6_MIN_MTU, ident: self.idents.next() })
        } else {
            fragment::permit(whole.data_mut());
            None
        };
        Joined::Whole((whole, cut))
    }

    /// How a gateway cuts a packet that SAs delivered whole; `None` if it stays as it is.
    ///
    /// Only IPv6 packets for others that are longer than `widest_link` ([`Datapath::widest_link`]) are cut.
    /// Another gateway put such a packet together because its policies have ports, and no router forwards it to
    /// a link with the usual MTU.
    #[inline]
    pub fn cut_long(&mut self, packet: &[u8], widest_link: usize, lender: &mut impl Lender) -> Option<Cut> {
        if packet.len() <= widest_link.max(pmtu::V6_MIN_MTU) { None } else { self.cut_v6(packet, lender) }
    }

    #[cold]
    fn cut_v6(&mut self, packet: &[u8], lender: &mut impl Lender) -> Option<Cut> {
        let is_cut = ip::version(packet) == Ok(IpVersion::V6) && !is_for_host(packet, lender);
        is_cut.then(|| Cut { mtu: pmtu::V6_MIN_MTU, ident: self.idents.next() })
    }

    /// Drops datagrams whose fragments did not come in time. Looks once a second at most.
    pub fn expire(&mut self, now: Instant, lender: &mut impl Lender) {
        if is_due(&mut self.expired, now) {
            expire(&mut self.table, now, lender);
        }
    }
}

fn is_for_host(packet: &[u8], lender: &mut impl Lender) -> bool {
    ip::destination(packet).is_some_and(|dst| lender.lend(|datapath, _| datapath.is_host(dst)))
}

/// Takes a fragment. Counts what is dropped.
fn push<'r>(
    table: Option<&'r mut Reassembler>,
    now: Instant,
    fragment: &[u8],
    sender: Sender,
    lender: &mut impl Lender,
) -> Joined<Packet<'r>> {
    let Some(table) = table else {
        note(1, now, DropReason::FragmentTableFull, fragment, lender);
        return Joined::Dropped;
    };
    // Those that gave way to fragments before.
    note(table.take_evicted(), now, DropReason::FragmentTableFull, &[], lender);
    match table.push(now, fragment, sender) {
        Reassembly::Whole(whole) => Joined::Whole(whole),
        Reassembly::Held => Joined::Held,
        Reassembly::Dropped(error) => {
            note(1, now, error.drop_reason(), fragment, lender);
            Joined::Dropped
        }
    }
}

fn is_due(last: &mut Instant, now: Instant) -> bool {
    let is_due = now.since(*last) >= EXPIRY;
    if is_due {
        *last = now;
    }
    is_due
}

fn expire(table: &mut Reassembler, now: Instant, lender: &mut impl Lender) {
    let (late, evicted) = (table.expire(now), table.take_evicted());
    note(late, now, DropReason::FragmentTimeout, &[], lender);
    note(evicted, now, DropReason::FragmentTableFull, &[], lender);
}

fn note(count: usize, now: Instant, reason: DropReason, packet: &[u8], lender: &mut impl Lender) {
    if count > 0 {
        lender.lend(|datapath, _| (0..count).for_each(|_| datapath.note_drop(now, reason, packet)));
    }
}
