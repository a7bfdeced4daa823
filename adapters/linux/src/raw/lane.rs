//! Raw sockets of single peers, for the time in which a link takes less than it is sent.
//!
//! The kernel counts how much of a socket's waits for a link, and a full socket takes nothing for other links
//! either. So when the socket that all peers share is full, every peer gets a lane: a socket of its own. Who
//! fills that one too is the peer behind the slow link; it keeps its lane until the link has taken everything
//! for [`CALM`], and the others share a socket again after [`TRIAL`].
//!
//! Limits: [`LANES`] lanes. With more destinations than that, destinations share lanes, and a slow one costs
//! those in its lane packets, too.

use super::{is_full, open};
use crate::sys;
use casemate_sa::Instant;
use socket2::{Domain, Socket};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lanes at most. Each is a file descriptor, of which a process has 1,024 unless it is told otherwise.
const LANES: usize = 256;
/// How much may wait in a lane: about as many packets as usually wait at an interface.
const LANE_BUFFER: usize = 1 << 20;
/// How long every peer has a lane after the shared socket was full.
const TRIAL: Duration = Duration::from_secs(1);
/// How long nothing may have been dropped from a lane before it is closed.
const CALM: Duration = Duration::from_secs(10);

/// The lanes, of both IP versions.
#[derive(Debug)]
pub(super) struct Lanes {
    /// Whether there are lanes, or a trial. Read without the lock.
    in_use: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mark: u32,
    lanes: Vec<Lane>,
    by_destination: HashMap<IpAddr, usize>,
    /// Until when every destination gets a lane.
    trial_end: Instant,
    hasher: RandomState,
}

#[derive(Debug)]
struct Lane {
    dst: IpAddr,
    socket: Socket,
    /// When it was full last.
    full_at: Option<Instant>,
    /// How many packets found it full.
    dropped: u64,
    is_reported: bool,
}

impl Lanes {
    pub(super) fn new(mark: u32) -> Self {
        let state = State {
            mark,
            lanes: Vec::new(),
            by_destination: HashMap::new(),
            trial_end: Instant::ZERO,
            hasher: RandomState::new(),
        };
        Self { in_use: AtomicBool::new(false), state: Mutex::new(state) }
    }

    #[inline]
    pub(super) fn are_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Begins a trial, or makes it longer.
    #[cold]
    pub(super) fn separate(&self, now: Instant) {
        let mut state = self.lock();
        state.trial_end = now.after(TRIAL);
        self.in_use.store(true, Ordering::Relaxed);
    }

    pub(super) fn separates(&self, now: Instant, dst: IpAddr) -> bool {
        let state = self.lock();
        now < state.trial_end || state.by_destination.contains_key(&dst)
    }

    /// Sends the first packets that go the same way: those to one destination that has a lane, or those to
    /// destinations without one through `shared`. Otherwise as [`Sender::send`](super::Sender::send).
    pub(super) fn send(
        &self,
        now: Instant,
        shared: &Socket,
        packets: &[(&[u8], IpAddr)],
    ) -> io::Result<usize> {
        let Some((_, dst)) = packets.first() else { return Ok(0) };
        let mut state = self.lock();
        if let Some(lane) = state.lane(now, *dst) {
            return lane.send(now, first(packets, |(_, other)| other == dst));
        }
        let others = first(packets, |(_, dst)| !state.by_destination.contains_key(dst));
        match sys::send_batch(shared.as_fd(), others) {
            Err(error) if is_full(&error) => {
                state.trial_end = now.after(TRIAL);
                match state.lane(now, *dst) {
                    Some(lane) => lane.send(now, first(packets, |(_, other)| other == dst)),
                    None => Err(error),
                }
            }
            done => done,
        }
    }

    /// As [`Sender::review`](super::Sender::review).
    pub(super) fn review(&self, now: Instant) -> Vec<String> {
        if !self.are_in_use() {
            return Vec::new();
        }
        let mut state = self.lock();
        let messages = state.review(now);
        self.in_use.store(now < state.trial_end || !state.lanes.is_empty(), Ordering::Relaxed);
        messages
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The lane of packets to `dst`, if they have one now.
    fn lane(&mut self, now: Instant, dst: IpAddr) -> Option<&mut Lane> {
        if let Some(at) = self.by_destination.get(&dst) {
            return self.lanes.get_mut(*at);
        }
        if now >= self.trial_end {
            return None;
        }
        let domain = if dst.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let opened = if self.lanes.len() < LANES { open(domain, self.mark, LANE_BUFFER).ok() } else { None };
        let Some(socket) = opened else { return self.foreign_lane(dst) };
        self.by_destination.insert(dst, self.lanes.len());
        self.lanes.push(Lane { dst, socket, full_at: None, dropped: 0, is_reported: false });
        self.lanes.last_mut()
    }

    /// The lane of another destination of the same IP version, where there are no more lanes to be had.
    fn foreign_lane(&mut self, dst: IpAddr) -> Option<&mut Lane> {
        let count = self.lanes.len();
        let from = usize::try_from(self.hasher.hash_one(dst)).unwrap_or(0).checked_rem(count)?;
        let at = (from..count).chain(0..from);
        let of_version =
            |at: &usize| self.lanes.get(*at).is_some_and(|lane| lane.dst.is_ipv4() == dst.is_ipv4());
        let at = at.into_iter().find(of_version)?;
        self.lanes.get_mut(at)
    }

    /// Closes lanes that are not needed any more; returns what there is to be said of them.
    fn review(&mut self, now: Instant) -> Vec<String> {
        let mut messages = Vec::new();
        let trial = now < self.trial_end;
        self.lanes.retain_mut(|lane| {
            let is_kept = match lane.full_at {
                Some(full_at) => now.since(full_at) < CALM,
                None => trial,
            };
            messages.extend(lane.message(is_kept));
            is_kept
        });
        let places = self.lanes.iter().enumerate().map(|(at, lane)| (lane.dst, at));
        self.by_destination = places.collect();
        messages
    }
}

impl Lane {
    fn send(&mut self, now: Instant, packets: &[(&[u8], IpAddr)]) -> io::Result<usize> {
        sys::send_batch(self.socket.as_fd(), packets).inspect_err(|error| {
            if is_full(error) {
                self.full_at = Some(now);
                self.dropped = self.dropped.saturating_add(packets.len() as u64);
            }
        })
    }

    /// What there is to be said of it that was not said yet.
    fn message(&mut self, is_kept: bool) -> Option<String> {
        let Self { dst, dropped, is_reported, full_at, .. } = self;
        full_at.as_ref()?;
        if !is_kept {
            return Some(format!("link towards {dst} has room again: {dropped} packets were dropped"));
        }
        let is_new = !std::mem::replace(is_reported, true);
        is_new.then(|| format!("link towards {dst} is full: packets beyond its rate are dropped (link-full)"))
    }
}

/// The first of the packets that are such ones.
fn first<'a, 'p>(
    packets: &'a [(&'p [u8], IpAddr)],
    is_such: impl Fn(&(&'p [u8], IpAddr)) -> bool,
) -> &'a [(&'p [u8], IpAddr)] {
    let count = packets.iter().take_while(|packet| is_such(packet)).count();
    packets.get(..count).unwrap_or(packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::raw::Sender;

    /// A packet without anything in it, for each of so many addresses.
    fn packets(count: u16) -> Vec<([u8; 20], IpAddr)> {
        let packet = |number: u16| {
            let [a, b] = number.to_be_bytes();
            let header = [0x45, 0, 0, 20, 0, 1, 0, 0, 64, 50, 0, 0, 127, 0, 0, 1, 127, 1, a, b];
            (header, IpAddr::from([127, 1, a, b]))
        };
        (0..count).map(packet).collect()
    }

    /// Sends the packets one by one.
    fn send(sender: &Sender, now: Instant, packets: &[([u8; 20], IpAddr)]) {
        for (packet, dst) in packets {
            assert_eq!(sender.send(now, &[(packet, *dst)]).unwrap(), 1);
        }
    }

    /// In a namespace with a loopback interface; `None` where there is none to be had.
    fn with_sender(test: impl FnOnce(&Sender) + Send) -> Option<()> {
        let netns = Netns::new().map_err(casemate_left_out::note).ok()?;
        netns.run(|| test(&Sender::open(1).unwrap())).unwrap();
        Some(())
    }

    #[test]
    fn only_slow_peers_keep_their_lanes() {
        let _ = with_sender(|sender| {
            let (at, packets) = (Instant::from_secs, packets(3));
            let lanes = &sender.lanes;
            send(sender, at(5), &packets);
            assert!(!lanes.are_in_use(), "nothing is full");
            sender.separate(at(5));
            send(sender, at(5), &packets);
            assert_eq!(lanes.lock().lanes.len(), 3);
            lanes.lock().lanes[1].full_at = Some(at(5));
            let [slow, other] = [packets[1].1, packets[0].1];
            assert_eq!(
                sender.review(at(5)),
                [format!("link towards {slow} is full: packets beyond its rate are dropped (link-full)")]
            );
            assert_eq!(sender.review(at(7)), [""; 0]);
            assert!(sender.separates(at(7), slow) && !sender.separates(at(7), other));
            send(sender, at(7), &packets);
            assert_eq!(lanes.lock().lanes.len(), 1, "the others share a socket again");
            assert_eq!(
                sender.review(at(15)),
                [format!("link towards {slow} has room again: 0 packets were dropped")]
            );
            assert!(!lanes.are_in_use());
        });
    }

    #[test]
    fn more_destinations_than_lanes_share_lanes() {
        let _ = with_sender(|sender| {
            sender.separate(Instant::ZERO);
            send(sender, Instant::ZERO, &packets(LANES as u16 + 20));
            assert_eq!(sender.lanes.lock().lanes.len(), LANES);
            assert_eq!(sender.lanes.lock().by_destination.len(), LANES);
        });
    }
}
