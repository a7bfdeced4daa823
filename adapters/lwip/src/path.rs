//! The packet path between lwIP and the network.

use crate::Status;
use crate::host::Host;
use crate::types::{CHANGED, CLEAR, CONSUMED, DROPPED, EmitFn, PacketRef};
use casemate::path::{ExclusiveAccess, InboundFragments, OutboundAction, Reassembled};
use casemate_datapath::{DropReason, Inbound, SecPath};
use casemate_sa::Instant;
use casemate_wire::ip;
use casemate_wire::packet::Packet;
use core::ffi::c_void;
use core::mem;
use core::slice;

impl Host {
    /// Protects an outgoing packet. Returns a verdict.
    pub(crate) fn outbound(&mut self, now: Instant, storage: &mut [u8], position: &mut PacketRef) -> i32 {
        position.cut_to = 0;
        let Some(mut packet) = Packet::new(storage, position.start, position.len) else {
            self.endpoint.datapath_mut().record_drop(now, DropReason::NoRoom, &[]);
            return DROPPED;
        };
        let Self { endpoint, rng, outbound, .. } = self;
        let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng };
        let action = outbound.protect(now, &mut packet, &mut access);
        self.wake_if_needed();
        match action {
            OutboundAction::Send { sa, plan } => {
                (position.start, position.len) = (packet.head_room(), packet.len());
                position.cut_to = plan.map_or(0, |plan| plan.mtu);
                if sa.is_some() { CHANGED } else { CLEAR }
            }
            // lwIP's caller gets an error code, which arrives sooner than an ICMP error.
            OutboundAction::Reply | OutboundAction::Dropped(_) => DROPPED,
        }
    }

    /// Decrypts an incoming packet, or checks that it may be in clear text. Returns a verdict.
    pub(crate) fn inbound(&mut self, now: Instant, storage: &mut [u8], position: &mut PacketRef) -> i32 {
        position.cut_to = 0;
        let Some(mut packet) = Packet::new(storage, position.start, position.len) else {
            self.endpoint.datapath_mut().record_drop(now, DropReason::NoRoom, &[]);
            return DROPPED;
        };
        self.expire(now);
        if ip::is_fragment(packet.data()) {
            return self.reassemble(now, packet.data(), position);
        }
        match self.open(now, &mut packet, position) {
            OpenResult::Clear => CLEAR,
            OpenResult::Here => {
                (position.start, position.len) = (packet.head_room(), packet.len());
                CHANGED
            }
            OpenResult::Done(verdict) => verdict,
        }
    }

    /// Adds a fragment to the reassembly, and decrypts the packet when it is complete.
    fn reassemble(&mut self, now: Instant, fragment: &[u8], position: &mut PacketRef) -> i32 {
        // Moved out of `self`, because the reassembled packet borrows it while the packet is decrypted.
        let mut inbound_fragments = mem::replace(&mut self.inbound_fragments, InboundFragments::none());
        let Self { endpoint, rng, .. } = self;
        let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng };
        let verdict = match inbound_fragments.push(now, fragment, &mut access) {
            Reassembled::Held => CONSUMED,
            Reassembled::Dropped => DROPPED,
            Reassembled::Whole(mut whole) => match self.open(now, &mut whole, position) {
                OpenResult::Clear | OpenResult::Here => lend_packet(whole.data_mut(), position),
                OpenResult::Done(verdict) => verdict,
            },
        };
        self.inbound_fragments = inbound_fragments;
        verdict
    }

    /// Decrypts a whole packet.
    fn open(&mut self, now: Instant, packet: &mut Packet<'_>, position: &mut PacketRef) -> OpenResult {
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let datapath = self.endpoint.datapath_mut();
        datapath.inbound(now, slice::from_mut(packet), slice::from_mut(&mut verdict));
        self.wake_if_needed();
        let is_opened = match verdict {
            Inbound::Deliver(admitted) => admitted.sa.is_some(),
            // IKE messages go to the socket of IKE.
            Inbound::Ike(_) => false,
            Inbound::ReassembleOpened(via) => {
                return OpenResult::Done(self.reassemble_opened(now, via, packet.data(), position));
            }
            Inbound::Consumed(_) => return OpenResult::Done(CONSUMED),
            Inbound::Drop(_) | Inbound::Reassemble => return OpenResult::Done(DROPPED),
        };
        if is_opened { OpenResult::Here } else { OpenResult::Clear }
    }

    /// Adds a fragment that was received through an SA to the reassembly. The stack's reassembly cannot
    /// be used, because it would mix these fragments with fragments in clear text (RFC 4301 section 7.4).
    fn reassemble_opened(
        &mut self,
        now: Instant,
        via: SecPath,
        fragment: &[u8],
        position: &mut PacketRef,
    ) -> i32 {
        let Self { endpoint, rng, opened, .. } = self;
        let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng };
        match opened.push(now, via, fragment, &mut access) {
            Reassembled::Held => CONSUMED,
            Reassembled::Dropped => DROPPED,
            Reassembled::Whole(mut whole) => lend_packet(whole.packet.data_mut(), position),
        }
    }

    /// Drops incomplete datagrams after the reassembly timeout.
    fn expire(&mut self, now: Instant) {
        let Self { endpoint, rng, inbound_fragments, opened, .. } = self;
        let mut access = ExclusiveAccess { datapath: endpoint.datapath_mut(), rng };
        inbound_fragments.expire(now, &mut access);
        opened.expire(now, &mut access);
    }

    /// Fragments a packet and calls `emit` with each fragment of at most `mtu` bytes.
    ///
    /// # Safety
    ///
    /// `emit` can be called with `context` and does not call this host.
    pub(crate) unsafe fn cut(
        &mut self,
        packet: &[u8],
        mtu: usize,
        emit: EmitFn,
        context: *mut c_void,
    ) -> Result<(), Status> {
        let cut = self.outbound.plan_fragments(mtu.min(self.fragment.len()));
        let mut fragments = cut.fragments(packet).map_err(|_| Status::Cut)?;
        while let Some(len) = fragments.next(&mut self.fragment) {
            // SAFETY: guaranteed by the caller; the first `len` bytes of the buffer are the fragment.
            unsafe { emit(context, self.fragment.as_ptr(), len) };
        }
        if fragments.is_finished() { Ok(()) } else { Err(Status::Cut) }
    }
}

/// Result of decrypting a packet.
enum OpenResult {
    /// The packet passes in clear text.
    Clear,
    /// The packet was decrypted in place.
    Here,
    /// The final verdict; a delivered packet was reassembled and is in a buffer of the library.
    Done(i32),
}

/// Points the caller's packet to a buffer of the library.
const fn lend_packet(packet: &mut [u8], position: &mut PacketRef) -> i32 {
    (position.buffer, position.size) = (packet.as_mut_ptr(), packet.len());
    (position.start, position.len) = (0, packet.len());
    CHANGED
}
