//! Raw sockets: protected packets are sent exactly as the data path made them, IP header included.
//!
//! The kernel looks up the route by the destination in the packet's header and by our mark, so that packets
//! do not return to the TUN interface. It fills in two fields of an IPv4 header, checksum and length, and a
//! third, the identification, if that is 0; the callers of [`RawSender`] make sure that it never is.
//!
//! No call waits until a link takes packets. A socket that all peers share becomes full when one slow link
//! has filled it. Then each peer gets a socket of its own for a while, and only packets to a peer whose own
//! socket is full are dropped.
//!
//! The kernel charges packets that wait for a link to their socket, and a full socket takes no packets for
//! other links either. A peer that fills its own socket, too, is the peer behind the slow link. It keeps that
//! socket until nothing was dropped for 10 seconds (`QUIET_PERIOD`); the other peers share a socket again
//! after 1 second (`ISOLATION`).
//!
//! Limit: 256 sockets (`MAX_PEER_SOCKETS`). With more destinations than that, destinations share sockets, and
//! a slow one costs packets of the others in its socket.

use crate::{BATCH, Error, sys};
use casemate_sa::Instant;
use casemate_wire::invariant::{self, OrBroken};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that may wait in a socket that all peers share.
pub(crate) const SEND_BUFFER: usize = 4 << 20;

/// A whole IP packet to send.
#[derive(Debug, Clone, Copy)]
pub struct AddressedPacket<'p> {
    /// The packet.
    pub bytes: &'p [u8],
    /// Destination in its header.
    pub dst: IpAddr,
}

/// Sends whole IP packets.
#[derive(Debug)]
pub struct RawSender {
    v4: Socket,
    v6: Option<Socket>,
    peer_sockets: PeerSockets,
}

impl RawSender {
    /// Opens the sockets. Their packets carry `mark`.
    pub fn open(mark: u32) -> Result<Self, Error> {
        Self::with_pmtu_discovery(mark, PmtuDiscovery::Kernel)
    }

    /// Opens sockets for packets that measure the path MTU. The kernel does not apply what it knows of the
    /// path. Their packets carry `mark`.
    pub(crate) fn open_for_path_probes(mark: u32) -> Result<Self, Error> {
        Self::with_pmtu_discovery(mark, PmtuDiscovery::Probe)
    }

    fn with_pmtu_discovery(mark: u32, discovery: PmtuDiscovery) -> Result<Self, Error> {
        let open = |domain| open(domain, mark, SEND_BUFFER, discovery);
        let v4 = open(Domain::IPV4).map_err(|error| Error::new("raw IPv4 socket", error))?;
        let v6 = match open(Domain::IPV6) {
            Ok(socket) => Some(socket),
            // The kernel has no IPv6.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => None,
            Err(error) => return Err(Error::new("raw IPv6 socket", error)),
        };
        Ok(Self { v4, v6, peer_sockets: PeerSockets::new(mark) })
    }

    /// Sends packets of one IP version, without waiting. Returns how many were sent; an error is about the
    /// first packet. `is_full` tells whether the error means that the link takes no more packets for now.
    pub fn send(&self, now: Instant, packets: &[AddressedPacket<'_>]) -> io::Result<usize> {
        invariant::check(packets.len() <= BATCH, "a batch fits one system call");
        let Some(first) = packets.first() else { return Ok(0) };
        let shared = match (first.dst, &self.v6) {
            (IpAddr::V4(_), _) => &self.v4,
            (IpAddr::V6(_), Some(socket)) => socket,
            (IpAddr::V6(_), None) => return Err(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)),
        };
        if !self.peer_sockets.is_active() {
            match sys::send_batch(shared.as_fd(), packets) {
                Err(error) if is_full(&error) => self.peer_sockets.isolate_peers(now),
                sent => return sent,
            }
        }
        self.peer_sockets.send(now, shared, packets)
    }

    /// Gives each peer a socket of its own for a while, because a shared socket is full.
    pub(crate) fn isolate_peers(&self, now: Instant) {
        self.peer_sockets.isolate_peers(now);
    }

    /// Whether packets to `dst` use a socket of their own now.
    #[inline]
    pub(crate) fn is_isolated(&self, now: Instant, dst: IpAddr) -> bool {
        self.peer_sockets.is_active() && self.peer_sockets.is_isolated(now, dst)
    }

    /// Closes the sockets of peers whose links take packets again. Returns messages for the log: peers whose
    /// link was full for the first time since the last call, and peers whose link takes packets again.
    pub(crate) fn review_peer_sockets(&self, now: Instant) -> Vec<String> {
        self.peer_sockets.review_peer_sockets(now)
    }
}

/// Whether the error means that a socket takes no packets until a link has taken those that wait.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}

/// Whether a socket uses the path MTU that the kernel has learned (IP_MTU_DISCOVER in ip(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PmtuDiscovery {
    /// The kernel rejects packets with DF that are longer than the path MTU that it has learned.
    Kernel,
    /// Only the MTU of the interface counts.
    Probe,
}

fn open(domain: Domain, mark: u32, buffer: usize, discovery: PmtuDiscovery) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::RAW, Some(Protocol::from(libc::IPPROTO_RAW)))?;
    if domain == Domain::IPV4 {
        socket.set_header_included_v4(true)?;
        // The header determines DF, and the data path keeps track of the path MTU.
        let value = match discovery {
            PmtuDiscovery::Kernel => libc::IP_PMTUDISC_DONT,
            PmtuDiscovery::Probe => libc::IP_PMTUDISC_PROBE,
        };
        sys::set_option(socket.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)?;
    } else {
        socket.set_header_included_v6(true)?;
        if discovery == PmtuDiscovery::Probe {
            let probe = libc::IPV6_PMTUDISC_PROBE;
            sys::set_option(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, probe)?;
        }
    }
    socket.set_mark(mark)?;
    sys::enlarge_send_buffer(&socket, buffer)?;
    discard_all(&socket)?;
    Ok(socket)
}

/// Raw sockets that discard ESP and AH packets, which the packet sockets have received already. Without them
/// the kernel would send an ICMP error "protocol unreachable" for each packet.
#[derive(Debug)]
pub struct EspAhSinks(#[expect(dead_code, reason = "the sockets only need to stay open")] Vec<Socket>);

impl EspAhSinks {
    /// Opens one socket for each protocol and IP version.
    pub fn open() -> Result<Self, Error> {
        let mut sockets = Vec::new();
        for domain in [Domain::IPV4, Domain::IPV6] {
            for protocol in [libc::IPPROTO_ESP, libc::IPPROTO_AH] {
                match Socket::new(domain, Type::RAW, Some(Protocol::from(protocol))) {
                    Ok(socket) => {
                        discard_all(&socket).map_err(|error| Error::new("filter of a raw socket", error))?;
                        sockets.push(socket);
                    }
                    Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                    Err(error) => return Err(Error::new(format!("raw socket for {protocol}"), error)),
                }
            }
        }
        Ok(Self(sockets))
    }
}

/// Keeps all packets out of the receive queue of a socket.
fn discard_all(socket: &Socket) -> io::Result<()> {
    const RETURN_CONSTANT: u16 = 0x06;
    socket.attach_filter(&[SockFilter::new(RETURN_CONSTANT, 0, 0, 0)])
}

/// Sockets of peers, at most. Each is a file descriptor, of which a process has 1,024 by default.
const MAX_PEER_SOCKETS: usize = 256;
/// Bytes that may wait in the socket of a peer: about as many packets as usually wait at an interface.
const PEER_SEND_BUFFER: usize = 1 << 20;
/// Time during which every peer has a socket of its own after a shared socket was full.
const ISOLATION: Duration = Duration::from_secs(1);
/// Time without drops after which the socket of a peer is closed.
const QUIET_PERIOD: Duration = Duration::from_secs(10);

/// The sockets of single peers, of both IP versions.
#[derive(Debug)]
struct PeerSockets {
    /// Whether there are such sockets, or every peer gets one now. Read without the lock.
    in_use: AtomicBool,
    state: Mutex<PeerSocketTable>,
}

#[derive(Debug)]
struct PeerSocketTable {
    mark: u32,
    sockets: Vec<PeerSocket>,
    by_destination: HashMap<IpAddr, usize>,
    /// Until then every destination gets a socket of its own.
    isolation_end: Instant,
    hasher: RandomState,
    /// The last destination that got no socket of its own, and why.
    refused: Option<(IpAddr, io::Error)>,
}

#[derive(Debug)]
struct PeerSocket {
    dst: IpAddr,
    socket: Socket,
    /// When the socket was full last.
    full_at: Option<Instant>,
    /// Packets dropped because the socket was full.
    dropped: u64,
    is_reported: bool,
}

impl PeerSockets {
    fn new(mark: u32) -> Self {
        let state = PeerSocketTable {
            mark,
            sockets: Vec::new(),
            by_destination: HashMap::new(),
            isolation_end: Instant::ZERO,
            hasher: RandomState::new(),
            refused: None,
        };
        Self { in_use: AtomicBool::new(false), state: Mutex::new(state) }
    }

    #[inline]
    fn is_active(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Starts or extends the time during which every peer gets a socket of its own.
    #[cold]
    fn isolate_peers(&self, now: Instant) {
        let mut state = self.lock();
        state.isolation_end = now.after(ISOLATION);
        self.in_use.store(true, Ordering::Relaxed);
    }

    fn is_isolated(&self, now: Instant, dst: IpAddr) -> bool {
        let state = self.lock();
        now < state.isolation_end || state.by_destination.contains_key(&dst)
    }

    /// Sends the leading packets that use one socket: those to one destination with its own socket, or those
    /// to destinations without one, through `shared`. Otherwise as [`RawSender::send`].
    fn send(&self, now: Instant, shared: &Socket, packets: &[AddressedPacket<'_>]) -> io::Result<usize> {
        let Some(&AddressedPacket { dst, .. }) = packets.first() else { return Ok(0) };
        let mut state = self.lock();
        if let Some(peer) = state.socket_for(now, dst) {
            return peer.send(now, leading(packets, |packet| packet.dst == dst));
        }
        let others = leading(packets, |packet| !state.by_destination.contains_key(&packet.dst));
        match sys::send_batch(shared.as_fd(), others) {
            Err(error) if is_full(&error) => {
                state.isolation_end = now.after(ISOLATION);
                match state.socket_for(now, dst) {
                    Some(peer) => peer.send(now, leading(packets, |packet| packet.dst == dst)),
                    None => Err(error),
                }
            }
            sent => sent,
        }
    }

    /// As [`RawSender::review_peer_sockets`].
    fn review_peer_sockets(&self, now: Instant) -> Vec<String> {
        if !self.is_active() {
            return Vec::new();
        }
        let mut state = self.lock();
        let messages = state.close_idle(now);
        self.in_use.store(now < state.isolation_end || !state.sockets.is_empty(), Ordering::Relaxed);
        messages
    }

    fn lock(&self) -> MutexGuard<'_, PeerSocketTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PeerSocketTable {
    /// The socket for packets to `dst`, if they have their own now.
    fn socket_for(&mut self, now: Instant, dst: IpAddr) -> Option<&mut PeerSocket> {
        if let Some(index) = self.by_destination.get(&dst) {
            return self.sockets.get_mut(*index);
        }
        if now >= self.isolation_end {
            return None;
        }
        let domain = if dst.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        if self.sockets.len() >= MAX_PEER_SOCKETS {
            return self.borrowed_socket_for(dst);
        }
        let socket = match open(domain, self.mark, PEER_SEND_BUFFER, PmtuDiscovery::Kernel) {
            Ok(socket) => socket,
            Err(error) => {
                self.refused = Some((dst, error));
                return self.borrowed_socket_for(dst);
            }
        };
        self.by_destination.insert(dst, self.sockets.len());
        self.sockets.push(PeerSocket { dst, socket, full_at: None, dropped: 0, is_reported: false });
        self.sockets.last_mut()
    }

    /// The socket of another destination of the same IP version, if there are no more sockets.
    fn borrowed_socket_for(&mut self, dst: IpAddr) -> Option<&mut PeerSocket> {
        let count = self.sockets.len();
        let from = self.hasher.hash_one(dst).checked_rem(count as u64)?;
        let from = usize::try_from(from).or_broken("the remainder is below `count`", 0);
        let index = (from..count).chain(0..from);
        let same_version =
            |index: &usize| self.sockets.get(*index).is_some_and(|peer| peer.dst.is_ipv4() == dst.is_ipv4());
        let index = index.into_iter().find(same_version)?;
        self.sockets.get_mut(index)
    }

    /// Closes sockets that are not needed any more. Returns messages for the log.
    fn close_idle(&mut self, now: Instant) -> Vec<String> {
        let refused = self.refused.take();
        let message = |(dst, error)| format!("link towards {dst} shares a socket with others: {error}");
        let mut messages: Vec<String> = refused.map(message).into_iter().collect();
        let is_isolating = now < self.isolation_end;
        self.sockets.retain_mut(|peer| {
            let is_kept = match peer.full_at {
                Some(full_at) => now.since(full_at) < QUIET_PERIOD,
                None => is_isolating,
            };
            messages.extend(peer.message(is_kept));
            is_kept
        });
        let indices = self.sockets.iter().enumerate().map(|(index, peer)| (peer.dst, index));
        self.by_destination = indices.collect();
        messages
    }
}

impl PeerSocket {
    fn send(&mut self, now: Instant, packets: &[AddressedPacket<'_>]) -> io::Result<usize> {
        sys::send_batch(self.socket.as_fd(), packets).inspect_err(|error| {
            if is_full(error) {
                self.full_at = Some(now);
                self.dropped = self.dropped.saturating_add(packets.len() as u64);
            }
        })
    }

    /// The message for the log that is still to be written.
    fn message(&mut self, is_kept: bool) -> Option<String> {
        let Self { dst, dropped, is_reported, full_at, .. } = self;
        full_at.as_ref()?;
        if !is_kept {
            return Some(format!("link towards {dst} has room again; dropped packets: {dropped}"));
        }
        let is_new = !std::mem::replace(is_reported, true);
        is_new.then(|| format!("link towards {dst} is full: packets beyond its rate are dropped (link-full)"))
    }
}

/// The leading packets that fulfil a condition.
fn leading<'a, 'p>(
    packets: &'a [AddressedPacket<'p>],
    condition: impl Fn(&AddressedPacket<'p>) -> bool,
) -> &'a [AddressedPacket<'p>] {
    let count = packets.iter().take_while(|packet| condition(packet)).count();
    packets.get(..count).or_broken_default("a part of the packets is counted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;

    /// A packet without payload for each of `count` addresses.
    fn packets(count: u16) -> Vec<([u8; 20], IpAddr)> {
        let packet = |number: u16| {
            let [a, b] = number.to_be_bytes();
            let header = [0x45, 0, 0, 20, 0, 1, 0, 0, 64, 50, 0, 0, 127, 0, 0, 1, 127, 1, a, b];
            (header, IpAddr::from([127, 1, a, b]))
        };
        (0..count).map(packet).collect()
    }

    /// Sends the packets one by one.
    fn send(sender: &RawSender, now: Instant, packets: &[([u8; 20], IpAddr)]) {
        for (packet, dst) in packets {
            assert_eq!(sender.send(now, &[AddressedPacket { bytes: packet, dst: *dst }]).unwrap(), 1);
        }
    }

    /// Runs a test in a namespace with a loopback interface; `None` if namespaces are not available.
    fn with_sender(test: impl FnOnce(&RawSender) + Send) -> Option<()> {
        let netns = Netns::new().map_err(casemate_test_support::skip).ok()?;
        netns.run(|| test(&RawSender::open(1).unwrap())).unwrap();
        Some(())
    }

    #[test]
    fn a_peer_without_a_socket_of_its_own_is_reported() {
        let _ = with_sender(|sender| {
            sender.isolate_peers(Instant::ZERO);
            crate::sandbox::drop_capabilities().unwrap();
            send(sender, Instant::ZERO, &packets(1));
            let [message] = &sender.review_peer_sockets(Instant::ZERO)[..] else { panic!("one message") };
            assert!(message.starts_with("link towards 127.1.0.0 shares a socket with others: "), "{message}");
            assert_eq!(sender.review_peer_sockets(Instant::ZERO), [""; 0]);
        });
    }

    #[test]
    fn only_slow_peers_keep_their_sockets() {
        let _ = with_sender(|sender| {
            let (index, packets) = (Instant::from_secs, packets(3));
            let sockets = &sender.peer_sockets;
            send(sender, index(5), &packets);
            assert!(!sockets.is_active(), "nothing is full");
            sender.isolate_peers(index(5));
            send(sender, index(5), &packets);
            assert_eq!(sockets.lock().sockets.len(), 3);
            sockets.lock().sockets[1].full_at = Some(index(5));
            let [slow, other] = [packets[1].1, packets[0].1];
            assert_eq!(
                sender.review_peer_sockets(index(5)),
                [format!("link towards {slow} is full: packets beyond its rate are dropped (link-full)")]
            );
            assert_eq!(sender.review_peer_sockets(index(7)), [""; 0]);
            assert!(sender.is_isolated(index(7), slow) && !sender.is_isolated(index(7), other));
            send(sender, index(7), &packets);
            assert_eq!(sockets.lock().sockets.len(), 1, "the others share a socket again");
            assert_eq!(
                sender.review_peer_sockets(index(15)),
                [format!("link towards {slow} has room again; dropped packets: 0")]
            );
            assert!(!sockets.is_active());
        });
    }

    #[test]
    fn destinations_beyond_the_limit_share_sockets() {
        let _ = with_sender(|sender| {
            sender.isolate_peers(Instant::ZERO);
            send(sender, Instant::ZERO, &packets(MAX_PEER_SOCKETS as u16 + 20));
            assert_eq!(sender.peer_sockets.lock().sockets.len(), MAX_PEER_SOCKETS);
            assert_eq!(sender.peer_sockets.lock().by_destination.len(), MAX_PEER_SOCKETS);
        });
    }
}
