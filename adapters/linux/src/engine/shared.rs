//! State that the threads of the engine share, and the order of its locks.

use super::endpoint_context::EndpointContext;
use super::forwarding::Forwarder;
use super::inbound::InboundStage;
use super::ip_idents::IpIdents;
use super::outbound::OutboundStage;
use super::reorder::ReorderQueue;
use super::rx::RxPoller;
use super::tunnels::Tunnels;
use super::workers::{WorkerPool, spin_wait};
use crate::BATCH;
use crate::buffers::Buffers;
use crate::ike::IkeDatagram;
use crate::offload::PacketList;
use crate::packet_socket::ProtectedAddrs;
use crate::sys::EventFd;
use crate::tun::TunWriter;
use casemate::HeldPackets;
use casemate_datapath::trace::Transmission;
use casemate_datapath::{DropReason, MAX_BATCH, OpenBatch, SealBatch};
use casemate_sa::{Instant, SpdId};
use std::array;
use std::collections::HashSet;
use std::iter::repeat_with;
use std::mem;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

/// Free batches of a reorder queue, for each worker.
const FREE_BATCHES_PER_WORKER: usize = 2;

/// Calls of the data path for one batch.
const CALLS_PER_BATCH: usize = BATCH.div_ceil(MAX_BATCH);

/// Largest number of IKE messages that wait for the event loop. The loop takes all of them at once.
const MAX_IKE_DATAGRAMS: usize = 1_024;

/// State that the threads of the engine share.
///
/// Lock order: [`rx`](Self::lock_rx), reorder queue ([`outbound`](Self::outbound) or
/// [`inbound`](Self::inbound)), [`endpoint`](Self::lock_endpoint). Never acquire an earlier lock while
/// holding a later one.
///
/// A thread that holds the consumer of a reorder queue counts as holding its lock. Taking a place acquires
/// no lock, so it is allowed under any of them. Code that holds another lock acquires no further one.
pub(super) struct Shared {
    /// First in the lock order.
    rx: Mutex<RxPoller>,
    /// Last in the lock order.
    endpoint: Mutex<EndpointContext>,
    pub(super) outbound: ReorderQueue<OutboundStage, Box<Batch>>,
    pub(super) inbound: ReorderQueue<InboundStage, Box<Batch>>,
    tun: TunWriter,
    /// Interfaces of route-based tunnels.
    pub(super) tunnels: Tunnels,
    protected_addrs: RwLock<ProtectedAddrs>,
    pub(super) idents: IpIdents,
    /// Forwards packets to the owner of a cell, if that is configured.
    pub(super) forwarder: Option<Forwarder>,
    /// Packets that wait for their Child SA.
    pub(super) held: Mutex<HeldPackets>,
    pub(super) reports: WorkerReports,
    pub(super) workers: WorkerPool,
}

/// What [`Shared`] is made from.
pub(super) struct SharedParts {
    pub(super) rx: RxPoller,
    pub(super) endpoint: EndpointContext,
    pub(super) outbound: OutboundStage,
    pub(super) inbound: InboundStage,
    pub(super) tun: TunWriter,
    pub(super) tunnels: Tunnels,
    /// Local addresses of the inbound SAs.
    pub(super) inbound_addrs: HashSet<IpAddr>,
    pub(super) idents: IpIdents,
    pub(super) forwarder: Option<Forwarder>,
    /// Wakes the event loop.
    pub(super) wakeup: EventFd,
    /// Number of threads besides the event loop.
    pub(super) worker_count: usize,
}

impl Shared {
    pub(super) fn new(parts: SharedParts) -> Self {
        let SharedParts { rx, endpoint, outbound, inbound, tun, tunnels, inbound_addrs, .. } = parts;
        let SharedParts { idents, forwarder, wakeup, worker_count, .. } = parts;
        let free_batches =
            || repeat_with(Batch::new).take(worker_count.saturating_mul(FREE_BATCHES_PER_WORKER)).collect();
        Self {
            rx: Mutex::new(rx),
            endpoint: Mutex::new(endpoint),
            outbound: ReorderQueue::new(outbound, free_batches()),
            inbound: ReorderQueue::new(inbound, free_batches()),
            tun,
            tunnels,
            protected_addrs: RwLock::new(ProtectedAddrs {
                with_sas: inbound_addrs,
                with_ike: HashSet::new(),
            }),
            idents,
            forwarder,
            held: Mutex::default(),
            reports: WorkerReports::new(wakeup),
            workers: WorkerPool::new(),
        }
    }

    /// Runs a worker thread. A panic ends the run with an error, because the batch of that thread is lost and
    /// one thread fewer is left.
    pub(super) fn run_guarded(&self, work: impl FnOnce()) {
        if panic::catch_unwind(AssertUnwindSafe(work)).is_err() {
            self.reports.worker_panicked.store(true, Ordering::Relaxed);
            self.reports.wakeup.signal();
        }
    }

    /// Locks the inputs. One thread reads at a time.
    pub(super) fn lock_rx(&self) -> MutexGuard<'_, RxPoller> {
        spin_wait(|| self.rx.try_lock().ok())
            .unwrap_or_else(|| self.rx.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the data path and IKE.
    pub(super) fn lock_endpoint(&self) -> MutexGuard<'_, EndpointContext> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no thread holds the endpoint lock.
    #[cfg(test)]
    pub(super) fn is_endpoint_unlocked(&self) -> bool {
        self.endpoint.try_lock().is_ok()
    }

    /// The endpoint without locking, while no other thread runs.
    pub(super) fn endpoint_mut(&mut self) -> &mut EndpointContext {
        self.endpoint.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Local addresses whose ESP and AH packets go to the data path.
    pub(super) fn protected_addrs(&self) -> RwLockReadGuard<'_, ProtectedAddrs> {
        self.protected_addrs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts protected packets to one more local address.
    pub(super) fn add_inbound_addr(&self, addr: IpAddr) {
        self.protected_addrs.write().unwrap_or_else(PoisonError::into_inner).with_sas.insert(addr);
    }

    /// Sets the local addresses to which peers may send protected packets of a former run.
    pub(super) fn set_ike_addrs(&self, addrs: HashSet<IpAddr>) {
        if self.protected_addrs().with_ike != addrs {
            self.protected_addrs.write().unwrap_or_else(PoisonError::into_inner).with_ike = addrs;
        }
    }

    /// Reports to a running trace how packets were sent.
    #[inline]
    pub(super) fn trace_sent<'p>(
        &self,
        now: Instant,
        packets: impl Iterator<Item = &'p [u8]>,
        by: Transmission,
    ) {
        if self.reports.is_tracing() {
            let mut context = self.lock_endpoint();
            packets.for_each(|packet| context.endpoint.datapath_mut().trace_sent(now, packet, by));
        }
    }

    /// Delivers a packet to the host by the interface of this SPD.
    pub(super) fn deliver(&self, spd: SpdId, packet: &[u8], now: Instant) {
        let is_delivered =
            if spd.is_main() { self.tun.deliver(packet).is_ok() } else { self.tunnels.deliver(spd, packet) };
        if !is_delivered {
            self.record_drop(now, DropReason::SendFailed, packet);
        }
    }

    /// Delivers the packets of a batch to the host by the interface of this SPD.
    #[inline]
    pub(super) fn deliver_batch(&self, spd: SpdId, list: &PacketList<'_>, now: Instant) {
        let lost = |packet: &[u8]| self.record_drop(now, DropReason::SendFailed, packet);
        if spd.is_main() {
            self.tun.deliver_batch(list, lost);
        } else {
            self.tunnels.deliver_batch(spd, list, lost);
        }
    }

    /// Writes of coalesced packets to the TUN interface that the kernel rejected.
    pub(super) fn rejected_gro_writes(&self) -> u64 {
        self.tun.rejected_gro_writes()
    }

    /// Counts a dropped packet. Locks the endpoint.
    #[cold]
    pub(super) fn record_drop(&self, now: Instant, reason: DropReason, packet: &[u8]) {
        self.lock_endpoint().endpoint.datapath_mut().record_drop(now, reason, packet);
    }
}

/// Batch of packets that one thread works on. Reused, because it is large.
pub(super) struct Batch {
    pub(super) buffers: Buffers,
    /// When the batch was read.
    pub(super) now: Instant,
    /// The SPD whose policies apply to packets to protect.
    pub(super) spd: SpdId,
    /// Outbound packets with reserved sequence numbers, up to [`MAX_BATCH`] in each element.
    pub(super) sealing: [SealBatch; CALLS_PER_BATCH],
    /// Inbound packets with their SAs, up to [`MAX_BATCH`] in each element.
    pub(super) opening: [OpenBatch; CALLS_PER_BATCH],
}

impl Batch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            buffers: Buffers::new(),
            now: Instant::ZERO,
            spd: SpdId::MAIN,
            sealing: array::from_fn(|_| SealBatch::new()),
            opening: array::from_fn(|_| OpenBatch::new()),
        })
    }
}

/// What the threads that move packets report to the event loop.
pub(super) struct WorkerReports {
    sealed: AtomicU64,
    number_missing: AtomicBool,
    error: Mutex<Option<String>>,
    worker_panicked: AtomicBool,
    is_tracing: AtomicBool,
    /// IKE messages that arrived among ESP packets.
    ike_datagrams: Mutex<Vec<IkeDatagram>>,
    /// Wakes the event loop for reports that cannot wait until packets wake it.
    pub(super) wakeup: EventFd,
}

/// Usage of sequence numbers.
pub(super) struct NumberUsage {
    /// Number of sealed packets.
    pub(super) sealed: u64,
    /// No sequence number was reserved for a packet.
    pub(super) is_missing: bool,
}

impl WorkerReports {
    fn new(wakeup: EventFd) -> Self {
        Self {
            sealed: AtomicU64::new(0),
            number_missing: AtomicBool::new(false),
            error: Mutex::default(),
            worker_panicked: AtomicBool::new(false),
            is_tracing: AtomicBool::new(false),
            ike_datagrams: Mutex::default(),
            wakeup,
        }
    }

    /// Whether a worker has panicked.
    pub(super) fn has_worker_panicked(&self) -> bool {
        self.worker_panicked.load(Ordering::Relaxed)
    }

    /// Whether the data path wants to know how packets are sent, because a trace is running. A hint, read
    /// without the endpoint lock.
    #[inline]
    pub(super) fn is_tracing(&self) -> bool {
        self.is_tracing.load(Ordering::Relaxed)
    }

    /// Starts or ends the reports about sent packets.
    pub(super) fn set_tracing(&self, is_tracing: bool) {
        self.is_tracing.store(is_tracing, Ordering::Relaxed);
    }

    /// Counts sealed packets.
    pub(super) fn add_sealed(&self, count: u64) {
        self.sealed.fetch_add(count, Ordering::Relaxed);
    }

    /// Reports a packet that was dropped because no sequence number was reserved for it.
    pub(super) fn report_missing_number(&self) {
        self.number_missing.store(true, Ordering::Relaxed);
    }

    /// Usage since the last [`take_number_usage`](Self::take_number_usage).
    pub(super) fn number_usage(&self) -> NumberUsage {
        NumberUsage {
            sealed: self.sealed.load(Ordering::Relaxed),
            is_missing: self.number_missing.load(Ordering::Relaxed),
        }
    }

    /// Returns the usage and resets it.
    pub(super) fn take_number_usage(&self) -> NumberUsage {
        NumberUsage {
            sealed: self.sealed.swap(0, Ordering::Relaxed),
            is_missing: self.number_missing.swap(false, Ordering::Relaxed),
        }
    }

    /// Reports an error of the operating system. Replaces an earlier error that was not taken yet.
    pub(super) fn report_error(&self, what: String) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// The last error since the last call.
    pub(super) fn take_error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Passes an IKE message on to the event loop and wakes it. Returns `false` if too many messages wait:
    /// a flood on port 4500 must not use up the memory. The peer retransmits what is dropped.
    pub(super) fn push_ike(&self, datagram: IkeDatagram) -> bool {
        let mut queue = self.ike_datagrams.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = queue.len() >= MAX_IKE_DATAGRAMS;
        if !is_full {
            queue.push(datagram);
            self.wakeup.signal();
        }
        !is_full
    }

    /// The IKE messages that arrived since the last call.
    pub(super) fn take_ike(&self) -> Vec<IkeDatagram> {
        mem::take(&mut *self.ike_datagrams.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_ike::Path;
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn waiting_ike_messages_are_bounded() {
        let reports = WorkerReports::new(EventFd::new().unwrap());
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 4_500));
        let message =
            || IkeDatagram { path: Path { local: anywhere, remote: anywhere }, message: vec![0; 28] };
        for _ in 0..MAX_IKE_DATAGRAMS {
            assert!(reports.push_ike(message()));
        }
        assert!(!reports.push_ike(message()));
        assert_eq!(reports.take_ike().len(), MAX_IKE_DATAGRAMS);
        assert!(reports.push_ike(message()), "there is room again");
    }
}
