//! Generic segmentation offload: UDP-encapsulated ESP packets of one length to one peer leave by one system
//! call (UDP_SEGMENT, udp(7)).
//!
//! The kernel writes the headers of a GSO batch. So a packet joins a batch only if the kernel writes the same
//! header as the data path; all other packets are sent by `raw_socket`, and so is a batch that the kernel
//! refuses.

use crate::raw_socket::SEND_BUFFER;
use crate::udp::UdpPort;
use crate::{Error, sys};
use arrayvec::ArrayVec;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, v4, v6, version};
use casemate_wire::udp::{self, Udp};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// TTL that the kernel writes, because the socket is configured so. It is the default TTL of tunnels, too.
pub(super) const TTL: u8 = 64;
/// Packets of a GSO batch, at most: the limit of Linux (UDP_MAX_SEGMENTS) since 6.9.
const MAX_SEGMENTS: usize = 128;
/// The limit of earlier kernels.
const OLD_MAX_SEGMENTS: usize = 64;
/// Payload of a GSO batch in bytes, at most: the longest datagram without headers of IPv6 and UDP.
const MAX_PAYLOAD: usize = 65_535 - v6::HEADER_LEN - udp::HEADER_LEN;

/// What the kernel needs to write the headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeaderTemplate {
    src: SocketAddr,
    dst: SocketAddr,
    tos: u8,
    df: bool,
}

/// A packet that can join a GSO batch.
#[derive(Debug, Clone, Copy)]
struct GsoSegment<'p> {
    headers: HeaderTemplate,
    payload: &'p [u8],
}

/// Packets that are sent by one system call.
#[derive(Debug)]
pub(super) struct GsoBatch<'p> {
    headers: HeaderTemplate,
    /// All have the length of the first; only the last may be shorter.
    payloads: ArrayVec<&'p [u8], MAX_SEGMENTS>,
}

/// Sends GSO batches from the ports of UDP-encapsulated ESP.
#[derive(Debug)]
pub(super) struct GsoSender {
    sockets: Vec<GsoSocket>,
    /// Packets of a batch that this kernel takes.
    max_segments: usize,
}

#[derive(Debug)]
struct GsoSocket {
    socket: Socket,
    port: u16,
    version: IpVersion,
    /// The DF setting of the socket; `None` before the first batch.
    df: Option<bool>,
}

impl GsoSender {
    /// Opens a sender for each of these ports.
    pub(super) fn new(ports: &[UdpPort]) -> Result<Self, Error> {
        let sockets = ports.iter().map(|port| {
            let socket = port.socket()?;
            let version =
                if socket.domain()? == socket2::Domain::IPV4 { IpVersion::V4 } else { IpVersion::V6 };
            sys::enlarge_send_buffer(&socket, SEND_BUFFER)?;
            match version {
                IpVersion::V4 => socket.set_ttl_v4(TTL.into())?,
                IpVersion::V6 => socket.set_unicast_hops_v6(TTL.into())?,
            }
            Ok(GsoSocket { socket, port: port.port(), version, df: None })
        });
        let sockets = sockets.collect::<io::Result<_>>().map_err(|error| Error::new("UDP port", error))?;
        Ok(Self { sockets, max_segments: MAX_SEGMENTS })
    }

    /// Packets of a batch, at most.
    pub(super) fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// Sends all packets of a batch, or returns why none was sent.
    #[inline]
    pub(super) fn send(&mut self, batch: &GsoBatch<'_>) -> io::Result<()> {
        let socket = self.sockets.iter_mut().find(|socket| socket.matches(&batch.headers));
        let sent = socket.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?.send(batch);
        if sent.as_ref().is_err_and(|error| is_refused(error, batch.len())) {
            self.max_segments = OLD_MAX_SEGMENTS;
        }
        sent
    }
}

impl<'p> GsoBatch<'p> {
    /// Collects as many of the first packets as can be sent together, at most `max`; `None` if the first
    /// cannot be joined.
    #[inline]
    pub(super) fn of(packets: impl Iterator<Item = &'p [u8]>, max: usize) -> Option<Self> {
        let mut segments = packets.map_while(GsoSegment::of);
        let GsoSegment { headers, payload } = segments.next()?;
        let (size, mut len, mut is_last) = (payload.len(), payload.len(), false);
        let mut joined = segments.map_while(|segment| {
            len = len.saturating_add(segment.payload.len());
            let joins =
                !is_last && segment.headers == headers && segment.payload.len() <= size && len <= MAX_PAYLOAD;
            // A shorter packet is the last one.
            is_last = segment.payload.len() < size;
            joins.then_some(segment.payload)
        });
        // Returns here for most single packets, before it allocates room for others.
        let second = joined.next()?;
        let mut payloads = ArrayVec::<_, MAX_SEGMENTS>::from_iter([payload, second]);
        payloads.extend(joined.take(max.min(MAX_SEGMENTS).saturating_sub(2)));
        Some(Self { headers, payloads })
    }

    /// Number of packets.
    pub(super) fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Destination of the packets.
    pub(super) fn destination(&self) -> IpAddr {
        self.headers.dst.ip()
    }
}

/// Whether the kernel refused a batch for its number of packets.
fn is_refused(error: &io::Error, segments: usize) -> bool {
    segments > OLD_MAX_SEGMENTS && error.raw_os_error() == Some(libc::EINVAL)
}

impl GsoSocket {
    fn matches(&self, headers: &HeaderTemplate) -> bool {
        self.port == headers.src.port() && headers.src.is_ipv4() == (self.version == IpVersion::V4)
    }

    fn send(&mut self, GsoBatch { headers, payloads }: &GsoBatch<'_>) -> io::Result<()> {
        if self.df != Some(headers.df) {
            sys::set_df(&self.socket, headers.df)?;
            self.df = Some(headers.df);
        }
        sys::send_gso(&self.socket, headers.src.ip(), headers.dst, headers.tos, payloads)
    }
}

impl<'p> GsoSegment<'p> {
    /// Parses a UDP packet, not fragmented, whose IP header the kernel would write in the same way.
    #[inline]
    fn of(packet: &'p [u8]) -> Option<Self> {
        let PlainIp { src, dst, tos, df, len } = PlainIp::parse(packet)?;
        let datagram = packet.get(len..)?;
        let udp = Udp::parse(datagram).ok()?;
        let payload = datagram.get(udp::HEADER_LEN..udp.len().into())?;
        let (src, dst) = (SocketAddr::new(src, udp.src_port()), SocketAddr::new(dst, udp.dst_port()));
        Some(Self { headers: HeaderTemplate { src, dst, tos, df }, payload })
    }
}

/// An IP header of a UDP packet as the kernel writes it.
struct PlainIp {
    src: IpAddr,
    dst: IpAddr,
    tos: u8,
    df: bool,
    /// Length of the header, in bytes.
    len: usize,
}

impl PlainIp {
    /// Returns `None` for other headers.
    #[inline]
    fn parse(packet: &[u8]) -> Option<Self> {
        match version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                let is_plain = ip.header_len() == v4::HEADER_LEN
                    && ip.protocol() == proto::UDP
                    && ip.ttl() == TTL
                    && !ip.is_fragment();
                let (src, dst) = (ip.src().into(), ip.dst().into());
                is_plain.then(|| Self { src, dst, tos: ip.tos(), df: ip.df(), len: v4::HEADER_LEN })
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet).ok()?;
                let is_plain =
                    ip.next_header() == proto::UDP && ip.hop_limit() == TTL && ip.flow_label() == 0;
                let (src, dst) = (ip.src().into(), ip.dst().into());
                is_plain.then(|| Self { src, dst, tos: ip.traffic_class(), df: true, len: v6::HEADER_LEN })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;
    use crate::udp::at_a_free_port;
    use casemate_wire::ip::v4::Ipv4Header;
    use casemate_wire::ip::v6::Ipv6Header;
    use casemate_wire::udp::UdpHeader;
    use std::os::fd::AsFd;

    fn headers(src: &str, dst: &str) -> HeaderTemplate {
        HeaderTemplate { src: src.parse().unwrap(), dst: dst.parse().unwrap(), tos: 0, df: true }
    }

    /// A datagram with the headers that the data path writes, and `len` bytes of `fill`.
    fn datagram(headers: HeaderTemplate, len: usize, fill: u8) -> Vec<u8> {
        let HeaderTemplate { src, dst, tos, df } = headers;
        let mut head = [0; udp::HEADER_LEN];
        let payload_len = len as u16;
        UdpHeader { src_port: src.port(), dst_port: dst.port(), payload_len }.emit(&mut head).unwrap();
        let (payload_len, protocol) = (payload_len + head.len() as u16, proto::UDP);
        let mut packet = match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut out = [0; v4::HEADER_LEN];
                let header = Ipv4Header { tos, ident: 9, df, ttl: TTL, protocol, src, dst, payload_len };
                header.emit(&mut out).unwrap();
                out.to_vec()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut out = [0; v6::HEADER_LEN];
                let (hop_limit, next_header) = (TTL, protocol);
                let header = Ipv6Header {
                    traffic_class: tos,
                    flow_label: 0,
                    payload_len,
                    next_header,
                    hop_limit,
                    src,
                    dst,
                };
                header.emit(&mut out);
                out.to_vec()
            }
            _ => panic!("two IP versions"),
        };
        packet.extend(head);
        packet.extend(vec![fill; len]);
        packet
    }

    /// Length of the GSO batch at the beginning of these packets.
    fn batch_len(packets: &[Vec<u8>]) -> Option<usize> {
        GsoBatch::of(packets.iter().map(Vec::as_slice), MAX_SEGMENTS).map(|batch| batch.len())
    }

    #[test]
    fn packets_of_one_length_and_peer_are_batched() {
        let to_peer = headers("192.0.2.1:4500", "192.0.2.2:4500");
        let to_other_peer = headers("192.0.2.1:4500", "192.0.2.3:4500");
        let of = |lens: &[usize]| lens.iter().map(|len| datagram(to_peer, *len, 1)).collect::<Vec<_>>();
        assert_eq!(batch_len(&of(&[100, 100, 100])), Some(3));
        assert_eq!(batch_len(&of(&[100, 100, 40, 100])), Some(3));
        assert_eq!(batch_len(&of(&[100, 101])), None);
        assert_eq!(batch_len(&of(&[100])), None);
        assert_eq!(batch_len(&of(&[2_000; 40])), Some(32));
        assert_eq!(batch_len(&of(&[10; 130])), Some(128));
        let many = of(&[10; 70]);
        let old = GsoBatch::of(many.iter().map(Vec::as_slice), OLD_MAX_SEGMENTS);
        assert_eq!(old.map(|batch| batch.len()), Some(64));
        assert_eq!(batch_len(&of(&[20_000; 4])), Some(3));
        assert_eq!(batch_len(&[of(&[100]), vec![datagram(to_other_peer, 100, 1)]].concat()), None);
        let urgent = HeaderTemplate { tos: 0xb8, ..to_peer };
        assert_eq!(batch_len(&[of(&[100]), vec![datagram(urgent, 100, 1)]].concat()), None);
    }

    #[test]
    fn packets_whose_headers_the_kernel_would_not_write_are_not_batched() {
        let two = |change: fn(&mut Vec<u8>)| {
            let mut packets = vec![datagram(headers("192.0.2.1:4500", "192.0.2.2:4500"), 100, 1); 2];
            packets.iter_mut().for_each(change);
            batch_len(&packets)
        };
        assert_eq!(two(|_| {}), Some(2));
        assert_eq!(two(|packet| packet[8] = 63), None, "TTL");
        assert_eq!(two(|packet| packet[9] = proto::ESP), None, "protocol");
        assert_eq!(two(|packet| packet[6] = 0x20), None, "fragment");
        let mut packets = vec![datagram(headers("[fd00::1]:4500", "[fd00::2]:4500"), 100, 1); 2];
        assert_eq!(batch_len(&packets), Some(2));
        packets.iter_mut().for_each(|packet| packet[3] = 1);
        assert_eq!(batch_len(&packets), None, "flow label");
    }

    /// Sent through the kernel, a GSO batch arrives as its packets.
    #[test]
    fn a_gso_batch_arrives_as_its_packets() {
        for host in ["127.0.0.1", "::1"] {
            let ip: IpAddr = host.parse().unwrap();
            let any = if ip.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
            let [from, mut to] = [0; 2].map(|_| at_a_free_port(any, |free| UdpPort::open(any, free)));
            let (src, dst) = (SocketAddr::new(ip, from.port()), SocketAddr::new(ip, to.port()));
            let headers = HeaderTemplate { src, dst, tos: 0xb8, df: true };
            let packets: Vec<_> =
                (0..9).map(|at| datagram(headers, if at == 8 { 77 } else { 900 }, at)).collect();
            let mut sender = GsoSender::new(std::slice::from_ref(&from)).unwrap();
            sender.send(&GsoBatch::of(packets.iter().map(Vec::as_slice), MAX_SEGMENTS).unwrap()).unwrap();
            let (mut buffers, mut received) = (Buffers::new(), Vec::new());
            while received.len() < packets.len() {
                let mut ready = [to.has_buffered()];
                if !ready[0] {
                    sys::poll_readable(&[to.as_fd()], &mut ready, std::time::Duration::from_secs(20))
                        .unwrap();
                }
                assert!(ready[0], "{} of {} packets received", received.len(), packets.len());
                to.receive(&mut buffers, usize::MAX).unwrap();
                received.extend(buffers.contents());
            }
            let inner = |packets: &[Vec<u8>]| -> Vec<(u8, Vec<u8>)> {
                let (udp_offset, tos) = if ip.is_ipv4() { (20, 1) } else { (40, 0) };
                packets.iter().map(|packet| (packet[tos], packet[udp_offset + 8..].to_vec())).collect()
            };
            assert_eq!(inner(&received), inner(&packets));
        }
    }
}
