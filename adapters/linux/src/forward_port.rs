//! The UDP socket for packets that nodes of a cell forward to its owner.
//!
//! The kernel fragments and reassembles the datagrams: a forwarded packet with the length of the MTU does not
//! fit into one Ethernet frame.

use crate::buffers::Buffers;
use crate::sys;
use crate::udp::open_failed;
use crate::{BATCH, Error};
use arrayvec::ArrayVec;
use casemate_wire::invariant::OrBroken;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

const RECEIVE_BUFFER: usize = 8 << 20;

/// A socket with an address of this node.
#[derive(Debug)]
pub(crate) struct ForwardPort {
    socket: Socket,
    address: SocketAddr,
}

impl ForwardPort {
    /// Opens a socket with this address.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Error> {
        let open = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            let fd = socket.as_fd();
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
                sys::set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
            } else {
                sys::set_option(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
            }
            if sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER as i32).is_err() {
                socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
            }
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
            Ok(Self { socket, address })
        };
        open().map_err(|error: io::Error| {
            let what = format!("UDP port for forwarded packets, {address}");
            match error.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    let expected = "an interface with this address was expected before the start";
                    Error::other(what, format!("{error}; {expected}"))
                }
                _ => open_failed(what, address.port(), error),
            }
        })
    }

    /// Address and port.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the mark of sent packets, so that they take the routes of the system.
    pub(crate) fn set_mark(&self, mark: u32) -> Result<(), Error> {
        let marked = self.socket.set_mark(mark);
        marked.map_err(|error| Error::new("mark of the UDP port for forwarded packets", error))
    }

    /// Another handle of the same socket.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        let socket = self.socket.try_clone();
        let socket = socket.map_err(|error| Error::new("UDP port for forwarded packets", error))?;
        Ok(Self { socket, address: self.address })
    }

    /// Sends a datagram, without waiting for room.
    pub(crate) fn send(&self, to: SocketAddr, frame: &[u8]) -> io::Result<()> {
        self.socket.send_to(frame, &to.into()).map(drop)
    }

    /// Receives up to `most` datagrams into `buffers`, one batch at most, and returns their number.
    pub(crate) fn receive(&self, buffers: &mut Buffers, most: usize) -> io::Result<usize> {
        buffers.set_lens(&[]);
        let mut lens = [0; BATCH];
        let mut slices = ArrayVec::<&mut [u8], BATCH>::new();
        slices.extend(buffers.receive_slices().take(most));
        let count = sys::receive_batch(self.socket.as_fd(), &mut slices, None, &mut lens)?;
        drop(slices);
        buffers.set_lens(lens.get(..count).or_broken_default("no more datagrams than buffers are received"));
        Ok(count)
    }
}

impl AsFd for ForwardPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
