//! UDP sockets: bursts of datagrams, and ESP in UDP (RFC 3948) for the kernel.

use casemate_interop::{ENCAP_PORT, Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Discard service over UDP (RFC 863), which the devices do not offer.
const BURST_PORT: u16 = 9;
const BURST_SIZE: usize = 16;

/// Sends `count` datagrams to a closed port as fast as possible. Each one results in an ICMP error (RFC 1122
/// section 3.2.2.1).
pub(crate) fn send_burst(from: IpAddr, to: IpAddr, count: usize) -> Result<String> {
    let socket = UdpSocket::bind((from, 0)).map_err(Error::context(from))?;
    for _ in 0..count {
        socket.send_to(&[0; BURST_SIZE], (to, BURST_PORT)).map_err(Error::context(to))?;
    }
    Ok(format!("{count} sent"))
}

/// Time without a datagram after which no more are expected.
const BURST_TIMEOUT: Duration = Duration::from_secs(20);

/// Receives up to `count` datagrams of a burst and returns their number.
pub(crate) fn receive_burst(address: IpAddr, count: usize) -> Result<String> {
    let socket = UdpSocket::bind((address, BURST_PORT)).map_err(Error::context(address))?;
    socket.set_read_timeout(Some(BURST_TIMEOUT)).map_err(Error::context(address))?;
    let received = (0..count).take_while(|_| socket.recv(&mut [0; 64]).is_ok()).count();
    Ok(format!("{received} of {count} arrived"))
}

/// From Linux's include/uapi/linux/udp.h.
const UDP_ENCAP: libc::c_int = 100;
const UDP_ENCAP_ESPINUDP: libc::c_int = 2;

/// Opens one socket for each IP version, as an IKE daemon does. The kernel decapsulates as long as they are
/// open.
pub(crate) fn open_encap_sockets() -> Result<[Socket; 2]> {
    Ok([
        encap_socket(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, ENCAP_PORT).into())?,
        encap_socket(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, ENCAP_PORT).into())?,
    ])
}

fn encap_socket(domain: Domain, address: SocketAddr) -> Result<Socket> {
    let context = || format!("UDP port {ENCAP_PORT}");
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(Error::context(context()))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true).map_err(Error::context(context()))?;
    }
    socket.bind(&address.into()).map_err(Error::context(context()))?;
    let kind = UDP_ENCAP_ESPINUDP;
    let size = size_of_val(&kind) as libc::socklen_t;
    // SAFETY: the descriptor is open during the call, and pointer and size describe `kind`, which the
    // kernel only reads.
    let failed = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, UDP_ENCAP, (&raw const kind).cast(), size)
    };
    if failed != 0 {
        return Err(Error::context("UDP_ENCAP")(std::io::Error::last_os_error()));
    }
    Ok(socket)
}
