//! What one system call brings: datagrams, and trains of datagrams of one length.
//!
//! The kernel writes the datagrams of a train one behind the other into as many buffers as it is given. If their length is known
//! before, each comes to lie in a buffer of its own and is not copied once more. So it is foreseen that they are as long as the last
//! ones. What is not as it was foreseen, and all that came after it, is moved to a place where it waits to be parted.

use crate::BATCH;
use crate::buffers::{Buffers, MAX_PACKET};
use crate::sys::{self, Meta};
use arrayvec::ArrayVec;
use casemate_datapath::HEAD_ROOM;
use socket2::Socket;
use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

/// Messages that one system call brings, each a datagram or a train.
const PLACES: usize = 32;
/// Fewer are not worth a system call.
const LEAST: usize = 4;
/// Buffers for one train at most: two have to find room in a batch.
const MOST_WAGONS: usize = BATCH / 2;
/// After so many system calls without a train none is foreseen.
const SINGLES: usize = 16;

/// Where datagrams lie.
pub(super) type Spots = ArrayVec<Spot, BATCH>;

/// Where a datagram lies, and which message it is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spot {
    pub(super) buffer: usize,
    pub(super) len: usize,
    pub(super) place: usize,
}

/// What one system call brought.
pub(super) struct Inbox {
    /// A place for each message that waits to be parted.
    bytes: Box<[u8]>,
    metas: Box<[Meta; PLACES]>,
    lens: [usize; PLACES],
    /// How many came, and the first that was not taken out whole.
    count: usize,
    index: usize,
    /// How much was taken out of that one.
    at: usize,
    /// How many messages the next system call brings at most: about as many as there may be, for each takes preparations.
    most: usize,
    /// How long the datagrams of trains are, if any are foreseen.
    wagon: Option<usize>,
    /// How many system calls brought no train since one did.
    without: usize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; MAX_PACKET * PLACES].into_boxed_slice(),
            metas: Box::new([Meta::new(); PLACES]),
            lens: [0; PLACES],
            count: 0,
            index: 0,
            at: 0,
            most: LEAST,
            wagon: None,
            without: 0,
        }
    }

    pub(super) fn has_more(&self) -> bool {
        self.index < self.count
    }

    /// What the kernel said of the message in a place.
    pub(super) fn meta(&self, place: usize) -> Option<&Meta> {
        self.metas.get(place)
    }

    /// Receives into the inbox; answers whether more may wait in the socket.
    pub(super) fn fill(&mut self, socket: &Socket) -> io::Result<bool> {
        (self.count, self.index, self.at) = (0, 0, 0);
        let offered = self.most;
        let places = self.bytes.chunks_exact_mut(MAX_PACKET).take(offered);
        let mut vectors: ArrayVec<IoSliceMut<'_>, PLACES> = places.map(IoSliceMut::new).collect();
        self.count =
            sys::receive_batch(socket.as_fd(), &mut vectors, 1, Some(&mut *self.metas), &mut self.lens)?;
        drop(vectors);
        Ok(self.note(offered))
    }

    /// Receives into the buffers, and into the inbox what did not come as it was foreseen; answers whether more may wait in the socket.
    pub(super) fn land(
        &mut self,
        socket: &Socket,
        buffers: &mut Buffers,
        spots: &mut Spots,
    ) -> io::Result<bool> {
        (self.count, self.index, self.at) = (0, 0, 0);
        let (wagons, room) = self.foreseen();
        let offered = (BATCH / wagons).min(self.most);
        let chunks = buffers.chunks(0).take(offered.saturating_mul(wagons));
        let slots = chunks.filter_map(|chunk| chunk.get_mut(HEAD_ROOM..HEAD_ROOM.saturating_add(room)));
        let mut vectors: ArrayVec<IoSliceMut<'_>, BATCH> = slots.map(IoSliceMut::new).collect();
        self.count =
            sys::receive_batch(socket.as_fd(), &mut vectors, wagons, Some(&mut *self.metas), &mut self.lens)?;
        drop(vectors);
        while self.has_more() && self.lands(wagons, room, spots) {
            self.index = self.index.saturating_add(1);
        }
        for place in self.index..self.count {
            self.gather(buffers, place, (wagons, room));
        }
        Ok(self.note(offered))
    }

    /// How many buffers a message gets, and how long each is. Together they hold every message.
    fn foreseen(&self) -> (usize, usize) {
        self.wagon.map_or((1, MAX_PACKET), |len| (MAX_PACKET.div_ceil(len), len))
    }

    /// Whether the first message that was not looked at has come as it was foreseen; then its datagrams are where they belong.
    fn lands(&self, wagons: usize, room: usize, spots: &mut Spots) -> bool {
        let (place, first) = (self.index, self.index.saturating_mul(wagons));
        let Some(Message { len, wagon }) = self.message(place) else { return false };
        if len > wagon && wagon != room || len > wagon.saturating_mul(wagons) || wagon > room {
            return false;
        }
        let lens = (0..len.div_ceil(wagon.max(1)).max(1))
            .map(|at| len.saturating_sub(at.saturating_mul(wagon)).min(wagon));
        spots.extend((first..).zip(lens).take(spots.remaining_capacity()).map(|(buffer, len)| Spot {
            buffer,
            len,
            place,
        }));
        true
    }

    /// Moves a message from the buffers to its place in the inbox.
    fn gather(&mut self, buffers: &mut Buffers, place: usize, (wagons, room): (usize, usize)) {
        let len = self.lens.get(place).copied().unwrap_or(0);
        let start = place.saturating_mul(MAX_PACKET);
        let out = self.bytes.get_mut(start..start.saturating_add(len)).unwrap_or_default();
        for (out, chunk) in out.chunks_mut(room).zip(buffers.chunks(place.saturating_mul(wagons))) {
            let piece = chunk.get(HEAD_ROOM..).and_then(|piece| piece.get(..out.len()));
            out.copy_from_slice(piece.unwrap_or_default());
        }
    }

    /// Learns from what came; answers whether more may wait.
    fn note(&mut self, offered: usize) -> bool {
        let came = (0..self.count).filter_map(|place| self.message(place));
        let mut datagrams = 0usize;
        let mut train = None;
        for Message { len, wagon } in came {
            datagrams = datagrams.saturating_add(len.div_ceil(wagon.max(1)));
            train = if len > wagon { Some(wagon) } else { train };
        }
        let is_full = self.count == offered;
        // A few small ones do not mean that there are more, wherever they were expected to be trains.
        let may_be_more = is_full && (self.wagon.is_none() || datagrams >= PLACES);
        self.without = if train.is_some() { 0 } else { self.without.saturating_add(1) };
        if train.is_some() || self.without >= SINGLES {
            self.wagon = train.filter(|len| MAX_PACKET.div_ceil(*len) <= MOST_WAGONS);
        }
        // As many datagrams as a batch takes, if they are as they were.
        let wanted = BATCH.saturating_mul(self.count).checked_div(datagrams).unwrap_or(LEAST);
        let used = self.count.saturating_mul(2).max(LEAST);
        self.most = wanted.min(used).clamp(1, PLACES);
        may_be_more
    }

    fn message(&self, place: usize) -> Option<Message> {
        let (len, meta) = (*self.lens.get(place)?, self.metas.get(place)?);
        Some(Message { len, wagon: meta.train_size().unwrap_or(len) })
    }

    /// Copies datagrams that wait in the inbox to the buffers behind those in `spots`, until these hold `room` bytes.
    pub(super) fn hand_out(&mut self, buffers: &mut Buffers, room: usize, spots: &mut Spots) {
        let mut bytes = 0usize;
        let first = spots.last().map_or(0, |spot| spot.buffer.saturating_add(1));
        for (buffer, chunk) in (first..).zip(buffers.chunks(first)) {
            if bytes >= room || spots.is_full() {
                break;
            }
            let Some((datagram, place)) = self.next() else { break };
            let Some(out) = chunk.get_mut(HEAD_ROOM..).and_then(|out| out.get_mut(..datagram.len())) else {
                continue;
            };
            out.copy_from_slice(datagram);
            bytes = bytes.saturating_add(datagram.len());
            spots.push(Spot { buffer, len: datagram.len(), place });
        }
    }

    /// Takes out the next datagram; answers it and its place.
    fn next(&mut self) -> Option<(&[u8], usize)> {
        if !self.has_more() {
            return None;
        }
        let place = self.index;
        let Message { len, wagon } = self.message(place)?;
        let came = self.bytes.chunks_exact(MAX_PACKET).nth(place)?.get(..len)?;
        let end = self.at.saturating_add(wagon.max(1)).min(len);
        let datagram = came.get(self.at..end)?;
        (self.index, self.at) = if end < len { (place, end) } else { (place.saturating_add(1), 0) };
        Some((datagram, place))
    }
}

#[cfg(test)]
impl Inbox {
    /// Makes it seen whether something is copied here.
    pub(super) fn mark(&mut self) {
        self.bytes.fill(0xee);
    }

    pub(super) fn is_marked(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0xee)
    }
}

/// A message of so many bytes, in datagrams of so many each but for the last, which may be shorter.
struct Message {
    len: usize,
    wagon: usize,
}
