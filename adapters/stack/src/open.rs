//! Calls that make sockets, and the end of sockets.

use crate::ports::{self, Protocol};
use crate::table::{Closing, Entry, Table};
use crate::world::World;
use alloc::vec::Vec;
use casemate_rings::{Answer, Error, Handle};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{CongestionControl, State};
use smoltcp::socket::{tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint, IpListenEndpoint};

/// How long a connection may be without an answer to what was sent, before it is given up. RFC 1122 section 4.2.3.5: at least
/// 100 seconds.
const SILENCE: Duration = Duration::from_secs(100);
/// The same for one that is not established and takes a place in a backlog.
const HALF_OPEN: Duration = Duration::from_secs(20);
/// How long a connection may take to close when its application does not look at it any more.
const FAREWELL: Duration = Duration::from_secs(120);
/// How long datagrams may wait for a link-layer address after their socket was closed.
const LAST_DATAGRAMS: Duration = Duration::from_secs(5);

/// A socket that listens, with its backlog.
pub(crate) fn listen(
    table: &mut Table,
    world: &mut World<'_>,
    local: Option<IpAddr>,
    port: u16,
    backlog: u16,
) -> Result<Answer, Error> {
    let at = place(world, Protocol::Tcp, local, port)?;
    let mut waiting = Vec::new();
    for _ in 0..backlog {
        match listening(table, world, at, waiting.len()) {
            Ok(socket) => waiting.push(socket),
            Err(error) => {
                waiting.into_iter().for_each(|socket| drop(world.sockets.remove(socket)));
                return Err(error);
            }
        }
    }
    let socket = table.insert(Entry::Listener { at, backlog: waiting });
    Ok(Answer::Opened { socket, local: SocketAddr::new(local.unwrap_or(ANY), port) })
}

/// What stands for every address, of both versions.
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Another socket that listens; `more` are not in the table yet.
pub(crate) fn listening(
    table: &mut Table,
    world: &mut World<'_>,
    at: IpListenEndpoint,
    more: usize,
) -> Result<SocketHandle, Error> {
    let mut socket = stream(table, world, more)?;
    socket.set_timeout(Some(HALF_OPEN));
    // The socket is new and the port is not 0.
    socket.listen(at).map_err(|_| Error::Malformed)?;
    Ok(world.sockets.add(socket))
}

/// What an established connection has, that one in a backlog has not.
pub(crate) fn adopt(socket: &mut tcp::Socket<'_>) {
    socket.set_timeout(Some(SILENCE));
}

/// Begins a connection.
pub(crate) fn connect(table: &mut Table, world: &mut World<'_>, remote: SocketAddr) -> Result<Answer, Error> {
    let to = IpEndpoint::from(remote);
    if !to.addr.is_unicast() || to.port == 0 {
        return Err(Error::NoRoute);
    }
    let from = source(world, to.addr)?;
    let mut socket = stream(table, world, 0)?;
    socket.set_timeout(Some(SILENCE));
    let port = world.ports.next(world.sockets, Protocol::Tcp).ok_or(Error::NoPort)?;
    socket.connect(world.interface.context(), to, (from, port)).map_err(|_| Error::NoRoute)?;
    let socket = table.insert(Entry::Stream { socket: world.sockets.add(socket), established: false });
    Ok(Answer::Opened { socket, local: SocketAddr::new(from.into(), port) })
}

/// A UDP socket.
pub(crate) fn bind(
    table: &mut Table,
    world: &mut World<'_>,
    local: Option<IpAddr>,
    port: u16,
) -> Result<Answer, Error> {
    let port = match port {
        0 => world.ports.next(world.sockets, Protocol::Udp).ok_or(Error::NoPort)?,
        port => port,
    };
    let at = place(world, Protocol::Udp, local, port)?;
    make_room(table, world, 0)?;
    let buffer = || {
        let mut list = Vec::new();
        list.try_reserve_exact(world.limits.datagrams).map_err(|_| Error::NoMemory)?;
        list.resize(world.limits.datagrams, udp::PacketMetadata::EMPTY);
        Ok(udp::PacketBuffer::new(list, bytes(world.limits.buffer)?))
    };
    let mut socket = udp::Socket::new(buffer()?, buffer()?);
    // The socket is new and the port is not 0.
    socket.bind(at).map_err(|_| Error::Malformed)?;
    let socket = table.insert(Entry::Datagrams { socket: world.sockets.add(socket) });
    Ok(Answer::Opened { socket, local: SocketAddr::new(local.unwrap_or(ANY), port) })
}

/// The address of ours from which packets go to another one.
pub(crate) fn source(world: &World<'_>, to: IpAddress) -> Result<IpAddress, Error> {
    let from = world.interface.get_source_address(&to).ok_or(Error::NoRoute)?;
    // smoltcp says `::1` where it knows no address.
    if world.interface.has_ip_addr(from) { Ok(from) } else { Err(Error::NoRoute) }
}

/// Where a socket is to stand, if it may.
fn place(
    world: &World<'_>,
    protocol: Protocol,
    local: Option<IpAddr>,
    port: u16,
) -> Result<IpListenEndpoint, Error> {
    if !world.grant.permits(port) {
        return Err(Error::NotPermitted);
    }
    let addr = local.filter(|addr| !addr.is_unspecified()).map(IpAddress::from);
    if addr.is_some_and(|addr| !world.interface.has_ip_addr(addr)) {
        return Err(Error::NotOurAddress);
    }
    if ports::is_used(world.sockets, protocol, port) {
        return Err(Error::PortInUse);
    }
    Ok(IpListenEndpoint { addr, port })
}

/// A TCP socket with its buffers; `more` are not in the table yet.
fn stream(table: &mut Table, world: &mut World<'_>, more: usize) -> Result<tcp::Socket<'static>, Error> {
    make_room(table, world, more)?;
    let buffer = || Ok(tcp::SocketBuffer::new(bytes(world.limits.buffer)?));
    let mut socket = tcp::Socket::new(buffer()?, buffer()?);
    socket.set_congestion_control(CongestionControl::Reno);
    Ok(socket)
}

fn bytes(len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| Error::NoMemory)?;
    bytes.resize(len, 0);
    Ok(bytes)
}

/// Refuses one socket more than an application may have. Connections in TIME-WAIT go before that.
fn make_room(table: &mut Table, world: &mut World<'_>, more: usize) -> Result<(), Error> {
    let is_over = |table: &Table| table.sockets().saturating_add(more) >= usize::from(world.limits.sockets);
    if !is_over(table) {
        return Ok(());
    }
    let waits = |closing: &Closing| {
        closing.protocol == Protocol::Tcp
            && world.sockets.get::<tcp::Socket<'_>>(closing.socket).state() == State::TimeWait
    };
    let index = table.closing.iter().position(waits).ok_or(Error::TooManySockets)?;
    world.sockets.remove(table.closing.swap_remove(index).socket);
    if is_over(table) { Err(Error::TooManySockets) } else { Ok(()) }
}

/// Removes what has closed, or was given long enough for it.
pub(crate) fn sweep(table: &mut Table, world: &mut World<'_>) {
    let (now, sockets) = (world.now, &mut *world.sockets);
    table.closing.retain(|closing| {
        let has_more = match closing.protocol {
            Protocol::Tcp => sockets.get::<tcp::Socket<'_>>(closing.socket).local_endpoint().is_some(),
            Protocol::Udp => sockets.get::<udp::Socket<'_>>(closing.socket).send_queue() > 0,
        };
        let stays = has_more && now < closing.until;
        if !stays {
            sockets.remove(closing.socket);
        }
        stays
    });
}

/// Closes a socket. What was sent before still goes.
pub(crate) fn close(table: &mut Table, world: &mut World<'_>, handle: Handle) -> Result<Answer, Error> {
    match table.remove(handle)? {
        Entry::Listener { backlog, .. } => {
            // Whoever waits to be accepted is told that nobody will.
            let until = later(world.now, FAREWELL);
            for socket in backlog {
                world.sockets.get_mut::<tcp::Socket<'_>>(socket).abort();
                table.closing.push(Closing { socket, protocol: Protocol::Tcp, until });
            }
        }
        Entry::Stream { socket, .. } => {
            world.sockets.get_mut::<tcp::Socket<'_>>(socket).close();
            let until = later(world.now, FAREWELL);
            table.closing.push(Closing { socket, protocol: Protocol::Tcp, until });
        }
        Entry::Datagrams { socket } => {
            let until = later(world.now, LAST_DATAGRAMS);
            table.closing.push(Closing { socket, protocol: Protocol::Udp, until });
        }
    }
    Ok(Answer::Done)
}

/// A moment that is so much later.
pub(crate) fn later(now: Instant, delay: Duration) -> Instant {
    let micros = i64::try_from(delay.total_micros()).unwrap_or(i64::MAX);
    Instant::from_micros(now.total_micros().saturating_add(micros))
}
