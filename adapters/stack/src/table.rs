//! The sockets of one application.

use crate::ports::Protocol;
use alloc::vec::Vec;
use casemate_rings::{Error, Handle};
use smoltcp::iface::SocketHandle;
use smoltcp::time::Instant;
use smoltcp::wire::IpListenEndpoint;

/// What a handle stands for.
#[derive(Debug)]
pub(crate) enum Entry {
    /// Sockets that listen at the same place; smoltcp knows no backlog.
    Listener { at: IpListenEndpoint, backlog: Vec<SocketHandle> },
    /// A TCP connection. It is not established at first.
    Stream { socket: SocketHandle, established: bool },
    /// A UDP socket.
    Datagrams { socket: SocketHandle },
}

/// A socket that nobody has a handle of any more, and until when it may take to close.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closing {
    pub(crate) socket: SocketHandle,
    pub(crate) protocol: Protocol,
    pub(crate) until: Instant,
}

#[derive(Debug, Default)]
struct Slot {
    /// Changes each time the place is used again.
    generation: u16,
    entry: Option<Entry>,
}

/// Handles, and sockets that are being closed.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    pub(crate) closing: Vec<Closing>,
}

impl Table {
    /// Sockets of the stack that it stands for.
    pub(crate) fn sockets(&self) -> usize {
        let entries = self.slots.iter().filter_map(|slot| slot.entry.as_ref());
        let open: usize = entries
            .map(|entry| match entry {
                Entry::Listener { backlog, .. } => backlog.len(),
                Entry::Stream { .. } | Entry::Datagrams { .. } => 1,
            })
            .sum();
        open.saturating_add(self.closing.len())
    }

    /// A handle for an entry. There are never more than 65,536, because [`Limits`](crate::Limits) counts sockets in 16 bits.
    pub(crate) fn insert(&mut self, entry: Entry) -> Handle {
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
        Handle(u32::from(generation) << 16 | (index as u32 & 0xFFFF))
    }

    fn slot(&mut self, handle: Handle) -> Option<&mut Slot> {
        let slot = self.slots.get_mut((handle.0 & 0xFFFF) as usize)?;
        (u32::from(slot.generation) == handle.0 >> 16).then_some(slot)
    }

    /// What a handle stands for.
    pub(crate) fn get(&mut self, handle: Handle) -> Result<&mut Entry, Error> {
        self.slot(handle).and_then(|slot| slot.entry.as_mut()).ok_or(Error::NoSocket)
    }

    /// Takes an entry out; its handle means nothing any more.
    pub(crate) fn remove(&mut self, handle: Handle) -> Result<Entry, Error> {
        let slot = self.slot(handle).ok_or(Error::NoSocket)?;
        let entry = slot.entry.take().ok_or(Error::NoSocket)?;
        slot.generation = slot.generation.wrapping_add(1);
        Ok(entry)
    }

    /// Takes everything out: the TCP sockets, and the UDP sockets.
    pub(crate) fn drain(&mut self) -> (Vec<SocketHandle>, Vec<SocketHandle>) {
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for entry in self.slots.drain(..).filter_map(|slot| slot.entry) {
            match entry {
                Entry::Listener { backlog, .. } => tcp.extend(backlog),
                Entry::Stream { socket, .. } => tcp.push(socket),
                Entry::Datagrams { socket } => udp.push(socket),
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
        Entry::Datagrams { socket: SocketHandle::default() }
    }

    #[test]
    fn a_handle_means_one_socket_and_never_the_next() {
        let mut table = Table::default();
        let (first, second) = (table.insert(entry()), table.insert(entry()));
        assert!(table.get(first).is_ok() && table.get(second).is_ok());
        assert_eq!(table.sockets(), 2);
        assert!(table.remove(first).is_ok());
        assert_eq!(table.get(first).err(), Some(Error::NoSocket));
        assert_eq!(table.remove(first).err(), Some(Error::NoSocket));
        let third = table.insert(entry());
        assert_eq!(third.0 & 0xFFFF, first.0 & 0xFFFF, "the place is used again");
        assert!(third != first && table.get(third).is_ok());
        assert_eq!(table.get(first).err(), Some(Error::NoSocket));
        for wrong in [u32::MAX, 2, 0xFFFF, 1 << 31, second.0 | 1 << 16] {
            assert_eq!(table.get(Handle(wrong)).err(), Some(Error::NoSocket), "{wrong}");
        }
        assert_eq!(table.drain().1.len(), 2);
        assert_eq!(table.sockets(), 0);
    }
}
