//! The session of one application: its request queue, its socket table, and its waiting requests.

use crate::server::{Counters, Limits, PortGrant};
use crate::sockets::{self, EphemeralPorts, Protocol};
use crate::transfer::{self, Outcome};
use alloc::vec::Vec;
use casemate_socketd_protocol::{
    Error, PushError, Request, RequestId, Response, ServerChannel, SocketId, Transport, Violation,
};
use casemate_wire::invariant::OrBroken;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::IpListenEndpoint;

/// Context of a request: everything outside of the session.
pub(crate) struct RequestContext<'a> {
    pub(crate) now: Instant,
    pub(crate) interface: &'a mut Interface,
    pub(crate) sockets: &'a mut SocketSet<'static>,
    pub(crate) ports: &'a mut EphemeralPorts,
    pub(crate) limits: &'a Limits,
    pub(crate) grant: &'a PortGrant,
}

/// A request whose condition is not met yet.
#[derive(Debug, Clone, Copy)]
struct WaitingRequest {
    id: RequestId,
    request: Request,
}

/// One application with its rings, its sockets and its waiting requests.
pub(crate) struct ClientSession<T> {
    channel: ServerChannel<T>,
    pub(crate) grant: PortGrant,
    pub(crate) table: SocketTable,
    waiting: Vec<WaitingRequest>,
}

impl<T: Transport> ClientSession<T> {
    pub(crate) fn new(transport: T, grant: PortGrant, limits: &Limits) -> Result<Self, Violation> {
        let channel = ServerChannel::new(transport, limits.rings)?;
        Ok(Self { channel, grant, table: SocketTable::default(), waiting: Vec::new() })
    }

    pub(crate) const fn transport(&self) -> &T {
        self.channel.transport()
    }

    /// Retries waiting requests, then processes new ones, at most `limits.requests_per_round`. Returns
    /// true if more requests may be available.
    pub(crate) fn serve(
        &mut self,
        context: &mut RequestContext<'_>,
        counters: &mut Counters,
    ) -> Result<bool, Violation> {
        sockets::remove_closed(&mut self.table, context);
        self.retry_waiting(context)?;
        let mut more = true;
        for _ in 0..context.limits.requests_per_round {
            // No room for a response: the application does not read its ring. Process nothing.
            if !self.channel.has_room_for_responses(1)? || !self.process_next(context, counters)? {
                more = false;
                break;
            }
        }
        self.channel.notify_client();
        Ok(more)
    }

    fn retry_waiting(&mut self, context: &mut RequestContext<'_>) -> Result<(), Violation> {
        let mut index = 0;
        while let Some(waiting) = self.waiting.get(index).copied() {
            if !self.channel.has_room_for_responses(1)? {
                return Ok(());
            }
            match self.process(waiting.id, waiting.request, 0, context)? {
                Outcome::Response(Err(Error::WouldBlock)) => index = index.saturating_add(1),
                Outcome::Response(response) => {
                    send_response(&mut self.channel, waiting.id, response, &[])?;
                    self.waiting.remove(index);
                }
                Outcome::Sent => drop(self.waiting.remove(index)),
            }
        }
        Ok(())
    }

    /// Processes the next request. Returns false if there is none, or no room for its second response.
    fn process_next(
        &mut self,
        context: &mut RequestContext<'_>,
        counters: &mut Counters,
    ) -> Result<bool, Violation> {
        let Some(received) = self.channel.peek_request()? else { return Ok(false) };
        // The request that it cancels gets a response too.
        let is_cancel = matches!(received.request, Ok(Request::Cancel { .. }));
        if is_cancel && !self.channel.has_room_for_responses(2)? {
            return Ok(false);
        }
        counters.requests = counters.requests.saturating_add(1);
        let id = received.id;
        let response = match received.request {
            Ok(request) => match self.process(id, request, received.len, context)? {
                Outcome::Response(Err(Error::WouldBlock)) if may_wait(&request) => {
                    self.wait(id, request, context.limits)
                }
                Outcome::Response(response) => Some(response),
                Outcome::Sent => None,
            },
            Err(error) => Some(Err(error)),
        };
        self.channel.pop_request()?;
        if let Some(response) = response {
            if response.is_err_and(|error| error != Error::WouldBlock) {
                counters.failed = counters.failed.saturating_add(1);
            }
            send_response(&mut self.channel, id, response, &[])?;
        }
        Ok(true)
    }

    /// Queues a request until its condition is met. Returns the response if the queue is full.
    fn wait(&mut self, id: RequestId, request: Request, limits: &Limits) -> Option<Result<Response, Error>> {
        if self.waiting.len() >= limits.waiting_requests || self.waiting.try_reserve(1).is_err() {
            return Some(Err(Error::TooManyRequests));
        }
        self.waiting.push(WaitingRequest { id, request });
        None
    }

    fn process(
        &mut self,
        id: RequestId,
        request: Request,
        len: usize,
        context: &mut RequestContext<'_>,
    ) -> Result<Outcome, Violation> {
        let Self { channel, table, .. } = self;
        Ok(match request {
            Request::Listen { local, port, backlog } => sockets::listen(table, context, local, port, backlog),
            Request::Connect { remote } => sockets::connect(table, context, remote),
            Request::Bind { local, port } => sockets::bind(table, context, local, port),
            Request::Accept { socket, .. } => transfer::accept(table, context, socket),
            Request::Send { socket } => transfer::send(table, context, channel, socket, len),
            Request::SendTo { socket, to } => transfer::send_to(table, context, channel, socket, to, len),
            Request::Receive { socket, max_len, .. } => {
                return transfer::receive(table, context, channel, id, socket, max_len as usize);
            }
            Request::ShutdownWrite { socket } => transfer::shutdown_write(table, context, socket),
            Request::Close { socket } => sockets::close(table, context, socket),
            Request::Poll { socket, interest, .. } => transfer::poll(table, context, socket, interest),
            Request::Cancel { request } => {
                self.cancel(request)?;
                Ok(Response::Done)
            }
        }
        .into())
    }

    fn cancel(&mut self, request: RequestId) -> Result<(), Violation> {
        let Some(index) = self.waiting.iter().position(|waiting| waiting.id == request) else {
            return Ok(());
        };
        self.waiting.remove(index);
        send_response(&mut self.channel, request, Err(Error::Cancelled), &[])
    }
}

const fn may_wait(request: &Request) -> bool {
    matches!(
        request,
        Request::Accept { wait: true, .. }
            | Request::Receive { wait: true, .. }
            | Request::Poll { wait: true, .. }
    )
}

/// Sends a response. The caller has checked for room. If there is none now, the application has moved its
/// read position back.
pub(crate) fn send_response<T: Transport>(
    channel: &mut ServerChannel<T>,
    id: RequestId,
    response: Result<Response, Error>,
    data: &[u8],
) -> Result<(), Violation> {
    channel.send_response(id, response, data).map_err(|error| match error {
        PushError::Violation(violation) => violation,
        PushError::Full | PushError::TooLong => Violation::Position,
    })
}

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

/// The sockets of an application that has ended, by protocol.
#[derive(Debug, Default)]
pub(crate) struct RemovedSockets {
    pub(crate) tcp: Vec<SocketHandle>,
    pub(crate) udp: Vec<SocketHandle>,
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

    /// Adds an entry and returns its ID. There are at most 65,536 entries, because [`Limits`] counts sockets
    /// in 16 bits.
    pub(crate) fn insert(&mut self, entry: Entry) -> SocketId {
        let free = self.slots.iter().position(|slot| slot.entry.is_none());
        let index = free.unwrap_or(self.slots.len());
        if free.is_none() {
            self.slots.push(Slot::default());
        }
        let mut generation = 0;
        if let Some(slot) = self.slots.get_mut(index).or_report("the slot is free or new") {
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

    /// Removes everything.
    pub(crate) fn drain(&mut self) -> RemovedSockets {
        let RemovedSockets { mut tcp, mut udp } = RemovedSockets::default();
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
        RemovedSockets { tcp, udp }
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
        assert_eq!(table.drain().udp.len(), 2);
        assert_eq!(table.sockets(), 0);
    }
}
