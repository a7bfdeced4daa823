//! The way of a packet from the stack to the wire, and back.

use crate::Code;
use crate::host::Host;
use crate::types::{CHANGED, CLEAR, CONSUMED, DROPPED, Emit, PacketRef};
use casemate_datapath::fragment::{self, Fragments};
use casemate_datapath::reassembly::Reassembly;
use casemate_datapath::{Direction, DropReason, Inbound, Outbound};
use casemate_sa::Instant;
use casemate_wire::ip;
use casemate_wire::packet::Packet;
use core::ffi::c_void;
use core::slice;
use core::time::Duration;

/// How often what waits for fragments is looked at.
const EXPIRY: Duration = Duration::from_secs(1);

impl Host {
    /// Protects a packet of the stack's; the verdict.
    pub(crate) fn outbound(&mut self, now: Instant, storage: &mut [u8], place: &mut PacketRef) -> i32 {
        place.cut_to = 0;
        let Some(mut packet) = Packet::new(storage, place.start, place.len) else {
            self.endpoint.datapath_mut().note_drop(now, DropReason::NoRoom, &[]);
            return DROPPED;
        };
        self.endpoint.datapath_mut().clamp_mss(now, packet.data_mut(), Direction::Outbound);
        // The stack does not cut: whatever a DF bit says, it left that to us.
        let verdict = self.endpoint.datapath_mut().outbound_reassembled(now, &mut self.rng, &mut packet);
        self.wake_if_needed();
        match verdict {
            Outbound::Send(sealed) => {
                (place.start, place.len) = (packet.head_room(), packet.len());
                place.cut_to = sealed.fragment_to.map_or(0, usize::from);
                CHANGED
            }
            Outbound::Bypass => {
                let mtu = self.fragment.len();
                place.cut_to = if place.len > mtu { mtu } else { 0 };
                CLEAR
            }
            // The stack's caller gets an error of its own, which is sooner than one by ICMP.
            Outbound::Reply(_) | Outbound::Drop(_) | Outbound::Reassemble => DROPPED,
        }
    }

    /// Opens a packet from the wire, or checks that it may be in clear; the verdict.
    pub(crate) fn inbound(&mut self, now: Instant, storage: &mut [u8], place: &mut PacketRef) -> i32 {
        place.cut_to = 0;
        let Some(mut packet) = Packet::new(storage, place.start, place.len) else {
            self.endpoint.datapath_mut().note_drop(now, DropReason::NoRoom, &[]);
            return DROPPED;
        };
        self.expire(now);
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        self.endpoint.datapath_mut().inbound(
            now,
            slice::from_mut(&mut packet),
            slice::from_mut(&mut verdict),
        );
        self.wake_if_needed();
        let is_opened = match verdict {
            Inbound::Deliver(admitted) => admitted.sa.is_some(),
            // Goes on to IKE's own socket.
            Inbound::Ike(_) => false,
            Inbound::Consumed(_) => return CONSUMED,
            Inbound::Drop(_) | Inbound::Reassemble => return DROPPED,
        };
        if !is_opened {
            self.endpoint.datapath_mut().clamp_mss(now, packet.data_mut(), Direction::Inbound);
            return CLEAR;
        }
        (place.start, place.len) = (packet.head_room(), packet.len());
        if ip::is_fragment(packet.data()) {
            return self.put_together(now, packet.data(), place);
        }
        self.endpoint.datapath_mut().clamp_mss(now, packet.data_mut(), Direction::Inbound);
        CHANGED
    }

    /// Keeps a fragment that an SA delivered. They are not left to the stack's reassembly, where they would meet fragments
    /// in clear (RFC 4301 section 7.4).
    fn put_together(&mut self, now: Instant, fragment: &[u8], place: &mut PacketRef) -> i32 {
        match self.admitted.push(now, fragment) {
            Reassembly::Held => CONSUMED,
            Reassembly::Dropped(error) => {
                self.endpoint.datapath_mut().note_drop(now, error.drop_reason(), fragment);
                DROPPED
            }
            Reassembly::Whole(mut whole) => {
                self.endpoint.datapath_mut().clamp_mss(now, whole.data_mut(), Direction::Inbound);
                let data = whole.data_mut();
                (place.buffer, place.size) = (data.as_mut_ptr(), data.len());
                (place.start, place.len) = (0, data.len());
                CHANGED
            }
        }
    }

    /// Gives up datagrams whose fragments did not come in time.
    fn expire(&mut self, now: Instant) {
        if now.since(self.expired) < EXPIRY {
            return;
        }
        self.expired = now;
        for _ in 0..self.admitted.expire(now) {
            self.endpoint.datapath_mut().note_drop(now, DropReason::FragmentTimeout, &[]);
        }
    }

    /// Cuts a packet into pieces of at most `mtu` bytes and calls `emit` with each.
    ///
    /// # Safety
    ///
    /// `emit` may be called with `context`, and does not call this host.
    pub(crate) unsafe fn cut(
        &mut self,
        packet: &mut [u8],
        mtu: usize,
        emit: Emit,
        context: *mut c_void,
    ) -> Result<(), Code> {
        fragment::permit(packet);
        self.next_ident = self.next_ident.wrapping_add(1);
        let mtu = mtu.min(self.fragment.len());
        let mut fragments = Fragments::new(packet, mtu, self.next_ident).map_err(|_| Code::Cut)?;
        while let Some(len) = fragments.next(&mut self.fragment) {
            // SAFETY: by this function's own contract; `len` bytes of the buffer are the fragment.
            unsafe { emit(context, self.fragment.as_ptr(), len) };
        }
        if fragments.is_finished() { Ok(()) } else { Err(Code::Cut) }
    }
}
