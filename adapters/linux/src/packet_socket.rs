//! Packet sockets: they receive protected packets as they were on the wire, IP header included.
//!
//! A raw IPv6 socket would hide the headers that AH covers and transport mode keeps; a packet socket returns
//! all of them. It also returns fragments, which the data path reassembles itself.
//! docs/decisions/0003-linux-packet-paths.md compares the alternatives.

use crate::buffers::Buffers;
use crate::socket_filter::SocketShare;
use crate::{BATCH, Error, socket_filter, sys};
use arrayvec::ArrayVec;
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, version};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

pub(crate) const ETHERTYPE_V4: u16 = 0x0800;
pub(crate) const ETHERTYPE_V6: u16 = 0x86dd;
const RECEIVE_BUFFER: usize = 8 << 20;

/// Receives protected packets of one IP version.
#[derive(Debug)]
pub struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens a socket for `share` of the packets from every interface except the TUN interface with index
    /// `tun`.
    pub(crate) fn open(version: IpVersion, tun: u32, share: &SocketShare) -> Result<Self, Error> {
        let ethertype = match version {
            IpVersion::V4 => ETHERTYPE_V4,
            IpVersion::V6 => ETHERTYPE_V6,
        };
        open(ethertype, &socket_filter::protected_packets(version, tun, share))
            .map(Self)
            .map_err(|error| Error::new("packet socket", error))
    }

    /// Receives up to `most` packets into `buffers`, one batch at most, and returns their number.
    pub fn receive(&self, buffers: &mut Buffers, most: usize) -> io::Result<usize> {
        buffers.set_lens(&[]);
        let mut lens = [0; BATCH];
        let mut slices = ArrayVec::<&mut [u8], BATCH>::new();
        slices.extend(buffers.receive_slices().take(most));
        let count = sys::receive_batch(self.0.as_fd(), &mut slices, None, &mut lens)?;
        drop(slices);
        buffers.set_lens(lens.get(..count).or_broken_default("no more packets than buffers are received"));
        Ok(count)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open(ethertype: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    // A socket of protocol 0 receives nothing until it is bound, so no packet bypasses the filter.
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(Protocol::from(0)))?;
    socket.attach_filter(filter)?;
    let forced =
        sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER as i32);
    if forced.is_err() {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    }
    sys::bind_packet(socket.as_fd(), ethertype, 0)?;
    Ok(socket)
}

/// Local addresses whose ESP and AH packets go to the data path.
#[derive(Debug, Default)]
pub struct ProtectedAddrs {
    /// Addresses of inbound SAs, also of former ones.
    pub with_sas: HashSet<IpAddr>,
    /// All addresses of the host, while no other program receives ESP or AH: a peer may use SAs of a former
    /// run.
    pub with_ike: HashSet<IpAddr>,
}

impl ProtectedAddrs {
    #[inline]
    fn contains(&self, addr: &IpAddr) -> bool {
        self.with_sas.contains(addr) || self.with_ike.contains(addr)
    }
}

/// What a packet from a [`PacketSocket`] means to the data path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// ESP, AH or a fragment of them, to one of the [`ProtectedAddrs`].
    Protected,
    /// ICMP; it may report the path MTU of one of our packets.
    Icmp,
    /// Not for the data path.
    Other,
}

impl PacketKind {
    /// Classifies a packet.
    #[inline]
    pub fn of(packet: &[u8], local_addrs: &ProtectedAddrs) -> Self {
        let header = match version(packet) {
            Ok(IpVersion::V4) => Ipv4::parse(packet).ok().map(|ip| (ip.protocol(), IpAddr::from(ip.dst()))),
            Ok(IpVersion::V6) => Ipv6::parse(packet).ok().and_then(|ip| {
                let chain = ip.chain().ok()?;
                // In a later fragment, ESP may follow the destination options. The reassembled packet is
                // classified again.
                let fragment = chain.fragment.is_some_and(|fragment| !fragment.is_atomic());
                let protocol = match chain.last.next_header {
                    proto::DEST_OPTS if fragment => proto::ESP,
                    protocol => protocol,
                };
                Some((protocol, IpAddr::from(ip.dst())))
            }),
            Err(_) => None,
        };
        match header {
            Some((proto::ESP | proto::AH, dst)) if local_addrs.contains(&dst) => Self::Protected,
            Some((proto::ICMP | proto::ICMPV6, _)) => Self::Icmp,
            _ => Self::Other,
        }
    }
}
