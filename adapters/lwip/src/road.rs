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
        if ip::is_fragment(packet.data()) {
            return self.arrive(now, packet.data(), place);
        }
        match self.open(now, &mut packet, place) {
            Opened::Clear => CLEAR,
            Opened::Here => {
                (place.start, place.len) = (packet.head_room(), packet.len());
                CHANGED
            }
            Opened::Done(verdict) => verdict,
        }
    }

    /// Keeps a fragment from the wire, and opens the packet that becomes whole with it.
    fn arrive(&mut self, now: Instant, fragment: &[u8], place: &mut PacketRef) -> i32 {
        let Some(mut arrivals) = self.arrivals.take() else {
            self.endpoint.datapath_mut().note_drop(now, DropReason::FragmentTableFull, fragment);
            return DROPPED;
        };
        let verdict = match arrivals.push(now, fragment) {
            Reassembly::Held => CONSUMED,
            Reassembly::Dropped(error) => {
                self.endpoint.datapath_mut().note_drop(now, error.drop_reason(), fragment);
                DROPPED
            }
            Reassembly::Whole(mut whole) => match self.open(now, &mut whole, place) {
                Opened::Clear | Opened::Here => lend(whole.data_mut(), place),
                Opened::Done(verdict) => verdict,
            },
        };
        self.arrivals = Some(arrivals);
        verdict
    }

    /// Opens a whole packet.
    fn open(&mut self, now: Instant, packet: &mut Packet<'_>, place: &mut PacketRef) -> Opened {
        let mut verdict = Inbound::Drop(DropReason::MalformedHeader);
        let datapath = self.endpoint.datapath_mut();
        datapath.inbound(now, slice::from_mut(packet), slice::from_mut(&mut verdict));
        self.wake_if_needed();
        let is_opened = match verdict {
            Inbound::Deliver(admitted) => admitted.sa.is_some(),
            // Goes on to IKE's own socket.
            Inbound::Ike(_) => false,
            Inbound::Consumed(_) => return Opened::Done(CONSUMED),
            Inbound::Drop(_) | Inbound::Reassemble => return Opened::Done(DROPPED),
        };
        if is_opened && ip::is_fragment(packet.data()) {
            return Opened::Done(self.put_together(now, packet.data(), place));
        }
        self.endpoint.datapath_mut().clamp_mss(now, packet.data_mut(), Direction::Inbound);
        if is_opened { Opened::Here } else { Opened::Clear }
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
                lend(whole.data_mut(), place)
            }
        }
    }

    /// Gives up datagrams whose fragments did not come in time.
    fn expire(&mut self, now: Instant) {
        if now.since(self.expired) < EXPIRY {
            return;
        }
        self.expired = now;
        let arrivals = self.arrivals.as_mut().map_or(0, |arrivals| arrivals.expire(now));
        for _ in 0..self.admitted.expire(now).saturating_add(arrivals) {
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

/// What became of a packet that was opened.
enum Opened {
    /// It passes as it is.
    Clear,
    /// It was opened in place.
    Here,
    /// The verdict; a packet that it delivers was put together and lent already.
    Done(i32),
}

/// Lends the caller a packet in a buffer of ours.
const fn lend(packet: &mut [u8], place: &mut PacketRef) -> i32 {
    (place.buffer, place.size) = (packet.as_mut_ptr(), packet.len());
    (place.start, place.len) = (0, packet.len());
    CHANGED
}
