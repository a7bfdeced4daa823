//! A packet on its way through modules, in a buffer of its own that is handed on and never copied.

use casemate_datapath::{HEAD_ROOM, Opening, Sealing, TAIL_ROOM};
use casemate_wire::packet::Packet;
use std::io;

/// The longest packet that an interface or the other end gives.
const LONGEST: usize = 2_048;

/// What one module leaves to the next.
pub(super) enum Work {
    Nothing,
    Sealing(Box<Sealing>),
    Opening(Box<Opening>),
}

/// STREAMS called it a message: a block of data, and what is known of it.
pub(super) struct Message {
    storage: Vec<u8>,
    start: usize,
    len: usize,
    pub(super) work: Work,
}

impl Message {
    /// Without a packet.
    pub(super) fn new() -> Self {
        Self {
            storage: vec![0; HEAD_ROOM + LONGEST + TAIL_ROOM],
            start: HEAD_ROOM,
            len: 0,
            work: Work::Nothing,
        }
    }

    /// Puts the packet in that `read` gives, with room around it.
    pub(super) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<()> {
        let room = self.storage.get_mut(HEAD_ROOM..HEAD_ROOM + LONGEST).unwrap_or_default();
        (self.start, self.len) = (HEAD_ROOM, read(room)?);
        Ok(())
    }

    /// The packet.
    pub(super) fn data(&self) -> &[u8] {
        self.storage.get(self.start..).and_then(|rest| rest.get(..self.len)).unwrap_or_default()
    }

    /// Changes the packet, and what is left to the next module.
    pub(super) fn change<T>(&mut self, act: impl FnOnce(&mut [Packet<'_>; 1], &mut Work) -> T) -> Option<T> {
        let mut packets = [Packet::new(&mut self.storage, self.start, self.len)?];
        let answer = act(&mut packets, &mut self.work);
        let [packet] = &packets;
        (self.start, self.len) = (packet.head_room(), packet.len());
        Some(answer)
    }
}
