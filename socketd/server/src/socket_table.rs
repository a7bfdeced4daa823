//! Socket table of one application.

use crate::sockets::Protocol;
use alloc::vec::Vec;
use casemate_socketd_protocol::{Error, SocketId};
use smoltcp::iface::SocketHandle;
use smoltcp::time::Instant;
use smoltcp::wire::IpListenEndpoint;

/// The object behind a socket ID.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Sockets that listen on the same endpoint. smoltcp has no backlog, so each entry is a socket.
    Listener { endpoint: IpListenEndpoint, backlog: Vec<SocketHandle> },
    /// A TCP connection, not established at first.
    Tcp { socket: SocketHandle, established: bool },
    /// A UDP socket.
    Udp { socket: SocketHandle },
}

/// A socket that the application has closed, and the time until which it may take to finish.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closing {
    pub(crate) socket: SocketHandle,
    pub(crate) protocol: Protocol,
    pub(crate) until: Instant,
}

#[derive(Debug, Default)]
struct Slot {
    /// Incremented each time the slot is reused.
    generation: u16,
    entry: Option<Entry>,
}

/// Socket IDs of an application, and its closing sockets.
#[derive(Debug, Default)]
pub(crate) struct SocketTable {
    slots: Vec<Slot>,
    pub(crate) closing: Vec<Closing>,
}

impl SocketTable {
    /// Returns the number of smoltcp sockets of the application.
    pub(crate) fn sockets(&self) -> usize {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        let open: usize = entries
            .map(|entry| match entry {
                Entry::Listener { backlog, .. } => backlog.len(),
                Entry::Tcp { .. } | Entry::Udp { .. } => 1,
            })
            .sum();
        open.saturating_add(self.closing.len())
    }

    /// Adds an entry and returns its ID. There are at most 65,536 entries, because
    /// [`Limits`](crate::Limits) counts sockets in 16 bits.
    pub(crate) fn insert(&mut self, entry: Entry) -> SocketId {
        let free = self.slots.iter().position(|slot| slot.entry.is_none());
        let index = free.unwrap_or(self.slots.len());
        if free.is_none() {
            self.slots.push(Slot::default());
        }
        let mut generation = 0;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.entry = Some(entry);
            generation = slot.generation;
        }
        SocketId(u32::from(generation) << 16 | (index as u32 & 0xFFFF))
    }

    fn slot(&mut self, id: SocketId) -> Option<&mut Slot> {
        let slot = self.slots.get_mut((id.0 & 0xFFFF) as usize)?;
        (u32::from(slot.generation) == id.0 >> 16).then_some(slot)
    }

    /// Returns the entry of an ID.
    pub(crate) fn get(&mut self, id: SocketId) -> Result<&mut Entry, Error> {
        self.slot(id).and_then(|slot| slot.entry.as_mut()).ok_or(Error::NoSocket)
    }

    /// Removes an entry; its ID becomes invalid.
    pub(crate) fn remove(&mut self, id: SocketId) -> Result<Entry, Error> {
        let slot = self.slot(id).ok_or(Error::NoSocket)?;
        let entry = slot.entry.take().ok_or(Error::NoSocket)?;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(entry)
    }

    /// Removes everything. Returns the TCP sockets and the UDP sockets.
    pub(crate) fn drain(&mut self) -> (Vec<SocketHandle>, Vec<SocketHandle>) {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for entry in self.slots.drain(..).filter_map(|slot| slot.entry) {
            match entry {
                Entry::Listener { backlog, .. } => tcp.extend(backlog),
                Entry::Tcp { socket, .. } => tcp.push(socket),
                Entry::Udp { socket } => udp.push(socket),
            }
        }
        for Closing { socket, protocol, .. } in self.closing.drain(..) {
            match protocol {
                Protocol::Tcp => tcp.push(socket),
                Protocol::Udp => udp.push(socket),
            }
        }
        (tcp, udp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry::Udp { socket: SocketHandle::default() }
    }

    #[test]
    fn a_socket_id_is_not_reused() {
        let mut table = SocketTable::default();
        let (first, second) = (table.insert(entry()), table.insert(entry()));
        assert!(table.get(first).is_ok() && table.get(second).is_ok());
        assert_eq!(table.sockets(), 2);
        assert!(table.remove(first).is_ok());
        assert_eq!(table.get(first).err(), Some(Error::NoSocket));
        assert_eq!(table.remove(first).err(), Some(Error::NoSocket));
        let third = table.insert(entry());
        assert_eq!(third.0 & 0xFFFF, first.0 & 0xFFFF, "the slot is reused");
        assert!(third != first && table.get(third).is_ok());
        assert_eq!(table.get(first).err(), Some(Error::NoSocket));
        for wrong in [u32::MAX, 2, 0xFFFF, 1 << 31, second.0 | 1 << 16] {
            assert_eq!(table.get(SocketId(wrong)).err(), Some(Error::NoSocket), "{wrong}");
        }
        assert_eq!(table.drain().1.len(), 2);
        assert_eq!(table.sockets(), 0);
    }
}
