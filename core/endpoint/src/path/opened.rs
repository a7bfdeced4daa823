//! Datagrams that SAs delivered in fragments (RFC 4301 section 7.4).

use super::{DatapathAccess, FragmentPlan, Idents, Reassembled, expire, is_expiry_due, push};
use casemate_datapath::reassembly::{Reassembler, Sender};
use casemate_datapath::{Admitted, Inbound, SecPath, fragment, pmtu};
use casemate_sa::{Instant, Limits, SpdId};
use casemate_wire::ip::{self, IpVersion};
use casemate_wire::packet::Packet;

/// A datagram that SAs delivered in fragments, and that policy admits.
#[derive(Debug)]
pub struct OpenedDatagram<'r> {
    /// The datagram.
    pub packet: Packet<'r>,
    /// The SPD that admits it.
    pub spd: SpdId,
    /// How a gateway fragments it again; `None` if it stays whole.
    pub plan: Option<FragmentPlan>,
}

/// Fragments that SAs delivered: the source fragmented the datagram before its protection.
#[derive(Debug)]
pub struct OpenedFragments {
    table: Reassembler,
    idents: Idents,
    expired: Instant,
}

impl OpenedFragments {
    /// Allocates `limits.reassemblies` buffers of `limits.reassembly_bytes`. `ident` is the first
    /// identification and should be random.
    pub fn new(limits: &Limits, ident: u32) -> Self {
        let table = Reassembler::new(limits.reassemblies, limits.reassembly_bytes);
        Self { table, idents: Idents(ident), expired: Instant::ZERO }
    }

    /// Adds a fragment that these SAs delivered with the verdict [`Inbound::ReassembleOpened`] (RFC 4301
    /// section 7.4). If its datagram is complete and policy admits it, returns it. Routers do not fragment
    /// IPv6 packets (RFC 8200 section 5), so the gateway must restore fragments. A datagram for the host
    /// itself stays whole.
    pub fn push(
        &mut self,
        now: Instant,
        via: SecPath,
        fragment: &[u8],
        access: &mut impl DatapathAccess,
    ) -> Reassembled<OpenedDatagram<'_>> {
        let mut whole = match push(Some(&mut self.table), now, fragment, Sender::Opened(via), access) {
            Reassembled::Whole(whole) => whole,
            Reassembled::Held => return Reassembled::Held,
            Reassembled::Dropped => return Reassembled::Dropped,
        };
        let verdict = access.with_datapath(|datapath, _| datapath.admit_reassembled(now, via, &mut whole));
        let Inbound::Deliver(Admitted { spd, .. }) = verdict else { return Reassembled::Dropped };
        let is_v6 = ip::version(whole.data()) == Ok(IpVersion::V6);
        let plan = if is_for_host(whole.data(), access) {
            None
        } else if is_v6 {
            Some(FragmentPlan { mtu: pmtu::V6_MIN_MTU, ident: self.idents.next() })
        } else {
            fragment::clear_df(whole.data_mut());
            None
        };
        Reassembled::Whole(OpenedDatagram { packet: whole, spd, plan })
    }

    /// How a gateway fragments a packet that SAs delivered whole; `None` if the packet stays whole.
    ///
    /// Only IPv6 packets for other hosts that are longer than `max_link_mtu` (that of
    /// [`casemate_datapath::Datapath`]) are fragmented. Another gateway reassembled such a packet because its
    /// policies have ports, and no router would forward it to a link with the usual MTU.
    #[inline]
    pub fn plan_fragments(
        &mut self,
        packet: &[u8],
        max_link_mtu: usize,
        access: &mut impl DatapathAccess,
    ) -> Option<FragmentPlan> {
        if packet.len() <= max_link_mtu.max(pmtu::V6_MIN_MTU) { None } else { self.plan_v6(packet, access) }
    }

    #[cold]
    fn plan_v6(&mut self, packet: &[u8], access: &mut impl DatapathAccess) -> Option<FragmentPlan> {
        let needs_fragments = ip::version(packet) == Ok(IpVersion::V6) && !is_for_host(packet, access);
        needs_fragments.then(|| FragmentPlan { mtu: pmtu::V6_MIN_MTU, ident: self.idents.next() })
    }

    /// Drops incomplete datagrams after their time limit. Checks at most once a second.
    pub fn expire(&mut self, now: Instant, access: &mut impl DatapathAccess) {
        if is_expiry_due(&mut self.expired, now) {
            expire(&mut self.table, now, access);
        }
    }
}

fn is_for_host(packet: &[u8], access: &mut impl DatapathAccess) -> bool {
    ip::destination(packet).is_some_and(|dst| access.with_datapath(|datapath, _| datapath.is_local_addr(dst)))
}
