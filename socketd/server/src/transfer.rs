//! Requests that transfer data.

use crate::session::RequestContext;
use crate::session::{Entry, SocketTable};
use crate::sockets;
use casemate_socketd_protocol::{
    Error, Readiness, RequestId, Response, ServerChannel, SocketId, Transport, Violation,
};
use casemate_wire::invariant::OrBroken;
use core::net::SocketAddr;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{RecvError, Socket, State};
use smoltcp::socket::udp;
use smoltcp::wire::{IpAddress, IpEndpoint};

/// Outcome of an attempt to process a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A response without data, which the caller sends.
    Response(Result<Response, Error>),
    /// A response with data was sent.
    Sent,
}

impl From<Result<Response, Error>> for Outcome {
    fn from(response: Result<Response, Error>) -> Self {
        Self::Response(response)
    }
}

/// Returns the socket of an established connection. Returns [`Error::WouldBlock`] while the connection is
/// being established, and an error if that failed.
fn established(
    table: &mut SocketTable,
    context: &RequestContext<'_>,
    id: SocketId,
) -> Result<SocketHandle, Error> {
    let Entry::Tcp { socket, established } = table.get(id)? else { return Err(Error::WrongKind) };
    if !*established {
        match context.sockets.get::<Socket<'_>>(*socket).state() {
            State::SynSent | State::SynReceived => return Err(Error::WouldBlock),
            State::Closed => return Err(Error::ConnectionRefused),
            _ => *established = true,
        }
    }
    Ok(*socket)
}

/// Accepts the next connection of a listening socket.
pub(crate) fn accept(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    id: SocketId,
) -> Result<Response, Error> {
    let Entry::Listener { endpoint, backlog } = table.get(id)? else { return Err(Error::WrongKind) };
    let endpoint = *endpoint;
    relisten(context, endpoint, backlog);
    let peers = backlog.iter().map(|socket| peer_of_connection(context.sockets.get(*socket)));
    let found = peers.enumerate().find_map(|(index, peer)| Some((index, peer?)));
    let (index, peer) = found.ok_or(Error::WouldBlock)?;
    // Another socket must take its place in the backlog. If that is not possible, the connection waits.
    let next = sockets::add_listener(table, context, endpoint, 0)?;
    let Entry::Listener { backlog, .. } = table.get(id)? else { return Err(Error::WrongKind) };
    let found = backlog.get_mut(index).or_report("the backlog keeps its length");
    let found = found.ok_or(Error::WouldBlock)?;
    let accepted = core::mem::replace(found, next);
    sockets::set_established(context.sockets.get_mut::<Socket<'_>>(accepted));
    let socket = table.insert(Entry::Tcp { socket: accepted, established: true });
    Ok(Response::Accepted { socket, peer: address(peer) })
}

/// Lets backlog sockets listen again whose connections ended before they were accepted.
fn relisten(
    context: &mut RequestContext<'_>,
    endpoint: smoltcp::wire::IpListenEndpoint,
    backlog: &[SocketHandle],
) {
    for socket in backlog {
        let socket = context.sockets.get_mut::<Socket<'_>>(*socket);
        if socket.state() == State::Closed {
            socket.listen(endpoint).or_report("a closed socket can listen on a port other than 0");
        }
    }
}

/// Returns the remote endpoint of a connection that is established or was.
fn peer_of_connection(socket: &Socket<'_>) -> Option<IpEndpoint> {
    match socket.state() {
        State::Listen | State::SynReceived | State::Closed => None,
        _ => socket.remote_endpoint(),
    }
}

fn address(endpoint: IpEndpoint) -> SocketAddr {
    SocketAddr::new(endpoint.addr.into(), endpoint.port)
}

/// Sends data over a connection.
pub(crate) fn send<T: Transport>(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    channel: &ServerChannel<T>,
    id: SocketId,
    len: usize,
) -> Result<Response, Error> {
    let socket = established(table, context, id)?;
    let socket = context.sockets.get_mut::<Socket<'_>>(socket);
    let mut sent = 0usize;
    // Twice: the free space of the ring buffer may be in two parts.
    for _ in 0..2 {
        let taken = socket.send(|room| {
            let room = room.get_mut(..room.len().min(len.saturating_sub(sent))).unwrap_or_default();
            let count = channel.read_data(sent, room);
            (count, count)
        });
        let error =
            if socket.state() == State::Closed { Error::ConnectionReset } else { Error::WriteShutDown };
        sent = sent.saturating_add(taken.map_err(|_| error)?);
    }
    if sent == 0 && len > 0 {
        return Err(Error::WouldBlock);
    }
    Ok(Response::Sent { bytes: u32::try_from(sent).unwrap_or(u32::MAX) })
}

/// Sends a datagram.
pub(crate) fn send_to<T: Transport>(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    channel: &ServerChannel<T>,
    id: SocketId,
    to: SocketAddr,
    len: usize,
) -> Result<Response, Error> {
    let Entry::Udp { socket } = table.get(id)? else { return Err(Error::WrongKind) };
    let local = context.sockets.get::<udp::Socket<'_>>(*socket).endpoint().addr;
    let to = IpEndpoint::from(to);
    let from = match local {
        // smoltcp panics if the IP versions differ.
        Some(local) if local.version() == to.addr.version() => local,
        Some(_) => return Err(Error::NoRoute),
        None => sockets::source_address(context, to.addr)?,
    };
    let socket = context.sockets.get_mut::<udp::Socket<'_>>(*socket);
    if len > socket.payload_send_capacity() || len > longest_datagram(to.addr) {
        return Err(Error::TooLong);
    }
    let mut metadata = udp::UdpMetadata::from(to);
    metadata.local_address = Some(from);
    match socket.send(len, metadata) {
        Ok(room) => {
            let bytes = channel.read_data(0, room);
            Ok(Response::Sent { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) })
        }
        Err(udp::SendError::BufferFull) => Err(Error::WouldBlock),
        Err(udp::SendError::Unaddressable) => Err(Error::NoRoute),
    }
}

/// Maximum payload of a datagram: 65,535 bytes less the IP and UDP headers. IPv6 does not count its local
/// header.
const fn longest_datagram(to: IpAddress) -> usize {
    match to {
        IpAddress::Ipv4(_) => 65_535 - 20 - 8,
        IpAddress::Ipv6(_) => 65_535 - 8,
    }
}

/// Receives data from a connection, or a datagram. The length is limited by `max_len` and by the room in the
/// response ring.
pub(crate) fn receive<T: Transport>(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    channel: &mut ServerChannel<T>,
    request: RequestId,
    socket: SocketId,
    max_len: usize,
) -> Result<Outcome, Violation> {
    match table.get(socket) {
        Ok(Entry::Tcp { .. }) => {}
        Ok(Entry::Udp { socket: udp }) => {
            let max_len = max_len.min(context.limits.rings.max_response_data());
            return receive_datagram(context.sockets.get_mut(*udp), channel, request, max_len);
        }
        Ok(Entry::Listener { .. }) => return Ok(Err(Error::WrongKind).into()),
        Err(error) => return Ok(Err(error).into()),
    }
    let socket = match established(table, context, socket) {
        Ok(socket) => context.sockets.get_mut::<Socket<'_>>(socket),
        Err(error) => return Ok(Err(error).into()),
    };
    let Some(room) = channel.response_room(1)? else { return Ok(Err(Error::WouldBlock).into()) };
    let max_len = max_len.min(room);
    let mut outcome = Ok(Outcome::Response(Err(Error::WouldBlock)));
    let received = socket.recv(|data| {
        let data = data.get(..data.len().min(max_len)).unwrap_or_default();
        if data.is_empty() {
            return (0, ());
        }
        outcome = send_data(channel, request, None, data);
        (if outcome.is_ok() { data.len() } else { 0 }, ())
    });
    match received {
        Ok(()) => outcome,
        // The end of the stream: no data.
        Err(RecvError::Finished) => Ok(Ok(Response::Received { from: None }).into()),
        Err(RecvError::InvalidState) => Ok(Err(Error::ConnectionReset).into()),
    }
}

fn receive_datagram<T: Transport>(
    socket: &mut udp::Socket<'_>,
    channel: &mut ServerChannel<T>,
    id: RequestId,
    max_len: usize,
) -> Result<Outcome, Violation> {
    let Ok(len) = socket.peek().map(|(data, _)| data.len().min(max_len)) else {
        return Ok(Err(Error::WouldBlock).into());
    };
    // The datagram stays in the socket until the response ring has room for all of it.
    if channel.response_room(len)?.is_none() {
        return Ok(Err(Error::WouldBlock).into());
    }
    match socket.recv() {
        Ok((data, metadata)) => {
            let data = data.get(..len).or_broken_default("the socket returns the datagram that it has shown");
            send_data(channel, id, Some(address(metadata.endpoint)), data)
        }
        Err(_) => Ok(Err(Error::WouldBlock).into()),
    }
}

/// Sends a response with received data.
fn send_data<T: Transport>(
    channel: &mut ServerChannel<T>,
    id: RequestId,
    from: Option<SocketAddr>,
    data: &[u8],
) -> Result<Outcome, Violation> {
    let response = Ok(Response::Received { from });
    crate::session::send_response(channel, id, response, data).map(|()| Outcome::Sent)
}

/// Closes the sending direction of a connection.
pub(crate) fn shutdown_write(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    id: SocketId,
) -> Result<Response, Error> {
    let socket = established(table, context, id)?;
    context.sockets.get_mut::<Socket<'_>>(socket).close();
    Ok(Response::Done)
}

/// Tests the conditions in `interest`.
pub(crate) fn poll(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    id: SocketId,
    interest: Readiness,
) -> Result<Response, Error> {
    let ready = match table.get(id)? {
        Entry::Listener { endpoint, backlog } => {
            let endpoint = *endpoint;
            relisten(context, endpoint, backlog);
            let read =
                backlog.iter().any(|socket| peer_of_connection(context.sockets.get(*socket)).is_some());
            Readiness { read, write: false }
        }
        Entry::Tcp { .. } => {
            let socket = established(table, context, id)?;
            let socket = context.sockets.get::<Socket<'_>>(socket);
            Readiness {
                read: socket.can_recv() || !socket.may_recv(),
                write: socket.can_send() || !socket.may_send(),
            }
        }
        Entry::Udp { socket } => {
            let socket = context.sockets.get::<udp::Socket<'_>>(*socket);
            // Only an empty buffer is certain to have room for a datagram of any length.
            Readiness { read: socket.can_recv(), write: socket.send_queue() == 0 }
        }
    };
    let wanted = Readiness { read: ready.read && interest.read, write: ready.write && interest.write };
    if wanted == Readiness::default() { Err(Error::WouldBlock) } else { Ok(Response::Ready(wanted)) }
}
