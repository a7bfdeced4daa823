//! Packet sockets that send: one link address for each packet (packet(7)).

use super::check_count;
use crate::BATCH;
use arrayvec::ArrayVec;
use libc::{c_int, c_void, iovec, mmsghdr, msghdr};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Length of an Ethernet address.
pub(crate) const LINK_ADDRESS_LEN: usize = 6;

/// Interface, EtherType and Ethernet address to which a packet is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkAddress(libc::sockaddr_ll);

/// A whole IP packet, and where it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkPacket<'p> {
    pub(crate) bytes: &'p [u8],
    pub(crate) to: LinkAddress,
}

impl LinkAddress {
    /// `None` if the kernel has no such interface index.
    pub(crate) fn new(ifindex: u32, ethertype: u16, addr: [u8; LINK_ADDRESS_LEN]) -> Option<Self> {
        let mut sll_addr = [0; 8];
        sll_addr.iter_mut().zip(addr).for_each(|(to, from)| *to = from);
        Some(Self(libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ethertype.to_be(),
            sll_ifindex: c_int::try_from(ifindex).ok().filter(|index| *index > 0)?,
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: LINK_ADDRESS_LEN as u8,
            sll_addr,
        }))
    }
}

/// Sends packets through a packet socket of type SOCK_DGRAM, without waiting for room. Returns how many were
/// sent before the first failure; an error is about the first packet.
pub(crate) fn send_to_links(fd: BorrowedFd<'_>, packets: &[LinkPacket<'_>]) -> io::Result<usize> {
    let mut vectors: ArrayVec<iovec, BATCH> = ArrayVec::new();
    for LinkPacket { bytes, .. } in packets.iter().take(BATCH) {
        // The kernel reads only; iovec has no const variant.
        vectors.push(iovec { iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(), iov_len: bytes.len() });
    }
    let mut headers: ArrayVec<mmsghdr, BATCH> = ArrayVec::new();
    for (vector, LinkPacket { to, .. }) in vectors.iter_mut().zip(packets) {
        // SAFETY: msghdr is plain old data; all zeros means "nothing" in each of its fields.
        let mut header: msghdr = unsafe { mem::zeroed() };
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_name = ptr::from_ref(&to.0).cast_mut().cast();
        header.msg_namelen = mem::size_of::<libc::sockaddr_ll>() as u32;
        headers.push(mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    // SAFETY: each header points to a vector and an address that live unmoved until the end of this function,
    // with their true sizes; the kernel only reads them and the packets, which are borrowed as long.
    check_count(unsafe {
        libc::sendmmsg(fd.as_raw_fd(), headers.as_mut_ptr(), headers.len() as _, libc::MSG_DONTWAIT)
    })
}
