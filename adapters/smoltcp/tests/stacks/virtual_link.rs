//! The wire between two hosts: delivers frames to the other end and records a copy of each.

use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum length of an IP packet.
pub(crate) const MTU: usize = 1_500;

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of the wire.
pub(crate) struct LinkEnd {
    medium: Medium,
    to_peer: Frames,
    from_peer: Frames,
    seen: Rc<RefCell<Vec<Vec<u8>>>>,
    lost: Rc<Cell<Option<usize>>>,
    /// Number of frames that the end accepts before the other end reads.
    room: usize,
}

/// The recorded frames of both directions.
pub(crate) struct FrameLog {
    frames: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Number of the frame that the link loses, among those that are recorded.
    lost: Rc<Cell<Option<usize>>>,
    medium: Medium,
}

/// A link between two hosts.
pub(crate) struct VirtualLink {
    pub(crate) a: LinkEnd,
    pub(crate) b: LinkEnd,
    pub(crate) seen: FrameLog,
}

impl VirtualLink {
    /// Creates a link. Each end accepts `room` unread frames.
    pub(crate) fn new(medium: Medium, room: usize) -> Self {
        let (a_to_b, b_to_a, frames) = (Frames::default(), Frames::default(), Rc::default());
        let lost = Rc::new(Cell::new(None));
        let end = |to_peer: &Frames, from_peer: &Frames| LinkEnd {
            medium,
            to_peer: to_peer.clone(),
            from_peer: from_peer.clone(),
            seen: Rc::clone(&frames),
            lost: Rc::clone(&lost),
            room,
        };
        let (a, b) = (end(&a_to_b, &b_to_a), end(&b_to_a, &a_to_b));
        Self { a, b, seen: FrameLog { frames, lost, medium } }
    }
}

impl LinkEnd {
    /// Sets the number of unread frames that this end accepts.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Loses the frames that have been sent to this end and were not read.
    pub(crate) fn lose_frames(&self) {
        self.from_peer.borrow_mut().clear();
    }

    /// Injects a frame that arrives at this end.
    pub(crate) fn inject(&self, frame: &[u8]) {
        self.from_peer.borrow_mut().push_back(frame.to_vec());
    }
}

impl FrameLog {
    /// Loses the frame with this number, among those sent from now on in both directions, and removes all
    /// recorded frames.
    pub(crate) fn lose(&self, number: usize) {
        self.take();
        self.lost.set(Some(number));
    }

    /// Returns the number of recorded frames.
    pub(crate) fn count(&self) -> usize {
        self.frames.borrow().len()
    }

    /// Returns and removes all recorded frames.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        self.frames.borrow_mut().drain(..).collect()
    }

    /// Returns the protocols of all recorded IP packets, sorted and without duplicates, and removes the
    /// frames. ARP counts as 0.
    pub(crate) fn protocols(&self) -> Vec<u8> {
        let header = if self.medium == Medium::Ethernet { 14 } else { 0 };
        let mut protocols: Vec<u8> = self.take().iter().map(|frame| protocol(&frame[header..])).collect();
        protocols.sort_unstable();
        protocols.dedup();
        protocols
    }
}

fn protocol(packet: &[u8]) -> u8 {
    match ip::version(packet) {
        Ok(IpVersion::V4) => Ipv4::parse(packet).unwrap().protocol(),
        Ok(IpVersion::V6) => {
            let ip = Ipv6::parse(packet).unwrap();
            // The protocol of the fragmented packet.
            ip.chain().unwrap().last.next_header
        }
        Err(_) => 0,
    }
}

pub(crate) struct Rx(Vec<u8>);
pub(crate) struct Tx<'a>(&'a LinkEnd);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let header = if self.0.medium == Medium::Ethernet { 14 } else { 0 };
        assert!(len <= MTU + header, "a frame of {len} bytes is too long for the wire");
        let mut frame = vec![0; len];
        let written = f(&mut frame);
        let number = self.0.seen.borrow().len();
        self.0.seen.borrow_mut().push(frame.clone());
        if self.0.lost.get() != Some(number) {
            self.0.to_peer.borrow_mut().push_back(frame);
        }
        written
    }
}

impl Device for LinkEnd {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Rx, Tx<'_>)> {
        let frame = self.from_peer.borrow_mut().pop_front()?;
        Some((Rx(frame), Tx(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Tx<'_>> {
        let has_room = self.to_peer.borrow().len() < self.room;
        has_room.then_some(Tx(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = self.medium;
        capabilities.max_transmission_unit = MTU + if self.medium == Medium::Ethernet { 14 } else { 0 };
        capabilities
    }
}
