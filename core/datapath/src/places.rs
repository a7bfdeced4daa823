//! Which packets a batch in flight is about: each of its steps is a call of its own, with the same packets.

use crate::esp::RUN;
use arrayvec::ArrayVec;
use casemate_wire::packet::Packet;

/// Where each packet of a batch lies, and how long it is. A packet must not pass under the verdict on another one.
pub(crate) struct Places(ArrayVec<Place, RUN>);

/// Address, for comparison only, and length.
type Place = (usize, usize);

impl Places {
    /// None yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self(ArrayVec::new())
    }

    /// Forgets all.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds those of the first [`RUN`] packets.
    #[inline]
    pub(crate) fn note(&mut self, packets: &[Packet<'_>]) {
        self.0.extend(packets.iter().take(RUN).map(place));
    }

    /// Whether these are the packets, all of them, in the same order.
    pub(crate) fn are_of(&self, packets: &[Packet<'_>]) -> bool {
        self.0.iter().copied().eq(packets.iter().map(place))
    }
}

fn place(packet: &Packet<'_>) -> Place {
    (packet.data().as_ptr().addr(), packet.len())
}
