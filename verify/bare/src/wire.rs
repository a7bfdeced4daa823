//! A wire between two interfaces of smoltcp: what is sent waits until it is carried over.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use casemate_smoltcp::Guarded;
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// One end.
#[derive(Default)]
pub(crate) struct End {
    sent: VecDeque<Vec<u8>>,
    came: VecDeque<Vec<u8>>,
}

impl End {
    /// Carries what was sent to the other end.
    pub(crate) fn carry(&mut self, to: &mut Self) {
        to.came.append(&mut self.sent);
    }

    /// What was sent, to be carried by other means.
    #[cfg(feature = "pi")]
    pub(crate) fn sent(&mut self) -> impl Iterator<Item = Vec<u8>> {
        self.sent.drain(..)
    }

    /// What came by other means.
    #[cfg(feature = "pi")]
    pub(crate) fn arrive(&mut self, packet: Vec<u8>) {
        self.came.push_back(packet);
    }

    /// The protocol of the packet that will be carried first.
    pub(crate) fn protocol_of_next(&self) -> Option<u8> {
        const PLACE: usize = 9;
        self.sent.front()?.get(PLACE).copied()
    }
}

/// What is above a wire.
pub(crate) trait Above: Device {
    fn wire(&mut self) -> &mut End;
}

impl Above for End {
    fn wire(&mut self) -> &mut End {
        self
    }
}

impl Above for Guarded<End> {
    fn wire(&mut self) -> &mut End {
        self.device_mut()
    }
}

impl Device for End {
    type RxToken<'a> = Came;
    type TxToken<'a> = Goes<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1_500;
        capabilities.checksum = ChecksumCapabilities::default();
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(Came, Goes<'_>)> {
        Some((Came(self.came.pop_front()?), Goes(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Goes<'_>> {
        Some(Goes(&mut self.sent))
    }
}

/// A packet that came.
pub(crate) struct Came(Vec<u8>);

impl RxToken for Came {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

/// Leave to send a packet.
pub(crate) struct Goes<'e>(&'e mut VecDeque<Vec<u8>>);

impl TxToken for Goes<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let done = f(&mut packet);
        self.0.push_back(packet);
        done
    }
}
