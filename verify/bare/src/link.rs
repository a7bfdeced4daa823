//! A link between two smoltcp interfaces. Sent packets wait until they are delivered.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use casemate_smoltcp::IpsecDevice;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// One end of the link.
#[derive(Default)]
pub(crate) struct LinkEnd {
    sent: VecDeque<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
}

impl LinkEnd {
    /// Delivers the sent packets to the other end.
    pub(crate) fn deliver_to(&mut self, to: &mut Self) {
        to.received.append(&mut self.sent);
    }

    /// Removes and returns the sent packets, for delivery by a simulated cable.
    #[cfg(feature = "pi")]
    pub(crate) fn sent(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.sent.drain(..)
    }

    /// Receives a packet from a simulated cable.
    #[cfg(feature = "pi")]
    pub(crate) fn receive_packet(&mut self, packet: Vec<u8>) {
        self.received.push_back(packet);
    }

    /// Returns the IP protocol number of the first packet that waits for delivery.
    pub(crate) fn next_protocol(&self) -> Option<u8> {
        const PROTOCOL_OFFSET: usize = 9;
        self.sent.front()?.get(PROTOCOL_OFFSET).copied()
    }
}

/// A device over one end of the link.
pub(crate) trait OnLink: Device {
    fn link_end(&mut self) -> &mut LinkEnd;
}

impl OnLink for LinkEnd {
    fn link_end(&mut self) -> &mut LinkEnd {
        self
    }
}

impl OnLink for IpsecDevice<LinkEnd> {
    fn link_end(&mut self) -> &mut LinkEnd {
        self.device_mut()
    }
}

impl Device for LinkEnd {
    type RxToken<'a> = RxPacket;
    type TxToken<'a> = TxPacket<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1_500;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(RxPacket, TxPacket<'_>)> {
        Some((RxPacket(self.received.pop_front()?), TxPacket(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxPacket<'_>> {
        Some(TxPacket(&mut self.sent))
    }
}

/// A received packet.
pub(crate) struct RxPacket(Vec<u8>);

impl RxToken for RxPacket {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

/// Permission to send a packet.
pub(crate) struct TxPacket<'e>(&'e mut VecDeque<Vec<u8>>);

impl TxToken for TxPacket<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let done = f(&mut packet);
        self.0.push_back(packet);
        done
    }
}
