//! UDP sockets that hand ESP in UDP (RFC 3948) to the kernel, as an IKE daemon would open them.

use casemate_interop::{ENCAP_PORT, Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

/// From Linux's include/uapi/linux/udp.h.
const UDP_ENCAP: libc::c_int = 100;
const UDP_ENCAP_ESPINUDP: libc::c_int = 2;

/// Opens one socket for each IP version. The kernel decapsulates for as long as they are open.
pub(crate) fn sockets() -> Result<[Socket; 2]> {
    Ok([
        socket(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, ENCAP_PORT).into())?,
        socket(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, ENCAP_PORT).into())?,
    ])
}

fn socket(domain: Domain, address: SocketAddr) -> Result<Socket> {
    let context = || format!("UDP port {ENCAP_PORT}");
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP)).map_err(Error::in_front(context()))?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(true).map_err(Error::in_front(context()))?;
    }
    socket.bind(&address.into()).map_err(Error::in_front(context()))?;
    let kind = UDP_ENCAP_ESPINUDP;
    let size = size_of_val(&kind) as libc::socklen_t;
    // SAFETY: the descriptor is open for the duration of the call, and the pointer and size describe `kind`, which the
    // kernel only reads.
    let failed = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_UDP, UDP_ENCAP, (&raw const kind).cast(), size)
    };
    if failed != 0 {
        return Err(Error::in_front("UDP_ENCAP")(std::io::Error::last_os_error()));
    }
    Ok(socket)
}
