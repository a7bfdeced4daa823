//! Sending and receiving IKE messages over UDP (RFC 7296 section 2): port 500, and port 4500, which IKE
//! shares with ESP.

use crate::Error;
use crate::buffers::Buffers;
use crate::raw_socket::{AddressedPacket, RawSender, is_full};
use crate::udp::{UdpPort, UdpSender, datagram};
use casemate::path::FragmentPlan;
use casemate_datapath::pmtu;
use casemate_ike::{Path, Transmit};
use casemate_sa::Instant;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, version};
use casemate_wire::packet::Packet;
use casemate_wire::udp::{self, KEEPALIVE, NON_ESP_MARKER, Udp};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// UDP port of IKE without ESP.
pub const IKE_PORT: u16 = 500;

/// A received IKE message.
#[derive(Debug)]
pub(crate) struct IkeDatagram {
    pub(crate) path: Path,
    /// The message, without the non-ESP marker.
    pub(crate) message: Vec<u8>,
}

/// The sockets of port 500, of both IP versions.
pub(crate) struct IkePorts(pub(crate) Vec<UdpPort>);

impl IkePorts {
    /// Opens the sockets. Their packets carry `mark`.
    pub(crate) fn open(mark: u32) -> Result<Self, Error> {
        let ports = UdpPort::open_both(IKE_PORT)?;
        ports.iter().try_for_each(|port| port.set_mark(mark))?;
        Ok(Self(ports))
    }

    /// Receives a batch of IKE messages from one socket, as IP packets.
    pub(crate) fn receive(port: &mut UdpPort, buffers: &mut Buffers) -> io::Result<()> {
        match port.receive(buffers, usize::MAX) {
            // An error of a datagram that was sent earlier, or no datagram to read.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ECONNREFUSED) => Ok(()),
            received => received.map(drop),
        }
    }

    /// The IKE messages of a batch from [`receive`](Self::receive).
    pub(crate) fn datagrams(buffers: &mut Buffers) -> Vec<IkeDatagram> {
        let parse = |packet: &Packet<'_>| ike_datagram(packet.data(), payload_offset(packet.data())?);
        buffers.with_packets(|packets| packets.iter().filter_map(parse).collect())
    }
}

/// The sockets that send IKE messages.
pub(crate) struct IkeSenders {
    /// Sockets of the UDP ports.
    pub(crate) ports: Vec<UdpSender>,
    /// Sends messages if ESP to a slow peer has filled the socket of their port.
    pub(crate) raw: Arc<RawSender>,
    /// Sends path MTU probes.
    pub(crate) probes: RawSender,
}

impl IkeSenders {
    /// Sends a message. `ident` is the identification of its fragments, if it has to be fragmented here.
    pub(crate) fn send(&self, ident: u32, now: Instant, transmit: &Transmit) -> io::Result<()> {
        let Path { local, remote } = transmit.path;
        // RFC 3948 section 2.3: a keepalive is one byte.
        let message = if transmit.message.is_empty() { &[KEEPALIVE][..] } else { &transmit.message };
        let marker = if transmit.non_esp_marker { &NON_ESP_MARKER[..] } else { &[] };
        if let Some(len) = transmit.probe_len {
            return self.send_probe(now, transmit.path, [marker, message], len);
        }
        let sender = self.ports.iter().find(|sender| sender.matches(local.port(), remote.ip()));
        let sender = sender.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?;
        sender.send(local.ip(), remote, [marker, message]).or_else(|error| {
            let is_blocked = is_full(&error) && !local.ip().is_unspecified();
            let packet = if is_blocked { datagram(local, remote, [marker, message]) } else { None };
            send_raw(&self.raw, now, packet.ok_or(error)?, remote.ip(), ident)
        })
    }

    /// Sends a path MTU probe. A probe that the system does not send counts as lost.
    fn send_probe(&self, now: Instant, path: Path, parts: [&[u8]; 2], len: u16) -> io::Result<()> {
        let Some(packet) = probe_packet(path, parts, len) else { return Ok(()) };
        match self.probes.send(now, &[AddressedPacket { bytes: &packet, dst: path.remote.ip() }]) {
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) || is_full(&error) => Ok(()),
            sent => sent.map(drop),
        }
    }
}

/// Returns an IP packet of `len` bytes with DF that begins with a datagram. The UDP length is that of the
/// datagram, so receivers ignore the zeros behind it (the surplus area of RFC 9868).
fn probe_packet(path: Path, parts: [&[u8]; 2], len: u16) -> Option<Vec<u8>> {
    let mut packet = datagram(path.local, path.remote, parts)?;
    packet.resize(packet.len().max(len.into()), 0);
    match version(&packet).ok()? {
        IpVersion::V4 => {
            let mut ip = Ipv4::parse(&mut packet[..]).ok()?;
            ip.set_total_len(len);
            ip.set_df(true);
            ip.fill_checksum();
        }
        IpVersion::V6 => {
            let payload_len = len.checked_sub(casemate_wire::ip::v6::HEADER_LEN as u16)?;
            Ipv6::parse(&mut packet[..]).ok()?.set_payload_len(payload_len);
        }
    }
    Some(packet)
}

/// Sends a datagram through a raw socket. If it is too long for its link, sends it in fragments of the
/// minimum MTU.
fn send_raw(raw: &RawSender, now: Instant, mut packet: Vec<u8>, dst: IpAddr, ident: u32) -> io::Result<()> {
    let error = match raw.send(now, &[AddressedPacket { bytes: &packet, dst }]) {
        Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => error,
        sent => return sent.map(drop),
    };
    if dst.is_ipv4()
        && let Ok(mut ip) = Ipv4::parse(&mut packet[..])
    {
        ip.set_ident((ident as u16).max(1));
        ip.fill_checksum();
    }
    let mtu = if dst.is_ipv4() { pmtu::V4_MIN_MTU } else { pmtu::V6_MIN_MTU };
    let mut pieces = FragmentPlan { mtu, ident }.fragments(&packet).map_err(|_| error)?;
    let mut piece = vec![0; mtu];
    while let Some(len) = pieces.next(&mut piece) {
        let bytes = piece.get(..len).or_broken_default("a fragment is inside its buffer");
        raw.send(now, &[AddressedPacket { bytes, dst }])?;
    }
    Ok(())
}

/// Extracts the IKE message from an IP packet. `offset` is where the message begins, behind the UDP header
/// and the non-ESP marker.
pub(crate) fn ike_datagram(packet: &[u8], offset: usize) -> Option<IkeDatagram> {
    let (src, dst, udp_offset) = match version(packet).ok()? {
        IpVersion::V4 => {
            let ip = Ipv4::parse(packet).ok()?;
            (IpAddr::from(ip.src()), IpAddr::from(ip.dst()), ip.header_len())
        }
        IpVersion::V6 => {
            let ip = Ipv6::parse(packet).ok()?;
            (ip.src().into(), ip.dst().into(), ip.chain().ok()?.last.at)
        }
    };
    let udp = Udp::parse(packet.get(udp_offset..)?).ok()?;
    let end = udp_offset.checked_add(udp::HEADER_LEN)?.checked_add(udp.payload().len())?;
    let path =
        Path { local: SocketAddr::new(dst, udp.dst_port()), remote: SocketAddr::new(src, udp.src_port()) };
    Some(IkeDatagram { path, message: packet.get(offset..end)?.to_vec() })
}

/// Offset of the UDP payload in a packet from a [`UdpPort`].
pub(crate) fn payload_offset(packet: &[u8]) -> Option<usize> {
    let header = match version(packet).ok()? {
        IpVersion::V4 => casemate_wire::ip::v4::HEADER_LEN,
        IpVersion::V6 => casemate_wire::ip::v6::HEADER_LEN,
    };
    header.checked_add(udp::HEADER_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Netlink;
    use crate::netns::Netns;
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn a_message_longer_than_the_mtu_is_sent_raw_in_fragments() {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(error) => return casemate_test_support::skip(error),
        };
        let test = || {
            let mut netlink = Netlink::open().unwrap();
            let lo = netlink.link("lo").unwrap().index;
            netlink.set_up(lo, 1_300).unwrap();
            let (raw, now) = (RawSender::open(1).unwrap(), Instant::ZERO);
            for addr in ["127.0.0.1", "::1"] {
                let addr: IpAddr = addr.parse().unwrap();
                let receiver = UdpSocket::bind((addr, 0)).unwrap();
                receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                let (from, to) = (SocketAddr::new(addr, IKE_PORT), receiver.local_addr().unwrap());
                for len in [100, 3_000] {
                    let message: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                    let packet = datagram(from, to, [&message, &[]]).unwrap();
                    send_raw(&raw, now, packet, addr, 7).unwrap();
                    let mut received = vec![0; 4_000];
                    assert_eq!(receiver.recv(&mut received).unwrap(), len, "{addr}");
                    assert_eq!(received[..len], message);
                }
            }
        };
        netns.run(test).unwrap();
    }
}
