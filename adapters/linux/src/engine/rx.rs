//! Reading packets, by one thread at a time.
//!
//! Packets come from numbered inputs: the TUN interface, the interfaces of route-based tunnels, then the
//! packet sockets, then the UDP ports, then the port for packets that other nodes of a cell forward.

use super::forwarding::ForwardReceiver;
use super::shared::{Batch, Shared};
use super::tun_queue::PacketSource;
use super::tunnels::TunnelInputs;
use crate::packet_socket::{PacketKind, PacketSocket};
use crate::process::Clock;
use crate::sys::NumberedFd;
use crate::tun::Tun;
use crate::udp::UdpPort;
use crate::{BATCH, Error};
use casemate_cell::Ingress;
use casemate_sa::{Instant, SpdId};
use casemate_wire::invariant::OrBroken;
use std::io;
use std::iter::{once, repeat_n};
use std::os::fd::AsFd;
use std::time::Duration;

/// The input of packets to protect by the policies of the main SPD.
pub(super) const TUN: usize = 0;
/// The input of packets to protect by those of other SPDs. All further inputs bring packets to open.
pub(super) const TUNNELS: usize = TUN + 1;

/// The input behind it: the first packet socket.
const FIRST_SOCKET: usize = TUNNELS + 1;

/// Largest number of inputs: the TUN interface, the interfaces of tunnels, four packet sockets, two sockets
/// of two IP versions for each of eight UDP ports (`EncapPorts` of the data path), and the port for forwarded
/// packets.
pub(super) const MAX_INPUTS: usize = 2 + 4 + 2 * 2 * 8 + 1;

/// The inputs, [`MAX_INPUTS`] at most.
pub(super) struct RxPoller {
    clock: Clock,
    tun: Tun,
    pub(super) source: PacketSource,
    pub(super) tunnels: TunnelInputs,
    network: NetworkInputs,
    /// Limits batches from the network, if urgent packets overtake others.
    sizer: Option<BatchSizer>,
}

/// The inputs of packets to open.
pub(super) struct NetworkInputs {
    pub(super) sockets: Vec<PacketSocket>,
    /// UDP ports of encapsulated ESP. With IKE, port 4500, which IKE shares, is among them.
    pub(super) ports: Vec<UdpPort>,
    /// The port for packets that other nodes of a cell forward.
    pub(super) forwarded: Option<ForwardReceiver>,
}

const INPUT_EXISTS: &str = "the number of an input is one of `descriptors`";

impl RxPoller {
    /// The inputs of an engine. An error if there are more than [`MAX_INPUTS`].
    pub(super) fn new(
        clock: Clock,
        tun: Tun,
        source: PacketSource,
        network: NetworkInputs,
        sizer: Option<BatchSizer>,
    ) -> Result<Self, Error> {
        let tunnels = TunnelInputs::new()?;
        let poller = Self { clock, tun, source, tunnels, network, sizer };
        if poller.buffered().count() > MAX_INPUTS {
            return Err(Error::other("UDP ports of SAs", "there are more than eight"));
        }
        Ok(poller)
    }

    /// The descriptors to wait for, with the numbers of their inputs. All queues of the TUN interface are one
    /// input, and so are the interfaces of tunnels.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = NumberedFd<'_>> {
        let queues = self.tun.queues().map(|queue| NumberedFd { number: TUN, fd: queue.as_fd() });
        let NetworkInputs { sockets, ports, forwarded } = &self.network;
        let sockets = sockets.iter().map(AsFd::as_fd).chain(ports.iter().map(AsFd::as_fd));
        let sockets = sockets.chain(forwarded.iter().map(AsFd::as_fd));
        let tunnels = once(NumberedFd { number: TUNNELS, fd: self.tunnels.as_fd() });
        queues
            .chain(tunnels)
            .chain((FIRST_SOCKET..).zip(sockets).map(|(number, fd)| NumberedFd { number, fd }))
    }

    /// Whether each input has packets that were taken out of its descriptor and not returned yet.
    pub(super) fn buffered(&self) -> impl Iterator<Item = bool> {
        let NetworkInputs { sockets, ports, forwarded } = &self.network;
        let sockets = repeat_n(false, sockets.len());
        let interfaces = [self.source.has_buffered(), self.tunnels.has_buffered()].into_iter();
        let ports = ports.iter().map(UdpPort::has_buffered);
        interfaces.chain(sockets).chain(ports).chain(forwarded.iter().map(|_| false))
    }

    /// Reads a batch from an input. Returns whether more packets wait there.
    pub(super) fn read(&mut self, input: usize, batch: &mut Batch, shared: &Shared) -> Result<bool, Error> {
        batch.now = self.clock.now();
        let Some(socket) = input.checked_sub(FIRST_SOCKET) else {
            return if input == TUNNELS { self.read_tunnel(batch) } else { self.read_tun(batch, shared) };
        };
        let NetworkInputs { sockets, ports, .. } = &self.network;
        let has_more = match socket.checked_sub(sockets.len()) {
            None => self.read_socket(socket, batch, shared)?,
            Some(port) if port < ports.len() => self.read_port(port, batch, shared)?,
            Some(_) => self.read_forwarded(batch, shared)?,
        };
        if let Some(sizer) = self.sizer.as_mut().filter(|_| has_more) {
            sizer.note_backlog(self.clock.now());
        }
        Ok(has_more)
    }

    fn read_tun(&mut self, batch: &mut Batch, shared: &Shared) -> Result<bool, Error> {
        let Self { tun, source, .. } = self;
        let Batch { buffers, now, spd, .. } = batch;
        *spd = SpdId::MAIN;
        let mut dropped = |reason, packet: &[u8]| shared.record_drop(*now, reason, packet);
        source
            .fill(tun, buffers, *now, &mut dropped)
            .map_err(|error| Error::new(format!("TUN interface {}", tun.name()), error))?;
        Ok(source.has_buffered() || buffers.is_full())
    }

    fn read_tunnel(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let Some(spd) = self.tunnels.fill(&mut batch.buffers)? else { return Ok(false) };
        batch.spd = spd;
        Ok(self.tunnels.has_buffered() || batch.buffers.is_full())
    }

    fn read_socket(&mut self, index: usize, batch: &mut Batch, shared: &Shared) -> Result<bool, Error> {
        let Some(socket) = self.network.sockets.get(index).or_report(INPUT_EXISTS) else { return Ok(false) };
        let max = self.sizer.as_mut().map_or(BATCH, |sizer| sizer.max_packets(batch.now));
        let count = ignore_transient(socket.receive(&mut batch.buffers, max), "packet socket")?;
        // The kernel has its own copy of these packets and handles those that are not for the data path.
        let protected_addrs = shared.protected_addrs();
        batch.buffers.retain(|packet| PacketKind::of(packet, &protected_addrs) != PacketKind::Other);
        drop(protected_addrs);
        if let Some(forwarder) = &shared.forwarder {
            forwarder.forward(Ingress::Ip, &mut batch.buffers);
        }
        Ok(count == max)
    }

    fn read_port(&mut self, index: usize, batch: &mut Batch, shared: &Shared) -> Result<bool, Error> {
        let Some(port) = self.network.ports.get_mut(index).or_report(INPUT_EXISTS) else { return Ok(false) };
        let max_bytes = self.sizer.as_mut().map_or(usize::MAX, |sizer| sizer.max_bytes(batch.now));
        let has_more = ignore_transient(port.receive(&mut batch.buffers, max_bytes), "UDP port")?;
        if let Some(forwarder) = &shared.forwarder {
            forwarder.forward(Ingress::NattPort, &mut batch.buffers);
        }
        Ok(has_more)
    }

    /// Reads packets that other nodes of the cell have forwarded. They are not forwarded again.
    fn read_forwarded(&mut self, batch: &mut Batch, shared: &Shared) -> Result<bool, Error> {
        let (Some(receiver), Some(forwarder)) = (&mut self.network.forwarded, &shared.forwarder) else {
            return Ok(false);
        };
        let max = self.sizer.as_mut().map_or(BATCH, |sizer| sizer.max_packets(batch.now));
        let received = receiver.receive(&mut batch.buffers, max);
        let count = ignore_transient(received, "UDP port for forwarded packets")?;
        receiver.open(forwarder, &mut batch.buffers, shared);
        Ok(count == max)
    }
}

/// Treats errors that do not mean that the socket has failed as "nothing received": an interface that goes
/// down, or a packet sent earlier that could not be delivered.
fn ignore_transient<T: Default>(result: io::Result<T>, what: &str) -> Result<T, Error> {
    result.or_else(|error| match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN | libc::ECONNREFUSED | libc::ENOBUFS) => {
            Ok(T::default())
        }
        _ => Err(Error::new(what, error)),
    })
}

/// Time that a batch should take, from its reading to the reading of the next one.
const TARGET: Duration = Duration::from_micros(400);
/// Smallest limit in bytes: one packet.
const MIN_BYTES: usize = 1_500;
/// Largest limit in bytes. Longer batches would hardly make longer GSO batches.
const MAX_BYTES: usize = 32 << 10;
/// A batch that took too long, or not long enough, changes the limit by one part in this many. So the limit
/// settles where half of the batches take too long. A batch during which another process had the processor
/// counts once, however long it took.
const STEP_DIVISOR: usize = 8;

/// Learns how many bytes a batch may have so that packets that arrive meanwhile wait only a short time,
/// whatever the suite and the processor.
#[derive(Debug)]
pub(super) struct BatchSizer {
    max_bytes: usize,
    /// When the last batch was read, if more packets waited behind it. Only then is the next batch read as
    /// soon as the last one is done.
    last_read: Option<Instant>,
}

impl BatchSizer {
    /// Starts with the smallest limit. It grows within milliseconds; from the largest limit, the first
    /// batches would be the longest.
    pub(super) const fn new() -> Self {
        Self { max_bytes: MIN_BYTES, last_read: None }
    }

    /// Limit in bytes for a batch that is read now.
    pub(super) fn max_bytes(&mut self, now: Instant) -> usize {
        if let Some(last_read) = self.last_read.take() {
            let step = self.max_bytes / STEP_DIVISOR;
            let max_bytes = match now.since(last_read) > TARGET {
                true => self.max_bytes.saturating_sub(step),
                false => self.max_bytes.saturating_add(step),
            };
            self.max_bytes = max_bytes.clamp(MIN_BYTES, MAX_BYTES);
        }
        self.max_bytes
    }

    /// Upper limit of a batch in packets: [`max_bytes`](Self::max_bytes) in packets of the usual length.
    pub(super) fn max_packets(&mut self, now: Instant) -> usize {
        self.max_bytes(now).div_ceil(MIN_BYTES)
    }

    /// Notes that more packets wait behind the batch that was read now.
    pub(super) fn note_backlog(&mut self, now: Instant) {
        self.last_read = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit after many batches. `micros` returns how long a batch takes, given its number and its bytes.
    fn settled_limit(micros: impl Fn(usize, usize) -> u64) -> usize {
        let (mut sizer, mut now) = (BatchSizer::new(), Instant::ZERO);
        for round in 0..200 {
            let max_bytes = sizer.max_bytes(now);
            sizer.note_backlog(now);
            now = now.after(Duration::from_micros(micros(round, max_bytes)));
        }
        sizer.max_bytes
    }

    #[test]
    fn a_slow_suite_gets_short_batches_and_a_fast_one_long_ones() {
        assert_eq!(settled_limit(|_, bytes| bytes as u64 / 400), MAX_BYTES);
        assert_eq!(settled_limit(|_, bytes| bytes as u64 / 3), MIN_BYTES);
        let limit = settled_limit(|_, bytes| bytes as u64 / 20);
        assert!((6_000..10_000).contains(&limit), "{limit}");
    }

    #[test]
    fn occasional_preemption_hardly_changes_the_limit() {
        let limit = settled_limit(|round, bytes| if round % 8 == 0 { 4_000 } else { bytes as u64 / 400 });
        assert_eq!(limit.max(MAX_BYTES - MAX_BYTES / 4), limit);
    }

    #[test]
    fn pauses_without_backlog_do_not_change_the_limit() {
        let mut sizer = BatchSizer::new();
        for second in 0..50 {
            assert_eq!(sizer.max_bytes(Instant::from_secs(second)), MIN_BYTES);
        }
    }
}
