//! The TUN interface, which connects the IP stack of the host with the data path.
//!
//! It carries whole IP packets and is non-blocking. The TCP and UDP of the kernel hand over and take many
//! segments as one packet (`offload`). The interface belongs to the process: when the process ends, for
//! whatever reason, the kernel removes the interface and every route into it, unless the interface is
//! persistent, as those of route-based tunnels are.

use crate::netlink::Netlink;
use crate::offload::{GroBatch, PacketList, VNET_HEADER_LEN, VnetHeader, coalesce};
use crate::setup::rp_filter_name;
use crate::{BATCH, Error, queue_steering, sys};
use arrayvec::ArrayVec;
use casemate_sched::{Class, Classifier};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

const CLONE_DEVICE: &str = "/dev/net/tun";

/// An open TUN interface.
#[derive(Debug)]
pub struct Tun {
    /// The first queue, which always exists.
    first_queue: TunQueue,
    other_queues: Vec<TunQueue>,
    name: String,
    index: u32,
    /// Whether the kernel supports segmentation offload for UDP.
    has_udp_gso: bool,
}

/// A queue of packets that the host sends.
#[derive(Debug)]
pub(crate) struct TunQueue(File);

/// Writes packets to the host, from any thread.
#[derive(Debug)]
pub(crate) struct TunWriter {
    file: File,
    /// Whether the kernel supports segmentation offload for UDP.
    has_udp_gso: bool,
    /// Writes of coalesced packets that the kernel rejected.
    rejected_gro_writes: AtomicU64,
}

impl Tun {
    /// Creates the interface `name`. With a classifier, the interface has one queue for each class; if the
    /// kernel does not support that, it has one queue, and `warn` is called.
    pub fn claim(
        name: &str,
        classifier: Option<&Classifier>,
        netlink: &mut Netlink,
        warn: &mut dyn FnMut(String),
    ) -> Result<Self, Error> {
        let Some(classifier) = classifier else { return Self::create(name, netlink) };
        Self::create_with_class_queues(name, classifier, netlink).or_else(|error| {
            let tun = Self::create(name, netlink)?;
            warn(format!(
                "all classes share one queue of the kernel, so packets of every class are dropped under \
                 overload ({error})"
            ));
            Ok(tun)
        })
    }

    /// Creates the interface `name`, switched off. Fails if it exists: of two processes that try, only one
    /// gets it.
    pub(crate) fn create(name: &str, netlink: &mut Netlink) -> Result<Self, Error> {
        let first_queue = TunQueue::open(name, libc::IFF_TUN | libc::IFF_TUN_EXCL)?;
        Self::finish(first_queue, Vec::new(), name, netlink)
    }

    /// Opens the persistent interface `name`. Fails if a process has it open.
    pub(crate) fn take_over(name: &str, netlink: &mut Netlink) -> Result<Self, Error> {
        Self::finish(TunQueue::open(name, libc::IFF_TUN)?, Vec::new(), name, netlink)
    }

    /// Creates the interface with one queue for each [`Class`], in their order; the kernel selects the queue
    /// as `classifier` says. Needs CAP_BPF in addition to what other interfaces need, and Linux 4.16.
    pub(crate) fn create_with_class_queues(
        name: &str,
        classifier: &Classifier,
        netlink: &mut Netlink,
    ) -> Result<Self, Error> {
        let failed = |error| Error::new(format!("queues for classes at TUN interface {name}"), error);
        let program = queue_steering::load(classifier).map_err(failed)?;
        let open = |flags| TunQueue::open(name, libc::IFF_TUN | libc::IFF_MULTI_QUEUE | flags);
        let first_queue = open(libc::IFF_TUN_EXCL)?;
        let other_queues = Class::ALL.iter().skip(1).map(|_| open(0)).collect::<Result<_, _>>()?;
        sys::tun_set_steering(first_queue.as_fd(), program.as_fd()).map_err(failed)?;
        Self::finish(first_queue, other_queues, name, netlink)
    }

    fn finish(
        first_queue: TunQueue,
        other_queues: Vec<TunQueue>,
        name: &str,
        netlink: &mut Netlink,
    ) -> Result<Self, Error> {
        let has_udp_gso = enable_offload(&first_queue.0)
            .map_err(|error| Error::new(format!("TUN interface {name}"), error))?;
        let index = netlink.link(name)?.index;
        Ok(Self { first_queue, other_queues, name: name.into(), index, has_udp_gso })
    }

    /// Sets the MTU and switches the interface on.
    pub(crate) fn set_up(&self, mtu: usize, netlink: &mut Netlink) -> Result<(), Error> {
        disable_link_local(&self.name);
        netlink.set_up(self.index, mtu)
    }

    /// Does the same for the interface of a route-based tunnel. It keeps its link-local address, which
    /// routing protocols need. Its reverse path filter is off, because answers may leave by another
    /// interface, and the policies check the sources. Where the host has it on for all interfaces, it is
    /// loose, which is enough for interfaces with an address.
    pub(crate) fn set_up_tunnel(&self, mtu: usize, netlink: &mut Netlink) -> Result<(), Error> {
        let path = |of: &str| format!("/proc/sys/{}", rp_filter_name(of));
        let failed = |error| Error::new(format!("sysctl {}", rp_filter_name(&self.name)), error);
        let is_off = std::fs::read_to_string(path("all")).map_err(failed)?.trim() == "0";
        std::fs::write(path(&self.name), if is_off { "0" } else { "2" }).map_err(failed)?;
        // No router is asked for addresses. A kernel without IPv6 has no such file.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{}/accept_ra", self.name), "0");
        netlink.set_up(self.index, mtu)
    }

    /// Sets whether the interface outlives the process, with its addresses and the routes into it. Packets
    /// that enter it meanwhile are dropped.
    pub(crate) fn set_persistent(&self, stays: bool) -> Result<(), Error> {
        let set = sys::tun_set_persistent(self.first_queue.as_fd(), stays);
        set.map_err(|error| Error::new(format!("TUN interface {}", self.name), error))
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The first queue.
    pub(crate) const fn first_queue(&self) -> &TunQueue {
        &self.first_queue
    }

    /// The queues of packets that the host sends: one, or one for each class.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &TunQueue> {
        std::iter::once(&self.first_queue).chain(&self.other_queues)
    }

    /// Opens a writer.
    pub(crate) fn writer(&self) -> Result<TunWriter, Error> {
        let copy = self.first_queue.0.try_clone();
        let writer =
            |file| TunWriter { file, has_udp_gso: self.has_udp_gso, rejected_gro_writes: AtomicU64::new(0) };
        copy.map(writer).map_err(|error| Error::new(format!("TUN interface {}", self.name), error))
    }
}

impl TunWriter {
    /// Delivers a packet to the host.
    #[inline]
    pub(crate) fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        write_packet(&|parts: &[IoSlice<'_>]| (&self.file).write_vectored(parts), packet)
    }

    /// Delivers the packets of a batch to the host, coalesced where that is possible. Calls `lost` with each
    /// packet that the kernel does not take.
    #[inline]
    pub(crate) fn deliver_batch<'p>(&self, list: &PacketList<'p>, mut lost: impl FnMut(&'p [u8])) {
        let write = |parts: &[IoSlice<'_>]| (&self.file).write_vectored(parts);
        coalesce(list, self.has_udp_gso, |batch| {
            if write_gro_batch(&write, batch, &mut lost) == GroWrite::Rejected {
                self.rejected_gro_writes.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Writes of coalesced packets that the kernel rejected. Their packets were written one by one.
    pub(crate) fn rejected_gro_writes(&self) -> u64 {
        self.rejected_gro_writes.load(Ordering::Relaxed)
    }
}

/// Result of writing a GRO batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroWrite {
    /// The packets were written, were not coalesced, or failed for another reason.
    Done,
    /// The kernel does not support the coalesced packet; its packets were written one by one.
    Rejected,
}

#[inline]
fn write_packet(write: &impl Fn(&[IoSlice<'_>]) -> io::Result<usize>, packet: &[u8]) -> io::Result<()> {
    let header = VnetHeader::default().emit();
    write(&[IoSlice::new(&header), IoSlice::new(packet)]).map(drop)
}

/// Writes a batch, coalesced if possible. Calls `lost` with each packet that the kernel does not take.
#[inline]
fn write_gro_batch<'p>(
    write: &impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    batch: &GroBatch<'_, 'p>,
    lost: impl FnMut(&'p [u8]),
) -> GroWrite {
    let Some(headers) = batch.headers() else {
        write_each(write, batch, lost);
        return GroWrite::Done;
    };
    let mut parts: ArrayVec<IoSlice<'_>, { BATCH + 2 }> = ArrayVec::new();
    parts.extend([IoSlice::new(&headers.vnet), IoSlice::new(&headers.packet)]);
    parts.extend(batch.payloads().map(IoSlice::new));
    let Err(error) = write(&parts) else { return GroWrite::Done };
    write_each(write, batch, lost);
    if error.raw_os_error() == Some(libc::EINVAL) { GroWrite::Rejected } else { GroWrite::Done }
}

fn write_each<'p>(
    write: &impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    batch: &GroBatch<'_, 'p>,
    lost: impl FnMut(&'p [u8]),
) {
    batch.packets().filter(|packet| write_packet(write, packet).is_err()).for_each(lost);
}

impl TunQueue {
    fn open(name: &str, kind: libc::c_int) -> Result<Self, Error> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(CLONE_DEVICE)
            .map_err(|error| Error::new(CLONE_DEVICE, error))?;
        let set = sys::tun_set_iff(file.as_fd(), name, kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR);
        set.map_err(|error| {
            let what = format!("TUN interface {name}");
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Error::new(what, error);
            }
            let reason = "another instance with this TUN interface is running in this network namespace, or \
                          another program has an interface of this name: a free name was expected";
            Error::other(what, reason)
        })?;
        Ok(Self(file))
    }

    /// Reads a header ([`VnetHeader`]) and the packet behind it, which may be a large one. Returns the length
    /// of both together, or `None` if no packet waits.
    #[inline]
    pub(crate) fn read(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(space) {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) if error.raw_os_error() == Some(libc::EBADFD) => {
                Err(io::Error::other("another program has removed the interface"))
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for TunQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells the kernel which checksums and segmentation it can leave to us. Returns whether it supports
/// segmentation offload for UDP: kernels before 6.2 do not, and also reject the coalesced packets that are
/// written.
fn enable_offload(file: &File) -> io::Result<bool> {
    sys::tun_set_header_len(file.as_fd(), VNET_HEADER_LEN)?;
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    if sys::tun_set_offload(file.as_fd(), tcp | udp).is_ok() {
        return Ok(true);
    }
    sys::tun_set_offload(file.as_fd(), tcp).map(|()| false)
}

/// Disables the link-local address: the interface needs none, and the policies would only drop its neighbour
/// discovery.
fn disable_link_local(name: &str) {
    // A kernel without IPv6 has no such file, and needs no change.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
}

#[cfg(test)]
mod tests;
