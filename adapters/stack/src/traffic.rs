//! Calls that move data.

use crate::open;
use crate::table::{Entry, Table};
use crate::world::World;
use casemate_rings::{Answer, Answerer, Error, Handle, Readiness, Tag, Transport, Violation};
use core::net::SocketAddr;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{RecvError, Socket, State};
use smoltcp::socket::udp;
use smoltcp::wire::{IpAddress, IpEndpoint};

/// How far an attempt at a call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// This is to be answered.
    Answer(Result<Answer, Error>),
    /// It has been answered, with data.
    Answered,
}

impl From<Result<Answer, Error>> for Attempt {
    fn from(answer: Result<Answer, Error>) -> Self {
        Self::Answer(answer)
    }
}

/// A TCP connection that stands. Until it does, there is something to wait for; if it never will, that is an error.
fn established(table: &mut Table, world: &World<'_>, handle: Handle) -> Result<SocketHandle, Error> {
    let Entry::Stream { socket, established } = table.get(handle)? else { return Err(Error::WrongKind) };
    if !*established {
        match world.sockets.get::<Socket<'_>>(*socket).state() {
            State::SynSent | State::SynReceived => return Err(Error::NotNow),
            State::Closed => return Err(Error::Refused),
            _ => *established = true,
        }
    }
    Ok(*socket)
}

/// The next connection of a listening socket.
pub(crate) fn accept(table: &mut Table, world: &mut World<'_>, handle: Handle) -> Result<Answer, Error> {
    let Entry::Listener { at, backlog } = table.get(handle)? else { return Err(Error::WrongKind) };
    let at = *at;
    renew(world, at, backlog);
    let waits = |socket: &SocketHandle| has_come(world.sockets.get(*socket));
    let place = backlog.iter().position(waits).ok_or(Error::NotNow)?;
    // One more listens in its place; without room for it the connection waits.
    let next = open::listening(table, world, at, 0)?;
    let Entry::Listener { backlog, .. } = table.get(handle)? else { return Err(Error::WrongKind) };
    let found = backlog.get_mut(place).ok_or(Error::NotNow)?;
    let accepted = core::mem::replace(found, next);
    let socket = world.sockets.get_mut::<Socket<'_>>(accepted);
    open::adopt(socket);
    let peer = socket.remote_endpoint().ok_or(Error::Reset)?;
    let socket = table.insert(Entry::Stream { socket: accepted, established: true });
    Ok(Answer::Accepted { socket, peer: address(peer) })
}

/// Lets sockets listen again whose connections have ended before somebody accepted them.
fn renew(world: &mut World<'_>, at: smoltcp::wire::IpListenEndpoint, backlog: &[SocketHandle]) {
    for socket in backlog {
        let socket = world.sockets.get_mut::<Socket<'_>>(*socket);
        if socket.state() == State::Closed {
            // The port is not 0, and a closed socket is not open.
            let _ = socket.listen(at);
        }
    }
}

fn has_come(socket: &Socket<'_>) -> bool {
    !matches!(socket.state(), State::Listen | State::SynReceived | State::Closed)
}

fn address(endpoint: IpEndpoint) -> SocketAddr {
    SocketAddr::new(endpoint.addr.into(), endpoint.port)
}

/// Data for a connection.
pub(crate) fn send<T: Transport>(
    table: &mut Table,
    world: &mut World<'_>,
    channel: &Answerer<T>,
    handle: Handle,
    len: usize,
) -> Result<Answer, Error> {
    let socket = established(table, world, handle)?;
    let socket = world.sockets.get_mut::<Socket<'_>>(socket);
    let mut sent = 0usize;
    // Twice: the buffer may have its room in two parts.
    for _ in 0..2 {
        let taken = socket.send(|room| {
            let room = room.get_mut(..room.len().min(len.saturating_sub(sent))).unwrap_or_default();
            let count = channel.data(sent, room);
            (count, count)
        });
        let gone = if socket.state() == State::Closed { Error::Reset } else { Error::Finished };
        sent = sent.saturating_add(taken.map_err(|_| gone)?);
    }
    if sent == 0 && len > 0 {
        return Err(Error::NotNow);
    }
    Ok(Answer::Sent { bytes: u32::try_from(sent).unwrap_or(u32::MAX) })
}

/// A datagram.
pub(crate) fn send_to<T: Transport>(
    table: &mut Table,
    world: &mut World<'_>,
    channel: &Answerer<T>,
    (handle, to): (Handle, SocketAddr),
    len: usize,
) -> Result<Answer, Error> {
    let Entry::Datagrams { socket } = table.get(handle)? else { return Err(Error::WrongKind) };
    let own = world.sockets.get::<udp::Socket<'_>>(*socket).endpoint().addr;
    let to = IpEndpoint::from(to);
    let from = match own {
        // smoltcp panics where the versions differ.
        Some(own) if own.version() == to.addr.version() => own,
        Some(_) => return Err(Error::NoRoute),
        None => open::source(world, to.addr)?,
    };
    let socket = world.sockets.get_mut::<udp::Socket<'_>>(*socket);
    if len > socket.payload_send_capacity() || len > longest_datagram(to.addr) {
        return Err(Error::TooLong);
    }
    let mut metadata = udp::UdpMetadata::from(to);
    metadata.local_address = Some(from);
    match socket.send(len, metadata) {
        Ok(room) => {
            let bytes = channel.data(0, room);
            Ok(Answer::Sent { bytes: u32::try_from(bytes).unwrap_or(u32::MAX) })
        }
        Err(udp::SendError::BufferFull) => Err(Error::NotNow),
        Err(udp::SendError::Unaddressable) => Err(Error::NoRoute),
    }
}

/// What IP and UDP leave of 65,535 bytes; IPv6 does not count its own header.
const fn longest_datagram(to: IpAddress) -> usize {
    match to {
        IpAddress::Ipv4(_) => 65_535 - 20 - 8,
        IpAddress::Ipv6(_) => 65_535 - 8,
    }
}

/// Data from a connection, or a datagram: no more than `most`, nor than there is room for.
pub(crate) fn receive<T: Transport>(
    table: &mut Table,
    world: &mut World<'_>,
    channel: &mut Answerer<T>,
    (tag, handle, most): (Tag, Handle, usize),
) -> Result<Attempt, Violation> {
    match table.get(handle) {
        Ok(Entry::Stream { .. }) => {}
        Ok(Entry::Datagrams { socket }) => {
            let most = most.min(world.limits.geometry.most_received());
            return receive_datagram(world.sockets.get_mut(*socket), channel, tag, most);
        }
        Ok(Entry::Listener { .. }) => return Ok(Err(Error::WrongKind).into()),
        Err(error) => return Ok(Err(error).into()),
    }
    let socket = match established(table, world, handle) {
        Ok(socket) => world.sockets.get_mut::<Socket<'_>>(socket),
        Err(error) => return Ok(Err(error).into()),
    };
    let Some(room) = channel.room(1)? else { return Ok(Err(Error::NotNow).into()) };
    let most = most.min(room);
    let mut done = Ok(Attempt::Answer(Err(Error::NotNow)));
    let received = socket.recv(|data| {
        let data = data.get(..data.len().min(most)).unwrap_or_default();
        if data.is_empty() {
            return (0, ());
        }
        done = put(channel, tag, None, data);
        (if done.is_ok() { data.len() } else { 0 }, ())
    });
    match received {
        Ok(()) => done,
        // The end: no more bytes.
        Err(RecvError::Finished) => Ok(Ok(Answer::Received { from: None }).into()),
        Err(RecvError::InvalidState) => Ok(Err(Error::Reset).into()),
    }
}

fn receive_datagram<T: Transport>(
    socket: &mut udp::Socket<'_>,
    channel: &mut Answerer<T>,
    tag: Tag,
    most: usize,
) -> Result<Attempt, Violation> {
    let Ok(len) = socket.peek().map(|(data, _)| data.len().min(most)) else {
        return Ok(Err(Error::NotNow).into());
    };
    // It stays where it is until all of it finds room.
    if channel.room(len)?.is_none() {
        return Ok(Err(Error::NotNow).into());
    }
    match socket.recv() {
        Ok((data, metadata)) => {
            let data = data.get(..len).unwrap_or_default();
            put(channel, tag, Some(address(metadata.endpoint)), data)
        }
        Err(_) => Ok(Err(Error::NotNow).into()),
    }
}

fn put<T: Transport>(
    channel: &mut Answerer<T>,
    tag: Tag,
    from: Option<SocketAddr>,
    data: &[u8],
) -> Result<Attempt, Violation> {
    let answer = Ok(Answer::Received { from });
    crate::application::answer(channel, tag, answer, data).map(|()| Attempt::Answered)
}

/// No more data over a connection.
pub(crate) fn finish(table: &mut Table, world: &mut World<'_>, handle: Handle) -> Result<Answer, Error> {
    let socket = established(table, world, handle)?;
    world.sockets.get_mut::<Socket<'_>>(socket).close();
    Ok(Answer::Done)
}

/// What a socket is ready for, if that is something that is asked for.
pub(crate) fn poll(
    table: &mut Table,
    world: &mut World<'_>,
    handle: Handle,
    interest: Readiness,
) -> Result<Answer, Error> {
    let ready = match table.get(handle)? {
        Entry::Listener { at, backlog } => {
            let at = *at;
            renew(world, at, backlog);
            let read = backlog.iter().any(|socket| has_come(world.sockets.get(*socket)));
            Readiness { read, write: false }
        }
        Entry::Stream { .. } => {
            let socket = established(table, world, handle)?;
            let socket = world.sockets.get::<Socket<'_>>(socket);
            Readiness {
                read: socket.can_recv() || !socket.may_recv(),
                write: socket.can_send() || !socket.may_send(),
            }
        }
        Entry::Datagrams { socket } => {
            let socket = world.sockets.get::<udp::Socket<'_>>(*socket);
            // Room for one of any length is certain only when all others have gone.
            Readiness { read: socket.can_recv(), write: socket.send_queue() == 0 }
        }
    };
    let wanted = Readiness { read: ready.read && interest.read, write: ready.write && interest.write };
    if wanted == Readiness::default() { Err(Error::NotNow) } else { Ok(Answer::Ready(wanted)) }
}
