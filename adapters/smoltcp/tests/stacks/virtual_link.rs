//! The wire between two hosts: delivers frames to the other end and records a copy of each.

use casemate_wire::ip::{self, IpVersion, Ipv4, Ipv6};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Maximum length of an IP packet.
pub(crate) const MTU: usize = 1_500;

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end of the wire.
pub(crate) struct End {
    medium: Medium,
    to_peer: Frames,
    from_peer: Frames,
    seen: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Number of frames that the end accepts before the other end reads.
    room: usize,
}

/// The recorded frames.
pub(crate) struct Seen(Rc<RefCell<Vec<Vec<u8>>>>, Medium);

/// Creates both ends. Each accepts `room` unread frames.
pub(crate) fn wire(medium: Medium, room: usize) -> (End, End, Seen) {
    let (there, back, seen) = (Frames::default(), Frames::default(), Rc::default());
    let end = |to_peer: &Frames, from_peer: &Frames| End {
        medium,
        to_peer: to_peer.clone(),
        from_peer: from_peer.clone(),
        seen: Rc::clone(&seen),
        room,
    };
    (end(&there, &back), end(&back, &there), Seen(seen.clone(), medium))
}

impl End {
    /// Sets the number of unread frames that this end accepts.
    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Injects a frame that arrives at this end.
    pub(crate) fn inject(&self, frame: &[u8]) {
        self.from_peer.borrow_mut().push_back(frame.to_vec());
    }
}

impl Seen {
    /// Returns and removes all recorded frames.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        self.0.borrow_mut().drain(..).collect()
    }

    /// Returns the protocols of all recorded IP packets, sorted and without duplicates, and removes the
    /// frames. ARP counts as 0.
    pub(crate) fn protocols(&self) -> Vec<u8> {
        let header = if self.1 == Medium::Ethernet { 14 } else { 0 };
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
pub(crate) struct Tx<'a>(&'a End);

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
        self.0.seen.borrow_mut().push(frame.clone());
        self.0.to_peer.borrow_mut().push_back(frame);
        written
    }
}

impl Device for End {
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
