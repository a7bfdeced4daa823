//! The UDP ports of IKE (RFC 7296 section 2): 500, and 4500, which it shares with ESP.

use crate::Error;
use crate::buffers::Buffers;
use crate::udp::{UdpPort, UdpSender};
use casemate_ike::{Path, Transmit};
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, version};
use casemate_wire::natt::{KEEPALIVE, NON_ESP_MARKER};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, Udp};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The port for messages alone.
pub const IKE_PORT: u16 = 500;

/// A message that came, with where it came from and to.
pub(crate) type Letter = (Path, Vec<u8>);

/// The port for messages alone, of both IP versions.
pub(crate) struct IkePorts(pub(crate) Vec<UdpPort>);

impl IkePorts {
    /// Opens the port. What it sends carries `mark`.
    pub(crate) fn open(mark: u32) -> Result<Self, Error> {
        let ports = UdpPort::open_both(IKE_PORT)?;
        ports.iter().try_for_each(|port| port.set_mark(mark))?;
        Ok(Self(ports))
    }

    /// Takes what came to one of them.
    pub(crate) fn receive(
        port: &mut UdpPort,
        buffers: &mut Buffers,
        letters: &mut Vec<Letter>,
    ) -> io::Result<()> {
        match port.receive(buffers, usize::MAX) {
            Ok(_) => {}
            // An error of a datagram sent long ago, or nothing to read after all.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => return Ok(()),
            Err(error) => return Err(error),
        }
        let of = |packet: &Packet<'_>| letter(packet.data(), payload_at(packet.data())?);
        buffers.with_packets(|packets| letters.extend(packets.iter().filter_map(of)));
        Ok(())
    }
}

/// Sends a message by the right one of `senders`.
pub(crate) fn send(senders: &[UdpSender], transmit: &Transmit) -> io::Result<()> {
    let Path { local, remote } = transmit.path;
    let sender = senders.iter().find(|sender| sender.serves(local.port(), remote.ip()));
    let sender = sender.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
    // RFC 3948 section 2.3: a keepalive is one byte.
    let message = if transmit.message.is_empty() { &[KEEPALIVE][..] } else { &transmit.message };
    let marker = if transmit.marker { &NON_ESP_MARKER[..] } else { &[] };
    sender.send(local.ip(), remote, [marker, message])
}

/// The message in an IP packet, whose UDP payload or what follows its marker begins `at`.
pub(crate) fn letter(packet: &[u8], at: usize) -> Option<Letter> {
    let (src, dst, udp_at) = match version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).ok()?;
            (IpAddr::from(ip.src()), IpAddr::from(ip.dst()), ip.header_len())
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).ok()?;
            (ip.src().into(), ip.dst().into(), ip.chain().ok()?.last.at)
        }
    };
    let udp = Udp::parse(packet.get(udp_at..)?).ok()?;
    let end = udp_at.checked_add(udp::HEADER_LEN)?.checked_add(udp.payload().len())?;
    let path =
        Path { local: SocketAddr::new(dst, udp.dst_port()), remote: SocketAddr::new(src, udp.src_port()) };
    Some((path, packet.get(at..end)?.to_vec()))
}

/// Where the UDP payload of a packet from a [`UdpPort`] begins.
fn payload_at(packet: &[u8]) -> Option<usize> {
    let header = match version(packet).ok()? {
        IpVersion::V4 => casemate_wire::ip::v4::HEADER_LEN,
        IpVersion::V6 => casemate_wire::ip::v6::HEADER_LEN,
    };
    header.checked_add(udp::HEADER_LEN)
}

/// The kernel's choice of our address on the way to others, past our own routes.
pub(crate) struct MarkedRoutes {
    pub(crate) mark: u32,
}

impl casemate::Routes for MarkedRoutes {
    fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let any: SocketAddr = if remote.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
        let socket = UdpSocket::bind(any).ok()?;
        socket2::SockRef::from(&socket).set_mark(self.mark).ok()?;
        // Nothing is sent: the kernel only looks up the way.
        socket.connect((remote, IKE_PORT)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}
