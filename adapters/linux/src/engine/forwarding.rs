//! Forwarding between the nodes of a cell (docs/decisions/0140-cells.md): a node that stands by forwards the
//! packets of peers to the owner, which handles them as if they had arrived there.
//!
//! Only packets from packet sockets and the UDP ports of IKE are forwarded, not those that another node has
//! forwarded: a packet takes one hop at most. Nothing is queued: what the socket does not take is lost.

use super::shared::Shared;
use crate::BATCH;
use crate::Error;
use crate::buffers::Buffers;
use crate::forward_port::ForwardPort;
use crate::ike::{ike_datagram, payload_offset};
use crate::packet_socket::PacketKind;
use crate::process::SystemRng;
use arrayvec::ArrayVec;
use casemate_cell::{ForwardAddress, FrameOpener, FrameSealer, Ingress, RunId, SealError};
use casemate_crypto::{Provider, Providers, SecretBytes};
use casemate_wire::invariant::OrBroken;
use casemate_wire::ip::{IpVersion, Ipv4, Ipv6, version};
use casemate_wire::packet::Packet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a node needs to forward packets, and to receive those of other nodes.
pub struct Forwarding {
    pub(super) forwarder: Forwarder,
    pub(super) receiver: ForwardReceiver,
}

impl Forwarding {
    /// Opens the socket at this address of the node. Each call begins another run. Frames of other nodes may
    /// have a second wrapping key; this one sends with the first.
    ///
    /// # Errors
    ///
    /// The host does not have the address, the port is in use, or no provider has the algorithms.
    pub fn open(
        address: SocketAddr,
        (first, second): (&SecretBytes, Option<&SecretBytes>),
        providers: &[&'static dyn Provider],
        rng: &mut SystemRng,
    ) -> Result<Self, Error> {
        let failed = |error: SealError| Error::other("forwarded packets", error.to_string());
        let (run, list) = (RunId::random(rng), Providers(providers));
        let sealer = FrameSealer::new(first, run, &list).map_err(failed)?;
        let opener = FrameOpener::new(first, second, run, &list).map_err(failed)?;
        let port = ForwardPort::open(address)?;
        let receiver = ForwardReceiver { port: port.try_clone()?, opener, providers: providers.into() };
        Ok(Self { forwarder: Forwarder::new(port, run, sealer), receiver })
    }

    /// What the other nodes have to know.
    pub fn address(&self) -> ForwardAddress {
        self.forwarder.own
    }

    /// Sets the mark of sent packets.
    pub(super) fn set_mark(&self, mark: u32) -> Result<(), Error> {
        self.forwarder.port.set_mark(mark)
    }
}

/// How many packets a node has forwarded and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardStatus {
    /// Address and port of this node for the others.
    pub address: SocketAddr,
    /// Packets that were forwarded to the owner.
    pub sent: u64,
    /// Packets that other nodes have forwarded, and that this one has handled.
    pub received: u64,
    /// Datagrams that are no frames for this node: forged, changed, repeated, or of another cell.
    pub rejected: u64,
    /// Packets that were lost: the socket did not take them, this node does not own the SAs or does not have
    /// the destination address, or too many IKE messages wait.
    pub dropped: u64,
}

/// The sending half, and the counters of both.
pub(super) struct Forwarder {
    port: ForwardPort,
    own: ForwardAddress,
    /// Whether this node owns the SAs: then it forwards nothing, and handles what it receives.
    is_owner: AtomicBool,
    sending: Mutex<Sending>,
    sent: AtomicU64,
    received: AtomicU64,
    rejected: AtomicU64,
    dropped: AtomicU64,
}

struct Sending {
    sealer: FrameSealer,
    /// The owner.
    target: Option<ForwardAddress>,
    /// Reused for each frame.
    frame: Vec<u8>,
}

impl Forwarder {
    fn new(port: ForwardPort, run: RunId, sealer: FrameSealer) -> Self {
        let own = ForwardAddress { address: port.address(), run };
        Self {
            port,
            own,
            is_owner: AtomicBool::new(false),
            sending: Mutex::new(Sending { sealer, target: None, frame: Vec::new() }),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    /// Sets whether this node owns the SAs, and the node that it forwards to otherwise.
    pub(super) fn set_target(&self, is_owner: bool, target: Option<ForwardAddress>) {
        self.sending().target = target.filter(|target| target.address != self.own.address);
        self.is_owner.store(is_owner, Ordering::Relaxed);
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> ForwardStatus {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ForwardStatus {
            address: self.own.address,
            sent: load(&self.sent),
            received: load(&self.received),
            rejected: load(&self.rejected),
            dropped: load(&self.dropped),
        }
    }

    /// Forwards the packets of a batch from the network, and removes them from it, unless this node owns the
    /// SAs or does not know who does.
    #[inline]
    pub(super) fn forward(&self, ingress: Ingress, buffers: &mut Buffers) {
        if !self.is_owner.load(Ordering::Relaxed) {
            self.forward_to_target(ingress, buffers);
        }
    }

    #[cold]
    fn forward_to_target(&self, ingress: Ingress, buffers: &mut Buffers) {
        let mut sending = self.sending();
        let Sending { sealer, target: Some(target), frame } = &mut *sending else { return };
        buffers.with_packets(|packets| {
            for packet in packets.iter().filter(|packet| !packet.is_empty()) {
                let sealed = sealer.seal(&target.run, ingress, packet.data(), frame);
                let is_sent = sealed.is_ok() && self.port.send(target.address, frame).is_ok();
                add(if is_sent { &self.sent } else { &self.dropped }, 1);
            }
        });
        buffers.set_lens(&[]);
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// The receiving half, one of the inputs of the engine.
pub(super) struct ForwardReceiver {
    port: ForwardPort,
    opener: FrameOpener,
    providers: Vec<&'static dyn Provider>,
}

impl ForwardReceiver {
    /// Receives up to `most` datagrams into `buffers`. [`open`](Self::open) follows.
    pub(super) fn receive(&self, buffers: &mut Buffers, most: usize) -> io::Result<usize> {
        self.port.receive(buffers, most)
    }

    /// Replaces the received frames by their packets. Passes IKE messages for port 500 on to the event loop.
    /// All packets that remain are for the data path. Drops everything unless this node owns the SAs.
    pub(super) fn open(&mut self, forwarder: &Forwarder, buffers: &mut Buffers, shared: &Shared) {
        let ingresses = self.open_frames(forwarder, buffers);
        let is_owner = forwarder.is_owner.load(Ordering::Relaxed);
        let mut dropped = 0_usize;
        buffers.with_packets(|packets| {
            let context = shared.lock_endpoint();
            let datapath = context.endpoint().datapath();
            for (packet, ingress) in packets.iter_mut().zip(ingresses) {
                let Some(ingress) = ingress else { continue };
                let is_ours = || destination(packet.data()).is_some_and(|addr| datapath.is_local_addr(addr));
                let is_handled = is_owner && is_ours() && pass_on(packet, ingress, shared);
                if !is_handled {
                    clear(packet);
                    dropped = dropped.saturating_add(1);
                } else {
                    add(&forwarder.received, 1);
                    if ingress == Ingress::IkePort {
                        clear(packet);
                    }
                }
            }
        });
        add(&forwarder.dropped, dropped);
        buffers.retain(|packet| !packet.is_empty());
    }

    /// Decrypts the frames in place. A packet whose ingress is `None` was rejected, and is empty.
    fn open_frames(
        &mut self,
        forwarder: &Forwarder,
        buffers: &mut Buffers,
    ) -> ArrayVec<Option<Ingress>, BATCH> {
        let providers = Providers(&self.providers);
        let mut open = |packet: &mut Packet<'_>| {
            let (ingress, range) = self.opener.open(packet.data_mut(), &providers).ok()?;
            packet.shrink_front(range.start).ok()?;
            packet.set_len(range.len()).ok()?;
            Some(ingress)
        };
        let mut ingresses = ArrayVec::new();
        buffers.with_packets(|packets| {
            for packet in packets.iter_mut().take(BATCH) {
                let ingress = open(packet);
                if ingress.is_none() {
                    clear(packet);
                    add(&forwarder.rejected, 1);
                }
                ingresses.push(ingress);
            }
        });
        ingresses
    }
}

impl AsFd for ForwardReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

/// Passes an IKE message for port 500 on. Returns whether the packet is one of those that arrive in this way.
fn pass_on(packet: &Packet<'_>, ingress: Ingress, shared: &Shared) -> bool {
    let packet = packet.data();
    match ingress {
        Ingress::IkePort => {
            let datagram = payload_offset(packet).and_then(|offset| ike_datagram(packet, offset));
            datagram.is_some_and(|datagram| shared.reports.push_ike(datagram))
        }
        Ingress::NattPort => true,
        Ingress::Ip => PacketKind::of(packet, &shared.protected_addrs()) != PacketKind::Other,
    }
}

fn clear(packet: &mut Packet<'_>) {
    packet.set_len(0).or_report("a packet can be empty");
}

fn destination(packet: &[u8]) -> Option<IpAddr> {
    match version(packet).ok()? {
        IpVersion::V4 => Ipv4::parse(packet).ok().map(|ip| ip.dst().into()),
        IpVersion::V6 => Ipv6::parse(packet).ok().map(|ip| ip.dst().into()),
    }
}

#[cfg(test)]
mod tests;
