//! Packet sockets: protected packets arrive through them as they were on the wire, IP header included.
//!
//! A raw IPv6 socket would hide the headers that AH covers and transport mode keeps; a packet socket shows them all. It also
//! shows fragments, which the data path reassembles itself. docs/decisions/0003-linux-packet-paths.md weighs the ways.

use crate::buffers::Buffers;
use crate::filter::Share;
use crate::{BATCH, Error, filter, sys};
use arrayvec::ArrayVec;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, proto, version};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const RECEIVE_BUFFER: usize = 8 << 20;

/// Receives protected packets of one IP version.
#[derive(Debug)]
pub struct Receiver(Socket);

impl Receiver {
    /// Opens a socket that hears every interface but the TUN with index `tun`, and of what comes there this share.
    pub(crate) fn open(version: IpVersion, tun: u32, share: &Share) -> Result<Self, Error> {
        let ethertype = match version {
            IpVersion::V4 => ETHERTYPE_V4,
            IpVersion::V6 => ETHERTYPE_V6,
        };
        open(ethertype, &filter::protected(version, tun, share))
            .map(Self)
            .map_err(|error| Error::new("packet socket", error))
    }

    /// Receives up to so many packets into `buffers`, a batch at most; answers how many.
    pub fn receive(&self, buffers: &mut Buffers, most: usize) -> io::Result<usize> {
        buffers.hold(&[]);
        let mut lens = [0; BATCH];
        let mut slices = ArrayVec::<&mut [u8], BATCH>::new();
        slices.extend(buffers.slices().take(most));
        let count = sys::receive_batch(self.0.as_fd(), &mut slices, None, &mut lens)?;
        drop(slices);
        buffers.hold(lens.get(..count).unwrap_or_default());
        Ok(count)
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open(ethertype: u16, filter: &[SockFilter]) -> io::Result<Socket> {
    // A socket of protocol 0 hears nothing until it is bound, so nothing slips in ahead of the filter.
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

/// What a packet from a [`Receiver`] is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// ESP, AH or a fragment of them, for an address of an inbound SA.
    Protected,
    /// ICMP; perhaps about the path MTU of a packet of ours.
    Icmp,
    /// Nothing of ours.
    Other,
}

impl Arrival {
    /// Sorts a packet; `ours` are the destinations of inbound SAs.
    #[inline]
    pub fn of(packet: &[u8], ours: &HashSet<IpAddr>) -> Self {
        let header = match version(packet) {
            Ok(IpVersion::V4) => Ipv4::parse(packet).ok().map(|ip| (ip.protocol(), IpAddr::from(ip.dst()))),
            Ok(IpVersion::V6) => Ipv6::parse(packet).ok().and_then(|ip| {
                let chain = ip.chain().ok()?;
                // Behind destination options of a later fragment ESP may follow; the whole packet will tell.
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
            Some((proto::ESP | proto::AH, dst)) if ours.contains(&dst) => Self::Protected,
            Some((proto::ICMP | proto::ICMPV6, _)) => Self::Icmp,
            _ => Self::Other,
        }
    }
}
