//! Trains: ESP in UDP packets of one length for one peer, which leave by one system call (UDP_SEGMENT, udp(7)).
//!
//! The kernel writes the headers of a train. So packets go by train only if it writes the ones that the data path made; all others
//! go through `raw`, and so does a train that the kernel refuses.

use crate::raw::SEND_BUFFER;
use crate::udp::UdpPort;
use crate::{Error, sys};
use arrayvec::ArrayVec;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, v4, v6, version};
use casemate_wire::udp::{self, Udp};
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// What the kernel writes into the header, because the socket is told so, and what tunnels have unless they are told otherwise.
pub(crate) const TTL: u32 = 64;
/// Packets of a train at most: what kernels before 6.9 take (UDP_MAX_SEGMENTS).
const MAX_WAGONS: usize = 64;
/// What a datagram carries at most, headers of IPv6 taken off.
const MAX_TRAIN: usize = 65_535 - v6::HEADER_LEN - udp::HEADER_LEN;

/// What the kernel has to know to write the headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Heads {
    src: SocketAddr,
    dst: SocketAddr,
    tos: u8,
    df: bool,
}

/// A packet of a train.
#[derive(Debug, Clone, Copy)]
struct Wagon<'p> {
    heads: Heads,
    payload: &'p [u8],
}

/// Packets that go together.
#[derive(Debug)]
pub(crate) struct Train<'p> {
    heads: Heads,
    /// All as long as the first, but for the last, which may be shorter.
    payloads: ArrayVec<&'p [u8], MAX_WAGONS>,
}

/// Sends trains from the ports of encapsulated ESP.
#[derive(Debug)]
pub(crate) struct Trains(Vec<Track>);

#[derive(Debug)]
struct Track {
    socket: Socket,
    port: u16,
    version: IpVersion,
    /// What the socket was told last about DF.
    df: Option<bool>,
}

impl Trains {
    /// From these ports.
    pub(crate) fn new(ports: &[UdpPort]) -> Result<Self, Error> {
        let tracks = ports.iter().map(|port| {
            let socket = port.socket()?;
            let version =
                if socket.domain()? == socket2::Domain::IPV4 { IpVersion::V4 } else { IpVersion::V6 };
            sys::enlarge_send_buffer(&socket, SEND_BUFFER)?;
            match version {
                IpVersion::V4 => socket.set_ttl_v4(TTL)?,
                IpVersion::V6 => socket.set_unicast_hops_v6(TTL)?,
            }
            Ok(Track { socket, port: port.port(), version, df: None })
        });
        tracks.collect::<io::Result<_>>().map(Self).map_err(|error| Error::new("UDP port", error))
    }

    /// Sends a train: all of it, or nothing and why.
    #[inline]
    pub(crate) fn send(&mut self, train: &Train<'_>) -> io::Result<()> {
        let track = self.0.iter_mut().find(|track| track.serves(&train.heads));
        track.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))?.send(train)
    }
}

impl<'p> Train<'p> {
    /// As many of the first packets as go together; `None` if the first goes alone.
    #[inline]
    pub(crate) fn of(packets: impl Iterator<Item = &'p [u8]>) -> Option<Self> {
        let mut wagons = packets.map_while(Wagon::of);
        let Wagon { heads, payload } = wagons.next()?;
        let (size, mut len, mut is_closed) = (payload.len(), payload.len(), false);
        let mut fit = wagons.map_while(|wagon| {
            len = len.saturating_add(wagon.payload.len());
            let fits = !is_closed && wagon.heads == heads && wagon.payload.len() <= size && len <= MAX_TRAIN;
            // The last one may be shorter.
            is_closed = wagon.payload.len() < size;
            fits.then_some(wagon.payload)
        });
        // Most packets that go alone are found out before there is a place for the others.
        let second = fit.next()?;
        let mut payloads = ArrayVec::from_iter([payload, second]);
        payloads.extend(fit.take(MAX_WAGONS - 2));
        Some(Self { heads, payloads })
    }

    /// Of how many packets it is made.
    pub(crate) fn len(&self) -> usize {
        self.payloads.len()
    }

    /// Where it goes.
    pub(crate) fn destination(&self) -> IpAddr {
        self.heads.dst.ip()
    }
}

impl Track {
    fn serves(&self, heads: &Heads) -> bool {
        self.port == heads.src.port() && heads.src.is_ipv4() == (self.version == IpVersion::V4)
    }

    fn send(&mut self, Train { heads, payloads }: &Train<'_>) -> io::Result<()> {
        if self.df != Some(heads.df) {
            sys::set_df(&self.socket, heads.df)?;
            self.df = Some(heads.df);
        }
        sys::send_train(&self.socket, heads.src.ip(), heads.dst, heads.tos, payloads)
    }
}

impl<'p> Wagon<'p> {
    /// A whole packet in UDP whose IP header is one that the kernel writes, too.
    #[inline]
    fn of(packet: &'p [u8]) -> Option<Self> {
        let (src, dst, tos, df, udp_at) = match version(packet).ok()? {
            IpVersion::V4 => {
                let ip = Ipv4::parse(packet).ok()?;
                let is_plain = ip.header_len() == v4::HEADER_LEN
                    && ip.protocol() == proto::UDP
                    && u32::from(ip.ttl()) == TTL
                    && !ip.is_fragment();
                if !is_plain {
                    return None;
                }
                (IpAddr::from(ip.src()), IpAddr::from(ip.dst()), ip.tos(), ip.df(), v4::HEADER_LEN)
            }
            IpVersion::V6 => {
                let ip = Ipv6::parse(packet).ok()?;
                let is_plain = ip.next_header() == proto::UDP
                    && u32::from(ip.hop_limit()) == TTL
                    && ip.flow_label() == 0;
                if !is_plain {
                    return None;
                }
                (ip.src().into(), ip.dst().into(), ip.traffic_class(), true, v6::HEADER_LEN)
            }
        };
        let datagram = packet.get(udp_at..)?;
        let udp = Udp::parse(datagram).ok()?;
        let payload = datagram.get(udp::HEADER_LEN..udp.len().into())?;
        let (src, dst) = (SocketAddr::new(src, udp.src_port()), SocketAddr::new(dst, udp.dst_port()));
        Some(Self { heads: Heads { src, dst, tos, df }, payload })
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

    /// A datagram from us to us, as the data path writes it.
    fn datagram(ends: (SocketAddr, SocketAddr), tos: u8, len: usize, fill: u8) -> Vec<u8> {
        let (src, dst) = ends;
        let mut head = [0; udp::HEADER_LEN];
        let payload_len = len as u16;
        UdpHeader { src_port: src.port(), dst_port: dst.port(), payload_len }.emit(&mut head).unwrap();
        let (payload_len, protocol) = (payload_len + head.len() as u16, proto::UDP);
        let mut packet = match (src.ip(), dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut out = [0; v4::HEADER_LEN];
                let header =
                    Ipv4Header { tos, ident: 9, df: true, ttl: TTL as u8, protocol, src, dst, payload_len };
                header.emit(&mut out).unwrap();
                out.to_vec()
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut out = [0; v6::HEADER_LEN];
                let (hop_limit, next_header) = (TTL as u8, protocol);
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

    fn train(packets: &[Vec<u8>]) -> Option<usize> {
        Train::of(packets.iter().map(Vec::as_slice)).map(|train| train.len())
    }

    #[test]
    fn packets_of_one_length_go_together() {
        let ends = ("192.0.2.1:4500".parse().unwrap(), "192.0.2.2:4500".parse().unwrap());
        let away = (ends.0, "192.0.2.3:4500".parse().unwrap());
        let of = |lens: &[usize]| lens.iter().map(|len| datagram(ends, 0, *len, 1)).collect::<Vec<_>>();
        assert_eq!(train(&of(&[100, 100, 100])), Some(3));
        assert_eq!(train(&of(&[100, 100, 40, 100])), Some(3));
        assert_eq!(train(&of(&[100, 101])), None);
        assert_eq!(train(&of(&[100])), None);
        assert_eq!(train(&of(&[2_000; 40])), Some(32));
        assert_eq!(train(&of(&[10; 70])), Some(64));
        assert_eq!(train(&of(&[20_000; 4])), Some(3));
        assert_eq!(train(&[of(&[100]), vec![datagram(away, 0, 100, 1)]].concat()), None);
        assert_eq!(train(&[of(&[100]), vec![datagram(ends, 0xb8, 100, 1)]].concat()), None);
    }

    #[test]
    fn headers_that_the_kernel_would_not_write_go_alone() {
        let ends = ("192.0.2.1:4500".parse().unwrap(), "192.0.2.2:4500".parse().unwrap());
        let two = |change: fn(&mut Vec<u8>)| {
            let mut packets = vec![datagram(ends, 0, 100, 1); 2];
            packets.iter_mut().for_each(change);
            train(&packets)
        };
        assert_eq!(two(|_| {}), Some(2));
        assert_eq!(two(|packet| packet[8] = 63), None, "TTL");
        assert_eq!(two(|packet| packet[9] = proto::ESP), None, "protocol");
        assert_eq!(two(|packet| packet[6] = 0x20), None, "fragment");
        let ends = ("[fd00::1]:4500".parse().unwrap(), "[fd00::2]:4500".parse().unwrap());
        let mut packets = vec![datagram(ends, 0, 100, 1); 2];
        assert_eq!(train(&packets), Some(2));
        packets.iter_mut().for_each(|packet| packet[3] = 1);
        assert_eq!(train(&packets), None, "flow label");
    }

    /// By the kernel's own way: what leaves as a train arrives as the packets that it was made of.
    #[test]
    fn a_train_arrives_as_its_packets() {
        for host in ["127.0.0.1", "::1"] {
            let ip: IpAddr = host.parse().unwrap();
            let any = if ip.is_ipv4() { "0.0.0.0".parse().unwrap() } else { "::".parse().unwrap() };
            let [from, mut to] = [0; 2].map(|_| at_a_free_port(any, |free| UdpPort::open(any, free)));
            let ends = (SocketAddr::new(ip, from.port()), SocketAddr::new(ip, to.port()));
            let packets: Vec<_> =
                (0..9).map(|at| datagram(ends, 0xb8, if at == 8 { 77 } else { 900 }, at)).collect();
            let mut trains = Trains::new(std::slice::from_ref(&from)).unwrap();
            trains.send(&Train::of(packets.iter().map(Vec::as_slice)).unwrap()).unwrap();
            let (mut buffers, mut came) = (Buffers::new(), Vec::new());
            while came.len() < packets.len() {
                let mut ready = [to.has_more()];
                if !ready[0] {
                    sys::poll_readable(&[to.as_fd()], &mut ready, std::time::Duration::from_secs(20))
                        .unwrap();
                }
                assert!(ready[0], "{} of {} packets came", came.len(), packets.len());
                to.receive(&mut buffers, usize::MAX).unwrap();
                came.extend(buffers.contents());
            }
            let inner = |packets: &[Vec<u8>]| -> Vec<(u8, Vec<u8>)> {
                let (udp_at, tos) = if ip.is_ipv4() { (20, 1) } else { (40, 0) };
                packets.iter().map(|packet| (packet[tos], packet[udp_at + 8..].to_vec())).collect()
            };
            assert_eq!(inner(&came), inner(&packets));
        }
    }
}
