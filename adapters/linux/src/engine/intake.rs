//! Where packets are read, by one thread at a time.
//!
//! They come by inlets, which are numbered: the TUN interface, then the packet sockets, then the UDP ports.

use super::batch::Batch;
use super::common::Common;
use super::pace::Pace;
use super::source::Source;
use crate::clock::Clock;
use crate::receive::{Arrival, Receiver};
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use std::io;
use std::iter::{once, repeat_n};
use std::os::fd::{AsFd, BorrowedFd};

/// The inlet of packets to be protected. By all others come packets to be opened.
pub(super) const TUN: usize = 0;

/// What packets are read from.
pub(super) struct Intake {
    pub(super) clock: Clock,
    pub(super) tun: Tun,
    pub(super) source: Source,
    pub(super) receivers: Vec<Receiver>,
    /// UDP ports of encapsulated ESP; with IKE, the one that it shares is among them.
    pub(super) ports: Vec<UdpPort>,
    /// How long batches from the wire may be, if what is urgent overtakes others.
    pub(super) pace: Option<Pace>,
}

impl Intake {
    /// The inlets, each with a descriptor to wait for. The queues of the TUN interface are one inlet.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let queues = self.tun.queues().map(|queue| (TUN, queue.as_fd()));
        let sockets = self.receivers.iter().map(AsFd::as_fd).chain(self.ports.iter().map(AsFd::as_fd));
        queues.chain((TUN.saturating_add(1)..).zip(sockets))
    }

    /// Which inlets have what was taken out of their descriptors and not read yet.
    pub(super) fn left_over(&self) -> impl Iterator<Item = bool> {
        let receivers = repeat_n(false, self.receivers.len());
        once(self.source.has_more()).chain(receivers).chain(self.ports.iter().map(UdpPort::has_more))
    }

    /// Reads a batch; answers whether more waits there.
    pub(super) fn read(&mut self, inlet: usize, batch: &mut Batch, common: &Common) -> Result<bool, Error> {
        batch.now = self.clock.now();
        let Some(socket) = inlet.checked_sub(TUN.saturating_add(1)) else {
            return self.read_tun(batch, common);
        };
        let has_more = match socket.checked_sub(self.receivers.len()) {
            None => self.read_raw(socket, batch, common)?,
            Some(port) => self.read_port(port, batch)?,
        };
        if let Some(pace) = self.pace.as_mut().filter(|_| has_more) {
            pace.leave_waiting(self.clock.now());
        }
        Ok(has_more)
    }

    fn read_tun(&mut self, batch: &mut Batch, common: &Common) -> Result<bool, Error> {
        let Self { tun, source, .. } = self;
        let Batch { buffers, now, .. } = batch;
        let mut dropped = |reason, packet: &[u8]| common.note_drop(*now, reason, packet);
        source
            .fill(tun, buffers, *now, &mut dropped)
            .map_err(|error| Error::new(format!("TUN interface {}", tun.name()), error))?;
        Ok(source.has_more() || buffers.is_full())
    }

    fn read_raw(&mut self, index: usize, batch: &mut Batch, common: &Common) -> Result<bool, Error> {
        let Some(receiver) = self.receivers.get(index) else { return Ok(false) };
        let most = self.pace.as_mut().map_or(BATCH, |pace| pace.packets(batch.now));
        let count = unless_harmless(receiver.receive(&mut batch.buffers, most), "packet socket")?;
        // The kernel has these packets, too. What is not for the data path is the kernel's business alone.
        let ours = common.ours();
        batch.buffers.retain(|packet| Arrival::of(packet, &ours) != Arrival::Other);
        Ok(count == most)
    }

    fn read_port(&mut self, index: usize, batch: &mut Batch) -> Result<bool, Error> {
        let Some(port) = self.ports.get_mut(index) else { return Ok(false) };
        let room = self.pace.as_mut().map_or(usize::MAX, |pace| pace.room(batch.now));
        unless_harmless(port.receive(&mut batch.buffers, room), "UDP port")
    }
}

/// What a socket answered. An interface that goes down, or a packet that could not be delivered long ago, is no failure of the socket:
/// nothing came.
fn unless_harmless<T: Default>(result: io::Result<T>, what: &str) -> Result<T, Error> {
    result.or_else(|error| match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ECONNREFUSED | libc::ENOBUFS) => {
            Ok(T::default())
        }
        _ => Err(Error::new(what, error)),
    })
}
