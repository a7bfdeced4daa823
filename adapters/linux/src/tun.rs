//! A TUN interface: the door between the host's own IP stack and the data path.
//!
//! Whole IP packets, non-blocking. The kernel's TCP and UDP hand over many segments as one packet, and take them so
//! (`offload`); what comes out of [`Tun::receive`] are single packets. The interface belongs to the process: when the process ends,
//! however it ends, the kernel removes it with every route that leads into it.

use crate::netlink::Netlink;
use crate::offload::{Cutter, HEADER_LEN, Run, VnetHeader};
use crate::{BATCH, Error, sys};
use arrayvec::ArrayVec;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

const CLONE_DEVICE: &str = "/dev/net/tun";

/// An open TUN interface, and what comes out of it.
#[derive(Debug)]
pub struct Tun {
    file: Arc<File>,
    name: String,
    index: u32,
    cutter: Cutter,
}

/// What goes into it: packets for the host. Any thread may hold one.
#[derive(Debug)]
pub(crate) struct TunWriter(Arc<File>);

impl Tun {
    /// Makes the interface `name`, gives it this MTU and switches it on.
    pub fn create(name: &str, mtu: usize, netlink: &mut Netlink) -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(CLONE_DEVICE)
            .map_err(|error| Error::new(CLONE_DEVICE, error))?;
        let failed = |error| Error::new(format!("TUN interface {name}"), error);
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        sys::tun_set_iff(file.as_fd(), name, flags).map_err(failed)?;
        set_offload(&file).map_err(failed)?;
        let index = netlink.link(name)?.index;
        no_link_local(name);
        netlink.set_up(index, mtu)?;
        Ok(Self { file: Arc::new(file), name: name.into(), index, cutter: Cutter::new() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Takes the next packet that the host sends; `None` if there is none. A packet that is not understood is taken as one of no bytes.
    #[inline]
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(len) = self.cutter.next(buffer) {
            return Ok(Some(len));
        }
        match (&*self.file).read(self.cutter.space()) {
            Ok(len) => Ok(Some(self.cutter.first(len, buffer).unwrap_or(0))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether [`receive`](Self::receive) has a packet, whatever the descriptor says.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.cutter.has_more()
    }

    /// The way into it.
    pub(crate) fn writer(&self) -> TunWriter {
        TunWriter(self.file.clone())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl TunWriter {
    /// Hands the host a packet.
    #[inline]
    pub(crate) fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        let header = VnetHeader::default().emit();
        (&*self.0).write_vectored(&[IoSlice::new(&header), IoSlice::new(packet)]).map(drop)
    }

    /// Hands the host the packets of a run.
    #[inline]
    pub(crate) fn deliver_run(&self, run: &Run<'_>) -> io::Result<()> {
        let Some((header, head)) = run.head() else {
            return run.packets().iter().try_for_each(|packet| self.deliver(packet));
        };
        let mut parts: ArrayVec<IoSlice<'_>, { BATCH + 2 }> = ArrayVec::new();
        parts.extend([IoSlice::new(&header), IoSlice::new(&head)]);
        parts.extend(run.payloads().map(IoSlice::new));
        (&*self.0).write_vectored(&parts).map(drop)
    }
}

/// Tells the kernel what it need not do itself. Kernels before 6.2 do not know the segments of UDP.
fn set_offload(file: &File) -> io::Result<()> {
    sys::tun_set_header_len(file.as_fd(), HEADER_LEN)?;
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    sys::tun_set_offload(file.as_fd(), tcp | udp).or_else(|_| sys::tun_set_offload(file.as_fd(), tcp))
}

/// The interface needs no address of its own, and neighbour discovery on it would only meet the policies.
fn no_link_local(name: &str) {
    // Without IPv6 in the kernel there is no such file, and nothing to prevent.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
}
