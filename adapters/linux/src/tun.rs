//! A TUN interface: the door between the host's own IP stack and the data path.
//!
//! Whole IP packets, non-blocking. The kernel's TCP and UDP hand over many segments as one packet, and take them so
//! (`offload`). The interface belongs to the process: when the process ends, however it ends, the kernel removes it with every
//! route that leads into it.

use crate::netlink::Netlink;
use crate::offload::{self, Batch, HEADER_LEN, Run, VnetHeader};
use crate::{BATCH, Error, steer, sys};
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
    /// The one that there always is.
    door: Queue,
    others: Vec<Queue>,
    name: String,
    index: u32,
    /// Whether the kernel knows packets that stand for many UDP datagrams.
    joins_udp: bool,
}

/// Packets that the host sends wait in a queue.
#[derive(Debug)]
pub(crate) struct Queue(File);

/// The way of packets to the host. Any thread may use it.
#[derive(Debug)]
pub(crate) struct TunWriter {
    file: File,
    /// Whether the kernel knows packets that stand for many UDP datagrams.
    joins_udp: bool,
    /// How many writes of joined packets the kernel rejected.
    rejected: AtomicU64,
}

impl Tun {
    /// Makes the interface `name`; with a queue for each class if that is wanted and the kernel gives it, and a warning
    /// if it does not.
    pub fn claim(
        name: &str,
        classifier: Option<&Classifier>,
        netlink: &mut Netlink,
        warn: &mut dyn FnMut(String),
    ) -> Result<Self, Error> {
        let Some(classifier) = classifier else { return Self::create(name, netlink) };
        Self::create_sorted(name, classifier, netlink).or_else(|error| {
            let tun = Self::create(name, netlink)?;
            warn(format!(
                "all classes share one queue of the kernel, which drops from all of them alike when more comes than can be \
                 protected ({error})"
            ));
            Ok(tun)
        })
    }

    /// Makes the interface `name`, which must not be there: of two processes that try, one gets it. It is switched off.
    pub(crate) fn create(name: &str, netlink: &mut Netlink) -> Result<Self, Error> {
        let door = Queue::open(name, libc::IFF_TUN | libc::IFF_TUN_EXCL)?;
        Self::finish(door, Vec::new(), name, netlink)
    }

    /// The same with a queue for each [`Class`], in their order, into which the kernel puts packets as `classifier` says. Needs
    /// CAP_BPF beside what other interfaces need, and Linux 4.16.
    pub(crate) fn create_sorted(
        name: &str,
        classifier: &Classifier,
        netlink: &mut Netlink,
    ) -> Result<Self, Error> {
        let failed = |error| Error::new(format!("queues for classes at TUN interface {name}"), error);
        let program = steer::load(classifier).map_err(failed)?;
        let open = |flags| Queue::open(name, libc::IFF_TUN | libc::IFF_MULTI_QUEUE | flags);
        let door = open(libc::IFF_TUN_EXCL)?;
        let others = Class::ALL.iter().skip(1).map(|_| open(0)).collect::<Result<_, _>>()?;
        sys::tun_set_steering(door.as_fd(), program.as_fd()).map_err(failed)?;
        Self::finish(door, others, name, netlink)
    }

    fn finish(door: Queue, others: Vec<Queue>, name: &str, netlink: &mut Netlink) -> Result<Self, Error> {
        let joins_udp =
            set_offload(&door.0).map_err(|error| Error::new(format!("TUN interface {name}"), error))?;
        let index = netlink.link(name)?.index;
        Ok(Self { door, others, name: name.into(), index, joins_udp })
    }

    /// Gives it this MTU and switches it on.
    pub(crate) fn set_up(&self, mtu: usize, netlink: &mut Netlink) -> Result<(), Error> {
        no_link_local(&self.name);
        netlink.set_up(self.index, mtu)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The queue that there always is.
    pub(crate) const fn door(&self) -> &Queue {
        &self.door
    }

    /// Where what the host sends waits: one queue, or one for each class.
    pub(crate) fn queues(&self) -> impl Iterator<Item = &Queue> {
        std::iter::once(&self.door).chain(&self.others)
    }

    /// The way into it.
    pub(crate) fn writer(&self) -> Result<TunWriter, Error> {
        let copy = self.door.0.try_clone();
        let writer = |file| TunWriter { file, joins_udp: self.joins_udp, rejected: AtomicU64::new(0) };
        copy.map(writer).map_err(|error| Error::new(format!("TUN interface {}", self.name), error))
    }
}

impl TunWriter {
    /// Hands the host a packet.
    #[inline]
    pub(crate) fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        write_packet(&|parts: &[IoSlice<'_>]| (&self.file).write_vectored(parts), packet)
    }

    /// Hands the host the packets of a batch, joined where the kernel takes them joined. `lost` gets those that it does not take.
    #[inline]
    pub(crate) fn deliver_batch<'p>(&self, batch: &'p Batch<'p>, mut lost: impl FnMut(&'p [u8])) {
        let write = |parts: &[IoSlice<'_>]| (&self.file).write_vectored(parts);
        offload::join(batch, self.joins_udp, |run| {
            if write_run(&write, run, &mut lost) == Joined::Rejected {
                self.rejected.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// How many writes of joined packets the kernel rejected; their packets were written one by one.
    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

/// What became of the packets of a run as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joined {
    /// They were written, were never to go as one, or failed for another reason.
    Done,
    /// The kernel does not know what they are as one; each was written by itself.
    Rejected,
}

#[inline]
fn write_packet(write: &impl Fn(&[IoSlice<'_>]) -> io::Result<usize>, packet: &[u8]) -> io::Result<()> {
    let header = VnetHeader::default().emit();
    write(&[IoSlice::new(&header), IoSlice::new(packet)]).map(drop)
}

/// Writes the packets of a run with `write`, as one if it can be; `lost` gets those that are not taken.
#[inline]
fn write_run<'p>(
    write: &impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    run: &Run<'p>,
    lost: impl FnMut(&'p [u8]),
) -> Joined {
    let Some((header, head)) = run.head() else {
        write_each(write, run, lost);
        return Joined::Done;
    };
    let mut parts: ArrayVec<IoSlice<'_>, { BATCH + 2 }> = ArrayVec::new();
    parts.extend([IoSlice::new(&header), IoSlice::new(&head)]);
    parts.extend(run.payloads().map(IoSlice::new));
    let Err(error) = write(&parts) else { return Joined::Done };
    write_each(write, run, lost);
    if error.raw_os_error() == Some(libc::EINVAL) { Joined::Rejected } else { Joined::Done }
}

fn write_each<'p>(
    write: &impl Fn(&[IoSlice<'_>]) -> io::Result<usize>,
    run: &Run<'p>,
    lost: impl FnMut(&'p [u8]),
) {
    run.packets().filter(|packet| write_packet(write, packet).is_err()).for_each(lost);
}

impl Queue {
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
                          something else has an interface of this name: a free name was expected";
            Error::other(what, reason)
        })?;
        Ok(Self(file))
    }

    /// Takes what comes next, a header ([`VnetHeader`]) and a packet that may stand for many; answers the length of both together. `None`
    /// if there is nothing.
    #[inline]
    pub(crate) fn take(&self, space: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.0).read(space) {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Tells the kernel what it need not do itself. Returns whether it knows packets that stand for many UDP datagrams: kernels before 6.2 do
/// not, and reject them when they are written, too.
fn set_offload(file: &File) -> io::Result<bool> {
    sys::tun_set_header_len(file.as_fd(), HEADER_LEN)?;
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    if sys::tun_set_offload(file.as_fd(), tcp | udp).is_ok() {
        return Ok(true);
    }
    sys::tun_set_offload(file.as_fd(), tcp).map(|()| false)
}

/// The interface needs no address of its own, and neighbour discovery on it would only meet the policies.
fn no_link_local(name: &str) {
    // Without IPv6 in the kernel there is no such file, and nothing to prevent.
    let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/addr_gen_mode"), "1");
}

#[cfg(test)]
mod tests;
