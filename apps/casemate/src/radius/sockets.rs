//! The sockets of the RADIUS client, and the one at which servers request the end of sessions.

use crate::swanctl::{DynamicAuthorization, RadiusConfig};
use casemate_radius::SOURCE_PORTS;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Datagrams that are read from one socket before orders are looked at.
const BURST: usize = 64;

/// A socket of the client.
pub(super) struct ClientSocket {
    /// Which of the client's source ports it has.
    pub(super) source_port: u16,
    pub(super) is_ipv4: bool,
    pub(super) socket: UdpSocket,
}

/// Opens a socket for each source port and each IP version of the servers.
pub(super) fn open_sockets(config: &RadiusConfig) -> Result<Vec<ClientSocket>, String> {
    let mut sockets = Vec::new();
    for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
        let is_ipv4 = any.is_ipv4();
        if config.servers.iter().any(|server| server.auth.is_ipv4() == is_ipv4) {
            for source_port in 0..SOURCE_PORTS {
                let socket = open(SocketAddr::new(any, 0))?;
                sockets.push(ClientSocket { source_port, is_ipv4, socket });
            }
        }
    }
    Ok(sockets)
}

fn open(addr: SocketAddr) -> Result<UdpSocket, String> {
    let opened = UdpSocket::bind(addr).and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
    opened.map_err(|error| format!("RADIUS socket at {addr}: {error}"))
}

/// Where servers request the end of sessions.
pub(super) struct DaeSocket {
    pub(super) socket: UdpSocket,
    pub(super) settings: DynamicAuthorization,
}

impl DaeSocket {
    /// Opens the socket, or takes that of the service before, `former`.
    pub(super) fn open(settings: DynamicAuthorization, former: Option<&UdpSocket>) -> Result<Self, String> {
        let same = former.filter(|socket| socket.local_addr().is_ok_and(|addr| addr == settings.listen));
        let socket = match same {
            Some(socket) => socket.try_clone().map_err(|error| format!("RADIUS: {error}"))?,
            None => open(settings.listen)?,
        };
        Ok(Self { socket, settings })
    }
}

/// The address from which this host sends to a server, if there is a route.
pub(super) fn source_for(server: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing.
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The datagrams that wait, at most a burst of them.
pub(super) fn datagrams(socket: &UdpSocket, buffer: &mut [u8]) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut received = Vec::new();
    while received.len() < BURST {
        match socket.recv_from(buffer) {
            Ok((len, from)) => received.extend(buffer.get(..len).map(|datagram| (from, datagram.to_vec()))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    received
}
