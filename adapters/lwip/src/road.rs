//! The way of a packet from the stack to the wire, and back.

use crate::Code;
use crate::host::Host;
use crate::types::{CHANGED, CLEAR, CONSUMED, DROPPED, Emit, PacketRef};
use casemate::path::{Arrivals, Joined, Leaving, Unlocked};
use casemate_datapath::{DropReason, Inbound, Via};
use casemate_sa::Instant;
use casemate_wire::ip;
use casemate_wire::packet::Packet;
use core::ffi::c_void;
use core::mem;
use core::slice;

impl Host {
    /// Protects a packet of the stack's; the verdict.
    pub(crate) fn outbound(&mut self, now: Instant, storage: &mut [u8], place: &mut PacketRef) -> i32 {
        place.cut_to = 0;
        let Some(mut packet) = Packet::new(storage, place.start, place.len) else {
            self.endpoint.datapath_mut().note_drop(now, DropReason::NoRoom, &[]);
            return DROPPED;
        };
        let Self { endpoint, rng, outbound, .. } = self;
        let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng };
        let leaving = outbound.protect(now, &mut packet, &mut unlocked);
        self.wake_if_needed();
        match leaving {
            Leaving::Send { sa, cut } => {
                (place.start, place.len) = (packet.head_room(), packet.len());
                place.cut_to = cut.map_or(0, |cut| cut.mtu);
                if sa.is_some() { CHANGED } else { CLEAR }
            }
            // The stack's caller gets an error of its own, which is sooner than one by ICMP.
            Leaving::Reply | Leaving::Dropped(_) => DROPPED,
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
        // Set aside, because the packet that is whole now lies in it while it is opened.
        let mut arrivals = mem::replace(&mut self.arrivals, Arrivals::none());
        let Self { endpoint, rng, .. } = self;
        let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng };
        let verdict = match arrivals.join(now, fragment, &mut unlocked) {
            Joined::Held => CONSUMED,
            Joined::Dropped => DROPPED,
            Joined::Whole(mut whole) => match self.open(now, &mut whole, place) {
                Opened::Clear | Opened::Here => lend(whole.data_mut(), place),
                Opened::Done(verdict) => verdict,
            },
        };
        self.arrivals = arrivals;
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
            Inbound::ReassembleOpened(via) => {
                return Opened::Done(self.put_together(now, via, packet.data(), place));
            }
            Inbound::Consumed(_) => return Opened::Done(CONSUMED),
            Inbound::Drop(_) | Inbound::Reassemble => return Opened::Done(DROPPED),
        };
        if is_opened { Opened::Here } else { Opened::Clear }
    }

    /// Keeps a fragment that an SA delivered. They are not left to the stack's reassembly, where they would meet fragments
    /// in clear (RFC 4301 section 7.4).
    fn put_together(&mut self, now: Instant, via: Via, fragment: &[u8], place: &mut PacketRef) -> i32 {
        let Self { endpoint, rng, opened, .. } = self;
        let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng };
        match opened.join(now, via, fragment, &mut unlocked) {
            Joined::Held => CONSUMED,
            Joined::Dropped => DROPPED,
            Joined::Whole((mut whole, _)) => lend(whole.data_mut(), place),
        }
    }

    /// Drops datagrams whose fragments did not come in time.
    fn expire(&mut self, now: Instant) {
        let Self { endpoint, rng, arrivals, opened, .. } = self;
        let mut unlocked = Unlocked { datapath: endpoint.datapath_mut(), rng };
        arrivals.expire(now, &mut unlocked);
        opened.expire(now, &mut unlocked);
    }

    /// Cuts a packet into pieces of at most `mtu` bytes and calls `emit` with each.
    ///
    /// # Safety
    ///
    /// `emit` may be called with `context`, and does not call this host.
    pub(crate) unsafe fn cut(
        &mut self,
        packet: &[u8],
        mtu: usize,
        emit: Emit,
        context: *mut c_void,
    ) -> Result<(), Code> {
        let cut = self.outbound.cut(mtu.min(self.fragment.len()));
        let mut fragments = cut.pieces(packet).map_err(|_| Code::Cut)?;
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
