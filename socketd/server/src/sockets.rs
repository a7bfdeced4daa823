//! Requests that open and close sockets, and the allocation of ports.
//!
//! The socket set, which includes the sockets of IKE, is the only list of used ports. A port stays in use
//! while any socket has it, also if the only such socket is an accepted connection. Otherwise another
//! application could listen on the port while the connection exists.

use crate::session::RequestContext;
use crate::session::{Closing, Entry, SocketTable};
use alloc::vec::Vec;
use casemate_socketd_protocol::{Error, Response, SocketId};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{CongestionControl, State};
use smoltcp::socket::{Socket, tcp, udp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpAddress, IpEndpoint, IpListenEndpoint};

/// Time after which an unacknowledged connection is given up. RFC 1122 section 4.2.3.5 requires at least
/// 100 seconds.
const UNACKED_TIMEOUT: Duration = Duration::from_secs(100);
/// Time after which a connection in a backlog is given up if it is not established.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that a closed connection may take to finish.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Time that datagrams of a closed socket may wait for address resolution.
const RESOLUTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a listening socket with its backlog.
pub(crate) fn listen(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    local: Option<IpAddr>,
    port: u16,
    backlog: u16,
) -> Result<Response, Error> {
    let endpoint = check_endpoint(context, Protocol::Tcp, local, port)?;
    let mut waiting = Vec::new();
    for _ in 0..backlog {
        match add_listener(table, context, endpoint, waiting.len()) {
            Ok(socket) => waiting.push(socket),
            Err(error) => {
                waiting.into_iter().for_each(|socket| drop(context.sockets.remove(socket)));
                return Err(error);
            }
        }
    }
    let socket = table.insert(Entry::Listener { endpoint, backlog: waiting });
    Ok(Response::Opened { socket, local: SocketAddr::new(local.unwrap_or(ANY), port) })
}

/// The unspecified address: stands for all addresses of both IP versions.
const ANY: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Adds one listening smoltcp socket. `more` is the number of sockets that are allocated and not yet in
/// the table.
pub(crate) fn add_listener(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    endpoint: IpListenEndpoint,
    more: usize,
) -> Result<SocketHandle, Error> {
    let mut socket = new_tcp_socket(table, context, more)?;
    socket.set_timeout(Some(HANDSHAKE_TIMEOUT));
    // The socket is new and the port is not 0.
    socket.listen(endpoint).map_err(|_| Error::Malformed)?;
    Ok(context.sockets.add(socket))
}

/// Configures a socket that has left the backlog as an established connection.
pub(crate) fn set_established(socket: &mut tcp::Socket<'_>) {
    socket.set_timeout(Some(UNACKED_TIMEOUT));
}

/// Opens a connection.
pub(crate) fn connect(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    remote: SocketAddr,
) -> Result<Response, Error> {
    let to = IpEndpoint::from(remote);
    if !to.addr.is_unicast() || to.port == 0 {
        return Err(Error::NoRoute);
    }
    let from = source_address(context, to.addr)?;
    let mut socket = new_tcp_socket(table, context, 0)?;
    socket.set_timeout(Some(UNACKED_TIMEOUT));
    let port = context.ports.next(context.sockets, Protocol::Tcp).ok_or(Error::NoFreePort)?;
    socket.connect(context.interface.context(), to, (from, port)).map_err(|_| Error::NoRoute)?;
    let socket = table.insert(Entry::Tcp { socket: context.sockets.add(socket), established: false });
    Ok(Response::Opened { socket, local: SocketAddr::new(from.into(), port) })
}

/// Opens a UDP socket.
pub(crate) fn bind(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    local: Option<IpAddr>,
    port: u16,
) -> Result<Response, Error> {
    let port = match port {
        0 => context.ports.next(context.sockets, Protocol::Udp).ok_or(Error::NoFreePort)?,
        port => port,
    };
    let endpoint = check_endpoint(context, Protocol::Udp, local, port)?;
    make_room(table, context, 0)?;
    let buffer = || {
        let mut list = Vec::new();
        list.try_reserve_exact(context.limits.buffer_datagrams).map_err(|_| Error::NoMemory)?;
        list.resize(context.limits.buffer_datagrams, udp::PacketMetadata::EMPTY);
        Ok(udp::PacketBuffer::new(list, bytes(context.limits.buffer_bytes)?))
    };
    let mut socket = udp::Socket::new(buffer()?, buffer()?);
    // The socket is new and the port is not 0.
    socket.bind(endpoint).map_err(|_| Error::Malformed)?;
    let socket = table.insert(Entry::Udp { socket: context.sockets.add(socket) });
    Ok(Response::Opened { socket, local: SocketAddr::new(local.unwrap_or(ANY), port) })
}

/// Returns the local address for packets to `to`.
pub(crate) fn source_address(context: &RequestContext<'_>, to: IpAddress) -> Result<IpAddress, Error> {
    // smoltcp panics when asked for the source address of packets to `::`.
    if to.is_unspecified() {
        return Err(Error::NoRoute);
    }
    let from = context.interface.get_source_address(&to).ok_or(Error::NoRoute)?;
    // smoltcp returns `::1` if it has no suitable address.
    if context.interface.has_ip_addr(from) { Ok(from) } else { Err(Error::NoRoute) }
}

/// Checks permission, address and port of a new socket, and returns the endpoint to bind.
fn check_endpoint(
    context: &RequestContext<'_>,
    protocol: Protocol,
    local: Option<IpAddr>,
    port: u16,
) -> Result<IpListenEndpoint, Error> {
    if !context.grant.permits(port) {
        return Err(Error::NotPermitted);
    }
    let addr = local.filter(|addr| !addr.is_unspecified()).map(IpAddress::from);
    if addr.is_some_and(|addr| !context.interface.has_ip_addr(addr)) {
        return Err(Error::AddressNotAvailable);
    }
    if is_in_use(context.sockets, protocol, port) {
        return Err(Error::PortInUse);
    }
    Ok(IpListenEndpoint { addr, port })
}

/// Allocates a TCP socket with its buffers. `more` is the number of sockets that are allocated and not
/// yet in the table.
fn new_tcp_socket(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    more: usize,
) -> Result<tcp::Socket<'static>, Error> {
    make_room(table, context, more)?;
    let buffer = || Ok(tcp::SocketBuffer::new(bytes(context.limits.buffer_bytes)?));
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

/// Checks the application's socket limit. At the limit, removes a connection in TIME-WAIT first.
fn make_room(table: &mut SocketTable, context: &mut RequestContext<'_>, more: usize) -> Result<(), Error> {
    let is_over =
        |table: &SocketTable| table.sockets().saturating_add(more) >= usize::from(context.limits.sockets);
    if !is_over(table) {
        return Ok(());
    }
    let waits = |closing: &Closing| {
        closing.protocol == Protocol::Tcp
            && context.sockets.get::<tcp::Socket<'_>>(closing.socket).state() == State::TimeWait
    };
    let index = table.closing.iter().position(waits).ok_or(Error::TooManySockets)?;
    context.sockets.remove(table.closing.swap_remove(index).socket);
    if is_over(table) { Err(Error::TooManySockets) } else { Ok(()) }
}

/// Removes sockets that have closed, or whose time to close is over.
pub(crate) fn remove_closed(table: &mut SocketTable, context: &mut RequestContext<'_>) {
    let (now, sockets) = (context.now, &mut *context.sockets);
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

/// Closes a socket. Data sent before is still delivered.
pub(crate) fn close(
    table: &mut SocketTable,
    context: &mut RequestContext<'_>,
    handle: SocketId,
) -> Result<Response, Error> {
    match table.remove(handle)? {
        Entry::Listener { backlog, .. } => {
            // Reset connections that were not accepted.
            let until = add_delay(context.now, CLOSE_TIMEOUT);
            for socket in backlog {
                context.sockets.get_mut::<tcp::Socket<'_>>(socket).abort();
                table.closing.push(Closing { socket, protocol: Protocol::Tcp, until });
            }
        }
        Entry::Tcp { socket, .. } => {
            context.sockets.get_mut::<tcp::Socket<'_>>(socket).close();
            let until = add_delay(context.now, CLOSE_TIMEOUT);
            table.closing.push(Closing { socket, protocol: Protocol::Tcp, until });
        }
        Entry::Udp { socket } => {
            let until = add_delay(context.now, RESOLUTION_TIMEOUT);
            table.closing.push(Closing { socket, protocol: Protocol::Udp, until });
        }
    }
    Ok(Response::Done)
}

/// Returns `now` plus `delay`, saturating.
pub(crate) fn add_delay(now: Instant, delay: Duration) -> Instant {
    let micros = i64::try_from(delay.total_micros()).unwrap_or(i64::MAX);
    Instant::from_micros(now.total_micros().saturating_add(micros))
}

/// Ephemeral ports (RFC 6335 section 6).
const FIRST: u16 = 49_152;
const COUNT: u16 = 16_384;

/// Transport protocol of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// Returns whether a socket uses the port.
pub(crate) fn is_in_use(sockets: &SocketSet<'_>, protocol: Protocol, port: u16) -> bool {
    sockets.iter().any(|(_, socket)| match (socket, protocol) {
        (Socket::Tcp(socket), Protocol::Tcp) => {
            socket.listen_endpoint().port == port
                || socket.local_endpoint().is_some_and(|local| local.port == port)
        }
        (Socket::Udp(socket), Protocol::Udp) => socket.endpoint().port == port,
        _ => false,
    })
}

/// Generator of ephemeral ports.
#[derive(Debug)]
pub(crate) struct EphemeralPorts {
    next: u16,
    step: u16,
}

impl EphemeralPorts {
    /// Ports are hard to guess for an off-path attacker (RFC 6056 section 3.1). `seed` must be random.
    pub(crate) const fn new(seed: u64) -> Self {
        // An odd step visits every port.
        Self { next: (seed >> 16) as u16 % COUNT, step: (seed as u16 % COUNT) | 1 }
    }

    /// Returns a port that no socket uses, or `None` if all are in use.
    pub(crate) fn next(&mut self, sockets: &SocketSet<'_>, protocol: Protocol) -> Option<u16> {
        (0..COUNT).find_map(|_| {
            self.next = self.next.wrapping_add(self.step) % COUNT;
            let port = FIRST.saturating_add(self.next);
            (!is_in_use(sockets, protocol, port)).then_some(port)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::socket::udp;
    use std::collections::BTreeSet;
    use std::vec;

    #[test]
    fn every_ephemeral_port_is_visited_once() {
        for seed in [0, 1, 0x1234_5678_9abc_def0, u64::MAX] {
            let (sockets, mut ports) = (SocketSet::new(vec![]), EphemeralPorts::new(seed));
            let seen: BTreeSet<u16> =
                (0..COUNT).map(|_| ports.next(&sockets, Protocol::Tcp).unwrap()).collect();
            assert_eq!((seen.len(), seen.first()), (usize::from(COUNT), Some(&FIRST)), "{seed}");
        }
    }

    #[test]
    fn a_port_in_use_is_skipped() {
        let buffer = || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY], vec![0; 8]);
        let (mut sockets, mut ports) = (SocketSet::new(vec![]), EphemeralPorts::new(7));
        let first = EphemeralPorts::new(7).next(&sockets, Protocol::Udp).unwrap();
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket.bind(first).unwrap();
        sockets.add(socket);
        assert!(is_in_use(&sockets, Protocol::Udp, first) && !is_in_use(&sockets, Protocol::Tcp, first));
        assert_ne!(ports.next(&sockets, Protocol::Udp), Some(first));
    }
}
